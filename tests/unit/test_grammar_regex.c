/* Regular expressions as whole texts, and lists of choices. */
#include "prompt/grammar/text_grammar.h"

#include <stdlib.h>

#include "grammar_texts.h"
#include "test.h"
#include "test_memory.h"

TEST(grammar_regex, characters_and_escapes)
{
    CHECK_TEXTS(TEXTS_REGEX, "a\\.b\\n\\t\\x41\\u00e9\\u{1F642}\\ud83d\\ude42\\/\\-",
                TEXTS("a.b\n\tA\u00e9\U0001F642\U0001F642/-"), TEXTS("axb"));
    CHECK_TEXTS(TEXTS_REGEX, "\\d\\w\\s\\D\\W\\S", TEXTS("1_ x-y", "9Z\tー é", "1_\u00a0x-y"),
                TEXTS("1_ 1-y", "1_ x-\u2003", "١_ x-y"));
    CHECK_TEXTS(TEXTS_REGEX, "a.c", TEXTS("abc", "a東c"), TEXTS("a\nc", "a\rc", "ac"));
    CHECK_TEXTS(TEXTS_REGEX, "", TEXTS(""), TEXTS("a"));
    CHECK_TEXTS(TEXTS_REGEX, "x{,y}{", TEXTS("x{,y}{"), TEXTS("x"));
    CHECK_TEXTS(TEXTS_REGEX, "\\p{L}\\p{N}", TEXTS("é1", "東²"), TEXTS("-1", "a-"));
    CHECK_TEXTS(TEXTS_REGEX, "\\P{L}", TEXTS("1", " "), TEXTS("a"));
}

TEST(grammar_regex, classes)
{
    CHECK_TEXTS(TEXTS_REGEX, "[a-c\\d_-]+", TEXTS("a1_-c"), TEXTS("d", ""));
    CHECK_TEXTS(TEXTS_REGEX, "[^a-c\\s]", TEXTS("d", "é"), TEXTS("a", " ", "\u00a0"));
    CHECK_TEXTS(TEXTS_REGEX, "[\\]\\\\^-]", TEXTS("]", "\\", "^", "-"), TEXTS("a"));
    CHECK_TEXTS(TEXTS_REGEX, "[\\w.]+@[\\w.]+", TEXTS("a.b@c.de"), TEXTS("a@"));
    CHECK_TEXTS(TEXTS_REGEX, "[^]", TEXTS("a", "\n"), TEXTS(""));
    CHECK_TEXTS(TEXTS_REGEX, "[\\b]", TEXTS("\b"), TEXTS("b"));
    CHECK_TEXTS(TEXTS_REGEX, "[a-\\d]+", TEXTS("a-1"), TEXTS("b"));
}

TEST(grammar_regex, groups_and_quantifiers)
{
    CHECK_TEXTS(TEXTS_REGEX, "(a|bc)(?:d|e)?(?P<x>f)(?<y>g)*", TEXTS("adf", "bcefgg", "af"),
                TEXTS("ad", "abf"));
    CHECK_TEXTS(TEXTS_REGEX, "a{2}b{1,}?c{0,2}d*?e+?f??", TEXTS("aabe", "aabbccdeef"),
                TEXTS("abe", "aabccce", "aabce\n"));
    CHECK_TEXTS(TEXTS_REGEX, "a{,2}", TEXTS("", "a", "aa"), TEXTS("aaa"));
    CHECK_TEXTS(TEXTS_REGEX, "(a*)*b(c?){3}", TEXTS("b", "aabccc"), TEXTS("bcccc"));
    CHECK_TEXTS(TEXTS_REGEX, "a|", TEXTS("a", ""), TEXTS("b"));
}

TEST(grammar_regex, anchors)
{
    CHECK_TEXTS(TEXTS_REGEX, "^ab$", TEXTS("ab"), TEXTS("xab", "abx", "ab\n"));
    CHECK_TEXTS(TEXTS_REGEX, "^a|b$", TEXTS("a", "b"), TEXTS("ab", "ax"));
    CHECK_TEXTS(TEXTS_REGEX, "(^a|b)(c$|d)", TEXTS("ac", "bd", "ad"), TEXTS("acd", "xad"));
    CHECK_TEXTS(TEXTS_REGEX, "\\Aa\\Z", TEXTS("a"), TEXTS("aa"));
    CHECK_TEXTS(TEXTS_REGEX, "^^a$$", TEXTS("a"), TEXTS(""));
    CHECK_ERROR(TEXTS_REGEX, "a^b", ERROR_INPUT, "'^' in the middle");
    CHECK_ERROR(TEXTS_REGEX, "a$b", ERROR_INPUT, "'$' in the middle");
    CHECK_ERROR(TEXTS_REGEX, "(^a)*", ERROR_INPUT, "repeated");
}

