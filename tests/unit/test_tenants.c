/* Where a tenant's requests go in the cache. With the byte tokenizer and ChatML. */
#include "test.h"
#include "test_files.h"
#include "test_memory.h"

#include <stdlib.h>

#include "serve/api/tenants.h"

#define POLICY "Answer in verse and be brief."

static struct error err;
static struct prompt_maker maker;

static const char *scratch_write(const char *name, const char *text)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", test_scratch_dir(), name);
    test_file_write_text(path, text);
    return path;
}

/* Where a conversation goes, made as a request's is. */
static struct request placed(const struct tenants *t, uint32_t tenant, const char *json)
{
    struct request r = {0};
    struct arena arena = ARENA_INIT;
    struct prompt prompt;
    struct prompt_input in = {.messages = json_parse(&arena, json, strlen(json), &err)};
    CHECK(in.messages && prompt_maker_chat(&maker, &in, &prompt, &err) == 0);
    tenant_place(t, tenant, prompt.tokens.ids, (uint32_t)prompt.tokens.len, &r);
    CHECK(r.n_public <= prompt.tokens.len);
    prompt_free(&prompt);
    arena_free(&arena);
    return r;
}

#define SYSTEM(text, question)                                                                     \
    "[{\"role\":\"system\",\"content\":\"" text "\"},{\"role\":\"user\",\"content\":\"" question   \
    "\"}]"

TEST(tenants, are_apart)
{
    CHECK_INT(prompt_maker_open_bytes(&maker, NULL, &err), 0);
    struct tenants t = {0};
    for (uint32_t tenant = 0; tenant < 3; tenant++) {
        struct request r = placed(&t, tenant, SYSTEM(POLICY, "hello"));
        CHECK(r.ns == cache_namespace(tenant, -1, -1) && r.n_public == 0 && r.owner == 0);
    }
    t.share_cache = true;
    for (uint32_t tenant = 0; tenant < 3; tenant++) {
        struct request r = placed(&t, tenant, SYSTEM(POLICY, "hello"));
        CHECK(r.ns == cache_namespace(0, -1, -1) && r.n_public == 0 && r.owner == 0);
    }
    prompt_maker_close(&maker);
}

TEST(tenants, share_a_declared_prompt)
{
    CHECK_INT(prompt_maker_open_bytes(&maker, NULL, &err), 0);
    struct tenants t = {0};
    CHECK_INT(tenants_share_prompt(&t, &maker, scratch_write("policy", POLICY "\n"), &err), 0);
    CHECK_INT(tenants_share_prompt(&t, &maker, scratch_write("crlf", POLICY "\r\n"), &err), 0);
    CHECK_INT(t.n_shared, 2);
    CHECK(t.shared[1].len == t.shared[0].len &&
          memcmp(t.shared[1].ids, t.shared[0].ids, t.shared[0].len * sizeof *t.shared[0].ids) == 0);
    /* All of the prompt, and nothing of what follows. */
    size_t n = t.shared[0].len;
    CHECK(n >= strlen(POLICY));
    const char *const questions[] = {SYSTEM(POLICY, "hello"), SYSTEM(POLICY, " hello"),
                                     SYSTEM(POLICY, "\\n\\nx"), SYSTEM(POLICY, "")};
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        struct request r = placed(&t, 2, questions[i]);
        CHECK(r.ns == cache_namespace(0, -1, -1) && r.n_public == n && r.owner == 2);
    }
    /* Without keys there are no tenants to separate. */
    struct request r = placed(&t, 0, SYSTEM(POLICY, "hello"));
    CHECK(r.ns == cache_namespace(0, -1, -1) && r.n_public == 0 && r.owner == 0);
    tenants_free(&t);
    prompt_maker_close(&maker);
}

