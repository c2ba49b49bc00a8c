#ifndef STAGECOACH_TESTS_TESTING_REFERENCE_AGREEMENT_H_
#define STAGECOACH_TESTS_TESTING_REFERENCE_AGREEMENT_H_

// How far one program's logits are from another's.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace stagecoach::testing {

struct LogitDifference {
  double worst = 0;  // largest absolute difference; infinite when a logit is not a number
  size_t position = 0;
  TokenId token = 0;
};

// Of the same positions and tokens, [positions][V] each; another number of either is infinitely far.
template <typename T = double>  // or float
LogitDifference Compare(const std::vector<std::vector<double>>& a, const std::vector<std::vector<T>>& b);

// Largest minus smallest logit: the scale of a difference.
double LogitSpread(const std::vector<std::vector<double>>& logits);

// Tokens without a pattern, of a vocabulary whose last one ends a text and is left out.
std::vector<TokenId> SampleTokens(int64_t count, int64_t vocab, uint64_t seed = 1);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_REFERENCE_AGREEMENT_H_
