/* Strings: pattern, format, minLength and maxLength. A single expression becomes a grammar
 * directly; a length limit is merged into it if that is simple; everything else goes through
 * automata. */
#include "prompt/schema/json_schema_internal.h"

#include <stdlib.h>
#include <string.h>

enum { PRODUCT_LARGE = 4096 }; /* states */

/* A pattern's tree and automaton, made on first use. */
struct schema_pattern {
    const char *text;
    size_t len;
    bool is_format;
    struct regex *regex;
    const struct text_dfa *dfa; /* NULL: not made yet */
    struct schema_pattern *next;
};

static bool rule_add(struct schema_walker *w, const struct schema_item *item,
                     struct schema_facets *f, const char *text, size_t len, bool is_format)
{
    for (struct string_rule *r = f->rules; r; r = r->next)
        if (!r->is_negated && r->is_format == is_format && r->len == len &&
            memcmp(r->text, text, len) == 0)
            return true;
    struct string_rule *rule = arena_alloc(&w->arena, sizeof *rule);
    if (!rule)
        return schema_step(w, 1);
    *rule = (struct string_rule){
        .text = text, .len = len, .is_format = is_format, .item = item, .next = f->rules};
    f->rules = rule;
    return true;
}

/* Texts that a rewritten schema excludes; see rewrite.c. */
static bool negated_add(struct schema_walker *w, const struct schema_item *item,
                        struct schema_facets *f)
{
    const struct json *pattern = json_get(item->node, "$notPattern");
    const struct json *names = json_get(item->node, "$notEnum");
    if ((!pattern && !names) || !schema_is_made(w, item->node))
        return true;
    struct string_rule *rule = arena_alloc(&w->arena, sizeof *rule);
    if (!rule)
        return schema_step(w, 1);
    *rule = (struct string_rule){
        .is_negated = true, .names = names, .item = item, .next = f->rules};
    if (pattern) {
        rule->text = pattern->text;
        rule->len = pattern->text_len;
    }
    f->rules = rule;
    return true;
}

bool schema_string_facets(struct schema_walker *w, const struct schema_item *item,
                          struct schema_facets *f)
{
    const struct json *pattern = json_get(item->node, "pattern");
    if (pattern && pattern->type != JSON_STRING)
        return schema_fail(w, item->place, "pattern", "must be a string");
    if (pattern && w->is_lenient &&
        !regex_read(&w->arena, pattern->text, pattern->text_len, REGEX_SEARCH, NULL))
        pattern = NULL;
    if (pattern && !rule_add(w, item, f, pattern->text, pattern->text_len, false))
        return false;
    const struct json *format = json_get(item->node, "format");
    const char *regex = json_is(format, JSON_STRING) ? schema_format_regex(format->text) : NULL;
    return (!regex || rule_add(w, item, f, regex, strlen(regex), true)) && negated_add(w, item, f);
}

/* ---- patterns ------------------------------------------------------------------------------ */

/* Puts the place of the keyword before the pattern parser's error. */
static void *pattern_fail(struct schema_walker *w, const struct schema_item *item,
                          const struct error *err)
{
    if (w->failed)
        return NULL;
    if (err->code == ERROR_LIMIT || err->code == ERROR_MEMORY)
        schema_fail_limit(w, item->place, err->message);
    else
        schema_refuse(w, item->place, "pattern", "%s", err->message);
    return NULL;
}

static struct schema_pattern *pattern_get(struct schema_walker *w, const struct schema_item *item,
                                          const char *text, size_t len, bool is_format)
{
    for (struct schema_pattern *p = w->patterns; p; p = p->next)
        if (p->is_format == is_format && p->len == len && memcmp(p->text, text, len) == 0)
            return p;
    struct schema_pattern *p = arena_alloc(&w->arena, sizeof *p);
    if (!schema_step(w, 1 + len) || !p)
        return NULL;
    struct error err = {0};
    struct regex *regex = regex_read(&w->arena, text, len, is_format ? REGEX_WHOLE : REGEX_SEARCH,
                                     &err);
    if (!regex)
        return pattern_fail(w, item, &err);
    *p = (struct schema_pattern){text, len, is_format, regex, NULL, w->patterns};
    w->patterns = p;
    return p;
}

