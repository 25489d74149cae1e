/* The peak of 256-bit registers. Bytes are multiplied in pairs and the pairs summed in 16 bits, as
 * the products of 4-bit weights do; those of 8-bit weights widen each pair and stay below it. */
#if defined(__x86_64__)
#include <immintrin.h>

typedef __m256 vf;
typedef __m256i vi;
enum { INT8_MACS = 32 };

#define vi_zero()         _mm256_setzero_si256()
#define vi_dot(sum, a, b) _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b))
#define vf_zero()         _mm256_setzero_ps()
#define vf_fma(a, b, c)   _mm256_fmadd_ps(a, b, c)

#include "engine/cpu/kernels/peak_vectors.h"

const struct peak_kernels peak_kernels_avx2 = {int8_macs, float_macs};
#endif
