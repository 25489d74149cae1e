/* Answers of the server: whole and streamed, several at once, their counts, where they end, and how
 * they fail. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "server_fixture.h"
#include "test.h"
#include "test_memory.h"

#define HI   "{'role':'user','content':'Hi'}"
#define CHAT "/v1/chat/completions"

/* "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" */
enum { HI_TOKENS = 1 + 5 + 2 + 2 + 1 + 10 };

static char *copied(const char *text)
{
    static char copies[8][4096];
    static int last;
    last = (last + 1) % 8;
    snprintf(copies[last], sizeof copies[last], "%s", text);
    return copies[last];
}

/* A string without the ' around it. */
static char *bare(const char *shown)
{
    char *text = copied(shown + 1);
    text[strlen(text) - 1] = '\0';
    return text;
}

TEST(server_chat, a_whole_answer)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':12,'seed':1,'ignore_eos':true"), 200);
    CHECK_AT("object", "'chat.completion'");
    CHECK_AT("model", "'mock'");
    CHECK_AT("system_fingerprint", "'mock/none/radish-" RADISH_VERSION "'");
    CHECK(strncmp(reply_at("id"), "'chatcmpl-", 10) == 0);
    CHECK_INT(strlen(reply_at("id")), 10 + 24 + 1);
    CHECK_STR(strchr(reply_field("x-request-id"), '-'), strchr(bare(reply_at("id")), '-'));
    CHECK(reply_int("created") > 1600000000);
    CHECK_AT("choices.0.index", "0");
    CHECK_AT("choices.0.message.role", "'assistant'");
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 12 + 2);
    CHECK_AT("choices.0.finish_reason", "'length'");
    CHECK_AT("choices.1", "");
    CHECK_AT_INT("usage.prompt_tokens", HI_TOKENS);
    CHECK_AT_INT("usage.completion_tokens", 12);
    CHECK_AT_INT("usage.total_tokens", HI_TOKENS + 12);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 0);
    CHECK_AT("radish", "");
    const char *id = copied(reply_at("id")), *text = copied(reply_at("choices.0.message.content"));
    CHECK_INT(server_chat(&s, HI, "'max_tokens':12,'seed':1,'ignore_eos':true"), 200);
    CHECK(strcmp(reply_at("id"), id) != 0);
    CHECK_AT("choices.0.message.content", text);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", HI_TOKENS - 1);
    CHECK_INT(server_post(&s, "/chat/completions",
                          "{'messages':[" HI "],'max_tokens':12,'seed':1,'cache_prompt':false,"
                          "'ignore_eos':true}"),
              200);
    CHECK_AT("choices.0.message.content", text);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 0);
    server_stop(&s);
}

TEST(server_chat, a_stream_is_the_whole_answer_in_pieces)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':20,'seed':1,'ignore_eos':true"), 200);
    const char *text = bare(reply_at("choices.0.message.content"));
    const char *stream = "'max_tokens':20,'seed':1,'ignore_eos':true,'stream':true";
    CHECK_INT(server_chat(&s, HI, stream), 200);
    CHECK_STR(reply_field("content-type"), "text/event-stream; charset=utf-8");
    CHECK_STR(reply_field("cache-control"), "no-cache");
    CHECK_STR(reply_field("x-accel-buffering"), "no");
    CHECK_STR(events_joined("choices.0.delta.content"), text);
    CHECK(reply_events() > 5);
    CHECK_STR(event_at(0, "object"), "'chat.completion.chunk'");
    CHECK_STR(event_at(0, "choices.0.delta.role"), "'assistant'");
    CHECK_STR(event_at(0, "id"), event_at(-2, "id"));
    CHECK_STR(strchr(bare(event_at(0, "id")), '-'), strchr(reply_field("x-request-id"), '-'));
    CHECK_STR(event_at(0, "model"), "'mock'");
    CHECK_STR(event_at(0, "system_fingerprint"), "'mock/none/radish-" RADISH_VERSION "'");
    CHECK_STR(event_at(-3, "choices.0.finish_reason"), "null");
    CHECK_STR(event_at(-2, "choices.0.finish_reason"), "'length'");
    CHECK_STR(event_at(-2, "usage"), "");
    CHECK_STR(event_at(-1, ""), "[DONE]");

    CHECK_INT(server_chat(&s, HI,
                          "'max_tokens':20,'seed':1,'ignore_eos':true,'stream':true,"
                          "'stream_options':{'include_usage':true}"),
              200);
    CHECK_STR(event_at(0, "usage"), "null");
    CHECK_STR(event_at(-2, "choices"), "[]");
    CHECK_STR(event_at(-2, "usage.completion_tokens"), "20");
    CHECK_STR(event_at(-2, "usage.prompt_tokens_details.cached_tokens"), "20");
    CHECK_STR(event_at(-3, "choices.0.finish_reason"), "'length'");
    server_stop(&s);
}

