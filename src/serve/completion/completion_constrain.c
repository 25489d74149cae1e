/* The constraints on answers: the functions of a request, the grammar of its calls, the form of its
 * text. Grammars are compiled on the worker and kept for the next request (grammar/store.h). An
 * answer that may call functions but need not is unconstrained until it starts a call, and follows
 * the grammar from there on. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/task.h"
#include "prompt/answer/tool_grammar.h"
#include "prompt/grammar/store.h"
#include "prompt/grammar/text_grammar.h"
#include "prompt/schema/json_schema.h"
#include "serve/completion/completion_internal.h"

#define COMPILE_NS UINT64_C(100000000) /* most schemas take less */

/* ---- functions ---- */

static bool is_allowed(const struct request_params *p, const struct json *tool)
{
    const struct json *name = json_get(json_get(tool, "function"), "name");
    json_each (allowed, p->allowed_tools)
        if (byte_view_equal(json_bytes(allowed), json_bytes(name)))
            return true;
    return false;
}

int completion_read_tools(struct completion *c)
{
    struct request_params *p = &c->input.params;
    if (!p->tools)
        return 0;
    if (!(c->input.tools = tool_set_new(p->tools)))
        return no_memory_now(c);
    if (!p->allowed_tools)
        return 0;
    struct json *allowed = json_new(&p->arena, JSON_ARRAY);
    for (const struct json *tool = p->tools->first; tool && allowed; tool = tool->next) {
        if (is_allowed(p, tool))
            json_append(&p->arena, allowed, NULL, json_share(&p->arena, tool));
    }
    if (!allowed || p->arena.failed || !(c->input.callable = tool_set_new(allowed)))
        return no_memory_now(c);
    return 0;
}

/* ---- grammars ---- */

static grammar_expr texts_add(struct grammar_builder *b, const struct json *array,
                              struct error *err)
{
    const char **texts = calloc(array->count, sizeof *texts);
    size_t *lens = calloc(array->count, sizeof *lens), n = 0;
    grammar_expr choice = GRAMMAR_NONE;
    for (const struct json *item = array->first; item && texts && lens; item = item->next, n++) {
        texts[n] = item->text;
        lens[n] = item->text_len;
    }
    if (texts && lens)
        choice = choices_add(b, texts, lens, n, err);
    else
        error_set(err, ERROR_MEMORY, "no memory for a grammar");
    free(texts);
    free(lens);
    return choice;
}

static grammar_expr constraint_add(struct grammar_builder *b, const struct constraint *c,
                                   struct error *err)
{
    const struct json *v = c->value;
    switch (c->kind) {
    case CONSTRAINT_NONE: break;
    case CONSTRAINT_JSON: return json_object_add(b, JSON_RELAXED);
    case CONSTRAINT_SCHEMA: return json_schema_add(b, v, v, JSON_RELAXED, SCHEMA_EXACT, err);
    case CONSTRAINT_GBNF: return gbnf_add(b, v->text, v->text_len, err);
    case CONSTRAINT_REGEX: return regex_add(b, v->text, v->text_len, err);
    case CONSTRAINT_CHOICES: return texts_add(b, v, err);
    }
    return GRAMMAR_NONE;
}

static grammar_expr answer_text_add(struct grammar_builder *b, const struct completion *c,
                                    struct error *err)
{
    const struct prompt_maker *maker = prompt_maker_for(c->api->options->prompt, c->input.tools);
    grammar_expr text = constraint_add(b, &c->input.params.constraint, err);
    if (!text || c->kind != REQUEST_CHAT || c->input.params.continues)
        return text;
    return answer_content_add(b, &maker->style, maker->tokenizer, text);
}

static grammar_expr calls_add(struct grammar_builder *b, const struct completion *c,
                              struct error *err)
{
    const struct prompt_maker *maker = prompt_maker_for(c->api->options->prompt, c->input.tools);
    struct tool_grammar_options options = {.style = &maker->style,
                                           .traits = &maker->traits,
                                           .tools = callable_tools(c),
                                           .parallel = c->input.params.parallel_calls,
                                           .tokenizer = maker->tokenizer};
    return tool_grammar_add(b, &options, err);
}

enum wrong_part { PART_TEXT, PART_CALLS };

struct build {
    struct grammar_source source; /* first */
    const struct completion *c;
};

/* Calls, text of the requested form, or either. Compiling a few bytes may take seconds, so it is
 * left to a lane where nobody with a short request waits. */
static grammar_expr grammar_build(struct grammar_source *source, struct grammar_builder *b,
                                  struct error *err)
{
    const struct completion *c = ((struct build *)source)->c;
    if (!task_has_time(COMPILE_NS)) {
        task_error(err);
        return GRAMMAR_NONE;
    }
    if (!callable_tools(c))
        return answer_text_add(b, c, err);
    grammar_expr either[2] = {calls_add(b, c, err), GRAMMAR_NONE};
    if (either[0] == GRAMMAR_NONE)
        source->wrong_part = PART_CALLS;
    if (!c->input.params.constraint.kind || either[0] == GRAMMAR_NONE)
        return either[0];
    either[1] = answer_text_add(b, c, err);
    return either[1] == GRAMMAR_NONE ? GRAMMAR_NONE : grammar_choice(b, either, 2);
}

