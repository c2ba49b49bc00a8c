#ifndef STAGECOACH_COMMON_MODEL_TENSOR_DIRECTORY_H_
#define STAGECOACH_COMMON_MODEL_TENSOR_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/gguf/gguf_file.h"
#include "common/model/hyper_parameters.h"

namespace stagecoach {

// Looks tensors up by name, checks their shape and type, and remembers which ones were asked for. An absent tensor is
// nullptr, and an error if it is required. Errors name the file, the tensor, what was expected and what was found.
class TensorDirectory {
 public:
  explicit TensorDirectory(const GgufFile& file) : file_(file) {}

  absl::Status Vector(const std::string& name, int64_t size, bool required, const GgufTensor*& out);  // F32, F16, BF16
  absl::Status Vectors(const std::string& name, int64_t count, int64_t size, bool required, const GgufTensor*& out);
  absl::Status Matrix(const std::string& name, int64_t rows, int64_t cols, bool required, const GgufTensor*& out);
  absl::Status Matrices(const std::string& name, int64_t count, int64_t rows, int64_t cols, bool required,
                        const GgufTensor*& out);

  // A tensor that nobody asked for belongs to something that is not computed; those of the layers that the forward pass
  // skips may be there.
  absl::Status CheckAllKnown(const HyperParameters& hyper) const;

 private:
  using Shape = std::vector<int64_t>;  // in stored order: the row length first; missing dimensions count as 1

  template <typename... Parts>
  absl::Status Invalid(const Parts&... parts) const;
  absl::Status Find(const std::string& name, const Shape& expected, bool required, const GgufTensor*& out);
  absl::Status CheckVectorType(const std::string& name, const GgufTensor* tensor) const;

  const GgufFile& file_;
  absl::flat_hash_set<const GgufTensor*> used_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_MODEL_TENSOR_DIRECTORY_H_
