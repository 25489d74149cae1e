/* The answer's text in, pieces out: thinking, content, and the frame in which readers of calls run
 * (calls_*.c). Belongs to the one who feeds it. What a newcomer gets wrong: nothing may be decided
 * by where a piece of text ends. What cannot be decided yet is held, and looked at again. */
#include "prompt/answer/answer_parser.h"

#include <assert.h>
#include <stdlib.h>

#include "prompt/answer/answer_internal.h"

void answer_emit(struct answer_parser *p, enum answer_piece piece, const char *text, size_t len)
{
    bool is_text = piece == PIECE_REASONING || piece == PIECE_CONTENT;
    if (!p->failed && (len || !(is_text || piece == PIECE_CALL_ARGUMENTS)))
        p->options.piece(p->options.context, piece, text, len);
}

/* ------------------------------------------------------------------ markers in running text */

/* The longest marker of those places that stands at the start of `text`. MORE: one may, once the
 * text goes on. */
static enum match marker_at(const struct answer_parser *p, const char *text, size_t len,
                            unsigned places, const struct call_marker **found)
{
    size_t longest = 0, possible = 0;
    for (const struct call_marker *m = p->markers; m->text; m++) {
        if (!(places >> m->place & 1))
            continue;
        if (m->place == MARKER_AFTER_CALL && p->dropped >> (m - p->markers) & 1)
            continue;
        enum match match = literal_match(text, len, m->text);
        size_t marker_len = match == MATCH_NO ? 0 : strlen(m->text);
        if (match == MATCH_MORE && marker_len > possible)
            possible = marker_len;
        if (match == MATCH_YES && marker_len > longest) {
            longest = marker_len;
            *found = m;
        }
    }
    if (possible && !p->ended)
        return MATCH_MORE;
    return longest ? MATCH_YES : MATCH_NO;
}

/* Where the white space at the start of `text` ends. It may be much and come byte by byte: what
 * was looked at is not looked at again. */
static size_t space_end(const struct answer_parser *p, const char *text, size_t len)
{
    size_t i = p->n_space;
    while (i < len && answer_is_space(text[i]))
        i++;
    return i;
}

/* Each of the following reads some of `text`, returns how much, and sets the next phase. */
static size_t start_read(struct answer_parser *p, const char *text, size_t len)
{
    const char *begin = p->style.think_begin;
    size_t space = space_end(p, text, len);
    enum match match = begin ? literal_match(text + space, len - space, begin) : MATCH_NO;
    p->n_space = space;
    if (match == MATCH_MORE && !p->ended)
        return 0;
    p->n_space = 0;
    if (match != MATCH_YES) {
        p->phase = PHASE_OPENING;
        return 0;
    }
    p->phase = PHASE_THINK_BEGIN;
    return space + strlen(begin);
}

/* Directly behind the marker that begins the thinking: white space belongs to it, and models whose
 * prompt ends with it write it once more now and then. */
static size_t think_begin_read(struct answer_parser *p, const char *text, size_t len)
{
    size_t space = space_end(p, text, len);
    enum match again = literal_match(text + space, len - space, p->style.think_begin);
    p->n_space = space;
    if (again == MATCH_MORE && !p->ended)
        return 0;
    p->n_space = 0;
    if (again == MATCH_YES)
        return space + strlen(p->style.think_begin);
    p->phase = PHASE_THINKING;
    return space;
}

/* Up to the marker that ends the thinking; the white space before it is dropped. */
static size_t thinking_read(struct answer_parser *p, const char *text, size_t len)
{
    const char *end = p->style.think_end;
    size_t i = space_end(p, text, len), space = 0;
    while (i < len) {
        if (answer_is_space(text[i])) {
            i++;
            continue;
        }
        const char *next = memchr(text + i, end[0], len - i);
        if (next != text + i) { /* plain text: only white space at its end may be dropped */
            space = i = next ? (size_t)(next - text) : len;
            while (answer_is_space(text[space - 1]))
                space--;
            continue;
        }
        enum match match = literal_match(text + i, len - i, end);
        if (match == MATCH_YES) {
            answer_emit(p, PIECE_REASONING, text, space);
            p->phase = PHASE_OPENING;
            p->drops_space = true;
            p->n_space = 0;
            return i + strlen(end);
        }
        if (match == MATCH_MORE && !p->ended)
            break;
        space = ++i;
    }
    answer_emit(p, PIECE_REASONING, text, space);
    p->n_space = i - space;
    return p->ended ? len : space;
}

static size_t opening_read(struct answer_parser *p, const char *text, size_t len)
{
    size_t space = space_end(p, text, len);
    const struct call_marker *m = NULL;
    enum match match = MATCH_NO;
    p->n_space = space;
    if (space == len)
        match = p->ended ? MATCH_NO : MATCH_MORE;
    else if (p->markers)
        match = marker_at(p, text + space, len - space,
                          1 << MARKER_ANYWHERE | 1 << MARKER_AT_START |
                              (p->after_call ? 1 << MARKER_AFTER_CALL : 0),
                          &m);
    if (match == MATCH_MORE)
        return 0;
    p->n_space = 0;
    if (match == MATCH_YES && m->place == MARKER_AFTER_CALL) {
        p->dropped |= 1u << (m - p->markers);
        return space + strlen(m->text);
    }
    size_t dropped = p->drops_space ? space : 0;
    if (match == MATCH_YES)
        call_start(p, space - dropped, strlen(m->text), m);
    else
        p->phase = PHASE_CONTENT;
    return dropped;
}

