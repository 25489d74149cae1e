#ifndef RADISH_SERVE_HTTP_TLS_H
#define RADISH_SERVE_HTTP_TLS_H

#include "base/error.h"

/* The certificate that the server shows, and the rules for TLS: version 1.2 or later, ciphers with
 * forward secrecy, no renegotiation, HTTP/1.1 only.
 *
 * The certificate can be replaced while connections live: those that exist keep the old one, new
 * ones get the new one. One thread at a time. */
struct tls_context;
struct ssl_st; /* OpenSSL's SSL */

enum { TLS_CONNECTION_BYTES = 64 * 1024 }; /* what a connection takes of OpenSSL, at most */

/* `chain_file`: the certificate and those that lead to its root, in PEM. `key_file`: its private
 * key, in PEM and not encrypted. An expired certificate is only a warning. */
int tls_context_open(struct tls_context **out, const char *chain_file, const char *key_file,
                     struct error *err);
/* Reads the same files again. If they cannot be used, the old certificate stays. */
int tls_context_reload(struct tls_context *c, struct error *err);
void tls_context_close(struct tls_context *c); /* NULL does nothing */

/* The server's side of a new connection. NULL without memory. */
struct ssl_st *tls_accept(struct tls_context *c, int fd);

#endif