TEST(grammar_regex, refused_by_name)
{
    CHECK_ERROR(TEXTS_REGEX, "a(?=b)", ERROR_INPUT, "look-around is not supported at byte 1");
    CHECK_ERROR(TEXTS_REGEX, "(?!a)b", ERROR_INPUT, "look-around");
    CHECK_ERROR(TEXTS_REGEX, "(?<=a)b", ERROR_INPUT, "look-around");
    CHECK_ERROR(TEXTS_REGEX, "(?<!a)b", ERROR_INPUT, "look-around");
    CHECK_ERROR(TEXTS_REGEX, "(a)\\1", ERROR_INPUT, "back references");
    CHECK_ERROR(TEXTS_REGEX, "(?P<x>a)(?P=x)", ERROR_INPUT, "back references");
    CHECK_ERROR(TEXTS_REGEX, "\\bword\\b", ERROR_INPUT, "word boundaries");
    CHECK_ERROR(TEXTS_REGEX, "a++", ERROR_INPUT, "possessive");
    CHECK_ERROR(TEXTS_REGEX, "(?>a)", ERROR_INPUT, "atomic");
    CHECK_ERROR(TEXTS_REGEX, "(?i)a", ERROR_INPUT, "inline flags");
    CHECK_ERROR(TEXTS_REGEX, "\\p{Greek}", ERROR_INPUT, "\\p{...} is not supported");
    CHECK_ERROR(TEXTS_REGEX, "[[:alpha:]]", ERROR_INPUT, "POSIX");
}

TEST(grammar_regex, what_is_wrong_is_said)
{
    CHECK_ERROR(TEXTS_REGEX, "(a", ERROR_INPUT, "no closing ')' at byte 0");
    CHECK_ERROR(TEXTS_REGEX, "a)", ERROR_INPUT, "unmatched ')' at byte 1");
    CHECK_ERROR(TEXTS_REGEX, "[a", ERROR_INPUT, "no closing ']'");
    CHECK_ERROR(TEXTS_REGEX, "*a", ERROR_INPUT, "nothing before it");
    CHECK_ERROR(TEXTS_REGEX, "a**", ERROR_INPUT, "cannot follow another");
    CHECK_ERROR(TEXTS_REGEX, "a{3,2}", ERROR_INPUT, "wrong way round");
    CHECK_ERROR(TEXTS_REGEX, "[z-a]", ERROR_INPUT, "wrong way round");
    CHECK_ERROR(TEXTS_REGEX, "a\\", ERROR_INPUT, "backslash at the end");
    CHECK_ERROR(TEXTS_REGEX, "\\x4", ERROR_INPUT, "hexadecimal");
    CHECK_ERROR(TEXTS_REGEX, "\\u{110000}", ERROR_INPUT, "no such code point");
    CHECK_ERROR(TEXTS_REGEX, "\\q", ERROR_INPUT, "unsupported escape");
    CHECK_ERROR(TEXTS_REGEX, "\xff", ERROR_INPUT, "UTF-8");
    CHECK_ERROR(TEXTS_REGEX, "a{1000001}", ERROR_LIMIT, "over 1000000");
    CHECK_ERROR(TEXTS_REGEX, "[^\\d\\D]", ERROR_INPUT, "matches no text");
}

TEST(grammar_regex, limits)
{
    size_t len = 70000;
    char *deep = malloc(len + 1);
    CHECK(deep);
    memset(deep, '(', len);
    deep[len] = '\0';
    CHECK_INT(texts_error(TEXTS_REGEX, deep, len).code, ERROR_LIMIT);
    CHECK_INT(texts_error(TEXTS_REGEX, deep, 60000).code, ERROR_LIMIT);
    free(deep);
}

/* Every prefix is an expression or an error, and memory may run out anywhere. */
TEST(grammar_regex, truncated_and_without_memory)
{
    static const char source[] = "^(?:a|[^b-d\\s\\p{L}]{2,3})+(?<n>\\u{41}\\x42|.)*x?$";
    for (size_t len = 0; len < sizeof source; len++) {
        struct grammar_builder *b = grammar_builder_new();
        struct error err = {0};
        CHECK(regex_add(b, source, len, &err) != GRAMMAR_NONE || err.code != ERROR_NONE);
        grammar_builder_free(b);
    }
    for (uint32_t n = 0; n < 40; n++) {
        struct grammar_builder *b = grammar_builder_new();
        struct error err = {0};
        memory_ends_after(n);
        grammar_expr e = regex_add(b, source, sizeof source - 1, &err);
        memory_is_back();
        CHECK(e != GRAMMAR_NONE || err.code != ERROR_NONE);
        grammar_builder_free(b);
    }
}

TEST(grammar_regex, choices)
{
    static const char *const texts[] = {"yes", "no", "", "東"};
    static const size_t lens[] = {3, 2, 0, 3};
    struct grammar_builder *b = grammar_builder_new();
    struct error err = {0};
    grammar_expr e = choices_add(b, texts, lens, 4, &err);
    struct grammar *g = grammar_compile(b, e, &err);
    CHECK(g);
    grammar_free(g);
    CHECK_INT(choices_add(b, texts, lens, 0, &err), GRAMMAR_NONE);
    CHECK_INT(err.code, ERROR_INPUT);
    grammar_builder_free(b);
}
