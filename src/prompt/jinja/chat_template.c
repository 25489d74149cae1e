/* The entry points of the Jinja interpreter (parse once, render many times) and its error messages.
 * All memory of a rendering is in one arena, so the interpreter never frees anything. */
#include "prompt/jinja/chat_template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "prompt/jinja/ast.h"
#include "prompt/jinja/parse.h"

unsigned jinja_line(const struct chat_template *t, size_t position)
{
    unsigned line = 1;
    for (size_t i = 0; i < position && i < t->len; i++)
        line += t->source[i] == '\n';
    return line;
}

bool jinja_fail(struct jinja *j, const char *format, ...)
{
    if (j->failed)
        return false;
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    j->failed = true;
    error_set(j->err, ERROR_INPUT, "line %u: %s", jinja_line(j->chat_template, j->position),
              message);
    return false;
}

bool jinja_fail_memory(struct jinja *j)
{
    if (!j->failed)
        error_set(j->err, ERROR_LIMIT, "line %u: the chat template needs more than %d MiB",
                  jinja_line(j->chat_template, j->position), JINJA_MAX_MEMORY_BYTES >> 20);
    j->failed = true;
    return false;
}

bool jinja_raise(struct jinja *j, const struct text *message)
{
    if (!j->failed)
        error_set(j->err, ERROR_INPUT, "%.*s", (int)message->len, message->data);
    j->failed = true;
    return false;
}

bool jinja_step(struct jinja *j, size_t cost)
{
    j->steps += cost;
    bool goes_on = task_goes_on(cost);
    if ((goes_on && j->steps <= JINJA_MAX_STEPS) || j->failed)
        return !j->failed;
    j->failed = true;
    if (!goes_on)
        return task_error(j->err) == 0;
    error_set(j->err, ERROR_LIMIT, "line %u: the chat template takes too long: over %d steps",
              jinja_line(j->chat_template, j->position), JINJA_MAX_STEPS);
    return false;
}

void *jinja_alloc(struct jinja *j, size_t size)
{
    void *piece = arena_alloc(j->arena, size);
    if (!piece)
        jinja_fail_memory(j);
    return piece;
}

void *jinja_alloc_array(struct jinja *j, size_t count, size_t size)
{
    void *piece = arena_alloc_array(j->arena, count, size);
    if (!piece)
        jinja_fail_memory(j);
    return piece;
}

bool jinja_fail_undefined(struct jinja *j, const struct value *v)
{
    const struct undefined *u = v->undefined;
    if (u->hint)
        return jinja_fail(j, "%s", u->hint);
    if (u->inline_if)
        return jinja_fail(j,
                          "the inline if-expression on line %u evaluated to false and no else "
                          "section was defined.",
                          jinja_line(j->chat_template, (size_t)u->key.integer));
    if (u->name)
        return jinja_fail(j, "'%.*s' is undefined", (int)u->name->len, u->name->data);
    const char *type = value_type_name(&u->object), *kind = " object";
    if (u->object.type == V_NONE) {
        type = "None";
        kind = "";
    }
    if (u->key.type == V_STRING)
        return jinja_fail(j, "'%s%s' has no attribute '%.*s'", type, kind, (int)u->key.text->len,
                          u->key.text->data);
    const struct text *key = value_repr(j, &u->key);
    return key && jinja_fail(j, "%s%s has no element %.*s", type, kind, (int)key->len, key->data);
}

