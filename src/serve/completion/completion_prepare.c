/* The slow part of a request: reads its body, renders and tokenizes its conversation. Runs on a
 * worker, which owns the completion's input meanwhile; only `unwanted` is shared with the event
 * loop. Everything parsed is freed at the end, so copy what the answer needs. A worker may be
 * stopped anywhere (base/task.h), and begin again with more time. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "base/task.h"
#include "serve/completion/completion_internal.h"
#include "serve/writers/ollama_form.h"

enum {
    MAX_SCORED = 1 << 18,
    MAX_ECHOED_NAME = 256,
    MIN_TOKENIZED = 1 << 20, /* bytes that may always be tokenized, for any context */
    TOKENIZED_BYTES_PER_TOKEN = 8,
};

int no_memory_now(struct completion *c)
{
    return api_error_set(&c->input.error, 503, NULL,
                         "not enough memory for this request; try again soon");
}

/* The words that OpenAI's clients look for. */
static void openai_context_error(struct api_error *e, const struct completion *c, const char *how,
                                 size_t n_tokens)
{
    const struct server_options *options = c->api->options;
    const char *advice = options->model_context && options->context >= options->model_context ? "."
                         : options->context >= options->engine->limits.n_pages[0]
                             ? ", or start the server with a larger --cache-size, which limits "
                               "the context."
                             : ", or start the server with a larger -c.";
    bool is_text = request_is_text(c->kind);
    api_error_set(e, 400, is_text ? "prompt" : "messages",
                  "This model's maximum context length is %u tokens. However, your %s resulted in "
                  "%s%zu tokens. Please reduce their length%s",
                  options->context, is_text ? "prompt" : "messages", how, n_tokens, advice);
}

int context_error_set(struct api_error *e, const struct completion *c, const char *how,
                      size_t n_tokens)
{
    if (request_is_llama(c->kind))
        llama_context_error(e, c->api->options->context, how, n_tokens);
    else
        openai_context_error(e, c, how, n_tokens);
    e->n_prompt_tokens = n_tokens;
    e->context = c->api->options->context;
    e->code = "context_length_exceeded";
    return -1;
}

/* The most bytes that can fit, if every token is the longest of the vocabulary. Tokenizing
 * megabytes takes seconds, so longer texts are rejected without it. */
static size_t hopeless_bytes(const struct completion *c)
{
    return ((size_t)c->api->options->context + 1) * c->api->longest_token - 1;
}

int refuse_hopeless(struct completion *c, size_t n_bytes)
{
    if (n_bytes <= hopeless_bytes(c))
        return 0;
    return context_error_set(&c->input.error, c, "at least ", n_bytes / c->api->longest_token);
}

uint32_t completion_max_tokens(const struct completion *c, const struct prompt *prompt)
{
    int64_t left = (int64_t)c->api->options->context - (int64_t)prompt->tokens.len;
    if (c->kind == REQUEST_WARM || c->input.params.max_tokens == REQUEST_NO_TOKENS)
        return 0;
    return (uint32_t)(c->input.params.max_tokens < left ? c->input.params.max_tokens : left);
}

/* Checks the request against its client's limit. If it has no max_tokens of its own, its answers
 * get what is left. */
static int check_allowance(struct completion *c, uint64_t n_prompt, bool is_given)
{
    struct request_params *p = &c->input.params;
    const uint32_t limit = limit_of(&c->requester.limits, LIMIT_TOKENS_PER_REQUEST);
    const uint64_t n_answers = (uint64_t)choices_per_prompt(c) * c->input.n_prompts;
    uint64_t n_all = n_prompt;
    for (uint32_t i = 0; i < c->input.n_prompts; i++)
        n_all += (uint64_t)choices_per_prompt(c) * completion_max_tokens(c, &c->input.prompts[i]);
    if (!limit || n_all <= limit)
        return 0;
    if (!is_given && n_prompt + n_answers <= limit) {
        p->max_tokens = (int64_t)((limit - n_prompt) / n_answers);
        return 0;
    }
    const bool may_fit = n_prompt + n_answers <= limit;
    api_error_set(&c->input.error, 400, may_fit ? "max_tokens" : NULL,
                  "the prompt has %" PRIu64 " tokens, and %s up to %" PRIu64 "; your limit is "
                  "%" PRIu32 " tokens a request: %s",
                  n_prompt, n_answers > 1 ? "the answers" : "the answer", n_all - n_prompt, limit,
                  may_fit ? "give a smaller max_tokens" : "send a shorter prompt");
    c->input.error.code = "tokens_per_request_exceeded";
    return -1;
}

