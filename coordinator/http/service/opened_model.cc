#include "coordinator/http/service/opened_model.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "coordinator/text/output/output_format.h"

namespace stagecoach {
namespace {

// The file's name without what every one has.
std::string NameOfFile(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string stem(absl::StripSuffix(name, ".gguf"));
  return stem.empty() ? path : stem;
}

}  // namespace

ServedModel OpenedModel::Served() const {
  const GgufFile& file = *front.description->file;
  ServedModel model;
  model.tokenizer = front.tokenizer.get();
  model.chat = chat.get();
  model.vocab = front.description->hyper.vocab;
  model.names = {NameOfFile(file.path())};
  model.created = absl::ToUnixSeconds(absl::Now());
  uint64_t hash = 0;
  for (const FileFingerprint& shard : file.fingerprints()) {
    model.file_bytes += static_cast<int64_t>(shard.size_bytes);
    hash = hash * 31 + shard.header_hash;
  }
  model.fingerprint = absl::StrFormat("sc-%016x-%s", hash, kProgramVersion);
  for (const GgufTensor& tensor : file.tensors()) {
    int64_t elements = 1;
    for (const auto dim : tensor.dims) elements *= static_cast<int64_t>(dim);
    model.parameters += elements;
  }
  model.trained_context = front.description->hyper.context;
  model.output_format = FindOutputFormat(chat->source(/*with_tools=*/false));
  return model;
}

absl::StatusOr<std::unique_ptr<OpenedModel>> OpenServedModel(const std::string& path, const std::string& q2_layout,
                                                             const ChatTemplateChoice& choice) {
  auto opened = std::make_unique<OpenedModel>();
  ASSIGN_OR_RETURN(opened->front, OpenFrontModel(path, q2_layout));
  opened->chat = std::make_unique<ChatFormat>(choice, opened->front.metadata(), opened->front.tokenizer.get());
  return opened;
}

}  // namespace stagecoach
