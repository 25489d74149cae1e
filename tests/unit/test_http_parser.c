/* The HTTP parser against what RFC 9112 allows and forbids. Every case is fed whole, byte by byte
 * and split in two at each place: the verdict must be the same. */
#include "serve/http/http_parser.h"
#include "test.h"

#include <stdlib.h>

enum { MAX_HEADER = 16 * 1024, MAX_BODY = 1000 };

/* Feeds until the request is complete or rejected, or the input ends; returns how many bytes were
 * taken. */
static size_t feed(struct http_parser *p, const char *bytes, size_t len, size_t cut, size_t step)
{
    size_t used = 0, fed = cut ? cut : (step ? step : len);
    while (p->state < HTTP_DONE && used < len) {
        if (fed > len)
            fed = len;
        size_t took = http_parser_feed(p, bytes + used, fed - used);
        used += took;
        if (used == fed && fed < len)
            fed += step ? step : len;
    }
    return used;
}

static void parse(struct http_parser *p, const char *bytes, size_t len)
{
    http_parser_open(p, MAX_HEADER, MAX_BODY);
    size_t used = feed(p, bytes, len, 0, 0);
    size_t step = len > 4096 ? 97 : 1;
    for (size_t cut = 0; cut < len; cut += step) {
        struct http_parser q;
        http_parser_open(&q, MAX_HEADER, MAX_BODY);
        CHECK_INT(feed(&q, bytes, len, cut, cut ? 0 : 1), used);
        CHECK_INT(q.state, p->state);
        CHECK_INT(q.status, p->status);
        CHECK(q.message == p->message);
        CHECK_INT(q.n_fields, p->n_fields);
        CHECK_INT(q.body.len, p->body.len);
        CHECK(q.body.len == 0 || memcmp(q.body.data, p->body.data, q.body.len) == 0);
        http_parser_close(&q);
    }
}

static int verdict(const char *bytes, size_t len)
{
    struct http_parser p;
    parse(&p, bytes, len);
    int status = p.state == HTTP_DONE ? 200 : p.state == HTTP_REFUSED ? p.status : 0;
    http_parser_close(&p);
    return status;
}

#define VERDICT(bytes, status) CHECK_INT(verdict(bytes, sizeof(bytes) - 1), status)
#define HOST                   "Host: localhost\r\n"
#define GET                    "GET / HTTP/1.1\r\n" HOST
#define POST                   "POST /x HTTP/1.1\r\n" HOST

TEST(http_parser, reads_a_request)
{
    static const char text[] = "POST /v1/chat%20x/y?q=1&z HTTP/1.1\r\nHost: localhost:8080\r\n"
                               "Content-Type:application/json\r\nX-Empty:\r\nx-Tab: \t a b\t \r\n"
                               "Content-Length: 5\r\n\r\nhelloGET";
    struct http_parser p;
    parse(&p, text, sizeof text - 1);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_INT(p.method, HTTP_POST);
    CHECK_STR(http_parser_method(&p), "POST");
    CHECK_STR(http_parser_target(&p), "/v1/chat%20x/y?q=1&z");
    struct strbuf path = STRBUF_INIT;
    http_parser_path(&p, &path);
    CHECK_STR(strbuf_str(&path), "/v1/chat x/y");
    strbuf_free(&path);
    CHECK_STR(http_parser_field(&p, "content-type"), "application/json");
    CHECK_STR(http_parser_field(&p, "X-EMPTY"), "");
    CHECK_STR(http_parser_field(&p, "X-Tab"), "a b");
    CHECK(http_parser_field(&p, "x-none") == NULL);
    CHECK_STR(http_parser_host(&p), "localhost:8080");
    CHECK_INT(p.body.len, 5);
    CHECK_STR(strbuf_str(&p.body), "hello");
    CHECK(p.keep_alive);
    http_parser_close(&p);
}

