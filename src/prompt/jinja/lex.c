/* From a template's source to lexemes, with Jinja's whitespace rules as transformers sets them:
 * trim_blocks (the newline after a block tag is removed), lstrip_blocks (spaces before a block tag
 * at the start of a line are removed), '-' in a tag strips all whitespace on that side, '+' keeps
 * it all, and the template's last newline is removed. Print tags {{ }} are neither trimmed nor
 * stripped without a '-', and }} inside brackets is two closing braces. */
#include "prompt/jinja/lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/utf8.h"
#include "prompt/unicode/unicode.h"

enum { MAX_BRACKETS = 512 };

struct lexer {
    struct arena *arena, *scratch;
    const char *source;
    size_t len, at;
    bool line_starting; /* at the start of the source, or after a newline */
    char brackets[MAX_BRACKETS];
    size_t n_brackets;
    struct lexeme_array *out;
    struct error *err;
};

int jinja_syntax_error(struct error *err, const char *source, size_t len, size_t position,
                       const char *format, ...)
{
    char message[320];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    unsigned line = 1;
    for (size_t i = 0; i < position && i < len; i++)
        line += source[i] == '\n';
    return error_set_at(err, ERROR_INPUT, position, "line %u: %s", line, message);
}

#define LEX_ERROR(l, position, ...)                                                                \
    jinja_syntax_error((l)->err, (l)->source, (l)->len, position, __VA_ARGS__)

const char *jinja_lexeme_name(enum lexeme_type type)
{
    static const char *const names[] = {"end of template",
                                        "template data / text",
                                        "begin of statement block",
                                        "end of statement block",
                                        "begin of print statement",
                                        "end of print statement",
                                        "name",
                                        "string",
                                        "integer",
                                        "float",
                                        "+",
                                        "-",
                                        "/",
                                        "//",
                                        "*",
                                        "%",
                                        "**",
                                        "~",
                                        "[",
                                        "]",
                                        "(",
                                        ")",
                                        "{",
                                        "}",
                                        "==",
                                        "!=",
                                        ">",
                                        ">=",
                                        "<",
                                        "<=",
                                        "=",
                                        ".",
                                        ":",
                                        "|",
                                        ",",
                                        ";"};
    return names[type];
}

static struct lexeme *lexeme_add(struct lexer *l, enum lexeme_type type, size_t position)
{
    struct lexeme_array *a = l->out;
    if (a->len == a->capacity) {
        size_t capacity = a->capacity ? a->capacity * 2 : 256;
        struct lexeme *lexemes = arena_alloc_array(l->scratch, capacity, sizeof *lexemes);
        if (!lexemes) {
            error_set(l->err, ERROR_MEMORY, "no memory for the chat template");
            return NULL;
        }
        if (a->len)
            memcpy(lexemes, a->lexemes, a->len * sizeof *lexemes);
        a->lexemes = lexemes;
        a->capacity = capacity;
    }
    struct lexeme *lexeme = &a->lexemes[a->len++];
    *lexeme = (struct lexeme){.type = type, .position = (uint32_t)position};
    return lexeme;
}

static bool starts_with(const struct lexer *l, size_t at, const char *string)
{
    size_t len = strlen(string);
    return l->len - at >= len && memcmp(l->source + at, string, len) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    uint32_t code;
    while (at < l->len) {
        size_t width = unicode_next(l->source + at, l->len - at, &code);
        if (!unicode_is_space(code))
            break;
        at += width;
    }
    return at;
}

/* The end of [from, to) without trailing whitespace. */
static size_t strip_right(const struct lexer *l, size_t from, size_t to)
{
    uint32_t code;
    while (to > from) {
        size_t width = unicode_last(l->source + from, to - from, &code);
        if (!unicode_is_space(code))
            break;
        to -= width;
    }
    return to;
}

/* If a tag `{% word %}` starts at `at` (with any sign), returns the offset after it, else 0. The
 * sign at its end goes to `end_sign`: '-', '+' or 0. */
static size_t match_word_tag(const struct lexer *l, size_t at, const char *word, char *end_sign)
{
    if (!starts_with(l, at, "{%"))
        return 0;
    at += 2;
    if (at < l->len && (l->source[at] == '-' || l->source[at] == '+'))
        at++;
    at = skip_space(l, at);
    if (!starts_with(l, at, word))
        return 0;
    at = skip_space(l, at + strlen(word));
    *end_sign = 0;
    if (at < l->len && (l->source[at] == '-' || l->source[at] == '+'))
        *end_sign = l->source[at++];
    return starts_with(l, at, "%}") ? at + 2 : 0;
}