TEST(server_chat, several_choices)
{
    struct test_server s;
    char path[64];
    SERVER_START(&s);
    const char *more = "'n':3,'max_tokens':9,'temperature':1.5,'seed':4,'ignore_eos':true";
    CHECK_INT(server_chat(&s, HI, more), 200);
    char texts[3][16];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "choices.%d.message.content", i);
        snprintf(texts[i], sizeof texts[i], "%s", bare(reply_at(path)));
        CHECK_INT(strlen(texts[i]), 9);
        snprintf(path, sizeof path, "choices.%d.index", i);
        CHECK_INT(reply_int(path), i);
    }
    CHECK(strcmp(texts[0], texts[1]) != 0 && strcmp(texts[1], texts[2]) != 0);
    CHECK_AT("choices.3", "");
    CHECK_AT_INT("usage.prompt_tokens", HI_TOKENS);
    CHECK_AT_INT("usage.completion_tokens", 27);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 0);
    /* The first is the same as when requested alone. */
    CHECK_INT(server_chat(&s, HI, "'max_tokens':9,'temperature':1.5,'seed':4,'ignore_eos':true"),
              200);
    CHECK_STR(bare(reply_at("choices.0.message.content")), texts[0]);
    CHECK_INT(server_chat(&s, HI,
                          "'n':3,'max_tokens':9,'temperature':1.5,'seed':4,'ignore_eos':true,"
                          "'stream':true"),
              200);
    char streamed[3][16] = {"", "", ""};
    int n_roles = 0, n_ends = 0;
    for (int i = 0; i + 1 < (int)reply_events(); i++) {
        int index = atoi(event_at(i, "choices.0.index"));
        const char *content = event_at(i, "choices.0.delta.content");
        n_roles += strcmp(event_at(i, "choices.0.delta.role"), "'assistant'") == 0;
        n_ends += strcmp(event_at(i, "choices.0.finish_reason"), "'length'") == 0;
        if (*content == '\'')
            strcat(streamed[index], bare(content));
    }
    for (int i = 0; i < 3; i++)
        CHECK_STR(streamed[i], texts[i]);
    CHECK_INT(n_roles, 3);
    CHECK_INT(n_ends, 3);
    server_stop(&s);
}

TEST(server_chat, seeds_decide)
{
    struct test_server s;
    SERVER_START(&s);
    const char *more = "'max_tokens':30,'temperature':1.5,'seed':-1";
    CHECK_INT(server_chat(&s, HI, more), 200);
    const char *first = copied(reply_at("choices.0.message.content"));
    CHECK_INT(server_chat(&s, HI, more), 200);
    CHECK(strcmp(reply_at("choices.0.message.content"), first) != 0);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':30,'temperature':1.5,'seed':7"), 200);
    first = copied(reply_at("choices.0.message.content"));
    CHECK_INT(server_chat(&s, HI, "'max_tokens':30,'temperature':1.5,'seed':7"), 200);
    CHECK_AT("choices.0.message.content", first);
    server_stop(&s);
}

