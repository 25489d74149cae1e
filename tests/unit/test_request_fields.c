/* The request-field table: every class, every range, and malicious requests. */
#include "serve/request/fields.h"
#include "test.h"
#include "test_memory.h"

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct sampling plain = SAMPLING_DEFAULT;

/* The status of reading the body (200: fine); the error is kept for inspection. */
static struct api_error seen;

static int status_of(const char *body, bool strict)
{
    struct request_params p;
    int rc = request_params_read(&p, REQUEST_CHAT, body, strlen(body), strict, &plain, &seen);
    request_params_free(&p);
    return rc ? seen.status : 200;
}

static void check_refused(const char *body, const char *param)
{
    if (status_of(body, false) != 400)
        test_fail(__FILE__, __LINE__, "%s was accepted", body);
    if (strcmp(seen.param, param) != 0)
        test_fail(__FILE__, __LINE__, "%s names '%s', expected '%s'", body, seen.param, param);
    CHECK(strlen(seen.message) > 10);
}

static void check_accepted(const char *body)
{
    if (status_of(body, true) != 200)
        test_fail(__FILE__, __LINE__, "%s: %s", body, seen.message);
}

static bool stands_in_a_request(const char *name)
{
    for (size_t i = 0; i < n_request_fields; i++)
        if (request_fields[i].scope == SCOPE_REQUEST && request_fields[i].class == FIELD_SERVED &&
            strcmp(request_fields[i].name, name) == 0)
            return true;
    return false;
}

TEST(request_fields, the_table_is_whole)
{
    for (size_t i = 0; i < n_request_fields; i++) {
        const struct request_field *f = &request_fields[i];
        CHECK(f->name && f->text && strlen(f->text) >= 5);
        CHECK(f->scope < FIELD_SCOPES);
        CHECK(f->class == FIELD_REFUSED || !f->neutral);
        CHECK(f->class == FIELD_SERVED || (!f->read && !f->offset));
        if (f->class == FIELD_SERVED && !f->read) {
            CHECK(f->kind == KIND_BOOL || f->kind == KIND_INT || f->kind == KIND_NUMBER);
            CHECK(f->offset > 0);
            CHECK(f->kind == KIND_BOOL || f->max > f->min);
        }
        /* A warming request's rows come first: the fields after them mean something in an answer.
         */
        if (f->scope == SCOPE_WARM && f->class == FIELD_INERT)
            CHECK(stands_in_a_request(f->name));
        for (size_t j = 0; j < i; j++)
            CHECK(request_fields[j].scope != f->scope ||
                  strcmp(request_fields[j].name, f->name) != 0);
    }
}

TEST(request_fields, reads_what_is_served)
{
    static const char body[] =
        "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"max_tokens\":7,\"max_completion_tokens\":9,\"n\":3,\"temperature\":0.5,\"top_p\":0.25,"
        "\"top_k\":40,\"min_p\":0.125,\"presence_penalty\":-1.5,\"frequency_penalty\":2,"
        "\"repeat_penalty\":1.5,\"seed\":-4,\"stop\":[\"a\",\"bc\"],\"ignore_eos\":true,"
        "\"cache_prompt\":false,\"chat_template_kwargs\":{\"enable_thinking\":false,\"x\":[1]},"
        "\"enable_thinking\":true,"
        "\"messages\":[{\"role\":\"developer\",\"content\":\"s\"},"
        "{\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"text\":\"b\",\"type\":\"text\"}],"
        "\"role\":\"user\"}]}";
    struct request_params p;
    struct api_error err;
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, body, sizeof body - 1, true, &plain, &err), 0);
    CHECK_STR(p.model, "m");
    CHECK(p.stream && p.include_usage && p.ignore_end && !p.cache_prompt && p.seeded);
    CHECK_INT(p.max_tokens, 9);
    CHECK_INT(p.n, 3);
    CHECK(p.sampling.temperature == 0.5f && p.sampling.top_p == 0.25f);
    CHECK(p.sampling.min_p == 0.125f && p.sampling.top_k == 40);
    CHECK(p.sampling.presence_penalty == -1.5f && p.sampling.frequency_penalty == 2);
    CHECK(p.sampling.repetition_penalty == 1.5f);
    CHECK(p.sampling.seed == (uint64_t)-4);
    CHECK_INT(p.n_stops, 2);
    CHECK_INT(p.stops[1].len, 2);
    struct strbuf text = STRBUF_INIT;
    json_write(&text, p.messages);
    CHECK_STR(strbuf_str(&text), "[{\"role\":\"system\",\"content\":\"s\"},"
                                 "{\"content\":\"\\nb\",\"role\":\"user\"}]");
    CHECK_INT(p.messages->count, 2);
    strbuf_clear(&text);
    json_write(&text, p.extra);
    CHECK_STR(strbuf_str(&text), "{\"enable_thinking\":false,\"x\":[1]}");
    strbuf_free(&text);
    request_params_free(&p);
}

TEST(request_fields, has_defaults)
{
    struct request_params p;
    struct api_error err;
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, "{" HELLO "}", strlen("{" HELLO "}"), true,
                                  &plain, &err),
              0);
    CHECK(p.sampling.temperature == 1 && p.sampling.top_p == 1 && p.sampling.top_k == 0);
    CHECK(!p.stream && !p.include_usage && !p.seeded && p.cache_prompt && !p.extra && !p.model);
    CHECK(p.replay && !p.explain && p.add_generation_prompt && p.pin_s == 0);
    CHECK_INT(p.n, 1);
    CHECK_INT(p.max_tokens, 0);
    CHECK_INT(p.ignored.len, 0);
    request_params_free(&p);
}

