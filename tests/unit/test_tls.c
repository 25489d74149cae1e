/* TLS below the connections: handshakes that come in pieces, large answers, ends, and certificates
 * that are replaced while connections live. */
#include "http_fixture.h"
#include "serve/http/tls.h"
#include "test_files.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/log.h"

static char cert_file[256], key_file[256];

/* Writes a certificate, signed by itself, with this serial number, and its key. */
static void certificate_write(long serial)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    CHECK(key && x);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -1000);
    X509_gmtime_adj(X509_getm_notAfter(x), 100000);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"radish", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_set_pubkey(x, key);
    CHECK(X509_sign(x, key, EVP_sha256()) > 0);
    snprintf(cert_file, sizeof cert_file, "%s/tls.pem", test_scratch_dir());
    snprintf(key_file, sizeof key_file, "%s/tls.key", test_scratch_dir());
    FILE *file = fopen(cert_file, "w");
    CHECK(file && PEM_write_X509(file, x) == 1);
    fclose(file);
    file = fopen(key_file, "w");
    CHECK(file && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    fclose(file);
    X509_free(x);
    EVP_PKEY_free(key);
}

/* A server with certificate number 1. */
static struct tls_context *site_open_tls(struct site *site, struct http_options options)
{
    struct error err;
    log_set_level(LOG_ERROR);
    certificate_write(1);
    CHECK_INT(tls_context_open(&options.tls, cert_file, key_file, &err), 0);
    site_open_as(site, options);
    return options.tls;
}

static void site_close_tls(struct site *site, struct tls_context *tls)
{
    site_close(site);
    tls_context_close(tls);
}

struct client {
    int fd;
    SSL_CTX *context;
    SSL *ssl;
};

/* True if the call wants the loop to turn before it goes on. */
static bool waits(SSL *ssl, int result)
{
    int why = SSL_get_error(ssl, result);
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
}

static void tls_connect(struct site *site, struct client *c)
{
    c->fd = client_open(site);
    c->context = SSL_CTX_new(TLS_client_method());
    c->ssl = SSL_new(c->context);
    SSL_set_fd(c->ssl, c->fd);
    int rc = 0;
    TURN_UNTIL(site, (ERR_clear_error(), rc = SSL_connect(c->ssl)) == 1 || !waits(c->ssl, rc));
    CHECK_INT(rc, 1);
}

static void tls_client_close(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->context);
    close(c->fd);
}

static void tls_send(struct client *c, const char *text)
{
    ERR_clear_error();
    CHECK_INT(SSL_write(c->ssl, text, (int)strlen(text)), strlen(text));
}

/* Reads until `size` bytes have come, or the end. Returns how many; `clean`: the end was said. */
static size_t tls_read_all(struct site *site, struct client *c, char *out, size_t size, bool *clean)
{
    size_t len = 0;
    for (uint64_t end = clock_now_ns() + PATIENCE_NS; len < size; turn(site)) {
        int n = 0;
        ERR_clear_error();
        while (len < size && (n = SSL_read(c->ssl, out + len, (int)(size - len))) > 0)
            len += (size_t)n;
        if (len == size)
            break;
        *clean = SSL_get_error(c->ssl, n) == SSL_ERROR_ZERO_RETURN;
        if (!waits(c->ssl, n))
            break;
        CHECK(clock_now_ns() < end);
    }
    return len;
}

static long serial_of(const struct client *c)
{
    X509 *x = SSL_get1_peer_certificate(c->ssl);
    long serial = ASN1_INTEGER_get(X509_get0_serialNumber(x));
    X509_free(x);
    return serial;
}

TEST(tls, answers_and_ends_cleanly)
{
    static char answer[BIG_BODY_BYTES + 4096];
    struct site site;
    struct client c;
    bool clean = false;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    CHECK(strncmp(http_server_url(site.server), "https://", 8) == 0);
    tls_connect(&site, &c);
    tls_send(&c, GET("/"));
    size_t n = tls_read_all(&site, &c, answer, 12, &clean);
    CHECK_INT(n, 12);
    CHECK(strncmp(answer, "HTTP/1.1 200", 12) == 0);
    tls_send(&c, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    n = tls_read_all(&site, &c, answer, sizeof answer, &clean);
    CHECK(n > BIG_BODY_BYTES && clean);
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);
    tls_client_close(&c);
    site_close_tls(&site, tls);
}

