#include "common/wire/bit_class.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"

namespace stagecoach {

WantedIsa WantedIsaOf(const pb::ConfigureJob& job) {
  WantedIsa wanted;
  if (const absl::StatusOr<InstructionSet> isa = FromProto(job.isa()); isa.ok()) wanted.isa = *isa;
  if (job.has_bf16_dot()) wanted.bf16_dot = job.bf16_dot();
  return wanted;
}

std::optional<InstructionSet> BestIsa(const pb::Hello& hello, const WantedIsa& wanted) {
  std::optional<InstructionSet> best;
  for (const int number : hello.isas()) {
    const absl::StatusOr<InstructionSet> isa = FromProto(static_cast<pb::InstructionSet>(number));
    if (!isa.ok() || (wanted.isa.has_value() && *isa != *wanted.isa)) continue;
    if (wanted.bf16_dot.has_value() && HasBf16Dot(*isa) != *wanted.bf16_dot) continue;
    best = *isa;
  }
  return best;
}

std::string WhyNoIsa(const pb::Hello& hello, const WantedIsa& wanted) {
  const std::string has = absl::StrJoin(hello.isas(), ", ", [](std::string* out, int number) {
    absl::StrAppend(out, InstructionSetName(static_cast<pb::InstructionSet>(number)));
  });
  if (wanted.isa.has_value()) return absl::StrCat("has ", has, " and not ", InstructionSetName(*wanted.isa));
  return absl::StrCat("has ", has, " and not the BF16 dot that this job began with");
}

absl::StatusOr<StageIsas> ChooseIsas(const std::vector<pb::Hello>& stages, WantedIsa wanted) {
  if (!wanted.isa.has_value() && !wanted.bf16_dot.has_value()) {
    wanted.bf16_dot = std::all_of(stages.begin(), stages.end(), [](const pb::Hello& hello) {
      return BestIsa(hello, {.isa = std::nullopt, .bf16_dot = true}).has_value();
    });
  }
  StageIsas chosen;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const std::optional<InstructionSet> isa = BestIsa(stages[stage], wanted);
    if (!isa.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat(StageName(static_cast<int>(stage), stages[stage].host()), " ", WhyNoIsa(stages[stage], wanted),
                       "; name one that every host has with `isa`, such as avx2, or leave that host out"));
    }
    chosen.isas.push_back(*isa);
  }
  chosen.bf16_dot = HasBf16Dot(chosen.isas.front());
  return chosen;
}

}  // namespace stagecoach
