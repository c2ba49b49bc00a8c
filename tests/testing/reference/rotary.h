#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_ROTARY_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_ROTARY_H_

// Rotary position embedding: which components make a pair, how fast each pair turns, and what stretches that.

#include <cstdint>

#include "tests/testing/reference/file_reader.h"

namespace stagecoach::testing::reference {

class Rotary {
 public:
  // Of a layer whose heads rotate their first `dims` components, or none with 0. `context` decides between the short
  // and the long factors of a file that has both.
  Rotary(const FileReader& file, int64_t dims, bool windowed, int64_t context);

  // Turns a head in place, to its position.
  void Rotate(double* head, int64_t position) const;

 private:
  void Stretch(const FileReader& file, double base, bool windowed);

  bool neighbours_ = false;  // pairs are (2i, 2i+1), else (i, i + half)
  Vector speeds_;            // radians a position, of every pair
  double magnitude_ = 1;     // of cosine and sine
};

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_ROTARY_H_
