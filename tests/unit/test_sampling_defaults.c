/* What a model's files say about sampling, and which of it is used. */
#include "base/log.h"
#include "gguf_builder.h"
#include "prompt/tokenizer/sampling_defaults.h"
#include "test.h"

static struct sampling_defaults from_json(const char *text)
{
    struct arena arena = ARENA_INIT;
    struct sampling_defaults d = {0};
    struct error err = {0};
    const struct json *config = json_parse_file(&arena, text, strlen(text), &err);
    CHECK(config != NULL);
    log_set_level(LOG_ERROR);
    sampling_defaults_from_json(&d, config, "generation_config.json");
    arena_free(&arena);
    return d;
}

static void check_words(const struct sampling_defaults *d, const char *words)
{
    struct strbuf text = STRBUF_INIT;
    sampling_defaults_write(&text, d);
    CHECK_STR(strbuf_str(&text), words);
    strbuf_free(&text);
}

TEST(sampling_defaults, of_a_directory)
{
    static const struct {
        const char *config, *words;
    } cases[] = {
        {"{}", ""},
        {"{\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20, \"min_p\": 0}",
         "temperature 0.6, top_p 0.95, top_k 20, min_p 0"},
        {"{\"do_sample\": true, \"repetition_penalty\": 1.05}", "repetition_penalty 1.05"},
        {"{\"do_sample\": false, \"temperature\": 0.6, \"top_k\": -1}", "temperature 0, top_k 0"},
        {"{\"do_sample\": false}", "temperature 0"},
        {"{\"temperature\": null, \"top_k\": null}", ""},
        {"{\"temperature\": 2.5, \"top_p\": -0.1, \"top_k\": 1.5, \"min_p\": 2}", ""},
        {"{\"temperature\": NaN, \"top_p\": Infinity, \"top_k\": -2, \"min_p\": \"0.1\"}", ""},
        {"{\"repetition_penalty\": 0, \"do_sample\": \"false\", \"top_k\": 1e30}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampling_defaults d = from_json(cases[i].config);
        check_words(&d, cases[i].words);
    }
    struct sampling_defaults nothing = {0};
    sampling_defaults_from_json(&nothing, NULL, "");
    check_words(&nothing, "");
}

TEST(sampling_defaults, of_a_gguf_file)
{
    struct gguf_builder b = {.version = 3, .alignment = 32};
    struct sampling_defaults d = {0};
    struct gguf gguf;
    struct error err = {0};
    build_key_f32(&b, "general.sampling.temp", 0.7f);
    build_key_u32(&b, "general.sampling.top_k", 64);
    build_key_f32(&b, "general.sampling.top_p", 1.5f);
    build_key_string(&b, "general.sampling.min_p", "x");
    build_key_f32(&b, "general.sampling.penalty_repeat", 1.1f);
    gguf_builder_finish(&b);
    CHECK_INT(gguf_open_memory(&gguf, "m.gguf", b.file.data, b.file.len, &err), 0);
    log_set_level(LOG_ERROR);
    sampling_defaults_from_gguf(&d, &gguf);
    check_words(&d, "temperature 0.7, top_k 64, repetition_penalty 1.1");
    gguf_close(&gguf);
    gguf_builder_free(&b);
}

TEST(sampling_defaults, change_only_what_they_name)
{
    struct sampling s = SAMPLING_DEFAULT;
    struct strbuf text = STRBUF_INIT;
    struct json_writer w = {.out = &text};
    struct sampling_defaults d = from_json("{\"top_k\": 20, \"top_p\": 0.95}");
    sampling_defaults_apply(&d, &s);
    sampling_write_json(&w, NULL, &s);
    CHECK_STR(strbuf_str(&text), "{\"temperature\":1.0,\"top_p\":0.95,\"top_k\":20,\"min_p\":0.0,"
                                 "\"repetition_penalty\":1.0,\"presence_penalty\":0.0,"
                                 "\"frequency_penalty\":0.0}");
    strbuf_free(&text);
}

static struct sampling_defaults of_metadata(const char *basename, const char *finetune,
                                            const char *size, float temperature)
{
    struct gguf_builder b = {.version = 3, .alignment = 32};
    struct sampling_defaults d = {0};
    struct gguf gguf;
    struct error err = {0};
    if (basename)
        build_key_string(&b, "general.basename", basename);
    if (finetune)
        build_key_string(&b, "general.finetune", finetune);
    build_key_string(&b, "general.size_label", size);
    if (temperature > 0)
        build_key_f32(&b, "general.sampling.temp", temperature);
    gguf_builder_finish(&b);
    /* The path must not count. */
    CHECK_INT(gguf_open_memory(&gguf, "SmolLM2-135M-Instruct.gguf", b.file.data, b.file.len, &err),
              0);
    sampling_defaults_from_gguf(&d, &gguf);
    gguf_close(&gguf);
    gguf_builder_free(&b);
    return d;
}

TEST(sampling_defaults, of_makers_who_say_it_elsewhere)
{
    static const struct {
        const char *basename, *finetune;
        float temperature;
        const char *words;
    } cases[] = {
        {"smollm2", "8k-lc100k-mix1-ep2", 0, "temperature 0.2, top_p 0.9"},
        {"SmolLM2", "Instruct", 0, "temperature 0.2, top_p 0.9"},
        {"smollm2", "Instruct", 0.5f, "temperature 0.5, top_p 0.9"}, /* the file's word counts */
        {"smollm2", NULL, 0, ""},                                    /* a base model */
        {"smollm2", "", 0, ""},
        {"smollm", "Instruct", 0, ""},
        {"smollm20", "Instruct", 0, ""},
        {NULL, "Instruct", 0, ""},
        {NULL, NULL, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampling_defaults d = of_metadata(cases[i].basename, cases[i].finetune, "135M",
                                                 cases[i].temperature);
        check_words(&d, cases[i].words);
    }
}

TEST(sampling_defaults, tell_where_each_value_comes_from)
{
    struct sampling s = SAMPLING_USUAL;
    struct strbuf text = STRBUF_INIT;
    struct sampling_defaults none = {0}, model = from_json("{\"temperature\": 0.6, \"top_k\": 20}");
    struct sampling_defaults options = from_json("{\"top_k\": 5, \"presence_penalty\": -1}");
    sampling_write(&text, &s, &none, &none);
    CHECK_STR(strbuf_str(&text), "temperature 0.8, top_p 0.95, top_k 40, min_p 0.05");
    strbuf_clear(&text);
    sampling_defaults_apply(&model, &s);
    sampling_defaults_apply(&options, &s);
    sampling_write(&text, &s, &model, &options);
    CHECK_STR(strbuf_str(&text), "temperature 0.6 (model), top_p 0.95, top_k 5 (option), "
                                 "min_p 0.05, presence_penalty -1 (option)");
    strbuf_free(&text);
}
