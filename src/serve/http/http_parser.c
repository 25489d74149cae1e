/* The HTTP/1.1 parser. It belongs to its caller and has no other state.
 *
 * Lines are collected in `head` and checked when their LF has arrived, so that the result never
 * depends on how the bytes were split. The lines of chunks and trailers are collected there too,
 * after the fields, and dropped again. Do not make the parser lenient: if a proxy and this server
 * disagree about where the next request begins, requests can be smuggled past the proxy. */
#include "serve/http/http_parser.h"

#include <string.h>
#include <strings.h>

#include "base/ascii.h"
#include "base/minmax.h"

static const char *const method_names[] = {"GET",    "HEAD",    "POST",  "PUT",    "PATCH",
                                           "DELETE", "OPTIONS", "TRACE", "CONNECT"};

/* RFC 9110 5.6.2 */
static bool is_token_char(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_token_char(s[i]))
            return false;
    return len > 0;
}

/* RFC 3986: unreserved, sub-delims; ":" and "@" make it a pchar. */
static bool is_name_char(char c)
{
    return ascii_is_alpha(c) || ascii_is_digit(c) || (c && strchr("-._~!$&'()*+,;=", c));
}

/* Checks a run of URI characters: those of a name, those in `more`, and whole percent-escapes. */
static bool is_uri_text(const char *s, size_t len, const char *more)
{
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '%') {
            if (len - i < 3 || ascii_hex_value(s[i + 1]) < 0 || ascii_hex_value(s[i + 2]) < 0)
                return false;
            i += 2;
        } else if (!is_name_char(s[i]) && !(s[i] && strchr(more, s[i]))) {
            return false;
        }
    }
    return true;
}

/* Tabs, spaces and everything that is not a control character. */
static bool is_field_text(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void refuse(struct http_parser *p, int status, const char *message)
{
    p->state = HTTP_REFUSED;
    p->status = status;
    p->message = message;
    p->keep_alive = false;
}

void http_parser_open(struct http_parser *p, size_t max_header_bytes, size_t max_body_bytes)
{
    *p = (struct http_parser){.max_header_bytes = max_header_bytes,
                              .max_body_bytes = max_body_bytes};
    http_parser_reset(p);
}

void http_parser_close(struct http_parser *p)
{
    strbuf_free(&p->head);
    strbuf_free(&p->body);
}

void http_parser_reset(struct http_parser *p)
{
    struct strbuf head = p->head;
    strbuf_clear(&head);
    strbuf_free(&p->body);
    *p = (struct http_parser){
        .max_header_bytes = p->max_header_bytes, .max_body_bytes = p->max_body_bytes, .head = head};
    strbuf_addc(&p->head, '\0'); /* so that offset 0 means "none" */
    p->line_at = p->head.len;
}

bool http_parser_is_idle(const struct http_parser *p)
{
    size_t line_len = p->head.len - p->line_at;
    bool is_empty = line_len == 0 || (line_len == 1 && p->head.data[p->line_at] == '\r');
    return p->state == HTTP_START && is_empty;
}

const char *http_parser_method(const struct http_parser *p)
{
    return p->head.data + p->method_at;
}

const char *http_parser_target(const struct http_parser *p)
{
    return p->head.data + p->target_at;
}

const char *http_parser_field(const struct http_parser *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_fields; i++)
        if (strcasecmp(p->head.data + p->fields[i].name, name) == 0)
            return p->head.data + p->fields[i].value;
    return NULL;
}

const char *http_parser_host(const struct http_parser *p)
{
    return p->authority_at ? p->head.data + p->authority_at : http_parser_field(p, "host");
}

void http_parser_path(const struct http_parser *p, struct strbuf *out)
{
    const char *s = p->head.data + p->path_at;
    for (; *s && *s != '?'; s++) {
        if (*s != '%') {
            strbuf_addc(out, *s);
            continue;
        }
        strbuf_addc(out, (char)(ascii_hex_value(s[1]) * 16 + ascii_hex_value(s[2])));
        s += 2;
    }
}