/* A copy with all newlines as \n, without the last one. */
static char *source_normalize(struct arena *arena, const char *source, size_t len, size_t *out_len)
{
    char *copy = arena_alloc(arena, len + 1);
    size_t n = 0;
    for (size_t i = 0; copy && i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (copy && n && copy[n - 1] == '\n')
        n--;
    *out_len = n;
    return copy;
}

/* Converts an offset in the normalised source to one in the caller's. */
static size_t position_in_source(const char *source, size_t len, size_t position)
{
    size_t i = 0;
    for (size_t n = 0; i < len; i++)
        if (!(source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') && n++ == position)
            break;
    return i;
}

struct chat_template *chat_template_parse(const char *source, size_t len, struct error *err)
{
    struct error error = {.position = ERROR_NO_POSITION};
    if (len > JINJA_MAX_SOURCE_BYTES) {
        error_set(err, ERROR_LIMIT, "the chat template is larger than %d MiB",
                  JINJA_MAX_SOURCE_BYTES >> 20);
        return NULL;
    }
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t) {
        error_set(err, ERROR_MEMORY, "no memory for the chat template");
        return NULL;
    }
    struct arena scratch = {.limit_bytes = JINJA_MAX_MEMORY_BYTES};
    struct lexeme_array lexemes = {0};
    t->arena.limit_bytes = JINJA_MAX_MEMORY_BYTES;
    t->source = source_normalize(&t->arena, source, len, &t->len);
    int rc = t->source ? 0 : error_set(&error, ERROR_MEMORY, "no memory for the chat template");
    if (rc == 0)
        rc = jinja_lex(&t->arena, &scratch, t->source, t->len, &lexemes, &error);
    if (rc == 0)
        rc = jinja_parse(t, lexemes.lexemes, &error);
    if (rc == 0)
        rc = jinja_resolve(t, &error);
    arena_free(&scratch);
    if (rc == 0)
        return t;
    if (error.position != ERROR_NO_POSITION)
        error.position = position_in_source(source, len, error.position);
    if (err)
        *err = error;
    chat_template_free(t);
    return NULL;
}

void chat_template_free(struct chat_template *t)
{
    if (!t)
        return;
    arena_free(&t->arena);
    free(t);
}

static int segments_copy(struct rendering *out, const struct builder *b, struct error *err)
{
    if (b->n_runs > out->segments_capacity) {
        free(out->segments);
        out->segments = malloc(b->n_runs * sizeof *out->segments);
        out->segments_capacity = out->segments ? b->n_runs : 0;
        if (!out->segments)
            return error_set(err, ERROR_MEMORY, "no memory for a rendered chat template");
    }
    if (b->n_runs)
        memcpy(out->segments, b->runs, b->n_runs * sizeof *out->segments);
    out->n_segments = b->n_runs;
    return 0;
}

int chat_template_render(const struct chat_template *t, const struct json *context,
                         const struct render_options *options, struct rendering *out,
                         struct error *err)
{
    struct error ignored = {0};
    struct arena own = ARENA_INIT;
    /* Overwrites the last rendering. A builder reserves an extra byte for the NUL. */
    struct strbuf *held = &out->text;
    struct builder text = {
        .is_output = true, .data = held->data, .capacity = held->capacity ? held->capacity - 1 : 0};
    struct jinja j = {.arena = options->arena ? options->arena : &own,
                      .chat_template = t,
                      .now_unix = options->now_unix,
                      .out = &text,
                      .err = err ? err : &ignored};
    int rc = -1;
    j.arena->limit_bytes = j.arena->used_bytes + JINJA_MAX_MEMORY_BYTES;
    out->n_segments = 0;
    j.context = context_from_json(&j, context);
    struct scope *root = j.context ? scope_enter(&j, NULL, &t->layout) : NULL;
    if (root && exec_nodes(&j, root, &t->body) != FLOW_FAILED)
        rc = segments_copy(out, &text, err);
    *held = (struct strbuf){.data = text.data,
                            .len = rc == 0 ? text.len : 0,
                            .capacity = text.data ? text.capacity + 1 : 0};
    if (held->data)
        held->data[held->len] = '\0';
    arena_free(&own);
    return rc;
}

void rendering_free(struct rendering *r)
{
    strbuf_free(&r->text);
    free(r->segments);
    r->segments = NULL;
    r->n_segments = r->segments_capacity = 0;
}
