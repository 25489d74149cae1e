#ifndef RADISH_SERVE_API_SERVER_OPTIONS_H
#define RADISH_SERVE_API_SERVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"
#include "prompt/prompt.h"
#include "sched/sampler.h"
#include "serve/api/api_keys.h"
#include "serve/http/listener.h"

/* What clients may learn about the model besides its name. NULL, 0: unknown. */
struct model_facts {
    const char *architecture; /* "llama" */
    const char *format;       /* "gguf" or "safetensors" */
    uint64_t n_params, file_bytes;
    int64_t modified_unix;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads;
};

/* The operator's settings. They do not change while the server runs, except for the keys. */
struct server_options {
    uint64_t start_ns, start_bytes; /* time and memory at the start of the process, for the log */

    const char *host;                 /* as given to --host, for the check of Host */
    struct http_listeners *listeners; /* closed when the server stops */
    struct tls_context *tls;          /* NULL: plain text; the caller closes it after server_run */

    struct engine *engine; /* the caller closes it after server_run */
    const struct prompt_maker *prompt;
    const char *model_name;   /* what the API calls the model */
    const char *other_names;  /* more names of it there, "a,b"; NULL: none */
    const char *model_file;   /* its file or directory, without the path; "": none */
    const char *quantisation; /* the type of most of its weights */
    struct model_facts model;
    const char *quantize;        /* the type they were quantized to at load; NULL: none */
    bool is_fallback;            /* the mock engine, because the model failed to load */
    uint32_t model_context;      /* the model's maximum; 0: any */
    struct sampling sampling;    /* for requests without settings */
    bool is_seeded;              /* ... and its seed; otherwise each answer gets a random one */
    uint32_t context;            /* positions in a conversation, prompt and answer */
    uint32_t max_seqs;           /* conversations that run at once */
    uint32_t max_waiting;        /* in addition; beyond that, 429 */
    uint32_t step_budget_ms;     /* the planned maximum for a step of the scheduler */
    uint64_t cache_ttl_ms;       /* idle cache entries expire after this; 0: never */
    bool no_prefix_cache;        /* as if every request said cache_prompt: false */
    bool no_token_replay;        /* as if every request said replay: false */
    uint32_t default_max_tokens; /* if a request has none; 0: the rest of the context */

    uint32_t n_workers;
    uint32_t max_connections;
    uint32_t max_connections_per_address; /* 0: no limit */
    size_t max_header_bytes, max_body_bytes;
    size_t max_unsent_bytes;     /* of all answers */
    unsigned header_timeout_ms;  /* for a whole header, from its first byte or the connection */
    unsigned body_timeout_ms;    /* for a body, unless it still grows */
    unsigned idle_timeout_ms;    /* between requests on a kept connection */
    unsigned write_timeout_ms;   /* a client that reads nothing for this long is gone */
    unsigned request_timeout_ms; /* for an answer, from the end of the request; 0: none */
    unsigned shutdown_grace_ms;  /* after a signal, for answers in progress */

    bool strict_fields;               /* unknown request fields are errors */
    bool strict_model;                /* other model names are errors */
    const char *const *allowed_hosts; /* [n_allowed_hosts] beside loopback and `host` */
    size_t n_allowed_hosts;
    const char *const *allowed_origins; /* [n_allowed_origins] beside loopback and the same host */
    size_t n_allowed_origins;
    struct api_keys *keys;   /* the caller's; without any, no key is needed. They change
                              * when they are read again */
    struct limit_set limits; /* of each key or address that has no others */
    bool share_cache;        /* tenants see each other's cached prompts */
    const char *const
        *shared_prompts; /* [n_shared_prompts] files of system prompts that all share */
    size_t n_shared_prompts;
    uint32_t tenant_pages; /* limit for one tenant's part of the cache; 0: none */
};

#define SERVER_OPTIONS_DEFAULT                                                                     \
    {                                                                                              \
        .host = "127.0.0.1", .model_file = "", .sampling = SAMPLING_DEFAULT, .context = 4096,      \
        .max_seqs = 16, .max_waiting = 256, .step_budget_ms = 50, .cache_ttl_ms = 30 * 60 * 1000,  \
        .n_workers = 2, .max_connections = 1024, .max_header_bytes = 32 << 10,                     \
        .max_body_bytes = 32 << 20, .max_unsent_bytes = 256 << 20, .header_timeout_ms = 15000,     \
        .body_timeout_ms = 60000, .idle_timeout_ms = 75000, .write_timeout_ms = 60000,             \
        .shutdown_grace_ms = 10000                                                                 \
    }

#endif