static size_t content_read(struct answer_parser *p, const char *text, size_t len)
{
    size_t i = p->n_space, space = 0;
    const struct call_marker *m = NULL;
    enum match match = MATCH_NO;
    if (!p->markers)
        space = i = len;
    for (; i < len; i++) {
        if (!p->stops[(unsigned char)text[i]]) {
            space = i + 1;
            continue;
        }
        if (answer_is_space(text[i]))
            continue;
        match = marker_at(p, text + i, len - i, 1 << MARKER_ANYWHERE, &m);
        if (match != MATCH_NO)
            break;
        space = i + 1;
    }
    if (p->ended && match == MATCH_NO)
        space = i;
    answer_emit(p, PIECE_CONTENT, text, space);
    p->n_space = i - space;
    if (match == MATCH_YES) {
        call_start(p, i - space, strlen(m->text), m);
        p->n_space = 0;
    }
    return space;
}

/* Reads what is not in a call; returns how much. */
static size_t text_read(struct answer_parser *p, const char *text, size_t len)
{
    size_t used = 0;
    for (;;) {
        enum answer_phase phase = p->phase;
        size_t n = 0;
        switch (phase) {
        case PHASE_START: n = start_read(p, text + used, len - used); break;
        case PHASE_THINK_BEGIN: n = think_begin_read(p, text + used, len - used); break;
        case PHASE_THINKING: n = thinking_read(p, text + used, len - used); break;
        case PHASE_OPENING: n = opening_read(p, text + used, len - used); break;
        case PHASE_CONTENT: n = content_read(p, text + used, len - used); break;
        case PHASE_CALL:
        case PHASE_HARMONY: return used;
        }
        used += n;
        if (p->phase == phase && (n == 0 || phase == PHASE_CONTENT || phase == PHASE_THINKING))
            return used;
    }
}

/* ------------------------------------------------------------------ calls */

void call_start(struct answer_parser *p, size_t space, size_t marker_len,
                const struct call_marker *marker)
{
    /* { and [ are markers and the reader's first byte as well. */
    bool bracket = marker->place == MARKER_AT_START && marker_len == 1;
    p->phase = PHASE_CALL;
    p->call = (struct call){
        .reader = marker->reader,
        .form = marker->form,
        .state = marker->state,
        .start = space,
        .marker_end = space + marker_len,
        .pos = bracket ? space : space + marker_len,
        .strict = marker->place == MARKER_AT_START,
    };
}

const char *call_at(const struct answer_parser *p, size_t offset)
{
    return strbuf_str(&p->held) + p->head + offset;
}

const char *call_rest(const struct answer_parser *p, size_t *left)
{
    *left = p->held.len - p->head - p->call.pos;
    return call_at(p, p->call.pos);
}

bool call_skip_space(struct answer_parser *p)
{
    size_t left, i = 0;
    const char *text = call_rest(p, &left);
    while (i < left && answer_is_space(text[i]))
        i++;
    p->call.pos += i;
    return i < left;
}

enum match call_match(struct answer_parser *p, const char *literal)
{
    size_t left;
    const char *text = call_rest(p, &left);
    enum match match = literal_match(text, left, literal);
    if (match == MATCH_YES)
        p->call.pos += strlen(literal);
    return match == MATCH_MORE && p->ended ? MATCH_NO : match;
}

enum match call_find(struct answer_parser *p, const char *const *stops, size_t *len, size_t *which)
{
    size_t left;
    const char *text = call_rest(p, &left);
    for (*len = 0; *len < left && *len < CALL_MAX_NAME; ++*len)
        for (*which = 0; stops[*which]; ++*which) {
            enum match match = literal_match(text + *len, left - *len, stops[*which]);
            if (match == MATCH_YES || (match == MATCH_MORE && !p->ended))
                return match;
        }
    return *len < CALL_MAX_NAME && !p->ended ? MATCH_MORE : MATCH_NO;
}

bool call_set_name(struct answer_parser *p, const char *name, size_t len)
{
    static const char *const prefixes[] = {"functions.", "default_api.", NULL};
    while (len && answer_is_space(name[0])) {
        name++;
        len--;
    }
    while (len && answer_is_space(name[len - 1]))
        len--;
    p->call.tool = tool_set_find(p->options.tools, name, len);
    for (size_t i = 0; prefixes[i] && !p->call.tool; i++) {
        size_t n = strlen(prefixes[i]);
        if (len > n && memcmp(name, prefixes[i], n) == 0)
            p->call.tool = tool_set_find(p->options.tools, name + n, len - n);
    }
    return p->call.tool;
}

void call_add_arguments(struct answer_parser *p, const char *text, size_t len)
{
    if (!p->call.begun)
        answer_emit(p, PIECE_CALL_BEGIN, p->call.tool->name, p->call.tool->name_len);
    p->call.begun = true;
    answer_emit(p, PIECE_CALL_ARGUMENTS, text, len);
}

