/* What the server reports about its cache: entries and the tree, clearing, warming and pins, and
 * why no more of a prompt was cached. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "server_fixture.h"
#include "test.h"
#include "test_memory.h"

#define CHAT    "/v1/chat/completions"
#define SYSTEM  "You are a careful clerk. Today is %s, and the office is open until five."
#define EXPLAIN "'max_tokens':4,'seed':1,'ignore_eos':true,'radish':{'explain':true}"

enum { SYSTEM_ROLE = 1 + 7, USER_ROLE = 1 + 5, BEFORE_DAY = 34 };

static const char *conversation(const char *day, const char *question)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "{'role':'system','content':'" SYSTEM "'},{'role':'user','content':'%s'}", day,
             question);
    return text;
}

static const char *body_of(const char *messages, const char *more)
{
    static struct strbuf body;
    strbuf_clear(&body);
    strbuf_addf(&body, "{'messages':[%s],%s}", messages, more);
    return strbuf_str(&body);
}

static void ask_as(const struct test_server *s, const char *key, const char *messages,
                   const char *more)
{
    char field[64] = "";
    if (*key)
        snprintf(field, sizeof field, "x-api-key: %s\r\n", key);
    int status = server_ask(s, "POST", CHAT, field, body_of(messages, more));
    if (status != 200)
        test_fail(__FILE__, __LINE__, "%d: %s", status, reply_body());
}

static void explain(const struct test_server *s, const char *messages)
{
    ask_as(s, "", messages, EXPLAIN);
    CHECK_AT("radish.prompt_tokens", reply_at("usage.prompt_tokens"));
    CHECK_AT("radish.cached_tokens", reply_at("usage.prompt_tokens_details.cached_tokens"));
    CHECK_INT(reply_int("radish.computed_tokens"),
              reply_int("radish.prompt_tokens") - reply_int("radish.cached_tokens"));
}

/* ---- why no more was cached ---- */

TEST(server_cache, what_was_never_seen)
{
    struct test_server s;
    static char text[64], messages[2048], want[64];
    SERVER_START(&s);
    explain(&s, conversation("Monday", "What is open?"));
    CHECK_AT("radish.miss.reason", "'never_seen'");
    CHECK_AT("radish.miss.position", "0");
    CHECK_AT("radish.miss.message", "null");
    CHECK_AT("radish.miss.role", "null");
    CHECK_AT("radish.miss.precedes_message", "0");
    CHECK_AT("radish.miss.before", "''");
    CHECK_AT("radish.miss.prompt_text", "'<|im_start|>system\n'");
    CHECK_AT("radish.miss.cached_text", "");
    CHECK_AT("radish.miss.gone_s", "");
    CHECK_AT("radish.miss.tenant", "");
    CHECK_AT("radish.miss.detail", "'Nothing was cached: the start of the template's text before "
                                   "message 0 (system) is new: \"<|im_start|>system\\n\".'");
    CHECK_AT("radish.shared_tokens", "0");
    CHECK_AT("radish.replayed_tokens", "0");
    CHECK_AT("radish.replay", "[]");

    long long known = reply_int("usage.prompt_tokens") + 4 - 1;
    snprintf(text, sizeof text, "%s", reply_at("choices.0.message.content"));
    snprintf(messages, sizeof messages,
             "%s,{'role':'assistant','content':%s},{'role':'user','content':'And then?'}",
             conversation("Monday", "What is open?"), text);
    explain(&s, messages);
    CHECK_AT_INT("radish.cached_tokens", known);
    CHECK_AT_INT("radish.miss.position", known);
    CHECK_AT("radish.miss.reason", "'never_seen'");
    CHECK_AT("radish.miss.message", "2");
    CHECK_AT("radish.miss.role", "'assistant'");
    CHECK_AT("radish.miss.precedes_message", "");
    snprintf(want, sizeof want, "'%c<|im_end|>\n<|im_start|>user'", text[4]);
    CHECK_AT("radish.miss.prompt_text", want);
    snprintf(want, sizeof want, "'tant\n%.3s'", text + 1);
    CHECK_AT("radish.miss.before", want);
    CHECK_HAS(reply_at("radish.miss.detail"),
              "tokens were cached, up to the last one sampled for message 2 (assistant): that "
              "token is computed only when something follows it.");
    CHECK_AT("radish.replayed_tokens", "4");
    CHECK_STR(reply_field("x-radish-replayed-tokens"), "4");
    CHECK_AT("radish.replay.0.message", "2");
    CHECK_AT("radish.replay.0.tokens", "4");
    CHECK_AT("radish.replay.0.sampled", "4");
    CHECK_AT("radish.replay.0.stopped", "'complete'");
    CHECK_AT_INT("radish.replay.0.position", known + 1);
    server_await_log(&s, ", replayed 4, ");
    server_stop(&s);
}

