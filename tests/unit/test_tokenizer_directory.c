/* Directories: which file is used, and what the files next to it say. */
#include "test.h"

#include <stdlib.h>

#include "base/strbuf.h"
#include "prompt/prompt.h"
#include "prompt/token_table.h"
#include "token_directory.h"

#define VOCAB                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2,\"</s>\":3,\"ab\":4},"       \
    "\"merges\":[\"a b\"]},\"decoder\":{\"type\":\"Fuse\"}"

static const char *plain_directory(void)
{
    const char *dir = token_directory();
    token_text(dir, "tokenizer.json", "{" VOCAB "}");
    return dir;
}

static const char *refusal(const char *dir, uint32_t n_vocab)
{
    static struct error err;
    struct tokenizer *t = NULL;
    CHECK_INT(tokenizer_open_directory(&t, NULL, dir, n_vocab, &err), -1);
    CHECK(t == NULL);
    return err.message;
}

TEST(tokenizer_directory, nothing_there)
{
    const char *dir = token_directory(), *message = refusal(dir, 0);
    CHECK(strstr(message, dir) && strstr(message, "tokenizer.json") &&
          strstr(message, "tokenizer.model") && strstr(message, ".tiktoken") &&
          strstr(message, "tekken.json") && strstr(message, "vocab.json"));
    token_text(dir, "vocab.json", "{}");
    CHECK(strstr(refusal(dir, 0), "merges.txt") != NULL);
    CHECK(strstr(refusal("/no/such/directory", 0), "/no/such/directory") != NULL);
}

TEST(tokenizer_directory, rows_of_the_embedding)
{
    const char *dir = plain_directory();
    struct tokenizer *t = token_directory_open(dir, 9);
    size_t len;
    CHECK_INT(tokenizer_size(t), 9);
    tokenizer_bytes(t, 8, &len);
    CHECK(len == 0 && !tokenizer_is_special(t, 8) && !tokenizer_is_end(t, 8));
    struct grammar_vocabulary *grammar = NULL;
    struct token_table table;
    struct error err;
    CHECK_INT(token_vocabulary_open(&grammar, t, &err), 0);
    CHECK_INT(token_table_make(&table, t, NULL, &err), 0);
    grammar_vocabulary_close(grammar);
    token_table_free(&table);
    tokenizer_close(t);
    t = token_directory_open(dir, 5);
    CHECK_INT(tokenizer_size(t), 5);
    tokenizer_close(t);
    const char *message = refusal(dir, 4);
    CHECK(strstr(message, "5 tokens") && strstr(message, "4 rows"));
}

TEST(tokenizer_directory, names_of_tokens_and_what_stands_around_a_text)
{
    const char *dir = plain_directory();
    token_text(dir, "tokenizer_config.json",
               "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"unk_token\":null,"
               "\"add_bos_token\":true,\"add_eos_token\":true,\"added_tokens_decoder\":{\"7\":{"
               "\"content\":\"<x>\",\"special\":true},\"5\":{\"content\":\"<y>\"}}}");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_INT(tokenizer_bos(t), 2);
    CHECK_INT(tokenizer_eos(t), 3);
    CHECK_INT(tokenizer_size(t), 8);
    CHECK(tokenizer_is_end(t, 3) && !tokenizer_is_end(t, 2));
    CHECK(tokenizer_is_special(t, 2) && tokenizer_is_special(t, 7) && !tokenizer_is_special(t, 5));
    CHECK_STR(token_ids(t, "ab<x><y>", TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL), "2,4,7,5,3");
    CHECK_STR(token_ids(t, "a<y>", 0), "0,5");
    CHECK_INT(tokenizer_find(t, "<x>", 3), 7);
    tokenizer_close(t);
    token_text(dir, "tokenizer_config.json",
               "{\"added_tokens_decoder\":{\"x\":{\"content\":\"c\"}}}");
    CHECK(strstr(refusal(dir, 0), "no id") != NULL);
    token_text(dir, "tokenizer_config.json", "{\"added_tokens_decoder\":[]}");
    CHECK(strstr(refusal(dir, 0), "not an object") != NULL);
    token_text(dir, "tokenizer_config.json", "{");
    CHECK(strstr(refusal(dir, 0), "tokenizer_config.json") != NULL);
}

