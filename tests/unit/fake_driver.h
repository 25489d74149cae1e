#ifndef RADISH_TEST_FAKE_DRIVER_H
#define RADISH_TEST_FAKE_DRIVER_H

#include "../fakes/fake_cuda.h"

/* The shared objects that the Makefile builds from tests/fakes. */
const char *fake_path(const char *name); /* valid until the next call */
/* The fake driver's path; and its numbers, as if it had just been loaded. */
const char *fake_driver_path(void);
struct fake_cuda *fake_driver_reset(void);
/* Fails the test if something is left open on the device. */
void fake_driver_check_closed(void);

#endif
