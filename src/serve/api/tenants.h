#ifndef RADISH_SERVE_API_TENANTS_H
#define RADISH_SERVE_API_TENANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "prompt/prompt.h"
#include "sched/scheduler.h"

/* Which part of the cache a tenant's request reads and adds to. Tenants share nothing, because the
 * time to the first token reveals whether a prompt was cached. The operator can make two
 * exceptions:
 * --share-cache puts everything into one namespace, and --shared-prompt declares a system prompt
 * that all tenants share:
 *
 *   ns 0     system prompt of the file │ question of tenant 1        tokens owned by 1
 *            (tokens of nobody)        │ question of tenant 2        tokens owned by 2
 *   ns t     all other prompts of tenant t
 *
 * Filled in when the server starts, then read-only: any thread may place requests. */
enum { TENANT_MIN_SHARED = 16 }; /* shorter shared prefixes stay in the tenant's own namespace */

struct tenants {
    bool share_cache;
    struct token_list *shared; /* [n_shared] ids of a conversation's start with a declared prompt */
    size_t n_shared;
};

/* Declares the text of a file, without its final newline, as a shared system prompt. */
int tenants_share_prompt(struct tenants *t, const struct prompt_maker *prompt, const char *path,
                         struct error *err);
void tenants_free(struct tenants *t);

/* Fills in ns, n_public and owner of a request with this prompt. */
void tenant_place(const struct tenants *t, uint32_t tenant, const int32_t *ids, uint32_t n_ids,
                  struct request *r);

#endif
