/* Reads query strings by a table; see query_params.h. Pure. */
#include "serve/request/query_params.h"

#include <assert.h>
#include <string.h>

#include "base/ascii.h"
#include "base/minmax.h"
#include "base/utf8.h"

/* Decodes percent-escapes ('+' stays, because this is not a form). False if it does not fit, has a
 * broken escape, or decodes to control characters or invalid UTF-8. */
static bool text_decode(const char *text, size_t len, char out[QUERY_MAX_TEXT])
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        int c = (unsigned char)text[i];
        if (c == '%') {
            int high = i + 2 < len ? ascii_hex_value(text[i + 1]) : -1;
            int low = i + 2 < len ? ascii_hex_value(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = high * 16 + low;
            i += 2;
        }
        if (c < 0x20 || c == 0x7f || n == QUERY_MAX_TEXT - 1)
            return false;
        out[n++] = (char)c;
    }
    out[n] = '\0';
    for (size_t i = 0, width; i < n; i += width)
        if (!(width = utf8_valid_prefix(out + i, n - i)))
            return false;
    return true;
}

/* Accepts decimal digits only. */
static bool number_parse(const char *text, uint32_t *number)
{
    uint64_t value = 0;
    for (const char *c = text; *c; c++) {
        if (!ascii_is_digit(*c) || (value = value * 10 + (uint64_t)(*c - '0')) > UINT32_MAX)
            return false;
    }
    *number = (uint32_t)value;
    return *text != '\0';
}

static int value_set(const struct query_param *param, struct query_value *value,
                     struct api_error *e)
{
    if (value->is_given)
        return api_error_set(e, 400, param->name, "'%s' is given twice", param->name);
    value->is_given = true;
    if (!value->text[0])
        return api_error_set(e, 400, param->name, "'%s' needs a value", param->name);
    if (!param->is_number)
        return 0;
    if (!number_parse(value->text, &value->number) || value->number < param->min ||
        value->number > param->max)
        return api_error_set(e, 400, param->name,
                             "'%s' must be an integer from %u to %u, not '%.40s'", param->name,
                             param->min, param->max, value->text);
    return 0;
}

/* One "name=value", between two '&'. */
static int pair_parse(const char *pair, size_t len, const struct query_param *params,
                      struct query_value *values, struct api_error *e)
{
    char name[QUERY_MAX_TEXT], text[QUERY_MAX_TEXT] = "";
    const char *equals = memchr(pair, '=', len);
    size_t name_len = equals ? (size_t)(equals - pair) : len;
    if (!text_decode(pair, name_len, name) ||
        (equals && !text_decode(equals + 1, len - name_len - 1, text)))
        return api_error_set(e, 400, NULL,
                             "part of the query is malformed or longer than %d bytes: "
                             "'%.*s'",
                             QUERY_MAX_TEXT - 1, (int)min_size(len, 60), pair);
    for (size_t i = 0; params[i].name; i++) {
        if (strcmp(params[i].name, name) != 0)
            continue;
        if (!values[i].is_given)
            memcpy(values[i].text, text, sizeof text);
        return value_set(&params[i], &values[i], e);
    }
    return api_error_set(e, 400, name, "unknown parameter '%.60s'", name);
}

int query_parse(const char *query, const struct query_param *params,
                struct query_value values[QUERY_MAX_PARAMS], struct api_error *e)
{
    for (size_t i = 0; params[i].name; i++) {
        assert(i < QUERY_MAX_PARAMS);
        values[i] = (struct query_value){.number = params[i].otherwise};
    }
    for (const char *at = query; at && *at;) {
        size_t len = strcspn(at, "&");
        if (len && pair_parse(at, len, params, values, e)) /* "a=1&&b=2" is allowed */
            return -1;
        at += len + (at[len] == '&');
    }
    return 0;
}

int query_read(const struct http_parser *p, const struct query_param *params,
               struct query_value values[QUERY_MAX_PARAMS], struct api_error *e)
{
    const char *mark = strchr(http_parser_target(p), '?');
    return query_parse(mark ? mark + 1 : NULL, params, values, e);
}
