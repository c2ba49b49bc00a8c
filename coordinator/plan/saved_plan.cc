#include "coordinator/plan/saved_plan.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/base/value_range.h"
#include "common/job/job_limits.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

constexpr size_t kMaxHostNameBytes = 255;
constexpr size_t kMaxPlanFileBytes = size_t{16} << 20;
constexpr IntegerRange kPlanBytesRange = {0, std::numeric_limits<int64_t>::max()};

// Reads fields of one object; every message names the file and the place.
class PlanReader {
 public:
  PlanReader(absl::string_view file, std::string place, const Json* object)
      : file_(file), place_(std::move(place)), object_(object) {}

  absl::Status Refuse(absl::string_view field, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("'", file_, "': ", place_, field, " is ", Found(field), ", expected ", expected));
  }

  absl::StatusOr<int64_t> Integer(const char* field, IntegerRange range) const {
    const Json* value = Find(field);
    const std::string expected = absl::StrCat("a whole number from ", range.min, " to ", range.max);
    if (value == nullptr || !value->is_number_integer()) return Refuse(field, expected);
    if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(range.max)) {
      return Refuse(field, expected);
    }
    const int64_t number = value->get<int64_t>();
    if (number < range.min || number > range.max) return Refuse(field, expected);
    return number;
  }

  absl::StatusOr<std::string> Text(const char* field) const {
    const Json* value = Find(field);
    if (value == nullptr || !value->is_string() || value->get_ref<const std::string&>().empty() ||
        value->get_ref<const std::string&>().size() > kMaxHostNameBytes) {
      return Refuse(field, absl::StrCat("1 to ", kMaxHostNameBytes, " characters in quotes"));
    }
    return value->get<std::string>();
  }

  absl::StatusOr<bool> Truth(const char* field) const {
    const Json* value = Find(field);
    if (value == nullptr || !value->is_boolean()) return Refuse(field, "true or false");
    return value->get<bool>();
  }

  const Json* Find(absl::string_view field) const {
    if (!object_->is_object()) return nullptr;
    const auto found = object_->find(std::string(field));
    return found == object_->end() ? nullptr : &*found;
  }

 private:
  std::string Found(absl::string_view field) const {
    const Json* value = Find(field);
    if (value == nullptr) return "not there";
    if (value->is_array()) return absl::StrCat("a list of ", value->size());
    if (value->is_object()) return "an object";
    std::string text = value->dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text.erase(60);
    return text;
  }

  absl::string_view file_;
  std::string place_;
  const Json* object_;
};

uint64_t ModelFileBytes(const ModelDescription& model) {
  uint64_t bytes = 0;
  for (const FileFingerprint& shard : model.file->fingerprints()) bytes += shard.size_bytes;
  return bytes;
}

std::vector<std::string> ModelDifferences(const pb::PlannedFor& planned, const ModelDescription& model) {
  std::vector<std::string> differences;
  const uint64_t hash = model.file->fingerprints().front().header_hash;
  if (planned.layers() != model.hyper.layer_count()) {
    differences.push_back(
        absl::StrCat("it is for a model of ", planned.layers(), " layers, this one has ", model.hyper.layer_count()));
  }
  if (planned.file_bytes() != ModelFileBytes(model)) {
    differences.push_back(
        absl::StrCat("it is for a model of ", planned.file_bytes(), " bytes, this one has ", ModelFileBytes(model)));
  }
  if (planned.header_hash() != hash) {
    differences.push_back(absl::StrFormat("it is for a model whose header has the hash %016x, this one's is %016x",
                                          planned.header_hash(), hash));
  }
  return differences;
}

// An address is no name of a host: which host it is cannot be told.
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

absl::StatusOr<std::vector<SavedStage>> ParsePlanStages(absl::string_view file, const Json* list) {
  std::vector<SavedStage> stages;
  for (const Json& entry : *list) {
    const PlanReader stage(file, absl::StrCat("plan.stages[", stages.size(), "]."), &entry);
    SavedStage& saved = stages.emplace_back();
    ASSIGN_OR_RETURN(saved.host, stage.Text("host"));
    ASSIGN_OR_RETURN(saved.layers, stage.Integer("layers", {1, kMaxLayers}));
    ASSIGN_OR_RETURN(const int64_t cores, stage.Integer("cores", {0, 1 << 20}));
    saved.cores = static_cast<int32_t>(cores);
    ASSIGN_OR_RETURN(const int64_t bytes, stage.Integer("memory_bytes", kPlanBytesRange));
    saved.memory_bytes = static_cast<uint64_t>(bytes);
  }
  return stages;
}

}  // namespace

