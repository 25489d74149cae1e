/* Ollama's API: its requests become ordinary ones, its lines are what its clients parse, and what
 * it says about the model. */
#include "serve/request/fields.h"
#include "serve/writers/answer_writer.h"
#include "serve/writers/ollama_form.h"
#include "test.h"
#include "test_memory.h"

static const struct sampling plain = SAMPLING_DEFAULT;
static struct api_error seen;

/* ---- requests ---- */

static void read_well(struct request_params *p, enum request_kind kind, const char *body)
{
    if (request_params_read(p, kind, body, strlen(body), true, &plain, &seen))
        test_fail(__FILE__, __LINE__, "%s: %s", body, seen.message);
}

static void check_messages(const struct request_params *p, const char *want)
{
    struct strbuf text = STRBUF_INIT;
    json_write(&text, p->messages);
    CHECK_STR(strbuf_str(&text), want);
    strbuf_free(&text);
}

static void check_refused(enum request_kind kind, const char *body, const char *param)
{
    struct request_params p;
    int rc = request_params_read(&p, kind, body, strlen(body), false, &plain, &seen);
    request_params_free(&p);
    if (!rc || seen.status != 400)
        test_fail(__FILE__, __LINE__, "%s was accepted", body);
    if (strcmp(seen.param, param) != 0)
        test_fail(__FILE__, __LINE__, "%s names '%s', expected '%s'", body, seen.param, param);
}

TEST(ollama, reads_a_chat)
{
    struct request_params p;
    read_well(&p, REQUEST_OLLAMA_CHAT,
              "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},"
              "{\"role\":\"user\",\"images\":[]},{\"role\":\"assistant\",\"content\":\"a\","
              "\"thinking\":\"t\"},{\"role\":\"user\",\"content\":\"u\"}],\"keep_alive\":\"5m\","
              "\"format\":\"json\",\"options\":{\"num_predict\":7,\"temperature\":0.5,"
              "\"top_k\":20,\"top_p\":0.5,\"min_p\":0.25,\"typical_p\":0.75,\"seed\":-4,"
              "\"repeat_penalty\":1.5,\"repeat_last_n\":8,\"presence_penalty\":1,"
              "\"frequency_penalty\":-1,\"stop\":[\"x\",\"y\"],\"num_ctx\":4096,\"mirostat\":0,"
              "\"tfs_z\":1.0,\"num_gpu\":1,\"use_mmap\":true},\"truncate\":true,"
              "\"template\":\"\",\"top_logprobs\":3}");
    CHECK_INT(p.kind, REQUEST_CHAT);
    CHECK(!p.is_load && p.stream && p.seeded && !p.must_think);
    CHECK_STR(p.model, "m");
    CHECK_INT(p.max_tokens, 7);
    CHECK_INT(p.n_stops, 2);
    CHECK_INT(p.top_logprobs, 0); /* it means nothing without logprobs */
    CHECK_INT(p.constraint.kind, CONSTRAINT_JSON);
    CHECK(p.sampling.temperature == 0.5f && p.sampling.top_p == 0.5f && p.sampling.top_k == 20);
    CHECK(p.sampling.min_p == 0.25f && p.sampling.typical_p == 0.75f);
    CHECK(p.sampling.repetition_penalty == 1.5f && p.sampling.repeat_last_n == 8);
    CHECK(p.sampling.presence_penalty == 1 && p.sampling.frequency_penalty == -1);
    CHECK(p.sampling.seed == (uint64_t)-4);
    check_messages(&p, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
                       "\"\"},{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":"
                       "\"t\"},{\"role\":\"user\",\"content\":\"u\"}]");
    request_params_free(&p);
}

TEST(ollama, reads_a_generation)
{
    struct request_params p;
    read_well(&p, REQUEST_OLLAMA_GENERATE,
              "{\"prompt\":\"hi\",\"system\":\"s\",\"stream\":false,\"context\":[],\"raw\":false,"
              "\"suffix\":\"\",\"logprobs\":true,\"top_logprobs\":2}");
    CHECK_INT(p.kind, REQUEST_CHAT);
    CHECK(!p.is_load && !p.stream && p.logprobs && !p.prompt);
    CHECK_INT(p.top_logprobs, 2);
    CHECK_INT(p.max_tokens, 0);
    CHECK_INT(p.default_max_tokens, 0);
    check_messages(&p, "[{\"role\":\"system\",\"content\":\"s\"},"
                       "{\"role\":\"user\",\"content\":\"hi\"}]");
    request_params_free(&p);
    read_well(&p, REQUEST_OLLAMA_GENERATE, "{\"raw\":true,\"system\":\"\",\"prompt\":\"hi\"}");
    CHECK_INT(p.kind, REQUEST_TEXT);
    CHECK(json_equals(p.prompt, "hi") && !p.messages);
    CHECK_INT(p.default_max_tokens, 0);
    request_params_free(&p);
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"raw\":true,\"system\":\"s\",\"prompt\":\"hi\"}",
                  "system");
}