TEST(request_fields, checks_types_and_ranges)
{
    static const struct {
        const char *field, *bad, *param;
    } cases[] = {
        {"temperature", "2.1", NULL},
        {"temperature", "-0.1", NULL},
        {"temperature", "\"1\"", NULL},
        {"temperature", "1e400", NULL},
        {"top_p", "1.01", NULL},
        {"top_p", "-1", NULL},
        {"top_k", "1.5", NULL},
        {"top_k", "-2", NULL},
        {"top_k", "-1e30", NULL},
        {"n", "1e30", NULL},
        {"min_p", "2", NULL},
        {"n", "0", NULL},
        {"n", "129", NULL},
        {"n", "true", NULL},
        {"presence_penalty", "3", NULL},
        {"frequency_penalty", "-3", NULL},
        {"repetition_penalty", "0", NULL},
        {"repeat_penalty", "-1", NULL},
        {"seed", "1.5", NULL},
        {"seed", "\"1\"", NULL},
        {"seed", "18446744073709551616", NULL},
        {"max_tokens", "0", NULL},
        {"max_tokens", "-2", NULL},
        {"max_tokens", "1.5", NULL},
        {"max_completion_tokens", "0", NULL},
        {"stream", "1", NULL},
        {"stream", "\"true\"", NULL},
        {"stop", "7", NULL},
        {"stop", "\"\"", NULL},
        {"stop", "[\"a\",1]", "stop[1]"},
        {"stop", "[\"\"]", "stop[0]"},
        {"stop", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "stop[0]"},
        {"stream_options", "true", NULL},
        {"stream_options", "{\"include_usage\":1}", "stream_options.include_usage"},
        {"ignore_eos", "0", NULL},
        {"cache_prompt", "\"no\"", NULL},
        {"model", "1", NULL},
        {"chat_template_kwargs", "[]", NULL},
        {"chat_template_kwargs", "{\"messages\":[]}", NULL},
        {"chat_template_kwargs", "{\"tools\":[]}", NULL},
        {"chat_template_kwargs", "{\"bos_token\":\"x\"}", NULL},
        {"chat_template_kwargs", "{\"a\\u0000b\":1}", NULL},
        {"enable_thinking", "1", NULL},
        {"chat_template_kwargs", "{\"enable_thinking\":1}", "chat_template_kwargs.enable_thinking"},
        {"reasoning_effort", "\"lots\"", NULL},
        {"reasoning_effort", "1", NULL},
        {"thinking_budget_tokens", "-2", NULL},
        {"thinking_budget", "1.5", NULL},
        {"continue_final_message", "1", NULL},
        {"typical_p", "1.1", NULL},
        {"xtc_probability", "-1", NULL},
        {"dry_multiplier", "-1", NULL},
        {"dry_allowed_length", "-1", NULL},
        {"dry_penalty_last_n", "-2", NULL},
        {"dry_sequence_breakers", "[\"\"]", NULL},
        {"dry_sequence_breakers", "[1]", NULL},
        {"repeat_last_n", "-2", NULL},
        {"min_tokens", "-1", NULL},
        {"logprobs", "1", NULL},
        {"top_logprobs", "21", NULL},
        {"top_logprobs", "2", NULL},
        {"logit_bias", "7", NULL},
        {"logit_bias", "{\"\":1}", NULL},
        {"logit_bias", "{\"a\":true}", NULL},
        {"logit_bias", "{\"a\":101}", NULL},
        {"logit_bias", "{\"-1\":1}", NULL},
        {"logit_bias", "{\"99999999999\":1}", NULL},
        {"logit_bias", "{\"1\":101}", NULL},
        {"logit_bias", "{\"1\":\"x\"}", NULL},
        {"logit_bias", "{\"1\":true}", NULL},
        {"logit_bias", "[1]", NULL},
        {"logit_bias", "[[1]]", NULL},
        {"logit_bias", "[[\"\",2]]", NULL},
        {"logit_bias", "[[\"a\",\"b\"]]", NULL},
        {"logit_bias", "[[1.5,2]]", NULL},
        {"logit_bias", "[[null,2]]", NULL},
        {"logit_bias", "[[1,2,3]]", NULL},
        {"logit_bias", "[{\"a\":1}]", NULL},
        {"response_format", "\"json\"", NULL},
        {"response_format", "{}", NULL},
        {"response_format", "{\"type\":\"xml\"}", NULL},
        {"response_format", "{\"type\":\"json_schema\"}", NULL},
        {"response_format", "{\"type\":\"json_schema\",\"json_schema\":{}}",
         "response_format.json_schema"},
        {"response_format", "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":7}}",
         "response_format.json_schema.schema"},
        {"json_schema", "[]", NULL},
        {"json_schema", "\"{\"", NULL},
        {"grammar", "{}", NULL},
        {"regex", "1", NULL},
        {"guided_choice", "\"a\"", NULL},
        {"guided_choice", "[1]", NULL},
        {"guided_choice", "[\"\"]", NULL},
        {"structured_outputs", "{\"regex\":1}", "structured_outputs.regex"},
        {"tools", "{}", NULL},
        {"tools", "[1]", "tools[0]"},
        {"tools", "[{\"type\":\"function\"}]", "tools[0]"},
        {"tools", "[{\"type\":\"custom\",\"function\":{\"name\":\"f\"}}]", "tools[0].type"},
        {"tools", "[{\"function\":{}}]", "tools[0].function"},
        {"tools", "[{\"function\":{\"name\":\"\"}}]", "tools[0].function.name"},
        {"tools", "[{\"function\":{\"name\":\"a b\"}}]", "tools[0].function.name"},
        {"tools", "[{\"function\":{\"name\":\"f\",\"parameters\":[]}}]",
         "tools[0].function.parameters"},
        {"tools", "[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"f\"}}]", NULL},
        {"tool_choice", "\"maybe\"", NULL},
        {"tool_choice", "\"required\"", NULL},
        {"tool_choice", "{\"type\":\"function\"}", NULL},
        {"tool_choice", "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", NULL},
        {"tool_choice", "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\"}}", NULL},
        {"parallel_tool_calls", "1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf body = STRBUF_INIT;
        strbuf_addf(&body, "{" HELLO ",\"%s\":%s}", cases[i].field, cases[i].bad);
        check_refused(strbuf_str(&body), cases[i].param ? cases[i].param : cases[i].field);
        strbuf_clear(&body);
        strbuf_addf(&body, "{" HELLO ",\"%s\":null}", cases[i].field);
        check_accepted(strbuf_str(&body));
        strbuf_free(&body);
    }
    check_accepted("{" HELLO ",\"max_tokens\":-1}");
    check_accepted("{" HELLO ",\"max_tokens\":9007199254740993}");
    check_accepted("{" HELLO ",\"seed\":18446744073709551615}");
    check_accepted("{" HELLO ",\"n\":8.0,\"top_k\":-1,\"temperature\":0}");
    check_accepted("{" HELLO ",\"chat_template_kwargs\":{\"message\":1,\"token\":2}}");
}

static void check_message(const char *field, const char *message)
{
    char body[256];
    snprintf(body, sizeof body, "{" HELLO ",%s}", field);
    CHECK_INT(status_of(body, false), 400);
    CHECK_STR(seen.message, message);
}

