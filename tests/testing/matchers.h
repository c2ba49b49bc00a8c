#ifndef STAGECOACH_TESTS_TESTING_MATCHERS_H_
#define STAGECOACH_TESTS_TESTING_MATCHERS_H_

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_is.h"

// The matchers that unit tests write by their bare names.
namespace stagecoach {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::StatusIs;  // our own
using ::testing::UnorderedElementsAre;

}  // namespace stagecoach

#endif  // STAGECOACH_TESTS_TESTING_MATCHERS_H_
