#include "coordinator/cli/probe_options.h"

#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/str_cat.h"
#include "coordinator/cli/job_options.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
void AddProbeOptions(CLI::App* app, ProbeOptions* options, const std::string& without) {
  AddText(app, "-m,--model", &options->cluster.model, "FILE",
          absl::StrCat("the model, a GGUF file (any shard of a split one); without one ", without))
      ->group(kClusterGroup);
  AddDummyOptions(app, &options->dummy, /*several=*/false, kClusterGroup);
  AddJobSettings(app, &options->cluster, Settings({"q2_layout", "kv_type", "stages", "threads"}));
  AddHostOptions(app, &options->cluster);
}

absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenProbeModel(ProbeOptions* options) {
  std::string& path = options->cluster.model;
  ASSIGN_OR_RETURN(path, ModelOf(path, options->dummy, /*required=*/false));
  if (path.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<GgufFile>> file = OpenGguf(path, options->cluster.q2_layout);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::shared_ptr<const ModelDescription>> model = DescribeModel(*std::move(file));
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kInputFile);
  return model;
}

}  // namespace stagecoach
