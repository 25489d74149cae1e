/* Parses what is typed at the prompt. Commands are '/' and a word; everything else is a message,
 * including paths ("/usr/bin") and code comments ("// why?"). An unknown command is never sent to
 * the model. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ascii.h"
#include "cli/chat/chat.h"
#include "cli/terminal/terminal.h"

#define QUOTES "\"\"\""

struct chat_command {
    const char *name;
    const char *value; /* what /help calls its argument; NULL: it takes none */
    const char *help;  /* NULL: an alias of the command above */
    int (*run)(struct chat *c, const char *value, struct error *err);
};

void chat_note(const struct chat *c, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return;
    struct strbuf out = STRBUF_INIT;
    struct word_wrap wrap = {0};
    fflush(stdout);
    if (terminal_takes_escapes(STDERR_FILENO))
        word_wrap_add(&wrap, terminal_size().columns, text, (size_t)n, &out);
    else
        strbuf_add(&out, text, (size_t)n);
    fprintf(stderr, "%s%s%s\n", c->has_colors ? "\033[2m" : "", strbuf_str(&out),
            c->has_colors ? "\033[0m" : "");
    word_wrap_free(&wrap);
    strbuf_free(&out);
    free(text);
}

/* ---- the text of a message ---------------------------------------------------------------- */

/* Where a triple-quoted text would begin: at the start, or after "/system ". */
static const char *quotes_find(const char *text)
{
    static const char system[] = "/system ";
    if (strncmp(text, system, sizeof system - 1) == 0)
        text += sizeof system - 1 + strspn(text + sizeof system - 1, " ");
    return strncmp(text, QUOTES, 3) == 0 ? text : NULL;
}

bool chat_is_open(void *context, const char *text)
{
    (void)context;
    bool is_open = false;
    for (const char *at = quotes_find(text); at && (at = strstr(at, QUOTES)); at += 3)
        is_open = !is_open;
    return is_open;
}

/* Strips the triple quotes around a text and the line breaks next to them. */
static const char *quotes_strip(const char *text, size_t *len)
{
    *len = strlen(text);
    if (*len < 6 || strncmp(text, QUOTES, 3) != 0 || strcmp(text + *len - 3, QUOTES) != 0)
        return text;
    text += 3;
    *len -= 6;
    if (*len && text[0] == '\n') {
        text++;
        --*len;
    }
    if (*len && text[*len - 1] == '\n')
        --*len;
    return text;
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\n')
            return false;
    return true;
}

/* ---- the commands ------------------------------------------------------------------------- */

static const struct chat_command *command_first(void);

static int run_help(struct chat *c, const char *value, struct error *err)
{
    (void)value, (void)err;
    struct strbuf names = STRBUF_INIT;
    for (const struct chat_command *command = command_first(); command->name; command++) {
        const struct chat_command *shown = command;
        strbuf_clear(&names);
        strbuf_addf(&names, "/%s", command->name);
        for (; command[1].name && !command[1].help; command++)
            strbuf_addf(&names, ", /%s", command[1].name);
        strbuf_addf(&names, "%s%s", shown->value ? " " : "", shown->value ? shown->value : "");
        chat_note(c, "  %-22s %s", strbuf_str(&names), shown->help);
    }
    strbuf_free(&names);
    chat_note(c, "\n"
                 "  " QUOTES "                    starts and ends a multi-line message\n"
                 "  Alt-Enter              inserts a line break; pasted text stays one message\n"
                 "  Ctrl-C                 stops the answer, or exits at an empty prompt\n"
                 "  Ctrl-D                 exits\n"
                 "  Up, Down, Ctrl-R       recall and search earlier messages\n"
                 "  Tab                    completes commands, settings and file names");
    return 0;
}

static int run_clear(struct chat *c, const char *value, struct error *err)
{
    (void)value, (void)err;
    chat_reset(c);
    chat_note(c, "Conversation cleared.%s", c->system.len ? " The system message is kept." : "");
    return 0;
}