bool http_split_authority(const char *authority, size_t len, size_t *host_len, int *port)
{
    size_t end = 0;
    if (len && authority[0] == '[') {
        const char *close = memchr(authority, ']', len);
        if (!close)
            return false;
        end = (size_t)(close - authority) + 1;
        for (size_t i = 1; i + 1 < end; i++)
            if (ascii_hex_value(authority[i]) < 0 && authority[i] != ':' && authority[i] != '.')
                return false;
        if (end < 4)
            return false;
    } else {
        const char *colon = memchr(authority, ':', len);
        end = colon ? (size_t)(colon - authority) : len;
        if (!is_uri_text(authority, end, ""))
            return false;
    }
    *host_len = end;
    *port = -1;
    if (end == len)
        return true;
    if (authority[end] != ':')
        return false;
    if (end + 1 == len)
        return true; /* RFC 3986 allows an empty port */
    int value = 0;
    for (size_t i = end + 1; i < len; i++) {
        if (!ascii_is_digit(authority[i]))
            return false;
        value = value * 10 + (authority[i] - '0');
        if (value > 65535)
            return false;
    }
    *port = value;
    return true;
}

/* "http://authority[/path][?query]": sets the positions of the authority and the path. The path is
 * moved after a NUL that ends the authority, through a copy at the end of `head`. */
static bool absolute_target(struct http_parser *p, size_t len)
{
    const char *target = p->head.data + p->target_at;
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    if (!scheme)
        return false;
    size_t authority_len = strcspn(target + scheme, "/?");
    size_t host_len;
    int port;
    if (!http_split_authority(target + scheme, authority_len, &host_len, &port) || host_len == 0)
        return false;
    const char *path = target + scheme + authority_len;
    size_t path_len = len - scheme - authority_len;
    if (!is_uri_text(path, path_len, ":@/?"))
        return false;
    if (!strbuf_reserve(&p->head, len + 3))
        return false;
    target = p->head.data + p->target_at; /* it may have moved */
    p->authority_at = (uint32_t)p->head.len;
    strbuf_add(&p->head, target + scheme, authority_len);
    strbuf_addc(&p->head, '\0');
    p->path_at = (uint32_t)p->head.len;
    if (path_len == 0 || target[scheme + authority_len] != '/')
        strbuf_addc(&p->head, '/');
    strbuf_add(&p->head, target + scheme + authority_len, path_len);
    strbuf_addc(&p->head, '\0');
    return true;
}

static bool target_is_valid(struct http_parser *p, size_t len)
{
    const char *target = p->head.data + p->target_at;
    p->path_at = p->target_at;
    if (p->method == HTTP_CONNECT) {
        size_t host_len;
        int port;
        return http_split_authority(target, len, &host_len, &port) && host_len && port > 0;
    }
    if (strcmp(target, "*") == 0)
        return p->method == HTTP_OPTIONS;
    if (target[0] == '/')
        return is_uri_text(target, len, ":@/?");
    return absolute_target(p, len);
}

/* Whoever reads such a path as a string sees another one. */
static bool path_has_nul(const struct http_parser *p)
{
    const char *path = p->head.data + p->path_at;
    const char *nul = strstr(path, "%00");
    return nul && (size_t)(nul - path) < strcspn(path, "?");
}

/* method SP target SP "HTTP/" digit "." digit */
static void request_line(struct http_parser *p, char *line, size_t len)
{
    char *first = memchr(line, ' ', len);
    char *second = first ? memchr(first + 1, ' ', len - (size_t)(first + 1 - line)) : NULL;
    if (!second || !is_token(line, (size_t)(first - line))) {
        refuse(p, 400, "the request line must be: method, space, target, space, HTTP version");
        return;
    }
    const char *version = second + 1;
    if (len - (size_t)(version - line) != 8 || memcmp(version, "HTTP/", 5) != 0 ||
        !ascii_is_digit(version[5]) || version[6] != '.' || !ascii_is_digit(version[7])) {
        refuse(p, 400, "the request line must end with an HTTP version, such as HTTP/1.1");
        return;
    }
    if (version[5] != '1') {
        refuse(p, 505, "only HTTP/1.1 and HTTP/1.0 are supported");
        return;
    }
    p->minor_version = version[7] == '0' ? 0 : 1;
    *first = *second = '\0';
    p->method_at = (uint32_t)(line - p->head.data);
    p->target_at = (uint32_t)(first + 1 - p->head.data);
    p->method = HTTP_OTHER;
    for (int i = 0; i < HTTP_OTHER; i++)
        if (strcmp(line, method_names[i]) == 0)
            p->method = (enum http_method)i;
    if (!target_is_valid(p, (size_t)(second - first - 1))) {
        refuse(p, 400, "the request target is not valid");
        return;
    }
    if (path_has_nul(p)) {
        refuse(p, 400, "the request's path contains a NUL (%00)");
        return;
    }
    p->state = HTTP_FIELDS;
}

