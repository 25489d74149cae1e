/* Rotary positions. Angles are made in double, because a float's angle at position 100,000 is off
 * by a hundredth of a radian. */
#include "engine/cpu/rope.h"

#include <math.h>

void rope_frequencies(const struct hparams *hp, const struct weight *divisors, double *out)
{
    const float *divisor = divisors->data;
    for (uint32_t i = 0; i < hp->rope_dim / 2; i++) {
        out[i] = pow(hp->rope_base, -2.0 * i / hp->rope_dim) * hp->rope_scale;
        if (divisor)
            out[i] /= divisor[i];
    }
}

void rope_tables(const struct hparams *hp, const double *frequencies, uint32_t position, float *cos,
                 float *sin)
{
    uint32_t half = hp->rope_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        uint32_t a = hp->rope_kind == ROPE_NORM ? 2 * i : i;
        uint32_t b = hp->rope_kind == ROPE_NORM ? 2 * i + 1 : i + half;
        double s, c;
        sincos(position * frequencies[i], &s, &c);
        cos[a] = cos[b] = (float)c;
        sin[a] = (float)-s;
        sin[b] = (float)s;
    }
}
