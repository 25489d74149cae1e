/* GET /props and GET /slots, as llama-server's clients expect them; both are read-only. Runs on the
 * event loop's thread. */
#include "serve/api_llama.h"

#include "base/json.h"
#include "serve/completion/completion.h"

static void token_add(struct json_writer *w, const char *key, const struct tokenizer *t, int32_t id)
{
    size_t len = 0;
    const char *bytes = id >= 0 ? tokenizer_bytes(t, id, &len) : "";
    json_add_bytes(w, key, bytes, len);
}

static void modalities_add(struct json_writer *w)
{
    json_object_begin(w, "modalities");
    json_add_bool(w, "vision", false);
    json_add_bool(w, "audio", false);
    json_object_end(w);
}

void llama_props(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    const struct server_options *o = api->options;
    const struct prompt_maker *prompt = o->prompt;
    struct request_params defaults = {.sampling = o->sampling, .max_tokens = o->default_max_tokens};
    if (!o->is_seeded)
        defaults.sampling.seed = UINT32_MAX; /* each request gets its own */
    struct strbuf json = STRBUF_INIT;
    struct json_writer w = {.out = &json};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "default_generation_settings");
    settings_write(&w, "params", &defaults, &api->tokens);
    json_add_int(&w, "n_ctx", o->context);
    json_object_end(&w);
    json_add_int(&w, "total_slots", o->max_seqs);
    json_add_string(&w, "model_alias", o->model_name);
    json_add_string(&w, "model_ftype", o->quantisation);
    json_add_string(&w, "model_path", o->model_file);
    modalities_add(&w);
    json_add_bool(&w, "endpoint_slots", true);
    json_add_bool(&w, "endpoint_props", false); /* they cannot be set */
    json_add_bool(&w, "endpoint_metrics", false);
    json_add_bytes(&w, "chat_template",
                   prompt->chat.chat_template ? prompt->chat.chat_template : "",
                   prompt->chat.chat_template ? prompt->chat.chat_template_len : 0);
    token_add(&w, "bos_token", prompt->tokenizer, tokenizer_bos(prompt->tokenizer));
    token_add(&w, "eos_token", prompt->tokenizer, tokenizer_eos(prompt->tokenizer));
    json_add_string(&w, "build_info", api->fingerprint);
    json_add_bool(&w, "is_sleeping", false);
    json_object_end(&w);
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}

void llama_slots(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct strbuf json = STRBUF_INIT;
    completions_write_slots(api, &json);
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}
