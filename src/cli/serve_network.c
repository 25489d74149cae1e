/* The network options of `radish serve`.
 *
 * --host and --port (or --addr, which is both) name one address, and each --listen another. The
 * default address, 127.0.0.1:8080, is for servers that are given none, neither here nor by a
 * service manager that passes sockets. */
#include "cli/serve_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/service_manager.h"
#include "serve/http/tls.h"

#define DEFAULT_HOST "127.0.0.1"
enum { DEFAULT_PORT = 8080, NO_PORT = 65536, DEFAULT_MODE = 0660 };
enum { DEFAULT_CONNECTIONS = 1024, ADDRESS_PART = 4, NOT_GIVEN = 2000000000 };

static const char *host, *address, *socket_mode, *tls_cert, *tls_key;
static uint32_t port = NO_PORT;
static struct string_list listen_addresses;
static mode_t mode = DEFAULT_MODE;
static uint32_t max_connections = DEFAULT_CONNECTIONS, max_per_address = NOT_GIVEN;
static uint32_t header_timeout_s = 15, body_timeout_s = 60, idle_timeout_s = 75;
static uint32_t write_timeout_s = 60, max_body_mib = 32, max_unsent_mib = 256;

static struct http_listeners listeners;

const struct option serve_network_options[] = {
    STRING("host", &host, "HOST",
           "address to listen on (default 127.0.0.1), or a Unix socket: unix:PATH or PATH.sock"),
    UINT("port", &port, "PORT", 0, 65535, "port to listen on (default 8080; 0: any free one)"),
    STRING("addr", &address, "HOST:PORT", "host and port in one: :8080 or 0.0.0.0:8080"),
    LIST("listen", &listen_addresses, "ADDRESS",
         "address to listen on: HOST:PORT, :PORT or unix:PATH; repeatable; replaces the default "
         "address, and adds to --host and --port"),
    STRING("socket-mode", &socket_mode, "MODE",
           "who may connect to Unix sockets, as permissions of the file (default 0660)"),
    STRING("tls-cert ssl-cert-file", &tls_cert, "FILE",
           "speak HTTPS with this certificate (PEM, then its chain), except on Unix sockets; needs "
           "--tls-key"),
    STRING("tls-key ssl-key-file", &tls_key, "FILE",
           "private key of --tls-cert (PEM, unencrypted)"),
    UINT("max-connections", &max_connections, "N", 1, 1e5,
         "most open connections; then slow ones are closed for new ones (default 1024)"),
    UINT("max-connections-per-address", &max_per_address, "N", 0, 1e5,
         "most from one address or IPv6 /64; 127.0.0.1 and ::1 have no limit; 0: none (default: a "
         "quarter of all)"),
    UINT("header-timeout", &header_timeout_s, "S", 0, 1e6,
         "seconds for a request's header, TLS handshake included; 0: no limit (default 15)"),
    UINT("body-timeout", &body_timeout_s, "S", 0, 1e6,
         "seconds for a body; later ones must arrive at 16 KiB/s; 0: no limit (default 60)"),
    UINT("idle-timeout", &idle_timeout_s, "S", 0, 1e6,
         "seconds that a connection may wait for its next request; 0: no limit (default 75)"),
    UINT("write-timeout", &write_timeout_s, "S", 0, 1e6,
         "seconds after which a client that reads nothing is dropped; 0: never (default 60)"),
    UINT("max-body-mib", &max_body_mib, "N", 1, 1024, "largest request body, in MiB (default 32)"),
    UINT("max-unsent-mib", &max_unsent_mib, "N", 1, 1e6,
         "most memory for unread answers, in MiB, and as much for unfinished ones that are not "
         "streamed; beyond it the slowest or largest are dropped (default 256)"),
    {0},
};

/* Splits "host:port", ":port" or "[::1]:port". The host may be "". */
static int address_split(const char *option, const char *text, char out_host[256],
                         uint16_t *out_port, struct error *err)
{
    char *end;
    const char *colon = strrchr(text, ':');
    long number = colon ? strtol(colon + 1, &end, 10) : -1;
    if (number < 0 || number > 65535 || !colon[1] || *end || colon - text >= 256)
        return error_set(err, ERROR_INPUT, "--%s needs HOST:PORT or :PORT, not '%s'", option, text);
    snprintf(out_host, 256, "%.*s", (int)(colon - text), text);
    *out_port = (uint16_t)number;
    return 0;
}

