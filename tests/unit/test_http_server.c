/* Connections: deadlines, hang-ups, limits, streams, draining. A test has short deadlines only if
 * it is about them. */
#include "http_fixture.h"
#include "test_memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

enum { HEADER_MS = 200, BODY_MS = 200, IDLE_MS = 300, WRITE_MS = 300 };

TEST(http_server, a_header_has_a_deadline)
{
    struct site site;
    char answer[4096];
    site_open_with(&site, (struct deadlines){.header_ms = HEADER_MS});
    int silent = client_open(&site), slow = client_open(&site);
    uint64_t began_ns = clock_now_ns();
    client_send(slow, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 3; i++) { /* a byte now and then does not help */
        turn_for(&site, HEADER_MS / 4);
        client_send(slow, "A");
    }
    read_to_end(&site, slow, answer, sizeof answer);
    CHECK(clock_now_ns() - began_ns >= (HEADER_MS - 20) * UINT64_C(1000000));
    CHECK(strstr(answer, "HTTP/1.1 408 ") == answer);
    CHECK(strstr(answer, "Connection: close\r\n") != NULL);
    read_to_end(&site, silent, answer, sizeof answer);
    CHECK_STR(answer, "");
    CHECK_INT(site.n_requests, 0);
    site_close(&site);
}

TEST(http_server, a_body_has_a_deadline)
{
    struct site site;
    char answer[4096];
    site_open_with(&site, (struct deadlines){.body_ms = BODY_MS});
    int fd = client_open(&site);
    client_send(fd, POST("10") "12345");
    CHECK(read_to_end(&site, fd, answer, sizeof answer) >= BODY_MS - 20);
    CHECK(strstr(answer, "HTTP/1.1 408 ") == answer);
    CHECK_INT(site.n_requests, 0);
    site_close(&site);
}

TEST(http_server, a_kept_connection_has_a_deadline)
{
    struct site site;
    char answer[4096];
    site_open_with(&site, (struct deadlines){.idle_ms = IDLE_MS});
    int fd = client_open(&site);
    client_send(fd, GET("/") GET("/"));
    CHECK(read_to_end(&site, fd, answer, sizeof answer) >= IDLE_MS - 20);
    CHECK(strstr(answer, "HTTP/1.1 200 ") == answer);
    CHECK(strstr(answer + 10, "HTTP/1.1 200 ") != NULL);
    CHECK(strstr(answer, "Connection: close") == NULL);
    CHECK_INT(site.n_requests, 2);
    site_close(&site);
}

/* Careless clients send an empty line after a body. It does not begin a request, whose header would
 * have to arrive soon or be answered with 408. */
TEST(http_server, an_empty_line_begins_no_request)
{
    struct site site;
    char answer[4096];
    site_open_with(&site, (struct deadlines){.header_ms = HEADER_MS, .idle_ms = IDLE_MS});
    int fd = client_open(&site);
    client_send(fd, POST("2") "ab\r\n");
    CHECK(read_to_end(&site, fd, answer, sizeof answer) >= IDLE_MS - 20);
    CHECK(strstr(answer, "HTTP/1.1 200 ") == answer);
    CHECK(strstr(answer, "408") == NULL);
    site_close(&site);
}

TEST(http_server, a_running_request_has_none)
{
    struct site site;
    char answer[4096];
    site_open_with(
        &site, (struct deadlines){.body_ms = BODY_MS, .idle_ms = IDLE_MS, .write_ms = WRITE_MS});
    int fd = client_open(&site);
    client_send(fd, GET("/wait") GET("/"));
    TURN_UNTIL(&site, site.waiting);
    turn_for(&site, IDLE_MS + WRITE_MS);
    CHECK_INT(site.n_requests, 1);
    http_reply(site.waiting, 200, "text/plain", "late", 4);
    CHECK(read_to_end(&site, fd, answer, sizeof answer) >= IDLE_MS - 20);
    CHECK(strstr(answer, "late") != NULL);
    CHECK_INT(site.n_requests, 2);
    CHECK_INT(site.n_hangups, 0);
    site_close(&site);
}