static int run_system(struct chat *c, const char *value, struct error *err)
{
    (void)err;
    size_t len;
    const char *text = quotes_strip(value, &len);
    if (!*value) {
        if (c->system.len)
            chat_note(c, "%s", strbuf_str(&c->system));
        else
            chat_note(c, "No system message. /system TEXT sets one.");
        return 0;
    }
    if (strcmp(value, "\"\"") == 0)
        len = 0;
    chat_set_system(c, text, len);
    chat_note(c, len ? "System message set." : "System message removed.");
    return 0;
}

static int run_regen(struct chat *c, const char *value, struct error *err)
{
    (void)value;
    return chat_ask_again(c, err);
}

static int run_save(struct chat *c, const char *value, struct error *err)
{
    if (chat_save(c, value, err))
        return -1;
    chat_note(c, "Saved %zu message%s to %s.", c->messages->count,
              c->messages->count == 1 ? "" : "s", value);
    return 0;
}

/* Shows the last messages of a conversation as they originally looked, so that the user remembers
 * where it stopped. */
static void messages_show(struct chat *c, size_t n_last)
{
    static const struct answer_style plain;
    size_t skipped = c->messages->count > n_last ? c->messages->count - n_last : 0;
    answer_view_begin(&c->view, &plain, false);
    json_each (message, c->messages) {
        const struct json *content = json_get(message, "content");
        bool is_user = json_equals(json_get(message, "role"), "user");
        bool is_shown = is_user || json_equals(json_get(message, "role"), "assistant");
        if (skipped) {
            skipped--;
            continue;
        }
        if (!is_shown || !json_is(content, JSON_STRING))
            continue;
        answer_view_add(&c->view, "> ", is_user ? 2 : 0);
        answer_view_add(&c->view, content->text, content->text_len);
        answer_view_add(&c->view, "\n", is_user && message->next);
    }
    answer_view_end(&c->view, "");
    answer_view_gap(&c->view);
}

static int run_load(struct chat *c, const char *value, struct error *err)
{
    if (chat_load(c, value, err))
        return -1;
    chat_note(c, "Loaded %zu message%s from %s.\n", c->messages->count,
              c->messages->count == 1 ? "" : "s", value);
    if (c->is_terminal)
        messages_show(c, 2);
    if (json_equals(json_get(c->messages->last, "role"), "user"))
        chat_note(c, "/regen answers the last message.");
    return 0;
}

/* The seed and the longest answer have no value but for an option of the command line. */
static void setting_show(const struct chat *c, size_t index, struct strbuf *out)
{
    const struct sampling sampling = generate_sampling(&c->generator.runtime->prompt);
    const char *name = chat_settings_field(index)->name;
    if (!c->settings.values[index] && strcmp(name, "seed") == 0 && generate_is_seeded())
        strbuf_addf(out, "%llu (default)", (unsigned long long)sampling.seed);
    else if (!c->settings.values[index] && strcmp(name, "max_tokens") == 0 && generate_max_tokens)
        strbuf_addf(out, "%u (default)", generate_max_tokens);
    else
        chat_settings_show(&c->settings, index, &sampling, out);
}

static void settings_list(const struct chat *c)
{
    struct strbuf value = STRBUF_INIT;
    for (size_t i = 0; chat_settings_field(i); i++) {
        strbuf_clear(&value);
        setting_show(c, i, &value);
        chat_note(c, "  %-20s %s", chat_settings_field(i)->name, strbuf_str(&value));
    }
    chat_note(c, "  %-20s %s", "timings", c->shows_timings ? "on" : "off");
    chat_note(c, "\n/set NAME VALUE changes a setting, /set NAME default resets it.");
    strbuf_free(&value);
}

/* /set NAME: shows the value and what it means. */
static int setting_describe(const struct chat *c, const char *name, struct error *err)
{
    struct strbuf value = STRBUF_INIT;
    size_t i = 0;
    while (chat_settings_field(i) && strcmp(chat_settings_field(i)->name, name) != 0)
        i++;
    if (!chat_settings_field(i)) {
        struct chat_settings none = {0};
        return chat_settings_set(&none, &c->generator.runtime->prompt, name, "default", err);
    }
    setting_show(c, i, &value);
    chat_note(c, "%s is %s. %s", name, strbuf_str(&value), chat_settings_field(i)->text);
    strbuf_free(&value);
    return 0;
}

