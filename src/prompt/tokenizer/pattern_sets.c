/* The character sets that regular expressions in tokenizer.json files name: \w, \s, [:alpha:] and
 * so on, as Oniguruma defines them, in PCRE2's syntax. PCRE2's own \w and [:alpha:] leave out
 * marks and letter numbers, and its tables end with Unicode 14. So only general categories come
 * from PCRE2, each with later additions, and everything else is ranges. */
#include "prompt/tokenizer/pattern.h"

#include <string.h>

#include "prompt/unicode/unicode_tables.h"

/* Symbols that are Alphabetic: circled and squared letters. */
#define ROUND_LETTERS                                                                              \
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

static void add_range(struct strbuf *out, uint32_t first, uint32_t last)
{
    /* Patterns must not name surrogates, and no text contains them. */
    if (first < 0xd800 && last > 0xdfff) {
        strbuf_addf(out, "\\x{%x}-\\x{d7ff}\\x{e000}-\\x{%x}", first, last);
        return;
    }
    strbuf_addf(out, "\\x{%x}-\\x{%x}", first, last);
}

static void add_codes(struct strbuf *out, struct code_set set)
{
    for (size_t i = 0; i < set.n; i++)
        add_range(out, set.ranges[i].first, set.ranges[i].last);
}

static void add_other_codes(struct strbuf *out, struct code_set set)
{
    uint32_t next = 0;
    for (size_t i = 0; i < set.n; i++) {
        if (set.ranges[i].first > next)
            add_range(out, next, set.ranges[i].first - 1);
        next = set.ranges[i].last + 1;
    }
    if (next <= CODE_MAX)
        add_range(out, next, CODE_MAX);
}

static void add_other_category(struct strbuf *out, const char *category)
{
    static const struct {
        const char *name;
        const struct code_set *set;
    } known[] = {{"L", &letter_set}, {"N", &number_set}, {"Nd", &digit_set}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, category) == 0) {
            add_other_codes(out, *known[i].set);
            return;
        }
    strbuf_addf(out, "\\P{%s}", category);
}

void regex_add_category(struct strbuf *out, const char *category, bool negated)
{
    if (negated) {
        add_other_category(out, category);
        return;
    }
    strbuf_addf(out, "\\p{%s}", category);
    for (size_t i = 0; i < sizeof late_categories / sizeof *late_categories; i++)
        if (strncmp(late_categories[i].name, category, strlen(category)) == 0)
            add_codes(out, late_categories[i].set);
}

void regex_add_digits(struct strbuf *out, bool negated)
{
    regex_add_category(out, "Nd", negated);
}

void regex_add_spaces(struct strbuf *out, bool negated)
{
    if (negated)
        add_other_codes(out, space_set);
    else
        add_codes(out, space_set);
}

void regex_add_hex_digits(struct strbuf *out, bool negated)
{
    strbuf_adds(out, negated ? "\\x{0}-/:-@G-`g-\\x{d7ff}\\x{e000}-\\x{10ffff}" : "0-9A-Fa-f");
}

/* word_set is another engine's \w, which also includes the two joiners. */
void regex_add_word(struct strbuf *out, bool negated)
{
    static const char *const categories[] = {"L", "M", "Nd", "Nl", "Pc"};
    if (negated) {
        add_other_codes(out, word_set);
        strbuf_adds(out, "\\x{200c}\\x{200d}");
        return;
    }
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        regex_add_category(out, categories[i], false);
    strbuf_adds(out, ROUND_LETTERS);
}

void regex_add_lone_word(struct strbuf *out)
{
    regex_add_word(out, false);
    strbuf_adds(out, "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}");
}

/* ---- POSIX brackets ---- */

/* Each is the categories, what is written beside them, and ranges. */
static const struct posix_set {
    const char *name;
    const char *categories[8];
    const char *others;
    const struct code_set *more;
    const char *negated; /* NULL: it cannot be written as members of a class */
} posix_sets[] = {
    {"alpha", {"L", "Nl"}, "", &more_alpha_set, NULL},
    {"alnum", {"L", "Nl", "Nd"}, "", &more_alpha_set, NULL},
    {"upper", {"Lu"}, "", &more_upper_set, NULL},
    {"lower", {"Ll"}, "", &more_lower_set, NULL},
    {"punct", {"P", "S"}, "", NULL, NULL},
    {"graph", {"L", "M", "N", "P", "S", "Cf"}, "\\p{Co}", NULL, NULL},
    {"print", {"L", "M", "N", "P", "S", "Cf", "Zs"}, "\\p{Co}", NULL, NULL},
    {"blank", {"Zs"}, "\\t", NULL, NULL},
    {"cntrl", {NULL}, "\\p{Cc}", NULL, "\\P{Cc}"},
    {"ascii", {NULL}, "\\x{0}-\\x{7f}", NULL, "\\x{80}-\\x{d7ff}\\x{e000}-\\x{10ffff}"},
};

int regex_add_posix(struct strbuf *out, const char *name, size_t len, bool negated,
                    struct error *err)
{
    static const struct {
        const char *name;
        void (*add)(struct strbuf *out, bool negated);
    } classes[] = {{"word", regex_add_word},
                   {"space", regex_add_spaces},
                   {"digit", regex_add_digits},
                   {"xdigit", regex_add_hex_digits}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == len && memcmp(classes[i].name, name, len) == 0) {
            classes[i].add(out, negated);
            return 0;
        }
    for (size_t i = 0; i < sizeof posix_sets / sizeof *posix_sets; i++) {
        const struct posix_set *set = &posix_sets[i];
        if (strlen(set->name) != len || memcmp(set->name, name, len) != 0)
            continue;
        if (negated && !set->negated)
            break;
        if (negated) {
            strbuf_adds(out, set->negated);
            return 0;
        }
        for (size_t k = 0; k < 8 && set->categories[k]; k++)
            regex_add_category(out, set->categories[k], false);
        strbuf_adds(out, set->others);
        if (set->more)
            add_codes(out, *set->more);
        return 0;
    }
    return error_set(err, ERROR_FORMAT, "[:%s%.*s:] is not supported", negated ? "^" : "",
                     (int)(len < 32 ? len : 32), name);
}
