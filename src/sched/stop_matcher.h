#ifndef RADISH_SCHED_STOP_MATCHER_H
#define RADISH_SCHED_STOP_MATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/byte_matcher.h"
#include "base/error.h"
#include "sched/scheduler.h"

/* Looks for stop strings in a text that arrives in pieces, one byte at a time, so token boundaries
 * do not matter. The stop string that ends first wins; of several that end together, the longest.
 *
 *   text   ... t h e   E N │              stop "END": 2 bytes are held back
 *          ◄─ may be shown ─►◄held►
 */
struct stop_matcher {
    struct byte_matcher patterns[REQUEST_MAX_STOPS]; /* they point to the request's bytes */
    uint32_t n_patterns;
    bool found;
    uint32_t which;    /* index of the pattern that was found */
    uint64_t n_bytes;  /* fed so far */
    uint64_t text_end; /* number of them that may be shown */
};

/* Empty strings are ignored: they would stop every answer before it began. */
int stop_matcher_open(struct stop_matcher *m, const struct byte_view *stops, uint32_t n_stops,
                      struct error *err);
void stop_matcher_close(struct stop_matcher *m);
/* True once a stop string is complete; bytes after it are ignored. */
bool stop_matcher_feed(struct stop_matcher *m, const char *bytes, uint32_t len);
/* Skips bytes: no stop string is looked for in or across them. */
void stop_matcher_pass(struct stop_matcher *m, uint32_t len);
/* The stop string that was found; empty if none was. */
struct byte_view stop_matcher_found(const struct stop_matcher *m);
/* The text is over: what was held back may be shown. */
void stop_matcher_finish(struct stop_matcher *m);

#endif
