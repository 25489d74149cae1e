/* The automaton that finds markers in an answer; see answer_cursor.h. A cursor belongs to its
 * reader; the table is constant. Nothing is allocated.
 *
 * The leftmost marker wins, and among several that start at the same byte the longest. So a marker
 * may be found only after bytes beyond it have been read. Those bytes stay held. */
#include "prompt/answer/answer_cursor.h"

#include <assert.h>

#include "prompt/answer/answer_internal.h"

enum thinking_mark { MARK_NONE, MARK_BEGIN, MARK_END };

/* What to search for in a region. If `other` is another region, the mark must come first, after
 * only white space; otherwise the whole text is searched for it. */
static const struct region {
    enum thinking_mark thinking;
    unsigned places; /* of marks of calls, bits of enum marker_place */
    enum answer_region next;
    enum answer_event event;
    enum answer_region other;
    enum answer_event other_event;
} regions[] = {
    [REGION_START] = {.thinking = MARK_BEGIN,
                      .next = REGION_THINK_BEGIN,
                      .event = EVENT_THINK_BEGIN,
                      .other = REGION_OPENING},
    [REGION_THINK_BEGIN] = {.thinking = MARK_BEGIN, /* models sometimes repeat the prompt's mark */
                            .next = REGION_THINK_BEGIN,
                            .event = EVENT_THINK_BEGIN,
                            .other = REGION_THINKING,
                            .other_event = EVENT_REASONING},
    [REGION_THINKING] = {.thinking = MARK_END,
                         .next = REGION_OPENING,
                         .event = EVENT_THINK_END,
                         .other = REGION_THINKING},
    [REGION_OPENING] = {.places = 1 << MARKER_ANYWHERE | 1 << MARKER_AT_START | 1 << MARKER_FIRST |
                                  1 << MARKER_DROPPED,
                        .next = REGION_CONTENT,
                        .event = EVENT_CALL,
                        .other = REGION_CONTENT,
                        .other_event = EVENT_CONTENT},
    [REGION_CONTENT] = {.places = 1 << MARKER_ANYWHERE | 1 << MARKER_DROPPED,
                        .next = REGION_CONTENT,
                        .event = EVENT_CALL,
                        .other = REGION_CONTENT},
    [REGION_AFTER_CALL] = {.places = 1 << MARKER_ANYWHERE | 1 << MARKER_AT_START |
                                     1 << MARKER_AFTER_CALL | 1 << MARKER_DROPPED,
                           .next = REGION_CONTENT,
                           .event = EVENT_CALL,
                           .other = REGION_CONTENT,
                           .other_event = EVENT_CONTENT},
    [REGION_OUTSIDE] = {.other = REGION_MESSAGE}, /* header_settle */
    [REGION_THOUGHT] = {.places = 1 << MARKER_ENDS_MESSAGE | 1 << MARKER_BEGINS_MESSAGE,
                        .next = REGION_OUTSIDE,
                        .event = EVENT_MESSAGE_END,
                        .other = REGION_THOUGHT},
    [REGION_MESSAGE] = {.places = 1 << MARKER_ENDS_MESSAGE | 1 << MARKER_BEGINS_MESSAGE,
                        .next = REGION_OUTSIDE,
                        .event = EVENT_MESSAGE_END,
                        .other = REGION_MESSAGE},
};

void answer_cursor_open(struct answer_cursor *c, const struct answer_style *style,
                        const struct call_marker *markers, bool starts_in_thinking)
{
    *c = (struct answer_cursor){.style = *style, .markers = markers, .is_first = true};
    bool thinks = style->think_begin && style->think_end;
    if (style->tools == TOOLS_HARMONY)
        c->region = starts_in_thinking ? REGION_THOUGHT : REGION_OUTSIDE;
    else if (thinks)
        c->region = starts_in_thinking ? REGION_THINK_BEGIN : REGION_START;
    else
        c->region = REGION_OPENING;
    for (const struct call_marker *m = markers; m && m->text; m++)
        if (m->place == MARKER_ANYWHERE || m->place == MARKER_DROPPED)
            c->begins[(unsigned char)m->text[0]] = true;
}

