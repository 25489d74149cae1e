#ifndef RADISH_SERVE_API_API_KEYS_H
#define RADISH_SERVE_API_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "serve/api/limits.h"

/* API keys, and the tenants they belong to.
 *
 *   --api-key acme:k1  --api-key acme:k2  --api-key k3  --admin-key k4
 *        keys     SHA-256(k1)  SHA-256(k2)  SHA-256(k3)  SHA-256(k4)
 *        tenant        1            1            2            3
 *        names     [1] "acme"  [2] "default"  [3] "admin"
 *
 * Only digests are kept, and a lookup always compares all of them, so that its time reveals nothing
 * about a key. No error message quotes its input, because part of it may be a key.
 *
 * The keys are read when the server starts, and again on SIGHUP. The names of tenants only grow: a
 * tenant's number stands for its part of the cache, so it is never given to another. A key's number
 * comes from its digest, so it is the same after each reading. Owned by the event loop's thread. */
enum {
    API_KEY_DIGEST_BYTES = 32,
    API_KEYS_MAX = 4096,
    TENANT_MAX_NAME = 64,
};

#define TENANT_DEFAULT "default" /* of a key without a tenant */
#define TENANT_ADMIN   "admin"   /* of an admin's key without one */

struct api_key {
    unsigned char digest[API_KEY_DIGEST_BYTES];
    uint32_t tenant;
    bool is_admin;
    struct limit_set limits;
    char name[TENANT_MAX_NAME + 1]; /* for the log; "": none */
};

/* Where keys come from. The texts belong to the caller. */
struct key_sources {
    const char *const *lines; /* [n_lines] see key_line.h */
    size_t n_lines;
    const char *const *files; /* [n_files] with such lines */
    size_t n_files;
    const char *admin_key; /* NULL: none */
};

struct api_keys {
    struct key_sources sources;
    struct api_key *keys;               /* [n_keys] */
    uint32_t n_keys;                    /* 0: no key is needed */
    char (*names)[TENANT_MAX_NAME + 1]; /* [n_tenants] of tenant 1 and up */
    uint32_t n_tenants;
    uint64_t n_compared; /* digests, since the start */
};

/* Who sent a request. */
struct requester {
    uint64_t client;         /* its key, or its address if there are no keys: clients are equal */
    uint32_t tenant;         /* from 1 on; 0 if there are no keys */
    uint32_t meter;          /* of what it uses (limits.h); 0: none */
    bool is_admin;           /* may inspect and clear the cache, and read counters */
    struct limit_set limits; /* its key's own */
};

/* Adds a line (key_line.h). A tenant may have several keys. ERROR_INPUT if the line is wrong. */
int api_keys_add(struct api_keys *k, const char *line, struct error *err);
/* The same for each line of a file. Empty lines and lines that start with '#' are ignored. */
int api_keys_add_file(struct api_keys *k, const char *path, struct error *err);
int api_keys_add_admin(struct api_keys *k, const char *key, struct error *err);
/* Reads all sources. If one is wrong, the keys stay as they are. */
int api_keys_read(struct api_keys *k, struct error *err);
void api_keys_free(struct api_keys *k);

/* Fills in `out` but for the meter. NULL if the key is unknown. */
const struct api_key *api_keys_find(struct api_keys *k, const char *key, struct requester *out);
uint32_t api_keys_tenant(const struct api_keys *k, const char *name);        /* 0: none */
const char *api_keys_tenant_name(const struct api_keys *k, uint32_t tenant); /* NULL: none */
/* "keys: 4, tenants: 2, admins: 1" of the present keys. */
void api_keys_describe(const struct api_keys *k, char *out, size_t size);

#endif
