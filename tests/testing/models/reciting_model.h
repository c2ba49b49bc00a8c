#ifndef STAGECOACH_TESTS_TESTING_MODELS_RECITING_MODEL_H_
#define STAGECOACH_TESTS_TESTING_MODELS_RECITING_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/gguf/gguf_writer.h"

namespace stagecoach::testing {

// A model that knows one text: after a prompt that ends with a line break it most probably writes these
// words, each a token of its own, one after the other, and then ends. After anything else it ends at once. Its other
// tokens are the bytes. For tests of real jobs that need an answer of a certain form.
GgufWriter RecitingModel(const std::vector<std::string>& words, int64_t layers = 2);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_RECITING_MODEL_H_
