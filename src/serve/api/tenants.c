/* Tenants' namespaces in the cache, and the prompts that they share.
 *
 * A shared prompt is compared as tokens, and its last tokens may depend on the text that follows.
 * So its list of ids is the common prefix of several conversations that start with it. */
#include "serve/api/tenants.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

enum { MAX_PROMPT_BYTES = 4 << 20 };

/* Questions whose first bytes a tokenizer may or may not merge with the text before them. */
static const char *const openings[] = {"a", "b", " 1", "\n2", "\n\n3"};

/* A conversation of two messages. */
static int conversation_make(const struct prompt_maker *prompt, const struct strbuf *system,
                             const char *question, struct prompt *out, struct error *err)
{
    struct arena arena = ARENA_INIT;
    struct json *messages = json_new(&arena, JSON_ARRAY);
    message_append(&arena, messages, "system", strbuf_str(system), system->len);
    message_append(&arena, messages, "user", question, strlen(question));
    struct prompt_input in = {.messages = messages};
    int failed = arena.failed ? error_set(err, ERROR_MEMORY, "no memory for a conversation")
                              : prompt_maker_chat(prompt, &in, out, err);
    arena_free(&arena);
    return failed;
}

static size_t common_length(const struct token_list *a, const struct token_list *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* The common prefix of the conversations. */
static int beginning_find(const struct prompt_maker *prompt, const struct strbuf *system,
                          struct token_list *out, struct error *err)
{
    struct prompt first, other;
    if (conversation_make(prompt, system, openings[0], &first, err))
        return -1;
    int failed = 0;
    for (size_t i = 1; !failed && i < sizeof openings / sizeof *openings; i++) {
        failed = conversation_make(prompt, system, openings[i], &other, err);
        if (!failed) {
            first.tokens.len = common_length(&first.tokens, &other.tokens);
            prompt_free(&other);
        }
    }
    if (!failed) {
        *out = first.tokens;
        first.tokens = (struct token_list){0};
    }
    prompt_free(&first);
    return failed;
}

static int prompt_add(struct tenants *t, const struct prompt_maker *prompt,
                      const struct strbuf *system, const char *path, struct error *err)
{
    struct token_list ids = {0};
    struct error cause;
    if (beginning_find(prompt, system, &ids, &cause))
        return error_set(err, cause.code, "%s cannot be a shared prompt: %s", path, cause.message);
    if (ids.len < TENANT_MIN_SHARED) {
        log_warn("%s is not shared: it has %zu tokens with the chat template, fewer than %d", path,
                 ids.len, TENANT_MIN_SHARED);
        token_list_free(&ids);
        return 0;
    }
    struct token_list *shared = realloc(t->shared, (t->n_shared + 1) * sizeof *shared);
    if (!shared) {
        token_list_free(&ids);
        return error_set(err, ERROR_MEMORY, "no memory for %s", path);
    }
    log_info("%s: %zu tokens are shared by all tenants", path, ids.len);
    t->shared = shared;
    t->shared[t->n_shared++] = ids;
    return 0;
}

int tenants_share_prompt(struct tenants *t, const struct prompt_maker *prompt, const char *path,
                         struct error *err)
{
    struct strbuf text = STRBUF_INIT;
    int failed = file_read(path, MAX_PROMPT_BYTES, &text, err);
    if (!failed && text.len && text.data[text.len - 1] == '\n')
        text.len--;
    if (!failed && text.len && text.data[text.len - 1] == '\r')
        text.len--;
    if (!failed)
        failed = prompt_add(t, prompt, &text, path, err);
    strbuf_free(&text);
    return failed;
}

void tenants_free(struct tenants *t)
{
    for (size_t i = 0; i < t->n_shared; i++)
        token_list_free(&t->shared[i]);
    free(t->shared);
    *t = (struct tenants){0};
}

/* The length of the longest shared prompt that the ids start with. */
static uint32_t shared_length(const struct tenants *t, const int32_t *ids, uint32_t n_ids)
{
    size_t longest = 0;
    for (size_t i = 0; i < t->n_shared; i++) {
        const struct token_list *list = &t->shared[i];
        if (list->len > longest && list->len <= n_ids &&
            memcmp(list->ids, ids, list->len * sizeof *ids) == 0)
            longest = list->len;
    }
    return (uint32_t)longest;
}

void tenant_place(const struct tenants *t, uint32_t tenant, const int32_t *ids, uint32_t n_ids,
                  struct request *r)
{
    uint32_t n_shared = tenant && !t->share_cache ? shared_length(t, ids, n_ids) : 0;
    bool is_apart = tenant && !t->share_cache && n_shared == 0;
    r->ns = cache_namespace(is_apart ? tenant : 0, -1, -1);
    r->n_public = n_shared;
    r->owner = n_shared ? tenant : 0;
}