/* Checks that prompts and answers fit into the context. */
static int fit_context(struct completion *c)
{
    const struct server_options *options = c->api->options;
    struct request_params *p = &c->input.params;
    uint64_t n_all = 0;
    for (uint32_t i = 0; i < c->input.n_prompts; i++) {
        const size_t n_tokens = c->input.prompts[i].tokens.len;
        n_all += n_tokens;
        if (n_tokens == 0)
            return request_is_text(c->kind)
                       ? api_error_set(&c->input.error, 400, "prompt", "the prompt is empty")
                       : api_error_set(&c->input.error, 400, "messages",
                                       "the conversation is empty");
        if (n_tokens >= options->context)
            return context_error_set(&c->input.error, c, "", n_tokens);
    }
    if (p->echo && p->logprobs && n_all * (uint64_t)p->best_of > MAX_SCORED)
        return api_error_set(
            &c->input.error, 400, "prompt",
            "log probabilities can be returned for at most %d prompt tokens at once, "
            "not %llu",
            MAX_SCORED, (unsigned long long)(n_all * (uint64_t)p->best_of));
    const bool is_given = p->max_tokens != 0;
    if (p->max_tokens == 0)
        p->max_tokens = p->default_max_tokens;
    if (p->max_tokens == 0)
        p->max_tokens = options->default_max_tokens ? options->default_max_tokens
                                                    : options->context;
    return check_allowance(c, n_all, is_given);
}

/* Checks whether this server can serve the request, which the fields alone do not tell. */
static int check_offer(struct completion *c)
{
    const struct server_options *options = c->api->options;
    const struct request_params *p = &c->input.params;
    const uint32_t n_vocab = tokenizer_size(options->prompt->tokenizer);
    for (uint32_t i = 0; i < p->n_stop_tokens; i++)
        if ((uint32_t)p->stop_tokens[i] >= n_vocab)
            return api_error_set(&c->input.error, 400, "stop_token_ids",
                                 "%d is not a token of this model, which has %u", p->stop_tokens[i],
                                 n_vocab);
    if (options->strict_model && p->model && !api_has_model(c->api, p->model))
        return api_model_not_found(c->api, p->model, &c->input.error);
    if (p->must_think && !options->prompt->style.think_begin)
        return api_error_set(&c->input.error, 400, "think",
                             "'%s' does not support thinking: leave out 'think'",
                             options->model_name);
    if (c->kind == REQUEST_WARM && options->no_prefix_cache)
        return api_error_set(&c->input.error, 501, NULL,
                             "there is no cache to warm: the server runs with --no-prefix-cache");
    const bool is_list = p->prompt && prompt_is_list(p->prompt);
    uint64_t most = (uint64_t)options->max_seqs + options->max_waiting;
    uint64_t wanted = (uint64_t)p->best_of * (is_list ? p->prompt->count : 1);
    if (wanted > most)
        return api_error_set(
            &c->input.error, 400,
            is_list             ? "prompt"
            : p->best_of > p->n ? "best_of"
                                : "n",
            "the request asks for %llu answers, but this server can run %llu at once",
            (unsigned long long)wanted, (unsigned long long)most);
    return 0;
}

uint64_t replay_namespace(const struct completion *c)
{
    return cache_namespace(c->requester.tenant, -1, -1);
}

/* ---- conversations ---- */

/* Omits the generation prompt, which only a warming or a rendering may do. */
static void unbegin_answer(struct request_params *p)
{
    if (!p->extra)
        p->extra = json_new(&p->arena, JSON_OBJECT);
    if (p->extra)
        json_append(&p->arena, p->extra, "add_generation_prompt", json_new_bool(&p->arena, false));
}

