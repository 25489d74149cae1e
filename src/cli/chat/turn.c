/* The turns of a conversation. Each turn renders the whole conversation again, as the API does. The
 * prefix cache makes that cheap, because earlier answers are sent back as their sampled tokens. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/chat/chat.h"
#include "cli/input.h"

void chat_reset(struct chat *c)
{
    arena_free(&c->arena);
    strbuf_clear(&c->file);
    strbuf_clear(&c->file_asked);
    c->n_answers = 0;
    c->messages = json_new(&c->arena, JSON_ARRAY);
    if (c->system.len)
        message_append(&c->arena, c->messages, "system", strbuf_str(&c->system), c->system.len);
}

void chat_truncate(struct chat *c, size_t n)
{
    struct json *last = NULL, *next = c->messages->first;
    size_t count = 0;
    for (; count < n && next; count++, next = next->next)
        last = next;
    if (last)
        last->next = NULL;
    else
        c->messages->first = NULL;
    c->messages->last = last;
    c->messages->count = count;
}

void chat_set_system(struct chat *c, const char *text, size_t len)
{
    struct json *first = c->messages->first;
    bool has_one = first && json_equals(json_get(first, "role"), "system");
    struct json *rest = has_one ? first->next : first;
    strbuf_clear(&c->system);
    strbuf_add(&c->system, text, len);
    chat_truncate(c, 0);
    if (len)
        message_append(&c->arena, c->messages, "system", text, len);
    while (rest) {
        struct json *next = rest->next;
        rest->next = NULL;
        json_link(c->messages, rest);
        rest = next;
    }
}

static void text_show(void *context, const char *text, size_t len)
{
    struct chat *c = context;
    answer_view_add(&c->view, text, len);
}

/* Keeps what is typed during an answer for the next prompt. The first Ctrl-C stops the answer, the
 * second ends the chat. */
static bool input_take(void *context)
{
    struct chat *c = context;
    c->n_interrupts += key_input_fill(&c->editor.input);
    c->wants_quit |= c->n_interrupts > 1;
    return c->n_interrupts > 0;
}

static void timings_show(const struct chat *c, const struct generation *g)
{
    double seconds = g->n_generated > 1 ? (g->total_ms - g->first_token_ms) / 1000 : 0;
    chat_note(c, "[prompt %u tokens, %u cached; first token %.0f ms; %u token%s, %.1f a second]",
              g->n_prompt, g->n_cached, g->first_token_ms, g->n_generated,
              g->n_generated == 1 ? "" : "s", seconds > 0 ? (g->n_generated - 1) / seconds : 0.0);
}

/* The note shown after an answer that did not end by itself. */
static const char *ending(const struct chat *c, const struct generation *g)
{
    bool is_full = g->n_prompt + g->n_generated >= c->generator.runtime->context;
    if (g->is_loop)
        return g->sampling.temperature > 0
                   ? "[stopped: the answer repeats itself; /regen tries again]"
                   : "[stopped: the answer repeats itself; try /set temperature 0.7]";
    if (g->finish == FINISH_CANCELED)
        return "[stopped]";
    if (g->finish == FINISH_LENGTH)
        return is_full ? "[the context is full: /clear starts over]" : "[max_tokens reached]";
    return "";
}

static int prompt_make(const struct chat *c, const struct request_params *p, struct prompt *prompt,
                       struct error *err)
{
    uint32_t context = c->generator.runtime->context;
    struct prompt_input in = {.messages = c->messages, .extra = p->extra, .replay = c->replay};
    if (prompt_maker_chat(&c->generator.runtime->prompt, &in, prompt, err))
        return -1;
    if (prompt->tokens.len < context)
        return 0;
    error_set(
        err, ERROR_LIMIT,
        "the conversation has %zu tokens, but the context holds %u, including the answer: /clear "
        "starts over, or send a shorter message",
        prompt->tokens.len, context);
    prompt_free(prompt);
    return -1;
}

