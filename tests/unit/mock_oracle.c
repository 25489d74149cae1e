/* The mock engine's answers from inputs alone; see mock_oracle.h. What it computes is written down
 * at the top of src/engine/mock/mock_compute.c; numbers are the same, code is not shared. */
#include "mock_oracle.h"

#include <stdlib.h>

#include "base/hash.h"
#include "test.h"

enum { MAX_VOCAB = 1024, MAX_VALUES = 64 };

void oracle_open(struct oracle *o, const struct mock_options *options, const char *adapter)
{
    *o = (struct oracle){.options = options,
                         .adapter = adapter ? hash_bytes(adapter, strlen(adapter)) : 0};
}

void oracle_close(struct oracle *o)
{
    free(o->cells);
    o->cells = NULL;
}

void oracle_cut(struct oracle *o, uint32_t n)
{
    CHECK(n <= o->n);
    o->n = n;
}

void oracle_copy(struct oracle *to, const struct oracle *from)
{
    *to = *from;
    to->cells = malloc((from->capacity + (size_t)1) * sizeof *to->cells);
    CHECK(to->cells != NULL);
    if (from->n)
        memcpy(to->cells, from->cells, from->n * sizeof *to->cells);
}

static struct oracle_cell *add_cell(struct oracle *o)
{
    if (o->n == o->capacity) {
        o->capacity = o->capacity ? 2 * o->capacity : 64;
        o->cells = realloc(o->cells, o->capacity * sizeof *o->cells);
        CHECK(o->cells != NULL);
    }
    o->cells[o->n] = (struct oracle_cell){.first = o->n};
    return &o->cells[o->n++];
}

static uint64_t embed(const struct oracle *o, const struct oracle_input *in, uint32_t position)
{
    uint64_t x = (uint32_t)in->value;
    uint32_t n_axes = o->options->rope_axes ? o->options->rope_axes : 1, n_turned = 0;
    switch (in->source) {
    case ROW_TOKEN: break;
    case ROW_IMAGE: x = hash_pair(hash_pair(hash_bytes(in->sha256, 32), 0x696d6167), x); break;
    case ROW_COORDINATE: x = hash_pair(0x636f6f72, x); break;
    case ROW_SIZE: x = hash_pair(0x73697a65, x); break;
    }
    for (uint32_t a = 0; a < n_axes; a++)
        n_turned += in->rope[a] != position;
    if (n_turned > 0)
        for (uint32_t a = 0; a < n_axes; a++)
            x = hash_pair(x, ((uint64_t)a + 1) * 4294967296 + (uint32_t)(in->rope[a] - position));
    return o->adapter ? hash_pair(x, o->adapter) : x;
}

static uint64_t weight(uint64_t position)
{
    return 2 * position + 1;
}

/* What the position sees of earlier positions in a windowed group. */
static uint64_t window_sum(const struct oracle *o, uint32_t position, uint32_t group)
{
    const struct kv_group *g = &o->options->groups[group];
    uint64_t sum = 0;
    for (uint32_t back = 1; back <= position; back++) {
        uint32_t p = position - back;
        bool in_region = g->sees_regions && p >= o->cells[position].first;
        if (back >= g->window && !in_region)
            break;
        sum += o->cells[p].side[group] * weight(p);
    }
    return sum;
}

static void compute(struct oracle *o, uint32_t position)
{
    const struct mock_options *options = o->options;
    struct oracle_cell *c = &o->cells[position], *before = position ? c - 1 : NULL;
    uint32_t n_groups = options->n_groups ? options->n_groups : 1;
    bool is_full = !options->no_full_layers;
    uint64_t d = hash_pair(is_full && before ? before->chain : 0x7261646973680001, c->input);
    uint64_t sums[KV_MAX_GROUPS] = {0}, seen = 0;
    if (c->region && options->groups[0].sees_regions)
        d = hash_pair(d, c->region);
    for (uint32_t g = 1; g < n_groups; g++) {
        bool is_state = options->groups[g].kind == KV_STATE;
        sums[g] = !is_state ? window_sum(o, position, g)
                  : before  ? before->side[g]
                            : 0x7261646973680002;
        d = hash_pair(d, sums[g]);
        if (c->region && options->groups[g].sees_regions)
            d = hash_pair(d, c->region);
    }
    for (uint32_t g = 1; g < n_groups; g++) {
        bool is_state = options->groups[g].kind == KV_STATE;
        c->side[g] = is_state ? hash_pair(sums[g], d) : hash_pair(d, sums[g]);
        seen += is_state ? hash_pair(c->side[g], 0x73746174)
                         : hash_mix(sums[g] + c->side[g] * weight(position));
    }
    c->chain = d;
    c->all = (before ? before->all : 0) + d * weight(position);
    c->digest = hash_mix((is_full ? c->all : 0) + seen);
}

void oracle_append(struct oracle *o, const struct oracle_input *inputs, uint32_t n, bool is_region)
{
    uint32_t first = o->n;
    uint64_t region = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct oracle_cell *c = add_cell(o);
        c->input = embed(o, &inputs[i], first + i);
        c->last = inputs[i].source == ROW_TOKEN ? inputs[i].value : -1;
        region += hash_mix(c->input) * weight(i);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (is_region) {
            o->cells[first + i].first = first;
            o->cells[first + i].region = hash_pair(region, 0x72656769);
        }
        compute(o, first + i);
    }
}

uint64_t oracle_token(struct oracle *o, int32_t token)
{
    struct oracle_input in = {.value = token, .rope = {o->n, o->n, o->n, o->n}};
    oracle_append(o, &in, 1, false);
    return o->cells[o->n - 1].digest;
}

void oracle_check(const struct oracle *o, uint32_t position, const struct row_output *out)
{
    static float scratch[MAX_VOCAB], logits[MAX_VOCAB], hidden[MAX_VALUES], normed[MAX_VALUES],
        values[MAX_VALUES];
    static struct row_best best[MAX_VOCAB];
    const struct oracle_cell *c = &o->cells[position];
    uint32_t n_vocab = o->options->n_vocab;
    float log_sum = 0;
    struct row_output want = {.wants = out->wants,
                              .logits = logits,
                              .best = best,
                              .n_best = out->n_best,
                              .log_sum = &log_sum,
                              .hidden = hidden,
                              .normed = normed,
                              .head_values = values,
                              .head = out->head};
    CHECK(position < o->n && n_vocab <= MAX_VOCAB);
    memset(values, 0, sizeof values);
    mock_give_output(o->options, c->digest, c->last, scratch, &want);
    if (out->wants & OUTPUT_LOGITS)
        CHECK(memcmp(out->logits, logits, n_vocab * sizeof *logits) == 0);
    if (out->wants & OUTPUT_BEST) {
        CHECK(memcmp(out->best, best, out->n_best * sizeof *best) == 0);
        CHECK(*out->log_sum == log_sum);
    }
    if (out->wants & OUTPUT_HIDDEN)
        CHECK(memcmp(out->hidden, hidden, 16 * sizeof *hidden) == 0);
    if (out->wants & OUTPUT_NORMED)
        CHECK(memcmp(out->normed, normed, 16 * sizeof *normed) == 0);
    if (out->wants & OUTPUT_HEAD)
        CHECK(memcmp(out->head_values, values, (out->head ? 8 : 1) * sizeof *values) == 0);
}
