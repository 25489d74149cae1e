/* Random grammars and vocabularies: every bit of every mask against the reference, along random
 * walks; and endings within the budget. */
#include <stdlib.h>

#include "grammar_reference.h"
#include "prompt/grammar/grammar_internal.h"
#include "test.h"

/* More grammars than these were tried when this was written; they take long. */
enum { N_GRAMMARS = 150 };

enum { N_TOKENS = 120, N_NAMED = 3, MAX_TOKEN_LEN = 8 };

struct world {
    struct ref_grammar ref;
    struct grammar_token_info tokens[N_TOKENS];
    char bytes[N_TOKENS][MAX_TOKEN_LEN];
    struct grammar_vocabulary *v, *tiny; /* the second one forgets all the time */
    struct grammar *g;
    struct grammar_matcher *m, *other;
    uint64_t n_pauses;
};

/* Token 0 is special, 1 ends, 2 is an ordinary one: these may be named. 3 is empty, and 4 special;
 * then all bytes that the grammars are made of, and random pieces of them. */
static void make_tokens(struct world *w, uint64_t *seed)
{
    static const char alphabet[] = "abc\"x\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff";
    const uint32_t n_alphabet = sizeof alphabet - 1;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        struct grammar_token_info *t = &w->tokens[i];
        *t = (struct grammar_token_info){.bytes = w->bytes[i], .len = 1};
        if (i >= 5 && i - 5 < n_alphabet) {
            w->bytes[i][0] = alphabet[i - 5];
            continue;
        }
        t->len = 1 + ref_random(seed, MAX_TOKEN_LEN - 1);
        uint32_t from = ref_random(seed, n_alphabet);
        bool is_run = ref_random(seed, 3) == 0;
        for (uint32_t k = 0; k < t->len; k++)
            w->bytes[i][k] = alphabet[is_run                     ? from % 2
                                      : ref_random(seed, 2) == 0 ? (from + k) % n_alphabet
                                                                 : ref_random(seed, 6)];
    }
    w->tokens[0].is_special = w->tokens[4].is_special = true;
    w->tokens[1].is_end = true;
    w->tokens[3].len = 0;
}

/* False: the grammar is invalid, and that was reported. */
static bool open_world(struct world *w, uint64_t *seed)
{
    struct error err = {0};
    struct grammar_builder *b = grammar_builder_new();
    ref_make(&w->ref, seed, ref_random(seed, 2) ? N_NAMED : 0);
    make_tokens(w, seed);
    w->g = grammar_compile(b, ref_build(&w->ref, b), &err);
    grammar_builder_free(b);
    if (w->g == NULL) {
        CHECK_STR(err.code == ERROR_INPUT ? "" : err.message, "");
        CHECK(!ref_matches_something(&w->ref) || ref_is_left_recursive(&w->ref));
        return false;
    }
    CHECK(ref_matches_something(&w->ref) && !ref_is_left_recursive(&w->ref));
    CHECK_INT(grammar_vocabulary_open_sized(&w->v, w->tokens, N_TOKENS, 200000, &err), 0);
    CHECK_INT(grammar_vocabulary_open_sized(&w->tiny, w->tokens, N_TOKENS, 6000, &err), 0);
    w->v->store.worth = w->tiny->store.worth = 0;
    w->tiny->look_after = 1;
    CHECK_INT(grammar_matcher_open(&w->m, w->g, w->v, &err), 0);
    CHECK_INT(grammar_matcher_open(&w->other, w->g, w->tiny, &err), 0);
    return true;
}

static void close_world(struct world *w)
{
    grammar_matcher_close(w->m);
    grammar_matcher_close(w->other);
    grammar_vocabulary_close(w->v);
    grammar_vocabulary_close(w->tiny);
    grammar_free(w->g);
}

