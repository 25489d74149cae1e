/* Turns a conversation into token ids: opening, closing, and the steps in order. A rendering says
 * which bytes come from the template and which from the messages (chat_template.h). Only the
 * template's bytes are searched for special tokens:
 *
 *   <|im_start|>user\nsay <|im_end|> twice<|im_end|>\n      rendered
 *   [template       ][message 0          ][template  ]
 *   ^^^^^^^^^^^^                          ^^^^^^^^^^         these become special tokens
 *               ^^^^^^^^^^^^^^^^^^^^^^^^^^          ^^        these runs are encoded whole
 *
 * prompt_replay.c finds earlier answers, prompt_encode.c makes the tokens. */
#include "prompt/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "prompt/answer/call_form.h"
#include "prompt/conversation.h"
#include "prompt/prompt_internal.h"

enum {
    MAX_TEMPLATE_BYTES = 4 << 20,
    MAX_IDLE_BYTES = 4 << 20, /* of a draft */
};

static void token_append(const struct prompt_maker *p, struct arena *arena, struct json *parent,
                         const char *key, int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_bytes(p->tokenizer, id, &len);
    json_append(arena, parent, key, json_new_string(arena, bytes, len));
}

/* Adds the tokens that templates get besides the conversation. */
static void tokens_append(const struct prompt_maker *p, struct arena *arena, struct json *context)
{
    token_append(p, arena, context, "bos_token", tokenizer_bos(p->tokenizer));
    token_append(p, arena, context, "eos_token", tokenizer_eos(p->tokenizer));
}

static bool writes_bare_json(const struct template_traits *t)
{
    const char *first = strbuf_str(&t->first);
    return t->has_call_shape &&
           (strncmp(first, "{\"name\"", 7) == 0 || strncmp(first, "[{\"name\"", 8) == 0);
}

/* Sets the template, its traits, and the style of the model's answers. */
static int template_use(struct prompt_maker *p, const char *source, size_t len, struct error *err)
{
    struct arena arena = ARENA_INIT;
    p->chat_template = chat_template_parse(source, len, err);
    if (!p->chat_template)
        return -1;
    struct json *context = json_new(&arena, JSON_OBJECT);
    tokens_append(p, &arena, context);
    json_append(&arena, context, "datetime", json_new_string(&arena, "", 0));
    int failed = template_traits_find(&p->traits, p->chat_template, context, err);
    if (!failed && !p->traits.renders) {
        json_append(&arena, context, "functions", json_new_string(&arena, "", 0));
        template_traits_free(&p->traits);
        failed = template_traits_find(&p->traits, p->chat_template, context, err);
        p->needs_functions = p->traits.renders;
    }
    if (arena.failed && !failed)
        failed = error_set(err, ERROR_MEMORY, "no memory for a chat template");
    arena_free(&arena);
    answer_style_find(&p->style, source, len, p->tokenizer);
    if (!p->traits.takes_tools) /* then our system prompt prescribes this form */
        p->style.tools = TOOLS_HERMES;
    else if (p->style.tools == TOOLS_HERMES && writes_bare_json(&p->traits))
        p->style.tools = TOOLS_JSON;
    if (!failed)
        failed = template_traits_complete(&p->traits, &p->style, p->tokenizer, err);
    return failed;
}

static int template_from_file(struct prompt_maker *p, const char *path, struct error *err)
{
    struct strbuf source = STRBUF_INIT;
    struct error cause = {0};
    int failed = file_read(path, MAX_TEMPLATE_BYTES, &source, err);
    if (!failed && template_use(p, strbuf_str(&source), source.len, &cause))
        failed = error_set(err, cause.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_FORMAT, "%s: %s",
                           path, cause.message);
    strbuf_free(&source);
    return failed;
}

/* A model with a broken template can still continue texts. */
static void template_from_model(struct prompt_maker *p, const char *source, size_t len)
{
    struct error err;
    if (!source) {
        strcpy(p->template_problem, "the model has no chat template");
    } else if (template_use(p, source, len, &err)) {
        chat_template_free(p->chat_template);
        p->chat_template = NULL;
        snprintf(p->template_problem, sizeof p->template_problem,
                 "the model's chat template cannot be used (%.240s)", err.message);
    }
}

