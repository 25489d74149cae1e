/* Fields of llama-server's API, including old spellings. */
#include <stdlib.h>
#include <string.h>

#include "serve/request/fields.h"
#include "test.h"

#define HELLO "'messages':[{'role':'user','content':'hi'}]"

static const struct sampling plain = SAMPLING_DEFAULT;
static struct api_error seen;

/* Reads a body in which ' replaces "; NULL: it was rejected. */
static struct request_params *read_body(enum request_kind kind, const char *body)
{
    static struct request_params p;
    char *text = strdup(body);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    int rc = request_params_read(&p, kind, text, strlen(text), true, &plain, &seen);
    free(text);
    if (rc)
        request_params_free(&p);
    return rc ? NULL : &p;
}

static void check_param(enum request_kind kind, const char *body, const char *param)
{
    struct request_params *p = read_body(kind, body);
    if (p)
        request_params_free(p);
    if (!p != !!param || (!p && strcmp(seen.param, param) != 0))
        test_fail(__FILE__, __LINE__, "%s: '%s' %s", body, p ? "" : seen.param, seen.message);
}

TEST(request_llama, prompts_mix_texts_and_ids)
{
    static const struct {
        const char *body, *param;
        enum json_type type;
        size_t count;
    } cases[] = {
        {"{'prompt':'a'}", NULL, JSON_STRING, 0},
        {"{'prompt':[1,2]}", NULL, JSON_ARRAY, 2},
        {"{'prompt':[1,'a',2,'b']}", NULL, JSON_ARRAY, 4},
        {"{'prompt':['a',[1,'b'],{'prompt_string':'c'}]}", NULL, JSON_ARRAY, 3},
        {"{'prompt':{'prompt_string':'a','multimodal_data':[]}}", NULL, JSON_STRING, 0},
        {"{'prompt':{'prompt_string':'a','multimodal_data':['x']}}", "prompt", JSON_NULL, 0},
        {"{'prompt':{'prompt_string':7}}", "prompt", JSON_NULL, 0},
        {"{'prompt':{}}", "prompt", JSON_NULL, 0},
        {"{'prompt':[]}", "prompt", JSON_NULL, 0},
        {"{'prompt':7}", "prompt", JSON_NULL, 0},
        {"{'prompt':[1,-1]}", "prompt", JSON_NULL, 0},
        {"{'prompt':[1,[2]]}", "prompt", JSON_NULL, 0},
        {"{'prompt':['a',true]}", "prompt[1]", JSON_NULL, 0},
        {"{'prompt':['a',[1.5]]}", "prompt[1]", JSON_NULL, 0},
        {"{}", "prompt", JSON_NULL, 0},
        {"{'prompt':'a','messages':[1]}", "messages", JSON_NULL, 0},
        {"{'prompt':'a','response_fields':[1]}", "response_fields", JSON_NULL, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_param(REQUEST_LLAMA, cases[i].body, cases[i].param);
        struct request_params *p = cases[i].param ? NULL : read_body(REQUEST_LLAMA, cases[i].body);
        if (!p)
            continue;
        CHECK_INT(p->prompt->type, cases[i].type);
        CHECK_INT(p->prompt->count, cases[i].count);
        request_params_free(p);
    }
}

TEST(request_llama, infills_have_their_parts)
{
    check_param(REQUEST_INFILL, "{'input_prefix':'','input_suffix':'','input_extra':[]}", NULL);
    check_param(REQUEST_INFILL,
                "{'input_prefix':'a','input_suffix':'b','prompt':'c','n_predict':0,'samplers':[],"
                "'input_extra':[{'text':'t','filename':'f','time':1}],'t_max_prompt_ms':1,"
                "'t_max_predict_ms':1,'response_fields':['']}",
                NULL);
    check_param(REQUEST_INFILL, "{'input_suffix':''}", "input_prefix");
    check_param(REQUEST_INFILL, "{'prompt':'x','input_suffix':'a'}", "input_prefix");
    check_param(REQUEST_INFILL, "{'prompt':'x','input_prefix':null,'input_suffix':'a'}",
                "input_prefix");
    check_param(REQUEST_INFILL, "{'prompt':'x','input_prefix':'a','input_suffix':null}",
                "input_suffix");
    check_param(REQUEST_INFILL, "{'input_prefix':''}", "input_suffix");
    check_param(REQUEST_INFILL, "{'input_prefix':1,'input_suffix':''}", "input_prefix");
    check_param(REQUEST_INFILL, "{'input_prefix':'','input_suffix':'','prompt':[1]}", "prompt");
    check_param(REQUEST_INFILL, "{'input_prefix':'','input_suffix':'','input_extra':{}}",
                "input_extra");
    check_param(REQUEST_INFILL, "{'input_prefix':'','input_suffix':'','input_extra':[{}]}",
                "input_extra[0]");
    check_param(REQUEST_INFILL,
                "{'input_prefix':'','input_suffix':'','input_extra':[{'text':'','filename':1}]}",
                "input_extra[0]");
}

TEST(request_llama, samplers_are_a_part_of_the_order)
{
    static const struct {
        const char *samplers;
        bool is_last; /* the temperature; of those that are accepted */
    } good[] = {
        {"[]", false},
        {"['penalties','dry','top_n_sigma','top_k','typ_p','top_p','min_p','xtc','temperature']",
         true},
        {"['temperature','top_k','top_p']", false},
        {"['top_k','temperature','top_p']", false},
        {"['min_p','temperature']", true},
        {"['top_k','top_p','infill']", false},
        {"['top_p','infill','temperature']", true},
        {"'edskypmxt'", true},
        {"'kt'", false},
    };
    static const char *const bad[] = {"['top_p','top_k']",
                                      "['temperature','penalties']",
                                      "['top_p','temperature','min_p']",
                                      "['top_k','top_k']",
                                      "['mirostat']",
                                      "[1]",
                                      "'q'",
                                      "7",
                                      "'pk'",
                                      "['infill','top_k']"};
    char body[256];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(body, sizeof body, "{" HELLO ",'samplers':%s}", good[i].samplers);
        struct request_params *p = read_body(REQUEST_CHAT, body);
        if (!p)
            test_fail(__FILE__, __LINE__, "%s: %s", body, seen.message);
        CHECK_INT(p->sampling.temperature_last, good[i].is_last);
        request_params_free(p);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, "{" HELLO ",'samplers':%s}", bad[i]);
        check_param(REQUEST_CHAT, body, "samplers");
    }
}