TEST(server_cache, what_went_another_way)
{
    struct test_server s;
    static char messages[2048];
    SERVER_START(&s);
    ask_as(&s, "", conversation("Monday", "What is open?"), EXPLAIN);
    explain(&s, conversation("Tuesday", "What is open?"));
    CHECK_AT("radish.miss.reason", "'diverged'");
    CHECK_AT_INT("radish.miss.position", SYSTEM_ROLE + BEFORE_DAY);
    CHECK_AT_INT("radish.cached_tokens", SYSTEM_ROLE + BEFORE_DAY);
    CHECK_AT("radish.miss.message", "0");
    CHECK_AT("radish.miss.role", "'system'");
    CHECK_AT("radish.miss.before", "'oday is '");
    CHECK_AT("radish.miss.prompt_text", "'Tuesday,'");
    CHECK_AT("radish.miss.cached_text", "'Monday, '");
    CHECK_AT("radish.miss.detail",
             "'The first 42 tokens were cached; what follows in message 0 (system) is "
             "\"Tuesday,\", but the cache continues with \"Monday, \".'");
    snprintf(messages, sizeof messages, "%s,{'role':'system','content':'Be brief.'}",
             conversation("Monday", "What is open?"));
    explain(&s, messages);
    CHECK_AT("radish.miss.message", "null");
    CHECK_AT("radish.miss.precedes_message", "2");
    CHECK_AT("radish.miss.prompt_text", "'system\nB'");
    CHECK_AT("radish.miss.cached_text", "'assistan'");
    CHECK_HAS(reply_at("radish.miss.detail"),
              "in the template's text before message 2 (system) is");
    /* After the last message: the answer has not begun. */
    CHECK_INT(
        server_post(&s, "/v1/cache/warm",
                    body_of("{'role':'user','content':'Hi'}", "'add_generation_prompt':true")),
        200);
    CHECK_INT(server_post(&s, "/v1/cache/warm",
                          body_of("{'role':'user','content':'Hi'}", "'radish':{'explain':true}")),
              200);
    CHECK_AT("radish.miss", "null");
    explain(&s, conversation("Monday", "What is open?"));
    CHECK_AT("radish.miss", "null");
    CHECK_AT_INT("radish.computed_tokens", 1);
    /* Texts are cut inside characters, and are still valid UTF-8. */
    ask_as(&s, "", conversation("Monday", "caf\xc3\xa9 !"), EXPLAIN);
    explain(&s, conversation("Monday", "caf\xc3\xaa ?"));
    CHECK_AT("radish.miss.prompt_text", "'\xef\xbf\xbd ?<|im_end|>\n<|im_start|>as'");
    CHECK_AT("radish.miss.cached_text", "'\xef\xbf\xbd !<|im_end|>\n<|im_start|>as'");
    CHECK_INT(server_post(&s, "/v1/completions",
                          "{'prompt':'once upon','max_tokens':1,'radish':{'explain':true}}"),
              200);
    CHECK_HAS(reply_at("radish.miss.detail"), "the start of the prompt is \"once upo\", but");
    server_stop(&s);
}