/* Closes what belongs to a maker for tools alone. */
static void tools_close(struct prompt_maker *p)
{
    chat_template_free(p->chat_template);
    template_traits_free(&p->traits);
    free(p);
}

const struct prompt_maker *prompt_maker_for(const struct prompt_maker *p,
                                            const struct tool_set *tools)
{
    return p->with_tools && tool_set_size(tools) ? p->with_tools : p;
}

/* Finds out whether the model needs a BOS, from what the tokenizer puts before a text. */
static int bos_find_out(struct prompt_maker *p, struct error *err)
{
    struct token_list around = {0};
    int failed = tokenizer_encode(p->tokenizer, "", 0, TOKENIZE_ADD_SPECIAL, &around, err);
    int32_t bos = tokenizer_bos(p->tokenizer);
    p->adds_bos = !failed && bos >= 0 && around.len > 0 && around.ids[0] == bos;
    token_list_free(&around);
    return failed;
}

/* Without a usable template for tools, the main one is used. */
static int tools_from_model(struct prompt_maker *p, struct error *err)
{
    if (!p->chat.tool_template)
        return 0;
    struct prompt_maker *tools = calloc(1, sizeof *tools);
    if (!tools)
        return error_set(err, ERROR_MEMORY, "no memory for a chat template");
    *tools = (struct prompt_maker){
        .tokenizer = p->tokenizer, .adds_bos = p->adds_bos, .drafts = p->drafts};
    template_from_model(tools, p->chat.tool_template, p->chat.tool_template_len);
    if (tools->chat_template && tools->traits.takes_tools) {
        p->with_tools = tools;
        return 0;
    }
    log_warn("the model's chat template for tools is not used: %s",
             tools->chat_template ? "it does not render them" : tools->template_problem);
    tools_close(tools);
    return 0;
}

static int prompt_maker_ready(struct prompt_maker *p, const char *template_path, struct error *err)
{
    int failed = bos_find_out(p, err);
    p->drafts = calloc(1, sizeof *p->drafts);
    if (!p->drafts && !failed)
        failed = error_set(err, ERROR_MEMORY, "no memory for conversations");
    if (!failed && template_path)
        failed = template_from_file(p, template_path, err);
    if (!failed && !template_path) {
        template_from_model(p, p->chat.chat_template, p->chat.chat_template_len);
        failed = tools_from_model(p, err);
    }
    if (failed)
        prompt_maker_close(p);
    return failed;
}

/* ---- drafts ---- */

static void draft_free(struct prompt_draft *d)
{
    arena_free(&d->arena);
    rendering_free(&d->rendering);
    free(d->specials);
    free(d->spans);
    strbuf_free(&d->assistants);
    strbuf_free(&d->rest);
    free(d);
}

static struct prompt_draft *draft_take(const struct prompt_maker *p)
{
    struct prompt_draft *d = idle_pool_take(p->drafts);
    if (!d)
        d = calloc(1, sizeof *d);
    if (d)
        d->tokenizer = p->tokenizer;
    return d;
}

/* A draft enlarged by one long conversation is not kept. */
static void draft_leave(const struct prompt_maker *p, struct prompt_draft *d)
{
    for (size_t i = 0; i < d->n_spans; i++)
        replay_answer_release(d->spans[i].answer);
    d->n_spans = d->n_specials = 0;
    size_t bytes = d->rendering.text.capacity + d->rest.capacity + d->assistants.capacity +
                   d->rendering.segments_capacity * sizeof *d->rendering.segments +
                   d->specials_capacity * sizeof *d->specials +
                   d->spans_capacity * sizeof *d->spans;
    if (bytes > MAX_IDLE_BYTES || !idle_pool_leave(p->drafts, d))
        draft_free(d);
}

/* ---- makers ---- */

