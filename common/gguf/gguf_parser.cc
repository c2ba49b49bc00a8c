#include "common/gguf/gguf_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/gguf/foreign_file.h"
#include "common/gguf/gguf_value_type.h"
#include "common/gguf/utf8_name.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMaxEntries = 65536;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxStringBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;
// Elements that room is made for before they are read: a file may be long without having them.
constexpr uint64_t kReserved = uint64_t{1} << 18;
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;       // key length, value type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, rank, type, offset
constexpr uint32_t kMaxAlignment = 1 << 20;

// Bytes an array element takes at least; 0 for what cannot be an element.
uint64_t MinElementBytes(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16: return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32: return 4;
    case GgufValueType::kString:
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64: return 8;
    case GgufValueType::kArray: return 0;
  }
  return 0;
}

}  // namespace

absl::StatusOr<GgufHeader> GgufParser::Parse(const ByteSource& bytes, const std::string& path, uint64_t file_bytes) {
  GgufParser parser(bytes, path, file_bytes);
  RETURN_IF_ERROR(parser.Run());
  return std::move(parser.header_);
}

GgufParser::GgufParser(const ByteSource& bytes, const std::string& path, uint64_t file_bytes)
    : reader_(bytes, path, file_bytes), alignment_(kGgufDefaultAlignment) {
  header_.metadata.path_ = path;
}

absl::Status GgufParser::Run() {
  RETURN_IF_ERROR(ParseCounts());
  RETURN_IF_ERROR(ParseMetadata());
  RETURN_IF_ERROR(ParseTensors());
  header_.header_bytes = reader_.position();
  header_.header_hash = reader_.hash();
  return absl::OkStatus();
}

absl::Status GgufParser::ParseMagic() {
  constexpr absl::string_view kMagic = "GGUF";
  std::string begin(std::min<uint64_t>(reader_.file_bytes(), kMagic.size()), '\0');
  RETURN_IF_ERROR(reader_.ReadBytes("magic", begin.data(), begin.size()));
  if (begin.empty() || !absl::StartsWith(kMagic, begin)) {
    const size_t read = begin.size();
    begin.resize(std::min(reader_.file_bytes(), kForeignBytes));
    RETURN_IF_ERROR(reader_.ReadBytes("magic", begin.data() + read, begin.size() - read));
    return reader_.Malformed(DescribeForeignFile(reader_.path(), begin, reader_.file_bytes()));
  }
  if (reader_.file_bytes() >= kGgufHeaderBytes) return absl::OkStatus();
  return reader_.Malformed("the file has ", reader_.file_bytes(), " bytes, a GGUF header alone has ", kGgufHeaderBytes,
                           "; the file was cut short, copy it again");
}

absl::Status GgufParser::ParseCounts() {
  RETURN_IF_ERROR(ParseMagic());
  ASSIGN_OR_RETURN(const uint32_t version, reader_.Read<uint32_t>("version"));
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    return absl::UnimplementedError(absl::StrCat(
        "'", reader_.path(), "': version is ", version, ", expected 2 or 3",
        swapped ? "; this is a big-endian file, convert it to little-endian" : "; convert the model again"));
  }
  header_.version = static_cast<int>(version);
  ASSIGN_OR_RETURN(tensor_count_, reader_.Read<uint64_t>("tensor_count"));
  ASSIGN_OR_RETURN(entry_count_, reader_.Read<uint64_t>("metadata_kv_count"));
  const uint64_t entries_fit = std::min(kMaxEntries, reader_.remaining() / kMinEntryBytes);
  if (entry_count_ > entries_fit) {
    return reader_.Malformed("metadata_kv_count is ", entry_count_, ", at most ", entries_fit,
                             " are possible in a file of ", reader_.file_bytes(), " bytes");
  }
  const uint64_t tensors_fit = std::min(kMaxTensors, reader_.remaining() / kMinTensorBytes);
  if (tensor_count_ > tensors_fit) {
    return reader_.Malformed("tensor_count is ", tensor_count_, ", at most ", tensors_fit,
                             " are possible in a file of ", reader_.file_bytes(), " bytes");
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ParseMetadata() {
  for (uint64_t i = 0; i < entry_count_; ++i) RETURN_IF_ERROR(ParseEntry(i));
  return absl::OkStatus();
}

absl::Status GgufParser::ParseEntry(uint64_t index) {
  const std::string key_field = absl::StrCat("key ", index);
  ASSIGN_OR_RETURN(std::string key, reader_.ReadString(key_field, kMaxKeyBytes));
  if (!IsValidGgufName(key)) {
    return reader_.Malformed(key_field, " is ", ShownText(key),
                             ", expected UTF-8 text that is not empty and has no control characters");
  }
  const std::string field = absl::StrCat("key '", key, "'");
  ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>(absl::StrCat("type of ", field)));
  ASSIGN_OR_RETURN(GgufValue value, ParseValue(field, type));
  if (key == "general.alignment") RETURN_IF_ERROR(CheckAlignment(value, type));
  GgufMetadata& metadata = header_.metadata;
  const auto [first, is_new] = metadata.index_.try_emplace(key, metadata.entries_.size());
  if (!is_new) {
    return reader_.Malformed(field, " appears twice: as entry ", first->second, " and as entry ", index);
  }
  metadata.entries_.emplace_back(std::move(key), std::move(value));
  return absl::OkStatus();
}

template <typename Stored, typename Wide>
absl::StatusOr<GgufValue> GgufParser::ParseNumber(absl::string_view field) {
  ASSIGN_OR_RETURN(const Stored value, reader_.Read<Stored>(field));
  return GgufValue(static_cast<Wide>(value));
}

