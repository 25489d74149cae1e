/* Receiving takes turns: what it costs in all, and who is next. */
#include "http_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <dirent.h>

#include "serve/http/connection_limits.h"
#include "serve/http/receiving.h"

enum { PIECE_BYTES = 200000, MS = 1000000 };

/* A turn pays for four times the time that it takes, or 8 ns a byte. Time in which nothing is
 * received is credit, but not much. */
TEST(receiving, is_paid_for)
{
    struct receiving r = {0};
    uint64_t now_ns = 1000 * UINT64_C(1000000), begin_ns = now_ns;
    receiving_pay(&r, now_ns, 0, 0);
    CHECK_INT(receiving_debt_ns(&r, now_ns), 0);
    receiving_pay(&r, now_ns, 0, 1000000); /* 8 ms, less the credit of 4 */
    CHECK(receiving_debt_ns(&r, now_ns) > 4 * MS && receiving_debt_ns(&r, now_ns) < 5 * MS);
    now_ns += 5 * MS;
    CHECK_INT(receiving_debt_ns(&r, now_ns), 0);
    now_ns += 1000 * UINT64_C(1000000);
    receiving_pay(&r, now_ns, 2 * MS, 100);
    CHECK(receiving_debt_ns(&r, now_ns) > 4 * MS && receiving_debt_ns(&r, now_ns) < 5 * MS);
    receiving_pay(&r, now_ns, 1000 * UINT64_C(1000000), 100); /* an odd one */
    CHECK(receiving_debt_ns(&r, now_ns) < 25 * MS);
    /* However short turns are, they take a quarter of the time. */
    r = (struct receiving){0};
    uint64_t spent_ns = 0;
    for (now_ns = begin_ns; now_ns < begin_ns + 100 * MS; now_ns += 1000)
        for (; receiving_debt_ns(&r, now_ns) == 0; spent_ns += 5000)
            receiving_pay(&r, now_ns, 5000, 1);
    CHECK(spent_ns < 100 * MS / 4 + 2 * MS);
}

static void site_open_for(struct site *site, uint32_t max_connections)
{
    struct http_options options = ordinary_options;
    options.max_connections = max_connections;
    options.max_body_bytes = PIECE_BYTES;
    options.max_bodies_bytes = 64 << 20;
    site_open_as(site, options);
}

/* A connection that sends requests of that size without end. */
struct sender {
    int fd;
    size_t sent, size;
};

static char request[PIECE_BYTES + 100];

static size_t request_make(size_t body_bytes)
{
    memset(request, 'x', sizeof request);
    int head = snprintf(request, sizeof request,
                        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", body_bytes);
    request[head] = 'x';
    return (size_t)head + body_bytes;
}

/* At most one request, or the rest of one. */
static void sender_push(struct sender *s)
{
    take(s->fd, SIZE_MAX);
    ssize_t n = send(s->fd, request + s->sent, s->size - s->sent, MSG_NOSIGNAL);
    CHECK(n > 0 || errno == EAGAIN);
    s->sent += n > 0 ? (size_t)n : 0;
    if (s->sent == s->size)
        s->sent = 0;
}

/* A pause after each burst does not make a client cheaper. */
TEST(receiving, bursts_with_pauses_stay_within_the_budget)
{
    enum { N = 16, ROUNDS = 40 };
    struct site site;
    struct sender senders[N];
    site_open_for(&site, N);
    const size_t size = request_make(PIECE_BYTES);
    for (int i = 0; i < N; i++)
        senders[i] = (struct sender){.fd = client_open(&site), .size = size};
    TURN_UNTIL(&site, http_server_connections(site.server) == N);
    uint64_t begin_ns = clock_now_ns();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            sender_push(&senders[i]);
        turn_for(&site, 11);
    }
    double received = (double)site.n_requests * PIECE_BYTES;
    CHECK(received < 0.125 * (double)(clock_now_ns() - begin_ns + 2 * RECEIVING_CREDIT_NS));
    CHECK(site.n_requests > 0);
    for (int i = 0; i < N; i++)
        close(senders[i].fd);
    site_close(&site);
}

/* Requests that are answered at once take a quarter of the time, also if they came long before. */
TEST(receiving, pipelined_requests_stay_within_the_budget)
{
    enum { N = 200 };
    struct site site;
    site_open_for(&site, 1);
    int fd = client_open(&site);
    uint64_t begin_ns = clock_now_ns();
    for (int i = 0; i < N; i++)
        client_send(fd, GET("/compute"));
    TURN_UNTIL(&site, (take(fd, SIZE_MAX), site.n_requests == N));
    uint64_t paid_ns = UINT64_C(4) * COMPUTE_NS * N;
    CHECK(clock_now_ns() - begin_ns > paid_ns - 2 * RECEIVING_CREDIT_NS - 20 * MS);
    close(fd);
    site_close(&site);
}

