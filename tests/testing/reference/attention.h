#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_ATTENTION_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_ATTENTION_H_

// Attention of one layer, position by position; it keeps the keys and values of the positions that it has seen.

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/testing/reference/file_reader.h"

namespace stagecoach::testing::reference {

class Attention {
 public:
  virtual ~Attention() = default;
  virtual Vector Attend(const Vector& x) = 0;  // the next position
  virtual void Forget() = 0;                   // the next position is 0
};

// `context` is for what Rotary needs it for.
std::unique_ptr<Attention> ReadAttention(const FileReader& file, int64_t layer, int64_t context);

// How a head turns the scores of the positions it sees into weights and those into one value.
struct Head {
  double scale = 1;              // of the products of query and key
  double soft_cap = 0;           // of the scaled ones; 0: none
  const double* sink = nullptr;  // one more logit, with nothing behind it
  int64_t window = 0;            // of positions, the own one included; 0: all before
};
// keys and values: [positions][width], of this head; returns [value width].
Vector AttendWithHead(const Head& head, const Vector& query, const std::vector<Vector>& keys,
                      const std::vector<Vector>& values);

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_ATTENTION_H_
