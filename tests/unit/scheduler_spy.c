/* See scheduler_spy.h. */
#include "scheduler_spy.h"

#include <math.h>
#include <stdlib.h>

#include "mock_oracle.h"
#include "test.h"

struct spy spy;
static struct engine_ops spied;
static const struct engine_ops *real;

/* ---- the engine ---- */

/* Whether the call must fail, and with which error. */
static int fault(enum spy_call call, struct error *err)
{
    if (spy.is_lost)
        return error_set(err, ERROR_DEVICE, "the device is lost");
    if (call != spy.fails_at || spy.n_failures == 0)
        return 0;
    if (spy.fails_after > 0) {
        spy.fails_after--;
        return 0;
    }
    spy.n_failures--;
    spy.is_lost = spy.code == ERROR_DEVICE;
    return error_set(err, spy.code, "it fails, as it was told");
}

static void write_down(const struct engine *e, const struct batch *batch)
{
    struct spy_batch *b = &spy.batches[spy.n_batches++ % SPY_BATCHES];
    *b = (struct spy_batch){batch->n_seqs, batch->n_rows, 0};
    spy.is_doomed = false;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        for (uint32_t g = 1; g < e->info.n_groups; g++)
            b->n_copies += e->info.groups[g].kind == KV_STATE && row->pages[g] != PAGE_NONE;
        spy.is_doomed |= row->source == ROW_TOKEN && row->value == spy.deadly_token;
    }
}

static int spy_submit(struct engine *e, const struct batch *batch, struct error *err)
{
    if (fault(SPY_SUBMIT, err) || real->submit(e, batch, err))
        return -1;
    write_down(e, batch);
    spy.batch = batch;
    if (spy.at_submit)
        spy.at_submit(spy.context);
    return 0;
}

static int spy_wait(struct engine *e, struct error *err)
{
    if (spy.at_wait)
        spy.at_wait(spy.context);
    spy.batch = NULL;
    if (real->wait(e, err))
        return -1;
    if (spy.is_doomed) {
        spy.is_lost = true;
        return error_set(err, ERROR_DEVICE, "the device does not stand this token");
    }
    return fault(SPY_WAIT, err);
}

static int spy_copy_states(struct engine *e, const struct state_copy *copies, uint32_t n,
                           struct error *err)
{
    if (fault(SPY_COPY, err))
        return -1;
    for (uint32_t i = 0; i < n; i++)
        spy.n_copied[copies[i].from_place][copies[i].to_place]++;
    return real->copy_states(e, copies, n, err);
}

static int spy_encode(struct engine *e, const struct image_input *in, uint32_t *image,
                      struct error *err)
{
    if (fault(SPY_ENCODE, err) || real->encode(e, in, image, err))
        return -1;
    spy.encoded[spy.n_encodes++ % SPY_ENCODES] = in->n_rows;
    return 0;
}

static int spy_encode_step(struct engine *e, uint32_t image, uint32_t budget_us, struct error *err)
{
    return fault(SPY_ENCODE_STEP, err) ? -1 : real->encode_step(e, image, budget_us, err);
}

static void spy_encode_free(struct engine *e, uint32_t image)
{
    spy.n_frees++;
    real->encode_free(e, image);
}

static int spy_reopen(struct engine *e, struct error *err)
{
    if (spy.n_closed > 0) {
        spy.n_closed--;
        return error_set(err, ERROR_DEVICE, "it cannot be opened");
    }
    spy.is_lost = false;
    spy.n_reopened++;
    spy.n_frees = spy.n_encodes; /* what it had is gone */
    return real->reopen(e, err);
}

void spy_on(struct fixture *f)
{
    spy = (struct spy){.deadly_token = -1};
    real = f->engine->ops;
    spied = *real;
    spied.submit = spy_submit;
    spied.wait = spy_wait;
    spied.copy_states = spy_copy_states;
    spied.encode = spy_encode;
    spied.encode_step = spy_encode_step;
    spied.encode_free = spy_encode_free;
    spied.reopen = spy_reopen;
    f->engine->ops = &spied;
}

void spy_fail(enum spy_call call, uint32_t after, uint32_t n, enum error_code code)
{
    spy.fails_at = call;
    spy.fails_after = after;
    spy.n_failures = n;
    spy.code = code;
}

/* ---- requests ---- */

struct request_image image_make(unsigned char digest, uint32_t length, uint16_t cols)
{
    uint32_t rows = cols ? length / cols : 0;
    struct request_image image = {.shape = {.length = length, .position_span = length}};
    if (cols)
        image.shape = (struct image_shape){length, rows > cols ? rows : cols, (uint16_t)rows, cols};
    memset(image.sha256, digest, sizeof image.sha256);
    return image;
}