TEST(ollama, reads_a_gap_to_be_filled)
{
    struct request_params p;
    read_well(&p, REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"a\",\"suffix\":\"b\"}");
    CHECK_INT(p.kind, REQUEST_TEXT);
    CHECK(json_equals(p.prompt, "a") && json_equals(p.suffix, "b") && !p.is_load && !p.messages);
    request_params_free(&p);
    read_well(&p, REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"\",\"suffix\":\"b\",\"raw\":true}");
    CHECK(!p.is_load && json_equals(p.prompt, ""));
    request_params_free(&p);
    read_well(&p, REQUEST_OLLAMA_GENERATE, "{\"suffix\":\"b\"}");
    CHECK(p.is_load);
    request_params_free(&p);
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"a\",\"suffix\":\"b\",\"system\":\"s\"}",
                  "system");
}

TEST(ollama, reads_the_length_of_an_answer)
{
    static const struct {
        const char *members;
        int max_tokens, default_max_tokens;
    } cases[] = {
        {"\"options\":{\"num_predict\":7}", 7, 0},
        {"\"options\":{\"num_predict\":-1}", 0, 0},
        {"\"options\":{\"num_predict\":-2}", 0, 0},
        {"\"options\":{\"num_predict\":0}", 0, 0},
        {"\"num_predict\":5", 0, 5},
        {"\"num_predict\":5,\"options\":{\"num_predict\":7}", 7, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request_params p;
        struct strbuf body = STRBUF_INIT;
        strbuf_addf(&body, "{\"prompt\":\"x\",%s}", cases[i].members);
        read_well(&p, REQUEST_OLLAMA_GENERATE, strbuf_str(&body));
        CHECK_INT(p.max_tokens, cases[i].max_tokens);
        CHECK_INT(p.default_max_tokens, cases[i].default_max_tokens);
        request_params_free(&p);
        strbuf_free(&body);
    }
}

TEST(ollama, nothing_to_answer_is_a_load)
{
    static const struct {
        enum request_kind kind;
        const char *body;
        bool is_unload;
    } loads[] = {
        {REQUEST_OLLAMA_CHAT, "{}", false},
        {REQUEST_OLLAMA_CHAT, "{\"model\":\"m\",\"messages\":[]}", false},
        {REQUEST_OLLAMA_CHAT, "{\"messages\":null,\"keep_alive\":0}", true},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":-1}", false},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":0.5}", false},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":\"0\"}", true},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":\"0h0m0.0s\"}", true},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":\"10m\"}", false},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":\"\"}", false},
        {REQUEST_OLLAMA_CHAT, "{\"keep_alive\":null}", false},
        {REQUEST_OLLAMA_GENERATE, "{}", false},
        {REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"\",\"keep_alive\":0}", true},
        {REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"\",\"raw\":true}", false},
    };
    struct request_params p;
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        read_well(&p, loads[i].kind, loads[i].body);
        CHECK(p.is_load && p.is_unload == loads[i].is_unload);
        request_params_free(&p);
    }
    read_well(&p, REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"a\",\"keep_alive\":0}");
    CHECK(!p.is_load && !p.is_unload);
    request_params_free(&p);
}

TEST(ollama, reads_thinking)
{
#define THINK(value) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"think\":" value "}"
    struct request_params p;
    read_well(&p, REQUEST_OLLAMA_CHAT, THINK("false"));
    CHECK(p.no_thinking && !p.must_think);
    CHECK_INT(p.thinking_tokens, 0);
    request_params_free(&p);
    read_well(&p, REQUEST_OLLAMA_CHAT, THINK("true"));
    CHECK(!p.no_thinking && p.must_think && json_get(p.extra, "enable_thinking")->boolean);
    request_params_free(&p);
    read_well(&p, REQUEST_OLLAMA_CHAT, THINK("\"low\""));
    CHECK(p.must_think && json_equals(json_get(p.extra, "reasoning_effort"), "low"));
    CHECK(json_get(p.extra, "enable_thinking")->boolean);
    request_params_free(&p);
    check_refused(REQUEST_OLLAMA_CHAT, THINK("\"huge\""), "think");
    check_refused(REQUEST_OLLAMA_CHAT, THINK("1"), "think");
    check_refused(REQUEST_OLLAMA_CHAT, THINK("{}"), "think");
}

