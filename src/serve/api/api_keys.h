#ifndef RADISH_SERVE_API_API_KEYS_H
#define RADISH_SERVE_API_API_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Who may ask: keys, and the tenants that they stand for.
 *
 *   --api-key acme:k1  --api-key acme:k2  --api-key k3  --admin-key k4
 *        keys     SHA-256(k1)  SHA-256(k2)  SHA-256(k3)  SHA-256(k4)
 *        tenant        1            1            2            3
 *        names     [1] "acme"  [2] "default"  [3] "admin"
 *
 * Only digests are kept, and every one of them is compared whatever was found, so that the time
 * that an answer takes says nothing about a key. No error text quotes what it was given: part of it
 * may be a key. Filled in before the server starts, then read-only. */
enum {
    API_KEY_DIGEST_BYTES = 32,
    API_KEYS_MAX = 4096,
    TENANT_MAX_NAME = 64,
};

#define TENANT_DEFAULT "default" /* of a key that names none */
#define TENANT_ADMIN   "admin"   /* of the operator's own key */

struct api_key {
    unsigned char digest[API_KEY_DIGEST_BYTES];
    uint32_t tenant;
    bool is_operator;
};

struct api_keys {
    struct api_key *keys;               /* [n_keys] */
    uint32_t n_keys;                    /* 0: anyone may ask */
    char (*names)[TENANT_MAX_NAME + 1]; /* [n_tenants] of tenant 1 and up */
    uint32_t n_tenants;
};

/* Whose request it is. */
struct requester {
    uint32_t tenant;  /* from 1 on; 0 when there are no keys */
    bool is_operator; /* may look into the cache and clear it */
};

/* "TENANT:KEY", or "KEY" for the default tenant. Several keys may stand for one tenant. ERROR_INPUT
 * for what is neither. */
int api_keys_add(struct api_keys *k, const char *text, struct error *err);
/* The same for each line of a file, and "admin:KEY" for the operator's; empty lines and those that
 * begin with '#' say nothing. */
int api_keys_add_file(struct api_keys *k, const char *path, struct error *err);
int api_keys_add_admin(struct api_keys *k, const char *key, struct error *err);
void api_keys_free(struct api_keys *k);

/* False when the key is none of them. */
bool api_keys_find(const struct api_keys *k, const char *key, struct requester *out);
uint32_t api_keys_tenant(const struct api_keys *k, const char *name);        /* 0: none */
const char *api_keys_tenant_name(const struct api_keys *k, uint32_t tenant); /* NULL: none */

#endif
