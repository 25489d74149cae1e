/* Character classes and case, from tables made by Python itself (tools/make_unicode_tables.py). The
 * C library's towupper() and similar functions cannot be used: they depend on the locale and do not
 * support characters that grow, such as the German sharp s. */
#include "prompt/unicode/unicode.h"

#include <string.h>

#include "base/utf8.h"
#include "prompt/unicode/unicode_tables.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

size_t unicode_next(const char *bytes, size_t len, uint32_t *code)
{
    if ((unsigned char)bytes[0] < 0x80) {
        *code = (unsigned char)bytes[0];
        return 1;
    }
    size_t width = utf8_valid_prefix(bytes, len);
    *code = width ? utf8_decode(bytes, width) : 0xfffd;
    return width ? width : 1;
}

size_t unicode_last(const char *bytes, size_t len, uint32_t *code)
{
    for (size_t back = 1; back <= 4 && back <= len; back++) {
        const char *at = bytes + len - back;
        if (((unsigned char)*at & 0xc0) == 0x80)
            continue;
        if (unicode_next(at, back, code) == back)
            return back;
        break;
    }
    *code = 0xfffd;
    return 1;
}

size_t unicode_count(const char *bytes, size_t len)
{
    size_t count = 0;
    uint32_t code;
    for (size_t i = 0; i < len; count++)
        i += (unsigned char)bytes[i] < 0x80 ? 1 : unicode_next(bytes + i, len - i, &code);
    return count;
}

bool unicode_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= 9 && code <= 13) || (code >= 28 && code <= 31);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
           code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool unicode_is_line_end(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

bool unicode_is_alpha(uint32_t code)
{
    return code_set_contains(python_alpha_set, code);
}

bool unicode_is_decimal(uint32_t code)
{
    return code_set_contains(python_decimal_set, code);
}

bool unicode_is_digit(uint32_t code)
{
    return code_set_contains(python_digit_set, code);
}

bool unicode_is_numeric(uint32_t code)
{
    return code_set_contains(python_numeric_set, code);
}

bool unicode_is_printable(uint32_t code)
{
    return code_set_contains(python_printable_set, code);
}

static size_t case_map(const struct case_run *runs, size_t n_runs,
                       const struct case_special *special, size_t n_special, uint32_t code,
                       char *out)
{
    size_t low = 0, high = n_runs;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (runs[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < n_runs && runs[low].first <= code && (code - runs[low].first) % runs[low].step == 0)
        return utf8_encode((uint32_t)((int32_t)code + runs[low].delta), out);
    for (size_t i = 0; code >= 0x80 && i < n_special; i++)
        if (special[i].code == code) {
            size_t len = strlen(special[i].utf8);
            memcpy(out, special[i].utf8, len);
            return len;
        }
    return utf8_encode(code, out);
}

size_t unicode_upper(uint32_t code, char *out)
{
    return case_map(python_upper_runs, COUNT(python_upper_runs), python_upper_special,
                    COUNT(python_upper_special), code, out);
}

size_t unicode_lower(uint32_t code, char *out)
{
    return case_map(python_lower_runs, COUNT(python_lower_runs), python_lower_special,
                    COUNT(python_lower_special), code, out);
}

size_t unicode_title(uint32_t code, char *out)
{
    return case_map(python_title_runs, COUNT(python_title_runs), python_title_special,
                    COUNT(python_title_special), code, out);
}

/* A character has a case if mapping it to the other case changes it. */
bool unicode_is_upper(uint32_t code)
{
    char same[UNICODE_CASE_MAX], lower[UNICODE_CASE_MAX];
    size_t len = utf8_encode(code, same);
    return unicode_lower(code, lower) != len || memcmp(same, lower, len) != 0;
}

bool unicode_is_lower(uint32_t code)
{
    char same[UNICODE_CASE_MAX], upper[UNICODE_CASE_MAX];
    size_t len = utf8_encode(code, same);
    return unicode_upper(code, upper) != len || memcmp(same, upper, len) != 0;
}