TEST(request_fields, says_what_is_wrong_with_a_number)
{
    check_message("\"max_tokens\":1.5", "'max_tokens' must be an integer, not 1.5");
    check_message("\"max_tokens\":-2",
                  "'max_tokens' must be at least 1, or -1 for no limit, not -2");
    check_message("\"max_tokens\":-99999999999999999999",
                  "'max_tokens' must be at least 1, or -1 for no limit, not -99999999999999999999");
    check_message("\"max_tokens\":\"7\"",
                  "'max_tokens' must be an integer, not string (at byte 58)");
    check_message("\"n\":99999999999999999999",
                  "'n' must be from 1 to 128, not 99999999999999999999");
    check_message("\"n\":2.5", "'n' must be an integer, not 2.5");
    check_message("\"top_k\":-2", "'top_k' must be at least -1, not -2");
    check_message("\"temperature\":2.5", "'temperature' must be from 0 to 2, not 2.5");
    check_message("\"seed\":0.5", "'seed' must be an integer of 64 bits, not 0.5");
}

TEST(request_fields, clamps_integers_that_are_too_large)
{
    static const char *const large[] = {"9223372036854775808", "99999999999999999999", "1e30",
                                        "1e400"};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct request_params p;
        struct api_error err;
        char body[256];
        int len = snprintf(body, sizeof body, "{" HELLO ",\"max_tokens\":%s,\"top_k\":%s}",
                           large[i], large[i]);
        CHECK_INT(request_params_read(&p, REQUEST_CHAT, body, (size_t)len, true, &plain, &err), 0);
        CHECK(p.max_tokens == INT64_MAX);
        CHECK_INT(p.sampling.top_k, INT32_MAX);
        request_params_free(&p);
    }
}

TEST(request_fields, a_seed_of_minus_one_is_none)
{
    static const struct {
        const char *seed;
        bool seeded;
    } cases[] = {
        {"-1", false}, {"-1.0", false}, {"-2", true}, {"0", true}, {"18446744073709551615", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request_params p;
        struct api_error err;
        char body[256];
        int len = snprintf(body, sizeof body, "{" HELLO ",\"seed\":%s}", cases[i].seed);
        CHECK_INT(request_params_read(&p, REQUEST_CHAT, body, (size_t)len, true, &plain, &err), 0);
        CHECK_INT(p.seeded, cases[i].seeded);
        request_params_free(&p);
    }
}

TEST(request_fields, refuses_what_is_not_supported_unless_neutral)
{
    check_refused("{" HELLO ",\"functions\":[{}]}", "functions[0]");
    check_refused("{" HELLO ",\"prompt_logprobs\":1}", "prompt_logprobs");
    check_refused("{" HELLO ",\"best_of\":2}", "best_of");
    check_refused("{" HELLO ",\"audio\":{}}", "audio");
    check_refused("{" HELLO ",\"modalities\":[\"text\",\"audio\"]}", "modalities");
    check_accepted("{" HELLO ",\"tools\":[],\"tool_choice\":\"none\",\"logprobs\":false,"
                   "\"top_logprobs\":0.0,\"logit_bias\":{},\"modalities\":[\"text\"],"
                   "\"response_format\":{ \"type\" : \"text\" },\"audio\":null,"
                   "\"function_call\":\"auto\",\"best_of\":1}");
    check_accepted("{" HELLO ",\"user\":5,\"metadata\":{\"a\":1},\"service_tier\":\"auto\","
                   "\"prompt_cache_key\":\"k\",\"store\":true,\"parallel_tool_calls\":true}");
}

TEST(request_fields, checks_messages)
{
    check_refused("{}", "messages");
    check_refused("{\"messages\":null}", "messages");
    check_refused("{\"messages\":[]}", "messages");
    check_refused("{\"messages\":{}}", "messages");
    check_refused("{\"messages\":\"hi\"}", "messages");
    check_refused("{\"messages\":[\"hi\"]}", "messages[0]");
    check_refused("{\"messages\":[{\"content\":\"hi\"}]}", "messages[0]");
    check_refused("{\"messages\":[{\"role\":\"user\"}]}", "messages[0]");
    check_refused("{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "messages[0]");
    check_refused("{\"messages\":[{\"role\":\"bob\",\"content\":\"\"}]}", "messages[0].role");
    check_refused("{\"messages\":[{\"role\":\"user\\u0000\",\"content\":\"\"}]}",
                  "messages[0].role");
    check_refused("{\"messages\":[{\"role\":5,\"content\":\"\"}]}", "messages[0].role");
    check_accepted("{\"messages\":[{\"role\":\"function\",\"content\":\"\"}]}");
    check_refused("{\"messages\":[{\"role\":\"robot\",\"content\":\"\"}]}", "messages[0].role");
    check_refused("{"
                  "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                  "{\"role\":\"user\",\"content\":7}]}",
                  "messages[1].content");
    check_refused("{\"messages\":[{\"role\":\"assistant\",\"content\":\"\","
                  "\"tool_calls\":[{}]}]}",
                  "messages[0].tool_calls[0]");
    check_accepted("{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":null,"
                   "\"refusal\":null,\"audio\":null,\"name\":\"x\",\"annotations\":[]}]}");
    check_accepted("{\"messages\":[{\"role\":\"user\",\"content\":[]}]}");
}

#define PART(part) "{\"messages\":[{\"role\":\"user\",\"content\":[" part "]}]}"

TEST(request_fields, checks_parts)
{
    check_refused(PART("\"text\""), "messages[0].content[0]");
    check_refused(PART("{}"), "messages[0].content[0]");
    check_refused(PART("{\"type\":\"text\"}"), "messages[0].content[0]");
    check_refused(PART("{\"type\":\"text\",\"text\":5}"), "messages[0].content[0]");
    check_refused(PART("{\"type\":\"text\",\"text\":\"\"},{\"type\":\"input_audio\"}"),
                  "messages[0].content[1].type");
    check_refused(PART("{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}}"),
                  "messages[0].content[0].type");
    CHECK(strstr(seen.message, "vision") != NULL);
    check_accepted(PART("{\"type\":\"text\",\"text\":\"\",\"cache_control\":{}}"));
}

TEST(request_fields, names_unknown_fields)
{
    static const char body[] =
        "{\"foo\":1,\"fo\":2,\"foo2\":null,\"a\\r\\nB: c, d\":1,\"\\u00e9\":0,"
        "\"messages\":[{\"role\":\"user\",\"content\":\"\",\"bar\":1},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\",\"baz\":1}],\"bar\":2}],"
        "\"stream_options\":{\"qux\":1}}";
    struct request_params p;
    struct api_error err;
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, body, sizeof body - 1, false, &plain, &err), 0);
    CHECK_STR(strbuf_str(&p.ignored), "foo, fo, a??B:?c??d, ??, messages[].bar, "
                                      "messages[].content[].baz, stream_options.qux");
    request_params_free(&p);
    CHECK_INT(status_of(body, true), 400);
    CHECK_STR(seen.param, "foo");

    struct strbuf many = STRBUF_INIT;
    strbuf_adds(&many, "{" HELLO);
    for (int i = 0; i < 5000; i++)
        strbuf_addf(&many, ",\"field-%d\":1", i);
    strbuf_addc(&many, '}');
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, many.data, many.len, false, &plain, &err), 0);
    CHECK(p.ignored.len < 1024);
    request_params_free(&p);
    strbuf_free(&many);
}

