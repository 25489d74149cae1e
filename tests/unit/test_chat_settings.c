/* The settings of a chat: names, values as people write them, and back as a request. */
#include "test.h"

#include "cli/chat/chat_settings.h"

static const struct prompt_maker maker;
static struct chat_settings settings;
static struct error err;

static int set(const char *name, const char *value)
{
    return chat_settings_set(&settings, &maker, name, value, &err);
}

static const char *body(void)
{
    static char text[512];
    struct strbuf out = STRBUF_INIT;
    struct json_writer w = {.out = &out};
    json_object_begin(&w, NULL);
    chat_settings_write(&settings, &w);
    json_object_end(&w);
    snprintf(text, sizeof text, "%s", strbuf_str(&out));
    strbuf_free(&out);
    return text;
}

TEST(chat_settings, every_name_is_a_request_field)
{
    size_t n = 0;
    for (; chat_settings_field(n); n++)
        CHECK_INT(chat_settings_field(n)->class, FIELD_SERVED);
    CHECK(n > 10 && n < SETTINGS_MAX);
}

TEST(chat_settings, values_as_people_write_them)
{
    CHECK_INT(set("temperature", "0.5"), 0);
    CHECK_INT(set("ignore_eos", "on"), 0);
    CHECK_INT(set("stop", "END"), 0);
    CHECK_STR(body(), "{\"temperature\":0.5,\"stop\":\"END\",\"ignore_eos\":true}");
    CHECK_INT(set("stop", "[\"a\", \"b\"]"), 0);
    CHECK_INT(set("temperature", "default"), 0);
    CHECK_STR(body(), "{\"stop\":[\"a\",\"b\"],\"ignore_eos\":true}");
    chat_settings_free(&settings);
    CHECK_STR(body(), "{}");
}

TEST(chat_settings, a_wrong_value_changes_nothing)
{
    static const char *const wrong[][2] = {
        {"temperature", "hot"}, {"temperature", "3"}, {"temperature", "1 2"},
        {"temperature", "\""},  {"top_k", "1.5"},     {"ignore_eos", "1"},
        {"max_tokens", "0"},    {"stop", "[1]"},      {"enable_thinking", "on"},
        {"messages", "[]"},     {"no_such", "1"},     {"", "1"},
    };
    CHECK_INT(set("temperature", "0.5"), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(set(wrong[i][0], wrong[i][1]), -1);
        CHECK(err.message[0]);
        CHECK_STR(body(), "{\"temperature\":0.5}");
    }
    chat_settings_free(&settings);
}

TEST(chat_settings, they_reach_the_sampler)
{
    struct sampling base = SAMPLING_DEFAULT;
    struct request_params p;
    struct strbuf shown = STRBUF_INIT;
    base.top_p = 0.75f;
    CHECK_INT(set("top_k", "7"), 0);
    CHECK_INT(set("seed", "42"), 0);
    CHECK_INT(chat_settings_read(&settings, &base, &p, &err), 0);
    CHECK_INT(p.sampling.top_k, 7);
    CHECK_INT(p.sampling.seed, 42);
    CHECK(p.sampling.top_p == 0.75f);
    request_params_free(&p);
    chat_settings_show(&settings, 1, &base, &shown);
    CHECK_STR(strbuf_str(&shown), "7");
    strbuf_clear(&shown);
    chat_settings_show(&settings, 2, &base, &shown);
    CHECK_STR(strbuf_str(&shown), "0.75 (default)");
    strbuf_free(&shown);
    chat_settings_free(&settings);
}

TEST(chat_settings, the_nearest_name)
{
    static const char *const names[] = {"help", "clear", "temperature", "top_p", NULL};
    CHECK_STR(name_nearest("hlep", names), "help");
    CHECK_STR(name_nearest("temprature", names), "temperature");
    CHECK_STR(name_nearest("temp", names), "temperature");
    CHECK_STR(name_nearest("t", names), "temperature");
    CHECK(!name_nearest("", names) && !name_nearest("models", names));
}
