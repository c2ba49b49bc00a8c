#ifndef STAGECOACH_COORDINATOR_FRONT_MODEL_FILE_H_
#define STAGECOACH_COORDINATOR_FRONT_MODEL_FILE_H_

// What the front reads of a model: everything but the weights. Failures end the program with ExitCode::kInputFile.

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_description.h"
#include "coordinator/text/tokenizer.h"

namespace stagecoach {

struct FrontModel {
  std::shared_ptr<const ModelDescription> description;
  std::unique_ptr<Tokenizer> tokenizer;

  const GgufMetadata& metadata() const { return description->file->metadata(); }
  bool has_chat_template() const;
  // general.name, else the file's name.
  std::string DisplayName() const;
};

// `q2_layout`: a name that ParseQ2Layout takes.
absl::StatusOr<std::unique_ptr<GgufFile>> OpenGguf(const std::string& path, absl::string_view q2_layout = "auto");

// A tokenizer needs no weights and no supported architecture.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const GgufFile& file);

// A model that stages can run. More tokens in the tokenizer than rows in the embedding are an error.
absl::StatusOr<FrontModel> OpenFrontModel(const std::string& path, absl::string_view q2_layout = "auto");

// The whole file as bytes; more than `most_bytes`, whole MiB, are an error: a device has no end.
inline constexpr size_t kMostTextBytes = size_t{1} << 30;
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most_bytes = kMostTextBytes);

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_FRONT_MODEL_FILE_H_
