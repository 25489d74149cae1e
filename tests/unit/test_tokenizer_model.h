#ifndef RADISH_TEST_TOKENIZER_MODEL_H
#define RADISH_TEST_TOKENIZER_MODEL_H

#include <stdlib.h>
#include <unistd.h>

#include "gguf_builder.h"
#include "prompt/tokenizer/chat_defaults.h"
#include "prompt/tokenizer/tokenizer.h"
#include "test_files.h"

/* A tokenizer's metadata, built token by token and then opened through a real file, so that tests
 * say only what they are about. Fields that are 0 or NULL are omitted from the file. */
struct vocab {
    const char *model, *pre;
    struct strbuf tokens, types, scores, merges; /* items as they are in the file */
    uint64_t n_tokens, n_merges;
    struct gguf_builder more; /* further pairs, added by the test itself */
    bool no_types, no_scores, no_merges;
};

static inline void vocab_string(struct strbuf *to, const char *bytes, size_t len)
{
    build_u64(to, len);
    strbuf_add(to, bytes, len);
}

static inline void vocab_add(struct vocab *v, const char *spelling, size_t len, uint32_t type,
                             float score)
{
    vocab_string(&v->tokens, spelling, len);
    build_u32(&v->types, type);
    strbuf_add(&v->scores, &score, sizeof score);
    v->n_tokens++;
}

static inline void vocab_token(struct vocab *v, const char *spelling, uint32_t type)
{
    vocab_add(v, spelling, strlen(spelling), type, 0);
}

static inline void vocab_merge(struct vocab *v, const char *pair)
{
    vocab_string(&v->merges, pair, strlen(pair));
    v->n_merges++;
}

static inline void vocab_free(struct vocab *v)
{
    strbuf_free(&v->tokens);
    strbuf_free(&v->types);
    strbuf_free(&v->scores);
    strbuf_free(&v->merges);
    gguf_builder_free(&v->more);
}

static inline void build_key_bool(struct gguf_builder *b, const char *key, bool value)
{
    build_key(b, key, GGUF_BOOL);
    strbuf_addc(&b->pairs, (char)value);
}

static inline void vocab_build(struct vocab *v)
{
    struct gguf_builder *b = &v->more;
    if (v->model)
        build_key_string(b, "tokenizer.ggml.model", v->model);
    if (v->pre)
        build_key_string(b, "tokenizer.ggml.pre", v->pre);
    if (v->n_tokens) {
        build_key_array(b, "tokenizer.ggml.tokens", GGUF_STRING, v->n_tokens);
        strbuf_add(&b->pairs, v->tokens.data, v->tokens.len);
    }
    if (v->n_tokens && !v->no_types) {
        build_key_array(b, "tokenizer.ggml.token_type", GGUF_I32, v->types.len / 4);
        strbuf_add(&b->pairs, v->types.data, v->types.len);
    }
    if (v->n_tokens && !v->no_scores) {
        build_key_array(b, "tokenizer.ggml.scores", GGUF_F32, v->scores.len / 4);
        strbuf_add(&b->pairs, v->scores.data, v->scores.len);
    }
    if (!v->no_merges) {
        build_key_array(b, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges);
        strbuf_add(&b->pairs, v->merges.data, v->merges.len);
    }
    gguf_builder_finish(b);
}

/* Writes the file to `path`, opens it, and removes it. Frees the vocabulary. */
static inline int vocab_open(struct vocab *v, const char *path, struct tokenizer **out,
                             struct error *err)
{
    struct gguf gguf;
    vocab_build(v);
    test_file_write(path, v->more.file.data, v->more.file.len);
    vocab_free(v);
    int status = gguf_open(&gguf, path, err);
    unlink(path);
    if (status != 0)
        return status;
    status = tokenizer_open(out, NULL, &gguf, err);
    gguf_close(&gguf);
    return status;
}

/* The tokenizer of a model file, and what else it says; `chat` NULL: nothing. */
static inline struct tokenizer *model_chat(const char *path, struct chat_defaults *chat)
{
    struct gguf gguf;
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (gguf_open(&gguf, path, &err) != 0 || tokenizer_open(&t, chat, &gguf, &err) != 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    gguf_close(&gguf);
    return t;
}

static inline struct tokenizer *model_tokenizer(const char *path)
{
    return model_chat(path, NULL);
}

/* GPT-2's spelling of a byte, NUL-terminated. */
static inline const char *vocab_byte(unsigned byte)
{
    static char text[3];
    bool shown = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    unsigned code = byte;
    if (!shown)
        code = byte <= 32 ? 256 + byte : byte <= 160 ? 256 + 33 + byte - 127 : 256 + 33 + 34;
    if (code < 128) {
        text[0] = (char)code;
        text[1] = '\0';
    } else {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 0x3f));
        text[2] = '\0';
    }
    return text;
}

static inline void vocab_bytes(struct vocab *v)
{
    for (unsigned byte = 0; byte < 256; byte++)
        vocab_token(v, vocab_byte(byte), 1);
}

#endif