/* Adds the text before a tag at `tag`, stripped according to its sign and lstrip_blocks. */
static int add_data(struct lexer *l, size_t from, size_t tag, bool is_print, char sign)
{
    size_t to = tag;
    if (sign == '-') {
        to = strip_right(l, from, to);
    } else if (sign != '+' && !is_print) {
        const char *newline = to > from ? memrchr(l->source + from, '\n', to - from) : NULL;
        size_t line = newline ? (size_t)(newline - l->source) + 1 : from;
        if ((newline || l->line_starting) && strip_right(l, line, to) == line)
            to = line;
    }
    if (to == from)
        return 0;
    struct lexeme *lexeme = lexeme_add(l, LEXEME_DATA, from);
    if (!lexeme)
        return -1;
    lexeme->data = l->source + from;
    lexeme->len = to - from;
    return 0;
}

static char sign_at(const struct lexer *l, size_t at)
{
    return at < l->len && (l->source[at] == '-' || l->source[at] == '+') ? l->source[at] : 0;
}

/* After the end of a block, comment or raw tag: trims a newline or all whitespace. */
static void tag_end(struct lexer *l, size_t at, char sign)
{
    size_t from = at;
    if (sign == '-')
        at = skip_space(l, at);
    else if (sign != '+' && at < l->len && l->source[at] == '\n')
        at++;
    l->line_starting = at > from && l->source[at - 1] == '\n';
    l->at = at;
}

static int lex_comment(struct lexer *l)
{
    size_t begin = l->at;
    const char *end = l->len - begin >= 4
                          ? memmem(l->source + begin + 2, l->len - begin - 2, "#}", 2)
                          : NULL;
    if (!end)
        return LEX_ERROR(l, begin, "Missing end of comment tag");
    size_t close = (size_t)(end - l->source);
    size_t text = begin + 2 + (sign_at(l, begin + 2) != 0); /* a lone sign opens the comment */
    char sign = close > text ? sign_at(l, close - 1) : 0;
    tag_end(l, close + 2, sign);
    return 0;
}

static int lex_raw(struct lexer *l, size_t body, char begin_sign)
{
    if (begin_sign == '-')
        body = skip_space(l, body);
    l->line_starting = body > 0 && l->source[body - 1] == '\n';
    for (size_t at = body; at + 1 < l->len; at++) {
        char end_sign;
        size_t end = match_word_tag(l, at, "endraw", &end_sign);
        if (!end)
            continue;
        if (add_data(l, body, at, false, sign_at(l, at + 2)) < 0)
            return -1;
        tag_end(l, end, end_sign);
        return 0;
    }
    return LEX_ERROR(l, l->at, "Missing end of raw directive");
}

static int add_code(struct strbuf *out, uint32_t code)
{
    char utf8[4];
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return -1;
    strbuf_add(out, utf8, utf8_encode(code, utf8));
    return 0;
}

static bool hex_value(const char *digits, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        int value = ascii_hex_value(digits[i]);
        if (value < 0)
            return false;
        *out = *out * 16 + (uint32_t)value;
    }
    return true;
}

/* One escape after a backslash; returns its length in bytes, or 0 if it is invalid. */
static size_t unescape(const char *text, size_t len, struct strbuf *out)
{
    static const char names[] = "\n\\'\"abfnrtv", values[] = "\0\\'\"\a\b\f\n\r\t\v";
    const char *name = text[0] ? strchr(names, text[0]) : NULL;
    if (name) {
        if (text[0] != '\n')
            strbuf_addc(out, values[name - names]);
        return 1;
    }
    uint32_t code = 0;
    if (text[0] >= '0' && text[0] <= '7') {
        size_t n = 0;
        for (; n < 3 && n < len && text[n] >= '0' && text[n] <= '7'; n++)
            code = code * 8 + (uint32_t)(text[n] - '0');
        return add_code(out, code) == 0 ? n : 0;
    }
    size_t digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    if (digits) {
        bool ok = len > digits && hex_value(text + 1, digits, &code) && add_code(out, code) == 0;
        return ok ? digits + 1 : 0;
    }
    if (text[0] == 'N')
        return 0;
    if ((unsigned char)text[0] < 0x80) { /* not an escape: both characters are kept */
        strbuf_addc(out, '\\');
        strbuf_addc(out, text[0]);
        return 1;
    }
    /* Jinja first turns such a character into an escape, which the backslash then escapes. */
    size_t width = unicode_next(text, len, &code);
    strbuf_addf(out,
                code < 0x100     ? "\\x%02x"
                : code < 0x10000 ? "\\u%04x"
                                 : "\\U%08x",
                (unsigned)code);
    return width;
}