TEST(server_chat, stops_and_biases_are_the_requests_own)
{
    struct test_server s;
    SERVER_START(&s);
    /* 120 is x: the text consists of x only, apart from where it is cut. */
    CHECK_INT(server_chat(&s, HI, "'max_tokens':5,'logit_bias':{'120':100},'ignore_eos':true"),
              200);
    CHECK_AT("choices.0.message.content", "'xxxxx'");
    CHECK_INT(server_chat(&s, HI,
                          "'max_tokens':9,'logit_bias':{'120':100},'ignore_eos':true,"
                          "'stop':['never','xxx']"),
              200);
    CHECK_AT("choices.0.message.content", "''");
    CHECK_AT("choices.0.finish_reason", "'stop'");
    CHECK_AT_INT("usage.completion_tokens", 3);
    CHECK_INT(server_chat(&s, HI,
                          "'max_tokens':4,'logit_bias':{'120':100,'121':-100},'ignore_eos':true,"
                          "'stop':'xxxxx'"),
              200);
    CHECK_AT("choices.0.message.content", "'xxxx'");
    CHECK_AT("choices.0.finish_reason", "'length'");
    /* The end token, 257 or so, is forced; then an answer has at least as many as were asked for.
     */
    CHECK_INT(server_post(&s, "/tokenize", "{'content':'<|im_end|>'}"), 200);
    long long end = reply_int("tokens.0");
    char more[128];
    snprintf(more, sizeof more, "'max_tokens':9,'logit_bias':{'%lld':100}", end);
    CHECK_INT(server_chat(&s, HI, more), 200);
    CHECK_AT("choices.0.finish_reason", "'stop'");
    CHECK_AT("choices.0.message.content", "''");
    snprintf(more, sizeof more, "'max_tokens':9,'min_tokens':4,'logit_bias':{'%lld':100}", end);
    CHECK_INT(server_chat(&s, HI, more), 200);
    CHECK_AT("choices.0.finish_reason", "'stop'");
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 4 + 2);
    /* A bias that excludes everything is the request's error. */
    static struct strbuf all;
    strbuf_clear(&all);
    strbuf_adds(&all, "'max_tokens':3,'logit_bias':{'0':-100");
    for (int i = 1; i < 259; i++)
        strbuf_addf(&all, ",'%d':-100", i);
    strbuf_adds(&all, "}");
    CHECK_INT(server_chat(&s, HI, strbuf_str(&all)), 400);
    CHECK_AT("error.param", "'logit_bias'");
    server_stop(&s);
}

TEST(server_chat, log_probabilities)
{
    struct test_server s;
    char path[64];
    SERVER_START(&s);
    CHECK_INT(server_chat(&s, HI,
                          "'max_tokens':6,'temperature':0,'logprobs':true,'top_logprobs':2,"
                          "'ignore_eos':true"),
              200);
    const char *text = bare(reply_at("choices.0.message.content"));
    for (int i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "choices.0.logprobs.content.%d.token", i);
        CHECK_INT(reply_at(path)[1], text[i]);
        const char *token = copied(reply_at(path));
        snprintf(path, sizeof path, "choices.0.logprobs.content.%d.top_logprobs.0.token", i);
        CHECK_AT(path, token);
        snprintf(path, sizeof path, "choices.0.logprobs.content.%d.top_logprobs.2", i);
        CHECK_AT(path, "");
    }
    CHECK_AT("choices.0.logprobs.content.6", "");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':2,'temperature':0,'logprobs':true"), 200);
    CHECK_AT("choices.0.logprobs.content.0.top_logprobs", "[]");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':2,'temperature':0"), 200);
    CHECK_AT("choices.0.logprobs", "null");
    server_stop(&s);
}

TEST(server_chat, unknown_fields_are_named)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'wizard':1,'spell':2"), 200);
    CHECK_STR(reply_field("x-radish-ignored"), "wizard, spell");
    server_await_log(&s, "127.0.0.1 sends unknown fields, which are ignored: wizard, spell");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'wizard':1,'spell':2"), 200);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'other':1"), 200);
    CHECK_STR(reply_field("x-radish-ignored"), "other");
    CHECK_INT(server_ask(&s, "POST", CHAT, "User-Agent: x\r\n",
                         "{'messages':[" HI "],'max_tokens':1,'other':1}"),
              200);
    server_settle(&s);
    /* Once for each client and set of fields. */
    int n = 0;
    for (const char *at = server_log(&s); (at = strstr(at, "sends unknown fields")); at++)
        n++;
    CHECK_INT(n, 3);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1"), 200);
    CHECK(!reply_field("x-radish-ignored"));
    server_stop(&s);
    SERVER_START(&s, "--strict-fields");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'wizard':1"), 400);
    CHECK_AT("error.param", "'wizard'");
    server_stop(&s);
}

