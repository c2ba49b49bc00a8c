#include "common/gguf/gguf_parser.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "common/base/shown_text.h"
#include "common/base/status_macros.h"
#include "common/gguf/gguf_value_type.h"
#include "common/quant/supported_types.h"

namespace stagecoach {
namespace {

constexpr uint64_t kMaxEntries = 65536;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxStringBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxArrayElements = uint64_t{1} << 24;
// Elements reserved before they are read: a long file need not have them.
constexpr uint64_t kReserved = uint64_t{1} << 18;
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;       // key length, value type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, rank, type, offset
constexpr uint32_t kMaxAlignment = 1 << 20;

constexpr uint64_t kMaxNameBytes = 255;
constexpr uint32_t kMaxRank = 4;
constexpr uint32_t kLastFileTypeId = 0xffff;  // above are ids of ours, which no file holds

// Bytes of the code point that starts at text[at], 0 when it is not a valid one.
size_t CodePointBytes(absl::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = byte(at + 1);
  if (lead == 0xe0 && second < 0xa0) return 0;  // overlong
  if (lead == 0xed && second > 0x9f) return 0;  // surrogate
  if (lead == 0xf0 && second < 0x90) return 0;  // overlong
  if (lead == 0xf4 && second > 0x8f) return 0;  // above U+10FFFF
  return length;
}

// Of one valid code point: U+0000 to U+001F and U+007F to U+009F.
bool IsControl(absl::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (text.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;
}

// Whether `text` can be a key or a tensor name: valid UTF-8, not empty, no control characters, which terminals obey.
bool IsValidName(absl::string_view text) {
  if (text.empty()) return false;
  for (size_t at = 0; at < text.size();) {
    const size_t length = CodePointBytes(text, at);
    if (length == 0 || IsControl(text.substr(at, length))) return false;
    at += length;
  }
  return true;
}

// The type that holds a number stored as a T.
template <typename T>
using Widened =
    std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

}  // namespace

class GgufParser {
 public:
  GgufParser(const ByteSource& bytes, const std::string& path, uint64_t file_bytes) : reader_(bytes, path, file_bytes) {
    header_.metadata.path_ = path;
  }

  absl::StatusOr<GgufHeader> Parse() {
    RETURN_IF_ERROR(ParseCounts());
    for (uint64_t i = 0; i < entry_count_; ++i) RETURN_IF_ERROR(ParseEntry(i));
    RETURN_IF_ERROR(ParseTensors());
    header_.header_bytes = reader_.position();
    header_.header_hash = reader_.hash();
    return std::move(header_);
  }

 private:
  // Says what the file is, where it is none of GGUF.
  absl::Status ParseMagic() {
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
    return reader_.Malformed("the file has ", reader_.file_bytes(), " bytes, a GGUF header alone has ",
                             kGgufHeaderBytes, "; the file was cut short, copy it again");
  }

  absl::Status ParseCounts() {
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
    RETURN_IF_ERROR(CheckCount("metadata_kv_count", entry_count_, kMaxEntries, kMinEntryBytes));
    return CheckCount("tensor_count", tensor_count_, kMaxTensors, kMinTensorBytes);
  }

  absl::Status CheckCount(const char* field, uint64_t count, uint64_t most, uint64_t least_bytes) const {
    const uint64_t fit = std::min(most, reader_.remaining() / least_bytes);
    if (count <= fit) return absl::OkStatus();
    return reader_.Malformed(field, " is ", count, ", at most ", fit, " are possible in a file of ",
                             reader_.file_bytes(), " bytes");
  }

  absl::StatusOr<std::string> ParseName(const std::string& field, uint64_t max_bytes) {
    ASSIGN_OR_RETURN(std::string name, reader_.ReadString(field, max_bytes));
    if (IsValidName(name)) return name;
    return reader_.Malformed(field, " is ", ShownText(name),
                             ", expected UTF-8 text that is not empty and has no control characters");
  }

  absl::Status ParseEntry(uint64_t index) {
    ASSIGN_OR_RETURN(std::string key, ParseName(absl::StrCat("key ", index), kMaxKeyBytes));
    const std::string field = absl::StrCat("key '", key, "'");
    ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>(absl::StrCat("type of ", field)));
    const uint64_t begin = reader_.position();
    ASSIGN_OR_RETURN(GgufValue value, ParseValue(field, type));
    if (key == "general.alignment") RETURN_IF_ERROR(CheckAlignment(value, type));
    GgufMetadata& metadata = header_.metadata;
    const auto [first, is_new] = metadata.index_.try_emplace(key, metadata.entries_.size());
    if (!is_new) {
      return reader_.Malformed(field, " appears twice: as entry ", first->second, " and as entry ", index);
    }
    metadata.entries_.emplace_back(std::move(key), std::move(value));
    metadata.places_.push_back({static_cast<GgufValueType>(type), begin, reader_.position() - begin});
    return absl::OkStatus();
  }

