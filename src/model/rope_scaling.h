#ifndef RADISH_MODEL_ROPE_SCALING_H
#define RADISH_MODEL_ROPE_SCALING_H

#include <stdbool.h>
#include <stdint.h>

/* How far each pair of values rotates at a position, with the scaling that a file asks for.
 * Dynamic NTK is not supported: its frequencies depend on the current length, so no key computed
 * at another length could be reused. */
enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,       /* all by factor */
    ROPE_SCALING_YARN,         /* slow pairs by factor, fast ones unscaled, a ramp between */
    ROPE_SCALING_LLAMA3,       /* the same with another ramp */
    ROPE_SCALING_LONG,         /* each by its own divisor */
    ROPE_SCALING_PROPORTIONAL, /* the first pairs of a head, as if all were rotated */
};

struct rope_spec {
    enum rope_scaling scaling;
    uint32_t dim; /* values that are rotated */
    double base;
    double factor;
    double original; /* the context before scaling: YaRN, Llama 3, long */
    double part;     /* proportional: of the pairs */
    double beta_fast, beta_slow, mscale, mscale_all_dim;
    bool is_exact;                               /* the ends of YaRN's ramp are not rounded */
    double low_factor, high_factor;              /* Llama 3 */
    double amplitude;                            /* 0: the scaling's own */
    const float *divisors;                       /* [dim / 2] of each frequency, or NULL */
    const float *long_divisors, *short_divisors; /* long: `divisors` is one of these */
};

/* YaRN's attention factor: 1 + 0.1 * mscale * log(factor); 1 if factor <= 1. */
double yarn_mscale(double factor, double mscale);

/* The scaling as a divisor of the i-th plain frequency, as in GGUF files: Llama 3, proportional. */
float rope_divisor(const struct rope_spec *spec, uint32_t i);

/* Fills `frequencies` [dim / 2]; returns the amplitude. All fields of `spec` that its scaling uses
 * must be finite and above 0, and base above 1. */
double rope_compute(const struct rope_spec *spec, double *frequencies);

#endif
