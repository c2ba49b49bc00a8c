#include "coordinator/plan/saved_plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/job/job_limits.h"
#include "common/json/json_fields.h"

namespace stagecoach {
namespace {

constexpr IntegerRange kPlanVersionRange = {kSavedPlanVersion, kSavedPlanVersion};
constexpr IntegerRange kHostNameBytes = {1, 255};
constexpr IntegerRange kLayersRange = {1, kMaxLayers};
constexpr IntegerRange kCoresRange = {0, 1 << 20};
constexpr IntegerRange kThreadsRange = {0, JobLimits::kThreads.range.max};
constexpr IntegerRange kPlanBytesRange = {0, std::numeric_limits<int64_t>::max()};

std::vector<std::string> ModelDifferences(const pb::PlannedFor& planned, const ModelDescription& model) {
  std::vector<std::string> differences;
  const uint64_t hash = model.file->fingerprints().front().header_hash;
  if (planned.layers() != model.hyper.layer_count()) {
    differences.push_back(
        absl::StrCat("it is for a model of ", planned.layers(), " layers, this one has ", model.hyper.layer_count()));
  }
  if (planned.file_bytes() != TotalBytes(model.file->fingerprints())) {
    differences.push_back(absl::StrCat("it is for a model of ", planned.file_bytes(), " bytes, this one has ",
                                       TotalBytes(model.file->fingerprints())));
  }
  if (planned.header_hash() != hash) {
    differences.push_back(absl::StrFormat("it is for a model whose header has the hash %016x, this one's is %016x",
                                          planned.header_hash(), hash));
  }
  return differences;
}

// An address does not identify a host by name, so it matches any.
bool MayBeSameHost(absl::string_view a, absl::string_view b) {
  const auto is_address = [](absl::string_view name) {
    return name.find_first_not_of("0123456789.") == absl::string_view::npos || absl::StrContains(name, ':');
  };
  if (is_address(a) || is_address(b)) return true;
  return a.substr(0, a.find('.')) == b.substr(0, b.find('.'));
}

void AddHostDifferences(const pb::PlannedFor& planned, const std::vector<pb::Hello>& hellos,
                        std::vector<std::string>* differences) {
  struct Memory {
    uint64_t needed = 0;
    uint64_t available = std::numeric_limits<uint64_t>::max();
  };
  std::map<std::string, Memory> hosts;
  for (int i = 0; i < planned.stages_size(); ++i) {
    const pb::PlannedStage& stage = planned.stages(i);
    const pb::Hello& hello = hellos[static_cast<size_t>(i)];
    if (!MayBeSameHost(stage.host(), hello.host())) {
      differences->push_back(
          absl::StrCat("it has stage ", i, " on ", stage.host(), ", which is now on ", hello.host()));
      continue;
    }
    if (stage.cores() > 0 && stage.cores() != hello.allowed_cores()) {
      differences->push_back(absl::StrCat("it gives ", hello.host(), " ", stage.cores(), " cores for stage ", i,
                                          ", which may now use ", hello.allowed_cores()));
    }
    Memory& memory = hosts[hello.host()];
    memory.needed += stage.memory_bytes();
    memory.available = std::min<uint64_t>(memory.available, hello.available_memory_bytes());
  }
  for (const auto& [host, memory] : hosts) {
    if (memory.needed <= memory.available) continue;
    differences->push_back(absl::StrCat("it takes ", memory.needed, " bytes of memory on ", host, ", where ",
                                        memory.available, " are available"));
  }
}

template <typename Fields, typename Plan>
void VisitPlan(Fields& fields, Plan& plan) {
  int version = kSavedPlanVersion;
  fields.Field("version", version, kPlanVersionRange);
  fields.Field("file_bytes", plan.file_bytes, kPlanBytesRange);
  fields.Hash("header_hash", plan.header_hash);
  fields.Field("layers", plan.layers, kLayersRange);
  fields.Field("here", plan.here);
  fields.Objects(
      "stages", plan.stages,
      [](auto& stage_fields, auto& stage) {
        stage_fields.Field("host", stage.host, kHostNameBytes);
        stage_fields.Field("layers", stage.layers, kLayersRange);
        stage_fields.Field("cores", stage.cores, kCoresRange);
        stage_fields.Field("memory_bytes", stage.memory_bytes, kPlanBytesRange);
      },
      /*required=*/true);
  fields.Field("threads", plan.threads, kThreadsRange);
  fields.Field("micro_batches", plan.micro_batches, JobLimits::kMicroBatches.range);
  fields.Field("prefill_chunk", plan.prefill_chunk, JobLimits::kPrefillChunk.range);
}

}  // namespace

Json SavedPlanJson(const SavedPlan& plan) {
  Json json;
  JsonWriter fields(&json);
  VisitPlan(fields, plan);
  return json;
}

absl::StatusOr<SavedPlan> ParseSavedPlan(absl::string_view file, absl::string_view text) {
  const Json document = ReadJson(text);
  const bool has_plan = document.is_object() && document.contains("plan") && document["plan"].is_object();
  if (!has_plan) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", file, "' is no saved plan: expected a JSON object with \"plan\", as the verb `plan` writes"));
  }
  absl::Status status;
  JsonReader fields(file, "plan", document["plan"], &status);
  SavedPlan plan;
  VisitPlan(fields, plan);
  if (!Contains(JobLimits::kStages.range, static_cast<int64_t>(plan.stages.size()))) {
    fields.Fail("stages", absl::StrCat("a list of 1 to ", JobLimits::kStages.range.max, " stages"),
                absl::StrCat("a list of ", plan.stages.size()));
  }
  RETURN_IF_ERROR(status);
  int64_t layers = 0;
  for (const SavedStage& stage : plan.stages) layers += stage.layers;
  if (layers == plan.layers) return plan;
  return absl::InvalidArgumentError(
      absl::StrCat("'", file, "': the layers of plan.stages add up to ", layers, ", but plan.layers is ", plan.layers));
}

