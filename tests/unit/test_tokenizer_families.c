/* The families of pre-tokenisers: where each cuts a text, and which name a list of cuts has. */
#include "test.h"

#include <stdlib.h>

#include "prompt/tokenizer/families.h"

static const struct pre_family *family_of(const char *name)
{
    const struct pre_family *family = pre_family_find(name, strlen(name));
    if (!family)
        test_fail(__FILE__, __LINE__, "there is no family %s", name);
    return family;
}

/* ---- cuts ---- */

static void add_token(struct tokenizer *t, int32_t id, const char *bytes, size_t len)
{
    t->texts[id] = t->tokens[id] = tokenizer_keep(t, bytes, len);
    vocab_table_add(&t->ordinary, id);
    if (len > t->longest)
        t->longest = len;
}

/* A tokenizer of the bytes and of the words between the bars, which never merge: a piece that is
 * one of the words becomes its token, any other becomes bytes. */
static struct tokenizer *open_words(const char *name, const char *barred)
{
    enum { N_WORDS = 200 };
    struct error err = {0};
    struct tokenizer *t = tokenizer_new(TOKENIZER_BPE, 256 + N_WORDS, &err);
    int32_t n = 256;
    CHECK(t && merge_table_open(&t->merges, 0, &err) == 0);
    for (int i = 0; i < 256; i++) {
        add_token(t, i, (char[]){(char)i}, 1);
        t->byte_ids[i] = i;
    }
    for (const char *at = barred; *at;) {
        size_t len = strcspn(at, "|");
        CHECK(n < 256 + N_WORDS);
        if (len > 1 && vocab_table_find(&t->ordinary, at, len) < 0)
            add_token(t, n++, at, len);
        at += len + (at[len] == '|');
    }
    special_list_ready(&t->added);
    special_list_ready(&t->normalized);
    if (pre_family_apply(family_of(name), t, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s", name, err.message);
    t->ignore_merges = true;
    return t;
}

/* The text without its bars is cut where they are. */
static void check_cuts(const char *name, const char *barred)
{
    struct tokenizer *t = open_words(name, barred);
    struct strbuf text = STRBUF_INIT, cut = STRBUF_INIT;
    struct token_list ids = {0};
    struct error err = {0};
    for (const char *at = barred; *at; at++)
        if (*at != '|')
            strbuf_addc(&text, *at);
    CHECK_INT(tokenizer_encode(t, strbuf_str(&text), text.len, 0, &ids, &err), 0);
    for (size_t i = 0; i < ids.len; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids.ids[i], &len);
        strbuf_addf(&cut, "%s%.*s", i ? "|" : "", (int)len, bytes);
    }
    if (strcmp(strbuf_str(&cut), barred) != 0)
        test_fail(__FILE__, __LINE__, "%s: cut as\n%s\nnot as\n%s", name, strbuf_str(&cut), barred);
    token_list_free(&ids);
    strbuf_free(&text);
    strbuf_free(&cut);
    tokenizer_close(t);
}

/* What the `tokenizers` library makes of one text with the same steps; Oniguruma cannot read
 * kimi-k2's expression, so its cuts are tiktoken's. */
static const struct {
    const char *name, *barred;
} cuts[] = {
    {"default", "He|'|ll| SAYs| IT|'|S| |123|45| |6½| x|!!|\n\n | y|_|Z| |"
                "(|word|)| | |200|0|中文か| 한국éÉ|3|.|14|,|\r\n\t|<|a|/>|b| c| "},
    {"gpt-2", "He|'ll| SAYs| IT|'|S| 12345| 6½| x|!!|\n\n | y|_|Z|"
              " (|word|)| | 2000|中文か| 한국éÉ|3|.|14|,|\r\n|\t|<|a|/>|b| c| "},
    {"olmo", "He|'ll| SAYs| IT|'|S| 12345| 6½| x|!!|\n\n | y|_|Z|"
             " (|word|)| | 2000|中文か| 한국éÉ|3|.|14|,|\r\n|\t|<|a|/>|b| c| "},
    {"smollm", "He|'ll| SAYs| IT|'|S| |1|2|3|4|5| |6|½| x|!!|\n\n | y|_|Z|"
               " (|word|)|  |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,|\r\n|\t|<|a|/>|b| c| "},
    {"command-r", "He|'ll| SAYs| IT|'|S| |1|2|3|4|5| |6|½| x|!!|\n\n | y|_|Z|"
                  " (|word|)|  |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,|\r\n|\t|<|a|/>|b| c| "},
    {"falcon", "He|'|ll| SAYs| IT|'|S| |123|45| |6|½| x|!!|\n\n | y|_|Z| |"
               "(|word|)| | |200|0|中文か| 한국éÉ|3|.|14|,|\r\n\t|<|a|/>|b| c| "},
    {"chameleon", "He|'|ll| SAYs| IT|'|S| |1|2|3|4|5| |6|½| x|!|!|\n|\n|  |y|_|Z| |"
                  "(|word|)|  |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,|\r|\n|\t|<|a|/|>|b| c| "},
    {"bloom", "He'll| SAYs| IT'S| 12345| 6½| x|!!\n\n | y_Z|"
              " (|word|) | 2000中文か| 한국éÉ3|.|14|,\r\n\t|<a/>b| c| "},
    {"viking", "He'll| SAYs| IT'S| |1|2|3|4|5| |6|½| x|!!\n\n | y_Z|"
               " (|word|) | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,\r\n\t|<a/>b| c| "},
    {"superbpe", "He'll SAYs IT'S |12|345| |6½| x!!\n\n  y_Z "
                 "(word)  |2|000|中文か 한국éÉ|3|.|14|,\r\n\t<a/>b c "},
    {"qwen2", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!\n\n| | y|_Z|"
              " (|word|)| | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,\r\n|\t|<a|/>|b| c| "},
    {"solar-open", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!\n\n| | y|_Z|"
                   " (|word|)| | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,\r\n|\t|<a|/>|b| c| "},
    {"laguna", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!|\n\n| | y|_Z|"
               " (|word|)| | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,\r|\n|\t|<a|/>|b| c| "},
    {"qwen35", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!\n\n| | y|_Z|"
               " (|word|)| | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,\r\n|\t|<a|/>|b| c| "},
    {"seed-coder", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!|\n\n| | y|_Z|"
                   " (|word|)| | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,|\r\n|\t|<a|/>|b| c| "},
    {"bailingmoe", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!\n\n| | y|_Z|"
                   " (|word|)| | |2|0|0|0|中文か| 한국éÉ|3|.|1|4|,\r\n|\t|<a|/>|b| c| "},
    {"exaone-moe", "He|'ll| SAYs IT|'S| |1|2|3|4|5| |6|½| x|!!\n|\n| | y|_Z|"
                   " (|word|)| | |2|0|0|0|中文か 한국éÉ|3|.|1|4|,\r|\n|\t|<a|/>|b c| "},
    {"llama-bpe", "He|'ll| SAYs| IT|'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
                  " (|word|)| | |200|0|中文か| 한국éÉ|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"dbrx", "He|'ll| SAYs| IT|'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
             " (|word|)| | |200|0|中文か| 한국éÉ|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"jais-2", "He|'ll| SAYs| IT|'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
               " (|word|)| | |200|0|中文か| 한국éÉ|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"minicpm5", "He|'ll| SAYs| IT|'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
                 " (|word|)|  |200|0|中文か| 한국éÉ|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"gpt-4o", "He'll| SAYs| IT'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
               " (|word|)| | |200|0|中文か| 한국é|É|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"tiny_aya", "He'll| SAYs| IT'S| |12|345| |6½| x|!!\n\n| | y|_Z|"
                 " (|word|)| | |200|0|中文か| 한국é|É|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"tekken", "He|'ll| SAYs| IT|'S| |1|2|3|4|5| |6|½| x|!!\n\n| | y|_Z|"
               " (|word|)| | |2|0|0|0|中文か| 한국é|É|3|.|1|4|,\r\n|\t|<a|/>|b| c| "},
    {"kimi-k2", "He'll| SAYs| IT'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
                " (|word|)| | |200|0|中文|か| 한국é|É|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"youtu", "He'll| SAYs| IT'S| |1|2|3|4|5| |6|½| x|!!\n\n| | y|_Z|"
              " (|word|)| | |2|0|0|0|中文か| |한국|é|É|3|.|1|4|,\r\n|\t|<a|/>|b| c| "},
    {"deepseek-v3", "He|'ll| SAYs| IT|'S| |123|45| |6½| x|!!\n\n| | y|_Z|"
                    " (|word|)|  |200|0|中文か| 한국éÉ|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"afmoe", "He|'ll| SAYs| IT|'S| |12|345| |6½| x|!!\n\n| | y|_Z|"
              " (|word|)|  |2|000|中文か| |한국|éÉ|3|.|14|,\r\n|\t|<a|/>|b| c| "},
    {"deepseek-llm", "He|'|ll| SAYs| IT|'|S| |1|2|3|4|5| |6|½| x|!!|\n|\n| | y|_|Z|"
                     " (|word|)|  |2|0|0|0|中文か| |한국|éÉ|3|.|1|4|,|\r|\n|\t<|a|/>|b| c| "},
    {"deepseek-coder", "He|'|ll| SAYs| IT|'|S| |1|2|3|4|5| |6|½| x|!!|\n|\n| | y|_|Z|"
                       " (|word|)|  |2|0|0|0|中文か| |한국|éÉ|3|.|1|4|,|\r|\n|\t<|a|/|>|b| c| "},
};

TEST(tokenizer_families, cuts_of_every_family)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        check_cuts(cuts[i].name, cuts[i].barred);
}

