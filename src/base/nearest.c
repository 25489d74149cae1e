/* Distances between short names: letters inserted, left out, replaced or swapped with the next. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MAX_NAME = 64 };

static char plain(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static size_t distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    size_t rows[3][MAX_NAME + 1]; /* of the table: this one and the two above it */
    if (n_a > MAX_NAME || n_b > MAX_NAME)
        return SIZE_MAX;
    for (size_t k = 0; k <= n_b; k++)
        rows[0][k] = k;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t k = 1; k <= n_b; k++) {
            bool is_same = plain(a[i - 1]) == plain(b[k - 1]);
            row[k] = least(above[k] + 1, row[k - 1] + 1, above[k - 1] + !is_same);
            if (i > 1 && k > 1 && plain(a[i - 1]) == plain(b[k - 2]) &&
                plain(a[i - 2]) == plain(b[k - 1]) && second[k - 2] + 1 < row[k])
                row[k] = second[k - 2] + 1;
        }
    }
    return rows[n_a % 3][n_b];
}

static bool begins_with(const char *name, const char *given)
{
    size_t i = 0;
    while (given[i] && plain(name[i]) == plain(given[i]))
        i++;
    return i > 0 && !given[i];
}

void nearest_offer(struct nearest *n, const char *name)
{
    size_t len = strlen(n->given), most = len < 3 ? len / 2 : len < 7 ? 2 : 3;
    size_t d = begins_with(name, n->given) ? 0 : distance(n->given, name);
    if (d > most || (n->best && d >= n->distance))
        return;
    n->best = name;
    n->distance = d;
}