TEST(tenants, share_no_other_prompt)
{
    CHECK_INT(prompt_maker_open_bytes(&maker, NULL, &err), 0);
    struct tenants t = {0};
    CHECK_INT(tenants_share_prompt(&t, &maker, scratch_write("policy", POLICY), &err), 0);
    const char *const others[] = {SYSTEM("Answer in verse and be brief", "hello"),
                                  SYSTEM(POLICY " My secret.", "hello"),
                                  SYSTEM(POLICY "\\n", "hello"), SYSTEM("", POLICY),
                                  "[{\"role\":\"user\",\"content\":\"" POLICY "\"}]"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct request r = placed(&t, 1, others[i]);
        CHECK(r.ns == cache_namespace(1, -1, -1) && r.n_public == 0 && r.owner == 0);
    }
    /* Nor one that ends before the prompt does. */
    struct request r = {0};
    tenant_place(&t, 1, t.shared[0].ids, (uint32_t)t.shared[0].len - 1, &r);
    CHECK(r.ns == cache_namespace(1, -1, -1) && r.n_public == 0);
    tenant_place(&t, 1, t.shared[0].ids, (uint32_t)t.shared[0].len, &r);
    CHECK(r.ns == cache_namespace(0, -1, -1) && r.n_public == t.shared[0].len && r.owner == 1);
    tenants_free(&t);
    prompt_maker_close(&maker);
}

TEST(tenants, the_longest_prompt_counts)
{
    struct tenants t = {0};
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = i;
    t.shared = calloc(3, sizeof *t.shared);
    t.n_shared = 3;
    const uint32_t lengths[] = {20, 30, 25};
    for (int i = 0; i < 3; i++)
        for (uint32_t k = 0; k < lengths[i]; k++)
            CHECK(token_list_add(&t.shared[i], (int32_t)k));
    struct request r = {0};
    tenant_place(&t, 5, ids, 40, &r);
    CHECK(r.n_public == 30 && r.owner == 5);
    tenant_place(&t, 5, ids, 29, &r);
    CHECK(r.n_public == 25 && r.owner == 5);
    tenant_place(&t, 5, ids, 19, &r);
    CHECK(r.n_public == 0 && r.owner == 0 && r.ns == cache_namespace(5, -1, -1));
    tenants_free(&t);
}

TEST(tenants, refuse_what_cannot_be_shared)
{
    CHECK_INT(prompt_maker_open_bytes(&maker, NULL, &err), 0);
    struct tenants t = {0};
    CHECK_INT(tenants_share_prompt(&t, &maker, "/nonexistent/prompt", &err), -1);
    CHECK(strstr(err.message, "/nonexistent/prompt"));
    prompt_maker_close(&maker);
    const char *path = scratch_write("plain.jinja", "{{ (messages[-1].content ~ '')[-1:] }}");
    CHECK_INT(prompt_maker_open_bytes(&maker, path, &err), 0);
    CHECK_INT(tenants_share_prompt(&t, &maker, scratch_write("policy", POLICY), &err), 0);
    CHECK_INT(t.n_shared, 0); /* this template omits it: there is nothing to share */
    prompt_maker_close(&maker);
    path = scratch_write("strict.jinja", "{{ raise_exception('no system prompts') }}");
    CHECK_INT(prompt_maker_open_bytes(&maker, path, &err), 0);
    CHECK_INT(tenants_share_prompt(&t, &maker, scratch_write("policy", POLICY), &err), -1);
    CHECK(strstr(err.message, "policy") && strstr(err.message, "no system prompts"));
    prompt_maker_close(&maker);
    tenants_free(&t);
}

TEST(tenants, say_when_there_is_no_memory_for_a_prompt)
{
    CHECK_INT(prompt_maker_open_bytes(&maker, NULL, &err), 0);
    const char *path = scratch_write("policy", POLICY "\n");
    struct tenants t = {0};
    int rc = -1;
    memory_is_watched(true);
    for (uint32_t n = 1; rc; n++) {
        memory_fails_once(n);
        rc = tenants_share_prompt(&t, &maker, path, &err);
        CHECK_INT(t.n_shared, rc == 0);
        if (rc && !strstr(err.message, "memory"))
            test_fail(__FILE__, __LINE__, "allocation %u: %d %s", n, err.code, err.message);
    }
    memory_fails_once(0);
    memory_is_watched(false);
    CHECK(t.shared[0].len >= strlen(POLICY));
    tenants_free(&t);
    prompt_maker_close(&maker);
}
