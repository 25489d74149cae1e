/* Writes a directory's tokenizer as keys of a GGUF file; see export.h. Any thread. GGUF names the
 * way text is split into words, and each reader has its own code for that name. A name is written
 * only if it means exactly the directory's steps. */
#include "prompt/tokenizer/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prompt/tokenizer/draft.h"
#include "prompt/tokenizer/families.h"

struct export
{
    struct token_draft *d;
    struct tokenizer *t;
    struct gguf_writer *out;
    struct arena arena;
    bool is_plain; /* tokenizer_open gets the same from the keys */
    enum tokenizer_written written;
};

static int no_memory(const struct export *x)
{
    return draft_no_memory(x->d);
}

static void add_text(const struct export *x, const char *key, const char *text)
{
    gguf_add_string(x->out, key, text, strlen(text));
}

/* ---- how text is cut into words ---- */

/* The name for the directory's way of splitting, or NULL. */
static const char *find_words(const struct export *x, bool *exact)
{
    const struct tokenizer *t = x->t;
    bool nfc = t->n_normal == 1 && t->normal[0].kind == NORMAL_NFC;
    *exact = false;
    return t->n_normal > 0 && !nfc
               ? NULL
               : pre_family_name(strbuf_str(&x->d->words), nfc, t->ignore_merges, exact);
}

/* Checks what GGUF's keys can express about byte-level BPE. */
static void look_at_bytes(struct export *x)
{
    const struct token_draft *d = x->d;
    bool exact;
    const char *words = find_words(x, &exact);
    if (words)
        add_text(x, "tokenizer.ggml.pre", words);
    x->written = words ? TOKENIZER_KNOWN : TOKENIZER_ODD;
    x->is_plain = exact && !d->spells_bytes && !d->byte_fallback && !d->unknown.bytes &&
                  x->t->decoded == x->t->tokens;
    for (size_t i = 0; i < d->n_decode || i == 0; i++)
        if (d->decode[i].kind != (i == 0 ? DECODE_BYTE_LEVEL : DECODE_FUSE))
            x->is_plain = false;
}

/* The same for BPE over characters, for which GGUF has no steps except the space marks.
 * tokenizer.json merges by rank instead of score, though both usually give the same result. */
static void look_at_characters(struct export *x)
{
    const struct tokenizer *t = x->t;
    size_t n = t->n_normal;
    bool marks = n >= 1 && t->normal[n - 1].kind == NORMAL_REPLACE &&
                 t->normal[n - 1].to.len == SPACE_MARK_LEN &&
                 memcmp(t->normal[n - 1].to.bytes, SPACE_MARK, SPACE_MARK_LEN) == 0;
    bool usual = marks && (n == 1 || (n == 2 && t->normal[0].kind == NORMAL_PREPEND));
    x->written = usual ? TOKENIZER_KNOWN : TOKENIZER_ODD;
    x->is_plain = usual && t->kind == TOKENIZER_SPM && t->n_pre == 0;
    gguf_add_bool(x->out, "tokenizer.ggml.add_space_prefix", t->add_space_prefix);
}

/* ---- tokens ---- */

/* A token's spelling. Its spaces stay spaces if it is matched in raw text. */
static struct byte_view spelling_of(struct export *x, uint32_t id)
{
    const struct token_draft *d = x->d;
    struct byte_view spelling = id < d->n ? d->spellings[id] : (struct byte_view){NULL, 0};
    if (!spelling.bytes) {
        char text[24];
        int len = snprintf(text, sizeof text, "[PAD%u]", id);
        spelling = (struct byte_view){arena_copy(&x->arena, text, (size_t)len), (size_t)len};
    } else if (d->kind != TOKENIZER_BPE && x->t->types[id] == TOKEN_USER_DEFINED) {
        char *copy = arena_copy(&x->arena, spelling.bytes, spelling.len);
        if (copy)
            spelling.len = bytes_from_marks(copy, spelling.bytes, spelling.len);
        spelling.bytes = copy;
    }
    return spelling;
}

