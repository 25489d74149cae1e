/* Frequencies of rotary embeddings; see rope_scaling.h. Pure functions, any thread. YaRN's ramp
 * runs over the index of a pair; Llama 3's runs over its frequency. */
#include "model/rope_scaling.h"

#include <math.h>
#include <stddef.h>

static const double pi = 3.14159265358979323846;

double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The index of the pair that makes `turns` full turns over the original context. */
static double yarn_index(const struct rope_spec *spec, double turns)
{
    return spec->dim * log(spec->original / (turns * 2 * pi)) / (2 * log(spec->base));
}

static void scale_yarn(const struct rope_spec *spec, double *frequencies)
{
    double low = yarn_index(spec, spec->beta_fast), high = yarn_index(spec, spec->beta_slow);
    if (!spec->is_exact) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, spec->dim - 1.0);
    if (low == high)
        high += 0.001; /* avoids a division by zero, as transformers does */
    for (uint32_t i = 0; i < spec->dim / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        frequencies[i] = frequencies[i] / spec->factor * ramp + frequencies[i] * (1 - ramp);
    }
}

/* Pairs that turn often over the original context keep their frequency; those that turn rarely are
 * divided by the factor. */
static double llama3_divisor(const struct rope_spec *spec, uint32_t i)
{
    double turns = spec->original * pow(spec->base, -2.0 * i / spec->dim) / (2 * pi);
    double smooth = (turns - spec->low_factor) / (spec->high_factor - spec->low_factor);
    smooth = fmin(fmax(smooth, 0), 1);
    return 1 / ((1 - smooth) / spec->factor + smooth);
}

float rope_divisor(const struct rope_spec *spec, uint32_t i)
{
    if (spec->scaling == ROPE_SCALING_LLAMA3)
        return (float)llama3_divisor(spec, i);
    bool is_turned = i < (uint32_t)(spec->part * spec->dim / 2);
    return is_turned ? (float)spec->factor : 1e30f; /* practically no rotation */
}

static double amplitude_of(const struct rope_spec *spec)
{
    if (spec->amplitude > 0)
        return spec->amplitude;
    if (spec->scaling == ROPE_SCALING_YARN)
        return spec->mscale > 0 && spec->mscale_all_dim > 0
                   ? yarn_mscale(spec->factor, spec->mscale) /
                         yarn_mscale(spec->factor, spec->mscale_all_dim)
                   : yarn_mscale(spec->factor, 1);
    if (spec->scaling == ROPE_SCALING_LONG && spec->factor > 1)
        return sqrt(1 + log(spec->factor) / log(spec->original));
    return 1;
}

double rope_compute(const struct rope_spec *spec, double *frequencies)
{
    uint32_t n = spec->dim / 2;
    for (uint32_t i = 0; i < n; i++)
        frequencies[i] = pow(spec->base, -2.0 * i / spec->dim);
    switch (spec->scaling) {
    case ROPE_SCALING_LINEAR:
        for (uint32_t i = 0; i < n; i++)
            frequencies[i] /= spec->factor;
        break;
    case ROPE_SCALING_PROPORTIONAL:
        for (uint32_t i = 0; i < n; i++)
            frequencies[i] = i < (uint32_t)(spec->part * spec->dim / 2)
                                 ? frequencies[i] / spec->factor
                                 : 0;
        break;
    case ROPE_SCALING_YARN: scale_yarn(spec, frequencies); break;
    case ROPE_SCALING_LLAMA3: /* in floats, so that a GGUF file of the model gives the same bits */
        for (uint32_t i = 0; i < n; i++)
            frequencies[i] /= rope_divisor(spec, i);
        break;
    case ROPE_SCALING_LONG:
    case ROPE_SCALING_NONE: break;
    }
    for (uint32_t i = 0; spec->divisors && i < n; i++)
        frequencies[i] /= spec->divisors[i];
    return amplitude_of(spec);
}
