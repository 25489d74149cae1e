/* The mock engine against its oracle: random groups, sequences that fork and resume, batches with
 * images, regions, adapters and drafts, moved pages, failures, stops and a lost device. Whatever
 * happens, the output of a computed row follows from its sequence's inputs. */
#include <stdlib.h>

#include "base/hash.h"
#include "mock_oracle.h"
#include "test.h"

enum {
    MAX_SEQS = 5,
    MAX_LENGTH = 96,
    MAX_ROWS = 40,
    N_PAGES = 2000,
    N_SLOTS = 8,
    N_IMAGES = 3,
    N_ADAPTERS = 2,
    MAX_SAVES = 4,
    VOCAB = 37,
    MAX_REGION = 9,
};

/* A copy of a sequence's state. */
struct save {
    uint32_t n; /* positions */
    uint32_t page;
};

struct test_seq {
    bool is_live;
    struct oracle oracle;
    struct oracle_input inputs[MAX_LENGTH];
    bool begins_region[MAX_LENGTH + 1]; /* a batch may begin or end here */
    uint32_t pages[KV_MAX_GROUPS][MAX_LENGTH];
    uint32_t slot, adapter; /* 0: none, else 1 + its index */
    bool slot_is_good;
    struct save saves[MAX_SAVES];
    uint32_t n_saves;
};

struct image {
    uint32_t handle, n_rows;
    unsigned char sha256[32];
    bool is_ready;
};

struct world {
    uint64_t seed;
    struct mock_options options;
    struct engine *engine;
    uint32_t state_group;                    /* 0: none */
    uint32_t n_used[KV_MAX_GROUPS][N_PAGES]; /* by how many sequences; pages are shared */
    uint32_t next_page;
    struct test_seq seqs[MAX_SEQS];
    struct image images[N_IMAGES];
    uint64_t adapters[N_ADAPTERS];
    uint64_t n_checked, n_failed, n_stopped, n_lost, n_resumed, n_rolled, n_moved, n_forked;
    uint64_t n_regions, n_refused;
};

static uint32_t pick(struct world *w, uint32_t n)
{
    return (uint32_t)((hash_mix(w->seed++) >> 32) * n >> 32);
}

static const char *adapter_path(uint32_t index)
{
    return index ? "adapters/b" : "adapters/a";
}

/* ---- pages ---- */

static uint32_t take_page(struct world *w, uint32_t group)
{
    do
        w->next_page = (w->next_page + 1 + pick(w, 3)) % N_PAGES;
    while (w->n_used[group][w->next_page]);
    w->n_used[group][w->next_page] = 1;
    return w->next_page;
}

static void drop_page(struct world *w, uint32_t group, uint32_t *page)
{
    if (*page != PAGE_NONE)
        w->n_used[group][*page]--;
    *page = PAGE_NONE;
}

static void use_page(struct world *w, uint32_t group, uint32_t page)
{
    if (page != PAGE_NONE)
        w->n_used[group][page]++;
}

static void cut_seq(struct world *w, struct test_seq *s, uint32_t n)
{
    oracle_cut(&s->oracle, n);
    for (uint32_t g = 0; g < w->engine->info.n_groups; g++)
        for (uint32_t p = n; g != w->state_group || g == 0 ? p < MAX_LENGTH : false; p++)
            drop_page(w, g, &s->pages[g][p]);
    while (s->n_saves && s->saves[s->n_saves - 1].n > n)
        drop_page(w, w->state_group, &s->saves[--s->n_saves].page);
}

static void end_seq(struct world *w, struct test_seq *s)
{
    if (!s->is_live)
        return;
    cut_seq(w, s, 0);
    oracle_close(&s->oracle);
    s->is_live = false;
}

/* ---- states ---- */

static void copy_state(struct world *w, struct state_copy copy)
{
    struct error err;
    CHECK_INT(engine_copy_states(w->engine, &copy, 1, &err), 0);
}

