/* Prints docs/api.md from the tables of routes and request fields and from tools/api_examples.md,
 * which it looks for from the top of the repository: `make docs`. A test compares the two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/request/fields.h"
#include "serve/routes.h"

static const char *const scope_titles[FIELD_SCOPES] = {
    [SCOPE_REQUEST] = "Fields of a chat completion",
    [SCOPE_TEXT] = "Fields of a text completion",
    [SCOPE_LLAMA] = "Fields of `/completion`",
    [SCOPE_INFILL] = "Fields of `/infill`",
    [SCOPE_EXTRA] = "Fields of `input_extra[]`",
    [SCOPE_WARM] = "Fields of `/v1/cache/warm`",
    [SCOPE_RENDER] = "Fields of `/apply-template` and `/v1/chat/completions/input_tokens`",
    [SCOPE_TOKENIZE] = "Fields of `/tokenize`",
    [SCOPE_DETOKENIZE] = "Fields of `/detokenize`",
    [SCOPE_MESSAGE] = "Fields of a message",
    [SCOPE_PART] = "Fields of a content part",
    [SCOPE_CALL] = "Fields of a message's `tool_calls[]`",
    [SCOPE_CALLED] = "Fields of a message's `tool_calls[].function`",
    [SCOPE_TOOL] = "Fields of `tools[]`",
    [SCOPE_FUNCTION] = "Fields of `tools[].function`",
    [SCOPE_RESPONSE_FORMAT] = "Fields of `response_format`",
    [SCOPE_JSON_SCHEMA] = "Fields of `response_format.json_schema`",
    [SCOPE_STRUCTURED] = "Fields of `structured_outputs`",
    [SCOPE_THINKING] = "Fields of `thinking`",
    [SCOPE_REASONING] = "Fields of `reasoning`",
    [SCOPE_STREAM_OPTIONS] = "Fields of `stream_options`",
    [SCOPE_RADISH] = "Fields of `radish`",
    [SCOPE_OLLAMA] = "Fields of `/api/chat` and `/api/generate`",
    [SCOPE_OLLAMA_CHAT] = "Fields of `/api/chat`",
    [SCOPE_OLLAMA_GENERATE] = "Fields of `/api/generate`",
    [SCOPE_OLLAMA_OPTIONS] = "Fields of Ollama's `options`",
    [SCOPE_OLLAMA_MESSAGE] = "Fields of a message of `/api/chat`",
    [SCOPE_OLLAMA_SHOW] = "Fields of `/api/show`",
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

/* "null, `0` or `-1`": `values` is separated by spaces. */
static void neutral_print(const char *values)
{
    printf("null");
    for (const char *at = values; *at;) {
        size_t len = strcspn(at, " ");
        const char *next = at + len + (at[len] == ' ');
        printf("%s`%.*s`", *next ? ", " : " or ", (int)len, at);
        at = next;
    }
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
            neutral_print(f->neutral);
        } else if (class == FIELD_REFUSED) {
            printf("null");
        }
        printf(" | %s |\n", f->text);
    }
}

