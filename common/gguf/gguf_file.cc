#include "common/gguf/gguf_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/aligned_buffer.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/gguf/dummy_model.h"
#include "common/gguf/gguf_parser.h"

namespace stagecoach {

struct GgufShard {
  std::string path;
  std::unique_ptr<const ByteSource> bytes;
  FileFingerprint fingerprint;
  GgufHeader header;
};

namespace {

// All shards come from one program and have one layout.
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

constexpr const char* kKindNames[] = {"unsigned integer", "signed integer", "float", "bool", "string", "array"};

std::string KindName(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    return absl::StrCat("array of ", kGgufValueTypes[array->element_type].name);
  }
  return kKindNames[value.index()];
}

absl::Status WrongType(const GgufMetadata& metadata, absl::string_view key, const GgufValue& value,
                       absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", metadata.path(), "': key '", key, "' has type ", KindName(value), ", expected ", expected));
}

template <typename T>
absl::StatusOr<const T*> Get(const GgufMetadata& metadata, absl::string_view key, absl::string_view expected) {
  const GgufValue* value = metadata.Find(key);
  if (value == nullptr) return absl::NotFoundError(absl::StrCat("'", metadata.path(), "': key '", key, "' is missing"));
  const T* held = std::get_if<T>(value);
  if (held == nullptr) return WrongType(metadata, key, *value, expected);
  return held;
}

absl::StatusOr<int64_t> Signed(const GgufMetadata& metadata, absl::string_view key, uint64_t number) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (number <= kMost) return static_cast<int64_t>(number);
  return absl::InvalidArgumentError(
      absl::StrCat("'", metadata.path(), "': key '", key, "' holds ", number, ", expected at most ", kMost));
}

constexpr int64_t kMaxShards = 1024;  // each one is an open file

absl::Status Wrong(const GgufShard& shard, const std::string& detail) {
  return absl::InvalidArgumentError(absl::StrCat("'", shard.path, "': ", detail));
}

// A missing key is a malformed file here: kNotFound is for missing files.
absl::StatusOr<int64_t> RequireInt(const GgufShard& shard, absl::string_view key) {
  absl::StatusOr<int64_t> found = shard.header.metadata.GetInt(key);
  if (absl::IsNotFound(found.status())) return absl::InvalidArgumentError(found.status().message());
  return found;
}

absl::Status Expect(const GgufShard& shard, absl::string_view key, int64_t expected) {
  ASSIGN_OR_RETURN(const int64_t found, RequireInt(shard, key));
  if (found == expected) return absl::OkStatus();
  return Wrong(shard, absl::StrCat("key '", key, "' is ", found, ", expected ", expected,
                                   "; the files do not belong to one model"));
}

// Every shard holds its number and the common count; together they hold the announced number of tensors.
absl::Status CheckConsistent(const std::vector<GgufShard>& shards) {
  int64_t tensors = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    RETURN_IF_ERROR(Expect(shards[i], "split.no", static_cast<int64_t>(i)));
    RETURN_IF_ERROR(Expect(shards[i], "split.count", static_cast<int64_t>(shards.size())));
    tensors += static_cast<int64_t>(shards[i].header.tensors.size());
  }
  for (const GgufShard& shard : shards) {
    if (&shard != &shards[0] && !shard.header.metadata.Has("split.tensors.count")) continue;
    RETURN_IF_ERROR(Expect(shard, "split.tensors.count", tensors));
  }
  return absl::OkStatus();
}

// A few pages, including the first and the last of the tensor data: tells apart files of one header, and is cheap.
absl::StatusOr<uint64_t> HashSamples(const GgufShard& shard) {
  constexpr uint64_t kSamples = 8, kSampleBytes = 4096;
  const uint64_t begin = shard.header.header_bytes, end = shard.fingerprint.size_bytes;
  const uint64_t bytes = std::min(kSampleBytes, end - begin);
  const uint64_t last = end - bytes;  // where the last sample begins
  std::vector<uint8_t> sample(bytes);
  uint64_t hash = kHashStart;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t offset = begin + (last - begin) / (kSamples - 1) * i;
    RETURN_IF_ERROR(shard.bytes->Read(i + 1 == kSamples ? last : offset, absl::MakeSpan(sample)));
    hash = HashBytes(hash, sample);
  }
  return hash;
}

