#ifndef RADISH_CLI_CHAT_CHAT_SETTINGS_H
#define RADISH_CLI_CHAT_CHAT_SETTINGS_H

#include "base/json.h"
#include "cli/generate.h"
#include "serve/request/fields.h"

/* How answers are made, as /set changes it. A setting is a request field of the API, by its name
 * and with its checks, so that what was found out here can be sent to the server as it is. */
enum { SETTINGS_MAX = 32 };

struct chat_settings {
    char *values[SETTINGS_MAX]; /* JSON texts; NULL: not set */
};

/* Of the names, up to a NULL: the one that begins with what was given, or that a typing error may
 * have made of it; NULL: there is none. */
const char *name_nearest(const char *given, const char *const *all);

/* The field that the index stands for, or NULL behind the last. */
const struct request_field *chat_settings_field(size_t index);

/* Takes a value as a person writes it: 0.5, true, on, some text, "some text", default. An error
 * says what is wrong, and names the nearest field if there is none of that name. */
int chat_settings_set(struct chat_settings *s, const struct prompt_maker *prompt, const char *name,
                      const char *value, struct error *err);
/* What they come to, over `sampling`; free it. They were checked: ERROR_MEMORY only. */
int chat_settings_read(const struct chat_settings *s, const struct sampling *sampling,
                       struct request_params *out, struct error *err);
/* "0.8 (default)" */
void chat_settings_show(const struct chat_settings *s, size_t index,
                        const struct sampling *sampling, struct strbuf *out);

/* As members of a request's body, and back: members that are no settings are passed over. */
void chat_settings_write(const struct chat_settings *s, struct json_writer *w);
int chat_settings_take(struct chat_settings *s, const struct prompt_maker *prompt,
                       const struct json *request, struct error *err);
void chat_settings_free(struct chat_settings *s);

#endif