/* Makes sure that the sequence's slot has its state, from a copy if necessary; later positions are
 * forgotten. */
static void resume(struct world *w, struct test_seq *s)
{
    if (!w->state_group || s->slot_is_good)
        return;
    uint32_t n = s->n_saves ? s->saves[s->n_saves - 1].n : 0;
    if (n < s->oracle.n)
        cut_seq(w, s, n);
    if (n)
        copy_state(
            w, (struct state_copy){STATE_PAGE, STATE_SLOT, s->saves[s->n_saves - 1].page, s->slot});
    else
        copy_state(w, (struct state_copy){STATE_ZERO, STATE_SLOT, 77, s->slot});
    s->slot_is_good = true;
    w->n_resumed++;
}

/* A copy of the current state, besides those that batches make. */
static void save_state(struct world *w, struct test_seq *s)
{
    bool has_it = s->n_saves && s->saves[s->n_saves - 1].n == s->oracle.n;
    if (!w->state_group || !s->slot_is_good || s->oracle.n == 0 || has_it ||
        s->n_saves == MAX_SAVES)
        return;
    uint32_t page = take_page(w, w->state_group);
    copy_state(w, (struct state_copy){STATE_SLOT, STATE_PAGE, s->slot, page});
    s->saves[s->n_saves++] = (struct save){s->oracle.n, page};
}

/* ---- sequences ---- */

static void begin_seq(struct world *w, struct test_seq *s)
{
    end_seq(w, s);
    uint32_t adapter = pick(w, 3) ? 0 : 1 + pick(w, N_ADAPTERS);
    *s = (struct test_seq){.is_live = true, .slot = (uint32_t)(s - w->seqs), .adapter = adapter};
    memset(s->pages, 0xff, sizeof s->pages);
    s->begins_region[0] = true;
    oracle_open(&s->oracle, &w->options, adapter ? adapter_path(adapter - 1) : NULL);
}

/* A second sequence continues where the first is; pages are shared, the state is copied. */
static void fork_seq(struct world *w, const struct test_seq *from, struct test_seq *to)
{
    if (!from->is_live || to == from || (w->state_group && !from->slot_is_good))
        return;
    end_seq(w, to);
    uint32_t slot = (uint32_t)(to - w->seqs);
    *to = *from;
    to->slot = slot;
    to->n_saves = 0;
    oracle_copy(&to->oracle, &from->oracle);
    for (uint32_t g = 0; g < w->engine->info.n_groups; g++)
        for (uint32_t p = 0; p < from->oracle.n; p++)
            use_page(w, g, to->pages[g][p]);
    if (w->state_group)
        copy_state(w, (struct state_copy){STATE_SLOT, STATE_SLOT, from->slot, to->slot});
    w->n_forked++;
}

/* Computes the last positions again, from a copy of the state if there is one. */
static void go_back(struct world *w, struct test_seq *s)
{
    uint32_t n = s->oracle.n;
    if (!s->is_live || n == 0)
        return;
    do
        n--;
    while (n > 0 && (!s->begins_region[n] || pick(w, 3)));
    if (w->state_group) {
        s->slot_is_good = false;
        while (s->n_saves && (s->saves[s->n_saves - 1].n > n || pick(w, 3) == 0))
            drop_page(w, w->state_group, &s->saves[--s->n_saves].page);
        resume(w, s);
    } else {
        cut_seq(w, s, n);
    }
}

/* ---- images and adapters ---- */

static void drop_image(struct world *w, struct image *i)
{
    if (i->handle)
        engine_encode_free(w->engine, i->handle);
    *i = (struct image){0};
}

