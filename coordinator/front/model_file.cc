#include "coordinator/front/model_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "coordinator/front/exit_codes.h"

namespace stagecoach {
namespace {

constexpr size_t kPartBytes = 1 << 20;

// Says which file it was, unless the message does.
absl::Status WithPath(const absl::Status& status, const std::string& path) {
  if (absl::StrContains(status.message(), path)) return WithExitCode(status, ExitCode::kInputFile);
  return WithExitCode(absl::Status(status.code(), absl::StrCat("'", path, "': ", status.message())),
                      ExitCode::kInputFile);
}

}  // namespace

bool FrontModel::has_chat_template() const { return metadata().Has("tokenizer.chat_template"); }

std::string FrontModel::DisplayName() const {
  if (!description->hyper.name.empty()) return description->hyper.name;
  return std::filesystem::path(description->file->path()).filename().string();
}

absl::StatusOr<std::unique_ptr<GgufFile>> OpenGguf(const std::string& path, absl::string_view q2_layout) {
  GgufOpenOptions options;
  ASSIGN_OR_RETURN(options.q2_layout, ParseQ2Layout(q2_layout));
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path, options);
  if (!file.ok()) return WithPath(file.status(), path);
  return file;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const GgufFile& file) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(file.metadata());
  if (!tokenizer.ok()) return WithPath(tokenizer.status(), file.path());
  return tokenizer;
}

absl::StatusOr<FrontModel> OpenFrontModel(const std::string& path, absl::string_view q2_layout) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, OpenGguf(path, q2_layout));
  FrontModel model;
  absl::StatusOr<std::shared_ptr<const ModelDescription>> description = DescribeModel(std::move(file));
  if (!description.ok()) return WithPath(description.status(), path);
  model.description = *std::move(description);
  ASSIGN_OR_RETURN(model.tokenizer, OpenTokenizer(*model.description->file));
  if (model.tokenizer->vocab_size() > model.description->hyper.vocab) {
    return InputFileError(absl::StrCat("'", path, "': the tokenizer has ", model.tokenizer->vocab_size(),
                                       " tokens, the embedding only ", model.description->hyper.vocab, " rows"));
  }
  return model;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t most_bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return InputFileError(absl::StrCat("'", path, "' is a directory"));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text, part(kPartBytes, '\0');
  while (in && text.size() <= most_bytes) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part, 0, static_cast<size_t>(in.gcount()));
  }
  if (!in.is_open() || in.bad()) {
    return InputFileError(absl::StrCat("cannot read '", path, "': ", std::strerror(errno == 0 ? EIO : errno)));
  }
  if (text.size() <= most_bytes) return text;
  return InputFileError(absl::StrCat("'", path, "' has more than ", most_bytes >> 20, " MiB; cut the text"));
}

}  // namespace stagecoach
