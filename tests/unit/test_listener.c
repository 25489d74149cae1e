/* The sockets that are there before the server. */
#include "serve/http/listener.h"
#include "base/strbuf.h"
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The text of where they listen; the next call overwrites it. */
static const char *urls_of(const struct http_listeners *ls, bool has_tls)
{
    static struct strbuf text;
    strbuf_clear(&text);
    http_listeners_write(ls, has_tls, &text);
    return strbuf_str(&text);
}

static uint16_t port_of(const struct http_listeners *ls)
{
    return (uint16_t)atoi(strrchr(urls_of(ls, false), ':') + 1);
}

TEST(listener, a_busy_port_fails_at_once)
{
    struct error err = {0};
    struct http_listeners ls = {0};
    CHECK_INT(http_listen(&ls, "127.0.0.1", 0, &err), 0);
    CHECK(ls.items[0].fd > STDERR_FILENO);
    CHECK_INT(http_listen(&ls, "127.0.0.1", port_of(&ls), &err), -1);
    CHECK(strstr(err.message, "Address already in use; use another --port"));
    CHECK_INT(http_listen(&ls, "no such host", 0, &err), -1);
    CHECK(strstr(err.message, "cannot listen on no such host"));
    CHECK_INT(ls.n, 1);
    http_listeners_close(&ls);
}

TEST(listener, says_where_it_listens)
{
    struct error err = {0};
    struct http_listeners ls = {0};
    CHECK_INT(http_listen(&ls, "127.0.0.1", 0, &err), 0);
    CHECK(strncmp(urls_of(&ls, false), "http://127.0.0.1:", 17) == 0);
    CHECK(strncmp(urls_of(&ls, true), "https://127.0.0.1:", 18) == 0);
    http_listeners_close(&ls);
    if (http_listen(&ls, "[::1]", 0, &err) == 0) /* where there is IPv6 */
        CHECK(strncmp(urls_of(&ls, false), "http://[::1]:", 13) == 0);
    http_listeners_close(&ls);
    /* Most clients try 127.0.0.1 first or only. */
    CHECK_INT(http_listen(&ls, "localhost", 0, &err), 0);
    CHECK(strncmp(urls_of(&ls, false), "http://127.0.0.1:", 17) == 0);
    http_listeners_close(&ls);
}

TEST(listener, knows_what_only_this_machine_can_reach)
{
    struct error err = {0};
    struct http_listeners ls = {0};
    char path[64];
    snprintf(path, sizeof path, "/tmp/radish-test-%d.sock", getpid());
    CHECK_INT(http_listen_unix(&ls, path, 0600, &err), 0);
    CHECK_INT(http_listen(&ls, "127.0.0.1", 0, &err), 0);
    CHECK(http_listeners_are_local(&ls));
    CHECK_INT(http_listen(&ls, "0.0.0.0", 0, &err), 0);
    CHECK(!http_listeners_are_local(&ls));
    http_listeners_close(&ls);
}

TEST(listener, reads_the_names_of_unix_sockets)
{
    CHECK_STR(unix_path_of("unix:/run/a"), "/run/a");
    CHECK_STR(unix_path_of("/run/a.sock"), "/run/a.sock");
    CHECK_STR(unix_path_of("a.sock"), "a.sock");
    CHECK_STR(unix_path_of("unix:"), "");
    CHECK(!unix_path_of("localhost"));
    CHECK(!unix_path_of("127.0.0.1:80"));
    CHECK(!unix_path_of(".sock"));
    CHECK(!unix_path_of("sock"));
}

static bool exists(const char *path)
{
    struct stat file;
    return lstat(path, &file) == 0;
}

/* A socket file whose server is gone, as a killed one leaves it behind. */
static void stale_make(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
}

