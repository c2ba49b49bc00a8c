#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_FEED_FORWARD_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_FEED_FORWARD_H_

// The second half of a layer: one gated network for all positions, or experts of which a router chooses some.

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/testing/reference/file_reader.h"

namespace stagecoach::testing::reference {

enum class Activation { kSilu, kGelu, kClampedSwiglu };

struct GatedNetwork {
  Linear gate, up, down;
  Activation activation = Activation::kSilu;
  Vector Run(const Vector& x) const;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual Vector Run(const Vector& x) = 0;
  // How far the last chosen expert was before the first that was not chosen, at the position where that was least:
  // where it is below what another arithmetic differs by, that may have chosen otherwise. Huge without experts.
  virtual double ChoiceMargin() const { return 1e300; }
};

std::unique_ptr<FeedForward> ReadFeedForward(const FileReader& file, int64_t layer);

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_FEED_FORWARD_H_
