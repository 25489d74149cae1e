/* Splits an answer's text into pieces: thinking, content, and calls, which the readers in calls_*.c
 * parse. Owned by whoever feeds it.
 *
 * The text arrives in arbitrary pieces, so no decision may depend on where one ends. Text that
 * cannot be decided yet is held and examined again. */
#include "prompt/answer/answer_parser.h"

#include <assert.h>
#include <stdlib.h>

#include "prompt/answer/answer_internal.h"

/* Content follows calls that came after content: first emits the white space between them. */
static void gap_emit(struct answer_parser *p)
{
    p->failed |= p->gap.failed;
    if (p->gap.len && !p->failed)
        p->options.piece(p->options.context, PIECE_CONTENT, strbuf_str(&p->gap), p->gap.len);
    strbuf_clear(&p->gap);
}

void answer_emit(struct answer_parser *p, enum answer_piece piece, const char *text, size_t len)
{
    bool is_text = piece == PIECE_REASONING || piece == PIECE_CONTENT;
    if (p->failed || (len == 0 && (is_text || piece == PIECE_CALL_ARGUMENTS)))
        return;
    if (piece == PIECE_CONTENT) {
        gap_emit(p);
        p->has_content = true;
    }
    p->options.piece(p->options.context, piece, text, len);
}

/* ------------------------------------------------------------------ text outside calls */

/* Emits the text before `end`, but holds trailing white space, which may belong to a mark. In
 * content only white space from a line feed on is held, because templates write that before calls
 * themselves. Much white space may arrive byte by byte, so it is examined only once. Returns how
 * much was emitted. */
static size_t emit_solid(struct answer_parser *p, enum answer_piece piece, const char *text,
                         size_t end)
{
    size_t n = end;
    while (n > p->n_space && answer_is_space(text[n - 1]))
        n--;
    if (n == p->n_space)
        n = 0;
    if (piece == PIECE_CONTENT && (n || p->has_content))
        while (n < end && (text[n] == ' ' || text[n] == '\t'))
            n++;
    answer_emit(p, piece, text, n);
    p->n_space = end - n;
    return n;
}

static size_t emit_all(struct answer_parser *p, enum answer_piece piece, const char *text,
                       size_t end)
{
    answer_emit(p, piece, text, end);
    return end;
}

/* Emits what can only be text. Returns how much is processed. */
static size_t plain_emit(struct answer_parser *p, enum answer_region region, const char *text,
                         size_t end)
{
    switch (region) {
    case REGION_THINKING: {
        size_t n = emit_solid(p, PIECE_REASONING, text, end);
        return p->ended ? end : n;
    }
    case REGION_CONTENT:
        return p->cursor.markers && !p->ended ? emit_solid(p, PIECE_CONTENT, text, end)
                                              : emit_all(p, PIECE_CONTENT, text, end);
    case REGION_THOUGHT: return emit_all(p, PIECE_REASONING, text, end);
    case REGION_MESSAGE: return emit_all(p, PIECE_CONTENT, text, end);
    default: p->n_space = end; return 0; /* white space is held */
    }
}

/* A call's mark ends at `end`. The held white space before it waits for more content. */
static size_t mark_read(struct answer_parser *p, const char *text, size_t end)
{
    size_t start = end - p->cursor.mark_len;
    if (p->drops_space || p->after_call) {
        call_start(p, 0, p->cursor.mark_len, p->cursor.mark);
        return start;
    }
    size_t n = emit_solid(p, PIECE_CONTENT, text, start);
    if (p->has_content)
        strbuf_add(&p->gap, text + n, start - n);
    call_start(p, start - n, p->cursor.mark_len, p->cursor.mark);
    return n;
}

/* Handles an event; `region` is that of the text before it. Returns how much of the text is
 * processed. */
static size_t event_take(struct answer_parser *p, enum answer_event event,
                         enum answer_region region, const char *text, size_t end)
{
    size_t before = end - p->cursor.mark_len;
    switch (event) {
    case EVENT_NONE: return plain_emit(p, region, text, end);
    case EVENT_THINK_END:
        emit_solid(p, PIECE_REASONING, text, before);
        p->drops_space = true;
        return end;
    case EVENT_CONTENT: {
        bool follows = p->after_call && p->has_content && p->cursor.n_held;
        size_t n = p->drops_space || (p->after_call && !follows) ? end : 0;
        p->drops_space = p->after_call = false;
        p->n_space = end - n;
        return n;
    }
    case EVENT_CALL: return mark_read(p, text, end);
    case EVENT_HEADER: return harmony_message(p, text, end);
    case EVENT_NO_HEADER: {
        size_t n = p->drops_space ? before : 0;
        answer_emit(p, PIECE_CONTENT, text + n, p->cursor.mark_len);
        return n + p->cursor.mark_len;
    }
    case EVENT_MESSAGE_END:
        plain_emit(p, region, text, before);
        p->drops_space = true;
        return end;
    case EVENT_DROP:
        if (region == REGION_CONTENT)
            emit_all(p, PIECE_CONTENT, text, before);
        return end;
    case EVENT_THINK_BEGIN:
    case EVENT_REASONING: break;
    }
    return end;
}

/* Reads text outside calls; returns how much is processed. */
static size_t text_read(struct answer_parser *p, const char *text, size_t len)
{
    size_t used = 0;
    while (!p->in_call) {
        enum answer_region region = p->cursor.region;
        enum answer_event event = answer_cursor_read(&p->cursor, text + used, len - used,
                                                     &p->n_read);
        size_t end = p->n_read - p->cursor.n_held;
        size_t n = event_take(p, event, event ? region : p->cursor.region, text + used, end);
        used += n;
        p->n_read -= n;
        if (n)
            p->n_space = end - n;
        if (!event)
            break;
    }
    return used;
}