TEST(request_fields, reads_options_of_radish)
{
    static const char body[] = "{" HELLO
                               ",\"radish\":{\"explain\":true,\"replay\":false,\"why\":1}}";
    struct request_params p;
    struct api_error err;
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, body, sizeof body - 1, false, &plain, &err), 0);
    CHECK(p.explain && !p.replay);
    CHECK_STR(strbuf_str(&p.ignored), "radish.why");
    request_params_free(&p);
    CHECK_INT(status_of(body, true), 400);
    CHECK_STR(seen.param, "radish.why");
    check_accepted("{" HELLO ",\"radish\":{},\"replay\":true}");
    check_accepted("{" HELLO ",\"radish\":null,\"replay\":null}");
    check_accepted("{" HELLO ",\"radish\":{\"explain\":null,\"replay\":null}}");
    check_refused("{" HELLO ",\"radish\":true}", "radish");
    check_refused("{" HELLO ",\"radish\":{\"explain\":1}}", "radish.explain");
    check_refused("{" HELLO ",\"radish\":{\"replay\":\"no\"}}", "radish.replay");
    check_refused("{" HELLO ",\"replay\":0}", "replay");
}

static int warm_status(const char *body)
{
    struct request_params p;
    int rc = request_params_read(&p, REQUEST_WARM, body, strlen(body), true, &plain, &seen);
    request_params_free(&p);
    return rc ? seen.status : 200;
}