TEST(server_cache, what_went_away)
{
    struct test_server s;
    static struct strbuf story;
    SERVER_START(&s, "--cache-size", "600t");
    strbuf_clear(&story);
    strbuf_addf(&story, "{'role':'user','content':'%0300d'}", 0);
    ask_as(&s, "", strbuf_str(&story), "'max_tokens':2");
    strbuf_clear(&story);
    strbuf_addf(&story, "{'role':'user','content':'x%0400d'}", 0);
    ask_as(&s, "", strbuf_str(&story), "'max_tokens':2");
    strbuf_clear(&story);
    strbuf_addf(&story, "{'role':'user','content':'%0300d'}", 0);
    explain(&s, strbuf_str(&story));
    CHECK_AT("radish.miss.reason", "'evicted'");
    CHECK_INT(reply_int("radish.miss.position"), reply_int("radish.cached_tokens"));
    CHECK(reply_int("radish.miss.gone_tokens") > 0);
    CHECK(atof(reply_at("radish.miss.gone_s")) < 20 && atof(reply_at("radish.miss.idle_s")) < 20);
    CHECK_HAS(reply_at("radish.miss.detail"), " was cached (");
    CHECK_HAS(reply_at("radish.miss.detail"), "evicted to make room ");
    CHECK_HAS(reply_at("radish.miss.detail"), " without use; a larger --cache-size would have");
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", "", NULL), 200);
    explain(&s, strbuf_str(&story));
    CHECK_AT("radish.miss.reason", "'cleared'");
    CHECK_HAS(reply_at("radish.miss.detail"), "was cleared ");
    server_stop(&s);

    SERVER_START(&s, "--cache-ttl", "1s");
    explain(&s, strbuf_str(&story));
    server_await(&s, "cache_expired", 300);
    explain(&s, strbuf_str(&story));
    CHECK_AT("radish.miss.reason", "'expired'");
    CHECK_AT("radish.miss.position", "0");
    double idle = atof(reply_at("radish.miss.idle_s"));
    CHECK(idle >= 0.9 && idle < 20);
    CHECK_HAS(reply_at("radish.miss.detail"), "was dropped ");
    CHECK_HAS(reply_at("radish.miss.detail"), "; a longer --cache-ttl would have kept it.");
    server_stop(&s);
}

/* Times are told as a person would. */
TEST(server_cache, how_long_ago_it_went_away)
{
    struct test_server s;
    SERVER_START(&s, "--cache-ttl", "0");
    explain(&s, conversation("Monday", "What?"));
    clock_skip_ns(UINT64_C(110) * 1000000000);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", "", NULL), 200);
    clock_skip_ns(UINT64_C(300) * 1000000000);
    explain(&s, conversation("Monday", "What?"));
    CHECK_HAS(reply_at("radish.miss.detail"), "was cleared 5 minutes ago, after 11");
    double gone = atof(reply_at("radish.miss.gone_s")), idle = atof(reply_at("radish.miss.idle_s"));
    CHECK(gone >= 300 && gone < 330 && idle >= 110 && idle < 120);
    clock_skip_ns(UINT64_C(7300) * 1000000000);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", "", NULL), 200);
    explain(&s, conversation("Monday", "What?"));
    CHECK_HAS(reply_at("radish.miss.detail"), " s ago, after 2 hours without use");
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", "", NULL), 200);
    clock_skip_ns(UINT64_C(7000) * 1000000000);
    explain(&s, conversation("Monday", "What?"));
    CHECK_HAS(reply_at("radish.miss.detail"), "was cleared 117 minutes ago, after ");
    server_stop(&s);
}