static void check_hangup(const char *request, bool half)
{
    struct site site;
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, request);
    TURN_UNTIL(&site, site.waiting);
    CHECK_INT(site.n_hangups, 0);
    if (half)
        shutdown(fd, SHUT_WR);
    else
        close(fd);
    TURN_UNTIL(&site, site.n_hangups);
    CHECK_INT(http_server_connections(site.server), 0);
    if (half)
        close(fd);
    site_close(&site);
}

TEST(http_server, sees_a_hang_up_while_a_request_runs)
{
    check_hangup(GET("/wait"), false);
    check_hangup(GET("/wait"), true);
    check_hangup(GET("/wait") GET("/") "GET /half", false);
}

/* Bytes left unread while a request runs do not hide the end after them. */
TEST(http_server, sees_a_hang_up_behind_a_full_input)
{
    struct site site;
    static char more[2 * HTTP_MAX_PIPELINED];
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, GET("/wait"));
    TURN_UNTIL(&site, site.waiting);
    memset(more, 'x', sizeof more - 1);
    client_send(fd, more);
    turn_for(&site, 20);
    CHECK_INT(site.n_hangups, 0);
    CHECK_INT(http_server_connections(site.server), 1);
    close(fd);
    TURN_UNTIL(&site, site.n_hangups);
    CHECK_INT(http_server_connections(site.server), 0);
    site_close(&site);
}

/* Without file descriptors for another connection, it waits a little and then accepts it. */
TEST(http_server, waits_for_files_to_accept_with)
{
    struct site site;
    struct rlimit files, few;
    char answer[4096];
    site_open(&site);
    int fd = client_open(&site); /* connected, but not accepted yet */
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
    few = (struct rlimit){(rlim_t)dup(fd), files.rlim_max};
    CHECK_INT(close((int)few.rlim_cur), 0);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    client_send(fd, GET("/"));
    int n_turns = 0;
    for (uint64_t end = clock_now_ns() + 30 * 1000000; clock_now_ns() < end; n_turns++)
        turn(&site);
    uint32_t n_before = http_server_connections(site.server);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
    CHECK_INT(n_before, 0);
    CHECK(n_turns < 100);
    read_some(&site, fd, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 200 ") == answer);
    close(fd);
    site_close(&site);
}

TEST(http_server, tells_a_client_that_asks_to_go_on)
{
    struct site site;
    char answer[4096];
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd,
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    read_some(&site, fd, answer, sizeof answer);
    CHECK_STR(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(fd, "ab");
    read_some(&site, fd, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 200 ") == answer);
    /* One that did not wait is not told. */
    client_send(fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                    "Expect: 100-continue\r\n\r\na");
    turn_for(&site, 20);
    CHECK_INT(recv(fd, answer, sizeof answer, MSG_DONTWAIT), -1);
    client_send(fd, "b");
    read_some(&site, fd, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 200 ") == answer);
    close(fd);
    site_close(&site);
}

TEST(http_server, an_answer_arrives_after_a_half_close)
{
    struct site site;
    char answer[4096];
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, GET("/"));
    shutdown(fd, SHUT_WR);
    read_to_end(&site, fd, answer, sizeof answer);
    CHECK(strstr(answer, "ok") != NULL);
    CHECK_INT(site.n_hangups, 0);
    site_close(&site);
}

TEST(http_server, a_half_closed_connection_ends_with_its_answer)
{
    struct site site;
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, GET("/big"));
    shutdown(fd, SHUT_WR);
    turn_for(&site, 50);
    CHECK(take_all(&site, fd) > BIG_BODY_BYTES);
    CHECK_INT(site.n_hangups, 0);
    CHECK_INT(http_server_connections(site.server), 0);
    site_close(&site);
}

/* A client that sends requests and reads no answers does not fill the server's memory with them. */
TEST(http_server, answers_one_request_after_the_other_is_read)
{
    struct site site;
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, GET("/big") GET("/big") GET("/big"));
    TURN_UNTIL(&site, site.n_requests);
    turn_for(&site, 50);
    CHECK_INT(site.n_requests, 1);
    size_t n_read = 0;
    TURN_UNTIL(&site, (n_read += take(fd, SIZE_MAX)) > 3 * BIG_BODY_BYTES);
    CHECK_INT(site.n_requests, 3);
    close(fd);
    site_close(&site);
}

/* What a client sends after its last request is dropped; it does not delay the answer. */
TEST(http_server, takes_what_comes_behind_the_last_request)
{
    static const char noise[1 << 20];
    struct site site;
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    size_t n_read = 0;
    for (size_t n_sent = 0; n_sent < 32 * sizeof noise;) {
        ssize_t n = 0;
        TURN_UNTIL(&site, (n = send(fd, noise, sizeof noise, MSG_NOSIGNAL)) > 0);
        n_sent += (size_t)n;
        n_read += take(fd, 4096); /* a slow reader is not given up */
    }
    CHECK(n_read < BIG_BODY_BYTES / 2); /* it is still being sent */
    CHECK(n_read + take_all(&site, fd) > BIG_BODY_BYTES);
    site_close(&site);
}

TEST(http_server, a_stream_waits_for_its_reader)
{
    struct site site;
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, GET("/stream"));
    TURN_UNTIL(&site, site.streamed);
    turn_for(&site, 60);
    size_t before = site.streamed, got = 0;
    CHECK(before < 32 << 20);
    TURN_UNTIL(&site, (got += take(fd, SIZE_MAX)) >= before); /* read: there is room again */
    TURN_UNTIL(&site, site.streamed > before);
    CHECK(site.n_rooms > 0);
    CHECK_INT(site.n_hangups, 0);
    close(fd);
    site_close(&site);
}

