/* Stop strings over a stream of bytes: one matcher for each string. Owned by
 * one sequence, and kept when that sequence is preempted: a stop string may begin before the
 * preemption and end after it. */
#include "sched/stop_matcher.h"

#include <assert.h>
#include <stdlib.h>

#include "base/minmax.h"

int stop_matcher_open(struct stop_matcher *m, const struct byte_view *stops, uint32_t n_stops,
                      struct error *err)
{
    assert(n_stops <= REQUEST_MAX_STOPS);
    *m = (struct stop_matcher){0};
    size_t total = 0;
    for (uint32_t i = 0; i < n_stops; i++)
        total += stops[i].len;
    if (total == 0)
        return 0;
    uint32_t *tables = malloc(total * sizeof *tables); /* one block for all patterns */
    if (!tables)
        return error_set(err, ERROR_MEMORY, "no memory for stop strings of %zu bytes", total);
    for (uint32_t i = 0; i < n_stops; i++) {
        if (stops[i].len == 0)
            continue;
        byte_matcher_init(&m->patterns[m->n_patterns++], stops[i], tables);
        tables += stops[i].len;
    }
    return 0;
}

void stop_matcher_close(struct stop_matcher *m)
{
    if (m->n_patterns)
        free(m->patterns[0].fallback);
    m->n_patterns = 0;
}

bool stop_matcher_feed(struct stop_matcher *m, const char *bytes, uint32_t len)
{
    if (m->n_patterns == 0) {
        m->n_bytes += len;
        m->text_end = m->n_bytes;
        return false;
    }
    for (uint32_t i = 0; i < len && !m->found; i++) {
        size_t held = 0, stopped = 0;
        for (uint32_t k = 0; k < m->n_patterns; k++) {
            struct byte_matcher *p = &m->patterns[k];
            if (byte_matcher_add(p, bytes[i]) && p->pattern.len > stopped) {
                stopped = p->pattern.len;
                m->which = k;
            }
            held = max_size(held, p->matched);
        }
        m->n_bytes++;
        m->found = stopped > 0;
        m->text_end = m->n_bytes - (stopped ? stopped : held);
    }
    return m->found;
}

struct byte_view stop_matcher_found(const struct stop_matcher *m)
{
    return m->found ? m->patterns[m->which].pattern : (struct byte_view){0};
}

void stop_matcher_pass(struct stop_matcher *m, uint32_t len)
{
    for (uint32_t k = 0; k < m->n_patterns; k++)
        m->patterns[k].matched = 0;
    m->n_bytes += len;
    m->text_end = m->n_bytes;
}

void stop_matcher_finish(struct stop_matcher *m)
{
    if (!m->found)
        m->text_end = m->n_bytes;
}
