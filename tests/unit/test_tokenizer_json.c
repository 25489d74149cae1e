/* tokenizer.json: every step and flag against the `tokenizers` library, and malicious files. */
#include "test.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "prompt/tokenizer/tokenizer_internal.h"
#include "prompt/unicode/utf8_stream.h"
#include "test_memory.h"
#include "token_directory.h"

/* ---- goldens ---- */

/* What the ids decode to, byte by byte as an answer comes. */
static void check_decoded(const struct tokenizer *t, const char *name, const struct token_list *ids,
                          bool special, const struct json *want)
{
    struct strbuf bytes = STRBUF_INIT, text = STRBUF_INIT, whole = STRBUF_INIT;
    struct utf8_stream stream = {0};
    struct decode_state state = {0};
    for (size_t i = 0; i < ids->len; i++) {
        strbuf_clear(&bytes);
        tokenizer_decode_next(t, &state, ids->ids[i], special, &bytes);
        utf8_stream_add(&stream, strbuf_str(&bytes), bytes.len, &text);
        strbuf_add(&whole, strbuf_str(&bytes), bytes.len);
    }
    utf8_stream_end(&stream, &text);
    if (text.len != want->text_len || memcmp(strbuf_str(&text), want->text, text.len) != 0)
        test_fail(__FILE__, __LINE__, "%s: decoded to \"%s\", expected \"%s\"", name,
                  strbuf_str(&text), want->text);
    strbuf_clear(&bytes);
    tokenizer_decode(t, ids->ids, ids->len, special, &bytes);
    CHECK(bytes.len == whole.len &&
          (whole.len == 0 || memcmp(bytes.data, whole.data, whole.len) == 0));
    strbuf_free(&bytes);
    strbuf_free(&text);
    strbuf_free(&whole);
}

static void check_case(const struct tokenizer *t, const char *name, const struct json *line)
{
    const struct json *text = line->first, *ids = text->next, *want = ids->first;
    struct token_list got = {0};
    struct error err = {0};
    int flags = TOKENIZE_PARSE_SPECIAL | (strcmp(name, "template") ? 0 : TOKENIZE_ADD_SPECIAL);
    if (tokenizer_encode(t, text->text, text->text_len, flags, &got, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    for (size_t i = 0; i < got.len || want; i++, want = want->next)
        if (i >= got.len || !want || got.ids[i] != (int32_t)want->number)
            test_fail(__FILE__, __LINE__, "%s: \"%s\" has %d at %zu, expected %d", name, text->text,
                      i < got.len ? got.ids[i] : -1, i, want ? (int32_t)want->number : -1);
    check_decoded(t, name, &got, true, ids->next);
    check_decoded(t, name, &got, false, ids->next->next);
    token_list_free(&got);
}

static void check_line(const char *line, size_t len)
{
    struct arena arena = ARENA_INIT;
    struct strbuf text = STRBUF_INIT;
    struct error err;
    const struct json *root = json_parse(&arena, line, len, &err);
    CHECK(root != NULL);
    const char *dir = token_directory(), *name = json_get(root, "name")->text;
    json_write(&text, json_get(root, "tokenizer"));
    token_file(dir, "tokenizer.json", text.data, text.len);
    struct tokenizer *t = NULL;
    if (tokenizer_open_directory(&t, NULL, dir, 0, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    json_each (item, json_get(root, "cases"))
        check_case(t, name, item);
    tokenizer_close(t);
    strbuf_free(&text);
    arena_free(&arena);
}

TEST(tokenizer_json, every_step_equals_the_library)
{
    struct strbuf file = STRBUF_INIT;
    struct error err;
    int n = 0;
    CHECK_INT(file_read("tests/unit/data/tokenizer_json.jsonl", 0, &file, &err), 0);
    for (const char *at = file.data, *end; (end = strchr(at, '\n')); at = end + 1, n++)
        check_line(at, (size_t)(end - at));
    CHECK(n >= 60);
    strbuf_free(&file);
}

/* ---- files by hand ---- */

#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define DECODER "\"decoder\":{\"type\":\"Fuse\"},"

static struct tokenizer *open_text(const char *text)
{
    const char *dir = token_directory();
    token_text(dir, "tokenizer.json", text);
    return token_directory_open(dir, 0);
}

/* The error message for the file. */
static const char *refusal(const char *text, size_t len)
{
    static struct error err;
    struct tokenizer *t = NULL;
    const char *dir = token_directory();
    token_file(dir, "tokenizer.json", text, len);
    err = (struct error){0};
    if (tokenizer_open_directory(&t, NULL, dir, 0, &err) == 0)
        test_fail(__FILE__, __LINE__, "it was opened: %.200s", text);
    CHECK(t == NULL && strstr(err.message, "tokenizer.json") != NULL);
    CHECK(err.code == ERROR_FORMAT || err.code == ERROR_LIMIT);
    return err.message;
}

static void check_refused(const char *text, const char *why)
{
    const char *message = refusal(text, strlen(text));
    if (!strstr(message, why))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", message, why);
}

TEST(tokenizer_json, merges_as_pairs_and_as_strings_are_the_same)
{
    struct tokenizer *t = open_text("{" DECODER MODEL "}");
    CHECK_STR(token_ids(t, "abaab", 0), "2,0,2");
    tokenizer_close(t);
    t = open_text("{\"model\":{\"merges\":[[\"a\",\"b\"]],\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
                  "\"type\":\"BPE\",\"continuing_subword_prefix\":\"\",\"dropout\":null}}");
    CHECK_STR(token_ids(t, "abaab", 0), "2,0,2");
    tokenizer_close(t);
}

TEST(tokenizer_json, what_is_not_supported_is_refused_by_name)
{
    check_refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece");
    check_refused("{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "WordLevel");
    check_refused("{\"normalizer\":{\"type\":\"BertNormalizer\"}," MODEL "}", "BertNormalizer");
    check_refused("{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL "}", "UnicodeScripts");
    check_refused("{\"decoder\":{\"type\":\"CTC\"}," MODEL "}", "CTC");
    check_refused("{\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL "}", "BertProcessing");
    check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],"
                  "\"continuing_subword_prefix\":\"##\"}}",
                  "continuing_subword_prefix");
    check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],"
                  "\"end_of_word_suffix\":\"</w>\"}}",
                  "end_of_word_suffix");
    check_refused(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}",
        "dropout");
    check_refused("{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                  "\"ByteLevel\"},{\"type\":\"Digits\"}]}," MODEL "}",
                  "ByteLevel that is not the last");
    check_refused("{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
                  "\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1}]}," MODEL "}",
                  "after Fuse");
}