static struct prompt_input input_of(struct completion *c)
{
    const struct request_params *p = &c->input.params;
    return (struct prompt_input){.messages = p->messages,
                                 .tools = c->input.tools,
                                 .extra = p->extra,
                                 .continues = p->continues,
                                 .replay = c->input.replays ? c->api->replay : NULL,
                                 .ns = replay_namespace(c),
                                 .most_bytes = hopeless_bytes(c),
                                 .want_map = c->input.wants_map};
}

static int prompt_error(struct completion *c, const struct error *err)
{
    switch (err->code) {
    case ERROR_INPUT:
    case ERROR_LIMIT:
        /* If the client sent variables, the template may have rejected those. */
        return api_error_set(&c->input.error, 400, c->input.params.extra ? NULL : "messages", "%s",
                             err->message);
    case ERROR_FORMAT: /* without a template no request is valid */
        return api_error_set(&c->input.error, 501, NULL, "%s", err->message);
    default: return api_error_set(&c->input.error, 500, NULL, "%s", err->message);
    }
}

int prompts_alloc(struct completion *c, size_t n)
{
    struct completion_input *in = &c->input;
    in->prompts = calloc(n, sizeof *in->prompts);
    if (!in->prompts)
        return no_memory_now(c);
    if (in->params.echo && !(in->echoes = calloc(n, sizeof *in->echoes)))
        return no_memory_now(c);
    in->n_prompts = (uint32_t)n;
    return 0;
}

/* The bytes of all its texts. The JSON parser's depth limit bounds the recursion. */
static size_t text_bytes(const struct json *value)
{
    size_t n_bytes = value->text_len;
    json_each (child, value)
        n_bytes += text_bytes(child);
    return n_bytes;
}

static int prepare_chat(struct completion *c)
{
    const struct request_params *p = &c->input.params;
    struct error err;
    if (refuse_hopeless(c, text_bytes(p->messages)) || completion_read_tools(c) ||
        request_find_continuation(&c->input.params, c->kind, &c->input.error))
        return -1;
    if (!p->add_generation_prompt)
        unbegin_answer(&c->input.params);
    c->input.replays = p->replay && c->api->replay;
    struct prompt_input in = input_of(c);
    if (prompts_alloc(c, 1))
        return -1;
    if (prompt_maker_chat(c->api->options->prompt, &in, c->input.prompts, &err))
        return prompt_error(c, &err);
    /* Tools and template variables count only now, because a template may ignore them. */
    if (refuse_hopeless(c, c->input.prompts->text_bytes))
        return -1;
    return c->kind == REQUEST_CHAT ? completion_constrain(c) : 0;
}

static int render_chat(struct completion *c)
{
    struct error err;
    struct strbuf text = STRBUF_INIT;
    if (completion_read_tools(c) ||
        request_find_continuation(&c->input.params, c->kind, &c->input.error))
        return -1;
    if (!c->input.params.add_generation_prompt)
        unbegin_answer(&c->input.params);
    struct prompt_input in = input_of(c);
    int failed = prompt_maker_render(c->api->options->prompt, &in, &text, &err)
                     ? prompt_error(c, &err)
                     : 0;
    if (!failed && text.failed)
        failed = no_memory_now(c);
    struct json_writer w = {.out = &c->output.reply};
    json_object_begin(&w, NULL);
    json_add_bytes(&w, "prompt", strbuf_str(&text), text.len);
    json_object_end(&w);
    strbuf_free(&text);
    return failed;
}

/* A conversation that is too long is counted too, unless it is far too long. */
static int count_chat(struct completion *c)
{
    if (prepare_chat(c))
        return -1;
    struct json_writer w = {.out = &c->output.reply};
    json_object_begin(&w, NULL);
    json_add_int(&w, "input_tokens", (int64_t)c->input.prompts[0].tokens.len);
    json_object_end(&w);
    return 0;
}

/* ---- texts and tokens ---- */

