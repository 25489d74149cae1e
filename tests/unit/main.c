/* The unit tests; see runner.c for the arguments. */
#include "test.h"

int main(int argc, char **argv)
{
    return test_main("unit", argc, argv);
}
