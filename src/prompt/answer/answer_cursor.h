#ifndef RADISH_PROMPT_ANSWER_ANSWER_CURSOR_H
#define RADISH_PROMPT_ANSWER_ANSWER_CURSOR_H

#include "prompt/answer/answer_style.h"

/* Finds where an answer thinks and where calls start. The filter (on the scheduler's thread) and
 * the parser (on the event loop's) use the same automaton, each with its own cursor; the table of
 * regions is constant. The parser reads the inside of a call: it takes over at EVENT_CALL and says
 * with answer_cursor_go where the text continues.
 *
 *   START ──begin──► THINK_BEGIN ──text──► THINKING ──end──► OPENING ──a call's mark──► call
 *     │                 └─◄─begin again                         │ text                  ▲
 *     └── other text ───────────────────────────────────────────┴─────► CONTENT ────────┤
 *                                                call ──done──► AFTER_CALL ─────────────┘
 * gpt-oss:
 *   OUTSIDE ──header of analysis──────► THOUGHT ──┐
 *     ▲ └─────another header, or none──► MESSAGE ──┤
 *     └──────────────a mark that ends messages─────┘
 *
 * Bytes that may start a mark are held until that is decided, so the result does not depend on how
 * the text is split. */
enum answer_region {
    REGION_START,       /* only white space so far */
    REGION_THINK_BEGIN, /* directly after the mark that starts thinking */
    REGION_THINKING,
    REGION_OPENING, /* only white space since the start or the thinking */
    REGION_CONTENT,
    REGION_AFTER_CALL, /* only white space and end marks since a call */
    REGION_OUTSIDE,    /* gpt-oss: before a message, or in its header */
    REGION_THOUGHT,    /* ... in the text of a reasoning message */
    REGION_MESSAGE,    /* ... of any other */
};

/* What has been decided. "Up to here" means everything read except the held bytes; it ends with the
 * mark's bytes, `mark_len` of them. */
enum answer_event {
    EVENT_NONE,        /* everything is read */
    EVENT_THINK_BEGIN, /* its mark */
    EVENT_REASONING,   /* white space up to here; reasoning follows */
    EVENT_THINK_END,   /* its mark */
    EVENT_CONTENT,     /* white space up to here; content follows */
    EVENT_CALL,        /* a call's mark: `mark` */
    EVENT_DROP,        /* a mark without a meaning here */
    EVENT_HEADER,      /* a complete header of a message */
    EVENT_NO_HEADER,   /* no mark, only white space; text follows (`mark_len` bytes read) */
    EVENT_MESSAGE_END, /* its mark, unless that starts the next message */
};

enum {
    ANSWER_MAX_HEADER = 1024, /* bytes before <|message|>; a longer one is text */
    ANSWER_MAX_HELD = ANSWER_MAX_HEADER + 16,
};

struct call_marker;

struct answer_cursor {
    struct answer_style style;
    const struct call_marker *markers; /* that start or end calls; NULL: none */
    enum answer_region region;
    const struct call_marker *mark; /* EVENT_CALL's */
    size_t mark_len;
    uint64_t dropped;  /* bits of the markers dropped after a call: each is dropped once */
    bool is_first;     /* OUTSIDE: no message came before */
    bool is_settled;   /* more text is needed to decide anything */
    bool is_ended;     /* no more text comes, */
    bool is_at_end;    /* and all of it is read */
    size_t n_space;    /* OUTSIDE: white space before the header, which counts as part of it */
    size_t n_reported; /* OUTSIDE: how much of the header was held at the last EVENT_CALL */
    bool begins[256];  /* CONTENT: the first bytes of marks */
    size_t n_held;     /* read but undecided */
    char held[ANSWER_MAX_HELD];
};

void answer_cursor_open(struct answer_cursor *c, const struct answer_style *style,
                        const struct call_marker *markers, bool starts_in_thinking);
/* Continues from text[*used]; returns the next event and advances `used`. Call it until there is
 * none. */
enum answer_event answer_cursor_read(struct answer_cursor *c, const char *text, size_t len,
                                     size_t *used);
/* No more text will come: the next answer_cursor_read decides the held bytes. */
void answer_cursor_end(struct answer_cursor *c);
/* The next text is in this region, and nothing is held. */
void answer_cursor_go(struct answer_cursor *c, enum answer_region region);
bool answer_cursor_thinks(const struct answer_cursor *c);

#endif
