#ifndef STAGECOACH_COORDINATOR_SESSION_RUN_SUMMARY_H_
#define STAGECOACH_COORDINATOR_SESSION_RUN_SUMMARY_H_

// What a front knows of a run at its end.

#include <cstdint>
#include <optional>
#include <string>

#include "proto/engine.pb.h"

namespace stagecoach {

// What the front saw. All times are those of the front.
struct RunTotals {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;  // of all requests that ran
  int64_t cached_tokens = 0;  // of those, found in the prefix cache
  int64_t decode_tokens = 0;  // produced
  int64_t requests_with_tokens = 0;
  int64_t failed = 0;  // requests that could not be computed
  int64_t preemptions = 0;
  int relaunches = 0;
  double load_s = 0;         // from the start until the job was ready
  double seconds = 0;        // from then until the end
  double decode_s = 0;       // from the first produced token to the last
  double first_token_s = 0;  // mean over requests: from its submission, or the ready job if that came later
};

struct RunSummary {
  RunTotals totals;
  std::optional<pb::JobReady> ready;     // of the last job; absent when none came up
  std::optional<pb::JobStatistics> job;  // of all jobs; absent when none reported any
  std::string emulated_link;             // as EmulatedLinkText gives it; empty: hops were as they are
};

// Tokens a second; 0 when no time passed. The decode rate leaves out first tokens, which the prompt's pass produces.
double DecodeRate(const RunTotals& totals);
double TotalRate(const RunTotals& totals);

// Rows per pass over the weights, of all micro-batches and of those with decode rows; 0 without any. Of guessed rows
// all those count that proved right, and only for all micro-batches. To be read with the bubble, which many small
// passes lower while they cost speed.
double RowsAPass(const pb::JobStatistics& job);
double DecodeRowsAPass(const pb::JobStatistics& job);

// Of the guesses that were judged since `before`: those that proved right. One behind a wrong guess is void and not
// judged. 0: none was.
double AcceptedShare(const pb::JobStatistics& job, const pb::JobStatistics& before = {});

// Of the first `stages`: what they computed and was not void, and how long the ideal pipeline takes for it, all stages
// together. The bubble's floor is the share of that span in which they do not compute.
struct IdealTime {
  double compute_s = 0, span_s = 0;
};
IdealTime IdealOf(const pb::JobStatistics& statistics, int stages);

// Of the draft's guesses; empty where the job's guessers have none.
const pb::GuesserStatistics& DraftGuesses(const pb::JobStatistics& job);

// The CPUs a stage's threads are bound to, such as "0-3,8"; "any" when they are not bound.
std::string CpuList(const pb::StageSummary& stage);

// Adds the statistics of a later job of the session. Counts and times are summed, peaks are the larger. The bubble is
// averaged over busy time, its floor over the ideal pipeline's time (so that differences of sums are the present
// job's). A stage's host, process and memory are those of the later job.
void AddStatistics(const pb::JobStatistics& later, pb::JobStatistics* sum);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SESSION_RUN_SUMMARY_H_