static void answers_print(void)
{
    printf(
        "\n"
        "## Why was this not cached?\n"
        "\n"
        "Send `\"radish\": {\"explain\": true}` in the request, or the header `x-radish-explain: "
        "true`,\n"
        "and the response has a member `radish`. A stream has it in an extra chunk, the last "
        "before\n"
        "`[DONE]`. With `n`, it describes the first choice. With OpenAI's Python SDK:\n"
        "`create(..., extra_body={\"radish\": {\"explain\": True}}).radish`.\n"
        "\n"
        "| member | |\n"
        "|---|---|\n"
        "| `prompt_tokens`, `cached_tokens` | as in `usage` |\n"
        "| `shared_tokens` | of `cached_tokens`: computed by another request while this one waited "
        "|\n"
        "| `computed_tokens` | the rest |\n"
        "| `replayed_tokens` | tokens of earlier answers that were reused as sampled |\n"
        "| `replay` | for each assistant message: its index, how many `tokens` of `sampled` were "
        "replayed, why it `stopped` (`complete`, `ended` before its end token, `trimmed`, "
        "`stripped`, `shortened`, `rewritten`, or `unknown`: this server gave no such answer), and "
        "its `position` in the prompt; null when replay is off |\n"
        "| `miss` | the first token that was not cached; null when all but the last token was |\n"
        "\n"
        "A `miss` has its `position`, the `message` and `role` it is in (null in text that the\n"
        "template wrote; then `precedes_message`), the texts before and after that position\n"
        "(`before` and `prompt_text`, up to 8 tokens each), a `reason`, and a readable sentence "
        "in\n"
        "`detail`:\n"
        "\n"
        "| `reason` | |\n"
        "|---|---|\n"
        "| `never_seen` | the cached prefix ends there, and was never longer |\n"
        "| `diverged` | the cache continues differently, perhaps with the same text in other "
        "tokens: `cached_text`, shown to admins, and to tenants for their own entries |\n"
        "| `evicted` | it was cached (`gone_tokens` from the position on), but its pages were "
        "needed: `gone_s` seconds ago, after `idle_s` seconds without use |\n"
        "| `expired` | the same, after `--cache-ttl` without use |\n"
        "| `cleared` | the same, by request or because it could not be trusted |\n"
        "| `namespace` | another `tenant` has it (`tenant_tokens` of the prompt, if known); shown "
        "to admins only |\n"
        "| `window` | it is cached, but not what layers with a sliding window need to continue "
        "there |\n"
        "| `disabled` | `cache_prompt: false`, or `--no-prefix-cache` |\n"
        "\n"
        "`--log-level debug` logs a line for every request, without its text.\n"
        "\n"
        "## Exact token replay\n"
        "\n"
        "A text has many tokenizations, and a sampled answer is not always the tokenizer's own.\n"
        "When an answer comes back as text in a later turn, radish reuses the sampled tokens, as "
        "far\n"
        "as their bytes match what the template renders. So the turn finds all of the previous "
        "one\n"
        "in the cache. The text of the prompt is the same with and without replay. Messages of "
        "other\n"
        "roles are never touched, and tenants never see each other's answers. The header\n"
        "`x-radish-replayed-tokens` counts replayed tokens. `\"replay\": false` turns replay off, "
        "and so\n"
        "does `--no-token-replay` for the server.\n"
        "\n"
        "## Warming\n"
        "\n"
        "`POST /v1/cache/warm` takes the body of a chat completion and computes its prompt, so "
        "that\n"
        "requests that begin like it find it in the cache. Nothing is generated, and the prompt\n"
        "does not begin an answer (`add_generation_prompt`). The response has `prompt_tokens`,\n"
        "`cached_tokens`, `computed_tokens`, `pinned`, `pinned_s`, and a `reason` if a `pin` was\n"
        "rejected because too much is pinned already. At most half of the cache can be pinned, "
        "and\n"
        "tenants have equal shares of that: a pin ends early if its tenant holds more than its "
        "share\n"
        "and another tenant claims its own. Other fields are those of a chat completion.\n");
}

