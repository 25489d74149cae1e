#ifndef RADISH_CLI_TERMINAL_KEYS_H
#define RADISH_CLI_TERMINAL_KEYS_H

#include <stdbool.h>

#include "base/strbuf.h"

/* Keys from a terminal: bytes as they are, and the escape sequences of other keys as one value. */
enum key {
    KEY_END_OF_INPUT = -1,
    KEY_CTRL_A = 1,
    KEY_CTRL_B,
    KEY_CTRL_C,
    KEY_CTRL_D,
    KEY_CTRL_E,
    KEY_CTRL_F,
    KEY_CTRL_G,
    KEY_CTRL_H,
    KEY_TAB,
    KEY_NEWLINE,
    KEY_CTRL_K,
    KEY_CTRL_L,
    KEY_ENTER,
    KEY_CTRL_N,
    KEY_CTRL_P = 16,
    KEY_CTRL_R = 18,
    KEY_CTRL_S,
    KEY_CTRL_T,
    KEY_CTRL_U,
    KEY_CTRL_W = 23,
    KEY_CTRL_Y = 25,
    KEY_CTRL_Z,
    KEY_ESCAPE,
    KEY_BACKSPACE = 127,
    KEY_UP = 1000,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_DELETE,
    KEY_WORD_LEFT,
    KEY_WORD_RIGHT,
    KEY_WORD_DELETE,
    KEY_WORD_ERASE, /* the word before the cursor */
    KEY_ALT_ENTER,
    KEY_PASTE_BEGIN,
    KEY_PASTE_END,
    KEY_RESIZED, /* the terminal has another size */
};

/* Where keys come from: what was typed ahead, then `fd`. */
struct key_input {
    int fd;              /* -1: there is nothing behind `ahead` */
    struct strbuf ahead; /* bytes that were read already, */
    size_t n_taken;      /* of which so many were given out as keys */
    bool has_ended;
};

/* Waits for the next key. A sequence that means nothing here is KEY_ESCAPE. */
int key_read(struct key_input *in);
/* Whether a key is there already, so that drawing can wait. */
bool key_is_pending(const struct key_input *in);

/* While something else has the terminal: takes what is there into `ahead`, without waiting. How
 * many times Ctrl-C was among it, which is not kept; a hang-up counts as one. */
int key_input_fill(struct key_input *in);
void key_input_free(struct key_input *in);

#endif