TEST(server_chat, the_models_name)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'model':'other'"), 200);
    server_stop(&s);
    SERVER_START(&s, "--strict-model");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'model':'other'"), 404);
    CHECK_AT("error.code", "'model_not_found'");
    CHECK_AT("error.param", "'model'");
    CHECK_HAS(reply_at("error.message"), "model 'other' not found; this server has only 'mock'");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1,'model':'mock'"), 200);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1"), 200);
    server_stop(&s);
}

TEST(server_chat, the_context_bounds_prompt_and_answer)
{
    struct test_server s;
    static struct strbuf long_one;
    SERVER_START(&s, "-c", "60");
    CHECK_INT(server_chat(&s, HI, "'ignore_eos':true"), 200);
    CHECK_AT_INT("usage.total_tokens", 60);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1000000,'ignore_eos':true"), 200);
    CHECK_AT_INT("usage.total_tokens", 60);
    CHECK_AT("choices.0.finish_reason", "'length'");
    /* The longest prompt that leaves room for one token of an answer, and one longer. */
    for (int extra = 0; extra < 2; extra++) {
        strbuf_clear(&long_one);
        strbuf_addf(&long_one, "{'role':'user','content':'%0*d'}", 60 - HI_TOKENS + 2 - 1 + extra,
                    0);
        CHECK_INT(server_chat(&s, strbuf_str(&long_one), ""), extra ? 400 : 200);
    }
    CHECK_AT("error.code", "'context_length_exceeded'");
    CHECK_AT("error.param", "'messages'");
    CHECK_HAS(reply_at("error.message"),
              "maximum context length is 60 tokens. However, your messages resulted in 60 tokens. "
              "Please reduce their length, or start the server with a larger -c.");
    /* A prompt that cannot fit is rejected before it is tokenised. The longest token is
     * <|endoftext|>. */
    strbuf_clear(&long_one);
    strbuf_addf(&long_one, "{'role':'user','content':'%0*d'}", 13 * 61, 0);
    CHECK_INT(server_chat(&s, strbuf_str(&long_one), ""), 400);
    CHECK_HAS(reply_at("error.message"), "resulted in at least 61 tokens.");
    strbuf_adds(&long_one, ",{'role':'user','content':'x'}");
    CHECK_INT(server_chat(&s, strbuf_str(&long_one), ""), 400);
    CHECK_HAS(reply_at("error.message"), "resulted in at least 61 tokens.");
    strbuf_clear(&long_one);
    strbuf_addf(&long_one, "{'prompt':'%0*d'}", 13 * 60, 0);
    CHECK_INT(server_post(&s, "/v1/completions", strbuf_str(&long_one)), 400);
    CHECK_HAS(reply_at("error.message"), "your prompt resulted in 780 tokens.");
    strbuf_clear(&long_one);
    strbuf_addf(&long_one, "{'prompt':'%0*d'}", 60, 0);
    CHECK_INT(server_post(&s, "/v1/completions", strbuf_str(&long_one)), 400);
    CHECK_AT("error.param", "'prompt'");
    CHECK_HAS(reply_at("error.message"), "your prompt resulted in 60 tokens.");
    strbuf_clear(&long_one);
    strbuf_addf(&long_one, "{'prompt':'%0*d','max_tokens':0,'echo':true}", 60, 0);
    CHECK_INT(server_post(&s, "/v1/completions", strbuf_str(&long_one)), 400);
    server_stop(&s);

    SERVER_START(&s, "--cache-size", "50t", "--default-max-tokens", "7");
    CHECK_INT(server_chat(&s, HI, "'ignore_eos':true"), 200);
    CHECK_AT_INT("usage.completion_tokens", 7);
    strbuf_clear(&long_one);
    strbuf_addf(&long_one, "{'role':'user','content':'%060d'}", 0);
    CHECK_INT(server_chat(&s, strbuf_str(&long_one), ""), 400);
    CHECK_HAS(reply_at("error.message"), "a larger --cache-size, which limits the context.");
    server_stop(&s);
}