/* ' is sent as ": long bodies are easier to read that way. */
static const char *quoted(char *text)
{
    for (char *at = text; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    return text;
}

/* Calls without ids get some, and results find their calls by name, or in order. */
TEST(ollama, numbers_calls)
{
    char body[] = "{'messages':[{'role':'tool','content':'0'},"
                  "{'role':'assistant','content':'','tool_calls':["
                  "{'function':{'name':'f','arguments':{'a':[1, 2]}}},"
                  "{'function':{'name':'g','arguments':{}}},{'function':{'name':'f'}}]},"
                  "{'role':'tool','content':'1','tool_name':'g'},{'role':'tool','content':'2'},"
                  "{'role':'tool','content':'3','tool_name':'h'},"
                  "{'role':'tool','content':'4','tool_name':'f'},"
                  "{'role':'assistant','tool_calls':[{'function':{'name':'g'}}]},"
                  "{'role':'tool','content':'5','tool_call_id':'mine'},"
                  "{'role':'tool','content':'6'}]}";
    static const char *const want[] = {
        "NULL", "NULL", "call_1", "call_0", "call_2", "NULL", "NULL", "mine", "call_3",
    };
    struct request_params p;
    read_well(&p, REQUEST_OLLAMA_CHAT, quoted(body));
    size_t i = 0;
    json_each (message, p.messages) {
        const struct json *id = json_get(message, "tool_call_id");
        CHECK_STR(id ? id->text : "NULL", want[i++]);
    }
    CHECK_INT(i, 9);
    const struct json *first = p.messages->first->next, *calls = json_get(first, "tool_calls");
    CHECK(json_equals(json_get(calls->first, "id"), "call_0"));
    CHECK(json_equals(json_get(calls->last, "id"), "call_2"));
    CHECK(json_equals(json_get(first->next, "name"), "g")); /* for the template */
    request_params_free(&p);
}

TEST(ollama, refuses_what_is_wrong)
{
#define CHAT(members)  "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," members "}"
#define OPTION(member) CHAT("\"options\":{" member "}")
    static const struct {
        const char *body, *param;
    } chats[] = {
        {CHAT("\"options\":[]"), "options"},
        {CHAT("\"stream\":1"), "stream"},
        {CHAT("\"format\":\"xml\""), "format"},
        {CHAT("\"format\":7"), "format"},
        {CHAT("\"format\":true"), "format"},
        {CHAT("\"template\":\"{{ .Prompt }}\""), "template"},
        {CHAT("\"top_logprobs\":21"), "top_logprobs"},
        {CHAT("\"tools\":[{\"type\":\"function\"}]"), "tools[0]"},
        {CHAT("\"tools\":{}"), "tools"},
        {OPTION("\"temperature\":\"hot\""), "options.temperature"},
        {OPTION("\"temperature\":-1"), "options.temperature"},
        {OPTION("\"num_predict\":1.5"), "options.num_predict"},
        {OPTION("\"num_predict\":\"10\""), "options.num_predict"},
        {OPTION("\"mirostat\":1"), "options.mirostat"},
        {OPTION("\"tfs_z\":0.5"), "options.tfs_z"},
        {OPTION("\"seed\":\"x\""), "options.seed"},
        {OPTION("\"stop\":[1]"), "options.stop[0]"},
        {"{\"messages\":{}}", "messages"},
        {"{\"messages\":[1]}", "messages[0]"},
        {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0]"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"aGk=\"]}]}",
         "messages[0].images"},
        {"{\"messages\":[{\"role\":\"user\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]}",
         "messages[0]"},
        {"{\"messages\":[{\"role\":\"tool\",\"tool_name\":[]}]}", "messages[0].tool_name"},
    };
    for (size_t i = 0; i < sizeof chats / sizeof *chats; i++)
        check_refused(REQUEST_OLLAMA_CHAT, chats[i].body, chats[i].param);
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"prompt\":[\"x\"]}", "prompt");
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"keep_alive\":false}", "keep_alive");
    check_refused(REQUEST_OLLAMA_CHAT, "{\"keep_alive\":[0]}", "keep_alive");
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"x\",\"suffix\":1}", "suffix");
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"x\",\"images\":[\"y\"]}", "images");
    check_refused(REQUEST_OLLAMA_GENERATE, "{\"prompt\":\"x\",\"context\":[1]}", "context");
    check_refused(REQUEST_OLLAMA_SHOW, "{\"name\":7}", "name");
    check_refused(REQUEST_OLLAMA_SHOW, "[]", "");
}

