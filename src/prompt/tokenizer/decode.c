/* From ids back to text. Each token's text is computed when the tokenizer is opened, so decoding is
 * copying; only the start of a text is a special case. */
#include "prompt/tokenizer/tokenizer_internal.h"

#include <string.h>

static void drop_lead(const struct decode_lead *lead, struct decode_state *state,
                      struct byte_view *bytes)
{
    while (state->n_dropped < lead->count && bytes->len >= lead->len &&
           memcmp(bytes->bytes, lead->text, lead->len) == 0) {
        bytes->bytes += lead->len;
        bytes->len -= lead->len;
        state->n_dropped++;
    }
    if (bytes->len > 0)
        state->n_dropped = lead->count;
}

void tokenizer_decode_next(const struct tokenizer *t, struct decode_state *state, int32_t id,
                           bool special, struct strbuf *out)
{
    if (id < 0 || (uint32_t)id >= t->n_tokens)
        return;
    bool is_special = tokenizer_is_special(t, id);
    if (is_special && !special)
        return;
    struct byte_view bytes = t->decoded[id];
    if (t->firsts && !state->is_inside)
        bytes = t->firsts[id];
    state->is_inside = true;
    if (!(is_special && t->lead.behind_control))
        drop_lead(&t->lead, state, &bytes);
    strbuf_add(out, bytes.bytes, bytes.len);
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                      struct strbuf *out)
{
    struct decode_state state = {0};
    for (size_t i = 0; i < n; i++)
        tokenizer_decode_next(t, &state, ids[i], special, out);
}