/* name ":" blanks value blanks; splits the line into two strings. */
static void field_line(struct http_parser *p, char *line, size_t len, bool keep)
{
    if (is_blank(line[0])) {
        refuse(p, 400, "a header line must not begin with a space (folded lines are obsolete)");
        return;
    }
    char *colon = memchr(line, ':', len);
    if (!colon || !is_token(line, (size_t)(colon - line))) {
        refuse(p, 400,
               colon && colon > line && is_blank(colon[-1])
                   ? "a space before the colon of a header line is not allowed"
                   : "a header line must be: name, colon, value");
        return;
    }
    char *value = colon + 1, *end = line + len;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    if (!is_field_text(value, (size_t)(end - value))) {
        refuse(p, 400, "a header value contains a control character");
        return;
    }
    if (!keep)
        return;
    if (p->n_fields == HTTP_MAX_FIELDS) {
        refuse(p, 431, "there are more than 100 header lines");
        return;
    }
    *colon = *end = '\0';
    p->fields[p->n_fields++] = (struct http_field){(uint32_t)(line - p->head.data),
                                                   (uint32_t)(value - p->head.data)};
}

/* Walks the comma-separated elements of every field of that name. */
struct list_walk {
    const struct http_parser *p;
    const char *name;
    uint32_t field;
    const char *at;
};

static const char *list_next(struct list_walk *w, size_t *len)
{
    while (!w->at) {
        if (w->field == w->p->n_fields)
            return NULL;
        const struct http_field *f = &w->p->fields[w->field++];
        if (strcasecmp(w->p->head.data + f->name, w->name) == 0)
            w->at = w->p->head.data + f->value;
    }
    const char *start = w->at;
    size_t n = strcspn(start, ",");
    w->at = start[n] ? start + n + 1 : NULL;
    while (n && is_blank(*start))
        start++, n--;
    while (n && is_blank(start[n - 1]))
        n--;
    *len = n;
    return start;
}

static bool element_is(const char *element, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(element, word, len) == 0;
}

/* The last coding must be "chunked", once; no other is supported. */
static void read_transfer_encoding(struct http_parser *p)
{
    struct list_walk walk = {.p = p, .name = "transfer-encoding"};
    size_t len = 0;
    unsigned n_chunked = 0, n_other = 0;
    bool last_chunked = false;
    for (const char *e; (e = list_next(&walk, &len));) {
        last_chunked = element_is(e, len, "chunked");
        *(last_chunked ? &n_chunked : &n_other) += 1;
    }
    if (n_chunked + n_other == 0)
        return;
    if (p->minor_version == 0)
        refuse(p, 400, "HTTP/1.0 has no Transfer-Encoding");
    else if (n_chunked != 1 || !last_chunked)
        refuse(p, 400, "Transfer-Encoding must end with a single chunked");
    else if (n_other)
        refuse(p, 501, "chunked is the only supported Transfer-Encoding");
    else if (http_parser_field(p, "content-length"))
        refuse(p, 400, "a request must not have both Content-Length and Transfer-Encoding");
    p->chunked = true;
}

static void read_content_length(struct http_parser *p)
{
    const char *value = http_parser_field(p, "content-length");
    if (!value)
        return;
    uint64_t length = 0;
    bool too_large = false;
    for (const char *s = value; *s || s == value; s++) {
        if (!ascii_is_digit(*s)) {
            refuse(p, 400, "Content-Length must be one decimal number");
            return;
        }
        too_large |= length > (UINT64_MAX - 9) / 10;
        length = too_large ? UINT64_MAX : length * 10 + (uint64_t)(*s - '0');
    }
    p->content_length = length;
}

/* A proxy may have checked another one of two fields than the handler reads. */
static void refuse_repeated(struct http_parser *p)
{
    static const struct {
        const char *name, *message;
    } single[] = {
        {"host", "the request has more than one Host"},
        {"origin", "the request has more than one Origin"},
        {"content-length", "the request has more than one Content-Length"},
        {"content-type", "the request has more than one Content-Type"},
        {"authorization", "the request has more than one Authorization"},
        {"x-api-key", "the request has more than one x-api-key"},
    };
    for (size_t s = 0; s < sizeof single / sizeof *single; s++) {
        unsigned n = 0;
        for (uint32_t i = 0; i < p->n_fields; i++)
            n += strcasecmp(p->head.data + p->fields[i].name, single[s].name) == 0;
        if (n > 1) {
            refuse(p, 400, single[s].message);
            return;
        }
    }
}

