/* How the server starts and stops: signals, the grace period, what waiting clients are told, and
 * errors in options. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "server_fixture.h"
#include "test.h"

#define HI   "{'role':'user','content':'Hi'}"
#define SLOW "--mock-batch-cost-us", "5000"

static struct strbuf got;

static int begin_stream(const struct test_server *s, const char *more)
{
    char all[256];
    snprintf(all, sizeof all, "'stream':true,'ignore_eos':true%s", more);
    int fd = server_begin_chat(s, HI, all);
    CHECK(server_read_until(fd, "\"role\":\"assistant\"", &got));
    return fd;
}

TEST(server_stop, an_idle_server_stops_at_once)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        struct test_server s;
        char byte;
        SERVER_START(&s, "--shutdown-grace", "1000");
        int idle = server_connect(&s);
        server_send(idle, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        CHECK_INT(server_read_reply(idle, true), 200);
        server_signal(&s, numbers[i]);
        CHECK_INT(recv(idle, &byte, 1, 0), 0);
        close(idle);
        server_await_log(&s, i ? "Interrupt: stopping\n" : "Terminated: stopping\n");
        server_wait(&s);
    }
}

TEST(server_stop, answers_finish_within_the_grace)
{
    struct test_server s;
    SERVER_START(&s, "--shutdown-grace", "1000", SLOW);
    int endless = begin_stream(&s, ""), stream = begin_stream(&s, ",'max_tokens':100");
    int whole = server_begin_chat(&s, HI, "'max_tokens':100,'ignore_eos':true");
    int half = server_connect(&s);
    server_send(half, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                      "application/json\r\nContent-Length: 44\r\n\r\n{");
    server_await(&s, "running", 3);
    server_signal(&s, SIGTERM);
    server_await_log(&s, "Terminated: stopping; 3 answers in progress have 1000 s to finish");
    /* In the meantime it reports its progress and starts nothing new. */
    CHECK_INT(server_get(&s, "/health"), 503);
    CHECK_STR(reply_body(), "{\"status\":\"stopping\"}");
    CHECK_INT(server_chat(&s, HI, ""), 503);
    CHECK_STR(reply_field("retry-after"), "5");
    CHECK_AT("error.code", "'server_stopping'");
    CHECK_AT("error.message", "'the server is stopping'");
    CHECK_INT(server_get(&s, "/v1/models"), 200);
    server_send(half, "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    CHECK_INT(server_read_reply(half, true), 503);
    CHECK_AT("error.code", "'server_stopping'");
    close(half);
    CHECK_INT(server_read_reply(whole, true), 200);
    CHECK_AT_INT("usage.completion_tokens", 100);
    CHECK(server_read_until(stream, "data: [DONE]", &got));
    CHECK_HAS(strbuf_str(&got), "\"finish_reason\":\"length\"");
    close(endless);
    server_wait(&s);
    close(whole);
    close(stream);
}

static void check_cut_off(int stream, int whole)
{
    CHECK_INT(server_read_reply(whole, true), 503);
    CHECK_AT("error.code", "'server_stopping'");
    CHECK_AT("error.message", "'the server is stopping; the answer is not complete'");
    CHECK_STR(reply_field("retry-after"), "2");
    CHECK(!server_read_until(stream, "data: [DONE]", &got));
    CHECK_HAS(strbuf_str(&got), "\"code\":\"server_stopping\"");
    close(whole);
    close(stream);
}

TEST(server_stop, the_grace_ends)
{
    struct test_server s;
    SERVER_START(&s, "--shutdown-grace", "1", SLOW);
    int stream = begin_stream(&s, ""), whole = server_begin_chat(&s, HI, "'ignore_eos':true");
    server_await(&s, "running", 2);
    uint64_t began = clock_now_ns();
    server_signal(&s, SIGTERM);
    check_cut_off(stream, whole);
    uint64_t ms = (clock_now_ns() - began) / 1000000;
    CHECK(ms >= 900 && ms < 10000);
    server_await_log(&s, "the grace period is over; answers cut off: 2");
    server_wait(&s);
}

