/* Fits conversations to a template: functions, calls and their results. Runs on a worker.
 *
 * Arguments arrive as JSON text that a model wrote, so they may be anything. They never fail a
 * conversation: the model that wrote them may see them again. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "prompt/answer/call_form.h"
#include "prompt/conversation_internal.h"

enum {
    MAX_LOOK = 128, /* limits the search for a result's call: hostile requests have many of both */
    SHORT_ID_LEN = 9,
};

/* ---- the prompt ---- */

/* The form of calls as text: the template's own, if known. */
static const struct call_form *form_of(const struct fitting *f)
{
    return call_form_find(f->style->tools, f->traits);
}

static void example_add(struct strbuf *text, const struct call_form *form)
{
    struct json value = {
        .type = JSON_STRING, .key = "argument_name", .key_len = 13, .text = "value", .text_len = 5};
    struct json arguments = {.type = JSON_OBJECT, .first = &value, .last = &value, .count = 1};
    static const char name[] = "function_name";
    call_form_write(text, form, 0, name, sizeof name - 1, &arguments);
    strbuf_adds(text, form->last);
}

const struct json *tool_prompt(const struct fitting *f)
{
    size_t n = tool_set_size(f->in->tools);
    if (n == 0 || f->traits->takes_tools)
        return NULL;
    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, "# Tools\n\nYou can call the following functions. Each line describes one, "
                       "with a JSON schema of its parameters:\n");
    json_each (tool, tool_set_json(f->in->tools)) {
        const struct json *function = json_get(tool, "function");
        json_write_canonical(&text, function ? function : tool);
        strbuf_addc(&text, '\n');
    }
    strbuf_adds(&text, "\nTo call a function, write its name and arguments exactly like this:\n");
    example_add(&text, form_of(f));
    strbuf_adds(&text, "\n\nThen stop: the result is sent to you");
    if (!f->traits->takes_results)
        strbuf_adds(&text, " between <tool_response> and </tool_response>");
    strbuf_adds(&text, ". If no function is needed, answer as usual.");
    return content_take(f->arena, &text);
}

/* Adds the optional members that a function lacks. */
static struct json *tool_complete(struct arena *arena, const struct json *tool)
{
    struct json *whole = json_new(arena, JSON_OBJECT), *function = json_new(arena, JSON_OBJECT);
    const struct json *given = json_get(tool, "function");
    struct json *parameters = json_new(arena, JSON_OBJECT);
    json_append(arena, parameters, "type", json_new_string(arena, "object", 6));
    json_append(arena, parameters, "properties", json_new(arena, JSON_OBJECT));
    for (const struct json *m = given->first; m; m = m->next)
        json_append(arena, function, m->key, json_share(arena, m));
    if (!json_get(given, "description"))
        json_append(arena, function, "description", json_new_string(arena, "", 0));
    if (!json_get(given, "parameters"))
        json_append(arena, function, "parameters", parameters);
    json_append(arena, whole, "type", json_new_string(arena, "function", 8));
    json_append(arena, whole, "function", function);
    return whole;
}

const struct json *tools_fit(const struct fitting *f)
{
    if (tool_set_size(f->in->tools) == 0 || !f->traits->takes_tools)
        return NULL;
    const struct json *given = tool_set_json(f->in->tools);
    struct json *tools = json_new(f->arena, JSON_ARRAY);
    if (!f->traits->wants_whole_tools)
        return given;
    json_each (tool, given)
        json_append(f->arena, tools, NULL, tool_complete(f->arena, tool));
    return tools;
}

/* ---- arguments ---- */

static const struct json *function_of(const struct json *call)
{
    const struct json *function = json_get(call, "function");
    return function ? function : call;
}

static const struct json *name_of(const struct json *call)
{
    const struct json *name = json_get(function_of(call), "name");
    return json_is(name, JSON_STRING) ? name : NULL;
}

/* The arguments as an object; anything else becomes a member of one, so that nothing is lost. */
static const struct json *arguments_object(struct arena *arena, const struct json *call)
{
    const struct json *arguments = json_get(function_of(call), "arguments");
    if (json_is(arguments, JSON_OBJECT))
        return arguments;
    struct json *object = NULL;
    struct error ignored;
    if (json_is(arguments, JSON_STRING) && arguments->text_len)
        object = json_parse(arena, arguments->text, arguments->text_len, &ignored);
    if (json_is(object, JSON_OBJECT))
        return object;
    object = json_new(arena, JSON_OBJECT);
    if (json_is(arguments, JSON_STRING) && arguments->text_len)
        json_append(arena, object, "arguments",
                    json_new_string(arena, arguments->text, arguments->text_len));
    return object;
}

