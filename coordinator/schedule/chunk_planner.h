#ifndef STAGECOACH_COORDINATOR_SCHEDULE_CHUNK_PLANNER_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_CHUNK_PLANNER_H_

// Sizes the chunks of a long prompt so that each takes as long as the first: later rows attend to more, and growing
// steps make every stage of a pipeline wait. Pure; not thread-safe.
//
// With F(L) = a * L^2 + b * L, the cost of a prefix of L rows, a chunk of C rows after H others takes
//   t(C, H) = F(H + C) - F(H) + c = a * C * (C + 2 * H) + b * C + c
// a: attention, b: cost of a row, c: fixed cost of a step. The next chunk after L rows has the x rows with
//   F(L + x) - F(L) = T = F(most_rows):   x = (-(2aL + b) + sqrt((2aL + b)^2 + 4aT)) / 2a
// rounded down to kStep, between kEqualTimeLeastRows (kernels lose more below it than equal steps gain) and most_rows.
// c cancels. Several chunks in a micro-batch, each as a fraction of its x, add up to one step.
//
// a, b and c are fitted to the slowest stage's times of results with chunks (policy/least_squares.h); decode rows in
// them count as chunks of one row. Results without chunks are left out: they measure reading weights. While all chunks
// have one size, b absorbs c, which errs towards chunks too large.
//
// Source: dynamic chunking of SGLang, and chunked pipeline parallelism of vllm-ascend (design document), which fits
// a * C * (C + H) + b * (C + H) + c. There, chunks of one size cannot tell a row from a row of history.

#include <array>
#include <cstdint>
#include <optional>

#include "common/step/step.h"
#include "coordinator/schedule/policy/least_squares.h"

namespace stagecoach {

class ChunkPlanner {
 public:
  static constexpr double kMemory = 128;
  static constexpr int kNeeded = 8;  // results with chunks before anything is known; until then chunks are constant
  static constexpr int64_t kStep = 16;

  // most_rows: of a chunk, at least 1; those of the first one of a prompt that has as many.
  explicit ChunkPlanner(int64_t most_rows) : most_rows_(most_rows) {}

  void Add(const MicroBatch& batch, int64_t slowest_us);

  // Of a chunk behind `history` rows of its prompt.
  int64_t Rows(int64_t history) const;

  struct Cost {
    double attention_us = 0;  // a, of a pair of rows
    double row_us = 0;        // b
    double fixed_us = 0;      // c
  };
  std::optional<Cost> cost() const { return cost_; }  // absent before enough is known

 private:
  const int64_t most_rows_;
  ForgetfulFit<3> fit_{kMemory, {0, 0, 0.01}};
  std::optional<Cost> cost_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_CHUNK_PLANNER_H_
