#ifndef STAGECOACH_COORDINATOR_CLI_STATISTICS_H_
#define STAGECOACH_COORDINATOR_CLI_STATISTICS_H_

// The statistics that a run prints at its end.

#include <string>

#include "common/json/json.h"
#include "coordinator/session/run_summary.h"

namespace stagecoach {

// The lines for stderr, ending in a newline.
std::string StatisticsText(const RunSummary& summary);

// What became of a job's guesses, a line, and with several guessers one of each; empty without guesses.
std::string GuessText(const pb::JobStatistics& job);

// A line for every stage whose weights are not in huge pages for the most part, as far as that matters; else nothing.
std::string HugePageText(const google::protobuf::RepeatedPtrField<pb::StageSummary>& stages);

// Prints StatisticsText on stderr, unless -q or no request ran.
void PrintStatistics(const RunSummary& summary);

Json TimingsJson(const RunSummary& summary);
Json StagesJson(const RunSummary& summary);  // an array; empty when no job came up
Json DraftJson(const RunSummary& summary);   // null: the job has none

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_STATISTICS_H_