/* A template in tokenizer.json takes precedence over the flags, except add_eos_token: false. */
TEST(tokenizer_directory, a_template_counts_more_than_flags)
{
    static const struct {
        const char *config, *ids;
    } cases[] = {
        {"{}", "2,4,0,3"},
        {"{\"add_bos_token\":false,\"bos_token\":\"<s>\"}", "2,4,0,3"},
        {"{\"add_bos_token\":true,\"bos_token\":\"</s>\"}", "2,4,0,3"},
        {"{\"add_eos_token\":true,\"eos_token\":\"</s>\"}", "2,4,0,3"},
        {"{\"add_bos_token\":true,\"add_eos_token\":false,\"eos_token\":\"</s>\"}", "2,4"},
    };
    const char *dir = token_directory();
    token_text(
        dir, "tokenizer.json",
        "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"e\"}}],\"special_tokens\":"
        "{\"<s>\":{\"ids\":[2]},\"e\":{\"ids\":[0,3]}}}]}," VOCAB "}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        token_text(dir, "tokenizer_config.json", cases[i].config);
        struct tokenizer *t = token_directory_open(dir, 0);
        CHECK_STR(token_ids(t, "ab", TOKENIZE_ADD_SPECIAL), cases[i].ids);
        tokenizer_close(t);
    }
    /* A processor without tokens says nothing. */
    token_text(dir, "tokenizer.json", "{\"post_processor\":{\"type\":\"ByteLevel\"}," VOCAB "}");
    token_text(dir, "tokenizer_config.json", "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab", TOKENIZE_ADD_SPECIAL), "2,4");
    tokenizer_close(t);
}

/* Families share a tokenizer: a smaller model may have no rows for the last added tokens. */
TEST(tokenizer_directory, added_tokens_past_the_embedding_are_left_out)
{
    const char *dir = token_directory();
    token_text(dir, "tokenizer.json",
               "{\"added_tokens\":[{\"id\":3,\"content\":\"</s>\",\"special\":true},{\"id\":5,"
               "\"content\":\"<a>\",\"special\":true},{\"id\":9,\"content\":\"ba\"}]," VOCAB "}");
    struct tokenizer *t = token_directory_open(dir, 10);
    CHECK_STR(token_ids(t, "ab</s>ba<a>", TOKENIZE_PARSE_SPECIAL), "4,3,9,5");
    tokenizer_close(t);
    for (uint32_t rows = 5; rows < 10; rows++) {
        t = token_directory_open(dir, rows);
        CHECK_INT(tokenizer_size(t), rows);
        CHECK_STR(token_ids(t, "ab</s>ba<a>", TOKENIZE_PARSE_SPECIAL),
                  rows > 5 ? "4,3,1,0,5" : "4,3,1,0,0");
        CHECK_INT(tokenizer_find(t, "ba", 2), -1);
        tokenizer_close(t);
    }
    CHECK(strstr(refusal(dir, 4), "4 rows") != NULL);
    /* The vocabulary has the added token, too. */
    token_text(dir, "tokenizer.json",
               "{\"added_tokens\":[{\"id\":4,\"content\":\"ab\"}],\"model\":{\"type\":\"BPE\","
               "\"vocab\":{\"a\":0,\"b\":1,\"ab\":4},\"merges\":[]}}");
    t = token_directory_open(dir, 4);
    CHECK_STR(token_ids(t, "ab", 0), "0,1");
    tokenizer_close(t);
    CHECK(strstr(refusal(dir, 1), "2 tokens") != NULL);
}

TEST(tokenizer_directory, every_end_token_ends)
{
    const char *dir = plain_directory();
    token_text(dir, "generation_config.json", "{\"eos_token_id\":[1,3,99,-1,\"x\"]}");
    token_text(dir, "config.json", "{\"eos_token_id\":0,\"text_config\":{\"eos_token_id\":4}}");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK(tokenizer_is_end(t, 0) && tokenizer_is_end(t, 1) && tokenizer_is_end(t, 3));
    CHECK(tokenizer_is_end(t, 4) && !tokenizer_is_end(t, 2));
    CHECK_INT(tokenizer_eos(t), 1);
    tokenizer_close(t);
}

