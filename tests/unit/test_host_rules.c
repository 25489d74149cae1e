/* Host and Origin: what names this machine, and what only looks as if it did. */
#include "serve/http/host_rules.h"
#include "test.h"

static const char *const listed[] = {"box.example", "api.example:8443", "fd00::7"};
static const struct host_rules rules = {"192.168.1.5", listed, 3};

TEST(host_rules, knows_what_only_this_machine_reaches)
{
    static const char *const good[] = {"localhost", "127.0.0.1", "::1", "[::1]", "127.0.0.2"};
    static const char *const bad[] = {"0.0.0.0", "::", "[::]", "192.168.1.5", "box.example", ""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(host_is_loopback(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!host_is_loopback(bad[i]));
}

TEST(host_rules, knows_loopback)
{
    static const char *const good[] = {
        "localhost",  "LOCALHOST:1", "127.0.0.1",         "127.9.8.7:80",      "[::1]",
        "[::1]:8080", "localhost:",  "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"};
    static const char *const bad[] = {"",
                                      ":80",
                                      "localhost.evil.example",
                                      "127.0.0.1.evil.example",
                                      "evil.example",
                                      "127.1",
                                      "0.0.0.0",
                                      "128.0.0.1",
                                      "[::2]",
                                      "127.0.0.1@evil.example",
                                      "localhost/",
                                      "2130706433",
                                      "%6cocalhost"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!host_is_allowed(&rules, good[i], NULL))
            test_fail(__FILE__, __LINE__, "%s was refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (host_is_allowed(&rules, bad[i], NULL))
            test_fail(__FILE__, __LINE__, "%s was let in", bad[i]);
}

TEST(host_rules, knows_the_bound_and_the_allowed)
{
    CHECK(host_is_allowed(&rules, "192.168.1.5:8080", NULL));
    CHECK(!host_is_allowed(&rules, "192.168.1.6", NULL));
    CHECK(host_is_allowed(&rules, "192.168.1.6", "192.168.1.6"));
    CHECK(host_is_allowed(&rules, "[fe80::1]:80", "fe80:0::1"));
    CHECK(host_is_allowed(&rules, "Box.Example:99", NULL));
    CHECK(host_is_allowed(&rules, "api.example:8443", NULL));
    CHECK(!host_is_allowed(&rules, "api.example:8444", NULL));
    CHECK(!host_is_allowed(&rules, "api.example", NULL));
    CHECK(host_is_allowed(&rules, "[fd00::7]", NULL));
    const char *const star = "*";
    struct host_rules any = {"::1", &star, 1};
    CHECK(host_is_allowed(&any, "whatever.example", NULL));
    CHECK(!host_is_allowed(&any, "what ever", NULL));
}

TEST(host_rules, knows_origins)
{
    CHECK(origin_is_allowed(&rules, "http://localhost:3000", NULL));
    CHECK(origin_is_allowed(&rules, "https://[::1]", NULL));
    CHECK(origin_is_allowed(&rules, "https://box.example", NULL));
    CHECK(!origin_is_allowed(&rules, "https://evil.example", NULL));
    CHECK(!origin_is_allowed(&rules, "null", NULL));
    CHECK(!origin_is_allowed(&rules, "", NULL));
    CHECK(!origin_is_allowed(&rules, "://localhost", NULL));
    CHECK(!origin_is_allowed(&rules, "http://localhost/x", NULL));
    CHECK(!origin_is_allowed(&rules, "http://localhost http://evil.example", NULL));
    CHECK(!origin_is_allowed(&rules, "http://localhost.evil.example", NULL));
    CHECK(!origin_is_allowed(&rules, "localhost", NULL));
}
