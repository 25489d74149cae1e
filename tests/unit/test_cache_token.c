/* Cache tokens: equal words only for equal inputs, and what can be read back out of them. */
#include "cache/cache_token.h"

#include "test.h"
#include "test_death.h"

TEST(cache_token, kinds_do_not_meet)
{
    const uint64_t tokens[] = {
        cache_token_text(7),
        cache_token_coordinate(7),
        cache_token_size(0, 7),
        cache_token_size(7, 0),
        cache_token_image(7, 0, 1),
        cache_token_image(0, 0, 8),
        cache_token_image(0, 7, 8),
        cache_token_owned(CACHE_TOKEN_TEXT, 1, 7),
        cache_token_owned(CACHE_TOKEN_TEXT, CACHE_MAX_OWNER, 7),
        cache_token_owned(CACHE_TOKEN_COORDINATE, 1, 7),
        cache_token_text(-1),
        cache_token_coordinate(UINT32_MAX),
    };
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(tokens[i] != tokens[k]);
    CHECK_INT(cache_token_kind(tokens[0]), CACHE_TOKEN_TEXT);
    CHECK_INT(cache_token_kind(tokens[1]), CACHE_TOKEN_COORDINATE);
    CHECK_INT(cache_token_kind(tokens[2]), CACHE_TOKEN_SIZE);
    CHECK_INT(cache_token_kind(tokens[4]), CACHE_TOKEN_IMAGE);
}

TEST(cache_token, says_what_it_is_of)
{
    CHECK_INT(cache_token_owner(cache_token_text(7)), 0);
    CHECK_INT(cache_token_owner(cache_token_owned(CACHE_TOKEN_TEXT, CACHE_MAX_OWNER, 7)),
              CACHE_MAX_OWNER);
    CHECK_INT(cache_token_owner(cache_token_image(CACHE_MAX_IMAGE, 5, 6)), 0);
    CHECK_INT(cache_token_image_index(cache_token_image(CACHE_MAX_IMAGE, 5, 6)), CACHE_MAX_IMAGE);
    CHECK_ABORTS(cache_token_owned(CACHE_TOKEN_TEXT, CACHE_MAX_OWNER + 1, 7));
    CHECK_ABORTS(cache_token_owned(CACHE_TOKEN_IMAGE, 0, 7));
    CHECK_ABORTS(cache_token_image(0, 6, 6));
}

TEST(cache_token, images_are_whole_at_their_last_position)
{
    enum { LONGEST = CACHE_MAX_IMAGE_LENGTH };
    CHECK(cache_token_is_whole(cache_token_text(3)));
    CHECK_INT(cache_token_image_begun(cache_token_text(3)), 0);
    CHECK(cache_token_is_whole(cache_token_image(9, 0, 1)));
    CHECK(cache_token_is_whole(cache_token_image(9, LONGEST - 1, LONGEST)));
    CHECK(!cache_token_is_whole(cache_token_image(9, LONGEST - 2, LONGEST)));
    CHECK(!cache_token_is_whole(cache_token_image(9, 0, 2)));
    CHECK_INT(cache_token_image_begun(cache_token_image(9, 0, 2)), 1);
    CHECK_INT(cache_token_image_begun(cache_token_image(9, LONGEST - 1, LONGEST)), LONGEST);
}

TEST(cache_token, follows_only_in_order)
{
    uint64_t text = cache_token_text(3), one = cache_token_image(9, 0, 2),
             two = cache_token_image(9, 1, 2);
    CHECK(cache_token_follows(text, text) && cache_token_follows(one, text));
    CHECK(cache_token_follows(two, one) && cache_token_follows(text, two));
    CHECK(cache_token_follows(one, two)); /* the same image again */
    CHECK(!cache_token_follows(text, one) && !cache_token_follows(two, text));
    CHECK(!cache_token_follows(one, one) && !cache_token_follows(two, two));
    CHECK(!cache_token_follows(cache_token_image(8, 1, 2), one));
    CHECK(!cache_token_follows(cache_token_image(9, 1, 3), one));
}

TEST(cache_token, namespaces_do_not_meet)
{
    const uint64_t spaces[] = {
        cache_namespace(0, -1, -1),
        cache_namespace(0, 0, -1),
        cache_namespace(0, -1, 0),
        cache_namespace(1, -1, -1),
        cache_namespace(0, 0, 0),
        cache_namespace(0, 1, -1),
        cache_namespace(0, -1, 1),
        cache_namespace(1, 0, 0),
        cache_namespace((1 << 20) - 1, -1, -1),
        cache_namespace(0, 0xfffe, -1),
        cache_namespace(0, -1, CACHE_MAX_IMAGE - 1),
    };
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        for (size_t k = 0; k < i; k++)
            CHECK(spaces[i] != spaces[k]);
    CHECK_INT(cache_namespace_tenant(cache_namespace((1 << 20) - 1, 5, 6)), (1 << 20) - 1);
    CHECK_INT(cache_namespace_tenant(cache_namespace(0, 0xfffe, CACHE_MAX_IMAGE - 1)), 0);
}

TEST(cache_token, a_namespace_with_another_adapter_is_otherwise_the_same)
{
    static const uint32_t tenants[] = {0, 1, (1 << 20) - 1};
    static const int32_t adapters[] = {-1, 0, 1, 0xfffe}, images[] = {-1, 0, CACHE_MAX_IMAGE - 1};
    for (int i = 0; i < 3 * 3 * 4 * 4; i++) {
        uint32_t tenant = tenants[i % 3];
        int32_t image = images[i / 3 % 3], from = adapters[i / 9 % 4], to = adapters[i / 36];
        uint64_t ns = cache_namespace(tenant, from, image);
        CHECK(cache_namespace_with_adapter(ns, to) == cache_namespace(tenant, to, image));
    }
}
