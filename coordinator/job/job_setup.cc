#include "coordinator/job/job_setup.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <string>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"

namespace stagecoach {
namespace {

ReadCurve ReadsOf(const ModelDescription& model) {
  const absl::StatusOr<ModelParts> parts = PartsOf(model, KvType::kF32, /*bf16_dot=*/false);  // bytes depend on neither
  const PartWork bytes = parts.ok() ? parts->Bytes() : PartWork{};
  if (bytes.expert_bytes == 0) return {};
  return {.experts = bytes.expert_bytes / bytes.bytes_kept, .chosen = bytes.expert_share};
}

// Every field of the job that was set to one value.
std::vector<std::pair<std::string, std::string>> OptionsOf(const pb::ConfigureJob& job) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  job.GetReflection()->ListFields(job, &fields);
  std::vector<std::pair<std::string, std::string>> options;
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->is_repeated()) continue;
    std::string& value = options.emplace_back(field->name(), "").second;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      value = job.GetReflection()->GetString(job, field);
    } else {
      google::protobuf::TextFormat::PrintFieldValueToString(job, field, -1, &value);
    }
  }
  return options;
}

}  // namespace

absl::StatusOr<SchedulerOptions> SchedulerOptionsOf(const pb::ConfigureJob& job, const JobPlan& plan,
                                                    const ModelDescription& model) {
  ASSIGN_OR_RETURN(const JobSettings settings, JobSettingsOf(job));
  const SchedulerOptions options = {settings, plan, ReadsOf(model), job.max_prompt_logprobs()};
  RETURN_IF_ERROR(ValidateSchedulerOptions(options));
  return options;
}

TraceHeader TraceHeaderOf(const pb::ConfigureJob& job, const JobPlan& plan, const std::vector<pb::Hello>& hellos) {
  TraceHeader header;
  header.version = kProgramVersion;
  header.coordinator_host = hellos.front().host();
  header.start_us = MonotonicUs();
  header.start_unix_us = WallUs();
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const pb::StageAssignment& stage = plan.stages[i];
    header.stages.push_back(
        {stage.rank(), hellos[i + 1].host(), stage.first_layer(), stage.last_layer(), stage.threads()});
  }
  header.options = OptionsOf(job);
  if (hellos.size() > 1 + plan.stages.size()) header.options.emplace_back("draft_host", hellos.back().host());
  return header;
}

}  // namespace stagecoach
