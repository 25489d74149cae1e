/* Encodes any text with any pre-tokeniser: the ids are in range and decode to the same bytes.
 * Byte-level BPE gives the same ids as splitting the text with a regular expression and merging
 * each word on its own. The first byte of the input chooses the model and the flags. UTF-8 streams
 * get the text too, split where the second byte says, and must give valid UTF-8. */
#include <stdlib.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "prompt/tokenizer/tokenizer_internal.h"
#include "prompt/unicode/utf8_stream.h"
#include "test_tokenizer_model.h"
#include "test_tokenizer_regex.h"

enum { N_MODELS = 6 };
static struct tokenizer *models[N_MODELS];
static struct regex_pre regexes[N_REGEX_PRES]; /* of models[1] on */

static struct tokenizer *open_model(struct vocab *v)
{
    char path[] = "/tmp/fuzz_tokenizer.XXXXXX";
    struct tokenizer *t = NULL;
    struct error err = {0};
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    if (vocab_open(v, path, &t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return t;
}

static struct tokenizer *open_bpe(const char *pre)
{
    static const char *const merges[] = {"a a", "aa aa", "Ġ a", "Ġ Ġ", "ĠĠ ĠĠ", "a b",   "ab a",
                                         "Ċ Ċ", "1 2",   "à ©", "' s", "b a",   "ba ba", "= ="};
    struct vocab v = {.model = "gpt2", .pre = pre};
    vocab_bytes(&v);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        const char *space = strchr(merges[i], ' ');
        char token[32];
        snprintf(token, sizeof token, "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        vocab_token(&v, token, 1);
        vocab_merge(&v, merges[i]);
    }
    vocab_token(&v, "<|im_end|>", 3);
    vocab_token(&v, "<|im_", 3);
    vocab_token(&v, "<tool>", 4);
    struct tokenizer *t = open_model(&v);
    t->n_normal = 0; /* this fuzzer compares words and round trips */
    return t;
}

static struct tokenizer *open_spm(void)
{
    static const char *const tokens[] = {"▁", "a", "b", "ab", "▁a", "▁▁", "aba", "▁▁▁▁", "é"};
    struct vocab v = {.model = "llama"};
    vocab_token(&v, "<unk>", 2);
    vocab_token(&v, "<s>", 3);
    vocab_token(&v, "</s>", 3);
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelling[8];
        snprintf(spelling, sizeof spelling, "<0x%02X>", byte);
        vocab_token(&v, spelling, 6);
    }
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        vocab_add(&v, tokens[i], strlen(tokens[i]), 1, (float)(i % 4));
    return open_model(&v);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct error err;
    CHECK(tokenizer_open_bytes(&models[0], NULL, &err) == 0);
    for (int i = 0; i < N_REGEX_PRES; i++) {
        models[1 + i] = open_bpe(regex_pres[i].name);
        regex_pre_open(&regexes[i], i);
    }
    models[5] = open_spm();
    return 0;
}

static void check_round_trip(const struct tokenizer *t, const char *text, size_t len, int flags)
{
    struct token_list ids = {0};
    struct strbuf out = STRBUF_INIT;
    struct error err;
    CHECK(tokenizer_encode(t, text, len, flags, &ids, &err) == 0);
    for (size_t i = 0; i < ids.len; i++)
        CHECK(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < tokenizer_size(t));
    tokenizer_decode(t, ids.ids, ids.len, true, &out);
    CHECK(out.len == len && (len == 0 || memcmp(out.data, text, len) == 0));
    strbuf_free(&out);
    token_list_free(&ids);
}

/* The expression splits runs of valid UTF-8; each run of other bytes is one word. */
static void check_words(const struct tokenizer *t, struct regex_pre *regex, const char *text,
                        size_t len)
{
    struct token_list ids = {0}, expected = {0};
    struct error err;
    struct encoder e = {.t = t, .out = &expected, .err = &err};
    for (size_t at = 0, end, width; at < len; at = end) {
        for (end = at; end < len && (width = utf8_valid_prefix(text + end, len - end)) > 0;)
            end += width;
        for (size_t word = 0, next; word < end - at; word = next) {
            next = regex_pre_word(regex, text + at, end - at, word);
            CHECK(encode_new_word(&e, text + at + word, next - word) == 0);
        }
        for (at = end; end < len && utf8_valid_prefix(text + end, len - end) == 0;)
            end++;
        CHECK(end == at || encode_new_word(&e, text + at, end - at) == 0);
    }
    CHECK(tokenizer_encode(t, text, len, 0, &ids, &err) == 0);
    CHECK(ids.len == expected.len);
    CHECK(ids.len == 0 || memcmp(ids.ids, expected.ids, ids.len * sizeof *ids.ids) == 0);
    encoder_close(&e);
    token_list_free(&ids);
    token_list_free(&expected);
}

static void check_stream(const char *text, size_t len, size_t step)
{
    struct utf8_stream stream = {0};
    struct strbuf out = STRBUF_INIT;
    for (size_t at = 0; at < len; at += step)
        utf8_stream_add(&stream, text + at, len - at < step ? len - at : step, &out);
    utf8_stream_end(&stream, &out);
    for (size_t at = 0, width; at < out.len; at += width)
        CHECK((width = utf8_valid_prefix(out.data + at, out.len - at)) > 0);
    strbuf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    unsigned model = data[0] % N_MODELS;
    bool spm = model == N_MODELS - 1;
    const char *text = (const char *)data + 2;
    size_t len = size - 2;
    check_stream(text, len, 1 + data[1] % 16);
    if (model > 0 && !spm && regex_is_reference() && !memmem(text, len, "<tool>", 6))
        check_words(models[model], &regexes[model - 1], text, len);
    /* SentencePiece adds a space after a special token, and decodes U+2581 as a space. */
    if (!spm)
        check_round_trip(models[model], text, len, data[0] & 128 ? TOKENIZE_PARSE_SPECIAL : 0);
    else if (!memmem(text, len, "▁", 3))
        check_round_trip(models[model], text, len, 0);
    return 0;
}
