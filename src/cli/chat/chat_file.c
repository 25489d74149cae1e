/* Saves and loads conversations. A file is a request body with one message per line, so that people
 * can read and edit it. Loaded files are checked by the server's own reader. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/chat/chat.h"

enum { MAX_FILE_BYTES = 64 << 20 };

void path_expand(const char *path, struct strbuf *out)
{
    const char *home = getenv("HOME");
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        strbuf_addf(out, "%s%s", home, path + 1);
    else
        strbuf_adds(out, path);
}

static void path_set(struct strbuf *to, const char *path)
{
    strbuf_clear(to);
    strbuf_adds(to, path);
}

/* ---- writing ------------------------------------------------------------------------------ */

static void conversation_write(const struct chat *c, struct strbuf *out)
{
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_add_string(&w, "model", c->generator.runtime->model_name);
    chat_settings_write(&c->settings, &w);
    strbuf_adds(out, ",\n\"messages\": [");
    const char *separator = "\n  ";
    json_each (message, c->messages) {
        strbuf_adds(out, separator);
        json_write(out, message);
        separator = ",\n  ";
    }
    strbuf_adds(out, "\n]}\n");
}

/* The array of messages in a document, or NULL. */
static const struct json *messages_find(const struct json *root)
{
    const struct json *messages = json_is(root, JSON_ARRAY) ? root : json_get(root, "messages");
    return json_is(messages, JSON_ARRAY) ? messages : NULL;
}

/* Saving must not overwrite other files, for example after a typo. Another conversation may be
 * replaced, but only at the second try. */
static int target_check(struct chat *c, const char *path, struct error *err)
{
    struct strbuf text = STRBUF_INIT;
    struct arena arena = ARENA_INIT;
    struct stat info;
    int failed = 0;
    if (stat(path, &info) == 0) {
        bool is_ours = S_ISREG(info.st_mode) && file_read(path, MAX_FILE_BYTES, &text, NULL) == 0 &&
                       messages_find(json_parse(&arena, strbuf_str(&text), text.len, NULL));
        if (!is_ours)
            failed = error_set(err, ERROR_INPUT,
                               "%s exists and is not a conversation: choose another name", path);
        else if (strcmp(path, strbuf_str(&c->file)) != 0 &&
                 strcmp(path, strbuf_str(&c->file_asked)) != 0)
            failed = error_set(err, ERROR_INPUT, "%s exists: repeat the command to replace it",
                               path);
        if (is_ours)
            path_set(&c->file_asked, path);
    }
    arena_free(&arena);
    strbuf_free(&text);
    return failed;
}

static int bytes_write(const char *path, const struct strbuf *bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    size_t n = fwrite(strbuf_str(bytes), 1, bytes->len, file);
    return fclose(file) || n != bytes->len ? -1 : 0;
}

int chat_save(struct chat *c, const char *path, struct error *err)
{
    struct strbuf full = STRBUF_INIT, temporary = STRBUF_INIT, text = STRBUF_INIT;
    path_expand(path, &full);
    strbuf_addf(&temporary, "%s.%d.part", strbuf_str(&full), (int)getpid());
    int failed = target_check(c, strbuf_str(&full), err);
    if (!failed) {
        conversation_write(c, &text);
        failed = bytes_write(strbuf_str(&temporary), &text) ||
                 rename(strbuf_str(&temporary), strbuf_str(&full));
        if (failed) {
            error_set(err, ERROR_IO, "%s: %s", strbuf_str(&full), strerror(errno));
            unlink(strbuf_str(&temporary));
        } else {
            path_set(&c->file, strbuf_str(&full));
        }
    }
    strbuf_free(&full);
    strbuf_free(&temporary);
    strbuf_free(&text);
    return failed ? -1 : 0;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Reads only the messages. Other fields of a request may ask for things a chat does not support,
 * such as tools. */
static int messages_read(const struct json *messages, struct request_params *out, struct error *err)
{
    static const struct sampling any = SAMPLING_DEFAULT;
    struct strbuf body = STRBUF_INIT;
    struct json_writer w = {.out = &body};
    struct api_error problem = {0};
    json_object_begin(&w, NULL);
    json_add_value(&w, "messages", messages);
    json_object_end(&w);
    int failed = request_params_read(out, REQUEST_CHAT, strbuf_str(&body), body.len, false, &any,
                                     &problem);
    if (failed) {
        request_params_free(out);
        error_set(err, ERROR_INPUT, "%s", problem.message);
    }
    strbuf_free(&body);
    return failed;
}

static void conversation_take(struct chat *c, struct request_params *p)
{
    const struct json *first = p->messages->first;
    arena_free(&c->arena);
    c->arena = p->arena;
    c->arena.limit_bytes = 0;
    c->messages = p->messages;
    c->n_answers = 0;
    p->arena = (struct arena)ARENA_INIT;
    strbuf_clear(&c->system);
    if (json_equals(json_get(first, "role"), "system") &&
        json_is(json_get(first, "content"), JSON_STRING))
        strbuf_add(&c->system, json_get(first, "content")->text,
                   json_get(first, "content")->text_len);
}

static int text_load(struct chat *c, const struct strbuf *text, struct error *err)
{
    struct arena arena = ARENA_INIT;
    struct chat_settings settings = {0};
    struct request_params params;
    const struct json *root = json_parse(&arena, strbuf_str(text), text->len, err);
    const struct json *messages = messages_find(root);
    int failed = root ? 0 : -1;
    if (root && !messages)
        failed = error_set(err, ERROR_INPUT,
                           "not a conversation: expected an array of messages, or an object with "
                           "\"messages\"");
    if (!failed)
        failed = chat_settings_take(&settings, &c->generator.runtime->prompt, root, err);
    if (!failed && (failed = messages_read(messages, &params, err)) == 0) {
        conversation_take(c, &params);
        request_params_free(&params);
        chat_settings_free(&c->settings);
        c->settings = settings;
    } else {
        chat_settings_free(&settings);
    }
    arena_free(&arena);
    return failed;
}

int chat_load(struct chat *c, const char *path, struct error *err)
{
    struct strbuf full = STRBUF_INIT, text = STRBUF_INIT;
    struct error cause;
    struct stat info;
    path_expand(path, &full);
    int failed = 0;
    /* Opening a FIFO or a terminal would wait, and Ctrl-C would not end that. */
    if (stat(strbuf_str(&full), &info))
        failed = error_set(err, ERROR_IO, "%s: %s", strbuf_str(&full), strerror(errno));
    else if (!S_ISREG(info.st_mode))
        failed = error_set(err, ERROR_INPUT, "%s: it is not a regular file", strbuf_str(&full));
    if (!failed)
        failed = file_read(strbuf_str(&full), MAX_FILE_BYTES, &text, err);
    if (!failed && text_load(c, &text, &cause))
        failed = error_set(err, cause.code, "%s: %s", strbuf_str(&full), cause.message);
    if (!failed)
        path_set(&c->file, strbuf_str(&full));
    strbuf_free(&full);
    strbuf_free(&text);
    return failed;
}
