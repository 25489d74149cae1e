/* Prints docs/api.md from the table of request fields: `make docs`. A test compares the two. */
#include <stdio.h>

#include "serve/request_fields.h"

static const char *const scope_titles[FIELD_SCOPES] = {
    [SCOPE_REQUEST] = "Fields of a request",
    [SCOPE_WARM] = "Fields of a warming",
    [SCOPE_MESSAGE] = "Fields of a message",
    [SCOPE_PART] = "Fields of a content part",
    [SCOPE_STREAM_OPTIONS] = "Fields of `stream_options`",
    [SCOPE_RADISH] = "Fields of `radish`",
};

static const char *const kind_names[] = {
    [KIND_ANY] = "any",       [KIND_BOOL] = "boolean",  [KIND_INT] = "integer",
    [KIND_NUMBER] = "number", [KIND_STRING] = "string", [KIND_ARRAY] = "array",
    [KIND_OBJECT] = "object",
};

static void range_print(const struct request_field *f)
{
    if (f->class == FIELD_SERVED && f->max == FIELD_NO_MAX)
        printf(" from %g", f->min);
    else if (f->class == FIELD_SERVED && f->max > f->min)
        printf(", %g to %g", f->min, f->max);
}

static void class_print(enum field_scope scope, enum field_class class, const char *title)
{
    bool begun = false;
    for (size_t i = 0; i < n_request_fields; i++) {
        const struct request_field *f = &request_fields[i];
        if (f->scope != scope || f->class != class)
            continue;
        if (!begun)
            printf("\n**%s**\n\n| field | %s | |\n|---|---|---|\n", title,
                   class == FIELD_SERVED    ? "type"
                   : class == FIELD_REFUSED ? "accepted when"
                                            : "");
        begun = true;
        printf("| `%s` | ", f->name);
        if (class == FIELD_SERVED) {
            printf("%s", kind_names[f->kind]);
            range_print(f);
        } else if (class == FIELD_REFUSED && f->neutral) {
            printf("null or `%s`", f->neutral);
        } else if (class == FIELD_REFUSED) {
            printf("null");
        }
        printf(" | %s |\n", f->text);
    }
}

static void answers_print(void)
{
    printf(
        "\n## Why no more was cached\n\n"
        "With `\"radish\": {\"explain\": true}` in the request, or the header\n"
        "`x-radish-explain: true`, the answer has a member `radish`; a stream has it in one more\n"
        "chunk, the last before `[DONE]`. With `n` it tells of the first choice.\n\n"
        "| member | |\n|---|---|\n"
        "| `prompt_tokens`, `cached_tokens` | as in `usage` |\n"
        "| `shared_tokens` | of `cached_tokens`: computed by another request while this one "
        "waited |\n"
        "| `computed_tokens` | the rest |\n"
        "| `replayed_tokens` | tokens of earlier answers that are the sampled ones |\n"
        "| `replay` | for each message of the assistant: its index, `tokens` of `sampled` that "
        "were "
        "replayed, why it `stopped` (`complete`, `trimmed`, `stripped`, `shortened`, `rewritten`, "
        "or "
        "`unknown`: no such answer was given here) and the `position` in the prompt; null when it "
        "is switched off |\n"
        "| `miss` | null when all but the last token was cached, else the first token that was "
        "not |\n\n"
        "A `miss` has its `position`, the `message` and `role` that it lies in (null in what the\n"
        "template wrote; then `precedes_message`), the texts `before` it and from it on\n"
        "(`prompt_text`, up to 8 tokens each), a `reason`, and a sentence for a person in "
        "`detail`:\n\n"
        "| `reason` | |\n|---|---|\n"
        "| `never_seen` | the cache ends there, and never went on |\n"
        "| `diverged` | the cache goes on with something else: `cached_text`, shown to the "
        "operator "
        "and of a tenant's own |\n"
        "| `evicted` | it was cached, and pages were needed: `gone_s` ago, after `idle_s` without "
        "use |\n"
        "| `expired` | the same, after `--cache-ttl` without use |\n"
        "| `cleared` | the same, by request or because it could not be trusted |\n"
        "| `namespace` | another `tenant` has it (`tenant_tokens` of the prompt); told to the "
        "operator only |\n"
        "| `disabled` | `cache_prompt: false`, or `--no-prefix-cache` |\n\n"
        "`--log-level debug` has a line for every request, without any text of it.\n\n"
        "## Exact token replay\n\n"
        "A text has many tokenisations, and a sampled answer is not always the tokenizer's own.\n"
        "An answer that comes back as text in a later turn becomes the very tokens that were\n"
        "sampled, as far as its bytes are those that the template renders, so that the turn finds\n"
        "all of the one before in the cache. The text of the prompt is the same with and without;\n"
        "other roles' messages are never touched; tenants never meet each other's answers. The\n"
        "header `x-radish-replayed-tokens` counts them; `\"replay\": false` and the server's\n"
        "`--no-token-replay` switch it off.\n\n"
        "## Warming\n\n"
        "`POST /v1/cache/warm` takes the body of a chat completion and computes its prompt, so "
        "that\n"
        "what begins like it finds it in the cache. Nothing is generated, and no answer is begun\n"
        "(`add_generation_prompt`). It answers with `prompt_tokens`, `cached_tokens`,\n"
        "`computed_tokens`, `pinned`, `pinned_s`, and with a `reason` when a `pin` was refused\n"
        "because too much is pinned already. Other fields are those of a request.\n");
}

