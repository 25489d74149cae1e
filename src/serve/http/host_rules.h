#ifndef RADISH_SERVE_HTTP_HOST_RULES_H
#define RADISH_SERVE_HTTP_HOST_RULES_H

#include <stdbool.h>
#include <stddef.h>

/* Who may talk to a server on this machine. Any web page can make a browser send requests to
 * loopback, and a page whose name was made to resolve to 127.0.0.1 can read the answers. Both
 * attacks show in Host and Origin.
 *
 * Host must name this machine: loopback, one of its own names, the address that the server was
 * bound to, the address that the client connected to, or an allowed host. A server with API keys
 * answers any Host, because a page that rebinds a name has no key.
 *
 * Origin must be a page from this machine (loopback, any port), from the very host and port that
 * the request is for, or an allowed origin. */
struct host_rules {
    const char *bound;                /* as given to --host */
    const char *const *allowed_hosts; /* [n_allowed_hosts] "name" or "name:port"; "*": any */
    size_t n_allowed_hosts;
    const char *const *allowed_origins; /* [n_allowed_origins] "https://name:port"; "*": any */
    size_t n_allowed_origins;
    const struct own_names *own; /* NULL: none */
    bool has_keys;               /* requests need a key */
};

enum { OWN_NAMES_MAX = 8, HOST_NAME_SIZE = 256 };

/* The names of this machine. */
struct own_names {
    char names[OWN_NAMES_MAX][HOST_NAME_SIZE];
    size_t n;
};

/* Collects the host name, its first label, that label with ".local", and the names on the host
 * name's lines in a hosts file (NULL: no file), which usually have the full domain name. DNS is not
 * used. */
void own_names_collect(struct own_names *own, const char *host_name, const char *hosts_text);
/* The same for this machine. */
void own_names_find(struct own_names *own);

/* `authority` is a Host field's value; `local_address` is the numeric address that the client
 * connected to, or NULL. */
bool host_is_allowed(const struct host_rules *rules, const char *authority,
                     const char *local_address);
/* `origin` is an Origin field's value: scheme://host[:port]. "null" is allowed only if any is.
 * `host` is the Host field's value, which is itself allowed, or NULL. */
bool origin_is_allowed(const struct host_rules *rules, const char *origin, const char *host);
/* True if it can be an allowed origin. */
bool origin_is_valid(const char *origin);
/* True for numeric addresses that only this machine can reach: 127.0.0.1, ::1. */
bool address_is_loopback(const char *address);
/* The same for a Host field's value, which may also be localhost. */
bool authority_is_loopback(const char *authority);

#endif