static int timings_set(struct chat *c, const char *value, struct error *err)
{
    bool is_on = strcmp(value, "on") == 0 || strcmp(value, "true") == 0;
    if (!is_on && strcmp(value, "off") != 0 && strcmp(value, "false") != 0)
        return error_set(err, ERROR_INPUT, "timings must be on or off, not '%s'", value);
    c->shows_timings = is_on;
    chat_note(c, "timings: %s", is_on ? "on" : "off");
    return 0;
}

static int run_set(struct chat *c, const char *value, struct error *err)
{
    char name[64];
    if (strncmp(value, "parameter ", 10) == 0) /* as in ollama */
        value += 10 + strspn(value + 10, " ");
    size_t len = strcspn(value, " =");
    snprintf(name, sizeof name, "%.*s", (int)len, value);
    value += len + strspn(value + len, " =");
    if (!*name) {
        settings_list(c);
        return 0;
    }
    if (strcmp(name, "timings") == 0)
        return timings_set(c, value, err);
    if (strcmp(name, "system") == 0)
        return run_system(c, value, err);
    if (!*value)
        return setting_describe(c, name, err);
    if (chat_settings_set(&c->settings, &c->generator.runtime->prompt, name, value, err))
        return -1;
    chat_note(c, "%s: %s", name, value);
    return 0;
}

static int run_quit(struct chat *c, const char *value, struct error *err)
{
    (void)value, (void)err;
    c->wants_quit = true;
    return 0;
}

static const struct chat_command commands[] = {
    {"help", NULL, "show this help", run_help},
    {"?", NULL, NULL, run_help},
    {"clear", NULL, "start a new conversation", run_clear},
    {"regen", NULL, "answer the last message again", run_regen},
    {"system", "[TEXT]", "set the system message (\"\" removes it), or show it", run_system},
    {"set", "[NAME [VALUE]]", "change a setting such as temperature, or list them all", run_set},
    {"save", "FILE", "save the conversation as JSON, in the API's format", run_save},
    {"load", "FILE", "continue a saved conversation", run_load},
    {"quit", NULL, "exit", run_quit},
    {"exit", NULL, NULL, run_quit},
    {"bye", NULL, NULL, run_quit},
    {0},
};

