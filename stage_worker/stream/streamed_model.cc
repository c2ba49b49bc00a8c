#include "stage_worker/stream/streamed_model.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/wire/job_proto.h"

namespace stagecoach {
namespace {

constexpr int kMaxShards = 1024;                           // as of a model's files
constexpr uint64_t kMaxOpenedBytes = uint64_t{512} << 20;  // more than the header of any file may have

absl::Status CheckOpenedBytes(const pb::StageAssignment& assignment) {
  const int shards = assignment.fingerprints_size();
  if (shards < 1 || shards > kMaxShards || assignment.opened_bytes_size() != shards) {
    return absl::InvalidArgumentError(absl::StrCat("assigned a streamed model of ", shards, " files with ",
                                                   assignment.opened_bytes_size(), " headers, expected 1 to ",
                                                   kMaxShards, " and as many"));
  }
  for (int i = 0; i < shards; ++i) {
    const uint64_t bytes = assignment.opened_bytes(i), size = assignment.fingerprints(i).size_bytes();
    if (bytes <= size && bytes <= kMaxOpenedBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("assigned a streamed model whose file ", i, " of ", size,
                                                   " bytes has a header of ", bytes, ", expected at most ",
                                                   std::min(size, kMaxOpenedBytes)));
  }
  return absl::OkStatus();
}

std::vector<GgufSource> SourcesOf(const pb::StageAssignment& assignment, WeightStream* stream) {
  std::vector<GgufSource> sources;
  const std::vector<FileFingerprint> fingerprints = FromProto(assignment.fingerprints());
  for (size_t i = 0; i < fingerprints.size(); ++i) {
    const std::string which = i == 0 ? "" : absl::StrCat(", file ", i + 1);
    sources.push_back({absl::StrCat(assignment.model_path(), which), fingerprints[i],
                       std::make_unique<StreamedBytes>(stream, static_cast<int>(i))});
  }
  return sources;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelDescription>> OpenStreamedModel(const pb::StageAssignment& assignment,
                                                                          WeightStream* stream) {
  RETURN_IF_ERROR(CheckOpenedBytes(assignment));
  GgufOpenOptions options;
  ASSIGN_OR_RETURN(options.q2_layout, ParseQ2Layout(assignment.q2_layout()));
  std::vector<WeightRange> headers;
  headers.reserve(static_cast<size_t>(assignment.opened_bytes_size()));
  for (int i = 0; i < assignment.opened_bytes_size(); ++i) headers.push_back({i, 0, assignment.opened_bytes(i)});
  stream->Plan(headers);
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::OpenSources(SourcesOf(assignment, stream), options);
  // The coordinator has read these files and found them good.
  if (absl::IsInvalidArgument(file.status())) return absl::DataLossError(file.status().message());
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelDescription> model, DescribeModel(*std::move(file)));
  const int64_t first = assignment.first_layer(), last = assignment.last_layer();
  if (first < 0 || first >= last || last > model->hyper.layer_count()) return model;  // loading will refuse it
  std::unique_ptr<WeightCache> cache;
  if (!assignment.weights_cache().empty()) {
    cache = std::make_unique<WeightCache>(assignment.weights_cache(), model->file->fingerprints());
  }
  stream->PlanTensors(model->StageTensors(first, last, assignment.owns_embedding(), assignment.owns_head()),
                      std::move(cache));
  return model;
}

}  // namespace stagecoach