int prompt_maker_open(struct prompt_maker *p, struct tokenizer *tokenizer,
                      struct chat_defaults *chat, const char *template_path, struct error *err)
{
    *p = (struct prompt_maker){.tokenizer = tokenizer};
    chat_defaults_move(&p->chat, chat);
    return prompt_maker_ready(p, template_path, err);
}

int prompt_maker_open_bytes(struct prompt_maker *p, const char *template_path, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct chat_defaults chat;
    *p = (struct prompt_maker){0};
    if (tokenizer_open_bytes(&tokenizer, &chat, err))
        return -1;
    return prompt_maker_open(p, tokenizer, &chat, template_path, err);
}

void prompt_maker_close(struct prompt_maker *p)
{
    if (p->with_tools)
        tools_close(p->with_tools);
    chat_template_free(p->chat_template);
    template_traits_free(&p->traits);
    tokenizer_close(p->tokenizer);
    chat_defaults_free(&p->chat);
    for (struct prompt_draft *d; p->drafts && (d = idle_pool_take(p->drafts));)
        draft_free(d);
    free(p->drafts);
    *p = (struct prompt_maker){0};
}

void prompt_maker_set_thinking(struct prompt_maker *p, enum thinking_mode mode)
{
    p->thinking = mode;
    if (p->with_tools)
        p->with_tools->thinking = mode;
}

bool prompt_owns_name(const char *name, size_t len)
{
    static const char messages[] = "messages", suffix[] = "_token";
    const size_t n = sizeof suffix - 1;
    return (len == sizeof messages - 1 && memcmp(name, messages, len) == 0) ||
           (len >= n && memcmp(name + len - n, suffix, n) == 0);
}

void message_append(struct arena *arena, struct json *messages, const char *role, const char *text,
                    size_t len)
{
    struct json *message = json_new(arena, JSON_OBJECT);
    json_append(arena, message, "role", json_new_string(arena, role, strlen(role)));
    json_append(arena, message, "content", json_new_string(arena, text, len));
    json_append(arena, messages, NULL, message);
}

/* Seconds of the local clock, which is what strftime_now shows. */
static int64_t local_now(void)
{
    time_t now = (time_t)clock_unix_seconds();
    struct tm tm;
    return localtime_r(&now, &tm) ? (int64_t)now + tm.tm_gmtoff : (int64_t)now;
}

/* Firefunction takes the tools as a text, and fails without it. */
static void functions_append(struct arena *arena, struct json *context, const struct json *tools,
                             const struct json *extra)
{
    struct strbuf text = STRBUF_INIT;
    if (json_get(extra, "functions"))
        return;
    if (tools)
        json_write(&text, tools);
    json_append(arena, context, "functions", json_new_string(arena, strbuf_str(&text), text.len));
    arena->failed |= text.failed;
    strbuf_free(&text);
}

/* Llama 3 and Firefunction take the date as a variable. Without it, one writes an old date, and the
 * other fails. */
static void dates_append(struct arena *arena, struct json *context, const struct prompt_input *in)
{
    static const struct {
        const char *name, *format;
    } dates[] = {{"date_string", "%d %b %Y"}, {"datetime", "%b %d %Y"}};
    const time_t now = (time_t)(in->now_unix ? in->now_unix : local_now());
    struct tm tm;
    char text[32];
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        const size_t len = gmtime_r(&now, &tm) ? strftime(text, sizeof text, dates[i].format, &tm)
                                               : 0;
        if (len && !json_get(in->extra, dates[i].name))
            json_append(arena, context, dates[i].name, json_new_string(arena, text, len));
    }
}

