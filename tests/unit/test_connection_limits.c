/* Who may connect, and who makes room: addresses, the order of victims, budgets of memory. */
#include "http_fixture.h"
#include "serve/http/connection.h"
#include "test_memory.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct peer peer_v6(const char *text)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6};
    CHECK_INT(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
    return peer_of((struct sockaddr *)&address);
}

static struct peer peer_v4(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    CHECK_INT(inet_pton(AF_INET, text, &address.sin_addr), 1);
    return peer_of((struct sockaddr *)&address);
}

TEST(connection_limits, count_a_client_as_one)
{
    CHECK(peer_v4("192.0.2.1").key != peer_v4("192.0.2.2").key);
    CHECK_INT(peer_v6("2001:db8::1").key, peer_v6("2001:db8::ffff:0:0:9").key);
    CHECK(peer_v6("2001:db8::1").key != peer_v6("2001:db8:0:1::1").key);
    CHECK_INT(peer_v6("::ffff:192.0.2.1").key, peer_v4("192.0.2.1").key);
    CHECK(peer_v4("127.0.0.1").is_near && peer_v6("::1").is_near);
    CHECK(peer_v6("::ffff:127.0.0.1").is_near);
    CHECK(!peer_v4("127.0.0.2").is_near && !peer_v6("::2").is_near);
    CHECK(!peer_v4("0.0.0.0").is_near);
    struct sockaddr local = {.sa_family = AF_UNIX};
    CHECK(peer_of(&local).is_near);
    CHECK(peer_of(&local).key != peer_v6("::").key &&
          peer_of(&local).key != peer_v4("0.0.0.0").key);
}

/* Adds and removes many addresses in random order, and compares with plain counts. */
TEST(connection_limits, counts_are_right)
{
    enum { ADDRESSES = 200, MAX = 300, STEPS = 200000 };
    static unsigned counts[ADDRESSES];
    struct connection_limits l;
    struct error err;
    unsigned seed = 1, n = 0;
    CHECK_INT(limits_open(&l, MAX, 3, &err), 0);
    memset(counts, 0, sizeof counts);
    for (int step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rand_r(&seed) % ADDRESSES;
        struct peer peer = {.key = i % 2 ? i : (uint64_t)i << 40};
        if (rand_r(&seed) % 2 && n < MAX) {
            limits_add(&l, &peer);
            counts[i]++, n++;
        } else if (counts[i]) {
            limits_remove(&l, &peer);
            counts[i]--, n--;
        }
        struct http_exchange *victim;
        enum admission want = counts[i] >= 3                  ? ADDRESS_FULL
                              : n >= MAX - (uint32_t)MAX / 16 ? FULL
                                                              : ADMITTED;
        CHECK_INT(limits_admit(&l, &peer, &victim), want);
        CHECK_INT(l.n, n);
    }
    limits_close(&l);
}

