#ifndef RADISH_SERVE_REQUEST_QUERY_PARAMS_H
#define RADISH_SERVE_REQUEST_QUERY_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/api/api_error.h"
#include "serve/http/http_parser.h"

/* Query parameters. Each route has a table of them, which also generates the documentation. Unknown
 * names are errors: a misspelled parameter of a DELETE must not mean "all". */
enum { QUERY_MAX_PARAMS = 4, QUERY_MAX_TEXT = 128 };

struct query_param {
    const char *name; /* NULL after the last */
    const char *text; /* for the documentation */
    bool is_number;
    uint32_t min, max, otherwise; /* of numbers */
};

struct query_value {
    bool is_given;
    uint32_t number;           /* `otherwise` if it is not given */
    char text[QUERY_MAX_TEXT]; /* not empty if it is given */
};

/* Reads a request's query, "a=b&c=d" with percent-escapes, into values[i] for params[i]. Returns -1
 * and a 400 that names the parameter if one is unknown, given twice, or has a missing or wrong
 * value. */
int query_read(const struct http_parser *p, const struct query_param *params,
               struct query_value values[QUERY_MAX_PARAMS], struct api_error *e);
/* The same for the text of a query, which may be NULL. */
int query_parse(const char *query, const struct query_param *params,
                struct query_value values[QUERY_MAX_PARAMS], struct api_error *e);

#endif
