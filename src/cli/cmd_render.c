/* `radish render`: renders a chat template to show what the model receives. With a model, the
 * context goes through the same steps as a request to the server; a template alone sees the context
 * unchanged. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/runtime.h"
#include "serve/request/fields.h"

static const char *template_path, *context_path, *now_text;
static int64_t now_unix; /* 0: now */

static const struct option render_options_table[] = {
    STRING("template", &template_path, "FILE", "use this Jinja template instead of a model's own"),
    STRING("context", &context_path, "FILE",
           "JSON file with the template's variables: messages, tools, ... (-: standard input)"),
    STRING("now", &now_text, "TIME",
           "time for templates that print the date: 2025-07-10T12:00:00 (default: now)"),
    {0},
};

static int now_parse(struct error *err)
{
    struct tm tm = {0};
    if (!now_text)
        return 0;
    const char *end = strptime(now_text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end || *end)
        return error_set(err, ERROR_INPUT,
                         "--now needs a time such as 2025-07-10T12:00:00, not '%s'", now_text);
    now_unix = (int64_t)timegm(&tm);
    return 0;
}

/* ---- a template alone ---- */

static int template_render(const struct json *context, struct strbuf *out, struct error *err)
{
    struct render_options options = {.now_unix = now_unix ? now_unix : clock_unix_seconds()};
    struct strbuf source = STRBUF_INIT;
    struct rendering rendering = RENDERING_INIT;
    int failed = file_read(template_path, 0, &source, err);
    if (!failed) {
        struct chat_template *t = chat_template_parse(strbuf_str(&source), source.len, err);
        failed = t ? chat_template_render(t, context, &options, &rendering, err) : -1;
        chat_template_free(t);
    }
    strbuf_add(out, strbuf_str(&rendering.text), rendering.text.len);
    rendering_free(&rendering);
    strbuf_free(&source);
    return failed;
}

/* ---- a model ---- */

/* Names with the same meaning in a request and a context. All others go to the template. */
static bool is_of_request(const char *name)
{
    return strcmp(name, "messages") == 0 || strcmp(name, "tools") == 0 ||
           strcmp(name, "continue_final_message") == 0;
}

static int request_read(struct request_params *p, const struct json *context, struct error *err)
{
    struct strbuf body = STRBUF_INIT;
    struct json_writer w = {.out = &body};
    const struct sampling sampling = SAMPLING_DEFAULT;
    struct api_error cause = {0};
    json_object_begin(&w, NULL);
    json_each (member, context)
        if (is_of_request(member->key))
            json_add_value(&w, member->key, member);
    json_object_end(&w);
    int failed = request_params_read(p, REQUEST_RENDER, strbuf_str(&body), body.len, false,
                                     &sampling, &cause) ||
                 request_find_continuation(p, REQUEST_RENDER, &cause);
    strbuf_free(&body);
    if (failed)
        return error_set(err, ERROR_INPUT, "%s: %.400s", context_path, cause.message);
    p->extra = json_new(&p->arena, JSON_OBJECT);
    json_each (member, context)
        if (!is_of_request(member->key))
            json_append(&p->arena, p->extra, member->key, json_share(&p->arena, member));
    return p->arena.failed ? error_set(err, ERROR_MEMORY, "no memory for a conversation") : 0;
}

static int conversation_render(const struct prompt_maker *maker, const struct json *context,
                               struct strbuf *out, struct error *err)
{
    struct request_params p = {0};
    struct tool_set *tools = NULL;
    int failed = request_read(&p, context, err);
    if (!failed && p.tools && !(tools = tool_set_new(p.tools)))
        failed = error_set(err, ERROR_MEMORY, "no memory for a conversation");
    if (!failed) {
        struct prompt_input in = {.messages = p.messages,
                                  .tools = tools,
                                  .extra = p.extra,
                                  .continues = p.continues,
                                  .now_unix = now_unix};
        failed = prompt_maker_render(maker, &in, out, err);
    }
    tool_set_free(tools);
    request_params_free(&p);
    return failed;
}

static int model_render(const struct json *context, struct strbuf *out, struct error *err)
{
    struct tokenizer *tokenizer;
    struct chat_defaults chat;
    struct prompt_maker maker;
    if (runtime_open_tokenizer(&tokenizer, &chat, err) ||
        prompt_maker_open(&maker, tokenizer, &chat, template_path, err))
        return -1;
    int failed = maker.chat_template
                     ? conversation_render(&maker, context, out, err)
                     : error_set(err, ERROR_INPUT, "%s: give one with --template FILE",
                                 maker.template_problem);
    prompt_maker_close(&maker);
    return failed;
}

/* ---- the command ---- */

/* An array is the messages alone. */
static const struct json *messages_wrap(struct arena *arena, const struct json *messages,
                                        struct error *err)
{
    struct json *context = json_new(arena, JSON_OBJECT);
    json_append(arena, context, "messages", json_share(arena, messages));
    if (!arena->failed)
        return context;
    error_set(err, ERROR_MEMORY, "no memory for a conversation");
    return NULL;
}

static int context_render(struct strbuf *out, struct error *err)
{
    struct strbuf text = STRBUF_INIT;
    struct arena arena = ARENA_INIT;
    const struct json *context = NULL;
    int failed = file_read(context_path, 0, &text, err);
    if (!failed)
        failed = (context = json_parse(&arena, strbuf_str(&text), text.len, err)) ? 0 : -1;
    if (!failed && context->type == JSON_ARRAY)
        failed = (context = messages_wrap(&arena, context, err)) ? 0 : -1;
    if (!failed && context->type != JSON_OBJECT)
        failed = error_set(err, ERROR_INPUT,
                           "%s: expected a JSON object such as {\"messages\": [...]}",
                           context_path);
    if (!failed)
        failed = (runtime_options.model_path ? model_render : template_render)(context, out, err);
    arena_free(&arena);
    strbuf_free(&text);
    return failed;
}

static int options_check(struct error *err)
{
    if (!context_path)
        return error_set(err, ERROR_INPUT,
                         "--context is missing: give a JSON file, or - for standard input");
    if (!template_path && !runtime_options.model_path)
        return error_set(err, ERROR_INPUT, "no template given: use -m PATH or --template FILE");
    return now_parse(err);
}

static int render_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct strbuf out = STRBUF_INIT;
    struct error err;
    int status;
    if (!command_parse(command, &set, argc, argv, &status))
        return status;
    if (options_check(&err))
        return command_fail(command, &err, EXIT_USAGE);
    int failed = context_render(&out, &err);
    if (!failed)
        fwrite(strbuf_str(&out), 1, out.len, stdout);
    strbuf_free(&out);
    return failed ? command_fail(command, &err, EXIT_FAILED) : EXIT_OK;
}

const struct command command_render = {
    .name = "render",
    .summary = "print the prompt that a chat template makes",
    .usage = "(-m PATH | --template FILE) --context FILE.json",
    .example = "radish render -m model.gguf --context conversation.json",
    .operand_hint = "the model is given with -m PATH",
    .tables = {runtime_model_options, render_options_table},
    .run = render_run,
};