TEST(request_llama, errors_name_the_field_that_was_sent)
{
    check_param(REQUEST_CHAT, "{" HELLO ",'samplers':[['top_k']]}", "samplers");
    CHECK(strstr(seen.message, "type array"));
    check_param(REQUEST_CHAT, "{" HELLO ",'function_call':{'name':'f'}}", "function_call");
    CHECK(strstr(seen.message, "'functions'"));
    check_param(REQUEST_CHAT, "{" HELLO ",'function_call':{'name':'g'},'functions':[{'name':'f'}]}",
                "function_call");
    CHECK(strstr(seen.message, "\"g\", which is not in 'functions'"));
    check_param(REQUEST_CHAT, "{" HELLO ",'tool_choice':'required'}", "tool_choice");
}

TEST(request_llama, samplers_that_are_not_named_are_off)
{
    struct request_params *p = read_body(
        REQUEST_CHAT, "{" HELLO ",'samplers':['top_k'],'top_k':7,'top_p':0.5,'min_p':0.1,"
                      "'temperature':0.3,'typical_p':0.5,'xtc_probability':0.5,'top_n_sigma':2,"
                      "'presence_penalty':1,'repeat_penalty':1.5,'dry_multiplier':1}");
    const struct sampling *o = &p->sampling;
    CHECK(o->top_k == 7 && o->top_p == 1 && o->min_p == 0 && o->temperature == 1);
    CHECK(o->typical_p == 1 && o->xtc_probability == 0 && o->top_n_sigma == 0);
    CHECK(o->presence_penalty == 0 && o->repetition_penalty == 1 && o->dry_multiplier == 0);
    request_params_free(p);
}

TEST(request_llama, numbers_and_their_other_names)
{
    struct request_params *p = read_body(
        REQUEST_CHAT, "{" HELLO ",'n_probs':3,'stop_token_ids':[5,6],'n_indent':4,"
                      "'t_max_predict_ms':250,'n_predict':0}");
    CHECK(p->logprobs && p->top_logprobs == 3 && p->n_indent == 4 && p->t_max_predict_ms == 250);
    CHECK(p->n_stop_tokens == 2 && p->stop_tokens[1] == 6 && p->max_tokens == REQUEST_NO_TOKENS);
    request_params_free(p);
    check_param(REQUEST_CHAT, "{" HELLO ",'n_probs':21}", "n_probs");
    check_param(REQUEST_CHAT, "{" HELLO ",'stop_token_ids':[-1]}", "stop_token_ids");
    check_param(REQUEST_CHAT, "{" HELLO ",'stop_token_ids':['a']}", "stop_token_ids");
    check_param(REQUEST_CHAT, "{" HELLO ",'max_tokens':0}", "max_tokens");
}

