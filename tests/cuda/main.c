/* Tests of an engine in a plug-in, on a machine with its device:
 *
 *   cuda_tests PLUGIN.so [NAME ...]     cases whose "suite.name" contains a NAME; --list names them
 *   cuda_tests cpu [NAME ...]           the CPU engine in its place, to try the tests themselves
 *
 * Runs in the root of the sources, where tests/models is. */
#include "device.h"
#include "test.h"

int main(int argc, char **argv)
{
    struct error err;
    if (argc < 2) {
        fprintf(stderr, "usage: cuda_tests PLUGIN.so|cpu [NAME ...]\n");
        return 2;
    }
    log_set_level(LOG_WARN);
    if (engine_source_open(&device_source, strcmp(argv[1], "cpu") == 0 ? NULL : argv[1], &err)) {
        fprintf(stderr, "cuda_tests: %s\n", err.message);
        return 1;
    }
    int status = test_main("cuda", argc - 1, argv + 1);
    engine_source_close(&device_source);
    return status;
}
