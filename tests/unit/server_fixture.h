#ifndef RADISH_TEST_SERVER_FIXTURE_H
#define RADISH_TEST_SERVER_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/strbuf.h"

/* `radish serve --engine mock` in a child process, and a client that asks it one thing at a time.
 * The mock's tokenizer has a token for each byte and ChatML, so that tokens can be counted by hand:
 * <|im_start|> is one, and so is <|im_end|>.
 *
 * In what is sent, ' stands for ": bodies read better that way. */
struct test_server {
    pid_t pid;
    int log_fd;
    uint16_t port;
};

/* Starts a server with more options, ended by NULL, and waits until it listens. */
#define SERVER_START(...)         SERVER_START_WITH(__VA_ARGS__, NULL)
#define SERVER_START_WITH(s, ...) server_start(s, (const char *[]){__VA_ARGS__})
void server_start(struct test_server *s, const char *const *options);
/* The exit status and the output of a server that is expected not to start. */
int server_refused(struct strbuf *output, const char *const *options);
#define SERVER_REFUSED(out, ...) server_refused(out, (const char *[]){__VA_ARGS__, NULL})
void server_signal(const struct test_server *s, int number);
/* Waits for the end, which must be clean, without a report from a sanitizer. */
void server_wait(struct test_server *s);
void server_stop(struct test_server *s); /* SIGTERM, then the same */

/* Everything that the server has logged. Valid until the next call. */
const char *server_log(const struct test_server *s);
/* Waits until the log has the text, or has it n times; fails after 20 s. */
void server_await_log(const struct test_server *s, const char *text);
void server_await_log_times(const struct test_server *s, const char *text, int n_times);

/* ---- one request, whole ---- */

/* Sends a request and reads its answer, which the functions below look at. `fields` are header
 * lines, each ended by "\r\n"; a body brings its length and, unless the fields name one, the type
 * application/json. Returns the status; 0 when the connection ended before the answer did. */
int server_ask(const struct test_server *s, const char *method, const char *path,
               const char *fields, const char *body);
int server_get(const struct test_server *s, const char *path);
int server_post(const struct test_server *s, const char *path, const char *body);
/* POST /v1/chat/completions. `more` are members besides the messages: "'max_tokens':3". */
int server_chat(const struct test_server *s, const char *messages, const char *more);

const char *reply_field(const char *name); /* NULL: there is none */
const char *reply_body(void);
/* A value of the answer as JSON, or "" if it is absent: "choices.0.message.content". A string is
 * returned unescaped, in ' quotes. Valid for eight more calls. */
const char *reply_at(const char *path);
long long reply_int(const char *path);
/* The same for a stream: the n-th event (negative: from the end), which may be [DONE]. */
uint32_t reply_events(void);
const char *event_at(int n, const char *path);
/* A member of all events in one string, such as "choices.0.delta.content". */
const char *events_joined(const char *path);

#define CHECK_AT(path, want)     CHECK_STR(reply_at(path), want)
#define CHECK_AT_INT(path, want) CHECK_INT(reply_int(path), want)
/* Whether a text is part of another. */
#define CHECK_HAS(got, part)                                                                       \
    do {                                                                                           \
        const char *has_ = (got);                                                                  \
        if (!strstr(has_, part))                                                                   \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", without \"%s\"", #got, has_, part);       \
    } while (0)

/* ---- by hand ---- */

int server_connect(const struct test_server *s);
void server_send(int fd, const char *bytes);
/* POST without waiting for the answer; the connection is returned. */
int server_begin(const struct test_server *s, const char *path, const char *fields,
                 const char *body);
/* The same for a chat. */
int server_begin_chat(const struct test_server *s, const char *messages, const char *more);
/* Reads until the text has arrived (true), or the connection has ended (false); fails after 20 s.
 * `out` has everything read. */
bool server_read_until(int fd, const char *text, struct strbuf *out);
/* Reads one more answer as server_ask does. */
int server_read_reply(int fd, bool has_body);

/* Waits until nothing runs or waits there; then the functions above read /stats. */
void server_settle(const struct test_server *s);
/* Waits until a counter of /stats is at least that large. */
void server_await(const struct test_server *s, const char *counter, long long least);

#endif