/* One prompt of a text completion: a text, or its tokens. */
static int read_text_prompt(struct completion *c, const struct json *value, uint32_t index)
{
    const struct prompt_maker *maker = c->api->options->prompt;
    struct prompt *prompt = &c->input.prompts[index];
    struct error err;
    if (c->input.params.suffix)
        return prepare_suffix(c, value, index);
    if (value->type == JSON_STRING) {
        if (refuse_hopeless(c, value->text_len))
            return -1;
        if (prompt_maker_text(maker, value->text, value->text_len, prompt, &err))
            return api_error_set(&c->input.error, 500, NULL, "%s", err.message);
        if (c->input.echoes)
            strbuf_add(&c->input.echoes[index], value->text, value->text_len);
        return 0;
    }
    if (!token_list_reserve(&prompt->tokens, value->count))
        return no_memory_now(c);
    json_each (id, value) {
        if (id->number >= tokenizer_size(maker->tokenizer))
            return api_error_set(&c->input.error, 400, "prompt",
                                 "%.20s is not a token of this model, which has %u", id->text,
                                 tokenizer_size(maker->tokenizer));
        token_list_add(&prompt->tokens, (int32_t)id->number);
    }
    if (c->input.echoes)
        tokenizer_decode(maker->tokenizer, prompt->tokens.ids, prompt->tokens.len, true,
                         &c->input.echoes[index]);
    return 0;
}

static int prepare_text(struct completion *c)
{
    const struct json *prompt = c->input.params.prompt;
    const bool is_list = prompt_is_list(prompt);
    uint32_t i = 0;
    if (prompts_alloc(c, is_list ? prompt->count : 1))
        return -1;
    if (!is_list && read_text_prompt(c, prompt, 0))
        return -1;
    for (const struct json *item = is_list ? prompt->first : NULL; item; item = item->next)
        if (read_text_prompt(c, item, i++))
            return -1;
    for (i = 0; c->input.echoes && i < c->input.n_prompts; i++)
        if (c->input.echoes[i].failed)
            return no_memory_now(c);
    return completion_constrain(c);
}

/* A token with its text, or with its bytes if it is part of a character. */
static void piece_add(struct json_writer *w, const struct tokenizer *t, int32_t id)
{
    size_t len;
    const char *bytes = tokenizer_bytes(t, id, &len);
    json_object_begin(w, NULL);
    json_add_int(w, "id", id);
    if (utf8_is_valid(bytes, len)) {
        json_add_bytes(w, "piece", bytes, len);
    } else {
        json_array_begin(w, "piece");
        for (size_t i = 0; i < len; i++)
            json_add_int(w, NULL, (unsigned char)bytes[i]);
        json_array_end(w);
    }
    json_object_end(w);
}

/* Longer texts would keep a worker busy for seconds. A text that fills the context is allowed. */
size_t completion_text_limit(const struct api *api)
{
    const size_t context_bytes = (size_t)api->options->context * TOKENIZED_BYTES_PER_TOKEN;
    return context_bytes > MIN_TOKENIZED ? context_bytes : MIN_TOKENIZED;
}

static int tokenize(struct completion *c)
{
    const struct request_params *p = &c->input.params;
    const struct tokenizer *t = c->api->options->prompt->tokenizer;
    const size_t n_bytes = mixed_bytes(p->text), most = completion_text_limit(c->api);
    struct token_list tokens = {0};
    if (n_bytes > most)
        return api_error_set(&c->input.error, 413, "content",
                             "the text has %zu bytes, but at most %zu are tokenized at once: send "
                             "it in parts",
                             n_bytes, most);
    int flags = (p->adds_special ? TOKENIZE_ADD_SPECIAL : 0) |
                (p->parses_special ? TOKENIZE_PARSE_SPECIAL : 0);
    if (encode_mixed(c, p->text, flags, "content", &tokens)) {
        token_list_free(&tokens);
        return -1;
    }
    struct json_writer w = {.out = &c->output.reply};
    json_object_begin(&w, NULL);
    json_array_begin(&w, "tokens");
    for (size_t i = 0; i < tokens.len; i++) {
        if (p->with_pieces)
            piece_add(&w, t, tokens.ids[i]);
        else
            json_add_int(&w, NULL, tokens.ids[i]);
    }
    json_array_end(&w);
    json_add_int(&w, "count", (int64_t)tokens.len);
    json_add_int(&w, "max_model_len", c->api->options->context);
    json_object_end(&w);
    token_list_free(&tokens);
    return 0;
}

