#include "stage_worker/kernels/select.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_choices.h"
#include "stage_worker/kernels/isa_tables.h"

namespace stagecoach {
namespace {

std::string NamesOf(bool only_available) {
  std::string names;
  for (const Isa& isa : ListIsas()) {
    if (only_available && !isa.available) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", isa.kernels->isa);
  }
  return names;
}

}  // namespace

std::vector<Isa> ListIsas() {
  const std::vector<InstructionSet> cpu = CpuInstructionSets();
  std::vector<Isa> isas;
  for (const Kernels* kernels : {
         &kScalarKernels,
#if defined(__x86_64__)
             &kAvx2Kernels, &kAvxVnniKernels, &kAvx512Kernels, &kAvx512VnniKernels, &kAvx512Bf16Kernels,
#elif defined(__aarch64__)
           &kNeonKernels, &kNeonI8mmKernels,
#endif
       }) {
    const bool available = std::any_of(cpu.begin(), cpu.end(), [kernels](InstructionSet set) {
      return kernels->isa == absl::string_view(InstructionSetName(set));
    });
    isas.push_back({kernels, available});
  }
  return isas;
}

absl::StatusOr<const Kernels*> SelectKernels(std::optional<InstructionSet> isa) {
  const Kernels* selected = nullptr;
  for (const Isa& one : ListIsas()) {
    if (one.available && (!isa.has_value() || one.kernels->isa == absl::string_view(InstructionSetName(*isa)))) {
      selected = one.kernels;
    }
  }
  if (selected != nullptr) return selected;
  return absl::FailedPreconditionError(absl::StrCat("this CPU has no ", InstructionSetName(*isa), "; it can run: ",
                                                    AvailableIsas(), ". Use `isa` auto, or one of these."));
}

absl::StatusOr<const Kernels*> SelectKernels(absl::string_view name) {
  if (name.empty() || name == "auto") return SelectKernels(std::nullopt);
  ASSIGN_OR_RETURN(const InstructionSet isa, ParseInstructionSet(name));
  return SelectKernels(isa);
}

std::vector<InstructionSet> AvailableInstructionSets() {
  std::vector<InstructionSet> sets;
  for (const Isa& isa : ListIsas()) {
    const absl::StatusOr<InstructionSet> set = ParseInstructionSet(isa.kernels->isa);
    if (isa.available && set.ok()) sets.push_back(*set);
  }
  return sets;
}

std::string AvailableIsas() { return NamesOf(/*only_available=*/true); }

std::string KnownIsas() { return NamesOf(/*only_available=*/false); }

}  // namespace stagecoach