static int lex_string(struct lexer *l)
{
    size_t begin = l->at, at = begin + 1;
    char quote = l->source[begin];
    bool escapes = false;
    for (; at < l->len && l->source[at] != quote; at++)
        if (l->source[at] == '\\') {
            escapes = true;
            at++;
        }
    if (at >= l->len)
        return LEX_ERROR(l, begin, "this string has no closing %c", quote);
    struct lexeme *lexeme = lexeme_add(l, LEXEME_STRING, begin);
    if (!lexeme)
        return -1;
    lexeme->data = l->source + begin + 1;
    lexeme->len = at - begin - 1;
    l->at = at + 1;
    if (!escapes)
        return 0;
    struct strbuf out = STRBUF_INIT;
    for (size_t i = 0; i < lexeme->len;) {
        if (lexeme->data[i] != '\\') {
            strbuf_addc(&out, lexeme->data[i++]);
            continue;
        }
        size_t used = unescape(lexeme->data + i + 1, lexeme->len - i - 1, &out);
        if (used == 0) {
            strbuf_free(&out);
            return LEX_ERROR(l, begin + 1 + i, "this escape is not valid in a string");
        }
        i += 1 + used;
    }
    lexeme->data = out.failed ? NULL : arena_copy(l->arena, strbuf_str(&out), out.len);
    lexeme->len = out.len;
    strbuf_free(&out);
    return lexeme->data ? 0 : error_set(l->err, ERROR_MEMORY, "no memory for the chat template");
}

/* Digits of a base with single underscores between them, from `at`; returns where they end. */
static size_t scan_digits(const struct lexer *l, size_t at, unsigned base)
{
    uint32_t value;
    for (size_t i = at; i < l->len; i++) {
        size_t digit = l->source[i] == '_' && i > at ? i + 1 : i;
        if (digit >= l->len || !hex_value(l->source + digit, 1, &value) || value >= base)
            return i;
        i = digit;
    }
    return l->len;
}

/* The end of the float that starts at `at`, or 0 if there is none. */
static size_t scan_float(const struct lexer *l, size_t at)
{
    if (at > 0 && l->source[at - 1] == '.')
        return 0;
    size_t end = scan_digits(l, at, 10), whole = end;
    if (end + 1 < l->len && l->source[end] == '.' && ascii_is_digit(l->source[end + 1]))
        end = scan_digits(l, end + 1, 10);
    size_t mantissa = end;
    if (end < l->len && (l->source[end] == 'e' || l->source[end] == 'E')) {
        size_t digits = end + 1 +
                        (end + 1 < l->len &&
                         (l->source[end + 1] == '+' || l->source[end + 1] == '-'));
        if (digits < l->len && ascii_is_digit(l->source[digits]))
            end = scan_digits(l, digits, 10);
    }
    return end > whole || mantissa > whole ? end : 0;
}

static int lex_number(struct lexer *l)
{
    size_t begin = l->at, end = scan_float(l, begin);
    bool is_float = end != 0;
    unsigned base = 10;
    if (!is_float) {
        char kind = begin + 1 < l->len && l->source[begin] == '0' ? l->source[begin + 1] | 0x20 : 0;
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
        size_t digits = base == 10 ? begin : begin + 2;
        digits += base != 10 && digits < l->len && l->source[digits] == '_';
        end = scan_digits(l, digits, l->source[begin] == '0' && base == 10 ? 1 : base);
        if (end == digits && base != 10) { /* 0x without digits is 0, then a name */
            base = 10;
            end = begin + 1;
        }
    }
    char digits[128];
    size_t n = 0;
    for (size_t i = begin + (base == 10 ? 0 : 2); i < end && n + 1 < sizeof digits; i++)
        if (l->source[i] != '_')
            digits[n++] = l->source[i];
    digits[n] = '\0';
    struct lexeme *lexeme = lexeme_add(l, is_float ? LEXEME_FLOAT : LEXEME_INT, begin);
    if (!lexeme)
        return -1;
    errno = 0;
    if (is_float)
        lexeme->real = strtod(digits, NULL);
    else
        lexeme->integer = strtoll(digits, NULL, (int)base);
    if ((errno == ERANGE && !is_float) || n + 1 == sizeof digits)
        return LEX_ERROR(l, begin, "the number is too large");
    l->at = end;
    return 0;
}

static int lex_bracket(struct lexer *l, char c)
{
    const char *const pairs = "()[]{}";
    size_t which = (size_t)(strchr(pairs, c) - pairs);
    if (which % 2 == 0) {
        if (l->n_brackets == MAX_BRACKETS)
            return LEX_ERROR(l, l->at, "brackets are nested too deeply");
        l->brackets[l->n_brackets++] = pairs[which + 1];
        return 0;
    }
    if (l->n_brackets == 0)
        return LEX_ERROR(l, l->at, "unexpected '%c'", c);
    char expected = l->brackets[--l->n_brackets];
    if (expected != c)
        return LEX_ERROR(l, l->at, "unexpected '%c', expected '%c'", c, expected);
    return 0;
}

