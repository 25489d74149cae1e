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

static void reply(const struct api *api, struct http_exchange *x,
                  void (*write)(struct json_writer *w, const struct server_options *o))
{
    struct strbuf json = STRBUF_INIT;
    write(&(struct json_writer){.out = &json}, api->options);
    api_reply_json(x, 200, &json);
    strbuf_free(&json);
}

void ollama_get_tags(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    reply(api, x, ollama_tags_write);
}

void ollama_get_ps(struct api *api, struct http_exchange *x, const struct requester *who)
{
    (void)who;
    reply(api, x, ollama_ps_write);
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
