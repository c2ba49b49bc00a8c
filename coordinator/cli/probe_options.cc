#include "coordinator/cli/probe_options.h"

#include <utility>

#include "CLI/App.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/gguf/dummy_model.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/front/model_file.h"

namespace stagecoach {
namespace {

constexpr char kModelGroup[] = "Model and cluster";

}  // namespace

void AddProbeOptions(CLI::App* app, ProbeOptions* options, const std::string& without) {
  AddText(app, "-m,--model", &options->cluster.model, "FILE",
          absl::StrCat("the model, a GGUF file (any shard of a split one); without one ", without))
      ->group(kModelGroup);
  AddChoice(app, "--load-format", &options->load_format, {"gguf", "dummy"},
            "dummy: random weights of --shape and --type in place of -m")
      ->group(kModelGroup);
  AddText(app, "--shape", &options->shape, "NAME", absl::StrCat("with dummy: ", DummyModelShapes()))
      ->group(kModelGroup);
  AddText(app, "--type", &options->type, "NAME", absl::StrCat("with dummy: ", DummyModelTypes()))->group(kModelGroup);
  AddQ2LayoutOption(app, &options->cluster.q2_layout);
  AddChoice(app, "--kv-type", &options->cluster.kv_type, kKvTypes, "type of the stored keys and values")
      ->group(kModelGroup);
  AddPlaceOptions(app, &options->cluster);
}

absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenProbeModel(ProbeOptions* options) {
  std::string& path = options->cluster.model;
  if (options->load_format == "gguf") {
    if (!options->shape.empty() || !options->type.empty())
      return UsageError("--shape and --type need --load-format dummy");
  } else {
    if (!path.empty()) return UsageError("--load-format dummy takes --shape and --type instead of --model");
    if (options->shape.empty())
      return UsageError(absl::StrCat("--shape is required with --load-format dummy: ", DummyModelShapes()));
    if (options->type.empty())
      return UsageError(absl::StrCat("--type is required with --load-format dummy: ", DummyModelTypes()));
    path = DummyModelPath(absl::AsciiStrToLower(options->shape), absl::AsciiStrToLower(options->type));
  }
  if (path.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<GgufFile>> file = OpenGguf(path, options->cluster.q2_layout);
  if (!file.ok()) return file.status();
  absl::StatusOr<std::shared_ptr<const ModelDescription>> model = DescribeModel(*std::move(file));
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kInputFile);
  return model;
}

}  // namespace stagecoach