static int lex_operator(struct lexer *l)
{
    for (size_t pass = 2; pass >= 1; pass--) /* two characters before one */
        for (enum lexeme_type type = LEXEME_ADD; type <= LEXEME_SEMICOLON; type++) {
            const char *name = jinja_lexeme_name(type);
            if (strlen(name) != pass || !starts_with(l, l->at, name))
                continue;
            if (strchr("()[]{}", name[0]) && lex_bracket(l, name[0]) < 0)
                return -1;
            if (!lexeme_add(l, type, l->at))
                return -1;
            l->at += pass;
            return 0;
        }
    uint32_t code;
    size_t width = unicode_next(l->source + l->at, l->len - l->at, &code);
    return LEX_ERROR(l, l->at, "unexpected character '%.*s'", (int)width, l->source + l->at);
}

static bool is_name_byte(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Reads the end of the current tag. 1: it is here, 0: it is not, -1: error. */
static int lex_tag_end(struct lexer *l, bool is_print)
{
    if (l->n_brackets)
        return 0;
    char sign = sign_at(l, l->at);
    if (is_print && sign == '+')
        return 0;
    size_t end = l->at + (sign != 0);
    if (!starts_with(l, end, is_print ? "}}" : "%}"))
        return 0;
    if (!lexeme_add(l, is_print ? LEXEME_PRINT_END : LEXEME_BLOCK_END, l->at))
        return -1;
    tag_end(l, end + 2, is_print && !sign ? '+' : sign);
    return 1;
}

static int lex_tag(struct lexer *l, bool is_print)
{
    while ((l->at = skip_space(l, l->at)) < l->len) {
        int ended = lex_tag_end(l, is_print);
        if (ended)
            return ended < 0 ? -1 : 0;
        char c = l->source[l->at];
        if (ascii_is_digit(c)) {
            if (lex_number(l) < 0)
                return -1;
        } else if (is_name_byte(c)) {
            struct lexeme *lexeme = lexeme_add(l, LEXEME_NAME, l->at);
            if (!lexeme)
                return -1;
            lexeme->data = l->source + l->at;
            while (l->at < l->len && is_name_byte(l->source[l->at]))
                l->at++;
            lexeme->len = l->at - lexeme->position;
        } else if (c == '\'' || c == '"') {
            if (lex_string(l) < 0)
                return -1;
        } else if (lex_operator(l) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The offset of the next {{, {% or {# from `at`, or len. */
static size_t next_tag(const struct lexer *l, size_t at)
{
    while (at < l->len) {
        const char *brace = memchr(l->source + at, '{', l->len - at);
        if (!brace || (size_t)(brace - l->source) + 1 >= l->len)
            return l->len;
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#')
            return (size_t)(brace - l->source);
        at = (size_t)(brace - l->source) + 1;
    }
    return l->len;
}

int jinja_lex(struct arena *arena, struct arena *scratch, const char *source, size_t len,
              struct lexeme_array *out, struct error *err)
{
    struct lexer lexer = {.arena = arena,
                          .scratch = scratch,
                          .source = source,
                          .len = len,
                          .line_starting = true,
                          .out = out,
                          .err = err};
    struct lexer *l = &lexer;
    while (l->at < len) {
        size_t tag = next_tag(l, l->at);
        if (tag == len) {
            if (add_data(l, l->at, len, true, 0) < 0)
                return -1;
            break;
        }
        char kind = source[tag + 1], end_sign = 0, sign = sign_at(l, tag + 2);
        if (add_data(l, l->at, tag, kind == '{', sign) < 0)
            return -1;
        l->at = tag;
        size_t raw = kind == '%' ? match_word_tag(l, tag, "raw", &end_sign) : 0;
        if (raw && end_sign != '+') {
            if (lex_raw(l, raw, end_sign) < 0)
                return -1;
        } else if (kind == '#') {
            if (lex_comment(l) < 0)
                return -1;
        } else {
            if (!lexeme_add(l, kind == '{' ? LEXEME_PRINT_BEGIN : LEXEME_BLOCK_BEGIN, tag))
                return -1;
            l->at = tag + 2 + (sign != 0);
            l->n_brackets = 0;
            if (lex_tag(l, kind == '{') < 0)
                return -1;
        }
    }
    return lexeme_add(l, LEXEME_END, len) ? 0 : -1;
}
