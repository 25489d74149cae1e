/* The pre-tokenisers alone: where words end. */
#include "test.h"

#include <stdlib.h>

#include "prompt/tokenizer_internal.h"

static struct pre_tokenizer *open_pre(const char *name, struct pre_options *options)
{
    struct pre_tokenizer *pre = NULL;
    struct error err = {0};
    struct gguf_string string = {name, strlen(name)};
    if (pre_tokenizer_open(&pre, string, "a file", options, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return pre;
}

/* The words of the text, with a bar between. */
static void check_words(const char *name, const char *text, const char *expected)
{
    struct pre_options options;
    struct tokenizer t = {.pre = open_pre(name, &options)};
    struct error err = {0};
    struct encoder e = {.t = &t, .err = &err};
    struct strbuf words = STRBUF_INIT;
    size_t len = strlen(text);
    for (size_t at = 0, end; at < len; at = end) {
        end = pre_tokenizer_word(&e, text, len, at);
        CHECK(end > at && end <= len);
        strbuf_addf(&words, "%s%.*s", at ? "|" : "", (int)(end - at), text + at);
    }
    CHECK_STR(strbuf_str(&words), expected);
    strbuf_free(&words);
    encoder_close(&e);
    pre_tokenizer_close(t.pre);
}

TEST(tokenizer_pre, numbers)
{
    check_words("gpt2", "a 12345 6", "a| 12345| 6");
    check_words("smollm", "a 123 ½", "a| |1|2|3| |½");
    check_words("qwen2", "a 12345", "a| |1|2|3|4|5");
    check_words("llama-bpe", "a 12345", "a| |123|45");
}

TEST(tokenizer_pre, spaces)
{
    check_words("gpt2", "a   b  ", "a|  | b|  ");
    check_words("gpt2", "a   1", "a|  | 1");
    check_words("smollm", "a   1", "a|   |1"); /* a digit is cut out first */
    check_words("smollm", "a   b", "a|  | b");
    check_words("qwen2", "a \n \n b\n", "a| \n \n| b|\n");
    check_words("qwen2", "x!!\n\ny", "x|!!\n\n|y");
    check_words("gpt2", "x!!\n\ny", "x|!!|\n|\n|y");
}

TEST(tokenizer_pre, spaces_are_those_of_unicode)
{
    check_words("gpt2", "a\u3000\u3000b", "a|\u3000|\u3000|b");
    check_words("gpt2", "!\xc2\x85!", "!|\xc2\x85|!");
    check_words("gpt2", "!\xc2\xa0!", "!|\xc2\xa0|!");
    check_words("gpt2", "!\u180e\u200b\x1c!", "!\u180e\u200b\x1c!"); /* none of these is one */
}

TEST(tokenizer_pre, contractions)
{
    check_words("gpt2", "it's IT'S we'll", "it|'s| IT|'|S| we|'ll");
    check_words("qwen2", "it's IT'S we'LL it'ſ", "it|'s| IT|'S| we|'LL| it|'ſ");
    check_words("qwen2", "(word) _x", "(word|)| _|x");
}

/* Assigned after Unicode 14, which is as far as some versions of PCRE2 go. */
TEST(tokenizer_pre, letters_and_numbers_of_unicode_16)
{
    check_words("gpt2", "a\U00031350\U0001e030!", "a\U00031350\U0001e030|!");
    check_words("gpt2", "1\U00010d40!", "1\U00010d40|!");
    check_words("smollm", "\U00011bf0\U00011bf1 \U00011de0!",
                "\U00011bf0|\U00011bf1| |\U00011de0|!");
}

TEST(tokenizer_pre, options)
{
    const char *const names[] = {"default", "gpt2",      "gpt-2",  "smollm",
                                 "qwen2",   "llama-bpe", "llama3", "llama-v3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pre_options options;
        pre_tokenizer_close(open_pre(names[i], &options));
        CHECK_INT(options.add_bos, i >= 5);
        CHECK_INT(options.ignore_merges, i >= 5);
    }
}

/* PCRE2's usual limit on backtracking would refuse this. */
TEST(tokenizer_pre, twelve_million_spaces)
{
    size_t len = 12000000;
    char *text = malloc(len);
    struct pre_options options;
    struct tokenizer t = {.pre = open_pre("qwen2", &options)};
    struct error err = {0};
    struct encoder e = {.t = &t, .err = &err};
    memset(text, ' ', len);
    text[len - 1] = 'x';
    CHECK_INT(pre_tokenizer_word(&e, text, len, 0), len - 2);
    CHECK_INT(pre_tokenizer_word(&e, text, len, len - 2), len);
    encoder_close(&e);
    pre_tokenizer_close(t.pre);
    free(text);
}