  absl::StatusOr<GgufValue> ParseValue(absl::string_view field, uint32_t type) {
    const auto id = static_cast<GgufValueType>(type);
    if (id == GgufValueType::kBool) return ParseBool(field);
    if (id == GgufValueType::kArray) return ParseArray(field);
    if (id == GgufValueType::kString) {
      ASSIGN_OR_RETURN(std::string text, reader_.ReadString(field, kMaxStringBytes));
      return GgufValue(std::move(text));
    }
    GgufValue value;
    absl::Status status;
    const bool known = GgufTypes::VisitNumber(id, [&](auto zero) {
      const auto number = reader_.Read<decltype(zero)>(field);
      status = number.status();
      if (number.ok()) value = static_cast<Widened<decltype(zero)>>(*number);
    });
    if (!known) return reader_.Malformed(field, " has value type ", type, ", expected 0 to 12");
    RETURN_IF_ERROR(status);
    return value;
  }

  absl::StatusOr<bool> ParseBool(absl::string_view field) {
    ASSIGN_OR_RETURN(const uint8_t byte, reader_.Read<uint8_t>(field));
    if (byte > 1) return reader_.Malformed(field, " is a bool with the value ", byte, ", expected 0 or 1");
    return byte == 1;
  }

  template <typename Stored>
  absl::Status ParseNumbers(absl::string_view field, uint64_t count, GgufArray& array) {
    auto& numbers = array.values.emplace<std::vector<Widened<Stored>>>();
    numbers.reserve(std::min(count, kReserved));
    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const Stored value, reader_.Read<Stored>(field));
      numbers.push_back(static_cast<Widened<Stored>>(value));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<GgufValue> ParseArray(absl::string_view field) {
    GgufArray array;
    ASSIGN_OR_RETURN(array.element_type, reader_.Read<uint32_t>(field));
    ASSIGN_OR_RETURN(const uint64_t count, reader_.Read<uint64_t>(field));
    const bool known = array.element_type < std::size(kGgufValueTypes);
    const uint64_t element_bytes = known ? kGgufValueTypes[array.element_type].element_bytes : 0;
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
    const auto type = static_cast<GgufValueType>(array.element_type);
    if (type == GgufValueType::kBool) {
      auto& truths = array.values.emplace<std::vector<bool>>();
      for (uint64_t i = 0; i < count; ++i) {
        ASSIGN_OR_RETURN(const bool truth, ParseBool(field));
        truths.push_back(truth);
      }
    } else if (type == GgufValueType::kString) {
      auto& texts = array.values.emplace<std::vector<std::string>>();
      texts.reserve(std::min(count, kReserved));
      for (uint64_t i = 0; i < count; ++i) {
        ASSIGN_OR_RETURN(std::string text, reader_.ReadString(field, kMaxStringBytes));
        texts.push_back(std::move(text));
      }
    } else {
      absl::Status status;
      GgufTypes::VisitNumber(type, [&](auto zero) { status = ParseNumbers<decltype(zero)>(field, count, array); });
      RETURN_IF_ERROR(status);
    }
    return GgufValue(std::move(array));
  }

  absl::Status CheckAlignment(const GgufValue& value, uint32_t type) {
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

  absl::Status ParseTensors() {
    absl::flat_hash_set<std::string> names;
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      ASSIGN_OR_RETURN(GgufTensor tensor, ParseTensor(i));
      if (!names.insert(tensor.name).second) {
        return reader_.Malformed("tensor '", tensor.name, "' appears twice: the second time as tensor ", i);
      }
      header_.tensors.push_back(std::move(tensor));
    }
    return PlaceTensors();
  }

  absl::StatusOr<GgufTensor> ParseTensor(uint64_t index) {
    GgufTensor tensor;
    ASSIGN_OR_RETURN(tensor.name, ParseName(absl::StrCat("name of tensor ", index), kMaxNameBytes));
    const std::string field = absl::StrCat("tensor '", tensor.name, "'");
    RETURN_IF_ERROR(ParseDims(field, tensor));
    ASSIGN_OR_RETURN(tensor.type_id, reader_.Read<uint32_t>(field));
    RETURN_IF_ERROR(SetBytes(field, tensor));
    ASSIGN_OR_RETURN(tensor.file_offset, reader_.Read<uint64_t>(field));  // relative until PlaceTensors
    if (tensor.file_offset % alignment_ != 0) {
      return reader_.Malformed(field, " has offset ", tensor.file_offset, ", expected a multiple of the alignment ",
                               alignment_);
    }
    return tensor;
  }

