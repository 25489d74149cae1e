/* Text completions, tokens and rendered prompts, as the server returns them. */
#include <stdlib.h>
#include <unistd.h>

#include "server_fixture.h"
#include "test.h"

#define TEXT "/v1/completions"

TEST(server_text, a_text_is_continued)
{
    struct test_server s;
    char first[64];
    SERVER_START(&s);
    CHECK_INT(server_post(&s, TEXT, "{'prompt':'Once','seed':1,'ignore_eos':true}"), 200);
    CHECK_AT("object", "'text_completion'");
    CHECK(strncmp(reply_at("id"), "'cmpl-", 6) == 0);
    CHECK_AT_INT("usage.prompt_tokens", 4);
    CHECK_AT_INT("usage.completion_tokens", 16);
    CHECK_AT("choices.0.finish_reason", "'length'");
    CHECK_AT("choices.0.message", "");
    CHECK_INT(strlen(reply_at("choices.0.text")), 16 + 2);
    snprintf(first, sizeof first, "%s", reply_at("choices.0.text"));
    CHECK_INT(server_post(&s, "/completions",
                          "{'prompt':[79,110,99,101],'seed':1,'max_tokens':16,'ignore_eos':true}"),
              200);
    CHECK_AT("choices.0.text", first);
    CHECK_INT(server_post(&s, TEXT, "{'prompt':'Once','seed':1,'ignore_eos':true,'stream':true}"),
              200);
    CHECK_STR(event_at(0, "object"), "'text_completion'");
    CHECK_STR(event_at(0, "choices.0.delta"), "");
    CHECK_STR(event_at(-2, "choices.0.finish_reason"), "'length'");
    first[strlen(first) - 1] = '\0';
    CHECK_STR(events_joined("choices.0.text"), first + 1);
    server_stop(&s);
}

TEST(server_text, several_prompts_have_several_choices)
{
    struct test_server s;
    char alone[3][64], path[64], body[256];
    static const char *const prompts[] = {"sky", "radish", "one"};
    SERVER_START(&s);
    for (int i = 0; i < 3; i++) {
        snprintf(body, sizeof body,
                 "{'prompt':'%s','max_tokens':6,'temperature':0,'ignore_eos':true}", prompts[i]);
        CHECK_INT(server_post(&s, TEXT, body), 200);
        snprintf(alone[i], sizeof alone[i], "%s", reply_at("choices.0.text"));
    }
    CHECK_INT(server_post(&s, TEXT,
                          "{'prompt':['sky','radish','one'],'n':2,'max_tokens':6,'temperature':0,"
                          "'ignore_eos':true}"),
              200);
    for (int i = 0; i < 6; i++) { /* greedy: both choices of a prompt are the same */
        snprintf(path, sizeof path, "choices.%d.text", i);
        CHECK_AT(path, alone[i / 2]);
    }
    CHECK_AT("choices.6", "");
    CHECK_AT_INT("usage.prompt_tokens", 3 + 6 + 3);
    CHECK_AT_INT("usage.completion_tokens", 36);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 2 + 5 + 2);
    CHECK_INT(server_post(&s, TEXT,
                          "{'prompt':[[115,107,121],'one'],'max_tokens':6,'temperature':0,"
                          "'ignore_eos':true}"),
              200);
    CHECK_AT("choices.0.text", alone[0]);
    CHECK_AT("choices.1.text", alone[2]);
    server_stop(&s);
}

