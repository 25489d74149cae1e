/* `radish chat`: a conversation in the terminal or from a script. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/chat/chat.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"

static const char *system_text;
static bool show_timings, no_history;

static const struct option chat_options[] = {
    TEXT("system sys", &system_text, "TEXT", "system message for the model"),
    FLAG("timings", &show_timings, "show cache use and speed after each answer"),
    FLAG("no-history", &no_history, "do not read or write the history file"),
    {0},
};

enum { REPLAY_BYTES = 16 << 20 };
static const uint64_t late_interrupt_ns = 1000000000;

/* ---- the history -------------------------------------------------------------------------- */

/* Creates the directories of a path, accessible only to the user. */
static int folders_make(struct strbuf *path)
{
    for (char *at = path->data + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        if (mkdir(path->data, 0700) && errno != EEXIST) {
            *at = '/';
            return -1;
        }
    }
    return 0;
}

/* The history is in the user's state directory, as the XDG base directory specification says. A
 * chat works without it. */
static void history_begin(struct chat *c)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct strbuf path = STRBUF_INIT;
    struct error err;
    if (state && state[0] == '/')
        strbuf_addf(&path, "%s/radish/chat_history", state);
    else if (home && home[0] == '/')
        strbuf_addf(&path, "%s/.local/state/radish/chat_history", home);
    if (path.len && folders_make(&path) == 0 &&
        history_open(&c->editor.history, strbuf_str(&path), &err))
        chat_note(c, "No history: %s", err.message);
    strbuf_free(&path);
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Ctrl-C without the editor. The handler writes to this eventfd, so a signal that arrives just
 * before the wait ends it too. */
static int interrupt_fd = -1;

static void interrupt_note(int signal_number)
{
    int saved = errno;
    ssize_t written = write(interrupt_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)signal_number, (void)written;
    errno = saved;
}

static void interrupt_catch(void)
{
    const struct sigaction action = {.sa_handler = interrupt_note};
    interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (interrupt_fd < 0)
        return;                      /* then Ctrl-C ends the program */
    setvbuf(stdin, NULL, _IONBF, 0); /* poll does not see what stdio has read ahead */
    sigaction(SIGINT, &action, NULL);
}

/* A byte of standard input; EOF also after Ctrl-C. */
static int byte_read(void)
{
    struct pollfd polled[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = interrupt_fd, .events = POLLIN}};
    while (interrupt_fd >= 0 && poll(polled, 2, -1) < 0)
        if (errno != EINTR)
            return EOF;
    return polled[1].revents ? EOF : getchar();
}

/* Reads a line of standard input without its newline; false at the end of the input. */
static bool line_read(struct strbuf *out)
{
    int c;
    size_t before = out->len;
    while ((c = byte_read()) != EOF && c != '\n')
        strbuf_addc(out, (char)c);
    if (c == EOF && out->len == before)
        return false;
    if (out->len > before && out->data[out->len - 1] == '\r')
        out->data[--out->len] = '\0';
    return true;
}

/* Reads input without the editor: one line, or all lines between triple quotes. */
static const char *plain_read(struct chat *c)
{
    FILE *prompts = isatty(STDOUT_FILENO) ? stdout : stderr;
    if (isatty(STDIN_FILENO) && isatty(fileno(prompts))) {
        fputs("> ", prompts);
        fflush(prompts);
    }
    strbuf_clear(&c->plain);
    if (!line_read(&c->plain))
        return NULL;
    while (chat_is_open(c, strbuf_str(&c->plain))) {
        strbuf_addc(&c->plain, '\n');
        if (!line_read(&c->plain))
            break; /* not closed: chat_take reports it */
    }
    return strbuf_str(&c->plain);
}

/* The next input; NULL at the end. */
static const char *text_read(struct chat *c)
{
    if (!c->is_terminal)
        return plain_read(c);
    for (;;) {
        enum line_result result = line_editor_read(&c->editor, "> ");
        if (result == LINE_TEXT)
            break;
        /* The answer may finish just as the user presses Ctrl-C to stop it. */
        bool is_late = c->answered_ns && clock_now_ns() - c->answered_ns < late_interrupt_ns;
        if (result == LINE_END || !is_late)
            return NULL;
        chat_note(c, "The answer was already complete. Press Ctrl-C again to exit.");
        c->answered_ns = 0;
    }
    history_add(&c->editor.history, strbuf_str(&c->editor.line));
    return strbuf_str(&c->editor.line);
}

