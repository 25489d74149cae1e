#ifndef RADISH_SERVE_API_LOADING_H
#define RADISH_SERVE_API_LOADING_H

#include "base/error.h"

/* What clients get before the server is ready.
 *
 *   http_listen ──► loading_begin ──► (the model is loaded) ──► loading_end ──► http_server_open
 *   a busy port     a thread answers                            later connections wait for
 *   fails at once   503 to everyone                             the server in the backlog
 */
struct loading;

/* Answers every request with 503, as llama-server does, until loading_end. Invalid HTTP gets the
 * server's usual errors. The socket is from http_listen and stays the caller's. */
int loading_begin(struct loading **out, int listen_fd, struct error *err);
void loading_end(struct loading *l); /* NULL does nothing */

#endif
