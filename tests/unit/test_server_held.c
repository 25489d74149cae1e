/* Constrained answers: a form, a grammar, functions to call, an end of thinking. The mock would
 * never write any of these by itself. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "server_fixture.h"
#include "test.h"

#define HI "{'role':'user','content':'Hi'}"

static void ask(const struct test_server *s, const char *more)
{
    char all[1200];
    snprintf(all, sizeof all, "'temperature':0,%s", more);
    int status = server_chat(s, HI, all);
    if (status != 200)
        test_fail(__FILE__, __LINE__, "%d: %s", status, reply_body());
}

static void check_refused(const struct test_server *s, const char *more, const char *param,
                          const char *words)
{
    CHECK_INT(server_chat(s, HI, more), 400);
    CHECK_AT("error.param", param);
    CHECK_HAS(reply_at("error.message"), words);
}

TEST(server_held, to_a_form)
{
    struct test_server s;
    SERVER_START(&s);
    ask(&s, "'guided_choice':['radish','turnip']");
    const char *text = reply_at("choices.0.message.content");
    CHECK(strcmp(text, "'radish'") == 0 || strcmp(text, "'turnip'") == 0);
    CHECK_AT("choices.0.finish_reason", "'stop'");
    ask(&s, "'guided_choice':['radish']");
    CHECK_AT("choices.0.message.content", "'radish'");
    ask(&s, "'regex':'ab{3}c'");
    CHECK_AT("choices.0.message.content", "'abbbc'");
    ask(&s, "'grammar':'root ::= \\\"yes\\\" [0-9]'");
    CHECK(strncmp(reply_at("choices.0.message.content"), "'yes", 4) == 0);
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 2 + 4);
    ask(&s, "'response_format':{'type':'json_schema','json_schema':{'name':'x','schema':{'type':"
            "'object','properties':{'a':{'const':7}},'required':['a']}}}");
    CHECK_HAS(reply_at("choices.0.message.content"), "\"a\"");
    CHECK_HAS(reply_at("choices.0.message.content"), "7");
    ask(&s, "'response_format':{'type':'json_object'},'max_tokens':40");
    CHECK_INT(reply_at("choices.0.message.content")[1], '{');
    ask(&s, "'stream':true,'regex':'ab{3}c'");
    CHECK_STR(events_joined("choices.0.delta.content"), "abbbc");
    ask(&s, "'n':3,'regex':'ab{3}c'");
    CHECK_AT("choices.2.message.content", "'abbbc'");
    CHECK_INT(server_post(&s, "/v1/completions", "{'prompt':'x','guided_choice':['Paris']}"), 200);
    CHECK_AT("choices.0.text", "'Paris'");
    /* A begun answer continues in its form. */
    CHECK_INT(server_chat(&s, HI ",{'role':'assistant','content':'ab'}", "'regex':'ab{3}c'"), 200);
    CHECK_AT("choices.0.message.content", "'bbc'");
    CHECK_INT(server_chat(&s, HI ",{'role':'assistant','content':'ax'}", "'regex':'ab{3}c'"), 400);
    CHECK_AT("error.param", "'messages'");
    CHECK_HAS(reply_at("error.message"), "does not match");
    server_stop(&s);
}

/* gpt-oss writes its answers in a separate channel, where the form is enforced. */
TEST(server_held, to_a_form_in_a_channel)
{
    struct test_server s;
    SERVER_START(&s, "--tool-format", "harmony");
    ask(&s, "'regex':'ab{3}c','max_tokens':100");
    CHECK_AT("choices.0.message.content", "'abbbc'");
    CHECK(reply_int("usage.completion_tokens") > 5 + 20);
    CHECK_INT(server_post(&s, "/v1/completions", "{'prompt':'x','regex':'ab{3}c'}"), 200);
    CHECK_AT("choices.0.text", "'abbbc'");
    server_stop(&s);
}

TEST(server_held, to_what_is_no_form)
{
    struct test_server s;
    SERVER_START(&s);
    check_refused(&s, "'regex':'(a'", "'regex'", "'regex': ");
    check_refused(&s, "'grammar':'root ::= foo'", "'grammar'",
                  "'grammar': the rule 'foo' is not defined, line 1 (byte 9)'");
    check_refused(&s,
                  "'response_format':{'type':'json_schema','json_schema':{'name':'x','schema':"
                  "{'not':{'format':'date'}}}}",
                  "'response_format.json_schema.schema'", "'not'");
    CHECK(!strstr(reply_at("error.message"), "(at byte "));
    server_stop(&s);
}

/* ---- functions ---- */