/* One byte of the handshake in each turn. A second client talks meanwhile. */
TEST(tls, handshakes_come_in_pieces)
{
    struct site site;
    struct client quick;
    char answer[4096];
    bool clean;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
    int fd = client_open(&site), rc;
    char byte;
    while ((rc = SSL_connect(ssl)) != 1) {
        CHECK(waits(ssl, rc));
        while (BIO_read(out, &byte, 1) == 1) {
            CHECK_INT(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
            turn(&site);
        }
        ssize_t n = 0;
        TURN_UNTIL(&site, (n = recv(fd, answer, sizeof answer, 0)) > 0);
        BIO_write(in, answer, (int)n);
    }
    tls_connect(&site, &quick);
    tls_send(&quick, GET("/"));
    CHECK_INT(tls_read_all(&site, &quick, answer, 12, &clean), 12);
    tls_client_close(&quick);
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    site_close_tls(&site, tls);
}

TEST(tls, what_is_no_handshake_ends)
{
    struct site site;
    char answer[4096];
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    int fd = client_open(&site);
    client_send(fd, "\x16\x03\x01\xff\xffnonsense");
    TURN_UNTIL(&site, (take(fd, SIZE_MAX), is_ended(fd)));
    close(fd);
    fd = client_open(&site);
    client_send(fd, GET("/"));
    read_to_end(&site, fd, answer, sizeof answer);
    CHECK(strstr(answer, "this server speaks HTTPS: use https://"));
    CHECK_INT(site.n_heads, 0);
    fd = client_open(&site); /* a body is not waited for */
    client_send(fd, POST("1000"));
    read_to_end(&site, fd, answer, sizeof answer);
    CHECK(strncmp(answer, "HTTP/1.1 400 ", 13) == 0);
    close(client_open(&site));
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);
    site_close_tls(&site, tls);
}

TEST(tls, a_silent_handshake_has_a_deadline)
{
    struct site site;
    struct http_options options = ordinary_options;
    options.header_timeout_ms = 200;
    struct tls_context *tls = site_open_tls(&site, options);
    int silent = client_open(&site), half = client_open(&site);
    client_send(half, "\x16\x03\x01");
    TURN_UNTIL(&site, http_server_connections(site.server) == 2);
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);
    close(silent);
    close(half);
    site_close_tls(&site, tls);
}

static void check_hangup(bool says_so)
{
    struct site site;
    struct client c;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    tls_connect(&site, &c);
    tls_send(&c, GET("/wait"));
    TURN_UNTIL(&site, site.waiting);
    if (says_so)
        SSL_shutdown(c.ssl);
    else
        shutdown(c.fd, SHUT_RDWR);
    TURN_UNTIL(&site, site.n_hangups == 1);
    CHECK_INT(http_server_connections(site.server), 0);
    tls_client_close(&c);
    site_close_tls(&site, tls);
}

TEST(tls, sees_a_hang_up_while_a_request_runs)
{
    check_hangup(true);
    check_hangup(false);
}

TEST(tls, a_stream_waits_for_its_reader)
{
    static char sink[1 << 20];
    struct site site;
    struct client c;
    bool clean;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    tls_connect(&site, &c);
    tls_send(&c, GET("/stream"));
    TURN_UNTIL(&site, site.streamed);
    turn_for(&site, 60);
    size_t before = site.streamed, got = 0;
    CHECK(before < 32 << 20);
    while (got < before)
        got += tls_read_all(&site, &c, sink, sizeof sink, &clean);
    TURN_UNTIL(&site, site.streamed > before);
    CHECK(site.n_rooms > 0);
    tls_client_close(&c);
    TURN_UNTIL(&site, site.n_hangups == 1);
    site_close_tls(&site, tls);
}

/* Sends the beginning of a handshake. */
static int client_greet(const struct site *site, const char *address)
{
    char hello[4096];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    BIO *out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    CHECK(waits(ssl, SSL_connect(ssl)));
    int len = BIO_read(out, hello, sizeof hello), fd = client_open_from(site, address);
    CHECK_INT(send(fd, hello, (size_t)len, MSG_NOSIGNAL), len);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return fd;
}