static int detokenize(struct completion *c)
{
    const struct tokenizer *t = c->api->options->prompt->tokenizer;
    struct token_list tokens = {0};
    struct strbuf text = STRBUF_INIT;
    int failed = 0;
    for (const struct json *id = c->input.params.tokens->first; id && !failed; id = id->next) {
        if (id->number >= tokenizer_size(t))
            failed = api_error_set(&c->input.error, 400, "tokens",
                                   "%.20s is not a token of this model, which has %u", id->text,
                                   tokenizer_size(t));
        else if (!token_list_add(&tokens, (int32_t)id->number))
            failed = no_memory_now(c);
    }
    if (!failed)
        tokenizer_decode(t, tokens.ids, tokens.len, true, &text);
    if (text.failed)
        failed = no_memory_now(c);
    struct json_writer w = {.out = &c->output.reply};
    json_object_begin(&w, NULL);
    json_add_bytes(&w, "content", strbuf_str(&text), text.len);
    json_add_bytes(&w, "prompt", strbuf_str(&text), text.len);
    json_object_end(&w);
    token_list_free(&tokens);
    strbuf_free(&text);
    return failed;
}

/* ---- the job ---- */

/* Finds the tokens that contain one of DRY's breakers; repetitions do not extend across them. */
static int find_breakers(struct completion *c)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const struct token_table *tokens = &c->api->tokens;
    const struct json *given = c->input.params.dry_breakers;
    if (c->input.params.sampling.dry_multiplier <= 0)
        return 0;
    c->input.dry_breakers = calloc(tokens->n_tokens / 64 + 1, sizeof *c->input.dry_breakers);
    if (!c->input.dry_breakers)
        return no_memory_now(c);
    for (uint32_t i = 0; i < tokens->n_tokens; i++) {
        bool breaks = false;
        for (size_t k = 0; !given && k < sizeof usual / sizeof *usual; k++)
            breaks |= memchr(tokens->bytes[i], usual[k][0], tokens->lengths[i]) != NULL;
        for (const struct json *text = given ? given->first : NULL; text && !breaks;
             text = text->next)
            breaks = memmem(tokens->bytes[i], tokens->lengths[i], text->text, text->text_len);
        c->input.dry_breakers[i / 64] |= (uint64_t)breaks << (i % 64);
    }
    return 0;
}

static int too_many_biases(struct completion *c)
{
    return api_error_set(&c->input.error, 400, "logit_bias",
                         "'logit_bias' may have at most %d tokens, and its texts have more",
                         REQUEST_MAX_BIASES);
}

/* Turns the biases of texts into those of their tokens, as llama-server does. */
static int bias_texts(struct completion *c)
{
    const struct tokenizer *t = c->api->options->prompt->tokenizer;
    struct request_params *p = &c->input.params;
    struct token_list tokens = {0};
    struct error err;
    int failed = 0;
    if (!p->n_text_biases)
        return 0;
    struct logit_bias *all = arena_alloc_array(&p->arena, REQUEST_MAX_BIASES, sizeof *all);
    if (!all)
        return no_memory_now(c);
    if (p->n_biases)
        memcpy(all, p->biases, p->n_biases * sizeof *all);
    p->biases = all;
    for (uint32_t i = 0; i < p->n_text_biases && !failed; i++) {
        const struct text_bias *b = &p->text_biases[i];
        tokens.len = 0;
        if (b->text.len > (size_t)REQUEST_MAX_BIASES * c->api->longest_token)
            failed = too_many_biases(c);
        else if (tokenizer_encode(t, b->text.bytes, b->text.len, 0, &tokens, &err))
            failed = api_error_set(&c->input.error, 500, NULL, "%s", err.message);
        else if (tokens.len > REQUEST_MAX_BIASES - p->n_biases)
            failed = too_many_biases(c);
        for (size_t k = 0; k < tokens.len && !failed; k++)
            all[p->n_biases++] = (struct logit_bias){tokens.ids[k], b->bias};
    }
    token_list_free(&tokens);
    return failed;
}

