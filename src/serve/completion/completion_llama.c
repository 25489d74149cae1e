/* What only llama-server's API has: prompts of texts and ids, infill prompts, the settings of a
 * request and the list of slots. The first two run on a worker, which owns the completion's input
 * meanwhile; the others run on the event loop's thread. */
#include <string.h>

#include "prompt/infill.h"
#include "serve/completion/completion_internal.h"

/* llama-server's --batch-size, to which it cuts the text around a gap. */
enum { INFILL_TOKENS = 2048 };

/* ---- prompts ---- */

static int encode_text(struct completion *c, const struct json *text, int flags,
                       struct token_list *out)
{
    struct error err;
    if (tokenizer_encode(c->api->options->prompt->tokenizer, text->text, text->text_len, flags, out,
                         &err))
        return api_error_set(&c->input.error, 500, NULL, "%s", err.message);
    return 0;
}

static int add_id(struct completion *c, const struct json *id, const char *field,
                  struct token_list *out)
{
    const struct tokenizer *t = c->api->options->prompt->tokenizer;
    if (id->number >= tokenizer_size(t))
        return api_error_set(&c->input.error, 400, field,
                             "%.20s is not a token of this model, which has %u", id->text,
                             tokenizer_size(t));
    return token_list_add(out, (int32_t)id->number) ? 0 : no_memory_now(c);
}

int encode_mixed(struct completion *c, const struct json *value, int flags, const char *field,
                 struct token_list *out)
{
    if (value->type == JSON_STRING)
        return encode_text(c, value, flags, out);
    json_each (item, value) {
        int failed = item->type == JSON_STRING ? encode_text(c, item, flags, out)
                                               : add_id(c, item, field, out);
        if (failed)
            return -1;
        flags &= ~TOKENIZE_ADD_SPECIAL; /* only before a text that comes first */
    }
    return 0;
}

size_t mixed_bytes(const struct json *value)
{
    size_t n_bytes = value->type == JSON_STRING ? value->text_len : 0;
    for (const struct json *item = value->type == JSON_ARRAY ? value->first : NULL; item;
         item = item->next)
        n_bytes += item->type == JSON_STRING ? item->text_len : 0;
    return n_bytes;
}

bool prompt_is_list(const struct json *prompt)
{
    if (prompt->type != JSON_ARRAY)
        return false;
    json_each (item, prompt)
        if (item->type == JSON_NUMBER)
            return false;
    return true;
}

int prepare_llama(struct completion *c)
{
    const struct json *prompt = c->input.params.prompt;
    const bool many = prompt_is_list(prompt);
    if (prompts_alloc(c, many ? prompt->count : 1))
        return -1;
    const struct json *item = many ? prompt->first : prompt;
    for (uint32_t i = 0; i < c->input.n_prompts; i++, item = item->next)
        if (refuse_hopeless(c, mixed_bytes(item)) ||
            encode_mixed(c, item, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL, "prompt",
                         &c->input.prompts[i].tokens))
            return -1;
    return completion_constrain(c);
}

/* `status`: 501 where nothing but infills can be asked for, as from llama-server. */
static int check_infill(struct completion *c, int status, const char *field)
{
    const char *why;
    if (infill_is_possible(c->api->options->prompt->tokenizer, &why))
        return 0;
    return api_error_set(&c->input.error, status, field,
                         "this model cannot fill in text: its vocabulary has %s. Use a code "
                         "model with fill-in-the-middle tokens, such as Qwen2.5-Coder",
                         why);
}

static int make_infill(struct completion *c, const struct infill_input *in, uint32_t index)
{
    struct error err;
    if (prompt_maker_infill(c->api->options->prompt, in, &c->input.prompts[index], &err))
        return err.code == ERROR_MEMORY
                   ? no_memory_now(c)
                   : api_error_set(&c->input.error, 500, NULL, "%s", err.message);
    return 0;
}

/* The files of a request; NULL: out of memory. */
static struct infill_file *files_of(struct completion *c, size_t n)
{
    const struct json *extra = c->input.params.input_extra;
    struct infill_file *files = arena_alloc_array(&c->input.params.arena, n + 1, sizeof *files);
    size_t i = 0;
    for (const struct json *item = files && n ? extra->first : NULL; item; item = item->next) {
        const struct json *name = json_get(item, "filename");
        files[i++] = (struct infill_file){name ? json_bytes(name) : byte_view_of("tmp"),
                                          json_bytes(json_get(item, "text"))};
    }
    return files;
}

