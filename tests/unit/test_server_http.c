/* The server from the outside: which paths and methods exist, who may ask, why the head of a
 * request is rejected, and the heads of answers. */
#include <unistd.h>

#include "server_fixture.h"
#include "test.h"

#define HELLO "{'messages':[{'role':'user','content':'Hi'}],'max_tokens':3,'seed':1}"
#define CHAT  "/v1/chat/completions"

static int get_with(const struct test_server *s, const char *path, const char *fields)
{
    return server_ask(s, "GET", path, fields, NULL);
}

TEST(server_http, says_what_there_is)
{
    struct test_server s;
    SERVER_START(&s, "-c", "300", "--alias", "clerk");
    CHECK_INT(server_get(&s, "/health"), 200);
    CHECK_STR(reply_body(), "{\"status\":\"ok\"}");
    CHECK_STR(reply_field("content-type"), "application/json");
    CHECK_INT(server_get(&s, "/v1/health?x=1"), 200);
    CHECK_STR(reply_body(), "{\"status\":\"ok\"}");
    CHECK_INT(server_get(&s, "/v1/models"), 200);
    CHECK_AT("object", "'list'");
    CHECK_AT("data.0.id", "'clerk'");
    CHECK_AT("data.0.object", "'model'");
    CHECK_AT("data.0.owned_by", "'radish'");
    CHECK_AT_INT("data.0.context_window", 300);
    CHECK_AT_INT("data.0.max_model_len", 300);
    CHECK(reply_int("data.0.created") > 1600000000);
    CHECK_AT_INT("data.0.default_sampling.top_k", 40);
    CHECK_AT("data.1", "");
    CHECK_INT(server_get(&s, "/models"), 200);
    CHECK_AT("data.0.id", "'clerk'");
    CHECK_INT(server_get(&s, "/v1/models/clerk"), 200);
    CHECK_AT("id", "'clerk'");
    CHECK_INT(server_get(&s, "/v1/models/no%20such"), 404);
    CHECK_AT("error.code", "'model_not_found'");
    CHECK_AT("error.param", "'model'");
    CHECK_HAS(reply_at("error.message"), "'no such' not found; this server has only 'clerk'");
    CHECK_INT(server_get(&s, "/v1/models/"), 200); /* a slash at the end means nothing */
    server_stop(&s);
}

TEST(server_http, has_routes_and_methods)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_get(&s, "/nowhere"), 404);
    CHECK_HAS(reply_at("error.message"), "no route /nowhere; chat is at /v1/chat/completions");
    CHECK_AT("error.type", "'not_found_error'");
    CHECK_INT(server_get(&s, "/%00"), 400);
    CHECK_INT(server_get(&s, CHAT), 405);
    CHECK_STR(reply_field("allow"), "POST, OPTIONS");
    CHECK_HAS(reply_at("error.message"), "completions accepts POST, OPTIONS, not GET");
    CHECK_INT(server_post(&s, "/v1/cache", "{}"), 405);
    CHECK_STR(reply_field("allow"), "GET, HEAD, DELETE, OPTIONS");
    CHECK_INT(server_ask(&s, "DELETE", "/health", "", NULL), 405);
    CHECK_INT(server_ask(&s, "BREW", "/health", "", NULL), 501);
    CHECK_HAS(reply_at("error.message"), "unknown method BREW");
    CHECK_INT(server_ask(&s, "TRACE", "/health", "", NULL), 501);
    CHECK_INT(server_ask(&s, "CONNECT", "localhost:80", "", NULL), 501);
    CHECK_INT(server_ask(&s, "PUT", "/health", "", NULL), 405);
    CHECK_INT(server_ask(&s, "HEAD", "/health", "", NULL), 200);
    CHECK_STR(reply_field("content-length"), "15");
    CHECK_INT(server_ask(&s, "HEAD", CHAT, "", NULL), 405);

    CHECK_INT(server_ask(&s, "OPTIONS", "/health", "", NULL), 200);
    CHECK_STR(reply_field("allow"), "GET, HEAD, OPTIONS");
    CHECK(!reply_field("access-control-allow-methods"));
    CHECK_INT(server_ask(&s, "OPTIONS", "*", "", NULL), 200);
    CHECK_STR(reply_field("allow"), "GET, HEAD, POST, DELETE, OPTIONS");
    CHECK_INT(server_ask(&s, "OPTIONS", "/nowhere", "", NULL), 404);
    CHECK_HAS(reply_at("error.message"), "no route /nowhere");
    CHECK_INT(server_ask(&s, "OPTIONS", "/%00", "", NULL), 400);
    server_stop(&s);
}

