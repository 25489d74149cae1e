#ifndef RADISH_CLI_CHAT_CHAT_SETTINGS_H
#define RADISH_CLI_CHAT_CHAT_SETTINGS_H

#include "base/json.h"
#include "cli/generate.h"
#include "serve/request/fields.h"

/* The settings that /set changes. Each is a request field of the API, with its name and checks, so
 * settings that work here can be sent to the server unchanged. */
enum { SETTINGS_MAX = 32 };

struct chat_settings {
    char *values[SETTINGS_MAX]; /* JSON texts; NULL: not set */
};

/* The name (of a NULL-terminated list) that starts with the given text or differs from it by a
 * typing error; NULL: none. */
const char *name_nearest(const char *given, const char *const *all);

/* The field that the index stands for, or NULL behind the last. */
const struct request_field *chat_settings_field(size_t index);

/* Sets a value as a person writes it: 0.5, true, on, some text, "some text", default. The error for
 * an unknown name suggests the nearest one. */
int chat_settings_set(struct chat_settings *s, const struct prompt_maker *prompt, const char *name,
                      const char *value, struct error *err);
/* Applies the settings on top of `sampling`; free the result. They were checked before, so only
 * ERROR_MEMORY is possible. */
int chat_settings_read(const struct chat_settings *s, const struct sampling *sampling,
                       struct request_params *out, struct error *err);
/* "0.8 (default)" */
void chat_settings_show(const struct chat_settings *s, size_t index,
                        const struct sampling *sampling, struct strbuf *out);

/* Writes the settings as members of a request body, and reads them back, ignoring other members. */
void chat_settings_write(const struct chat_settings *s, struct json_writer *w);
int chat_settings_take(struct chat_settings *s, const struct prompt_maker *prompt,
                       const struct json *request, struct error *err);
void chat_settings_free(struct chat_settings *s);

#endif