Json SavedPlanJson(const SavedPlan& plan) {
  Json stages = Json::array();
  for (const SavedStage& stage : plan.stages) {
    stages.push_back(
        {{"host", stage.host}, {"layers", stage.layers}, {"cores", stage.cores}, {"memory_bytes", stage.memory_bytes}});
  }
  return {{"version", kSavedPlanVersion},
          {"file_bytes", plan.file_bytes},
          {"header_hash", absl::StrFormat("%016x", plan.header_hash)},
          {"layers", plan.layers},
          {"here", plan.here},
          {"stages", stages},
          {"threads", plan.threads},
          {"micro_batches", plan.micro_batches},
          {"prefill_chunk", plan.prefill_chunk}};
}

absl::StatusOr<SavedPlan> ParseSavedPlan(absl::string_view file, absl::string_view text) {
  const Json document = ReadJson(text);
  const PlanReader whole(file, "", &document);
  const Json* object = document.is_discarded() ? nullptr : whole.Find("plan");
  if (object == nullptr || !object->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", file, "' is no saved plan: expected a JSON object with \"plan\", as the verb `plan` writes"));
  }
  const PlanReader reader(file, "plan.", object);
  RETURN_IF_ERROR(reader.Integer("version", {kSavedPlanVersion, kSavedPlanVersion}).status());
  SavedPlan plan;
  ASSIGN_OR_RETURN(const int64_t bytes, reader.Integer("file_bytes", kPlanBytesRange));
  plan.file_bytes = static_cast<uint64_t>(bytes);
  ASSIGN_OR_RETURN(const std::string hash, reader.Text("header_hash"));
  if (hash.size() != 16 || !absl::SimpleHexAtoi(hash, &plan.header_hash)) {
    return reader.Refuse("header_hash", "16 hexadecimal digits");
  }
  ASSIGN_OR_RETURN(plan.layers, reader.Integer("layers", {1, kMaxLayers}));
  ASSIGN_OR_RETURN(plan.here, reader.Truth("here"));
  const Json* stages = reader.Find("stages");
  if (stages == nullptr || !stages->is_array() || stages->empty() ||
      stages->size() > static_cast<size_t>(JobLimits::kStages.range.max)) {
    return reader.Refuse("stages", absl::StrCat("a list of 1 to ", JobLimits::kStages.range.max, " stages"));
  }
  ASSIGN_OR_RETURN(plan.stages, ParsePlanStages(file, stages));
  int64_t layers = 0;
  for (const SavedStage& stage : plan.stages) layers += stage.layers;
  if (layers != plan.layers) {
    return absl::InvalidArgumentError(absl::StrCat("'", file, "': the layers of plan.stages add up to ", layers,
                                                   ", but plan.layers is ", plan.layers));
  }
  ASSIGN_OR_RETURN(plan.threads, reader.Integer("threads", {0, JobLimits::kThreads.range.max}));
  ASSIGN_OR_RETURN(plan.micro_batches, reader.Integer("micro_batches", JobLimits::kMicroBatches.range));
  ASSIGN_OR_RETURN(plan.prefill_chunk, reader.Integer("prefill_chunk", JobLimits::kPrefillChunk.range));
  return plan;
}

void SetModelOf(const ModelDescription& model, SavedPlan* plan) {
  plan->file_bytes = ModelFileBytes(model);
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
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxPlanFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad() || (in.gcount() == 0 && errno != 0)) {
    return absl::NotFoundError(absl::StrCat("cannot read '", file, "': ", std::strerror(errno == 0 ? EIO : errno)));
  }
  text.erase(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxPlanFileBytes) {
    return absl::NotFoundError(absl::StrCat("'", file, "' has more than ", kMaxPlanFileBytes, " bytes: no saved plan"));
  }
  return ParseSavedPlan(file, text);
}

}  // namespace stagecoach