TEST(tokenizer_json, damaged_files_are_refused)
{
    static const char whole[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"NFC\"}," DECODER MODEL "}";
    for (size_t len = 0; len < sizeof whole - 1; len++)
        refusal(whole, len);
    tokenizer_close(open_text(whole));
    check_refused("[]", "an object");
    check_refused("{}", "no \"model\"");
    check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", "vocab");
    check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "no tokens");
    check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges");
    check_refused("{\"model\":{\"type\":7,\"vocab\":{\"a\":0}}}", "type");
    check_refused("{" MODEL "," MODEL "}", "twice");
    check_refused("{" MODEL "}x", "end of the text");
    check_refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xff\":0},\"merges\":[]}}", "UTF-8");
    check_refused("{\"added_tokens\":{}," MODEL "}", "added_tokens");
    check_refused("{\"added_tokens\":[{\"id\":9}]," MODEL "}", "content");
    check_refused("{\"added_tokens\":[{\"content\":\"x\"}]," MODEL "}", "id");
    check_refused("{\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"special\":1}]," MODEL "}",
                  "special");
    check_refused("{\"added_tokens\":[{\"id\":9,\"content\":\"\"}]," MODEL "}", "empty");
}

TEST(tokenizer_json, hostile_vocabularies_are_refused)
{
    check_refused("{\"model\":{\"vocab\":{\"a\":4000000000},\"merges\":[]}}", "4000000000");
    check_refused("{\"model\":{\"vocab\":{\"a\":99999999999999999999999},\"merges\":[]}}", "id");
    check_refused("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "id");
    check_refused("{\"model\":{\"vocab\":{\"a\":0.5},\"merges\":[]}}", "id");
    check_refused("{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", "id");
    check_refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "twice");
    check_refused("{\"model\":{\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "twice");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a x\"]}}", "is not a token");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "is not a token");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "not two tokens");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "not two tokens");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", "pair");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[]]}}", "pair");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}}", "pair");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", "string");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"u\"}}", "unknown");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":1}}", "boolean");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "pair");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", "score");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e999]]}}", "score");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1]],\"unk_id\":7}}",
                  "unk_id");
    check_refused("{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," MODEL "}", "which is \"a\"");
    check_refused("{\"added_tokens\":[{\"id\":4000000000,\"content\":\"x\"}]," MODEL "}",
                  "4000000000");
    check_refused(
        "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
        "{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":"
        "[99]}}}," MODEL "}",
        "not a token");
    check_refused("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," MODEL "}",
                  "no place");
}