TEST(http_parser, knows_a_tls_hello)
{
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n";
    struct http_parser p;
    parse(&p, hello, sizeof hello - 1);
    CHECK_INT(p.state, HTTP_REFUSED);
    CHECK_INT(p.status, 400);
    CHECK(strstr(p.message, "this looks like HTTPS; use http://") && !p.keep_alive);
    http_parser_close(&p);
    VERDICT("\x16", 400);
    VERDICT("G\x16T / HTTP/1.1\r\n" HOST "\r\n", 400);
    http_parser_open(&p, MAX_HEADER, MAX_BODY);
    feed(&p, "G\x16T / HTTP/1.1\r\n\r\n", 19, 0, 0);
    CHECK(!strstr(p.message, "HTTPS"));
    http_parser_close(&p);
}

TEST(http_parser, stops_between_head_and_body_and_between_requests)
{
    static const char text[] = POST "Content-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n" HOST "\r\n";
    struct http_parser p;
    http_parser_open(&p, MAX_HEADER, MAX_BODY);
    CHECK(http_parser_is_idle(&p));
    CHECK_INT(http_parser_feed(&p, "\r", 1), 1);
    CHECK(http_parser_is_idle(&p));
    CHECK_INT(http_parser_feed(&p, "\n", 1), 1);
    CHECK(http_parser_is_idle(&p));
    size_t head = http_parser_feed(&p, text, sizeof text - 1);
    CHECK_INT(head, strstr(text, "ab") - text);
    CHECK(http_parser_head_done(&p));
    CHECK(!http_parser_is_idle(&p));
    CHECK_INT(p.state, HTTP_BODY);
    CHECK_INT(http_parser_feed(&p, text + head, sizeof text - 1 - head), 2);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_INT(http_parser_feed(&p, text + head + 2, 1), 0);
    http_parser_reset(&p);
    CHECK_INT(http_parser_feed(&p, text + head + 2, sizeof text - 3 - head),
              sizeof text - 3 - head);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_INT(p.method, HTTP_GET);
    CHECK_INT(p.body.len, 0);
    http_parser_close(&p);
}

TEST(http_parser, reads_chunks)
{
    static const char text[] = POST "Transfer-Encoding: Chunked\r\n\r\n"
                                    "5\r\nhello\r\n1 ;a=\"b\"\r\n!\r\n0A;x\r\n0123456789\r\n"
                                    "000\r\nTrailer: x\r\n\r\n";
    struct http_parser p;
    parse(&p, text, sizeof text - 1);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_STR(strbuf_str(&p.body), "hello!0123456789");
    CHECK(http_parser_field(&p, "trailer") == NULL);
    http_parser_close(&p);
}

