/* `radish chat`: a conversation in the terminal. The whole of it is rendered anew for each turn,
 * as over the API, and the prefix cache makes that cheap. Ctrl-C ends an answer, Ctrl-D the chat.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/line_editor.h"

static const char *system_text;
static bool show_timings;

static const struct option chat_options[] = {
    STRING("system sys", &system_text, "TEXT", "a system message to begin with"),
    FLAG("timings", &show_timings, "after each answer, what was cached and how fast it came"),
    {0},
};

struct chat {
    struct generator generator;
    struct arena arena; /* holds the messages */
    struct json *messages;
    struct strbuf answer;
};

static void conversation_reset(struct chat *c)
{
    arena_free(&c->arena);
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
            "[prompt %u tokens, %u cached; first token %.0f ms; %u tokens, %.1f a second]\n",
            g->n_prompt, g->n_cached, g->first_token_ms, g->n_generated,
            seconds > 0 ? (g->n_generated - 1) / seconds : 0.0);
}

static int turn_answer(struct chat *c, struct error *err)
{
    struct token_list tokens = {0};
    strbuf_clear(&c->answer);
    struct generation generation = {
        .max_tokens = generate_max_tokens,
        .sampling = generate_sampling,
        .on_text = text_show,
        .context = c,
    };
    int failed = prompt_maker_chat(&c->generator.runtime->prompt, c->messages, NULL, &tokens, err);
    if (!failed) {
        generation.prompt = tokens.ids;
        generation.n_prompt = (uint32_t)tokens.len;
        failed = generator_run(&c->generator, &generation, err);
    }
    token_list_free(&tokens);
    if (failed)
        return -1;
    printf(generation.finish == FINISH_CANCELED ? " [stopped]\n" : "\n");
    message_append(&c->arena, c->messages, "assistant", strbuf_str(&c->answer), c->answer.len);
    if (show_timings)
        timings_show(&generation);
    return 0;
}

static void chat_loop(const struct command *command, struct chat *c)
{
    struct line_editor editor = {0};
    struct error err;
    const char *line;
    if (isatty(STDIN_FILENO))
        fprintf(stderr, "Ctrl-C stops an answer, Ctrl-D leaves, /clear starts anew.\n");
    while ((line = line_editor_read(&editor, "> "))) {
        if (!*line)
            continue;
        if (strcmp(line, "/clear") == 0) {
            conversation_reset(c);
            continue;
        }
        struct json before = *c->messages;
        message_append(&c->arena, c->messages, "user", line, strlen(line));
        if (turn_answer(c, &err)) { /* as if it had not been asked */
            command_fail(command, &err, EXIT_FAILED);
            *c->messages = before;
            if (before.last)
                before.last->next = NULL;
        }
    }
    line_editor_free(&editor);
}

static int chat_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {
        .tables = {runtime_model_options, chat_options, generate_options, runtime_engine_options}};
    struct runtime runtime;
    struct chat chat = {0};
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    if (runtime_open(&runtime, &err))
        return command_fail(command, &err, EXIT_FAILED);
    if (generator_open(&chat.generator, &runtime, &err)) {
        runtime_close(&runtime);
        return command_fail(command, &err, EXIT_FAILED);
    }
    conversation_reset(&chat);
    chat_loop(command, &chat);
    generator_close(&chat.generator);
    strbuf_free(&chat.answer);
    arena_free(&chat.arena);
    runtime_close(&runtime);
    return EXIT_OK;
}

const struct command command_chat = {
    .name = "chat",
    .summary = "chat with a model in the terminal",
    .usage = "-m FILE [OPTIONS]",
    .example = "radish chat -m model.gguf --system \"You are a pirate.\"",
    .run = chat_run,
};
