/* Prints docs/api.md from the tables of routes and of request fields: `make docs`. A test compares
 * the two. */
#include <stdio.h>
#include <string.h>

#include "serve/request/fields.h"
#include "serve/routes.h"

static const char *const scope_titles[FIELD_SCOPES] = {
    [SCOPE_REQUEST] = "Fields of a chat completion",
    [SCOPE_TEXT] = "Fields of a text completion",
    [SCOPE_WARM] = "Fields of a warming",
    [SCOPE_RENDER] = "Fields of `/apply-template`",
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
        "chunk, the last before `[DONE]`. With `n` it tells of the first choice. In OpenAI's SDK\n"
        "for Python: `create(..., extra_body={\"radish\": {\"explain\": True}}).radish`.\n\n"
        "| member | |\n|---|---|\n"
        "| `prompt_tokens`, `cached_tokens` | as in `usage` |\n"
        "| `shared_tokens` | of `cached_tokens`: computed by another request while this one "
        "waited |\n"
        "| `computed_tokens` | the rest |\n"
        "| `replayed_tokens` | tokens of earlier answers that are the sampled ones |\n"
        "| `replay` | for each message of the assistant: its index, `tokens` of `sampled` that "
        "were "
        "replayed, why it `stopped` (`complete`, `ended` before its end token, `trimmed`, "
        "`stripped`, `shortened`, `rewritten`, "
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
        "| `diverged` | the cache goes on with something else, which may be the same text in other "
        "tokens: `cached_text`, shown to the "
        "operator "
        "and of a tenant's own |\n"
        "| `evicted` | it was cached (`gone_tokens` from the position on), and pages were needed: "
        "`gone_s` ago, after `idle_s` without "
        "use |\n"
        "| `expired` | the same, after `--cache-ttl` without use |\n"
        "| `cleared` | the same, by request or because it could not be trusted |\n"
        "| `namespace` | another `tenant` has it (`tenant_tokens` of the prompt, where that is "
        "known); told to the "
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
        "because too much is pinned already: half of the cache is the most. Other fields are "
        "those\n"
        "of a request.\n");
}

