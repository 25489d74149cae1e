#include "fake_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test.h"

const char *fake_path(const char *name)
{
    static char path[4200];
    char program[4096];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    CHECK(len > 0);
    program[len] = '\0';
    *strrchr(program, '/') = '\0';
    snprintf(path, sizeof path, "%s/fakes/%s", program, name);
    return path;
}

const char *fake_driver_path(void)
{
    return fake_path("libcuda.so.1");
}

static struct fake_cuda *numbers(void)
{
    void *library = dlopen(fake_driver_path(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    CHECK(library);
    struct fake_cuda *fake = dlsym(library, FAKE_CUDA_SYMBOL);
    CHECK(fake);
    dlclose(library);
    return fake;
}

struct fake_cuda *fake_driver_reset(void)
{
    static struct fake_cuda first;
    struct fake_cuda *fake = numbers();
    if (first.version == 0)
        first = *fake;
    *fake = first;
    return fake;
}

void fake_driver_check_closed(void)
{
    const struct fake_cuda *fake = numbers();
    CHECK_INT(fake->n_memory, 0);
    CHECK_INT(fake->n_host_memory, 0);
    CHECK_INT(fake->n_graphs, 0);
    CHECK_INT(fake->n_events, 0);
    CHECK_INT(fake->n_streams, 0);
    CHECK_INT(fake->n_modules, 0);
    CHECK_INT(fake->n_contexts, 0);
}
