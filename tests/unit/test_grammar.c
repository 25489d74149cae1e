/* Grammars by hand: what is rejected, where masks begin and end, limits, and the ends of answers.
 */
#include "prompt/grammar/grammar.h"

#include <stdlib.h>

#include "prompt/grammar/grammar_internal.h"
#include "test.h"
#include "test_memory.h"

enum { TOKEN_END = 256, TOKEN_SPECIAL, TOKEN_WORDS };

/* All bytes, an end token, a special one, and a few words. */
static const char *const words[] = {"ab",   "aaaa", "\"]",          "\", \"",
                                    "[[",   "]]",   "\xc3\xa9\xe2", "12]",
                                    "], [", "1, 2", "((((((((((",   "))))))))))"};
enum { N_WORDS = sizeof words / sizeof *words, N_TOKENS = TOKEN_WORDS + N_WORDS };

static struct grammar_vocabulary *open_vocabulary(void)
{
    static char bytes[256];
    struct grammar_token_info tokens[N_TOKENS] = {{0}};
    struct grammar_vocabulary *v;
    struct error err = {0};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct grammar_token_info){.bytes = &bytes[i], .len = 1};
    }
    tokens[TOKEN_END] = (struct grammar_token_info){.bytes = "</s>", .len = 4, .is_end = true};
    tokens[TOKEN_SPECIAL] = (struct grammar_token_info){.bytes = "a", .len = 1, .is_special = true};
    for (int i = 0; i < N_WORDS; i++)
        tokens[TOKEN_WORDS + i] = (struct grammar_token_info){.bytes = words[i],
                                                              .len = (uint32_t)strlen(words[i])};
    CHECK_INT(grammar_vocabulary_open(&v, tokens, N_TOKENS, &err), 0);
    v->store.worth = 0;
    return v;
}

struct fixture {
    struct grammar_builder *b;
    struct grammar_vocabulary *v;
    struct grammar *g;
    struct grammar_matcher *m;
};

static void begin(struct fixture *f)
{
    *f = (struct fixture){.b = grammar_builder_new(), .v = open_vocabulary()};
}

static void compile(struct fixture *f, grammar_expr root)
{
    struct error err = {0};
    f->g = grammar_compile(f->b, root, &err);
    CHECK_STR(err.message, "");
    CHECK_INT(grammar_matcher_open(&f->m, f->g, f->v, &err), 0);
}

static void end(struct fixture *f)
{
    grammar_matcher_close(f->m);
    grammar_free(f->g);
    grammar_builder_free(f->b);
    grammar_vocabulary_close(f->v);
}

/* Compiling fails with this code, and the message contains this. */
static void refuse(struct fixture *f, grammar_expr root, enum error_code code, const char *why)
{
    struct error err = {0};
    CHECK(grammar_compile(f->b, root, &err) == NULL);
    CHECK_INT(err.code, code);
    CHECK_STR(strstr(err.message, why) != NULL ? "" : err.message, "");
}

static grammar_expr text(struct fixture *f, const char *s)
{
    return grammar_literal(f->b, s, strlen(s));
}

#define SEQUENCE(...)                                                                              \
    grammar_sequence(f.b, (grammar_expr[]){__VA_ARGS__},                                           \
                     sizeof((grammar_expr[]){__VA_ARGS__}) / sizeof(grammar_expr))
#define CHOICE(...)                                                                                \
    grammar_choice(f.b, (grammar_expr[]){__VA_ARGS__},                                             \
                   sizeof((grammar_expr[]){__VA_ARGS__}) / sizeof(grammar_expr))

static bool allows(struct fixture *f, uint32_t token)
{
    return grammar_matcher_mask(f->m, UINT32_MAX)[token / 64] >> (token % 64) & 1;
}

