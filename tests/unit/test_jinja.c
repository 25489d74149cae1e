/* The language of templates, corner by corner: what jinja2 makes of each snippet is in
 * tests/unit/data/template_goldens.jsonl, made by tools/make_template_goldens.py. */
#include <stdlib.h>

#include "prompt/jinja/chat_template.h"
#include "test.h"
#include "test_files.h"

/* What jinja2 says and what we say, without the exception's name and the line's number. */
static bool says_the_same(const char *raises, const char *message)
{
    const char *theirs = strstr(raises, ": "), *ours = message;
    if (strncmp(ours, "line ", 5) == 0)
        ours = strstr(ours, ": ") + 2;
    return theirs && strcmp(theirs + 2, ours) == 0;
}

static bool agrees(const struct json *golden, const struct json *context, char *why, size_t n)
{
    const struct render_options options = {.now_unix = 1752148800};
    const struct json *source = json_get(golden, "template"), *want = json_get(golden, "expected");
    const struct json *raises = json_get(golden, "raises");
    struct error err = {0};
    struct rendering out = RENDERING_INIT;
    struct chat_template *t = chat_template_parse(source->text, source->text_len, &err);
    int rc = t ? chat_template_render(t, context, &options, &out, &err) : -1;
    bool same = want ? rc == 0 && out.text.len == want->text_len &&
                           memcmp(strbuf_str(&out.text), want->text, want->text_len) == 0
                     : rc != 0;
    /* The messages of these two come from templates: one is raised on purpose, the other is the
     * most common. */
    if (same && raises &&
        (strstr(raises->text, "TemplateError: ") == raises->text ||
         strstr(raises->text, "UndefinedError: ") == raises->text))
        same = says_the_same(raises->text, err.message);
    snprintf(why, n, "%s\n  gives  %s\n  jinja2 %s", source->text,
             rc ? err.message : strbuf_str(&out.text), want ? want->text : raises->text);
    rendering_free(&out);
    chat_template_free(t);
    return same;
}

TEST(jinja, agrees_with_jinja2)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    size_t n_bytes;
    char *text = test_file_read("tests/unit/data/template_goldens.jsonl", &n_bytes);
    const struct json *context = NULL;
    int n_differ = 0, n_same = 0;
    for (char *at = text; *at; at++) {
        size_t len = strcspn(at, "\n");
        const struct json *line = json_parse(&arena, at, len, &err);
        if (!line)
            test_fail(__FILE__, __LINE__, "%s", err.message);
        if (!context) {
            context = json_get(line, "context");
        } else {
            char why[8192];
            bool same = agrees(line, context, why, sizeof why);
            *(same ? &n_same : &n_differ) += 1;
            if (!same)
                fprintf(stderr, "%s\n", why);
        }
        at += len;
    }
    free(text);
    arena_free(&arena);
    CHECK_INT(n_differ, 0);
    CHECK(n_same > 400);
}