static const struct text_dfa *dfa_get(struct schema_walker *w, const struct schema_item *item,
                                      struct schema_pattern *p)
{
    struct error err = {0};
    if (!p)
        return NULL;
    if (!p->dfa) {
        p->dfa = text_dfa_from_regex(&w->arena, p->regex, &err);
        if (!p->dfa)
            return pattern_fail(w, item, &err);
        schema_step(w, 1000 + p->dfa->n_edges); /* automata cost more than other work */
    }
    return p->dfa;
}

static int name_compare(const void *a, const void *b)
{
    return byte_view_compare(*(const struct byte_view *)a, *(const struct byte_view *)b);
}

/* The automaton of `n` texts, which it sorts. */
static const struct text_dfa *texts_dfa(struct schema_walker *w, const struct schema_item *item,
                                        struct byte_view *names, size_t n)
{
    struct error err = {0};
    size_t unique = 0;
    qsort(names, n, sizeof *names, name_compare);
    for (size_t i = 0; i < n; i++)
        if (!unique || name_compare(&names[unique - 1], &names[i]) != 0)
            names[unique++] = names[i];
    const struct text_dfa *dfa = text_dfa_from_names(&w->arena, names, unique, &err);
    return dfa ? dfa : pattern_fail(w, item, &err);
}

static const struct text_dfa *names_dfa(struct schema_walker *w, const struct string_rule *rule)
{
    struct byte_view *names = arena_alloc_array(&w->arena, rule->names->count + 1, sizeof *names);
    size_t n = 0;
    if (!names)
        return schema_step(w, 1), NULL;
    json_each (name, rule->names)
        names[n++] = json_bytes(name);
    return texts_dfa(w, rule->item, names, n);
}

const struct text_dfa *schema_rule_dfa(struct schema_walker *w, const struct string_rule *rule)
{
    if (rule->names)
        return names_dfa(w, rule);
    return dfa_get(w, rule->item,
                   pattern_get(w, rule->item, rule->text, rule->len, rule->is_format));
}

const struct text_dfa *schema_pattern_dfa(struct schema_walker *w, const struct schema_item *item,
                                          const char *text, size_t len)
{
    return dfa_get(w, item, pattern_get(w, item, text, len, false));
}

static const struct text_dfa *combine(struct schema_walker *w, const struct schema_facets *f,
                                      const struct text_dfa *a, const struct text_dfa *b,
                                      enum text_operation operation)
{
    struct error err = {0};
    if (!a || !b || w->failed)
        return NULL;
    const struct text_dfa *out = text_dfa_combine(&w->arena, a, b, operation, &err);
    if (!out)
        return pattern_fail(w, f->set->items[0], &err);
    schema_step(w, 1000 + out->n_edges);
    return out;
}

/* All strings that length, patterns and formats allow. */
static const struct text_dfa *facets_dfa(struct schema_walker *w, const struct schema_facets *f)
{
    struct error err = {0};
    const struct text_dfa *all = NULL;
    bool has_rule = false;
    for (const struct string_rule *rule = f->rules; rule; rule = rule->next)
        has_rule |= !rule->is_negated;
    if (!has_rule || f->min_length || f->max_length != GRAMMAR_NO_MAX) {
        all = text_dfa_from_lengths(&w->arena, f->min_length, f->max_length, &err);
        if (!all)
            return pattern_fail(w, f->set->items[0], &err);
    }
    for (int negated = 0; negated < 2; negated++)
        for (const struct string_rule *rule = f->rules; rule; rule = rule->next) {
            if (rule->is_negated != (negated == 1))
                continue;
            const struct text_dfa *dfa = schema_rule_dfa(w, rule);
            all = all ? combine(w, f, all, dfa, negated ? TEXT_AND_NOT : TEXT_AND) : dfa;
            if (!all)
                return NULL;
        }
    return all;
}

