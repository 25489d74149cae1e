/* See server_fixture.h. The server is a fork of the test and ends with it; reports of the
 * sanitizers are in its log and in its exit status. */
#include "server_fixture.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/command.h"
#include "test.h"
#include "test_memory.h"

enum { MAX_OPTIONS = 64, MAX_EVENTS = 16384, KEPT_TEXTS = 8 };
#define PATIENCE_NS UINT64_C(20000000000)

static struct strbuf log_text, head, body, unquoted;
static struct arena parsed;
static const struct json *root, *events[MAX_EVENTS];
static uint32_t n_events;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* ---- the process ---- */

/* How many files this process has open. */
static int n_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

static pid_t serve(int log_fd, const char *const *options)
{
    char *args[MAX_OPTIONS] = {"--engine", "mock", "--port", "0"};
    int n = 4;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log_fd, STDERR_FILENO);
    dup2(log_fd, STDOUT_FILENO);
    log_set_level(LOG_INFO);
    memory_is_watched(true);
    for (; *options; options++)
        args[n++] = (char *)*options;
    int n_before = n_files();
    int status = command_serve.run(&command_serve, n, args);
    if (n_files() != n_before)
        fprintf(stderr, "files left open: %d\n", n_files() - n_before);
    exit(n_files() != n_before ? 1 : status);
}

const char *server_log(const struct test_server *s)
{
    char piece[65536];
    strbuf_clear(&log_text);
    for (ssize_t n; (n = pread(s->log_fd, piece, sizeof piece, (off_t)log_text.len)) > 0;)
        strbuf_add(&log_text, piece, (size_t)n);
    return strbuf_str(&log_text);
}

static void check_runs(const struct test_server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != 0)
        test_fail(__FILE__, __LINE__, "the server ended: %s", server_log(s));
}

static int n_times_in(const char *all, const char *text)
{
    int n = 0;
    for (const char *at = all; (at = strstr(at, text)); at++)
        n++;
    return n;
}

void server_await_log_times(const struct test_server *s, const char *text, int n_times)
{
    for (uint64_t end = clock_now_ns() + PATIENCE_NS; n_times_in(server_log(s), text) < n_times;
         nap()) {
        check_runs(s);
        if (clock_now_ns() > end)
            test_fail(__FILE__, __LINE__, "not %d times '%s' in the log: %s", n_times, text,
                      server_log(s));
    }
}

void server_await_log(const struct test_server *s, const char *text)
{
    server_await_log_times(s, text, 1);
}

void server_start(struct test_server *s, const char *const *options)
{
    s->log_fd = memfd_create("log", MFD_CLOEXEC);
    CHECK(s->log_fd >= 0);
    s->pid = serve(s->log_fd, options);
    server_await_log(s, "(ready in ");
    const char *url = strstr(server_log(s), "listening on http://127.0.0.1:");
    CHECK(url != NULL);
    s->port = (uint16_t)atoi(strrchr(strtok((char *)url, "("), ':') + 1);
}

int server_refused(struct strbuf *output, const char *const *options)
{
    struct test_server s = {.log_fd = memfd_create("log", MFD_CLOEXEC)};
    int status;
    s.pid = serve(s.log_fd, options);
    CHECK_INT(waitpid(s.pid, &status, 0), s.pid);
    strbuf_clear(output);
    strbuf_adds(output, server_log(&s));
    close(s.log_fd);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void server_signal(const struct test_server *s, int number)
{
    CHECK_INT(kill(s->pid, number), 0);
}

void server_wait(struct test_server *s)
{
    int status = 0;
    for (uint64_t end = clock_now_ns() + PATIENCE_NS; waitpid(s->pid, &status, WNOHANG) == 0; nap())
        CHECK(clock_now_ns() < end);
    const char *log = server_log(s);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || strstr(log, "Sanitizer"))
        test_fail(__FILE__, __LINE__, "the server ended with status %x: %s", (unsigned)status, log);
    close(s->log_fd);
}

void server_stop(struct test_server *s)
{
    server_signal(s, SIGTERM);
    server_wait(s);
}

/* ---- connections ---- */

int server_connect(const struct test_server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(s->port)};
    const struct timeval patience = {.tv_sec = PATIENCE_NS / 1000000000};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), buffer_bytes = 64 * 1024;
    /* Else the system's settings decide how much of an answer a slow reader does not hold up. */
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

void server_send(int fd, const char *bytes)
{
    for (size_t n = strlen(bytes); n;) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        CHECK(sent > 0);
        bytes += sent;
        n -= (size_t)sent;
    }
}