static void llama_print(void)
{
    printf(
        "\n"
        "## llama-server's API\n"
        "\n"
        "llama-server's clients work with radish unchanged: `/completion`, `/infill`, `/props`,\n"
        "`/slots`, `/tokenize`, `/detokenize` and `/apply-template` take the same requests and "
        "give the\n"
        "same responses. `/completions` is OpenAI's, the same as `/v1/completions`.\n"
        "\n"
        "```sh\n"
        "curl http://127.0.0.1:8080/completion -H 'Content-Type: application/json' -d '{\n"
        "  \"prompt\": \"The sky is\", \"n_predict\": 8, \"response_fields\":\n"
        "  [\"content\", \"stop_type\", \"timings/predicted_per_second\"]}'\n"
        "```\n"
        "\n"
        "`/infill` fills in the text at an editor's cursor, for llama.vim and llama.vscode. It\n"
        "needs a model with fill-in-the-middle tokens, such as Qwen2.5-Coder; other models get "
        "501.\n"
        "The prompt is the same that llama-server builds with its default `--batch-size` of 2048:\n"
        "1,536 tokens before the cursor, 510 after it, and other files (`input_extra`) in the rest "
        "of\n"
        "the context. If that does not fit, radish cuts it further instead of rejecting the "
        "request.\n"
        "\n"
        "`/slots` shows one element for each answer that can run at once (`--max-seqs`), with its\n"
        "counters and without any text. It cannot save, restore or erase anything: the prefix "
        "cache\n"
        "replaces slots. `id_slot` is -1 in responses.\n"
        "\n"
        "Every completion, including OpenAI's, has `timings`: tokens, milliseconds and tokens per "
        "second "
        "of\n"
        "the prompt (`prompt_*`, without the `cache_n` cached tokens) and of the answer\n"
        "(`predicted_*`). With `return_progress`, a stream has `prompt_progress` events:\n"
        "`{\"total\": 1200, \"cache\": 200, \"processed\": 712, \"time_ms\": 350}`.\n");
}