/* llama-server would reject a prompt longer than the context: shortens it further, files first. */
static int shorten_infill(struct completion *c, struct infill_input *in)
{
    const size_t context = c->api->options->context, n_tokens = c->input.prompts[0].tokens.len;
    if (n_tokens < context)
        return 0;
    const size_t excess = n_tokens - context + 1;
    prompt_free(&c->input.prompts[0]);
    if (excess < in->most_file_tokens) {
        in->most_file_tokens -= excess;
    } else {
        in->most_tokens = context / 2;
        in->most_file_tokens = context / 4;
    }
    return make_infill(c, in, 0);
}

/* The parts of llama-server's request, cut in the same way. It uses the limits it was started with,
 * so the server's options count, not the request's. */
int prepare_infill(struct completion *c)
{
    const struct request_params *p = &c->input.params;
    const struct server_options *options = c->api->options;
    const size_t n_files = p->input_extra ? p->input_extra->count : 0;
    /* Twice the length of an answer is left free; -1 if it is not set. */
    const int64_t n_predict = options->default_max_tokens ? (int64_t)options->default_max_tokens
                                                          : -1;
    const int64_t left = (int64_t)options->context - INFILL_TOKENS - 2 * n_predict;
    if (check_infill(c, 501, NULL) || prompts_alloc(c, 1))
        return -1;
    struct infill_input in = {.prefix = json_bytes(p->input_prefix),
                              .suffix = json_bytes(p->input_suffix),
                              .files = files_of(c, n_files),
                              .n_files = n_files,
                              .has_files = true,
                              .most_tokens = INFILL_TOKENS,
                              .most_file_tokens = left > 0 ? (size_t)left : 0,
                              .token_bytes = c->api->longest_token};
    if (!in.files)
        return no_memory_now(c);
    if (p->prompt)
        in.line = json_bytes(p->prompt);
    if (refuse_hopeless(c, in.line.len)) /* the cursor's line is never cut */
        return -1;
    return make_infill(c, &in, 0) || shorten_infill(c, &in) || completion_constrain(c) ? -1 : 0;
}

int prepare_suffix(struct completion *c, const struct json *prefix, uint32_t index)
{
    const struct json *suffix = c->input.params.suffix;
    if (prefix->type != JSON_STRING)
        return api_error_set(&c->input.error, 400, "suffix",
                             "with 'suffix', the prompt must be a string, not token ids");
    if (check_infill(c, 400, "suffix") || refuse_hopeless(c, prefix->text_len + suffix->text_len))
        return -1;
    const struct infill_input in = {.prefix = json_bytes(prefix), .suffix = json_bytes(suffix)};
    if (make_infill(c, &in, index))
        return -1;
    if (c->input.echoes)
        strbuf_add(&c->input.echoes[index], prefix->text, prefix->text_len);
    return 0;
}

void llama_context_error(struct api_error *e, uint32_t context, const char *how, size_t n_tokens)
{
    api_error_set(e, 400, "prompt",
                  "the request has %s%zu tokens, which exceeds the available context size of %u "
                  "tokens: shorten it, or start the server with a larger -c",
                  how, n_tokens, context);
}

/* ---- settings ---- */

/* A ban is null, because JSON has no infinity. */
static void bias_add(struct json_writer *w, int32_t token, float bias)
{
    json_object_begin(w, NULL);
    json_add_int(w, "token", token);
    if (bias <= BIAS_BAN)
        json_add_null(w, "bias");
    else
        json_add_double(w, "bias", (double)bias);
    json_object_end(w);
}

static void biases_add(struct json_writer *w, const struct request_params *p,
                       const struct token_table *tokens)
{
    json_array_begin(w, "logit_bias");
    for (uint32_t i = 0; i < p->n_biases; i++)
        bias_add(w, p->biases[i].token, p->biases[i].bias);
    for (uint32_t i = 0; p->ignore_end && i < tokens->n_tokens; i++)
        if (tokens->is_end[i])
            bias_add(w, (int32_t)i, BIAS_BAN);
    json_array_end(w);
}

static void add_float(struct json_writer *w, const char *key, float value)
{
    json_add_double(w, key, (double)value);
}