/* One byte at a time: a test can afford it, and what follows an answer stays unread. */
static bool read_byte(int fd, struct strbuf *out)
{
    char c;
    ssize_t n = recv(fd, &c, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        test_fail(__FILE__, __LINE__, "nothing came behind \"%s\"", strbuf_str(out));
    if (n > 0)
        strbuf_addc(out, c);
    return n > 0;
}

bool server_read_until(int fd, const char *text, struct strbuf *out)
{
    size_t len = strlen(text);
    strbuf_clear(out);
    while (out->len < len || memcmp(out->data + out->len - len, text, len) != 0)
        if (!read_byte(fd, out))
            return false;
    return true;
}

/* ---- answers ---- */

static bool read_exactly(int fd, size_t n)
{
    char piece[65536];
    while (n) {
        ssize_t got = recv(fd, piece, n < sizeof piece ? n : sizeof piece, 0);
        if (got <= 0)
            return false;
        strbuf_add(&body, piece, (size_t)got);
        n -= (size_t)got;
    }
    return true;
}

static bool read_chunks(int fd)
{
    static struct strbuf line;
    for (size_t n = 1; n;) {
        if (!server_read_until(fd, "\r\n", &line))
            return false;
        n = strtoul(line.data, NULL, 16);
        if (!read_exactly(fd, n) || !server_read_until(fd, "\r\n", &line) || line.len != 2)
            return false;
    }
    return true;
}

static const struct json *parse(const char *text, size_t len)
{
    struct error err;
    return json_parse(&parsed, text, len, &err);
}

static void events_parse(void)
{
    const char *at = strbuf_str(&body), *all_end = at + body.len;
    n_events = 0;
    for (const char *end; (end = memmem(at, (size_t)(all_end - at), "\n\n", 2)); at = end + 2) {
        bool is_done = strncmp(at, "data: [DONE]", 12) == 0;
        CHECK(n_events < MAX_EVENTS);
        if (*at == ':') /* a heartbeat */
            continue;
        CHECK(strncmp(at, "data: ", 6) == 0);
        events[n_events] = is_done ? NULL : parse(at + 6, (size_t)(end - at - 6));
        if (!is_done && !events[n_events])
            test_fail(__FILE__, __LINE__, "no JSON: %.*s", (int)(end - at), at);
        n_events++;
    }
    if (at != all_end)
        test_fail(__FILE__, __LINE__, "a stream ends with a part of an event: %s", at);
}

int server_read_reply(int fd, bool has_body)
{
    strbuf_clear(&body);
    arena_free(&parsed);
    root = NULL;
    n_events = 0;
    if (!server_read_until(fd, "\r\n\r\n", &head))
        return 0;
    const char *length = reply_field("content-length"), *type = reply_field("content-type");
    const char *coding = reply_field("transfer-encoding");
    bool is_stream = type && strncmp(type, "text/event-stream", 17) == 0;
    bool is_whole = true;
    if (has_body && coding && strcmp(coding, "chunked") == 0)
        is_whole = read_chunks(fd);
    else if (has_body && length)
        is_whole = read_exactly(fd, strtoul(length, NULL, 10));
    else if (is_stream)
        while (read_byte(fd, &body))
            ;
    if (!is_whole)
        return 0;
    if (is_stream)
        events_parse();
    else if (body.len)
        root = parse(body.data, body.len);
    return atoi(head.data + strlen("HTTP/1.1 "));
}

const char *reply_field(const char *name)
{
    static char values[KEPT_TEXTS][1024];
    static int last;
    char *value = values[last = (last + 1) % KEPT_TEXTS];
    size_t len = strlen(name);
    for (const char *at = strstr(strbuf_str(&head), "\r\n"); at; at = strstr(at, "\r\n")) {
        at += 2;
        if (strncasecmp(at, name, len) == 0 && strncmp(at + len, ": ", 2) == 0) {
            snprintf(value, sizeof *values, "%.*s", (int)strcspn(at + len + 2, "\r"), at + len + 2);
            return value;
        }
    }
    return NULL;
}

const char *reply_body(void)
{
    return strbuf_str(&body);
}

/* ---- requests ---- */

/* With " for '. */
static const char *quoted(const char *text)
{
    strbuf_clear(&unquoted);
    for (; *text; text++)
        strbuf_addc(&unquoted, *text == '\'' ? '"' : *text);
    return strbuf_str(&unquoted);
}

static bool names_field(const char *fields, const char *name)
{
    for (const char *at = fields; at && *at; at = strchr(at, '\n'), at += at != NULL)
        if (strncasecmp(at, name, strlen(name)) == 0)
            return true;
    return false;
}

static int request_send(const struct test_server *s, const char *method, const char *path,
                        const char *fields, const char *content)
{
    static struct strbuf request;
    int fd = server_connect(s);
    strbuf_clear(&request);
    strbuf_addf(&request, "%s %s HTTP/1.1\r\n%s", method, path, fields);
    if (!names_field(fields, "Host:"))
        strbuf_adds(&request, "Host: localhost\r\n");
    if (content && !names_field(fields, "Content-Type:"))
        strbuf_adds(&request, "Content-Type: application/json\r\n");
    if (content)
        strbuf_addf(&request, "Content-Length: %zu\r\n", strlen(content));
    strbuf_adds(&request, "\r\n");
    if (content)
        strbuf_adds(&request, quoted(content));
    server_send(fd, strbuf_str(&request));
    return fd;
}

int server_ask(const struct test_server *s, const char *method, const char *path,
               const char *fields, const char *content)
{
    int fd = request_send(s, method, path, fields, content);
    int status = server_read_reply(fd, strcmp(method, "HEAD") != 0);
    close(fd);
    return status;
}

int server_get(const struct test_server *s, const char *path)
{
    return server_ask(s, "GET", path, "", NULL);
}

int server_post(const struct test_server *s, const char *path, const char *content)
{
    return server_ask(s, "POST", path, "", content);
}

static const char *chat_body(const char *messages, const char *more)
{
    static struct strbuf content;
    strbuf_clear(&content);
    strbuf_addf(&content, "{'messages':[%s]%s%s}", messages, *more ? "," : "", more);
    return strbuf_str(&content);
}

int server_chat(const struct test_server *s, const char *messages, const char *more)
{
    return server_post(s, "/v1/chat/completions", chat_body(messages, more));
}

int server_begin(const struct test_server *s, const char *path, const char *fields,
                 const char *sent)
{
    return request_send(s, "POST", path, fields, sent);
}

int server_begin_chat(const struct test_server *s, const char *messages, const char *more)
{
    return request_send(s, "POST", "/v1/chat/completions", "", chat_body(messages, more));
}

/* ---- values ---- */

static const struct json *find(const struct json *value, const char *path)
{
    char name[64];
    for (; value && *path; path += strcspn(path, ".") + (path[strcspn(path, ".")] == '.')) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(path, "."), path);
        if (value->type != JSON_ARRAY) {
            value = json_get(value, name);
            continue;
        }
        int at = atoi(name);
        const struct json *child = value->first;
        for (at = at < 0 ? at + (int)value->count : at; child && at > 0; at--)
            child = child->next;
        value = child;
    }
    return value;
}

