/* `radish run`: one answer to one prompt, on standard output. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/terminal/word_wrap.h"

static bool raw, as_json;
static const char *system_text;

static bool is_stdin(const char *operand)
{
    return strcmp(operand, "-") == 0;
}

static const struct option run_options[] = {
    TEXT("system sys", &system_text, "TEXT", "system message for the model"),
    FLAG("raw", &raw, "continue the prompt as plain text, without the chat template"),
    FLAG("json", &as_json, "print the answer as JSON, with token counts and times"),
    {0},
};

/* Removes the newline that echo and editors append. */
static void newline_cut(struct strbuf *text)
{
    if (!text->len || text->data[text->len - 1] != '\n')
        return;
    text->len -= text->len > 1 && text->data[text->len - 2] == '\r' ? 2 : 1;
    text->data[text->len] = '\0';
}

/* Someone who pipes a text to `run` expects it to be read. It is not unless asked for: a script's
 * standard input may never end, or be the script itself. In the middle of a file it is the input of
 * such a script's loop, which gets no warning. */
static void unread_input_warn(void)
{
    int n_bytes = 0;
    if (!isatty(STDIN_FILENO) && ioctl(STDIN_FILENO, FIONREAD, &n_bytes) == 0 && n_bytes > 0 &&
        lseek(STDIN_FILENO, 0, SEEK_CUR) <= 0)
        log_warn("standard input is not read, because the prompt is an argument; to append it: "
                 "radish run \"PROMPT\" -; to ignore it: radish run \"PROMPT\" < /dev/null");
}

/* Reads the prompt: the argument, standard input, or with "-" as a second argument both. Text to be
 * continued is left unchanged. */
static int prompt_read(const struct option_set *set, struct strbuf *text, struct error *err)
{
    const struct string_list *given = &set->operands;
    const bool has_prompt = given->n > 0 && !is_stdin(given->items[0]);
    const bool has_input = !has_prompt || given->n > 1;
    struct strbuf input = STRBUF_INIT;
    int failed = has_input && input_read(&input, err);
    if (!has_input)
        unread_input_warn();
    if (!raw)
        newline_cut(&input);
    if (has_prompt)
        strbuf_addf(text, "%s%s", given->items[0], input.len ? "\n\n" : "");
    strbuf_add(text, strbuf_str(&input), input.len);
    strbuf_free(&input);
    if (failed)
        return -1;
    if (!raw && !text->len)
        return error_set(err, ERROR_INPUT,
                         "the prompt is empty: give it as an argument or on standard input");
    return input_check_utf8("the prompt", strbuf_str(text), text->len, err);
}

/* Makes the prompt's tokens from the text itself, or from a conversation that ends with it. */
static int prompt_make(const struct prompt_maker *maker, const struct strbuf *text,
                       struct token_list *tokens, struct error *err)
{
    if (raw)
        return tokenizer_encode(maker->tokenizer, strbuf_str(text), text->len,
                                TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, tokens, err);
    struct arena arena = ARENA_INIT;
    struct json *messages = json_new(&arena, JSON_ARRAY);
    if (system_text)
        message_append(&arena, messages, "system", system_text, strlen(system_text));
    message_append(&arena, messages, "user", strbuf_str(text), text->len);
    struct prompt_input in = {.messages = messages};
    struct prompt prompt;
    int failed = prompt_maker_chat(maker, &in, &prompt, err);
    if (!failed)
        *tokens = prompt.tokens;
    arena_free(&arena);
    return failed;
}

static void text_take(void *context, const char *text, size_t len)
{
    if (context) {
        strbuf_add(context, text, len);
        return;
    }
    struct strbuf out = STRBUF_INIT;
    if (isatty(STDOUT_FILENO)) {
        controls_replace(text, len, &out);
        text = strbuf_str(&out);
        len = out.len;
    }
    fwrite(text, 1, len, stdout);
    fflush(stdout);
    strbuf_free(&out);
}