static uint32_t n_allowed(struct fixture *f, uint32_t n_left)
{
    const uint64_t *mask = grammar_matcher_mask(f->m, n_left);
    uint32_t n = 0;
    for (uint32_t i = 0; i < grammar_vocabulary_words(f->v); i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    return n;
}

static bool feed(struct fixture *f, const char *s)
{
    return grammar_matcher_accept_bytes(f->m, s, strlen(s));
}

static uint32_t word(const char *s)
{
    for (uint32_t i = 0; i < N_WORDS; i++)
        if (strcmp(words[i], s) == 0)
            return TOKEN_WORDS + i;
    test_fail(__FILE__, __LINE__, "no such word");
}

/* ---- what is refused ---- */

TEST(grammar, left_recursion_is_refused)
{
    struct fixture f;
    begin(&f);
    grammar_expr a = grammar_rule(f.b), c = grammar_rule(f.b), d = grammar_rule(f.b);
    grammar_define(f.b, a, CHOICE(text(&f, "x"), SEQUENCE(a, text(&f, "y"))));
    refuse(&f, a, ERROR_INPUT, "left-recursive");
    /* Through another rule, after something that may be empty. */
    grammar_define(f.b, c, SEQUENCE(grammar_repeat(f.b, text(&f, "z"), 0, 1), d));
    grammar_define(f.b, d, CHOICE(text(&f, "x"), SEQUENCE(c, c)));
    refuse(&f, SEQUENCE(text(&f, "ok"), c), ERROR_INPUT, "left-recursive");
    end(&f);
}

TEST(grammar, counted_left_recursion_is_refused)
{
    struct fixture f;
    begin(&f);
    grammar_expr a = grammar_rule(f.b);
    grammar_define(f.b, a,
                   CHOICE(text(&f, "x"), SEQUENCE(grammar_repeat(f.b, a, 0, 1000), text(&f, "y"))));
    refuse(&f, a, ERROR_INPUT, "left-recursive");
    end(&f);
}

TEST(grammar, what_matches_nothing_is_refused)
{
    struct fixture f;
    begin(&f);
    grammar_expr loop = grammar_rule(f.b);
    grammar_define(f.b, loop, SEQUENCE(text(&f, "("), loop, text(&f, ")")));
    refuse(&f, loop, ERROR_INPUT, "matches no text");
    refuse(&f, grammar_never(f.b), ERROR_INPUT, "matches no text");
    refuse(&f, SEQUENCE(text(&f, "a"), grammar_choice(f.b, NULL, 0)), ERROR_INPUT, "no text");
    refuse(&f, grammar_repeat(f.b, text(&f, "a"), 5, 3), ERROR_INPUT, "no text");
    const struct code_range surrogates = {0xd800, 0xdfff}, all = {0, 0x10ffff};
    refuse(&f, grammar_class(f.b, &surrogates, 1, false), ERROR_INPUT, "no text");
    refuse(&f, grammar_class(f.b, &all, 1, true), ERROR_INPUT, "no text");
    refuse(&f, GRAMMAR_NONE, ERROR_INPUT, "no expression");
    refuse(&f, SEQUENCE(text(&f, "a"), grammar_rule(f.b)), ERROR_INPUT, "not defined");
    end(&f);
}

TEST(grammar, what_cannot_end_is_left_out)
{
    struct fixture f;
    begin(&f);
    grammar_expr loop = grammar_rule(f.b);
    grammar_define(f.b, loop, SEQUENCE(text(&f, "b"), loop));
    compile(&f, CHOICE(SEQUENCE(text(&f, "a"), loop), SEQUENCE(text(&f, "ac"), text(&f, "d"))));
    CHECK_INT(n_allowed(&f, UINT32_MAX), 1);
    CHECK(feed(&f, "a"));
    CHECK(!feed(&f, "b"));
    CHECK(feed(&f, "cd"));
    CHECK(grammar_matcher_must_end(f.m));
    end(&f);
}

/* ---- hostile grammars ---- */

TEST(grammar, deep_nesting_is_refused)
{
    struct fixture f;
    begin(&f);
    grammar_expr e = text(&f, "a");
    for (int i = 0; i < 100000; i++)
        e = i % 2 ? grammar_repeat(f.b, e, 0, 1) : SEQUENCE(text(&f, "b"), e);
    CHECK_INT(e, GRAMMAR_NONE);
    refuse(&f, e, ERROR_LIMIT, "nested too deeply");
    end(&f);
}

/* Each is defined before the next, or after it: the time is the same. */
TEST(grammar, chains_of_rules_compile)
{
    for (int is_backwards = 0; is_backwards < 2; is_backwards++) {
        struct fixture f;
        begin(&f);
        enum { N_RULES = 1000 };
        grammar_expr rules[N_RULES];
        for (int i = 0; i < N_RULES; i++)
            rules[i] = grammar_rule(f.b);
        for (int i = 0; i < N_RULES; i++) {
            int at = is_backwards ? N_RULES - 1 - i : i;
            grammar_expr inner = at == 0 ? text(&f, "x") : rules[at - 1];
            grammar_define(f.b, rules[at], SEQUENCE(text(&f, "<"), inner, text(&f, ">")));
        }
        compile(&f, rules[N_RULES - 1]);
        for (int i = 0; i < N_RULES; i++)
            CHECK(feed(&f, "<"));
        CHECK(feed(&f, "x") && !feed(&f, "x"));
        end(&f);
    }
}

TEST(grammar, deep_calls_are_refused)
{
    struct fixture f;
    begin(&f);
    grammar_expr opening = grammar_repeat(f.b, text(&f, "abcdefghijklm"), 1, GRAMMAR_NO_MAX);
    grammar_expr e = text(&f, "x");
    for (int i = 0; i < 1500; i++) {
        grammar_expr rule = grammar_rule(f.b);
        grammar_define(f.b, rule, SEQUENCE(opening, e, text(&f, ">")));
        e = rule;
    }
    refuse(&f, e, ERROR_LIMIT, "too deeply");
    end(&f);
}

TEST(grammar, large_things_are_refused)
{
    struct fixture f;
    begin(&f);
    grammar_expr e = text(&f, "ab");
    for (int i = 0; i < 40; i++)
        e = SEQUENCE(e, e, text(&f, "c"));
    refuse(&f, e, ERROR_LIMIT, "too large");
    /* The well-known blow-up of determinization: a letter at a distance from the end. */
    const struct code_range letters = {'a', 'b'};
    grammar_expr any = grammar_class(f.b, &letters, 1, false);
    grammar_expr parts[26] = {grammar_repeat(f.b, any, 0, GRAMMAR_NO_MAX), text(&f, "a")};
    for (int i = 2; i < 26; i++)
        parts[i] = any;
    refuse(&f, grammar_sequence(f.b, parts, 26), ERROR_LIMIT, "too many states");
    end(&f);
}

TEST(grammar, huge_repeats_compile)
{
    struct fixture f;
    begin(&f);
    grammar_expr e = text(&f, "a");
    for (int i = 0; i < 5; i++)
        e = grammar_repeat(f.b, e, i % 2, UINT32_MAX - 1);
    compile(&f, SEQUENCE(e, text(&f, "b")));
    CHECK(allows(&f, 'a') && allows(&f, 'b') && allows(&f, word("ab")));
    CHECK(feed(&f, "aaaaab") && grammar_matcher_must_end(f.m));
    end(&f);
}

TEST(grammar, memory_may_end_anywhere)
{
    struct grammar_vocabulary *v = open_vocabulary();
    bool done = false;
    for (uint32_t n = 0; !done; n++) {
        struct error err = {0};
        struct grammar_matcher *m = NULL;
        memory_ends_after(n);
        struct grammar_builder *b = grammar_builder_new();
        if (b != NULL) {
            struct code_range r = {'a', 'z'};
            grammar_expr rule = grammar_rule(b);
            grammar_expr list[] = {grammar_class(b, &r, 1, true), grammar_literal(b, "x", 1), rule};
            grammar_define(b, rule, grammar_repeat(b, grammar_sequence(b, list, 2), 0, 100));
            struct grammar *g = grammar_compile(b, grammar_sequence(b, list, 3), &err);
            if (g != NULL)
                grammar_matcher_open(&m, g, v, &err);
            done = m != NULL;
            grammar_matcher_close(m);
            grammar_free(g);
            grammar_builder_free(b);
            memory_is_back();
            if (!done)
                CHECK_INT(err.code, ERROR_MEMORY);
        }
        memory_is_back();
    }
    grammar_vocabulary_close(v);
}

/* ---- bytes ---- */

TEST(grammar, every_byte_is_itself)
{
    for (int byte = 0; byte < 256; byte++) {
        struct fixture f;
        char c = (char)byte;
        begin(&f);
        compile(&f, grammar_literal(f.b, &c, 1));
        CHECK_INT(n_allowed(&f, UINT32_MAX), 1);
        CHECK(allows(&f, (uint32_t)byte));
        CHECK(grammar_matcher_accept(f.m, byte) && grammar_matcher_must_end(f.m));
        end(&f);
        byte += 6;
    }
}

TEST(grammar, characters_may_come_in_pieces)
{
    struct fixture f;
    const struct code_range range = {0xe9, 0x20ac};
    begin(&f);
    compile(&f, grammar_repeat(f.b, grammar_class(f.b, &range, 1, false), 2, 2));
    CHECK(allows(&f, 0xc3) && !allows(&f, 0xc2) && allows(&f, 0xe2) && !allows(&f, 0xe3));
    CHECK(allows(&f, word("\xc3\xa9\xe2")) && !allows(&f, 0xa9) && !allows(&f, 'a'));
    CHECK(grammar_matcher_accept(f.m, 0xc3));
    CHECK(allows(&f, 0xa9) && !allows(&f, 0xa8) && !grammar_matcher_accept(f.m, 0xa8));
    CHECK(grammar_matcher_accept(f.m, 0xa9));
    CHECK(grammar_matcher_accept(f.m, 0xe2) && allows(&f, 0x82) && !allows(&f, 0x83));
    CHECK(grammar_matcher_accept(f.m, 0x82) && allows(&f, 0xac) && !allows(&f, 0xad));
    CHECK(!grammar_matcher_may_end(f.m));
    CHECK(grammar_matcher_accept(f.m, 0xac) && grammar_matcher_must_end(f.m));
    end(&f);
}

/* ---- recursion and limits ---- */

static grammar_expr brackets(struct fixture *f, const char *open, const char *close)
{
    grammar_expr rule = grammar_rule(f->b);
    const grammar_expr parts[] = {text(f, open), grammar_repeat(f->b, rule, 0, 1), text(f, close)};
    grammar_define(f->b, rule, grammar_sequence(f->b, parts, 3));
    return rule;
}

/* As deep as possible, always along the deepest tokens; then closing is the only way, and works. */
TEST(grammar, the_limit_of_depth_leads_to_no_dead_end)
{
    struct fixture f;
    uint32_t depth = 0;
    begin(&f);
    compile(&f, brackets(&f, "(", ")"));
    while (allows(&f, '(')) {
        uint32_t token = allows(&f, word("((((((((((")) ? word("((((((((((") : '(';
        CHECK(grammar_matcher_accept(f.m, (int32_t)token));
        depth += token == '(' ? 1 : 10;
    }
    CHECK(depth > 4000);
    CHECK(!grammar_matcher_accept(f.m, '('));
    for (; depth > 0; depth--) {
        CHECK(!grammar_matcher_may_end(f.m));
        CHECK_INT(allows(&f, ')'), true);
        CHECK(depth < 10 || allows(&f, word("))))))))))")));
        CHECK(grammar_matcher_accept(f.m, ')'));
    }
    CHECK(grammar_matcher_must_end(f.m));
    end(&f);
}

/* At the limit, an inner part that itself needs stack is either still possible or was not begun. */
TEST(grammar, the_limit_of_depth_leaves_room_to_finish)
{
    struct fixture f;
    begin(&f);
    grammar_expr tail = brackets(&f, "<", ">"), rule = grammar_rule(f.b);
    grammar_expr must = SEQUENCE(text(&f, "["), tail, tail, text(&f, "]"));
    grammar_define(f.b, rule,
                   CHOICE(SEQUENCE(text(&f, "("), rule, text(&f, ")")), SEQUENCE(must, must)));
    compile(&f, rule);
    uint32_t depth = 0;
    while (allows(&f, '(') && grammar_matcher_accept(f.m, '('))
        depth++;
    CHECK(depth > 4000);
    CHECK(allows(&f, '[') && feed(&f, "[<><>][<><>]"));
    for (; depth > 0; depth--)
        CHECK(allows(&f, ')') && grammar_matcher_accept(f.m, ')'));
    CHECK(grammar_matcher_must_end(f.m));
    end(&f);
}

/* Frames are reused forever: a long list of short things. */
TEST(grammar, long_texts_need_no_more_memory)
{
    struct fixture f;
    begin(&f);
    grammar_expr list = brackets(&f, "[", "]");
    compile(&f, grammar_repeat(f.b, SEQUENCE(list, text(&f, "\n")), 0, 1000000));
    for (int i = 0; i < 20000; i++) {
        CHECK(feed(&f, "[[[]]]"));
        CHECK(i % 100 != 0 || (allows(&f, '\n') && !allows(&f, ']')));
        CHECK(feed(&f, "\n") && grammar_matcher_may_end(f.m));
    }
    CHECK(!grammar_matcher_must_end(f.m));
    end(&f);
}

/* ---- repeats ---- */

static void check_bounds(struct fixture *f, const char *unit, uint32_t min, uint32_t max)
{
    for (uint32_t i = 0; i <= max; i++) {
        CHECK_INT(allows(f, (uint8_t)unit[0]), i < max);
        CHECK_INT(allows(f, '!'), i >= min);
        CHECK_INT(strcmp(unit, "a") == 0 && allows(f, word("aaaa")),
                  strcmp(unit, "a") == 0 && i + 4 <= max);
        CHECK_INT(feed(f, unit), i < max);
    }
    CHECK(feed(f, "!") && grammar_matcher_must_end(f->m));
}

TEST(grammar, counts_hold_at_their_bounds)
{
    static const uint32_t bounds[][2] = {{0, 1000}, {1000, 1000}, {300, 310}, {3, 5}, {0, 130}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        struct fixture f;
        uint32_t min = bounds[i][0], max = bounds[i][1];
        const struct code_range quote = {'!', '!'};
        begin(&f);
        compile(&f, SEQUENCE(grammar_repeat(f.b, grammar_class(f.b, &quote, 1, true), min, max),
                             text(&f, "!")));
        CHECK(grammar_bytes(f.g) < 20000);
        check_bounds(&f, "a", min, max);
        grammar_matcher_reset(f.m);
        check_bounds(&f, "é", min, max);
        end(&f);
        begin(&f);
        compile(&f, SEQUENCE(grammar_repeat(f.b, brackets(&f, "[", "]"), min, max), text(&f, "!")));
        CHECK(grammar_bytes(f.g) < 20000);
        check_bounds(&f, "[[]]", min, max);
        end(&f);
    }
}

/* ---- tokens by name ---- */

TEST(grammar, tokens_are_named)
{
    struct fixture f;
    struct error err = {0};
    begin(&f);
    grammar_expr call = SEQUENCE(grammar_token(f.b, TOKEN_SPECIAL), text(&f, "ab"),
                                 grammar_token(f.b, (int32_t)word("ab")));
    compile(&f, CHOICE(call, text(&f, "x")));
    CHECK(allows(&f, TOKEN_SPECIAL) && allows(&f, 'x') && !allows(&f, 'a'));
    CHECK_INT(n_allowed(&f, UINT32_MAX), 2);
    CHECK(!feed(&f, "a") && grammar_matcher_accept(f.m, TOKEN_SPECIAL));
    CHECK(allows(&f, 'a') && allows(&f, word("ab")) && !allows(&f, TOKEN_SPECIAL));
    CHECK(grammar_matcher_accept(f.m, (int32_t)word("ab")));
    /* Now only that very token, not its bytes. */
    CHECK(!allows(&f, 'a') && allows(&f, word("ab")) && !feed(&f, "ab"));
    CHECK(grammar_matcher_accept(f.m, (int32_t)word("ab")) && grammar_matcher_must_end(f.m));
    CHECK(allows(&f, TOKEN_END) && grammar_matcher_accept(f.m, TOKEN_END));
    end(&f);
    begin(&f);
    f.g = grammar_compile(f.b, grammar_token(f.b, N_TOKENS), &err);
    CHECK_INT(grammar_matcher_open(&f.m, f.g, f.v, &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    end(&f);
}

TEST(grammar, ends_come_where_the_text_may_end)
{
    struct fixture f;
    begin(&f);
    compile(&f, grammar_repeat(f.b, text(&f, "ab"), 0, 2));
    CHECK(allows(&f, TOKEN_END) && grammar_matcher_accept(f.m, TOKEN_END));
    CHECK(feed(&f, "a") && !allows(&f, TOKEN_END) && !grammar_matcher_accept(f.m, TOKEN_END));
    CHECK(feed(&f, "b") && allows(&f, TOKEN_END) && !grammar_matcher_must_end(f.m));
    CHECK(!grammar_matcher_accept(f.m, N_TOKENS) && !grammar_matcher_accept(f.m, -1));
    CHECK(feed(&f, "ab") && grammar_matcher_must_end(f.m) && n_allowed(&f, 100) == 1);
    end(&f);
}

/* ---- winding up ---- */

TEST(grammar, a_budget_is_enough_or_not)
{
    struct fixture f;
    const struct code_range quote = {'"', '"'};
    begin(&f);
    grammar_expr string = SEQUENCE(
        text(&f, "\""), grammar_repeat(f.b, grammar_class(f.b, &quote, 1, true), 0, GRAMMAR_NO_MAX),
        text(&f, "\""));
    compile(&f, SEQUENCE(text(&f, "["), string, text(&f, "]")));
    CHECK(feed(&f, "[\"abc"));
    /* One token closes both; then the end. */
    CHECK(n_allowed(&f, 4) > 100);
    const uint64_t *mask = grammar_matcher_mask(f.m, 1);
    CHECK_INT(n_allowed(&f, 1), 1);
    CHECK(mask[word("\"]") / 64] >> (word("\"]") % 64) & 1);
    /* An answer that can no longer be completed is not shortened. */
    grammar_matcher_reset(f.m);
    CHECK_INT(n_allowed(&f, 1), 1);
    CHECK(feed(&f, "["));
    CHECK_INT(n_allowed(&f, 1), n_allowed(&f, UINT32_MAX));
    end(&f);
}

/* ---- several at once ---- */

TEST(grammar, matchers_do_not_disturb_each_other)
{
    struct fixture f;
    struct grammar_matcher *other;
    struct error err = {0};
    begin(&f);
    const struct code_range quote = {'"', '"'};
    grammar_expr free_text = grammar_repeat(f.b, grammar_class(f.b, &quote, 1, true), 0, 50);
    compile(&f, SEQUENCE(brackets(&f, "[", "]"), text(&f, "\""), free_text, text(&f, "\"")));
    CHECK_INT(grammar_matcher_open(&other, f.g, f.v, &err), 0);
    CHECK(feed(&f, "[[["));
    CHECK(grammar_matcher_accept_bytes(other, "[]\"", 3));
    for (int i = 0; i < 40; i++) {
        const uint64_t *mask = grammar_matcher_mask(other, UINT32_MAX);
        CHECK(mask['x' / 64] >> ('x' % 64) & 1);
        CHECK(!allows(&f, 'x') && allows(&f, ']'));
        CHECK(grammar_matcher_accept(other, 'x'));
    }
    /* Closed ones leave nothing that would disturb a new one. */
    grammar_matcher_close(other);
    grammar_free(f.g);
    grammar_matcher_close(f.m);
    compile(&f, SEQUENCE(text(&f, "\""), free_text, text(&f, "\"!")));
    CHECK(feed(&f, "\"") && allows(&f, 'x') && allows(&f, '"') && !allows(&f, word("\"]")));
    end(&f);
}

/* 128 choices with one grammar have its measures once. */
TEST(grammar, matchers_share_the_measures_of_a_large_one)
{
    enum { N_LETTERS = 20000 };
    static char letters[N_LETTERS];
    struct fixture f;
    struct grammar_matcher *sharing;
    struct error err = {0};
    begin(&f);
    memset(letters, 'a', sizeof letters);
    compile(&f, SEQUENCE(text(&f, "["), grammar_literal(f.b, letters, N_LETTERS)));
    const size_t bytes = grammar_bytes(f.g);
    grammar_measure_for(f.g, f.v);
    CHECK(grammar_bytes(f.g) >= bytes + N_LETTERS * sizeof(struct wind_up));
    const uint64_t before = memory_taken();
    CHECK_INT(grammar_matcher_open(&sharing, f.g, f.v, &err), 0);
    const uint64_t shared = memory_taken() - before;
    grammar_matcher_close(f.m);
    f.m = sharing;
    CHECK(feed(&f, "["));
    CHECK_INT(n_allowed(&f, N_LETTERS), 2); /* "a" and "aaaa" */
    CHECK_INT(n_allowed(&f, N_LETTERS / 4 + 1), 1);
    CHECK(allows(&f, word("aaaa")));
    const struct grammar_vocabulary *v = f.g->measured_for;
    f.g->measured_for = NULL; /* one that does not share takes as much more */
    const uint64_t begin_own = memory_taken();
    CHECK_INT(grammar_matcher_open(&sharing, f.g, f.v, &err), 0);
    CHECK(memory_taken() - begin_own >= shared + N_LETTERS * sizeof(struct wind_up));
    for (uint32_t i = 0; i < f.g->n_states; i++)
        CHECK(memcmp(&sharing->wind[i], &f.g->wind[i], sizeof *f.g->wind) == 0);
    f.g->measured_for = v;
    grammar_matcher_close(sharing);
    end(&f);
}

/* ---- masks that other answers have made ---- */

/* "ab.ba", ...: words of any length with dots between them, which come in a thousand tokens. */
static struct grammar *words_grammar(struct grammar_builder *b)
{
    struct error err;
    const struct code_range letters[] = {{'a', 'd'}, {'0', '9'}};
    grammar_expr word = grammar_rule(b), rest = grammar_rule(b);
    grammar_expr letter = grammar_class(b, letters, 2, false);
    grammar_expr nested[] = {grammar_literal(b, "(", 1), word, grammar_literal(b, ")", 1)};
    grammar_expr parts[] = {grammar_repeat(b, letter, 1, GRAMMAR_NO_MAX),
                            grammar_sequence(b, nested, 3)};
    grammar_define(b, word, grammar_choice(b, parts, 2));
    grammar_expr more[] = {grammar_literal(b, ".", 1), word, grammar_repeat(b, rest, 0, 1)};
    grammar_define(b, rest, grammar_sequence(b, more, 3));
    grammar_expr all[] = {word, grammar_repeat(b, rest, 0, 1)};
    return grammar_compile(b, grammar_sequence(b, all, 2), &err);
}

enum { N_LONG = 40000, WORD_LEN = 6 };

static void words_open(struct grammar_vocabulary **v)
{
    static char texts[N_LONG][WORD_LEN];
    static struct grammar_token_info infos[N_LONG];
    struct error err;
    uint64_t seed = 1;
    for (int i = 0; i < N_LONG; i++) {
        for (int k = 0; k < WORD_LEN; k++)
            texts[i][k] = "abcd0123.().e"[(seed = seed * 6364136223846793005u + 1) >> 33 & 7];
        for (int k = 1; k < WORD_LEN; k++)
            if ((seed = seed * 6364136223846793005u + 1) >> 62 == 0)
                texts[i][k] = ".()."[seed >> 40 & 3];
        infos[i] = (struct grammar_token_info){texts[i], 1 + (uint32_t)i % WORD_LEN, false, i == 0};
    }
    CHECK_INT(grammar_vocabulary_open(v, infos, N_LONG, &err), 0);
}

TEST(grammar, a_mask_that_took_long_is_the_same_the_next_time)
{
    struct grammar_vocabulary *first, *second;
    struct grammar_matcher *m[3];
    struct error err;
    struct grammar_builder *b = grammar_builder_new();
    struct grammar *g = words_grammar(b);
    CHECK(g != NULL);
    words_open(&first);
    words_open(&second);
    size_t bytes = grammar_vocabulary_words(first) * sizeof(uint64_t);
    for (int i = 0; i < 3; i++)
        CHECK_INT(grammar_matcher_open(&m[i], g, i < 2 ? first : second, &err), 0);
    for (const char *at = "ab.((d)).b1.(a)"; *at; at++) {
        const uint64_t *want = grammar_matcher_mask(m[0], UINT32_MAX);
        CHECK(memcmp(want, grammar_matcher_mask(m[1], UINT32_MAX), bytes) == 0);
        CHECK(memcmp(want, grammar_matcher_mask(m[2], UINT32_MAX), bytes) == 0);
        for (int i = 0; i < 3; i++)
            CHECK(grammar_matcher_accept_bytes(m[i], at, 1));
    }
    for (int i = 0; i < 3; i++)
        grammar_matcher_close(m[i]);
    grammar_vocabulary_close(first);
    grammar_vocabulary_close(second);
    grammar_free(g);
    grammar_builder_free(b);
}

/* One mask at a time can be paused: others are made whole meanwhile, or begin again. */
TEST(grammar, a_paused_mask_leaves_the_others_alone)
{
    struct grammar_vocabulary *v, *alone;
    struct grammar_matcher *m[3], *whole;
    struct error err;
    struct grammar_builder *b = grammar_builder_new();
    struct grammar *g = words_grammar(b);
    words_open(&v);
    words_open(&alone);
    size_t bytes = grammar_vocabulary_words(v) * sizeof(uint64_t);
    CHECK_INT(grammar_matcher_open(&whole, g, alone, &err), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(grammar_matcher_open(&m[i], g, v, &err), 0);
        CHECK(grammar_matcher_accept_bytes(m[i], "ab.((", 1 + (size_t)i));
    }
    CHECK_INT(grammar_matcher_make(m[0], 900, 0), GRAMMAR_PAUSED);
    CHECK_INT(grammar_matcher_make(m[1], 900, 0), GRAMMAR_BUSY);
    CHECK_INT(grammar_matcher_make(m[1], 900, 0), GRAMMAR_BUSY);
    CHECK_INT(grammar_matcher_make(m[2], 900, UINT64_MAX), GRAMMAR_READY);
    CHECK_INT(grammar_matcher_make(m[0], 900, 0), GRAMMAR_PAUSED);
    CHECK(grammar_matcher_accept_bytes(m[0], "c", 1)); /* forgets the mask of the place before */
    CHECK_INT(grammar_matcher_make(m[1], 900, 0), GRAMMAR_PAUSED);
    CHECK_INT(grammar_matcher_make(m[0], 900, 0), GRAMMAR_BUSY);
    CHECK_INT(grammar_matcher_make(m[1], 901, 0), GRAMMAR_PAUSED); /* another mask */
    grammar_matcher_drop(m[1]);
    CHECK_INT(grammar_matcher_make(m[0], 900, 0), GRAMMAR_PAUSED);
    static const char *const texts[] = {"ac", "ab", "ab."};
    for (int i = 0; i < 3; i++) {
        grammar_matcher_reset(whole);
        CHECK(grammar_matcher_accept_bytes(whole, texts[i], strlen(texts[i])));
        CHECK(memcmp(grammar_matcher_mask(whole, 900), grammar_matcher_mask(m[i], 900), bytes) ==
              0);
        grammar_matcher_close(m[i]);
    }
    grammar_matcher_close(whole);
    grammar_vocabulary_close(v);
    grammar_vocabulary_close(alone);
    grammar_free(g);
    grammar_builder_free(b);
}
