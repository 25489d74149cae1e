#ifndef RADISH_CLI_SERVE_NETWORK_H
#define RADISH_CLI_SERVE_NETWORK_H

#include "cli/args.h"
#include "serve/api/server_options.h"

/* Where `radish serve` listens, with which certificate, and what its connections may take. */
extern const struct option serve_network_options[];

/* Checks the options and writes them to `server`. */
int serve_network_finish(struct server_options *server, struct error *err);
/* Reads the certificate and opens the sockets, before the model is loaded: a busy port or a bad
 * file then fails at once. */
int serve_network_open(struct server_options *server, struct error *err);
void serve_network_close(struct server_options *server);

#endif