static void begin_image(struct world *w, struct image *i)
{
    struct image_input in = {.n_rows = 1 + pick(w, MAX_REGION)};
    struct error err;
    drop_image(w, i);
    memset(in.sha256, (int)pick(w, 4), sizeof in.sha256);
    in.sha256[31] = (unsigned char)in.n_rows;
    if (engine_encode(w->engine, &in, &i->handle, &err)) {
        CHECK_INT(err.code, ERROR_LIMIT);
        w->n_refused++;
        return;
    }
    i->n_rows = in.n_rows;
    memcpy(i->sha256, in.sha256, sizeof in.sha256);
}

static void encode_image(struct world *w, struct image *i)
{
    struct error err;
    if (!i->handle || i->is_ready)
        return;
    int rc = engine_encode_step(w->engine, i->handle, 1 + pick(w, 20), &err);
    i->is_ready = rc == 1;
    if (rc < 0)
        drop_image(w, i);
}

static void load_adapter(struct world *w, uint32_t index)
{
    struct error err;
    uint64_t old = w->adapters[index];
    if (old)
        engine_unload_adapter(w->engine, old);
    CHECK_INT(engine_load_adapter(w->engine, adapter_path(index), &w->adapters[index], &err), 0);
    CHECK(w->adapters[index] != old);
}

/* ---- batches ---- */

/* Buffers for what one row may want. */
struct buffers {
    float logits[VOCAB], hidden[16], normed[16], values[8], log_sum;
    struct row_best best[5];
};

struct batch_world {
    struct batch batch;
    struct batch_seq seqs[MAX_SEQS];
    struct batch_row rows[MAX_ROWS];
    struct row_output outputs[MAX_ROWS];
    struct buffers buffers[MAX_ROWS];
    struct page_run runs[MAX_SEQS][KV_MAX_GROUPS][MAX_LENGTH];
    struct region regions[MAX_SEQS][MAX_ROWS];
    struct test_seq *who[MAX_SEQS];
    uint32_t first[MAX_SEQS], n_rows[MAX_SEQS]; /* of each sequence */
};

static void want_output(struct world *w, struct batch_world *b, uint32_t row)
{
    struct buffers *buffers = &b->buffers[row];
    b->outputs[row] = (struct row_output){
        .wants = pick(w, 16) | (w->options.n_heads ? pick(w, 2) : 0) * OUTPUT_HEAD,
        .logits = buffers->logits,
        .best = buffers->best,
        .n_best = 1 + pick(w, 5),
        .log_sum = &buffers->log_sum,
        .hidden = buffers->hidden,
        .normed = buffers->normed,
        .head_values = buffers->values};
    if (w->options.n_heads)
        b->outputs[row].head = pick(w, w->options.n_heads);
    b->rows[row].output = &b->outputs[row];
}

static struct oracle_input random_input(struct world *w, uint32_t position)
{
    struct oracle_input in = {.value = (int32_t)pick(w, VOCAB)};
    if (pick(w, 8) == 0)
        in.source = pick(w, 2) ? ROW_COORDINATE : ROW_SIZE;
    for (uint32_t a = 0; a < ROPE_AXES; a++)
        in.rope[a] = position + (pick(w, 4) ? 0 : pick(w, 1000) - 500);
    return in;
}

/* The next positions of a sequence: an input, or all rows of an image; returns how many. */
static uint32_t next_inputs(struct world *w, struct test_seq *s, uint32_t room,
                            const struct image **image, bool *is_region)
{
    uint32_t n = s->oracle.n, count = 1;
    struct image *i = &w->images[pick(w, N_IMAGES)];
    *is_region = false;
    *image = NULL;
    if (i->is_ready && i->n_rows <= room && pick(w, 3) == 0) {
        *image = i;
        count = i->n_rows;
        *is_region = w->options.max_region && pick(w, 4);
    } else if (w->options.max_region && room >= 4 && pick(w, 6) == 0) {
        count = 1 + pick(w, 4);
        *is_region = true;
    }
    for (uint32_t k = 0; k < count; k++) {
        s->inputs[n + k] = random_input(w, n + k);
        if (*image) {
            s->inputs[n + k].source = ROW_IMAGE;
            s->inputs[n + k].value = (int32_t)k;
            memcpy(s->inputs[n + k].sha256, i->sha256, sizeof i->sha256);
        }
    }
    oracle_append(&s->oracle, s->inputs + n, count, *is_region);
    for (uint32_t k = 1; k <= count; k++)
        s->begins_region[n + k] = !*is_region || k == count;
    return count;
}