TEST(server_cache, what_did_without_it)
{
    struct test_server s;
    SERVER_START(&s);
    explain(&s, conversation("Monday", "What?"));
    ask_as(&s, "", conversation("Monday", "What?"), EXPLAIN ",'cache_prompt':false");
    CHECK_AT("radish.cached_tokens", "0");
    CHECK_AT("radish.miss.reason", "'disabled'");
    CHECK_AT("radish.miss.position", "0");
    CHECK_AT("radish.miss.detail", "'The request said cache_prompt: false.'");
    ask_as(&s, "", conversation("Monday", "What?"), EXPLAIN ",'replay':false");
    CHECK_AT("radish.replay", "null");
    /* A header asks for it, too. */
    const char *plain = body_of(conversation("Monday", "What?"), "'max_tokens':1");
    static const char *const yes[] = {"1", "true", "TRUE"}, *const no[] = {"0", "false", ""};
    for (int i = 0; i < 3; i++) {
        char field[64];
        snprintf(field, sizeof field, "x-radish-explain: %s\r\n", yes[i]);
        CHECK_INT(server_ask(&s, "POST", CHAT, field, plain), 200);
        CHECK_AT("radish.miss", "null");
        snprintf(field, sizeof field, "x-radish-explain: %s\r\n", no[i]);
        CHECK_INT(server_ask(&s, "POST", CHAT, field, plain), 200);
        CHECK_AT("radish", "");
    }
    /* A stream has it in a separate chunk. */
    CHECK_INT(server_post(&s, CHAT, body_of(conversation("Friday", "x"), EXPLAIN ",'stream':true")),
              200);
    CHECK_STR(event_at(-2, "radish.miss.reason"), "'diverged'");
    CHECK_STR(event_at(-2, "choices"), "[]");
    CHECK_STR(event_at(-3, "radish"), "");
    server_stop(&s);

    SERVER_START(&s, "--no-prefix-cache", "--no-token-replay", "--log-level", "debug");
    explain(&s, conversation("Monday", "SECRET"));
    explain(&s, conversation("Monday", "SECRET"));
    CHECK_AT("radish.miss.detail", "'The server runs with --no-prefix-cache.'");
    CHECK_AT("radish.replay", "null");
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(conversation("x", "y"), "'pin':1")), 501);
    CHECK_HAS(reply_at("error.message"), "--no-prefix-cache");
    server_stop(&s);
}

TEST(server_cache, a_debug_log_explains_without_texts)
{
    struct test_server s;
    SERVER_START(&s, "--log-level", "debug");
    ask_as(&s, "", conversation("Monday", "SECRET"), "'max_tokens':2");
    CHECK_AT("radish", "");
    ask_as(&s, "", conversation("Tuesday", "SECRET"), "'max_tokens':2");
    ask_as(&s, "", conversation("Tuesday", "SECRET"), "'max_tokens':2");
    server_settle(&s);
    CHECK_HAS(server_log(&s), ", cached 0, shared 0, replayed 0; then never_seen, in the "
                              "template's text before message 0 (system)\n");
    CHECK_HAS(server_log(&s), ", cached 42, shared 0, replayed 0; then diverged, in "
                              "message 0 (system)\n");
    CHECK_HAS(server_log(&s), ", shared 0, replayed 0\n");
    CHECK(!strstr(server_log(&s), "SECRET") && !strstr(server_log(&s), "Tuesday"));
    server_stop(&s);
}

/* ---- tenants ---- */

#define KEYS "--api-key", "acme:k1", "--api-key", "rival:k2", "--admin-key", "k3"

TEST(server_cache, tenants_share_nothing)
{
    struct test_server s;
    SERVER_START(&s, KEYS);
    ask_as(&s, "k1", conversation("Monday", "What?"), EXPLAIN);
    long long known = reply_int("usage.prompt_tokens");
    ask_as(&s, "k2", conversation("Monday", "What?"), EXPLAIN);
    CHECK_AT("radish.miss.reason", "'never_seen'");
    CHECK(!strstr(reply_at("radish"), "acme"));
    ask_as(&s, "k3", conversation("Monday", "What? Where?"), EXPLAIN);
    CHECK_AT("radish.miss.reason", "'namespace'");
    const char *who = reply_at("radish.miss.tenant");
    CHECK(strcmp(who, "'acme'") == 0 || strcmp(who, "'rival'") == 0);
    CHECK(reply_int("radish.miss.tenant_tokens") > 50);
    CHECK(reply_int("radish.miss.tenant_tokens") < known);
    CHECK_HAS(reply_at("radish.miss.detail"), "', but tenants do not share their caches.");
    CHECK_HAS(reply_at("radish.miss.detail"), " is cached for tenant '");
    ask_as(&s, "k1", conversation("Monday", "What?"), EXPLAIN);
    CHECK_AT_INT("radish.computed_tokens", 1);
    ask_as(&s, "k1", conversation("Tuesday", "What?"), EXPLAIN);
    CHECK_AT("radish.miss.cached_text", "'Monday, '");
    /* Nor do they meet each other's answers. */
    ask_as(&s, "k1", "{'role':'user','content':'a'}", "'max_tokens':3,'regex':'abc'");
    const char *turn = "{'role':'user','content':'a'},{'role':'assistant','content':'abc'},"
                       "{'role':'user','content':'b'}";
    ask_as(&s, "k2", turn, "'max_tokens':1");
    CHECK(!reply_field("x-radish-replayed-tokens"));
    ask_as(&s, "k1", turn, "'max_tokens':1");
    CHECK_STR(reply_field("x-radish-replayed-tokens"), "3");

    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache?tenant=acme", "x-api-key: k3\r\n", NULL), 200);
    CHECK_AT("object", "'cache.cleared'");
    CHECK(reply_int("cleared_tokens") > known);
    CHECK_INT(reply_int("cleared_bytes"), 8 * reply_int("cleared_tokens"));
    ask_as(&s, "k1", turn, "'max_tokens':1");
    CHECK(!reply_field("x-radish-replayed-tokens"));
    ask_as(&s, "k2", conversation("Monday", "What?"), EXPLAIN);
    CHECK_AT_INT("radish.computed_tokens", 1);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache?tenant=nobody", "x-api-key: k3\r\n", NULL), 404);
    CHECK_AT("error.param", "'tenant'");
    CHECK_HAS(reply_at("error.message"), "no tenant 'nobody'");
    server_stop(&s);
}

