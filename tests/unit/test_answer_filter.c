/* The phases of an answer: thinking and its budget, text and what is forbidden in it, the grammar
 * of calls after its trigger. Tokens are bytes here, so every marker consists of many of them. */
#include "prompt/answer/answer_filter.h"

#include "prompt/token_table.h"
#include "test.h"

struct world {
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
    struct grammar *grammar; /* "<call>" [ab]+ "!" */
    struct answer_style style;
    struct answer_filter *filter;
};

static struct world world_open(void)
{
    struct world w = {.style = {.tools = TOOLS_HERMES}};
    struct error err;
    CHECK_INT(tokenizer_open_bytes(&w.tokenizer, NULL, &err), 0);
    CHECK_INT(token_vocabulary_open(&w.vocabulary, w.tokenizer, &err), 0);
    struct grammar_builder *b = grammar_builder_new();
    grammar_expr letter = grammar_class(b, &(struct code_range){'a', 'b'}, 1, false);
    grammar_expr parts[] = {grammar_literal(b, "<call>", 6),
                            grammar_repeat(b, letter, 1, GRAMMAR_NO_MAX),
                            grammar_literal(b, "!", 1)};
    w.grammar = grammar_compile(b, grammar_sequence(b, parts, 3), &err);
    CHECK(w.grammar != NULL);
    grammar_builder_free(b);
    return w;
}

static void world_close(struct world *w)
{
    answer_filter_close(w->filter);
    grammar_free(w->grammar);
    grammar_vocabulary_close(w->vocabulary);
    tokenizer_close(w->tokenizer);
}

static void filter_make(struct world *w, struct answer_filter_options o)
{
    struct error err;
    o.style = &w->style;
    o.tokenizer = w->tokenizer;
    o.vocabulary = w->vocabulary;
    answer_filter_close(w->filter);
    w->filter = NULL;
    CHECK(answer_filter_is_needed(&o));
    CHECK_INT(answer_filter_open(&w->filter, &o, &err), 0);
}

static const uint64_t *mask_of(struct world *w)
{
    struct token_filter *f = answer_filter_base(w->filter);
    return f->ops->mask(f, 1000);
}

static bool allows(struct world *w, int32_t token)
{
    const uint64_t *mask = mask_of(w);
    return !mask || mask[token / 64] >> (token % 64) & 1;
}

/* Feeds the text, each byte of which must be allowed; returns the last verdict. */
static enum filter_verdict take(struct world *w, const char *text)
{
    struct token_filter *f = answer_filter_base(w->filter);
    enum filter_verdict verdict = FILTER_GO_ON;
    for (; *text; text++) {
        int32_t token = (unsigned char)*text;
        if (!allows(w, token))
            test_fail(__FILE__, __LINE__, "'%s' is not allowed", text);
        verdict = f->ops->accept(f, token);
    }
    return verdict;
}

/* What is written when only one token at a time is allowed. */
static void take_forced(struct world *w, struct strbuf *out)
{
    struct token_filter *f = answer_filter_base(w->filter);
    for (;;) {
        const uint64_t *mask = mask_of(w);
        int32_t only = -1;
        for (int32_t i = 0; mask && i < 259; i++) {
            if (!(mask[i / 64] >> (i % 64) & 1))
                continue;
            if (only >= 0)
                return;
            only = i;
        }
        if (only < 0)
            return;
        strbuf_addc(out, (char)only);
        f->ops->accept(f, only);
    }
}

TEST(answer_filter, is_needed_where_there_is_something_to_hold_to)
{
    struct world w = world_open();
    struct answer_filter_options o = {.style = &w.style, .thinking_tokens = -1};
    CHECK(!answer_filter_is_needed(&o));
    o.thinking_tokens = 5; /* the model does not think */
    CHECK(!answer_filter_is_needed(&o));
    w.style.think_begin = "<think>";
    w.style.think_end = "</think>";
    CHECK(answer_filter_is_needed(&o));
    o.thinking_tokens = -1;
    CHECK(!answer_filter_is_needed(&o));
    o.forbidden = "<call>";
    CHECK(answer_filter_is_needed(&o));
    world_close(&w);
}

