/* gpt-oss writes messages, each with a header that says what it is:
 *
 *   <|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{..}<|call|>
 *
 * analysis is reasoning, a message to a function is a call, all else is content, byte for byte.
 * What a newcomer gets wrong: the answer begins in the middle of a header, behind
 * <|start|>assistant. */
#include "prompt/answer/answer_internal.h"

enum { MAX_HEADER = 1024 };

static const char message_mark[] = "<|message|>", channel_mark[] = "<|channel|>";

static enum call_result read_harmony_call(struct answer_parser *p)
{
    struct call *c = &p->call;
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

/* The word behind the last `mark` in the header; NULL: there is no mark. */
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

/* A message with a whole header: its kind. */
static void message_begin(struct answer_parser *p, const char *header, size_t len)
{
    static const struct call_marker marker = {.place = MARKER_ANYWHERE,
                                              .reader = read_harmony_call};
    size_t channel_len, to_len, whole = len + strlen(message_mark);
    const char *channel = header_word(header, len, channel_mark, &channel_len);
    const char *to = header_word(header, len, "to=", &to_len);
    if (is_word(to, to_len, "assistant") || is_word(to, to_len, "user"))
        to = NULL;
    p->in_message = true;
    p->thinks = !to && is_word(channel, channel_len, "analysis");
    if (to && p->markers && call_set_name(p, to, to_len)) {
        const struct tool *tool = p->call.tool;
        call_start(p, 0, whole, &marker);
        p->call.tool = tool;
        return;
    }
    if (to) /* to nobody we know */
        answer_emit(p, PIECE_CONTENT, header, whole);
    p->head += whole;
}

/* Outside of messages. False: more text is needed. */
static bool header_run(struct answer_parser *p)
{
    static const char *const begins[] = {channel_mark, "<|start|>", "to=", message_mark};
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>"};
    const char *text = strbuf_str(&p->held) + p->head;
    size_t len = p->held.len - p->head, space = 0;
    bool begins_one = false;
    while (space < len && answer_is_space(text[space]))
        space++;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        enum match match = literal_match(text + space, len - space, begins[i]);
        if (match == MATCH_MORE && !p->ended)
            return false;
        begins_one |= match == MATCH_YES;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        enum match match = literal_match(text + space, len - space, ends[i]);
        if (match == MATCH_MORE && !p->ended)
            return false;
        if (match != MATCH_YES)
            continue;
        p->head += space + strlen(ends[i]);
        return true;
    }
    const char *mark = begins_one ? memmem(text, len, message_mark, strlen(message_mark)) : NULL;
    if (mark && (size_t)(mark - text) <= MAX_HEADER) {
        message_begin(p, text, (size_t)(mark - text));
        return true;
    }
    if (begins_one && !p->ended && len < MAX_HEADER + strlen(message_mark))
        return false;
    p->in_message = true; /* no header: text, byte for byte */
    p->thinks = false;
    if (p->after_call)
        p->head += space;
    if (begins_one) { /* what looks like a mark is none, or it would end the message at once */
        answer_emit(p, PIECE_CONTENT, strbuf_str(&p->held) + p->head, 1);
        p->head++;
    }
    return p->held.len > p->head;
}

/* In a message's text. False: more text is needed. */
static bool body_run(struct answer_parser *p)
{
    static const struct {
        const char *text;
        bool skipped; /* else it begins the next message */
    } ends[] = {{"<|end|>", true},
                {"<|return|>", true},
                {"<|call|>", true},
                {"<|start|>", false},
                {channel_mark, false}};
    const char *text = strbuf_str(&p->held) + p->head;
    size_t len = p->held.len - p->head, i = 0, skip = 0;
    enum match found = MATCH_NO;
    while (i < len && found == MATCH_NO) {
        const char *next = memchr(text + i, '<', len - i);
        i = next ? (size_t)(next - text) : len;
        for (size_t e = 0; e < sizeof ends / sizeof ends[0] && next && found == MATCH_NO; e++) {
            found = literal_match(text + i, len - i, ends[e].text);
            if (found == MATCH_MORE && p->ended)
                found = MATCH_NO;
            skip = ends[e].skipped ? strlen(ends[e].text) : 0;
        }
        i += next && found == MATCH_NO;
    }
    answer_emit(p, p->thinks ? PIECE_REASONING : PIECE_CONTENT, text, i);
    p->head += i;
    if (found != MATCH_YES)
        return false;
    p->head += skip;
    p->in_message = false;
    p->after_call = true;
    return true;
}

bool harmony_run(struct answer_parser *p)
{
    if (p->in_message)
        return body_run(p);
    return header_run(p);
}
