#ifndef STAGECOACH_TESTS_UNIT_COORDINATOR_GUESS_NAIVE_MATCH_H_
#define STAGECOACH_TESTS_UNIT_COORDINATOR_GUESS_NAIVE_MATCH_H_

// What SuffixIndex finds, by comparing with every place of the text; and texts to compare it on.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "coordinator/guess/suffix_index.h"

namespace stagecoach::testing {

using Tokens = std::vector<TokenId>;

inline Tokens Joined(Tokens head, const Tokens& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

// Tokens that end both the first `end` of the text and the sequence.
inline size_t NaiveCommon(const Tokens& text, size_t end, const Tokens& sequence) {
  size_t common = 0;
  while (common < end && common < sequence.size() && text[end - 1 - common] == sequence[sequence.size() - 1 - common]) {
    ++common;
  }
  return common;
}

// The continuation of the longest suffix of `sequence` with a followed occurrence in `text`.
inline SuffixIndex::Continuation NaiveContinuation(const Tokens& text, const Tokens& sequence) {
  size_t longest = 0;
  for (size_t end = 0; end < text.size(); ++end) {
    if (text[end] != SuffixIndex::kBorder) longest = std::max(longest, NaiveCommon(text, end, sequence));
  }
  SuffixIndex::Continuation found;
  std::map<TokenId, std::pair<int, size_t>> followed;  // how often, and where the last time
  for (size_t end = 0; end < text.size() && found.seen < SuffixIndex::kMostCounted; ++end) {
    if (text[end] == SuffixIndex::kBorder || NaiveCommon(text, end, sequence) < longest) continue;
    followed[text[end]] = {followed[text[end]].first + 1, end};
    ++found.seen;
  }
  std::pair<int, size_t> most = {0, 0};
  for (const auto& [token, times] : followed) {
    if (times <= most) continue;
    most = times;
    found.token = token;
    found.count = times.first;
  }
  found.length = static_cast<int64_t>(longest);
  return found;
}

inline std::tuple<TokenId, int64_t, int, int> Fields(const SuffixIndex::Continuation& continuation) {
  return {continuation.token, continuation.length, continuation.count, continuation.seen};
}

inline SuffixIndex::Continuation ContinuationOf(const SuffixIndex& index, SuffixIndex::Place place, const Tokens& run) {
  for (const TokenId token : run) place = index.Step(place, token);
  return index.Continued(index.Followed(place));
}

// Of so many different tokens; a seventh of its places begin a copy of something earlier.
inline Tokens RandomText(std::mt19937* random, size_t tokens, int alphabet) {
  const auto below = [&](size_t bound) { return static_cast<size_t>((*random)() % bound); };
  Tokens text;
  while (text.size() < tokens) {
    if (text.empty() || below(7) != 0) {
      text.push_back(static_cast<TokenId>(below(static_cast<size_t>(alphabet))));
      continue;
    }
    for (size_t from = below(text.size()), copied = below(20); copied > 0 && text.size() < tokens; --copied) {
      text.push_back(text[from++]);
    }
  }
  return text;
}

}  // namespace stagecoach::testing

#endif  // STAGECOACH_TESTS_UNIT_COORDINATOR_GUESS_NAIVE_MATCH_H_
