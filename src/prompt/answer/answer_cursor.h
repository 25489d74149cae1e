#ifndef RADISH_PROMPT_ANSWER_ANSWER_CURSOR_H
#define RADISH_PROMPT_ANSWER_ANSWER_CURSOR_H

#include "prompt/answer/answer_style.h"

/* Finds where an answer thinks and where calls begin. The filter (on the scheduler's thread) and
 * the parser (on the event loop's) use the same automaton, each with its own cursor; the table of
 * regions is constant. The inside of a call is left to the parser: it takes over at EVENT_CALL and
 * says with answer_cursor_go where the text continues.
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
 * Bytes that may begin a mark are held until that is decided, so the result does not depend on how
 * the text is cut into parts. */
enum answer_region {
    REGION_START,       /* nothing but white space has come */
    REGION_THINK_BEGIN, /* directly behind the mark that begins thinking */
    REGION_THINKING,
    REGION_OPENING, /* nothing but white space since the start or the thinking */
    REGION_CONTENT,
    REGION_AFTER_CALL, /* nothing but white space and marks of its end since a call */
    REGION_OUTSIDE,    /* gpt-oss: before a message, or in its header */
    REGION_THOUGHT,    /* ... in the text of one that is reasoning */
    REGION_MESSAGE,    /* ... of any other */
};

/* What has been decided. "Up to here" is all that was read but for the bytes that are held; the
 * mark's bytes, `mark_len` of them, are the last of it. */
enum answer_event {
    EVENT_NONE,        /* all is read */
    EVENT_THINK_BEGIN, /* its mark */
    EVENT_REASONING,   /* up to here there was white space; reasoning follows */
    EVENT_THINK_END,   /* its mark */
    EVENT_CONTENT,     /* up to here there was white space; content follows */
    EVENT_CALL,        /* a call's mark: `mark` */
    EVENT_DROP,        /* a mark that means nothing here */
    EVENT_HEADER,      /* a message's header, all of it */
    EVENT_NO_HEADER,   /* no mark, but white space; text follows, of which a byte came if `mark_len`
                        */
    EVENT_MESSAGE_END, /* its mark, unless that begins the next message */
};

enum {
    ANSWER_MAX_HEADER = 1024, /* bytes before <|message|>; what is longer is text */
    ANSWER_MAX_HELD = ANSWER_MAX_HEADER + 16,
};

struct call_marker;

struct answer_cursor {
    struct answer_style style;
    const struct call_marker *markers; /* that begin calls, or end them; NULL: none do */
    enum answer_region region;
    const struct call_marker *mark; /* EVENT_CALL's */
    size_t mark_len;
    uint64_t dropped;  /* bits of the markers that were dropped behind a call: each goes once */
    bool is_first;     /* OUTSIDE: no message came before */
    bool is_settled;   /* nothing can be decided without more text */
    bool is_ended;     /* no more text comes, */
    bool is_at_end;    /* and all of it is read */
    size_t n_space;    /* OUTSIDE: white space before the header, which counts as part of it */
    size_t n_reported; /* OUTSIDE: how much of the header was held at the last EVENT_CALL */
    bool begins[256];  /* CONTENT: bytes that a mark begins with */
    size_t n_held;     /* read, but undecided */
    char held[ANSWER_MAX_HELD];
};

void answer_cursor_open(struct answer_cursor *c, const struct answer_style *style,
                        const struct call_marker *markers, bool starts_in_thinking);
/* Reads on from text[*used]; gives the next event and moves `used`. Call it until there is none. */
enum answer_event answer_cursor_read(struct answer_cursor *c, const char *text, size_t len,
                                     size_t *used);
/* No more text comes: what is held is decided by the next answer_cursor_read. */
void answer_cursor_end(struct answer_cursor *c);
/* What is read next is in this region, and nothing is held. */
void answer_cursor_go(struct answer_cursor *c, enum answer_region region);
bool answer_cursor_thinks(const struct answer_cursor *c);

#endif
