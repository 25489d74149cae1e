/* The table of images; see image_table.h. Owned by the scheduler's thread.
 *
 * The hash comes from the first bytes of the SHA-256 digest, which are already uniform; a search
 * compares the whole key. The invariant is that of the edge table: no slot between a key's home and
 * its slot is empty. A removal therefore shifts later entries back. */
#include "cache/image_table.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cache/cache_token.h"

struct image {
    struct image_key key;
    struct image_shape shape;
    uint32_t references; /* 0: the number is unused */
    uint32_t next_unused;
};

struct image_table {
    struct image *images; /* [max_images] */
    uint32_t *slots; /* number + 1, or 0; a power of two in size, at least half of them empty */
    uint32_t mask;
    uint32_t max_images, n_made, count;
    uint32_t unused; /* list of numbers that are free again, or IMAGE_NONE */
};

int image_table_open(struct image_table **out, uint32_t max_images, struct error *err)
{
    assert(max_images > 0 && max_images <= CACHE_MAX_IMAGE);
    struct image_table *t = calloc(1, sizeof *t);
    uint32_t size = 8;
    while (size < max_images * 2)
        size *= 2;
    if (t) {
        *t = (struct image_table){.mask = size - 1, .max_images = max_images, .unused = IMAGE_NONE};
        t->images = calloc(max_images, sizeof *t->images);
        t->slots = calloc(size, sizeof *t->slots);
    }
    if (!t || !t->images || !t->slots) {
        image_table_close(t);
        return error_set(err, ERROR_MEMORY, "no memory for a table of %u images", max_images);
    }
    *out = t;
    return 0;
}

void image_table_close(struct image_table *t)
{
    if (!t)
        return;
    free(t->images);
    free(t->slots);
    free(t);
}

static uint32_t home_of(const struct image_table *t, const struct image_key *key)
{
    uint64_t word;
    memcpy(&word, key->sha256, sizeof word);
    return (uint32_t)hash_pair(word, key->owner) & t->mask;
}

static bool is_image(const struct image *x, const struct image_key *key,
                     const struct image_shape *shape)
{
    return x->key.owner == key->owner && x->shape.length == shape->length &&
           x->shape.position_span == shape->position_span &&
           x->shape.grid_rows == shape->grid_rows && x->shape.grid_cols == shape->grid_cols &&
           memcmp(x->key.sha256, key->sha256, sizeof key->sha256) == 0;
}

/* The image's slot, or the empty slot where it would go. */
static uint32_t slot_of(const struct image_table *t, const struct image_key *key,
                        const struct image_shape *shape)
{
    uint32_t at = home_of(t, key);
    while (t->slots[at] && !is_image(&t->images[t->slots[at] - 1], key, shape))
        at = (at + 1) & t->mask;
    return at;
}

uint32_t image_table_intern(struct image_table *t, const struct image_key *key,
                            const struct image_shape *shape)
{
    if (shape->length == 0 || shape->length > CACHE_MAX_IMAGE_LENGTH)
        return IMAGE_NONE;
    uint32_t *slot = &t->slots[slot_of(t, key, shape)];
    if (*slot) {
        image_table_hold(t, *slot - 1);
        return *slot - 1;
    }
    if (t->count == t->max_images)
        return IMAGE_NONE;
    uint32_t image = t->unused;
    if (image != IMAGE_NONE)
        t->unused = t->images[image].next_unused;
    else
        image = t->n_made++;
    t->images[image] = (struct image){.key = *key, .shape = *shape, .references = 1};
    *slot = image + 1;
    t->count++;
    return image;
}

void image_table_hold(struct image_table *t, uint32_t image)
{
    assert(image < t->n_made && t->images[image].references > 0);
    assert(t->images[image].references < UINT32_MAX);
    t->images[image].references++;
}

static void remove_slot(struct image_table *t, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & t->mask; t->slots[at]; at = (at + 1) & t->mask) {
        uint32_t home = home_of(t, &t->images[t->slots[at] - 1].key);
        /* The entry may move back into the hole unless its home is after the hole. */
        if (((at - home) & t->mask) >= ((at - hole) & t->mask)) {
            t->slots[hole] = t->slots[at];
            hole = at;
        }
    }
    t->slots[hole] = 0;
}

void image_table_release(struct image_table *t, uint32_t image)
{
    assert(image < t->n_made && t->images[image].references > 0);
    struct image *x = &t->images[image];
    if (--x->references > 0)
        return;
    remove_slot(t, slot_of(t, &x->key, &x->shape));
    x->next_unused = t->unused;
    t->unused = image;
    t->count--;
}

const struct image_shape *image_table_shape(const struct image_table *t, uint32_t image)
{
    assert(image < t->n_made && t->images[image].references > 0);
    return &t->images[image].shape;
}

uint32_t image_table_count(const struct image_table *t)
{
    return t->count;
}