/* Other APIs' fields are not this one's. */
TEST(ollama, names_unknown_fields)
{
    static const char body[] = CHAT("\"max_tokens\":3,\"temperature\":9,\"options\":{\"foo\":1}");
    struct request_params p;
    CHECK_INT(
        request_params_read(&p, REQUEST_OLLAMA_CHAT, body, strlen(body), false, &plain, &seen), 0);
    CHECK_STR(strbuf_str(&p.ignored), "max_tokens, temperature, options.foo");
    CHECK_INT(p.max_tokens, 0);
    request_params_free(&p);
}

/* Whichever allocation fails, the client is told so, and nothing leaks. The arena allocates rarely:
 * with more text before it, every piece comes first in a block. */
static void check_memory(enum request_kind kind, const char *members)
{
    memory_is_watched(true);
    for (int padding = 0; padding < 8 * 1024; padding += 16) {
        struct strbuf body = STRBUF_INIT;
        int rc = -1;
        memory_fails_once(0);
        strbuf_addf(&body, "{\"keep_alive\":\"%0*d\",%s}", padding, 0, members);
        for (uint32_t n = 1; rc; n++) {
            struct request_params p;
            memory_fails_once(n);
            rc = request_params_read(&p, kind, strbuf_str(&body), body.len, false, &plain, &seen);
            request_params_free(&p);
            if (rc && (seen.status != 413 || !strstr(seen.message, "memory")))
                test_fail(__FILE__, __LINE__, "allocation %u: %d %s", n, seen.status, seen.message);
        }
        strbuf_free(&body);
    }
    memory_fails_once(0);
    memory_is_watched(false);
}

TEST(ollama, says_when_there_is_no_memory)
{
    char chat[] = "'messages':[{'role':'assistant','tool_calls':[{'function':{'name':'f'}},"
                  "{'function':{'name':'g'}}]},{'role':'tool','content':'1','tool_name':'g'},"
                  "{'role':'tool','content':'2'}],'think':'low','format':'{}'";
    char generation[] = "'prompt':'x','system':'y','think':true";
    check_memory(REQUEST_OLLAMA_CHAT, quoted(chat));
    check_memory(REQUEST_OLLAMA_GENERATE, quoted(generation));
}

/* ---- answers ---- */

static const struct answer_head head = {
    .id = "chat-1", .model = "m\"", .fingerprint = "fp", .created = 1752150000, .n_choices = 1};
#define HEAD "{\"model\":\"m\\\"\",\"created_at\":\"2025-07-10T12:20:00Z\","
#define USAGE                                                                                      \
    "\"total_duration\":9000000000,\"load_duration\":0,\"prompt_eval_count\":30,"                  \
    "\"prompt_eval_duration\":4000000000,\"eval_count\":4,\"eval_duration\":5000000000}"
static const struct answer_timings timings = {.prompt_ns = 4000000000, .predicted_ns = 5000000000};
static const struct answer_usage usage = {.prompt_tokens = 30,
                                          .cached_tokens = 20,
                                          .completion_tokens = 4,
                                          .timings = &timings,
                                          .total_ns = 9000000000};

static void check_line(struct strbuf *got, const char *want)
{
    CHECK_STR(strbuf_str(got), want);
    strbuf_clear(got);
}