/* --addr is --host and --port. */
static int address_parse(struct error *err)
{
    static char address_host[256];
    uint16_t number;
    if (address_split("addr", address, address_host, &number, err))
        return -1;
    if (port != NO_PORT || (host && *address_host))
        return error_set(err, ERROR_INPUT,
                         "--addr %s and --%s set the same thing: give only one of them", address,
                         port != NO_PORT ? "port" : "host");
    port = number;
    if (*address_host)
        host = address_host;
    return 0;
}

static int mode_parse(struct error *err)
{
    char *end;
    unsigned long value = strtoul(socket_mode, &end, 8);
    if (*end || value > 0777 || socket_mode[0] == '-')
        return error_set(err, ERROR_INPUT,
                         "--socket-mode needs permissions as chmod has them, such as 0660, not "
                         "'%s'",
                         socket_mode);
    mode = (mode_t)value;
    return 0;
}

static bool has_unix_listener(void)
{
    bool has = host && unix_path_of(host);
    for (size_t i = 0; i < listen_addresses.n; i++)
        has |= unix_path_of(listen_addresses.items[i]) != NULL;
    return has;
}

static int check(struct error *err)
{
    if (host && unix_path_of(host) && port != NO_PORT)
        return error_set(err, ERROR_INPUT,
                         "--port has no effect on the Unix socket --host %s; to listen on a port "
                         "too, add --listen 127.0.0.1:PORT",
                         host);
    if (!tls_cert != !tls_key)
        return error_set(err, ERROR_INPUT, "--tls-%s needs --tls-%s", tls_cert ? "cert" : "key",
                         tls_cert ? "key" : "cert");
    if (socket_mode && !has_unix_listener())
        return error_set(err, ERROR_INPUT,
                         "--socket-mode has no effect without a Unix socket: add --listen "
                         "unix:PATH");
    if (max_per_address != NOT_GIVEN && max_per_address > max_connections)
        return error_set(err, ERROR_INPUT,
                         "--max-connections-per-address is more than --max-connections (%u)",
                         max_connections);
    return 0;
}

int serve_network_finish(struct server_options *server, struct error *err)
{
    uint32_t part = max_connections / ADDRESS_PART;
    if ((address && address_parse(err)) || (socket_mode && mode_parse(err)) || check(err))
        return -1;
    server->host = host ? host : DEFAULT_HOST;
    server->max_connections = max_connections;
    server->max_connections_per_address = max_per_address != NOT_GIVEN ? max_per_address
                                          : part                       ? part
                                                                       : 1;
    server->header_timeout_ms = header_timeout_s * 1000;
    server->body_timeout_ms = body_timeout_s * 1000;
    server->idle_timeout_ms = idle_timeout_s * 1000;
    server->write_timeout_ms = write_timeout_s * 1000;
    server->max_body_bytes = (size_t)max_body_mib << 20;
    server->max_unsent_bytes = (size_t)max_unsent_mib << 20;
    return 0;
}

static int listen_on(const char *text, struct error *err)
{
    char name[256];
    uint16_t number;
    if (unix_path_of(text))
        return http_listen_unix(&listeners, unix_path_of(text), mode, err);
    return address_split("listen", text, name, &number, err) ||
                   http_listen(&listeners, *name ? name : DEFAULT_HOST, number, err)
               ? -1
               : 0;
}

static bool has_tcp_listener(void)
{
    for (size_t i = 0; i < listeners.n; i++)
        if (!listeners.items[i].is_unix)
            return true;
    return false;
}

static int listeners_open(struct error *err)
{
    int n_passed = service_take_sockets();
    for (int i = 0; i < n_passed; i++)
        if (http_listen_inherited(&listeners, SERVICE_FIRST_FD + i, err))
            return -1;
    for (size_t i = 0; i < listen_addresses.n; i++)
        if (listen_on(listen_addresses.items[i], err))
            return -1;
    if (host && unix_path_of(host))
        return http_listen_unix(&listeners, unix_path_of(host), mode, err);
    if (listeners.n && !host && port == NO_PORT)
        return 0;
    return http_listen(&listeners, host ? host : DEFAULT_HOST,
                       (uint16_t)(port == NO_PORT ? DEFAULT_PORT : port), err);
}

int serve_network_open(struct server_options *server, struct error *err)
{
    if (tls_cert && tls_context_open(&server->tls, tls_cert, tls_key, err))
        return -1;
    server->listeners = &listeners;
    if (listeners_open(err))
        return -1;
    if (server->tls && !has_tcp_listener())
        return error_set(err, ERROR_INPUT,
                         "--tls-cert has no effect on Unix sockets: remove it, or add --listen "
                         "HOST:PORT");
    return 0;
}

void serve_network_close(struct server_options *server)
{
    http_listeners_close(&listeners);
    tls_context_close(server->tls);
    server->tls = NULL;
}
