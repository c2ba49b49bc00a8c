#include "common/gguf/gguf_shards.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/gguf/file_io.h"
#include "common/gguf/foreign_file.h"
#include "common/gguf/header_reader.h"

namespace stagecoach {
namespace {

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

// Every shard holds its own number and the common count, and together they hold the announced number of tensors.
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

}  // namespace

std::string GgufShardPath(const std::string& prefix, int index, int count) {
  return absl::StrCat(prefix, absl::StrFormat("-%05d-of-%05d.gguf", index + 1, count));
}

// A few pages, the first and the last of the tensor data among them: enough to tell a file from another with the same
// header, such as one trained further, and few enough for a slow disk.
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

absl::StatusOr<GgufShard> OpenGgufShard(const std::string& path) {
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
  ASSIGN_OR_RETURN(shard.header, GgufParser::Parse(*shard.bytes, path, shard.fingerprint.size_bytes));
  shard.fingerprint.header_hash = shard.header.header_hash;
  ASSIGN_OR_RETURN(shard.fingerprint.sample_hash, HashSamples(shard));
  return shard;
}

absl::StatusOr<std::vector<GgufShard>> OpenGgufShards(const std::string& path) {
  std::vector<GgufShard> shards;
  ASSIGN_OR_RETURN(GgufShard given, OpenGgufShard(path));
  ASSIGN_OR_RETURN(const int64_t count, given.header.metadata.GetIntOr("split.count", 0));
  if (count == 0) {
    shards.push_back(std::move(given));
    return shards;
  }
  if (count < 0 || count > kMaxShards) {
    return Wrong(given, absl::StrCat("key 'split.count' is ", count, ", expected 1 to ", kMaxShards));
  }
  ASSIGN_OR_RETURN(const int64_t number, RequireInt(given, "split.no"));
  if (number < 0 || number >= count) {
    return Wrong(given, absl::StrCat("key 'split.no' is ", number, ", expected 0 to ", count - 1, " (split.count is ",
                                     count, ")"));
  }
  if (count > 1) {
    const std::string suffix = GgufShardPath("", static_cast<int>(number), static_cast<int>(count));
    absl::string_view prefix = path;
    if (!absl::ConsumeSuffix(&prefix, suffix)) {
      return Wrong(given, absl::StrCat("keys 'split.no' and 'split.count' say shard ", number + 1, " of ", count,
                                       ", so the name must end in '", suffix, "'; give the file its original name"));
    }
    for (int i = 0; i < count; ++i) {
      if (i == number) {
        shards.push_back(std::move(given));  // NOLINT(bugprone-use-after-move): once, for one i
        continue;
      }
      absl::StatusOr<GgufShard> sibling = OpenGgufShard(GgufShardPath(std::string(prefix), i, static_cast<int>(count)));
      if (!sibling.ok()) {
        return absl::Status(sibling.status().code(),
                            absl::StrCat("shard ", i + 1, " of ", count, ": ", sibling.status().message(),
                                         absl::IsNotFound(sibling.status())
                                             ? absl::StrCat("; '", path, "' is part ", number + 1, " of a model in ",
                                                            count, " files, put all of them into its directory")
                                             : ""));
      }
      shards.push_back(*std::move(sibling));
    }
  } else {
    shards.push_back(std::move(given));
  }
  RETURN_IF_ERROR(CheckConsistent(shards));
  return shards;
}

absl::StatusOr<std::vector<GgufShard>> OpenGgufShards(std::vector<GgufSource> sources) {
  std::vector<GgufShard> shards;
  for (GgufSource& source : sources) {
    GgufShard& shard = shards.emplace_back();
    shard.path = std::move(source.path);
    shard.bytes = std::move(source.bytes);
    shard.fingerprint = source.fingerprint;
    ASSIGN_OR_RETURN(shard.header, GgufParser::Parse(*shard.bytes, shard.path, shard.fingerprint.size_bytes));
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

}  // namespace stagecoach