static const char *show(const struct json *value)
{
    static struct strbuf texts[KEPT_TEXTS];
    static int last;
    struct strbuf *out = &texts[last = (last + 1) % KEPT_TEXTS];
    strbuf_clear(out);
    if (value && value->type == JSON_STRING)
        strbuf_addf(out, "'%s'", value->text);
    else if (value)
        json_write(out, value);
    return strbuf_str(out);
}

const char *reply_at(const char *path)
{
    return show(find(root, path));
}

long long reply_int(const char *path)
{
    int64_t value;
    if (!json_to_int64(find(root, path), &value))
        test_fail(__FILE__, __LINE__, "%s is no integer in %s", path, reply_body());
    return value;
}

uint32_t reply_events(void)
{
    return n_events;
}

const char *event_at(int n, const char *path)
{
    n = n < 0 ? n + (int)n_events : n;
    CHECK(n >= 0 && n < (int)n_events);
    return events[n] ? show(find(events[n], path)) : "[DONE]";
}

const char *events_joined(const char *path)
{
    static struct strbuf out;
    strbuf_clear(&out);
    for (uint32_t i = 0; i < n_events; i++) {
        const struct json *piece = events[i] ? find(events[i], path) : NULL;
        if (piece && piece->type == JSON_STRING)
            strbuf_add(&out, piece->text, piece->text_len);
    }
    return strbuf_str(&out);
}

/* ---- waiting ---- */

void server_settle(const struct test_server *s)
{
    for (uint64_t end = clock_now_ns() + PATIENCE_NS;; nap()) {
        CHECK_INT(server_get(s, "/stats"), 200);
        if (reply_int("running") + reply_int("waiting") + reply_int("completions") == 0)
            return;
        CHECK(clock_now_ns() < end);
    }
}

void server_await(const struct test_server *s, const char *counter, long long least)
{
    for (uint64_t end = clock_now_ns() + PATIENCE_NS;; nap()) {
        CHECK_INT(server_get(s, "/stats"), 200);
        if (reply_int(counter) >= least)
            return;
        CHECK(clock_now_ns() < end);
    }
}