static void forms_print(void)
{
    printf(
        "\n## What an answer must be\n\n"
        "`response_format`, `json_schema`, `grammar`, `regex`, `structured_outputs` and "
        "`guided_*`\n"
        "hold the answer's text to a form, `tool_choice` and `tools[].function.parameters` its\n"
        "calls. Each token is drawn from those that can lead to a valid end. When `max_tokens`\n"
        "leaves just enough for the shortest valid end of a text, that is taken, and\n"
        "`finish_reason` is `length`. Thinking comes before it and is free. What cannot be "
        "enforced is refused with 400, by name and place, before\n"
        "anything is generated.\n\n"
        "**JSON schemas** (drafts 4 to 2020-12): `type`, `properties`, `required`,\n"
        "`additionalProperties`, `patternProperties`, `propertyNames`, `minProperties`,\n"
        "`maxProperties`, `items`, `prefixItems`, `additionalItems`, `minItems`, `maxItems`,\n"
        "`enum`, `const`, `anyOf`, `oneOf`, `allOf`, `$ref` within the schema (recursive too),\n"
        "`minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum` (exact at any size),\n"
        "`minLength`, `maxLength`, `pattern`, `format` (unknown formats are no constraint).\n"
        "Some keywords are supported in part:\n\n"
        "| keyword | supported |\n|---|---|\n"
        "| `not`, `if`, `oneOf` with overlapping branches | the negated schema may use `type`, "
        "`enum`, `const`, bounds, lengths, sizes, `pattern`, `required`, `properties`, `anyOf`, "
        "`allOf`, `not` and `$ref` |\n"
        "| `dependentRequired`, `dependentSchemas`, `dependencies` | yes; many of them together "
        "may "
        "need too many alternatives |\n"
        "| `uniqueItems` | items with at most 128 possible values (`enum`, `const`, booleans, "
        "null): "
        "up to 6 in any order, more in the order of the schema; or `maxItems` of 1 |\n"
        "| `contains`, `minContains`, `maxContains` | one per array, without `prefixItems`; "
        "several "
        "required items come first |\n"
        "| `multipleOf` | up to three significant digits, or 1000: 0.01, 0.25, 7, 86400 |\n"
        "| `unevaluatedProperties`, `unevaluatedItems` | `false` in the outermost schema; for "
        "items, "
        "where no other schema is about the same array |\n\n"
        "Everything else is refused by name, for example look-around in patterns and references "
        "to\n"
        "other documents. Answers may be narrower than the schema, never wider. Members come in\n"
        "the order of `properties`, others behind them. An object that names properties and does\n"
        "not mention others has no others. Integers have up to 40 digits, numbers up to 40 behind\n"
        "the point and magnitudes up to 1.7e308. White space is that of pretty printers.\n"
        "Schemas are enforced whether `strict` is said or not.\n\n"
        "**GBNF** is llama.cpp's, without references to tokens. **Regular expressions** match the\n"
        "whole text; look-around, back references and `\\b` are refused.\n\n"
        "## Tools and thinking\n\n"
        "Functions are shown to the model by its own chat template if that takes them, else by a\n"
        "system prompt that says how to call them; never both. Answers are read in the form that\n"
        "the model writes (`--tool-format` names one: `hermes`, `qwen-coder`, `llama3`, "
        "`mistral`,\n"
        "`gemma-code`, `gemma`, `deepseek`, `glm`, `kimi`, `minimax`, `harmony`, `json`). Text\n"
        "that only looks like a call, or calls what is not in `tools`, stays text. With `auto` a\n"
        "call that has begun is held to its function's schema (where calls have a marker; bare\n"
        "JSON has none), with `required` or a name the answer is calls and nothing else, and\n"
        "with `none` the marker of a call cannot be written. What of a schema cannot be enforced\n"
        "is passed over, unless the function is `strict`: then it is an error. An answer that\n"
        "ends in the middle of a call has its arguments as far as they came, and never the\n"
        "`finish_reason` `tool_calls`. Arguments that come back and are no JSON object do not\n"
        "fail a request.\n\n"
        "Thinking is in `reasoning_content`, of messages and of deltas; its tokens are in\n"
        "`usage.completion_tokens_details.reasoning_tokens`. Calls inside of it are no calls.\n"
        "Earlier thinking is shown or dropped as the template has it.\n\n"
        "## Sampling\n\n"
        "In this order: `logit_bias`, penalties (repetition, then frequency and presence, over\n"
        "the answer's tokens, not the prompt's), DRY (over both), what the answer must be,\n"
        "`temperature`, `top_n_sigma`, `top_k`, `typical_p`, `top_p`, `min_p`, XTC. The same\n"
        "request with the same `seed` gets the same answer, whatever else the server does. Log\n"
        "probabilities are the model's own, before all of this.\n");
}

static void routes_print(void)
{
    static const char *const methods[] = {
        [HTTP_GET] = "GET", [HTTP_POST] = "POST", [HTTP_DELETE] = "DELETE"};
    printf("| route | for whom | what it gives |\n|---|---|---|\n");
    for (size_t i = 0; i < n_api_routes; i++) {
        const struct route *r = &api_routes[i];
        bool is_open = r->path[strlen(r->path) - 1] == '/';
        printf("| `%s %s%s` | %s | %s |\n", methods[r->method], r->path, is_open ? "{id}" : "",
               r->flags & ROUTE_OPEN         ? "all"
               : r->flags & ROUTE_OPERATOR   ? "the operator"
               : r->flags & ROUTE_NO_TENANTS ? "all; with keys the operator"
                                             : "all; with keys those who have one",
               r->text);
    }
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
        "\n## Keys and tenants\n\n"
        "With `--api-key TENANT:KEY` (or a bare `KEY`, for the tenant `default`), `--api-key-file\n"
        "FILE` (one a line, `admin:KEY` for the operator; `#` begins a comment) or `--admin-key\n"
        "KEY` every route but `/health` and `OPTIONS` needs a key, in `Authorization: Bearer KEY`\n"
        "or `x-api-key: KEY`; without one the answer is 401 `invalid_api_key`, before the body is\n"
        "read. Prefer the file: a process list shows the options. The operator is who has the\n"
        "admin key; on a server without any keys, who asks from the machine itself (so give an\n"
        "admin key to a server behind a proxy). Others get 403 where it says so.\n\n"
        "Tenants share nothing of the cache, because the time to the first token would tell one\n"
        "what another has asked. `--shared-prompt FILE` declares a system prompt to be\n"
        "everyone's: it is computed once for all, and what follows it stays each tenant's own.\n"
        "It must be the whole system message, byte for byte (a line end at the file's end does\n"
        "not count), and is rendered when the server starts: with a template that writes the\n"
        "date it is shared until the date changes. `--share-cache` shares everything.\n"
        "`--tenant-cache-size SIZE` bounds what each tenant has of its own, without what follows\n"
        "shared prompts.\n");
}