static struct json *arguments_text(struct arena *arena, const struct json *call)
{
    const struct json *arguments = json_get(function_of(call), "arguments");
    if (json_is(arguments, JSON_STRING) && arguments->text_len)
        return json_new_string(arena, arguments->text, arguments->text_len);
    if (!json_is(arguments, JSON_OBJECT))
        return json_new_string(arena, "{}", 2);
    struct strbuf text = STRBUF_INIT;
    json_write_canonical(&text, arguments);
    return (struct json *)content_take(arena, &text);
}

/* ---- calls ---- */

static const struct json *calls_as_text(const struct fitting *f, const struct turn *turn)
{
    const struct call_form *form = form_of(f);
    struct strbuf text = STRBUF_INIT;
    const struct json *call = turn->calls;
    for (size_t i = 0; i < turn->n_calls; i++, call = call->next) {
        const struct json *name = name_of(call), *arguments = arguments_object(f->arena, call);
        if (!arguments)
            break;
        call_form_write(&text, form, i, name ? name->text : "", name ? name->text_len : 0,
                        arguments);
    }
    strbuf_adds(&text, form->last);
    return content_take(f->arena, &text);
}

static bool is_result_of(const struct turn *turn, const struct json *call)
{
    const struct json *id = json_get(call, "id"), *of = json_get(turn->source, "tool_call_id");
    return json_is(id, JSON_STRING) && json_is(of, JSON_STRING) &&
           byte_view_equal(json_bytes(id), json_bytes(of));
}

/* Makes messages with one call each, each followed by its result. `i` is the turn with the calls.
 * Returns the first turn after its results. */
static size_t calls_part(struct fitting *f, size_t i)
{
    struct turn part = f->turns[i];
    struct turn *results = &f->turns[i + 1];
    size_t n = 0, first = 0; /* the number of results, and how many of the first ones are used */
    while (i + 1 + n < f->n && results[n].role == TURN_TOOL)
        n++;
    const size_t n_calls = part.n_calls;
    part.n_calls = 1;
    for (size_t c = 0; c < n_calls; c++) {
        turn_push(f, part);
        size_t r = first;
        while (r < n && r < first + MAX_LOOK &&
               (!results[r].source || !is_result_of(&results[r], part.calls)))
            r++;
        if (r < n && r < first + MAX_LOOK) {
            turn_push(f, results[r]);
            /* The remaining results keep their order. */
            memmove(&results[first + 1], &results[first], (r - first) * sizeof *results);
            first++;
        }
        part.calls = part.calls->next;
        part.first_call++;
        part.content = NULL;
        part.source = NULL;
    }
    for (; first < n; first++)
        turn_push(f, results[first]);
    return i + 1 + n;
}

void fit_calls(struct fitting *f)
{
    const struct template_traits *t = f->traits;
    for (size_t i = 0; i < f->n;) {
        struct turn *turn = &f->turns[i];
        if (turn->n_calls && !t->takes_calls) {
            turn->content = content_join(f->arena, turn->content, "\n", calls_as_text(f, turn));
            turn->n_calls = 0;
        }
        if (turn->n_calls && t->wants_calls_alone && !content_is_empty(turn->content)) {
            struct turn text = *turn;
            text.n_calls = 0;
            turn_push(f, text);
            turn->content = NULL;
            turn->source = NULL;
        }
        if (turn->n_calls > 1 && !t->takes_several_calls) {
            i = calls_part(f, i);
        } else {
            turn_push(f, *turn);
            i++;
        }
    }
    turns_swap(f);
}

/* ---- results ---- */

static const struct json *result_text(const struct fitting *f, const struct turn *turn)
{
    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, "<tool_response>\n");
    if (json_is(turn->content, JSON_STRING))
        strbuf_add(&text, turn->content->text, turn->content->text_len);
    strbuf_adds(&text, "\n</tool_response>");
    return content_take(f->arena, &text);
}

void fit_results(struct fitting *f)
{
    bool was_result = false;
    for (size_t i = 0; i < f->n; i++) {
        struct turn turn = f->turns[i];
        bool is_result = turn.role == TURN_TOOL && !f->traits->takes_results;
        if (is_result) {
            turn.content = result_text(f, &turn);
            turn.role = TURN_USER;
            turn.source = NULL;
        }
        if (is_result && was_result) {
            struct turn *before = &f->made[f->n_made - 1];
            before->content = content_join(f->arena, before->content, "\n", turn.content);
        } else {
            turn_push(f, turn);
        }
        was_result = is_result;
    }
    turns_swap(f);
}

