#ifndef RADISH_SERVE_HTTP_LISTENER_H
#define RADISH_SERVE_HTTP_LISTENER_H

#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

/* The server's socket, and what clients get from it before the server is ready.
 *
 *   http_listen ──► loading_begin ──► (the model is loaded) ──► loading_end ──► http_server_open
 *   a busy port     a thread answers                            later connections wait for
 *   fails at once   503 to everyone                             the server in the backlog
 */
enum { HTTP_URL_SIZE = 80 };

/* Opens a non-blocking socket that listens on host (a name or an address, also [::1]) and port (0:
 * any free one). Returns the descriptor, or -1. */
int http_listen(const char *host, uint16_t port, struct error *err);
/* "http://127.0.0.1:8080" */
void http_listener_url(int fd, char url[HTTP_URL_SIZE]);

struct loading;

/* Appends the body of the answer to a request for `target`, which is JSON. Called on the thread. */
typedef void loading_body_write(struct strbuf *out, const char *target);

/* Answers every request with 503, as llama-server does, until loading_end. */
int loading_begin(struct loading **out, int listen_fd, loading_body_write *write_body,
                  struct error *err);
void loading_end(struct loading *l); /* NULL: nothing */

#endif