/* ---- the command -------------------------------------------------------------------------- */

static void terminal_begin(struct chat *c)
{
    const struct runtime *runtime = c->generator.runtime;
    if (isatty(STDIN_FILENO))
        chat_note(c, "%s, %u tokens of context.\n/help lists the commands, Ctrl-D exits.\n",
                  runtime->model_name, runtime->context);
    c->is_terminal = terminal_take();
    if (!c->is_terminal) {
        if (isatty(STDIN_FILENO))
            interrupt_catch();
        return;
    }
    c->view.is_terminal = true;
    c->view.has_colors = c->editor.has_colors = terminal_has_colors(STDOUT_FILENO);
    c->editor.input.fd = STDIN_FILENO;
    c->editor.context = c;
    c->editor.is_open = chat_is_open;
    c->editor.complete = chat_complete;
    if (!no_history)
        history_begin(c);
}

/* A person has already seen each error; a script gets it as the exit status. */
static int chat_loop(const struct command *command, struct chat *c)
{
    struct error err;
    const char *text;
    bool failed = false;
    while (!c->wants_quit && (text = text_read(c))) {
        if (chat_take(c, text, &err) == 0)
            continue;
        failed = true;
        if (c->is_terminal)
            chat_note(c, "%s", err.message);
        else
            command_fail(command, &err, EXIT_FAILED);
    }
    if (c->was_interrupted)
        return EXIT_INTERRUPTED;
    return failed && !isatty(STDIN_FILENO) ? EXIT_FAILED : EXIT_OK;
}

static void chat_close(struct chat *c)
{
    replay_store_close(c->replay);
    token_list_free(&c->sampled);
    chat_settings_free(&c->settings);
    line_editor_free(&c->editor);
    answer_view_free(&c->view);
    strbuf_free(&c->system);
    strbuf_free(&c->file);
    strbuf_free(&c->file_asked);
    strbuf_free(&c->plain);
    arena_free(&c->arena);
}

static int chat_run(const struct command *command, int argc, char **argv)
{
    struct option_set set;
    struct runtime runtime;
    struct chat chat = {.editor = {.input = {.fd = -1}}};
    struct error err;
    int status;
    if (!runtime_parse(command, &set, argc, argv, &status))
        return status;
    if (runtime_open(&runtime, RUNTIME_ANSWERS, &err))
        return command_fail_option(command, &err);
    if (generate_check_template(&runtime.prompt, "", &err) ||
        replay_store_open(&chat.replay, REPLAY_BYTES, &err) ||
        generator_open(&chat.generator, &runtime, &runtime.prompt.style, &err)) {
        replay_store_close(chat.replay);
        runtime_close(&runtime);
        return command_fail(command, &err, EXIT_FAILED);
    }
    chat.shows_timings = show_timings;
    chat.has_colors = terminal_has_colors(STDERR_FILENO);
    strbuf_adds(&chat.system, system_text ? system_text : "");
    chat_reset(&chat);
    terminal_begin(&chat);
    status = chat_loop(command, &chat);
    if (chat.is_terminal)
        terminal_release();
    generator_close(&chat.generator);
    chat_close(&chat);
    runtime_close(&runtime);
    return status;
}

const struct command command_chat = {
    .name = "chat",
    .summary = "chat with a model in the terminal",
    .usage = "[-m PATH] [OPTIONS]",
    .example = "radish chat -m model.gguf --system \"You are a pirate.\"",
    .operand_hint = "the model is given with -m PATH; for one answer: radish run \"PROMPT\"",
    .tables = {runtime_default_model_options, command_config_options, chat_options,
               generate_options, runtime_template_options, runtime_engine_options,
               runtime_mock_options},
    .run = chat_run,
    .has_default_model = true,
};