TEST(request_fields, reads_a_warming)
{
    static const char body[] =
        "{" HELLO ",\"model\":\"m\",\"pin\":90.5,\"radish\":{\"explain\":true},"
        "\"replay\":false,\"enable_thinking\":false,\"max_tokens\":5,\"n\":3,\"stop\":[\"a\"],"
        "\"temperature\":99,\"stream\":false,\"cache_prompt\":true,\"user\":\"u\"}";
    struct request_params p;
    struct api_error err;
    CHECK_INT(request_params_read(&p, REQUEST_WARM, body, sizeof body - 1, true, &plain, &err), 0);
    CHECK(p.pin_s == 90.5f && p.explain && !p.replay && !p.add_generation_prompt);
    CHECK(p.n == 1 && p.max_tokens == 0 && p.n_stops == 0 && p.sampling.temperature == 1);
    CHECK(json_get(p.extra, "enable_thinking") != NULL);
    request_params_free(&p);
    CHECK_INT(warm_status("{" HELLO ",\"add_generation_prompt\":true,\"pin\":0}"), 200);
    CHECK_INT(warm_status("{" HELLO ",\"pin\":604800}"), 200);
    static const struct {
        const char *body, *param;
    } wrong[] = {
        {"{" HELLO ",\"pin\":-1}", "pin"},
        {"{" HELLO ",\"pin\":604801}", "pin"},
        {"{" HELLO ",\"pin\":1e999}", "pin"},
        {"{" HELLO ",\"pin\":\"1\"}", "pin"},
        {"{" HELLO ",\"stream\":true}", "stream"},
        {"{" HELLO ",\"cache_prompt\":false}", "cache_prompt"},
        {"{" HELLO ",\"tools\":[{}]}", "tools[0]"},
        {"{" HELLO ",\"pins\":1}", "pins"},
        {"{}", "messages"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(warm_status(wrong[i].body), 400);
        CHECK_STR(seen.param, wrong[i].param);
    }
    /* Fields of a warming request are unknown to an answer. */
    CHECK_INT(status_of("{" HELLO ",\"pin\":1}", true), 400);
    CHECK_STR(seen.param, "pin");
    CHECK_INT(status_of("{" HELLO ",\"add_generation_prompt\":false}", false), 400);
}

TEST(request_fields, says_where_json_is_wrong)
{
    CHECK_INT(status_of("{\"messages\": [}", false), 400);
    CHECK(strstr(seen.message, "14") != NULL);
    CHECK_INT(status_of("", false), 400);
    CHECK_INT(status_of("[]", false), 400);
    CHECK_INT(status_of("{\"n\":1,\"n\":2," HELLO "}", false), 400);
    CHECK_INT(status_of("{" HELLO "} x", false), 400);
}

TEST(request_fields, writes_errors_in_openais_shape)
{
    struct api_error e;
    struct strbuf out = STRBUF_INIT;
    api_error_set(&e, 400, "top_p", "'%s' is \"bad\"", "top_p");
    e.code = "c";
    api_error_write(&out, &e, ERRORS_OPENAI);
    CHECK_STR(strbuf_str(&out), "{\"error\":{\"message\":\"'top_p' is \\\"bad\\\"\",\"type\":"
                                "\"invalid_request_error\",\"param\":\"top_p\",\"code\":\"c\"}}");
    strbuf_clear(&out);
    api_error_set(&e, 500, NULL, "x");
    api_error_write(&out, &e, ERRORS_OPENAI);
    CHECK_STR(strbuf_str(&out), "{\"error\":{\"message\":\"x\",\"type\":\"server_error\","
                                "\"param\":null,\"code\":null}}");
    strbuf_free(&out);
}

TEST(request_fields, names_errors_as_the_api_of_the_path_does)
{
    static const struct {
        const char *path;
        int status;
        uint32_t context;
        const char *wanted;
    } cases[] = {
        {"/v1/chat/completions", 401, 0, "\"type\":\"invalid_request_error\""},
        {"/v1/chat/completions", 501, 0, "\"type\":\"server_error\""},
        {"/v1/completions", 400, 8, "\"type\":\"invalid_request_error\""},
        {"", 401, 0, "\"type\":\"invalid_request_error\""},
        {"/completion", 401, 0, "\"type\":\"authentication_error\""},
        {"/infill", 501, 0, "\"type\":\"not_supported_error\""},
        {"/infill", 500, 0, "\"type\":\"server_error\""},
        {"/chat/completions", 400, 8, "\"type\":\"exceed_context_size_error\""},
        {"/chat/completions", 400, 8, "\"n_prompt_tokens\":9,\"n_ctx\":8}"},
        {"/chat/completions", 400, 0,
         "\"type\":\"invalid_request_error\",\"param\":null,"
         "\"code\":null}"},
        {"/api/chat", 400, 8, "{\"error\":\"x\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error e;
        struct strbuf out = STRBUF_INIT;
        api_error_set(&e, cases[i].status, NULL, "x");
        e.context = cases[i].context;
        e.n_prompt_tokens = 9;
        api_error_write(&out, &e, error_form_of(cases[i].path));
        CHECK(strstr(strbuf_str(&out), cases[i].wanted) != NULL);
        strbuf_free(&out);
    }
}

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}},{\"type\":"                  \
    "\"function\",\"function\":{\"name\":\"g\",\"parameters\":{\"type\":\"object\"}}}]"

/* Reads a body that must be fine. */
static void read_well(struct request_params *p, enum request_kind kind, const char *body)
{
    if (request_params_read(p, kind, body, strlen(body), true, &plain, &seen))
        test_fail(__FILE__, __LINE__, "%s: %s", body, seen.message);
}

TEST(request_fields, reads_tools_and_their_choice)
{
    struct request_params p;
    read_well(&p, REQUEST_CHAT, "{" HELLO "," TOOLS "}");
    CHECK(p.tools && p.tools->count == 2 && p.tool_choice == TOOL_CHOICE_AUTO && p.parallel_calls);
    CHECK(!p.allowed_tools);
    request_params_free(&p);
    read_well(&p, REQUEST_CHAT, "{\"tool_choice\":\"required\"," HELLO "," TOOLS "}");
    CHECK(p.tool_choice == TOOL_CHOICE_REQUIRED && !p.allowed_tools);
    request_params_free(&p);
    read_well(&p, REQUEST_CHAT,
              "{" HELLO "," TOOLS ",\"parallel_tool_calls\":true,\"tool_choice\":{\"type\":"
              "\"function\",\"function\":{\"name\":\"g\"}}}");
    CHECK(p.tool_choice == TOOL_CHOICE_REQUIRED && p.allowed_tools->count == 1);
    CHECK(json_equals(p.allowed_tools->first, "g") && !p.parallel_calls);
    request_params_free(&p);
    read_well(
        &p, REQUEST_CHAT,
        "{" HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":"
        "{\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}}}");
    CHECK(p.tool_choice == TOOL_CHOICE_AUTO && json_equals(p.allowed_tools->first, "f"));
    request_params_free(&p);
    static const int counts[] = {0, 1, REQUEST_MAX_TOOLS, REQUEST_MAX_TOOLS + 1};
    for (int i = 0; i < 4; i++) {
        struct strbuf body = STRBUF_INIT;
        strbuf_adds(&body, "{" HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\","
                           "\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[");
        for (int k = 0; k < counts[i]; k++)
            strbuf_addf(&body, "%s{\"type\":\"function\",\"function\":{\"name\":\"f\"}}",
                        k ? "," : "");
        strbuf_adds(&body, "]}}}");
        if (counts[i] >= 1 && counts[i] <= REQUEST_MAX_TOOLS)
            check_accepted(strbuf_str(&body));
        else
            check_refused(strbuf_str(&body), "tool_choice");
        strbuf_free(&body);
    }
    check_refused("{" HELLO "," TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":"
                  "{\"name\":\"h\"}}}",
                  "tool_choice");
    read_well(&p, REQUEST_CHAT,
              "{" HELLO "," TOOLS ",\"tool_choice\":\"required\",\"regex\":\"a\"}");
    CHECK_INT(p.constraint.kind, CONSTRAINT_NONE); /* there will be no text for it */
    request_params_free(&p);
}

TEST(request_fields, an_assistant_may_have_said_nothing)
{
    struct request_params p;
    read_well(&p, REQUEST_CHAT,
              "{\"messages\":[{\"role\":\"assistant\"},{\"role\":\"user\",\"content\":\"q\"}]}");
    struct strbuf text = STRBUF_INIT;
    json_write(&text, p.messages);
    CHECK_STR(strbuf_str(&text), "[{\"role\":\"assistant\",\"content\":\"\"},"
                                 "{\"role\":\"user\",\"content\":\"q\"}]");
    strbuf_free(&text);
    request_params_free(&p);
}

TEST(request_fields, reads_calls_and_results)
{
    struct request_params p;
    struct strbuf text = STRBUF_INIT;
    read_well(&p, REQUEST_CHAT,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
              "\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"c1\",\"type\":\"function\","
              "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"b\\\": 1.0}\"}},"
              "{\"id\":\"c2\",\"function\":{\"arguments\":{\"a\":2},\"name\":\"g\"}},"
              "{\"id\":\"c3\",\"function\":{\"name\":\"h\"}}]},"
              "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"}]}");
    json_write(&text, p.messages);
    CHECK_STR(strbuf_str(&text),
              "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"tool_calls\":["
              "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
              "\"{\\\"b\\\": 1.0}\"}},{\"id\":\"c2\",\"type\":\"function\",\"function\":"
              "{\"arguments\":\"{\\\"a\\\":2}\",\"name\":\"g\"}},{\"id\":\"c3\",\"type\":"
              "\"function\",\"function\":{\"name\":\"h\",\"arguments\":\"{}\"}}],\"content\":null},"
              "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"}]");
    strbuf_free(&text);
    request_params_free(&p);
    check_refused("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}]}",
                  "messages[0].tool_calls[0].function");
    check_refused("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"x\"}]}]}",
                  "messages[0].tool_calls[0]");
    check_refused(
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\"}]}]}",
        "messages[0].tool_calls[0].type");
    check_refused("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":"
                  "{\"name\":\"f\",\"arguments\":7}}]}]}",
                  "messages[0].tool_calls[0].function.arguments");
    check_refused(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\",\"tool_calls\":[{\"function\":"
        "{\"name\":\"f\"}}]}]}",
        "messages[0]");
}

