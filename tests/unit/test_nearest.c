/* Names that were meant. */
#include "test.h"

#include "base/nearest.h"

static const char *nearest(const char *given)
{
    static const char *const names[] = {"help", "clear", "regen", "temperature", "top_p", "top_k"};
    struct nearest n = {.given = given};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        nearest_offer(&n, names[i]);
    return n.best ? n.best : "";
}

TEST(nearest, slips_of_the_fingers)
{
    CHECK_STR(nearest("hlep"), "help");
    CHECK_STR(nearest("HELP"), "help");
    CHECK_STR(nearest("claer"), "clear");
    CHECK_STR(nearest("regenerate"), "");
    CHECK_STR(nearest("temprature"), "temperature");
    CHECK_STR(nearest("top-k"), "top_k");
    CHECK_STR(nearest("topp"), "top_p");
}

TEST(nearest, beginnings)
{
    CHECK_STR(nearest("temp"), "temperature");
    CHECK_STR(nearest("h"), "help");
}

TEST(nearest, what_is_far_names_nothing)
{
    CHECK_STR(nearest(""), "");
    CHECK_STR(nearest("x"), "");
    CHECK_STR(nearest("models"), "");
    char longest[200];
    memset(longest, 'h', sizeof longest);
    longest[199] = '\0';
    CHECK_STR(nearest(longest), "");
}
