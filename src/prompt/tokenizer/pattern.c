/* Regular expressions of tokenizer.json files. They are written for Oniguruma (Ruby's syntax) and
 * run by PCRE2, so syntax that differs between the two is rewritten:
 *
 *   \s \w [:alpha:]  Oniguruma's sets, in pattern_sets.c
 *   \b \B           between \w and others; PCRE2's \w is another
 *   \p{L} \p{Nd} \d the category, and its characters that are newer than Unicode 14
 *   \p{Han}         \p{sc:Han}; PCRE2 would take characters that are also used with the script
 *   \h \v           a hexadecimal digit, U+000B; PCRE2 has horizontal and vertical space
 *   a{,3}           a{0,3}; PCRE2 takes it as it is written
 *   (?m)            (?s); PCRE2's (?m) is always on
 *   [a&&[^b]]       (?:(?=[^b])[a]): PCRE2 has no such classes
 *   [a[b]]          rejected for the same reason
 *
 * The text comes from a client and the pattern from a file, and together they can take forever. A
 * search has a limit, and exceeding it is an error of that text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "prompt/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "prompt/tokenizer/pattern.h"

enum {
    MAX_PATTERN_BYTES = 1 << 16,
    MATCH_LIMIT = 2000000,
    HEAP_LIMIT_KIB = 64 << 10,
    JIT_STACK_START = 32 << 10,
    JIT_STACK_MAX = 8 << 20,
};

struct text_regex {
    pcre2_code *code;
    bool jit;
};

struct regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- from Oniguruma's syntax to PCRE2's ---- */

struct rewriter {
    const char *at, *end;
    struct strbuf out;
    unsigned class_depth; /* 1 inside of [ ] */
    bool is_side;         /* it is an operand of && */
    struct error *err;
};

/* The short name of a general category, or NULL. */
static const char *category_name(const char *name)
{
    static const char *const names[][2] = {
        {"L", "Letter"},
        {"M", "Mark"},
        {"N", "Number"},
        {"P", "Punct"},
        {"P", "Punctuation"},
        {"S", "Symbol"},
        {"Z", "Separator"},
        {"Lu", "Uppercase_Letter"},
        {"Ll", "Lowercase_Letter"},
        {"Lt", "Titlecase_Letter"},
        {"Lm", "Modifier_Letter"},
        {"Lo", "Other_Letter"},
        {"Mn", "Nonspacing_Mark"},
        {"Mc", "Spacing_Mark"},
        {"Me", "Enclosing_Mark"},
        {"Nd", "Decimal_Number"},
        {"Nl", "Letter_Number"},
        {"No", "Other_Number"},
        {"Pc", ""},
        {"Pd", ""},
        {"Ps", ""},
        {"Pe", ""},
        {"Pi", ""},
        {"Pf", ""},
        {"Po", ""},
        {"Sm", ""},
        {"Sc", ""},
        {"Sk", ""},
        {"So", ""},
        {"Zs", ""},
        {"Zl", ""},
        {"Zp", ""},
        {"Cf", ""},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i][0]) == 0 || (names[i][1][0] && strcmp(name, names[i][1]) == 0))
            return names[i][0];
    return NULL;
}

static bool is_script(const char *name)
{
    static const char *const scripts[] = {
        "Han",      "Hiragana",   "Katakana", "Hangul", "Thai",   "Latin",    "Cyrillic",
        "Greek",    "Arabic",     "Hebrew",   "Khmer",  "Lao",    "Myanmar",  "Tibetan",
        "Bopomofo", "Devanagari", "Bengali",  "Tamil",  "Telugu", "Armenian", "Georgian",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(name, scripts[i]) == 0)
            return true;
    return false;
}

