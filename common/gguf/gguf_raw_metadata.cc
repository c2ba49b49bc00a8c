#include "common/gguf/gguf_raw_metadata.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/gguf/append_number.h"
#include "common/gguf/file_io.h"
#include "common/gguf/header_reader.h"

namespace stagecoach {
namespace {

// Of one value; 0 for strings, arrays and unknown types.
uint64_t ScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16: return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32: return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64: return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray: return 0;
  }
  return 0;
}

absl::Status AppendBytes(HeaderReader* reader, const std::string& key, uint64_t bytes, std::string* out) {
  if (bytes > reader->remaining()) {
    return reader->Malformed("key '", key, "' needs ", bytes, " bytes, but only ", reader->remaining(), " are left");
  }
  const size_t at = out->size();
  out->resize(at + bytes);
  return reader->ReadBytes(key, out->data() + at, bytes);
}

absl::Status AppendString(HeaderReader* reader, const std::string& key, std::string* out) {
  ASSIGN_OR_RETURN(const uint64_t length, reader->Read<uint64_t>(key));
  AppendNumber(length, out);
  return AppendBytes(reader, key, length, out);
}

absl::Status AppendArray(HeaderReader* reader, const std::string& key, std::string* out) {
  ASSIGN_OR_RETURN(const uint32_t type, reader->Read<uint32_t>(key));
  ASSIGN_OR_RETURN(const uint64_t count, reader->Read<uint64_t>(key));
  AppendNumber(type, out);
  AppendNumber(count, out);
  const auto element = static_cast<GgufValueType>(type);
  if (element == GgufValueType::kString) {
    for (uint64_t i = 0; i < count; ++i) RETURN_IF_ERROR(AppendString(reader, key, out));
    return absl::OkStatus();
  }
  const uint64_t bytes = ScalarBytes(element);
  if (bytes == 0)
    return reader->Malformed("key '", key, "' is an array of type ", type, ", expected numbers or strings");
  if (count > reader->remaining() / bytes) {
    return reader->Malformed("key '", key, "' has ", count, " elements, but only ", reader->remaining(),
                             " bytes are left");
  }
  return AppendBytes(reader, key, count * bytes, out);
}

absl::StatusOr<GgufRawEntry> ReadEntry(HeaderReader* reader, uint64_t index) {
  GgufRawEntry entry;
  ASSIGN_OR_RETURN(entry.key, reader->ReadString(absl::StrCat("key ", index), HeaderReader::kMaxHeaderBytes));
  ASSIGN_OR_RETURN(const uint32_t type, reader->Read<uint32_t>(entry.key));
  entry.type = static_cast<GgufValueType>(type);
  if (entry.type == GgufValueType::kString) {
    RETURN_IF_ERROR(AppendString(reader, entry.key, &entry.bytes));
  } else if (entry.type == GgufValueType::kArray) {
    RETURN_IF_ERROR(AppendArray(reader, entry.key, &entry.bytes));
  } else if (const uint64_t bytes = ScalarBytes(entry.type); bytes != 0) {
    RETURN_IF_ERROR(AppendBytes(reader, entry.key, bytes, &entry.bytes));
  } else {
    return reader->Malformed("key '", entry.key, "' has the value type ", type, ", expected 0 to 12");
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<GgufRawEntry>> ReadGgufRawMetadata(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot open '", path, "': ", std::strerror(errno)));
  }
  const FileBytes bytes(std::move(file), path);
  HeaderReader reader(bytes, path, static_cast<uint64_t>(status.st_size));
  ASSIGN_OR_RETURN(const uint32_t magic, reader.Read<uint32_t>("the magic"));
  ASSIGN_OR_RETURN(const uint32_t version, reader.Read<uint32_t>("the version"));
  if (magic != kGgufMagic || (version != 2 && version != 3)) return reader.Malformed("no GGUF file of version 2 or 3");
  RETURN_IF_ERROR(reader.Skip("the tensor count", sizeof(uint64_t)));
  ASSIGN_OR_RETURN(const uint64_t count, reader.Read<uint64_t>("the number of keys"));
  std::vector<GgufRawEntry> entries;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(GgufRawEntry entry, ReadEntry(&reader, i));
    entries.push_back(std::move(entry));
  }
  return entries;
}

void SetGgufRawU32(absl::string_view key, uint32_t value, std::vector<GgufRawEntry>* entries) {
  GgufRawEntry entry{std::string(key), GgufValueType::kU32, {}};
  AppendNumber(value, &entry.bytes);
  const auto found =
      std::find_if(entries->begin(), entries->end(), [&](const GgufRawEntry& e) { return e.key == key; });
  if (found != entries->end()) {
    *found = std::move(entry);
  } else {
    entries->push_back(std::move(entry));
  }
}

}  // namespace stagecoach