TEST(request_fields, reads_one_form_of_the_answer)
{
    static const struct {
        const char *field;
        enum constraint_kind kind;
    } cases[] = {
        {"\"response_format\":{\"type\":\"text\"}", CONSTRAINT_NONE},
        {"\"response_format\":{\"type\":\"json_object\"}", CONSTRAINT_JSON},
        {"\"response_format\":{\"type\":\"json_object\",\"schema\":{}}", CONSTRAINT_SCHEMA},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
         "\"strict\":true,\"schema\":{\"type\":\"object\"}}}",
         CONSTRAINT_SCHEMA},
        {"\"json_schema\":{}", CONSTRAINT_SCHEMA},
        {"\"guided_json\":\"{}\"", CONSTRAINT_SCHEMA},
        {"\"grammar\":\"root ::= \\\"a\\\"\"", CONSTRAINT_GBNF},
        {"\"grammar\":\"\"", CONSTRAINT_NONE},
        {"\"guided_grammar\":\"x\"", CONSTRAINT_GBNF},
        {"\"regex\":\"a+\"", CONSTRAINT_REGEX},
        {"\"guided_regex\":\"a+\"", CONSTRAINT_REGEX},
        {"\"guided_choice\":[\"a\",\"b\"]", CONSTRAINT_CHOICES},
        {"\"guided_choice\":[]", CONSTRAINT_NONE},
        {"\"structured_outputs\":{\"json\":{}}", CONSTRAINT_SCHEMA},
        {"\"structured_outputs\":{\"choice\":[\"a\"]}", CONSTRAINT_CHOICES},
        {"\"structured_outputs\":{\"json_object\":true}", CONSTRAINT_JSON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request_params p;
        struct strbuf body = STRBUF_INIT;
        strbuf_addf(&body, "{" HELLO ",%s}", cases[i].field);
        read_well(&p, REQUEST_CHAT, strbuf_str(&body));
        CHECK_INT(p.constraint.kind, cases[i].kind);
        request_params_free(&p);
        strbuf_free(&body);
    }
    check_refused("{" HELLO ",\"regex\":\"a\",\"grammar\":\"b\"}", "grammar");
    check_refused("{" HELLO ",\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}}",
                  "structured_outputs.choice");
}

TEST(request_fields, an_answer_is_begun_or_continued)
{
    static const char both[] = "{" HELLO ",\"continue_final_message\":true,"
                               "\"add_generation_prompt\":true}";
    struct request_params p;
    check_refused(both, "add_generation_prompt");
    CHECK(strstr(seen.message, "cannot both be true") != NULL);
    check_refused("{" HELLO ",\"add_generation_prompt\":true,\"continue_final_message\":true}",
                  "add_generation_prompt");
    check_refused("{" HELLO ",\"add_generation_prompt\":false}", "add_generation_prompt");
    CHECK_INT(request_params_read(&p, REQUEST_RENDER, both, strlen(both), true, &plain, &seen), -1);
    request_params_free(&p);
    check_accepted("{" HELLO ",\"continue_final_message\":true,\"add_generation_prompt\":false}");
    check_accepted("{" HELLO ",\"continue_final_message\":true,\"add_generation_prompt\":null}");
    check_accepted("{" HELLO ",\"continue_final_message\":false,\"add_generation_prompt\":true}");
    check_accepted("{" HELLO ",\"continue_final_message\":true}");
}

TEST(request_fields, reads_biases_and_samplers)
{
    struct request_params p;
    read_well(&p, REQUEST_CHAT,
              "{" HELLO ",\"logit_bias\":{\"5\":-100,\"7\":2.5},\"logprobs\":true,"
              "\"top_logprobs\":20,\"typical_p\":0.5,\"xtc_probability\":0.25,"
              "\"xtc_threshold\":0.2,\"dry_multiplier\":0.8,\"dry_base\":2,"
              "\"dry_allowed_length\":3,\"dry_penalty_last_n\":64,\"repeat_last_n\":8,"
              "\"dry_sequence_breakers\":[\"x\"],\"min_tokens\":4}");
    CHECK(p.n_biases == 2 && p.biases[0].token == 5 && p.biases[0].bias == -100);
    CHECK(p.biases[1].token == 7 && p.biases[1].bias == 2.5f);
    CHECK(p.logprobs && p.top_logprobs == 20 && p.min_tokens == 4);
    CHECK(p.sampling.typical_p == 0.5f && p.sampling.xtc_probability == 0.25f);
    CHECK(p.sampling.xtc_threshold == 0.2f && p.sampling.dry_multiplier == 0.8f);
    CHECK(p.sampling.dry_base == 2 && p.sampling.dry_allowed_length == 3);
    CHECK(p.sampling.dry_last_n == 64 && p.sampling.repeat_last_n == 8 && p.dry_breakers);
    request_params_free(&p);
    read_well(&p, REQUEST_CHAT,
              "{" HELLO ",\"logit_bias\":[[5,1],[6,false]],\"dry_multiplier\":1,"
              "\"dry_penalty_last_n\":0,\"repeat_penalty\":2,\"repeat_last_n\":0}");
    CHECK(p.n_biases == 2 && p.biases[1].token == 6 && p.biases[1].bias == -100);
    CHECK(p.sampling.dry_multiplier == 0 && p.sampling.repetition_penalty == 1);
    request_params_free(&p);
    read_well(&p, REQUEST_CHAT, "{" HELLO ",\"logit_bias\":{\"5\":1,\"5 x\":false,\"\\u0000\":2}}");
    CHECK(p.n_biases == 1 && p.biases[0].token == 5 && p.n_text_biases == 2);
    CHECK(p.text_biases[0].text.len == 3 && p.text_biases[0].bias == -100);
    CHECK(p.text_biases[1].text.len == 1 && p.text_biases[1].bias == 2);
    request_params_free(&p);
    read_well(&p, REQUEST_CHAT, "{" HELLO ",\"logit_bias\":[[\"5\",1],[6,2]]}");
    CHECK(p.n_biases == 1 && p.biases[0].token == 6 && p.n_text_biases == 1);
    CHECK(p.text_biases[0].text.len == 1 && p.text_biases[0].text.bytes[0] == '5');
    request_params_free(&p);
}

