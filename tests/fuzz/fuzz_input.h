#ifndef STAGECOACH_TESTS_FUZZ_FUZZ_INPUT_H_
#define STAGECOACH_TESTS_FUZZ_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

// Bytes of choice first, then text.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  // Up to the next byte 0, which is left out, or to the end.
  absl::string_view Text() {
    const size_t end = rest_.find('\0');
    const absl::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end == absl::string_view::npos ? rest_.size() : end + 1);
    return text;
  }
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

// What a fuzzer does with an input that libFuzzer made up.
void Fuzz(FuzzInput input);

// What must hold for every input.
inline void FuzzCheck(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what.c_str());
  std::abort();
}

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_FUZZ_FUZZ_INPUT_H_
