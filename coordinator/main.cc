// The front: reads the command line and runs one verb. As part of a world that a launcher started, it is rank 0 as
// well.

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/json/json.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/options/job_options.h"
#include "coordinator/cli/options/printing.h"
#include "coordinator/cli/verb.h"

namespace stagecoach {
namespace {

int RunVerb(Verb* verb, const RunContext& context) {
  const absl::Status status = verb->Run(context);
  if (!status.ok()) LogError(WithFlags(status.message()));
  return static_cast<int>(ExitCodeOf(status));
}

// A rank that ends with 0 before MPI_Init makes the other ranks wait for it for ever.
int LeaveWorld(const std::string& what) {
  LogError(absl::StrCat(what, " needs no cluster and ends this job; start it without mpirun or srun"));
  return static_cast<int>(ExitCode::kUsage);
}

int Main(int argc, char** argv) {
  HoldStandardDescriptors();
  SetLogName("coordinator");
  const bool in_world = StartedInMpiWorld();
  CommandLine command_line;
  Verb* verb = command_line.Parse(argc, argv);
  if (verb == nullptr) {
    if (!command_line.error().empty()) LogError(command_line.error());
    const absl::Status printed = WriteStdout(command_line.output());
    if (command_line.exit_code() == ExitCode::kOk && in_world) return LeaveWorld("this");
    return static_cast<int>(command_line.exit_code() == ExitCode::kOk ? ExitCodeOf(printed) : command_line.exit_code());
  }
  RunContext context;
  std::error_code error;
  context.program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (!in_world || verb->hidden()) return RunVerb(verb, context);
  if (!verb->NeedsCluster()) {
    const int exit_code = RunVerb(verb, context);
    return exit_code != 0 ? exit_code : LeaveWorld(absl::StrCat("'", verb->name(), "'"));
  }
  return RunInWorld(&argc, &argv, [verb, &context](int descriptor) {
    context.joined = true;
    context.engine_descriptor = descriptor;
    return RunVerb(verb, context);
  });
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
