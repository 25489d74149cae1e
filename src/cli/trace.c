/* Reads traces; see trace.h. Traces are untrusted input: lengths are bounded before use and must
 * agree with the number of blocks. */
#include "cli/trace.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/pair_map.h"
#include "cache/cache_token.h"

enum { LINE_BLOCK_SIZE = 512 };
enum { GROUP_NAMED, GROUP_NAMELESS }; /* blocks with an id; prompt ends without one */

/* The two formats' names for the same fields. */
struct field_names {
    const char *input, *output;
};

static const struct field_names line_names = {"input_length", "output_length"};
static const struct field_names agent_names = {"in", "out"};

struct reader {
    struct trace *trace;
    struct pair_map numbers;
    const struct field_names *names;
    size_t request_capacity, block_capacity;
    struct error *err;
};

/* Makes room for `extra` more items after `count`. */
static int array_reserve(void **items, size_t *capacity, size_t count, size_t extra,
                         size_t item_bytes, struct error *err)
{
    if (count + extra <= *capacity)
        return 0;
    size_t larger = 2 * *capacity > count + extra ? 2 * *capacity : count + extra;
    void *moved = larger <= SIZE_MAX / item_bytes ? realloc(*items, larger * item_bytes) : NULL;
    if (!moved)
        return error_set(err, ERROR_MEMORY, "no memory for a trace of that size");
    *items = moved;
    *capacity = larger;
    return 0;
}

/* Reads a whole number between `least` and `most`. */
static int count_read(const struct json *object, const char *name, int64_t least, int64_t most,
                      uint32_t *out, struct error *err)
{
    const struct json *value = json_get(object, name);
    int64_t number;
    if (!value)
        return error_set(err, ERROR_FORMAT, "\"%s\" is missing", name);
    if (!json_to_int64(value, &number) || number < least || number > most)
        return error_set(err, ERROR_FORMAT,
                         "\"%s\" must be a whole number from %" PRId64 " to %" PRId64 ", not %s",
                         name, least, most,
                         value->type == JSON_NUMBER && value->text_len < 40
                             ? value->text
                             : json_type_name(value->type));
    *out = (uint32_t)number;
    return 0;
}

static int block_add(struct reader *r, uint32_t group, int64_t id)
{
    struct trace *t = r->trace;
    uint32_t number = pair_map_number(&r->numbers, group, id, r->err);
    if (number == UINT32_MAX)
        return -1;
    if (number >= TRACE_MAX_TOKENS / t->block_size)
        return error_set(r->err, ERROR_LIMIT, "the trace has more than %d distinct tokens",
                         TRACE_MAX_TOKENS);
    t->blocks[t->n_blocks++] = number;
    t->n_distinct = r->numbers.count;
    return 0;
}

/* Reads a prompt's ids, one per block. A partial last block may have none. */
static int blocks_read(struct reader *r, const struct json *ids,
                       const struct trace_request *request)
{
    struct trace *t = r->trace;
    uint32_t needed = trace_n_blocks(t, request), whole = request->n_input / t->block_size;
    if (!ids)
        return error_set(r->err, ERROR_FORMAT, "\"hash_ids\" is missing");
    if (!json_is(ids, JSON_ARRAY))
        return error_set(r->err, ERROR_FORMAT, "\"hash_ids\" must be an array, not %s",
                         json_type_name(ids->type));
    if (ids->count != needed && ids->count != whole)
        return error_set(r->err, ERROR_FORMAT,
                         "%u tokens are %u blocks of %u, but \"hash_ids\" has %zu ids",
                         request->n_input, needed, t->block_size, ids->count);
    if (array_reserve((void **)&t->blocks, &r->block_capacity, t->n_blocks, needed,
                      sizeof *t->blocks, r->err))
        return -1;
    size_t n = 0;
    json_each (value, ids) {
        int64_t id;
        if (!json_to_int64(value, &id))
            return error_set(r->err, ERROR_FORMAT,
                             "\"hash_ids\" must hold 64-bit whole numbers, but item %zu is %s", n,
                             value->type == JSON_NUMBER ? "not one" : json_type_name(value->type));
        if (block_add(r, GROUP_NAMED, id))
            return -1;
        n++;
    }
    return n < needed ? block_add(r, GROUP_NAMELESS, (int64_t)t->n_requests) : 0;
}

static int request_read(struct reader *r, const struct json *object)
{
    struct trace *t = r->trace;
    struct trace_request request = {.first_block = t->n_blocks};
    if (!json_is(object, JSON_OBJECT))
        return error_set(r->err, ERROR_FORMAT, "a request must be an object, not %s",
                         json_type_name(object->type));
    if (count_read(object, r->names->input, 1, TRACE_MAX_LENGTH, &request.n_input, r->err))
        return -1;
    if (json_get(object, r->names->output) &&
        count_read(object, r->names->output, 0, TRACE_MAX_LENGTH, &request.n_output, r->err))
        return -1;
    if (blocks_read(r, json_get(object, "hash_ids"), &request) ||
        array_reserve((void **)&t->requests, &r->request_capacity, t->n_requests, 1,
                      sizeof *t->requests, r->err))
        return -1;
    t->requests[t->n_requests++] = request;
    return 0;
}

