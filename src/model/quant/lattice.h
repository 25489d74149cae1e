#ifndef RADISH_MODEL_QUANT_LATTICE_H
#define RADISH_MODEL_QUANT_LATTICE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/quant/quant.h"

/* The IQ types of GGUF with super-blocks of 256 values. Their values are points of a lattice, given
 * by an index into a table and separate signs: small integers, at most 16 different ones per type.
 *
 *   value i of a part = d * scale[i / 16] * values[i] * unit      exact in float, in any order
 */
enum { LATTICE_PART = 32 };

/* 32 values of a super-block. */
struct lattice_part {
    uint16_t d;      /* float16, of the whole super-block */
    int8_t scale[2]; /* of values 0..15 and 16..31 */
    int8_t values[LATTICE_PART];
};

struct lattice {
    float unit;         /* a power of two */
    int8_t numbers[16]; /* all possible `values`; unused entries are 0 */
    void (*read)(const uint8_t *super_block, uint32_t part, struct lattice_part *out);
};

extern const int8_t iq4_numbers[16]; /* of IQ4_NL and IQ4_XS */

/* NULL: not one of these types. */
const struct lattice *lattice_of(enum tensor_type type);

#endif