TEST(ollama, chats_are_lines)
{
    const struct answer_writer *w = &ollama_chat_writer;
    struct strbuf out = STRBUF_INIT, extra = STRBUF_INIT;
    struct answer_content a = {0};
    struct answer_call call = {.id = "call_1"};
    struct api_error e;
    void *stream = w->open(&head);
    w->begin(stream, &out);
    CHECK_INT(out.len, 0);
    w->text(stream, &out, &a, "a\n\"", 3);
    check_line(&out, HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"a\\n\\\"\"},"
                          "\"done\":false}\n");
    w->heartbeat(stream, &out);
    check_line(&out, " ");
    w->heartbeat(stream, &out); /* the next line has it before it, and is JSON */
    w->thinking(stream, &out, &a, "hm", 2);
    check_line(&out, " " HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":"
                     "\"hm\"},\"done\":false}\n");
    strbuf_adds(&call.name, "f\"");
    w->call_begin(stream, &out, &a, &call, 1);
    w->call_arguments(stream, &out, &a, 1, "{\n \"a\":", 7);
    CHECK_INT(out.len, 0); /* it comes whole */
    w->call_arguments(stream, &out, &a, 1, "\r\n1}", 4);
    w->call_end(stream, &out, &a, 1);
    check_line(&out, HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
                          "{\"id\":\"call_1\",\"function\":{\"index\":1,\"name\":\"f\\\"\","
                          "\"arguments\":{  \"a\":  1}}}]},\"done\":false}\n");
    w->call_begin(stream, &out, &a, &call, 2); /* and not at all if it is cut off */
    w->call_arguments(stream, &out, &a, 2, "{\"b\"", 4);
    w->finish(stream, &out, &a, ANSWER_TOO_LONG);
    CHECK_INT(out.len, 0);
    strbuf_adds(&extra, "\"radish\":{}");
    w->end(stream, &out, &usage, &extra);
    CHECK(out.data[out.len - 1] == '\n' && memchr(out.data, '\n', out.len - 1) == NULL);
    CHECK(strstr(out.data, "\"content\":\"\"},\"done\":true,\"done_reason\":\"length\",") != NULL);
    CHECK(strstr(out.data, "\"eval_duration\":5000000000,\"radish\":{}}\n") != NULL);
    strbuf_clear(&out);
    api_error_set(&e, 503, "x", "a\nb");
    w->error(stream, &out, &e);
    check_line(&out, "{\"error\":\"a\\nb\"}\n");
    w->close(stream);
    strbuf_free(&call.name);
    strbuf_free(&out);
    strbuf_free(&extra);
}

/* httpx, and with it Ollama's own client, splits lines where Python does. */
TEST(ollama, lines_end_nowhere_else)
{
    static const char text[] = "a\xe2\x80\xa8\xe2\x80\xa9\xc2\x85\xe2\x80\xa7\xc2\x84z\xe2\x80";
    struct strbuf out = STRBUF_INIT;
    struct answer_content a = {0};
    void *stream = ollama_generate_writer.open(&head);
    ollama_generate_writer.text(stream, &out, &a, text, sizeof text - 3);
    check_line(&out, HEAD "\"response\":\"a\\u2028\\u2029\\u0085\xe2\x80\xa7\xc2\x84z\","
                          "\"done\":false}\n");
    ollama_generate_writer.thinking(stream, &out, &a, "\xe2\x80\xa8", 3);
    check_line(&out, HEAD "\"response\":\"\",\"thinking\":\"\\u2028\",\"done\":false}\n");
    ollama_generate_writer.finish(stream, &out, &a, ANSWER_STOPPED);
    ollama_generate_writer.end(stream, &out, &usage, NULL);
    check_line(&out, HEAD "\"response\":\"\",\"done\":true,\"done_reason\":\"stop\"," USAGE "\n");
    ollama_generate_writer.close(stream);
    strbuf_free(&out);
}

