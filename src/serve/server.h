#ifndef RADISH_SERVE_SERVER_H
#define RADISH_SERVE_SERVER_H

#include "base/error.h"
#include "serve/api/server_options.h"

/* serve/ is the server as a whole: start and stop, the table of routes, and the cache's
 * endpoints. Its rooms, from the bottom: http, api, request, completion. */

/* The server: OpenAI's API over HTTP for one loaded model. One event loop owns the connections and
 * the answers in progress, a few workers parse and tokenise, the scheduler's thread computes.
 *
 *   connections ⇄ event loop ──► [jobs] ──► workers ──► [results] ─┐
 *                    ▲  ▲ └──────────── scheduler_submit ──────┐   │
 *                    │  └───────────────────────────────────── │ ──┘
 *                    └───────── rings of events ───────── scheduler thread
 */

/* Listens, logs what memory it will have and "listening on http://127.0.0.1:8080 (ready in 0.2 s)",
 * serves until SIGINT or SIGTERM, lets what is being answered finish for shutdown_grace_ms (a
 * second signal ends it with an error), and returns 0. -1 when it could not start. */
int server_run(const struct server_options *options, struct error *err);

#endif
