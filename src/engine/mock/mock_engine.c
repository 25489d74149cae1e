/* The mock engine's interface: memory at open, checks of batches, and rows as inputs; see
 * mock_engine.h. Owned by the caller's thread, as mock_internal.h says. Invalid calls are caught by
 * asserts, not reported as errors. */
#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/mock/mock_internal.h"

int mock_lost(const struct mock_engine *m, struct error *err)
{
    return m->is_lost ? error_set(err, ERROR_DEVICE, "the mock engine has lost its device") : 0;
}

/* ---- batches ---- */

#ifndef NDEBUG
/* The runs name existing pages, one for each position from `first` on. */
static bool view_is_sound(const struct page_view *view, uint32_t length, uint32_t n_pages)
{
    const struct page_run *runs = view->runs;
    uint32_t n = view->first;
    for (uint32_t i = 0; i < view->n_runs; i++) {
        if (runs[i].count == 0 || runs[i].first >= n_pages ||
            runs[i].count > n_pages - runs[i].first)
            return false;
        n += runs[i].count;
    }
    return n == length;
}

static bool seq_is_sound(const struct mock_engine *m, const struct batch_seq *seq)
{
    const struct engine *e = &m->engine;
    if (seq->length > e->limits.max_length || seq->pages[0].first > 0 ||
        seq->n_drafts > e->info.max_rollback)
        return false;
    for (uint32_t g = 0; g < e->info.n_groups; g++) {
        bool is_state = g > 0 && g == m->state_group;
        if (is_state ? seq->slot >= e->limits.n_slots
                     : !view_is_sound(&seq->pages[g], seq->length, e->limits.n_pages[g]))
            return false;
    }
    return true;
}

/* Regions are in order, and the rows first .. last of the sequence contain each of them whole. */
static bool regions_are_sound(const struct mock_engine *m, const struct batch_seq *seq,
                              uint32_t first, uint32_t last)
{
    for (uint32_t i = 0; i < seq->n_regions; i++) {
        const struct region *r = &seq->regions[i];
        if (r->count == 0 || r->count > m->engine.info.max_region || r->first < first ||
            r->first + r->count > last + 1)
            return false;
        first = r->first + r->count;
    }
    return true;
}

static bool output_is_sound(const struct mock_engine *m, const struct row_output *out)
{
    const struct engine_info *info = &m->engine.info;
    return (!(out->wants & OUTPUT_LOGITS) || out->logits) &&
           (!(out->wants & OUTPUT_BEST) ||
            (out->best && out->log_sum && out->n_best > 0 && out->n_best <= info->n_vocab)) &&
           (!(out->wants & OUTPUT_HIDDEN) || out->hidden) &&
           (!(out->wants & OUTPUT_NORMED) || out->normed) &&
           (!(out->wants & OUTPUT_HEAD) || (out->head_values && out->head < info->n_heads));
}

static bool row_is_sound(const struct mock_engine *m, const struct batch_row *row, bool is_last)
{
    const struct mock_image *image = row->source == ROW_IMAGE ? mock_image_of(m, row->image) : NULL;
    uint32_t g = m->state_group;
    if (row->source == ROW_IMAGE &&
        !(image && image->is_ready && row->value >= 0 && (uint32_t)row->value < image->n_rows))
        return false;
    if (g && row->pages[g] != PAGE_NONE) {
        uint32_t grain = m->engine.info.groups[g].grain;
        if (row->pages[g] >= m->engine.limits.n_pages[g] ||
            ((row->position + 1) % grain != 0 && !is_last))
            return false;
    }
    return !row->output || output_is_sound(m, row->output);
}

static bool batch_is_sound(const struct mock_engine *m, const struct batch *batch)
{
    const struct engine_limits *limits = &m->engine.limits;
    if (batch->n_rows == 0 || batch->n_rows > limits->max_rows || batch->n_seqs == 0 ||
        batch->n_seqs > limits->max_seqs)
        return false;
    for (uint32_t i = 0; i < batch->n_seqs; i++) {
        if (!seq_is_sound(m, &batch->seqs[i]))
            return false;
        for (uint32_t k = 0; m->state_group && k < i; k++)
            if (batch->seqs[k].slot == batch->seqs[i].slot)
                return false;
    }
    for (uint32_t i = 0, n; i < batch->n_rows; i += n) {
        const struct batch_row *rows = batch->rows + i;
        if (rows->seq >= batch->n_seqs)
            return false;
        for (n = 1; i + n < batch->n_rows && rows[n].seq == rows->seq;)
            n++;
        for (uint32_t k = 0; k < n; k++)
            if (!row_is_sound(m, &rows[k], k + 1 == n) || rows[k].position != rows->position + k)
                return false;
        const struct batch_seq *seq = &batch->seqs[rows->seq];
        if (rows[n - 1].position >= seq->length || seq->n_drafts > n ||
            !regions_are_sound(m, seq, rows->position, rows[n - 1].position))
            return false;
    }
    return true;
}
#endif

