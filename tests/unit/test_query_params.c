/* Query strings: what is read, and that everything else is rejected by name. */
#include "test.h"

#include "serve/request/query_params.h"

static const struct query_param params[] = {
    {"limit", "", true, 1, 200, 50},
    {"after", "", true, 0, UINT32_MAX, 7},
    {"tenant", "", false, 0, 0, 0},
    {0},
};
static struct query_value values[QUERY_MAX_PARAMS];
static struct api_error e;

static int parse(const char *query)
{
    memset(values, 0xff, sizeof values);
    e = (struct api_error){0};
    return query_parse(query, params, values, &e);
}

TEST(query_params, absent_is_otherwise)
{
    const char *const empty[] = {NULL, "", "&", "&&&"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        CHECK_INT(parse(empty[i]), 0);
        CHECK(!values[0].is_given && !values[1].is_given && !values[2].is_given);
        CHECK(values[0].number == 50 && values[1].number == 7 && !values[2].text[0]);
    }
}

TEST(query_params, reads_values)
{
    CHECK_INT(parse("limit=200&after=4294967295&tenant=acme"), 0);
    CHECK(values[0].is_given && values[0].number == 200 && values[1].number == UINT32_MAX);
    CHECK_STR(values[2].text, "acme");
    CHECK_INT(parse("tenant=a%20b%2B+%c3%A4=%26"), 0);
    CHECK_STR(values[2].text, "a b++\xc3\xa4=&");
    CHECK_INT(parse("%6cimit=%31&"), 0);
    CHECK_INT(values[0].number, 1);
    CHECK_INT(parse("&limit=007&&after=0&"), 0);
    CHECK(values[0].number == 7 && values[1].number == 0);
}

TEST(query_params, refuses_with_the_name)
{
    static const struct {
        const char *query, *param;
    } wrong[] = {
        {"limit=0", "limit"},
        {"limit=201", "limit"},
        {"limit=", "limit"},
        {"limit", "limit"},
        {"limit=1x", "limit"},
        {"limit=-1", "limit"},
        {"limit=+1", "limit"},
        {"limit=%201", "limit"},
        {"limit=1.0", "limit"},
        {"limit=1e1", "limit"},
        {"limit=0x10", "limit"},
        {"limit=4294967297", "limit"},
        {"after=4294967296", "after"},
        {"after=99999999999999999999999999", "after"},
        {"limit=5&limit=5", "limit"},
        {"tenant=a&limit=2&tenant=b", "tenant"},
        {"tenant=", "tenant"},
        {"tenant", "tenant"},
        {"tenants=a", "tenants"},
        {"Limit=3", "Limit"},
        {"limit =3", "limit "},
        {"limit=3&x=1", "x"},
        {"x", "x"},
        {"limit;after=3", "limit;after"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(parse(wrong[i].query), -1);
        CHECK_INT(e.status, 400);
        CHECK_STR(e.param, wrong[i].param);
    }
    CHECK_INT(parse("=3"), -1);
    CHECK_INT(e.status, 400);
}

TEST(query_params, refuses_broken_text)
{
    const char *const wrong[] = {"tenant=%",   "tenant=%4",   "tenant=%zz",    "tenant=a%0",
                                 "tenant=%00", "tenant=a%0a", "tenant=%7f",    "tenant=%c3",
                                 "tenant=%ff", "%00=1",       "tenant=%c0%80", "limit=%3"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(parse(wrong[i]), -1);
        CHECK(e.status == 400 && e.message[0]);
    }
}

TEST(query_params, text_has_a_bound)
{
    char query[1024] = "tenant=";
    memset(query + 7, 'a', QUERY_MAX_TEXT - 1);
    CHECK_INT(parse(query), 0);
    CHECK_INT(strlen(values[2].text), QUERY_MAX_TEXT - 1);
    query[7 + QUERY_MAX_TEXT - 1] = 'a';
    CHECK_INT(parse(query), -1);
    memset(query, 'n', sizeof query - 1); /* a name too */
    CHECK_INT(parse(query), -1);
    CHECK_INT(e.status, 400);
}

TEST(query_params, from_a_request)
{
    static const struct {
        const char *line;
        int limit; /* -1: refused */
    } requests[] = {
        {"GET /v1/cache HTTP/1.1", 50},
        {"GET /v1/cache? HTTP/1.1", 50},
        {"GET /v1/cache?limit=3 HTTP/1.1", 3},
        {"GET http://localhost/v1/cache?limit=4 HTTP/1.1", 4},
        {"GET /v1/cache?limit=3?limit=4 HTTP/1.1", -1},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct http_parser p;
        char text[256];
        size_t len = (size_t)snprintf(text, sizeof text, "%s\r\nHost: localhost\r\n\r\n",
                                      requests[i].line);
        http_parser_open(&p, 4096, 4096);
        CHECK_INT(http_parser_feed(&p, text, len), len);
        CHECK_INT(p.state, HTTP_DONE);
        CHECK_INT(query_read(&p, params, values, &e), requests[i].limit < 0 ? -1 : 0);
        if (requests[i].limit >= 0)
            CHECK_INT(values[0].number, requests[i].limit);
        http_parser_close(&p);
    }
}
