/* Streams of bytes against what Python makes of them, however they are cut. */
#include "test.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "prompt/tokenizer/tokenizer.h"
#include "prompt/unicode/utf8_stream.h"
#include "test_tokenizer_goldens.h"

TEST(utf8, stream_replaces_as_python_does)
{
    struct goldens g = goldens_open("tests/unit/data/tokenizer_utf8.txt");
    int n = 0;
    for (struct golden line; golden_next(&g, &line); n++) {
        CHECK_STR(line.fields[0], "utf8");
        for (size_t cut = 0; cut <= line.lens[1]; cut++) {
            struct utf8_stream stream = {0};
            struct strbuf out = STRBUF_INIT;
            utf8_stream_add(&stream, line.fields[1], cut, &out);
            CHECK(stream.n_pending < 4);
            utf8_stream_add(&stream, line.fields[1] + cut, line.lens[1] - cut, &out);
            utf8_stream_end(&stream, &out);
            CHECK_INT(out.len, line.lens[2]);
            CHECK(memcmp(strbuf_str(&out), line.fields[2], out.len) == 0);
            strbuf_free(&out);
        }
    }
    CHECK(n > 150);
    goldens_close(&g);
}

TEST(utf8, json_is_mended_as_python_does)
{
    struct goldens g = goldens_open("tests/unit/data/tokenizer_utf8.txt");
    for (struct golden line; golden_next(&g, &line);) {
        struct strbuf ours = STRBUF_INIT, expected = STRBUF_INIT;
        json_write_string(&ours, line.fields[1], line.lens[1]);
        json_write_string(&expected, line.fields[2], line.lens[2]);
        CHECK_STR(strbuf_str(&ours), strbuf_str(&expected));
        strbuf_free(&ours);
        strbuf_free(&expected);
    }
    goldens_close(&g);
}

TEST(utf8, stream_byte_by_byte_gives_whole_characters_only)
{
    const char text[] = "a\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80z\xf0\x9f!";
    struct utf8_stream stream = {0};
    struct strbuf out = STRBUF_INIT;
    for (size_t i = 0; i < sizeof text - 1; i++) {
        utf8_stream_add(&stream, text + i, 1, &out);
        for (size_t at = 0, width; at < out.len; at += width)
            CHECK((width = utf8_valid_prefix(out.data + at, out.len - at)) > 0);
    }
    CHECK_STR(strbuf_str(&out), "a\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80z\xef\xbf\xbd!");
    strbuf_free(&out);
}

TEST(utf8, stream_keeps_the_beginning_of_a_character)
{
    struct utf8_stream stream = {0};
    struct strbuf out = STRBUF_INIT;
    utf8_stream_add(&stream, "x\xf0\x9f\x98", 4, &out);
    CHECK_STR(strbuf_str(&out), "x");
    CHECK_INT(stream.n_pending, 3);
    utf8_stream_add(&stream, "", 0, &out);
    CHECK_INT(stream.n_pending, 3);
    utf8_stream_add(&stream, "\x80", 1, &out);
    CHECK_STR(strbuf_str(&out), "x\xf0\x9f\x98\x80");
    utf8_stream_end(&stream, &out);
    CHECK_STR(strbuf_str(&out), "x\xf0\x9f\x98\x80");
    strbuf_free(&out);
}

TEST(utf8, every_code_point_survives_encoding)
{
    for (uint32_t code = 0; code < 0x110000; code++) {
        char bytes[4];
        size_t len = utf8_encode(code, bytes);
        bool surrogate = code >= 0xd800 && code < 0xe000;
        CHECK_INT(utf8_valid_prefix(bytes, len), surrogate ? 0 : len);
        CHECK_INT(utf8_decode(bytes, len), code);
        CHECK_INT(utf8_valid_prefix(bytes, len - 1), 0);
    }
}
