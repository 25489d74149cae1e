/* The memory of answers in progress. A whole answer is kept until its last token has come, so many
 * long ones could take any amount. They have a budget, as large as that of unsent answers. Runs on
 * the event loop's thread. */
#include "serve/completion/completion_internal.h"

static bool is_same_client(const struct completion *a, const struct completion *b)
{
    return a->requester.tenant == b->requester.tenant && a->requester.client == b->requester.client;
}

static size_t client_bytes(const struct completion *of)
{
    size_t n = 0;
    for (const struct completion *c = of->api->completions; c; c = c->next)
        n += is_same_client(c, of) && !c->is_too_large ? c->n_bytes : 0;
    return n;
}

/* The largest of the client that has most. What is marked already is as good as gone. NULL: without
 * that, there is room. */
static struct completion *find_largest(const struct api *api)
{
    struct completion *largest = NULL;
    size_t most = 0, n_all = 0;
    for (struct completion *c = api->completions; c; c = c->next) {
        if (c->is_too_large || c->n_bytes == 0)
            continue;
        const size_t n = client_bytes(c);
        if (n > most || (n == most && c->n_bytes > largest->n_bytes)) {
            most = n;
            largest = c;
        }
        n_all += c->n_bytes;
    }
    return n_all > api->options->max_unsent_bytes ? largest : NULL;
}

void answers_count(struct completion *c)
{
    struct api *api = c->api;
    const size_t before = c->n_bytes;
    c->n_bytes = 0;
    for (uint32_t i = 0; i < c->running.n_choices; i++)
        c->n_bytes += answer_bytes(&c->running.choices[i].answer);
    api->answers_bytes += c->n_bytes - before;
    if (c->n_bytes <= before || api->answers_bytes <= api->options->max_unsent_bytes)
        return;
    struct completion *largest = find_largest(api);
    if (largest) {
        largest->is_too_large = true;
        workers_wake(api->workers);
    }
}

void answers_forget(struct completion *c)
{
    c->api->answers_bytes -= c->n_bytes;
    c->n_bytes = 0;
}