/* A row's embedding: the token itself, unless there is more to it. */
static uint64_t input_of(const struct mock_engine *m, const struct batch_row *row, uint64_t adapter)
{
    uint64_t x = (uint32_t)row->value;
    bool is_turned = false;
    if (row->source == ROW_IMAGE)
        x = hash_pair(hash_pair(mock_image_of(m, row->image)->digest, SALT_IMAGE), x);
    else if (row->source != ROW_TOKEN)
        x = hash_pair(row->source == ROW_COORDINATE ? SALT_COORDINATE : SALT_SIZE, x);
    for (uint32_t a = 0; a < m->engine.info.rope_axes; a++)
        is_turned |= row->rope[a] != row->position;
    for (uint32_t a = 0; is_turned && a < m->engine.info.rope_axes; a++)
        x = hash_pair(x, (uint64_t)(a + 1) << 32 | (row->rope[a] - row->position));
    return adapter ? hash_pair(x, adapter) : x;
}

/* Fills in m->inputs. ERROR_INPUT: no such adapter or token. */
static int make_inputs(struct mock_engine *m, const struct batch *batch, struct error *err)
{
    uint32_t n_vocab = m->engine.info.n_vocab;
    uint32_t n_tokens = m->options.n_tokens > n_vocab ? m->options.n_tokens : n_vocab;
    const struct mock_adapter *adapter = NULL;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        uint64_t wanted = batch->seqs[row->seq].adapter;
        if (row->source == ROW_TOKEN && (row->value < 0 || (uint32_t)row->value >= n_tokens))
            return error_set(err, ERROR_INPUT, "token %d is not in the vocabulary of %u",
                             row->value, n_tokens);
        if (wanted && !(adapter = mock_adapter_of(m, wanted)))
            return error_set(err, ERROR_INPUT, "no adapter with that number is loaded");
        m->inputs[i] = input_of(m, row, wanted ? adapter->identity : 0);
    }
    return 0;
}

static int mock_submit(struct engine *e, const struct batch *batch, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    assert(!m->batch);
    if (mock_lost(m, err))
        return -1;
    assert(batch_is_sound(m, batch));
    if (make_inputs(m, batch, err))
        return -1;
    m->batch = batch;
    m->batch_job = device_issue(m, (struct job){.kind = JOB_BATCH, .batch = batch});
    return 0;
}

static int mock_wait(struct engine *e, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    assert(m->batch);
    device_wait(m, m->batch_job);
    m->batch = NULL;
    if (m->result == 0)
        return 0;
    if (err)
        *err = m->error;
    m->is_lost = m->error.code == ERROR_DEVICE;
    return -1;
}

/* ---- states ---- */

#ifndef NDEBUG
static bool place_is_sound(const struct mock_engine *m, enum state_place place, uint32_t index)
{
    const struct engine_limits *limits = &m->engine.limits;
    return place == STATE_ZERO ||
           index < (place == STATE_SLOT ? limits->n_slots : limits->n_pages[m->state_group]);
}
#endif

static int mock_copy_states(struct engine *e, const struct state_copy *copies, uint32_t n,
                            struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    if (mock_lost(m, err))
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        assert(m->state_group && copies[i].to_place != STATE_ZERO &&
               place_is_sound(m, copies[i].from_place, copies[i].from) &&
               place_is_sound(m, copies[i].to_place, copies[i].to));
        device_issue(m, (struct job){.kind = JOB_COPY, .copy = copies[i]});
    }
    return 0;
}

static int mock_roll_back(struct engine *e, uint32_t slot, uint32_t position, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    if (mock_lost(m, err))
        return -1;
    assert(m->state_group && slot < e->limits.n_slots && !m->batch);
    device_issue(m, (struct job){.kind = JOB_ROLL_BACK, .roll_back = {slot, position}});
    return 0;
}

/* ---- open and close ---- */

static int mock_reopen(struct engine *e, struct error *err)
{
    struct mock_engine *m = (struct mock_engine *)e;
    (void)err;
    assert(!m->batch);
    device_wait(m, atomic_load(&m->n_issued));
    device_spoil_all(m);
    tables_clear(m);
    io_clear(m);
    m->since_loss = 0;
    m->is_lost = m->device_is_lost = false;
    return 0;
}

static void mock_close(struct engine *e)
{
    struct mock_engine *m = (struct mock_engine *)e;
    device_close(m);
    io_clear(m);
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        free(m->pages[g]);
    free(m->inputs);
    free(m->slots);
    free(m->drafts);
    free(m->scratch);
    free(m);
}