TEST(server_stop, a_second_signal_ends_the_grace)
{
    struct test_server s;
    SERVER_START(&s, "--shutdown-grace", "1000", SLOW);
    int stream = begin_stream(&s, ""), whole = server_begin_chat(&s, HI, "'ignore_eos':true");
    server_await(&s, "running", 2);
    server_signal(&s, SIGTERM);
    server_await_log(&s, "Terminated: stopping; 2 answers in progress have 1000 s to finish");
    server_signal(&s, SIGINT);
    check_cut_off(stream, whole);
    server_await_log(&s, "Interrupt again: stopping at once; answers cut off: 2");
    server_wait(&s);
}

/* The server does not wait for a client that does not read. */
TEST(server_stop, nobody_holds_it_up)
{
    struct test_server s;
    int small = 4096;
    long long seen = -1, now = 0;
    SERVER_START(&s, "--shutdown-grace", "0", "--mock-batch-cost-us", "1000");
    int fd = begin_stream(&s, ",'n':16,'logprobs':true,'top_logprobs':20");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (; seen != now; usleep(50000)) { /* until all buffers in between are full */
        seen = now;
        CHECK_INT(server_get(&s, "/stats"), 200);
        now = reply_int("generated_tokens");
    }
    CHECK(seen < 100000);
    uint64_t began = clock_now_ns();
    server_signal(&s, SIGTERM);
    server_wait(&s);
    CHECK((clock_now_ns() - began) / 1000000 < 10000);
    close(fd);
}

TEST(server_stop, wrong_options_end_it_before_it_starts)
{
    CHECK_INT(SERVER_REFUSED(&got, "--api-key", "a:S", "--api-key", "b c:S"), 2);
    CHECK_HAS(strbuf_str(&got), "--api-key number 2: ");
    CHECK_INT(SERVER_REFUSED(&got, "--shared-prompt", "/nowhere", "--api-key", "k"), 1);
    CHECK_HAS(strbuf_str(&got), "--shared-prompt /nowhere: ");
    CHECK_INT(SERVER_REFUSED(&got, "--host", "no such host"), 1);
    CHECK_HAS(strbuf_str(&got), "no such host");
    CHECK(!strstr(strbuf_str(&got), "--addr"));
    CHECK_INT(SERVER_REFUSED(&got, "--host", "127.0.0.1:19033"), 1);
    CHECK_HAS(strbuf_str(&got), "cannot listen on 127.0.0.1:19033: ");
    CHECK_HAS(strbuf_str(&got), "; for host and port in one use --addr");
    CHECK_INT(SERVER_REFUSED(&got, "--share-cache"), 2);
    CHECK_HAS(strbuf_str(&got), "--share-cache needs tenants");
}

TEST(server_stop, one_answer_is_counted)
{
    struct test_server s;
    SERVER_START(&s, "--shutdown-grace", "1", SLOW);
    int stream = begin_stream(&s, "");
    server_signal(&s, SIGTERM);
    server_await_log(&s, "Terminated: stopping; 1 answer in progress has 1 s to finish");
    server_wait(&s);
    close(stream);
}

TEST(server_stop, the_log_says_what_memory_it_will_have)
{
    struct test_server s;
    SERVER_START(&s, "--cache-size", "262144t", "-c", "500", "--max-connections", "32",
                 "--max-body-mib", "1", "--max-unsent-mib", "5");
    CHECK_HAS(server_log(&s), "memory: packed weights 0.0 MiB, embeddings 0.0 MiB, cache (KV) "
                              "up to 2.0 MiB (262144 tokens of 8 bytes), other ");
    /* Four workers of 256 MiB, 8 bodies, 3 times 5, connections, grammars. */
    const char *most = strstr(server_log(&s), " MiB, requests at most ");
    CHECK(most && atof(most + 23) > 1051 && atof(most + 23) < 2500);
    CHECK_HAS(server_log(&s), " MiB; context 500\n");
    server_stop(&s);
}
