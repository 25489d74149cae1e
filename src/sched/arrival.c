/* The parts of a request other than text: an adapter, which is part of its namespace, and images,
 * which get a number when they arrive and are encoded by the engine before they are computed. Owned
 * by the scheduler's thread.
 *
 * An image is encoded for each sequence that computes it. Sequences that want the same image sleep
 * until the first has put it into the tree, and a cached image is never encoded. */
#include "sched/state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { MAX_ADAPTERS = 4096 }; /* that requests ever name; a reload counts again */

/* Every adapter that the engine ever loaded has its own number, so that adapters never share KV. */
static int adapter_number(struct scheduler *s, uint64_t adapter, int32_t *number)
{
    uint32_t i = 0;
    if (!s->adapters && !(s->adapters = calloc(MAX_ADAPTERS, sizeof *s->adapters)))
        return -1;
    while (i < s->n_adapters && s->adapters[i] != adapter)
        i++;
    if (i == MAX_ADAPTERS)
        return -1;
    if (i == s->n_adapters)
        s->adapters[s->n_adapters++] = adapter;
    *number = (int32_t)i;
    return 0;
}

/* Gives an image its number, and writes the number into the tokens. */
static bool place_image(struct scheduler *s, struct sequence *seq, uint32_t which)
{
    const struct request *r = seq->request;
    struct seq_image *image = &seq->regions.images[which];
    struct region span = seq->regions.spans[which];
    const struct request_image *source = &r->images[image->source];
    struct image_key key = {.owner = span.first < r->n_public ? 0 : r->owner};
    memcpy(key.sha256, source->sha256, sizeof key.sha256);
    image->number = image_table_intern(s->cache.images, &key, &source->shape);
    if (image->number == IMAGE_NONE)
        return false;
    for (uint32_t i = 0; i < span.count; i++)
        seq->tokens[span.first + i] = cache_token_image(image->number, i, span.count);
    return true;
}

bool scheduler_place(struct scheduler *s, struct sequence *seq)
{
    struct request *r = seq->request;
    int32_t number;
    if (r->adapter && adapter_number(s, r->adapter, &number)) {
        error_set(&r->error, ERROR_LIMIT,
                  "%d adapters have been loaded since the start; restart the server to load more",
                  MAX_ADAPTERS);
        return false;
    }
    if (r->adapter)
        seq->ns = cache_namespace_with_adapter(r->ns, number);
    for (uint32_t i = 0; i < seq->regions.n; i++)
        if (!place_image(s, seq, i)) {
            error_set(&r->error, ERROR_LIMIT,
                      "the cache knows as many images as it can; try again later");
            return false;
        }
    return true;
}

void scheduler_forget_images(struct scheduler *s, struct sequence *seq)
{
    for (uint32_t i = 0; i < seq->regions.n; i++)
        if (seq->regions.images[i].number != IMAGE_NONE)
            image_table_release(s->cache.images, seq->regions.images[i].number);
}

/* Encodes a part of an image. -1: it failed. */
static int encode(struct scheduler *s, struct sequence *seq, struct seq_image *image,
                  uint32_t budget_us, struct error *err)
{
    if (image->state == REGION_RAW) {
        const struct request_image *source = &seq->request->images[image->source];
        struct image_input in = {.pixels = source->pixels,
                                 .width = source->width,
                                 .height = source->height,
                                 .n_rows = source->shape.length};
        memcpy(in.sha256, source->sha256, sizeof in.sha256);
        if (engine_encode(s->engine, &in, &image->handle, err))
            return err->code == ERROR_LIMIT && s->n_handles > 0 ? 0 : -1; /* wait for room */
        image->state = REGION_ENCODING;
        s->n_handles++;
    }
    int rc = engine_encode_step(s->engine, image->handle, budget_us, err);
    if (rc == 1) {
        image->state = REGION_ENCODED;
        s->stats.n_encoded++;
    }
    return rc < 0 ? -1 : 0;
}

/* The next image to encode, or NULL: one that the next batch may reach. Encoding later ones now
 * would only take room from others. */
static struct seq_image *next_image(const struct scheduler *s, const struct sequence *seq)
{
    const struct regions *r = &seq->regions;
    uint32_t i = regions_find(r, seq->n_computed), max_rows = s->engine->limits.max_rows;
    while (i < r->n && r->images[i].state == REGION_ENCODED)
        i++;
    return i < r->n && r->spans[i].first - seq->n_computed < max_rows ? &r->images[i] : NULL;
}

/* An image could not be encoded. The device may have been lost earlier and the loss only noticed
 * now, so the request is blamed only the second time. */
static void encode_failed(struct scheduler *s, struct sequence *seq, const struct error *err)
{
    if (err->code == ERROR_DEVICE) {
        s->is_lost = true;
        if (sequence_suspect(seq, seq->n_computed + 1))
            return;
    }
    log_warn("an image of a request of %u tokens failed: %s", seq->n_tokens, err->message);
    seq->request->error = *err;
    scheduler_finish(s, seq, FINISH_ERROR);
}

bool scheduler_encode(struct scheduler *s)
{
    bool is_encoding = false, is_full = false;
    if (s->max_region == 0)
        return false;
    uint64_t now_ns, end_ns = clock_now_ns() + s->options.step_budget_ms * UINT64_C(500000);
    for (uint32_t i = 0; i < s->n_running && !s->is_lost; i++) {
        struct sequence *seq = s->running[i];
        struct seq_image *image = next_image(s, seq);
        struct error err;
        if (!image || (is_full && image->state == REGION_RAW))
            continue; /* nobody overtakes one that waits for room */
        if ((now_ns = clock_now_ns()) >= end_ns) {
            is_encoding = true;
            break;
        }
        if (encode(s, seq, image, (uint32_t)((end_ns - now_ns) / 1000), &err)) {
            encode_failed(s, seq, &err);
            is_encoding = true;
            i--;
            continue;
        }
        is_full |= image->state == REGION_RAW;
        is_encoding |= image->state != REGION_RAW;
    }
    return is_encoding;
}

void scheduler_free_images(struct scheduler *s, struct sequence *seq, uint32_t position)
{
    for (uint32_t i = 0; i < seq->regions.n; i++) {
        struct seq_image *image = &seq->regions.images[i];
        const struct region *span = &seq->regions.spans[i];
        if (image->state == REGION_RAW || span->first + span->count > position)
            continue;
        if (!s->is_lost)
            engine_encode_free(s->engine, image->handle);
        image->state = REGION_RAW;
        s->n_handles--;
    }
}