/* The POSIX name of a property that equals its bracket expression, or NULL. */
static const char *posix_name(const char *name)
{
    static const char *const names[][2] = {
        {"Alpha", "alpha"}, {"Alphabetic", "alpha"},  {"Alnum", "alnum"},     {"Upper", "upper"},
        {"Lower", "lower"}, {"Uppercase", "upper"},   {"Lowercase", "lower"}, {"Digit", "digit"},
        {"Space", "space"}, {"White_Space", "space"}, {"Graph", "graph"},     {"Print", "print"},
        {"Blank", "blank"}, {"Cntrl", "cntrl"},       {"XDigit", "xdigit"},   {"ASCII", "ascii"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

/* Opens a class for the members that follow, unless one is already open. */
static void open_set(struct rewriter *r, bool negated)
{
    if (!r->class_depth)
        strbuf_adds(&r->out, negated ? "[^" : "[");
}

static void close_set(struct rewriter *r)
{
    if (!r->class_depth)
        strbuf_addc(&r->out, ']');
}

typedef void set_adder(struct strbuf *out, bool negated);

static int rewrite_set(struct rewriter *r, set_adder *add, bool negated)
{
    open_set(r, negated);
    add(&r->out, negated && r->class_depth);
    close_set(r);
    return 0;
}

static int rewrite_word(struct rewriter *r, bool negated)
{
    if (r->class_depth)
        return rewrite_set(r, regex_add_word, negated);
    open_set(r, negated);
    regex_add_lone_word(&r->out);
    close_set(r);
    return 0;
}

/* Called at the name after \p or \P. */
static int rewrite_property(struct rewriter *r, bool negated)
{
    char name[32];
    const char *close = r->at < r->end && *r->at == '{'
                            ? memchr(r->at, '}', (size_t)(r->end - r->at))
                            : NULL;
    if (!close || close - r->at - 1 >= (ptrdiff_t)sizeof name)
        return error_set(r->err, ERROR_FORMAT, "\\p without a name in braces");
    const char *from = r->at + 1;
    if (*from == '^') {
        negated = !negated;
        from++;
    }
    memcpy(name, from, (size_t)(close - from));
    name[close - from] = '\0';
    r->at = close + 1;
    const char *category = category_name(name), *posix = posix_name(name);
    int failed = 0;
    if (strcmp(name, "Word") == 0)
        return rewrite_word(r, negated);
    if (!category && !posix) {
        strbuf_addf(&r->out, "\\%c{%s%s}", negated ? 'P' : 'p', is_script(name) ? "sc:" : "", name);
        return 0;
    }
    open_set(r, negated);
    if (category)
        regex_add_category(&r->out, category, negated && r->class_depth);
    else
        failed = regex_add_posix(&r->out, posix, strlen(posix), negated && r->class_depth, r->err);
    close_set(r);
    return failed;
}

/* "(?<=[\w])" and so on: looks at the character before or after the position. */
static void add_word_look(struct rewriter *r, const char *look)
{
    strbuf_adds(&r->out, look);
    strbuf_addc(&r->out, '[');
    regex_add_lone_word(&r->out);
    strbuf_adds(&r->out, "])");
}

/* A condition: if a word ends here, none starts (or continues), else one does (or does not). */
static int rewrite_boundary(struct rewriter *r, bool negated)
{
    add_word_look(r, "(?(?<=");
    add_word_look(r, negated ? "(?=" : "(?!");
    strbuf_addc(&r->out, '|');
    add_word_look(r, negated ? "(?!" : "(?=");
    strbuf_addc(&r->out, ')');
    return 0;
}

/* Called after a backslash. */
static int rewrite_escape(struct rewriter *r)
{
    if (r->at == r->end)
        return error_set(r->err, ERROR_FORMAT, "it ends with a backslash");
    char c = *r->at++;
    switch (c) {
    case 'p':
    case 'P': return rewrite_property(r, c == 'P');
    case 's':
    case 'S': return rewrite_set(r, regex_add_spaces, c == 'S');
    case 'h':
    case 'H': return rewrite_set(r, regex_add_hex_digits, c == 'H');
    case 'd':
    case 'D': return rewrite_set(r, regex_add_digits, c == 'D');
    case 'w':
    case 'W': return rewrite_word(r, c == 'W');
    case 'v': strbuf_adds(&r->out, "\\x0b"); return 0;
    case 'b':
    case 'B':
        if (!r->class_depth)
            return rewrite_boundary(r, c == 'B');
        break;
    default: break;
    }
    strbuf_addc(&r->out, '\\');
    strbuf_addc(&r->out, c);
    return 0;
}

/* Called at the colon of [:alpha:]. */
static int rewrite_posix(struct rewriter *r)
{
    const char *close = memmem(r->at, (size_t)(r->end - r->at), ":]", 2);
    if (!close || close == r->at)
        return error_set(r->err, ERROR_FORMAT, "[: without :]");
    const char *name = r->at + 1;
    bool negated = *name == '^';
    name += negated;
    r->at = close + 2;
    return regex_add_posix(&r->out, name, (size_t)(close - name), negated, r->err);
}

static int rewrite_in_class(struct rewriter *r, char c)
{
    size_t left = (size_t)(r->end - r->at);
    if (c == '[' && left > 0 && *r->at != ':')
        return error_set(r->err, ERROR_FORMAT, "a class inside of a class");
    if (c == '&' && left > 0 && *r->at == '&')
        return error_set(r->err, ERROR_FORMAT, "an intersection of classes (&&)");
    if (c == '[')
        return rewrite_posix(r);
    if (c == ']')
        r->class_depth = 0;
    strbuf_addc(&r->out, c);
    return 0;
}

static int rewrite(struct rewriter *r);

/* Called after the '[' at `at`: the end of the class and its first && outside nested classes; NULL
 * if missing. */
static const char *class_end(const char *at, const char *end, const char **both)
{
    unsigned depth = 1;
    *both = NULL;
    for (const char *begin = at; at < end; at++) {
        bool first = at == begin || (at == begin + 1 && *begin == '^');
        if (*at == '\\' && at + 1 < end)
            at++;
        else if (*at == '[')
            depth++;
        else if (*at == ']' && !first && --depth == 0)
            return at;
        else if (depth == 1 && *at == '&' && at + 1 < end && at[1] == '&' && !*both)
            *both = at;
    }
    return NULL;
}

/* One operand of &&, as a separate class. */
static int rewrite_side(struct rewriter *r, const char *begin, const char *end)
{
    struct strbuf side = STRBUF_INIT;
    const char *both;
    bool is_class = begin < end && *begin == '[';
    if (begin == end || *begin == '^' || (is_class && class_end(begin + 1, end, &both) != end - 1))
        return error_set(r->err, ERROR_FORMAT, "&& without a class on each side");
    strbuf_adds(&side, is_class ? "" : "[");
    strbuf_add(&side, begin, (size_t)(end - begin));
    strbuf_adds(&side, is_class ? "" : "]");
    struct rewriter inner = {
        .at = strbuf_str(&side), .err = r->err, .out = r->out, .is_side = true};
    inner.end = inner.at + side.len;
    int failed = rewrite(&inner);
    r->out = inner.out;
    strbuf_free(&side);
    return failed;
}

/* Called after a '[': [a&&b&&c] matches what is in a and, by lookahead, in b and c. 1: rewritten;
 * 0: it is another kind of class. */
static int rewrite_intersection(struct rewriter *r)
{
    const char *both, *rest, *begin = r->at, *end = class_end(begin, r->end, &both);
    if (!end || !both)
        return 0;
    if (*begin == '^' || r->is_side)
        return error_set(r->err, ERROR_FORMAT,
                         "&& in a class that is negated or inside of another");
    strbuf_adds(&r->out, "(?:");
    for (rest = both; rest; rest = both) {
        class_end(rest + 2, end + 1, &both);
        strbuf_adds(&r->out, "(?=");
        if (rewrite_side(r, rest + 2, both ? both : end) != 0)
            return -1;
        strbuf_addc(&r->out, ')');
    }
    class_end(begin, r->end, &both);
    if (rewrite_side(r, begin, both) != 0)
        return -1;
    strbuf_addc(&r->out, ')');
    r->at = end + 1;
    return 1;
}

/* {,n} */
static void rewrite_up_to(struct rewriter *r)
{
    const char *at = r->at;
    if (at == r->end || *at++ != ',' || at == r->end || !ascii_is_digit(*at))
        return;
    while (at < r->end && ascii_is_digit(*at))
        at++;
    if (at == r->end || *at != '}')
        return;
    strbuf_addc(&r->out, '0');
}

/* Called after "(": "?m-i:", where m lets a dot match a newline. */
static void rewrite_options(struct rewriter *r)
{
    if (r->at == r->end || *r->at != '?')
        return;
    const char *end = r->at + 1;
    while (end < r->end && strchr("imx-", *end) && *end)
        end++;
    if (end == r->end || (*end != ':' && *end != ')'))
        return;
    for (; r->at < end; r->at++)
        strbuf_addc(&r->out, *r->at == 'm' ? 's' : *r->at);
}

static void open_class(struct rewriter *r)
{
    r->class_depth = 1;
    if (r->at < r->end && *r->at == '^')
        strbuf_addc(&r->out, *r->at++);
    if (r->at < r->end && *r->at == ']') {
        strbuf_adds(&r->out, "\\]");
        r->at++;
    }
}

static int rewrite(struct rewriter *r)
{
    while (r->at < r->end) {
        char c = *r->at++;
        int failed = 0;
        if (c == '\\') {
            failed = rewrite_escape(r);
        } else if (r->class_depth) {
            failed = rewrite_in_class(r, c);
        } else if (c == '[' && (failed = rewrite_intersection(r)) != 0) {
            failed = failed < 0;
        } else {
            strbuf_addc(&r->out, c);
            if (c == '[')
                open_class(r);
            else if (c == '{')
                rewrite_up_to(r);
            else if (c == '(')
                rewrite_options(r);
        }
        if (failed)
            return -1;
    }
    return r->out.failed ? error_set(r->err, ERROR_MEMORY, "no memory for it") : 0;
}

/* ---- compiling and running ---- */

static int compile(struct text_regex *regex, const struct strbuf *pattern, struct error *err)
{
    int code;
    size_t at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        return error_set(err, ERROR_MEMORY, "no memory for it");
    pcre2_set_parens_nest_limit(context, 64);
    regex->code = pcre2_compile((PCRE2_SPTR)strbuf_str(pattern), pattern->len,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &code, &at, context);
    pcre2_compile_context_free(context);
    if (!regex->code) {
        PCRE2_UCHAR what[128];
        pcre2_get_error_message(code, what, sizeof what);
        return error_set(err, ERROR_FORMAT, "%s", (const char *)what);
    }
    regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    return 0;
}

int text_regex_open(struct text_regex **out, const char *pattern, size_t len, struct error *err)
{
    struct error cause = {0};
    struct rewriter r = {.at = pattern, .end = pattern + len, .err = &cause};
    struct text_regex *regex = calloc(1, sizeof *regex);
    int failed = -1;
    if (!regex)
        error_set(&cause, ERROR_MEMORY, "no memory for it");
    else if (len > MAX_PATTERN_BYTES)
        error_set(&cause, ERROR_LIMIT, "it has %zu bytes; the limit is %d", len, MAX_PATTERN_BYTES);
    else
        failed = rewrite(&r) || compile(regex, &r.out, &cause) ? -1 : 0;
    strbuf_free(&r.out);
    if (failed) {
        text_regex_close(regex);
        return error_set(err, cause.code, "the regular expression \"%.*s\" cannot be used: %s",
                         (int)(len < 100 ? len : 100), pattern, cause.message);
    }
    *out = regex;
    return 0;
}

void text_regex_close(struct text_regex *regex)
{
    if (regex)
        pcre2_code_free(regex->code);
    free(regex);
}

void regex_scratch_free(struct regex_scratch *scratch)
{
    if (!scratch)
        return;
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    free(scratch);
}

static struct regex_scratch *scratch_of(struct encoder *e)
{
    if (e->scratch)
        return e->scratch;
    struct regex_scratch *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (!s->match || !s->context || !s->stack) {
        regex_scratch_free(s);
        return NULL;
    }
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    e->scratch = s;
    return s;
}

int text_regex_find(struct encoder *e, const struct text_regex *regex, const char *text, size_t len,
                    size_t at, size_t *begin, size_t *end)
{
    struct regex_scratch *s = scratch_of(e);
    if (!s)
        return error_set(e->err, ERROR_MEMORY, "no memory for a regular expression");
    int found = regex->jit ? pcre2_jit_match(regex->code, (PCRE2_SPTR)text, len, at, 0, s->match,
                                             s->context)
                           : pcre2_match(regex->code, (PCRE2_SPTR)text, len, at, PCRE2_NO_UTF_CHECK,
                                         s->match, s->context);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0)
        return error_set(e->err, ERROR_LIMIT,
                         "the model's pre-tokenizer takes too long on this text (its regular "
                         "expression exceeded a limit)");
    /* K in a lookahead can put the start of a match after its end. */
    size_t *place = pcre2_get_ovector_pointer(s->match);
    *begin = place[0] < at ? at : place[0];
    *end = place[1] < *begin ? *begin : place[1];
    return 1;
}

/* As in split() of split.c, an empty match directly after a match does not count. */
int text_regex_replace(struct encoder *e, const struct text_regex *regex, const char *text,
                       size_t len, struct byte_view to, struct strbuf *out)
{
    size_t at = 0, done = 0, begin = 0, end = 0;
    bool matched = false;
    int found = 0;
    while (at <= len && out->len <= MAX_TEXT_BYTES &&
           (found = text_regex_find(e, regex, text, len, at, &begin, &end)) == 1) {
        if (begin == end && matched && begin == done) {
            at += at < len ? utf8_valid_prefix(text + at, len - at) : 1;
            continue;
        }
        strbuf_add(out, text + done, begin - done);
        strbuf_add(out, to.bytes, to.len);
        done = at = end;
        matched = true;
    }
    strbuf_add(out, text + done, len - done);
    return found < 0 ? -1 : matched;
}