/* A client with one connection gets as much as one with dozens. */
TEST(receiving, addresses_take_turns)
{
    enum { N = 48, BODY = 100000, WANTED = 20 };
    struct site site;
    struct sender greedy[N], honest = {0};
    site_open_for(&site, 2 * N);
    const size_t size = request_make(BODY);
    for (int i = 0; i < N; i++)
        greedy[i] = (struct sender){.fd = client_open_from(&site, "127.0.0.2"), .size = size};
    honest = (struct sender){.fd = client_open_from(&site, "127.0.0.3"), .size = size};
    TURN_UNTIL(&site, http_server_connections(site.server) == N + 1);
    uint64_t end_ns = clock_now_ns() + 200 * MS;
    while (clock_now_ns() < end_ns) {
        for (int i = 0; i < N; i++)
            sender_push(&greedy[i]);
        turn(&site);
    }
    const int before = site.n_requests;
    int answers = 0;
    for (uint64_t late_ns = clock_now_ns() + PATIENCE_NS; answers < WANTED;) {
        char answer[4096] = "";
        CHECK(clock_now_ns() < late_ns);
        for (int i = 0; i < N; i++)
            sender_push(&greedy[i]);
        recv(honest.fd, answer, sizeof answer - 1, 0);
        for (const char *at = answer; (at = strstr(at, "HTTP/1.1 200 ")); at++)
            answers++;
        ssize_t n = send(honest.fd, request + honest.sent, size - honest.sent, MSG_NOSIGNAL);
        honest.sent = n > 0 ? (honest.sent + (size_t)n) % size : honest.sent;
        turn(&site);
    }
    /* Greedy requests were begun before, at most one of each connection. */
    CHECK(site.n_requests - before - answers < 2 * WANTED + N);
    for (int i = 0; i < N; i++)
        close(greedy[i].fd);
    close(honest.fd);
    site_close(&site);
}

/* An address that comes back again and again is nobody new: it does not pass those who wait. */
TEST(receiving, newcomers_stand_behind_those_who_wait)
{
    struct connection_limits limits;
    const struct peer honest = {.key = 1}, fresh = {.key = 2};
    struct error err;
    CHECK_INT(limits_open(&limits, 4, 0, &err), 0);
    limits_add(&limits, &honest);
    uint64_t served = limits_ticket(&limits, &honest, TICKET_RECEIVE, 7);
    const uint64_t waits = limits_ticket(&limits, &honest, TICKET_RECEIVE, served);
    for (int i = 0; i < 3; i++) {
        limits_add(&limits, &fresh);
        CHECK(limits_ticket(&limits, &fresh, TICKET_RECEIVE, served) >= waits);
        limits_remove(&limits, &fresh);
    }
    limits_remove(&limits, &honest);
    limits_close(&limits);
}

/* Also one that waits in the line, and then has nothing to say. */
TEST(receiving, a_draining_server_ends_all_connections)
{
    enum { N = 40 };
    struct site site;
    site_open_for(&site, 2);
    int computing = client_open_from(&site, "127.0.0.2"), fd = client_open_from(&site, "127.0.0.3");
    TURN_UNTIL(&site, http_server_connections(site.server) == 2);
    for (int i = 0; i < N; i++)
        client_send(computing, GET("/compute"));
    client_send(fd, GET("/compute") GET("/compute"));
    TURN_UNTIL(&site, site.n_requests >= 4);
    http_server_drain(site.server);
    TURN_UNTIL(&site, site.n_drained);
    CHECK_INT(http_server_connections(site.server), 0);
    close(computing);
    close(fd);
    site_close(&site);
}

/* A reset ends a connection that waits for its turn; an end comes after the bytes before it. */
TEST(receiving, hang_ups_are_seen_in_the_line)
{
    enum { N = 40 };
    struct site site;
    site_open_for(&site, 2);
    int computing = client_open_from(&site, "127.0.0.2"), fd = client_open_from(&site, "127.0.0.3");
    TURN_UNTIL(&site, http_server_connections(site.server) == 2);
    for (int i = 0; i < N; i++)
        client_send(computing, GET("/compute"));
    client_send(fd, GET("/compute") GET("/compute"));
    shutdown(fd, SHUT_WR);
    TURN_UNTIL(&site, http_server_connections(site.server) == 1);
    CHECK(has_bytes(fd));
    close(fd);
    setsockopt(computing, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
               sizeof(struct linger));
    close(computing);
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);
    CHECK(site.n_requests < N);
    site_close(&site);
}

static int n_files(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* Hang-ups are watched without further files, so that a file limit of all connections is enough. */
TEST(receiving, a_connection_needs_one_file)
{
    enum { N = 8 };
    struct site site;
    static char more[2 * HTTP_MAX_PIPELINED];
    int fds[N];
    site_open_for(&site, N);
    memset(more, 'x', sizeof more - 1);
    const int before = n_files();
    for (int i = 0; i < N; i++) {
        fds[i] = client_open(&site);
        client_send(fds[i], GET("/wait"));
        client_send(fds[i], more); /* is not read to its end */
    }
    TURN_UNTIL(&site, site.n_requests == N);
    turn_for(&site, 50);
    CHECK_INT(n_files(), before + 2 * N);
    CHECK_INT(site.n_hangups, 0);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);
    CHECK_INT(site.n_hangups, N);
    site_close(&site);
}
