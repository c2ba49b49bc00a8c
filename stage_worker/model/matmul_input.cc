#include "stage_worker/model/matmul_input.h"

namespace stagecoach {

MatmulInput::MatmulInput(int64_t max_rows, int64_t max_cols)
    : q_(static_cast<size_t>(max_rows * max_cols)),
      scales_(static_cast<size_t>(max_rows * (max_cols / kActivationGroup)) * sizeof(float)),
      starts_(static_cast<size_t>(max_rows * (max_cols / kActivationGroup)) * sizeof(int32_t)),
      half_starts_(2 * static_cast<size_t>(max_rows * (max_cols / kActivationGroup)) * sizeof(int32_t)) {}

bool MatmulInput::WantsInt8(const Kernels& kernels, std::initializer_list<const PackedMatrix*> matrices) {
  for (const PackedMatrix* matrix : matrices) {
    if (ActivationKindFor(kernels, matrix->type) == ActivationKind::kInt8) return true;
  }
  return false;
}

void MatmulInput::Quantize(const Kernels& kernels, const float* x, int64_t x_stride, int64_t cols, Gang::Part part) {
  const int64_t groups = cols / kActivationGroup;
  for (int64_t row = part.begin; row < part.end; ++row) {
    kernels.quantize_row(x + row * x_stride, cols, q_.as<int8_t>() + row * cols, scales_.as<float>() + row * groups,
                         starts_.as<int32_t>() + row * groups, half_starts_.as<int32_t>() + row * 2 * groups);
  }
}

Activations MatmulInput::View(const float* x, int64_t x_stride) const {
  return {x, x_stride, q_.as<int8_t>(), scales_.as<float>(), starts_.as<int32_t>(), half_starts_.as<int32_t>()};
}

}  // namespace stagecoach
