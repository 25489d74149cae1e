/* Fuzzes traces: an accepted trace must be consistent and its ideal hit rate possible; a rejection
 * must have a reason. */
#include <stdint.h>
#include <stdlib.h>

#include "cli/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_trace(const struct trace *t)
{
    size_t n_blocks = 0;
    for (size_t i = 0; i < t->n_requests; i++) {
        const struct trace_request *r = &t->requests[i];
        if (r->n_input == 0 || r->first_block != n_blocks)
            abort();
        n_blocks += trace_n_blocks(t, r);
    }
    for (size_t i = 0; i < t->n_blocks; i++)
        if (t->blocks[i] >= t->n_distinct)
            abort();
    if (t->n_requests == 0 || n_blocks != t->n_blocks)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct trace t;
    struct trace_ideal ideal;
    struct error err = {0};
    if (trace_parse(&t, (const char *)bytes, len, &err)) {
        if (err.code == ERROR_NONE || err.message[0] == '\0')
            abort();
        return 0;
    }
    check_trace(&t);
    if (trace_ideal(&t, &ideal, &err) || ideal.hit >= ideal.asked || ideal.distinct > ideal.asked)
        abort();
    trace_free(&t);
    return 0;
}