TEST(server_text, an_echo_has_the_prompt_and_its_scores)
{
    struct test_server s;
    char plain[64], path[64], generated[32];
    SERVER_START(&s);
    CHECK_INT(server_post(&s, TEXT,
                          "{'prompt':'Once','max_tokens':5,'temperature':0,'ignore_eos':true,"
                          "'logprobs':1}"),
              200);
    snprintf(plain, sizeof plain, "'Once%s", reply_at("choices.0.text") + 1);
    snprintf(generated, sizeof generated, "%s", reply_at("choices.0.logprobs.token_logprobs.0"));
    CHECK_AT("choices.0.logprobs.text_offset", "[0,1,2,3,4]");
    CHECK_INT(server_post(&s, TEXT,
                          "{'prompt':['Once',[79,110,99,101]],'n':2,'max_tokens':5,"
                          "'temperature':0,'ignore_eos':true,'logprobs':1,'echo':true}"),
              200);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "choices.%d.text", i);
        CHECK_AT(path, plain);
        snprintf(path, sizeof path, "choices.%d.logprobs.token_logprobs.0", i);
        CHECK_AT(path, "null");
        snprintf(path, sizeof path, "choices.%d.logprobs.token_logprobs.4", i);
        CHECK_AT(path, generated);
        snprintf(path, sizeof path, "choices.%d.logprobs.tokens.3", i);
        CHECK_AT(path, "'e'");
        snprintf(path, sizeof path, "choices.%d.logprobs.text_offset", i);
        CHECK_AT(path, "[0,1,2,3,4,5,6,7,8]");
    }
    CHECK_INT(server_post(&s, TEXT, "{'prompt':'Once','max_tokens':0,'echo':true,'logprobs':0}"),
              200);
    CHECK_AT("choices.0.text", "'Once'");
    CHECK_AT_INT("usage.completion_tokens", 0);
    CHECK_AT("choices.0.logprobs.token_logprobs.3",
             reply_at("choices.0.logprobs.token_logprobs.-1"));
    CHECK_AT("choices.0.logprobs.token_logprobs.4", "");
    CHECK_INT(server_post(&s, TEXT,
                          "{'prompt':'Once','max_tokens':5,'temperature':0,'ignore_eos':true,"
                          "'echo':true,'stream':true}"),
              200);
    plain[strlen(plain) - 1] = '\0';
    CHECK_STR(events_joined("choices.0.text"), plain + 1);
    /* Without log probabilities nothing is scored: the prompt comes from the cache. */
    CHECK_INT(server_post(&s, TEXT, "{'prompt':'Once','max_tokens':1,'echo':true}"), 200);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 3);
    CHECK_AT("choices.0.logprobs", "null");
    server_stop(&s);
}

TEST(server_text, too_many_scores_are_refused)
{
    struct test_server s;
    static struct strbuf body;
    SERVER_START(&s, "--cache-size", "40000t", "-c", "30000");
    for (int extra = 0; extra < 2; extra++) { /* 10 * 26214 is just below 2^18 */
        strbuf_clear(&body);
        strbuf_addf(&body,
                    "{'prompt':'%0*d','n':10,'max_tokens':0,'echo':true,'logprobs':0,"
                    "'stream':true}",
                    26215 + extra, 0);
        if (extra)
            CHECK_INT(server_post(&s, TEXT, strbuf_str(&body)), 400);
    }
    CHECK_AT("error.param", "'prompt'");
    CHECK_HAS(reply_at("error.message"), "for at most 262144 prompt tokens at once, not 262160");
    server_stop(&s);
}

TEST(server_text, what_a_prompt_cannot_be)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_post(&s, TEXT, "{'prompt':''}"), 400);
    CHECK_AT("error.param", "'prompt'");
    CHECK_HAS(reply_at("error.message"), "the prompt is empty");
    CHECK_INT(server_post(&s, TEXT, "{'prompt':[1,258]}"), 200);
    CHECK_INT(server_post(&s, TEXT, "{'prompt':[1,259]}"), 400);
    CHECK_AT("error.param", "'prompt'");
    CHECK_HAS(reply_at("error.message"), "259 is not a token of this model, which has 259");
    CHECK_INT(server_post(&s, TEXT, "{'prompt':['a','']}"), 400);
    CHECK_INT(server_post(&s, TEXT, "{'prompt':'x','suffix':'y'}"), 400);
    CHECK_AT("error.param", "'suffix'");
    server_stop(&s);
}

