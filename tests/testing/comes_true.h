#ifndef STAGECOACH_TESTS_TESTING_COMES_TRUE_H_
#define STAGECOACH_TESTS_TESTING_COMES_TRUE_H_

#include <functional>

#include "absl/time/time.h"

namespace stagecoach::testing {

// Waits until it holds, looking again every few milliseconds; false when it never did. More than the default is no
// noise of the machine.
bool ComesTrue(const std::function<bool()>& holds, absl::Duration within = absl::Seconds(20));

void SleepFor(double seconds);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_COMES_TRUE_H_
