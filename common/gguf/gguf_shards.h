#ifndef STAGECOACH_COMMON_GGUF_GGUF_SHARDS_H_
#define STAGECOACH_COMMON_GGUF_GGUF_SHARDS_H_

// A model in several files: <prefix>-%05d-of-%05d.gguf, numbered from 1. The keys split.no (from 0), split.count and
// split.tensors.count say what belongs together; names of sibling files come from the given path's prefix alone, never
// from metadata.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/byte_source.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_parser.h"

namespace stagecoach {

struct GgufShard {
  std::string path;
  std::unique_ptr<const ByteSource> bytes;
  FileFingerprint fingerprint;
  GgufHeader header;
};

// Opens one file and parses its header.
absl::StatusOr<GgufShard> OpenGgufShard(const std::string& path);

// Opens the file and, when it is one of several, all others, in order; checks that they belong together. `path` is
// absolute.
absl::StatusOr<std::vector<GgufShard>> OpenGgufShards(const std::string& path);

// The same of all the files of one model, in order, with the fingerprints of their owner. kDataLoss when a header is
// not the one of its fingerprint.
absl::StatusOr<std::vector<GgufShard>> OpenGgufShards(std::vector<GgufSource> sources);

// The name of shard `index` (from 0) of `count`.
std::string GgufShardPath(const std::string& prefix, int index, int count);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_SHARDS_H_
