#include "coordinator/cli/dummy_options.h"

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "coordinator/cli/option_values.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kNoModel = "--model is required, or --load-format dummy with --shape and --type";

std::vector<std::string> LowerNames(const std::vector<std::string>& values) {
  std::vector<std::string> names;
  for (const std::string& value : values) {
    for (absl::string_view name : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      names.push_back(absl::AsciiStrToLower(name));
    }
  }
  return names;
}

}  // namespace

void AddDummyOptions(CLI::App* app, DummyOptions* options, bool several, const std::string& group) {
  AddChoice(app, "--load-format", &options->load_format, {"gguf", "dummy"},
            "dummy: random weights of --shape and --type in place of -m")
      ->group(group);
  const auto add = [&](const char* name, std::vector<std::string>* out, const std::string& description) {
    CLI::Option* option = AddTexts(app, name, out, several ? "NAME,..." : "NAME", description)->group(group);
    if (!several) option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  };
  add("--shape", &options->shapes, absl::StrCat("with dummy: ", DummyModelShapes()));
  add("--type", &options->types, absl::StrCat("with dummy: ", DummyModelTypes()));
  AddInteger(app, "--layers", &options->layers, {1, kMostDummyLayers}, "with dummy: of the shape, its first ones",
             "all")
      ->group(group);
}

absl::StatusOr<std::vector<std::string>> ModelsOf(const std::vector<std::string>& files, const DummyOptions& options,
                                                  bool required) {
  if (options.load_format == "gguf") {
    if (!options.shapes.empty() || !options.types.empty()) {
      return UsageError("--shape and --type need --load-format dummy");
    }
    if (options.layers.has_value()) return UsageError("--layers needs --load-format dummy");
    if (files.empty() && required) return UsageError(kNoModel);
    return files;
  }
  if (!files.empty()) return UsageError("--load-format dummy takes --shape and --type instead of --model");
  const std::vector<std::string> shapes = LowerNames(options.shapes), types = LowerNames(options.types);
  if (shapes.empty())
    return UsageError(absl::StrCat("--shape is required with --load-format dummy: ", DummyModelShapes()));
  if (types.empty())
    return UsageError(absl::StrCat("--type is required with --load-format dummy: ", DummyModelTypes()));
  std::vector<std::string> models;
  for (const std::string& shape : shapes) {
    if (options.layers.has_value() && absl::StrContains(shape, ":layers=")) {
      return UsageError(
          absl::StrCat("--layers: --shape ", shape, " says how many layers already; give one of the two"));
    }
    const std::string cut = options.layers.has_value() ? DummyModelCutTo(shape, *options.layers) : shape;
    for (const std::string& type : types) models.push_back(DummyModelPath(cut, type));
  }
  return models;
}

absl::StatusOr<std::string> ModelOf(const std::string& file, const DummyOptions& options, bool required) {
  std::vector<std::string> files;
  if (!file.empty()) files.push_back(file);
  ASSIGN_OR_RETURN(const std::vector<std::string> models, ModelsOf(files, options, required));
  if (models.size() > 1) return UsageError("--shape and --type: give one of each");
  return models.empty() ? std::string() : models.front();
}

std::vector<std::string> DummyWords(const DummyOptions& options) {
  if (options.load_format == "gguf") return {};
  std::vector<std::string> words = {"--load-format", "dummy",
                                    "--shape",       absl::StrJoin(options.shapes, ","),
                                    "--type",        absl::StrJoin(options.types, ",")};
  if (options.layers.has_value()) {
    words.push_back("--layers");
    words.push_back(absl::StrCat(*options.layers));
  }
  return words;
}

}  // namespace stagecoach
