/* SentencePiece's BPE, as in the first Llama models: characters merge by the score of the token
 * that they make. Spaces are U+2581 in the vocabulary; here a token's bytes have plain spaces, so
 * U+2581 in a text is turned into a space too, as SentencePiece cannot tell them apart either. */
#include "prompt/tokenizer_internal.h"

#include <string.h>

#include "base/strbuf.h"

static void add_with_spaces(struct strbuf *sb, const char *text, size_t len)
{
    const char *mark;
    while ((mark = memmem(text, len, "\xe2\x96\x81", 3))) {
        strbuf_add(sb, text, (size_t)(mark - text));
        strbuf_addc(sb, ' ');
        len -= (size_t)(mark - text) + 3;
        text = mark + 3;
    }
    strbuf_add(sb, text, len);
}

/* Where no token has a space but at its beginning, nothing merges across the start of a word, and
 * words are encoded one by one; else the text is one word. */
static int encode_words(struct encoder *e, const char *text, size_t len)
{
    for (size_t at = 0, end; at < len; at = end) {
        end = len;
        if (e->t->splits_at_spaces)
            for (end = at + 1; end < len && (text[end] != ' ' || text[end - 1] == ' ');)
                end++;
        if (encode_word(e, text + at, end - at) != 0)
            return -1;
    }
    return 0;
}

int encode_spm(struct encoder *e, const char *text, size_t len, bool space_prefix)
{
    struct strbuf *spaced = &e->spaced;
    strbuf_clear(spaced);
    if (space_prefix && e->t->add_space_prefix)
        strbuf_addc(spaced, ' ');
    add_with_spaces(spaced, text, len);
    if (spaced->failed)
        return error_set(e->err, ERROR_MEMORY, "no memory for %zu bytes", len);
    return encode_words(e, spaced->data, spaced->len);
}