static int add_tokens(struct export *x)
{
    uint32_t n = x->t->n_tokens;
    struct byte_view *texts = arena_alloc_array(&x->arena, n, sizeof *texts);
    int32_t *types = arena_alloc_array(&x->arena, n, sizeof *types);
    if (!texts || !types)
        return no_memory(x);
    for (uint32_t id = 0; id < n; id++) {
        texts[id] = spelling_of(x, id);
        types[id] = x->t->types[id];
        if (!texts[id].bytes)
            return no_memory(x);
    }
    gguf_add_array(x->out, "tokenizer.ggml.tokens", GGUF_STRING, texts, n);
    gguf_add_array(x->out, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    return 0;
}

/* The token that merge `i` makes, or -1. */
static int32_t merged(const struct export *x, size_t i, struct strbuf *both)
{
    const struct byte_view *pair = &x->d->merges[2 * i];
    strbuf_clear(both);
    strbuf_add(both, pair[0].bytes, pair[0].len);
    strbuf_add(both, pair[1].bytes, pair[1].len);
    return draft_find(x->d, (struct byte_view){strbuf_str(both), both->len});
}

static int add_merges(struct export *x)
{
    const struct token_draft *d = x->d;
    struct byte_view *texts = arena_alloc_array(&x->arena, d->n_merges + 1, sizeof *texts);
    struct strbuf both = STRBUF_INIT;
    uint64_t n = 0;
    for (size_t i = 0; texts && i < d->n_merges; i++) {
        const struct byte_view *pair = &d->merges[2 * i];
        if (tokenizer_is_special(x->t, merged(x, i, &both)))
            continue; /* no text becomes it */
        size_t len = pair[0].len + 1 + pair[1].len;
        char *text = arena_alloc(&x->arena, len);
        if (!text)
            break;
        memcpy(text, pair[0].bytes, pair[0].len);
        text[pair[0].len] = ' ';
        memcpy(text + pair[0].len + 1, pair[1].bytes, pair[1].len);
        texts[n++] = (struct byte_view){text, len};
    }
    bool failed = both.failed || x->arena.failed;
    strbuf_free(&both);
    if (failed)
        return no_memory(x);
    gguf_add_array(x->out, "tokenizer.ggml.merges", GGUF_STRING, texts, n);
    return 0;
}

/* The files' own scores; if pairs have ranks, a token's score is minus its first rank. */
static int add_scores(struct export *x)
{
    const struct token_draft *d = x->d;
    uint32_t n = x->t->n_tokens;
    struct strbuf both = STRBUF_INIT;
    float *scores = arena_alloc_array(&x->arena, n, sizeof *scores);
    if (!scores)
        return no_memory(x);
    for (uint32_t id = 0; id < n; id++)
        scores[id] = d->kind != TOKENIZER_CHAR_BPE ? id < d->n ? (float)d->scores[id] : 0
                                                   : -(float)(d->n_merges + id);
    for (size_t i = d->n_merges; i-- > 0;) {
        int32_t id = merged(x, i, &both);
        if (id >= 0)
            scores[id] = -(float)i;
    }
    bool failed = both.failed;
    strbuf_free(&both);
    if (failed)
        return no_memory(x);
    gguf_add_array(x->out, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    return 0;
}

/* ---- the tokens that are named ---- */

static void add_id(const struct export *x, const char *key, int32_t id)
{
    if (id >= 0)
        gguf_add_u32(x->out, key, (uint32_t)id);
}

/* The tokens that end a generation: EOS, those known by their spelling, and up to two more. */
static void add_ends(struct export *x)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    size_t n = 0;
    for (uint32_t id = 0; id < x->t->n_tokens; id++) {
        bool added = x->t->types[id] == TOKEN_CONTROL || x->t->types[id] == TOKEN_USER_DEFINED;
        bool known = added && tokenizer_known_end(x->d->spellings[id]);
        if (!x->t->ends[id] || known || (int32_t)id == x->t->eos)
            continue;
        if (n < sizeof keys / sizeof *keys)
            add_id(x, keys[n++], (int32_t)id);
    }
}

/* Writes the key, which can only say that a text gets this one token or none. */
static void add_around(struct export *x, const char *key, const struct token_list *list, int32_t id)
{
    if (list->len == 0 || (list->len == 1 && id >= 0 && list->ids[0] == id))
        gguf_add_bool(x->out, key, list->len == 1);
    else
        x->is_plain = false;
}

static void add_named(struct export *x)
{
    const struct tokenizer *t = x->t;
    add_id(x, "tokenizer.ggml.bos_token_id", t->bos);
    add_id(x, "tokenizer.ggml.eos_token_id", t->eos);
    add_id(x, "tokenizer.ggml.unknown_token_id", t->unknown);
    add_ends(x);
    add_around(x, "tokenizer.ggml.add_bos_token", &t->before, t->bos);
    add_around(x, "tokenizer.ggml.add_eos_token", &t->after, t->eos);
    for (size_t i = 0; i < x->d->n_added; i++)
        if (x->d->added[i].flags & ~(unsigned)ADDED_SPECIAL)
            x->is_plain = false;
    const struct chat_defaults *chat = &x->d->chat;
    if (chat->chat_template)
        gguf_add_string(x->out, "tokenizer.chat_template", chat->chat_template,
                        chat->chat_template_len);
}

/* ---- tokenizer.json ---- */

/* Includes the tokens that other files added. */
static void write_added(const struct token_draft *d, struct strbuf *out)
{
    struct json_writer w = {out, false};
    json_array_begin(&w, NULL);
    for (size_t i = 0; i < d->n_added; i++) {
        const struct draft_added *a = &d->added[i];
        json_object_begin(&w, NULL);
        json_add_int(&w, "id", a->id);
        json_add_bytes(&w, "content", a->content.bytes, a->content.len);
        json_add_bool(&w, "single_word", a->flags & ADDED_SINGLE_WORD);
        json_add_bool(&w, "lstrip", a->flags & ADDED_LSTRIP);
        json_add_bool(&w, "rstrip", a->flags & ADDED_RSTRIP);
        json_add_bool(&w, "normalized", a->flags & ADDED_NORMALIZED);
        json_add_bool(&w, "special", a->flags & ADDED_SPECIAL);
        json_object_end(&w);
    }
    json_array_end(&w);
}

static int add_json(struct export *x)
{
    const struct token_draft *d = x->d;
    const char *text = strbuf_str(&d->file);
    struct strbuf json = STRBUF_INIT;
    size_t begin = d->added_begin, end = d->added_end;
    if (begin == 0) { /* it has no such list */
        begin = end = (size_t)(strchr(text, '{') + 1 - text);
        strbuf_add(&json, text, begin);
        strbuf_adds(&json, "\"added_tokens\":");
        write_added(d, &json);
        strbuf_adds(&json, ",");
    } else {
        strbuf_add(&json, text, begin);
        if (d->n_added > d->n_own_added)
            write_added(d, &json);
        else
            end = begin;
    }
    strbuf_add(&json, text + end, d->file.len - end);
    gguf_add_string(x->out, "tokenizer.huggingface.json", strbuf_str(&json), json.len);
    bool failed = json.failed;
    strbuf_free(&json);
    return failed ? no_memory(x) : 0;
}

static int write_keys(struct export *x)
{
    static const char *const models[] = {[TOKENIZER_BPE] = "gpt2",
                                         [TOKENIZER_CHAR_BPE] = "llama",
                                         [TOKENIZER_SPM] = "llama",
                                         [TOKENIZER_UNIGRAM] = "t5"};
    bool bytes = x->d->kind == TOKENIZER_BPE;
    add_text(x, "tokenizer.ggml.model", models[x->d->kind]);
    if (bytes)
        look_at_bytes(x);
    else
        look_at_characters(x);
    add_named(x);
    if (!x->is_plain && !x->d->is_json)
        return error_set(
            x->d->err, ERROR_FORMAT,
            "%s: GGUF has no keys for its tokenizer; add a tokenizer.json to the directory "
            "(save_pretrained of transformers writes one), which the file can hold",
            x->d->path);
    return add_tokens(x) || (bytes ? add_merges(x) : add_scores(x)) || (!x->is_plain && add_json(x))
               ? -1
               : 0;
}

int tokenizer_export(const char *directory, uint32_t n_vocab, struct gguf_writer *out,
                     enum tokenizer_written *written, struct error *err)
{
    struct token_draft draft = {.err = err, .n_vocab = n_vocab};
    struct export x = {.d = &draft, .out = out};
    *written = TOKENIZER_NONE;
    if (!draft_has_directory(directory)) {
        add_text(&x, "tokenizer.ggml.model", "none");
        return 0;
    }
    int failed = draft_read_directory(&draft, directory);
    draft.path = directory;
    x.t = draft.t;
    if (!failed)
        failed = write_keys(&x);
    *written = x.written;
    arena_free(&x.arena);
    draft_close(&draft);
    return failed;
}