static void forms_print(void)
{
    printf(
        "\n"
        "## Structured answers\n"
        "\n"
        "`response_format`, `json_schema`, `grammar`, `regex`, `structured_outputs` and "
        "`guided_*`\n"
        "constrain the text of an answer; `tool_choice` and `tools[].function.parameters` "
        "constrain its\n"
        "calls. Each token is sampled from those that can still lead to a valid end. When "
        "`max_tokens`\n"
        "leaves just enough room for the shortest valid end of a text, that end is used, and\n"
        "`finish_reason` is `length`. Thinking comes before the constrained text and is not "
        "constrained.\n"
        "A constraint that radish cannot enforce gets 400 before anything is generated, and the "
        "error\n"
        "says which part of it is not supported.\n"
        "\n"
        "**JSON schemas** (drafts 4 to 2020-12): `type`, `properties`, `required`,\n"
        "`additionalProperties`, `patternProperties`, `propertyNames`, `minProperties`,\n"
        "`maxProperties`, `items`, `prefixItems`, `additionalItems`, `minItems`, `maxItems`,\n"
        "`enum`, `const`, `anyOf`, `oneOf`, `allOf`, `$ref` within the schema (recursive too),\n"
        "`minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum` (exact at any size),\n"
        "`minLength`, `maxLength`, `pattern`, `format` (unknown formats are ignored).\n"
        "Some keywords are supported in part:\n\n"
        "| keyword | supported |\n|---|---|\n"
        "| `not`, `if`, `oneOf` with overlapping branches | the negated schema may use `type`, "
        "`enum`, `const`, bounds, lengths, sizes, `pattern`, `required`, `properties`, `items`, "
        "`contains`, `anyOf`, `oneOf`, `allOf`, `not` and `$ref`. Values that violate nothing "
        "but other keywords are not generated; if no values are left, that is an error |\n"
        "| `dependentRequired`, `dependentSchemas`, `dependencies` | yes; many of them together "
        "may "
        "need too many alternatives |\n"
        "| `uniqueItems` | items that are strings, integers or unbounded numbers, up to 1,024 of "
        "them, each in its plainest spelling (no `\\u0061`, `1.0` or `1e0`) and with at most 15 "
        "digits in "
        "a fraction; a `pattern` or "
        "`format` only with a `minItems` of at most 1; items with at most 128 possible values "
        "(`enum`, `const`, booleans, null): up to 6 in any order, more in the order of the schema; "
        "or `maxItems` of 1 |\n"
        "| `contains`, `minContains`, `maxContains` | one per array, without `prefixItems`; "
        "several "
        "required items come first |\n"
        "| `multipleOf` | up to three significant digits, or 1000: 0.01, 0.25, 7, 86400 |\n"
        "| `unevaluatedProperties`, `unevaluatedItems` | `false` in the outermost schema; for "
        "items, "
        "if no other schema applies to the same array |\n\n"
        "Everything else is rejected by name, for example look-around in patterns and references "
        "to\n"
        "other documents. If only some branches of an `anyOf` cannot be enforced, the others are\n"
        "served, unless only null is left; the same goes for a `oneOf` whose branches do not\n"
        "overlap. Tools without `strict` ignore keywords that cannot be enforced.\n\n"
        "Answers may be narrower than the schema, never wider. Members come in\n"
        "the order of `properties`, followed by any others. An object whose schema names "
        "properties\n"
        "and does not mention others has only those. Integers have up to 40 digits, numbers up to\n"
        "40 after the point and magnitudes up to 1.7e308. White space is only what a pretty "
        "printer\n"
        "would write. "
        "Schemas are always enforced, with or without `strict`.\n\n"
        "**GBNF** is llama.cpp's, without references to tokens. **Regular expressions** match the\n"
        "whole text; look-around, back references and `\\b` are rejected.\n"
        "\n"
        "## Tools and thinking\n"
        "\n"
        "If the model's chat template supports tools, it puts the functions into the prompt. "
        "Otherwise\n"
        "a system prompt explains how to call them. Calls are recognized in the format that the "
        "model\n"
        "writes; `--tool-format` selects one: `hermes`, `qwen-coder`, `llama3`, `mistral`,\n"
        "`gemma-code`, `gemma`, `deepseek`, `glm`, `kimi`, `kimi-k3`, `minimax`,\n"
        "`harmony`, `functionary`, `json`.\n"
        "Text that only looks like a call, or that calls a function that is not in `tools`, stays "
        "text.\n"
        "\n"
        "With `auto`, a call that has begun must follow its function's schema. This needs a format "
        "that\n"
        "marks calls; bare JSON does not. With `required` or the name of a function, the answer "
        "consists\n"
        "of calls only. With `none`, the model cannot write the marker of a call. Parts of a "
        "schema that\n"
        "cannot be enforced are ignored, unless the function is `strict`: then they are an error.\n"
        "\n"
        "A call that is cut off is returned with the arguments that were generated so far, and\n"
        "`finish_reason` is never `tool_calls`. An answer has at most 128 calls. A call that "
        "repeats an\n"
        "earlier one, with the same name and equal arguments, is dropped and ends the answer. "
        "Calls in\n"
        "`messages` may have arguments that are not a JSON object.\n"
        "\n"
        "Thinking is returned in `reasoning_content` of messages and deltas. Its tokens are "
        "counted in\n"
        "`usage.completion_tokens_details.reasoning_tokens`. Calls inside thinking are not calls. "
        "The\n"
        "template decides whether earlier thinking is shown or dropped.\n"
        "\n"
        "## Sampling\n"
        "\n"
        "The steps are, in this order: `logit_bias`, penalties (repetition, then frequency and "
        "presence;\n"
        "over the answer's tokens, not the prompt's), DRY (over both), the constraints on the "
        "answer,\n"
        "`temperature`, `top_n_sigma`, `top_k`, `typical_p`, `top_p`, `min_p`, XTC. The same\n"
        "request with the same `seed` gets the same answer, whatever else the server is doing. "
        "Log\n"
        "probabilities are the model's own, before all of these steps.\n");
}

