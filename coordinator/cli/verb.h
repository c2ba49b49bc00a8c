#ifndef STAGECOACH_COORDINATOR_CLI_VERB_H_
#define STAGECOACH_COORDINATOR_CLI_VERB_H_

// The verbs of `coordinator <verb>`: their interface, their list, and their exit codes.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/front/exit_codes.h"

namespace CLI {
class App;
}

namespace stagecoach {

// How the program was started.
struct RunContext {
  std::string program;         // absolute path of this program
  bool joined = false;         // part of a world that a launcher started; the engine lives in this process
  int engine_descriptor = -1;  // joined: the socket to that engine; the verb owns it
};

// A verb is made, given its options, and run at most once.
class Verb {
 public:
  virtual ~Verb() = default;
  const char* name() const { return name_; }
  const char* summary() const { return summary_; }     // one line of `coordinator help`
  const char* example() const { return example_; }     // a command line that works
  virtual bool hidden() const { return false; }        // left out of the help
  virtual void AddOptions(CLI::App* app) = 0;          // `app` outlives the verb's run
  virtual bool NeedsCluster() const { return false; }  // asked after the options are parsed

  // Its exit code is ExitCodeOf the returned status; a failure's message is printed by the caller.
  virtual absl::Status Run(const RunContext& context) = 0;

 protected:
  Verb(const char* name, const char* summary, const char* example)
      : name_(name), summary_(summary), example_(example) {}

 private:
  const char* const name_;
  const char* const summary_;
  const char* const example_;
};

// What a verb's help ends with, before its example.
inline constexpr char kExamplePrefix[] = "Example: ";

using MakeVerb = std::unique_ptr<Verb>();
MakeVerb MakeGenerateVerb, MakeChatVerb, MakeBatchVerb, MakeServeVerb, MakePerplexityVerb, MakeVerifyVerb,
    MakeBenchVerb, MakeSweepVerb, MakeProbeVerb, MakePlanVerb, MakeSimulateVerb, MakeDoctorVerb, MakeTraceVerb,
    MakeInspectVerb, MakeQuantizeVerb, MakeTokenizeVerb, MakeDetokenizeVerb, MakeApplyTemplateVerb, MakeCompletionVerb,
    MakeManualVerb, MakeEngineVerb;

std::vector<std::unique_ptr<Verb>> AllVerbs();

// What an exit code means for one verb beyond its general meaning (kExitCodes), for the manual pages.
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

#endif  // STAGECOACH_COORDINATOR_CLI_VERB_H_