static void add_row(struct world *w, struct batch_world *b, uint32_t seq, uint32_t position,
                    const struct image *image)
{
    struct test_seq *s = b->who[seq];
    const struct oracle_input *in = &s->inputs[position];
    uint32_t row = b->batch.n_rows++;
    b->rows[row] = (struct batch_row){.source = in->source,
                                      .value = in->value,
                                      .image = image ? image->handle : 0,
                                      .seq = seq,
                                      .position = position};
    memcpy(b->rows[row].rope, in->rope, sizeof in->rope);
    for (uint32_t g = 0; g < w->engine->info.n_groups; g++) {
        bool is_state = g && g == w->state_group;
        b->rows[row].pages[g] = PAGE_NONE;
        if (!is_state)
            b->rows[row].pages[g] = s->pages[g][position] = take_page(w, g);
        else if ((position + 1) % w->options.groups[g].grain == 0 && s->n_saves < MAX_SAVES &&
                 s->begins_region[position + 1] && pick(w, 2)) {
            b->rows[row].pages[g] = take_page(w, g);
            s->saves[s->n_saves++] = (struct save){position + 1, b->rows[row].pages[g]};
        }
    }
    if (pick(w, 3) == 0)
        want_output(w, b, row);
}

static void save_last(struct world *w, struct batch_world *b, struct test_seq *s)
{
    struct batch_row *row = &b->rows[b->batch.n_rows - 1];
    if (!w->state_group || row->pages[w->state_group] != PAGE_NONE || s->n_saves == MAX_SAVES)
        return;
    row->pages[w->state_group] = take_page(w, w->state_group);
    s->saves[s->n_saves++] = (struct save){row->position + 1, row->pages[w->state_group]};
}

/* The page table of a group, from where the rows see it or from before. */
static struct page_view make_view(struct world *w, struct batch_world *b, uint32_t seq, uint32_t g)
{
    struct test_seq *s = b->who[seq];
    struct page_run *runs = b->runs[seq][g];
    uint32_t window = w->engine->info.groups[g].window, from = 0, n = 0;
    if (window && b->first[seq] >= window)
        from = b->first[seq] + 1 - window;
    while (from > 0 && s->pages[g][from - 1] != PAGE_NONE && pick(w, 4))
        from--;
    from = g == 0 ? 0 : from;
    for (uint32_t p = from; p < s->oracle.n; p++) {
        CHECK(s->pages[g][p] != PAGE_NONE);
        if (n && runs[n - 1].first + runs[n - 1].count == s->pages[g][p])
            runs[n - 1].count++;
        else
            runs[n++] = (struct page_run){s->pages[g][p], 1};
    }
    return (struct page_view){runs, n, from};
}