static void cache_print(void)
{
    static const char *const members[][2] = {
        {"`budget`, `used`, `usage_percent`", "in `tokens` and `bytes`"},
        {"`pages`",
         "one a token: `free`, `cached`, `in_use` (by what runs and is not cached yet); of the "
         "cached ones `evictable` and `pinned`"},
        {"`entries`, `nodes`, `namespaces`, `pins`",
         "an entry is a stored sequence; `data` does not list those that a longer one has grown "
         "over"},
        {"`hits`",
         "requests by what they found: `prefix` (up to the end of an entry), `supersequence` (all "
         "of the prompt, inside a longer one), `common` (both go on, differently)"},
        {"`misses`", "requests that found nothing"},
        {"`prompt_tokens`, `cached_tokens`, `hit_rate`", "asked, found, and the share of it"},
        {"`shared_in_flight_tokens`",
         "of `cached_tokens`: what another request was computing at that time"},
        {"`mean_match`", "tokens that a request found, on average"},
        {"`evicted`, `expired`, `cleared`", "what went, and why: `nodes`, `tokens`, `bytes`"},
        {"`entries_by_depth`", "a histogram of their lengths"},
        {"`requests`",
         "`running`, `waiting`; ended by `stop`, `length`, `canceled`, `error`; `preempted`, "
         "`retried`, `forked`"},
        {"`pressure`", "the last times that memory was needed, and what went for it"},
        {"`data`",
         "a page of entries: `tokens` up to its end; `own_tokens`, which no node above it has, and "
         "their `bytes`; `hits`, `images`, `created` and `last_used` (Unix seconds), `idle_s`, "
         "`locked` (in use), `pinned`, `tenant` (null: everyone's), and how its own `text` begins"},
        {"`next`",
         "the `after` of the next page; null: that was all. A page may be shorter than `limit`, "
         "and what comes and goes meanwhile may be missed"},
    };
    printf("\n## The cache\n\n"
           "For the operator. A query parameter that is not known or not in range is 400.\n\n");
    params_print();
    printf("\n`GET /v1/cache` gives\n\n| member | |\n|---|---|\n");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        printf("| %s | %s |\n", members[i][0], members[i][1]);
    printf(
        "\n`GET /v1/cache/tree` gives in `data` a node for each namespace, with `children` that\n"
        "have children; `n_children` counts those that are not shown too, up to 256. The other\n"
        "members are an entry's, with `age_s` (whole seconds) instead of `created`. `truncated`\n"
        "says that `limit` cut it.\n\n"
        "`DELETE /v1/cache` answers `{\"cleared_tokens\":N,\"cleared_bytes\":N}`. What is in use\n"
        "stays. Of a tenant (`?tenant=NAME`) everything goes that is its own; where there are\n"
        "shared prompts, these and all that follows them go with it.\n");
}

int main(void)
{
    printf("# The API\n\n"
           "<!-- Made by `make docs` from the tables in src/serve/routes.c and\n"
           "     src/serve/request/fields.c. -->\n\n");
    routes_print();
    printf(
        "\n"
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
    keys_print();
    cache_print();
    answers_print();
    forms_print();
    for (enum field_scope scope = SCOPE_REQUEST; scope < FIELD_SCOPES; scope++) {
        printf("\n## %s\n", scope_titles[scope]);
        if (scope == SCOPE_TEXT || scope == SCOPE_WARM || scope == SCOPE_RENDER)
            printf("\nThese, and what a chat completion has.\n");
        class_print(scope, FIELD_SERVED, "Served");
        class_print(scope, FIELD_INERT, "Accepted, without meaning here");
        class_print(scope, FIELD_REFUSED, "Refused, because they cannot be honoured");
    }
    return 0;
}