/* What clients of other servers may look for. */
TEST(server_http, says_what_it_does_not_have)
{
    static const struct {
        const char *path, *type, *message;
        int status;
    } cases[] = {
        {"/v1/embeddings", "'server_error'", "'radish does not support embeddings'", 501},
        {"/embedding", "'not_supported_error'", "'radish does not support embeddings'", 501},
        {"/v1/rerank", "'server_error'", "'radish does not support reranking'", 501},
        {"/v1/responses", "'server_error'", NULL, 501},
        {"/v1/messages/count_tokens", "'server_error'", NULL, 501},
        {"/v1/audio/speech", "'server_error'", "'radish does not support audio'", 501},
        {"/lora-adapters", "'not_supported_error'", NULL, 501},
        {"/metrics", "'not_found_error'", "'no such route; counters are at /stats'", 404},
        {"/metricsx", "'not_found_error'", "'no route /metricsx; chat is at /v1/chat/completions'",
         404},
    };
    struct test_server s;
    SERVER_START(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(server_post(&s, cases[i].path, "{}"), cases[i].status);
        CHECK_AT("error.type", cases[i].type);
        if (cases[i].message)
            CHECK_AT("error.message", cases[i].message);
    }
    CHECK_INT(server_get(&s, "/v1/stats?x=1"), 404);
    CHECK_HAS(reply_at("error.message"), "counters are at /stats");
    CHECK_INT(server_post(&s, "/api/nowhere", "{}"), 404);
    CHECK_AT("error", "'no route /api/nowhere; chat is at /api/chat'");
    server_stop(&s);
}

TEST(server_http, answers_for_hosts_and_pages_of_this_machine)
{
    struct test_server s;
    SERVER_START(&s, "--allowed-host", "box.example");
    CHECK_INT(get_with(&s, "/health", "Host: 127.0.0.1:1\r\n"), 200);
    CHECK_INT(get_with(&s, "/health", "Host: BOX.example\r\n"), 200);
    CHECK_INT(get_with(&s, "/health", "Host: evil.example\r\n"), 403);
    CHECK_HAS(reply_at("error.message"), "the host 'evil.example' is not a name of this machine");
    CHECK_HAS(reply_at("error.message"), "--allowed-host evil.example");
    CHECK_INT(get_with(&s, "http://evil.example/health", "Host: localhost\r\n"), 403);
    CHECK_INT(get_with(&s, "/health", "Origin: http://evil.example\r\n"), 403);
    CHECK(!reply_field("access-control-allow-origin"));
    CHECK_HAS(reply_at("error.message"), "pages from the origin 'http://evil.example' may not");
    CHECK_INT(server_ask(&s, "OPTIONS", CHAT, "Origin: http://evil.example\r\n", NULL), 403);

    CHECK_INT(get_with(&s, "/health", "Origin: http://localhost:3000\r\n"), 200);
    CHECK_STR(reply_field("access-control-allow-origin"), "http://localhost:3000");
    CHECK_HAS(reply_field("access-control-expose-headers"),
              "x-request-id, x-radish-ignored, x-radish-replayed-tokens, retry-after");
    CHECK_STR(reply_field("vary"), "Origin");
    CHECK_INT(get_with(&s, "/health", "Origin: http://box.example\r\n"), 403);
    CHECK_INT(server_ask(&s, "OPTIONS", CHAT,
                         "Origin: http://localhost:3000\r\nAccess-Control-Request-Method: POST\r\n"
                         "Access-Control-Request-Headers: content-type, x-y\r\n",
                         NULL),
              200);
    CHECK_STR(reply_field("access-control-allow-methods"), "POST, OPTIONS");
    CHECK_STR(reply_field("access-control-allow-headers"), "content-type, x-y");
    CHECK_STR(reply_field("access-control-max-age"), "600");
    CHECK_INT(server_ask(&s, "OPTIONS", CHAT,
                         "Origin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n",
                         NULL),
              200);
    CHECK(!reply_field("access-control-allow-headers"));
    server_stop(&s);
}

