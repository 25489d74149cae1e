/* Chat templates as a whole: real ones against what jinja2 makes of them, errors, limits, and
 * where each byte of a rendering comes from. */
#include "prompt/jinja/chat_template.h"

#include <pthread.h>
#include <stdlib.h>

#include "test.h"
#include "test_files.h"

enum { NOW = 1752148800 }; /* 2025-07-10T12:00:00 */

static const struct render_options options = {.now_unix = NOW};

/* A template rendered with a context in JSON. The result is "text", or "! message". */
static const char *render(const char *source, const char *context)
{
    static char result[1 << 16];
    struct error err = {0};
    struct arena arena = ARENA_INIT;
    struct rendering out = RENDERING_INIT;
    struct chat_template *t = chat_template_parse(source, strlen(source), &err);
    struct json *json = json_parse(&arena, context, strlen(context), &err);
    if (t && json && chat_template_render(t, json, &options, &out, &err) == 0)
        snprintf(result, sizeof result, "%s", strbuf_str(&out.text));
    else
        snprintf(result, sizeof result, "! %s", err.message);
    rendering_free(&out);
    chat_template_free(t);
    arena_free(&arena);
    return result;
}

/* Each line of a file of JSON lines, one after the other. */
static struct json *next_line(struct arena *arena, char **at)
{
    while (**at == '\n')
        ++*at;
    if (!**at)
        return NULL;
    struct error err = {0};
    size_t len = strcspn(*at, "\n");
    struct json *json = json_parse(arena, *at, len, &err);
    if (!json)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    *at += len;
    return json;
}

static struct chat_template *parse_json(const struct json *source, struct error *err)
{
    return chat_template_parse(source->text, source->text_len, err);
}

/* Whether a rendering or an error equals that of jinja2. Errors must be errors, and those of
 * raise_exception must say the same. */
static bool agrees(const struct json *golden, int rc, const struct rendering *out,
                   const struct error *err)
{
    const struct json *expected = json_get(golden, "expected"),
                      *raises = json_get(golden, "raises");
    if (expected)
        return rc == 0 && out->text.len == expected->text_len &&
               memcmp(strbuf_str(&out->text), expected->text, expected->text_len) == 0;
    static const char own[] = "TemplateError: ";
    if (rc == 0 || strncmp(raises->text, own, sizeof own - 1) != 0)
        return rc != 0;
    return strcmp(raises->text + sizeof own - 1, err->message) == 0;
}

TEST(chat_template, agrees_with_jinja2_on_real_templates)
{
    const char *path = test_shared_path("data/templates/generated_contexts.json");
    if (!path)
        SKIP("no shared templates");
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    size_t len;
    char *contexts_text = test_file_read(path, &len);
    struct json *contexts = json_parse(&arena, contexts_text, len, &err);
    CHECK(contexts);
    char *templates_text = test_file_read(
        test_shared_path("data/templates/generated_templates.jsonl"), &len);
    char *goldens_text = test_file_read(
        test_shared_path("data/templates/generated_jinja2_triples.jsonl"), &len);
    char *at = templates_text, *golden_at = goldens_text;
    int n_same = 0, n_differ = 0, n_templates = 0;
    struct json *source, *golden = next_line(&arena, &golden_at);
    while ((source = next_line(&arena, &at))) {
        const char *sha = json_get(source, "template_sha12")->text;
        struct chat_template *t = parse_json(json_get(source, "template"), &err);
        n_templates++;
        for (; golden && json_equals(json_get(golden, "template_sha12"), sha);
             golden = next_line(&arena, &golden_at)) {
            struct rendering out = RENDERING_INIT;
            const char *name = json_get(golden, "case")->text;
            int rc = t ? chat_template_render(t, json_get(contexts, name), &options, &out, &err)
                       : -1;
            bool same = agrees(golden, rc, &out, &err);
            *(same ? &n_same : &n_differ) += 1;
            if (!same)
                fprintf(stderr, "%s %s differs: %s\n", json_get(source, "name")->text, name,
                        rc ? err.message : strbuf_str(&out.text));
            rendering_free(&out);
        }
        chat_template_free(t);
    }
    printf("chat templates: %d of %d renderings of %d templates as jinja2's\n", n_same,
           n_same + n_differ, n_templates);
    CHECK(golden == NULL);
    CHECK_INT(n_differ, 0);
    CHECK(n_same > 0);
    free(contexts_text);
    free(templates_text);
    free(goldens_text);
    arena_free(&arena);
}

