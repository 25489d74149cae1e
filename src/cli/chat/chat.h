#ifndef RADISH_CLI_CHAT_CHAT_H
#define RADISH_CLI_CHAT_CHAT_H

#include "cli/chat/answer_view.h"
#include "cli/chat/chat_settings.h"
#include "cli/generate.h"
#include "cli/terminal/line_editor.h"

/* cli/chat/ is `radish chat`: a conversation that a person has, or a script. */
struct chat {
    struct generator generator;
    struct arena arena;    /* holds the messages */
    struct json *messages; /* OpenAI's form; the first is the system message, if there is one */
    struct strbuf system;  /* "": none */
    uint64_t n_answers;    /* of this conversation, so that each draws other random numbers */
    struct chat_settings settings;
    struct strbuf file;       /* saved or loaded last; /save replaces it without asking; "": none */
    struct strbuf file_asked; /* of another conversation: the same /save again replaces it */
    bool shows_timings;
    struct replay_store *replay; /* the answers so far, as they were sampled */
    struct token_list sampled;   /* of the last one */

    bool is_terminal; /* taken: the editor reads it; else plain lines are read */
    bool has_colors;  /* on standard error: for notes */
    struct line_editor editor;
    struct strbuf plain; /* a text that was read without the editor */
    struct answer_view view;
    int n_interrupts;     /* Ctrl-C while the last answer was made */
    uint64_t answered_ns; /* when the last answer ended by itself; 0: it was stopped */
    bool wants_quit;      /* Ctrl-C came again, or a command said so */
    bool was_interrupted; /* SIGINT ended a script's answer, and so the chat */
};

/* ---- turns (turn.c) ---- */

/* Starts over, with the system message and nothing else. */
void chat_reset(struct chat *c);
/* Sets the system message of this conversation and of later ones; "": none. */
void chat_set_system(struct chat *c, const char *text, size_t len);
/* Sends a message and shows the answer. After an error, or if the answer is stopped before its
 * first word, the conversation is unchanged. */
int chat_ask(struct chat *c, const char *text, size_t len, struct error *err);
/* Answers the last message again and replaces the last answer. */
int chat_ask_again(struct chat *c, struct error *err);
/* Keeps the first `n` messages. */
void chat_truncate(struct chat *c, size_t n);

/* ---- what is typed (commands.c) ---- */

/* Runs a command or sends a message. */
int chat_take(struct chat *c, const char *text, struct error *err);
/* For the editor: whether the text is a message of several lines, opened by """ and not closed. */
bool chat_is_open(void *context, const char *text);
void chat_complete(void *context, const char *text, size_t len, struct completion_list *out);

/* A line to standard error for the person, dimmed. */
__attribute__((format(printf, 2, 3))) void chat_note(const struct chat *c, const char *format, ...);

/* ---- files (chat_file.c) ---- */

/* "~/x" becomes the path in the home folder. */
void path_expand(const char *path, struct strbuf *out);
/* Saves the conversation as a request body, which curl can send to the server. Its own file, which
 * it was loaded from or saved to, is replaced; another conversation's only when asked again. */
int chat_save(struct chat *c, const char *path, struct error *err);
/* Replaces the conversation with a saved one: a request body or an array of messages. After an
 * error nothing has changed. */
int chat_load(struct chat *c, const char *path, struct error *err);

#endif
