#ifndef STAGECOACH_COORDINATOR_CLI_DUMMY_OPTIONS_H_
#define STAGECOACH_COORDINATOR_CLI_DUMMY_OPTIONS_H_

// --load-format dummy with --shape, --type and --layers: a model without weights (common/gguf/dummy_model.h) in the
// place of a file.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct DummyOptions {
  std::string load_format = "gguf";
  std::vector<std::string> shapes, types;  // as given, with commas
  std::optional<int64_t> layers;           // the first ones of every shape; absent: all
};

// `several`: of shapes and types; else one of each. `group`: of the help.
void AddDummyOptions(CLI::App* app, DummyOptions* options, bool several, const std::string& group = "Options");

// The models that were asked for: `files`, or every shape in every type. Usage errors: both, a shape without a type or
// the other way round, and where `required` nothing at all.
absl::StatusOr<std::vector<std::string>> ModelsOf(const std::vector<std::string>& files, const DummyOptions& options,
                                                  bool required);
// Of one file, or none where it is empty, and of options that take one shape and one type; empty where there is none.
absl::StatusOr<std::string> ModelOf(const std::string& file, const DummyOptions& options, bool required);

// The words of a command that asks for the same; none where no shape is asked for.
std::vector<std::string> DummyWords(const DummyOptions& options);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_DUMMY_OPTIONS_H_