static void add_seq(struct world *w, struct batch_world *b, struct test_seq *s)
{
    uint32_t seq = b->batch.n_seqs, room = MAX_ROWS - b->batch.n_rows, n_wanted = 1 + pick(w, 12);
    resume(w, s);
    if (room > MAX_LENGTH - s->oracle.n)
        room = MAX_LENGTH - s->oracle.n;
    if (room == 0)
        return;
    b->batch.n_seqs++;
    b->who[seq] = s;
    b->first[seq] = s->oracle.n;
    struct batch_seq *out = &b->seqs[seq];
    *out = (struct batch_seq){.slot = s->slot,
                              .adapter = s->adapter ? w->adapters[s->adapter - 1] : 0,
                              .regions = b->regions[seq]};
    for (uint32_t n = 0, count; n < n_wanted && n < room; n += count) {
        const struct image *image;
        bool is_region;
        uint32_t position = s->oracle.n;
        count = next_inputs(w, s, room - n, &image, &is_region);
        if (is_region)
            b->regions[seq][out->n_regions++] = (struct region){position, count};
        w->n_regions += is_region;
        for (uint32_t k = 0; k < count; k++)
            add_row(w, b, seq, position + k, image);
    }
    save_last(w, b, s);
    b->n_rows[seq] = s->oracle.n - b->first[seq];
    out->length = s->oracle.n;
    if (w->state_group)
        out->n_drafts = pick(w, 1 + (b->n_rows[seq] < w->options.max_rollback
                                         ? b->n_rows[seq]
                                         : w->options.max_rollback));
    for (uint32_t g = 0; g < w->engine->info.n_groups; g++)
        if (g == 0 || g != w->state_group)
            out->pages[g] = make_view(w, b, seq, g);
}

/* Rejected drafts, which may not cut a region. */
static void take_back(struct world *w, struct batch_world *b, uint32_t seq)
{
    struct test_seq *s = b->who[seq];
    uint32_t n = s->oracle.n - (b->seqs[seq].n_drafts ? pick(w, b->seqs[seq].n_drafts + 1) : 0);
    struct error err;
    if (n == s->oracle.n || !s->begins_region[n])
        return;
    CHECK_INT(engine_roll_back(w->engine, s->slot, n, &err), 0);
    cut_seq(w, s, n);
    w->n_rolled++;
}

/* Windows pass, and their pages are given back. */
static void release_windows(struct world *w, struct test_seq *s)
{
    uint32_t least = s->n_saves ? s->saves[0].n : s->oracle.n;
    for (uint32_t g = 1; g < w->engine->info.n_groups && pick(w, 2); g++) {
        uint32_t window = w->engine->info.groups[g].window;
        bool goes_back = !w->state_group; /* see go_back */
        for (uint32_t p = 0; window && !goes_back && p + window <= least; p++)
            drop_page(w, g, &s->pages[g][p]);
    }
}

static void lose_all(struct world *w)
{
    struct error err;
    uint32_t image;
    struct image_input in = {.n_rows = 1};
    CHECK_INT(engine_encode(w->engine, &in, &image, &err), -1);
    CHECK_INT(err.code, ERROR_DEVICE);
    CHECK_INT(engine_reopen(w->engine, &err), 0);
    for (uint32_t i = 0; i < N_IMAGES; i++)
        drop_image(w, &w->images[i]);
    for (uint32_t i = 0; i < MAX_SEQS; i++)
        end_seq(w, &w->seqs[i]);
    for (uint32_t i = 0; i < N_ADAPTERS; i++)
        load_adapter(w, i);
    w->n_lost++;
}

static void take_failure(struct world *w, struct batch_world *b, const struct error *err)
{
    w->n_failed += err->code == ERROR_FAILED;
    w->n_stopped += err->code == ERROR_CANCELED;
    for (uint32_t i = 0; i < b->batch.n_seqs; i++) {
        cut_seq(w, b->who[i], b->first[i]);
        b->who[i]->slot_is_good = false;
    }
    if (err->code == ERROR_DEVICE)
        lose_all(w);
}