/* Everything that the grammar depends on; and the tenant, because the time that a grammar takes
 * would tell one whether another has sent it. */
static void key_write(const struct completion *c, struct strbuf *key)
{
    const struct constraint *constraint = &c->input.params.constraint;
    strbuf_addf(key, "%u %d %d %d ", c->requester.tenant, c->kind, constraint->kind,
                c->input.params.continues);
    if (constraint->kind)
        json_write(key, constraint->value);
    if (!callable_tools(c))
        return;
    strbuf_addf(key, " calls %d ", c->input.params.parallel_calls);
    json_write(key, tool_set_json(callable_tools(c)));
}

static int grammar_error(struct completion *c, bool calls_are_wrong, const struct error *err)
{
    const struct constraint *constraint = &c->input.params.constraint;
    const char *field = constraint->kind && !calls_are_wrong ? constraint->field : "tools";
    if (err->code == ERROR_MEMORY)
        return no_memory_now(c);
    static const char prefix[] = "grammar: "; /* the field's name says it */
    const char *message = err->message;
    if (strncmp(message, prefix, sizeof prefix - 1) == 0)
        message += sizeof prefix - 1;
    if (constraint->kind == CONSTRAINT_GBNF && err->position != ERROR_NO_POSITION &&
        !strstr(message, "(byte "))
        return api_error_set(&c->input.error, 400, field, "'%s': %s (at byte %zu of it)", field,
                             message, err->position);
    return api_error_set(&c->input.error, 400, field, "'%s': %s", field, message);
}

int completion_constrain(struct completion *c)
{
    const struct prompt_maker *maker = prompt_maker_for(c->api->options->prompt, c->input.tools);
    const struct request_params *p = &c->input.params;
    const char *trigger = tool_grammar_trigger(&maker->style, &maker->traits);
    bool is_free = p->tool_choice == TOOL_CHOICE_AUTO && !p->constraint.kind;
    if (c->input.tools && p->tool_choice == TOOL_CHOICE_NONE)
        c->input.bounds.forbidden = trigger;
    if (!p->constraint.kind && (!callable_tools(c) || (is_free && !trigger)))
        return 0;
    struct strbuf key = STRBUF_INIT;
    struct build build = {.source = {.build = grammar_build,
                                     .vocabulary = c->api->vocabulary,
                                     .client = hash_pair(c->requester.tenant, c->requester.client)},
                          .c = c};
    struct error err = {.position = ERROR_NO_POSITION};
    key_write(c, &key);
    if (key.failed)
        error_set(&err, ERROR_MEMORY, "no memory for a grammar");
    else
        c->input.bounds.grammar = grammar_store_take(c->api->grammars, strbuf_str(&key), key.len,
                                                     &build.source, &err);
    strbuf_free(&key);
    c->input.bounds.trigger = is_free ? trigger : NULL;
    if (c->input.bounds.grammar)
        return 0;
    if (is_free && err.code == ERROR_LIMIT && !task_is_stopped()) { /* the parser is enough */
        log_info("the schemas of calls are not enforced: %s", err.message);
        return 0;
    }
    return grammar_error(c, build.source.wrong_part == PART_CALLS, &err);
}

/* The start of the answer, if the last message is one. */
static const char *begun_text(const struct completion *c)
{
    return c->input.params.continues ? json_get(c->input.params.messages->last, "content")->text
                                     : NULL;
}

int completion_open_filter(struct completion *c, struct choice *o)
{
    static const struct answer_style plain = {.tools = TOOLS_JSON};
    const struct prompt_maker *maker = prompt_maker_for(c->api->options->prompt, c->input.tools);
    const struct prompt *prompt = prompt_of(c, (uint32_t)(o - c->running.choices));
    bool is_chat = c->kind == REQUEST_CHAT;
    struct answer_filter_options options = {.style = is_chat ? &maker->style : &plain,
                                            .tokenizer = maker->tokenizer,
                                            .vocabulary = c->api->vocabulary,
                                            .grammar = c->input.bounds.grammar,
                                            .trigger = c->input.bounds.trigger,
                                            .forbidden = c->input.bounds.forbidden,
                                            .ends_in_time = !callable_tools(c),
                                            .begun = begun_text(c),
                                            .starts_in_thinking = prompt->ends_in_thinking,
                                            .thinking_tokens = c->input.params.thinking_tokens};
    struct error err;
    if (!answer_filter_is_needed(&options) || answer_filter_open(&o->filter, &options, &err) == 0)
        return 0;
    if (err.code == ERROR_INPUT)
        return api_error_set(&c->input.error, 400, c->input.params.continues ? "messages" : "tools",
                             "%s", err.message);
    return no_memory_now(c);
}
