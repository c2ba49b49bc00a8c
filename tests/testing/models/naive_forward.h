#ifndef STAGECOACH_TESTS_TESTING_MODELS_NAIVE_FORWARD_H_
#define STAGECOACH_TESTS_TESTING_MODELS_NAIVE_FORWARD_H_

// The whole model in double, position by position, with libm and no thought of speed: written from the specification's
// formulas alone, as an oracle for the stages.

#include <vector>

#include "common/base/ids.h"
#include "common/model/model_description.h"

namespace stagecoach::testing {

// Logits [tokens][V] after every token.
std::vector<std::vector<double>> NaiveLogits(const ModelDescription& model, const std::vector<TokenId>& tokens);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_MODELS_NAIVE_FORWARD_H_