static void check_template(const char *dir, const char *want)
{
    struct chat_defaults chat;
    struct tokenizer *t = token_directory_chat(dir, 0, &chat);
    const char *text = chat.chat_template;
    CHECK(want ? text && strlen(text) == chat.chat_template_len : !text);
    if (want)
        CHECK_STR(text, want);
    chat_defaults_free(&chat);
    tokenizer_close(t);
}

TEST(tokenizer_directory, chat_templates)
{
    const char *dir = plain_directory();
    check_template(dir, NULL);
    token_text(dir, "tokenizer_config.json", "{\"chat_template\":\"one\"}");
    check_template(dir, "one");
    token_text(dir, "tokenizer_config.json",
               "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"tools\"},{\"name\":"
               "\"default\",\"template\":\"two\"},{\"name\":\"rag\",\"template\":\"no\"},{}]}");
    check_template(dir, "two");
    token_text(dir, "chat_template.json", "{\"chat_template\":\"three\"}");
    check_template(dir, "three");
    token_text(dir, "chat_template.jinja", "four");
    check_template(dir, "four");
}

TEST(tokenizer_directory, a_prompt_maker_owns_it)
{
    const char *dir = plain_directory();
    struct prompt_maker maker;
    struct chat_defaults chat;
    struct error err;
    token_text(dir, "chat_template.jinja", "{{ messages[0]['content'] }}");
    CHECK_INT(prompt_maker_open(&maker, token_directory_chat(dir, 0, &chat), &chat, NULL, &err), 0);
    CHECK(maker.chat_template != NULL);
    prompt_maker_close(&maker);
    CHECK_INT(
        prompt_maker_open(&maker, token_directory_chat(dir, 0, &chat), &chat, "no/such/file", &err),
        -1);
}

/* ---- tiktoken ---- */

TEST(tokenizer_directory, tiktoken)
{
    const char *dir = token_directory();
    struct strbuf text = STRBUF_INIT;
    token_text(dir, "x.tiktoken", "YQ== 0\nYg== 1\r\nYWI= 2\nIGFi 3\nIA== 4\nIGE= 5\n");
    CHECK(strstr(refusal(dir, 0), "pat_str") != NULL);
    token_text(
        dir, "tokenizer_config.json",
        "{\"pat_str\":\" ?[a-z]+|\\\\s\",\"eos_token\":\"<e>\",\"added_tokens_decoder\":{\"6\":"
        "{\"content\":\"<e>\",\"special\":true}}}");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab ab abb<e>", TOKENIZE_PARSE_SPECIAL), "2,3,3,1,6");
    CHECK_STR(token_ids(t, " aab", 0), "5,2");
    CHECK(tokenizer_is_end(t, 6));
    tokenizer_decode(t, (int32_t[]){2, 3, 6}, 3, true, &text);
    CHECK_STR(strbuf_str(&text), "ab ab<e>");
    strbuf_free(&text);
    tokenizer_close(t);
    /* The same under SentencePiece's name; damaged ones. */
    token_text(dir, "tokenizer.model", "YQ== 0\nYg== 1\n");
    t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab", 0), "0,1");
    tokenizer_close(t);
    static const char *const damaged[] = {"YQ== 0\nYg==",      "YQ== 0\nYg== x\n",
                                          "YQ== 0\nYg== 0\n",  "YQ== 0\n*** 1\n",
                                          "YQ== 4000000000\n", "YQ== 99999999999999999999\n"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        token_text(dir, "tokenizer.model", damaged[i]);
        CHECK(strstr(refusal(dir, 0), "tokenizer.model") != NULL);
    }
}