TEST(http_parser, knows_methods_and_versions)
{
    VERDICT(GET "\r\n", 200);
    VERDICT("\r\n\r\n" GET "\r\n", 200);
    VERDICT("\r\n\r\n\r\n" GET "\r\n", 400);
    VERDICT("PROPFIND / HTTP/1.1\r\n" HOST "\r\n", 200);
    VERDICT("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 200);
    VERDICT("GET * HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("CONNECT localhost:80 HTTP/1.1\r\n" HOST "\r\n", 200);
    VERDICT("CONNECT / HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET / HTTP/1.0\r\n\r\n", 200);
    VERDICT("GET / HTTP/1.9\r\n" HOST "\r\n", 200);
    VERDICT("GET / HTTP/2.0\r\n" HOST "\r\n", 505);
    VERDICT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    VERDICT("GET / HTTP/0.9\r\n\r\n", 505);
    VERDICT("GET / HTTP/1.10\r\n" HOST "\r\n", 400);
    VERDICT("GET / http/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET / HTTP/1,1\r\n" HOST "\r\n", 400);
    VERDICT("GET /\r\n\r\n", 400);
    VERDICT("GET  / HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /  HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT(" GET / HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET\t/ HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("G(T / HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("G\x01T / HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("\x16\x03\x01\x02\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1", 0);
}

TEST(http_parser, checks_targets)
{
    VERDICT("GET /a%2Fb?c=%20 HTTP/1.1\r\n" HOST "\r\n", 200);
    VERDICT("GET /a%2 HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /a%zz HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /a\\b HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /a\x7f HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET a HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET ftp://x/ HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET http:///x HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET http://a@b/x HTTP/1.1\r\n" HOST "\r\n", 400);

    static const char text[] = "GET HTTP://evil.example:81?x=/ HTTP/1.1\r\n" HOST "\r\n";
    struct http_parser p;
    parse(&p, text, sizeof text - 1);
    CHECK_STR(http_parser_host(&p), "evil.example:81");
    struct strbuf path = STRBUF_INIT;
    http_parser_path(&p, &path);
    CHECK_STR(strbuf_str(&path), "/");
    strbuf_free(&path);
    CHECK_STR(http_parser_field(&p, "host"), "localhost");
    http_parser_close(&p);

    /* A NUL ends a string, so the path would be another one. */
    VERDICT("GET /a%00b HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /health%00 HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET http://localhost/%00 HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT("GET /a%2500 HTTP/1.1\r\n" HOST "\r\n", 200);
    VERDICT("GET /a?b=%00 HTTP/1.1\r\n" HOST "\r\n", 200);
}

TEST(http_parser, is_strict_about_lines_and_fields)
{
    VERDICT("GET / HTTP/1.1\n" HOST "\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: localhost\n\r\n", 400);
    VERDICT(GET "\n", 400);
    VERDICT("\nGET / HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT(GET "A: b\rc\r\n\r\n", 400);
    VERDICT(GET "A: b\r\r\n\r\n", 400);
    VERDICT(GET "A: b\0c\r\n\r\n", 400);
    VERDICT(GET "A\0: b\r\n\r\n", 400);
    VERDICT("GET /\0 HTTP/1.1\r\n" HOST "\r\n", 400);
    VERDICT(GET "A: b\r\n c\r\n\r\n", 400);
    VERDICT(GET " A: b\r\n\r\n", 400);
    VERDICT(GET "\tA: b\r\n\r\n", 400);
    VERDICT(GET "A : b\r\n\r\n", 400);
    VERDICT(GET "A b: c\r\n\r\n", 400);
    VERDICT(GET ": b\r\n\r\n", 400);
    VERDICT(GET "A\r\n\r\n", 400);
    VERDICT(GET "A: \x01\r\n\r\n", 400);
    VERDICT(GET "A: \x7f\r\n\r\n", 400);
    VERDICT(GET "A: \xc3\xa9\r\n\r\n", 200);
    VERDICT(GET "A(: b\r\n\r\n", 400);
}

TEST(http_parser, an_absolute_target_has_a_path)
{
    static const char request[] = "GET http://localhost/v1/a%20b?c=d HTTP/1.1\r\n" HOST "\r\n";
    struct http_parser p;
    struct strbuf path = STRBUF_INIT;
    parse(&p, request, sizeof request - 1);
    http_parser_path(&p, &path);
    CHECK_STR(strbuf_str(&path), "/v1/a b");
    strbuf_free(&path);
    http_parser_close(&p);
}

TEST(http_parser, says_why_it_refuses)
{
    static const char request[] = "GET / HTTP/1.1\r\n\r\n";
    struct http_parser p;
    parse(&p, request, sizeof request - 1);
    CHECK_INT(p.status, 400);
    CHECK(p.message && strstr(p.message, "Host"));
    http_parser_close(&p);
}

TEST(http_parser, needs_one_good_host)
{
    VERDICT("GET / HTTP/1.1\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", 400);
    VERDICT("GET http://a/ HTTP/1.1\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a, b:1\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a:99999999999999999999\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: a:1x\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200);
    VERDICT("GET / HTTP/1.1\r\nHost: a:\r\n\r\n", 200);
    VERDICT("GET / HTTP/1.1\r\nHost:\r\n\r\n", 200);
}

TEST(http_parser, allows_some_fields_only_once)
{
    VERDICT("GET / HTTP/1.1\r\n" HOST "Origin: http://a\r\n\r\n", 200);
    VERDICT("GET / HTTP/1.1\r\n" HOST "Origin: http://a\r\norigin: http://a\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nAUTHORIZATION: b\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\n" HOST "x-api-key: a\r\nX-API-Key: b\r\n\r\n", 400);
    VERDICT(POST "Content-Type: a/b\r\nContent-Type: c/d\r\nContent-Length: 0\r\n\r\n", 400);
    VERDICT("GET / HTTP/1.1\r\n" HOST "Accept: a/b\r\nAccept: c/d\r\n\r\n", 200);
}

TEST(http_parser, cannot_be_smuggled_past)
{
    VERDICT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: 5, 5\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: +5\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: -5\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: 0x5\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: 5 5\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length:\r\n\r\nhello", 400);
    VERDICT(POST "Content-Length: 0005\r\n\r\nhello", 200);
    VERDICT(POST "Content-Length : 5\r\n\r\nhello", 400);
    VERDICT(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501);
    VERDICT(POST "Transfer-Encoding: identity\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 400);
    VERDICT(POST "Transfer-Encoding: \x0b"
                 "chunked\r\n\r\n0\r\n\r\n",
            400);
    VERDICT(POST "Transfer-Encoding:\r\n\r\n", 400);
    VERDICT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

TEST(http_parser, is_strict_about_chunks)
{
    VERDICT(CHUNKED "0\r\n\r\n", 200);
    VERDICT(CHUNKED "\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "-5\r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED " 5\r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5 \r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5\r\nhello!\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5\r\nhello0\r\n\r\n", 400);
    VERDICT(CHUNKED "5\r\nhell\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5\r\nhello\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5;\x01\r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "5 x\r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "g\r\n", 400);
    VERDICT(CHUNKED "10000000000000005\r\nhello\r\n0\r\n\r\n", 400);
    VERDICT(CHUNKED "ffffffffffffffff\r\nhello\r\n0\r\n\r\n", 413);
    VERDICT(CHUNKED "3e9\r\n", 413);
    VERDICT(CHUNKED "1\r\na\r\n3e8\r\n", 413);
    VERDICT(CHUNKED "0\r\nA : b\r\n\r\n", 400);
    VERDICT(CHUNKED "0\r\n a\r\n\r\n", 400);
    VERDICT(CHUNKED "0\r\nA: b\n\r\n", 400);
}

TEST(http_parser, keeps_its_limits)
{
    VERDICT(POST "Content-Length: 1001\r\n\r\n", 413);
    VERDICT(POST "Content-Length: 99999999999999999999999999\r\n\r\n", 413);
    VERDICT(POST "Content-Length: 18446744073709551617\r\n\r\n", 413);
    VERDICT(POST "Content-Length: 18446744073709551615\r\n\r\n", 413);

    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, "GET /");
    for (int i = 0; i < HTTP_MAX_REQUEST_LINE; i++)
        strbuf_addc(&text, 'a');
    CHECK_INT(verdict(text.data, text.len), 414);
    strbuf_clear(&text);
    strbuf_adds(&text, GET "A: ");
    for (int i = 0; i < MAX_HEADER; i++)
        strbuf_addc(&text, 'a');
    CHECK_INT(verdict(text.data, text.len), 431);
    strbuf_clear(&text);
    strbuf_adds(&text, GET);
    for (int i = 0; i < HTTP_MAX_FIELDS - 1; i++)
        strbuf_addf(&text, "A%d: b\r\n", i);
    size_t full = text.len;
    strbuf_adds(&text, "\r\n");
    CHECK_INT(verdict(text.data, text.len), 200);
    text.len = full;
    strbuf_adds(&text, "B: b\r\n\r\n");
    CHECK_INT(verdict(text.data, text.len), 431);
    strbuf_clear(&text);
    strbuf_adds(&text, CHUNKED "5;");
    for (int i = 0; i < HTTP_MAX_CHUNK_LINE; i++)
        strbuf_addc(&text, 'a');
    CHECK_INT(verdict(text.data, text.len), 400);
    strbuf_clear(&text);
    strbuf_adds(&text, CHUNKED "0\r\n");
    for (int i = 0; i < MAX_HEADER / 8 + 1; i++)
        strbuf_adds(&text, "Abc: d\r\n");
    CHECK_INT(verdict(text.data, text.len), 431);
    strbuf_free(&text);
}

TEST(http_parser, bounds_what_is_not_data)
{
    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, CHUNKED);
    for (int i = 0; i < MAX_BODY / 2; i++) {
        strbuf_adds(&text, "1;");
        for (int k = 0; k < 100; k++)
            strbuf_adds(&text, "x");
        strbuf_adds(&text, "\r\nx\r\n");
    }
    struct http_parser p;
    parse(&p, text.data, text.len);
    CHECK_INT(p.status, 400);
    CHECK_STR(p.message, "too much of the chunked body is not data");
    CHECK(p.body.len > 150 && p.body.len < 250); /* 16 KiB, with 86 bytes too many each */
    http_parser_close(&p);
    strbuf_free(&text);
}

TEST(http_parser, many_small_chunks_leave_room_for_trailers)
{
    struct strbuf text = STRBUF_INIT;
    strbuf_adds(&text, CHUNKED);
    for (int i = 0; i < MAX_BODY; i++)
        strbuf_adds(&text, "1;some-extension-text\r\nx\r\n");
    strbuf_adds(&text, "0\r\nA: b\r\n\r\n");
    struct http_parser p;
    parse(&p, text.data, text.len);
    CHECK_INT(p.state, HTTP_DONE);
    CHECK_INT(p.body.len, MAX_BODY);
    CHECK(p.head.len < 200);
    http_parser_close(&p);
    strbuf_free(&text);
}

static bool keeps_alive(const char *text, bool *expects)
{
    struct http_parser p;
    parse(&p, text, strlen(text));
    CHECK_INT(p.state, HTTP_DONE);
    bool keep = p.keep_alive;
    *expects = p.expect_continue;
    http_parser_close(&p);
    return keep;
}

TEST(http_parser, knows_when_to_close)
{
    bool expects;
    CHECK(keeps_alive(GET "\r\n", &expects));
    CHECK(!expects);
    CHECK(keeps_alive(GET "Connection: keep-alive\r\nExpect: 100-Continue\r\n\r\n", &expects));
    CHECK(expects);
    CHECK(!keeps_alive(GET "Connection: Close\r\n\r\n", &expects));
    CHECK(!keeps_alive(GET "Connection: TE, , close\r\n\r\n", &expects));
    CHECK(!keeps_alive(GET "Connection: x\r\nConnection: close\r\n\r\n", &expects));
    CHECK(keeps_alive(GET "Connection: closed\r\n\r\n", &expects));
    CHECK(!keeps_alive("GET / HTTP/1.0\r\nConnection: keep-alive\r\nExpect: x\r\n\r\n", &expects));
    CHECK(!expects);
    VERDICT(GET "Expect: 200-ok\r\n\r\n", 417);
}

static void check_message(const char *bytes, int status, const char *message)
{
    struct http_parser p;
    parse(&p, bytes, strlen(bytes));
    CHECK_INT(p.status, status);
    CHECK_STR(p.message, message);
    http_parser_close(&p);
}

TEST(http_parser, tells_the_first_thing_that_is_wrong)
{
    check_message(GET " a: b\r\n\r\n", 400,
                  "a header line must not begin with a space (folded lines are obsolete)");
    check_message(GET "a : b\r\n\r\n", 400,
                  "a space before the colon of a header line is not allowed");
    check_message(GET "a b\r\n\r\n", 400, "a header line must be: name, colon, value");
    check_message("GET / HTTP/1.1\r\nHost: a b\r\nExpect: x\r\n\r\n", 400,
                  "the Host header is not a host with an optional port");
}
