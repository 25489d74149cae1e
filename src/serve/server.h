#ifndef RADISH_SERVE_SERVER_H
#define RADISH_SERVE_SERVER_H

#include "base/error.h"
#include "serve/api/server_options.h"

/* serve/ is the whole server: start and stop, the table of routes, and the cache's endpoints. Its
 * rooms, from the bottom: http, api, request, writers, completion. */

/* The server: the APIs of OpenAI, llama-server and Ollama over HTTP, for one loaded model. One
 * event loop owns the connections and the answers in progress, a few workers parse and tokenize,
 * and the scheduler's thread computes.
 *
 *   connections ⇄ event loop ──► [jobs] ──► workers ──► [results] ─┐
 *                    ▲  ▲ └──────────── scheduler_submit ──────┐   │
 *                    │  └───────────────────────────────────── │ ──┘
 *                    └───────── rings of events ───────── scheduler thread
 */

/* Listens, logs the memory it will use and "listening on http://127.0.0.1:8080 (ready in 0.2 s)",
 * and serves until SIGINT or SIGTERM. Then it gives answers in progress shutdown_grace_ms to finish
 * (a second signal ends them with an error) and returns 0. Returns -1 if it could not start. */
int server_run(const struct server_options *options, struct error *err);

#endif
