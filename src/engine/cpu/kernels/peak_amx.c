/* The peak of AMX: full tiles of 16 rows by 16 outputs by 64 columns. Its floats are those of
 * AVX-512. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/peak.h"
#include "engine/cpu/kernels/amx_tiles.h"

enum { TILE_MACS = 16 * 16 * 64, N_SUMS = 4 };

static uint64_t int8_macs(uint32_t rounds)
{
    struct amx_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.rows[i] = 16;
        shapes.row_bytes[i] = 64;
    }
    amx_configure(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (uint32_t round = 0; round < rounds; round++) {
        _tile_dpbsud(0, 4, 5);
        _tile_dpbsud(1, 4, 5);
        _tile_dpbsud(2, 4, 5);
        _tile_dpbsud(3, 4, 5);
    }
    _tile_release();
    return (uint64_t)rounds * N_SUMS * TILE_MACS;
}

static uint64_t float_macs(uint32_t rounds)
{
    return peak_kernels_avx512.float_macs(rounds);
}

const struct peak_kernels peak_kernels_amx = {int8_macs, float_macs};
#endif
