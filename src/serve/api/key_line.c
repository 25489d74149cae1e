/* Reads lines of key files.
 *
 * Never quote the text in an error message: any part of it may be a key, for example if the user
 * forgot the tenant, the colon or the '='. */
#include "serve/api/key_line.h"

#include <string.h>

#include <openssl/evp.h>

#include "base/ascii.h"

#define DIGEST_PREFIX "sha256:"

static const char spaces[] = " \t";

static bool is_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!ascii_is_alpha(name[i]) && !ascii_is_digit(name[i]) && !strchr("._-@", name[i]))
            return false;
    return len > 0 && len <= TENANT_MAX_NAME;
}

/* True if the key fits into a header field as one word. */
static bool is_key(const char *key, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (key[i] <= 0x20 || key[i] >= 0x7f)
            return false;
    return true;
}

bool key_digest(const char *key, size_t len, unsigned char digest[API_KEY_DIGEST_BYTES])
{
    return EVP_Digest(key, len, digest, NULL, EVP_sha256(), NULL) == 1;
}

static bool hex_read(const char *text, size_t len, unsigned char digest[API_KEY_DIGEST_BYTES])
{
    if (len != 2 * API_KEY_DIGEST_BYTES)
        return false;
    for (size_t i = 0; i < len; i++) {
        int value = ascii_hex_value(text[i]);
        if (value < 0)
            return false;
        digest[i / 2] = (unsigned char)(i % 2 ? digest[i / 2] << 4 | value : value);
    }
    return true;
}

/* The key, or its digest. */
static int secret_read(struct key_line *out, const char *text, size_t len, struct error *err)
{
    static const size_t n_prefix = sizeof DIGEST_PREFIX - 1;
    if (len == 0)
        return error_set(err, ERROR_INPUT, "the key is empty");
    if (!is_key(text, len))
        return error_set(err, ERROR_INPUT, "a key must be visible ASCII characters without spaces");
    if (len >= n_prefix && memcmp(text, DIGEST_PREFIX, n_prefix) == 0)
        return hex_read(text + n_prefix, len - n_prefix, out->key.digest)
                   ? 0
                   : error_set(err, ERROR_INPUT,
                               "a digest must be 64 hex digits, as `printf %%s KEY | sha256sum` "
                               "prints");
    return key_digest(text, len, out->key.digest)
               ? 0
               : error_set(err, ERROR_FAILED, "cannot compute SHA-256");
}

static int tenant_read(struct key_line *out, const char *text, size_t len, struct error *err)
{
    if (!is_name(text, len))
        return error_set(
            err, ERROR_INPUT,
            "a tenant's name must be up to %d letters, digits or any of . _ - @, in TENANT:KEY or "
            "tenant=NAME",
            TENANT_MAX_NAME);
    if (*out->tenant)
        return error_set(err, ERROR_INPUT, "the tenant is given twice");
    memcpy(out->tenant, text, len);
    out->tenant[len] = '\0';
    return 0;
}

/* [TENANT:]KEY. A digest begins like a tenant, but is none. */
static int first_word_read(struct key_line *out, const char *text, size_t len, struct error *err)
{
    const char *colon = memchr(text, ':', len);
    const size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || strncmp(text, DIGEST_PREFIX, sizeof DIGEST_PREFIX - 1) == 0)
        return secret_read(out, text, len, err);
    if (n == 0)
        return error_set(err, ERROR_INPUT, "TENANT:KEY has no tenant before the colon");
    if (n == strlen(TENANT_ADMIN) && memcmp(text, TENANT_ADMIN, n) == 0)
        out->key.is_admin = true;
    else if (tenant_read(out, text, n, err))
        return -1;
    return secret_read(out, colon + 1, len - n - 1, err);
}

/* The value of NAME=VALUE, or NULL. */
static const char *value_of(const char *name, const char *text, size_t len)
{
    size_t n = strlen(name);
    return len > n && memcmp(text, name, n) == 0 && text[n] == '=' ? text + n + 1 : NULL;
}

static int role_read(struct key_line *out, const char *text, size_t len, struct error *err)
{
    bool is_admin = len == 5 && memcmp(text, "admin", 5) == 0;
    if (!is_admin && !(len == 4 && memcmp(text, "user", 4) == 0))
        return error_set(err, ERROR_INPUT, "role must be user or admin");
    if (!is_admin && out->key.is_admin)
        return error_set(err, ERROR_INPUT, "the key has two roles: 'admin:' and role=user");
    out->key.is_admin = is_admin;
    return 0;
}

static int name_read(struct key_line *out, const char *text, size_t len, struct error *err)
{
    if (!is_name(text, len))
        return error_set(err, ERROR_INPUT,
                         "name must be up to %d letters, digits or any of . _ - @",
                         TENANT_MAX_NAME);
    memcpy(out->key.name, text, len);
    out->key.name[len] = '\0';
    return 0;
}

static int setting_read(struct key_line *out, const char *text, size_t len, struct error *err)
{
    static const struct {
        const char *name;
        int (*read)(struct key_line *out, const char *text, size_t len, struct error *err);
    } settings[] = {{"name", name_read}, {"tenant", tenant_read}, {"role", role_read}};
    int failed;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *value = value_of(settings[i].name, text, len);
        if (value)
            return settings[i].read(out, value, (size_t)(text + len - value), err);
    }
    if (limit_read(&out->key.limits, text, len, &failed, err))
        return failed;
    return error_set(err, ERROR_INPUT,
                     "after the key there may be only settings, written NAME=VALUE: name, tenant, "
                     "role, %s",
                     limit_names());
}

/* The tenant, if no one was named; 'admin' is for admins. */
static int tenant_choose(struct key_line *out, struct error *err)
{
    if (!*out->tenant)
        strcpy(out->tenant, out->key.is_admin ? TENANT_ADMIN : TENANT_DEFAULT);
    else if (strcmp(out->tenant, TENANT_ADMIN) == 0 && !out->key.is_admin)
        return error_set(err, ERROR_INPUT,
                         "the tenant '" TENANT_ADMIN "' is only for keys with role=admin");
    return 0;
}

int key_line_read(struct key_line *out, const char *text, struct error *err)
{
    size_t len = strcspn(text, spaces);
    *out = (struct key_line){0};
    if (first_word_read(out, text, len, err))
        return -1;
    for (text += len; *(text += strspn(text, spaces)); text += len) {
        len = strcspn(text, spaces);
        if (setting_read(out, text, len, err))
            return -1;
    }
    return tenant_choose(out, err);
}

int key_line_read_admin(struct key_line *out, const char *key, struct error *err)
{
    *out = (struct key_line){.key.is_admin = true};
    return secret_read(out, key, strlen(key), err) || tenant_choose(out, err) ? -1 : 0;
}
