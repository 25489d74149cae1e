/* The socket that is there before the server. */
#include "serve/http/listener.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static uint16_t port_of(int fd)
{
    char url[HTTP_URL_SIZE];
    http_listener_url(fd, url);
    CHECK(strncmp(url, "http://127.0.0.1:", 17) == 0);
    return (uint16_t)atoi(url + 17);
}

TEST(listener, a_busy_port_fails_at_once)
{
    struct error err = {0};
    int fd = http_listen("127.0.0.1", 0, &err);
    CHECK(fd > STDERR_FILENO);
    uint16_t port = port_of(fd);
    CHECK_INT(http_listen("127.0.0.1", port, &err), -1);
    CHECK(strstr(err.message, "Address already in use; use another --port"));
    close(fd);
    CHECK_INT(http_listen("no such host", 0, &err), -1);
    CHECK(strstr(err.message, "cannot listen on no such host"));
    fd = http_listen("[::1]", 0, &err);
    if (fd >= 0) { /* where there is IPv6 */
        char url[HTTP_URL_SIZE];
        http_listener_url(fd, url);
        CHECK(strncmp(url, "http://[::1]:", 13) == 0);
        close(fd);
    }
}
