/* Turns the tokens of one answer into text; see token_text.h. */
#include "prompt/unicode/token_text.h"

#include <assert.h>

/* Moves held bytes, up to `text_end`, into the text. */
static void show_held(struct token_text *t, uint64_t text_end)
{
    if (text_end <= t->shown || t->held.failed)
        return;
    size_t len = (size_t)(text_end - t->shown);
    assert(len <= t->held.len);
    utf8_stream_add(&t->utf8, t->held.data, len, &t->text);
    strbuf_remove_front(&t->held, len);
    t->shown = text_end;
}

void token_text_add(struct token_text *t, const char *bytes, size_t len, uint64_t text_end)
{
    /* The usual case: nothing is held and the whole token may be shown. */
    if (t->held.len == 0 && !t->held.failed && text_end == t->shown + len) {
        utf8_stream_add(&t->utf8, bytes, len, &t->text);
        t->shown = text_end;
        return;
    }
    strbuf_add(&t->held, bytes, len);
    show_held(t, text_end);
}

void token_text_end(struct token_text *t, uint64_t text_end)
{
    show_held(t, text_end);
    utf8_stream_end(&t->utf8, &t->text);
}

bool token_text_failed(const struct token_text *t)
{
    return t->held.failed || t->text.failed;
}

void token_text_free(struct token_text *t)
{
    strbuf_free(&t->held);
    strbuf_free(&t->text);
}
