// The choice of kernels by name.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

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

absl::StatusOr<const Kernels*> SelectKernels(absl::string_view name) {
  if (name.empty() || name == "auto") {
    const Kernels* best = nullptr;
    for (const Isa& isa : ListIsas()) {
      if (isa.available) best = isa.kernels;
    }
    return best;
  }
  for (const Isa& isa : ListIsas()) {
    if (name != isa.kernels->isa) continue;
    if (isa.available) return isa.kernels;
    return absl::FailedPreconditionError(absl::StrCat("this CPU has no ", name, "; it can run: ", AvailableIsas(),
                                                      ". Use `isa` auto, or one of these."));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set '", name, "', expected auto or one of: ", KnownIsas()));
}

std::string AvailableIsas() { return NamesOf(/*only_available=*/true); }

std::string KnownIsas() { return NamesOf(/*only_available=*/false); }

}  // namespace stagecoach