/* ---- ids and names ---- */

static bool is_short_id(const struct json *id)
{
    if (!json_is(id, JSON_STRING) || id->text_len != SHORT_ID_LEN)
        return false;
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return strspn(id->text, allowed) == SHORT_ID_LEN;
}

/* An id of nine letters and digits; equal ids give equal results in every request. */
static struct json *short_id(struct arena *arena, const struct json *id)
{
    char text[SHORT_ID_LEN];
    uint64_t hash = hash_bytes(id->text, id->text_len);
    for (int i = 0; i < SHORT_ID_LEN; i++, hash /= 36)
        text[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
    return json_new_string(arena, text, sizeof text);
}

static struct json *named_id(struct arena *arena, const struct json *name, size_t index)
{
    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, "functions.");
    strbuf_add(&text, name->text, name->text_len);
    strbuf_addf(&text, ":%zu", index);
    return (struct json *)content_take(arena, &text);
}

/* An id in the form that the template needs. `call` is its call, with that index in the
 * conversation; NULL: unknown. */
static struct json *id_fit(const struct fitting *f, const struct json *id, const struct json *call,
                           size_t index)
{
    const struct json *name = call ? name_of(call) : NULL;
    if (f->traits->wants_named_ids && name)
        return named_id(f->arena, name, index);
    if (!json_is(id, JSON_STRING))
        return NULL;
    if (f->traits->wants_short_ids && !is_short_id(id))
        return short_id(f->arena, id);
    return json_new_string(f->arena, id->text, id->text_len);
}

static struct json *call_make(const struct fitting *f, const struct json *call, size_t index)
{
    struct json *made = json_new(f->arena, JSON_OBJECT),
                *function = json_new(f->arena, JSON_OBJECT);
    const struct json *name = name_of(call);
    json_append(f->arena, made, "id", id_fit(f, json_get(call, "id"), call, index));
    json_append(f->arena, made, "type", json_new_string(f->arena, "function", 8));
    json_append(f->arena, function, "name",
                json_new_string(f->arena, name ? name->text : "", name ? name->text_len : 0));
    if (f->traits->wants_argument_object) {
        const struct json *object = arguments_object(f->arena, call);
        struct json *copy = object ? json_new(f->arena, JSON_OBJECT) : NULL;
        if (copy) {
            *copy = *object;
            copy->next = NULL;
        }
        json_append(f->arena, function, "arguments", copy);
    } else {
        json_append(f->arena, function, "arguments", arguments_text(f->arena, call));
    }
    json_append(f->arena, made, "function", function);
    return made;
}

void calls_append(const struct fitting *f, const struct turn *turn, struct json *message)
{
    if (!turn->n_calls)
        return;
    struct json *calls = json_new(f->arena, JSON_ARRAY);
    const struct json *call = turn->calls;
    for (size_t i = 0; i < turn->n_calls; i++, call = call->next)
        json_append(f->arena, calls, NULL, call_make(f, call, turn->first_call + i));
    json_append(f->arena, message, "tool_calls", calls);
}

/* The call that turn `i` answers, from the preceding message with calls; NULL: none. */
static const struct json *call_of(const struct turn *turns, size_t i, size_t *index)
{
    size_t back = i;
    while (back > 0 && i - back < MAX_LOOK && turns[back].n_calls == 0)
        back--;
    const struct json *call = turns[back].calls;
    for (size_t c = 0; c < turns[back].n_calls && c < MAX_LOOK; c++, call = call->next)
        if (is_result_of(&turns[i], call)) {
            *index = turns[back].first_call + c;
            return call;
        }
    return NULL;
}

void result_append(const struct fitting *f, const struct turn *turns, size_t i,
                   struct json *message)
{
    size_t index = 0;
    const struct json *source = turns[i].source;
    const struct json *call = call_of(turns, i, &index), *name = call ? name_of(call) : NULL;
    json_append(f->arena, message, "tool_call_id",
                id_fit(f, json_get(source, "tool_call_id"), call, index));
    if (name && !json_get(source, "name"))
        json_append(f->arena, message, "name",
                    json_new_string(f->arena, name->text, name->text_len));
}