static void ollama_print(void)
{
    printf(
        "\n"
        "## Ollama's API\n"
        "\n"
        "Ollama's clients work with `OLLAMA_HOST=http://127.0.0.1:8080`, or with that address in "
        "their\n"
        "settings: Open WebUI, Continue, and the `ollama` packages for Python and JavaScript. "
        "Their\n"
        "requests share the cache with all others.\n"
        "\n"
        "```\n"
        "curl http://127.0.0.1:8080/api/chat \\\n"
        "     -d '{\"model\": \"any\", \"messages\": [{\"role\": \"user\", \"content\": "
        "\"Hello!\"}]}'\n\n"
        "{\"model\":\"any\",\"created_at\":\"2026-07-01T09:30:00Z\","
        "\"message\":{\"role\":\"assistant\",\"content\":\"Hello\"},\"done\":false}\n"
        "...\n"
        "{\"model\":\"any\",\"created_at\":\"2026-07-01T09:30:00Z\","
        "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
        "\"done_reason\":\"stop\",\"total_duration\":129405806,\"load_duration\":0,"
        "\"prompt_eval_count\":32,\"prompt_eval_duration\":36258543,\"eval_count\":9,"
        "\"eval_duration\":54503930}\n"
        "```\n\n"
        "Only requests with a browser's headers need a `Content-Type` (see above). A stream is\n"
        "NDJSON: one object per line, the last one with `done: true`. During pauses, a space is\n"
        "sent every 10 seconds, so a line may begin with spaces. Durations are in nanoseconds:\n"
        "`prompt_eval_duration` from admission to the first token, `eval_duration` from there to\n"
        "the end, and `total_duration` from the request to the end, including the time in the "
        "queue. The\n"
        "model is always loaded, so `load_duration` is 0. `prompt_eval_count` includes cached "
        "tokens. An\n"
        "error after a stream has begun is a line `{\"error\": \"...\"}`.\n"
        "\n"
        "Thinking is in `message.thinking` (`thinking` for `/api/generate`). A call in\n"
        "`message.tool_calls` is sent whole, in one line; a call that `num_predict` cuts off is "
        "left\n"
        "out. In lists, the model's name has the tag `:latest`; requests may use the name with or\n"
        "without it. `/api/version` gives the version of Ollama whose API this is, because "
        "clients\n"
        "choose features by it, and radish's own version in `radish_version`. The `digest` of a "
        "model\n"
        "changes with its file, but is not a checksum of it.\n"
        "\n"
        "Not supported: embeddings, images, `context`, `template`, and managing models (`pull`, "
        "`push`,\n"
        "`create`, `copy`, `delete`). `keep_alive` and `num_ctx` have no effect.\n");
}

static void routes_print(void)
{
    static const char *const methods[] = {
        [HTTP_GET] = "GET", [HTTP_POST] = "POST", [HTTP_DELETE] = "DELETE"};
    printf("| route | access | |\n|---|---|---|\n");
    for (size_t i = 0; i < n_api_routes; i++) {
        const struct route *r = &api_routes[i];
        bool is_open = r->path[1] && r->path[strlen(r->path) - 1] == '/';
        printf("| `%s %s%s` | %s | %s |\n", methods[r->method], r->path, is_open ? "{id}" : "",
               r->flags & ROUTE_OPEN    ? "anyone"
               : r->flags & ROUTE_ADMIN ? "admins"
               : r->flags & ROUTE_OWN   ? "admins; with keys, any key"
                                        : "anyone; with keys, any key",
               r->text);
    }
    printf("\nA path that begins with `/v1/` works without that too: `/models` is the same as "
           "`/v1/models`. Every\n`GET` route answers `HEAD`, and every route `OPTIONS`.\n");
}

static void params_print(void)
{
    printf("| route | parameter | | |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n_api_routes; i++) {
        const struct route *r = &api_routes[i];
        for (const struct query_param *p = r->params; p && p->name; p++) {
            printf("| `%s %s` | `%s` | ", r->method == HTTP_DELETE ? "DELETE" : "GET", r->path,
                   p->name);
            if (!p->is_number)
                printf("text");
            else if (p->max == UINT32_MAX)
                printf("number");
            else
                printf("%u to %u, default %u", p->min, p->max, p->otherwise);
            printf(" | %s |\n", p->text);
        }
    }
}

