#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_ATTENTION_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_ATTENTION_H_

// Attention of one layer, position by position; it keeps the keys and values of the positions that it has seen. Or the
// gated delta net that a recurrent layer has instead.

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/testing/reference/file_reader.h"

namespace stagecoach::testing::reference {

class Attention {
 public:
  virtual ~Attention() = default;
  virtual Vector Attend(const Vector& x) = 0;  // the next position
  virtual void Forget();                       // the next position is 0

 protected:
  std::vector<std::vector<Vector>> keys_, values_;  // [heads that have their own][positions][width]
  int64_t position_ = 0;
};

// `context` is for what Rotary needs it for.
std::unique_ptr<Attention> ReadAttention(const FileReader& file, int64_t layer, int64_t context);

bool IsRecurrent(const FileReader& file, int64_t layer);
std::unique_ptr<Attention> ReadDeltaNet(const FileReader& file, int64_t layer);

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_ATTENTION_H_
