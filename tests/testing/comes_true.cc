#include "tests/testing/comes_true.h"

#include "absl/time/clock.h"

namespace stagecoach::testing {

bool ComesTrue(const std::function<bool()>& holds, absl::Duration within) {
  const absl::Time deadline = absl::Now() + within;
  while (!holds()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

void SleepFor(double seconds) { absl::SleepFor(absl::Seconds(seconds)); }

}  // namespace stagecoach::testing