TEST(request_fields, switches_thinking)
{
    static const struct {
        const char *field;
        int64_t tokens;
    } cases[] = {
        {"\"user\":\"\"", -1},
        {"\"enable_thinking\":false", 0},
        {"\"enable_thinking\":true", -1},
        {"\"chat_template_kwargs\":{\"enable_thinking\":false}", 0},
        {"\"reasoning_effort\":\"none\"", 0},
        {"\"reasoning_effort\":\"high\"", -1},
        {"\"thinking_budget_tokens\":17", 17},
        {"\"thinking_budget\":0", 0},
        {"\"thinking_budget\":9,\"enable_thinking\":false", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request_params p;
        struct strbuf body = STRBUF_INIT;
        strbuf_addf(&body, "{" HELLO ",%s}", cases[i].field);
        read_well(&p, REQUEST_CHAT, strbuf_str(&body));
        CHECK_INT(p.thinking_tokens, cases[i].tokens);
        request_params_free(&p);
        strbuf_free(&body);
    }
}

TEST(request_fields, reads_texts_and_tokens)
{
    static const struct {
        enum request_kind kind;
        const char *body, *param; /* NULL: it is fine */
    } cases[] = {
        {REQUEST_TEXT, "{\"prompt\":\"a\"}", NULL},
        {REQUEST_TEXT, "{\"prompt\":[1,2]}", NULL},
        {REQUEST_TEXT, "{\"prompt\":[\"a\",[1,2],\"\"],\"logprobs\":0,\"echo\":true}", NULL},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"max_tokens\":0,\"suffix\":\"\"}", NULL},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"logprobs\":false,\"best_of\":1}", NULL},
        {REQUEST_TEXT, "{}", "prompt"},
        {REQUEST_TEXT, "{\"prompt\":[]}", "prompt"},
        {REQUEST_TEXT, "{\"prompt\":{}}", "prompt"},
        {REQUEST_TEXT, "{\"prompt\":[1,\"a\"]}", "prompt"},
        {REQUEST_TEXT, "{\"prompt\":[1,-2]}", "prompt"},
        {REQUEST_TEXT, "{\"prompt\":[1.5]}", "prompt"},
        {REQUEST_TEXT, "{\"prompt\":[\"a\",1]}", "prompt[1]"},
        {REQUEST_TEXT, "{\"prompt\":[[\"a\"]]}", "prompt[0]"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"logprobs\":21}", "logprobs"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"logprobs\":true}", "logprobs"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"suffix\":\"b\",\"best_of\":2}", NULL},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"suffix\":1}", "suffix"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"best_of\":2,\"n\":3}", "best_of"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"best_of\":129}", "best_of"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"best_of\":2,\"stream\":true}", "best_of"},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"best_of\":1,\"stream\":true}", NULL},
        {REQUEST_TEXT, "{\"prompt\":\"a\",\"functions\":[{}]}", "functions"},
        {REQUEST_TEXT, "{\"prompt\":\"a\"," HELLO "}", "messages"},
        {REQUEST_TOKENIZE, "{\"content\":\"a\",\"with_pieces\":true}", NULL},
        {REQUEST_TOKENIZE, "{\"prompt\":\"a\",\"add_special_tokens\":true}", NULL},
        {REQUEST_TOKENIZE, "{}", "content"},
        {REQUEST_TOKENIZE, "{\"content\":1}", "content"},
        {REQUEST_TOKENIZE, "{\"content\":[1,\"a\",2]}", NULL},
        {REQUEST_TOKENIZE, "{\"content\":[1,-2]}", "content"},
        {REQUEST_TOKENIZE, "{\"content\":[[]]}", "content"},
        {REQUEST_TOKENIZE, "{\"content\":\"a\",\"n\":1}", "n"},
        {REQUEST_DETOKENIZE, "{\"tokens\":[1,2,3]}", NULL},
        {REQUEST_DETOKENIZE, "{\"tokens\":[]}", NULL},
        {REQUEST_DETOKENIZE, "{\"tokens\":[\"1\"]}", "tokens"},
        {REQUEST_DETOKENIZE, "{}", "tokens"},
        {REQUEST_RENDER, "{" HELLO ",\"add_generation_prompt\":false}", NULL},
        {REQUEST_RENDER, "{}", "messages"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request_params p;
        int rc = request_params_read(&p, cases[i].kind, cases[i].body, strlen(cases[i].body), true,
                                     &plain, &seen);
        request_params_free(&p);
        if (!cases[i].param && rc)
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].body, seen.message);
        if (cases[i].param && (!rc || strcmp(seen.param, cases[i].param) != 0))
            test_fail(__FILE__, __LINE__, "%s: '%s'", cases[i].body, rc ? seen.param : "accepted");
    }
}

TEST(request_fields, what_is_not_said_is_the_models_default)
{
    static const char body[] = "{" HELLO ",\"temperature\":0.2,\"min_p\":null}";
    struct sampling own = SAMPLING_DEFAULT;
    struct request_params p;
    own.temperature = 0.6f;
    own.top_p = 0.95f;
    own.top_k = 20;
    own.min_p = 0.1f;
    own.repetition_penalty = 1.05f;
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, body, sizeof body - 1, true, &own, &seen), 0);
    CHECK(p.sampling.temperature == 0.2f && p.sampling.top_p == 0.95f && p.sampling.top_k == 20);
    CHECK(p.sampling.min_p == 0.1f && p.sampling.repetition_penalty == 1.05f);
    request_params_free(&p);
    static const char none[] = "{" HELLO ",\"top_k\":-1,\"top_p\":1}";
    CHECK_INT(request_params_read(&p, REQUEST_CHAT, none, sizeof none - 1, true, &own, &seen), 0);
    CHECK(p.sampling.temperature == 0.6f && p.sampling.top_p == 1 && p.sampling.top_k == 0);
    request_params_free(&p);
}

static void read_chat(struct request_params *p, const char *body)
{
    if (request_params_read(p, REQUEST_CHAT, body, strlen(body), true, &plain, &seen))
        test_fail(__FILE__, __LINE__, "%s: %s", body, seen.message);
}

#define ANSWER(members)                                                                            \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\"," members "}]}"

TEST(request_fields, reads_earlier_answers)
{
    struct request_params p;
    read_chat(&p, ANSWER("\"content\":\"x\",\"reasoning_content\":\"because\""));
    CHECK(json_equals(json_get(p.messages->last, "reasoning_content"), "because"));
    request_params_free(&p);
    read_chat(&p,
              ANSWER("\"content\":\"x\",\"reasoning\":\"first\",\"reasoning_content\":\"second\""));
    CHECK(json_equals(json_get(p.messages->last, "reasoning_content"), "first"));
    request_params_free(&p);
    read_chat(&p, ANSWER("\"refusal\":\"I must not\""));
    CHECK(json_equals(json_get(p.messages->last, "content"), "I must not"));
    request_params_free(&p);
    read_chat(&p, ANSWER("\"content\":\"x\",\"refusal\":\"y\""));
    CHECK(json_equals(json_get(p.messages->last, "content"), "x"));
    CHECK_INT(json_get(p.messages->last, "content")->next == NULL, 1);
    request_params_free(&p);
    read_chat(&p, ANSWER("\"content\":\"x\",\"prefix\":true"));
    CHECK(p.ends_with_prefix);
    request_params_free(&p);
    read_chat(&p, ANSWER("\"content\":\"x\",\"prefix\":false"));
    CHECK(!p.ends_with_prefix && !p.continues);
    request_params_free(&p);
}

