#ifndef RADISH_SERVE_ROUTES_H
#define RADISH_SERVE_ROUTES_H

#include <stddef.h>

#include "serve/api/api.h"
#include "serve/request/query_params.h"

/* The table of routes. Requests are dispatched by it, and the documentation is made from it. A path
 * that begins with /v1/ is also there without it: /models is the same as /v1/models. */
enum route_flags {
    ROUTE_OPEN = 1,      /* needs no key */
    ROUTE_ADMIN = 2,     /* only for admins */
    ROUTE_OWN = 4,       /* for admins; a tenant gets what is its own */
    ROUTE_QUIET = 8,     /* logged only at debug level */
    ROUTE_ANY_TYPE = 16, /* accepts any Content-Type, unless a web page may have sent it */
    ROUTE_METERED = 32,  /* counts against the client's limits */
    ROUTE_TEXT = 64,     /* the body is one text to tokenize, and little else */
};

/* One method of one path; a path may have several. */
struct route {
    const char *path; /* a '/' at the end matches anything after it, except in "/" itself */
    enum http_method method;
    unsigned flags;
    void (*run)(struct api *api, struct http_exchange *x, const struct requester *who);
    const char *text;                 /* for the documentation */
    const struct query_param *params; /* its query parameters; NULL: the query is ignored */
};

extern const struct route api_routes[];
extern const size_t n_api_routes;

/* The handler for http_server_open; its context is the api. */
struct http_handler api_handler(struct api *api, void (*drained)(void *context));

#endif