TEST(chat_template, says_where_it_does_not_parse)
{
    static const struct {
        const char *source;
        size_t position;
        const char *message;
    } cases[] = {
        {"{{ 1 + }}", 7, "line 1: unexpected 'end of print statement'"},
        {"a\nb\n{% if x %}", 14, "line 3: Unexpected end of template. 'endif' is missing."},
        {"a\r\nb {{ x y }}", 10, "line 2: expected token 'end of print statement', got 'y'"},
        {"{% for x in %}", 12, "line 1: Expected an expression, got 'end of statement block'"},
        {"{{ (1, 2] }}", 8, "line 1: unexpected ']', expected ')'"},
        {"\n\n{# never", 2, "line 3: Missing end of comment tag"},
        {"{{ 'abc }}", 3, "line 1: this string has no closing '"},
        {"{{ x | nope }}", 7, "line 1: No filter named 'nope'."},
        {"{% include 'a' %}", 3,
         "line 1: {% include %} is not supported: a chat template is one file"},
        {"{% nope %}", 3, "line 1: Encountered unknown tag 'nope'."},
        {"{% if 1 %}{% nope %}", 13,
         "line 1: Encountered unknown tag 'nope'. Jinja was looking for the following tags: 'elif' "
         "or 'else' or 'endif'."},
        {"{% break %}", 3, "line 1: 'break' outside loop"},
        {"{% set 1 = 2 %}", 7, "line 1: can't assign to this: a variable's name is expected"},
        {"{{ 99999999999999999999 }}", 3, "line 1: the number is too large"},
        {"{{ '\\ud800' }}", 4, "line 1: this escape is not valid in a string"},
        {"{{ '\\x4' }}", 4, "line 1: this escape is not valid in a string"},
        {"{{ x ? }}", 5, "line 1: unexpected character '?'"},
        {"{% raw %}x", 0, "line 1: Missing end of raw directive"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        CHECK(!chat_template_parse(cases[i].source, strlen(cases[i].source), &err));
        CHECK_INT(err.code, ERROR_INPUT);
        CHECK_STR(err.message, cases[i].message);
        CHECK_INT(err.position, cases[i].position);
    }
}

TEST(chat_template, says_what_fails)
{
    CHECK_STR(render("\n{{ a.b }}", "{}"), "! line 2: 'a' is undefined");
    CHECK_STR(render("{{ a.b.c }}", "{\"a\": {}}"), "! line 1: 'dict object' has no attribute 'b'");
    CHECK_STR(render("{{ 'x' + 1 }}", "{}"),
              "! line 1: can only concatenate str (not \"int\") to str");
    CHECK_STR(render("{{ raise_exception('Only one system message, at the start!') }}", "{}"),
              "! Only one system message, at the start!");
    CHECK_STR(render("\n\n{% if true %}{{ x | nope }}{% endif %}", "{}"),
              "! line 3: No filter named 'nope' found.");
    CHECK_STR(render("{{ 9223372036854775807 + 1 }}", "{}"),
              "! line 1: integer out of range: numbers beyond 64 bits are not supported");
    CHECK_STR(render("{{ [].append(1) }}", "{}"),
              "! line 1: access to attribute 'append' of 'list' object is unsafe.");
}

static char *repeat(const char *piece, int times, const char *middle, const char *closing)
{
    size_t n = strlen(piece) + strlen(closing), len = strlen(middle);
    char *text = malloc(n * (size_t)times + len + 1), *at = text;
    CHECK(text);
    for (int i = 0; i < times; i++)
        at = stpcpy(at, piece);
    at = stpcpy(at, middle);
    for (int i = 0; i < times; i++)
        at = stpcpy(at, closing);
    return text;
}

static void check_refused(const char *source, const char *part)
{
    const char *got = render(source, "{\"s\": \"abc\"}");
    if (got[0] != '!' || !strstr(got, part))
        test_fail(__FILE__, __LINE__, "%.60s gives %.200s", source, got);
}

/* Templates that would use up memory, time or the stack end with an error. */
TEST(chat_template, is_bounded)
{
    check_refused("{% for x in range(10 ** 9) %}{% endfor %}", "Range too big");
    check_refused("{{ 'x' * 10 ** 12 }}", "needs more than");
    check_refused("{{ [0] * 10 ** 12 }}", "needs more than");
    check_refused("{{ '%1000000000000d' % 1 }}", "too big");
    check_refused("{{ '{:1000000000000}'.format(1) }}", "too big");
    check_refused("{{ 'x'.ljust(10 ** 15) }}", "needs more than");
    check_refused("{{ 'x' | center(10 ** 15) }}", "needs more than");
    check_refused("{{ 2 ** 10 ** 9 }}", "out of range");
    check_refused(
        "{% set a = range(100000) %}{% for x in a %}{% for y in a %}{% endfor %}{% endfor %}",
        "takes too long");
    check_refused(
        "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}"
        "{% endfor %}",
        "needs more than");
    check_refused("{% set t = 'x' * 1000000 %}{% for i in range(100) %}{{ t }}{% endfor %}",
                  "output is larger");
    check_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion");
    check_refused("{% set ns = namespace(t=()) %}{% for i in range(9999) %}{% set ns.t = (ns.t,) %}"
                  "{% endfor %}{{ ns.t }}",
                  "recursion");
    check_refused("{% set ns = namespace(t=()) %}{% for i in range(9999) %}{% set ns.t = (ns.t,) %}"
                  "{% endfor %}{{ ns.t | tojson }}",
                  "recursion");
    check_refused(
        "{% set ns = namespace(t=(), u=()) %}{% for i in range(9999) %}{% set ns.t = (ns.t,) %}"
        "{% set ns.u = (ns.u,) %}{% endfor %}{{ ns.t == ns.u }}",
        "recursion");
    check_refused("{% set ns = namespace(t=s) %}{% for i in range(9999) %}"
                  "{% set ns.t = ns.t | map('string') %}{% endfor %}{{ ns.t | list }}",
                  "recursion");
    static const char *const blocks[][2] = {{"{% if 1 %}", "{% endif %}"},
                                            {"{% for x in s %}", "{% endfor %}"},
                                            {"{% macro m() %}", "{% endmacro %}"}};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        char *source = repeat(blocks[i][0], 20000, "x", blocks[i][1]);
        check_refused(source, "deeply");
        free(source);
    }
    static const char *const prefixes[] = {"(", "[", "-", "not ", "{1: ", "1 if ", "s[", "s.x("};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        char *inner = repeat(prefixes[i], 20000, "1 }}", ""), *source = malloc(strlen(inner) + 4);
        CHECK(source);
        sprintf(source, "{{ %s", inner);
        check_refused(source, "deeply");
        free(inner);
        free(source);
    }
    static const char *const suffixes[] = {" + 1", ".x", "|string", "[0]", "()", " or 1"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char *inner = repeat(suffixes[i], 20000, " }}", ""), *source = malloc(strlen(inner) + 8);
        CHECK(source);
        sprintf(source, "{{ s%s", inner);
        check_refused(source, "deeply");
        free(inner);
        free(source);
    }
}

