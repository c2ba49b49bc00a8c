#ifndef STAGECOACH_COORDINATOR_CLI_VERB_ENDINGS_H_
#define STAGECOACH_COORDINATOR_CLI_VERB_ENDINGS_H_

// What an exit code says of one verb beyond what it says of all (kExitCodes): the one table of these, from which the
// manual pages are made.

#include "coordinator/front/exit_codes.h"

namespace stagecoach {

struct VerbEnding {
  const char* verb;
  ExitCode code;
  const char* meaning;
};

inline constexpr VerbEnding kVerbEndings[] = {
    {"batch", ExitCode::kOk, "a line has its answer, or there are no lines; what failed has its error in the output"},
    {"batch", ExitCode::kInputFile, "no line could be answered"},
    {"batch", ExitCode::kLostStages, "no line has an answer, and the job could not compute one of them to its end"},
    {"batch", ExitCode::kInterrupted, "the same command goes on where this one was"},
    {"serve", ExitCode::kOk, "drained: a signal asked for it"},
    {"serve", ExitCode::kInterrupted, "a second signal came before it was drained"},
    {"verify", ExitCode::kDifferent, "two runs gave other bits"},
    {"bench", ExitCode::kLostStages, "bench serve: a request failed, and --allow-failures was not given"},
    {"doctor", ExitCode::kOk, "a job would run"},
    {"doctor", ExitCode::kLaunch, "a job would not come up"},
    {"plan", ExitCode::kLaunch, "the hosts have no room for the model"},
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_VERB_ENDINGS_H_
