#ifndef RADISH_SERVE_HTTP_HOST_RULES_H
#define RADISH_SERVE_HTTP_HOST_RULES_H

#include <stdbool.h>
#include <stddef.h>

/* Who may talk to a server on this machine. Any web page can make a browser send requests to
 * loopback, and a page whose name was made to resolve to 127.0.0.1 can read the answers. Both show
 * in Host and Origin, so both must name this machine: loopback, one of its own names, the address
 * that the server was bound to, the address that the client connected to, or a host that the owner
 * allowed.
 *
 * A server with API keys answers any Host, since a page that rebinds a name has no key. An Origin
 * must then be allowed as above, or equal Host: a page that the same host serves. */
struct host_rules {
    const char *bound;                /* as given to --host */
    const char *const *allowed_hosts; /* [n_allowed_hosts] "name" or "name:port"; "*" is any */
    size_t n_allowed_hosts;
    const struct own_names *own; /* NULL: none are known */
    bool has_keys;               /* requests need a key */
};

enum { OWN_NAMES_MAX = 8, HOST_NAME_SIZE = 256 };

/* What this machine is called. */
struct own_names {
    char names[OWN_NAMES_MAX][HOST_NAME_SIZE];
    size_t n;
};

/* The host name, its first label, that label with ".local", and the names that stand on the host
 * name's lines in a hosts file (NULL: there is none), where the full domain name usually is. No
 * name is looked up in DNS. */
void own_names_collect(struct own_names *own, const char *host_name, const char *hosts_text);
/* The same of this machine. */
void own_names_find(struct own_names *own);

/* `authority` is a Host field's value; `local_address` the numeric address that the connection
 * came in on, or NULL. */
bool host_is_allowed(const struct host_rules *rules, const char *authority,
                     const char *local_address);
/* `origin` is an Origin field's value: scheme://host[:port]. "null" is nobody. `host`: the Host
 * field's value, or NULL. */
bool origin_is_allowed(const struct host_rules *rules, const char *origin, const char *host,
                       const char *local_address);
/* What --host may say of this machine alone: localhost, 127.0.0.1, ::1, [::1]. */
bool host_is_loopback(const char *host);
/* A numeric address of this machine's own. */
bool address_is_loopback(const char *address);

#endif