/* ------------------------------------------------------------------ calls */

void call_start(struct answer_parser *p, size_t space, size_t marker_len,
                const struct call_marker *marker)
{
    /* { and [ are both markers and the reader's first byte. */
    bool bracket = marker->place == MARKER_AT_START && marker_len == 1;
    p->in_call = true;
    p->call = (struct open_call){
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
    if (!p->call.begun) {
        if (p->call.id_len)
            answer_emit(p, PIECE_CALL_ID, call_at(p, p->call.id), p->call.id_len);
        answer_emit(p, PIECE_CALL_BEGIN, p->call.tool->name, p->call.tool->name_len);
    }
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
    struct open_call *c = &p->call;
    p->head += c->pos;
    *c = (struct open_call){.reader = c->reader,
                            .form = c->form,
                            .state = state,
                            .strict = c->strict,
                            .in_list = c->in_list,
                            .wrapped = c->wrapped,
                            .marker_end = 1};
}

/* Each call that is cut off is searched for its end up to the end of the answer. After this many,
 * the rest is content, so that the time does not grow with the square of the answer's length. */
enum { MOST_CUT_OFF = 64 };

/* The text is not a call: at least its first marker becomes content, and the rest is read again. */
static void call_is_text(struct answer_parser *p, bool is_cut_off)
{
    size_t left = p->held.len - p->head;
    size_t len = p->call.marker_end < left ? p->call.marker_end : left;
    if (is_cut_off && ++p->n_cut_off > MOST_CUT_OFF)
        len = left;
    if (p->call.start) /* the white space before it is part of the text */
        strbuf_clear(&p->gap);
    answer_emit(p, PIECE_CONTENT, call_at(p, 0), len);
    p->head += len;
}

/* The arguments ended too early, or are wrong from `pos` on. */
static void call_is_broken(struct answer_parser *p, bool cut_off)
{
    size_t end = cut_off ? p->held.len - p->head : p->call.pos;
    struct strbuf *text = &p->scratch;
    strbuf_clear(text);
    if (!cut_off)
        strbuf_add(text, strbuf_str(&p->gap), p->gap.len);
    strbuf_add(text, call_at(p, p->call.start), end - p->call.start);
    p->failed |= text->failed;
    answer_emit(p, PIECE_CALL_BROKEN, strbuf_str(text), text->len);
    strbuf_clear(&p->gap);
    p->has_content = true;
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
    bool harmony = p->cursor.style.tools == TOOLS_HARMONY;
    bool is_done = result == CALL_DONE ||
                   (p->call.begun && p->call.complete && result == CALL_MORE);
    p->in_call = false;
    p->n_read = p->n_space = 0;
    p->drops_space = harmony;
    p->after_call = is_done && !harmony;
    if (result == CALL_TEXT) {
        p->head += p->call.pos;
        answer_cursor_go(&p->cursor, REGION_CONTENT);
        return true;
    }
    if (is_done) {
        if (p->call.begun)
            call_finish(p);
        p->head += p->call.pos;
        answer_cursor_go(&p->cursor, harmony ? REGION_OUTSIDE : REGION_AFTER_CALL);
        return true;
    }
    answer_cursor_go(&p->cursor, harmony ? REGION_MESSAGE : REGION_CONTENT);
    if (p->call.begun)
        call_is_broken(p, result == CALL_MORE);
    else
        call_is_text(p, result == CALL_MORE);
    return true;
}

/* ------------------------------------------------------------------ the parser */

static void held_run(struct answer_parser *p)
{
    for (;;) {
        p->failed |= p->held.failed;
        if (p->failed)
            return;
        if (p->in_call) {
            if (!call_run(p))
                return;
        } else {
            p->head += text_read(p, strbuf_str(&p->held) + p->head, p->held.len - p->head);
            if (!p->in_call)
                return;
        }
    }
}

bool answer_parser_is_needed(const struct answer_style *style, const struct tool_set *tools)
{
    return style->think_begin || tools || style->tools == TOOLS_HARMONY ||
           style->tools == TOOLS_FUNCTIONARY;
}

struct answer_parser *answer_parser_new(const struct answer_parser_options *o)
{
    struct answer_parser *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->options = *o;
    /* In some formats content has marks, too. */
    bool marks = tool_set_size(o->tools) > 0 || o->style->tools == TOOLS_KIMI3 ||
                 o->style->tools == TOOLS_FUNCTIONARY;
    answer_cursor_open(&p->cursor, o->style, marks ? format_markers(o->style->tools) : NULL,
                       o->starts_in_thinking);
    if (o->continues && o->style->tools == TOOLS_FUNCTIONARY)
        answer_cursor_go(&p->cursor, REGION_CONTENT);
    return p;
}

void answer_parser_free(struct answer_parser *p)
{
    if (!p)
        return;
    strbuf_free(&p->held);
    strbuf_free(&p->scratch);
    strbuf_free(&p->gap);
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
    answer_cursor_end(&p->cursor);
    held_run(p);
}

bool answer_parser_failed(const struct answer_parser *p)
{
    return p->failed;
}

bool answer_parser_is_thinking(const struct answer_parser *p)
{
    return answer_cursor_thinks(&p->cursor);
}
