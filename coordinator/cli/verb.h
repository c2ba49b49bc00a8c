#ifndef STAGECOACH_COORDINATOR_CLI_VERB_H_
#define STAGECOACH_COORDINATOR_CLI_VERB_H_

// What `coordinator <verb>` can be. Each verb is one file, and this is the list of them.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

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
  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;             // one line of `coordinator help`
  virtual const char* example() const = 0;             // a command line that works
  virtual bool hidden() const { return false; }        // left out of the help
  virtual void AddOptions(CLI::App* app) = 0;          // `app` outlives the verb's run
  virtual bool NeedsCluster() const { return false; }  // asked after the options are parsed

  // Its exit code is ExitCodeOf the returned status; a failure's message is printed by the caller.
  virtual absl::Status Run(const RunContext& context) = 0;
};

// What a verb's help ends with, before its example.
inline constexpr char kExamplePrefix[] = "Example: ";

std::unique_ptr<Verb> MakeGenerateVerb();
std::unique_ptr<Verb> MakeChatVerb();
std::unique_ptr<Verb> MakeBatchVerb();
std::unique_ptr<Verb> MakeServeVerb();
std::unique_ptr<Verb> MakePerplexityVerb();
std::unique_ptr<Verb> MakeVerifyVerb();
std::unique_ptr<Verb> MakeBenchVerb();
std::unique_ptr<Verb> MakeSweepVerb();
std::unique_ptr<Verb> MakeProbeVerb();
std::unique_ptr<Verb> MakePlanVerb();
std::unique_ptr<Verb> MakeSimulateVerb();
std::unique_ptr<Verb> MakeDoctorVerb();
std::unique_ptr<Verb> MakeTraceVerb();
std::unique_ptr<Verb> MakeInspectVerb();
std::unique_ptr<Verb> MakeQuantizeVerb();
std::unique_ptr<Verb> MakeTokenizeVerb();
std::unique_ptr<Verb> MakeDetokenizeVerb();
std::unique_ptr<Verb> MakeApplyTemplateVerb();
std::unique_ptr<Verb> MakeCompletionVerb();
std::unique_ptr<Verb> MakeManualVerb();
std::unique_ptr<Verb> MakeEngineVerb();

std::vector<std::unique_ptr<Verb>> AllVerbs();

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_VERB_H_
