/* Encoding and decoding: against goldens of the `tokenizers` and `sentencepiece` libraries, and by
 * laws of its own (what goes in comes out, in any thread, in n log n). */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"
#include "prompt/tokenizer/tokenizer_internal.h"
#include "test_memory.h"
#include "test_tokenizer_goldens.h"
#include "test_tokenizer_model.h"

#define TEXT(literal) literal, sizeof literal - 1

static const char *scratch_file(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.gguf", test_scratch_dir());
    return path;
}

static struct tokenizer *open_vocab(struct vocab *v)
{
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (vocab_open(v, scratch_file(), &t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return t;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t len, int flags)
{
    struct token_list list = {0};
    struct error err = {0};
    if (tokenizer_encode(t, text, len, flags, &list, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return list;
}

/* The ids as text, "1,2,3"; good until the next call. */
static const char *ids_text(const struct token_list *list)
{
    static struct strbuf text;
    strbuf_clear(&text);
    for (size_t i = 0; i < list->len; i++)
        strbuf_addf(&text, "%s%d", i ? "," : "", list->ids[i]);
    return strbuf_str(&text);
}

static const char *encode_text(const struct tokenizer *t, const char *text, int flags)
{
    struct token_list list = encode(t, text, strlen(text), flags);
    const char *ids = ids_text(&list);
    token_list_free(&list);
    return ids;
}

static void check_round_trip(const struct tokenizer *t, const char *text, size_t len, int flags)
{
    struct token_list list = encode(t, text, len, flags);
    struct strbuf out = STRBUF_INIT;
    tokenizer_decode(t, list.ids, list.len, true, &out);
    CHECK_INT(out.len, len);
    CHECK(len == 0 || memcmp(out.data, text, len) == 0);
    strbuf_free(&out);
    token_list_free(&list);
}

/* ---- goldens ---- */

static void check_case(const struct tokenizer *t, const struct golden *line)
{
    CHECK_INT(line->n, 4);
    int flags = line->fields[1][0] == '1' ? TOKENIZE_PARSE_SPECIAL : 0;
    struct token_list list = encode(t, line->fields[2], line->lens[2], flags);
    if (strcmp(ids_text(&list), line->fields[3]) != 0)
        test_fail(__FILE__, __LINE__, "\"%s\" is %s, expected %s", line->fields[2], ids_text(&list),
                  line->fields[3]);
    token_list_free(&list);
}

static void check_goldens(const struct tokenizer *t, const char *path, int at_least)
{
    struct goldens g = goldens_open(path);
    int n = 0;
    for (struct golden line; golden_next(&g, &line);) {
        if (strcmp(line.fields[0], "case") != 0)
            continue;
        check_case(t, &line);
        n++;
    }
    CHECK(n >= at_least);
    goldens_close(&g);
}

static struct tokenizer *open_tiny(const char *name)
{
    char path[256], pair[512];
    struct vocab v = {.model = "gpt2", .pre = name};
    snprintf(path, sizeof path, "tests/unit/data/tokenizer_%s.txt", name);
    struct goldens g = goldens_open(path);
    for (struct golden line; golden_next(&g, &line);) {
        if (strcmp(line.fields[0], "token") == 0)
            vocab_add(&v, line.fields[2], line.lens[2], (uint32_t)atoi(line.fields[1]), 0);
        if (strcmp(line.fields[0], "merge") == 0) {
            snprintf(pair, sizeof pair, "%s %s", line.fields[1], line.fields[2]);
            vocab_merge(&v, pair);
        }
    }
    goldens_close(&g);
    return open_vocab(&v);
}

static void check_tiny(const char *name)
{
    char path[256];
    struct tokenizer *t = open_tiny(name);
    snprintf(path, sizeof path, "tests/unit/data/tokenizer_%s.txt", name);
    check_goldens(t, path, 70);
    tokenizer_close(t);
}

TEST(tokenizer, goldens_gpt2)
{
    check_tiny("gpt2");
}

TEST(tokenizer, goldens_qwen2)
{
    check_tiny("qwen2");
}

TEST(tokenizer, qwen2_texts_are_in_nfc)
{
    struct tokenizer *t = open_tiny("qwen2");
    char apart[256];
    snprintf(apart, sizeof apart, "%s", encode_text(t, "caf\xc3\xa9", 0));
    CHECK_STR(encode_text(t, "cafe\xcc\x81", 0), apart);
    tokenizer_close(t);
}

TEST(tokenizer, goldens_llama_bpe)
{
    check_tiny("llama-bpe");
}

TEST(tokenizer, goldens_default_model)
{
    if (!test_model_path())
        SKIP("the default model is not there");
    struct chat_defaults chat;
    struct tokenizer *t = model_chat(test_model_path(), &chat);
    check_goldens(t, "tests/unit/data/tokenizer_smollm2.txt", 230);
    CHECK_INT(tokenizer_size(t), 49152);
    CHECK_INT(tokenizer_bos(t), 1);
    CHECK_INT(tokenizer_eos(t), 2);
    CHECK(tokenizer_is_end(t, 0) && tokenizer_is_end(t, 2) && !tokenizer_is_end(t, 1));
    CHECK_INT(tokenizer_find(t, "<|im_end|>", 10), 2);
    CHECK(strstr(chat.chat_template, "<|im_start|>") != NULL && chat.chat_template_len > 100);
    chat_defaults_free(&chat);
    CHECK_STR(encode_text(t, "hello", TOKENIZE_ADD_SPECIAL), "28120"); /* it adds no BOS */
    tokenizer_close(t);
}

TEST(tokenizer, goldens_sentencepiece)
{
    const char *path = test_shared_path(
        "data/models/stories260K/stories260K-f32.converted-v3.gguf");
    if (!path)
        SKIP("stories260K is not there");
    struct tokenizer *t = model_tokenizer(path);
    check_goldens(t, "tests/unit/data/tokenizer_spm.txt", 70);
    CHECK_STR(encode_text(t, "", TOKENIZE_ADD_SPECIAL), "1");
    struct token_list list = encode(t, "Once upon a time", 16, TOKENIZE_ADD_SPECIAL);
    struct strbuf out = STRBUF_INIT;
    tokenizer_decode(t, list.ids, list.len, false, &out);
    CHECK_STR(strbuf_str(&out), "Once upon a time");
    strbuf_free(&out);
    token_list_free(&list);
    /* The spelling of a control token is text, unless requested otherwise. */
    CHECK_STR(encode_text(t, "</s>", TOKENIZE_PARSE_SPECIAL), "2");
    list = encode(t, "</s>", 4, 0);
    for (size_t i = 0; i < list.len; i++)
        CHECK(!tokenizer_is_special(t, list.ids[i]));
    token_list_free(&list);
    check_round_trip(t, TEXT("\xff\xfe not\x80 UTF-8 \xf0\x9f"), 0);
    tokenizer_close(t);
}

/* ---- laws ---- */

/* Except qwen2, whose models see texts in NFC. */
TEST(tokenizer, any_bytes_come_back)
{
    const char *const names[] = {"gpt2", "llama-bpe"};
    static const char alphabet[] = "aab  \n\r\t'st1\xc3\xa9\xe2\x82\xac\xff\x80<|im_end|>";
    for (size_t m = 0; m < 2; m++) {
        struct tokenizer *t = open_tiny(names[m]);
        for (uint64_t round = 0; round < 400; round++) {
            char text[64];
            size_t len = hash_pair(round, 1) % sizeof text;
            for (size_t i = 0; i < len; i++) {
                uint64_t random = hash_pair(round, 100 + i);
                text[i] = round % 2 ? (char)random : alphabet[random % (sizeof alphabet - 1)];
            }
            check_round_trip(t, text, len, round % 3 ? 0 : TOKENIZE_PARSE_SPECIAL);
        }
        tokenizer_close(t);
    }
}

/* A quadratic merge would take many minutes here. */
TEST(tokenizer, a_long_text_without_a_break)
{
    enum { SIZE = 1 << 18 };
    char *text = malloc(SIZE);
    const char fills[] = {'a', ' ', '\n', '1', '-', '\xff'};
    struct vocab v = {.model = "llama"};
    for (unsigned i = 0; i < 3; i++)
        vocab_token(&v, (const char *const[]){"<unk>", "<s>", "</s>"}[i], i ? 3 : 2);
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "<0x%02X>", byte);
        vocab_token(&v, spelling, 6);
    }
    for (size_t len = 1; len <= 16; len *= 2) {
        vocab_add(&v, "aaaaaaaaaaaaaaaa", len, 1, -(float)len);
        vocab_add(&v, "▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁", 3 * len, 1, -(float)len - .5f);
    }
    struct tokenizer *models[] = {open_tiny("gpt2"), open_tiny("qwen2"), open_vocab(&v)};
    for (size_t i = 0; i < sizeof fills; i++) {
        memset(text, fills[i], SIZE);
        for (size_t m = 0; m < 3; m++) {
            size_t len = i < 2 && m != 1 ? SIZE : SIZE / 4;
            check_round_trip(models[m], text, len, TOKENIZE_PARSE_SPECIAL);
        }
    }
    for (size_t m = 0; m < 3; m++)
        tokenizer_close(models[m]);
    free(text);
}

/* Cached words have the same ids as alone; with more words than are kept, and of every length
 * around the longest that is kept. */
TEST(tokenizer, words_seen_before_are_the_same)
{
    struct tokenizer *t = open_tiny("gpt2");
    struct token_list first = {0}, second = {0}, alone = {0};
    struct error err;
    struct encoder e = {.t = t, .out = &alone, .err = &err};
    for (uint64_t round = 0; round < 60000; round++) {
        char word[48];
        uint64_t seed = round % 3 ? hash_mix(round) % 40000 : hash_mix(round);
        size_t len = 1 + seed % (seed % 5 ? 12 : sizeof word);
        for (size_t i = 0; i < len; i++)
            word[i] = "etaoinshrdlu"[hash_pair(seed, i) % 12];
        first.len = second.len = alone.len = 0;
        CHECK_INT(tokenizer_encode(t, word, len, 0, &first, &err), 0);
        CHECK_INT(tokenizer_encode(t, word, len, 0, &second, &err), 0);
        CHECK_INT(encode_new_word(&e, word, len), 0);
        CHECK(first.len == alone.len && second.len == alone.len);
        CHECK(memcmp(first.ids, alone.ids, alone.len * sizeof *alone.ids) == 0);
        CHECK(memcmp(second.ids, alone.ids, alone.len * sizeof *alone.ids) == 0);
    }
    encoder_close(&e);
    token_list_free(&first);
    token_list_free(&second);
    token_list_free(&alone);
    tokenizer_close(t);
}

TEST(tokenizer, steady_state_allocates_nothing)
{
    static const char *const names[] = {"gpt2", "qwen2", "llama-bpe"};
    for (size_t m = 0; m < 3; m++) {
        struct tokenizer *t = open_tiny(names[m]);
        struct token_list list = {0};
        struct error err;
        const char *text = "A text with words, numbers 12345 and\n\n   space; <|im_end|> été.";
        CHECK(token_list_reserve(&list, 4096));
        CHECK_INT(tokenizer_encode(t, text, strlen(text), TOKENIZE_PARSE_SPECIAL, &list, &err), 0);
        memory_ends_after(0);
        int status = 0;
        for (int i = 0; i < 10; i++)
            status |= tokenizer_encode(t, text, strlen(text), TOKENIZE_PARSE_SPECIAL, &list, &err);
        memory_is_back();
        CHECK_INT(status, 0);
        token_list_free(&list);
        tokenizer_close(t);
    }
}

TEST(tokenizer, without_memory_it_says_so)
{
    struct tokenizer *t = open_tiny("gpt2");
    struct token_list list = {0};
    struct error err = {0};
    for (uint32_t n = 0; n < 2; n++) { /* an encoder is two pieces */
        memory_ends_after(n);
        int status = tokenizer_encode(t, "abc", 3, 0, &list, &err);
        memory_is_back();
        CHECK_INT(status, -1);
        CHECK_INT(err.code, ERROR_MEMORY);
        CHECK_INT(list.len, 0);
    }
    CHECK_INT(tokenizer_encode(t, "abc", 3, 0, &list, &err), 0);
    token_list_free(&list);
    tokenizer_close(t);
}

struct threads_test {
    const struct tokenizer *t;
    const struct token_list *expected;
    const char *text;
    bool equal;
};

static void *encode_in_thread(void *context)
{
    struct threads_test *test = context;
    test->equal = true;
    for (int i = 0; i < 50; i++) {
        struct token_list list = {0};
        struct error err;
        int status = tokenizer_encode(test->t, test->text, strlen(test->text), 0, &list, &err);
        test->equal = test->equal && status == 0 && list.len == test->expected->len &&
                      memcmp(list.ids, test->expected->ids, list.len * sizeof *list.ids) == 0;
        token_list_free(&list);
    }
    return NULL;
}

TEST(tokenizer, threads_share_it)
{
    struct tokenizer *t = open_tiny("qwen2");
    const char *text = "It's a shared tokenizer, 12345 été 日本 \n\n  and more   words";
    struct token_list expected = encode(t, text, strlen(text), 0);
    struct threads_test tests[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        tests[i] = (struct threads_test){.t = t, .expected = &expected, .text = text};
        CHECK_INT(pthread_create(&threads[i], NULL, encode_in_thread, &tests[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        CHECK(tests[i].equal);
    token_list_free(&expected);
    tokenizer_close(t);
}

TEST(tokenizer, too_long_a_text_is_refused)
{
    struct tokenizer *t;
    struct error err;
    struct token_list list = {0};
    CHECK(tokenizer_open_bytes(&t, NULL, &err) == 0);
    CHECK_INT(tokenizer_encode(t, "", (size_t)1 << 31, 0, &list, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    CHECK_INT(list.len, 0);
    token_list_free(&list);
    tokenizer_close(t);
}

/* ---- merges ---- */

/* Ids 0..255 are the bytes; then the tokens of `merges` in order. */
static struct tokenizer *open_merges(const char *pre, const char *const *merges)
{
    struct vocab v = {.model = "gpt2", .pre = pre};
    vocab_bytes(&v);
    for (; *merges; merges++) {
        char token[64];
        const char *space = strchr(*merges, ' ');
        snprintf(token, sizeof token, "%.*s%s", (int)(space - *merges), *merges, space + 1);
        vocab_token(&v, token, 1);
        vocab_merge(&v, *merges);
    }
    return open_vocab(&v);
}

TEST(tokenizer, merges_go_by_rank_then_from_the_left)
{
    struct tokenizer *t = open_merges("gpt2", (const char *[]){"b c", "a b", "a a", "aa a", NULL});
    CHECK_STR(encode_text(t, "abc", 0), "97,256");
    CHECK_STR(encode_text(t, "aaaaa", 0), "258,259");
    CHECK_STR(encode_text(t, "aab", 0), "97,257");
    char text[200];
    memset(text, 'a', 200);
    struct token_list list = encode(t, text, 199, 0);
    CHECK_INT(list.len, 99);
    for (size_t i = 0; i < 98; i++)
        CHECK_INT(list.ids[i], 258);
    CHECK_INT(list.ids[98], 259);
    token_list_free(&list);
    tokenizer_close(t);
}

/* The simple way: again and again, merges the best pair from the left. The symbols in `text` are
 * separated by spaces, as the two of a merge are; returns their number. */
static size_t merge_plainly(const char *const *merges, const char *letters, size_t n, char *text)
{
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, " %c", letters[i]);
    memcpy(text + 2 * n, " ", 2);
    for (size_t rank = 0; merges[rank]; rank++) {
        char pair[64];
        snprintf(pair, sizeof pair, " %s ", merges[rank]);
        char *found = strstr(text, pair);
        if (!found)
            continue;
        char *space = strchr(found + 1, ' ');
        memmove(space, space + 1, strlen(space));
        n--;
        rank = SIZE_MAX; /* from the best one again */
    }
    return n;
}

TEST(tokenizer, merges_equal_the_plain_way)
{
    const char *const merges[] = {"b a",  "a b",   "ab a", "a a",    "ba b",  "ba ba", "aa b",
                                  "ab b", "aba c", "c c",  "c bab",  "cc c",  "a c",   "b b",
                                  "bb b", "ac ab", "ba a", "aab ab", "bab c", NULL};
    struct tokenizer *t = open_merges("gpt2", merges);
    for (uint64_t round = 0; round < 500; round++) {
        char letters[80], plain[2 * sizeof letters + 2];
        size_t len = 1 + hash_pair(round, 7) % (sizeof letters - 1);
        for (size_t i = 0; i < len; i++)
            letters[i] = "aabbc"[hash_pair(round, i) % 5];
        struct token_list list = encode(t, letters, len, 0);
        CHECK_INT(list.len, merge_plainly(merges, letters, len, plain));
        struct strbuf got = STRBUF_INIT;
        for (size_t i = 0; i < list.len; i++) {
            size_t bytes_len;
            const char *bytes = tokenizer_bytes(t, list.ids[i], &bytes_len);
            strbuf_addf(&got, " %.*s", (int)bytes_len, bytes);
        }
        strbuf_addc(&got, ' ');
        CHECK_STR(strbuf_str(&got), plain);
        strbuf_free(&got);
        token_list_free(&list);
    }
    tokenizer_close(t);
}

TEST(tokenizer, a_byte_that_is_no_token_is_left_out)
{
    struct vocab v = {.model = "gpt2", .pre = "gpt2"};
    vocab_token(&v, "!", 1);
    vocab_token(&v, "!!", 1);
    vocab_merge(&v, "! !");
    struct tokenizer *t = open_vocab(&v);
    CHECK_STR(encode_text(t, "!#!", 0), "1"); /* as `tokenizers` has it */
    CHECK_STR(encode_text(t, "\xff", 0), "");
    tokenizer_close(t);
}

/* ---- special tokens ---- */

enum { CONTROL = 3, USER = 4 };

static struct tokenizer *open_special(bool add_bos, bool add_eos)
{
    struct vocab v = {.model = "gpt2", .pre = "gpt2"};
    vocab_bytes(&v);
    vocab_token(&v, "<s>", CONTROL);  /* 256 */
    vocab_token(&v, "<s>>", CONTROL); /* 257 */
    vocab_token(&v, "s><s", CONTROL); /* 258 */
    vocab_token(&v, "<user>", USER);  /* 259 */
    vocab_token(&v, "<unk>", 2);      /* 260 */
    vocab_token(&v, "日", USER);      /* 261: plain text, not the spelling of bytes */
    vocab_token(&v, "</s>", CONTROL); /* 262 */
    build_key_u32(&v.more, "tokenizer.ggml.bos_token_id", 256);
    build_key_u32(&v.more, "tokenizer.ggml.eos_token_id", 257);
    build_key_bool(&v.more, "tokenizer.ggml.add_bos_token", add_bos);
    build_key_bool(&v.more, "tokenizer.ggml.add_eos_token", add_eos);
    return open_vocab(&v);
}

TEST(tokenizer, special_tokens_leftmost_then_longest)
{
    struct tokenizer *t = open_special(false, false);
    CHECK_STR(encode_text(t, "a<s>b", TOKENIZE_PARSE_SPECIAL), "97,256,98");
    CHECK_STR(encode_text(t, "<s>>", TOKENIZE_PARSE_SPECIAL), "257");
    CHECK_STR(encode_text(t, "<s><s>", TOKENIZE_PARSE_SPECIAL), "256,256");
    CHECK_STR(encode_text(t, "s><s>", TOKENIZE_PARSE_SPECIAL), "258,62");
    CHECK_STR(encode_text(t, "<<s", TOKENIZE_PARSE_SPECIAL), "60,60,115");
    CHECK_STR(encode_text(t, "<unk>", TOKENIZE_PARSE_SPECIAL), "260");
    tokenizer_close(t);
}

TEST(tokenizer, special_tokens_are_text_unless_asked_for)
{
    struct tokenizer *t = open_special(false, false);
    CHECK_STR(encode_text(t, "<s>", 0), "60,115,62");
    CHECK_STR(encode_text(t, "<user>", 0), "259");
    CHECK_STR(encode_text(t, "日", 0), "261");
    CHECK_STR(encode_text(t, "\xe6\x97", 0), "230,151");
    CHECK(tokenizer_is_special(t, 256) && !tokenizer_is_special(t, 259));
    struct strbuf out = STRBUF_INIT;
    const int32_t ids[] = {256, 97, 259, 260, 98, -1, 9999};
    tokenizer_decode(t, ids, 7, false, &out);
    CHECK_STR(strbuf_str(&out), "a<user>b");
    strbuf_clear(&out);
    tokenizer_decode(t, ids, 7, true, &out);
    CHECK_STR(strbuf_str(&out), "<s>a<user><unk>b");
    strbuf_free(&out);
    tokenizer_close(t);
}

TEST(tokenizer, begin_and_end_are_added_as_the_file_says)
{
    struct tokenizer *t = open_special(true, true);
    CHECK_STR(encode_text(t, "a", TOKENIZE_ADD_SPECIAL), "256,97,257");
    CHECK_STR(encode_text(t, "a", 0), "97");
    CHECK_STR(encode_text(t, "", TOKENIZE_ADD_SPECIAL), "256,257");
    tokenizer_close(t);
    t = open_special(false, false);
    CHECK_STR(encode_text(t, "a", TOKENIZE_ADD_SPECIAL), "97");
    tokenizer_close(t);
    t = open_tiny("llama-bpe"); /* adds BOS by default, but this file has none */
    CHECK_STR(encode_text(t, "", TOKENIZE_ADD_SPECIAL), "");
    tokenizer_close(t);
}

TEST(tokenizer, llama_bpe_adds_bos_by_default)
{
    struct vocab v = {.model = "gpt2", .pre = "llama3"};
    vocab_bytes(&v);
    vocab_token(&v, "<|begin_of_text|>", CONTROL);
    build_key_u32(&v.more, "tokenizer.ggml.bos_token_id", 256);
    struct tokenizer *t = open_vocab(&v);
    CHECK_STR(encode_text(t, "a", TOKENIZE_ADD_SPECIAL), "256,97");
    tokenizer_close(t);
}

TEST(tokenizer, ends)
{
    struct vocab v = {.model = "gpt2"};
    const char *const ends[] = {"<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<end_of_turn>",
                                "</s>",       "<|eom_id|>", "<|fim_pad|>"};
    const char *const others[] = {"<|im_start|>", "<s>", "<think>"};
    for (size_t i = 0; i < 7; i++)
        vocab_token(&v, ends[i], CONTROL);
    for (size_t i = 0; i < 3; i++)
        vocab_token(&v, others[i], CONTROL);
    vocab_token(&v, "x", CONTROL);    /* 10: eos */
    vocab_token(&v, "y", CONTROL);    /* 11: eot */
    vocab_token(&v, "<EOT>", 1);      /* 12: spelled like an end, but ordinary text */
    vocab_token(&v, "<|end|>", USER); /* 13 */
    build_key_u32(&v.more, "tokenizer.ggml.eos_token_id", 10);
    build_key_u32(&v.more, "tokenizer.ggml.eot_token_id", 11);
    struct tokenizer *t = open_vocab(&v);
    for (int32_t id = 0; id < 14; id++)
        CHECK_INT(tokenizer_is_end(t, id), id < 7 || id == 10 || id == 11 || id == 13);
    CHECK(!tokenizer_is_end(t, -1) && !tokenizer_is_end(t, 14));
    tokenizer_close(t);
}

TEST(tokenizer, ends_of_messages_inside_an_answer)
{
    struct vocab v = {.model = "gpt2"};
    const char *const tokens[] = {"<|end|>", "<|call|>", "<|return|>", "</s>", "<|tool_response>"};
    for (size_t i = 0; i < 5; i++)
        vocab_token(&v, tokens[i], CONTROL);
    struct tokenizer *t = open_vocab(&v);
    CHECK(!tokenizer_is_end(t, 0) && tokenizer_is_end(t, 1) && tokenizer_is_end(t, 2));
    CHECK(!tokenizer_is_end(t, 3) && tokenizer_is_end(t, 4));
    tokenizer_close(t);
}

/* ---- the table of bytes ---- */

TEST(tokenizer, bytes_of_byte_level_tokens)
{
    struct tokenizer *t = open_special(false, false);
    for (int32_t id = 0; id < 256; id++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, id, &len);
        CHECK_INT(len, 1);
        CHECK_INT((unsigned char)bytes[0], id);
        CHECK_INT(tokenizer_find(t, (char[]){(char)id}, 1), id);
    }
    size_t len;
    CHECK(memcmp(tokenizer_bytes(t, 259, &len), "<user>", 6) == 0 && len == 6);
    CHECK_INT(tokenizer_find(t, "<user>", 6), 259);
    CHECK_INT(tokenizer_find(t, "<user", 5), -1);
    CHECK_INT(tokenizer_find(t, "", 0), -1);
    tokenizer_bytes(t, 4000, &len);
    CHECK_INT(len, 0);
    tokenizer_bytes(t, -1, &len);
    CHECK_INT(len, 0);
    tokenizer_close(t);
}

static struct tokenizer *open_spm(bool bytes, bool space_prefix)
{
    struct vocab v = {.model = "llama"};
    vocab_add(&v, "<unk>", 5, 2, 0);
    vocab_add(&v, "<s>", 3, 3, 0);
    vocab_add(&v, "</s>", 4, 3, 0);
    vocab_add(&v, "▁", 3, 1, -5);  /* 3 */
    vocab_add(&v, "a", 1, 1, -6);  /* 4 */
    vocab_add(&v, "b", 1, 1, -7);  /* 5 */
    vocab_add(&v, "ab", 2, 1, -2); /* 6 */
    vocab_add(&v, "▁a", 4, 1, -1); /* 7 */
    vocab_add(&v, "ba", 2, 1, -2); /* 8: as good as 6 */
    vocab_add(&v, "▁▁", 6, 1, -3); /* 9 */
    for (unsigned byte = 0; bytes && byte < 256; byte++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "<0x%02X>", byte);
        vocab_token(&v, spelling, 6); /* 10 + byte */
    }
    if (!space_prefix)
        build_key_bool(&v.more, "tokenizer.ggml.add_space_prefix", false);
    return open_vocab(&v);
}

TEST(tokenizer, sentencepiece_merges_by_score_then_from_the_left)
{
    struct tokenizer *t = open_spm(true, false);
    CHECK_STR(encode_text(t, "ab", 0), "6");
    CHECK_STR(encode_text(t, "aba", 0), "6,4");
    CHECK_STR(encode_text(t, "baba", 0), "8,8");
    CHECK_STR(encode_text(t, " ab", 0), "7,5");
    CHECK_STR(encode_text(t, "a ▁b", 0), "4,9,5"); /* U+2581 is a space */
    CHECK_STR(encode_text(t, "c\xc3\xa9\xff", 0), "109,205,179,265");
    CHECK_STR(encode_text(t, "ab", TOKENIZE_ADD_SPECIAL), "1,6");
    tokenizer_close(t);
}

TEST(tokenizer, sentencepiece_puts_a_space_first_and_takes_it_away)
{
    struct tokenizer *t = open_spm(true, true);
    CHECK_STR(encode_text(t, "a", 0), "7");
    CHECK_STR(encode_text(t, "a</s>a", TOKENIZE_PARSE_SPECIAL), "7,2,7");
    CHECK_STR(encode_text(t, "", 0), "");
    CHECK_STR(encode_text(t, "a", TOKENIZE_CONTINUES), "4");
    CHECK_STR(encode_text(t, "a</s>a", TOKENIZE_CONTINUES | TOKENIZE_PARSE_SPECIAL), "4,2,7");
    struct strbuf out = STRBUF_INIT;
    tokenizer_decode(t, (int32_t[]){1, 7, 7, 6}, 4, false, &out);
    CHECK_STR(strbuf_str(&out), "a aab");
    strbuf_free(&out);
    check_round_trip(t, TEXT("a  b\n \xf0\x9f\x98\x80 "), 0);
    check_round_trip(t, TEXT("  a"), 0);
    tokenizer_close(t);
}

TEST(tokenizer, sentencepiece_without_byte_tokens_has_one_unknown_for_a_row)
{
    struct tokenizer *t = open_spm(false, false);
    CHECK_STR(encode_text(t, "acdea", 0), "4,0,4");
    tokenizer_close(t);
}

TEST(tokenizer, sentencepiece_tokens_across_spaces)
{
    struct vocab v = {.model = "llama"};
    vocab_add(&v, "<unk>", 5, 2, 0);
    vocab_add(&v, "a", 1, 1, -3);
    vocab_add(&v, "▁", 3, 1, -4);
    vocab_add(&v, "a▁", 4, 1, -1);
    vocab_add(&v, "a▁a", 5, 1, -2);
    vocab_add(&v, " a", 2, 1, 0); /* a space that is not U+2581: no text merges into it */
    build_key_bool(&v.more, "tokenizer.ggml.add_space_prefix", false);
    struct tokenizer *t = open_vocab(&v);
    CHECK_STR(encode_text(t, "a a a", 0), "3,4");
    tokenizer_close(t);
}

TEST(tokenizer, of_bytes_for_the_mock_engine)
{
    struct tokenizer *t;
    struct chat_defaults chat;
    struct error err;
    CHECK(tokenizer_open_bytes(&t, &chat, &err) == 0);
    CHECK_INT(tokenizer_size(t), 259);
    CHECK_STR(encode_text(t, "a\xff<|im_end|>", TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL),
              "97,255,257");
    CHECK_STR(encode_text(t, "<|", 0), "60,124");
    CHECK_INT(tokenizer_find(t, "<|im_start|>", 12), 256);
    CHECK_INT(tokenizer_find(t, "<|endoftext|>", 13), 258);
    CHECK_INT(tokenizer_find(t, "a", 1), 97);
    CHECK(tokenizer_is_end(t, 257) && tokenizer_is_end(t, 258) && !tokenizer_is_end(t, 256));
    CHECK(tokenizer_is_special(t, 256) && !tokenizer_is_special(t, 255));
    CHECK_INT(tokenizer_eos(t), 257);
    CHECK_INT(tokenizer_bos(t), -1);
    CHECK(strlen(chat.chat_template) == chat.chat_template_len &&
          strstr(chat.chat_template, "add_generation_prompt") != NULL);
    chat_defaults_free(&chat);
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    check_round_trip(t, all, 256, 0);
    tokenizer_close(t);
}