/* Three handshakes of one address delay another's by one of them. */
TEST(tls, addresses_take_turns_with_handshakes)
{
    struct site site;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    int greedy[3], other, n_served = 0;
    for (int i = 0; i < 3; i++)
        greedy[i] = client_greet(&site, "127.0.0.2");
    other = client_greet(&site, "127.0.0.3");
    TURN_UNTIL(&site, has_bytes(other));
    for (int i = 0; i < 3; i++)
        n_served += has_bytes(greedy[i]);
    CHECK(n_served <= 1);
    close(greedy[2]); /* one that waits may go */
    TURN_UNTIL(&site, has_bytes(greedy[0]) && has_bytes(greedy[1]));
    close(greedy[0]);
    close(greedy[1]);
    close(other);
    TURN_UNTIL(&site, http_server_connections(site.server) == 0);
    site_close_tls(&site, tls);
}

static void key_update(struct client *c, int type)
{
    ERR_clear_error();
    CHECK_INT(SSL_key_update(c->ssl, type), 1);
    CHECK_INT(SSL_do_handshake(c->ssl), 1);
}

/* A client may renew its keys as often as it likes, but it does not keep the loop busy with that.
 */
TEST(tls, key_updates_take_turns)
{
    enum { N_UPDATES = 400 };
    struct site site;
    struct client c;
    unsigned n_turns = 0;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    tls_connect(&site, &c);
    for (int i = 0; i < N_UPDATES; i++)
        key_update(&c, SSL_KEY_UPDATE_NOT_REQUESTED);
    tls_send(&c, GET("/wait"));
    TURN_UNTIL(&site, (n_turns++, site.waiting));
    CHECK(n_turns > N_UPDATES);
    tls_client_close(&c);
    TURN_UNTIL(&site, site.n_hangups == 1);
    site_close_tls(&site, tls);
}

/* The server must answer a key update while its socket is full of an answer. */
TEST(tls, a_key_update_within_an_answer)
{
    static char answer[BIG_BODY_BYTES + 4096];
    for (size_t at = 0; at < BIG_BODY_BYTES; at += BIG_BODY_BYTES / 4 + 1000) {
        struct site site;
        struct client c;
        bool clean = false;
        struct tls_context *tls = site_open_tls(&site, ordinary_options);
        tls_connect(&site, &c);
        tls_send(&c, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        size_t n = tls_read_all(&site, &c, answer, at, &clean);
        turn_for(&site, 20);
        key_update(&c, SSL_KEY_UPDATE_REQUESTED);
        turn_for(&site, 20);
        n += tls_read_all(&site, &c, answer, sizeof answer - n, &clean);
        CHECK(n > BIG_BODY_BYTES && clean);
        TURN_UNTIL(&site, http_server_connections(site.server) == 0);
        tls_client_close(&c);
        site_close_tls(&site, tls);
    }
}

/* An answer that was cut off must not look complete. */
TEST(tls, a_cut_answer_has_no_clean_end)
{
    static char answer[BIG_BODY_BYTES + 4096];
    struct site site;
    struct client c;
    bool clean = true;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    tls_connect(&site, &c);
    tls_send(&c, GET("/big"));
    TURN_UNTIL(&site, site.n_requests == 1);
    http_server_close(site.server);
    site.server = NULL;
    CHECK(tls_read_all(&site, &c, answer, sizeof answer, &clean) < BIG_BODY_BYTES);
    CHECK(!clean);
    tls_client_close(&c);
    site_close_tls(&site, tls);
}

TEST(tls, a_certificate_is_replaced_while_connections_live)
{
    struct site site;
    struct client old, newer, last;
    char answer[4096];
    bool clean;
    struct tls_context *tls = site_open_tls(&site, ordinary_options);
    tls_connect(&site, &old);
    CHECK_INT(serial_of(&old), 1);
    certificate_write(2);
    http_server_reload_tls(site.server);
    tls_connect(&site, &newer);
    CHECK_INT(serial_of(&newer), 2);
    /* A file that cannot be used changes nothing. */
    test_file_write_text(key_file, "nonsense");
    http_server_reload_tls(site.server);
    tls_connect(&site, &last);
    CHECK_INT(serial_of(&last), 2);
    struct client *all[] = {&old, &newer, &last};
    for (int i = 0; i < 3; i++) {
        tls_send(all[i], GET("/"));
        CHECK_INT(tls_read_all(&site, all[i], answer, 12, &clean), 12);
        CHECK(strncmp(answer, "HTTP/1.1 200", 12) == 0);
        tls_client_close(all[i]);
    }
    site_close_tls(&site, tls);
}

TEST(tls, a_server_without_it_reloads_nothing)
{
    struct site site;
    site_open(&site);
    http_server_reload_tls(site.server);
    site_close(&site);
}