void call_add_scratch(struct answer_parser *p)
{
    p->failed |= p->scratch.failed;
    call_add_arguments(p, strbuf_str(&p->scratch), p->scratch.len);
}

void call_finish(struct answer_parser *p)
{
    assert(p->call.begun);
    p->call.begun = p->call.complete = false;
    answer_emit(p, PIECE_CALL_END, "", 0);
}

void call_next(struct answer_parser *p, int state)
{
    struct call *c = &p->call;
    p->head += c->pos;
    *c = (struct call){.reader = c->reader,
                       .form = c->form,
                       .state = state,
                       .strict = c->strict,
                       .in_list = c->in_list,
                       .wrapped = c->wrapped,
                       .marker_end = 1};
}

/* The text that was taken for a call is content, at least its first marker; what follows it is
 * read anew. */
static void call_is_text(struct answer_parser *p)
{
    size_t left = p->held.len - p->head;
    size_t len = p->call.marker_end < left ? p->call.marker_end : left;
    answer_emit(p, PIECE_CONTENT, call_at(p, 0), len);
    p->head += len;
}

/* The arguments ended too early, or are wrong from `pos` on. */
static void call_is_broken(struct answer_parser *p, bool cut_off)
{
    size_t end = cut_off ? p->held.len - p->head : p->call.pos;
    answer_emit(p, PIECE_CALL_BROKEN, call_at(p, p->call.start), end - p->call.start);
    p->head += end;
}

/* Runs the call's reader. False: more text is needed. */
static bool call_run(struct answer_parser *p)
{
    enum call_result result;
    do
        result = p->call.reader(p);
    while (result == CALL_ON);
    if (result == CALL_MORE && !p->ended)
        return false;
    bool harmony = p->style.tools == TOOLS_HARMONY;
    p->phase = harmony ? PHASE_HARMONY : PHASE_OPENING;
    p->drops_space = p->after_call = true;
    if (result == CALL_DONE || (p->call.begun && p->call.complete && result == CALL_MORE)) {
        if (p->call.begun)
            call_finish(p);
        p->head += p->call.pos;
        p->in_message = false;
        p->dropped = 0;
        return true;
    }
    p->phase = harmony ? PHASE_HARMONY : PHASE_CONTENT;
    if (p->call.begun)
        call_is_broken(p, result == CALL_MORE);
    else
        call_is_text(p);
    return true;
}

/* ------------------------------------------------------------------ the parser */

static void held_run(struct answer_parser *p)
{
    for (;;) {
        p->failed |= p->held.failed;
        if (p->failed)
            return;
        if (p->phase == PHASE_CALL) {
            if (!call_run(p))
                return;
        } else if (p->phase == PHASE_HARMONY) {
            if (!harmony_run(p))
                return;
        } else {
            p->head += text_read(p, strbuf_str(&p->held) + p->head, p->held.len - p->head);
            if (p->phase != PHASE_CALL)
                return;
        }
    }
}

struct answer_parser *answer_parser_new(const struct answer_parser_options *o)
{
    struct answer_parser *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->options = *o;
    p->style = *o->style;
    p->phase = PHASE_START;
    if (!p->style.think_end)
        p->style.think_begin = NULL;
    if (p->style.tools == TOOLS_HARMONY) {
        p->phase = PHASE_HARMONY;
        p->thinks = p->in_message = o->starts_in_thinking;
    } else if (o->starts_in_thinking && p->style.think_begin) {
        p->phase = PHASE_THINK_BEGIN;
    }
    if (tool_set_size(o->tools) == 0)
        return p;
    p->markers = format_markers(p->style.tools);
    p->stops[' '] = p->stops['\n'] = p->stops['\t'] = p->stops['\r'] = true;
    for (const struct call_marker *m = p->markers; m->text; m++)
        if (m->place == MARKER_ANYWHERE)
            p->stops[(unsigned char)m->text[0]] = true;
    return p;
}

void answer_parser_free(struct answer_parser *p)
{
    if (!p)
        return;
    strbuf_free(&p->held);
    strbuf_free(&p->scratch);
    free(p);
}

void answer_parser_add(struct answer_parser *p, const char *text, size_t len)
{
    if (p->failed || len == 0)
        return;
    size_t used = 0;
    strbuf_remove_front(&p->held, p->head);
    p->head = 0;
    if (p->held.len == 0)
        used = text_read(p, text, len);
    if (used == len)
        return;
    strbuf_add(&p->held, text + used, len - used);
    held_run(p);
}

void answer_parser_end(struct answer_parser *p)
{
    if (p->failed || p->ended)
        return;
    p->ended = true;
    held_run(p);
}

bool answer_parser_failed(const struct answer_parser *p)
{
    return p->failed;
}

bool answer_parser_is_thinking(const struct answer_parser *p)
{
    return p->phase == PHASE_THINK_BEGIN || p->phase == PHASE_THINKING ||
           (p->phase == PHASE_HARMONY && p->in_message && p->thinks);
}