TEST(server_cache, a_shared_cache_is_everyones)
{
    struct test_server s;
    SERVER_START(&s, KEYS, "--share-cache");
    ask_as(&s, "k1", conversation("Monday", "What?"), EXPLAIN);
    ask_as(&s, "k2", conversation("Monday", "What?"), EXPLAIN);
    CHECK_AT_INT("radish.computed_tokens", 1);
    ask_as(&s, "k2", conversation("Tuesday", "What?"), EXPLAIN);
    CHECK_AT("radish.miss.reason", "'diverged'");
    CHECK_AT("radish.miss.cached_text", "");
    CHECK_HAS(reply_at("radish.miss.detail"), "continues with something else.");
    ask_as(&s, "k3", conversation("Friday", "What?"), EXPLAIN);
    CHECK(strlen(reply_at("radish.miss.cached_text")) > 2);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache?tenant=acme", "x-api-key: k3\r\n", NULL), 400);
    CHECK_HAS(reply_at("error.message"), "with --share-cache, tenants share one cache");
    server_stop(&s);
}

TEST(server_cache, a_shared_prompt_is_computed_once)
{
    struct test_server s;
    char path[4200];
    snprintf(path, sizeof path, "%s/shared.txt", test_scratch_dir());
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, SYSTEM "\n", "Monday");
    fclose(file);
    SERVER_START(&s, KEYS, "--shared-prompt", path);
    /* The prompt's text and the roles around it, up to where the question begins. */
    const int n_shared = SYSTEM_ROLE + (int)sizeof SYSTEM - 3 + 6 + 2 + USER_ROLE;
    ask_as(&s, "k1", conversation("Monday", "A private matter."), EXPLAIN);
    ask_as(&s, "k2", conversation("Monday", "A private matter."), EXPLAIN);
    CHECK_AT_INT("radish.cached_tokens", n_shared);
    CHECK_AT("radish.miss.reason", "'never_seen'");
    CHECK_AT("radish.miss.cached_text", "");
    ask_as(&s, "k1", conversation("Monday", "A public matter."), EXPLAIN);
    CHECK_AT("radish.miss.reason", "'diverged'");
    CHECK_AT("radish.miss.cached_text", "'rivate m'");
    ask_as(&s, "k3", conversation("Monday", "A private matter."), EXPLAIN);
    CHECK_AT("radish.miss.reason", "'namespace'");
    CHECK_AT("radish.miss.tenant_tokens", "null");
    ask_as(&s, "k2", "{'role':'user','content':'mine'}", "'max_tokens':1");
    /* Clearing a tenant also clears the shared prompts and everything that follows them. */
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache?tenant=acme", "x-api-key: k3\r\n", NULL), 200);
    CHECK(reply_int("cleared_tokens") > n_shared);
    ask_as(&s, "k2", conversation("Monday", "A private matter."), EXPLAIN);
    CHECK_AT("radish.cached_tokens", "0");
    ask_as(&s, "k2", "{'role':'user','content':'mine'}", "'max_tokens':1");
    CHECK(reply_int("usage.prompt_tokens_details.cached_tokens") > 4);
    server_stop(&s);
}

