/* Log probabilities on their way to the client; see logprob_list.h. Belongs to one answer, on the
 * event loop's thread. */
#include "serve/completion/logprob_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void logprob_list_add(struct logprob_list *l, int32_t token, const char *bytes, size_t len,
                      const struct token_logprobs *logprobs)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 16;
        struct logprob_item *items = realloc(l->items, capacity * sizeof *items);
        if (!items) {
            l->failed = true;
            return;
        }
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = (struct logprob_item){token, l->n_bytes, l->n_characters, *logprobs};
    l->n_bytes += len;
    for (size_t i = 0; i < len; i++)
        l->n_characters += ((unsigned char)bytes[i] & 0xc0) != 0x80;
}

void logprob_list_show(struct logprob_list *l, uint64_t shown)
{
    while (l->n_ready < l->n && l->items[l->n_ready].start < shown)
        l->n_ready++;
}

bool logprob_list_has_new(const struct logprob_list *l)
{
    return l->n_given < l->n_ready;
}

void logprob_list_free(struct logprob_list *l)
{
    free(l->items);
    *l = (struct logprob_list){0};
}

/* -9999 is what OpenAI writes for "as good as never"; JSON has no infinity. */
static void logprob_add(struct json_writer *w, const char *key, float logprob)
{
    if (isnan(logprob))
        json_add_null(w, key);
    else
        json_add_double(w, key, isinf(logprob) ? -9999.0 : (double)logprob);
}

/* ---- chats ---- */

static void token_members_add(struct json_writer *w, const struct tokenizer *t, int32_t id,
                              float logprob)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    json_add_bytes(w, "token", bytes, len);
    logprob_add(w, "logprob", logprob);
    json_array_begin(w, "bytes");
    for (size_t i = 0; i < len; i++)
        json_add_int(w, NULL, (unsigned char)bytes[i]);
    json_array_end(w);
}

void logprob_list_give_chat(struct logprob_list *l, const struct tokenizer *t, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_array_begin(&w, "content");
    for (; l->n_given < l->n_ready; l->n_given++) {
        const struct logprob_item *item = &l->items[l->n_given];
        json_object_begin(&w, NULL);
        token_members_add(&w, t, item->token, item->logprobs.logprob);
        json_array_begin(&w, "top_logprobs");
        for (uint32_t i = 0; i < item->logprobs.n_top; i++) {
            json_object_begin(&w, NULL);
            token_members_add(&w, t, item->logprobs.top[i].token, item->logprobs.top[i].logprob);
            json_object_end(&w);
        }
        json_array_end(&w);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_add_null(&w, "refusal");
    json_object_end(&w);
}

/* ---- text completions ---- */

/* A token's text as a key: one that is part of a character only is spelled out, so that no two are
 * the same. */
static void token_spell(const struct tokenizer *t, int32_t id, struct strbuf *out)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    strbuf_clear(out);
    if (utf8_is_valid(bytes, len)) {
        strbuf_add(out, bytes, len);
        return;
    }
    strbuf_adds(out, "bytes:");
    for (size_t i = 0; i < len; i++)
        strbuf_addf(out, "\\x%02x", (unsigned char)bytes[i]);
}

static void top_add(struct json_writer *w, const struct tokenizer *t,
                    const struct logprob_item *item, struct strbuf *name)
{
    if (isnan(item->logprobs.logprob)) {
        json_add_null(w, NULL);
        return;
    }
    bool has_own = false;
    json_object_begin(w, NULL);
    for (uint32_t i = 0; i < item->logprobs.n_top; i++) {
        token_spell(t, item->logprobs.top[i].token, name);
        logprob_add(w, strbuf_str(name), item->logprobs.top[i].logprob);
        has_own |= item->logprobs.top[i].token == item->token;
    }
    if (!has_own) { /* the token itself is always among them, as OpenAI has it */
        token_spell(t, item->token, name);
        logprob_add(w, strbuf_str(name), item->logprobs.logprob);
    }
    json_object_end(w);
}

void logprob_list_give_text(struct logprob_list *l, const struct tokenizer *t, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    struct strbuf name = STRBUF_INIT;
    const struct logprob_item *first = l->items + l->n_given, *end = l->items + l->n_ready;
    json_object_begin(&w, NULL);
    json_array_begin(&w, "tokens");
    for (const struct logprob_item *item = first; item < end; item++) {
        token_spell(t, item->token, &name);
        json_add_bytes(&w, NULL, strbuf_str(&name), name.len);
    }
    json_array_end(&w);
    json_array_begin(&w, "token_logprobs");
    for (const struct logprob_item *item = first; item < end; item++)
        logprob_add(&w, NULL, item->logprobs.logprob);
    json_array_end(&w);
    json_array_begin(&w, "top_logprobs");
    for (const struct logprob_item *item = first; item < end; item++)
        top_add(&w, t, item, &name);
    json_array_end(&w);
    json_array_begin(&w, "text_offset");
    for (const struct logprob_item *item = first; item < end; item++)
        json_add_int(&w, NULL, (int64_t)item->character);
    json_array_end(&w);
    json_object_end(&w);
    l->n_given = l->n_ready;
    strbuf_free(&name);
}