TEST(answer_filter, a_grammar_holds_from_the_start)
{
    struct world w = world_open();
    filter_make(&w, (struct answer_filter_options){.grammar = w.grammar, .thinking_tokens = -1});
    CHECK(!allows(&w, 'x') && allows(&w, '<'));
    CHECK_INT(take(&w, "<call>ab"), FILTER_GO_ON);
    CHECK(!allows(&w, 'c'));
    CHECK_INT(take(&w, "!"), FILTER_END);
    world_close(&w);
}

TEST(answer_filter, a_grammar_waits_for_its_trigger)
{
    struct world w = world_open();
    filter_make(&w, (struct answer_filter_options){
                        .grammar = w.grammar, .trigger = "<call>", .thinking_tokens = -1});
    CHECK(mask_of(&w) == NULL);
    CHECK_INT(take(&w, "anything <cal <<call"), FILTER_GO_ON);
    CHECK(mask_of(&w) == NULL);
    CHECK_INT(take(&w, ">"), FILTER_GO_ON);
    CHECK(mask_of(&w) != NULL && allows(&w, 'a') && !allows(&w, '!') && !allows(&w, 'c'));
    CHECK_INT(take(&w, "a!"), FILTER_END);
    world_close(&w);
}

TEST(answer_filter, what_is_forbidden_does_not_appear)
{
    struct world w = world_open();
    filter_make(&w, (struct answer_filter_options){.forbidden = "<<call>", .thinking_tokens = -1});
    take(&w, "a <call> is fine <<<<call");
    CHECK(!allows(&w, '>') && allows(&w, '<') && allows(&w, 'x'));
    take(&w, "x> <<call");
    CHECK(!allows(&w, '>'));
    take(&w, "<<call");
    CHECK(!allows(&w, '>'));
    world_close(&w);
}

TEST(answer_filter, thinking_has_a_budget)
{
    struct world w = world_open();
    struct strbuf forced = STRBUF_INIT;
    w.style.think_begin = "<think>";
    w.style.think_end = "</think>";
    filter_make(&w, (struct answer_filter_options){
                        .grammar = w.grammar, .starts_in_thinking = true, .thinking_tokens = 6});
    CHECK(allows(&w, 'x') && !allows(&w, 257)); /* the answer has yet to come */
    take(&w, "abcdef");
    take_forced(&w, &forced);
    CHECK_STR(strbuf_str(&forced), "\n</think>\n\n<call>");
    CHECK_INT(take(&w, "b!"), FILTER_END);
    strbuf_clear(&forced);
    filter_make(&w,
                (struct answer_filter_options){.starts_in_thinking = true, .thinking_tokens = 0});
    take_forced(&w, &forced);
    CHECK_STR(strbuf_str(&forced), "\n</think>\n\n");
    CHECK(mask_of(&w) == NULL);
    strbuf_free(&forced);
    world_close(&w);
}

TEST(answer_filter, thinking_may_begin_and_end_by_itself)
{
    struct world w = world_open();
    struct strbuf forced = STRBUF_INIT;
    w.style.think_begin = "<think>";
    w.style.think_end = "</think>";
    filter_make(&w, (struct answer_filter_options){
                        .grammar = w.grammar, .trigger = "<call>", .thinking_tokens = 100});
    take(&w, " \n<think>a <call>c </th </think>\n\nText <call>");
    CHECK(!allows(&w, 'c') && allows(&w, 'a'));
    CHECK_INT(take(&w, "a!"), FILTER_END);
    filter_make(&w, (struct answer_filter_options){
                        .grammar = w.grammar, .trigger = "<call>", .thinking_tokens = 100});
    take(&w, "No thinking. <think><call>"); /* a marker later on is text */
    CHECK(!allows(&w, 'c'));
    filter_make(&w, (struct answer_filter_options){.thinking_tokens = 0});
    take(&w, "<think>"); /* a marker of many tokens is recognized when complete */
    take_forced(&w, &forced);
    CHECK_STR(strbuf_str(&forced), "\n</think>\n\n");
    strbuf_free(&forced);
    world_close(&w);
}
