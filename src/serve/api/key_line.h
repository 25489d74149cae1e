#ifndef RADISH_SERVE_API_KEY_LINE_H
#define RADISH_SERVE_API_KEY_LINE_H

#include "serve/api/api_keys.h"

/* One line of a key file, or the value of --api-key.
 *
 *   acme:sk-plain
 *   sha256:9f86...0a08 name=alice tenant=acme role=user requests-at-once=4 tokens-per-minute=9000
 *   └── the key ─────┘ └── settings: any of them, in any order ──────────────────────────────────┘
 *
 * The key is [TENANT:]KEY, and KEY is the key itself or sha256: and its digest in hex. `admin:` in
 * place of a tenant is the same as role=admin. */
struct key_line {
    struct api_key key;               /* without its tenant's number */
    char tenant[TENANT_MAX_NAME + 1]; /* its name */
};

/* ERROR_INPUT if the text is no such line. The message never quotes it: any part may be a key. */
int key_line_read(struct key_line *out, const char *text, struct error *err);
/* A line with nothing but an admin's key. */
int key_line_read_admin(struct key_line *out, const char *key, struct error *err);

bool key_digest(const char *key, size_t len, unsigned char digest[API_KEY_DIGEST_BYTES]);

#endif