static struct json *context_make(const struct prompt_maker *p, struct arena *arena,
                                 const struct fitted_conversation *fitted,
                                 const struct prompt_input *in, struct error *err)
{
    const struct json *extra = in->extra;
    struct json *context = json_new(arena, JSON_OBJECT);
    json_append(arena, context, "messages", json_share(arena, fitted->messages));
    if (fitted->tools)
        json_append(arena, context, "tools", json_share(arena, fitted->tools));
    tokens_append(p, arena, context);
    if (in->continues || !json_get(extra, "add_generation_prompt"))
        json_append(arena, context, "add_generation_prompt", json_new_bool(arena, !in->continues));
    bool is_asked = p->traits.has_thinking_switch || p->thinking != THINKING_AUTO;
    if (is_asked && !json_get(extra, "enable_thinking"))
        json_append(arena, context, "enable_thinking",
                    json_new_bool(arena, p->thinking != THINKING_OFF));
    dates_append(arena, context, in);
    if (p->needs_functions)
        functions_append(arena, context, fitted->tools, extra);
    for (const struct json *member = extra ? extra->first : NULL; member; member = member->next) {
        if (prompt_owns_name(member->key, member->key_len)) {
            error_set_at(err, ERROR_INPUT, member->position,
                         "'%s' cannot be given to the chat template: it is set from the %s",
                         member->key, strcmp(member->key, "messages") ? "model" : "request");
            return NULL;
        }
        json_append(arena, context, member->key, json_share(arena, member));
    }
    if (arena->failed) {
        error_set(err, ERROR_MEMORY, "no memory for a conversation");
        return NULL;
    }
    return context;
}

static bool starts_with_bos(const struct prompt_maker *p, const struct rendering *r)
{
    return r->n_segments && r->segments[0].source == RENDER_TEMPLATE &&
           tokenizer_special_at(p->tokenizer, strbuf_str(&r->text), r->segments[0].end) ==
               tokenizer_bos(p->tokenizer);
}

/* Makes segments refer to the messages as sent, not as fitted. */
static void segments_map(struct rendering *r, const struct fitted_conversation *fitted)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_segments; i++) {
        struct render_segment segment = r->segments[i];
        if (segment.source >= 0) {
            int32_t origin = fitted->origins[segment.source];
            segment.source = origin >= 0 ? origin : RENDER_DATA;
        }
        if (n && r->segments[n - 1].source == segment.source)
            r->segments[n - 1].end = segment.end;
        else
            r->segments[n++] = segment;
    }
    r->n_segments = n;
}

/* Ends the text where the last message's text ends. */
static int cut_behind(struct rendering *r, int32_t message, struct error *err)
{
    while (r->n_segments && r->segments[r->n_segments - 1].source != message)
        r->n_segments--;
    if (r->n_segments == 0)
        return error_set(err, ERROR_INPUT,
                         "the last message cannot be continued: the model's chat template does not "
                         "render it");
    r->text.len = r->segments[r->n_segments - 1].end;
    r->text.data[r->text.len] = '\0';
    return 0;
}

static int render(const struct prompt_maker *p, const struct prompt_input *in,
                  struct prompt_draft *d, struct error *err)
{
    if (!p->chat_template)
        return error_set(err, ERROR_FORMAT, "%s: start the server with --chat-template-file FILE",
                         p->template_problem);
    struct render_options options = {.now_unix = in->now_unix ? in->now_unix : local_now(),
                                     .arena = &d->arena};
    struct conversation conversation = {in->messages, in->tools};
    struct fitted_conversation fitted;
    const struct json *context = NULL;
    int failed = conversation_fit(&fitted, &conversation, &p->traits, &p->style, &d->arena, err);
    if (!failed)
        failed = (context = context_make(p, &d->arena, &fitted, in, err)) ? 0 : -1;
    if (!failed)
        failed = chat_template_render(p->chat_template, context, &options, &d->rendering, err);
    if (!failed)
        segments_map(&d->rendering, &fitted);
    if (!failed && in->continues)
        failed = cut_behind(&d->rendering, (int32_t)in->messages->count - 1, err);
    arena_reset(&d->arena);
    return failed;
}

/* The last occurrence of `text` at or after `from`; NULL: none. */
static const char *find_last(const char *from, const char *text)
{
    const char *last = NULL;
    for (const char *at = from; (at = strstr(at, text)); at++)
        last = at;
    return last;
}

/* True if a continued answer has started thinking and not ended it. */
static bool continues_in_thinking(const struct prompt_maker *p, const struct rendering *r)
{
    size_t n = r->n_segments;
    const char *own = strbuf_str(&r->text) + (n > 1 ? r->segments[n - 2].end : 0);
    const char *begin = p->style.think_begin ? find_last(own, p->style.think_begin) : NULL;
    return begin && !strstr(begin, p->style.think_end);
}