  absl::Status ParseDims(const std::string& field, GgufTensor& tensor) {
    ASSIGN_OR_RETURN(const uint32_t rank, reader_.Read<uint32_t>(field));
    if (rank > kMaxRank) return reader_.Malformed(field, " has ", rank, " dimensions, expected at most ", kMaxRank);
    int64_t elements = 1;
    for (uint32_t d = 0; d < rank; ++d) {
      ASSIGN_OR_RETURN(const uint64_t size, reader_.Read<uint64_t>(field));
      if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return reader_.Malformed(field, " has dimension ", d, " of size ", size, ", expected 1 to ",
                                 std::numeric_limits<int64_t>::max());
      }
      tensor.dims.push_back(static_cast<int64_t>(size));
      if (__builtin_mul_overflow(elements, tensor.dims.back(), &elements)) {
        return reader_.Malformed(field, " has more than ", std::numeric_limits<int64_t>::max(),
                                 " elements: its dimension ", d, " is ", size);
      }
    }
    if (tensor.dims.empty()) tensor.dims.push_back(1);  // a scalar: missing dimensions count as 1
    return absl::OkStatus();
  }

  absl::Status SetBytes(const std::string& field, GgufTensor& tensor) {
    const TensorTypeInfo* type = FindTensorType(tensor.type_id);
    if (type == nullptr || type->id > kLastFileTypeId) {
      return absl::UnimplementedError(absl::StrCat("'", reader_.path(), "': ", field, " has type id ", tensor.type_id,
                                                   ", which is unknown or was removed from GGUF; supported types are ",
                                                   SupportedTensorTypes()));
    }
    if (tensor.cols() % type->block_elements != 0) {
      return reader_.Malformed(field, " has rows of ", tensor.cols(), " elements, expected a multiple of ",
                               type->block_elements, ", the block of its type ", type->name);
    }
    const uint64_t blocks =
        static_cast<uint64_t>(tensor.cols()) / type->block_elements * static_cast<uint64_t>(tensor.rows());
    if (tensor.type_id == kQ2TypeId) {  // the layout is found when all files of the model are open
      tensor.bytes = SmallestQ2Bytes(tensor.cols(), tensor.rows());
      if (tensor.bytes <= reader_.file_bytes()) return absl::OkStatus();
    }
    if (__builtin_mul_overflow(blocks, uint64_t{type->block_bytes}, &tensor.bytes) ||
        tensor.bytes > reader_.file_bytes()) {
      return reader_.Malformed(field, " has ", blocks, " blocks of ", type->block_bytes,
                               " bytes, but the file has only ", reader_.file_bytes(), " bytes");
    }
    return absl::OkStatus();
  }

  absl::Status PlaceTensors() {
    if (tensor_count_ == 0) return absl::OkStatus();
    const uint64_t past = reader_.position() % alignment_;
    RETURN_IF_ERROR(reader_.Skip("the padding before the tensor data", past == 0 ? 0 : alignment_ - past));
    const uint64_t data_start = reader_.position();
    const uint64_t data_bytes = reader_.remaining();
    for (GgufTensor& tensor : header_.tensors) {
      // Neither subtraction can wrap: the size was checked against the file, the offset is compared first.
      if (tensor.file_offset > data_bytes || tensor.bytes > data_bytes - tensor.file_offset) {
        return reader_.Malformed("tensor '", tensor.name, "' needs ", tensor.bytes, " bytes at offset ",
                                 tensor.file_offset, " of the tensor data, but the file has only ", data_bytes,
                                 " bytes of it; the file was cut short, copy it again", PartOfACutFile(reader_.path()));
      }
      tensor.file_offset += data_start;
    }
    return CheckOverlaps();
  }

  // And notes the room that tensors of type id 42 have.
  absl::Status CheckOverlaps() {
    std::vector<GgufTensor*> by_offset;
    by_offset.reserve(header_.tensors.size());
    for (GgufTensor& tensor : header_.tensors) by_offset.push_back(&tensor);
    std::sort(by_offset.begin(), by_offset.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->file_offset < b->file_offset; });
    for (size_t i = 0; i < by_offset.size(); ++i) {
      const GgufTensor& before = *by_offset[i];
      const bool last = i + 1 == by_offset.size();
      const uint64_t end = last ? reader_.file_bytes() : by_offset[i + 1]->file_offset;
      if (before.file_offset + before.bytes > end) {  // not for the last: PlaceTensors has checked it
        return reader_.Malformed("tensor '", by_offset[i + 1]->name, "' starts at file offset ", end, ", but tensor '",
                                 before.name, "' ends only at ", before.file_offset + before.bytes);
      }
      if (before.type_id == kQ2TypeId)
        header_.q2_tensors.push_back({by_offset[i], end - before.file_offset, alignment_});
    }
    return absl::OkStatus();
  }

  HeaderReader reader_;
  uint64_t array_elements_ = 0;  // of all arrays so far: decoded they take more memory than in the file
  uint32_t alignment_ = kGgufDefaultAlignment;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  GgufHeader header_;
};

absl::StatusOr<GgufHeader> ParseGgufHeader(const ByteSource& bytes, const std::string& path, uint64_t file_bytes) {
  return GgufParser(bytes, path, file_bytes).Parse();
}

}  // namespace stagecoach