struct client *client_make_mixed(const char *prompt, const struct request_image *images,
                                 uint32_t n_images, uint32_t max_tokens)
{
    int32_t none[FIXTURE_MAX_TOKENS] = {0};
    uint32_t n = 0;
    struct client *c = client_make(none, FIXTURE_MAX_TOKENS, max_tokens);
    for (; *prompt; prompt++) {
        uint32_t which = (uint32_t)(*prompt - '0');
        uint32_t length = which < n_images ? images[which].shape.length : 1;
        CHECK(n + length <= FIXTURE_MAX_TOKENS);
        for (uint32_t i = 0; i < length; i++)
            c->prompt[n++] = which < n_images
                                 ? cache_token_image(which, i, length)
                                 : cache_token_text((unsigned char)*prompt % (FIXTURE_VOCAB - 1));
    }
    c->request.n_tokens = n;
    c->request.images = images;
    c->request.n_images = n_images;
    c->request.ignore_end = true;
    return c;
}

/* ---- what must come ---- */

static void feed_text(struct oracle *o, int32_t token, uint32_t *rope)
{
    struct oracle_input in = {
        .source = ROW_TOKEN, .value = token, .rope = {*rope, *rope, *rope, *rope}};
    oracle_append(o, &in, 1, false);
    ++*rope;
}

static void feed_image(struct oracle *o, const struct request_image *image, uint32_t *rope)
{
    struct oracle_input in[FIXTURE_MAX_TOKENS] = {0};
    const struct image_shape *shape = &image->shape;
    for (uint32_t i = 0; i < shape->length; i++) {
        uint32_t on = shape->grid_cols ? 0 : i, cols = shape->grid_cols;
        in[i] = (struct oracle_input){.source = ROW_IMAGE,
                                      .value = (int32_t)i,
                                      .rope = {*rope + on, *rope + (cols ? i / cols : i),
                                               *rope + (cols ? i % cols : i), *rope + on}};
        memcpy(in[i].sha256, image->sha256, sizeof in[i].sha256);
    }
    oracle_append(o, in, shape->length, true);
    *rope += shape->position_span;
}

static void feed_prompt(struct oracle *o, const struct request *r, uint32_t *rope)
{
    for (uint32_t i = 0; i < r->n_tokens;) {
        if (!cache_token_is_image(r->tokens[i])) {
            feed_text(o, cache_token_payload(r->tokens[i++]), rope);
            continue;
        }
        const struct request_image *image = &r->images[cache_token_image_index(r->tokens[i])];
        feed_image(o, image, rope);
        i += image->shape.length;
    }
}

static void logits_after(const struct oracle *o, uint32_t position, float *logits)
{
    float scratch[FIXTURE_VOCAB];
    struct mock_options plain = *o->options;
    struct row_output out = {.wants = OUTPUT_LOGITS, .logits = logits};
    plain.nan_every = 0;
    mock_give_output(&plain, o->cells[position].digest, o->cells[position].last, scratch, &out);
}

static int32_t best_of(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < FIXTURE_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void check_scores(const struct oracle *o, const struct request *r)
{
    float logits[FIXTURE_VOCAB];
    CHECK(isnan(r->prompt_logprobs[0].logprob));
    for (uint32_t i = 1; i < r->n_tokens; i++) {
        double total = 0, got = r->prompt_logprobs[i].logprob;
        if (!cache_token_is_text(r->tokens[i])) {
            CHECK(isnan(got));
            continue;
        }
        logits_after(o, i - 1, logits);
        for (uint32_t k = 0; k < FIXTURE_VOCAB; k++)
            total += exp(logits[k]);
        CHECK(fabs(got - (logits[cache_token_payload(r->tokens[i])] - log(total))) < 1e-4);
    }
}

void check_oracle_beginning(const struct fixture *f, const struct client *c, const char *adapter)
{
    const struct request *r = &c->request;
    float logits[FIXTURE_VOCAB];
    uint32_t rope = 0;
    struct oracle o;
    oracle_open(&o, &f->mock, adapter);
    feed_prompt(&o, r, &rope);
    if (r->prompt_logprobs && c->n_got)
        check_scores(&o, r);
    for (uint32_t i = 0; i < c->n_got; i++) {
        logits_after(&o, r->n_tokens + i - 1, logits);
        CHECK_INT(c->got[i], best_of(logits));
        feed_text(&o, c->got[i], &rope);
    }
    oracle_close(&o);
}

void check_oracle(const struct fixture *f, const struct client *c, const char *adapter)
{
    CHECK_INT(c->finish, FINISH_LENGTH);
    CHECK_INT(c->n_got, c->request.max_tokens);
    check_oracle_beginning(f, c, adapter);
}