static const struct engine_ops mock_ops = {
    .abi = ENGINE_ABI,
    .submit = mock_submit,
    .wait = mock_wait,
    .copy_states = mock_copy_states,
    .roll_back = mock_roll_back,
    .encode = mock_encode,
    .encode_step = mock_encode_step,
    .encode_free = mock_encode_free,
    .load_adapter = mock_load_adapter,
    .unload_adapter = mock_unload_adapter,
    .page_io = mock_page_io,
    .io_poll = mock_io_poll,
    .reopen = mock_reopen,
    .close = mock_close,
};

static int options_check(const struct mock_options *o, struct error *err)
{
    uint32_t n_states = 0;
    if (o->n_vocab == 0 || o->end_token >= (int32_t)o->n_vocab)
        return error_set(err, ERROR_INPUT, "a mock vocabulary of %u has no end token %d",
                         o->n_vocab, o->end_token);
    for (uint32_t g = 0; g < o->n_groups && g < KV_MAX_GROUPS; g++) {
        const struct kv_group *group = &o->groups[g];
        n_states += group->kind == KV_STATE;
        if ((group->kind == KV_FULL) != (g == 0) || group->page_bytes % sizeof(uint64_t) ||
            (group->kind == KV_WINDOW && group->window == 0) ||
            (group->kind == KV_STATE && (group->grain == 0 || group->sees_regions)))
            return error_set(err, ERROR_INPUT,
                             "the mock engine does not support group %u as configured", g);
    }
    if (o->n_groups > KV_MAX_GROUPS || n_states > 1 || o->rope_axes > ROPE_AXES || o->n_heads > 2 ||
        (o->no_full_layers && o->n_groups < 2))
        return error_set(err, ERROR_INPUT, "the mock engine does not support this configuration");
    return 0;
}

/* Fills in the info of every group from the options. */
static void info_fill(struct mock_engine *m)
{
    const struct mock_options *o = &m->options;
    struct engine *e = &m->engine;
    e->info = (struct engine_info){.name = "mock",
                                   .n_vocab = o->n_vocab,
                                   .n_embd = MOCK_EMBD,
                                   .n_groups = o->n_groups ? o->n_groups : 1,
                                   .bit_exact = true,
                                   .is_async = o->is_async,
                                   .rope_axes = o->rope_axes ? o->rope_axes : 1,
                                   .max_region = o->max_region,
                                   .max_rollback = o->max_rollback,
                                   .heads = mock_heads,
                                   .n_heads = o->n_heads};
    for (uint32_t g = 0; g < e->info.n_groups; g++) {
        struct kv_group *group = &e->info.groups[g];
        *group = o->groups[g];
        group->n_layers = g > 0 || !o->no_full_layers;
        if (group->page_bytes == 0 || group->n_layers == 0)
            group->page_bytes = group->n_layers * (uint32_t)sizeof(uint64_t);
        e->info.kv_bytes += (uint64_t)e->limits.n_pages[g] * group->page_bytes;
        if (group->kind == KV_STATE) {
            m->state_group = g;
            e->info.kv_bytes += (uint64_t)e->limits.n_slots * group->page_bytes;
        }
    }
}

/* Allocates at least one, so that nothing is NULL. */
static void *allocate(uint64_t n, size_t size)
{
    return calloc(n + 1, size);
}

static bool memory_open(struct mock_engine *m)
{
    const struct engine_limits *limits = &m->engine.limits;
    bool has_all = true;
    for (uint32_t g = 0; g < m->engine.info.n_groups; g++)
        has_all &= (m->pages[g] = allocate(limits->n_pages[g], sizeof(uint64_t))) != NULL;
    m->inputs = allocate(limits->max_rows, sizeof *m->inputs);
    m->slots = allocate(limits->n_slots, sizeof *m->slots);
    m->drafts = allocate((uint64_t)limits->n_slots * m->options.max_rollback, sizeof *m->drafts);
    m->scratch = allocate(m->options.n_vocab, sizeof *m->scratch);
    return has_all && m->inputs && m->slots && m->drafts && m->scratch;
}

int mock_engine_open(struct engine **out, const struct mock_options *options,
                     const struct engine_limits *limits, struct error *err)
{
    if (options_check(options, err))
        return -1;
    struct mock_engine *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, ERROR_MEMORY, "no memory for a mock engine");
    m->engine = (struct engine){.ops = &mock_ops, .limits = *limits};
    m->options = *options;
    info_fill(m);
    bool has_memory = memory_open(m);
    if (!has_memory)
        error_set(err, ERROR_MEMORY, "no memory for a mock engine of %u pages", limits->n_pages[0]);
    if (!has_memory || device_open(m, err)) {
        mock_close(&m->engine);
        return -1;
    }
    *out = &m->engine;
    return 0;
}
