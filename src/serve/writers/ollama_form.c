/* The model as Ollama's API describes it. Pure. */
#include "serve/writers/ollama_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/evp.h>

#include "prompt/infill.h"

/* The model stays loaded while the server runs: a date in the far future. */
#define NEVER "2999-01-01T00:00:00Z"

enum { SHA256_BYTES = 32 };

void ollama_time_write(char out[OLLAMA_TIME_BYTES], int64_t unix_seconds)
{
    struct tm tm;
    time_t time = (time_t)unix_seconds;
    if (!gmtime_r(&time, &tm) || !strftime(out, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(out, OLLAMA_TIME_BYTES, "1970-01-01T00:00:00Z");
}

/* ---- one model ---- */

/* Ollama's names have a tag, and clients compare them with it. */
static void name_add(struct json_writer *w, const char *key, const struct server_options *o)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", o->model_name, strchr(o->model_name, ':') ? "" : ":latest");
    json_add_string(w, key, name);
}

/* Distinguishes models and their versions by what is known about the file, without reading it. */
static void digest_add(struct json_writer *w, const struct server_options *o)
{
    const struct model_facts *m = &o->model;
    char text[512], hex[2 * SHA256_BYTES + 1] = "";
    unsigned char digest[SHA256_BYTES] = {0};
    snprintf(text, sizeof text, "%s %s %" PRIu64 " %" PRIu64 " %" PRId64, o->model_name,
             o->quantisation, m->n_params, m->file_bytes, m->modified_unix);
    EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    json_add_string(w, "digest", hex);
}

static void time_add(struct json_writer *w, const char *key, int64_t unix_seconds)
{
    char time[OLLAMA_TIME_BYTES];
    ollama_time_write(time, unix_seconds);
    json_add_string(w, key, time);
}

static const char *architecture_of(const struct server_options *o)
{
    return o->model.architecture ? o->model.architecture : o->model_name;
}

static void details_add(struct json_writer *w, const struct server_options *o)
{
    const struct model_facts *m = &o->model;
    const double n = (double)m->n_params;
    char size[32];
    if (n >= 1e9)
        snprintf(size, sizeof size, "%.1fB", n / 1e9);
    else if (n >= 1e6)
        snprintf(size, sizeof size, "%.2fM", n / 1e6);
    else
        snprintf(size, sizeof size, "%.0fK", n / 1e3);
    json_object_begin(w, "details");
    json_add_string(w, "parent_model", "");
    json_add_string(w, "format", m->format ? m->format : "");
    json_add_string(w, "family", architecture_of(o));
    json_array_begin(w, "families");
    json_add_string(w, NULL, architecture_of(o));
    json_array_end(w);
    json_add_string(w, "parameter_size", size);
    json_add_string(w, "quantization_level", o->quantisation);
    json_add_int(w, "context_length", o->context);
    json_add_int(w, "embedding_length", m->n_embd);
    json_object_end(w);
}

/* Functions work with any model that has a chat template. */
static void capabilities_add(struct json_writer *w, const struct server_options *o)
{
    const char *why; /* infill is not possible */
    json_array_begin(w, "capabilities");
    json_add_string(w, NULL, "completion");
    if (o->prompt->chat_template)
        json_add_string(w, NULL, "tools");
    if (o->prompt->chat_template && o->prompt->style.think_begin)
        json_add_string(w, NULL, "thinking");
    if (infill_is_possible(o->prompt->tokenizer, &why))
        json_add_string(w, NULL, "insert");
    json_array_end(w);
}

/* ---- lists ---- */

static void model_begin(struct json_writer *w, const struct server_options *o)
{
    json_object_begin(w, NULL);
    json_array_begin(w, "models");
    json_object_begin(w, NULL);
    name_add(w, "name", o);
    name_add(w, "model", o);
}

static void model_end(struct json_writer *w)
{
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
}

void ollama_tags_write(struct json_writer *w, const struct server_options *o)
{
    model_begin(w, o);
    time_add(w, "modified_at", o->model.modified_unix);
    json_add_int(w, "size", (int64_t)o->model.file_bytes);
    digest_add(w, o);
    details_add(w, o);
    capabilities_add(w, o);
    model_end(w);
}

void ollama_ps_write(struct json_writer *w, const struct server_options *o, uint64_t cache_bytes)
{
    const struct engine_info *info = &o->engine->info;
    model_begin(w, o);
    json_add_int(
        w, "size",
        (int64_t)(info->weight_bytes + info->table_bytes + info->buffer_bytes + cache_bytes));
    digest_add(w, o);
    details_add(w, o);
    json_add_string(w, "expires_at", NEVER);
    json_add_int(w, "size_vram", 0);
    json_add_int(w, "context_length", o->context);
    model_end(w);
}

/* ---- details ---- */

/* The defaults of a request, in the form of a Modelfile: one line for each. */
static void parameters_write(struct strbuf *out, const struct server_options *o, const char *before)
{
    const struct sampling *s = &o->sampling;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"num_ctx", o->context},     {"temperature", (double)s->temperature},
        {"top_k", s->top_k},         {"top_p", (double)s->top_p},
        {"min_p", (double)s->min_p}, {"repeat_penalty", (double)s->repetition_penalty},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        strbuf_addf(out, "%s%s%-30s %.7g", i ? "\n" : "", before, rows[i].name, rows[i].value);
}

