#ifndef RADISH_CLI_INPUT_H
#define RADISH_CLI_INPUT_H

#include "base/error.h"
#include "base/strbuf.h"

/* Reads all of standard input; a person at a terminal is told how to end it. */
int input_read(struct strbuf *out, struct error *err);

/* Fails unless the text is UTF-8: a tokenizer may have no tokens for other bytes and would drop
 * them silently. `what` starts the message: "the prompt". */
int input_check_utf8(const char *what, const char *text, size_t len, struct error *err);

#endif
