/* Reads options from a file. Their values point into its text, which stays in memory until the next
 * file is read: a process has one. */
#include "cli/config_file.h"

#include <string.h>

#include "base/file.h"

enum { MAX_FILE_BYTES = 1 << 20 };

static char *blanks_skip(char *at)
{
    return at + strspn(at, " \t");
}

/* Ends the text before the white space at its end. */
static void blanks_cut(char *text)
{
    size_t len = strlen(text);
    while (len && strchr(" \t\r", text[len - 1]))
        len--;
    text[len] = '\0';
}

/* Ends the text at a # that begins it or follows white space. */
static void comment_cut(char *text)
{
    for (char *at = text; (at = strchr(at, '#')); at++)
        if (at == text || at[-1] == ' ' || at[-1] == '\t') {
            *at = '\0';
            return;
        }
}

/* Ends the value at `text` and returns its beginning; NULL if a quote is missing. */
static char *value_cut(char *text)
{
    if (*text != '"') {
        comment_cut(text);
        blanks_cut(text);
        return text;
    }
    char *end = strchr(text + 1, '"'), *rest = end ? blanks_skip(end + 1) : NULL;
    if (!end || (*rest && *rest != '#' && *rest != '\r'))
        return NULL;
    *end = '\0';
    return text + 1;
}

static int line_read(char *text, unsigned number, struct option_set *set, struct error *err)
{
    char *name = blanks_skip(text), *rest = name + strcspn(name, " \t=\r");
    if (!*name || *name == '#' || *name == '\r')
        return 0;
    char *value = blanks_skip(rest);
    bool has_sign = *value == '=';
    if (rest == name)
        return error_set(err, ERROR_INPUT, "there is no name before the =");
    value = blanks_skip(value + has_sign);
    *rest = '\0';
    bool has_value = has_sign || (*value && *value != '#' && *value != '\r');
    value = value_cut(value);
    if (!value)
        return error_set(err, ERROR_INPUT, "a value in quotes ends with a quote, and has no other");
    if (strcmp(name, "config") == 0)
        return error_set(err, ERROR_INPUT, "a config file cannot name another one");
    return args_set_from_file(set, number, name, has_value ? value : NULL, err);
}

int config_file_read(const char *path, struct option_set *set, struct error *err)
{
    static struct strbuf text = STRBUF_INIT;
    struct error cause;
    strbuf_free(&text);
    if (file_read(path, MAX_FILE_BYTES, &text, err))
        return -1;
    if (memchr(strbuf_str(&text), '\0', text.len))
        return error_set(err, ERROR_INPUT, "%s is not a text file: it contains a NUL byte", path);
    unsigned number = 1;
    for (char *line = text.data, *end; line; line = end, number++) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        if (line_read(line, number, set, &cause))
            return error_set(err, cause.code, "%s, line %u: %s", path, number, cause.message);
    }
    return 0;
}