TEST(server_cache, a_tenant_has_a_cap)
{
    struct test_server s;
    static const char *const words[] = {"plum", "pear", "fig", "plum"};
    SERVER_START(&s, KEYS, "--tenant-cache-size", "200t");
    for (int i = 0; i < 4; i++) {
        char question[256] = "";
        while (strlen(question) < 130)
            strcat(question, words[i]);
        ask_as(&s, "k1", conversation("Monday", question) + 0, EXPLAIN);
    }
    CHECK_AT("radish.miss.reason", "'evicted'");
    CHECK_HAS(reply_at("radish.miss.detail"),
              "a larger --cache-size or --tenant-cache-size would have kept it.");
    server_stop(&s);
}

/* ---- entries, the tree, clearing ---- */

TEST(server_cache, the_operator_may_look_into_it)
{
    struct test_server s;
    SERVER_START(&s, "--cache-size", "4000t");
    ask_as(&s, "", "{'role':'user','content':'The quick brown fox'}", "'max_tokens':4");
    ask_as(&s, "", "{'role':'user','content':'The slow one'}", "'max_tokens':4");
    server_settle(&s);
    CHECK_INT(server_get(&s, "/v1/cache"), 200);
    CHECK_AT("object", "'cache'");
    CHECK_AT_INT("budget.tokens", 4000);
    CHECK_AT_INT("budget.bytes", 32000);
    CHECK_AT_INT("misses", 1);
    CHECK_AT_INT("entries", 2);
    CHECK_AT("data.0.model", "'mock'");
    CHECK_AT("data.0.tenant", "null");
    CHECK(reply_int("data.0.created") > 1600000000 && atof(reply_at("data.0.idle_s")) < 20);
    CHECK_AT("data.2", "");
    CHECK_AT("next", "null");
    CHECK_INT(server_get(&s, "/v1/cache?limit=1"), 200);
    CHECK_AT("data.1", "");
    char next[64], path[96];
    snprintf(next, sizeof next, "%s", reply_at("next") + 1);
    next[strlen(next) - 1] = '\0';
    snprintf(path, sizeof path, "/v1/cache?limit=1&after=%s", next);
    char first[32];
    snprintf(first, sizeof first, "%s", reply_at("data.0.id"));
    CHECK_INT(server_get(&s, path), 200);
    CHECK(strcmp(reply_at("data.0.id"), first) != 0);
    CHECK_INT(server_ask(&s, "HEAD", "/v1/cache", "", NULL), 200);
    CHECK(atoi(reply_field("content-length")) > 100);
    CHECK_INT(server_get(&s, "/v1/cache?limit=0"), 400);
    CHECK_AT("error.param", "'limit'");
    CHECK_INT(server_get(&s, "/v1/cache?depth=1"), 400);
    CHECK_INT(server_get(&s, "/v1/cache?limit=201"), 400);

    CHECK_INT(server_get(&s, "/v1/cache/tree"), 200);
    CHECK_AT("object", "'cache.tree'");
    CHECK_AT("truncated", "false");
    CHECK_AT_INT("data.0.n_children", 1);
    CHECK_AT_INT("data.0.children.0.n_children", 2);
    CHECK(*reply_at("data.0.children.0.children.1"));
    CHECK_INT(server_get(&s, "/v1/cache/tree?depth=1"), 200);
    CHECK_AT("data.0.children.0.children", "[]");
    CHECK_AT("data.0.children.0.window_tokens", "");
    CHECK_INT(server_get(&s, "/v1/cache/tree?limit=3"), 200);
    CHECK_AT("truncated", "true");
    CHECK_INT(server_get(&s, "/v1/cache/tree?depth=33"), 400);
    CHECK_AT("error.param", "'depth'");

    CHECK_INT(server_get(&s, "/stats"), 200);
    long long held = reply_int("pages_cached");
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache?tenants=a", "", NULL), 400);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", "", NULL), 200);
    CHECK_AT_INT("cleared_tokens", held);
    CHECK_AT_INT("cleared_bytes", 8 * held);
    CHECK_INT(server_get(&s, "/v1/cache"), 200);
    CHECK_AT_INT("used.tokens", 0);
    CHECK_AT_INT("cleared.tokens", held);
    server_stop(&s);
}

