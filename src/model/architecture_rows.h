#ifndef RADISH_MODEL_ARCHITECTURE_ROWS_H
#define RADISH_MODEL_ARCHITECTURE_ROWS_H

#include "model/architecture.h"

/* The table itself, private to the files architecture*.c. */
extern const struct architecture architecture_rows[];
extern const size_t n_architecture_rows;

#endif