/* The mask, made with as many pauses as possible. */
static const uint64_t *mask_in_pieces(struct world *w, struct grammar_matcher *m, uint32_t n_left)
{
    while (grammar_matcher_make(m, n_left, 0) == GRAMMAR_PAUSED)
        w->n_pauses++;
    return grammar_matcher_mask(m, n_left);
}

static bool has(const uint64_t *mask, uint32_t token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

/* The token as symbols after the text: by its bytes, or by its name. */
static bool ref_allows(struct world *w, uint16_t *text, unsigned len, uint32_t token)
{
    const struct grammar_token_info *t = &w->tokens[token];
    if (token < N_NAMED) {
        text[len] = (uint16_t)(SYMBOL_NAMED + token);
        if (ref_can_go_on(&w->ref, text, len + 1))
            return true;
    }
    if (t->is_end)
        return ref_matches(&w->ref, text, len);
    if (t->is_special || t->len == 0)
        return false;
    for (uint32_t i = 0; i < t->len; i++)
        text[len + i] = (uint8_t)t->bytes[i];
    return ref_can_go_on(&w->ref, text, len + t->len);
}

static bool ref_must_end(struct world *w, uint16_t *text, unsigned len)
{
    if (!ref_matches(&w->ref, text, len))
        return false;
    for (unsigned symbol = 0; symbol < SYMBOL_NAMED + N_NAMED; symbol++) {
        text[len] = (uint16_t)symbol;
        if (ref_can_go_on(&w->ref, text, len + 1))
            return false;
    }
    return true;
}

/* If it was in too many places at once, some were dropped: nothing wrong is allowed, but not
 * everything that is right. */
static void check_narrowed(struct world *w, uint16_t *text, unsigned len)
{
    const uint64_t *mask = grammar_matcher_mask(w->m, UINT32_MAX);
    unsigned n = 0;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        n += has(mask, i);
        CHECK(!has(mask, i) || ref_allows(w, text, len, i));
    }
    CHECK(n > 0);
}

static void check_place(struct world *w, uint16_t *text, unsigned len, uint64_t seed)
{
    const uint64_t *mask = grammar_matcher_mask(w->m, UINT32_MAX);
    const uint64_t *same = mask_in_pieces(w, w->other, UINT32_MAX);
    CHECK_INT(memcmp(mask, same, w->v->n_words * sizeof *mask), 0);
    CHECK_INT(grammar_matcher_may_end(w->m), ref_matches(&w->ref, text, len));
    if (grammar_matcher_must_end(w->m) != ref_must_end(w, text, len)) {
        ref_print(&w->ref);
        for (unsigned i = 0; i < len; i++)
            printf(" %x", text[i]);
        test_fail(__FILE__, __LINE__, "seed %llu, place %u: must_end", (unsigned long long)seed,
                  len);
    }
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        bool allowed = ref_allows(w, text, len, i);
        if (has(mask, i) != allowed) {
            ref_print(&w->ref);
            test_fail(__FILE__, __LINE__, "seed %llu, place %u, token %u: %d, expected %d",
                      (unsigned long long)seed, len, i, has(mask, i), allowed);
        }
        if (!allowed)
            CHECK(!grammar_matcher_accept(w->m, (int32_t)i));
    }
}

/* A random token of the mask; UINT32_MAX if it is empty. */
static uint32_t pick(const uint64_t *mask, uint64_t *seed)
{
    uint32_t first = ref_random(seed, N_TOKENS);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        if (has(mask, (first + i) % N_TOKENS))
            return (first + i) % N_TOKENS;
    return UINT32_MAX;
}

/* A token that can be read in two ways, by its name and by its bytes, makes texts ambiguous in a
 * way that the reference's list of symbols cannot express: the walk ends there. */
static bool is_two_ways(struct world *w, uint16_t *text, unsigned len, uint32_t token)
{
    if (token >= N_NAMED || w->tokens[token].is_end || w->tokens[token].is_special)
        return false;
    text[len] = (uint16_t)(SYMBOL_NAMED + token);
    return ref_can_go_on(&w->ref, text, len + 1);
}