/* A message of that many letters, the first `n_same` of which all messages share. */
static const char *letters(uint32_t n, uint32_t n_same, char other)
{
    static struct strbuf message;
    strbuf_clear(&message);
    strbuf_adds(&message, "{'role':'user','content':'");
    for (uint32_t i = 0; i < n; i++)
        strbuf_addc(&message, i < n_same ? (char)('a' + i % 26) : other);
    strbuf_adds(&message, "'}");
    return strbuf_str(&message);
}

/* The tokens are cached, but not what layers with a window need to resume after them. */
TEST(server_cache, what_lost_its_window)
{
    struct test_server s;
    SERVER_START(&s, "--mock-window", "16", "--cache-size", "3000t", "--max-seqs", "1");
    explain(&s, letters(600, 600, 0));
    for (char other = '0'; other < '4'; other++)
        explain(&s, letters(300, 0, other));
    explain(&s, letters(303, 300, 'X'));
    CHECK_AT("radish.miss.reason", "'window'");
    CHECK_AT_INT("radish.miss.position", USER_ROLE);
    CHECK_AT("radish.miss.gone_tokens", "");
    CHECK_AT("radish.miss.detail",
             "'The first 6 tokens were cached; what follows in message 0 (user) is cached (300 "
             "tokens of it), but not what layers with a window need to continue there: that was "
             "evicted; a larger --cache-size would have kept it.'");
    CHECK_INT(server_get(&s, "/v1/cache/tree"), 200);
    CHECK(*reply_at("data.0.children.0.window_tokens"));
    server_stop(&s);
}

TEST(server_cache, windows_count_in_what_is_cleared)
{
    struct test_server s;
    SERVER_START(&s, "--mock-window", "16", "--cache-size", "2000t");
    ask_as(&s, "", conversation("Monday", "What?"), "'max_tokens':4");
    server_settle(&s);
    long long held = reply_int("pages_cached"), windows = reply_int("window_pages_cached");
    CHECK(held > 100 && windows > 0);
    CHECK_INT(server_ask(&s, "DELETE", "/v1/cache", "", NULL), 200);
    CHECK_AT_INT("cleared_bytes", 8 * (held + windows));
    CHECK_HAS(server_log(&s), "bytes for windows of 16)");
    server_stop(&s);
}

