/* Prompts for filling a gap: the order of their parts, and what is cut. */
#include "prompt/infill.h"

#include "test.h"
#include "test_files.h"
#include "test_tokenizer_model.h"

/* A vocabulary of letters, and the tokens of fill-in-the-middle that the model has. */
static struct tokenizer *open_letters(const char *const *special, const char *key, uint32_t id)
{
    struct vocab v = {.model = "gpt2", .pre = "gpt-2"};
    struct tokenizer *t = NULL;
    struct error err = {0};
    char path[4096], letter[2] = "";
    vocab_token(&v, "<unk>", 2);
    for (char c = '!'; c <= '~'; c++) {
        letter[0] = c;
        vocab_token(&v, letter, 1);
    }
    vocab_token(&v, "\xc4\xa0", 1); /* a space */
    vocab_token(&v, "\xc4\x8a", 1); /* a line feed */
    for (; *special; special++)
        vocab_token(&v, *special, 3);
    if (key)
        build_key_u32(&v.more, key, id);
    snprintf(path, sizeof path, "%s/letters.gguf", test_scratch_dir());
    if (vocab_open(&v, path, &t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return t;
}

static const char *shown(const struct tokenizer *t, const struct infill_input *in)
{
    static char out[4096];
    const struct prompt_maker maker = {.tokenizer = (struct tokenizer *)t};
    struct prompt prompt;
    struct error err;
    size_t n = 0;
    CHECK_INT(prompt_maker_infill(&maker, in, &prompt, &err), 0);
    for (size_t i = 0; i < prompt.tokens.len; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, prompt.tokens.ids[i], &len);
        n += (size_t)snprintf(out + n, sizeof out - n, "%.*s", (int)len, bytes);
    }
    prompt_free(&prompt);
    return out;
}

static const char *const qwen[] = {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                                   "<|repo_name|>",  "<|file_sep|>",   NULL};

TEST(infill, parts_stand_in_llama_servers_order)
{
    struct tokenizer *t = open_letters(qwen, NULL, 0);
    const struct infill_file files[] = {{byte_view_of("a.c"), byte_view_of("int a;\n")},
                                        {byte_view_of("b.c"), byte_view_of("<|file_sep|>")}};
    struct infill_input in = {.prefix = byte_view_of("one\n"), .suffix = byte_view_of("two")};
    const char *why;
    CHECK(infill_is_possible(t, &why));
    CHECK_STR(shown(t, &in), "<|fim_prefix|>one\n<|fim_suffix|>two<|fim_middle|>");
    in.line = byte_view_of("x = ");
    in.has_files = true;
    CHECK_STR(shown(t, &in), "<|repo_name|>myproject\n<|file_sep|>filename\n<|fim_prefix|>one\nx = "
                             "<|fim_suffix|>two<|fim_middle|>");
    in.files = files;
    in.n_files = 2;
    CHECK_STR(shown(t, &in),
              "<|repo_name|>myproject\n<|file_sep|>a.c\nint a;\n<|file_sep|>b.c\n<|file_sep|>"
              "<|file_sep|>filename\n<|fim_prefix|>one\nx = <|fim_suffix|>two<|fim_middle|>");
    tokenizer_close(t);
}

TEST(infill, long_parts_are_cut_where_they_are_far_from_the_gap)
{
    struct tokenizer *t = open_letters(qwen, NULL, 0);
    struct infill_input in = {.prefix = byte_view_of("abcdefghijklmnop"),
                              .suffix = byte_view_of("ABCDEFGHIJKLMNOP"),
                              .most_tokens = 16};
    CHECK_STR(shown(t, &in), "<|fim_prefix|>efghijklmnop<|fim_suffix|>AB<|fim_middle|>");
    in.line = byte_view_of("xyz");
    CHECK_STR(shown(t, &in), "<|fim_prefix|>efghijklmnopxyz<|fim_suffix|><|fim_middle|>");
    in.has_files = true;
    CHECK_STR(shown(t, &in), "<|fim_prefix|>efghijklmnopxyz<|fim_suffix|><|fim_middle|>");
    in.most_file_tokens = 4;
    CHECK_STR(shown(t, &in), "ame\n<|fim_prefix|>efghijklmnopxyz<|fim_suffix|><|fim_middle|>");
    tokenizer_close(t);
}

/* The cut before tokenizing does not show in the prompt. */
TEST(infill, texts_cut_before_tokenizing_give_the_same_prompt)
{
    enum { LONG = 3000 };
    struct tokenizer *t = open_letters(qwen, NULL, 0);
    static char text[LONG];
    char whole[4096];
    for (size_t i = 0; i < LONG; i++)
        text[i] = i % 37 == 36 ? '\n' : (char)('a' + i % 23);
    const struct infill_file files[] = {{byte_view_of("a.c"), {text, LONG}},
                                        {{text, LONG}, byte_view_of("b")},
                                        {byte_view_of(""), byte_view_of("")},
                                        {byte_view_of("c.c"), byte_view_of("int c;\n")}};
    for (size_t most_files = 0; most_files < 70; most_files++) {
        struct infill_input in = {.prefix = {text, LONG},
                                  .suffix = {text + 5, LONG - 5},
                                  .line = byte_view_of("x"),
                                  .files = files,
                                  .n_files = 4,
                                  .has_files = true,
                                  .most_tokens = 64,
                                  .most_file_tokens = most_files};
        snprintf(whole, sizeof whole, "%s", shown(t, &in));
        in.token_bytes = 1;
        CHECK_STR(shown(t, &in), whole);
        in.token_bytes = 16;
        CHECK_STR(shown(t, &in), whole);
    }
    tokenizer_close(t);
}

TEST(infill, texts_are_not_read_as_tokens_but_for_the_line)
{
    struct tokenizer *t = open_letters(qwen, NULL, 0);
    const struct prompt_maker maker = {.tokenizer = t};
    const struct fim_tokens *fim = tokenizer_fim(t);
    struct infill_input in = {.prefix = byte_view_of("<|fim_middle|>"),
                              .suffix = byte_view_of("<|fim_middle|>"),
                              .line = byte_view_of("<|fim_middle|>")};
    struct prompt prompt;
    struct error err;
    size_t n = 0;
    CHECK_INT(prompt_maker_infill(&maker, &in, &prompt, &err), 0);
    for (size_t i = 0; i < prompt.tokens.len; i++)
        n += prompt.tokens.ids[i] == fim->middle;
    CHECK_INT(n, 2); /* the line's, and the last one */
    prompt_free(&prompt);
    tokenizer_close(t);
}

TEST(infill, models_without_the_tokens_say_which_is_missing)
{
    static const char *const none[] = {NULL}, *const some[] = {"<PRE>", "<SUF>", NULL},
                             *const two[] = {"<x>", "<fim_suffix>", "<fim_middle>", NULL};
    const char *why;
    struct tokenizer *t = open_letters(none, NULL, 0);
    CHECK(!infill_is_possible(t, &why));
    CHECK_STR(why, "no prefix token");
    tokenizer_close(t);
    t = open_letters(some, NULL, 0);
    CHECK(!infill_is_possible(t, &why));
    CHECK_STR(why, "no middle token");
    tokenizer_close(t);
    t = open_letters(two, "tokenizer.ggml.fim_pre_token_id", 97); /* the file names "<x>" */
    CHECK(infill_is_possible(t, &why));
    CHECK_INT(tokenizer_fim(t)->prefix, 97);
    CHECK_INT(tokenizer_fim(t)->file, -1);
    tokenizer_close(t);
}