/* All slots are taken by connections that wait in different ways. */
TEST(connection_limits, close_in_order)
{
    struct site site;
    struct http_options options = ordinary_options;
    int fds[4], extra[4];
    char answer[4096];
    site_open_as(&site, options);
    for (int i = 0; i < 4; i++)
        fds[i] = client_open(&site);
    client_send(fds[0], GET("/wait"));
    TURN_UNTIL(&site, site.waiting);
    client_send(fds[1], POST("10") "12345");
    TURN_UNTIL(&site, site.n_heads == 2);
    client_send(fds[2], "GET / HT");
    turn_for(&site, 20);
    client_send(fds[3], GET("/"));
    read_some(&site, fds[3], answer, sizeof answer);
    /* First the idle one, then the header, then the body, never the one that runs. */
    for (int i = 0; i < 3; i++) {
        extra[i] = client_open(&site);
        client_send(extra[i], GET("/wait"));
        TURN_UNTIL(&site, site.n_requests == 3 + i);
        for (int k = 0; k < 3 - i; k++)
            CHECK(!is_ended(fds[k]));
        read_to_end(&site, fds[3 - i], answer, sizeof answer);
        CHECK(i == 0 ? !*answer : strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    }
    extra[3] = client_open(&site);
    read_to_end(&site, extra[3], answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    CHECK_INT(site.n_hangups, 0);
    for (int i = 0; i < 3; i++)
        close(extra[i]);
    close(fds[0]);
    site_close(&site);
}

/* Clients that do not read their answers cannot hold all slots. */
TEST(connection_limits, slow_readers_make_room_at_last)
{
    struct site site;
    char answer[4096];
    int fds[4];
    site_open(&site);
    for (int i = 0; i < 4; i++) {
        fds[i] = client_open(&site);
        client_send(fds[i], i ? GET("/stream") : GET("/big"));
        TURN_UNTIL(&site, site.n_requests == i + 1 && site.server->unsent_bytes);
    }
    TURN_UNTIL(&site, site.server->limits.lists[WAITS_READER].newest->state == X_RUNNING);
    int early = client_open(&site);
    read_to_end(&site, early, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    clock_skip_ns(LIMITS_READER_MS * UINT64_C(1000000));
    int late[2];
    for (int i = 0; i < 2; i++) { /* one whose answer is whole, and one whose request runs */
        late[i] = client_open(&site);
        client_send(late[i], GET("/wait"));
        TURN_UNTIL(&site, site.n_requests == 5 + i);
        CHECK_INT(site.n_hangups, i);
    }
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(late[i]);
    }
    close(fds[2]);
    close(fds[3]);
    site_close(&site);
}

TEST(connection_limits, a_full_address_makes_room_by_itself)
{
    struct site site;
    struct http_options options = ordinary_options;
    char answer[4096];
    options.max_connections = 16;
    options.max_connections_per_address = 2;
    site_open_as(&site, options);
    int other = client_open_from(&site, "127.0.0.3");
    client_send(other, "GET / HT"); /* the oldest of all, but of another address */
    turn_for(&site, 20);
    int first = client_open_from(&site, "127.0.0.2"), second = client_open_from(&site, "127.0.0.2");
    client_send(first, "GET / HT");
    client_send(second, "GET / HT");
    TURN_UNTIL(&site, http_server_connections(site.server) == 3);
    turn_for(&site, 20);
    int third = client_open_from(&site, "127.0.0.2");
    client_send(third, GET("/"));
    read_some(&site, third, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 ", 13) == 0);
    read_to_end(&site, first, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 503 ", 13) == 0);
    CHECK(!is_ended(second) && !is_ended(other));
    close(second);
    close(third);
    close(other);
    site_close(&site);
}

/* The client that has held the most for the longest time is dropped, not the one that came last. */
TEST(connection_limits, unsent_answers_have_a_budget)
{
    struct site site;
    struct http_options options = ordinary_options;
    options.max_unsent_bytes = 40 << 20;
    site_open_as(&site, options);
    int first = client_open(&site), second = client_open(&site), third = client_open(&site);
    client_send(first, GET("/big"));
    TURN_UNTIL(&site, site.n_requests == 1);
    client_send(second, GET("/big"));
    TURN_UNTIL(&site, site.n_requests == 2);
    turn_for(&site, 30);
    CHECK_INT(http_server_connections(site.server), 3);
    client_send(third, GET("/big"));
    TURN_UNTIL(&site, http_server_connections(site.server) == 2);
    CHECK_INT(site.n_requests, 3);
    TURN_UNTIL(&site, (take(first, SIZE_MAX), is_ended(first)));
    size_t n_bytes = 0;
    TURN_UNTIL(&site, (n_bytes += take(third, SIZE_MAX)) > BIG_BODY_BYTES);
    CHECK(!is_ended(second));
    close(first);
    close(second);
    close(third);
    site_close(&site);
}

/* A request whose answer is being streamed is told that its reader is gone. */
TEST(connection_limits, a_stream_without_reader_counts_too)
{
    struct site site;
    struct http_options options = ordinary_options;
    options.max_unsent_bytes = 100 * 1024;
    site_open_as(&site, options);
    int fd = client_open(&site);
    client_send(fd, GET("/stream"));
    TURN_UNTIL(&site, site.n_hangups == 1);
    CHECK_INT(http_server_connections(site.server), 0);
    close(fd);
    site_close(&site);
}

TEST(connection_limits, a_late_body_that_grows_is_waited_for)
{
    struct site site;
    struct http_options options = ordinary_options;
    static char piece[8193];
    char answer[4096];
    options.body_timeout_ms = 200; /* 16 KiB a second: 3,277 bytes each time */
    site_open_as(&site, options);
    memset(piece, 'x', sizeof piece - 1);
    int fd = client_open(&site);
    client_send(fd, POST("65536"));
    for (int i = 0; i < 8; i++) {
        client_send(fd, piece);
        turn_for(&site, 100);
    }
    read_some(&site, fd, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 200 ", 13) == 0);
    client_send(fd, POST("65536"));
    for (int i = 0; i < 4 && !is_ended(fd); i++) {
        client_send(fd, "1000 bytes in a second are too few");
        turn_for(&site, 100);
    }
    read_to_end(&site, fd, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 408 ", 13) == 0);
    site_close(&site);
}

TEST(connection_limits, the_bound_of_memory_counts_everything)
{
    struct http_options options = ordinary_options;
    size_t bound = http_memory_bound(&options);
    CHECK(bound > options.max_bodies_bytes + options.max_unsent_bytes);
    options.max_unsent_bytes += 1000;
    CHECK_INT(http_memory_bound(&options), bound + 1000);
    options.max_connections++;
    CHECK(http_memory_bound(&options) > bound + 1000 + HTTP_MAX_PIPELINED);
}
