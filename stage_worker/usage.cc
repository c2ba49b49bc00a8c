#include "stage_worker/usage.h"

#include "absl/strings/str_join.h"
#include "common/job/job_choices.h"

namespace stagecoach {
namespace {

std::string InstructionSetNames() {
  return absl::StrJoin(kInstructionSets, "|",
                       [](std::string* out, const NamedValue<InstructionSet>& set) { out->append(set.name); });
}

}  // namespace

const ManualPage& StageWorkerManual() {
  static const ManualPage* page = new ManualPage{
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
  return *page;
}

}  // namespace stagecoach