void answer_cursor_go(struct answer_cursor *c, enum answer_region region)
{
    c->region = region;
    c->n_held = c->n_space = c->n_reported = 0;
    c->dropped = 0;
    c->is_first = c->is_settled = c->is_at_end = false;
}

void answer_cursor_end(struct answer_cursor *c)
{
    c->is_ended = true;
}

bool answer_cursor_thinks(const struct answer_cursor *c)
{
    return c->region == REGION_THINK_BEGIN || c->region == REGION_THINKING ||
           c->region == REGION_THOUGHT;
}

static bool is_anchored(const struct answer_cursor *c)
{
    return regions[c->region].other != c->region;
}

static void held_remove(struct answer_cursor *c, size_t n)
{
    c->n_held -= n;
    memmove(c->held, c->held + n, c->n_held);
}

/* ---- marks ---- */

/* At the end of the text nothing can complete a mark. */
static enum match mark_match(const struct answer_cursor *c, const char *mark)
{
    enum match match = literal_match(c->held, c->n_held, mark);
    return match == MATCH_MORE && c->is_at_end ? MATCH_NO : match;
}

/* The longest marker of those places at the start of the held text. MORE: more text may complete
 * one. */
static enum match marker_find(struct answer_cursor *c, const struct call_marker *markers,
                              unsigned places)
{
    bool is_possible = false;
    c->mark = NULL;
    c->mark_len = 0;
    for (const struct call_marker *m = markers; m && m->text; m++) {
        if (!(places >> m->place & 1))
            continue;
        if (m->place == MARKER_AFTER_CALL && c->dropped >> (m - markers) & 1)
            continue;
        enum match match = mark_match(c, m->text);
        is_possible |= match == MATCH_MORE;
        if (match == MATCH_YES && (!c->mark || strlen(m->text) > c->mark_len)) {
            c->mark = m;
            c->mark_len = strlen(m->text);
        }
    }
    if (is_possible)
        return MATCH_MORE;
    return c->mark ? MATCH_YES : MATCH_NO;
}

static enum match region_find(struct answer_cursor *c, const struct region *r)
{
    if (!r->thinking) {
        bool in_message = c->region == REGION_THOUGHT || c->region == REGION_MESSAGE;
        return marker_find(c, in_message ? format_markers(TOOLS_HARMONY) : c->markers, r->places);
    }
    const char *mark = r->thinking == MARK_BEGIN ? c->style.think_begin : c->style.think_end;
    c->mark_len = strlen(mark);
    return mark_match(c, mark);
}

static enum answer_event mark_take(struct answer_cursor *c, const struct region *r)
{
    enum answer_event event = r->event;
    enum marker_place place = r->thinking ? MARKER_ANYWHERE : c->mark->place;
    if (place == MARKER_AFTER_CALL) {
        c->dropped |= UINT64_C(1) << (c->mark - c->markers);
        event = EVENT_DROP;
    } else if (place == MARKER_DROPPED) {
        event = EVENT_DROP;
    } else {
        c->region = r->next;
    }
    if (place == MARKER_BEGINS_MESSAGE)
        c->mark_len = 0;
    if (event == EVENT_MESSAGE_END)
        c->is_first = false;
    held_remove(c, c->mark_len);
    return event;
}

/* ---- gpt-oss's headers ---- */

static bool held_ends_with(const struct answer_cursor *c, const char *text)
{
    size_t len = strlen(text);
    return c->n_held >= len && memcmp(c->held + c->n_held - len, text, len) == 0;
}

/* YES: a header starts here. MORE: it may. */
static enum match header_begins(const struct answer_cursor *c)
{
    static const char *const begins[] = {"<|channel|>", "<|start|>", "to=", "<|message|>"};
    enum match found = MATCH_NO;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        enum match match = mark_match(c, begins[i]);
        if (match == MATCH_MORE)
            return MATCH_MORE;
        if (match == MATCH_YES)
            found = MATCH_YES;
    }
    return found;
}

/* There is no header: the held bytes are text. A mark here would end the message at once, so what
 * looks like one is not: takes one byte, of it or of the white space before it, as text. */
static enum answer_event header_is_text(struct answer_cursor *c, bool looks_like_one)
{
    bool has_space = c->is_first && c->n_space;
    c->region = REGION_MESSAGE;
    c->mark_len = looks_like_one;
    if (looks_like_one && !has_space)
        held_remove(c, 1);
    c->n_space = c->n_reported = 0;
    return EVENT_NO_HEADER;
}

