#include "coordinator/cli/probe_profile.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/model/footprint.h"
#include "common/wire/bit_class.h"
#include "common/wire/job_proto.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/probe_run.h"
#include "coordinator/plan/probe_plan.h"

namespace stagecoach {
namespace {

absl::StatusOr<ProbedModel> DescribeProbedModel(const ModelDescription& model, const pb::ConfigureJob& job) {
  const ModelCosts costs = CostsOf(model);
  ProbedModel probed;
  probed.name = model.file->path();
  for (const FileFingerprint& shard : model.file->fingerprints()) probed.file_bytes += shard.size_bytes;
  probed.header_hash = model.file->fingerprints().front().header_hash;
  probed.layer_bytes = static_cast<uint64_t>(costs.layer_bytes[static_cast<size_t>(LayerToTime(model.hyper))]);
  probed.head_bytes = static_cast<uint64_t>(costs.head_bytes);
  ASSIGN_OR_RETURN(const KvType kv_type, FromProto(job.kv_type()));
  probed.kv_type = KvTypeName(kv_type);
  return probed;
}

// What the report says is wrong; a profile with holes would make a plan that is.
absl::Status CheckReport(const pb::ProbeReport& report, const ModelDescription* model) {
  for (const pb::ProbeLink& link : report.links()) {
    if (!link.error().empty()) return WithExitCode(absl::UnavailableError(link.error()), ExitCode::kLaunch);
  }
  for (const pb::ProbedStage& stage : report.stages()) {
    const std::string name = absl::StrCat("stage ", stage.stage(), " on ", report.hellos(stage.stage() + 1).host());
    if (stage.model_code() != 0) return InputFileError(absl::StrCat(name, ": ", stage.model_error()));
    if (model == nullptr) continue;
    const std::vector<FileFingerprint> found = FromProto(stage.model().fingerprints());
    const std::vector<FileFingerprint>& here = model->file->fingerprints();
    if (!std::equal(found.begin(), found.end(), here.begin(), here.end(), SameContent)) {  // as a stage compares them
      return InputFileError(absl::StrCat(name, ": '", model->file->path(),
                                         "' is another file than here; put the same file at this path on every host"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostProfile> MeasureProfile(LaunchOptions options, int engine_descriptor,
                                           const std::shared_ptr<const ModelDescription>& model, bool show_progress) {
  options.job.mutable_probe()->set_speeds(true);
  std::optional<ProbedModel> probed;
  if (model != nullptr) {
    ASSIGN_OR_RETURN(probed, DescribeProbedModel(*model, options.job));
  }
  const WantedIsa isa = WantedIsaOf(options.job);
  ASSIGN_OR_RETURN(const pb::ProbeReport report, RunProbeJob(std::move(options), engine_descriptor, show_progress));
  RETURN_IF_ERROR(CheckReport(report, model.get()));
  return ProfileOf(report, absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()), probed, isa);
}

}  // namespace stagecoach
