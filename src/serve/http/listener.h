#ifndef RADISH_SERVE_HTTP_LISTENER_H
#define RADISH_SERVE_HTTP_LISTENER_H

#include <stdint.h>

#include "base/error.h"

/* The server's socket. A busy port fails at once, before the model is loaded. */
enum { HTTP_URL_SIZE = 80 };

/* Opens a non-blocking socket that listens on host (a name or an address, also [::1]) and port (0:
 * any free one). Returns the descriptor, or -1. */
int http_listen(const char *host, uint16_t port, struct error *err);
/* "http://127.0.0.1:8080" */
void http_listener_url(int fd, char url[HTTP_URL_SIZE]);

#endif
