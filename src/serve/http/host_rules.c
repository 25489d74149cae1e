/* Host and Origin against what this machine is called. Pure: no name is ever resolved, because an
 * answer from DNS is exactly what an attacker controls. */
#include "serve/http/host_rules.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "serve/http/http_parser.h"

enum { MAX_HOST = 256 };

/* A numeric address in one form: IPv4 is written as IPv6 writes it. */
static bool address_parse(const char *host, struct in6_addr *out)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) {
        memset(out, 0, sizeof *out);
        out->s6_addr[10] = out->s6_addr[11] = 0xff;
        memcpy(out->s6_addr + 12, &v4, 4);
        return true;
    }
    return inet_pton(AF_INET6, host, out) == 1;
}

bool address_is_loopback(const char *address)
{
    struct in6_addr a;
    if (!address_parse(address, &a))
        return false;
    return IN6_IS_ADDR_LOOPBACK(&a) || (IN6_IS_ADDR_V4MAPPED(&a) && a.s6_addr[12] == 127);
}

static bool is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || address_is_loopback(host);
}

static bool is_same_host(const char *a, const char *b)
{
    struct in6_addr x, y;
    if (address_parse(a, &x) && address_parse(b, &y))
        return memcmp(&x, &y, sizeof x) == 0;
    return strcasecmp(a, b) == 0;
}

/* Splits and drops the brackets of an IPv6 address. */
static bool host_parse(const char *authority, char host[MAX_HOST], int *port)
{
    size_t len;
    if (!http_split_authority(authority, strlen(authority), &len, port) || len == 0 ||
        len >= MAX_HOST)
        return false;
    size_t skip = authority[0] == '[';
    memcpy(host, authority + skip, len - 2 * skip);
    host[len - 2 * skip] = '\0';
    return true;
}

bool host_is_loopback(const char *host)
{
    char name[MAX_HOST];
    int port;
    return is_loopback(host_parse(host, name, &port) ? name : host);
}

static bool is_listed(const struct host_rules *rules, const char *host, int port)
{
    for (size_t i = 0; i < rules->n_allowed_hosts; i++) {
        const char *entry = rules->allowed_hosts[i];
        char name[MAX_HOST];
        int entry_port;
        if (strcmp(entry, "*") == 0)
            return true;
        if (host_parse(entry, name, &entry_port)) {
            if (is_same_host(name, host) && (entry_port < 0 || entry_port == port))
                return true;
        } else if (is_same_host(entry, host)) { /* a bare IPv6 address */
            return true;
        }
    }
    return false;
}

bool host_is_allowed(const struct host_rules *rules, const char *authority,
                     const char *local_address)
{
    char host[MAX_HOST], bound[MAX_HOST];
    int port, bound_port;
    if (!host_parse(authority, host, &port))
        return false;
    if (is_loopback(host) || is_listed(rules, host, port))
        return true;
    if (local_address && is_same_host(host, local_address))
        return true;
    return host_parse(rules->bound, bound, &bound_port) ? is_same_host(host, bound)
                                                        : is_same_host(host, rules->bound);
}

bool origin_is_allowed(const struct host_rules *rules, const char *origin,
                       const char *local_address)
{
    const char *colon = strstr(origin, "://");
    return colon && colon > origin && host_is_allowed(rules, colon + 3, local_address);
}