TEST(http_server, a_stream_drops_a_dead_reader)
{
    struct site site;
    site_open_with(&site, (struct deadlines){.write_ms = WRITE_MS});
    int fd = client_open(&site);
    uint64_t began_ns = clock_now_ns();
    client_send(fd, GET("/stream"));
    TURN_UNTIL(&site, site.streamed);
    TURN_UNTIL(&site, site.n_hangups);
    CHECK(clock_now_ns() - began_ns >= (WRITE_MS - 20) * UINT64_C(1000000));
    CHECK_INT(http_server_connections(site.server), 0);
    close(fd);
    site_close(&site);
}

TEST(http_server, bounds_connections_and_bodies)
{
    struct site site;
    static char big[80001], answer[4096];
    site_open(&site);
    int fds[MAX_CONNECTIONS + 1];
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        fds[i] = client_open(&site);
        client_send(fds[i], GET("/wait")); /* busy, not idle */
        TURN_UNTIL(&site, site.n_requests == i + 1);
    }
    int extra = client_open(&site);
    read_to_end(&site, extra, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 503 ") == answer);
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        close(fds[i]);
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);

    memset(big, 'x', sizeof big - 1);
    int first = client_open(&site), second = client_open(&site);
    client_send(first, POST("99999"));
    client_send(first, big);
    client_send(second, POST("99999"));
    client_send(second, big);
    /* There is room for either of them. */
    TURN_UNTIL(&site, has_bytes(first) || has_bytes(second));
    CHECK(has_bytes(first) != has_bytes(second));
    read_some(&site, has_bytes(first) ? first : second, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 503 ") == answer);
    /* The rejected one is still connected, but its body is freed: there is room for a third. */
    int third = client_open(&site);
    client_send(third, POST("60000"));
    big[60000] = '\0';
    client_send(third, big);
    read_some(&site, third, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 200 ") == answer);
    close(first);
    close(second);
    close(third);
    site_close(&site);
}

/* A body that the handler took counts until the handler says that it is freed, whatever happens to
 * the connection. */
TEST(http_server, a_taken_body_counts_until_it_is_freed)
{
    struct site site;
    static char big[80001], answer[4096];
    site_open(&site);
    memset(big, 'x', sizeof big - 1);
    int fd = client_open(&site);
    client_send(fd, "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 80000\r\n\r\n");
    client_send(fd, big);
    TURN_UNTIL(&site, site.waiting);
    CHECK_INT(site.taken.len, 80000);
    close(fd);
    TURN_UNTIL(&site, site.n_hangups);
    for (int freed = 0; freed < 2; freed++) {
        fd = client_open(&site);
        client_send(fd, POST("80000"));
        client_send(fd, big);
        read_some(&site, fd, answer, sizeof answer);
        CHECK(strncmp(answer, freed ? "HTTP/1.1 200 " : "HTTP/1.1 503 ", 13) == 0);
        close(fd);
        if (!freed)
            http_body_freed(site.server, NULL, site.taken.len);
    }
    site_close(&site);
}

/* A large body that waits for the handler's work makes room for somebody else's small one. */
TEST(http_server, a_client_with_little_is_not_refused_for_one_with_much)
{
    struct site site;
    static char big[80001], answer[4096];
    site_open(&site);
    memset(big, 'x', sizeof big - 1);
    int first = client_open(&site), second = client_open(&site), modest = client_open(&site);
    client_send(first,
                "POST /wait HTTP/1.1\r\nHost: a\r\nX-Client: 1\r\nContent-Length: 80000\r\n\r\n");
    client_send(first, big);
    TURN_UNTIL(&site, site.waiting);
    /* 69,999 bytes: the bodies have room for one byte more. */
    client_send(second,
                "POST / HTTP/1.1\r\nHost: a\r\nX-Client: 1\r\nContent-Length: 75000\r\n\r\n");
    client_send(second, big + sizeof big - 70000);
    turn_for(&site, 20);
    CHECK(!has_bytes(first) && !has_bytes(second));
    client_send(
        modest,
        "POST / HTTP/1.1\r\nHost: a\r\nX-Client: 2\r\nContent-Length: 10\r\n\r\n0123456789");
    read_some(&site, modest, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 ", 13) == 0);
    read_some(&site, first, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    CHECK(site.taken.len == 0 && !has_bytes(second));
    close(first);
    close(second);
    close(modest);
    site_close(&site);
}

/* Nothing is left of a body that the handler did not take, or whose request has been answered: it
 * is not refused for it again. */
TEST(http_server, answered_requests_hold_no_bodies)
{
    struct site site;
    static char big[80001], answer[4096];
    site_open(&site);
    memset(big, 'x', sizeof big - 1);
    int first = client_open(&site), second = client_open(&site);
    client_send(first,
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 80000\r\n\r\n");
    client_send(first, big);
    client_send(first, "more"); /* so the server lingers */
    read_some(&site, first, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 ", 13) == 0);
    client_send(second, POST("90000"));
    client_send(second, big);
    turn_for(&site, 20);
    CHECK(!has_bytes(second));
    client_send(second, big + sizeof big - 10001);
    read_some(&site, second, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 ", 13) == 0);
    CHECK_INT(take_all(&site, first), 0);
    close(first);
    close(second);
    site_close(&site);
}

TEST(http_server, an_idle_connection_makes_room)
{
    struct site site;
    static char answer[4096];
    site_open(&site);
    int fds[MAX_CONNECTIONS];
    for (int i = 0; i < MAX_CONNECTIONS; i++) {
        fds[i] = client_open(&site);
        client_send(fds[i], GET("/"));
        TURN_UNTIL(&site, site.n_requests == i + 1);
    }
    int extra = client_open(&site);
    client_send(extra, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    read_to_end(&site, extra, answer, sizeof answer);
    CHECK(strstr(answer, "ok") != NULL);
    CHECK(recv(fds[0], answer, sizeof answer, 0) > 0); /* its answer, */
    TURN_UNTIL(&site, is_ended(fds[0]));               /* then its end: the oldest */
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        close(fds[i]);
    site_close(&site);
}

TEST(http_server, drains)
{
    struct site site;
    static char answer[4096];
    site_open(&site);
    int idle = client_open(&site), busy = client_open(&site);
    client_send(busy, GET("/wait"));
    TURN_UNTIL(&site, site.waiting);
    http_server_drain(site.server);
    turn_for(&site, 20);
    CHECK_INT(site.n_drained, 0);
    TURN_UNTIL(&site, is_ended(idle));
    http_reply(site.waiting, 200, "text/plain", "last", 4);
    read_to_end(&site, busy, answer, sizeof answer);
    CHECK(strstr(answer, "Connection: close\r\n") && strstr(answer, "last"));
    TURN_UNTIL(&site, site.n_drained);
    close(idle);
    site_close(&site);
}

TEST(http_server, lets_others_in_while_it_drains)
{
    struct site site;
    static char answer[4096];
    site_open(&site);
    int busy = client_open(&site);
    client_send(busy, GET("/wait"));
    TURN_UNTIL(&site, site.waiting);
    http_stream_begin(site.waiting, "text/plain");
    http_server_drain(site.server);
    turn_for(&site, 20);
    int other = client_open(&site), half = client_open(&site), silent = client_open(&site);
    client_send(other, GET("/"));
    read_to_end(&site, other, answer, sizeof answer);
    CHECK(strstr(answer, "Connection: close\r\n") && strstr(answer, "ok"));
    client_send(half, POST("10") "12345");
    TURN_UNTIL(&site, site.n_heads == 3 && http_server_connections(site.server) == 3);
    CHECK_INT(site.n_drained, 0);

    http_stream_write(site.waiting, "last", 4);
    http_stream_end(site.waiting);
    read_to_end(&site, busy, answer, sizeof answer);
    CHECK(strstr(answer, "last") != NULL);
    /* A connection without a request is closed at once; one that has begun a request gets an
     * answer. */
    read_to_end(&site, half, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 503 ") == answer);
    TURN_UNTIL(&site, is_ended(silent));
    TURN_UNTIL(&site, site.n_drained);
    close(silent);
    site_close(&site);
}

/* A draining server sends its pending answers, however long their clients take to read them. */
TEST(http_server, sends_whole_answers_while_it_drains)
{
    struct site site;
    site_open_with(&site, (struct deadlines){.idle_ms = IDLE_MS});
    int fd = client_open(&site);
    client_send(fd, GET("/big"));
    TURN_UNTIL(&site, site.n_requests == 1);
    http_server_drain(site.server);
    size_t n_read = 0;
    for (int ms = 0; ms < 2 * IDLE_MS; ms += 10) {
        n_read += take(fd, BIG_BODY_BYTES / (4 * IDLE_MS / 10)); /* half of it, in the end */
        turn_for(&site, 10);
    }
    CHECK_INT(site.n_drained, 0);
    CHECK(n_read + take_all(&site, fd) > BIG_BODY_BYTES);
    TURN_UNTIL(&site, site.n_drained);
    site_close(&site);
}

TEST(http_server, an_idle_server_drains_at_once)
{
    struct site site;
    site_open(&site);
    int idle = client_open(&site), half = client_open(&site);
    client_send(half, "GET / HT");
    TURN_UNTIL(&site, http_server_connections(site.server) == 2);
    turn_for(&site, 20);
    http_server_drain(site.server);
    close(half); /* the server waits only until it has been told */
    TURN_UNTIL(&site, site.n_drained);
    struct sockaddr_in at = {.sin_family = AF_INET};
    at.sin_port = htons((uint16_t)atoi(strrchr(http_server_url(site.server), ':') + 1));
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(connect(late, (struct sockaddr *)&at, sizeof at), -1);
    close(late);
    close(idle);
    site_close(&site);
}

TEST(http_server, may_open_a_file_for_each_connection)
{
    struct site site;
    struct rlimit files, few, raised;
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
    int next = dup(STDERR_FILENO);
    close(next);
    few = (struct rlimit){(rlim_t)next + 16, files.rlim_max};
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &few), 0);
    site_open(&site);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &raised), 0);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
    CHECK(raised.rlim_cur > few.rlim_cur);
    CHECK(raised.rlim_cur >= MAX_CONNECTIONS);
    site_close(&site);
    struct rlimit many = {raised.rlim_cur + 16, files.rlim_max}; /* what is enough stays */
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &many), 0);
    site_open(&site);
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &raised), 0);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
    CHECK_INT(raised.rlim_cur, many.rlim_cur);
    site_close(&site);
}

