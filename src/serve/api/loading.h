#ifndef RADISH_SERVE_API_LOADING_H
#define RADISH_SERVE_API_LOADING_H

#include "base/error.h"
#include "serve/http/listener.h"

/* What clients get before the server is ready.
 *
 *   http_listen ──► loading_begin ──► (the model is loaded) ──► loading_end ──► http_server_open
 *   a busy port     a thread answers                            later connections wait for
 *   fails at once   503 to everyone                             the server in the backlog
 */
struct loading;

/* Answers every request with 503, as llama-server does, until loading_end. Invalid HTTP gets the
 * server's usual errors. The sockets stay the caller's. `tls`: NULL for plain text; not to be
 * touched until loading_end. */
struct tls_context;
int loading_begin(struct loading **out, const struct http_listeners *listeners,
                  struct tls_context *tls, struct error *err);
void loading_end(struct loading *l); /* NULL does nothing */

#endif