static void sampling_add(struct json_writer *w, const struct request_params *p)
{
    const struct sampling *o = &p->sampling;
    json_add_int(w, "seed", (int64_t)o->seed);
    add_float(w, "temperature", o->temperature);
    add_float(w, "dynatemp_range", 0);
    add_float(w, "dynatemp_exponent", 1);
    json_add_int(w, "top_k", o->top_k);
    add_float(w, "top_p", o->top_p);
    add_float(w, "min_p", o->min_p);
    add_float(w, "top_n_sigma", o->top_n_sigma > 0 ? o->top_n_sigma : -1);
    add_float(w, "xtc_probability", o->xtc_probability);
    add_float(w, "xtc_threshold", o->xtc_threshold);
    add_float(w, "typical_p", o->typical_p);
    json_add_int(w, "repeat_last_n", o->repeat_last_n ? (int64_t)o->repeat_last_n : -1);
    add_float(w, "repeat_penalty", o->repetition_penalty);
    add_float(w, "presence_penalty", o->presence_penalty);
    add_float(w, "frequency_penalty", o->frequency_penalty);
    add_float(w, "dry_multiplier", o->dry_multiplier);
    add_float(w, "dry_base", o->dry_base);
    json_add_int(w, "dry_allowed_length", o->dry_allowed_length);
    json_add_int(w, "dry_penalty_last_n", o->dry_last_n ? (int64_t)o->dry_last_n : -1);
    json_add_int(w, "mirostat", 0);
    add_float(w, "mirostat_tau", 5);
    add_float(w, "mirostat_eta", 0.1f);
    add_float(w, "adaptive_target", -1);
    add_float(w, "adaptive_decay", 0.9f);
}

/* Samplers that radish lacks appear with the values that switch them off. */
void settings_write(struct json_writer *w, const char *key, const struct request_params *p,
                    const struct token_table *tokens)
{
    const int64_t n_predict = p->max_tokens == REQUEST_NO_TOKENS                    ? 0
                              : p->max_tokens == 0 || p->max_tokens == FIELD_NO_MAX ? -1
                                                                                    : p->max_tokens;
    json_object_begin(w, key);
    sampling_add(w, p);
    json_array_begin(w, "stop");
    for (uint32_t i = 0; i < p->n_stops; i++)
        json_add_bytes(w, NULL, p->stops[i].bytes, p->stops[i].len);
    json_array_end(w);
    json_add_int(w, "max_tokens", n_predict);
    json_add_int(w, "n_predict", n_predict);
    json_add_int(w, "n_keep", 0);
    json_add_int(w, "n_discard", 0);
    json_add_bool(w, "ignore_eos", p->ignore_end);
    json_add_bool(w, "stream", p->stream);
    biases_add(w, p, tokens);
    json_add_int(w, "n_probs", p->logprobs ? p->top_logprobs : 0);
    json_add_int(w, "min_keep", 0);
    samplers_write(w, "samplers", p);
    json_add_bool(w, "timings_per_token", p->timings_per_token);
    json_add_bool(w, "post_sampling_probs", p->post_sampling_probs);
    json_array_begin(w, "lora");
    json_array_end(w);
    json_object_end(w);
}

/* ---- slots ---- */

static void busy_slot_write(struct json_writer *w, const struct choice *o)
{
    const struct request *r = &o->request;
    const uint32_t done = atomic_load_explicit(&r->prompt_done, memory_order_relaxed);
    json_add_int(w, "n_prompt_tokens", r->n_tokens);
    json_add_int(w, "n_prompt_tokens_processed", done > o->cached ? done - o->cached : 0);
    json_add_int(w, "n_prompt_tokens_cache", o->cached);
    json_array_begin(w, "next_token");
    json_object_begin(w, NULL);
    json_add_bool(w, "has_next_token", true);
    json_add_bool(w, "has_new_line", o->answer.content.has_new_line);
    json_add_int(w, "n_remain", (int64_t)r->max_tokens - o->n_tokens);
    json_add_int(w, "n_decoded", o->n_tokens);
    json_object_end(w);
    json_array_end(w);
}

static void slot_write(struct json_writer *w, const struct api *api, uint32_t id,
                       const struct choice *o)
{
    json_object_begin(w, NULL);
    json_add_int(w, "id", id);
    json_add_int(w, "n_ctx", api->options->context);
    json_add_bool(w, "speculative", false);
    json_add_bool(w, "is_processing", o != NULL);
    if (o)
        busy_slot_write(w, o);
    json_object_end(w);
}

void completions_write_slots(const struct api *api, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    uint32_t id = 0;
    json_array_begin(&w, NULL);
    for (const struct completion *c = api->completions; c; c = c->next)
        for (uint32_t i = 0; !c->preparing && i < c->running.n_choices; i++) {
            const struct choice *o = &c->running.choices[i];
            if (o->live && o->is_started && id < api->options->max_seqs)
                slot_write(&w, api, id++, o);
        }
    while (id < api->options->max_seqs)
        slot_write(&w, api, id++, NULL);
    json_array_end(&w);
}
