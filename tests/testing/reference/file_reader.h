#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_FILE_READER_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_FILE_READER_H_

// A model file's keys and tensors as numbers. It knows nothing of what the product makes of them: that an error there
// cannot hide here is what the reference is for. What a file lacks ends the test with a message.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/gguf/gguf_file.h"
#include "tests/testing/reference/dense_math.h"

namespace stagecoach::testing::reference {

class FileReader {
 public:
  explicit FileReader(std::shared_ptr<const GgufFile> file);

  const std::string& architecture() const { return architecture_; }
  bool Is(const char* architecture) const { return architecture_ == architecture; }

  // Of the key <architecture>.<name>; an absent key without a fallback ends the test.
  bool HasKey(const std::string& name) const;
  int64_t Int(const std::string& name, std::optional<int64_t> fallback = {}) const;
  double Float(const std::string& name, std::optional<double> fallback = {}) const;
  bool Bool(const std::string& name, bool fallback) const;
  std::string String(const std::string& name, const std::string& fallback) const;
  // One value for every layer from a number for all of them or an array.
  int64_t IntOfLayer(const std::string& name, int64_t layer, std::optional<int64_t> fallback = {}) const;
  // For every layer, of an array of integers or truth values; empty when the key is no array.
  std::vector<int64_t> Array(const std::string& name) const;

  bool HasTensor(const std::string& name) const;
  Vector ReadVector(const std::string& name) const;              // empty when absent
  Matrix ReadMatrix(const std::string& name) const;              // two dimensions
  std::vector<Matrix> ReadStack(const std::string& name) const;  // three: one matrix for each of the last
  Linear ReadLinear(const std::string& name) const;              // <name>.weight and, when there, <name>.bias

 private:
  [[noreturn]] void Fail(const std::string& what) const;
  const GgufTensor& Find(const std::string& name, size_t dims) const;
  Vector Values(const GgufTensor& tensor) const;

  const std::shared_ptr<const GgufFile> file_;
  std::string architecture_;
};

// Rows [begin, begin + count) of a matrix.
Matrix Rows(const Matrix& matrix, int64_t begin, int64_t count);

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_FILE_READER_H_
