/* Images by number: which are the same, which are not, and when a number is free again. */
#include "cache/image_table.h"

#include <string.h>

#include "base/hash.h"
#include "cache/cache_token.h"

#include "test.h"
#include "test_death.h"

static struct image_key key_of(uint32_t n, uint32_t owner)
{
    struct image_key key = {.owner = owner};
    memcpy(key.sha256, &n, sizeof n);
    return key;
}

static struct image_table *open_table(uint32_t max_images)
{
    struct image_table *t = NULL;
    struct error err;
    CHECK_INT(image_table_open(&t, max_images, &err), 0);
    return t;
}

static const struct image_shape shape = {
    .length = 729, .position_span = 27, .grid_rows = 27, .grid_cols = 27};

TEST(image_table, same_bytes_have_one_number)
{
    struct image_table *t = open_table(4);
    struct image_key a = key_of(1, 0), b = key_of(2, 0);
    uint32_t first = image_table_intern(t, &a, &shape);
    CHECK_INT(image_table_intern(t, &a, &shape), first);
    CHECK(image_table_intern(t, &b, &shape) != first);
    CHECK_INT(image_table_count(t), 2);
    CHECK_INT(image_table_shape(t, first)->length, 729);
    CHECK_INT(image_table_shape(t, first)->position_span, 27);
    CHECK_INT(image_table_shape(t, first)->grid_cols, 27);
    image_table_close(t);
}

