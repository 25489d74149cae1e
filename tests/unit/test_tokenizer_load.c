/* Malicious metadata: each is rejected with the file and the key in the message, or is harmless. */
#include "test.h"

#include <math.h>

#include "test_tokenizer_model.h"

/* Opens the vocabulary; it must fail, naming the key and `what`. */
static void check_refused(struct vocab *v, const char *key, const char *what)
{
    char path[4096];
    struct tokenizer *t = NULL;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/hostile.gguf", test_scratch_dir());
    int status = vocab_open(v, path, &t, &err);
    tokenizer_close(t);
    CHECK_INT(status, -1);
    CHECK_INT(err.code, ERROR_FORMAT);
    if (!strstr(err.message, path) || !strstr(err.message, key) || !strstr(err.message, what))
        test_fail(__FILE__, __LINE__, "message lacks %s or %s: %s", key, what, err.message);
}

static struct tokenizer *open_safely(struct vocab *v)
{
    char path[4096];
    struct tokenizer *t = NULL;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/harmless.gguf", test_scratch_dir());
    if (vocab_open(v, path, &t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    struct token_list list = {0};
    const char text[] = "some text\xff <s> 12\n";
    CHECK(tokenizer_encode(t, text, sizeof text - 1, 3, &list, &err) == 0);
    token_list_free(&list);
    return t;
}

static struct vocab good(const char *model)
{
    struct vocab v = {.model = model, .pre = "gpt-2"};
    vocab_token(&v, "<unk>", 2);
    vocab_token(&v, "a", 1);
    vocab_token(&v, "b", 1);
    vocab_token(&v, "ab", 1);
    return v;
}

TEST(tokenizer_load, model_is_missing_or_strange)
{
    struct vocab v = good(NULL);
    check_refused(&v, "tokenizer.ggml.model", "known are gpt2, llama and gemma4");
    v = good("bert");
    check_refused(&v, "tokenizer.ggml.model", "bert");
    v = good(NULL);
    build_key_u32(&v.more, "tokenizer.ggml.model", 1);
    check_refused(&v, "tokenizer.ggml.model", "not a string");
}

TEST(tokenizer_load, pre_is_unknown)
{
    struct vocab v = good("gpt2");
    v.pre = "made-up";
    check_refused(&v, "tokenizer.ggml.pre", "made-up");
    v = good("gpt2");
    v.pre = "qwen2x";
    check_refused(&v, "tokenizer.ggml.pre",
                  "\"qwen2x\", and how that cuts text into words is not known here");
    v = good("gpt2");
    v.pre = "";
    check_refused(&v, "tokenizer.ggml.pre", "not known");
    v = good("gpt2");
    v.pre = NULL;
    build_key_bool(&v.more, "tokenizer.ggml.pre", true);
    check_refused(&v, "tokenizer.ggml.pre", "not a string");
}

/* Characters merge by rank; spaces are marks, also inside merges, and bytes replace what is not a
 * token, whatever their type. */
TEST(tokenizer_load, gemma4)
{
    struct vocab v = {.model = "gemma4", .pre = "is not looked at", .no_scores = true};
    static const char *const tokens[] = {"<bos>",    "a",  "b",    "\u2581", "ab",
                                         "\u2581ab", "\n", "\n\n", "<0xC3>", "<0xA9>"};
    for (uint32_t i = 0; i < 10; i++)
        vocab_token(&v, tokens[i], i == 0 ? 3 : i == 8 ? 6 : 1);
    vocab_merge(&v, "a b");
    vocab_merge(&v, "\u2581 ab");
    vocab_merge(&v, "\n \n");
    build_key_u32(&v.more, "tokenizer.ggml.bos_token_id", 0);
    struct tokenizer *t = open_safely(&v);
    struct strbuf text = STRBUF_INIT;
    struct token_list ids = {0};
    struct error err = {0};
    CHECK_INT(tokenizer_encode(t, "ab ab\n\n\xc3\xa9 a", 12, TOKENIZE_ADD_SPECIAL, &ids, &err), 0);
    static const int32_t expected[] = {0, 4, 5, 7, 8, 9, 3, 1};
    CHECK_INT(ids.len, 8);
    for (size_t i = 0; i < 8; i++)
        CHECK_INT(ids.ids[i], expected[i]);
    tokenizer_decode(t, ids.ids, ids.len, false, &text);
    CHECK_STR(strbuf_str(&text), "ab ab\n\n\xc3\xa9 a");
    token_list_free(&ids);
    strbuf_free(&text);
    tokenizer_close(t);
}

/* Its tokens take the white space after them, which no key of the file says. */
TEST(tokenizer_load, phi3)
{
    for (int is_phi = 0; is_phi < 2; is_phi++) {
        struct vocab v = {.model = "llama"};
        static const char *const tokens[] = {"<unk>", "<s>", "<|user|>", "a", "\n"};
        for (uint32_t i = 0; i < 5; i++)
            vocab_token(&v, tokens[i], i == 0 ? 2 : i < 3 ? 3 : 1);
        build_key_bool(&v.more, "tokenizer.ggml.add_space_prefix", false);
        build_key_string(&v.more, "general.architecture", is_phi ? "phi3" : "llama");
        struct tokenizer *t = open_safely(&v);
        struct token_list ids = {0};
        struct error err = {0};
        CHECK_INT(tokenizer_encode(t, "<s>\n<|user|>\na", 14, TOKENIZE_PARSE_SPECIAL, &ids, &err),
                  0);
        CHECK_INT(ids.len, is_phi ? 4 : 5);
        CHECK_INT(ids.ids[1], 4);
        CHECK_INT(ids.ids[3], is_phi ? 3 : 4);
        token_list_free(&ids);
        tokenizer_close(t);
    }
}

TEST(tokenizer_load, tokens_are_missing_or_no_strings)
{
    struct vocab v = {.model = "gpt2"};
    check_refused(&v, "tokenizer.ggml.tokens", "missing");
    v = (struct vocab){.model = "llama"};
    build_key_string(&v.more, "tokenizer.ggml.tokens", "a");
    check_refused(&v, "tokenizer.ggml.tokens", "array of strings");
    v = (struct vocab){.model = "llama"};
    build_key_array(&v.more, "tokenizer.ggml.tokens", GGUF_U32, 1);
    build_u32(&v.more.pairs, 7);
    check_refused(&v, "tokenizer.ggml.tokens", "array of strings");
    v = (struct vocab){.model = "llama"};
    build_key_array(&v.more, "tokenizer.ggml.tokens", GGUF_STRING, 0);
    check_refused(&v, "tokenizer.ggml.tokens", "missing");
}

TEST(tokenizer_load, tokens_twice)
{
    struct vocab v = good("gpt2");
    vocab_token(&v, "ab", 1);
    check_refused(&v, "tokenizer.ggml.tokens", "\"ab\" twice, as 3 and as 4");
    v = good("llama");
    vocab_token(&v, "<unk>", 3);
    check_refused(&v, "tokenizer.ggml.tokens", "twice");
}

TEST(tokenizer_load, counts_disagree)
{
    struct vocab v = good("gpt2");
    build_u32(&v.types, 1);
    check_refused(&v, "tokenizer.ggml.token_type", "5 items for 4 tokens");
    v = good("gpt2");
    v.types.len -= 4;
    check_refused(&v, "tokenizer.ggml.token_type", "3 items for 4 tokens");
    v = good("llama");
    v.scores.len -= 4;
    check_refused(&v, "tokenizer.ggml.scores", "3 items for 4 tokens");
}

TEST(tokenizer_load, types_out_of_range_or_no_numbers)
{
    struct vocab v = good("gpt2");
    vocab_token(&v, "x", 7);
    check_refused(&v, "tokenizer.ggml.token_type", "7 for token 4");
    v = good("gpt2");
    vocab_token(&v, "x", UINT32_MAX);
    check_refused(&v, "tokenizer.ggml.token_type", "-1 for token 4");
    v = good("gpt2");
    v.no_types = true;
    build_key_array(&v.more, "tokenizer.ggml.token_type", GGUF_STRING, 4);
    strbuf_add(&v.more.pairs, v.tokens.data, v.tokens.len);
    check_refused(&v, "tokenizer.ggml.token_type", "array of numbers");
    v = good("gpt2");
    v.no_types = true;
    build_key_u32(&v.more, "tokenizer.ggml.token_type", 1);
    check_refused(&v, "tokenizer.ggml.token_type", "array of numbers");
}

TEST(tokenizer_load, scores_are_missing_or_no_numbers)
{
    struct vocab v = good("llama");
    v.no_scores = true;
    check_refused(&v, "tokenizer.ggml.scores", "missing");
    v = good("llama");
    vocab_add(&v, "x", 1, 1, NAN);
    check_refused(&v, "tokenizer.ggml.scores", "no number for token 4");
}

TEST(tokenizer_load, merges_are_missing_or_broken)
{
    struct vocab v = good("gpt2");
    v.no_merges = true;
    check_refused(&v, "tokenizer.ggml.merges", "missing");
    const char *const broken[] = {"",    " ",   "a",   "a ",   " a",  "ab",
                                  "a c", "c a", "b a", "a  b", "a b "};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        v = good("gpt2");
        vocab_merge(&v, "a b");
        vocab_merge(&v, broken[i]);
        check_refused(&v, "tokenizer.ggml.merges", " at 1");
    }
    v = good("gpt2");
    v.no_merges = true;
    build_key_array(&v.more, "tokenizer.ggml.merges", GGUF_F32, 1);
    build_u32(&v.more.pairs, 0);
    check_refused(&v, "tokenizer.ggml.merges", "array of strings");
}

TEST(tokenizer_load, ids_out_of_range_or_no_ids)
{
    const char *const keys[] = {"bos", "eos", "eot", "eom", "unknown", "fim_pad"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[i]);
        struct vocab v = good(i % 2 ? "gpt2" : "llama");
        build_key_u32(&v.more, key, 4);
        check_refused(&v, key, "is 4, but there are 4 tokens");
        v = good("gpt2");
        build_key_u32(&v.more, key, UINT32_MAX);
        check_refused(&v, key, "4 tokens");
        v = good("gpt2");
        build_key_string(&v.more, key, "1");
        check_refused(&v, key, "not a token id");
    }
}

