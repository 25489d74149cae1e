#ifndef RADISH_CLI_TERMINAL_TERMINAL_H
#define RADISH_CLI_TERMINAL_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>

/* The terminal that standard input and output are. While it is taken, keys arrive one by one and
 * unechoed, Ctrl-C is a key and not a signal (so that programs which wait for this one, such as
 * make, see none), and pasted text comes in marks. */
struct screen_size {
    size_t columns, rows;
};

/* False if one of the two is not a terminal, or one that takes no escape sequences. */
bool terminal_take(void);
/* As it was before. A signal that ends the program does this too. */
void terminal_release(void);
/* Ctrl-Z: stops this process group, and takes the terminal again when it goes on. */
void terminal_suspend(void);

struct screen_size terminal_size(void);
/* Whether the size has changed since the last call. The change interrupts a read. */
bool terminal_was_resized(void);

/* Whether what is written there may have escape sequences: not to a file, nor with TERM=dumb. */
bool terminal_takes_escapes(int fd);
/* ... and colours: NO_COLOR refuses them. */
bool terminal_has_colors(int fd);

#endif