static void walk(struct world *w, uint64_t *seed, uint64_t name)
{
    uint16_t text[REF_TEXT_MAX + MAX_TOKEN_LEN + 1];
    unsigned len = 0;
    bool is_narrowed = false;
    grammar_matcher_reset(w->m);
    grammar_matcher_reset(w->other);
    while (len + MAX_TOKEN_LEN < REF_TEXT_MAX) {
        is_narrowed = is_narrowed || w->m->n_items == ITEMS_MAX;
        if (is_narrowed)
            check_narrowed(w, text, len);
        else
            check_place(w, text, len, name);
        uint32_t token = pick(grammar_matcher_mask(w->m, UINT32_MAX), seed);
        if (token == UINT32_MAX || is_two_ways(w, text, len, token))
            return;
        CHECK(grammar_matcher_accept(w->m, (int32_t)token));
        CHECK(grammar_matcher_accept(w->other, (int32_t)token));
        const struct grammar_token_info *t = &w->tokens[token];
        if (t->is_end && ref_matches(&w->ref, text, len))
            return;
        text[len] = (uint16_t)(SYMBOL_NAMED + token);
        if (token < N_NAMED && ref_can_go_on(&w->ref, text, len + 1)) {
            len++;
            continue;
        }
        for (uint32_t i = 0; i < t->len; i++)
            text[len++] = (uint8_t)t->bytes[i];
    }
}

TEST(grammar_random, masks_are_the_references)
{
    struct world *w = calloc(1, sizeof *w);
    unsigned n_good = 0;
    for (uint64_t i = 0; i < N_GRAMMARS; i++) {
        uint64_t seed = i << 32;
        if (!open_world(w, &seed))
            continue;
        n_good++;
        for (int k = 0; k < 2; k++)
            walk(w, &seed, i);
        close_world(w);
    }
    CHECK(n_good > N_GRAMMARS / 5);
    free(w);
}

/* Whatever is chosen, an answer whose budget suffices at its start is complete at its end. */
TEST(grammar_random, answers_end_within_their_budget)
{
    struct world *w = calloc(1, sizeof *w);
    unsigned n_good = 0;
    for (uint64_t i = 0; i < 2 * N_GRAMMARS; i++) {
        uint64_t seed = i << 32 | 7;
        if (!open_world(w, &seed))
            continue;
        uint32_t least = wind_cost(w->m, w->m->items[0].state, 0);
        for (uint32_t extra = 0; least < 1000 && extra < 6; extra++) {
            uint32_t n_left = least + extra * extra * extra;
            bool is_over = false;
            grammar_matcher_reset(w->m);
            grammar_matcher_reset(w->other);
            for (; n_left > 0 && !is_over && !grammar_matcher_must_end(w->m); n_left--) {
                const uint64_t *mask = grammar_matcher_mask(w->m, n_left);
                const uint64_t *same = mask_in_pieces(w, w->other, n_left);
                CHECK_INT(memcmp(mask, same, w->v->n_words * sizeof *mask), 0);
                CHECK_INT(grammar_matcher_unhurried(w->m) != NULL,
                          grammar_matcher_unhurried(w->other) != NULL);
                uint32_t token = pick(mask, &seed);
                CHECK(token != UINT32_MAX);
                CHECK(has(grammar_matcher_mask(w->m, UINT32_MAX), token));
                is_over = w->tokens[token].is_end && grammar_matcher_may_end(w->m);
                CHECK(grammar_matcher_accept(w->m, (int32_t)token));
                CHECK(grammar_matcher_accept(w->other, (int32_t)token));
            }
            if (!grammar_matcher_may_end(w->m))
                test_fail(__FILE__, __LINE__, "seed %llu, budget %u + %u", (unsigned long long)i,
                          least, extra * extra * extra);
            n_good++;
        }
        close_world(w);
    }
    CHECK(n_good > N_GRAMMARS && w->n_pauses > N_GRAMMARS);
    free(w);
}
