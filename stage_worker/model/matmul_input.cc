#include "stage_worker/model/matmul_input.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagecoach {
namespace {

constexpr int64_t kHalfGroup = kActivationGroup / 2;

AlignedBuffer Buffer(bool wanted, int64_t elements, size_t element_bytes) {
  return AlignedBuffer(wanted ? static_cast<size_t>(elements) * element_bytes : 0);
}

}  // namespace

Activations RowsFrom(const Activations& input, int64_t cols, int64_t first) {
  const int64_t at = first * cols, group = at / kActivationGroup;
  Activations rows = input;
  rows.x += first * input.x_stride;
  rows.q += at;
  rows.scales += group;
  rows.starts += group;
  rows.half_starts += at / kHalfGroup;
  rows.bf16 += at;
  return rows;
}

MatmulInput::MatmulInput(const InputForms& forms, int64_t max_rows, int64_t max_cols)
    : x_(Buffer(forms.floats, max_rows * max_cols, sizeof(float))),
      q_(Buffer(forms.int8, max_rows * max_cols, sizeof(int8_t))),
      scales_(Buffer(forms.int8, max_rows * (max_cols / kActivationGroup), sizeof(float))),
      starts_(Buffer(forms.int8, max_rows * (max_cols / kActivationGroup), sizeof(int32_t))),
      half_starts_(Buffer(forms.int8, max_rows * (max_cols / kHalfGroup), sizeof(int32_t))),
      bf16_(Buffer(forms.bf16, max_rows * max_cols, sizeof(uint16_t))) {}

void MatmulInput::Set(const Kernels& kernels, const InputForms& forms, int64_t row, int64_t cols, int64_t begin,
                      const float* x, int64_t count) {
  const int64_t at = row * cols + begin;
  if (forms.floats) std::copy_n(x, count, x_.as<float>() + at);
  if (forms.bf16) kernels.round_row(x, count, bf16_.as<uint16_t>() + at);
  if (forms.int8) {
    CHECK(at % kActivationGroup == 0 && count % kActivationGroup == 0);  // the kernel would leave out the rest
    const int64_t group = at / kActivationGroup;
    kernels.quantize_row(x, count, q_.as<int8_t>() + at, scales_.as<float>() + group, starts_.as<int32_t>() + group,
                         half_starts_.as<int32_t>() + at / kHalfGroup);
  }
}

void MatmulInput::Copy(const InputForms& forms, int64_t row, int64_t cols, const Activations& from) {
  if (forms.floats) std::copy_n(from.x, cols, x_.as<float>() + row * cols);
  if (forms.bf16) std::copy_n(from.bf16, cols, bf16_.as<uint16_t>() + row * cols);
  if (forms.int8) {
    const int64_t groups = cols / kActivationGroup;
    std::copy_n(from.q, cols, q_.as<int8_t>() + row * cols);
    std::copy_n(from.scales, groups, scales_.as<float>() + row * groups);
    std::copy_n(from.starts, groups, starts_.as<int32_t>() + row * groups);
    std::copy_n(from.half_starts, 2 * groups, half_starts_.as<int32_t>() + row * 2 * groups);
  }
}

Activations MatmulInput::View(int64_t cols) const {
  Activations view;
  view.x = x_.as<float>();
  view.x_stride = cols;
  view.q = q_.as<int8_t>();
  view.scales = scales_.as<float>();
  view.starts = starts_.as<int32_t>();
  view.half_starts = half_starts_.as<int32_t>();
  view.bf16 = bf16_.as<uint16_t>();
  return view;
}

}  // namespace stagecoach
