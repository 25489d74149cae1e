/* The server when any one allocation fails: the request succeeds or ends with an error that says
 * so, and later ones are served. */
#include <unistd.h>

#include "server_fixture.h"
#include "test.h"
#include "test_memory.h"

#define HI "'messages':[{'role':'user','content':'Hi'}],'seed':1"
#define TOOLS                                                                                      \
    "'tools':[{'type':'function','function':{'name':'f','parameters':{'type':'object',"            \
    "'properties':{},'additionalProperties':false}}},{'type':'function','function':{'name':'g'}}]"

/* A whole reply, without the random ids of calls. */
static void answer_get(struct strbuf *out)
{
    static const char *const members[] = {"choices", "content", "tokens", "prompt"};
    strbuf_clear(out);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        strbuf_adds(out, reply_at(members[i]));
    char *id = out->data;
    while (id && (id = strstr(id, "call_"))) {
        size_t len = strcspn(id, "\"");
        memset(id, '_', len);
    }
}

/* Asks with the first, the second, the third ... allocation failing, until there are no more. If an
 * answer still comes, it is the same as with enough memory. */
static void check(const struct test_server *s, const char *method, const char *path,
                  const char *body)
{
    static struct strbuf want, got;
    CHECK_INT(server_ask(s, method, path, "", body), 200);
    answer_get(&want);
    for (uint32_t n = 1;; n++) {
        memory_fails_once(n);
        int status = server_ask(s, method, path, "", body);
        bool has_failed = memory_has_failed();
        memory_fails_once(0);
        if (!has_failed) {
            CHECK_INT(status, 200);
            break;
        }
        if (status == 200) {
            answer_get(&got);
            CHECK_STR(strbuf_str(&got), strbuf_str(&want));
        }
        if (status != 0 && status != 200 && status != 413 && status != 503 && status != 500)
            test_fail(__FILE__, __LINE__, "%s %s, allocation %u: %d %s", path, body, n, status,
                      reply_body());
        if (status >= 400 && *reply_body())
            CHECK(strstr(reply_at("error.message"), "memory") ||
                  strstr(reply_at("error.message"), "try again soon"));
        CHECK_INT(server_get(s, "/health"), 200);
    }
    server_settle(s);
    CHECK_INT(server_ask(s, method, path, "", body), 200);
}

static void check_request(const struct test_server *s, const char *path, const char *body)
{
    check(s, "POST", path, body);
}

TEST(server_memory, answers)
{
    struct test_server s;
    SERVER_START(&s);
    check_request(&s, "/v1/chat/completions",
                  "{" HI ",'max_tokens':3,'ignore_eos':true,'stop':['never'],'wizard':1,"
                  "'logit_bias':{'120':1},'dry_multiplier':1,'radish':{'explain':true}}");
    check_request(&s, "/v1/chat/completions",
                  "{" HI ",'max_tokens':3,'ignore_eos':true,'n':2,'logprobs':true,"
                  "'top_logprobs':2}");
    check_request(&s, "/v1/chat/completions",
                  "{" HI ",'max_tokens':3,'ignore_eos':true,'stream':true,'stream_options':"
                  "{'include_usage':true},'radish':{'explain':true}}");
    check_request(
        &s, "/v1/completions",
        "{'prompt':['one',[116,119,111]],'seed':1,'echo':true,'logprobs':1,'max_tokens':2}");
    server_stop(&s);
}

TEST(server_memory, forms_and_calls)
{
    struct test_server s;
    SERVER_START(&s);
    check_request(&s, "/v1/chat/completions", "{" HI ",'guided_choice':['a','bc']}");
    check_request(&s, "/v1/chat/completions",
                  "{" HI "," TOOLS ",'max_tokens':60,'tool_choice':{'type':'allowed_tools',"
                  "'allowed_tools':{'mode':'required','tools':[{'type':'function','function':"
                  "{'name':'g'}}]}}}");
    server_stop(&s);
}

TEST(server_memory, texts_and_the_cache)
{
    struct test_server s;
    SERVER_START(&s);
    check_request(&s, "/tokenize", "{'content':'abc','with_pieces':true}");
    check_request(&s, "/detokenize", "{'tokens':[97,98,99]}");
    check_request(&s, "/apply-template", "{" HI ",'add_generation_prompt':false}");
    check_request(&s, "/v1/cache/warm", "{" HI ",'pin':1}");
    check(&s, "GET", "/v1/cache?limit=3", NULL);
    check(&s, "GET", "/v1/cache/tree", NULL);
    check(&s, "DELETE", "/v1/cache", NULL);
    check(&s, "GET", "/v1/models", NULL);
    check(&s, "GET", "/v1/models/mock", NULL);
    check(&s, "GET", "/stats", NULL);
    server_stop(&s);
}