int main(void)
{
    printf(
        "# The API\n\n"
        "<!-- Made by `make docs` from the table in src/serve/request_fields.c. -->\n\n"
        "| route | what it gives |\n|---|---|\n"
        "| `POST /v1/chat/completions` | an answer, whole or streamed, in OpenAI's form |\n"
        "| `POST /v1/cache/warm` | a prompt in the cache before it is asked for |\n"
        "| `GET /v1/models`, `GET /v1/models/{id}` | the model and its context window |\n"
        "| `GET /health` | `{\"status\":\"ok\"}`; 503 and `stopping` while it shuts down |\n"
        "| `GET /stats` | counters of the scheduler and the cache |\n\n"
        "Errors are OpenAI's error object. A request that finds the queue full gets 429 with\n"
        "`Retry-After`; a prompt longer than the context gets 400 `context_length_exceeded`.\n"
        "With a model that has no chat template every chat request gets 501.\n"
        "An error after a stream has begun comes as an event in it. A client that hangs up stops\n"
        "its work; so does one that closes its sending side while a request runs.\n\n"
        "On SIGINT or SIGTERM answers in progress have `--shutdown-grace` seconds to finish, and\n"
        "then end with the error `server_stopping`, as they do at once on a second signal. As "
        "long\n"
        "as there are any, `/health` says `stopping` and a new chat request gets 503.\n\n"
        "Any web page can make a browser talk to a server on its machine, so `Host` and `Origin`\n"
        "must be loopback, the address that the server listens on or was reached by, or an\n"
        "`--allowed-host`; others get 403. Behind a proxy that keeps the client's `Host`, or in a\n"
        "container that others reach by name, give each name (`--allowed-host api.example`, also\n"
        "with a port); `--allowed-host '*'` takes all, for a server that something else protects.\n"
        "A POST must be `Content-Type: application/json` without a `Content-Encoding`, else 415,\n"
        "and no larger than `--max-body-mib`, else 413.\n\n"
        "`usage.prompt_tokens_details.cached_tokens` says how much of the prompt came from the\n"
        "cache, always; with `n` it is the least over the choices. `null` is the same as absent.\n"
        "Fields that stand in no table below are ignored and named in the `x-radish-ignored`\n"
        "header of the answer; with `--strict-fields` they are errors.\n");
    answers_print();
    for (enum field_scope scope = SCOPE_REQUEST; scope < FIELD_SCOPES; scope++) {
        printf("\n## %s\n", scope_titles[scope]);
        class_print(scope, FIELD_SERVED, "Served");
        class_print(scope, FIELD_INERT, "Accepted, without meaning here");
        class_print(scope, FIELD_REFUSED, "Refused, because they cannot be honoured");
    }
    return 0;
}