TEST(ollama, whole_answers)
{
    const struct answer_writer *w = &ollama_chat_writer;
    struct strbuf out = STRBUF_INIT;
    struct json_writer json = {.out = &out};
    struct answer_call calls[3] = {{.id = "call_1"}, {.id = "call_2"}, {.id = "call_3"}};
    struct answer_content a = {.calls = calls, .n_calls = 3};
    static const char *const arguments[] = {"{\"a\": 1}", "{}", "{\"a"};
    for (int i = 0; i < 3; i++) {
        strbuf_adds(&calls[i].name, "f");
        strbuf_adds(&calls[i].arguments, arguments[i]);
    }
    strbuf_adds(&a.text, "t");
    strbuf_adds(&a.thinking, "hm");
    json_object_begin(&json, NULL);
    w->whole_begin(&json, &head);
    w->whole_choice(&json, &head, &a, ANSWER_CALLS);
    w->whole_end(&json, &usage);
    json_object_end(&json);
    check_line(&out, HEAD "\"message\":{\"role\":\"assistant\",\"content\":\"t\",\"thinking\":"
                          "\"hm\",\"tool_calls\":[{\"id\":\"call_1\",\"function\":{\"index\":0,"
                          "\"name\":\"f\",\"arguments\":{\"a\": 1}}},{\"id\":\"call_2\","
                          "\"function\":{\"index\":1,\"name\":\"f\",\"arguments\":{}}}]},"
                          "\"done\":true,\"done_reason\":\"stop\"," USAGE);
    json = (struct json_writer){.out = &out};
    json_object_begin(&json, NULL);
    ollama_generate_writer.whole_begin(&json, &head);
    ollama_generate_writer.whole_choice(&json, &head, &a, ANSWER_TOO_LONG);
    ollama_generate_writer.whole_end(&json, &usage);
    json_object_end(&json);
    check_line(&out, HEAD "\"response\":\"t\",\"thinking\":\"hm\",\"done\":true,"
                          "\"done_reason\":\"length\"," USAGE);
    for (int i = 0; i < 3; i++) {
        strbuf_free(&calls[i].name);
        strbuf_free(&calls[i].arguments);
    }
    strbuf_free(&a.text);
    strbuf_free(&a.thinking);
    strbuf_free(&out);
}

TEST(ollama, log_probabilities_are_given_once)
{
    struct strbuf out = STRBUF_INIT;
    struct tokenizer *t;
    struct error err;
    CHECK_INT(tokenizer_open_bytes(&t, NULL, &err), 0);
    struct answer_content a = {.has_logprobs = true, .tokenizer = t};
    void *stream = ollama_generate_writer.open(&head);
    logprob_list_add(&a.logprobs, 'a', "a", 1, &(struct token_logprobs){.logprob = -1});
    logprob_list_show(&a.logprobs, 1);
    ollama_generate_writer.text(stream, &out, &a, "a", 1);
    check_line(&out, HEAD "\"response\":\"a\",\"logprobs\":[{\"token\":\"a\",\"logprob\":-1.0,"
                          "\"bytes\":[97],\"top_logprobs\":[]}],\"done\":false}\n");
    ollama_generate_writer.text(stream, &out, &a, "b", 1);
    check_line(&out, HEAD "\"response\":\"b\",\"done\":false}\n");
    ollama_generate_writer.close(stream);
    logprob_list_free(&a.logprobs);
    strbuf_free(&out);
    tokenizer_close(t);
}

/* ---- models ---- */

TEST(ollama, times_are_written_as_rfc_3339)
{
    char out[OLLAMA_TIME_BYTES];
    ollama_time_write(out, 0);
    CHECK_STR(out, "1970-01-01T00:00:00Z");
    ollama_time_write(out, 951827696);
    CHECK_STR(out, "2000-02-29T12:34:56Z");
    ollama_time_write(out, INT64_MAX);
    CHECK_STR(out, "1970-01-01T00:00:00Z");
}

static void check_name(const char *model_name, uint64_t n_params, const char *name,
                       const char *size)
{
    struct strbuf out = STRBUF_INIT;
    struct arena arena = ARENA_INIT;
    struct error err;
    struct prompt_maker prompt = {0};
    CHECK_INT(tokenizer_open_bytes(&prompt.tokenizer, NULL, &err), 0);
    struct server_options o = {.model_name = model_name,
                               .quantisation = "Q4_1",
                               .prompt = &prompt,
                               .model = {.architecture = "llama", .n_params = n_params}};
    ollama_tags_write(&(struct json_writer){.out = &out}, &o);
    const struct json *root = json_parse(&arena, strbuf_str(&out), out.len, &err);
    CHECK(root != NULL);
    const struct json *model = json_get(root, "models")->first;
    CHECK(json_equals(json_get(model, "name"), name) &&
          json_equals(json_get(model, "model"), name));
    CHECK(json_equals(json_get(json_get(model, "details"), "parameter_size"), size));
    CHECK_INT(json_get(model, "digest")->text_len, 64);
    CHECK_INT(json_get(model, "capabilities")->count, 1); /* there is no template */
    arena_free(&arena);
    strbuf_free(&out);
    tokenizer_close(prompt.tokenizer);
}

TEST(ollama, names_models)
{
    check_name("smol", 134515008, "smol:latest", "134.52M");
    check_name("smol:135m", 8030261312, "smol:135m", "8.0B");
    check_name("t", 4096, "t:latest", "4K");
}
