#include "coordinator/serve/service/opened_model.h"

#include <filesystem>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/wire/handshake.h"
#include "common/wire/job_proto.h"
#include "coordinator/text/output/output_parser.h"

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
  model.grammars = grammars.get();
  model.vocab = front.description->hyper.vocab;
  model.recurrent = front.description->hyper.recurrent();
  model.names = {NameOfFile(file.path())};
  model.created = absl::ToUnixSeconds(absl::Now());
  uint64_t hash = 0;
  for (const FileFingerprint& shard : file.fingerprints()) {
    model.file_bytes += static_cast<int64_t>(shard.size_bytes);
    hash = hash * 31 + shard.header_hash;
  }
  model.hash = absl::StrFormat("%016x", hash);
  for (const GgufTensor& tensor : file.tensors()) model.parameters += static_cast<int64_t>(tensor.elements());
  model.trained_context = front.description->hyper.context;
  model.output_format = FindOutputFormat(chat->source(/*with_tools=*/false));
  model.tool_format = FindOutputFormat(chat->source(/*with_tools=*/true));
  return model;
}

std::string SystemFingerprint(const ServedModel& model, const pb::JobReady& job) {
  std::set<pb::InstructionSet> sets;
  for (const pb::StageSummary& stage : job.stages()) sets.insert(stage.isa());
  sets.erase(pb::INSTRUCTION_SET_UNSPECIFIED);
  std::vector<std::string> names;
  names.reserve(sets.size());
  for (const pb::InstructionSet set : sets) names.emplace_back(InstructionSetName(set));
  return absl::StrCat("sc-", model.hash, names.empty() ? "" : "-", absl::StrJoin(names, "+"), "-", kProgramVersion);
}

absl::StatusOr<std::unique_ptr<OpenedModel>> OpenServedModel(const std::string& path, const std::string& q2_layout,
                                                             const ChatTemplateChoice& choice) {
  auto opened = std::make_unique<OpenedModel>();
  ASSIGN_OR_RETURN(opened->front, OpenFrontModel(path, q2_layout));
  opened->chat = std::make_unique<ChatFormat>(choice, opened->front.metadata(), opened->front.tokenizer.get());
  opened->grammars = std::make_unique<AnswerGrammars>(opened->front.tokenizer.get());
  return opened;
}

}  // namespace stagecoach
