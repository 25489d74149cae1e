/* Tokens in pieces of any kind give the text that the bytes would give at once. */
#include "test.h"

#include <string.h>

#include "base/hash.h"
#include "prompt/unicode/token_text.h"

#define ADD(t, bytes, end) token_text_add((t), (bytes), strlen(bytes), (end))

TEST(token_text, shows_what_may_be_shown)
{
    struct token_text t = {0};
    ADD(&t, "Hello", 5);
    CHECK_STR(strbuf_str(&t.text), "Hello");
    ADD(&t, " EN", 6); /* "EN" may begin a stop string */
    CHECK_STR(strbuf_str(&t.text), "Hello ");
    ADD(&t, "", 6);
    ADD(&t, "TER", 11);
    CHECK_STR(strbuf_str(&t.text), "Hello ENTER");
    ADD(&t, "END and more", 11); /* it did, and is cut off */
    token_text_end(&t, 11);
    CHECK_STR(strbuf_str(&t.text), "Hello ENTER");
    CHECK(!token_text_failed(&t));
    token_text_free(&t);
}

TEST(token_text, characters_come_whole)
{
    struct token_text t = {0};
    ADD(&t, "\xe2\x82", 2);
    CHECK_INT(t.text.len, 0);
    ADD(&t, "\xac!", 4);
    CHECK_STR(strbuf_str(&t.text), "\xe2\x82\xac!");
    strbuf_clear(&t.text);
    ADD(&t, "\xf0\x9f", 6);
    token_text_end(&t, 6);
    CHECK_STR(strbuf_str(&t.text), "\xef\xbf\xbd");
    token_text_free(&t);
}

/* Text that is held when the answer ends without a stop is shown, through the end only. */
TEST(token_text, the_end_shows_what_was_held)
{
    struct token_text t = {0};
    ADD(&t, "ab", 0);
    ADD(&t, "cd", 1);
    CHECK_STR(strbuf_str(&t.text), "a");
    token_text_end(&t, 3);
    CHECK_STR(strbuf_str(&t.text), "abc");
    token_text_free(&t);
}

TEST(token_text, random_cuts_change_nothing)
{
    static const char whole[] = "Gr\xc3\xbc\xc3\x9f Gott, \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x8d\x93"
                                " plain text, and then some more of it.";
    const size_t len = sizeof whole - 1;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct token_text t = {0};
        uint64_t state = seed, text_end = 0;
        for (size_t at = 0; at < len;) {
            size_t n = (state = hash_mix(state + 1)) % 6;
            n = n < len - at ? n : len - at;
            at += n;
            if ((state = hash_mix(state)) % 3)
                text_end = at;
            token_text_add(&t, whole + at - n, n, text_end);
            CHECK(t.shown == text_end);
        }
        token_text_end(&t, len);
        CHECK_STR(strbuf_str(&t.text), whole);
        token_text_free(&t);
    }
}

TEST(token_text, a_token_allocates_nothing_once_the_buffers_are_there)
{
    struct token_text t = {0};
    uint64_t end = 0;
    const char *text = NULL, *held = NULL;
    for (uint32_t i = 0; i < 1000; i++, end += 6) {
        bool holds = i % 4 == 0;
        ADD(&t, " token", holds ? end : end + 6);
        if (holds)
            ADD(&t, "", end + 6);
        if (i == 8) {
            text = t.text.data;
            held = t.held.data;
        }
        CHECK_INT(t.text.len, 6);
        CHECK(i < 8 || (t.text.data == text && t.held.data == held));
        strbuf_clear(&t.text);
    }
    CHECK_INT(end, 6000);
    token_text_free(&t);
}