TEST(tokenizer_json, nesting_ends)
{
    static const char *const keys[][2] = {{"normalizer", "normalizers"},
                                          {"pre_tokenizer", "pretokenizers"},
                                          {"decoder", "decoders"},
                                          {"post_processor", "processors"}};
    for (size_t k = 0; k < 4; k++) {
        struct strbuf text = STRBUF_INIT;
        strbuf_addf(&text, "{\"%s\":", keys[k][0]);
        for (int i = 0; i < 30; i++)
            strbuf_addf(&text, "{\"type\":\"Sequence\",\"%s\":[", keys[k][1]);
        for (int i = 0; i < 30; i++)
            strbuf_adds(&text, "]}");
        strbuf_adds(&text, "," MODEL "}");
        check_refused(strbuf_str(&text), "nested");
        strbuf_clear(&text);
        strbuf_addf(&text, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[", keys[k][0], keys[k][1]);
        for (int i = 0; i < 100 && k < 3; i++)
            strbuf_addf(&text, "%s{\"type\":\"%s\"}", i ? "," : "",
                        k == 0   ? "NFC"
                        : k == 1 ? "Whitespace"
                                 : "Fuse");
        strbuf_adds(&text, "]}," MODEL "}");
        if (k < 3)
            check_refused(strbuf_str(&text), "steps");
        strbuf_free(&text);
    }
}

TEST(tokenizer_json, bad_patterns_are_refused)
{
    static const char *const patterns[] = {"(",      "[a",        "a{2,1}",    "[^a&&b]",
                                           "[a[b]]", "\\\\p",     "\\\\",      "\\\\p{No such}",
                                           "(?<n>",  "*a",        "[[:x",      "[a&&]",
                                           "[&&a]",  "[a&&^b]",   "[a&&[b]c]", "[a&&[b&&c]]",
                                           "{,2}",   "[[:foo:]]", "[[:]]",     "[[:^alpha:]]"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},\"behavior\":"
            "\"Isolated\",\"invert\":false}," MODEL "}",
            patterns[i]);
        check_refused(text, "regular expression");
        if (strstr(patterns[i], ":^alpha:"))
            check_refused(text, "[:^alpha:] is not supported");
    }
    check_refused(
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," MODEL "}",
        "precompiled_charsmap");
    check_refused(
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"_w==\"}," MODEL "}",
        "precompiled_charsmap");
}

/* A charsmap in base64 whose trie replaces the byte by the text at `place`. */
static void add_charsmap(struct strbuf *out, unsigned char byte, uint32_t place, const char *texts)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t units[512] = {1u << 10}, size = sizeof units;
    struct strbuf map = STRBUF_INIT;
    units[1 ^ byte] = 1u << 10 | 1u << 8 | byte;
    units[byte] = 1u << 31 | place;
    strbuf_add(&map, &size, sizeof size);
    strbuf_add(&map, units, sizeof units);
    strbuf_add(&map, texts, strlen(texts) + 1);
    for (size_t bit = 0; bit < 8 * map.len; bit += 6) {
        unsigned char at = (unsigned char)map.data[bit / 8];
        unsigned char next = bit / 8 + 1 < map.len ? (unsigned char)map.data[bit / 8 + 1] : 0;
        strbuf_addc(out, digits[(unsigned)(at << 8 | next) >> (10 - bit % 8) & 63]);
    }
    strbuf_free(&map);
}

/* Steps after a charsmap never see part of a character. */
TEST(tokenizer_json, hostile_charsmaps)
{
    static const char *const behind[] = {
        "{\"type\":\"NFC\"}",
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[\\\\p{L}\\\\p{M}]+|.+?(?=x)\"},"
        "\"content\":\"b\"}"};
    for (size_t i = 0; i < 6; i++) {
        struct strbuf text = STRBUF_INIT;
        strbuf_adds(&text, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                           "\"Precompiled\",\"precompiled_charsmap\":\"");
        /* The offset may be in the middle of a character; then it is not a rule. */
        add_charsmap(&text, 'a', i / 2, i < 2 ? "\xf4" : "éb");
        strbuf_addf(&text, "\"},%s]}," DECODER MODEL "}", behind[i % 2]);
        if (i < 2) {
            check_refused(strbuf_str(&text), "not UTF-8");
        } else {
            struct tokenizer *t = open_text(strbuf_str(&text));
            CHECK_STR(token_ids(t, "bab", 0), i % 2 ? "1" : i == 2 ? "1,2" : "1,1,1");
            tokenizer_close(t);
        }
        strbuf_free(&text);
    }
}