/* True if the template has started thinking and the prompt ends there. */
static bool ends_in_thinking(const struct prompt_maker *p, const struct rendering *r)
{
    const char *begin = p->style.think_begin, *text = strbuf_str(&r->text);
    size_t len = r->text.len, n = begin ? strlen(begin) : 0;
    while (len && strchr(" \t\r\n", text[len - 1]))
        len--;
    return n && len >= n && memcmp(text + len - n, begin, n) == 0;
}

static int replays_report(const struct prompt_draft *d, struct prompt *out, struct error *err)
{
    if (d->n_spans == 0)
        return 0;
    out->replays = calloc(d->n_spans, sizeof *out->replays);
    if (!out->replays)
        return error_set(err, ERROR_MEMORY, "no memory for a conversation");
    for (; out->n_replays < d->n_spans; out->n_replays++) {
        const struct prompt_span *span = &d->spans[out->n_replays];
        struct prompt_replay *replay = &out->replays[out->n_replays];
        *replay = (struct prompt_replay){
            .message = span->message,
            .stop = span->stop,
            .first_token = span->first_token,
            .n_tokens = span->n_ids,
            .n_bytes = span->end - span->begin + span->leads_with_space,
        };
        replay_answer_ids(span->answer, &replay->n_sampled);
    }
    return 0;
}

int prompt_maker_chat(const struct prompt_maker *p, const struct prompt_input *in,
                      struct prompt *out, struct error *err)
{
    *out = (struct prompt){0};
    p = prompt_maker_for(p, in->tools);
    struct prompt_draft *draft = draft_take(p);
    if (!draft)
        return error_set(err, ERROR_MEMORY, "no memory for a conversation");
    int failed = render(p, in, draft, err);
    out->text_bytes = failed ? 0 : draft->rendering.text.len;
    if (in->most_bytes && out->text_bytes > in->most_bytes) {
        draft_leave(p, draft);
        return 0;
    }
    if (!failed)
        failed = prompt_find_specials(draft, err);
    if (!failed && in->replay)
        failed = prompt_find_spans(draft, in, &out->digest, err);
    if (!failed && p->adds_bos && !starts_with_bos(p, &draft->rendering) &&
        !token_list_add(&out->tokens, tokenizer_bos(p->tokenizer)))
        failed = error_set(err, ERROR_MEMORY, "no memory for a conversation's tokens");
    if (!failed)
        failed = prompt_encode(draft, in->want_map, out, err);
    if (!failed)
        failed = replays_report(draft, out, err);
    out->ends_in_thinking = !failed &&
                            (ends_in_thinking(p, &draft->rendering) ||
                             (in->continues && continues_in_thinking(p, &draft->rendering)));
    draft_leave(p, draft);
    if (failed)
        prompt_free(out);
    return failed;
}

void prompt_free(struct prompt *p)
{
    token_list_free(&p->tokens);
    free(p->replays);
    free(p->map);
    *p = (struct prompt){0};
}

int prompt_maker_render(const struct prompt_maker *p, const struct prompt_input *in,
                        struct strbuf *out, struct error *err)
{
    p = prompt_maker_for(p, in->tools);
    struct prompt_draft *draft = draft_take(p);
    if (!draft)
        return error_set(err, ERROR_MEMORY, "no memory for a conversation");
    int failed = render(p, in, draft, err);
    if (!failed)
        strbuf_add(out, strbuf_str(&draft->rendering.text), draft->rendering.text.len);
    draft_leave(p, draft);
    return failed;
}

int prompt_maker_text(const struct prompt_maker *p, const char *text, size_t len,
                      struct prompt *out, struct error *err)
{
    *out = (struct prompt){0};
    int failed = tokenizer_encode(p->tokenizer, text, len,
                                  TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, &out->tokens, err);
    if (failed)
        prompt_free(out);
    return failed;
}