static void read_host(struct http_parser *p)
{
    const char *host = http_parser_field(p, "host");
    size_t host_len;
    int port;
    if (!host && p->minor_version > 0)
        refuse(p, 400, "HTTP/1.1 needs a Host header");
    else if (host && !http_split_authority(host, strlen(host), &host_len, &port))
        refuse(p, 400, "the Host header is not a host with an optional port");
}

static void read_connection(struct http_parser *p)
{
    struct list_walk walk = {.p = p, .name = "connection"};
    size_t len = 0;
    p->keep_alive = p->minor_version > 0;
    for (const char *e; (e = list_next(&walk, &len));)
        if (element_is(e, len, "close"))
            p->keep_alive = false;
    const char *expect = http_parser_field(p, "expect");
    if (!expect || p->minor_version == 0)
        return;
    if (strcasecmp(expect, "100-continue") == 0)
        p->expect_continue = true;
    else
        refuse(p, 417, "the only supported Expect is 100-continue");
}

/* After the empty line: determines the body from the fields. */
static void head_complete(struct http_parser *p)
{
    static void (*const checks[])(struct http_parser *) = {
        refuse_repeated, read_host, read_transfer_encoding, read_content_length, read_connection};
    for (size_t i = 0; i < sizeof checks / sizeof *checks && p->state != HTTP_REFUSED; i++)
        checks[i](p);
    if (p->state == HTTP_REFUSED)
        return;
    if (p->content_length > p->max_body_bytes) {
        refuse(p, 413, "the request body is larger than this server accepts");
        return;
    }
    p->remaining = p->content_length;
    p->state = p->chunked ? HTTP_CHUNK_SIZE : p->content_length ? HTTP_BODY : HTTP_DONE;
}

enum { CHUNK_FRAME_BYTES = 16 };

/* 1*HEXDIG [blanks ";" any field text] */
static void chunk_line(struct http_parser *p, const char *line, size_t len)
{
    uint64_t size = 0;
    size_t i = 0;
    for (; i < len && ascii_hex_value(line[i]) >= 0; i++) {
        if (size >> 60) {
            refuse(p, 400, "a chunk's size does not fit in 64 bits");
            return;
        }
        size = size * 16 + (uint64_t)ascii_hex_value(line[i]);
    }
    size_t extension = i;
    while (extension < len && is_blank(line[extension]))
        extension++;
    bool clean = i == len || (extension < len && line[extension] == ';');
    if (i == 0 || !clean || !is_field_text(line + i, len - i)) {
        refuse(p, 400, "a chunk must begin with its size in hexadecimal digits");
        return;
    }
    if (size > p->max_body_bytes - p->body.len) {
        refuse(p, 413, "the request body is larger than this server accepts");
        return;
    }
    /* Extensions mean nothing here, so long ones in front of little data are an attack. */
    const uint64_t needed = CHUNK_FRAME_BYTES + 2 * size;
    p->frame_bytes += len;
    p->frame_bytes -= p->frame_bytes < needed ? p->frame_bytes : needed;
    if (p->frame_bytes > HTTP_MAX_FRAMES) {
        refuse(p, 400, "too much of the chunked body is not data");
        return;
    }
    p->remaining = size;
    p->state = size ? HTTP_CHUNK_DATA : HTTP_TRAILERS;
}

/* A whole line, without its CRLF, NUL-terminated in `head` at line_at. */
static void line_complete(struct http_parser *p, size_t len)
{
    char *line = p->head.data + p->line_at;
    switch (p->state) {
    case HTTP_START:
        if (len)
            request_line(p, line, len);
        else if (++p->n_empty > HTTP_MAX_EMPTY_LINES)
            refuse(p, 400, "there are too many empty lines before the request");
        break;
    case HTTP_FIELDS:
        if (len)
            field_line(p, line, len, true);
        else
            head_complete(p);
        break;
    case HTTP_CHUNK_SIZE: chunk_line(p, line, len); break;
    case HTTP_CHUNK_END:
        if (len)
            refuse(p, 400, "a chunk is longer than its size");
        else
            p->state = HTTP_CHUNK_SIZE;
        break;
    default:
        if (len)
            field_line(p, line, len, false);
        else
            p->state = HTTP_DONE;
    }
}

