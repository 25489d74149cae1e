/* Keys and tenants: what a key is, whose it is, and that no message quotes one. */
#include "test.h"
#include "test_files.h"

#include <stdlib.h>

#include "serve/api/api_keys.h"

static struct error err;

static const char *scratch_write(const char *name, const char *bytes, size_t len)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", test_scratch_dir(), name);
    test_file_write(path, bytes, len);
    return path;
}

TEST(api_keys, stand_for_tenants)
{
    struct api_keys k = {0};
    struct requester who = {.tenant = 99, .is_admin = true};
    CHECK(!api_keys_find(&k, "one", &who) && who.tenant == 99);
    CHECK_INT(api_keys_add(&k, "acme:one", &err), 0);
    CHECK_INT(api_keys_add(&k, "other.co-1_x@y:two", &err), 0);
    CHECK_INT(api_keys_add(&k, "acme:three", &err), 0);
    CHECK_INT(api_keys_add(&k, "sk-alone", &err), 0);
    CHECK_INT(api_keys_add_admin(&k, "root", &err), 0);
    CHECK_INT(k.n_keys, 5);
    CHECK_INT(k.n_tenants, 4);
    CHECK(api_keys_find(&k, "one", &who) && who.tenant == 1 && !who.is_admin);
    CHECK(api_keys_find(&k, "two", &who) && who.tenant == 2 && !who.is_admin);
    CHECK(api_keys_find(&k, "three", &who) && who.tenant == 1 && !who.is_admin);
    CHECK(api_keys_find(&k, "sk-alone", &who) && who.tenant == 3 && !who.is_admin);
    CHECK(api_keys_find(&k, "root", &who) && who.tenant == 4 && who.is_admin);
    CHECK_STR(api_keys_tenant_name(&k, 1), "acme");
    CHECK_STR(api_keys_tenant_name(&k, 3), "default");
    CHECK_STR(api_keys_tenant_name(&k, 4), "admin");
    CHECK(!api_keys_tenant_name(&k, 0) && !api_keys_tenant_name(&k, 5));
    CHECK_INT(api_keys_tenant(&k, "acme"), 1);
    CHECK_INT(api_keys_tenant(&k, "acm"), 0);
    CHECK_INT(api_keys_tenant(&k, ""), 0);
    const char *const wrong[] = {"", "on", "one ", "One", "acme:one", "oneone", "two\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!api_keys_find(&k, wrong[i], &who));
    api_keys_free(&k);
}

TEST(api_keys, a_key_may_have_colons_and_come_twice)
{
    struct api_keys k = {0};
    struct requester who;
    CHECK_INT(api_keys_add(&k, "a:b:c", &err), 0);
    CHECK_INT(api_keys_add(&k, "a:b:c", &err), 0);
    CHECK_INT(k.n_keys, 1);
    CHECK(api_keys_find(&k, "b:c", &who) && who.tenant == 1);
    CHECK(!api_keys_find(&k, "b", &who));
    api_keys_free(&k);
}

TEST(api_keys, refused_without_being_quoted)
{
    const char *const wrong[] = {
        "",          ":SECRET",  "a:",         "a b:SECRET", "a/b:SECRET",   "\xc3\xa4:SECRET",
        "a:SEC RET", "SEC\tRET", "a:SECRET\n", "SECRET\x7f", "a:SECRET\xc3", "admin:TAKEN",
        "b:TAKEN",   "TAKEN"};
    struct api_keys k = {0};
    CHECK_INT(api_keys_add(&k, "a:TAKEN", &err), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(api_keys_add(&k, wrong[i], &err), -1);
        CHECK_INT(err.code, ERROR_INPUT);
        CHECK(err.message[0] && !strstr(err.message, "SEC") && !strstr(err.message, "TAKEN"));
    }
    CHECK_INT(api_keys_add_admin(&k, "TAKEN", &err), -1);
    CHECK(strstr(err.message, "'a' and 'admin'"));
    CHECK_INT(api_keys_add_admin(&k, "", &err), -1);
    CHECK_INT(k.n_keys, 1);

    char text[TENANT_MAX_NAME + 8];
    memset(text, 'x', sizeof text);
    memcpy(text + TENANT_MAX_NAME, ":k1", 4);
    CHECK_INT(api_keys_add(&k, text, &err), 0);
    memcpy(text + TENANT_MAX_NAME, "x:k2", 5);
    CHECK_INT(api_keys_add(&k, text, &err), -1);
    api_keys_free(&k);
}

TEST(api_keys, from_a_file)
{
    static const char text[] = "# who\n\nacme:one\r\n  other:two \t\nadmin:root\n#acme:three\nfour";
    struct api_keys k = {0};
    struct requester who;
    CHECK_INT(api_keys_add_file(&k, scratch_write("keys", text, sizeof text - 1), &err), 0);
    CHECK_INT(k.n_keys, 4);
    CHECK(api_keys_find(&k, "one", &who) && who.tenant == 1 && !who.is_admin);
    CHECK(api_keys_find(&k, "two", &who) && who.tenant == 2 && !who.is_admin);
    CHECK(api_keys_find(&k, "root", &who) && who.tenant == 3 && who.is_admin);
    CHECK(api_keys_find(&k, "four", &who) && who.tenant == 4 && !who.is_admin);
    CHECK(!api_keys_find(&k, "three", &who));
    api_keys_free(&k);
}

TEST(api_keys, from_a_wrong_file)
{
    struct api_keys k = {0};
    CHECK_INT(api_keys_add_file(&k, "/nonexistent/keys", &err), -1);
    CHECK(err.code == ERROR_IO && strstr(err.message, "/nonexistent/keys"));
    CHECK_INT(api_keys_add_file(&k, scratch_write("empty", "", 0), &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_INT(api_keys_add_file(&k, scratch_write("notes", "# none\n", 7), &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_INT(api_keys_add_file(&k, scratch_write("nul", "a:b\0c\n", 6), &err), -1);
    CHECK_INT(err.code, ERROR_INPUT);
    CHECK_INT(api_keys_add_file(&k, scratch_write("bad", "a:b\n\nodd/name:SECRET\n", 21), &err),
              -1);
    CHECK(err.code == ERROR_INPUT && strstr(err.message, "line 3"));
    CHECK(!strstr(err.message, "SECRET"));
    api_keys_free(&k);
}

TEST(api_keys, so_many_and_no_more)
{
    struct api_keys k = {0};
    struct requester who;
    char text[32];
    for (int i = 0; i < API_KEYS_MAX; i++) {
        snprintf(text, sizeof text, "t%d:k%d", i, i);
        CHECK_INT(api_keys_add(&k, text, &err), 0);
    }
    CHECK_INT(api_keys_add(&k, "one:more", &err), -1);
    CHECK(api_keys_find(&k, "k4095", &who) && who.tenant == API_KEYS_MAX);
    api_keys_free(&k);
}

/* printf %s one | sha256sum */
#define ONE "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"

TEST(api_keys, a_digest_stands_for_its_key)
{
    struct api_keys k = {0};
    struct requester who;
    CHECK_INT(api_keys_add(&k, "sha256:" ONE, &err), 0);
    CHECK_INT(api_keys_add(&k, "one", &err), 0); /* the same */
    CHECK_INT(api_keys_add(&k, "acme:two", &err), 0);
    CHECK_INT(k.n_keys, 2);
    CHECK(api_keys_find(&k, "one", &who) && who.tenant == 1);
    CHECK(!api_keys_find(&k, ONE, &who) && !api_keys_find(&k, "sha256:" ONE, &who));
    CHECK_INT(api_keys_add_admin(&k, "sha256:" ONE, &err), -1); /* has another tenant */
    api_keys_free(&k);
    CHECK_INT(api_keys_add(&k, "acme:sha256:" ONE, &err), 0);
    CHECK(api_keys_find(&k, "one", &who) && strcmp(k.names[who.tenant - 1], "acme") == 0);
    api_keys_free(&k);
    CHECK_INT(api_keys_add_admin(&k, "sha256:" ONE, &err), 0);
    CHECK(api_keys_find(&k, "one", &who) && who.is_admin);
    api_keys_free(&k);
}

TEST(api_keys, have_settings)
{
    struct api_keys k = {0};
    struct requester who;
    CHECK_INT(api_keys_add(&k,
                           "one name=alice\ttenant=acme   role=user requests-at-once=4 "
                           "requests-per-minute=60 tokens-per-minute=100000 tokens-per-request=0",
                           &err),
              0);
    CHECK_INT(api_keys_add(&k, "acme:two role=admin", &err), 0);
    CHECK_INT(api_keys_add(&k, "three role=admin name=b", &err), 0);
    CHECK_INT(api_keys_add(&k, "admin:four role=admin", &err), 0);
    CHECK_INT(api_keys_add(&k, "five role=user", &err), 0);
    const struct api_key *key = api_keys_find(&k, "one", &who);
    CHECK(key && who.tenant == 1 && !who.is_admin);
    CHECK_STR(key->name, "alice");
    CHECK_INT(limit_of(&who.limits, LIMIT_REQUESTS_AT_ONCE), 4);
    CHECK_INT(limit_of(&who.limits, LIMIT_REQUESTS_PER_MINUTE), 60);
    CHECK_INT(limit_of(&who.limits, LIMIT_TOKENS_PER_MINUTE), 100000);
    CHECK_INT(limit_of(&who.limits, LIMIT_TOKENS_PER_REQUEST), 0);
    CHECK(who.limits.of[LIMIT_TOKENS_PER_REQUEST] == LIMIT_NONE); /* and no default applies */
    CHECK(api_keys_find(&k, "two", &who) && who.tenant == 1 && who.is_admin);
    CHECK(!limits_any(&who.limits));
    CHECK(api_keys_find(&k, "three", &who) && who.is_admin);
    CHECK_STR(api_keys_tenant_name(&k, who.tenant), "admin");
    CHECK(api_keys_find(&k, "four", &who) && who.is_admin);
    CHECK(api_keys_find(&k, "five", &who) && !who.is_admin);
    CHECK_STR(api_keys_tenant_name(&k, who.tenant), "default");
    api_keys_free(&k);
}

TEST(api_keys, wrong_settings_are_not_quoted)
{
    static const struct {
        const char *line, *says;
    } wrong[] = {
        {"SECRET SECRET", "after the key there may be only settings"},
        {"SECRET =SECRET", "after the key there may be only settings"},
        {"SECRET Name=SECRET", "after the key there may be only settings"},
        {"SECRET role=SECRET", "role must be user or admin"},
        {"SECRET role=", "role must be user or admin"},
        {"admin:SECRET role=user", "two roles"},
        {"SECRET tenant=admin", "only for keys with role=admin"},
        {"a:SECRET tenant=b", "the tenant is given twice"},
        {"SECRET tenant=a tenant=SECRET", "the tenant is given twice"},
        {"SECRET tenant=a/SECRET", "a tenant's name must be"},
        {"SECRET name=", "name must be"},
        {"SECRET name=SEC:RET", "name must be"},
        {"SECRET requests-at-once=SECRET", "requests-at-once needs a whole number up to 100000000"},
        {"SECRET requests-at-once=", "requests-at-once needs"},
        {"SECRET tokens-per-minute=-1", "tokens-per-minute needs"},
        {"SECRET tokens-per-minute=1.5", "tokens-per-minute needs"},
        {"SECRET tokens-per-minute=100000001", "tokens-per-minute needs"},
        {"SECRET tokens-per-minute=99999999999999999999", "tokens-per-minute needs"},
        {"SECRET requests-per-minute=1 requests-per-minute=1",
         "requests-per-minute is given twice"},
        {"sha256:SECRET", "a digest must be 64 hex digits"},
        {"a:sha256:" ONE "SECRET", "a digest must be 64 hex digits"},
        {"sha256:g692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed", "64 hex"},
        {"TAKEN requests-at-once=2", "given twice with different settings"},
        {"TAKEN name=b", "given twice with different settings"},
        {"TAKEN role=admin tenant=a", "given twice with different settings"},
    };
    struct api_keys k = {0};
    CHECK_INT(api_keys_add(&k, "TAKEN tenant=a requests-at-once=1", &err), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(api_keys_add(&k, wrong[i].line, &err), -1);
        CHECK_INT(err.code, ERROR_INPUT);
        if (strstr(err.message, "SECRET") || strstr(err.message, "TAKEN") ||
            (!strstr(err.message, wrong[i].says) && !strstr(err.message, "two tenants")))
            test_fail(__FILE__, __LINE__, "%s: %s", wrong[i].line, err.message);
    }
    CHECK_INT(k.n_keys, 1);
    api_keys_free(&k);
}

TEST(api_keys, every_lookup_compares_all_digests)
{
    struct api_keys k = {0};
    struct requester who;
    const char *const asked[] = {"k0", "k1", "k250", "k499", "k500", "", "wrong", "k0k0"};
    char text[32];
    for (int i = 0; i < 500; i++) {
        snprintf(text, sizeof text, "k%d", i);
        CHECK_INT(api_keys_add(&k, text, &err), 0);
    }
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const uint64_t before = k.n_compared;
        api_keys_find(&k, asked[i], &who);
        CHECK_INT(k.n_compared - before, 500);
    }
    api_keys_free(&k);
}

TEST(api_keys, are_read_again)
{
    static const char first[] = "acme:one requests-at-once=1\nother:two\nthree\n";
    static const char second[] = "new:four\nother:two name=second\nacme:one requests-at-once=9\n";
    static const char bad[] = "new:five\nodd/name:six\n";
    const char *const path = scratch_write("reread", first, sizeof first - 1);
    const char *const lines[] = {"acme:line"};
    struct api_keys k = {.sources = {.lines = lines, .n_lines = 1, .files = &path, .n_files = 1}};
    struct requester one, two, who;
    CHECK_INT(api_keys_read(&k, &err), 0);
    CHECK(k.n_keys == 4 && k.n_tenants == 3);
    CHECK(api_keys_find(&k, "one", &one) && api_keys_find(&k, "two", &two));

    scratch_write("reread", second, sizeof second - 1);
    CHECK_INT(api_keys_read(&k, &err), 0);
    CHECK_INT(k.n_keys, 4);
    CHECK(api_keys_find(&k, "one", &who) && who.client == one.client && who.tenant == one.tenant);
    CHECK_INT(limit_of(&who.limits, LIMIT_REQUESTS_AT_ONCE), 9);
    CHECK(api_keys_find(&k, "two", &who) && who.client == two.client && who.tenant == two.tenant);
    CHECK(api_keys_find(&k, "four", &who) && who.tenant == 4); /* 3 was another's */
    CHECK(api_keys_find(&k, "line", &who) && who.tenant == one.tenant);
    CHECK(!api_keys_find(&k, "three", &who));
    CHECK_STR(api_keys_tenant_name(&k, 3), "default");

    scratch_write("reread", bad, sizeof bad - 1);
    CHECK_INT(api_keys_read(&k, &err), -1);
    CHECK(strstr(err.message, "--api-key-file ") && strstr(err.message, "line 2"));
    CHECK(k.n_keys == 4 && api_keys_find(&k, "four", &who) && !api_keys_find(&k, "five", &who));
    scratch_write("reread", "", 0);
    CHECK_INT(api_keys_read(&k, &err), -1);
    CHECK_INT(k.n_keys, 4);

    scratch_write("reread", first, sizeof first - 1);
    CHECK_INT(api_keys_read(&k, &err), 0);
    CHECK(api_keys_find(&k, "three", &who) && who.tenant == 3);
    CHECK(!api_keys_find(&k, "four", &who));
    api_keys_free(&k);
}
