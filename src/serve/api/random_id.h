#ifndef RADISH_SERVE_API_RANDOM_ID_H
#define RADISH_SERVE_API_RANDOM_ID_H

/* The prefix and 24 random characters: the first `n_letters` of 0-9, a-z, A-Z. `out` has room for
 * all of it and a NUL. */
enum { RANDOM_ID_LETTERS = 24 };
void random_id(char *out, const char *prefix, unsigned n_letters);

#endif
