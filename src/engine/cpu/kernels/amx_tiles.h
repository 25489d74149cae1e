#ifndef RADISH_ENGINE_CPU_KERNELS_AMX_TILES_H
#define RADISH_ENGINE_CPU_KERNELS_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* The shapes of the tile registers, as the processor reads them. */
struct amx_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Compilers assume that the intrinsic reads less than the whole struct, and would drop the rest. */
static inline void amx_configure(const struct amx_shapes *shapes)
{
    __asm__ volatile("" : : "r"(shapes) : "memory");
    _tile_loadconfig(shapes);
}

#endif