/* Generates an answer and shows it as it arrives; the text is left in the view. */
static int answer_generate(struct chat *c, const struct request_params *p, struct generation *g,
                           struct error *err)
{
    const struct prompt_maker *maker = &c->generator.runtime->prompt;
    struct prompt prompt;
    *g = (struct generation){
        .max_tokens = p->max_tokens > 0 ? (uint32_t)p->max_tokens : generate_max_tokens,
        .min_tokens = (uint32_t)p->min_tokens,
        .ignore_end = p->ignore_end,
        .sampling = p->sampling,
        .stops = p->stops,
        .n_stops = p->n_stops,
        .on_text = text_show,
        .on_input = c->is_terminal ? input_take : NULL,
        .context = c,
        .sampled = &c->sampled,
        .ends_loops = c->is_terminal, /* a script gets what the model says */
    };
    /* With the same seed for each turn, a model would repeat itself. */
    g->sampling.seed += c->n_answers;
    c->sampled.len = 0;
    if (prompt_make(c, p, &prompt, err))
        return -1;
    g->prompt = prompt.tokens.ids;
    g->n_prompt = (uint32_t)prompt.tokens.len;
    c->n_interrupts = 0;
    answer_view_begin(&c->view, &maker->style, prompt.ends_in_thinking);
    int failed = generator_run(&c->generator, g, err);
    answer_view_end(&c->view, failed ? "[failed]" : ending(c, g));
    if (c->shows_timings && !failed)
        timings_show(c, g);
    answer_view_gap(&c->view);
    replay_store_add(c->replay, 0, prompt.digest, c->sampled.ids, c->sampled.len);
    prompt_free(&prompt);
    return failed;
}

/* Generates an answer to the current conversation and appends it. */
static int answer_make(struct chat *c, struct error *err)
{
    const struct sampling sampling = generate_sampling(&c->generator.runtime->prompt);
    struct request_params params;
    struct generation g;
    if (chat_settings_read(&c->settings, &sampling, &params, err))
        return -1;
    int failed = answer_generate(c, &params, &g, err);
    request_params_free(&params);
    if (failed)
        return -1;
    c->n_answers++;
    bool is_canceled = g.finish == FINISH_CANCELED && !g.is_loop;
    c->answered_ns = is_canceled ? 0 : clock_now_ns();
    if (is_canceled && !isatty(STDIN_FILENO)) /* a script cannot ask again */
        c->wants_quit = c->was_interrupted = true;
    const struct strbuf *content = &c->view.content, *thoughts = &c->view.thoughts;
    if (is_canceled && !content->len && !thoughts->len)
        return 1;
    message_append(&c->arena, c->messages, "assistant", strbuf_str(content), content->len);
    if (thoughts->len)
        json_append(&c->arena, c->messages->last, "reasoning_content",
                    json_new_string(&c->arena, thoughts->data, thoughts->len));
    return 0;
}

int chat_ask(struct chat *c, const char *text, size_t len, struct error *err)
{
    if (input_check_utf8("the message", text, len, err))
        return -1;
    size_t n_before = c->messages->count;
    message_append(&c->arena, c->messages, "user", text, len);
    int result = answer_make(c, err);
    if (result)
        chat_truncate(c, n_before);
    return result < 0 ? -1 : 0;
}

int chat_ask_again(struct chat *c, struct error *err)
{
    size_t n_before = c->messages->count, n = 0, n_asked = 0;
    json_each (message, c->messages) {
        n++;
        if (!json_equals(json_get(message, "role"), "assistant"))
            n_asked = n;
    }
    const struct json *first = c->messages->first;
    if (n_asked == 0 || (n_asked == 1 && json_equals(json_get(first, "role"), "system")))
        return error_set(err, ERROR_INPUT, "there is no message to answer again yet");
    struct json *asked = c->messages->first;
    for (size_t i = 1; i < n_asked; i++)
        asked = asked->next;
    struct json *answer = asked->next, *last = c->messages->last;
    chat_truncate(c, n_asked);
    int result = answer_make(c, err);
    if (result && answer) { /* keep the last answer */
        asked->next = answer;
        c->messages->last = last;
        c->messages->count = n_before;
    }
    return result < 0 ? -1 : 0;
}
