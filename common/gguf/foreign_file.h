#ifndef STAGECOACH_COMMON_GGUF_FOREIGN_FILE_H_
#define STAGECOACH_COMMON_GGUF_FOREIGN_FILE_H_

// What people give in place of a GGUF file, by how it begins: pointers and pages that a download left, models in other
// formats, archives. For messages: "<what it is>; <what to do>".

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stagecoach {

inline constexpr uint64_t kForeignBytes = 512;  // that are looked at

// `begin`: the first kForeignBytes of the file, or all of it; they do not begin with GGUF's magic. `path`: its name may
// say that it is a part. Pure.
std::string DescribeForeignFile(absl::string_view path, absl::string_view begin, uint64_t file_bytes);

// " (its name ...)", what a name such as model.gguf.part2of3 says of a file that does not end as its header wants;
// empty for other names. Pure.
std::string PartOfACutFile(absl::string_view path);

// Looks into the directory for the file that is meant.
std::string DescribeDirectory(const std::string& path);

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_GGUF_FOREIGN_FILE_H_
