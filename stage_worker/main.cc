// A pipeline stage: started by mpirun or srun beside one coordinator, told by it what to be. Alone, it can check its
// kernels, and report on its host.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/base/manual_page.h"
#include "common/base/status_macros.h"
#include "common/host/host_info.h"
#include "common/job/job_choices.h"
#include "common/transport/mpi/mpi_endpoint.h"
#include "common/wire/handshake.h"
#include "common/wire/host_report.h"
#include "stage_worker/check/self_check.h"
#include "stage_worker/host_report.h"
#include "stage_worker/kernels/select.h"
#include "stage_worker/stage_loop.h"

namespace stagecoach {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailed = 70;
constexpr absl::Duration kGatherDeadline = absl::Seconds(60);

// Options for users; the others are for the coordinator, which starts stage_worker for other tasks on a host, too.
constexpr char kModelFlag[] = "--model";
constexpr char kCheckKernelsFlag[] = "--check-kernels";
constexpr char kManualFlag[] = "--manual";

std::string InstructionSetNames() {
  return absl::StrJoin(kInstructionSets, "|",
                       [](std::string* out, const NamedValue<InstructionSet>& set) { out->append(set.name); });
}

// What --help and the manual page print.
ManualPage StageWorkerManual() {
  return {
      .name = "stage_worker",
      .summary = "computes one stage of a Stagecoach pipeline",
      .synopsis = {"stage_worker [--model FILE]", "stage_worker --check-kernels [--isa NAME] [--threads N,N,...]",
                   "stage_worker --help"},
      .sections =
          {{.title = "Description",
            .text = "It is started beside a coordinator, as a rank of the same MPI job; the coordinator tells it which "
                    "layers it has.\nAlone, it tells in JSON whether its kernels are right and what this machine could "
                    "do at best."},
           {.title = "Options",
            .entries = {{{kModelFlag},
                         "FILE",
                         "where this host has the model, when not where the coordinator has it; "
                         "an absolute path"},
                        {{kCheckKernelsFlag}, "", "compare every kernel with its scalar twin, then measure"},
                        {{"--isa"}, InstructionSetNames(), "of this instruction set only"},
                        {{"--threads"}, "N,N,...", "measure with these numbers of threads"},
                        {{"--help"}, "", "print this"}}},
           {.title = "Examples",
            .commands = {"coordinator generate --pp 2 -m MODEL -p PROMPT          (the coordinator starts it)",
                         "mpirun -n 1 coordinator generate -m MODEL -p PROMPT : -n 2 stage_worker"}},
           {.title = "Exit status",
            .text = "0 when its job ended in order, or its report was printed; 2 for wrong arguments, or without a "
                    "launcher; 70 for anything else."}},
      .see_also = {"coordinator"}};
}

absl::StatusOr<std::vector<pb::Hello>> Introduce(MpiWorld* world, const std::string& model) {
  pb::Hello mine = MakeHello(pb::Hello::ROLE_STAGE, AvailableInstructionSets());
  mine.set_model_path(model);
  ASSIGN_OR_RETURN(const std::vector<std::string> bytes, world->AllGather(mine.SerializeAsString(), kGatherDeadline));
  return ParseHellos(bytes);
}

// A launcher that ends a job, or tells it to drain (SIGUSR1), sends the signal to every rank. What it means is for the
// coordinator to decide, and it needs a moment with its stages alive: once a rank is dead, mpirun kills the others at
// once, unheard.
void LeaveSignalsToTheCoordinator() {
  signal(SIGUSR1, SIG_IGN);
  signal(SIGTERM, [](int) { alarm(1); });  // ended by SIGALRM a second later
}

int CheckAlone(const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> report = SelfCheck(arguments);
  if (!report.ok()) {
    LogError(report.status().message());
    return absl::IsInvalidArgument(report.status()) ? kExitUsage : kExitFailed;
  }
  std::cout << *report << std::endl;
  return std::cout.good() ? 0 : kExitFailed;
}

int ReportAlone(const std::vector<std::string>& arguments) {
  std::optional<NetworkAgent> network;
  const absl::StatusOr<std::string> report = ReportHost(arguments, &network);
  if (!report.ok()) {
    LogError(report.status().message());
    return kExitUsage;
  }
  std::cout << *report << std::endl;
  if (network.has_value() && std::cout.good()) network->Serve();
  return std::cout.good() ? 0 : kExitFailed;
}

// Prints one of what it has to say about itself. Never 0 in a job: a rank that leaves cleanly before MPI_Init hangs it.
int Say(const std::string& text) {
  const bool in_world = StartedInMpiWorld();
  (in_world ? std::cerr : std::cout) << text << std::flush;
  return in_world ? kExitUsage : std::cout.good() ? 0 : kExitFailed;
}

int Main(int argc, char** argv) {
  SetLogName("stage_worker");
  if (argc > 1 && std::strcmp(argv[1], "--help") == 0) return Say(ManualText(StageWorkerManual()));
  if (argc > 1 && std::strcmp(argv[1], kManualFlag) == 0) return Say(ManualRoff(StageWorkerManual(), kProgramVersion));
  if (argc > 1 && std::strcmp(argv[1], kCheckKernelsFlag) == 0) return CheckAlone({argv + 2, argv + argc});
  if (argc > 1 && std::strcmp(argv[1], kHostReportFlag) == 0) return ReportAlone({argv + 2, argv + argc});
  if (argc > 1 && std::strcmp(argv[1], kHostGuardFlag) == 0) return GuardHost({argv + 2, argv + argc});
  const bool model_given = argc == 3 && std::strcmp(argv[1], kModelFlag) == 0 && argv[2][0] == '/';
  LeaveSignalsToTheCoordinator();
  // Never 0 here: a rank that leaves cleanly before MPI_Init hangs the job it belongs to.
  if ((argc > 1 && !model_given) || !StartedInMpiWorld()) {
    if (argc > 1 && std::strcmp(argv[1], kModelFlag) == 0) {
      std::cerr << "stage_worker: --model needs one absolute path\n";
    } else if (argc > 1) {
      std::cerr << "stage_worker: unexpected argument '" << argv[1] << "'\n";
    } else if (std::getenv("SLURM_PROCID") != nullptr) {
      std::cerr << "stage_worker: this task of srun is not told which rank it is; start it by srun --mpi=pmix\n";
    }
    std::cerr << ManualText(StageWorkerManual());
    return kExitUsage;
  }
  SetLogName(absl::StrCat("stage_worker (rank ", LaunchedRank(), " on ", HostName(), ")"));
  const std::string model = model_given ? argv[2] : "";
  absl::StatusOr<std::unique_ptr<MpiWorld>> world = MpiWorld::Init(&argc, &argv);
  if (!world.ok()) {
    LogError(world.status().message());
    return kExitFailed;
  }
  absl::StatusOr<std::vector<pb::Hello>> hellos = Introduce(world->get(), model);
  absl::Status status = hellos.ok() ? CheckWorld(*hellos) : hellos.status();
  if (!status.ok()) {
    // Every rank finds the same; rank 0 says it and ends the job. The others give it a moment.
    if ((*world)->rank() == 0) {
      LogError(status.message());
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(5));
      LogError(status.message());  // rank 0 is not there to say it
    }
    (*world)->Abort(kExitFailed);
  }
  std::unique_ptr<Endpoint> endpoint = (*world)->MakeEndpoint();
  status = ServeStage(endpoint.get());
  if (status.ok()) return 0;
  // The coordinator has been told and ends the job; if it cannot, we do.
  std::this_thread::sleep_for(std::chrono::seconds(5));
  LogError(status.message());
  (*world)->Abort(kExitFailed);
}

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) { return stagecoach::Main(argc, argv); }