#define TIME                                                                                       \
    "{'type':'function','function':{'name':'get_time','parameters':{'type':'object','properties':" \
    "{'zone':{'enum':[7]}},'required':['zone'],'additionalProperties':false}}}"
#define ROLL                                                                                       \
    "{'type':'function','function':{'name':'roll','parameters':{'type':'object','properties':"     \
    "{'faces':{'type':'integer','minimum':0,'maximum':99999}},'required':['faces']}}}"
#define DAY                                                                                        \
    "{'type':'function','function':{'name':'get_day','parameters':{'type':'object','properties':"  \
    "{},'additionalProperties':false}}}"
#define TOOLS "'tools':[" TIME "," DAY "],'parallel_tool_calls':false,'max_tokens':100"

TEST(server_held, to_calls)
{
    struct test_server s;
    SERVER_START(&s);
    ask(&s, TOOLS ",'tool_choice':{'type':'function','function':{'name':'get_time'}}");
    CHECK_AT("choices.0.finish_reason", "'tool_calls'");
    CHECK_AT("choices.0.message.content", "null");
    CHECK_AT("choices.0.message.tool_calls.0.type", "'function'");
    CHECK_AT("choices.0.message.tool_calls.0.function.name", "'get_time'");
    CHECK_HAS(reply_at("choices.0.message.tool_calls.0.function.arguments"), "7");
    CHECK_AT("choices.0.message.tool_calls.1", "");
    ask(&s, TOOLS ",'tool_choice':'required'");
    CHECK_AT("choices.0.finish_reason", "'tool_calls'");
    static const char *const names[] = {"get_day", "get_time"};
    for (int i = 0; i < 2; i++) {
        char more[1024], want[16];
        snprintf(more, sizeof more,
                 TOOLS ",'tool_choice':{'type':'allowed_tools','allowed_tools':{'mode':'required',"
                       "'tools':[{'type':'function','function':{'name':'%s'}}]}}",
                 names[i]);
        snprintf(want, sizeof want, "'%s'", names[i]);
        ask(&s, more);
        CHECK_AT("choices.0.message.tool_calls.0.function.name", want);
    }
    ask(&s,
        TOOLS ",'stream':true,'tool_choice':{'type':'function','function':{'name':'get_time'}}");
    CHECK_STR(events_joined("choices.0.delta.tool_calls.0.function.name"), "get_time");
    CHECK_HAS(events_joined("choices.0.delta.tool_calls.0.function.arguments"), "\"zone\"");
    CHECK_STR(event_at(-2, "choices.0.finish_reason"), "'tool_calls'");
    /* Several, unless the request wants one; the same functions make another grammar then. */
    ask(&s, "'tools':[" ROLL "],'tool_choice':'required','parallel_tool_calls':true,"
            "'ignore_eos':true,'max_tokens':200");
    CHECK_AT("choices.0.message.tool_calls.1.function.name", "'roll'");
    ask(&s, "'tools':[" ROLL "],'tool_choice':'required','parallel_tool_calls':false,"
            "'ignore_eos':true,'max_tokens':200");
    CHECK_AT("choices.0.message.tool_calls.1", "");
    /* A function without arguments is not called twice. */
    ask(&s, "'tools':[" DAY "],'tool_choice':'required','parallel_tool_calls':true,"
            "'ignore_eos':true,'max_tokens':200");
    CHECK_AT("choices.0.message.tool_calls.0.function.name", "'get_day'");
    CHECK_AT("choices.0.message.tool_calls.1", "");
    CHECK_AT("choices.0.finish_reason", "'tool_calls'");
    server_stop(&s);
}

TEST(server_held, to_no_call)
{
    struct test_server s;
    SERVER_START(&s);
    /* Free to call or not, the mock writes text. */
    ask(&s, "'tools':[" DAY "],'max_tokens':10,'ignore_eos':true");
    CHECK_AT("choices.0.message.tool_calls", "");
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 10 + 2);
    ask(&s, "'tools':[" DAY "],'tool_choice':'none','max_tokens':10,'ignore_eos':true");
    CHECK_AT("choices.0.message.tool_calls", "");
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 10 + 2);
    server_stop(&s);
}

