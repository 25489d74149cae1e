/* Rotary positions. Angles are computed in double, because a float angle at position 100,000 is off
 * by a hundredth of a radian. */
#include "engine/cpu/rope.h"

#include <math.h>

void rope_tables(const struct rope *rope, uint32_t position, float *cos, float *sin)
{
    uint32_t half = rope->dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        uint32_t a = rope->kind == ROPE_NORM ? 2 * i : i;
        uint32_t b = rope->kind == ROPE_NORM ? 2 * i + 1 : i + half;
        double s, c;
        sincos(position * rope->frequencies[i], &s, &c);
        cos[a] = cos[b] = rope->amplitude * (float)c;
        sin[a] = rope->amplitude * (float)-s;
        sin[b] = rope->amplitude * (float)s;
    }
}
