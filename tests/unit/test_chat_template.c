/* Chat templates as a whole: real ones against what jinja2 makes of them, errors, limits, and
 * where each byte of a rendering comes from. */
#include "prompt/chat_template.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "test.h"

enum { NOW = 1752148800 }; /* 2025-07-10T12:00:00 */

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    CHECK(f);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*len + 1);
    CHECK(text && fread(text, 1, *len, f) == *len);
    text[*len] = '\0';
    fclose(f);
    return text;
}

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

/* Does a rendering, or an error, equal what jinja2 gave? Errors must be errors, and those of
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
    char *contexts_text = read_file(path, &len);
    struct json *contexts = json_parse(&arena, contexts_text, len, &err);
    CHECK(contexts);
    char *templates_text = read_file(test_shared_path("data/templates/generated_templates.jsonl"),
                                     &len);
    char *goldens_text = read_file(
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

TEST(chat_template, renders)
{
    CHECK_STR(render("Hi {{ name }}!", "{\"name\": \"you\"}"), "Hi you!");
}
