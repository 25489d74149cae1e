#ifndef RADISH_SERVE_REQUEST_QUERY_PARAMS_H
#define RADISH_SERVE_REQUEST_QUERY_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/api/api_error.h"
#include "serve/http/http_parser.h"

/* What may stand behind the '?' of a route: a table for each, from which values are read and the
 * documentation is made. Strict, because a misspelt limit on a DELETE should not mean "all". */
enum { QUERY_MAX_PARAMS = 4, QUERY_MAX_TEXT = 128 };

struct query_param {
    const char *name; /* NULL behind the last */
    const char *text; /* for the documentation */
    bool is_number;
    uint32_t min, max, otherwise; /* of numbers */
};

struct query_value {
    bool is_given;
    uint32_t number;           /* when it is not given, what it is otherwise */
    char text[QUERY_MAX_TEXT]; /* not empty when it is given */
};

/* Reads a request's query, "a=b&c=d" with percent-escapes, into values[i] of params[i]. -1 and a
 * 400 that names the parameter for one that is not in the table, comes twice, has no value or a
 * wrong one. */
int query_read(const struct http_parser *p, const struct query_param *params,
               struct query_value values[QUERY_MAX_PARAMS], struct api_error *e);
/* The same for a query by itself, which may be NULL. */
int query_parse(const char *query, const struct query_param *params,
                struct query_value values[QUERY_MAX_PARAMS], struct api_error *e);

#endif
