/* Fuzzes the front ends of grammars. The first byte chooses GBNF, a regular expression or a JSON
 * schema in one of two styles; then comes its text, up to a zero byte, and the rest steers a walk
 * through the grammar. An invalid grammar must give a reason. In a valid one no mask is empty
 * before the end, a token is accepted exactly when the mask has it, and a schema's text parses as
 * JSON wherever it may end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "prompt/grammar/text_grammar.h"
#include "prompt/schema/json_schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

enum { TOKEN_END = 256, N_TOKENS = 257, STEPS_MAX = 64 };

static struct grammar_vocabulary *vocabulary(void)
{
    static struct grammar_vocabulary *v;
    static char all[256];
    struct grammar_token_info tokens[N_TOKENS];
    struct error err;
    if (v)
        return v;
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
        tokens[i] = (struct grammar_token_info){&all[i], 1, false, false};
    }
    tokens[TOKEN_END] = (struct grammar_token_info){"", 0, true, true};
    if (grammar_vocabulary_open(&v, tokens, N_TOKENS, &err) != 0)
        abort();
    return v;
}

static grammar_expr front_end(struct grammar_builder *b, int kind, const char *text, size_t len,
                              struct error *err)
{
    if (kind == 0)
        return gbnf_add(b, text, len, err);
    if (kind == 1)
        return regex_add(b, text, len, err);
    struct arena arena = {.limit_bytes = 16u << 20};
    struct json *schema = json_parse(&arena, text, len, err);
    grammar_expr e = GRAMMAR_NONE;
    if (schema)
        e = json_schema_add(b, schema, schema, kind == 2 ? JSON_RELAXED : JSON_CANONICAL,
                            SCHEMA_EXACT, err);
    arena_free(&arena);
    return e;
}

static void parse_check(const char *text, size_t len)
{
    struct arena arena = ARENA_INIT;
    struct error err = {0};
    if (!json_parse(&arena, text, len, &err) && !strstr(err.message, "appears twice"))
        abort();
    arena_free(&arena);
}

static void walk(struct grammar_matcher *m, const uint8_t *steer, size_t n, bool is_json)
{
    char text[STEPS_MAX + 1];
    size_t len = 0;
    for (size_t i = 0; i < n && len < STEPS_MAX; i++) {
        uint64_t mask[5];
        memcpy(mask, grammar_matcher_mask(m, UINT32_MAX), sizeof mask);
        int token = steer[i], tried = 0;
        bool wanted = mask[token / 64] >> (token % 64) & 1;
        if (!wanted && grammar_matcher_accept(m, token))
            abort();
        while (!(mask[token / 64] >> (token % 64) & 1)) {
            token = (token + 1) % N_TOKENS;
            if (++tried > N_TOKENS)
                abort(); /* an empty mask */
        }
        if (!grammar_matcher_accept(m, token))
            abort();
        if ((mask[TOKEN_END / 64] >> (TOKEN_END % 64) & 1) && is_json)
            parse_check(text, len);
        if (token == TOKEN_END)
            return;
        text[len++] = (char)token;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len < 2)
        return 0;
    int kind = bytes[0] % 4;
    const char *text = (const char *)bytes + 1;
    const char *end = memchr(text, 0, len - 1);
    size_t text_len = end ? (size_t)(end - text) : len - 1;
    struct grammar_builder *b = grammar_builder_new();
    struct grammar *g = NULL;
    struct grammar_matcher *m = NULL;
    struct error err = {0};
    grammar_expr root = front_end(b, kind, text, text_len, &err);
    if (root != GRAMMAR_NONE)
        g = grammar_compile(b, root, &err);
    if (!g && (err.code == ERROR_NONE || err.message[0] == '\0'))
        abort();
    if (g && grammar_matcher_open(&m, g, vocabulary(), &err) == 0)
        walk(m, (const uint8_t *)text + text_len, len - 1 - text_len, kind >= 2);
    grammar_matcher_close(m);
    grammar_free(g);
    grammar_builder_free(b);
    return 0;
}
