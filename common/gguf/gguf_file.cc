#include "common/gguf/gguf_file.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/gguf/gguf_shards.h"
#include "common/gguf/header_reader.h"

namespace stagecoach {

struct GgufFile::Counter {
  std::atomic<uint64_t> bytes{0};
};

int64_t GgufTensor::rows() const {
  int64_t rows = 1;
  for (size_t d = 1; d < dims.size(); ++d) rows *= dims[d];  // the parser has checked that the product fits
  return rows;
}

int64_t LayerOfTensor(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, absl::MaxSplits('.', 2));
  int64_t layer = -1;
  if (parts.size() < 3 || parts[0] != "blk" || !absl::SimpleAtoi(parts[1], &layer)) return -1;
  return layer;
}

namespace {

// All shards are written by one program, so that they agree on the layout.
absl::Status SetQ2Layouts(Q2Layout wanted, std::vector<GgufShard>* shards) {
  std::vector<Q2Tensor> tensors;
  for (size_t i = 0; i < shards->size(); ++i) {
    for (const Q2Tensor& q2 : (*shards)[i].header.q2_tensors) {
      q2.tensor->shard = static_cast<int>(i);
      tensors.push_back(q2);
    }
  }
  const auto read = [shards](const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) {
    return (*shards)[static_cast<size_t>(tensor.shard)].bytes->Read(tensor.file_offset + offset, out);
  };
  return SetQ2Layout(wanted, (*shards)[0].header.metadata, tensors, read);
}

}  // namespace

GgufFile::GgufFile() : counter_(std::make_unique<Counter>()) {}

GgufFile::~GgufFile() = default;

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path, const GgufOpenOptions& options) {
  if (IsDummyModelPath(path)) return OpenDummy(path);
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (path.empty() || error) return absl::NotFoundError(absl::StrCat("cannot open '", path, "': not a path"));
  ASSIGN_OR_RETURN(std::vector<GgufShard> shards, OpenGgufShards(absolute.string()));
  return FromShards(std::move(shards), options);
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::OpenSources(std::vector<GgufSource> sources,
                                                                const GgufOpenOptions& options) {
  CHECK(!sources.empty());
  ASSIGN_OR_RETURN(std::vector<GgufShard> shards, OpenGgufShards(std::move(sources)));
  return FromShards(std::move(shards), options);
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::FromShards(std::vector<GgufShard> shards,
                                                               const GgufOpenOptions& options) {
  RETURN_IF_ERROR(SetQ2Layouts(options.q2_layout, &shards));
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = shards[0].path;
  file->version_ = shards[0].header.version;
  file->metadata_ = std::move(shards[0].header.metadata);
  for (size_t i = 0; i < shards.size(); ++i) {
    file->shard_paths_.push_back(shards[i].path);
    file->shard_bytes_.push_back(std::move(shards[i].bytes));
    file->opened_bytes_.push_back(std::min<uint64_t>(RoundUp(shards[i].header.header_bytes, HeaderReader::kChunkBytes),
                                                     shards[i].fingerprint.size_bytes));
    file->fingerprints_.push_back(shards[i].fingerprint);
    for (GgufTensor& tensor : shards[i].header.tensors) {
      tensor.shard = static_cast<int>(i);
      const auto [first, is_new] = file->tensor_index_.try_emplace(tensor.name, file->tensors_.size());
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat("'", shards[i].path, "': tensor '", tensor.name,
                                                       "' appears twice: also in '",
                                                       file->shard_paths_[file->tensors_[first->second].shard], "'"));
      }
      file->tensors_.push_back(std::move(tensor));
    }
  }
  return file;
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::OpenDummy(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<const DummyModel> model, DummyModel::Create(path));
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = model->path();
  file->version_ = model->header().version;
  file->metadata_ = model->header().metadata;
  file->tensors_ = model->header().tensors;
  for (size_t i = 0; i < file->tensors_.size(); ++i) file->tensor_index_.emplace(file->tensors_[i].name, i);
  file->shard_paths_.push_back(file->path_);
  file->fingerprints_.push_back(model->fingerprint());
  file->dummy_ = std::move(model);
  return file;
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

absl::Status GgufFile::Read(const GgufTensor& tensor, uint64_t offset, absl::Span<uint8_t> out) const {
  CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  if (dummy_ != nullptr) {
    dummy_->Read(tensor, offset, out);
  } else {
    RETURN_IF_ERROR(shard_bytes_[tensor.shard]->Read(tensor.file_offset + offset, out));
  }
  counter_->bytes.fetch_add(out.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

void GgufFile::Discard(const GgufTensor& tensor) const {
  if (has_files()) shard_bytes_[tensor.shard]->Discard(tensor.file_offset, tensor.bytes);
}

absl::Status GgufFile::ReadShard(int shard, uint64_t offset, absl::Span<uint8_t> out) const {
  CHECK(has_files() && shard >= 0 && static_cast<size_t>(shard) < shard_bytes_.size());
  CHECK(offset <= fingerprints_[shard].size_bytes && out.size() <= fingerprints_[shard].size_bytes - offset);
  return shard_bytes_[shard]->Read(offset, out);
}

Q2Layout GgufFile::q2_layout() const {
  for (const GgufTensor& tensor : tensors_) {
    const Q2Layout layout = Q2LayoutOf(tensor.type_id);
    if (layout != Q2Layout::kAuto) return layout;
  }
  return Q2Layout::kAuto;
}

uint64_t GgufFile::bytes_read() const { return counter_->bytes.load(std::memory_order_relaxed); }

}  // namespace stagecoach
