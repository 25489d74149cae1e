/* Checks Host and Origin against this machine's names. Names are never resolved, because an
 * attacker may control the DNS answer. */
#include "serve/http/host_rules.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "serve/http/http_parser.h"

enum { MAX_HOST = HOST_NAME_SIZE, MAX_HOSTS_FILE = 4 << 20 };

/* Parses a numeric address; IPv4 becomes an IPv4-mapped IPv6 address. */
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

/* Splits host and port, and drops the brackets of an IPv6 address. */
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

bool authority_is_loopback(const char *authority)
{
    char name[MAX_HOST];
    int port;
    return host_parse(authority, name, &port) && is_loopback(name);
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

static bool is_own_name(const struct own_names *own, const char *host)
{
    for (size_t i = 0; own && i < own->n; i++)
        if (strcasecmp(own->names[i], host) == 0)
            return true;
    return false;
}

/* True for an authority that names this machine or an allowed host. */
static bool is_ours(const struct host_rules *rules, const char *authority,
                    const char *local_address)
{
    char host[MAX_HOST], bound[MAX_HOST];
    int port, bound_port;
    if (!host_parse(authority, host, &port))
        return false;
    if (is_loopback(host) || is_own_name(rules->own, host) || is_listed(rules, host, port))
        return true;
    if (local_address && is_same_host(host, local_address))
        return true;
    return host_parse(rules->bound, bound, &bound_port) ? is_same_host(host, bound)
                                                        : is_same_host(host, rules->bound);
}

bool host_is_allowed(const struct host_rules *rules, const char *authority,
                     const char *local_address)
{
    char host[MAX_HOST];
    int port;
    return rules->has_keys ? host_parse(authority, host, &port)
                           : is_ours(rules, authority, local_address);
}

/* `authority` is the origin's, without its scheme. A missing port means the scheme's default. */
static bool is_same_authority(const char *authority, const char *host_field, int default_port)
{
    char a[MAX_HOST], b[MAX_HOST];
    int port_a, port_b;
    if (!host_parse(authority, a, &port_a) || !host_parse(host_field, b, &port_b))
        return false;
    return is_same_host(a, b) &&
           (port_a < 0 ? default_port : port_a) == (port_b < 0 ? default_port : port_b);
}

/* The part after "://", or NULL. */
static const char *origin_authority(const char *origin)
{
    const char *colon = strstr(origin, "://");
    return colon && colon > origin ? colon + 3 : NULL;
}

static int default_port_of(const char *origin)
{
    return strncasecmp(origin, "https:", 6) == 0 ? 443 : 80;
}

bool origin_is_valid(const char *origin)
{
    char host[MAX_HOST];
    int port;
    const char *authority = origin_authority(origin);
    return strcmp(origin, "*") == 0 || (authority && host_parse(authority, host, &port));
}

static bool is_same_origin(const char *a, const char *b)
{
    const char *authority_a = origin_authority(a), *authority_b = origin_authority(b);
    return authority_a && authority_b && strncasecmp(a, b, strcspn(a, ":") + 1) == 0 &&
           is_same_authority(authority_a, authority_b, default_port_of(a));
}

bool origin_is_allowed(const struct host_rules *rules, const char *origin, const char *host)
{
    const char *authority = origin_authority(origin);
    for (size_t i = 0; i < rules->n_allowed_origins; i++)
        if (strcmp(rules->allowed_origins[i], "*") == 0 ||
            is_same_origin(rules->allowed_origins[i], origin))
            return true;
    return authority && (authority_is_loopback(authority) ||
                         (host && is_same_authority(authority, host, default_port_of(origin))));
}

/* ---- the machine's names ------------------------------------------------------------------ */

static void own_name_add(struct own_names *own, const char *name, size_t len, const char *suffix)
{
    char whole[HOST_NAME_SIZE];
    size_t suffix_len = strlen(suffix);
    if (len == 0 || len + suffix_len >= sizeof whole || own->n == OWN_NAMES_MAX)
        return;
    memcpy(whole, name, len);
    memcpy(whole + len, suffix, suffix_len + 1);
    if (!is_own_name(own, whole))
        memcpy(own->names[own->n++], whole, len + suffix_len + 1);
}

/* Adds the names of a line "ADDRESS NAME NAME ..." if one of them is already known. */
static void hosts_line_add(struct own_names *own, const char *line, size_t len)
{
    static const char spaces[] = " \t\r";
    struct own_names found = {.n = 0};
    bool names_us = false;
    for (size_t at = 0, column = 0; at < len && line[at] != '#'; column++) {
        at += strspn(line + at, spaces);
        size_t n = strcspn(line + at, " \t\r\n#");
        if (at >= len || n == 0)
            break;
        if (column > 0) {
            own_name_add(&found, line + at, n, "");
            names_us |= found.n && is_own_name(own, found.names[found.n - 1]);
        }
        at += n;
    }
    for (size_t i = 0; i < found.n && names_us; i++)
        own_name_add(own, found.names[i], strlen(found.names[i]), "");
}

void own_names_collect(struct own_names *own, const char *host_name, const char *hosts_text)
{
    size_t label = strcspn(host_name, ".");
    own->n = 0;
    own_name_add(own, host_name, strlen(host_name), "");
    own_name_add(own, host_name, label, "");
    own_name_add(own, host_name, label, ".local");
    for (const char *line = hosts_text; line && *line && own->n;) {
        size_t len = strcspn(line, "\n");
        hosts_line_add(own, line, len);
        line += len + (line[len] == '\n');
    }
}

void own_names_find(struct own_names *own)
{
    char name[HOST_NAME_SIZE] = "";
    struct strbuf hosts = STRBUF_INIT;
    struct error err;
    if (gethostname(name, sizeof name - 1))
        name[0] = '\0';
    int failed = file_read("/etc/hosts", MAX_HOSTS_FILE, &hosts, &err);
    own_names_collect(own, name, failed ? NULL : strbuf_str(&hosts));
    strbuf_free(&hosts);
}