/* Kimi's file has another name, and its class says how text is cut. */
TEST(tokenizer_directory, tiktoken_model)
{
    const char *dir = token_directory();
    token_text(dir, "tiktoken.model",
               "YQ== 0\nYg== 1\nYWI= 2\n5ryi 3\n5g== 4\nvKI= 5\nYea8og== 6\n5a2X 7\n5ryi5a2X 8\n");
    CHECK(strstr(refusal(dir, 0), "pat_str") != NULL);
    token_text(dir, "tokenizer_config.json",
               "{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":{\"9\":"
               "{\"content\":\"[EOS]\",\"special\":true}},\"eos_token\":\"[EOS]\"}");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "a漢字[EOS]", TOKENIZE_PARSE_SPECIAL), "0,8,9");
    CHECK_STR(token_ids(t, "ab漢", 0), "2,3");
    CHECK(tokenizer_is_end(t, 9));
    tokenizer_close(t);
}

/* ---- tekken.json ---- */

#define TEKKEN_CONFIG                                                                              \
    "\"config\":{\"pattern\":\" ?[a-z]+|\\\\s\",\"default_vocab_size\":8,"                         \
    "\"default_num_special_tokens\":4}"
#define TEKKEN_VOCAB                                                                               \
    "\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\",\"token_str\":\"a\"},"                        \
    "{\"token_bytes\":\"Yg==\",\"rank\":1},{\"rank\":2,\"token_bytes\":\"IA==\"},"                 \
    "{\"rank\":3,\"token_bytes\":\"YWI=\",\"token_str\":null},"                                    \
    "{\"rank\":4,\"token_bytes\":\"IGFi\"}]"

TEST(tokenizer_directory, tekken)
{
    const char *dir = token_directory();
    struct strbuf text = STRBUF_INIT;
    token_text(dir, "tekken.json",
               "{" TEKKEN_CONFIG "," TEKKEN_VOCAB ",\"image\":{},\"special_tokens\":["
               "{\"rank\":1,\"token_str\":\"<s>\",\"is_control\":true},"
               "{\"rank\":2,\"token_str\":\"</s>\"},"
               "{\"rank\":0,\"token_str\":\"[THINK]\",\"is_control\":false}]}");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_INT(tokenizer_size(t), 8);
    CHECK_INT(tokenizer_bos(t), 1);
    CHECK_INT(tokenizer_eos(t), 2);
    CHECK(tokenizer_is_end(t, 2) && tokenizer_is_special(t, 3) && !tokenizer_is_special(t, 0));
    /* A rank past the model's size does not count: " ab" is not a token. */
    CHECK_STR(token_ids(t, "ab ab</s><SPECIAL_3>", TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL),
              "1,7,6,7,2,3");
    CHECK_STR(token_ids(t, "[THINK]b", 0), "0,5");
    tokenizer_decode(t, (int32_t[]){1, 0, 7, 2}, 4, false, &text);
    CHECK_STR(strbuf_str(&text), "[THINK]ab");
    strbuf_free(&text);
    tokenizer_close(t);
    /* Without a list, they are those of the first version. */
    token_text(dir, "tekken.json", "{" TEKKEN_CONFIG "," TEKKEN_VOCAB ",\"special_tokens\":null}");
    t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "[INST]a</s>", TOKENIZE_PARSE_SPECIAL), "3,4,2");
    tokenizer_close(t);
}