TEST(server_chat, bad_requests_name_their_field)
{
    struct test_server s;
    SERVER_START(&s, "--max-seqs", "2", "--max-waiting", "3");
    CHECK_INT(server_chat(&s, HI, "'temperature':3"), 400);
    CHECK_AT("error.param", "'temperature'");
    CHECK_AT("error.type", "'invalid_request_error'");
    CHECK_INT(server_post(&s, CHAT, "{'messages':[]}"), 400);
    CHECK_AT("error.param", "'messages'");
    CHECK_INT(server_post(&s, CHAT, "{}"), 400);
    CHECK_AT("error.message", "''messages' is missing: it holds the conversation'");
    CHECK_INT(server_post(&s, CHAT, "{'prompt':'a'}"), 400);
    CHECK_HAS(reply_at("error.message"), "the conversation; for 'prompt' use /v1/completions");
    CHECK_INT(server_post(&s, CHAT, "{'messages':[}"), 400);
    CHECK_HAS(reply_at("error.message"), "byte 13");
    CHECK_INT(server_chat(&s, HI, "'n':5,'max_tokens':1"), 200);
    CHECK_INT(server_chat(&s, HI, "'n':6,'max_tokens':1"), 400);
    CHECK_AT("error.param", "'n'");
    CHECK_HAS(reply_at("error.message"),
              "the request asks for 6 answers, but this server can run 5 at once");
    CHECK_INT(server_post(&s, "/v1/completions", "{'prompt':['a','b','c'],'n':2,'max_tokens':1}"),
              400);
    CHECK_AT("error.param", "'prompt'");
    CHECK_HAS(reply_at("error.message"), "asks for 6 answers");
    CHECK_INT(server_post(&s, "/v1/completions", "{'prompt':[1,2,3],'n':2,'max_tokens':1}"), 200);
    server_stop(&s);
}

TEST(server_chat, a_template_that_refuses)
{
    struct test_server s;
    char path[4200];
    snprintf(path, sizeof path, "%s/refuses.jinja", test_scratch_dir());
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("{{ raise_exception('no') if messages[0].content == 'x' or bad else 'y' }}", file);
    fclose(file);
    SERVER_START(&s, "--chat-template-file", path);
    CHECK_INT(server_chat(&s, "{'role':'user','content':'x'}", ""), 400);
    CHECK_AT("error.param", "'messages'");
    CHECK_HAS(reply_at("error.message"), "no");
    CHECK_INT(server_chat(&s, HI, "'chat_template_kwargs':{'bad':1}"), 400);
    CHECK_AT("error.param", "null");
    CHECK_INT(server_post(&s, "/apply-template", "{'messages':[{'role':'user','content':'x'}]}"),
              400);
    CHECK_AT("error.param", "'messages'");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':2"), 200);
    server_stop(&s);
}

TEST(server_chat, what_fails_is_said)
{
    struct test_server s;
    SERVER_START(&s, "--mock-fail-every", "1");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':4"), 500);
    CHECK_AT("error.type", "'server_error'");
    CHECK_HAS(reply_at("error.message"), "generating the answer failed: the mock engine fails");
    CHECK(!reply_field("retry-after"));
    CHECK_INT(server_chat(&s, HI, "'max_tokens':4,'stream':true"), 200);
    CHECK_HAS(event_at(-1, "error.message"), "generating the answer failed: ");
    CHECK(!strstr(reply_body(), "[DONE]"));
    server_await_log(&s, ", failed: generating the answer failed: ");
    server_stop(&s);
    SERVER_START(&s, "--mock-fail-every", "7");
    int fd = server_begin_chat(&s, HI, "'max_tokens':30,'seed':1,'ignore_eos':true");
    CHECK_INT(server_read_reply(fd, true), 200);
    close(fd);
    CHECK_AT_INT("usage.completion_tokens", 30);
    server_stop(&s);
}

