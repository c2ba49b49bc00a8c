#ifndef STAGECOACH_TESTS_TESTING_SAMPLE_NAIVE_SAMPLER_H_
#define STAGECOACH_TESTS_TESTING_SAMPLE_NAIVE_SAMPLER_H_

// The sampler's definition written out with sorted lists and no thought of speed, and rows of logits to hold it
// against.

#include <cstdint>
#include <random>
#include <vector>

#include "common/base/ids.h"
#include "common/step/step.h"

namespace stagecoach::testing {

// What Sampler::Pick returns, see there. kNoToken never.
TokenId NaivePick(const SamplingParams& sampling, int64_t position, const std::vector<float>& logits);

// All tokens but those that are NaN, best first.
std::vector<TokenId> NaiveRanking(const std::vector<float>& logits);

// Rows of every shape that has its own way through the sampler.
enum class LogitShape {
  kNormal,       // as of a model
  kFewValues,    // many ties
  kAllEqual,     // one tie
  kNearlyEqual,  // apart by a few of the smallest steps
  kWide,         // weights over the whole range
  kLonelyBest,   // one far above the others
  kLongTail,     // a few heavy ones above many light ones
  kMasked,       // most are -infinity
  kWithNan,
  kCount
};
const char* LogitShapeName(LogitShape shape);
std::vector<float> RandomLogits(LogitShape shape, size_t vocab, std::mt19937* random);

// Temperature, top-k, top-p, min-p and seed at random, with their extremes; no rules.
SamplingParams RandomSampling(size_t vocab, std::mt19937* random);

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_TESTING_SAMPLE_NAIVE_SAMPLER_H_