TEST(tokenizer_directory, tekken_is_damaged)
{
    static const char *const damaged[] = {
        "",
        "[]",
        "{",
        "{}",
        "{" TEKKEN_CONFIG "}",
        "{" TEKKEN_VOCAB "," TEKKEN_CONFIG "}",
        "{" TEKKEN_CONFIG "," TEKKEN_CONFIG "," TEKKEN_VOCAB "}",
        "{" TEKKEN_CONFIG "," TEKKEN_VOCAB "," TEKKEN_VOCAB "}",
        "{" TEKKEN_CONFIG "," TEKKEN_VOCAB,
        "{" TEKKEN_CONFIG "," TEKKEN_VOCAB "}x",
        "{" TEKKEN_CONFIG ",\"vocab\":{}}",
        "{" TEKKEN_CONFIG ",\"vocab\":[1]}",
        "{" TEKKEN_CONFIG ",\"vocab\":[{}]}",
        "{" TEKKEN_CONFIG ",\"vocab\":[{\"rank\":0}]}",
        "{" TEKKEN_CONFIG ",\"vocab\":[{\"rank\":-1,\"token_bytes\":\"YQ==\"}]}",
        "{" TEKKEN_CONFIG ",\"vocab\":[{\"rank\":0,\"token_bytes\":\"*\"}]}",
        "{" TEKKEN_CONFIG ",\"vocab\":[{\"rank\":0,\"token_bytes\":\"\"}]}",
        "{" TEKKEN_CONFIG ",\"vocab\":[{\"rank\":0,\"token_bytes\":\"YQ==\"},"
        "{\"rank\":0,\"token_bytes\":\"Yg==\"}]}",
        "{" TEKKEN_CONFIG "," TEKKEN_VOCAB ",\"special_tokens\":{}}",
        "{" TEKKEN_CONFIG "," TEKKEN_VOCAB
        ",\"special_tokens\":[{\"rank\":4,\"token_str\":\"x\"}]}",
        "{" TEKKEN_CONFIG "," TEKKEN_VOCAB ",\"special_tokens\":[{\"rank\":1}]}",
        "{\"config\":{\"default_vocab_size\":8,\"default_num_special_tokens\":4}," TEKKEN_VOCAB "}",
        "{\"config\":{\"pattern\":\"(\",\"default_vocab_size\":8,\"default_num_special_tokens\":4}"
        "," TEKKEN_VOCAB "}",
        "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":3,\"default_num_special_tokens\":4}"
        "," TEKKEN_VOCAB "}",
        "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":99999999999,"
        "\"default_num_special_tokens\":4}," TEKKEN_VOCAB "}",
    };
    const char *dir = token_directory();
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        token_text(dir, "tekken.json", damaged[i]);
        const char *message = refusal(dir, 0);
        if (!strstr(message, "tekken.json"))
            test_fail(__FILE__, __LINE__, "%s: %s", damaged[i], message);
    }
}

/* ---- vocab.json and merges.txt ---- */

TEST(tokenizer_directory, vocab_and_merges)
{
    const char *dir = token_directory();
    token_text(dir, "vocab.json",
               "{\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3,\"\\u0120ab\":4,\"1\":5,\"11\":6,"
               "\"<|endoftext|>\":7}");
    token_text(dir, "merges.txt", "#version: 0.2\na b\r\n\xc4\xa0 ab\n\n1 1");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab ab11<|endoftext|>", TOKENIZE_PARSE_SPECIAL), "3,4,6,7");
    CHECK(tokenizer_is_special(t, 7) && tokenizer_is_end(t, 7));
    tokenizer_close(t);
    /* The class says how numbers are cut; tokens that were added later, and which are special. */
    token_text(dir, "tokenizer_config.json",
               "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"eos_token\":\"<e>\"}");
    token_text(dir, "added_tokens.json", "{\"<e>\":8,\"<x>\":9,\"<y>\":10}");
    token_text(dir, "special_tokens_map.json",
               "{\"additional_special_tokens\":[\"<x>\"],\"eos_token\":{\"content\":\"<e>\"}}");
    t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab11<e><x><y>", TOKENIZE_PARSE_SPECIAL), "3,5,5,8,9,10");
    CHECK(tokenizer_is_special(t, 8) && tokenizer_is_special(t, 9) && !tokenizer_is_special(t, 10));
    CHECK_INT(tokenizer_eos(t), 8);
    tokenizer_close(t);
    token_text(dir, "tokenizer_config.json", "{\"add_prefix_space\":true}");
    t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab", 0), "4");
    tokenizer_close(t);
}

TEST(tokenizer_directory, vocab_and_merges_are_damaged)
{
    static const char *const damaged[][3] = {
        {"[]", "a b", "{}"},
        {"{\"a\":0,", "", "{}"},
        {"{\"a\":0}x", "", "{}"},
        {"{\"a\":0,\"b\":0}", "", "{}"},
        {"{\"a\":0,\"b\":1}", "a b", "{}"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "ab", "{}"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b c", "{}"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a ", "{}"},
        {"{\"a\":0,\"b\":1,\"ab\":2}", " b", "{}"},
        {"{\"a\":0}", "", "{\"x\":\"1\"}"},
        {"{\"a\":0}", "", "{\"x\":99999999}"},
        {"{}", "", "{}"},
    };
    const char *dir = token_directory();
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        token_text(dir, "vocab.json", damaged[i][0]);
        token_text(dir, "merges.txt", damaged[i][1]);
        token_text(dir, "added_tokens.json", damaged[i][2]);
        const char *message = refusal(dir, 0);
        if (!strstr(message, "vocab.json"))
            test_fail(__FILE__, __LINE__, "%zu: %s", i, message);
    }
}

