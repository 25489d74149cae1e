/* Ollama's routes. Answers are the same completions as in the other APIs, with their own request
 * fields and their own writer. Runs on the event loop's thread. */
#include "serve/api_ollama.h"

#include <string.h>

#include "serve/completion/completion.h"
#include "serve/writers/ollama_form.h"

void ollama_chat_begin(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_OLLAMA_CHAT);
}

void ollama_generate_begin(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_OLLAMA_GENERATE);
}

void ollama_show_begin(struct api *api, struct http_exchange *x, const struct requester *who)
{
    completion_begin(api, x, who, REQUEST_OLLAMA_SHOW);
}

void ollama_get_tags(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct strbuf json = STRBUF_INIT;
    ollama_tags_write(&(struct json_writer){.out = &json}, api->options);
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}

/* The cache's pages that are in use, in bytes. */
static uint64_t cache_bytes(const struct api *api)
{
    const struct kv_group *groups = api->options->engine->info.groups;
    struct scheduler_stats s;
    scheduler_read_stats(api->scheduler, &s);
    uint64_t n_bytes = (uint64_t)(s.n_pages - s.n_free) * groups[0].page_bytes;
    for (size_t i = 0; i < TREE_MAX_SIDES; i++)
        n_bytes += (uint64_t)(s.sides[i].n_pages - s.sides[i].n_free) * groups[1 + i].page_bytes;
    return n_bytes;
}

void ollama_get_ps(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    struct strbuf json = STRBUF_INIT;
    ollama_ps_write(&(struct json_writer){.out = &json}, api->options, cache_bytes(api));
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}

void ollama_get_version(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)api, (void)who;
    static const char version[] = "{\"version\":\"" OLLAMA_API_VERSION
                                  "\",\"radish_version\":\"" RADISH_VERSION "\"}";
    http_reply(x, 200, "application/json", version, sizeof version - 1);
}

void ollama_refuse(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    static const char start[] = "radish serves only the model that it was started with; to serve "
                                "another, restart it with -m FILE";
    static const struct {
        const char *path;
        int status;
        const char *message;
    } refused[] = {
        {"/api/embed", 501, "radish does not support embeddings"},
        {"/api/blobs/", 404, "radish has no blobs; to serve a model, start it with -m FILE"},
        {"/api/", 501, start},
    };
    struct api_error e;
    const char *path = http_parser_target(http_request(x));
    size_t i = 0;
    while (strncmp(path, refused[i].path, strlen(refused[i].path)) != 0 &&
           i + 1 < sizeof refused / sizeof *refused)
        i++;
    api_error_set(&e, refused[i].status, NULL, "%s (this server's model is '%s')",
                  refused[i].message, api->options->model_name);
    api_reply_error(x, &e);
}