/* Opens what a choice needs besides its request. */
static int choice_open(struct completion *c, uint32_t index)
{
    const struct prompt_maker *maker = prompt_maker_for(c->api->options->prompt, c->input.tools);
    const struct request_params *p = &c->input.params;
    const struct prompt *prompt = prompt_of(c, index);
    struct choice *o = &c->running.choices[index];
    bool scores_prompt = p->logprobs && p->echo && index % choices_per_prompt(c) == 0;
    bool scores = p->logprobs || p->best_of > p->n;
    struct answer_options options = {
        .style = c->kind == REQUEST_CHAT ? &maker->style : NULL,
        .tools = callable_tools(c),
        .tokenizer = maker->tokenizer,
        .starts_in_thinking = prompt->ends_in_thinking,
        .continues = p->continues,
        .must_call = callable_tools(c) && p->tool_choice == TOOL_CHOICE_REQUIRED,
        .has_logprobs = p->logprobs,
        .keeps_tokens = request_is_llama(c->kind) && (p->return_tokens || p->stream),
        .prompt_tokens = (uint32_t)prompt->tokens.len,
        .index = index,
    };
    if (scores)
        o->logprobs = calloc(REQUEST_RING, sizeof *o->logprobs);
    if (scores_prompt)
        o->prompt_logprobs = calloc(prompt->tokens.len, sizeof *o->prompt_logprobs);
    if (answer_open(&o->answer, &options) || (scores && !o->logprobs) ||
        (scores_prompt && !o->prompt_logprobs))
        return no_memory_now(c);
    return completion_open_filter(c, o);
}

/* Makes the prompts' tokens in the scheduler's form. */
static int cache_tokens_make(struct completion *c)
{
    c->input.cache_tokens = arena_alloc(&c->input.kept,
                                        c->input.n_prompts * sizeof *c->input.cache_tokens);
    for (uint32_t i = 0; c->input.cache_tokens && i < c->input.n_prompts; i++) {
        const struct token_list *tokens = &c->input.prompts[i].tokens;
        uint64_t *out = arena_alloc(&c->input.kept, tokens->len * sizeof *out);
        if (!out)
            return no_memory_now(c);
        cache_tokens_text(tokens->ids, (uint32_t)tokens->len, out);
        c->input.cache_tokens[i] = out;
    }
    return c->input.cache_tokens ? 0 : no_memory_now(c);
}

static int choices_open(struct completion *c)
{
    size_t n = (size_t)choices_per_prompt(c) * c->input.n_prompts;
    if (cache_tokens_make(c) || !(c->running.choices = calloc(n, sizeof *c->running.choices)))
        return no_memory_now(c);
    c->running.n_choices = (uint32_t)n;
    for (uint32_t i = 0; i < c->running.n_choices; i++)
        if (choice_open(c, i))
            return -1;
    return 0;
}

static int describe_model(struct completion *c)
{
    ollama_show_write(&(struct json_writer){.out = &c->output.reply}, c->api->options);
    return 0;
}

/* There is one model, and it is loaded. */
static int confirm_load(struct completion *c)
{
    const struct answer_head *head = &c->output.head;
    ollama_load_write(&(struct json_writer){.out = &c->output.reply}, head->model, head->created,
                      c->output.writer == &ollama_chat_writer,
                      c->input.params.is_unload ? "unload" : "load");
    return 0;
}

/* Ollama's clients compare the name in an answer with the one they asked for. A very long one would
 * make every line of a stream long. */
static void echo_model_name(struct completion *c)
{
    const char *model = c->input.params.model;
    size_t len = model ? strlen(model) : 0;
    if (len == 0 || len > MAX_ECHOED_NAME)
        return;
    const char *copy = arena_copy(&c->input.kept, model, len);
    if (copy)
        c->output.head.model = copy;
}

