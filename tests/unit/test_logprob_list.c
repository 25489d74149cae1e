/* Log probabilities in step with the text that they belong to. */
#include "serve/writers/openai_form.h"

#include <math.h>
#include <stdlib.h>

#include "test.h"

static struct tokenizer *bytes_open(void)
{
    struct tokenizer *t;
    struct error err;
    CHECK_INT(tokenizer_open_bytes(&t, NULL, &err), 0);
    return t;
}

static void add(struct logprob_list *l, int32_t token, float logprob)
{
    char byte = (char)token;
    struct token_logprobs p = {.logprob = logprob, .n_top = 1, .top = {{token, logprob}}};
    logprob_list_add(l, token, &byte, token < 256, &p);
}

TEST(logprob_list, tokens_are_given_with_their_text)
{
    struct logprob_list l = {0};
    struct tokenizer *t = bytes_open();
    struct strbuf out = STRBUF_INIT;
    add(&l, 'a', -0.5f);
    add(&l, 'b', -1);
    CHECK(!logprob_list_has_new(&l));
    logprob_list_show(&l, 1);
    CHECK(logprob_list_has_new(&l));
    chat_logprobs_write(&l, t, &out);
    CHECK_STR(strbuf_str(&out),
              "{\"content\":[{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97],\"top_logprobs\":["
              "{\"token\":\"a\",\"logprob\":-0.5,\"bytes\":[97]}]}],\"refusal\":null}");
    CHECK(!logprob_list_has_new(&l));
    add(&l, 257, -2); /* an end token has no text, so that it waits for more */
    logprob_list_show(&l, 2);
    strbuf_clear(&out);
    text_logprobs_write(&l, t, &out);
    CHECK_STR(strbuf_str(&out), "{\"tokens\":[\"b\"],\"token_logprobs\":[-1.0],\"top_logprobs\":["
                                "{\"b\":-1.0}],\"text_offset\":[1]}");
    logprob_list_show(&l, 2);
    CHECK(!logprob_list_has_new(&l));
    strbuf_free(&out);
    logprob_list_free(&l);
    tokenizer_close(t);
}

TEST(logprob_list, offsets_count_characters_and_parts_are_spelled)
{
    struct logprob_list l = {0};
    struct tokenizer *t = bytes_open();
    struct strbuf out = STRBUF_INIT;
    add(&l, 0xc3, NAN);
    add(&l, 0xa9, -INFINITY);
    add(&l, 'x', -1);
    logprob_list_show(&l, 3);
    text_logprobs_write(&l, t, &out);
    CHECK_STR(strbuf_str(&out), "{\"tokens\":[\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"x\"],"
                                "\"token_logprobs\":[null,-9999.0,-1.0],"
                                "\"top_logprobs\":[null,{\"bytes:\\\\xa9\":-9999.0},{\"x\":-1.0}],"
                                "\"text_offset\":[0,1,1]}");
    strbuf_free(&out);
    logprob_list_free(&l);
    tokenizer_close(t);
}
