/* The pre-tokenisers alone: where words end, by hand and by the regular expressions that they
 * implement. */
#include "test.h"

#include <glob.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "prompt/tokenizer/families.h"
#include "test_tokenizer_regex.h"

/* The scanner of a family that has one; it must do everything that the family does. */
static struct pre_tokenizer *open_pre(const char *name)
{
    struct error err = {0};
    const struct pre_family *family = pre_family_find(name, strlen(name));
    struct tokenizer *t = tokenizer_new(TOKENIZER_BPE, 1, &err);
    if (!family || !t || pre_family_apply(family, t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    CHECK_INT(t->n_pre, 1);
    CHECK_INT(t->pre[0].kind, PRE_SCAN);
    struct pre_tokenizer *pre = t->pre[0].scanner;
    t->pre[0].scanner = NULL;
    tokenizer_close(t);
    return pre;
}

/* The words of the text, with a bar between. */
static void check_words(const char *name, const char *text, const char *expected)
{
    struct pre_tokenizer *pre = open_pre(name);
    struct strbuf words = STRBUF_INIT;
    size_t len = strlen(text);
    for (size_t at = 0, end; at < len; at = end) {
        end = pre_tokenizer_word(pre, text, len, at);
        CHECK(end > at && end <= len);
        strbuf_addf(&words, "%s%.*s", at ? "|" : "", (int)(end - at), text + at);
    }
    CHECK_STR(strbuf_str(&words), expected);
    strbuf_free(&words);
    pre_tokenizer_close(pre);
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

/* Assigned after Unicode 14. */
TEST(tokenizer_pre, letters_and_numbers_of_unicode_16)
{
    check_words("gpt2", "a\U00031350\U0001e030!", "a\U00031350\U0001e030|!");
    check_words("gpt2", "1\U00010d40!", "1\U00010d40|!");
    check_words("smollm", "\U00011bf0\U00011bf1 \U00011de0!",
                "\U00011bf0|\U00011bf1| |\U00011de0|!");
}

TEST(tokenizer_pre, twelve_million_spaces)
{
    size_t len = 12000000;
    char *text = malloc(len);
    struct pre_tokenizer *pre = open_pre("qwen2");
    memset(text, ' ', len);
    text[len - 1] = 'x';
    CHECK_INT(pre_tokenizer_word(pre, text, len, 0), len - 2);
    CHECK_INT(pre_tokenizer_word(pre, text, len, len - 2), len);
    pre_tokenizer_close(pre);
    free(text);
}

/* ---- against the regular expressions ---- */

/* Scanners and expressions of each kind. */
struct both {
    struct pre_tokenizer *pre[N_REGEX_PRES];
    struct regex_pre regex[N_REGEX_PRES];
};

static void both_open(struct both *b)
{
    for (int i = 0; i < N_REGEX_PRES; i++) {
        b->pre[i] = open_pre(regex_pres[i].name);
        regex_pre_open(&b->regex[i], i);
    }
}

static void both_close(struct both *b)
{
    for (int i = 0; i < N_REGEX_PRES; i++) {
        pre_tokenizer_close(b->pre[i]);
        regex_pre_close(&b->regex[i]);
    }
}

/* The text is in memory of exactly its size, so that a read past its end is noticed. */
static void check_equal(struct both *b, const char *text, size_t len)
{
    char *own = malloc(len ? len : 1);
    memcpy(own, text, len);
    for (int i = 0; i < N_REGEX_PRES; i++)
        for (size_t at = 0, end; at < len; at = end) {
            end = pre_tokenizer_word(b->pre[i], own, len, at);
            size_t expected = regex_pre_word(&b->regex[i], own, len, at);
            if (end != expected)
                test_fail(__FILE__, __LINE__,
                          "%s: in \"%.*s\" the word at %zu ends at %zu, not %zu",
                          regex_pres[i].name, (int)len, own, at, end, expected);
        }
    free(own);
}

/* Each character next to others of every class, and next to itself. */
TEST(tokenizer_pre, every_character_as_in_the_regex)
{
    if (!regex_is_reference())
        SKIP("this PCRE2 knows characters that came later");
    struct both b;
    struct strbuf text = STRBUF_INIT;
    both_open(&b);
    /* Past the third plane there are only tags and private characters. */
    for (uint32_t code = 0; code < 0x33480; code++) {
        char utf8[4];
        size_t width = utf8_encode(code, utf8);
        if (code >= 0xd800 && code < 0xe000)
            continue;
        strbuf_clear(&text);
        for (const char *beside = "a1! \n'"; *beside; beside++) {
            strbuf_add(&text, utf8, width);
            strbuf_addc(&text, *beside);
        }
        strbuf_add(&text, utf8, width);
        strbuf_add(&text, utf8, width);
        check_equal(&b, text.data, text.len);
    }
    strbuf_free(&text);
    both_close(&b);
}

TEST(tokenizer_pre, random_texts_as_in_the_regex)
{
    if (!regex_is_reference())
        SKIP("this PCRE2 knows characters that came later");
    static const char *const pieces[] = {
        " ",    " ",      "  ",     "\n",       "\r",     "\r\n",   "\t",     "\f", "\v", "a",
        "b",    "S",      "t",      "re",       "Ve",     "LL",     "d",      "m",  "'",  "'",
        "'s",   "'Ll",    "'ſ",     "1",        "22",     "3",      ".",      "!!", "_",  "é",
        "日",   "\u3000", "\u00a0", "\xc2\x85", "½",      "٣",      "😀",      "̈",   "ſ",  "K",
        "\x01", "\x7f",   "𑷠",   "𝟙",        "\u2028", "\u180e", "\ufeff",
    };
    enum { N_PIECES = sizeof pieces / sizeof *pieces };
    struct both b;
    struct strbuf text = STRBUF_INIT;
    both_open(&b);
    for (uint64_t round = 0; round < 20000; round++) {
        strbuf_clear(&text);
        for (uint64_t i = 0, n = 1 + hash_pair(round, 0) % 16; i < n; i++) {
            uint64_t random = hash_pair(round, 1 + i);
            char utf8[4];
            uint32_t code = (uint32_t)(random >> 16) % 0x110000;
            if (random % 16 == 0 && !(code >= 0xd800 && code < 0xe000))
                strbuf_add(&text, utf8, utf8_encode(code, utf8));
            else
                strbuf_adds(&text, pieces[random % N_PIECES]);
        }
        check_equal(&b, strbuf_str(&text), text.len);
    }
    strbuf_free(&text);
    both_close(&b);
}

/* Real text: this repository. */
TEST(tokenizer_pre, documents_and_sources_as_in_the_regex)
{
    static const char *const patterns[] = {"*.md", "docs/*.md", "src/prompt/*.[ch]",
                                           "src/prompt/*/*.[ch]",
                                           "tests/unit/data/tokenizer_*.txt"};
    struct both b;
    struct strbuf text = STRBUF_INIT;
    size_t n_files = 0;
    both_open(&b);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found;
        CHECK_INT(glob(patterns[i], 0, NULL, &found), 0);
        for (size_t k = 0; k < found.gl_pathc; k++, n_files++) {
            struct error err = {0};
            CHECK_INT(file_read(found.gl_pathv[k], 1 << 24, &text, &err), 0);
            check_equal(&b, strbuf_str(&text), text.len);
            strbuf_clear(&text);
        }
        globfree(&found);
    }
    CHECK(n_files > 30);
    strbuf_free(&text);
    both_close(&b);
}
