/* Reads standard input for commands and checks text from the user. */
#include "cli/input.h"

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

int input_read(struct strbuf *out, struct error *err)
{
    if (isatty(STDIN_FILENO))
        fprintf(stderr, "reading from the terminal; press Ctrl-D on an empty line to finish\n");
    return file_read("-", 0, out, err);
}

int input_check_utf8(const char *what, const char *text, size_t len, struct error *err)
{
    for (size_t at = 0, width; at < len; at += width)
        if ((width = utf8_valid_prefix(text + at, len - at)) == 0)
            return error_set_at(err, ERROR_INPUT, at,
                                "%s is not valid UTF-8: byte 0x%02x at offset %zu", what,
                                (unsigned char)text[at], at);
    return 0;
}
