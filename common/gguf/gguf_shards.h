#ifndef STAGECOACH_COMMON_GGUF_GGUF_SHARDS_H_
#define STAGECOACH_COMMON_GGUF_GGUF_SHARDS_H_

// A model in several files: <prefix>-%05d-of-%05d.gguf, numbered from 1. The keys split.no (from 0), split.count and
// split.tensors.count say what belongs together; names of sibling files come from the given path's prefix alone, never
// from metadata.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/gguf/file_io.h"
#include "common/gguf/gguf_file.h"
#include "common/gguf/gguf_parser.h"

namespace stagecoach {

struct GgufShard {
  std::string path;
  FileDescriptor descriptor;
  FileFingerprint fingerprint;
  GgufHeader header;
};

// Opens one file and parses its header.
absl::StatusOr<GgufShard> OpenGgufShard(const std::string& path);

// Opens the file and, when it is one of several, all others, in order; checks that they belong together. `path` is
// absolute.
absl::StatusOr<std::vector<GgufShard>> OpenGgufShards(const std::string& path);

// The name of shard `index` (from 0) of `count`.
std::string GgufShardPath(const std::string& prefix, int index, int count);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_SHARDS_H_
