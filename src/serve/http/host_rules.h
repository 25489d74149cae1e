#ifndef RADISH_SERVE_HTTP_HOST_RULES_H
#define RADISH_SERVE_HTTP_HOST_RULES_H

#include <stdbool.h>
#include <stddef.h>

/* Who may talk to a server on this machine. Any web page can make a browser send requests to
 * loopback, and a page whose name was made to resolve to 127.0.0.1 can read the answers. Both say
 * so in Host and Origin, so both must name this machine: loopback, the address that the server was
 * bound to, the address that the client connected to, or a host that the owner allowed. */
struct host_rules {
    const char *bound;                /* as given to --host */
    const char *const *allowed_hosts; /* [n_allowed_hosts] "name" or "name:port"; "*" is any */
    size_t n_allowed_hosts;
};

/* `authority` is a Host field's value; `local_address` the numeric address that the connection
 * came in on, or NULL. */
bool host_is_allowed(const struct host_rules *rules, const char *authority,
                     const char *local_address);
/* `origin` is an Origin field's value: scheme://host[:port]. "null" is nobody. */
bool origin_is_allowed(const struct host_rules *rules, const char *origin,
                       const char *local_address);
/* What --host may say of this machine alone: localhost, 127.0.0.1, ::1, [::1]. */
bool host_is_loopback(const char *host);
/* A numeric address of this machine's own. */
bool address_is_loopback(const char *address);

#endif
