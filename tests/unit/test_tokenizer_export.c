/* Tokenizers of directories as keys of a GGUF file: read back, they give the same ids, decode the
 * same and end at the same tokens. */
#include "test.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "prompt/tokenizer/export.h"
#include "prompt/tokenizer/tokenizer_internal.h"
#include "test_memory.h"
#include "token_directory.h"

/* A file's head in memory, as it would be written. */
struct head {
    char *bytes;
    size_t len;
    struct gguf gguf;
};

static void head_open(struct head *h, const struct gguf_writer *w)
{
    struct error err;
    FILE *out = open_memstream(&h->bytes, &h->len);
    CHECK(out && gguf_write_head(w, out, "head", &err) == 0 && fclose(out) == 0);
    if (gguf_open_memory(&h->gguf, "head", h->bytes, h->len, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

static void head_close(struct head *h)
{
    gguf_close(&h->gguf);
    free(h->bytes);
}

/* A tokenizer with what its files say beside it. */
struct read {
    struct tokenizer *t;
    struct chat_defaults chat;
};

static struct read directory_read(const char *dir, uint32_t n_vocab)
{
    struct read r;
    r.t = token_directory_chat(dir, n_vocab, &r.chat);
    return r;
}

static void read_close(struct read *r)
{
    tokenizer_close(r->t);
    chat_defaults_free(&r->chat);
}

/* Writes the directory's tokenizer and reads it back. */
static struct read written_and_read(const char *dir, uint32_t n_vocab, bool *has_json,
                                    enum tokenizer_written *written)
{
    struct gguf_writer w = {0};
    struct head head;
    struct read r;
    struct error err;
    if (tokenizer_export(dir, n_vocab, &w, written, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    head_open(&head, &w);
    *has_json = gguf_find(&head.gguf, "tokenizer.huggingface.json") != NULL;
    if (tokenizer_open(&r.t, &r.chat, &head.gguf, &err))
        test_fail(__FILE__, __LINE__, "%s", err.message);
    head_close(&head);
    gguf_writer_free(&w);
    return r;
}

static void check_text(const struct tokenizer *a, const struct tokenizer *b, const char *text,
                       size_t len)
{
    static const int flags[] = {0, TOKENIZE_PARSE_SPECIAL,
                                TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL};
    struct error err;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct token_list x = {0}, y = {0};
        struct strbuf p = STRBUF_INIT, q = STRBUF_INIT;
        CHECK_INT(tokenizer_encode(a, text, len, flags[i], &x, &err), 0);
        CHECK_INT(tokenizer_encode(b, text, len, flags[i], &y, &err), 0);
        bool same = x.len == y.len && (x.len == 0 || !memcmp(x.ids, y.ids, x.len * sizeof *x.ids));
        if (!same)
            test_fail(__FILE__, __LINE__, "\"%.*s\" has other ids", (int)len, text);
        for (int special = 0; special < 2; special++) {
            strbuf_clear(&p);
            strbuf_clear(&q);
            tokenizer_decode(a, x.ids, x.len, special, &p);
            tokenizer_decode(b, x.ids, x.len, special, &q);
            CHECK_STR(strbuf_str(&q), strbuf_str(&p));
        }
        token_list_free(&x);
        token_list_free(&y);
        strbuf_free(&p);
        strbuf_free(&q);
    }
}

static void check_same(const struct read *from, const struct read *to)
{
    const struct tokenizer *a = from->t, *b = to->t;
    CHECK_INT(tokenizer_size(b), tokenizer_size(a));
    CHECK_INT(tokenizer_bos(b), tokenizer_bos(a));
    CHECK_INT(tokenizer_eos(b), tokenizer_eos(a));
    CHECK_INT(tokenizer_adds_space(b), tokenizer_adds_space(a));
    for (uint32_t id = 0; id < tokenizer_size(a); id++) {
        CHECK_INT(tokenizer_is_end(b, (int32_t)id), tokenizer_is_end(a, (int32_t)id));
        CHECK_INT(tokenizer_is_special(b, (int32_t)id), tokenizer_is_special(a, (int32_t)id));
    }
    const char *template = from->chat.chat_template, *other = to->chat.chat_template;
    CHECK(!template == !other);
    if (template)
        CHECK_STR(other, template);
}

static void check_golden(const char *line, size_t len)
{
    struct arena arena = ARENA_INIT;
    struct strbuf text = STRBUF_INIT;
    struct error err;
    enum tokenizer_written written;
    bool has_json;
    const struct json *root = json_parse(&arena, line, len, &err);
    CHECK(root != NULL);
    const char *dir = token_directory();
    json_write(&text, json_get(root, "tokenizer"));
    token_file(dir, "tokenizer.json", text.data, text.len);
    struct tokenizer *a = token_directory_open(dir, 0);
    struct read b = written_and_read(dir, tokenizer_size(a) + 3, &has_json, &written);
    struct read wide = directory_read(dir, tokenizer_size(a) + 3);
    CHECK(written != TOKENIZER_NONE);
    check_same(&wide, &b);
    json_each (item, json_get(root, "cases"))
        check_text(wide.t, b.t, item->first->text, item->first->text_len);
    tokenizer_close(a);
    read_close(&b);
    read_close(&wide);
    strbuf_free(&text);
    arena_free(&arena);
}

TEST(tokenizer_export, every_step_comes_back)
{
    struct strbuf file = STRBUF_INIT;
    struct error err;
    CHECK_INT(file_read("tests/unit/data/tokenizer_json.jsonl", 0, &file, &err), 0);
    size_t n = 0;
    for (const char *line = strbuf_str(&file), *end; (end = strchr(line, '\n'));
         line = end + 1, n++)
        check_golden(line, (size_t)(end - line));
    CHECK(n > 20);
    strbuf_free(&file);
}

#define BYTES                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<s>\":2,\"</"                        \
    "s>\":3,\"ab\":4,\"Ġ\":5,"                                                                    \
    "\"Ċ\":6,\"Ã\":7,\"©\":8,\"Ã©\":9},\"merges\":[\"a b\",[\"Ã\",\"©\"]]},"                \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"                       \
    "\"decoder\":{\"type\":\"ByteLevel\"}"

static const char *byte_directory(const char *more)
{
    const char *dir = token_directory();
    struct strbuf text = STRBUF_INIT;
    strbuf_addf(&text, "{" BYTES "%s}", more);
    token_text(dir, "tokenizer.json", strbuf_str(&text));
    strbuf_free(&text);
    token_text(dir, "chat_template.jinja", "{{ messages }} é");
    token_text(dir, "tokenizer_config.json",
               "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true,"
               "\"added_tokens_decoder\":{\"12\":{\"content\":\"<x>\",\"special\":true},\"10\":{"
               "\"content\":\"<y>\"},\"11\":{\"content\":\"<z>\",\"special\":true}}}");
    token_text(dir, "generation_config.json", "{\"eos_token_id\":[11,3,12]}");
    return dir;
}

static void check_directory(const char *dir, bool wants_json)
{
    static const char *const texts[] = {"ab a\nb", "a<x>b<y> <z>", "<s>é</s>abé", "", "\xff\xfe"};
    enum tokenizer_written written;
    bool has_json;
    struct read a = directory_read(dir, 20);
    struct read b = written_and_read(dir, 20, &has_json, &written);
    CHECK_INT(has_json, wants_json);
    CHECK_INT(written, TOKENIZER_KNOWN);
    check_same(&a, &b);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_text(a.t, b.t, texts[i], strlen(texts[i]));
    size_t len;
    tokenizer_bytes(b.t, 17, &len);
    CHECK_INT(len, 0);
    read_close(&a);
    read_close(&b);
}

/* Added tokens of tokenizer_config.json, three ends, ids without a token. */
TEST(tokenizer_export, keys_alone_where_they_say_it_all)
{
    check_directory(byte_directory(""), false);
}

TEST(tokenizer_export, tokenizer_json_where_they_do_not)
{
    check_directory(byte_directory(",\"added_tokens\":[{\"id\":10,\"content\":\"<y>\",\"lstrip\":"
                                   "true,\"special\":false}]"),
                    true);
    /* No list of added tokens in it, but a template that puts two tokens in front. */
    const char *dir = byte_directory(
        ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
        "\"id\":"
        "\"<s>\"}},{\"SpecialToken\":{\"id\":\"</s>\"}},{\"Sequence\":{\"id\":\"A\"}}],"
        "\"special_tokens\":{\"<s>\":{\"ids\":[2]},\"</s>\":{\"ids\":[3]}}}");
    token_text(dir, "tokenizer_config.json",
               "{\"eos_token\":\"</s>\",\"added_tokens_decoder\":{\"5\":{\"content\":\"<new>\"}}}");
    token_text(dir, "generation_config.json", "{}");
    check_directory(dir, true);
}

TEST(tokenizer_export, a_directory_without_one)
{
    struct gguf_writer w = {0};
    struct error err;
    enum tokenizer_written written;
    struct head head;
    struct byte_view model;
    CHECK_INT(tokenizer_export(token_directory(), 5, &w, &written, &err), 0);
    CHECK_INT(written, TOKENIZER_NONE);
    head_open(&head, &w);
    CHECK(gguf_get_string(&head.gguf, "tokenizer.ggml.model", &model) && model.len == 4 &&
          !memcmp(model.bytes, "none", 4));
    struct tokenizer *t = NULL;
    CHECK_INT(tokenizer_open(&t, NULL, &head.gguf, &err), -1);
    head_close(&head);
    gguf_writer_free(&w);
}

TEST(tokenizer_export, what_only_tokenizer_json_could_say_is_refused)
{
    const char *dir = token_directory();
    struct gguf_writer w = {0};
    struct error err;
    enum tokenizer_written written;
    token_text(dir, "x.tiktoken", "YQ== 0\nYg== 1\r\nYWI= 2\nIGFi 3\nIA== 4\nIGE= 5\n");
    token_text(dir, "tokenizer_config.json", "{\"pat_str\":\" ?[a-z]+\"}");
    CHECK_INT(tokenizer_export(dir, 0, &w, &written, &err), -1);
    CHECK(strstr(err.message, dir) && strstr(err.message, "tokenizer.json"));
    gguf_writer_free(&w);
}

TEST(tokenizer_export, no_memory)
{
    const char *dir = byte_directory(",\"added_tokens\":[{\"id\":10,\"content\":\"<y>\",\"lstrip\":"
                                     "true,\"special\":false}]");
    int failed = -1;
    for (uint32_t n = 0; failed && n < 2000; n++) {
        struct gguf_writer w = {0};
        struct error err = {0};
        enum tokenizer_written written;
        memory_ends_after(n);
        failed = tokenizer_export(dir, 20, &w, &written, &err);
        memory_is_back();
        if (failed)
            CHECK_INT(err.code, ERROR_MEMORY);
        failed = failed || w.values.failed;
        gguf_writer_free(&w);
    }
    CHECK_INT(failed, 0);
}

TEST(tokenizer_export, a_json_in_a_file_is_not_trusted)
{
    static const char *const bad[] = {"", "{", "[]", "{}", "{\"model\":{}}", "{" BYTES ",\"x\":1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct gguf_writer w = {0};
        struct head head;
        struct tokenizer *t = NULL;
        struct error err = {0};
        gguf_add_string(&w, "tokenizer.huggingface.json", bad[i], strlen(bad[i]));
        head_open(&head, &w);
        CHECK_INT(tokenizer_open(&t, NULL, &head.gguf, &err), -1);
        CHECK(t == NULL && strstr(err.message, "head"));
        head_close(&head);
        gguf_writer_free(&w);
    }
}
