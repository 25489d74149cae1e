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
    struct requester who = {.tenant = 99, .is_operator = true};
    CHECK(!api_keys_find(&k, "one", &who) && who.tenant == 99);
    CHECK_INT(api_keys_add(&k, "acme:one", &err), 0);
    CHECK_INT(api_keys_add(&k, "other.co-1_x@y:two", &err), 0);
    CHECK_INT(api_keys_add(&k, "acme:three", &err), 0);
    CHECK_INT(api_keys_add(&k, "sk-alone", &err), 0);
    CHECK_INT(api_keys_add_admin(&k, "root", &err), 0);
    CHECK_INT(k.n_keys, 5);
    CHECK_INT(k.n_tenants, 4);
    CHECK(api_keys_find(&k, "one", &who) && who.tenant == 1 && !who.is_operator);
    CHECK(api_keys_find(&k, "two", &who) && who.tenant == 2 && !who.is_operator);
    CHECK(api_keys_find(&k, "three", &who) && who.tenant == 1 && !who.is_operator);
    CHECK(api_keys_find(&k, "sk-alone", &who) && who.tenant == 3 && !who.is_operator);
    CHECK(api_keys_find(&k, "root", &who) && who.tenant == 4 && who.is_operator);
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
        "a:SEC RET", "SEC\tRET", "a:SECRET\n", "SECRET\x7f", "a:SECRET\xc3", "admin:SECRET",
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
    CHECK(api_keys_find(&k, "one", &who) && who.tenant == 1 && !who.is_operator);
    CHECK(api_keys_find(&k, "two", &who) && who.tenant == 2 && !who.is_operator);
    CHECK(api_keys_find(&k, "root", &who) && who.tenant == 3 && who.is_operator);
    CHECK(api_keys_find(&k, "four", &who) && who.tenant == 4 && !who.is_operator);
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