TEST(http_server, names_each_status)
{
    static const char *const lines[] = {"200 OK",
                                        "400 Bad Request",
                                        "401 Unauthorized",
                                        "403 Forbidden",
                                        "404 Not Found",
                                        "405 Method Not Allowed",
                                        "408 Request Timeout",
                                        "413 Content Too Large",
                                        "414 URI Too Long",
                                        "415 Unsupported Media Type",
                                        "417 Expectation Failed",
                                        "429 Too Many Requests",
                                        "431 Request Header Fields Too Large",
                                        "500 Internal Server Error",
                                        "501 Not Implemented",
                                        "503 Service Unavailable",
                                        "504 Gateway Timeout",
                                        "505 HTTP Version Not Supported"};
    struct site site;
    char text[128], answer[4096];
    site_open(&site);
    int fd = client_open(&site);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "GET /status/%.3s HTTP/1.1\r\nHost: a\r\n\r\n", lines[i]);
        client_send(fd, text);
        read_some(&site, fd, answer, sizeof answer);
        snprintf(text, sizeof text, "HTTP/1.1 %s\r\n", lines[i]);
        CHECK(strstr(answer, text) == answer);
    }
    close(fd);
    site_close(&site);
}

TEST(http_server, a_head_has_no_body)
{
    struct site site;
    char answer[4096];
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    read_to_end(&site, fd, answer, sizeof answer);
    CHECK(strstr(answer, "HTTP/1.1 200 OK\r\n") == answer);
    CHECK(strstr(answer, "Content-Length: 2\r\n"));
    CHECK_STR(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    site_close(&site);
}

/* If nothing from the client is unread, the server does not wait for it to close. */
TEST(http_server, closes_at_once_when_all_is_read)
{
    struct site site;
    site_open(&site);
    int fd = client_open(&site);
    client_send(fd, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    TURN_UNTIL(&site, (take(fd, SIZE_MAX), is_ended(fd)));
    CHECK_INT(http_server_connections(site.server), 0);
    close(fd);
    site_close(&site);
}

TEST(http_server, says_that_memory_is_out)
{
    struct site site;
    site_open(&site);
    struct http_listeners none = {0};
    struct http_options options = {.listeners = &none, .max_connections = 1};
    struct http_handler handler = {0};
    struct http_server *other = NULL;
    struct error err;
    memory_ends_after(0);
    CHECK_INT(http_server_open(&other, site.base, &options, &handler, &err), -1);
    memory_is_back();
    CHECK_STR(err.message, "no memory for the HTTP server");
    site_close(&site);
}

/* Everything written between two flushes is sent in one piece, and the end together with what
 * precedes it. */
TEST(http_server, a_stream_goes_out_in_as_few_pieces_as_it_is_flushed)
{
    struct site site;
    char answer[4096];
    site_open(&site);
    int client = client_open(&site);
    client_send(client, GET("/wait"));
    TURN_UNTIL(&site, site.waiting);
    http_stream_begin(site.waiting, "text/plain");
    http_stream_write(site.waiting, "one", 3);
    CHECK_INT(recv(client, answer, sizeof answer, MSG_DONTWAIT), -1);
    http_stream_flush(site.waiting); /* the loop need not turn for it */
    await_bytes(client);
    ssize_t n = recv(client, answer, sizeof answer - 1, MSG_DONTWAIT);
    CHECK(n > 0);
    answer[n] = '\0';
    CHECK(strstr(answer, "\r\n\r\n3\r\none\r\n") != NULL);
    http_stream_flush(site.waiting); /* nothing to send */
    CHECK_INT(recv(client, answer, sizeof answer, MSG_DONTWAIT), -1);
    http_stream_write(site.waiting, "0123456789abcdefg", 17);
    http_stream_write(site.waiting, "", 0);
    http_stream_write(site.waiting, "last", 4);
    http_stream_end(site.waiting);
    await_bytes(client);
    n = recv(client, answer, sizeof answer - 1, MSG_DONTWAIT);
    CHECK(n > 0);
    answer[n] = '\0';
    CHECK_STR(answer, "11\r\n0123456789abcdefg\r\n4\r\nlast\r\n0\r\n\r\n");
    turn(&site); /* it looks for a next request */
    close(client);
    site_close(&site);
}