absl::StatusOr<GgufShard> OpenShard(const std::string& path) {
  // O_NONBLOCK so that a named pipe cannot hold us; regular files do not heed it.
  GgufShard shard;
  shard.path = path;
  FileDescriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.get() < 0) {
    const std::string message = absl::StrCat("cannot open '", path, "': ", std::strerror(errno));
    if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(message);
    if (errno == EACCES) return absl::PermissionDeniedError(message);
    return absl::UnavailableError(message);
  }
  struct stat info;
  if (fstat(descriptor.get(), &info) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot examine '", path, "': ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return Wrong(shard, S_ISDIR(info.st_mode) ? DescribeDirectory(path) : "is not a regular file");
  }
  shard.fingerprint.size_bytes = static_cast<uint64_t>(info.st_size);
  shard.fingerprint.modified_ns = int64_t{info.st_mtim.tv_sec} * 1000000000 + info.st_mtim.tv_nsec;
  shard.bytes = std::make_unique<FileBytes>(std::move(descriptor), path);
  ASSIGN_OR_RETURN(shard.header, ParseGgufHeader(*shard.bytes, path, shard.fingerprint.size_bytes));
  shard.fingerprint.header_hash = shard.header.header_hash;
  ASSIGN_OR_RETURN(shard.fingerprint.sample_hash, HashSamples(shard));
  return shard;
}

// A model in several files: <prefix>-%05d-of-%05d.gguf, numbered from 1. Keys: split.no (from 0), split.count,
// split.tensors.count. Sibling names come from `path` (absolute) only, never from metadata. Opens all, in order.
absl::StatusOr<std::vector<GgufShard>> OpenShards(const std::string& path) {
  ASSIGN_OR_RETURN(GgufShard given, OpenShard(path));
  ASSIGN_OR_RETURN(const int64_t count, given.header.metadata.GetIntOr("split.count", 0));
  if (count < 0 || count > kMaxShards) {
    return Wrong(given, absl::StrCat("key 'split.count' is ", count, ", expected 1 to ", kMaxShards));
  }
  std::vector<GgufShard> shards(static_cast<size_t>(std::max<int64_t>(count, 1)));
  if (count == 0) {
    shards[0] = std::move(given);
    return shards;
  }
  ASSIGN_OR_RETURN(const int64_t number, RequireInt(given, "split.no"));
  if (number < 0 || number >= count) {
    return Wrong(given, absl::StrCat("key 'split.no' is ", number, ", expected 0 to ", count - 1, " (split.count is ",
                                     count, ")"));
  }
  const std::string suffix = GgufShardPath("", static_cast<int>(number), static_cast<int>(count));
  absl::string_view prefix = path;
  if (count > 1 && !absl::ConsumeSuffix(&prefix, suffix)) {
    return Wrong(given, absl::StrCat("keys 'split.no' and 'split.count' say shard ", number + 1, " of ", count,
                                     ", so the name must end in '", suffix, "'; give the file its original name"));
  }
  for (int i = 0; i < count; ++i) {
    if (i == number) continue;
    absl::StatusOr<GgufShard> sibling = OpenShard(GgufShardPath(std::string(prefix), i, static_cast<int>(count)));
    if (!sibling.ok()) {
      return absl::Status(sibling.status().code(),
                          absl::StrCat("shard ", i + 1, " of ", count, ": ", sibling.status().message(),
                                       absl::IsNotFound(sibling.status())
                                           ? absl::StrCat("; '", path, "' is part ", number + 1, " of a model in ",
                                                          count, " files, put all of them into its directory")
                                           : ""));
    }
    shards[static_cast<size_t>(i)] = *std::move(sibling);
  }
  shards[static_cast<size_t>(number)] = std::move(given);
  RETURN_IF_ERROR(CheckConsistent(shards));
  return shards;
}

// The same for all files of one model, in order, with their owner's fingerprints.
absl::StatusOr<std::vector<GgufShard>> OpenShards(std::vector<GgufSource> sources) {
  std::vector<GgufShard> shards;
  for (GgufSource& source : sources) {
    GgufShard& shard = shards.emplace_back();
    shard.path = std::move(source.path);
    shard.bytes = std::move(source.bytes);
    shard.fingerprint = source.fingerprint;
    ASSIGN_OR_RETURN(shard.header, ParseGgufHeader(*shard.bytes, shard.path, shard.fingerprint.size_bytes));
    if (shard.header.header_hash != shard.fingerprint.header_hash) {
      return absl::DataLossError(absl::StrCat("'", shard.path, "': the header that was received has the hash ",
                                              absl::Hex(shard.header.header_hash, absl::kZeroPad16), ", expected ",
                                              absl::Hex(shard.fingerprint.header_hash, absl::kZeroPad16),
                                              "; did the file change while it was sent?"));
    }
  }
  if (shards.size() > 1 || shards[0].header.metadata.Has("split.count")) RETURN_IF_ERROR(CheckConsistent(shards));
  return shards;
}

}  // namespace