static void run_batch(struct world *w)
{
    static struct batch_world b;
    struct error err = {0};
    atomic_int live = pick(w, 20) ? 1 : 0;
    b.batch = (struct batch){.seqs = b.seqs, .rows = b.rows, .live = &live};
    for (uint32_t i = 0; i < MAX_SEQS && b.batch.n_rows < MAX_ROWS; i++)
        if (w->seqs[i].is_live && pick(w, 2))
            add_seq(w, &b, &w->seqs[i]);
    if (b.batch.n_rows == 0)
        return;
    CHECK_INT(engine_submit(w->engine, &b.batch, &err), 0);
    if (engine_wait(w->engine, &err)) {
        take_failure(w, &b, &err);
        return;
    }
    for (uint32_t i = 0; i < b.batch.n_rows; i++) {
        const struct batch_row *row = &b.rows[i];
        if (row->output) {
            oracle_check(&b.who[row->seq]->oracle, row->position, row->output);
            w->n_checked++;
        }
    }
    for (uint32_t i = 0; i < b.batch.n_seqs; i++) {
        if (w->state_group && pick(w, 2))
            take_back(w, &b, i);
        release_windows(w, b.who[i]);
    }
}

/* ---- moving pages ---- */

/* Some pages of a sequence go through memory into others. */
static void move_pages(struct world *w, struct test_seq *s)
{
    static uint64_t data[MAX_LENGTH][3];
    struct page_run runs[MAX_LENGTH], to[MAX_LENGTH];
    uint32_t g = pick(w, w->engine->info.n_groups), n = 0, positions[MAX_LENGTH];
    uint64_t tickets[2];
    struct error err;
    int rc;
    if (!s->is_live || (g && g == w->state_group))
        return;
    for (uint32_t p = 0; p < s->oracle.n; p++) {
        if (s->pages[g][p] == PAGE_NONE || pick(w, 3) == 0)
            continue;
        positions[n] = p;
        runs[n] = (struct page_run){s->pages[g][p], 1};
        to[n++] = (struct page_run){take_page(w, g), 1};
    }
    struct page_io io = {.group = g, .runs = runs, .n_runs = n, .data = data};
    CHECK_INT(engine_page_io(w->engine, &io, &tickets[0], &err), 0);
    bool waits = pick(w, 2);
    while ((rc = engine_io_poll(w->engine, tickets[0], waits, &err)) == 0)
        CHECK(!waits);
    io = (struct page_io){.group = g, .runs = to, .n_runs = n, .data = data, .is_write = true};
    if (rc == 1) {
        CHECK_INT(engine_page_io(w->engine, &io, &tickets[1], &err), 0);
        while ((rc = engine_io_poll(w->engine, tickets[1], waits, &err)) == 0)
            CHECK(!waits);
    }
    for (uint32_t i = 0; i < n; i++) {
        drop_page(w, g, rc == 1 ? &s->pages[g][positions[i]] : &to[i].first);
        if (rc == 1)
            s->pages[g][positions[i]] = to[i].first;
    }
    w->n_moved += n;
}

/* ---- */

static struct kv_group random_side(struct world *w)
{
    uint32_t bytes = 8 * pick(w, 4);
    if (pick(w, 2))
        return (struct kv_group){
            .kind = KV_STATE, .grain = 1 + pick(w, 2) * pick(w, 8), .page_bytes = bytes};
    return (struct kv_group){.kind = KV_WINDOW,
                             .window = 1 + pick(w, pick(w, 2) ? 4 : 30),
                             .page_bytes = bytes,
                             .sees_regions = pick(w, 2)};
}

