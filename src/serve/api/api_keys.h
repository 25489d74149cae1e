#ifndef RADISH_SERVE_API_API_KEYS_H
#define RADISH_SERVE_API_API_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* API keys, and the tenants they belong to.
 *
 *   --api-key acme:k1  --api-key acme:k2  --api-key k3  --admin-key k4
 *        keys     SHA-256(k1)  SHA-256(k2)  SHA-256(k3)  SHA-256(k4)
 *        tenant        1            1            2            3
 *        names     [1] "acme"  [2] "default"  [3] "admin"
 *
 * Only digests are kept, and a lookup always compares all of them, so that its time reveals nothing
 * about a key. No error message quotes its input, because part of it may be a key. Filled in before
 * the server starts, then read-only. */
enum {
    API_KEY_DIGEST_BYTES = 32,
    API_KEYS_MAX = 4096,
    TENANT_MAX_NAME = 64,
};

#define TENANT_DEFAULT "default" /* of a key without a tenant */
#define TENANT_ADMIN   "admin"   /* of the operator's key */

struct api_key {
    unsigned char digest[API_KEY_DIGEST_BYTES];
    uint32_t tenant;
    bool is_operator;
};

struct api_keys {
    struct api_key *keys;               /* [n_keys] */
    uint32_t n_keys;                    /* 0: no key is needed */
    char (*names)[TENANT_MAX_NAME + 1]; /* [n_tenants] of tenant 1 and up */
    uint32_t n_tenants;
};

/* Who sent a request. */
struct requester {
    uint64_t client;  /* its key, or its address if there are no keys: clients get equal shares */
    uint32_t tenant;  /* from 1 on; 0 if there are no keys */
    bool is_operator; /* may inspect and clear the cache */
};

/* Adds "TENANT:KEY", or "KEY" for the default tenant. A tenant may have several keys. ERROR_INPUT
 * if the text is neither. */
int api_keys_add(struct api_keys *k, const char *text, struct error *err);
/* The same for each line of a file, with "admin:KEY" for the operator's key. Empty lines and lines
 * that start with '#' are ignored. */
int api_keys_add_file(struct api_keys *k, const char *path, struct error *err);
int api_keys_add_admin(struct api_keys *k, const char *key, struct error *err);
void api_keys_free(struct api_keys *k);

/* False if the key is unknown. */
bool api_keys_find(const struct api_keys *k, const char *key, struct requester *out);
uint32_t api_keys_tenant(const struct api_keys *k, const char *name);        /* 0: none */
const char *api_keys_tenant_name(const struct api_keys *k, uint32_t tenant); /* NULL: none */

#endif
