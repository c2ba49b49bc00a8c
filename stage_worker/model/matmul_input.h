#ifndef STAGECOACH_STAGE_WORKER_MODEL_MATMUL_INPUT_H_
#define STAGECOACH_STAGE_WORKER_MODEL_MATMUL_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "common/base/aligned_buffer.h"
#include "common/model/footprint.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {

// The same input from row `first` on; `cols` wide.
Activations RowsFrom(const Activations& input, int64_t cols, int64_t first);

// The right-hand side of matrix products: rows of activations in every form that is wanted. One after the other serves
// inputs of several widths.
class MatmulInput {
 public:
  // Has memory for rows [max_rows, max_cols] in these forms: InputForms::Bytes of it.
  MatmulInput(const InputForms& forms, int64_t max_rows, int64_t max_cols);

  // Sets columns [begin, begin + count) of a row of an input that is `cols` wide, in these forms. For the int8 form
  // begin and count are multiples of 32. Different parts may be set by different threads.
  void Set(const Kernels& kernels, const InputForms& forms, int64_t row, int64_t cols, int64_t begin, const float* x,
           int64_t count);

  // Sets a whole row to the first one of `from`, which is as wide and has these forms.
  void Copy(const InputForms& forms, int64_t row, int64_t cols, const Activations& from);

  // All rows of an input that is `cols` wide; meaningful in the forms that were set.
  Activations View(int64_t cols) const;

 private:
  AlignedBuffer x_;            // float [rows, cols]
  AlignedBuffer q_;            // int8 [rows, cols]
  AlignedBuffer scales_;       // float [rows, cols / 32]
  AlignedBuffer starts_;       // int32 [rows, cols / 32]
  AlignedBuffer half_starts_;  // int32 [rows, cols / 16]
  AlignedBuffer bf16_;         // uint16 [rows, cols]
};

}  // namespace stagecoach

#endif  // STAGECOACH_STAGE_WORKER_MODEL_MATMUL_INPUT_H_
