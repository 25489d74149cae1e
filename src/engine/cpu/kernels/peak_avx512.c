/* The peak of 512-bit registers without VNNI; see peak_avx2.c. */
#if defined(__x86_64__)
#include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi;
enum { INT8_MACS = 64 };

#define vi_zero()         _mm512_setzero_si512()
#define vi_dot(sum, a, b) _mm512_add_epi16(sum, _mm512_maddubs_epi16(a, b))
#define vf_zero()         _mm512_setzero_ps()
#define vf_fma(a, b, c)   _mm512_fmadd_ps(a, b, c)

#include "engine/cpu/kernels/peak_vectors.h"

const struct peak_kernels peak_kernels_avx512 = {int8_macs, float_macs};
#endif
