/* `radish render`: a chat template rendered with a context, to see what the model is given. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/runtime.h"

static const char *template_path, *context_path, *now_text;

static const struct option render_options_table[] = {
    STRING("template", &template_path, "FILE", "a Jinja template instead of a model's own"),
    STRING("context", &context_path, "FILE",
           "JSON object of what the template sees: messages, add_generation_prompt, ..."),
    STRING("now", &now_text, "TIME",
           "what strftime_now sees, as 2025-07-10T12:00:00 (default: now)"),
    {0},
};

static struct render_options render_options;

static int now_parse(struct error *err)
{
    struct tm tm = {0};
    render_options.now_unix = clock_unix_seconds();
    if (!now_text)
        return 0;
    const char *end = strptime(now_text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end || *end)
        return error_set(err, ERROR_INPUT, "--now needs a time as 2025-07-10T12:00:00, not '%s'",
                         now_text);
    render_options.now_unix = (int64_t)timegm(&tm);
    return 0;
}

/* The template's source: of the file, else of the model. */
static int source_read(struct strbuf *source, struct error *err)
{
    if (template_path)
        return file_read(template_path, 0, source, err);
    struct tokenizer *tokenizer;
    size_t len;
    if (runtime_open_tokenizer(&tokenizer, err))
        return -1;
    int failed = 0;
    const char *text = tokenizer_chat_template(tokenizer, &len);
    if (text)
        strbuf_add(source, text, len);
    else
        failed = error_set(err, ERROR_INPUT,
                           "%s: the model has no chat template; give one with --template",
                           runtime_options.model_path);
    tokenizer_close(tokenizer);
    return failed;
}

static int context_render(const struct strbuf *source, const struct strbuf *context_text,
                          struct rendering *out, struct error *err)
{
    struct arena arena = ARENA_INIT;
    const struct json *context = json_parse(&arena, strbuf_str(context_text), context_text->len,
                                            err);
    int failed = context ? 0 : -1;
    if (context && context->type != JSON_OBJECT)
        failed = error_set(err, ERROR_INPUT, "%s: the context is not a JSON object", context_path);
    if (!failed) {
        struct chat_template *t = chat_template_parse(strbuf_str(source), source->len, err);
        failed = t ? chat_template_render(t, context, &render_options, out, err) : -1;
        chat_template_free(t);
    }
    arena_free(&arena);
    return failed;
}

static int options_check(struct error *err)
{
    if (!context_path)
        return error_set(err, ERROR_INPUT, "--context FILE is needed (- for standard input)");
    if (!template_path && !runtime_options.model_path)
        return error_set(err, ERROR_INPUT, "which template? Give -m PATH or --template FILE");
    return now_parse(err);
}

static int render_run(const struct command *command, int argc, char **argv)
{
    struct option_set set = {.tables = {runtime_model_options, render_options_table}};
    struct strbuf source = STRBUF_INIT, context = STRBUF_INIT;
    struct rendering out = RENDERING_INIT;
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    if (options_check(&err))
        return command_fail(command, &err, EXIT_USAGE);
    int failed = source_read(&source, &err) || file_read(context_path, 0, &context, &err) ||
                 context_render(&source, &context, &out, &err);
    if (!failed)
        fwrite(strbuf_str(&out.text), 1, out.text.len, stdout);
    strbuf_free(&source);
    strbuf_free(&context);
    rendering_free(&out);
    return failed ? command_fail(command, &err, EXIT_FAILED) : EXIT_OK;
}

const struct command command_render = {
    .name = "render",
    .summary = "render a chat template",
    .usage = "(-m PATH | --template FILE) --context FILE.json",
    .example = "radish render -m model.gguf --context conversation.json",
    .run = render_run,
};