TEST(server_cache, who_asks_and_goes_leaves_nothing)
{
    struct test_server s;
    SERVER_START(&s, "--mock-batch-cost-us", "50000");
    int chat = server_begin_chat(&s, "{'role':'user','content':'slow'}",
                                 "'max_tokens':1000,'ignore_eos':true");
    server_await(&s, "running", 1);
    int waiting = server_connect(&s);
    for (int i = 0; i < 9; i++) {
        int fd = server_connect(&s);
        server_send(fd, i % 3 == 0   ? "GET /v1/cache HTTP/1.1\r\nHost: localhost\r\n\r\n"
                        : i % 3 == 1 ? "GET /v1/cache/tree HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                     : "DELETE /v1/cache HTTP/1.1\r\nHost: localhost\r\n\r\n");
        close(fd);
    }
    server_send(waiting, "GET /v1/cache HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_INT(server_read_reply(waiting, true), 200);
    CHECK_AT("object", "'cache'");
    close(waiting);
    /* A query that is open at the end is not answered, but freed. */
    int late = server_connect(&s);
    server_send(late, "GET /v1/cache HTTP/1.1\r\nHost: localhost\r\n\r\n");
    server_signal(&s, SIGTERM);
    server_await_log(&s, "stopping");
    server_signal(&s, SIGTERM);
    server_await_log(&s, "stopping at once");
    server_wait(&s);
    close(late);
    close(chat);
}

/* So many may ask at once. */
TEST(server_cache, too_many_questions_are_told_to_come_again)
{
    enum { N = 60 };
    struct test_server s;
    int fds[N], n_busy = 0;
    SERVER_START(&s, "--mock-batch-cost-us", "100000");
    int chat = server_begin_chat(&s, "{'role':'user','content':'slow'}", "'ignore_eos':true");
    server_await(&s, "running", 1);
    for (int i = 0; i < N; i++) {
        fds[i] = server_connect(&s);
        server_send(fds[i], "GET /v1/cache HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (int i = 0; i < N; i++) {
        int status = server_read_reply(fds[i], true);
        if (status == 503) {
            n_busy++;
            CHECK_STR(reply_field("retry-after"), "1");
            CHECK_HAS(reply_at("error.message"), "too many requests about the cache at once");
        } else {
            CHECK_INT(status, 200);
            CHECK_AT("object", "'cache'");
        }
        close(fds[i]);
    }
    CHECK(n_busy > 0 && n_busy < N);
    close(chat);
    server_settle(&s);
    server_stop(&s);
}

/* ---- warming ---- */

TEST(server_cache, warming)
{
    struct test_server s;
    const char *hi = "{'role':'user','content':'Hi'}";
    SERVER_START(&s);
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(hi, "'max_tokens':9,'n':1")), 200);
    CHECK_AT("object", "'cache.warm'");
    CHECK(strncmp(reply_at("id"), "'warm-", 6) == 0);
    CHECK_AT("model", "'mock'");
    CHECK(reply_int("created") > 1600000000);
    CHECK_AT_INT("prompt_tokens", 10);
    CHECK_AT_INT("cached_tokens", 0);
    CHECK_AT_INT("computed_tokens", 10);
    CHECK_AT("pinned", "false");
    CHECK_AT("pinned_s", "0.0");
    CHECK_AT("reason", "");
    CHECK_AT("radish", "");
    server_settle(&s);
    CHECK_AT_INT("generated_tokens", 0);
    ask_as(&s, "", hi, "'max_tokens':1");
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 10);
    CHECK_INT(server_post(&s, "/v1/cache/warm",
                          body_of(hi, "'add_generation_prompt':true,'radish':{'explain':true}")),
              200);
    CHECK_AT_INT("prompt_tokens", 21);
    CHECK_AT_INT("cached_tokens", 20);
    CHECK_AT("radish.miss", "null");
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(hi, "'pin':600")), 200);
    CHECK_AT("pinned", "true");
    CHECK_AT("pinned_s", "600.0");
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(hi, "'pin':0.0126")), 200);
    CHECK_AT("pinned_s", "0.013");
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(hi, "'stream':true")), 400);
    CHECK_AT("error.param", "'stream'");
    server_stop(&s);
    SERVER_START(&s, "--cache-size", "100t", "-c", "90");
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(hi, "'pin':600")), 200);
    CHECK_AT("pinned", "true");
    char messages[128];
    snprintf(messages, sizeof messages, "{'role':'user','content':'%060d'}", 0);
    CHECK_INT(server_post(&s, "/v1/cache/warm", body_of(messages, "'pin':600")), 200);
    CHECK_AT("pinned", "false");
    CHECK_AT("pinned_s", "0.0");
    CHECK_HAS(reply_at("reason"), "is pinned already; the prompt is cached");
    server_stop(&s);
}

TEST(server_cache, requests_share_what_is_being_computed)
{
    struct test_server s;
    SERVER_START(&s, "--mock-batch-cost-us", "20000");
    const char *messages = conversation("Monday", "Read this.");
    int first = server_begin_chat(&s, messages, EXPLAIN), second = -1;
    server_await(&s, "running", 1);
    second = server_begin_chat(&s, messages, EXPLAIN);
    CHECK_INT(server_read_reply(first, true), 200);
    CHECK_AT("radish.miss.reason", "'never_seen'");
    CHECK_AT("radish.shared_tokens", "0");
    CHECK_INT(server_read_reply(second, true), 200);
    CHECK_AT("radish.miss", "null");
    CHECK(reply_int("radish.cached_tokens") > 100);
    close(first);
    close(second);
    server_stop(&s);
}
