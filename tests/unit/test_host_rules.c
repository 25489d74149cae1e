/* Host and Origin: names of this machine, and names that only look like it. */
#include "serve/http/host_rules.h"
#include "test.h"

static const char *const listed[] = {"box.example", "api.example:8443", "fd00::7"};
static const struct host_rules rules = {
    .bound = "192.168.1.5", .allowed_hosts = listed, .n_allowed_hosts = 3};

TEST(host_rules, knows_what_only_this_machine_reaches)
{
    static const char *const good[] = {"127.0.0.1", "::1", "127.0.0.2", "::ffff:127.0.0.1"};
    static const char *const bad[] = {"0.0.0.0", "::", "[::]", "192.168.1.5", "box.example", ""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(address_is_loopback(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!address_is_loopback(bad[i]));
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
    struct host_rules any = {.bound = "::1", .allowed_hosts = &star, .n_allowed_hosts = 1};
    CHECK(host_is_allowed(&any, "whatever.example", NULL));
    CHECK(!host_is_allowed(&any, "what ever", NULL));
}

TEST(host_rules, knows_origins)
{
    static const char *const origins[] = {"https://chat.example", "http://lan.example:3000",
                                          "app://desk"};
    struct host_rules r = rules;
    r.allowed_origins = origins;
    r.n_allowed_origins = 3;
    static const char *const good[] = {"http://localhost:3000",   "https://[::1]",
                                       "https://chat.example",    "HTTPS://Chat.Example:443",
                                       "http://lan.example:3000", "app://desk"};
    static const char *const bad[] = {"https://box.example", /* an allowed host */
                                      "https://evil.example",
                                      "http://chat.example",
                                      "https://chat.example:444",
                                      "http://lan.example",
                                      "https://chat.example.evil.example",
                                      "https://evil.example/https://chat.example",
                                      "https://chat.example https://evil.example",
                                      "null",
                                      "",
                                      "*",
                                      "://localhost",
                                      "http://localhost/x",
                                      "http://localhost http://evil.example",
                                      "http://localhost.evil.example",
                                      "http://192.168.1.5",
                                      "localhost"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!origin_is_allowed(&r, good[i], NULL))
            test_fail(__FILE__, __LINE__, "%s was refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (origin_is_allowed(&r, bad[i], NULL))
            test_fail(__FILE__, __LINE__, "%s was let in", bad[i]);
    CHECK(!origin_is_allowed(&rules, "https://chat.example", NULL));
    const char *const star = "*";
    r.allowed_origins = &star;
    r.n_allowed_origins = 1;
    CHECK(origin_is_allowed(&r, "https://evil.example", NULL));
    CHECK(origin_is_allowed(&r, "null", NULL));
}

TEST(host_rules, knows_what_can_be_an_origin)
{
    static const char *const good[] = {"*", "https://a", "http://a.example:80", "http://[::1]:1"};
    static const char *const bad[] = {"",           "a.example", "https://",    "://a",
                                      "https://a/", "null",      "https://a b", "https://a:x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(origin_is_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (origin_is_valid(bad[i]))
            test_fail(__FILE__, __LINE__, "%s is none", bad[i]);
}

TEST(host_rules, with_keys_any_host_is_answered)
{
    struct host_rules keyed = rules;
    keyed.has_keys = true;
    CHECK(host_is_allowed(&keyed, "llm.example", NULL));
    CHECK(host_is_allowed(&keyed, "evil.example:8080", NULL));
    CHECK(!host_is_allowed(&keyed, "what ever", NULL));
    CHECK(!host_is_allowed(&keyed, "", NULL));
    CHECK(!host_is_allowed(&rules, "llm.example", NULL));
}

TEST(host_rules, an_origin_may_equal_the_host)
{
    static const struct {
        const char *origin, *host;
        bool allowed;
    } cases[] = {
        {"http://llm.example:8080", "llm.example:8080", true},
        {"http://LLM.example:8080", "llm.Example:8080", true},
        {"https://llm.example", "llm.example", true}, /* a proxy that ends TLS */
        {"https://llm.example", "llm.example:443", true},
        {"http://llm.example:80", "llm.example", true},
        {"http://[fd00::9]:1", "[fd00:0::9]:1", true},
        {"http://localhost:3000", "llm.example", true}, /* as without keys */
        {"https://box.example", "llm.example", false},
        {"http://llm.example:3000", "llm.example:8080", false},
        {"https://llm.example", "llm.example:80", false},
        {"http://evil.example", "llm.example", false},
        {"http://llm.example.evil.example", "llm.example", false},
        {"http://llm.example@evil.example", "llm.example", false},
        {"http://llm.example/", "llm.example", false},
        {"null", "null", false},
        {"://llm.example", "llm.example", false},
        {"http://llm.example", "", false},
        {"http://llm.example", NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (origin_is_allowed(&rules, cases[i].origin, cases[i].host) != cases[i].allowed)
            test_fail(__FILE__, __LINE__, "%s at %s", cases[i].origin, cases[i].host);
}

static const char *own_names_of(const char *host_name, const char *hosts)
{
    static char text[2048];
    struct own_names own;
    own_names_collect(&own, host_name, hosts);
    text[0] = '\0';
    for (size_t i = 0; i < own.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
                 own.names[i]);
    return text;
}

TEST(host_rules, finds_the_machines_own_names)
{
    CHECK_STR(own_names_of("box", NULL), "box box.local");
    CHECK_STR(own_names_of("box.lan.example", NULL), "box.lan.example box box.local");
    CHECK_STR(own_names_of("", "127.0.0.1 localhost\n"), "");
    CHECK_STR(own_names_of(".", NULL), ".");
    CHECK_STR(own_names_of("box", "127.0.0.1\tlocalhost # box\n0.0.0.0 ads.example\n"
                                  "127.0.1.1  box.lan.example\tBOX alias#x\r\n#10.0.0.1 box no\n"
                                  "box other\n10.0.0.1\n\n   \n10.0.0.2 boxer"),
              "box box.local box.lan.example alias");
    CHECK_STR(own_names_of("box", "::1 a b c d e f g h i box\n"), "box box.local");
    CHECK_STR(own_names_of("box", "::1 box a b c d e f g h i\n"), "box box.local a b c d e f");
    char longest[600];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK_STR(own_names_of(longest, longest), "");
}

TEST(host_rules, answers_to_its_own_names)
{
    struct own_names own;
    struct host_rules named = rules;
    own_names_collect(&own, "box", "127.0.1.1 box.lan.example box\n");
    named.own = &own;
    static const char *const good[] = {"box", "BOX:8080", "box.local:80", "box.lan.example"};
    static const char *const bad[] = {"box2", "box.evil.example", "lan.example", "box.local.x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(host_is_allowed(&named, good[i], NULL) && !host_is_allowed(&rules, good[i], NULL));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!host_is_allowed(&named, bad[i], NULL));
    CHECK(!origin_is_allowed(&named, "http://box.local:3000", NULL)); /* another port */
}