TEST(server_http, posts_are_plain_json)
{
    struct test_server s;
    SERVER_START(&s, "--max-body-mib", "1");
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Type: text/plain\r\n", HELLO), 415);
    CHECK_HAS(reply_at("error.message"), "must be application/json, not 'text/plain'");
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Type: application/jsonp\r\n", HELLO), 415);
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Type: application/jso\r\n", HELLO), 415);
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Type:\r\n", HELLO), 415);
    CHECK_INT(server_ask(&s, "POST", CHAT, "", NULL), 415);
    CHECK_HAS(reply_at("error.message"), "not ''");
    CHECK_INT(
        server_ask(&s, "POST", CHAT, "Content-Type: Application/JSON; charset=utf-8\r\n", HELLO),
        200);
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Encoding: gzip\r\n", HELLO), 415);
    CHECK_STR(reply_field("accept-encoding"), "identity");
    CHECK_HAS(reply_at("error.message"), "the Content-Encoding 'gzip' is not supported");
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Encoding: Identity\r\n", HELLO), 200);
    CHECK_INT(server_ask(&s, "POST", CHAT, "Content-Encoding:\r\n", HELLO), 200);

    int fd = server_connect(&s);
    server_send(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n"
                    "Content-Type: application/json\r\n\r\n");
    CHECK_INT(server_read_reply(fd, true), 413);
    CHECK_HAS(reply_at("error.message"), ": 1 MiB (--max-body-mib)");
    CHECK(!reply_field("retry-after"));
    close(fd);
    fd = server_connect(&s);
    server_send(fd, "GET /health HTTP/1.1\r\n\r\n");
    CHECK_INT(server_read_reply(fd, true), 400);
    CHECK_AT("error.type", "'invalid_request_error'");
    CHECK(!strstr(reply_at("error.message"), "MiB"));
    close(fd);
    server_stop(&s);
}

/* ---- keys ---- */

#define KEYS  "--api-key", "acme:k-acme", "--api-key", "k-alone", "--admin-key", "k-admin"
#define ACME  "Authorization: Bearer k-acme\r\n"
#define ADMIN "x-api-key: k-admin\r\n"

TEST(server_http, keys_open_routes)
{
    static const struct {
        const char *method, *path;
        int tenant, admin, nobody;
    } routes[] = {
        {"POST", CHAT, 200, 200, 401},
        {"GET", "/v1/models", 200, 200, 401},
        {"HEAD", "/v1/models", 200, 200, 401},
        {"GET", "/stats", 403, 200, 401},
        {"GET", "/v1/cache", 200, 200, 401},
        {"GET", "/cache", 200, 200, 401},
        {"GET", "/slots", 403, 200, 401},
        {"GET", "/v1/cache/tree", 403, 200, 401},
        {"DELETE", "/v1/cache", 403, 200, 401},
        {"GET", "/health", 200, 200, 200},
        {"GET", "/nowhere", 404, 404, 401},
        {"DELETE", "/v1/models", 405, 405, 401},
        {"POST", "/v1/cache/warm", 200, 200, 401},
    };
    struct test_server s;
    SERVER_START(&s, KEYS);
    CHECK_HAS(server_log(&s), "keys: 2, tenants: 2, admin keys: 1\n");
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *method = routes[i].method, *path = routes[i].path;
        const char *content = strcmp(method, "POST") == 0 ? HELLO : NULL;
        CHECK_INT(server_ask(&s, method, path, ACME, content), routes[i].tenant);
        CHECK_INT(server_ask(&s, method, path, ADMIN, content), routes[i].admin);
        CHECK_INT(server_ask(&s, method, path, "", content), routes[i].nobody);
    }
    CHECK_INT(get_with(&s, "/stats", ACME), 403);
    CHECK_AT("error.type", "'permission_error'");
    CHECK_HAS(reply_at("error.message"),
              "this request needs an admin's key (--admin-key, or role=admin in a key file)");
    server_stop(&s);
}

