/* GBNF: what llama.cpp's users write, and their mistakes. */
#include "prompt/grammar/text_grammar.h"

#include <stdlib.h>

#include "grammar_texts.h"
#include "test.h"
#include "test_memory.h"

TEST(grammar_gbnf, literals_and_escapes)
{
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"a\\n\\t\\r\\\\\\\"\\x41\\u00e9\\U0001F642\"",
                TEXTS("a\n\t\r\\\"A\u00e9\U0001F642"), TEXTS("a\n\t\r\\\"A\u00e9", "", "b"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"\" \"x\"", TEXTS("x"), TEXTS("", "xx"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"東京\"", TEXTS("東京"), TEXTS("東"));
}

TEST(grammar_gbnf, classes)
{
    CHECK_TEXTS(TEXTS_GBNF, "root ::= [a-cx\\]\\-]", TEXTS("a", "b", "c", "x", "]", "-"),
                TEXTS("d", "", "\\", "ab"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= [^\\n\"]", TEXTS("a", "é", "\U0001F642"),
                TEXTS("\n", "\"", "\xc3", "\xff"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= [a-] [ぁ-ゟ]", TEXTS("aあ", "-ゟ"), TEXTS("bあ", "aア"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= . .", TEXTS("ab", "\n東"), TEXTS("a", "abc"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= [!\"#$%&'()*+,-./:;<=>?@[\\\\\\]^_`{|}~]+",
                TEXTS("[", "]", "\\", "#", ","), TEXTS("a", " "));
}

TEST(grammar_gbnf, repetitions)
{
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"a\"* \"b\"+ \"c\"?", TEXTS("b", "aabb", "bc"),
                TEXTS("", "ac", "bcc"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} [0-9]{ 1 , 3 }",
                TEXTS("aab1", "aabbbcc123"), TEXTS("ab1", "aa1", "aabccc1", "aab1234"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= (\"ab\" | \"c\"){2}", TEXTS("abab", "cc", "abc"),
                TEXTS("ab", "ccc"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"a\" *", TEXTS("", "aa"), TEXTS("*"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= \"a\"{0}\"b\"", TEXTS("b"), TEXTS("ab"));
}

TEST(grammar_gbnf, lines_and_comments)
{
    CHECK_TEXTS(TEXTS_GBNF,
                "# first\n\nroot ::= # what it is\n  x |\n  \"y\" # last\r\n"
                "x ::= ( \"1\"\n\n  # inside\n  \"2\" |\n \"3\" )\n# end",
                TEXTS("12", "3", "y"), TEXTS("1", "123"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= | \"a\"", TEXTS("", "a"), TEXTS("b"));
    CHECK_TEXTS(TEXTS_GBNF, "root ::= a-1 B\na-1 ::= \"x\"\nB ::= \"y\"", TEXTS("xy"), TEXTS("x"));
}

TEST(grammar_gbnf, recursion)
{
    CHECK_TEXTS(TEXTS_GBNF,
                "root ::= value\nvalue ::= list | [0-9]+\n"
                "list ::= \"[\" (value (\",\" value)*)? \"]\"",
                TEXTS("1", "[]", "[1,[2,[3]],4]"), TEXTS("[1,]", "[", "[[1]"));
}

TEST(grammar_gbnf, what_is_wrong_is_said)
{
    CHECK_ERROR(TEXTS_GBNF, "", ERROR_INPUT, "no rule 'root'");
    CHECK_ERROR(TEXTS_GBNF, "x ::= \"a\"", ERROR_INPUT, "no rule 'root'");
    CHECK_ERROR(TEXTS_GBNF, "root ::= x", ERROR_INPUT, "the rule 'x' is not defined");
    CHECK_ERROR(TEXTS_GBNF, "root = \"a\"", ERROR_INPUT, "expected '::='");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a", ERROR_INPUT, "no closing quote");
    CHECK_ERROR(TEXTS_GBNF, "root ::= [a", ERROR_INPUT, "no closing ']'");
    CHECK_ERROR(TEXTS_GBNF, "root ::= (\"a\"", ERROR_INPUT, "no closing ')'");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a\")", ERROR_INPUT, "unmatched ')'");
    CHECK_ERROR(TEXTS_GBNF, "root ::= *", ERROR_INPUT, "nothing before it");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a\"{2,1}", ERROR_INPUT, "wrong way round");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a\"{x}", ERROR_INPUT, "expected a number");
    CHECK_ERROR(TEXTS_GBNF, "root ::= [z-a]", ERROR_INPUT, "wrong way round");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"\\q\"", ERROR_INPUT, "unknown escape");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"\\u12\"", ERROR_INPUT, "hexadecimal");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"\\ud800\"", ERROR_INPUT, "not a code point");
    CHECK_ERROR(TEXTS_GBNF, "root ::= <think> .*", ERROR_INPUT, "references to tokens");
    CHECK_ERROR(TEXTS_GBNF, "root ::= !<[12]>", ERROR_INPUT, "references to tokens");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a\"\nroot ::= \"b\"", ERROR_INPUT, "defined before");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a\" ]", ERROR_INPUT, "expected the end of the line");
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"\xff\"", ERROR_INPUT, "UTF-8");
    CHECK_ERROR(TEXTS_GBNF, "root ::= root \"a\" | \"b\"", ERROR_INPUT, "left-recursive");
    struct error err = texts_error(TEXTS_GBNF, "root ::= \"a\"\nx ::= y \"\\q\"", 24);
    CHECK_INT(err.position, 22);
    CHECK(strstr(err.message, "line 2"));
}

TEST(grammar_gbnf, limits)
{
    CHECK_ERROR(TEXTS_GBNF, "root ::= \"a\"{1000001}", ERROR_LIMIT, "over 1000000");
    size_t len = 300000;
    char *deep = malloc(len + 1);
    CHECK(deep);
    memset(deep, '(', len);
    memcpy(deep, "root ::= ", 9);
    deep[len] = '\0';
    struct error err = texts_error(TEXTS_GBNF, deep, len);
    CHECK_INT(err.code, ERROR_LIMIT);
    free(deep);
    char nul[] = "root ::= \"a\0b\"";
    err = texts_error(TEXTS_GBNF, nul, 11); /* cut inside the string */
    CHECK_INT(err.code, ERROR_INPUT);
}

/* Every prefix of a grammar is a grammar or an error, and memory may run out anywhere. */
TEST(grammar_gbnf, truncated_and_without_memory)
{
    static const char source[] = "root ::= (\"a\\n\" [^x-z]{1,3} | y)* \"b\"?\ny ::= . # c\n";
    for (size_t len = 0; len < sizeof source; len++) {
        struct grammar_builder *b = grammar_builder_new();
        struct error err = {0};
        CHECK(gbnf_add(b, source, len, &err) != GRAMMAR_NONE || err.code != ERROR_NONE);
        grammar_builder_free(b);
    }
    for (uint32_t n = 0; n < 40; n++) {
        struct grammar_builder *b = grammar_builder_new();
        struct error err = {0};
        memory_ends_after(n);
        grammar_expr e = gbnf_add(b, source, sizeof source - 1, &err);
        memory_is_back();
        CHECK(e != GRAMMAR_NONE || err.code != ERROR_NONE);
        grammar_builder_free(b);
    }
}