static enum answer_event header_end(struct answer_cursor *c)
{
    struct harmony_header header;
    harmony_header_read(&header, c->held, c->n_held - strlen(HARMONY_MESSAGE));
    c->region = header.thinks ? REGION_THOUGHT : REGION_MESSAGE;
    c->n_held = c->n_space = c->n_reported = 0;
    return EVENT_HEADER;
}

/* A caller that waits for the start of a call learns of it before the header is complete. */
static bool header_calls(struct answer_cursor *c)
{
    if (c->n_reported == c->n_held)
        return false;
    for (const struct call_marker *m = c->markers; m && m->text; m++)
        if (m->place == MARKER_IN_HEADER && held_ends_with(c, m->text)) {
            c->mark = m;
            c->mark_len = strlen(m->text);
            c->n_reported = c->n_held;
            return true;
        }
    return false;
}

static enum answer_event header_settle(struct answer_cursor *c)
{
    enum match begins = header_begins(c);
    if (begins == MATCH_MORE)
        return EVENT_NONE;
    enum match ends = marker_find(c, format_markers(TOOLS_HARMONY), 1 << MARKER_ENDS_MESSAGE);
    if (ends == MATCH_MORE)
        return EVENT_NONE;
    if (ends == MATCH_YES) {
        held_remove(c, c->mark_len);
        c->n_space = 0;
        return EVENT_DROP;
    }
    if (begins == MATCH_NO)
        return header_is_text(c, false);
    const size_t len = c->n_space + c->n_held, mark_len = strlen(HARMONY_MESSAGE);
    if (held_ends_with(c, HARMONY_MESSAGE) && len <= ANSWER_MAX_HEADER + mark_len)
        return header_end(c);
    if (header_calls(c))
        return EVENT_CALL;
    return len < ANSWER_MAX_HEADER + mark_len && !c->is_at_end ? EVENT_NONE
                                                               : header_is_text(c, true);
}

/* ---- reading ---- */

/* Decides what it can from the held bytes. */
static enum answer_event settle(struct answer_cursor *c)
{
    while (c->n_held || (c->is_at_end && is_anchored(c))) {
        const struct region *r = &regions[c->region];
        if (is_anchored(c) && c->n_held && answer_is_space(c->held[0])) {
            held_remove(c, 1);
            c->n_space++;
            continue;
        }
        if (c->region == REGION_OUTSIDE)
            return header_settle(c);
        enum match match = region_find(c, r);
        if (match == MATCH_MORE)
            return EVENT_NONE;
        if (match == MATCH_YES)
            return mark_take(c, r);
        if (!is_anchored(c)) {
            held_remove(c, 1);
            continue;
        }
        c->region = r->other;
        if (r->other_event)
            return r->other_event;
    }
    return EVENT_NONE;
}

/* The number of bytes at the start of `text` that cannot start a mark. */
static size_t plain_length(struct answer_cursor *c, const char *text, size_t len)
{
    size_t n = 0;
    if (is_anchored(c)) {
        while (n < len && answer_is_space(text[n]))
            n++;
        c->n_space += n;
    } else if (c->region == REGION_CONTENT) {
        while (n < len && !c->begins[(unsigned char)text[n]])
            n++;
    } else {
        char first = c->region == REGION_THINKING ? c->style.think_end[0] : '<';
        const char *next = memchr(text, first, len);
        n = next ? (size_t)(next - text) : len;
    }
    return n;
}

enum answer_event answer_cursor_read(struct answer_cursor *c, const char *text, size_t len,
                                     size_t *used)
{
    for (;;) {
        enum answer_event event = c->is_settled ? EVENT_NONE : settle(c);
        if (event)
            return event;
        c->is_settled = true;
        if (c->n_held == 0)
            *used += plain_length(c, text + *used, len - *used);
        if (*used == len && (!c->is_ended || c->is_at_end))
            return EVENT_NONE;
        c->is_settled = false;
        if (*used == len) {
            c->is_at_end = true;
            continue;
        }
        assert(c->n_held < ANSWER_MAX_HELD);
        c->held[c->n_held++] = text[(*used)++];
    }
}
