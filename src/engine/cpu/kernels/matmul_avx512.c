/* Products of packed matrices with AVX-512 (F, BW, DQ, VL): the tiles of matmul_tile.h on the
 * operations of matmul_avx512_ops.h, without VNNI. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/matmul_avx512_ops.h"
#include "engine/cpu/kernels/matmul_tile.h"

const struct matmul_kernels matmul_kernels_avx512 = {quantize_row_avx2, matmul_tiles};
#endif
