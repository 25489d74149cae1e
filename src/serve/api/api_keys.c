/* Keys and tenants. Lines are read in key_line.c.
 *
 * Never quote a line's text in an error message: any part of it may be a key. */
#include "serve/api/api_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/file.h"
#include "serve/api/key_line.h"

enum { MAX_FILE_BYTES = 1 << 20 };

/* ---- tenants ------------------------------------------------------------------------------ */

uint32_t api_keys_tenant(const struct api_keys *k, const char *name)
{
    for (uint32_t i = 0; i < k->n_tenants; i++)
        if (strcmp(k->names[i], name) == 0)
            return i + 1;
    return 0;
}

const char *api_keys_tenant_name(const struct api_keys *k, uint32_t tenant)
{
    return tenant > 0 && tenant <= k->n_tenants ? k->names[tenant - 1] : NULL;
}

/* The tenant with that name, created if new; 0: out of memory. */
static uint32_t tenant_make(struct api_keys *k, const char *name)
{
    uint32_t tenant = api_keys_tenant(k, name);
    if (tenant)
        return tenant;
    void *names = realloc(k->names, (k->n_tenants + 1) * sizeof *k->names);
    if (!names)
        return 0;
    k->names = names;
    snprintf(k->names[k->n_tenants], sizeof *k->names, "%s", name);
    return ++k->n_tenants;
}

/* ---- adding keys -------------------------------------------------------------------------- */

static bool is_same(const struct api_key *a, const struct api_key *b)
{
    return a->tenant == b->tenant && a->is_admin == b->is_admin && strcmp(a->name, b->name) == 0 &&
           memcmp(&a->limits, &b->limits, sizeof a->limits) == 0;
}

/* A key that is already there may come again, but not as another. */
static int check_same(const struct api_keys *k, const struct api_key *new, struct error *err)
{
    const struct api_key *old = k->keys;
    while (memcmp(old->digest, new->digest, API_KEY_DIGEST_BYTES) != 0)
        old++;
    if (is_same(old, new))
        return 0;
    if (old->tenant != new->tenant)
        return error_set(err, ERROR_INPUT, "the same key is given to two tenants, '%s' and '%s'",
                         k->names[old->tenant - 1], k->names[new->tenant - 1]);
    return error_set(err, ERROR_INPUT, "the same key is given twice with different settings");
}

static bool is_known(const struct api_keys *k, const unsigned char digest[API_KEY_DIGEST_BYTES])
{
    for (uint32_t i = 0; i < k->n_keys; i++)
        if (memcmp(k->keys[i].digest, digest, API_KEY_DIGEST_BYTES) == 0)
            return true;
    return false;
}

static int key_add(struct api_keys *k, const struct key_line *line, struct error *err)
{
    struct api_key new = line->key;
    if (k->n_keys == API_KEYS_MAX)
        return error_set(err, ERROR_INPUT, "too many keys: the limit is %d", API_KEYS_MAX);
    new.tenant = tenant_make(k, line->tenant);
    void *keys = new.tenant ? realloc(k->keys, (k->n_keys + 1) * sizeof *k->keys) : NULL;
    if (!keys)
        return error_set(err, ERROR_MEMORY, "no memory for keys");
    k->keys = keys;
    if (is_known(k, new.digest))
        return check_same(k, &new, err);
    k->keys[k->n_keys++] = new;
    return 0;
}

int api_keys_add(struct api_keys *k, const char *text, struct error *err)
{
    struct key_line line;
    return key_line_read(&line, text, err) || key_add(k, &line, err) ? -1 : 0;
}

int api_keys_add_admin(struct api_keys *k, const char *key, struct error *err)
{
    struct key_line line;
    return key_line_read_admin(&line, key, err) || key_add(k, &line, err) ? -1 : 0;
}

static char *line_trim(char *line)
{
    size_t len = strlen(line);
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
        line[--len] = '\0';
    return line + strspn(line, " \t");
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
        if (api_keys_add(k, entry, &cause))
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

static int sources_add(struct api_keys *k, struct error *err)
{
    const struct key_sources *from = &k->sources;
    struct error cause;
    for (size_t i = 0; i < from->n_lines; i++)
        if (api_keys_add(k, from->lines[i], &cause))
            return error_set(err, cause.code, "--api-key number %zu: %s", i + 1, cause.message);
    for (size_t i = 0; i < from->n_files; i++)
        if (api_keys_add_file(k, from->files[i], &cause))
            return error_set(err, cause.code, "--api-key-file %s", cause.message);
    if (from->admin_key && api_keys_add_admin(k, from->admin_key, &cause))
        return error_set(err, cause.code, "--admin-key: %s", cause.message);
    return 0;
}

int api_keys_read(struct api_keys *k, struct error *err)
{
    struct api_key *old = k->keys;
    const uint32_t n_old = k->n_keys;
    k->keys = NULL;
    k->n_keys = 0;
    int failed = sources_add(k, err);
    if (failed) {
        free(k->keys);
        k->keys = old;
        k->n_keys = n_old;
    } else {
        free(old);
    }
    return failed;
}

void api_keys_free(struct api_keys *k)
{
    free(k->keys);
    free(k->names);
    *k = (struct api_keys){0};
}

/* ---- looking them up ---------------------------------------------------------------------- */

/* Compares every digest, whether or not one before was equal. */
static const struct api_key *digest_find(struct api_keys *k,
                                         const unsigned char digest[API_KEY_DIGEST_BYTES])
{
    const struct api_key *found = NULL;
    for (uint32_t i = 0; i < k->n_keys; i++) {
        if (CRYPTO_memcmp(k->keys[i].digest, digest, API_KEY_DIGEST_BYTES) == 0)
            found = &k->keys[i];
        k->n_compared++;
    }
    return found;
}

/* A number that is the key's own, in every reading. */
static uint64_t client_of(const struct api_key *key)
{
    uint64_t client;
    memcpy(&client, key->digest, sizeof client);
    return client;
}

const struct api_key *api_keys_find(struct api_keys *k, const char *key, struct requester *out)
{
    unsigned char digest[API_KEY_DIGEST_BYTES];
    if (!key_digest(key, strlen(key), digest))
        return NULL;
    const struct api_key *found = digest_find(k, digest);
    if (found)
        *out = (struct requester){.client = client_of(found),
                                  .tenant = found->tenant,
                                  .is_admin = found->is_admin,
                                  .limits = found->limits};
    return found;
}

/* True for the first key of a tenant's users. */
static bool is_first(const struct api_keys *k, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (k->keys[i].tenant == k->keys[index].tenant && !k->keys[i].is_admin)
            return false;
    return !k->keys[index].is_admin;
}

void api_keys_describe(const struct api_keys *k, char *out, size_t size)
{
    uint32_t n_admins = 0, n_tenants = 0;
    for (uint32_t i = 0; i < k->n_keys; i++) {
        n_admins += k->keys[i].is_admin;
        n_tenants += is_first(k, i);
    }
    snprintf(out, size, "keys: %u, tenants: %u, admin keys: %u%s", k->n_keys - n_admins, n_tenants,
             n_admins, n_admins ? "" : "; without one nobody can inspect the cache (--admin-key)");
}
