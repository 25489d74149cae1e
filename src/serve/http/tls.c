/* Certificates through OpenSSL. An SSL_CTX counts its connections, so replacing the context's own
 * reference lets those that exist finish with the old certificate. */
#include "serve/http/tls.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/log.h"

struct tls_context {
    SSL_CTX *ssl;
    char *chain_file, *key_file;
};

/* The first complaint of OpenSSL, in its words: later ones only say where it happened. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    return text ? text : "not a PEM file";
}

/* Called for an encrypted key: there is nobody to ask. */
static int no_password(char *out, int size, int is_write, void *was_asked)
{
    (void)out, (void)size, (void)is_write;
    *(bool *)was_asked = true;
    return -1;
}

/* HTTP/1.1 is all there is. A client that offers only others is told so. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *offered, unsigned offered_len, void *context)
{
    (void)ssl, (void)context;
    static const unsigned char http[] = "\x08http/1.1";
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, http, sizeof http - 1, offered, offered_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static int rules_set(SSL_CTX *ssl, struct error *err)
{
    /* Suites of TLS 1.3 are OpenSSL's own: all of them are good. */
    static const char ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
    if (!SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) ||
        !SSL_CTX_set_cipher_list(ssl, ciphers))
        return error_set(err, ERROR_UNSUPPORTED, "OpenSSL cannot do TLS 1.2: %s", reason());
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
#ifdef SSL_OP_IGNORE_UNEXPECTED_EOF
    SSL_CTX_set_options(ssl, SSL_OP_IGNORE_UNEXPECTED_EOF);
#endif
    /* An idle connection keeps no buffers, and no session stays after it: clients keep tickets. */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* A read returns after each record, also one without data: a client that renews its keys
     * without end, or asks for renegotiation, must not hold the loop. */
    SSL_CTX_clear_mode(ssl, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(ssl, choose_protocol, NULL);
    return 0;
}

static int file_check(const char *file, const char *option, struct error *err)
{
    if (access(file, R_OK) == 0)
        return 0;
    return error_set(err, ERROR_IO, "--%s %s: %s", option, file, strerror(errno));
}

static int chain_read(SSL_CTX *ssl, const char *file, struct error *err)
{
    if (file_check(file, "tls-cert", err))
        return -1;
    if (SSL_CTX_use_certificate_chain_file(ssl, file) != 1)
        return error_set(err, ERROR_FORMAT, "--tls-cert %s has no certificate that can be used: %s",
                         file, reason());
    return 0;
}

static int key_read(SSL_CTX *ssl, const char *file, const char *chain_file, struct error *err)
{
    bool is_encrypted = false;
    if (file_check(file, "tls-key", err))
        return -1;
    SSL_CTX_set_default_passwd_cb(ssl, no_password);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, &is_encrypted);
    int rc = SSL_CTX_use_PrivateKey_file(ssl, file, SSL_FILETYPE_PEM);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    if (is_encrypted)
        return error_set(err, ERROR_UNSUPPORTED,
                         "--tls-key %s is encrypted: give one without a password, as `openssl pkey "
                         "-in %s -out NEW` writes it",
                         file, file);
    bool is_other = rc != 1 && ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_X509;
    if (rc != 1 && !is_other)
        return error_set(err, ERROR_FORMAT, "--tls-key %s has no private key that can be used: %s",
                         file, reason());
    if (is_other || SSL_CTX_check_private_key(ssl) != 1)
        return error_set(err, ERROR_INPUT, "--tls-key %s does not belong to --tls-cert %s", file,
                         chain_file);
    return 0;
}

static void time_write(const ASN1_TIME *time, char *out, size_t size)
{
    BIO *text = BIO_new(BIO_s_mem());
    int n = text && ASN1_TIME_print(text, time) ? BIO_read(text, out, (int)size - 1) : 0;
    out[n > 0 ? n : 0] = '\0';
    BIO_free(text);
}

/* Clients reject a certificate outside its dates, so say it where the operator looks. */
static void dates_log(const SSL_CTX *ssl, const char *file)
{
    const X509 *certificate = SSL_CTX_get0_certificate(ssl);
    const ASN1_TIME *begin = X509_get0_notBefore(certificate),
                    *end = X509_get0_notAfter(certificate);
    char begins[64], ends[64];
    time_write(begin, begins, sizeof begins);
    time_write(end, ends, sizeof ends);
    if (X509_cmp_current_time(end) < 0)
        log_warn("the certificate in %s expired on %s: clients will reject it", file, ends);
    else if (X509_cmp_current_time(begin) > 0)
        log_warn("the certificate in %s is not valid before %s: clients will reject it", file,
                 begins);
    else
        log_info("TLS: the certificate in %s is valid until %s", file, ends);
}

static SSL_CTX *context_make(const char *chain_file, const char *key_file, struct error *err)
{
    ERR_clear_error();
    SSL_CTX *ssl = SSL_CTX_new(TLS_server_method());
    if (!ssl) {
        error_set(err, ERROR_MEMORY, "no memory for TLS");
        return NULL;
    }
    if (rules_set(ssl, err) || chain_read(ssl, chain_file, err) ||
        key_read(ssl, key_file, chain_file, err)) {
        SSL_CTX_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    dates_log(ssl, chain_file);
    return ssl;
}

int tls_context_open(struct tls_context **out, const char *chain_file, const char *key_file,
                     struct error *err)
{
    struct tls_context *c = calloc(1, sizeof *c);
    char *chain = strdup(chain_file), *key = strdup(key_file);
    SSL_CTX *ssl = NULL;
    if (!c || !chain || !key)
        error_set(err, ERROR_MEMORY, "no memory for TLS");
    else
        ssl = context_make(chain, key, err);
    if (!ssl) {
        free(c);
        free(chain);
        free(key);
        return -1;
    }
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets that may be closed */
    *c = (struct tls_context){ssl, chain, key};
    *out = c;
    return 0;
}

int tls_context_reload(struct tls_context *c, struct error *err)
{
    SSL_CTX *ssl = context_make(c->chain_file, c->key_file, err);
    if (!ssl)
        return -1;
    SSL_CTX_free(c->ssl);
    c->ssl = ssl;
    return 0;
}

void tls_context_close(struct tls_context *c)
{
    if (!c)
        return;
    SSL_CTX_free(c->ssl);
    free(c->chain_file);
    free(c->key_file);
    free(c);
}

SSL *tls_accept(struct tls_context *c, int fd)
{
    SSL *ssl = SSL_new(c->ssl);
    if (ssl && SSL_set_fd(ssl, fd))
        return ssl;
    SSL_free(ssl);
    return NULL;
}