std::string GgufShardPath(const std::string& prefix, int index, int count) {
  return absl::StrCat(prefix, absl::StrFormat("-%05d-of-%05d.gguf", index + 1, count));
}

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

GgufFile::GgufFile() = default;
GgufFile::~GgufFile() = default;

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path, const GgufOpenOptions& options) {
  if (IsDummyModelPath(path)) return OpenDummy(path);
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (path.empty() || error) return absl::NotFoundError(absl::StrCat("cannot open '", path, "': not a path"));
  ASSIGN_OR_RETURN(std::vector<GgufShard> shards, OpenShards(absolute.string()));
  return FromShards(std::move(shards), options);
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::OpenSources(std::vector<GgufSource> sources,
                                                                const GgufOpenOptions& options) {
  CHECK(!sources.empty());
  ASSIGN_OR_RETURN(std::vector<GgufShard> shards, OpenShards(std::move(sources)));
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
  bytes_read_.fetch_add(out.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GgufRawEntry>> GgufFile::ReadRawMetadata() const {
  CHECK(has_files());
  std::vector<GgufRawEntry> entries;
  for (size_t i = 0; i < metadata_.entries_.size(); ++i) {
    const GgufMetadata::Place& place = metadata_.places_[i];
    GgufRawEntry& entry = entries.emplace_back();
    entry = {metadata_.entries_[i].first, place.type, std::string(place.bytes, '\0')};
    RETURN_IF_ERROR(ReadShard(0, place.offset, {reinterpret_cast<uint8_t*>(entry.bytes.data()), place.bytes}));
  }
  return entries;
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

size_t GgufArray::size() const {
  return std::visit([](const auto& elements) { return elements.size(); }, values);
}

bool GgufMetadata::Has(absl::string_view key) const { return index_.contains(key); }

const GgufValue* GgufMetadata::Find(absl::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

absl::StatusOr<std::string> GgufMetadata::GetString(absl::string_view key) const {
  ASSIGN_OR_RETURN(const std::string* text, Get<std::string>(*this, key, "string"));
  return *text;
}

absl::StatusOr<int64_t> GgufMetadata::GetInt(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (const auto* number = value == nullptr ? nullptr : std::get_if<int64_t>(value)) return *number;
  ASSIGN_OR_RETURN(const uint64_t* number, Get<uint64_t>(*this, key, "an integer"));
  return Signed(*this, key, *number);
}

absl::StatusOr<double> GgufMetadata::GetFloat(absl::string_view key) const {
  ASSIGN_OR_RETURN(const double* number, Get<double>(*this, key, "float"));
  if (std::isfinite(*number)) return *number;
  return absl::InvalidArgumentError(
      absl::StrCat("'", path_, "': key '", key, "' holds ", *number, ", expected a finite number"));
}

absl::StatusOr<bool> GgufMetadata::GetBool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const bool* truth, Get<bool>(*this, key, "bool"));
  return *truth;
}

absl::StatusOr<std::vector<std::string>> GgufMetadata::GetStrings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufArray* array, Get<GgufArray>(*this, key, "array of string"));
  if (const auto* texts = std::get_if<std::vector<std::string>>(&array->values)) return *texts;
  return WrongType(*this, key, *array, "array of string");
}

absl::StatusOr<std::vector<int64_t>> GgufMetadata::GetInts(absl::string_view key) const {
  constexpr absl::string_view kExpected = "array of an integer type";
  ASSIGN_OR_RETURN(const GgufArray* array, Get<GgufArray>(*this, key, kExpected));
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->values)) return *numbers;
  const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->values);
  if (numbers == nullptr) return WrongType(*this, key, *array, kExpected);
  std::vector<int64_t> result;
  result.reserve(numbers->size());
  for (const uint64_t number : *numbers) {
    ASSIGN_OR_RETURN(result.emplace_back(), Signed(*this, key, number));
  }
  return result;
}

absl::StatusOr<std::vector<float>> GgufMetadata::GetFloats(absl::string_view key) const {
  constexpr absl::string_view kExpected = "array of f32";
  ASSIGN_OR_RETURN(const GgufArray* array, Get<GgufArray>(*this, key, kExpected));
  if (array->element_type != static_cast<uint32_t>(kGgufTypeOf<float>)) {
    return WrongType(*this, key, *array, kExpected);
  }
  const auto& numbers = std::get<std::vector<double>>(array->values);
  return std::vector<float>(numbers.begin(), numbers.end());
}

}  // namespace stagecoach