/* ---- SentencePiece ---- */

static void add_varint(struct strbuf *to, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        strbuf_addc(to, (char)(value | 0x80));
    strbuf_addc(to, (char)value);
}

static void add_bytes(struct strbuf *to, unsigned field, const void *bytes, size_t len)
{
    add_varint(to, field << 3 | 2);
    add_varint(to, len);
    strbuf_add(to, bytes, len);
}

static void add_piece(struct strbuf *to, const char *piece, float score, unsigned type)
{
    struct strbuf message = STRBUF_INIT;
    add_bytes(&message, 1, piece, strlen(piece));
    strbuf_addc(&message, 2 << 3 | 5);
    strbuf_add(&message, &score, 4);
    strbuf_addc(&message, 3 << 3);
    add_varint(&message, type);
    add_bytes(to, 1, message.data, message.len);
    strbuf_free(&message);
}

/* <unk> <s> </s> ▁ a b ab ▁a <u>; the trainer's spec and the normalizer's as given. */
static struct strbuf make_model(const char *trainer, size_t trainer_len, const char *normalizer,
                                size_t normalizer_len)
{
    struct strbuf model = STRBUF_INIT;
    add_piece(&model, "<unk>", 0, 2);
    add_piece(&model, "<s>", 0, 3);
    add_piece(&model, "</s>", 0, 3);
    add_piece(&model, "▁", -4, 1);
    add_piece(&model, "a", -5, 1);
    add_piece(&model, "b", -6, 1);
    add_piece(&model, "ab", -1, 1);
    add_piece(&model, "▁a", -2, 1);
    add_piece(&model, "<u>", 0, 4);
    add_bytes(&model, 2, trainer, trainer_len);
    add_bytes(&model, 3, normalizer, normalizer_len);
    return model;
}

#define BPE     "\x18\x02", 2 /* model_type = 2 */
#define UNIGRAM "\x18\x01", 2
#define KEEP    "\x20\x00", 2 /* remove_extra_whitespaces = false */

TEST(tokenizer_directory, sentencepiece)
{
    const char *dir = token_directory();
    struct strbuf model = make_model(BPE, KEEP);
    token_file(dir, "tokenizer.model", model.data, model.len);
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "ab a", TOKENIZE_ADD_SPECIAL), "1,3,6,7");
    CHECK_STR(token_ids(t, "a<u>a</s>b", TOKENIZE_PARSE_SPECIAL), "7,8,4,2,3,5");
    CHECK_STR(token_ids(t, "xxa", 0), "3,0,4");
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_is_end(t, 2));
    struct strbuf text = STRBUF_INIT;
    tokenizer_decode(t, (int32_t[]){1, 7, 7, 5}, 4, false, &text);
    CHECK_STR(strbuf_str(&text), "a ab");
    strbuf_free(&text);
    tokenizer_close(t);
    strbuf_free(&model);
    model = make_model(UNIGRAM, "", 0); /* extra white space goes */
    token_file(dir, "tokenizer.model", model.data, model.len);
    t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "  ab   a ", 0), "3,6,7");
    tokenizer_close(t);
    strbuf_free(&model);
}

/* A charsmap that replaces one byte, as a normalizer_spec. */
static struct strbuf one_rule(unsigned char byte, const char *to)
{
    uint32_t units[512] = {1u << 10};
    struct strbuf map = STRBUF_INIT, spec = STRBUF_INIT;
    units[1 ^ byte] = 1u << 10 | 1u << 8 | byte;
    units[byte] = 1u << 31;
    uint32_t size = sizeof units;
    strbuf_add(&map, &size, sizeof size);
    strbuf_add(&map, units, sizeof units);
    strbuf_add(&map, to, strlen(to) + 1);
    add_bytes(&spec, 2, map.data, map.len);
    strbuf_free(&map);
    return spec;
}