/* Prepends the location to an error. */
static int fail_at(struct error *err, const char *what, size_t number)
{
    struct error cause = *err;
    return error_set(err, cause.code, "%s %zu: %s", what, number, cause.message);
}

/* Reads an agent's requests, with those of its sub-agents in their place. The JSON parser's depth
 * limit bounds the recursion. */
static int requests_read(struct reader *r, const struct json *requests)
{
    size_t number = 0;
    if (!json_is(requests, JSON_ARRAY))
        return error_set(r->err, ERROR_FORMAT, "\"requests\" must be an array, not %s",
                         json_type_name(requests->type));
    json_each (object, requests) {
        const struct json *nested = json_get(object, "requests");
        number++;
        if (nested ? requests_read(r, nested) : request_read(r, object))
            return fail_at(r->err, "request", number);
    }
    return 0;
}

static int agent_parse(struct reader *r, const struct json *root)
{
    const struct json *requests = json_get(root, "requests");
    r->names = &agent_names;
    if (!requests)
        return error_set(
            r->err, ERROR_FORMAT,
            "not a trace: expected lines of objects with \"input_length\", or one object "
            "with \"requests\"");
    if (count_read(root, "block_size", 1, TRACE_MAX_BLOCK_SIZE, &r->trace->block_size, r->err))
        return -1;
    return requests_read(r, requests);
}

static bool is_space(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && strchr(" \t\r\n", text[n]) && text[n])
        n++;
    return n == len;
}

/* Parses a piece of the text as a document; it lives as long as the arena. */
static struct json *piece_parse(struct arena *arena, const char *text, size_t len,
                                struct error *err)
{
    struct json *root = json_parse(arena, text, len, err);
    if (!root && err->code == ERROR_INPUT)
        err->code = ERROR_FORMAT;
    return root;
}

static int line_parse(struct reader *r, const char *line, size_t len)
{
    struct arena arena = ARENA_INIT;
    const struct json *object = piece_parse(&arena, line, len, r->err);
    int failed = object ? request_read(r, object) : -1;
    arena_free(&arena);
    return failed;
}

static int lines_parse(struct reader *r, const char *text, size_t len)
{
    size_t number = 0, line_len;
    r->names = &line_names;
    r->trace->block_size = LINE_BLOCK_SIZE;
    for (const char *end = text + len; text < end; text += line_len + 1) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        line_len = (size_t)((newline ? newline : end) - text);
        number++;
        if (!is_space(text, line_len) && line_parse(r, text, line_len))
            return fail_at(r->err, "line", number);
    }
    return 0;
}

/* True if the first line alone is a request, and not a whole agent document on one line. */
static bool first_line_is_request(const char *text, size_t len)
{
    struct arena arena = ARENA_INIT;
    struct error ignored;
    while (len && is_space(text, 1)) {
        text++;
        len--;
    }
    const char *newline = memchr(text, '\n', len);
    const struct json *root = json_parse(&arena, text, newline ? (size_t)(newline - text) : len,
                                         &ignored);
    bool is_request = json_is(root, JSON_OBJECT) && !json_get(root, "requests");
    arena_free(&arena);
    return is_request;
}

static int document_parse(struct reader *r, const char *text, size_t len)
{
    struct arena arena = ARENA_INIT;
    const struct json *root = piece_parse(&arena, text, len, r->err);
    int failed = root ? agent_parse(r, root) : -1;
    arena_free(&arena);
    return failed;
}

int trace_parse(struct trace *t, const char *text, size_t len, struct error *err)
{
    struct reader r = {.trace = t, .err = err};
    *t = (struct trace){0};
    int failed;
    if (is_space(text, len))
        failed = error_set(err, ERROR_FORMAT, "the file is empty");
    else if (first_line_is_request(text, len))
        failed = lines_parse(&r, text, len);
    else
        failed = document_parse(&r, text, len);
    if (!failed && t->n_requests == 0)
        failed = error_set(err, ERROR_FORMAT, "the file has no requests");
    pair_map_free(&r.numbers);
    if (failed)
        trace_free(t);
    return failed;
}

int trace_read(struct trace *t, const char *path, struct error *err)
{
    struct strbuf text = STRBUF_INIT;
    int failed = file_read(path, 0, &text, err);
    if (!failed && trace_parse(t, strbuf_str(&text), text.len, err)) {
        struct error cause = *err;
        failed = error_set(err, cause.code, "%s: %s", path, cause.message);
    }
    strbuf_free(&text);
    return failed;
}

void trace_free(struct trace *t)
{
    free(t->requests);
    free(t->blocks);
    *t = (struct trace){0};
}

void trace_tokens(const struct trace *t, const struct trace_request *r, int32_t offset,
                  uint64_t *out)
{
    assert(offset >= 0 && offset <= INT32_MAX - TRACE_MAX_TOKENS);
    for (uint32_t i = 0; i < r->n_input; i++) {
        uint32_t block = t->blocks[r->first_block + i / t->block_size];
        int32_t id = (int32_t)(block * t->block_size + i % t->block_size) + offset;
        out[i] = cache_token_text(id);
    }
}
