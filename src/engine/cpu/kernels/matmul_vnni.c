/* Products of packed matrices with AVX-512 and VNNI: the tiles of matmul_tile.h on the operations
 * of matmul_avx512_ops.h, which uses vpdpbusd because of how this file is compiled. */
#if defined(__x86_64__)
#include "engine/cpu/kernels/matmul_avx512_ops.h"
#include "engine/cpu/kernels/matmul_tile.h"

const struct matmul_kernels matmul_kernels_vnni = {quantize_row_avx2, matmul_tiles};
#endif
