/* Keys and tenants. Written by the command line before the server runs, read by the event loop.
 *
 * Never quote an option's text in an error message: any part of it may be a key, for example if
 * the user forgot the tenant or the colon. */
#include "serve/api/api_keys.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/ascii.h"
#include "base/file.h"

enum { MAX_FILE_BYTES = 1 << 20 };

static bool is_tenant_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!ascii_is_alpha(name[i]) && !ascii_is_digit(name[i]) && !strchr("._-@", name[i]))
            return false;
    return true;
}

/* True if the key fits into a header field as one word. */
static bool is_key(const char *key)
{
    for (; *key; key++)
        if (*key <= 0x20 || *key >= 0x7f)
            return false;
    return true;
}

static uint32_t tenant_find(const struct api_keys *k, const char *name, size_t len)
{
    for (uint32_t i = 0; i < k->n_tenants; i++)
        if (strlen(k->names[i]) == len && memcmp(k->names[i], name, len) == 0)
            return i + 1;
    return 0;
}

/* The tenant with that name, created if new; 0: out of memory. */
static uint32_t tenant_make(struct api_keys *k, const char *name, size_t len)
{
    uint32_t tenant = tenant_find(k, name, len);
    if (tenant)
        return tenant;
    void *names = realloc(k->names, (k->n_tenants + 1) * sizeof *k->names);
    if (!names)
        return 0;
    k->names = names;
    memcpy(k->names[k->n_tenants], name, len);
    k->names[k->n_tenants][len] = '\0';
    return ++k->n_tenants;
}

static bool digest_make(const char *key, unsigned char digest[API_KEY_DIGEST_BYTES])
{
    return EVP_Digest(key, strlen(key), digest, NULL, EVP_sha256(), NULL) == 1;
}

static const struct api_key *digest_find(const struct api_keys *k,
                                         const unsigned char digest[API_KEY_DIGEST_BYTES])
{
    const struct api_key *found = NULL;
    for (uint32_t i = 0; i < k->n_keys; i++)
        if (CRYPTO_memcmp(k->keys[i].digest, digest, API_KEY_DIGEST_BYTES) == 0)
            found = &k->keys[i];
    return found;
}

static int key_add(struct api_keys *k, const char *name, size_t name_len, const char *key,
                   bool is_operator, struct error *err)
{
    struct api_key new = {.is_operator = is_operator};
    if (!*key)
        return error_set(err, ERROR_INPUT, "the key is empty");
    if (!is_key(key))
        return error_set(err, ERROR_INPUT, "a key must be visible ASCII characters without spaces");
    if (k->n_keys == API_KEYS_MAX)
        return error_set(err, ERROR_INPUT, "too many keys: the limit is %d", API_KEYS_MAX);
    if (!digest_make(key, new.digest))
        return error_set(err, ERROR_FAILED, "cannot compute SHA-256");
    new.tenant = tenant_make(k, name, name_len);
    void *keys = new.tenant ? realloc(k->keys, (k->n_keys + 1) * sizeof *k->keys) : NULL;
    if (!keys)
        return error_set(err, ERROR_MEMORY, "no memory for keys");
    k->keys = keys;
    const struct api_key *same = digest_find(k, new.digest);
    if (same && same->tenant != new.tenant)
        return error_set(err, ERROR_INPUT, "the same key is given to two tenants, '%s' and '%s'",
                         k->names[same->tenant - 1], k->names[new.tenant - 1]);
    if (!same)
        k->keys[k->n_keys++] = new;
    return 0;
}

int api_keys_add(struct api_keys *k, const char *text, struct error *err)
{
    const char *colon = strchr(text, ':');
    if (!colon)
        return key_add(k, TENANT_DEFAULT, strlen(TENANT_DEFAULT), text, false, err);
    size_t len = (size_t)(colon - text);
    if (len == 0)
        return error_set(err, ERROR_INPUT, "TENANT:KEY has no tenant before the colon");
    if (len > TENANT_MAX_NAME || !is_tenant_name(text, len))
        return error_set(
            err, ERROR_INPUT,
            "a tenant's name, before the colon, must be up to %d letters, digits or any of "
            ". _ - @",
            TENANT_MAX_NAME);
    if (len == strlen(TENANT_ADMIN) && memcmp(text, TENANT_ADMIN, len) == 0)
        return error_set(err, ERROR_INPUT,
                         "the tenant '" TENANT_ADMIN "' is the operator: give its key with "
                         "--admin-key or in the file of --api-key-file");
    return key_add(k, text, len, colon + 1, false, err);
}

int api_keys_add_admin(struct api_keys *k, const char *key, struct error *err)
{
    return key_add(k, TENANT_ADMIN, strlen(TENANT_ADMIN), key, true, err);
}

static char *line_trim(char *line)
{
    size_t len = strlen(line);
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        line[--len] = '\0';
    return line + strspn(line, " \t");
}

static int line_add(struct api_keys *k, const char *entry, struct error *err)
{
    static const char admin[] = TENANT_ADMIN ":";
    if (strncmp(entry, admin, sizeof admin - 1) == 0)
        return api_keys_add_admin(k, entry + sizeof admin - 1, err);
    return api_keys_add(k, entry, err);
}

/* Returns how many keys there are, or -1. */
static int lines_add(struct api_keys *k, char *text, const char *path, struct error *err)
{
    size_t number = 1;
    int n_keys = 0;
    for (char *line; (line = strsep(&text, "\n")); number++) {
        struct error cause;
        char *entry = line_trim(line);
        if (!*entry || *entry == '#')
            continue;
        if (line_add(k, entry, &cause))
            return error_set(err, cause.code, "%s, line %zu: %s", path, number, cause.message);
        n_keys++;
    }
    return n_keys;
}

int api_keys_add_file(struct api_keys *k, const char *path, struct error *err)
{
    struct strbuf text = STRBUF_INIT;
    int n_keys = file_read(path, MAX_FILE_BYTES, &text, err) ? -1 : 0;
    if (n_keys == 0 && text.len && memchr(text.data, '\0', text.len))
        n_keys = error_set(err, ERROR_INPUT, "%s is not a text file: it contains a NUL byte", path);
    else if (n_keys == 0 && text.len)
        n_keys = lines_add(k, text.data, path, err);
    /* An empty file must not leave the server open to all. */
    if (n_keys == 0)
        error_set(err, ERROR_INPUT, "%s has no keys", path);
    OPENSSL_cleanse(text.data, text.len);
    strbuf_free(&text);
    return n_keys > 0 ? 0 : -1;
}

void api_keys_free(struct api_keys *k)
{
    free(k->keys);
    free(k->names);
    *k = (struct api_keys){0};
}

bool api_keys_find(const struct api_keys *k, const char *key, struct requester *out)
{
    unsigned char digest[API_KEY_DIGEST_BYTES];
    const struct api_key *found = digest_make(key, digest) ? digest_find(k, digest) : NULL;
    if (found)
        *out = (struct requester){.client = (uint64_t)(found - k->keys) + 1,
                                  .tenant = found->tenant,
                                  .is_operator = found->is_operator};
    return found != NULL;
}

uint32_t api_keys_tenant(const struct api_keys *k, const char *name)
{
    return tenant_find(k, name, strlen(name));
}

const char *api_keys_tenant_name(const struct api_keys *k, uint32_t tenant)
{
    return tenant > 0 && tenant <= k->n_tenants ? k->names[tenant - 1] : NULL;
}
