/* Stop strings: where text is cut, against a naive search, however the text is split. */
#include "test.h"

#include <stdlib.h>

#include "base/hash.h"
#include "sched/stop_matcher.h"

static struct byte_view stop_of(const char *text)
{
    return byte_view_of(text);
}

static void open_matcher(struct stop_matcher *m, const struct byte_view *stops, uint32_t n)
{
    struct error err;
    CHECK(stop_matcher_open(m, stops, n, &err) == 0);
}

TEST(stop_matcher, holds_back_what_may_begin_a_stop)
{
    struct byte_view stops[] = {stop_of("END")};
    struct stop_matcher m;
    open_matcher(&m, stops, 1);
    CHECK(!stop_matcher_feed(&m, "abEN", 4));
    CHECK_INT(m.text_end, 2);
    CHECK(!stop_matcher_feed(&m, "E", 1)); /* ENE: one byte may begin it anew */
    CHECK_INT(m.text_end, 4);
    CHECK(stop_matcher_feed(&m, "NDxyz", 5));
    CHECK_INT(m.text_end, 4);
    CHECK(stop_matcher_feed(&m, "more", 4));
    CHECK_INT(m.text_end, 4);
    stop_matcher_finish(&m);
    CHECK_INT(m.text_end, 4);
    stop_matcher_close(&m);
}

TEST(stop_matcher, releases_the_held_bytes_at_the_end)
{
    struct byte_view stops[] = {stop_of("\n\nUser:")};
    struct stop_matcher m;
    open_matcher(&m, stops, 1);
    CHECK(!stop_matcher_feed(&m, "hello\n\nUse", 10));
    CHECK_INT(m.text_end, 5);
    stop_matcher_finish(&m);
    CHECK_INT(m.text_end, 10);
    stop_matcher_close(&m);
}

TEST(stop_matcher, without_stops_everything_is_shown)
{
    struct byte_view stops[] = {stop_of(""), stop_of("")};
    struct stop_matcher m;
    open_matcher(&m, stops, 2);
    CHECK(!stop_matcher_feed(&m, "anything", 8));
    CHECK_INT(m.text_end, 8);
    stop_matcher_close(&m);
}

TEST(stop_matcher, first_to_end_wins_then_the_longest)
{
    struct byte_view stops[] = {stop_of("abcd"), stop_of("bc"), stop_of("xabc")};
    struct stop_matcher m;
    open_matcher(&m, stops, 3);
    CHECK(stop_matcher_feed(&m, "zabcd", 5));
    CHECK_INT(m.text_end, 2);
    stop_matcher_close(&m);
    open_matcher(&m, stops, 3);
    CHECK(stop_matcher_feed(&m, "zxabcd", 6));
    CHECK_INT(m.text_end, 1);
    stop_matcher_close(&m);
}

/* What the server wrote itself is text, but begins and ends no stop string. */
TEST(stop_matcher, bytes_that_are_passed_over_count_and_match_nothing)
{
    struct byte_view stops[] = {stop_of("bcd")};
    struct stop_matcher m;
    for (uint32_t n = 0; n < 2; n++) { /* with stop strings and without */
        open_matcher(&m, stops, 1 - n);
        CHECK(!stop_matcher_feed(&m, "abc", 3));
        CHECK_INT(m.text_end, n ? 3 : 1);
        stop_matcher_pass(&m, 4);
        CHECK_INT(m.text_end, 7);
        CHECK(!stop_matcher_feed(&m, "d", 1));
        CHECK_INT(m.text_end, 8);
        CHECK_INT(stop_matcher_feed(&m, "bcd", 3), n == 0);
        CHECK_INT(m.text_end, n ? 11 : 8);
        stop_matcher_close(&m);
    }
}

/* Where the text is cut, trying every end in turn; the length of the text if nothing matches. */
static uint64_t naive_cut(const char *text, uint32_t len, const struct byte_view *stops, uint32_t n,
                          bool *found)
{
    for (uint32_t end = 1; end <= len; end++) {
        uint32_t longest = 0;
        for (uint32_t k = 0; k < n; k++)
            if (stops[k].len <= end && stops[k].len > longest &&
                memcmp(text + end - stops[k].len, stops[k].bytes, stops[k].len) == 0)
                longest = stops[k].len;
        *found = longest > 0;
        if (longest)
            return end - longest;
    }
    return len;
}

/* How much of a text without a match may be shown: all but the longest prefix of a stop string. */
static uint64_t naive_held(const char *text, uint32_t len, const struct byte_view *stops,
                           uint32_t n)
{
    uint32_t held = 0;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t l = 1; l < stops[k].len && l <= len; l++)
            if (l > held && memcmp(text + len - l, stops[k].bytes, l) == 0)
                held = l;
    return len - held;
}

TEST(stop_matcher, equals_a_naive_search_on_random_texts)
{
    uint64_t state = 1;
    for (int round = 0; round < 3000; round++) {
        char text[64], patterns[4][8];
        struct byte_view stops[4];
        uint32_t n_stops = 1 + (uint32_t)((state = hash_mix(state)) % 4);
        for (uint32_t k = 0; k < n_stops; k++) {
            uint32_t len = 1 + (uint32_t)((state = hash_mix(state)) % 7);
            for (uint32_t i = 0; i < len; i++)
                patterns[k][i] = (char)('a' + (state = hash_mix(state)) % 2);
            stops[k] = (struct byte_view){patterns[k], len};
        }
        for (uint32_t i = 0; i < sizeof text; i++)
            text[i] = (char)('a' + ((state = hash_mix(state)) % 16 == 0 ? 2 : state / 16 % 2));
        bool found = false;
        uint64_t want = naive_cut(text, sizeof text, stops, n_stops, &found);
        struct stop_matcher m;
        open_matcher(&m, stops, n_stops);
        uint32_t at = 0;
        uint64_t shown = 0;
        while (at < sizeof text && !m.found) {
            uint32_t piece = (uint32_t)((state = hash_mix(state)) % 6);
            piece = piece < sizeof text - at ? piece : (uint32_t)sizeof text - at;
            stop_matcher_feed(&m, text + at, piece);
            at += piece;
            CHECK(m.text_end >= shown && m.text_end <= want);
            shown = m.text_end;
            if (!m.found && at)
                CHECK_INT(m.text_end, naive_held(text, at, stops, n_stops));
        }
        stop_matcher_finish(&m);
        CHECK_INT(m.found, found);
        CHECK_INT(m.text_end, want);
        stop_matcher_close(&m);
    }
}