static void world_open(struct world *w, uint64_t seed, bool is_async)
{
    *w = (struct world){.seed = seed * 1000003};
    struct mock_options *o = &w->options;
    *o = (struct mock_options){.n_vocab = VOCAB,
                               .end_token = pick(w, 2) ? -1 : 3,
                               .fail_token = -1,
                               .rope_axes = pick(w, 5),
                               .max_region = pick(w, 2) * MAX_REGION,
                               .max_rollback = pick(w, 2) * pick(w, MAX_ROWS),
                               .n_heads = pick(w, 3),
                               .n_groups = pick(w, 4),
                               .is_async = is_async,
                               .image_row_cost_us = pick(w, 2) * pick(w, 20),
                               .io_page_cost_us = pick(w, 2),
                               .io_polls = pick(w, 4),
                               .fail_every = pick(w, 2) * (5 + pick(w, 30)),
                               .fail_io_every = pick(w, 2) * (2 + pick(w, 5)),
                               .fail_image_every = pick(w, 2) * (2 + pick(w, 5)),
                               .lose_every = pick(w, 2) * (20 + pick(w, 30))};
    o->groups[0] = (struct kv_group){.sees_regions = pick(w, 2), .page_bytes = 8 * pick(w, 4)};
    for (uint32_t g = 1; g < o->n_groups; g++) {
        do
            o->groups[g] = random_side(w);
        while (w->state_group && o->groups[g].kind == KV_STATE);
        if (o->groups[g].kind == KV_STATE)
            w->state_group = g;
    }
    o->no_full_layers = o->n_groups > 1 && pick(w, 4) == 0;
    struct engine_limits limits = {.n_pages = {N_PAGES, N_PAGES, N_PAGES},
                                   .n_slots = N_SLOTS,
                                   .max_rows = MAX_ROWS,
                                   .max_seqs = MAX_SEQS,
                                   .max_length = MAX_LENGTH,
                                   .max_image_rows = 2 * MAX_REGION};
    struct error err;
    if (mock_engine_open(&w->engine, o, &limits, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    for (uint32_t i = 0; i < N_ADAPTERS; i++)
        load_adapter(w, i);
}

static void step(struct world *w)
{
    struct test_seq *s = &w->seqs[pick(w, MAX_SEQS)];
    uint32_t what = pick(w, 40);
    if (!s->is_live || s->oracle.n == MAX_LENGTH)
        begin_seq(w, s);
    switch (what) {
    case 0: begin_seq(w, s); break;
    case 1: fork_seq(w, s, &w->seqs[pick(w, MAX_SEQS)]); break;
    case 2: go_back(w, s); break;
    case 3: save_state(w, s); break;
    case 4: move_pages(w, s); break;
    case 5: begin_image(w, &w->images[pick(w, N_IMAGES)]); break;
    case 6: load_adapter(w, pick(w, N_ADAPTERS)); break;
    default:
        if (what < 20)
            encode_image(w, &w->images[pick(w, N_IMAGES)]);
        else
            run_batch(w);
    }
}

static void world_close(struct world *w, struct world *sum)
{
    for (uint32_t i = 0; i < MAX_SEQS; i++)
        end_seq(w, &w->seqs[i]);
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        for (uint32_t p = 0; p < N_PAGES; p++)
            CHECK_INT(w->n_used[g][p], 0);
    engine_close(w->engine);
    sum->n_checked += w->n_checked;
    sum->n_failed += w->n_failed;
    sum->n_stopped += w->n_stopped;
    sum->n_lost += w->n_lost;
    sum->n_resumed += w->n_resumed;
    sum->n_rolled += w->n_rolled;
    sum->n_moved += w->n_moved;
    sum->n_forked += w->n_forked;
    sum->n_regions += w->n_regions;
    sum->n_refused += w->n_refused;
}

static void run_worlds(uint32_t n_worlds, uint32_t n_steps, bool is_async)
{
    static struct world w, sum;
    sum = (struct world){0};
    for (uint32_t i = 0; i < n_worlds; i++) {
        world_open(&w, i, is_async);
        for (uint32_t k = 0; k < n_steps; k++)
            step(&w);
        world_close(&w, &sum);
    }
    CHECK(sum.n_checked > 100 * n_worlds && sum.n_forked && sum.n_regions && sum.n_resumed &&
          sum.n_rolled && sum.n_moved && sum.n_failed && sum.n_stopped && sum.n_lost &&
          sum.n_refused);
}

TEST(mock_world, rows_are_what_their_inputs_say)
{
    run_worlds(120, 600, false);
}

TEST(mock_threads, rows_are_what_their_inputs_say)
{
    run_worlds(30, 600, true);
}
