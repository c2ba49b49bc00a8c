#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_EXPERTS_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_EXPERTS_H_

// A router and the experts it chooses from, and the shared experts beside them.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/reference/feed_forward.h"

namespace stagecoach::testing::reference {

class Router {
 public:
  Router(const FileReader& file, const std::string& prefix);

  // The chosen experts, the best first, and their weights.
  std::vector<std::pair<int64_t, double>> Choose(const Vector& x);
  double smallest_margin() const { return smallest_margin_; }
  int64_t experts() const { return experts_; }

 private:
  enum class Gating { kSoftmax, kSigmoid, kSoftmaxOfChosen };
  static Gating GatingOf(const FileReader& file);
  // -infinity in place of the scores of groups that are out.
  void KeepBestGroups(Vector* scores);
  // The `count` largest, of equal ones the first ones; notes the margin.
  std::vector<int64_t> Largest(const Vector& scores, int64_t count);

  const int64_t experts_, used_, groups_, groups_used_;
  const Gating gating_;
  const bool normalised_;
  const double scale_;  // of the weights
  Linear gate_;
  Vector choice_bias_;
  double smallest_margin_ = 1e300;
};

class ExpertFeedForward : public FeedForward {
 public:
  ExpertFeedForward(const FileReader& file, const std::string& prefix);
  Vector Run(const Vector& x) override;
  double ChoiceMargin() const override { return router_.smallest_margin(); }

 private:
  Router router_;
  std::vector<GatedNetwork> experts_;
  std::vector<GatedNetwork> shared_;  // one, as wide as all shared ones, or none
};

}  // namespace stagecoach::testing::reference

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_EXPERTS_H_