TEST(tokenizer_families, cuts_in_cuts)
{
    check_cuts("deepseek-v3", "a|  |1|b");
    check_cuts("minicpm5", "x|  |123|4");
    check_cuts("viking", "1|2|3| a");
    check_cuts("superbpe", "a b |1|234|567| c");
    check_cuts("afmoe", "1|234|567| |12|345");
    check_cuts("deepseek-llm", "a|  |\r|\n|b|  ");
    check_cuts("jais-2", "        |  | b");
    check_cuts("chameleon", "<|sentinel|:|1|2|>|IMGIMGABZ|x");
    check_cuts("kimi-k2", "漢字|カナ| |漢|a");
}

/* ---- names ---- */

TEST(tokenizer_families, every_name_of_models_at_large)
{
    static const char *const names[] = {
        "default",       "llama3",      "llama-v3",       "llama-bpe",  "falcon3",
        "falcon-h1",     "pixtral",     "midm-2.0",       "lfm2",       "deepseek-llm",
        "deepseek-v3",   "youtu",       "deepseek-coder", "falcon",     "mpt",
        "starcoder",     "gpt-2",       "gpt2",           "phi-2",      "gigachat",
        "a.x-4.0",       "mellum",      "jais-2",         "gemma4",     "sarvam-moe",
        "refact",        "command-r",   "qwen2",          "kormo",      "deepseek-r1-qwen",
        "qwen35",        "stablelm2",   "olmo",           "dbrx",       "smaug-bpe",
        "poro-chat",     "glm4",        "chatglm-bpe",    "viking",     "jais",
        "tekken",        "smollm",      "codeshell",      "bloom",      "gpt3-finnish",
        "exaone",        "exaone4",     "exaone-moe",     "chameleon",  "minerva-7b",
        "megrez",        "gpt-4o",      "llama4",         "kanana2",    "talkie",
        "tiny_aya",      "cohere2moe",  "superbpe",       "trillion",   "granite-docling",
        "bailingmoe",    "bailingmoe2", "llada-moe",      "seed-coder", "hunyuan",
        "hunyuan-dense", "joyai-llm",   "kimi-k2",        "grok-2",     "afmoe",
        "laguna",        "minimax-m2",  "solar-open",     "mellum2",    "minicpm5",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        family_of(names[i]);
    CHECK(!pre_family_find("", 0) && !pre_family_find("qwen", 4) && !pre_family_find("qwen2x", 6));
    CHECK(!pre_family_find("gpt", 3) && !pre_family_find("gpt-2\0", 6));
}

TEST(tokenizer_families, options)
{
    const struct pre_options *llama = &family_of("llama-bpe")->options;
    const struct pre_options *qwen = &family_of("deepseek-r1-qwen")->options;
    CHECK(llama->ignore_merges && llama->add_bos && !llama->nfc && !llama->is_guess);
    CHECK(!qwen->ignore_merges && !qwen->add_bos && qwen->nfc);
    CHECK(family_of("tekken")->options.ignore_merges && family_of("gemma4")->options.characters);
    CHECK(family_of("default")->options.is_guess && !family_of("gpt-2")->options.is_guess);
}

TEST(tokenizer_families, names_of_cuts)
{
    bool exact;
    CHECK_STR(pre_family_name(PATTERN_GPT2 "\n", false, false, &exact), "gpt-2");
    CHECK(exact);
    CHECK_STR(pre_family_name(CUT_DIGITS "\n" PATTERN_GPT2 "\n", false, false, &exact), "smollm");
    CHECK_STR(pre_family_name(CUT_DIGITS "\n" PATTERN_GPT2 "\n", true, false, &exact), "command-r");
    CHECK(exact);
    CHECK_STR(pre_family_name(PATTERN_LLAMA3 "\n", false, true, &exact), "llama-bpe");
    CHECK_STR(pre_family_name(PATTERN_LLAMA3 "\n", false, false, &exact), "dbrx");
    CHECK(exact);
    CHECK_STR(pre_family_name(PATTERN_GPT4O "\n", false, true, &exact), "gpt-4o");
    CHECK(!exact);
    CHECK_STR(pre_family_name(PATTERN_TEKKEN "\n", true, true, &exact), "tekken");
    CHECK(!exact);
    CHECK(!pre_family_name("", false, false, &exact) && !exact);
    CHECK(!pre_family_name(PATTERN_GPT2, false, false, &exact));
    CHECK(!pre_family_name(PATTERN_GPT2 "\nx\n", false, false, &exact));
    CHECK(!pre_family_name("\\p{N}{1,3}\n", false, false, &exact));
}

/* Each family's own cuts lead back to a name with the same cuts. */
TEST(tokenizer_families, names_lead_back)
{
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const struct pre_family *family = family_of(cuts[i].name), *found;
        struct strbuf list = STRBUF_INIT;
        bool exact;
        for (size_t k = 0; k < MAX_CUTS && family->cuts[k]; k++)
            strbuf_addf(&list, "%s\n", family->cuts[k]);
        const char *name = pre_family_name(strbuf_str(&list), family->options.nfc,
                                           family->options.ignore_merges, &exact);
        strbuf_free(&list);
        CHECK((name == NULL) == family->options.is_guess);
        found = name ? family_of(name) : family;
        for (size_t k = 0; k < MAX_CUTS && family->cuts[k]; k++)
            CHECK_STR(found->cuts[k], family->cuts[k]);
    }
}
