#ifndef STAGECOACH_COMMON_GGUF_GGUF_RAW_METADATA_H_
#define STAGECOACH_COMMON_GGUF_GGUF_RAW_METADATA_H_

// Metadata as it is stored, for copying it from file to file: GgufMetadata widens every number, and other programs
// insist on the width that a key has always had.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/gguf/gguf_value_type.h"

namespace stagecoach {

struct GgufRawEntry {
  std::string key;
  GgufValueType type = GgufValueType::kU32;
  std::string
      bytes;  // the value as stored after its type; an array's begin with the type of its elements and the count
};

// The entries of one file (of several shards, the given one), in file order. Safe on hostile input, as GgufFile is, but
// checks less: open the file with GgufFile first.
absl::StatusOr<std::vector<GgufRawEntry>> ReadGgufRawMetadata(const std::string& path);

// Sets a key to a number of GGUF type u32: in its place when it is there, at the end when not.
void SetGgufRawU32(absl::string_view key, uint32_t value, std::vector<GgufRawEntry>* entries);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_GGUF_RAW_METADATA_H_