TEST(tokenizer_load, flags_and_template_of_another_type)
{
    const char *const keys[] = {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
                                "tokenizer.ggml.add_space_prefix"};
    for (size_t i = 0; i < 3; i++) {
        struct vocab v = good("llama");
        build_key_string(&v.more, keys[i], "true");
        check_refused(&v, keys[i], "not a boolean");
    }
    struct vocab v = good("gpt2");
    build_key_u32(&v.more, "tokenizer.chat_template", 1);
    check_refused(&v, "tokenizer.chat_template", "not a string");
}

TEST(tokenizer_load, odd_tokens_are_harmless)
{
    for (int spm = 0; spm < 2; spm++) {
        struct vocab v = good(spm ? "llama" : "gpt2");
        vocab_token(&v, "", 1);
        vocab_token(&v, "", 3);
        vocab_token(&v, "", 4);
        vocab_token(&v, "\xff\xfe", 1);
        vocab_token(&v, "\xc3", 3);
        vocab_token(&v, "with space", 1);
        vocab_token(&v, "日本", 1);
        vocab_token(&v, "<0xZZ>", 6);
        vocab_token(&v, "<0x4", 6);
        vocab_token(&v, "never", 0);
        vocab_add(&v, "nul\0nul", 7, 1, -INFINITY);
        struct tokenizer *t = open_safely(&v);
        size_t len;
        tokenizer_bytes(t, 4, &len);
        CHECK_INT(len, 0);
        CHECK(memcmp(tokenizer_bytes(t, 7, &len), "\xff\xfe", 2) == 0 && len == 2);
        CHECK(memcmp(tokenizer_bytes(t, 9, &len), "with space", 10) == 0 && len == 10);
        CHECK(memcmp(tokenizer_bytes(t, 14, &len), "nul\0nul", 7) == 0 && len == 7);
        tokenizer_close(t);
    }
}

