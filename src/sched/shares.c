/* Fair shares of the queue and of the steps; see shares.h. Owned by the scheduler's thread, but for
 * the numbers of accepted requests.
 *
 * Each level is start-time fair queueing: whoever has used least is next, and whoever comes back
 * after a pause starts at the clock of its level, so that nobody can save up turns. */
#include "sched/shares.h"

#include "base/hash.h"
#include "base/minmax.h"
#include "sched/sequence.h"

static struct share *tenant_of(struct shares *x, const struct request *r)
{
    return &x->tenants[r->tenant % SHARE_TENANTS];
}

static struct share *client_of(struct shares *x, const struct request *r)
{
    return &x->clients[hash_pair(r->tenant, r->client) % SHARE_CLIENTS];
}

bool shares_enter(struct shares *x, const struct request *r, uint32_t most)
{
    const uint64_t n = (uint64_t)atomic_fetch_add(&x->all.n_accepted, 1) + 1;
    const uint64_t n_tenant = (uint64_t)atomic_fetch_add(&tenant_of(x, r)->n_accepted, 1) + 1;
    const uint64_t n_client = (uint64_t)atomic_fetch_add(&client_of(x, r)->n_accepted, 1) + 1;
    if (n <= most || (n <= (uint64_t)2 * most && (2 * n_tenant <= n || 2 * n_client <= n_tenant)))
        return true;
    shares_leave(x, r);
    return false;
}

void shares_leave(struct shares *x, const struct request *r)
{
    atomic_fetch_sub(&client_of(x, r)->n_accepted, 1);
    atomic_fetch_sub(&tenant_of(x, r)->n_accepted, 1);
    atomic_fetch_sub(&x->all.n_accepted, 1);
}

void shares_of(struct shares *x, struct sequence *seq)
{
    seq->tenant = tenant_of(x, seq->request);
    seq->client = client_of(x, seq->request);
}

static uint64_t turn_of(const struct share *share, const struct share *above)
{
    return max_u64(share->used, above->now);
}

/* Less than, equal to or greater than 0: `a` has used less than, as much as, or more than `b`. */
static int compare_used(const struct share *a, const struct share *b, const struct share *above)
{
    const uint64_t x = turn_of(a, above), y = turn_of(b, above);
    return (x > y) - (x < y);
}

static int compare_counts(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int compare_shares(const struct share *a, const struct share *b, const struct share *above)
{
    const int counts = compare_counts(a->n_running, b->n_running);
    return counts ? counts : compare_used(a, b, above);
}

bool shares_is_before(const struct shares *x, const struct sequence *a, const struct sequence *b)
{
    int order = compare_shares(a->tenant, b->tenant, &x->all);
    if (order == 0 && a->tenant == b->tenant)
        order = compare_shares(a->client, b->client, a->tenant);
    return order ? order < 0 : a->age < b->age;
}

bool shares_has_used_less(const struct shares *x, const struct sequence *a,
                          const struct sequence *b)
{
    int order = compare_used(a->tenant, b->tenant, &x->all);
    if (order == 0 && a->tenant == b->tenant)
        order = compare_used(a->client, b->client, a->tenant);
    return order ? order < 0 : a->age < b->age;
}

bool shares_waits_last(const struct sequence *a, const struct sequence *b)
{
    int order = compare_counts(a->tenant->n_accepted, b->tenant->n_accepted);
    if (order == 0 && a->tenant == b->tenant)
        order = compare_counts(a->client->n_accepted, b->client->n_accepted);
    return order ? order > 0 : a->age > b->age;
}

bool shares_runs_last(const struct sequence *a, const struct sequence *b)
{
    int order = compare_counts(a->tenant->n_running, b->tenant->n_running);
    if (order == 0 && a->tenant == b->tenant)
        order = compare_counts(a->client->n_running, b->client->n_running);
    return order ? order > 0 : a->age > b->age;
}

/* One more than `least` may stay: a difference of one cannot be made smaller. */
static const struct share *find_largest(struct sequence *const *running, uint32_t n_running,
                                        const struct share *tenant, uint32_t least,
                                        uint32_t *n_excess)
{
    const struct share *most = NULL;
    for (uint32_t i = 0; i < n_running; i++) {
        const struct share *x = running[i]->tenant;
        if (tenant && x != tenant)
            continue;
        if (tenant)
            x = running[i]->client;
        if (x->n_running > least + 1 && (!most || x->n_running > most->n_running))
            most = x;
    }
    *n_excess = most ? most->n_running - least - 1 : 0;
    return most;
}

const struct share *shares_find_excess(struct sequence *const *running, uint32_t n_running,
                                       const struct sequence *seq, uint32_t *n_excess)
{
    const struct share *tenant = find_largest(running, n_running, NULL, seq->tenant->n_running,
                                              n_excess);
    return tenant ? tenant
                  : find_largest(running, n_running, seq->tenant, seq->client->n_running, n_excess);
}

void shares_add_running(struct sequence *seq)
{
    seq->tenant->n_running++;
    seq->client->n_running++;
}

void shares_remove_running(struct sequence *seq)
{
    seq->tenant->n_running--;
    seq->client->n_running--;
}

void shares_charge(struct shares *x, struct sequence *const *planned, uint32_t n)
{
    x->all.least = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        struct share *tenant = planned[i]->tenant, *client = planned[i]->client;
        tenant->used = turn_of(tenant, &x->all) + planned[i]->n_rows;
        client->used = turn_of(client, tenant) + planned[i]->n_rows;
        tenant->least = UINT64_MAX;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct share *tenant = planned[i]->tenant;
        x->all.least = min_u64(x->all.least, tenant->used);
        tenant->least = min_u64(tenant->least, planned[i]->client->used);
    }
    x->all.now = max_u64(x->all.now, x->all.least);
    for (uint32_t i = 0; i < n; i++)
        planned[i]->tenant->now = max_u64(planned[i]->tenant->now, planned[i]->tenant->least);
}