TEST(server_chat, a_full_queue_says_so)
{
    struct test_server s;
    static struct strbuf got;
    int fds[4];
    SERVER_START(&s, "--max-seqs", "2", "--max-waiting", "2", "--mock-batch-cost-us", "3000");
    for (int i = 0; i < 4; i++) {
        fds[i] = server_begin_chat(&s, HI, "'stream':true,'ignore_eos':true");
        CHECK(server_read_until(fds[i], "\"role\":\"assistant\"", &got));
    }
    CHECK_INT(server_chat(&s, HI, ""), 429);
    CHECK_STR(reply_field("retry-after"), "2");
    CHECK_AT("error.code", "'queue_full'");
    CHECK_HAS(reply_at("error.message"), "(--max-waiting 2)");
    CHECK_INT(server_chat(&s, HI, "'n':3"), 429);
    server_await(&s, "waiting", 2);
    server_await(&s, "running", 2);
    CHECK_AT_INT("completions", 4);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    server_settle(&s);
    CHECK(reply_int("canceled") >= 4);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':2"), 200);
    server_stop(&s);
}

/* Whoever holds most of the queue makes room for others, and gets the same error. */
TEST(server_chat, who_makes_room_in_the_queue_is_told_so)
{
    static const char path[] = "/v1/chat/completions", one[] = "Authorization: Bearer k1\r\n",
                      other[] = "Authorization: Bearer k2\r\n";
    static struct strbuf got;
    struct test_server s;
    int fds[4];
    SERVER_START(&s, "--max-seqs", "2", "--max-waiting", "2", "--mock-batch-cost-us", "3000",
                 "--api-key", "a:k1", "--api-key", "b:k2");
    for (int i = 0; i < 3; i++) {
        fds[i] = server_begin(&s, path, one,
                              "{'stream':true,'ignore_eos':true,'messages':[" HI "]}");
        CHECK(server_read_until(fds[i], "\"role\":\"assistant\"", &got));
    }
    fds[3] = server_begin(&s, path, one, "{'messages':[" HI "]}");
    usleep(100000); /* it is most likely in the queue then; if not, it finds no room there */
    CHECK_INT(server_ask(&s, "POST", path, other, "{'max_tokens':1,'messages':[" HI "]}"), 200);
    CHECK_INT(server_read_reply(fds[3], true), 429);
    CHECK_AT("error.code", "'queue_full'");
    CHECK_STR(reply_field("retry-after"), "2");
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    server_stop(&s);
}

TEST(server_chat, who_hangs_up_stops_the_work)
{
    struct test_server s;
    static struct strbuf got;
    SERVER_START(&s, "--mock-batch-cost-us", "2000");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1"), 200);
    long long n = reply_int("usage.prompt_tokens");
    int stream = server_begin_chat(&s, HI, "'stream':true,'ignore_eos':true");
    int whole = server_begin_chat(&s, HI, "'ignore_eos':true,'n':2");
    CHECK(server_read_until(stream, "\"content\":", &got));
    server_await(&s, "running", 3);
    close(stream);
    close(whole);
    server_settle(&s);
    CHECK_AT_INT("canceled", 3);
    CHECK(reply_int("generated_tokens") < 2000);
    char counts[80];
    snprintf(counts, sizeof counts, "prompt %lld, cached %lld, generated ", n, n - 1);
    server_await_log_times(&s, counts, 2);
    server_stop(&s);
}

