#ifndef RADISH_SERVE_API_SERVER_OPTIONS_H
#define RADISH_SERVE_API_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "prompt/prompt.h"
#include "sched/sampler.h"
#include "serve/api/api_keys.h"

/* What clients may be told of the model besides its name. NULL, 0: it is not known. */
struct model_facts {
    const char *architecture; /* "llama" */
    const char *format;       /* "gguf" or "safetensors" */
    uint64_t n_params, file_bytes;
    int64_t modified_unix;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads;
};

/* What the operator has chosen. It does not change while the server runs. */
struct server_options {
    uint64_t start_ns, start_bytes; /* the process's first time and memory, for the log */

    const char *host; /* a name or an address, also [::1] */
    uint16_t port;    /* 0: any free one, which the log line names */
    int listen_fd;    /* a socket that listens there already; 0: none */

    struct engine *engine; /* the caller closes it after server_run */
    const struct prompt_maker *prompt;
    const char *model_name;   /* what the API calls the model */
    const char *other_names;  /* that it has there, "a,b"; NULL: none */
    const char *model_file;   /* its file or directory, without the way there; "": none */
    const char *quantisation; /* the type of most of its weights */
    struct model_facts model;
    const char *quantize;        /* the type they were quantized to at load; NULL: none */
    bool is_fallback;            /* the mock engine, because the model failed to load */
    uint32_t model_context;      /* the largest that the model allows; 0: any */
    struct sampling sampling;    /* of requests that name no settings */
    bool is_seeded;              /* ... with its seed; else each answer gets a random one */
    uint32_t context;            /* positions in a conversation, prompt and answer */
    uint32_t max_seqs;           /* conversations that run at once */
    uint32_t max_waiting;        /* beyond those; past it 429 */
    uint32_t step_budget_ms;     /* a step of the scheduler is planned to take at most this */
    uint64_t cache_ttl_ms;       /* idle cache entries go after this; 0: never */
    bool no_prefix_cache;        /* as if every request said cache_prompt: false */
    bool no_token_replay;        /* as if every request said replay: false */
    uint32_t default_max_tokens; /* when a request names none; 0: what is left of the context */

    uint32_t n_workers;
    uint32_t max_connections;
    size_t max_header_bytes, max_body_bytes;
    unsigned header_timeout_ms;  /* for a whole header, from its first byte or the connection */
    unsigned body_timeout_ms;    /* for a whole body */
    unsigned idle_timeout_ms;    /* between requests on a kept connection */
    unsigned write_timeout_ms;   /* a client that takes nothing for so long is gone */
    unsigned request_timeout_ms; /* for an answer, from the end of the request; 0: none */
    unsigned shutdown_grace_ms;  /* after a signal, for what is being answered */

    bool strict_fields;               /* unknown request fields are errors */
    bool strict_model;                /* another model's name is an error */
    const char *const *allowed_hosts; /* [n_allowed_hosts] beside loopback and `host` */
    size_t n_allowed_hosts;
    struct api_keys keys; /* none: anyone who gets this far may ask */
    bool share_cache;     /* tenants see each other's cached prompts */
    const char *const
        *shared_prompts; /* [n_shared_prompts] files of system prompts that all share */
    size_t n_shared_prompts;
    uint32_t tenant_pages; /* most that one tenant's part of the cache may have; 0: no cap */
};

#define SERVER_OPTIONS_DEFAULT                                                                     \
    {                                                                                              \
        .host = "127.0.0.1", .port = 8080, .model_file = "", .sampling = SAMPLING_DEFAULT,         \
        .context = 4096, .max_seqs = 16, .max_waiting = 256, .step_budget_ms = 50,                 \
        .cache_ttl_ms = 30 * 60 * 1000, .n_workers = 2, .max_connections = 1024,                   \
        .max_header_bytes = 32 << 10, .max_body_bytes = 32 << 20, .header_timeout_ms = 15000,      \
        .body_timeout_ms = 60000, .idle_timeout_ms = 75000, .write_timeout_ms = 60000,             \
        .shutdown_grace_ms = 10000                                                                 \
    }

#endif