static void json_print(const struct generation *g, const struct strbuf *answer)
{
    static const char *const reasons[] = {"none", "stop", "length", "canceled", "error"};
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    json_add_bytes(&w, "text", strbuf_str(answer), answer->len);
    json_add_string(&w, "finish_reason", reasons[g->finish]);
    json_add_int(&w, "prompt_tokens", g->n_prompt);
    json_add_int(&w, "completion_tokens", g->n_generated);
    json_add_int(&w, "seed", (int64_t)g->sampling.seed);
    json_add_double(&w, "first_token_ms", g->first_token_ms);
    json_add_double(&w, "total_ms", g->total_ms);
    json_object_end(&w);
    printf("%s\n", strbuf_str(&out));
    strbuf_free(&out);
}

/* *status is EXIT_OK, or EXIT_INTERRUPTED if the answer was cut short. */
static int answer_print(struct generator *generator, const struct strbuf *text, int *status,
                        struct error *err)
{
    struct token_list tokens = {0};
    struct strbuf answer = STRBUF_INIT;
    struct generation generation = {
        .max_tokens = generate_max_tokens,
        .sampling = generate_sampling(&generator->runtime->prompt),
        .on_text = text_take,
        .context = as_json ? &answer : NULL,
    };
    int failed = prompt_make(&generator->runtime->prompt, text, &tokens, err);
    if (!failed && tokens.len == 0)
        failed = error_set(err, ERROR_INPUT, "the prompt is empty");
    if (!failed) {
        generation.prompt = tokens.ids;
        generation.n_prompt = (uint32_t)tokens.len;
        failed = generator_run(generator, &generation, err);
    }
    if (!failed && as_json)
        json_print(&generation, &answer);
    else if (!failed)
        printf("\n");
    *status = generation.finish == FINISH_CANCELED ? EXIT_INTERRUPTED : EXIT_OK;
    token_list_free(&tokens);
    strbuf_free(&answer);
    return failed;
}

static int template_check(const struct prompt_maker *prompt, struct error *err)
{
    return raw ? 0
               : generate_check_template(
                     prompt, ", or use --raw to continue the prompt as plain text", err);
}

static int options_check(const struct option_set *set, struct error *err)
{
    if (set->operands.n > 1 && !is_stdin(set->operands.items[1]))
        return args_unexpected(set, set->operands.items[1], err);
    const char *useless = system_text                     ? "system"
                          : runtime_options.template_path ? "chat-template-file"
                          : runtime_options.thinking      ? "thinking"
                                                          : NULL;
    if (raw && useless)
        return error_set(err, ERROR_INPUT,
                         "--raw uses no chat template, so --%s has no effect: give only one of "
                         "them",
                         useless);
    return 0;
}

static int run_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct runtime runtime;
    struct generator generator;
    struct strbuf text = STRBUF_INIT;
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    if (options_check(&set, &err))
        return command_fail(command, &err, EXIT_USAGE);
    if (runtime_open(&runtime, RUNTIME_ANSWERS, &err)) /* before anyone types a prompt in vain */
        return command_fail_option(command, &err);
    int failed = template_check(&runtime.prompt, &err) || prompt_read(&set, &text, &err) ||
                 generator_open(&generator, &runtime, NULL, &err);
    if (!failed) {
        failed = answer_print(&generator, &text, &status, &err);
        generator_close(&generator);
    }
    strbuf_free(&text);
    runtime_close(&runtime);
    return failed ? command_fail(command, &err, EXIT_FAILED) : status;
}

const struct command command_run = {
    .name = "run",
    .summary = "answer one prompt and exit",
    .usage = "[-m PATH] [OPTIONS] [PROMPT] [-]",
    .notes =
        "Without PROMPT it is read from standard input. To give both, end with \"-\": standard "
        "input then\nfollows the prompt, after a blank line: git diff | radish run \"Describe "
        "this change\" -\n",
    .example = "radish run -m model.gguf --temp 0 \"Why is the sky blue?\"",
    .operand_hint = "put the prompt in quotes; the model is given with -m PATH",
    .tables = {runtime_default_model_options, command_config_options, run_options, generate_options,
               runtime_template_options, runtime_engine_options, runtime_mock_options},
    .max_operands = 2,
    .run = run_run,
    .has_default_model = true,
};