TEST(request_llama, many_stop_strings)
{
    for (int n = 127; n <= 129; n++) {
        struct strbuf body = STRBUF_INIT;
        strbuf_adds(&body, "{" HELLO ",'stop':[");
        for (int i = 0; i < n; i++)
            strbuf_addf(&body, "%s'stop %d'", i ? "," : "", i);
        strbuf_adds(&body, "]}");
        check_param(REQUEST_CHAT, strbuf_str(&body), n <= REQUEST_MAX_STOPS ? NULL : "stop");
        strbuf_free(&body);
    }
}

/* ---- functions ---- */

#define FUNCTIONS "'functions':[{'name':'f','parameters':{'type':'object'}},{'name':'g'}]"

TEST(request_llama, functions_are_tools)
{
    struct request_params *p = read_body(REQUEST_CHAT, "{" HELLO "," FUNCTIONS "}");
    CHECK(p->tools && p->tools->count == 2 && p->functions_asked && !p->parallel_calls);
    CHECK(json_equals(json_get(p->tools->first, "type"), "function"));
    CHECK(json_equals(json_get(json_get(p->tools->first, "function"), "name"), "f"));
    CHECK_INT(p->tool_choice, TOOL_CHOICE_AUTO);
    request_params_free(p);
    p = read_body(REQUEST_CHAT, "{" HELLO ",'function_call':{'name':'g'}," FUNCTIONS "}");
    CHECK_INT(p->tool_choice, TOOL_CHOICE_REQUIRED);
    CHECK(p->allowed_tools->count == 1 && json_equals(p->allowed_tools->first, "g"));
    request_params_free(p);
    p = read_body(REQUEST_CHAT, "{" HELLO ",'functions':[],'function_call':'none'}");
    CHECK(!p->tools && !p->functions_asked);
    request_params_free(p);
    check_param(REQUEST_CHAT, "{" HELLO ",'functions':[{}]}", "functions[0]");
    check_param(REQUEST_CHAT, "{" HELLO ",'functions':[{'name':'f'},{'name':'f'}]}", "functions");
    check_param(REQUEST_CHAT, "{" HELLO ",'functions':[1]}", "functions[0]");
    check_param(REQUEST_CHAT, "{" HELLO ",'function_call':{'name':'h'}," FUNCTIONS "}",
                "function_call");
    check_param(REQUEST_CHAT, "{" HELLO ",'function_call':{}," FUNCTIONS "}", "function_call");
    check_param(REQUEST_CHAT, "{" HELLO ",'function_call':'always'," FUNCTIONS "}",
                "function_call");
    check_param(REQUEST_CHAT,
                "{" HELLO "," FUNCTIONS ",'tools':[{'type':'function','function':{'name':'f'}}]}",
                "functions");
}

TEST(request_llama, messages_of_functions_are_those_of_tools)
{
    struct request_params *p = read_body(
        REQUEST_CHAT, "{'messages':[{'role':'user','content':'hi'},{'role':'assistant',"
                      "'content':null,'function_call':{'name':'f','arguments':'{}'}},"
                      "{'role':'function','name':'f','content':'3'}]}");
    const struct json *call = p->messages->first->next, *result = call->next;
    const struct json *id = json_get(json_get(call, "tool_calls")->first, "id");
    CHECK(json_equals(json_get(result, "role"), "tool"));
    CHECK(id && json_equals(json_get(result, "tool_call_id"), id->text));
    CHECK(json_equals(json_get(json_get(json_get(call, "tool_calls")->first, "function"), "name"),
                      "f"));
    request_params_free(p);
    check_param(REQUEST_CHAT, "{'messages':[{'role':'assistant','function_call':{}}]}",
                "messages[0].function_call");
    check_param(REQUEST_CHAT,
                "{'messages':[{'role':'user','content':'','function_call':"
                "{'name':'f'}}]}",
                "messages[0]");
}