/* The strings among the values of enum and const that the other keywords allow. */
static const struct text_dfa *values_dfa(struct schema_walker *w, const struct schema_facets *f)
{
    struct byte_view *names = arena_alloc_array(&w->arena, f->n_values + 1, sizeof *names);
    size_t n = 0;
    if (!names)
        return schema_step(w, 1), NULL;
    for (size_t i = 0; i < f->n_values; i++)
        if (f->values[i]->type == JSON_STRING && schema_fits(w, f->values[i], f))
            names[n++] = json_bytes(f->values[i]);
    return texts_dfa(w, f->set->items[0], names, n);
}

const struct text_dfa *schema_strings_dfa(struct schema_walker *w, const struct schema_set *set)
{
    struct schema_alternatives alternatives;
    struct error err = {0};
    const struct text_dfa *all = text_dfa_from_names(&w->arena, NULL, 0, &err);
    if (!all)
        return schema_step(w, 1), NULL;
    if (!schema_expand(w, set, &alternatives))
        return NULL;
    for (size_t i = 0; i < alternatives.n; i++) {
        struct schema_facets f;
        if (!schema_facets(w, &alternatives.sets[i], &f))
            return NULL;
        if (!(f.types & TYPE_STRING))
            continue;
        if (alternatives.sets[i].n == 0)
            f.set = set; /* for messages */
        all = combine(w, &f, all, f.has_values ? values_dfa(w, &f) : facets_dfa(w, &f), TEXT_OR);
        if (!all)
            return NULL;
    }
    return all;
}

/* ---- values and grammars ------------------------------------------------------------------- */

bool schema_string_is_valid(struct schema_walker *w, const struct schema_facets *f,
                            const char *text, size_t len)
{
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (text[i] & 0xc0) != 0x80;
    if (n < f->min_length || n > f->max_length)
        return false;
    for (const struct string_rule *rule = f->rules; rule; rule = rule->next) {
        if (rule->is_format && w->n_probing)
            continue; /* our formats are narrower than the real ones */
        const struct text_dfa *dfa = schema_rule_dfa(w, rule);
        if (!dfa || text_dfa_accepts(dfa, text, len) == rule->is_negated)
            return false;
    }
    return true;
}

/* True if the automaton of a pattern combined with a length would be large: then a narrower grammar
 * is better. */
static bool product_is_large(struct schema_walker *w, const struct string_rule *rule,
                             struct schema_pattern *p, const struct schema_facets *f)
{
    const struct text_dfa *dfa = dfa_get(w, rule->item, p);
    uint32_t length = f->max_length == GRAMMAR_NO_MAX ? f->min_length : f->max_length;
    return dfa && (uint64_t)dfa->n_states * length > PRODUCT_LARGE;
}

static const struct regex *shrink(struct schema_walker *w, const struct schema_pattern *p,
                                  const struct schema_facets *f)
{
    uint32_t min, max;
    regex_length_range(p->regex, &min, &max);
    return min >= f->min_length ? regex_shrink(&w->arena, p->regex, f->max_length) : NULL;
}

grammar_expr schema_string(struct schema_walker *w, const struct schema_facets *f)
{
    struct json_text *t = &w->text;
    if (f->min_length > f->max_length)
        return grammar_never(w->b);
    if (!f->rules) {
        if (f->min_length == 0 && f->max_length == GRAMMAR_NO_MAX)
            return t->string;
        return json_text_quoted(t,
                                grammar_repeat(w->b, t->character, f->min_length, f->max_length));
    }
    const struct string_rule *rule = f->rules;
    if (!rule->next && !rule->is_negated) {
        struct schema_pattern *p = pattern_get(w, rule->item, rule->text, rule->len,
                                               rule->is_format);
        if (!p)
            return GRAMMAR_NONE;
        const struct regex *regex = regex_limit_length(&w->arena, p->regex, f->min_length,
                                                       f->max_length);
        if (!regex && product_is_large(w, rule, p, f))
            regex = shrink(w, p, f);
        if (w->failed)
            return GRAMMAR_NONE;
        if (regex)
            return json_text_quoted(t, regex_to_grammar(w->b, &w->arena, regex, TEXT_JSON));
    }
    const struct text_dfa *dfa = facets_dfa(w, f);
    if (!dfa)
        return GRAMMAR_NONE;
    return json_text_quoted(t, text_dfa_to_grammar(w->b, &w->arena, dfa, TEXT_JSON));
}
