#ifndef STAGECOACH_TESTS_TESTING_STATUS_IS_H_
#define STAGECOACH_TESTS_TESTING_STATUS_IS_H_

#include "absl/status/status.h"
#include "gmock/gmock.h"

namespace stagecoach::testing {

// Of an absl::Status, its code and what its message matches.
template <typename M>
auto StatusIs(absl::StatusCode code, M message) {
  return ::testing::AllOf(::testing::Property("code", &absl::Status::code, code),
                          ::testing::Property("message", &absl::Status::message, message));
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_STATUS_IS_H_