static void info_add(struct json_writer *w, const struct server_options *o)
{
    const struct model_facts *m = &o->model;
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {
        {"context_length", o->context},
        {"embedding_length", m->n_embd},
        {"block_count", m->n_layers},
        {"attention.head_count", m->n_heads},
        {"attention.head_count_kv", m->n_kv_heads},
    };
    char key[128];
    json_object_begin(w, "model_info");
    json_add_string(w, "general.architecture", architecture_of(o));
    json_add_string(w, "general.basename", o->model_name);
    json_add_int(w, "general.parameter_count", (int64_t)m->n_params);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(key, sizeof key, "%.64s.%s", architecture_of(o), rows[i].name);
        json_add_int(w, key, rows[i].value);
    }
    json_object_end(w);
}

void ollama_show_write(struct json_writer *w, const struct server_options *o)
{
    const struct chat_defaults *chat = &o->prompt->chat;
    struct strbuf text = STRBUF_INIT;
    json_object_begin(w, NULL);
    strbuf_addf(&text, "FROM %s\n", o->model_name);
    parameters_write(&text, o, "PARAMETER ");
    strbuf_addc(&text, '\n');
    json_add_bytes(w, "modelfile", strbuf_str(&text), text.len);
    w->out->failed |= text.failed;
    strbuf_clear(&text);
    parameters_write(&text, o, "");
    json_add_bytes(w, "parameters", strbuf_str(&text), text.len);
    w->out->failed |= text.failed;
    if (chat->chat_template)
        json_add_bytes(w, "template", chat->chat_template, chat->chat_template_len);
    details_add(w, o);
    info_add(w, o);
    capabilities_add(w, o);
    time_add(w, "modified_at", o->model.modified_unix);
    json_object_end(w);
    strbuf_free(&text);
}

void ollama_load_write(struct json_writer *w, const char *model, int64_t created, bool is_chat,
                       const char *reason)
{
    json_object_begin(w, NULL);
    json_add_string(w, "model", model);
    time_add(w, "created_at", created);
    if (is_chat) {
        json_object_begin(w, "message");
        json_add_string(w, "role", "assistant");
        json_add_string(w, "content", "");
        json_object_end(w);
    } else {
        json_add_string(w, "response", "");
    }
    json_add_bool(w, "done", true);
    json_add_string(w, "done_reason", reason);
    json_object_end(w);
}