/* How many more bytes the line being read may have. */
static size_t line_room(const struct http_parser *p)
{
    size_t line_len = p->head.len - p->line_at;
    size_t room;
    if (p->state == HTTP_START || p->state == HTTP_FIELDS) {
        room = p->max_header_bytes > p->header_bytes ? p->max_header_bytes - p->header_bytes : 0;
        size_t line_max = p->state == HTTP_START ? HTTP_MAX_REQUEST_LINE : p->max_header_bytes;
        if (line_max - line_len < room)
            room = line_max - line_len;
    } else if (p->state == HTTP_TRAILERS) {
        room = p->max_header_bytes > p->trailer_bytes ? p->max_header_bytes - p->trailer_bytes : 0;
    } else {
        size_t line_max = p->state == HTTP_CHUNK_END ? 2 : HTTP_MAX_CHUNK_LINE;
        room = line_max - line_len;
    }
    return room;
}

static void line_too_long(struct http_parser *p)
{
    switch (p->state) {
    case HTTP_START: refuse(p, 414, "the request line is too long"); break;
    case HTTP_CHUNK_SIZE: refuse(p, 400, "the line before a chunk is too long"); break;
    case HTTP_CHUNK_END: refuse(p, 400, "a chunk is longer than its size"); break;
    default: refuse(p, 431, "the header is larger than this server accepts");
    }
}

/* Takes bytes up to and including the next LF; checks the line once it is complete. */
static size_t feed_line(struct http_parser *p, const char *bytes, size_t len)
{
    size_t room = line_room(p);
    size_t take = min_size(len, room);
    const char *lf = memchr(bytes, '\n', take);
    if (lf)
        take = (size_t)(lf - bytes) + 1;
    strbuf_add(&p->head, bytes, take);
    if (p->head.failed) {
        refuse(p, 503, "not enough memory for the header; try again soon");
        return take;
    }
    if (p->state <= HTTP_FIELDS)
        p->header_bytes += take;
    else if (p->state == HTTP_TRAILERS)
        p->trailer_bytes += take;
    if (!lf) {
        if (take == room)
            line_too_long(p);
        return take;
    }
    char *line = p->head.data + p->line_at;
    size_t line_len = p->head.len - p->line_at - 1; /* without LF */
    if (line_len == 0 || line[line_len - 1] != '\r') {
        refuse(p, 400, "a line must end with CR LF, not with LF alone");
        return take;
    }
    line_len--;
    if (memchr(line, '\r', line_len) || memchr(line, '\0', line_len)) {
        refuse(p, 400, "a line contains a bare CR or a NUL");
        return take;
    }
    line[line_len] = '\0';
    enum http_state before = p->state;
    line_complete(p, line_len);
    /* Data that is not needed again is dropped, so that `head` stays within its bound. */
    if (before > HTTP_FIELDS || line_len == 0) {
        p->head.len = p->line_at;
        p->head.data[p->head.len] = '\0';
    }
    p->line_at = p->head.len;
    return take;
}

static size_t feed_body(struct http_parser *p, const char *bytes, size_t len)
{
    size_t take = len < p->remaining ? len : (size_t)p->remaining;
    strbuf_add(&p->body, bytes, take);
    if (p->body.failed) {
        refuse(p, 503, "not enough memory for the request body; try again soon");
        return take;
    }
    p->remaining -= take;
    if (p->remaining == 0)
        p->state = p->chunked ? HTTP_CHUNK_END : HTTP_DONE;
    return take;
}

size_t http_parser_feed(struct http_parser *p, const char *bytes, size_t len)
{
    enum { TLS_HANDSHAKE = 0x16 };
    size_t used = 0;
    bool in_head = p->state <= HTTP_FIELDS;
    if (len && bytes[0] == TLS_HANDSHAKE && http_parser_is_idle(p)) {
        refuse(p, 400, "this looks like HTTPS; use http://, or start the server with --tls-cert");
        return 1;
    }
    while (used < len && p->state < HTTP_DONE && in_head == (p->state <= HTTP_FIELDS)) {
        bool data = p->state == HTTP_BODY || p->state == HTTP_CHUNK_DATA;
        used += (data ? feed_body : feed_line)(p, bytes + used, len - used);
    }
    return used;
}
