#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_LATENT_ATTENTION_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_LATENT_ATTENTION_H_

// DeepSeek's attention as its paper writes it: every head's keys and values are made from the latent vector, and then
// it is attention like any other. The product keeps the latent and moves the matrices to the query and the output: that
// both give the same is what a comparison of the two shows.

#include <cstdint>
#include <vector>

#include "tests/testing/reference/attention.h"
#include "tests/testing/reference/rotary.h"

namespace stagecoach::testing::reference {

class LatentAttention : public Attention {
 public:
  LatentAttention(const FileReader& file, int64_t layer, int64_t context);

  Vector Attend(const Vector& x) override;
  void Forget() override;

 private:
  void ReadQuery(const FileReader& file, const std::string& prefix);
  void ReadKeysAndValues(const FileReader& file, const std::string& prefix);
  void Remember(const Vector& x);

  const bool split_;  // the file tells the two halves of kv_b apart
  const int64_t heads_, rank_, rotated_, key_width_, value_width_;
  const double eps_;
  const Rotary rotary_;
  Head head_;
  Matrix q_a_, q_b_;  // without q_a, q_b is the whole projection
  Vector q_a_norm_, kv_norm_;
  Matrix kv_a_;              // [rank + rotated][hidden]
  std::vector<Matrix> k_b_;  // of every head, [key_width - rotated][rank]
  std::vector<Matrix> v_b_;  // of every head, [value_width][rank]
  Linear out_;
  std::vector<std::vector<Vector>> keys_, values_;  // [heads][positions][width]
  int64_t position_ = 0;
};

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_LATENT_ATTENTION_H_
