// Which kernels this machine can run. __builtin_cpu_supports asks cpuid, and XGETBV for what the operating system
// saves.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "stage_worker/kernels/isa_tables.h"
#include "stage_worker/kernels/kernels.h"

namespace stagecoach {
namespace {

struct Isa {
  const Kernels* kernels;
  bool (*available)();
};

bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool HasAvx512Vnni() { return HasAvx512() && __builtin_cpu_supports("avx512vnni"); }

bool HasAvx512Bf16() { return HasAvx512Vnni() && __builtin_cpu_supports("avx512bf16"); }

// Ascending: the last one available is the best.
constexpr Isa kIsas[] = {
    {&kScalarKernels, [] { return true; }},
    {&kAvx2Kernels, HasAvx2},
    {&kAvx512Kernels, HasAvx512},
    {&kAvx512VnniKernels, HasAvx512Vnni},
    {&kAvx512Bf16Kernels, HasAvx512Bf16},
};

std::string NamesOf(bool only_available) {
  std::string names;
  for (const Isa& isa : kIsas) {
    if (only_available && !isa.available()) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", isa.kernels->isa);
  }
  return names;
}

}  // namespace

absl::StatusOr<const Kernels*> SelectKernels(absl::string_view name) {
  if (name.empty() || name == "auto") {
    const Kernels* best = nullptr;
    for (const Isa& isa : kIsas) {
      if (isa.available()) best = isa.kernels;
    }
    return best;
  }
  for (const Isa& isa : kIsas) {
    if (name != isa.kernels->isa) continue;
    if (isa.available()) return isa.kernels;
    return absl::FailedPreconditionError(absl::StrCat("this CPU has no ", name, "; it can run: ", AvailableIsas(),
                                                      ". Use --isa auto, or one of these."));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown instruction set '", name,
                                                 "', expected auto or one of: ", NamesOf(/*only_available=*/false)));
}

std::string AvailableIsas() { return NamesOf(/*only_available=*/true); }

}  // namespace stagecoach
