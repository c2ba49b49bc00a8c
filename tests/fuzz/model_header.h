#ifndef STAGECOACH_TESTS_FUZZ_MODEL_HEADER_H_
#define STAGECOACH_TESTS_FUZZ_MODEL_HEADER_H_

// Headers of model files without the weights behind them, to be described as if these were there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/gguf_file.h"

namespace stagecoach {

inline constexpr uint64_t kLongestFile = uint64_t{1} << 62;

// A file of so many bytes that begins with these; behind them are zeros, of which only the first few can be read, for
// who reads on in a header has more to read than a fuzzer has time. `header` stays the caller's.
absl::StatusOr<std::unique_ptr<GgufFile>> OpenHeader(absl::string_view header, uint64_t file_bytes);

// What a header says, to be changed and written again.
class ModelHeader {
 public:
  static absl::StatusOr<ModelHeader> Read(absl::string_view bytes);
  // With the tensors' data one after another. Numbers are stored in 32 bits where they fit.
  std::string Bytes() const;

  // One key or tensor is another, or is not there any more, or is there twice.
  void Change(std::minstd_rand* random);
  // Has tensors follow the keys, as far as a few attempts go: until the model is described or its keys are refused.
  void Repair(std::minstd_rand* random);

 private:
  void ChangeKey(std::minstd_rand* random);
  void ChangeTensor(std::minstd_rand* random);
  void ChangeArchitecture(std::minstd_rand* random);
  std::string Architecture() const;
  int64_t IntegerValue(std::minstd_rand* random) const;
  GgufValue Value(std::minstd_rand* random) const;
  bool Heed(absl::string_view refusal, std::minstd_rand* random);  // whether anything is to be done about it

  std::vector<std::pair<std::string, GgufValue>> keys_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_FUZZ_MODEL_HEADER_H_