void SetModelOf(const ModelDescription& model, SavedPlan* plan) {
  plan->file_bytes = TotalBytes(model.file->fingerprints());
  plan->header_hash = model.file->fingerprints().front().header_hash;
  plan->layers = model.hyper.layer_count();
}

pb::PlannedFor PlannedForOf(const SavedPlan& plan) {
  pb::PlannedFor planned;
  planned.set_file_bytes(plan.file_bytes);
  planned.set_header_hash(plan.header_hash);
  planned.set_layers(plan.layers);
  for (const SavedStage& saved : plan.stages) {
    pb::PlannedStage* stage = planned.add_stages();
    stage->set_host(saved.host);
    stage->set_cores(saved.cores);
    stage->set_memory_bytes(saved.memory_bytes);
  }
  return planned;
}

absl::Status CheckPlanned(const pb::PlannedFor& planned, const std::vector<pb::Hello>& hellos,
                          const ModelDescription& model) {
  std::vector<std::string> differences = ModelDifferences(planned, model);
  if (planned.stages_size() != static_cast<int>(hellos.size())) {
    differences.push_back(absl::StrCat("it is for ", planned.stages_size(), " stages, this job has ", hellos.size()));
  } else {
    AddHostDifferences(planned, hellos, &differences);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the plan no longer fits: ", absl::StrJoin(differences, "; "),
                   ". Make a new one with `coordinator plan`, or leave `planned_for` out"));
}

std::string HostListOf(const SavedPlan& plan) {
  std::string list;
  if (plan.here) return list;
  for (size_t i = 0; i < plan.stages.size();) {
    size_t end = i;
    while (end < plan.stages.size() && plan.stages[end].host == plan.stages[i].host) ++end;
    absl::StrAppend(&list, list.empty() ? "" : ",", plan.stages[i].host, ":", end - i);
    i = end;
  }
  return list;
}

absl::StatusOr<SavedPlan> ReadSavedPlan(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadDocument(file, "saved plan"));
  return ParseSavedPlan(file, text);
}

}  // namespace stagecoach
