#include "base/error.h"

#include <stdlib.h>

#include "test.h"

TEST(error, is_filled_in_and_says_minus_one)
{
    struct error e;
    CHECK_INT(error_set(&e, ERROR_IO, "%s: %d", "file", 7), -1);
    CHECK_INT(e.code, ERROR_IO);
    CHECK(e.position == ERROR_NO_POSITION);
    CHECK_STR(e.message, "file: 7");
    CHECK_INT(error_set_at(&e, ERROR_INPUT, 12, "bad"), -1);
    CHECK_INT(e.code, ERROR_INPUT);
    CHECK_INT(e.position, 12);
    CHECK_STR(e.message, "bad");
}

TEST(error, nobody_need_want_it)
{
    CHECK_INT(error_set(NULL, ERROR_IO, "%d", 1), -1);
    CHECK_INT(error_set_at(NULL, ERROR_IO, 3, "%d", 1), -1);
}

TEST(error, a_long_message_is_cut)
{
    struct error *e = malloc(sizeof *e); /* so that an overrun is seen */
    char text[2000];
    CHECK(e);
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    error_set(e, ERROR_FORMAT, "%s", text);
    CHECK_INT(strlen(e->message), sizeof e->message - 1);
    CHECK(strspn(e->message, "x") == sizeof e->message - 1);
    free(e);
}

TEST(error, can_be_made_from_itself)
{
    struct error e;
    error_set(&e, ERROR_IO, "no such file");
    error_set(&e, e.code, "model.gguf: %s", e.message);
    CHECK_STR(e.message, "model.gguf: no such file");
    CHECK_INT(e.code, ERROR_IO);
}