/* A long text keeps a worker busy; its client is gone before it is read. */
TEST(server_chat, a_hang_up_while_the_request_is_read)
{
    struct test_server s;
    static struct strbuf request;
    enum { TEXT_BYTES = 4 << 20 };
    SERVER_START(&s, "-c", "60");
    strbuf_addf(&request,
                "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                "application/json\r\nContent-Length: %d\r\n\r\n{\"content\":\"%0*d\"}",
                TEXT_BYTES + 14, TEXT_BYTES, 0);
    for (int i = 0; i < 4; i++) {
        int fd = server_connect(&s);
        server_send(fd, strbuf_str(&request));
        close(fd);
    }
    server_await_log(&s, "POST /tokenize 499 ");
    server_settle(&s);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':3"), 200);
    server_stop(&s);
}

/* Requests whose clients are gone count until their workers have noticed. */
TEST(server_chat, bounds_the_requests_that_are_being_read)
{
    enum { LARGE = 100000 }; /* read in the short lane, which has two threads */
    struct test_server s;
    struct strbuf large = STRBUF_INIT;
    strbuf_adds(&large, "{'role':'user','content':'");
    for (int i = 0; i < LARGE; i++)
        strbuf_add(&large, "x", 1);
    strbuf_adds(&large, "'}");
    SERVER_START(&s, "--max-connections", "1");
    memory_holds(LARGE);
    for (unsigned i = 1; i <= 2; i++) {
        int fd = server_begin_chat(&s, strbuf_str(&large), "");
        while (memory_n_held() < i)
            usleep(500);
        close(fd);
        server_await_log_times(&s, "POST " CHAT " 499", i);
    }
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1"), 429);
    CHECK_HAS(reply_at("error.message"), "too many requests are being read; try again soon");
    CHECK_STR(reply_field("retry-after"), "2");
    memory_holds(0);
    server_settle(&s);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':1"), 200);
    server_stop(&s);
    strbuf_free(&large);
}

TEST(server_chat, an_answer_has_a_time_limit)
{
    struct test_server s;
    SERVER_START(&s, "--timeout", "1", "--mock-batch-cost-us", "5000");
    CHECK_INT(server_chat(&s, HI, "'ignore_eos':true"), 504);
    CHECK_AT("error.code", "'timeout'");
    CHECK_HAS(reply_at("error.message"), "not complete after 1 s (--timeout)");
    CHECK_INT(server_chat(&s, HI, "'ignore_eos':true,'stream':true"), 200);
    CHECK_HAS(event_at(-1, "error.message"), "not complete after 1 s (--timeout)");
    server_await_log(&s, "prompt 21, cached 0, generated ");
    server_await_log(&s, "prompt 21, cached 20, generated ");
    server_settle(&s);
    CHECK_AT_INT("canceled", 2);
    server_stop(&s);
}

TEST(server_chat, counters)
{
    struct test_server s;
    SERVER_START(&s, "--cache-size", "1000t");
    CHECK_INT(server_chat(&s, HI, "'max_tokens':5,'ignore_eos':true"), 200);
    CHECK_INT(server_chat(&s, HI, "'max_tokens':5,'ignore_eos':true,'seed':3"), 200);
    server_settle(&s);
    CHECK_AT_INT("connections", 1);
    CHECK_AT_INT("pages", 1000);
    CHECK_AT_INT("pages_private", 0);
    CHECK_INT(reply_int("pages_free") + reply_int("pages_cached"), 1000);
    CHECK_AT_INT("prompt_tokens", 2 * HI_TOKENS);
    CHECK_AT_INT("cached_tokens", HI_TOKENS - 1);
    CHECK_AT_INT("generated_tokens", 10);
    CHECK_AT_INT("rows", HI_TOKENS + 4 + 1 + 4);
    CHECK_AT_INT("finished", 2);
    CHECK_AT_INT("failed", 0);
    CHECK_AT_INT("lookups_missed", 1);
    CHECK_AT_INT("window_pages", 0);
    CHECK(reply_int("steps") >= 9 && reply_int("cache_nodes") >= 2);
    server_stop(&s);
}

/* A stream that waits for its turn is kept alive every ten seconds. */
TEST(server_chat, a_silent_stream_has_a_heartbeat)
{
    static struct strbuf got;
    struct test_server s;
    char byte;
    SERVER_START(&s, "--max-seqs", "1", "--mock-batch-cost-us", "20000");
    int running = server_begin_chat(&s, HI, "'stream':true,'ignore_eos':true");
    CHECK(server_read_until(running, "\"role\":\"assistant\"", &got));
    uint64_t began_ns = clock_now_ns();
    int waiting = server_begin_chat(&s, HI, "'stream':true,'ignore_eos':true");
    CHECK(server_read_until(waiting, "\n\n\r\n", &got));
    static const char ask[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    char post[256];
    snprintf(post, sizeof post,
             "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(ask), ask);
    int lines = server_connect(&s);
    server_send(lines, post);
    CHECK(server_read_until(lines, "\r\n\r\n", &got));
    CHECK_HAS(strbuf_str(&got), "application/x-ndjson");
    usleep(1200000); /* the loop looks once a second */
    clock_skip_ns(UINT64_C(9000000000) - 1300000000);
    usleep(1100000);
    bool is_silent = recv(waiting, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == -1;
    CHECK(is_silent || clock_now_ns() - began_ns >= UINT64_C(10000000000)); /* a busy machine */
    clock_skip_ns(UINT64_C(2000000000));
    CHECK(server_read_until(waiting, "\r\n", &got)); /* the size of the chunk */
    CHECK(server_read_until(waiting, "\n\n\r\n", &got));
    CHECK_INT(*strbuf_str(&got), ':');
    /* Ollama's clients parse every line, and Open WebUI ends at one without text: it is a space
     * before the next one. */
    CHECK(server_read_until(lines, "\r\n", &got));
    CHECK_STR(strbuf_str(&got), "1\r\n");
    CHECK(server_read_until(lines, "\r\n", &got));
    CHECK_STR(strbuf_str(&got), " \r\n");
    usleep(1100000);
    CHECK_INT(recv(waiting, &byte, 1, MSG_DONTWAIT), -1);
    close(running);
    close(waiting);
    close(lines);
    server_settle(&s);
    server_stop(&s);
}

/* A slow reader holds up its own answer, and gets all of it when it reads on. */
TEST(server_chat, a_slow_reader_gets_all_of_it)
{
    struct test_server s;
    long long seen = -1, now = 0;
    SERVER_START(&s, "--mock-batch-cost-us", "500", "-c", "800");
    int fd = server_begin_chat(&s, HI,
                               "'stream':true,'ignore_eos':true,'n':16,'logprobs':true,"
                               "'top_logprobs':20,'stream_options':{'include_usage':true}");
    for (; seen != now || now == 0; usleep(50000)) {
        seen = now;
        CHECK_INT(server_get(&s, "/stats"), 200);
        now = reply_int("generated_tokens");
    }
    CHECK(seen < 16 * (800 - HI_TOKENS));
    CHECK_INT(server_read_reply(fd, true), 200);
    close(fd);
    CHECK_STR(event_at(-1, ""), "[DONE]");
    CHECK_INT(atoi(event_at(-2, "usage.completion_tokens")), 16 * (800 - HI_TOKENS));
    server_stop(&s);
}

TEST(server_chat, the_log_forgets_which_clients_it_told)
{
    struct test_server s;
    char more[64];
    SERVER_START(&s);
    for (int i = 0; i <= 512; i++) {
        snprintf(more, sizeof more, "'max_tokens':1,'field_%d':1", i % 512);
        CHECK_INT(server_chat(&s, HI, more), 200);
    }
    server_settle(&s);
    int n = 0;
    for (const char *at = server_log(&s); (at = strstr(at, "ignored: field_0\n")); at++)
        n++;
    CHECK_INT(n, 2);
    server_stop(&s);
}

/* A whole answer is kept until it is complete, so it has a limit; a stream has none. */
TEST(server_chat, large_answers_have_to_be_streamed)
{
    struct test_server s;
    SERVER_START(&s, "--max-unsent-mib", "1");
#define LARGE "'ignore_eos':true,'logprobs':true,'top_logprobs':20,'max_tokens':100"
    CHECK_INT(server_chat(&s, HI, LARGE ",'n':8"), 400); /* 8 x 100 x 21 x about 96 bytes */
    CHECK_AT("error.code", "'answer_too_large'");
    CHECK_HAS(reply_at("error.message"),
              "no room for an answer of 1 MiB or more (--max-unsent-mib 1)");
    CHECK_INT(server_chat(&s, HI, LARGE ",'n':4"), 200);
    CHECK_INT(server_chat(&s, HI, LARGE ",'n':8,'stream':true"), 200);
    CHECK_STR(event_at(-1, ""), "[DONE]");
    server_stop(&s);
}