static void write_with_rule(const char *dir, unsigned char byte, const char *to)
{
    struct strbuf spec = one_rule(byte, to), model = make_model(BPE, spec.data, spec.len);
    token_file(dir, "tokenizer.model", model.data, model.len);
    strbuf_free(&spec);
    strbuf_free(&model);
}

/* No rule makes or takes half a character: later steps see valid UTF-8. */
TEST(tokenizer_directory, hostile_charsmaps)
{
    const char *dir = token_directory();
    write_with_rule(dir, 'x', "ab");
    struct tokenizer *t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "xa", 0), "3,6,4");
    tokenizer_close(t);
    write_with_rule(dir, 0xc3, "b"); /* the first half of é */
    t = token_directory_open(dir, 0);
    CHECK_STR(token_ids(t, "aéb", 0), "7,0,5");
    tokenizer_close(t);
    write_with_rule(dir, 'x', "\xff");
    CHECK(strstr(refusal(dir, 0), "not UTF-8") != NULL);
    write_with_rule(dir, 'x', "\xe2\x96");
    CHECK(strstr(refusal(dir, 0), "not UTF-8") != NULL);
    struct strbuf model = make_model(BPE, KEEP);
    add_piece(&model, "\x81", 0, 4);
    token_file(dir, "tokenizer.model", model.data, model.len);
    CHECK(strstr(refusal(dir, 0), "added token 9 is not UTF-8") != NULL);
    strbuf_free(&model);
}

TEST(tokenizer_directory, damaged_sentencepiece_files_are_refused)
{
    const char *dir = token_directory();
    struct strbuf model = make_model(BPE, KEEP);
    /* Cut anywhere but between two fields it is not a message; there it is a smaller one. */
    int n_refused = 0;
    for (size_t len = 0; len < model.len; len++) {
        struct tokenizer *t = NULL;
        struct error err;
        token_file(dir, "tokenizer.model", model.data, len);
        n_refused += tokenizer_open_directory(&t, NULL, dir, 0, &err) != 0;
        tokenizer_close(t);
    }
    CHECK(n_refused >= (int)model.len - 12);
    strbuf_free(&model);
    static const struct {
        const char *bytes;
        size_t len;
    } damaged[] = {
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},     /* a huge length */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}, /* an overlong varint */
        {"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 11},     /* past 64 bits */
        {"\x08\x01", 2},                                          /* pieces as a number */
        {"\x0b\x01", 2},                                          /* a group */
        {"\x02\x00", 2},                                          /* field 0 */
        {"\x0a\x03\x0a\x05z", 5},                                 /* longer than its message */
        {"\x0a\x05\x15\x00\x00\xc0\x7f", 7},                      /* a score that is not a number */
        {"\x0a\x02\x18\x63", 4},                                  /* a type of 99 */
        {"", 0},
    };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        token_file(dir, "tokenizer.model", damaged[i].bytes, damaged[i].len);
        CHECK(strstr(refusal(dir, 0), "tokenizer.model") != NULL);
    }
    static const char *const odd[][2] = {{"\x18\x03", "word"}, {"\x18\x04", "char"}};
    for (size_t i = 0; i < 2; i++) {
        model = make_model(odd[i][0], 2, KEEP);
        token_file(dir, "tokenizer.model", model.data, model.len);
        CHECK(strstr(refusal(dir, 0), odd[i][1]) != NULL);
        strbuf_free(&model);
    }
    model = make_model(BPE, "\x28\x00", 2);
    token_file(dir, "tokenizer.model", model.data, model.len);
    CHECK(strstr(refusal(dir, 0), "escape_whitespaces") != NULL);
    strbuf_free(&model);
    model = make_model(BPE, "\x12\x02zz", 4);
    token_file(dir, "tokenizer.model", model.data, model.len);
    CHECK(strstr(refusal(dir, 0), "charsmap") != NULL);
    strbuf_free(&model);
}