TEST(tokenizer_load, files_without_types)
{
    struct vocab v = {.model = "llama", .no_types = true};
    vocab_token(&v, "<unk>", 1);
    vocab_token(&v, "<s>", 1);
    vocab_token(&v, "</s>", 1);
    vocab_token(&v, "<0x41>", 1);
    struct tokenizer *t = open_safely(&v);
    CHECK(tokenizer_is_special(t, 0) && tokenizer_is_special(t, 1) && tokenizer_is_special(t, 2));
    CHECK(tokenizer_is_end(t, 2));
    size_t len;
    CHECK(tokenizer_bytes(t, 3, &len)[0] == 'A' && len == 1);
    tokenizer_close(t);
    v = (struct vocab){.model = "gpt2", .no_types = true};
    vocab_token(&v, "<|im_end|>", 1);
    vocab_token(&v, "a", 1);
    t = open_safely(&v);
    CHECK(tokenizer_is_special(t, 0) && tokenizer_is_end(t, 0) && !tokenizer_is_special(t, 1));
    tokenizer_close(t);
}

TEST(tokenizer_load, smallest_vocabularies)
{
    struct vocab v = {.model = "llama"};
    vocab_token(&v, "a", 1);
    tokenizer_close(open_safely(&v));
    v = (struct vocab){.model = "gpt2", .pre = "llama-bpe"};
    vocab_token(&v, "a", 1);
    struct tokenizer *t = open_safely(&v);
    CHECK_INT(tokenizer_bos(t), -1);
    CHECK_INT(tokenizer_eos(t), -1);
    tokenizer_close(t);
}

TEST(tokenizer_load, a_later_merge_of_the_same_pair_wins)
{
    struct vocab v = good("gpt2");
    vocab_token(&v, "ba", 1);
    vocab_merge(&v, "a b");
    vocab_merge(&v, "b a");
    vocab_merge(&v, "a b");
    struct tokenizer *t = open_safely(&v);
    struct token_list list = {0};
    struct error err;
    CHECK(tokenizer_encode(t, "aba", 3, 0, &list, &err) == 0);
    CHECK_INT(list.len, 2);
    CHECK_INT(list.ids[0], 1);
    CHECK_INT(list.ids[1], 4);
    token_list_free(&list);
    tokenizer_close(t);
}
