// The integer types with AVX-512 VNNI: one instruction multiplies 64 bytes by 64 bytes and adds them by fours.

#include "stage_worker/kernels/avx512_integer.h"

namespace stagecoach {
namespace {

struct VnniDot {
  template <int kMaxCode>
  static __m512i Add(__m512i sum, __m512i codes, __m512i x) {
    return _mm512_dpbusd_epi32(sum, codes, x);
  }
};

}  // namespace

void IntegerMatmulAvx512Vnni(const PanelSpan& weights, const Activations& in, int columns, float* out,
                             int64_t out_stride) {
  IntegerMatmul<VnniDot>(weights, in, columns, out, out_stride);
}

}  // namespace stagecoach