TEST(image_table, one_bit_or_another_owner_is_another_image)
{
    struct image_table *t = open_table(300);
    struct image_key key = key_of(7, 3);
    CHECK_INT(image_table_intern(t, &key, &shape), 0);
    for (int bit = 0; bit < 256; bit++) {
        key.sha256[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK_INT(image_table_intern(t, &key, &shape), bit + 1);
        key.sha256[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    key.owner = 4;
    CHECK_INT(image_table_intern(t, &key, &shape), 257);
    CHECK_INT(image_table_count(t), 258);
    image_table_close(t);
}

TEST(image_table, numbers_are_used_again_when_nobody_holds_them)
{
    struct image_table *t = open_table(2);
    struct image_key a = key_of(1, 0), b = key_of(2, 0), c = key_of(3, 0);
    uint32_t first = image_table_intern(t, &a, &shape), second = image_table_intern(t, &b, &shape);
    CHECK_INT(image_table_intern(t, &c, &shape), IMAGE_NONE);
    image_table_hold(t, first);
    image_table_release(t, first);
    CHECK_INT(image_table_intern(t, &c, &shape), IMAGE_NONE); /* one hold is left */
    CHECK_INT(image_table_intern(t, &a, &shape), first);      /* known ones are found still */
    image_table_release(t, first);
    image_table_release(t, first);
    CHECK_INT(image_table_count(t), 1);
    struct image_shape other = {.length = 5};
    CHECK_INT(image_table_intern(t, &c, &other), first);
    CHECK_INT(image_table_shape(t, first)->length, 5);
    CHECK_INT(image_table_intern(t, &b, &shape), second);
    image_table_close(t);
}

TEST(image_table, another_shape_is_another_image)
{
    struct image_table *t = open_table(8);
    struct image_key a = key_of(1, 0);
    const struct image_shape shapes[] = {
        shape, {730, 27, 27, 27}, {729, 28, 27, 27}, {729, 27, 28, 27}, {729, 27, 27, 28}};
    enum { N = sizeof shapes / sizeof *shapes };
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(image_table_intern(t, &a, &shapes[i]), i);
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(image_table_intern(t, &a, &shapes[i]), i);
    CHECK_INT(image_table_count(t), N);
    /* One goes, the others are still found. */
    image_table_release(t, 1);
    image_table_release(t, 1);
    CHECK_INT(image_table_count(t), N - 1);
    for (uint32_t i = 0; i < N; i++)
        CHECK_INT(image_table_intern(t, &a, &shapes[i]), i);
    image_table_close(t);
}

TEST(image_table, lengths_that_do_not_fit_are_refused)
{
    struct image_table *t = open_table(2);
    struct image_key a = key_of(1, 0);
    struct image_shape none = {0}, longest = {.length = CACHE_MAX_IMAGE_LENGTH};
    struct image_shape huge = {.length = CACHE_MAX_IMAGE_LENGTH + 1};
    CHECK_INT(image_table_intern(t, &a, &none), IMAGE_NONE);
    CHECK_INT(image_table_intern(t, &a, &huge), IMAGE_NONE);
    CHECK_INT(image_table_count(t), 0);
    CHECK_INT(image_table_intern(t, &a, &longest), 0);
    image_table_close(t);
}

TEST(image_table, misuse_asserts)
{
    struct image_table *t = open_table(2);
    struct image_key a = key_of(1, 0);
    uint32_t image = image_table_intern(t, &a, &shape);
    CHECK_ABORTS(image_table_hold(t, 1));
    CHECK_ABORTS(image_table_release(t, IMAGE_NONE));
    image_table_release(t, image);
    CHECK_ABORTS(image_table_release(t, image));
    CHECK_ABORTS(image_table_hold(t, image));
    CHECK_ABORTS(image_table_shape(t, image));
    image_table_close(t);
    image_table_close(NULL);
}

/* Against an array of counters, in a table that is as full as it gets. */
TEST(image_table, random_against_an_array)
{
    enum { KEYS = 64, MAX = 32, STEPS = 20000 };
    struct image_table *t = open_table(MAX);
    uint32_t references[KEYS] = {0}, numbers[KEYS] = {0}, count = 0;
    uint64_t random = 5;
    for (int step = 0; step < STEPS; step++) {
        uint64_t r = hash_mix(random++);
        uint32_t k = r % KEYS;
        struct image_key key = key_of(k * 0x10001, k % 3);
        struct image_shape own = {.length = k + 1};
        if (r >> 32 & 1 && references[k]) {
            image_table_release(t, numbers[k]);
            count -= --references[k] == 0;
        } else {
            uint32_t image = image_table_intern(t, &key, &own);
            CHECK_INT(image == IMAGE_NONE, references[k] == 0 && count == MAX);
            if (image == IMAGE_NONE)
                continue;
            CHECK(references[k] == 0 || image == numbers[k]);
            count += references[k]++ == 0;
            numbers[k] = image;
        }
        CHECK_INT(image_table_count(t), count);
        for (uint32_t i = 0; i < KEYS; i++)
            if (references[i])
                CHECK_INT(image_table_shape(t, numbers[i])->length, i + 1);
    }
    image_table_close(t);
}

TEST(image_table, tokens_and_namespaces)
{
    uint64_t first = cache_token_image(7, 0, 729), last = cache_token_image(7, 728, 729);
    CHECK_INT(cache_token_image_index(last), 7);
    CHECK_INT(cache_token_image_begun(first), 1);
    CHECK_INT(cache_token_image_begun(last), 729);
    CHECK(!cache_token_is_whole(first) && cache_token_is_whole(last));
    CHECK(cache_token_follows(cache_token_image(7, 1, 729), first));
    CHECK(!cache_token_follows(cache_token_image(7, 2, 729), first));
    CHECK(!cache_token_follows(cache_token_text(1), first));
    CHECK(cache_token_follows(cache_token_text(1), last) && cache_token_follows(first, last));
    CHECK(!cache_token_follows(last, cache_token_text(1)));
    uint64_t one = cache_token_image(CACHE_MAX_IMAGE, 0, 1);
    uint64_t longest = cache_token_image(CACHE_MAX_IMAGE, CACHE_MAX_IMAGE_LENGTH - 1,
                                         CACHE_MAX_IMAGE_LENGTH);
    CHECK(cache_token_is_whole(one) && cache_token_is_whole(longest));
    CHECK_INT(cache_token_image_begun(longest), CACHE_MAX_IMAGE_LENGTH);
    CHECK_INT(cache_token_image_index(longest), CACHE_MAX_IMAGE);
    /* Kinds, owners and payloads are distinguished. */
    uint64_t words[] = {cache_token_text(5),
                        cache_token_coordinate(5),
                        cache_token_size(0, 5),
                        cache_token_size(5, 0),
                        cache_token_owned(CACHE_TOKEN_TEXT, 1, 5),
                        cache_token_owned(CACHE_TOKEN_TEXT, CACHE_MAX_OWNER, 5),
                        cache_token_image(0, 0, 6),
                        cache_namespace(0, -1, -1),
                        cache_namespace(0, 0, -1),
                        cache_namespace(0, -1, 0),
                        cache_namespace(1, -1, -1),
                        cache_namespace((1 << 20) - 1, 0xfffe, CACHE_MAX_IMAGE - 1)};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(words[i] != words[k]);
    CHECK_INT(cache_namespace_tenant(cache_namespace(77, 3, 9)), 77);
    CHECK_ABORTS(cache_token_image(0, 5, 5));
    CHECK_ABORTS(cache_namespace(1 << 20, -1, -1));
}
