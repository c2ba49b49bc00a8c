#include "common/wire/handshake.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/host/host_info.h"
#include "common/wire/job_proto.h"

namespace stagecoach {

pb::Hello MakeHello(pb::Hello::Role role, const std::vector<InstructionSet>& isas) {
  pb::Hello hello;
  hello.set_role(role);
  hello.set_protocol_version(kProtocolVersion);
  hello.set_program_version(kProgramVersion);
  hello.set_host(HostName());
  hello.set_pid(getpid());
  hello.set_allowed_cores(AllowedCores());
  hello.set_available_memory_bytes(AvailableMemoryBytes());
  hello.set_processor(ProcessorName());
  hello.set_memory_bytes(TotalMemoryBytes());
  for (const InstructionSet isa : isas) hello.add_isas(ToProto(isa));
  if (role != pb::Hello::ROLE_STAGE) return hello;
  for (const CpuPlace& place : AllowedCpuPlaces()) {
    pb::CpuPlace* out = hello.add_cpus();
    out->set_cpu(place.cpu);
    out->set_core(place.core);
    out->set_node(place.node);
  }
  return hello;
}

pb::ProbeHost DescribeHost() {
  pb::ProbeHost host;
  host.set_memory_bytes(TotalMemoryBytes());
  host.set_huge_pages(HugePageSetting());
  const double quota = CgroupCpuQuota("");
  host.set_cpu_quota(std::isfinite(quota) ? quota : 0);
  host.set_load(LoadAverage());
  host.set_shared_memory_bytes(FreeSharedMemoryBytes());
  host.set_binds(CanBindThreads());
  return host;
}

absl::StatusOr<std::vector<pb::Hello>> ParseHellos(const std::vector<std::string>& bytes) {
  std::vector<pb::Hello> hellos(bytes.size());
  for (size_t rank = 0; rank < bytes.size(); ++rank) {
    if (!hellos[rank].ParseFromString(bytes[rank])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", rank,
          " did not introduce itself as a stagecoach program; start one coordinator as rank 0 and stage_workers"));
    }
    hellos[rank].set_rank(static_cast<int32_t>(rank));
  }
  return hellos;
}

std::string OtherVersion(const pb::Hello& hello, const pb::Hello& coordinator) {
  if (hello.protocol_version() == coordinator.protocol_version() &&
      hello.program_version() == coordinator.program_version()) {
    return "";
  }
  return absl::StrCat("runs version ", hello.program_version(), " (protocol ", hello.protocol_version(),
                      "), the coordinator runs ", coordinator.program_version(), " (protocol ",
                      coordinator.protocol_version(), ")");
}

absl::Status CheckWorld(const std::vector<pb::Hello>& hellos) {
  std::string how_to = "; start it as: mpirun -n 1 coordinator <verb> ... : -n STAGES stage_worker";
  // Open MPI's programs under a launcher that tells them nothing of each other.
  if (hellos.size() == 1) how_to += ", or under srun with --mpi=pmix (without it every rank is alone)";
  int coordinators = 0;
  for (const pb::Hello& hello : hellos) coordinators += hello.role() == pb::Hello::ROLE_COORDINATOR;
  const int stages = static_cast<int>(hellos.size()) - coordinators;
  if (coordinators != 1) {
    return absl::FailedPreconditionError(absl::StrCat("this world has ", coordinators, " coordinators and ", stages,
                                                      " stage_workers, expected exactly one coordinator", how_to));
  }
  if (stages < 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("this world has a coordinator and no stage_worker, expected at least one", how_to));
  }
  if (hellos[kCoordinatorRank].role() != pb::Hello::ROLE_COORDINATOR) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0 is a stage_worker, expected the coordinator to be rank 0", how_to));
  }
  for (size_t rank = 1; rank < hellos.size(); ++rank) {
    const pb::Hello& hello = hellos[rank];
    if (const std::string other = OtherVersion(hello, hellos[0]); !other.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " on ", hello.host(), " ", other, "; install one version on every host"));
    }
    absl::Status sets = hello.isas_size() > 0 ? absl::OkStatus() : absl::InvalidArgumentError("it names none");
    for (const int isa : hello.isas()) sets.Update(FromProto(static_cast<pb::InstructionSet>(isa)).status());
    if (!sets.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " on ", hello.host(), ": its instruction sets: ", sets.message()));
    }
  }
  return absl::OkStatus();
}

JobEpoch EpochOf(const pb::StageAssignment& assignment) { return {assignment.run_id(), assignment.epoch()}; }

FrameLimits LimitsOf(const pb::StageAssignment& assignment, int64_t hidden, int64_t vocab) {
  FrameLimits limits;
  limits.job = EpochOf(assignment);
  limits.stages = assignment.stages();
  limits.hidden = hidden;
  limits.vocab = vocab;
  limits.context = assignment.context();
  limits.group_blocks.assign(assignment.group_blocks().begin(), assignment.group_blocks().end());
  limits.group_windows.assign(assignment.group_windows().begin(), assignment.group_windows().end());
  limits.state_slots = assignment.state_slots();
  limits.most_guesses = assignment.most_guesses();
  limits.block_tokens = assignment.block_tokens();
  limits.max_rows = assignment.max_rows();
  limits.max_slices = assignment.max_slices();
  limits.max_prompt_logprobs = assignment.max_prompt_logprobs();
  limits.max_open_tokens = assignment.max_open_tokens();
  limits.wire_type = *FromProto(assignment.wire_type());
  limits.checksum_layers = assignment.checksum_layers();
  limits.step_account = assignment.step_account();
  return limits;
}

std::string StageName(int stage, const std::string& host) { return absl::StrCat("stage ", stage, " on ", host); }

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