/* ByteFallback produces halves of characters, which a Replace after it must not see. */
TEST(tokenizer_json, decoders_see_whole_characters)
{
    struct tokenizer *t = open_text(
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
        "\"Replace\",\"pattern\":{\"Regex\":\"[\\\\p{L}\\\\p{M}]+|.+?(?=x)|\\\\b\"},\"content\":"
        "\"-\"}]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<0xF4>\":0,\"<"
        "0xC3>\":"
        "1,\"<0xA9>\":2,\"<0x61>\":3,\"é\":4,\"a¿b\":5,\"¿¿\":6},\"merges\":[]}}");
    struct strbuf text = STRBUF_INIT;
    tokenizer_decode(t, (int32_t[]){0, 1, 2, 3, 4, 5, 6}, 7, false, &text);
    CHECK_STR(strbuf_str(&text), "\xf4\xc3\xa9---¿-¿¿");
    strbuf_free(&text);
    tokenizer_close(t);
}

/* The search advances by characters, not by bytes. */
TEST(tokenizer_json, a_pattern_of_empty_matches_in_a_decoder)
{
    struct tokenizer *t = open_text(
        "{\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"é日x\":0},\"merges\":[]}}");
    struct strbuf text = STRBUF_INIT;
    tokenizer_decode(t, (int32_t[]){0}, 1, false, &text);
    CHECK_STR(strbuf_str(&text), "-é-日-");
    strbuf_free(&text);
    tokenizer_close(t);
}

/* A pattern that takes forever on a text ends with an error for that text. */
TEST(tokenizer_json, a_catastrophic_pattern_has_a_limit)
{
    struct tokenizer *t = open_text("{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                                    "\"(a+)+[^a-z]\"},\"behavior\":"
                                    "\"Isolated\",\"invert\":false}," DECODER MODEL "}");
    char text[64];
    struct token_list ids = {0};
    struct error err = {0};
    memset(text, 'a', sizeof text);
    CHECK_INT(tokenizer_encode(t, text, sizeof text, 0, &ids, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    CHECK_INT(ids.len, 0);
    CHECK_INT(tokenizer_encode(t, "ab", 2, 0, &ids, &err), 0); /* others are as they were */
    token_list_free(&ids);
    tokenizer_close(t);
}

/* Text cannot spell a special token, though the vocabulary and its merges could make one. */
TEST(tokenizer_json, text_never_becomes_a_special_token)
{
    struct tokenizer *t = open_text(
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}]," DECODER
        "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"<\":0,\"s>\":1,\"s\":2,"
        "\"<s>\":3,\">\":4},\"merges\":[\"s >\",\"< s>\"]}}");
    CHECK_STR(token_ids(t, "<s>", TOKENIZE_PARSE_SPECIAL), "3");
    CHECK_STR(token_ids(t, "<s>", 0), "0,1");
    CHECK(tokenizer_is_special(t, 3) && tokenizer_special_at(t, "<s>x", 4) == 3);
    tokenizer_close(t);
}

TEST(tokenizer_json, texts_that_continue_get_no_space)
{
    struct tokenizer *t = open_text(
        "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],\"normalizer\":{"
        "\"type\":"
        "\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"▁\"},{\"type\":"
        "\"Replace\","
        "\"pattern\":{\"String\":\" \"},\"content\":\"▁\"}]},\"model\":{\"type\":\"BPE\",\"vocab\":"
        "{\"▁\":0,\"a\":1,\"▁a\":2,\"b\":3},\"merges\":[\"▁ a\"]}}");
    CHECK(tokenizer_adds_space(t));
    CHECK_STR(token_ids(t, "a", 0), "2");
    CHECK_STR(token_ids(t, "a", TOKENIZE_CONTINUES), "1");
    CHECK_STR(token_ids(t, "a<s>a", TOKENIZE_CONTINUES | TOKENIZE_PARSE_SPECIAL), "1,4,2");
    size_t len;
    CHECK(memcmp(tokenizer_bytes(t, 2, &len), " a", 2) == 0 && len == 2);
    CHECK_INT(tokenizer_find(t, " a", 2), 2);
    tokenizer_close(t);
}

TEST(tokenizer_json, without_memory_it_says_so)
{
    const char *dir = token_directory();
    token_text(
        dir, "tokenizer.json",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"normalizer\":"
        "{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"b+\"},"
        "\"behavior\":\"Isolated\"}," DECODER MODEL "}");
    bool opened = false;
    for (uint32_t n = 0; n < 400 && !opened; n++) {
        struct tokenizer *t = NULL;
        struct error err = {0};
        memory_ends_after(n);
        int status = tokenizer_open_directory(&t, NULL, dir, 0, &err);
        memory_is_back();
        opened = status == 0;
        CHECK(opened || err.code == ERROR_MEMORY || err.code == ERROR_IO ||
              strstr(err.message, "memory"));
        tokenizer_close(t);
    }
    CHECK(opened);
}