static void keys_print(void)
{
    printf(
        "\n"
        "## Keys and tenants\n"
        "\n"
        "With `--api-key TENANT:KEY` (or just `KEY`, for the tenant `default`), `--api-key-file "
        "FILE`\n"
        "or `--admin-key KEY`, every route that is not open to anyone (see the table) needs a key, "
        "in\n"
        "`Authorization: Bearer KEY` or `x-api-key: KEY`. Without one the response is 401\n"
        "`invalid_api_key`, before the body is read.\n"
        "Prefer the file: other users of the machine can see options in the process list.\n"
        "\n"
        "A key file has a line for each key, which may have settings after it. `#` starts a "
        "comment.\n"
        "\n"
        "```\n"
        "sk-of-bob\n"
        "acme:sk-of-carol\n"
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 name=alice "
        "tenant=acme requests-per-minute=60\n"
        "sk-of-the-admin role=admin\n"
        "```\n"
        "\n"
        "In place of a key there may be its SHA-256 digest, so that nobody who reads the file can "
        "use\n"
        "it: `printf %%s KEY | sha256sum`.\n"
        "\n"
        "| setting | |\n|---|---|\n"
        "| `name=NAME` | what the log calls the key |\n"
        "| `tenant=NAME` | the same as `NAME:` before the key |\n"
        "| `role=user`, `role=admin` | `user` is the default; `admin:KEY` is the same as `KEY "
        "role=admin` |\n"
        "| `requests-at-once=N` | most requests that are being sent or answered |\n"
        "| `requests-per-minute=N` | most requests a minute |\n"
        "| `tokens-per-minute=N` | most tokens a minute, of prompts and answers |\n"
        "| `tokens-per-request=N` | most tokens of one request, prompt and answers |\n"
        "\n"
        "SIGHUP reads the files again. Running requests go on. If a file is wrong, the log says "
        "so, "
        "and\n"
        "the keys stay as they were.\n"
        "\n"
        "An admin is whoever has a key with that role. On a server without keys it is whoever "
        "asks from\n"
        "the machine itself: the server must listen on loopback or a Unix socket only, `Host` "
        "must be\n"
        "loopback, and there must be no field that a proxy adds (`Forwarded`, `X-Forwarded-For`, "
        "`Via`,\n"
        "...), nor HTTP/1.0. Not every proxy adds a field, so require keys behind a proxy. Others "
        "get 403\n"
        "from admins' routes.\n"
        "\n"
        "Tenants share nothing in the cache, because the time to the first token would tell one\n"
        "tenant what another has asked. `--shared-prompt FILE` declares a system prompt that all\n"
        "tenants share: it is computed once, and what follows it stays private to each tenant. It\n"
        "must be the whole system message, byte for byte (a newline at the end of the file does "
        "not\n"
        "count). It is rendered when the server starts, so with a template that includes the date "
        "it\n"
        "is shared only until the date changes. `--share-cache` shares everything.\n"
        "`--tenant-cache-size SIZE` limits the cache of each tenant, not counting what follows\n"
        "shared prompts.\n"
        "\n"
        "### Limits\n"
        "\n"
        "`--limits requests-at-once=4,requests-per-minute=60` sets limits for each key that has "
        "none of its\n"
        "own, or for each address if there are no keys (IPv6: each /64 network). 0 is no limit; "
        "admins\n"
        "have only their own. Limits hold for all `POST` routes.\n"
        "\n"
        "A request beyond a limit gets 429 `rate_limit_exceeded` with `Retry-After`, before its "
        "body is\n"
        "read, and costs nothing. Answers have OpenAI's `x-ratelimit-limit-requests`,\n"
        "`x-ratelimit-remaining-requests` and `x-ratelimit-reset-requests`, and the same for "
        "`tokens`.\n"
        "What is used comes back evenly within a minute: after a pause, a minute's worth can be "
        "used at\n"
        "once. Tokens count when they are known, a prompt's when it has been tokenized, whether "
        "cached or\n"
        "not. A request starts while any tokens are left; if it needs more, the next one waits "
        "until they\n"
        "are paid back. A request whose prompt and `max_tokens` exceed `tokens-per-request` gets "
        "400\n"
        "`tokens_per_request_exceeded`; without `max_tokens`, its answer may have what is left.\n"
        "\n"
        "## Request ids and the log\n"
        "\n"
        "Every answer has an `x-request-id`: the request's own, if that is up to 128 visible "
        "characters,\n"
        "or a new one. The log has it in the request's line, after method, path, status, time, "
        "tenant,\n"
        "tokens and key; `--log-format json` writes an object for each line. The log has no "
        "prompts and no\n"
        "answers.\n");
}