static const struct chat_command *command_first(void)
{
    return commands;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* The length of a command's name after the '/'; 0 for a message. */
static size_t command_length(const char *text)
{
    size_t len = 0;
    if (text[0] != '/')
        return 0;
    if (text[1] == '?')
        len = 1;
    while (ascii_is_alpha(text[1 + len]) ||
           (len && strchr("-_0123456789", text[1 + len]) && text[1 + len]))
        len++;
    char next = text[1 + len];
    return next == '\0' || next == ' ' || next == '\t' ? len : 0;
}

static int unknown_command(const char *name, struct error *err)
{
    const char *names[sizeof commands / sizeof *commands]; /* including the final NULL */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        names[i] = commands[i].name;
    const char *nearest = name_nearest(name, names);
    if (nearest)
        return error_set(err, ERROR_INPUT,
                         "unknown command /%s. Did you mean /%s? To send this as a message, put a "
                         "space in front.",
                         name, nearest);
    return error_set(err, ERROR_INPUT,
                     "unknown command /%s: see /help. To send this as a message, put a space in "
                     "front.",
                     name);
}

static int text_run(struct chat *c, const char *text, size_t name_len, struct error *err)
{
    char name[64];
    const struct chat_command *command = commands;
    snprintf(name, sizeof name, "%.*s", (int)name_len, text + 1);
    while (command->name && strcmp(command->name, name) != 0)
        command++;
    if (!command->name)
        return unknown_command(name, err);
    const char *value = text + 1 + name_len;
    value += strspn(value, " \t");
    if (*value && !command->value)
        return error_set(err, ERROR_INPUT, "/%s takes no argument, got '%.40s'", name, value);
    if (!*value && command->value && command->value[0] != '[')
        return error_set(err, ERROR_INPUT, "usage: /%s %s", name, command->value);
    struct strbuf trimmed = STRBUF_INIT;
    strbuf_adds(&trimmed, value);
    while (trimmed.len &&
           (trimmed.data[trimmed.len - 1] == ' ' || trimmed.data[trimmed.len - 1] == '\t'))
        trimmed.data[--trimmed.len] = '\0';
    int failed = command->run(c, strbuf_str(&trimmed), err);
    strbuf_free(&trimmed);
    return failed;
}

int chat_take(struct chat *c, const char *text, struct error *err)
{
    size_t name_len = command_length(text), len;
    if (chat_is_open(c, text))
        return error_set(err, ERROR_INPUT,
                         "the closing " QUOTES " is missing, so the message was not sent");
    if (name_len)
        return text_run(c, text, name_len, err);
    const char *message = quotes_strip(text, &len);
    if (message[0] == ' ' && message[1] == '/') { /* a leading space makes it a message */
        message++;
        len--;
    }
    while (len && message[len - 1] == '\n') /* left by a paste */
        len--;
    return is_blank(message, len) ? 0 : chat_ask(c, message, len, err);
}

/* ---- completion --------------------------------------------------------------------------- */

static void commands_complete(const char *typed, size_t len, struct completion_list *out)
{
    char name[80];
    for (const struct chat_command *command = commands; command->name; command++) {
        int n = snprintf(name, sizeof name, "/%s%s", command->name, command->value ? " " : "");
        if (strncmp(name, typed, len) == 0)
            completion_list_add(out, name, (size_t)n);
    }
}

static void settings_complete(const char *typed, size_t len, struct completion_list *out)
{
    char name[80];
    for (size_t i = 0; chat_settings_field(i); i++) {
        int n = snprintf(name, sizeof name, "%s ", chat_settings_field(i)->name);
        if (strncmp(name, typed, len) == 0)
            completion_list_add(out, name, (size_t)n);
    }
    if (strncmp("timings ", typed, len) == 0)
        completion_list_add(out, "timings ", 8);
}

static int text_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void files_complete(const char *typed, size_t len, struct completion_list *out)
{
    struct strbuf folder = STRBUF_INIT, path = STRBUF_INIT, item = STRBUF_INIT;
    size_t base = len;
    while (base > 0 && typed[base - 1] != '/')
        base--;
    strbuf_add(&path, typed, base);
    path_expand(base ? strbuf_str(&path) : ".", &folder);
    DIR *entries = opendir(strbuf_str(&folder));
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        bool is_hidden = entry->d_name[0] == '.' && (base == len || typed[base] != '.');
        if (is_hidden || strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strncmp(entry->d_name, typed + base, len - base) != 0)
            continue;
        strbuf_clear(&item);
        strbuf_addf(&item, "%.*s%s%s", (int)base, typed, entry->d_name,
                    entry->d_type == DT_DIR ? "/" : "");
        completion_list_add(out, strbuf_str(&item), item.len);
    }
    if (entries)
        closedir(entries);
    if (out->n)
        qsort(out->items, out->n, sizeof *out->items, text_compare);
    strbuf_free(&folder);
    strbuf_free(&path);
    strbuf_free(&item);
}

void chat_complete(void *context, const char *text, size_t len, struct completion_list *out)
{
    (void)context;
    size_t name_len = strcspn(text, " "), from = name_len + strspn(text + name_len, " ");
    if (text[0] != '/')
        return;
    if (len <= name_len) {
        commands_complete(text, len, out);
        return;
    }
    out->from = from < len ? from : len;
    bool is_file = strncmp(text, "/load ", 6) == 0 || strncmp(text, "/save ", 6) == 0;
    if (is_file)
        files_complete(text + out->from, len - out->from, out);
    else if (strncmp(text, "/set ", 5) == 0)
        settings_complete(text + out->from, len - out->from, out);
}