static bool thinks(const struct request_params *p)
{
    const struct json *enabled = json_get(p->extra, "enable_thinking");
    CHECK(enabled && enabled->boolean == !p->no_thinking);
    return enabled->boolean;
}

TEST(request_fields, reads_every_spelling_of_thinking)
{
    struct request_params p;
    read_chat(&p, "{" HELLO ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":7}}");
    CHECK(thinks(&p));
    CHECK_INT(p.thinking_tokens, 7);
    request_params_free(&p);
    read_chat(&p, "{" HELLO ",\"thinking\":{\"type\":\"adaptive\"}}");
    CHECK(thinks(&p));
    request_params_free(&p);
    read_chat(&p, "{" HELLO ",\"thinking\":{\"type\":\"disabled\"}}");
    CHECK(!thinks(&p));
    request_params_free(&p);
    read_chat(&p, "{" HELLO ",\"reasoning\":{\"effort\":\"low\"}}");
    CHECK(json_equals(json_get(p.extra, "reasoning_effort"), "low") && !p.no_thinking);
    request_params_free(&p);
    read_chat(&p, "{" HELLO ",\"reasoning_effort\":\"none\"}");
    CHECK(!thinks(&p));
    request_params_free(&p);
    read_chat(&p, "{" HELLO ",\"enable_thinking\":true,\"reasoning_effort\":\"none\"}");
    CHECK(thinks(&p)); /* the first of two spellings stays */
    request_params_free(&p);
    check_refused("{" HELLO ",\"thinking\":{\"type\":\"perhaps\"}}", "thinking.type");
    check_refused("{" HELLO ",\"reasoning\":{\"effort\":\"huge\"}}", "reasoning.effort");
}

/* A body of a few megabytes can ask for hundreds of them. */
TEST(request_fields, bounds_what_a_request_takes)
{
    static const char begin[] = "{" HELLO ",\"metadata\":[", item[] = "[],", end[] = "[]]}";
    const size_t n = 3000000;
    struct strbuf body = STRBUF_INIT;
    strbuf_adds(&body, begin);
    CHECK(strbuf_reserve(&body, n * sizeof item));
    for (size_t i = 0; i < n; i++)
        strbuf_add(&body, item, sizeof item - 1);
    strbuf_adds(&body, end);
    int status = status_of(strbuf_str(&body), false);
    strbuf_free(&body);
    CHECK_INT(status, 413);
    CHECK(strstr(seen.message, "takes too much memory (the limit is 256 MiB)") != NULL);
    body = (struct strbuf)STRBUF_INIT;
    strbuf_adds(&body, "{" HELLO ",\"chat_template_kwargs\":{\"a\":1");
    for (int i = 0; i < 64; i++)
        strbuf_addf(&body, ",\"a%d\":1", i);
    strbuf_adds(&body, "}}");
    check_refused(strbuf_str(&body), "chat_template_kwargs");
    strbuf_free(&body);
}

/* Whichever allocation fails, the client is told so, and nothing leaks. */
static void check_memory(enum request_kind kind, const char *body)
{
    struct request_params p;
    int rc = -1;
    memory_is_watched(true);
    for (uint32_t n = 1; rc; n++) {
        memory_fails_once(n);
        rc = request_params_read(&p, kind, body, strlen(body), false, &plain, &seen);
        if (!rc && kind == REQUEST_CHAT)
            rc = request_find_continuation(&p, kind, &seen);
        request_params_free(&p);
        if (rc && (seen.status != 413 || !strstr(seen.message, "memory")))
            test_fail(__FILE__, __LINE__, "allocation %u of %s: %d %s", n, body, seen.status,
                      seen.message);
    }
    memory_fails_once(0);
    memory_is_watched(false);
}

/* The arena allocates rarely. With more text before it, every piece comes first in a block. */
static void check_memory_of_pieces(const char *fields)
{
    for (int n = 0; n < 16 * 1024; n += 16) {
        struct strbuf body = STRBUF_INIT;
        strbuf_addf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%0*d\"}],%s}", n, 0,
                    fields);
        check_memory(REQUEST_CHAT, strbuf_str(&body));
        strbuf_free(&body);
    }
}

TEST(request_fields, say_when_there_is_no_memory)
{
    check_memory_of_pieces("\"wizard\":1,\"reasoning_effort\":\"none\"");
    check_memory_of_pieces("\"chat_template_kwargs\":{\"a\":[1]},\"reasoning_effort\":\"low\"");
    check_memory(
        REQUEST_CHAT,
        "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":"
        "\"hi\"},{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"y\","
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":"
        "\"z\"}],\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"1\":2,\"3\":4},\"thinking\":{"
        "\"type\":\"enabled\"},\"reasoning_effort\":\"low\",\"chat_template_kwargs\":{\"a\":"
        "1},\"wizard\":1,\"spell\":2,\"tools\":[{\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}],"
        "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
        "\"schema\":{}}}}");
    check_memory(REQUEST_CHAT, "{" HELLO ",\"json_schema\":"
                               "\"{}\",\"refusal\":1}");
    check_memory(REQUEST_TEXT,
                 "{\"prompt\":[\"a\",[1,2]],\"logprobs\":2,\"guided_choice\":[\"x\"]}");
    check_memory(REQUEST_WARM, "{" HELLO ",\"pin\":3}");
}

TEST(request_fields, bounds_choices)
{
    struct strbuf body = STRBUF_INIT;
    for (int extra = 0; extra < 2; extra++) {
        strbuf_clear(&body);
        strbuf_adds(&body, "{" HELLO ",\"guided_choice\":[\"a\"");
        for (int i = 1; i < 4096 + extra; i++)
            strbuf_adds(&body, ",\"a\"");
        strbuf_adds(&body, "]}");
        if (extra)
            check_refused(strbuf_str(&body), "guided_choice");
        else
            check_accepted(strbuf_str(&body));
    }
    strbuf_free(&body);
}

TEST(request_fields, bounds_the_biases)
{
    struct strbuf body = STRBUF_INIT;
    strbuf_adds(&body, "{" HELLO ",\"logit_bias\":[[0,1]");
    for (int i = 1; i <= 4096; i++)
        strbuf_addf(&body, ",[%d,1]", i);
    strbuf_adds(&body, "]}");
    check_refused(strbuf_str(&body), "logit_bias");
    CHECK_STR(seen.message, "'logit_bias' may have at most 4096 tokens, not 4097");
    strbuf_free(&body);
}
