/* Which sequence computes for which; see flight.h. Owned by the scheduler's thread. A sleeper holds
 * a pointer to its owner, so every way out of running goes through flight_end. */
#include "sched/flight.h"

#include <assert.h>
#include <string.h>

static uint32_t common_length(const struct sequence *owner, const struct sequence *seq,
                              uint32_t matched)
{
    uint32_t most = seq->n_tokens - 1; /* it computes its last token itself */
    if (most > owner->prefill_end)
        most = owner->prefill_end;
    if (matched >= most || owner->tokens[matched] != seq->tokens[matched] ||
        memcmp(owner->tokens, seq->tokens, matched * sizeof *seq->tokens) != 0)
        return 0;
    uint32_t n = matched + 1;
    while (n < most && owner->tokens[n] == seq->tokens[n])
        n++;
    return n;
}

struct sequence *flight_find(struct sequence *const *running, uint32_t n_running,
                             const struct sequence *seq, uint32_t matched, uint32_t *common)
{
    struct sequence *best = NULL;
    *common = 0;
    for (uint32_t i = 0; i < n_running; i++) {
        struct sequence *owner = running[i];
        if (!owner->in_flight || sequence_is_scoring(owner) || owner->ns != seq->ns)
            continue;
        uint32_t n = common_length(owner, seq, matched);
        if (n > owner->n_ready && n > *common) {
            *common = n;
            best = owner;
        }
    }
    return best;
}

void flight_advance(const struct sequence_list *waiting, const struct sequence *owner)
{
    for (struct sequence *seq = waiting->head; seq; seq = seq->next)
        if (seq->waits_for == owner && seq->waits_until <= owner->n_ready)
            seq->waits_for = NULL;
}

void flight_end(const struct sequence_list *waiting, struct sequence *owner, bool broke_off)
{
    if (!owner->in_flight)
        return;
    struct sequence *heir = NULL;
    for (struct sequence *seq = waiting->head; seq; seq = seq->next) {
        if (seq->waits_for != owner)
            continue;
        seq->waits_for = NULL;
        if (!heir || seq->waits_until > heir->waits_until)
            heir = seq;
    }
    if (heir && broke_off)
        heir->is_heir = true;
    owner->in_flight = false;
}