TEST(server_text, tokens_there_and_back)
{
    struct test_server s;
    SERVER_START(&s, "-c", "77");
    CHECK_INT(server_post(&s, "/tokenize", "{'content':'a<|im_end|>'}"), 200);
    CHECK_AT("tokens", "[97,257]");
    CHECK_AT_INT("count", 2);
    CHECK_AT_INT("max_model_len", 77);
    CHECK_INT(server_post(&s, "/tokenize", "{'content':'a<|im_end|>','parse_special':false}"), 200);
    CHECK_AT_INT("count", 11);
    CHECK_INT(server_post(&s, "/tokenize", "{'content':'a\xc3\xa4','with_pieces':true}"), 200);
    CHECK_AT("tokens",
             "[{\"id\":97,\"piece\":\"a\"},{\"id\":195,\"piece\":[195]},{\"id\":164,\"piece\":[164]"
             "}]");
    CHECK_INT(server_post(&s, "/tokenize", "{}"), 400);
    CHECK_INT(server_post(&s, "/detokenize", "{'tokens':[97,257,195,164]}"), 200);
    CHECK_AT("content", "'a<|im_end|>\xc3\xa4'");
    CHECK_AT("prompt", "'a<|im_end|>\xc3\xa4'");
    CHECK_INT(server_post(&s, "/detokenize", "{'tokens':[258]}"), 200);
    CHECK_INT(server_post(&s, "/detokenize", "{'tokens':[97,259,98]}"), 400);
    CHECK_AT("error.param", "'tokens'");
    CHECK_HAS(reply_at("error.message"), "259 is not a token of this model, which has 259");
    CHECK(strncmp(reply_field("x-request-id"), "req-", 4) == 0);
    server_stop(&s);
}

TEST(server_text, prompts_are_rendered)
{
    struct test_server s;
    SERVER_START(&s);
    CHECK_INT(server_post(&s, "/apply-template", "{'messages':[{'role':'user','content':'Hi'}]}"),
              200);
    CHECK_AT("prompt", "'<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'");
    CHECK_INT(server_post(&s, "/apply-template",
                          "{'messages':[{'role':'user','content':'Hi'}],"
                          "'add_generation_prompt':false}"),
              200);
    CHECK_AT("prompt", "'<|im_start|>user\nHi<|im_end|>\n'");
    CHECK_INT(server_post(&s, "/apply-template",
                          "{'messages':[{'role':'user','content':'Hi'},"
                          "{'role':'assistant','content':'Hello, my'}]}"),
              200);
    CHECK_HAS(reply_at("prompt"), "<|im_start|>assistant\nHello, my'");
    CHECK_INT(server_post(&s, "/apply-template",
                          "{'messages':[{'role':'user','content':'Hi'}],'tools':[{'type':"
                          "'function','function':{'name':'get_time','parameters':{'type':'object',"
                          "'properties':{}}}}]}"),
              200);
    CHECK_HAS(reply_at("prompt"), "get_time");
    CHECK_INT(server_post(&s, "/apply-template",
                          "{'messages':[{'role':'user','content':'Hi'}],"
                          "'continue_final_message':true}"),
              400);
    server_stop(&s);
}

TEST(server_text, a_begun_answer_is_continued)
{
    struct test_server s;
    char answer[64];
    SERVER_START(&s);
    CHECK_INT(server_chat(&s,
                          "{'role':'user','content':'Hi'},{'role':'assistant','content':'Hello'}",
                          "'max_tokens':6,'temperature':0,'ignore_eos':true"),
              200);
    snprintf(answer, sizeof answer, "%s", reply_at("choices.0.message.content"));
    CHECK_AT_INT("usage.prompt_tokens", 21 + 5);
    CHECK_INT(server_post(&s, TEXT,
                          "{'prompt':'<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n"
                          "Hello','max_tokens':6,'temperature':0,'ignore_eos':true}"),
              200);
    CHECK_AT("choices.0.text", answer);
    CHECK_AT_INT("usage.prompt_tokens_details.cached_tokens", 21 + 5 - 1);
    server_stop(&s);
}