static int prepare(struct completion *c)
{
    if (request_params_read(&c->input.params, c->kind, strbuf_str(&c->input.body),
                            c->input.body.len, c->api->options->strict_fields,
                            &c->api->options->sampling, &c->input.error) ||
        check_offer(c))
        return -1;
    if (c->api->options->prompt->thinking == THINKING_OFF &&
        !json_get(c->input.params.extra, "enable_thinking"))
        c->input.params.thinking_tokens = 0;
    if (c->kind == REQUEST_OLLAMA_CHAT || c->kind == REQUEST_OLLAMA_GENERATE)
        echo_model_name(c);
    c->kind = c->input.params.kind;
    if (c->input.params.is_load)
        return confirm_load(c);
    switch (c->kind) {
    case REQUEST_RENDER: return render_chat(c);
    case REQUEST_COUNT: return count_chat(c);
    case REQUEST_TOKENIZE: return tokenize(c);
    case REQUEST_DETOKENIZE: return detokenize(c);
    case REQUEST_OLLAMA_SHOW: return describe_model(c);
    default: break;
    }
    c->input.explain |= c->input.params.explain;
    c->input.wants_map = c->input.explain || log_enabled(LOG_DEBUG);
    int failed = c->kind == REQUEST_TEXT     ? prepare_text(c)
                 : c->kind == REQUEST_LLAMA  ? prepare_llama(c)
                 : c->kind == REQUEST_INFILL ? prepare_infill(c)
                                             : prepare_chat(c);
    return failed || fit_context(c) || bias_texts(c) || find_breakers(c) || choices_open(c) ? -1
                                                                                            : 0;
}

/* If out of memory, an explanation has no roles. */
static void keep_roles(struct completion_input *in)
{
    size_t n = in->params.messages ? in->params.messages->count : 0;
    if (!in->wants_map || n == 0 || !(in->roles = calloc(n, sizeof *in->roles)))
        return;
    json_each (message, in->params.messages) {
        const struct json *role = json_get(message, "role");
        snprintf(in->roles[in->n_roles++].name, sizeof in->roles->name, "%s", role->text);
    }
}

static void keep_fields(struct completion_input *in)
{
    const struct json *names = in->params.response_fields;
    if (!names || !(in->fields = arena_alloc_array(&in->kept, names->count, sizeof *in->fields)))
        return;
    json_each (name, names)
        in->fields[in->n_fields++] = (struct byte_view){
            arena_copy(&in->kept, name->text, name->text_len), name->text_len};
}

/* A parsed request takes many times its bytes, and an answer may wait and run for long. So only the
 * stop conditions, the biases, the requested members and, for an explanation, the roles are
 * kept. */
static void let_go_of_request(struct completion *c)
{
    struct request_params *p = &c->input.params;
    keep_roles(&c->input);
    for (uint32_t i = 0; i < p->n_stops; i++)
        p->stops[i].bytes = arena_copy(&c->input.kept, p->stops[i].bytes, p->stops[i].len);
    if (p->n_biases) {
        struct logit_bias *biases = arena_alloc_array(&c->input.kept, p->n_biases, sizeof *biases);
        if (biases)
            memcpy(biases, p->biases, p->n_biases * sizeof *biases);
        p->biases = biases;
    }
    if (p->n_stop_tokens) {
        int32_t *ids = arena_alloc_array(&c->input.kept, p->n_stop_tokens, sizeof *ids);
        if (ids)
            memcpy(ids, p->stop_tokens, p->n_stop_tokens * sizeof *ids);
        p->stop_tokens = ids;
    }
    keep_fields(&c->input);
    if (c->input.kept.failed && !c->input.failed)
        c->input.failed = no_memory_now(c);
    arena_free(&p->arena);
    p->model = NULL;
    p->messages = p->extra = p->allowed_tools = NULL;
    p->prompt = p->text = p->tokens = p->tools = p->dry_breakers = p->functions = NULL;
    p->suffix = p->input_prefix = p->input_suffix = p->input_extra = p->response_fields = NULL;
    p->constraint = (struct constraint){0};
    p->text_biases = NULL;
}

void completion_prepare(struct job *job)
{
    struct completion *c = completion_of(job);
    c->input.failed = prepare(c) != 0;
    if (task_is_stopped()) { /* then the reasons of a failure mean nothing */
        completion_unprepare(c);
        return;
    }
    if (c->input.params.arena.failed && !c->input.failed)
        c->input.failed = no_memory_now(c) != 0;
    let_go_of_request(c);
    strbuf_free(&c->input.body);
}
