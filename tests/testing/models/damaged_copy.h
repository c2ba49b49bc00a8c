#ifndef STAGECOACH_TESTS_TESTING_MODELS_DAMAGED_COPY_H_
#define STAGECOACH_TESTS_TESTING_MODELS_DAMAGED_COPY_H_

// A copy of a model as a bad disk leaves it: whole, and of another content than the fingerprint of the file can see.

#include <string>

namespace stagecoach::testing {

// Writes the model `from`, with one bit of a code of that Q8_0 tensor turned, to `to`, and returns that.
std::string WriteDamagedCopy(const std::string& from, const std::string& tensor, const std::string& to);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_DAMAGED_COPY_H_