TEST(listener, a_unix_socket_takes_the_place_of_a_dead_one_only)
{
    struct error err = {0};
    struct http_listeners ls = {0}, second = {0};
    struct stat file;
    char path[64], text[200];
    snprintf(path, sizeof path, "/tmp/radish-test-%d.sock", getpid());
    stale_make(path);
    CHECK_INT(http_listen_unix(&ls, path, 0640, &err), 0);
    CHECK_INT(stat(path, &file), 0);
    CHECK_INT(file.st_mode & 0777, 0640);
    snprintf(text, sizeof text, "unix:%s", path);
    CHECK_STR(urls_of(&ls, true), text); /* TLS is for TCP */

    CHECK_INT(http_listen_unix(&second, path, 0600, &err), -1);
    CHECK(strstr(err.message, "another program listens there"));
    CHECK_INT(second.n, 0);
    CHECK(exists(path));
    http_listeners_close(&ls);
    CHECK(!exists(path));

    int plain = open(path, O_CREAT | O_WRONLY, 0600);
    close(plain);
    CHECK_INT(http_listen_unix(&ls, path, 0600, &err), -1);
    CHECK(strstr(err.message, "exists and is not a socket"));
    CHECK(exists(path));
    unlink(path);

    CHECK_INT(http_listen_unix(&ls, "/no/such/folder/a.sock", 0600, &err), -1);
    CHECK(strstr(err.message, "No such file or directory"));
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    CHECK_INT(http_listen_unix(&ls, longer, 0600, &err), -1);
    CHECK(strstr(err.message, "1 to 107 bytes"));
    CHECK_INT(http_listen_unix(&ls, "", 0600, &err), -1);
    CHECK_INT(ls.n, 0);
}

/* If another server has taken the path in the meantime, its file stays. */
TEST(listener, removes_only_its_own_file)
{
    struct error err = {0};
    struct http_listeners ls = {0}, copy = {0};
    char path[64];
    snprintf(path, sizeof path, "/tmp/radish-test-%d.sock", getpid());
    CHECK_INT(http_listen_unix(&ls, path, 0600, &err), 0);
    CHECK_INT(http_listeners_copy(&copy, &ls, &err), 0);
    http_listeners_close(&copy);
    CHECK(exists(path));
    char aside[80];
    snprintf(aside, sizeof aside, "%s.old", path); /* keeps the old inode's number taken */
    CHECK_INT(rename(path, aside), 0);
    stale_make(path);
    http_listeners_close(&ls);
    CHECK(exists(path));
    unlink(path);
    unlink(aside);
}

TEST(listener, takes_sockets_that_others_opened)
{
    struct error err = {0};
    struct http_listeners ls = {0}, own = {0};
    CHECK_INT(http_listen(&own, "127.0.0.1", 0, &err), 0);
    uint16_t port = port_of(&own);
    CHECK_INT(http_listen_inherited(&ls, dup(own.items[0].fd), &err), 0);
    CHECK_INT(port_of(&ls), port);
    int silent = socket(AF_INET, SOCK_STREAM, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_INT(http_listen_inherited(&ls, silent, &err), -1);
    CHECK(strstr(err.message, "is not a listening stream socket"));
    CHECK_INT(http_listen_inherited(&ls, datagrams, &err), -1);
    CHECK_INT(http_listen_inherited(&ls, open("/dev/null", O_RDONLY), &err), -1);
    CHECK_INT(ls.n, 1);
    http_listeners_close(&ls);
    http_listeners_close(&own);
}

TEST(listener, has_a_limit)
{
    struct error err = {0};
    struct http_listeners ls = {0};
    for (int i = 0; i < HTTP_MAX_LISTENERS; i++)
        CHECK_INT(http_listen(&ls, "127.0.0.1", 0, &err), 0);
    CHECK_INT(http_listen(&ls, "127.0.0.1", 0, &err), -1);
    CHECK(strstr(err.message, "more than 16 sockets"));
    http_listeners_close(&ls);
    CHECK_INT(ls.n, 0);
}