TEST(server_held, to_a_form_or_a_call)
{
    struct test_server s;
    SERVER_START(&s);
    /* A bias decides: < begins a call, not text of the form. */
    ask(&s, "'tools':[" DAY "],'regex':'[a-z]{4}','max_tokens':200,'logit_bias':{'60':-100}");
    CHECK_AT("choices.0.finish_reason", "'stop'");
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 4 + 2);
    ask(&s, "'tools':[" DAY "],'regex':'[a-z]{4}','max_tokens':200,'logit_bias':{'60':100}");
    CHECK_AT("choices.0.finish_reason", "'tool_calls'");
    CHECK_AT("choices.0.message.tool_calls.0.function.name", "'get_day'");
    ask(&s, "'tools':[" DAY "],'tool_choice':'none','regex':'[a-z]{4}','logit_bias':{'60':100}");
    CHECK_INT(strlen(reply_at("choices.0.message.content")), 4 + 2);
    check_refused(
        &s,
        "'tool_choice':'required','tools':[{'type':'function','function':{'name':'f',"
        "'strict':true,'parameters':{'type':'object','properties':{'a':{'not':{'format':'date'}}},"
        "'required':['a'],'additionalProperties':false}}}]",
        "'tools'", "'not'");
    check_refused(&s,
                  "'regex':'a','tools':[{'type':'function','function':{'name':'f','strict':true,"
                  "'parameters':{'type':'object','properties':{'a':{'not':{'format':'date'}}},'"
                  "required':['a'],"
                  "'additionalProperties':false}}}]",
                  "'tools'", "'tools': ");
    check_refused(&s, "'regex':'(a','tools':[" DAY "]", "'regex'", "'regex': ");
    server_stop(&s);
}

/* ---- thinking ---- */

static const char *template_write(const char *name, const char *text)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", test_scratch_dir(), name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    return path;
}

TEST(server_held, to_an_end_of_thinking)
{
    struct test_server s;
    SERVER_START(&s, "--chat-template-file",
                 template_write("begun.jinja",
                                "{% for m in messages %}<|im_start|>{{ m.role }}\n"
                                "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
                                "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
                                "{% endif %}"));
    ask(&s, "'max_tokens':30,'ignore_eos':true");
    CHECK_AT("choices.0.message.content", "''");
    CHECK_INT(strlen(reply_at("choices.0.message.reasoning_content")), 30 + 2);
    CHECK_AT_INT("usage.completion_tokens_details.reasoning_tokens", 30);
    ask(&s, "'max_tokens':100,'ignore_eos':true,'thinking_budget':20");
    CHECK(strlen(reply_at("choices.0.message.content")) > 40);
    CHECK(reply_int("usage.completion_tokens_details.reasoning_tokens") >= 20);
    CHECK(reply_int("usage.completion_tokens_details.reasoning_tokens") < 40);
    ask(&s, "'max_tokens':30,'ignore_eos':true,'enable_thinking':false");
    CHECK(strlen(reply_at("choices.0.message.content")) > 10);
    CHECK_AT("choices.0.message.reasoning_content", "");
    ask(&s, "'max_tokens':100,'thinking_budget':10,'guided_choice':['four']");
    CHECK_AT("choices.0.message.content", "'four'");
    CHECK(strlen(reply_at("choices.0.message.reasoning_content")) > 4);
    server_stop(&s);
}

/* How long a tenant's request takes, whose grammar is slow to compile. */
static double slow_grammar_s(const struct test_server *s, const char *fields, const char *body)
{
    const uint64_t begin_ns = clock_now_ns();
    CHECK_INT(server_ask(s, "POST", "/v1/completions", fields, body), 200);
    return (double)(clock_now_ns() - begin_ns) * 1e-9;
}

TEST(server_held, to_a_grammar_that_other_tenants_do_not_notice)
{
    enum { N_LETTERS = 30000, N_RULES = 8 };
    static const char one[] = "Authorization: Bearer k1\r\n",
                      other[] = "Authorization: Bearer k2\r\n";
    struct test_server s;
    struct strbuf body = STRBUF_INIT;
    SERVER_START(&s, "--api-key", "a:k1", "--api-key", "b:k2");
    strbuf_adds(&body, "{'prompt':'x','max_tokens':1,'grammar':'root ::=");
    for (int i = 0; i < N_RULES; i++)
        strbuf_addf(&body, " r%d", i);
    for (int i = 0; i < N_RULES; i++) {
        strbuf_addf(&body, "\\nr%d ::= \\\"", i);
        for (int k = 0; k < N_LETTERS; k++)
            strbuf_adds(&body, "x");
        strbuf_adds(&body, "\\\"");
    }
    strbuf_adds(&body, "'}");
    slow_grammar_s(&s, one, strbuf_str(&body));
    double again_s = 1e9;
    for (int i = 0; i < 3; i++)
        again_s = fmin(again_s, slow_grammar_s(&s, one, strbuf_str(&body)));
    /* About 200 times as long. */
    CHECK(slow_grammar_s(&s, other, strbuf_str(&body)) > 10 * again_s);
    strbuf_free(&body);
    server_stop(&s);
}