/* "[source:text]..." of a rendering: t for the template, d for data, else the message's index. */
static const char *sources(const char *source, const char *context)
{
    static char result[4096];
    struct error err = {0};
    struct arena arena = ARENA_INIT;
    struct rendering out = RENDERING_INIT;
    struct chat_template *t = chat_template_parse(source, strlen(source), &err);
    const struct json *json = json_parse(&arena, context, strlen(context), &err);
    if (!t || !json || chat_template_render(t, json, &options, &out, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    size_t from = 0, n = 0;
    result[0] = '\0';
    for (size_t i = 0; i < out.n_segments; i++) {
        int32_t who = out.segments[i].source;
        n += (size_t)snprintf(result + n, sizeof result - n, "[%c:%.*s]",
                              who == RENDER_TEMPLATE ? 't'
                              : who == RENDER_DATA   ? 'd'
                                                     : '0' + who,
                              (int)(out.segments[i].end - from), out.text.data + from);
        from = out.segments[i].end;
    }
    CHECK_INT(from, out.text.len);
    rendering_free(&out);
    chat_template_free(t);
    arena_free(&arena);
    return result;
}

TEST(chat_template, knows_who_wrote_what)
{
    static const char context[] =
        "{\"bos_token\": \"<s>\", \"tools\": [\"T\"], \"messages\": [{\"role\": \"user\", "
        "\"content\": \"one,two\"}, {\"role\": \"hacker\", \"content\": \"B\", \"n\": 5}]}";
    static const struct {
        const char *source, *want;
    } cases[] = {
        {"a{{ messages[0].content }}b", "[t:a][0:one,two][t:b]"},
        {"{{ bos_token }}{{ messages[0].role }}", "[t:<s>user]"},
        {"{{ messages[1].role }}{{ messages[1].content }}", "[1:hackerB]"},
        {"{{ messages[0].content ~ messages[1].content }}", "[0:one,two][1:B]"},
        {"{{ tools }}{{ tools[0] }}", "[d:['T']T]"},
        {"{{ 'x' + messages[0].content + 'y' }}", "[t:x][0:one,two][t:y]"},
        {"{{ ('x' + messages[0].content + 'y')[2:-2] }}", "[0:ne,tw]"},
        {"{{ ('x' + messages[0].content + 'y')[::-1] }}", "[t:y][0:owt,eno][t:x]"},
        {"{{ messages[0].content.split(',') | join('|') }}", "[0:one][t:|][0:two]"},
        {"{{ messages[0].content | replace(',', '<sep>') }}", "[0:one][t:<sep>][0:two]"},
        {"{{ '<%s>' % messages[1].content }}", "[t:<][1:B][t:>]"},
        {"{{ '<{}>'.format(messages[1].content) }}", "[t:<][1:B][t:>]"},
        {"{{ '{:>3}'.format(messages[1].content) }}", "[t:  ][1:B]"},
        {"{{ ('x' ~ messages[1].content) | upper }}", "[1:XB]"},
        {"{{ 'x' | upper }}{{ messages[1].n }}", "[t:X5]"},
        {"{{ messages[1] | tojson }}", "[1:{\"role\": \"hacker\", \"content\": \"B\", \"n\": 5}]"},
        {"{{ messages | map(attribute='content') | list | tojson }}", "[d:[\"one,two\", \"B\"]]"},
        {"{{ {'a': 'b'} | tojson }}", "[t:{\"a\": \"b\"}]"},
        {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(messages[1].content) }}", "[t:<][1:B][t:>]"},
        {"{% set x %}<{{ messages[1].content }}>{% endset %}{{ x }}", "[t:<][1:B][t:>]"},
        {"{% filter trim %} {{ messages[1].content }} {% endfilter %}", "[1:B]"},
        {"{% for k in messages[1] %}{{ k }}{% endfor %}", "[1:rolecontentn]"},
        {"{{ messages[0].content[0] ~ 'x' ~ messages[0].content[1] }}", "[0:o][t:x][0:n]"},
        {"{{ 'a\\nb' | indent(2) }}{{ messages[1].content | indent(1, true) }}",
         "[t:a\n  b ][1:B]"},
        {"{{ messages[1].content | e }}{{ '<' | e }}", "[1:B][t:&lt;]"},
        {"{% set a = 'x' + messages[1].content %}{% set b = a + 'y' %}{% set c = a + 'z' %}"
         "{{ a }} {{ b }} {{ c }}",
         "[t:x][1:B][t: x][1:B][t:y x][1:B][t:z]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_STR(sources(cases[i].source, context), cases[i].want);
}

/* Adding to a string in a loop copies each byte about once, and old values stay as they were. */
TEST(chat_template, strings_grow_in_place)
{
    CHECK_STR(
        render("{% set ns = namespace(t='', last='') %}{% for i in range(30000) %}"
               "{% set ns.last = ns.t %}{% set ns.t = ns.t + 'abcdefghijklmnopqrstuvwxyz' + '!' %}"
               "{% endfor %}{{ ns.t | length }} {{ ns.last | length }} {{ ns.last[-3:] }}",
               "{}"),
        "810000 809973 yz!");
}

static void *render_many(void *t)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    static const char context[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"\\u00e9\"}]}";
    const struct json *json = json_parse(&arena, context, sizeof context - 1, &err);
    size_t n_same = 0;
    for (int i = 0; json && i < 300; i++) {
        struct rendering out = RENDERING_INIT;
        if (chat_template_render(t, json, &options, &out, &err) == 0 &&
            strcmp(strbuf_str(&out.text), "user: \u00e9 1 \u00e9\u00e9") == 0)
            n_same++;
        rendering_free(&out);
    }
    arena_free(&arena);
    return (void *)n_same;
}

TEST(chat_template, threads_share_one)
{
    static const char source[] = "{% for m in messages %}{{ m.role }}: {{ m.content }} "
                                 "{{ m.content | length }} {{ '\u00e9\u00e9'[0:] }}{% endfor %}";
    struct error err = {0};
    struct chat_template *t = chat_template_parse(source, sizeof source - 1, &err);
    CHECK(t);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, render_many, t) == 0);
    for (int i = 0; i < 4; i++) {
        void *n_same;
        CHECK(pthread_join(threads[i], &n_same) == 0);
        CHECK_INT((size_t)n_same, 300);
    }
    chat_template_free(t);
}

TEST(chat_template, big_numbers_keep_their_digits)
{
    CHECK_STR(
        render("{{ x }} {{ x | tojson }} {{ y | tojson }} {{ z | tojson }} {{ w | tojson }}",
               "{\"x\": 123456789012345678901234567890, \"y\": 1.0, \"z\": 1e2, \"w\": 0.10}"),
        "123456789012345678901234567890 123456789012345678901234567890 1.0 100.0 0.1");
}