static void cache_print(void)
{
    static const char *const members[][2] = {
        {"`budget`, `used`, `usage_percent`", "in `tokens` and `bytes`"},
        {"`pages`",
         "one per token: `free`, `cached`, `in_use` (by running requests, not cached yet); of the "
         "cached ones, `evictable` and `pinned`"},
        {"`entries`, `nodes`, `namespaces`, `pins`",
         "an entry is a stored sequence; `data` leaves out entries that a longer one has grown "
         "over"},
        {"`hits`",
         "requests by what they found: `prefix` (up to the end of an entry), `supersequence` (all "
         "of the prompt, inside a longer entry), `common` (a common beginning)"},
        {"`misses`", "requests that found nothing"},
        {"`prompt_tokens`, `cached_tokens`, `hit_rate`", "requested, found, and their ratio"},
        {"`shared_in_flight_tokens`",
         "of `cached_tokens`: tokens that another request was computing at the time"},
        {"`mean_match`", "tokens that a request found, on average"},
        {"`evicted`, `expired`, `cleared`",
         "what was removed, and why: `nodes`, `tokens`, `bytes`"},
        {"`entries_by_depth`", "a histogram of entry lengths"},
        {"`requests`",
         "`running`, `waiting`; ended by `stop`, `length`, `canceled`, `error`; `preempted`, "
         "`retried`, `forked`"},
        {"`pressure`", "the last times that memory was needed, and what was removed for it"},
        {"`data`",
         "a page of entries: `tokens` up to its end; `own_tokens`, which no node above it has, and "
         "their `bytes`; `hits`, `images`, `created` and `last_used` (Unix seconds), `idle_s`, "
         "`locked` (in use), `pinned`, `tenant` (null: shared by all), and the start of its own "
         "`text`"},
        {"`next`",
         "the `after` of the next page; null: this is the last one. A page may be shorter than "
         "`limit`, and entries that come and go in the meantime may be missed"},
    };
    printf("\n## The cache\n\n"
           "For admins; `GET /v1/cache` gives a tenant its own entries, without the statistics. An "
           "unknown "
           "query parameter, or one out of range, gets 400.\n\n");
    params_print();
    printf("\n`GET /v1/cache` returns\n\n| member | |\n|---|---|\n");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        printf("| %s | %s |\n", members[i][0], members[i][1]);
    printf(
        "\n"
        "`GET /v1/cache/tree` returns in `data` one node per namespace, with nested `children`.\n"
        "`n_children` also counts children that are not shown, up to 256. The other members are\n"
        "those of an entry, with `age_s` (whole seconds) instead of `created`. `truncated` means\n"
        "that `limit` cut the tree.\n"
        "\n"
        "`DELETE /v1/cache` answers `{\"cleared_tokens\":N,\"cleared_bytes\":N}`. Entries in use "
        "stay.\n"
        "`?tenant=NAME` clears everything that belongs to a tenant; if there are shared prompts, "
        "these\n"
        "and everything that follows them are cleared too.\n");
}

/* A request to each endpoint and its answer, as tools/api_examples.py recorded them. */
static void examples_print(void)
{
    static const char path[] = "tools/api_examples.md";
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    printf("\n");
    for (int c = getc(file); c != EOF; c = getc(file))
        putchar(c);
    fclose(file);
}

