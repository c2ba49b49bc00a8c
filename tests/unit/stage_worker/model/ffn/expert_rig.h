#ifndef STAGECOACH_TESTS_UNIT_MODEL_EXPERT_RIG_H_
#define STAGECOACH_TESTS_UNIT_MODEL_EXPERT_RIG_H_

// One layer of experts with random weights, without a file: its outputs by the stage's code, and by loops in double.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/aligned_buffer.h"
#include "common/model/model_description.h"
#include "stage_worker/kernels/kernels.h"
#include "stage_worker/model/layers/step_context.h"

namespace stagecoach {

struct ExpertShape {
  int64_t hidden = 40;
  FfnSpec ffn;
  TensorType gate = TensorType::kF32, up = TensorType::kF32, down = TensorType::kF32;
  TensorType router = TensorType::kF32, shared = TensorType::kF32;
  bool biases = false, router_bias = false, selection_bias = false;
};

class ExpertRig {
 public:
  ExpertRig(const ExpertShape& shape, const Kernels& kernels);

  // [rows, D]; row i depends on i alone.
  std::vector<float> Inputs(int64_t rows) const;

  // What AddFfn makes of zeros for these inputs [rows, D]. tile_rows: most rows at once; 0: as in a stage.
  std::vector<float> Run(const std::vector<float>& inputs, int threads, int64_t tile_rows = 0) const;
  // Of one row of inputs, in double from the weights' values and the input as the kernels' codes have it.
  std::vector<double> RunInDouble(const float* input) const;

  const ModelDescription& model() const { return model_; }

 private:
  // A matrix [rows, cols] as values and as panels.
  struct Matrix {
    std::vector<float> values;
    AlignedBuffer panels;
    PackedMatrix packed;
  };
  PackedMatrix Add(TensorType type, int64_t rows, int64_t cols);
  const GgufTensor* Describe(TensorType type, std::vector<int64_t> dims);
  std::vector<float> AddVector(int64_t size, double range);
  void AddExperts();
  // act(gate x, up x), then down of it, with biases from `at` on.
  std::vector<double> UnitInDouble(const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& down,
                                   const float* gate_bias, const float* up_bias, const float* down_bias,
                                   const std::vector<float>& x) const;
  std::vector<double> Multiply(const PackedMatrix& matrix, const float* bias, const std::vector<float>& x) const;
  std::vector<float> AsKernelsHave(TensorType reader, const std::vector<float>& x) const;

  const ExpertShape shape_;
  const Kernels& kernels_;
  uint64_t seed_ = 1;
  std::vector<std::unique_ptr<Matrix>> matrices_;
  std::vector<std::unique_ptr<GgufTensor>> tensors_;
  ModelDescription model_;
  LayerWeights weights_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_UNIT_MODEL_EXPERT_RIG_H_