absl::StatusOr<GgufValue> GgufParser::ParseValue(absl::string_view field, uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8: return ParseNumber<uint8_t, uint64_t>(field);
    case GgufValueType::kI8: return ParseNumber<int8_t, int64_t>(field);
    case GgufValueType::kU16: return ParseNumber<uint16_t, uint64_t>(field);
    case GgufValueType::kI16: return ParseNumber<int16_t, int64_t>(field);
    case GgufValueType::kU32: return ParseNumber<uint32_t, uint64_t>(field);
    case GgufValueType::kI32: return ParseNumber<int32_t, int64_t>(field);
    case GgufValueType::kU64: return ParseNumber<uint64_t, uint64_t>(field);
    case GgufValueType::kI64: return ParseNumber<int64_t, int64_t>(field);
    case GgufValueType::kF32: return ParseNumber<float, double>(field);
    case GgufValueType::kF64: return ParseNumber<double, double>(field);
    case GgufValueType::kBool: return ParseBool(field);
    case GgufValueType::kArray: return ParseArray(field);
    case GgufValueType::kString: {
      ASSIGN_OR_RETURN(std::string text, reader_.ReadString(field, kMaxStringBytes));
      return GgufValue(std::move(text));
    }
  }
  return reader_.Malformed(field, " has value type ", type, ", expected 0 to 12");
}

absl::StatusOr<bool> GgufParser::ParseBool(absl::string_view field) {
  ASSIGN_OR_RETURN(const uint8_t byte, reader_.Read<uint8_t>(field));
  if (byte > 1) return reader_.Malformed(field, " is a bool with the value ", byte, ", expected 0 or 1");
  return byte == 1;
}

template <typename Stored, typename Wide>
absl::Status GgufParser::ParseNumbers(absl::string_view field, uint64_t count, GgufArray& array) {
  std::vector<Wide>& numbers = array.values.emplace<std::vector<Wide>>();
  numbers.reserve(std::min(count, kReserved));
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const Stored value, reader_.Read<Stored>(field));
    numbers.push_back(static_cast<Wide>(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufValue> GgufParser::ParseArray(absl::string_view field) {
  GgufArray array;
  ASSIGN_OR_RETURN(array.element_type, reader_.Read<uint32_t>(field));
  ASSIGN_OR_RETURN(const uint64_t count, reader_.Read<uint64_t>(field));
  const uint64_t element_bytes = MinElementBytes(array.element_type);
  if (element_bytes == 0) {
    return reader_.Malformed(field, " is an array of element type ", array.element_type,
                             ", expected 0 to 12 and not 9 (arrays of arrays are not supported)");
  }
  const uint64_t fit = std::min(kMaxArrayElements - array_elements_, reader_.remaining() / element_bytes);
  if (count > fit) {
    return reader_.Malformed(field, " is an array of ", count, " elements, at most ", fit, " are possible with ",
                             reader_.remaining(), " bytes left in the file");
  }
  array_elements_ += count;
  absl::Status status;
  switch (static_cast<GgufValueType>(array.element_type)) {
    case GgufValueType::kU8: status = ParseNumbers<uint8_t, uint64_t>(field, count, array); break;
    case GgufValueType::kI8: status = ParseNumbers<int8_t, int64_t>(field, count, array); break;
    case GgufValueType::kU16: status = ParseNumbers<uint16_t, uint64_t>(field, count, array); break;
    case GgufValueType::kI16: status = ParseNumbers<int16_t, int64_t>(field, count, array); break;
    case GgufValueType::kU32: status = ParseNumbers<uint32_t, uint64_t>(field, count, array); break;
    case GgufValueType::kI32: status = ParseNumbers<int32_t, int64_t>(field, count, array); break;
    case GgufValueType::kU64: status = ParseNumbers<uint64_t, uint64_t>(field, count, array); break;
    case GgufValueType::kI64: status = ParseNumbers<int64_t, int64_t>(field, count, array); break;
    case GgufValueType::kF32: status = ParseNumbers<float, double>(field, count, array); break;
    case GgufValueType::kF64: status = ParseNumbers<double, double>(field, count, array); break;
    case GgufValueType::kBool: {
      auto& truths = array.values.emplace<std::vector<bool>>();
      for (uint64_t i = 0; i < count; ++i) {
        ASSIGN_OR_RETURN(const bool truth, ParseBool(field));
        truths.push_back(truth);
      }
      break;
    }
    default: {
      auto& texts = array.values.emplace<std::vector<std::string>>();
      texts.reserve(std::min(count, kReserved));
      for (uint64_t i = 0; i < count; ++i) {
        ASSIGN_OR_RETURN(std::string text, reader_.ReadString(field, kMaxStringBytes));
        texts.push_back(std::move(text));
      }
    }
  }
  RETURN_IF_ERROR(status);
  return GgufValue(std::move(array));
}

absl::Status GgufParser::CheckAlignment(const GgufValue& value, uint32_t type) {
  if (type != static_cast<uint32_t>(GgufValueType::kU32)) {
    return reader_.Malformed("key 'general.alignment' has value type ", type, ", expected ",
                             static_cast<uint32_t>(GgufValueType::kU32), " (u32)");
  }
  const uint64_t alignment = std::get<uint64_t>(value);
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
    return reader_.Malformed("key 'general.alignment' is ", alignment, ", expected a power of two from 1 to ",
                             kMaxAlignment);
  }
  alignment_ = static_cast<uint32_t>(alignment);
  return absl::OkStatus();
}

}  // namespace stagecoach