int main(void)
{
    printf("# The API\n\n"
           "<!-- Made by `make docs` from the tables in src/serve/routes.c and\n"
           "     src/serve/request/fields.c, and from tools/api_examples.md. -->\n\n");
    routes_print();
    printf(
        "\n"
        "Errors are OpenAI's error object; under `/api/` they are Ollama's. On paths that begin "
        "with\n"
        "neither `/v1/` nor `/api/`, `type` has llama-server's names: `authentication_error` "
        "(401),\n"
        "`not_supported_error` (501), and `exceed_context_size_error` for a prompt that is too "
        "long.\n"
        "Endpoints of other servers that radish does not have, such as `/v1/embeddings`, get 501. "
        "If\n"
        "the queue is full, a request gets 429 with `Retry-After`. A prompt longer than the "
        "context "
        "gets\n"
        "400 `context_length_exceeded`, with its length in `n_prompt_tokens` (or fewer, if it is "
        "much too\n"
        "long) and the context in `n_ctx`. With a model that has no chat template, every chat "
        "request "
        "gets 501.\n"
        "While the model is loading, every request gets 503. An error after a stream has begun is "
        "sent as\n"
        "an event in the stream. A request is canceled when its client disconnects, or closes its "
        "sending\n"
        "side while the request runs.\n"
        "\n"
        "On SIGINT or SIGTERM, answers in progress have `--shutdown-grace` seconds to finish. "
        "Then\n"
        "they end with the error `server_stopping`; a second signal ends them at once. In the\n"
        "meantime, `/health` says `stopping` and new POST requests get 503.\n"
        "\n"
        "Any web page can make a browser send requests to a server on the same machine. So without "
        "keys,\n"
        "`Host` must be a loopback name, a name of this machine, the address that the server "
        "listens on\n"
        "or was reached by, or an `--allowed-host`; other names get 403. With keys, any `Host` is\n"
        "accepted. Web pages from loopback, and from the very host and port of the "
        "request,\n"
        "may use the server; any other `Origin` gets 403 unless it is an `--allowed-origin "
        "https://chat.example`\n"
        "(`*`: any). Behind a proxy that keeps the client's `Host`, or in a container that others "
        "reach by name, give each "
        "name\n"
        "(`--allowed-host api.example`, with or without a port). `--allowed-host '*'` accepts all "
        "names,\n"
        "for a server that is protected in some other way. A POST must have\n"
        "`Content-Type: application/json` and no `Content-Encoding`, else it gets 415. A body "
        "larger than\n"
        "`--max-body-mib` gets 413.\n"
        "Under `/api/`, any `Content-Type` is accepted, or none, as Ollama's clients send it, if "
        "the\n"
        "request cannot come from a web page: it has no `Origin`, `Referer`, `Sec-Fetch-Site` or\n"
        "`Sec-Fetch-Mode` header.\n"
        "\n"
        "`usage.prompt_tokens_details.cached_tokens` says how much of the prompt came from the "
        "cache; with\n"
        "`n` it is the minimum over the choices.\n"
        "\n"
        "`null` means the same as absent. Fields that are in none\n"
        "of the tables below are ignored and listed in the `x-radish-ignored` response header; "
        "with\n"
        "`--strict-fields` they are errors.\n");
    examples_print();
    keys_print();
    cache_print();
    answers_print();
    forms_print();
    llama_print();
    ollama_print();
    for (enum field_scope scope = SCOPE_REQUEST; scope < FIELD_SCOPES; scope++) {
        printf("\n## %s\n", scope_titles[scope]);
        if (scope == SCOPE_TEXT || scope == SCOPE_LLAMA || scope == SCOPE_WARM ||
            scope == SCOPE_RENDER)
            printf("\nThese, and the fields of a chat completion.\n");
        if (scope == SCOPE_INFILL)
            printf("\nThese, and the fields of `/completion`.\n");
        if (scope == SCOPE_OLLAMA_CHAT || scope == SCOPE_OLLAMA_GENERATE)
            printf("\nThese, and the fields of `/api/chat` and `/api/generate` above.\n");
        class_print(scope, FIELD_SERVED, "Supported");
        class_print(scope, FIELD_INERT, "Accepted without effect");
        class_print(scope, FIELD_REFUSED, "Rejected, because radish does not support them");
    }
    return 0;
}