TEST(server_http, keys_come_in_two_fields)
{
    static const char *const good[] = {ACME, "authorization: bearer   k-alone\r\n",
                                       "X-Api-Key: k-acme\r\n",
                                       "X-Api-Key: k-acme\r\nAuthorization: Basic YTpi\r\n"};
    static const char *const bad[] = {
        "Authorization: Bearer k-acm\r\n", "Authorization: Bearer k-acme2\r\n",
        "Authorization: Bearer\r\n",       "Authorization: k-acme\r\n",
        "Authorization: Basic k-acme\r\n", "x-api-key:\r\n",
        "x-api-key: K-ACME\r\n",           "Authorization: Bearer x\r\nx-api-key: k-acme\r\n"};
    struct test_server s;
    SERVER_START(&s, KEYS);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_INT(get_with(&s, "/v1/models", good[i]), 200);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(get_with(&s, "/v1/models", bad[i]), 401);
        CHECK_AT("error.code", "'invalid_api_key'");
        CHECK_STR(reply_field("www-authenticate"), "Bearer");
    }
    CHECK_HAS(reply_at("error.message"), "Incorrect API key provided");
    CHECK_INT(server_get(&s, "/v1/models"), 401);
    CHECK_HAS(reply_at("error.message"), "send it as 'Authorization: Bearer KEY'");
    /* Nothing of the body is waited for. */
    int fd = server_connect(&s);
    server_send(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
                    "Content-Type: application/json\r\n\r\n");
    CHECK_INT(server_read_reply(fd, true), 401);
    close(fd);
    CHECK(!strstr(server_log(&s), "k-"));
    server_stop(&s);
}

TEST(server_http, the_log_says_who_asked_for_what)
{
    struct test_server s;
    SERVER_START(&s, KEYS);
    CHECK_INT(server_ask(&s, "POST", CHAT, ACME, HELLO), 200);
    CHECK_INT(get_with(&s, "/v1/models", ACME), 200);
    CHECK_INT(get_with(&s, "/stats", ADMIN), 200);
    CHECK_INT(server_get(&s, "/health"), 200);
    CHECK_INT(get_with(&s, "/stats", ACME), 403);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", ADMIN, NULL), 200);
    server_await_log(&s, "DELETE /v1/cache 200 ");
    CHECK_HAS(server_log(&s), "POST /v1/chat/completions 200 ");
    CHECK_HAS(server_log(&s), ": tenant acme, prompt 21, cached 0, generated 3, first token ");
    CHECK_HAS(server_log(&s), ": tenant admin, cleared 23 tokens, from 127.0.0.1, id req-");
    CHECK_HAS(server_log(&s), "GET /v1/models 200 ");
    CHECK_HAS(server_log(&s), "GET /stats 403 "); /* a refusal is always logged */
    CHECK(!strstr(server_log(&s), "GET /stats 200 "));
    CHECK(!strstr(server_log(&s), "GET /health"));
    CHECK(!strstr(server_log(&s), " error "));
    server_stop(&s);

    /* A request without an answer has the status 499, whatever the one before it had. */
    SERVER_START(&s, "--mock-batch-cost-us", "2000");
    int fd = server_connect(&s);
    server_send(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_INT(server_read_reply(fd, true), 200);
    server_send(fd, "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 63\r\n"
                    "Content-Type: application/json\r\n\r\n{\"messages\":[{\"role\":\"user\","
                    "\"content\":\"Hi\"}],\"ignore_eos\":true}");
    server_await(&s, "running", 1);
    close(fd);
    server_await_log(&s, "POST /v1/chat/completions 499 ");
    CHECK_HAS(server_log(&s), " (the client hung up)");
    server_stop(&s);

    SERVER_START(&s, "--api-key", "k");
    CHECK_HAS(server_log(&s), "keys: 1, tenants: 1, admin keys: 0; without one nobody can inspect");
    server_stop(&s);
    SERVER_START(&s);
    CHECK(!strstr(server_log(&s), "keys:") && !strstr(server_log(&s), "warn"));
    server_stop(&s);
}

/* The bodies being read at the same time are limited; those already read do not count. */
TEST(server_http, large_bodies_one_after_the_other)
{
    struct test_server s;
    static struct strbuf body;
    SERVER_START(&s, "--max-body-mib", "1");
    strbuf_addf(&body, "%0*d", 1 << 20, 0);
    for (int i = 0; i < 20; i++)
        CHECK_INT(server_post(&s, CHAT, strbuf_str(&body)), 400);
    server_stop(&s);
}

/* A text that /tokenize would refuse is not even received. */
TEST(server_http, bounds_the_bodies_of_routes_that_take_little)
{
    struct test_server s;
    SERVER_START(&s, "-c", "1000");
    CHECK_INT(server_ask(&s, "POST", "/tokenize",
                         "Content-Type: application/json\r\nContent-Length: 20000000\r\n", NULL),
              413);
    CHECK_HAS(reply_at("error.message"), "has 20000000 bytes, but at most 1048576 bytes of text");
    server_stop(&s);
}
