/* The limit of a benchmark row: the minimum work it needs, and the minimum time the machine needs
 * for that work. */
#include "cli/bench.h"

/* Virtual machines share the reported cache with others, so only a part of it is usable. */
enum { CACHE_PART = 4 };

/* Positions seen by `n` rows starting at `first`: first + 1, first + 2, ... */
static double positions_seen(uint32_t first, uint32_t n)
{
    return (double)n * first + (double)n * (n + 1.0) / 2;
}

/* Adds a batch of n rows per stream, each stream already `before` positions long. */
static void add_batch(struct bench_work *w, const struct engine_info *info, uint32_t n,
                      uint32_t before, uint32_t streams, uint32_t outputs)
{
    const struct engine_cost *c = &info->cost;
    double rows = (double)n * streams, page_bytes = 0;
    for (uint32_t g = 0; g < info->n_groups; g++)
        page_bytes += info->groups[g].page_bytes;
    double attention = (double)c->position_macs * positions_seen(before, n) * streams;
    w->n_batches++;
    w->bytes += (double)c->layer_bytes + (outputs ? (double)c->head_bytes : 0) +
                page_bytes * ((double)before + n) * streams;
    w->int8_macs += rows * (double)c->layer_macs.int8 + outputs * (double)c->head_macs.int8;
    w->float_macs += rows * (double)c->layer_macs.floats + outputs * (double)c->head_macs.floats +
                     attention;
    w->attention_macs += attention;
}

struct bench_work bench_work_of(const struct bench_row *row, const struct engine_info *info,
                                uint32_t max_rows)
{
    struct bench_work w = {0};
    if (info->cost.layer_bytes == 0)
        return w;
    uint32_t step = row->test == BENCH_DECODE ? 1 : max_rows;
    for (uint32_t done = 0, n; done < row->tokens; done += n) {
        n = row->tokens - done < step ? row->tokens - done : step;
        bool is_last = done + n == row->tokens;
        add_batch(&w, info, n, row->depth + done, row->streams,
                  row->test == BENCH_DECODE ? row->streams : is_last);
    }
    return w;
}

struct bench_limit bench_limit_of(const struct bench_row *row)
{
    struct bench_limit l = {0};
    const struct machine_limits *limits = &row->limits;
    const struct bench_work *w = &row->work;
    if (w->n_batches == 0 || !(limits->read_bytes_per_s > 0) || !(limits->int8_macs_per_s > 0) ||
        !(limits->float_macs_per_s > 0))
        return l;
    bool is_cached = w->bytes / w->n_batches * CACHE_PART <= (double)limits->cache_bytes;
    double read_s = is_cached ? 0 : w->bytes / limits->read_bytes_per_s;
    double attention_s = w->attention_macs / limits->float_macs_per_s;
    double products_s = w->int8_macs / limits->int8_macs_per_s +
                        (w->float_macs - w->attention_macs) / limits->float_macs_per_s;
    double compute_s = products_s + attention_s;
    l.is_memory = read_s > compute_s;
    l.tokens_per_s = (double)row->tokens * row->streams / (l.is_memory ? read_s : compute_s);
    l.reached = row->best / l.tokens_per_s;
    if (row->times.attention_ns > 0)
        l.attention = attention_s * 1e9 / (double)row->times.attention_ns;
    if (row->times.products_ns > 0)
        l.products = products_s * 1e9 / (double)row->times.products_ns;
    return l;
}
