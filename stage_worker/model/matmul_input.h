#ifndef STAGECOACH_STAGE_WORKER_MODEL_MATMUL_INPUT_H_
#define STAGECOACH_STAGE_WORKER_MODEL_MATMUL_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "common/base/aligned_buffer.h"
#include "stage_worker/exec/gang.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/weights/packed_matrix.h"

namespace stagecoach {

// The right-hand side of matrix products: float rows that live elsewhere, and beside them their int8 form where a
// matrix wants it. One after the other serves all products of a step.
class MatmulInput {
 public:
  MatmulInput(int64_t max_rows, int64_t max_cols);

  // Whether any of these matrices takes int8 input.
  static bool WantsInt8(const Kernels& kernels, std::initializer_list<const PackedMatrix*> matrices);

  // Quantises rows [part.begin, part.end) of x [rows, x_stride]; `cols` of each, a multiple of 32.
  void Quantize(const Kernels& kernels, const float* x, int64_t x_stride, int64_t cols, Gang::Part part);

  // Both forms of all rows; the int8 form is meaningful after Quantize of the same x.
  Activations View(const float* x, int64_t x_stride) const;

  size_t bytes() const { return q_.size() + scales_.size() + starts_.size() + half_starts_.size(); }

 private:
  AlignedBuffer q_;       // int8 [rows, cols]
  AlignedBuffer scales_;  // float [rows, cols / 32]
  AlignedBuffer starts_;       // int32 [rows, cols / 32]
  AlignedBuffer half_starts_;  // int32 [rows, cols / 16]
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_MATMUL_INPUT_H_
