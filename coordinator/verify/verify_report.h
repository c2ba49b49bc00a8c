#ifndef STAGECOACH_COORDINATOR_VERIFY_VERIFY_REPORT_H_
#define STAGECOACH_COORDINATOR_VERIFY_VERIFY_REPORT_H_

// The report of `verify`, in sentences and as JSON. Positions, layers and stages count from 0, runs and prompts from 1.
// Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/text/tokenizer.h"
#include "coordinator/verify/verify_requests.h"
#include "coordinator/verify/verify_runs.h"
#include "proto/engine.pb.h"

namespace stagecoach {

struct VerifyRecord {
  int number = 0;  // from 1
  VerifyRun run;
  pb::JobReady ready;
  int64_t prefill_chunk = 0;
  int relaunches = 0;  // of its job, while it was asked: stages were lost, and the requests went on
  uint64_t guesses = 0, guesses_right = 0;  // rows, of a run that sends them
  std::string left_out;                     // why it was not run; empty: it was
  std::vector<VerifyAnswer> answers;
};

// The difference between two runs, and the result of running both again with checksums.
struct VerifyFinding {
  const VerifyRecord* a = nullptr;
  const VerifyRecord* b = nullptr;
  AnswerDifference difference;
  bool looked_again = false;           // the two were run again for `difference.hidden`, as the records say
  std::optional<bool> differed_again;  // absent: it was not done, or it failed for `trouble`
  bool without_cache = false;          // looked again without the prefix cache that the runs had
  std::string trouble;
};

// The requests, and what the runs made of them.
struct VerifyReport : VerifyAsked {
  std::string model;
  int64_t layers = 0;
  const Tokenizer* tokenizer = nullptr;    // for the texts of tokens; may be nullptr
  std::vector<VerifyRecord> records;       // the first is the planned job's
  std::vector<std::vector<int>> agreeing;  // numbers of runs, as AgreeingRuns
  std::optional<VerifyFinding> finding;
  std::vector<std::string> unsteady;  // runs within which a hidden state differed
  std::string incomplete;             // why not all runs were made; empty: all were

  bool identical() const { return !finding.has_value() && unsteady.empty(); }
};

// The heading: what is compared, and the note. `planned`: layers of each stage of the first job.
std::string VerifyHeading(const VerifyReport& report, const std::vector<int64_t>& planned);
// One line per run: what it was, how much of it was compared with the first run, and the result.
std::string VerifyLine(const VerifyReport& report, const VerifyRecord& record);
// The verdict: identical, or what differs and where.
std::string VerifyVerdict(const VerifyReport& report);
// The verdict in one clause, for the program's last message; only for reports that are not identical.
std::string VerifyDifference(const VerifyReport& report);

std::string VerifyJson(const VerifyReport& report);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_VERIFY_VERIFY_REPORT_H_
