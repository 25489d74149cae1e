/* gpt-oss writes messages, each with a header that says what it is:
 *
 *   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
 *
 * analysis is reasoning, a message to a function is a call, everything else is content, byte for
 * byte. The answer starts in the middle of a header, after <|start|>assistant. */
#include "prompt/answer/answer_internal.h"

static enum call_result read_harmony_call(struct answer_parser *p)
{
    struct open_call *c = &p->call;
    if (!c->has_arguments) {
        enum match none = call_skip_space(p) ? call_match(p, "<|call|>") : MATCH_MORE;
        if (none == MATCH_MORE)
            return CALL_MORE;
        if (none == MATCH_YES) {
            call_add_arguments(p, "{}", 2);
            return CALL_DONE;
        }
    }
    return read_arguments(p);
}

/* The word at `text`, which ends at white space or a mark. */
static size_t word_length(const char *text, const char *end)
{
    size_t n = 0;
    while (text + n < end && !answer_is_space(text[n]) && text[n] != '<')
        n++;
    return n;
}

/* The word after the last `mark` in the header; NULL: there is no mark. */
static const char *header_word(const char *header, size_t len, const char *mark, size_t *word_len)
{
    const char *found = NULL, *at = header, *end = header + len;
    while ((at = memmem(at, (size_t)(end - at), mark, strlen(mark)))) {
        at += strlen(mark);
        found = at;
    }
    *word_len = found ? word_length(found, end) : 0;
    return found;
}

static bool is_word(const char *word, size_t len, const char *want)
{
    return word && strlen(want) == len && memcmp(word, want, len) == 0;
}

void harmony_header_read(struct harmony_header *out, const char *header, size_t len)
{
    size_t channel_len;
    const char *channel = header_word(header, len, "<|channel|>", &channel_len);
    out->to = header_word(header, len, "to=", &out->to_len);
    if (is_word(out->to, out->to_len, "assistant") || is_word(out->to, out->to_len, "user"))
        out->to = NULL;
    out->thinks = !out->to && is_word(channel, channel_len, "analysis");
}

size_t harmony_message(struct answer_parser *p, const char *text, size_t whole)
{
    static const struct call_marker marker = {.place = MARKER_ANYWHERE,
                                              .reader = read_harmony_call};
    struct harmony_header header;
    harmony_header_read(&header, text, whole - strlen(HARMONY_MESSAGE));
    if (header.to && p->cursor.markers && call_set_name(p, header.to, header.to_len)) {
        const struct tool *tool = p->call.tool;
        call_start(p, 0, whole, &marker);
        p->call.tool = tool;
        return 0;
    }
    if (header.to) /* an unknown recipient */
        answer_emit(p, PIECE_CONTENT, text, whole);
    return whole;
}
