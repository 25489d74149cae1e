/* `radish chat`: a conversation in the terminal. The whole of it is rendered anew for each turn,
 * as over the API, and the prefix cache makes that cheap: earlier answers become the tokens that
 * were sampled for them. Ctrl-C ends an answer, Ctrl-D the chat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/line_editor.h"

static const char *system_text;
static bool show_timings;

static const struct option chat_options[] = {
    TEXT("system sys", &system_text, "TEXT", "a system message to begin with"),
    FLAG("timings", &show_timings, "after each answer, what was cached and how fast it came"),
    {0},
};

struct chat {
    struct generator generator;
    struct arena arena; /* holds the messages */
    struct json *messages;
    struct strbuf answer;
    struct replay_store *replay; /* the answers so far */
    struct token_list sampled;   /* of the last one */
    uint64_t n_turns;            /* of this conversation, answered */
};

enum { REPLAY_BYTES = 16 << 20 };

static void conversation_reset(struct chat *c)
{
    arena_free(&c->arena);
    c->n_turns = 0;
    c->messages = json_new(&c->arena, JSON_ARRAY);
    if (system_text)
        message_append(&c->arena, c->messages, "system", system_text, strlen(system_text));
}

static void text_show(void *context, const char *text, size_t len)
{
    struct chat *c = context;
    strbuf_add(&c->answer, text, len);
    fwrite(text, 1, len, stdout);
    fflush(stdout);
}

static void timings_show(const struct generation *g)
{
    double seconds = g->n_generated > 1 ? (g->total_ms - g->first_token_ms) / 1000 : 0;
    fprintf(stderr,
            "[prompt %u tokens, %u cached; first token %.0f ms; %u token%s, %.1f a second]\n",
            g->n_prompt, g->n_cached, g->first_token_ms, g->n_generated,
            g->n_generated == 1 ? "" : "s", seconds > 0 ? (g->n_generated - 1) / seconds : 0.0);
}

/* What an answer that did not end by itself is followed by. */
static const char *ending(const struct chat *c, const struct generation *g)
{
    bool is_full = g->n_prompt + g->n_generated >= c->generator.runtime->context;
    if (g->finish == FINISH_CANCELED)
        return " [stopped]";
    return g->finish == FINISH_LENGTH && is_full ? " [the context is full: /clear starts anew]"
                                                 : "";
}

static int prompt_make(const struct chat *c, struct prompt *prompt, struct error *err)
{
    uint32_t context = c->generator.runtime->context;
    struct prompt_input in = {.messages = c->messages, .replay = c->replay};
    if (prompt_maker_chat(&c->generator.runtime->prompt, &in, prompt, err))
        return -1;
    if (prompt->tokens.len >= context)
        return error_set(err, ERROR_LIMIT,
                         "the conversation has %zu tokens, and the context holds %u with the "
                         "answer: /clear starts anew, or ask with fewer words",
                         prompt->tokens.len, context);
    return 0;
}

static int turn_answer(struct chat *c, struct error *err)
{
    struct prompt prompt = {0};
    strbuf_clear(&c->answer);
    c->sampled.len = 0;
    struct generation generation = {
        .max_tokens = generate_max_tokens,
        .sampling = generate_sampling(&c->generator.runtime->prompt),
        .on_text = text_show,
        .context = c,
        .sampled = &c->sampled,
    };
    /* With the same numbers for each turn a model would say the same thing again. */
    generation.sampling.seed += c->n_turns;
    int failed = prompt_make(c, &prompt, err);
    if (!failed) {
        generation.prompt = prompt.tokens.ids;
        generation.n_prompt = (uint32_t)prompt.tokens.len;
        failed = generator_run(&c->generator, &generation, err);
        replay_store_add(c->replay, 0, prompt.digest, c->sampled.ids, c->sampled.len);
    }
    prompt_free(&prompt);
    if (failed)
        return -1;
    c->n_turns++;
    printf("%s\n", ending(c, &generation));
    message_append(&c->arena, c->messages, "assistant", strbuf_str(&c->answer), c->answer.len);
    if (show_timings)
        timings_show(&generation);
    return 0;
}

/* One message and its answer; after a failure it is as if it had not been asked. */
static int turn_take(struct chat *c, const char *text, struct error *err)
{
    if (input_check_utf8("the message", text, strlen(text), err))
        return -1;
    struct json before = *c->messages;
    message_append(&c->arena, c->messages, "user", text, strlen(text));
    if (turn_answer(c, err) == 0)
        return 0;
    *c->messages = before;
    if (before.last)
        before.last->next = NULL;
    return -1;
}

static bool is_quit(const char *line)
{
    return strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0 || strcmp(line, "/bye") == 0;
}

static void help_show(void)
{
    fprintf(stderr, "/clear  forget the conversation and start anew\n"
                    "/quit   leave, as do /exit, /bye and Ctrl-D\n"
                    "Ctrl-C  stop the answer\n"
                    "A pasted text is one message, whatever lines it has.\n");
}

/* A person has seen what failed; a script gets it as the exit status. */
static int chat_loop(const struct command *command, struct chat *c)
{
    struct line_editor editor = {0};
    struct error err;
    const char *line;
    bool failed = false, is_terminal = isatty(STDIN_FILENO);
    if (is_terminal)
        fprintf(stderr, "Ctrl-C stops an answer, Ctrl-D leaves, /clear starts anew, /help.\n");
    while ((line = line_editor_read(&editor, "> ")) && !is_quit(line)) {
        if (strcmp(line, "/clear") == 0) {
            conversation_reset(c);
        } else if (strcmp(line, "/help") == 0) {
            help_show();
        } else if (*line && turn_take(c, line, &err)) {
            command_fail(command, &err, EXIT_FAILED);
            failed = true;
        }
    }
    line_editor_free(&editor);
    return failed && !is_terminal ? EXIT_FAILED : EXIT_OK;
}

static int chat_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {.tables = {runtime_model_options, chat_options, generate_options,
                                        runtime_template_options, runtime_engine_options,
                                        runtime_mock_options}};
    struct runtime runtime;
    struct chat chat = {0};
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    if (runtime_open(&runtime, RUNTIME_ANSWERS, &err))
        return command_fail_option(command, &err);
    if (generate_check_template(&runtime.prompt, "", &err) ||
        replay_store_open(&chat.replay, REPLAY_BYTES, &err) ||
        generator_open(&chat.generator, &runtime, &err)) {
        replay_store_close(chat.replay);
        runtime_close(&runtime);
        return command_fail(command, &err, EXIT_FAILED);
    }
    conversation_reset(&chat);
    status = chat_loop(command, &chat);
    generator_close(&chat.generator);
    replay_store_close(chat.replay);
    token_list_free(&chat.sampled);
    strbuf_free(&chat.answer);
    arena_free(&chat.arena);
    runtime_close(&runtime);
    return status;
}

const struct command command_chat = {
    .name = "chat",
    .summary = "chat with a model in the terminal",
    .usage = "-m PATH [OPTIONS]",
    .example = "radish chat -m model.gguf --system \"You are a pirate.\"",
    .run = chat_run,
};
