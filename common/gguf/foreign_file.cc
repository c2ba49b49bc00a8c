#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/shown_text.h"
#include "common/gguf/gguf_parser.h"
#include "common/gguf/gguf_value_type.h"

namespace stagecoach {
namespace {

constexpr char kConvert[] =
    "download the model as GGUF, or convert the original with llama.cpp's convert_hf_to_gguf.py";
constexpr char kUnpack[] = "unpack it and give the GGUF file in it";
constexpr char kGiveModel[] = "give the model's GGUF file";
constexpr char kAgain[] = "download the file again, from the address of the file itself";

struct Signature {
  absl::string_view bytes;
  const char* what;
  const char* fix;
  size_t at = 0;
};

// Of a literal that may have zeros in it.
template <size_t kSize>
constexpr absl::string_view Magic(const char (&text)[kSize]) {
  return {text, kSize - 1};
}

// Old GGML formats have their magic as a number: backwards in a file, forwards from big-endian machines.
const Signature kSignatures[] = {
    {Magic("lmgg"), "is a model in GGML, a format before GGUF", kConvert},
    {Magic("ggml"), "is a model in GGML, a format before GGUF", kConvert},
    {Magic("fmgg"), "is a model in GGMF, a format before GGUF", kConvert},
    {Magic("ggmf"), "is a model in GGMF, a format before GGUF", kConvert},
    {Magic("tjgg"), "is a model in GGJT, a format before GGUF", kConvert},
    {Magic("ggjt"), "is a model in GGJT, a format before GGUF", kConvert},
    {Magic("algg"), "is an old LoRA adapter (GGLA), not a model", kConvert},
    {Magic("nsgg"), "is a saved session of llama.cpp, not a model", kGiveModel},
    {Magic("FUGG"), "is a big-endian GGUF file", "convert it to little-endian"},
    {Magic("MZqFpD"), "is a llamafile, a program with a model in it", "unzip it and give the GGUF file in it"},
    {Magic("\x1f\x8b"), "is compressed with gzip", kUnpack},
    {Magic("\x28\xb5\x2f\xfd"), "is compressed with zstd", kUnpack},
    {Magic("\3757zXZ\0"), "is compressed with xz", kUnpack},
    {Magic("BZh"), "is compressed with bzip2", kUnpack},
    {Magic("7z\xbc\xaf\x27\x1c"), "is a 7z archive", kUnpack},
    {Magic("ustar"), "is a tar archive", kUnpack, 257},
    {Magic("\x89HDF\r\n\x1a\n"), "is an HDF5 file, such as Keras writes", kConvert},
    {Magic("\x93NUMPY"), "is an array of NumPy", kConvert},
    {Magic("TFL3"), "is a model of TensorFlow Lite", kConvert, 4},
    {Magic("\177ELF"), "is a program", kGiveModel},
};

std::string Sentence(absl::string_view what, absl::string_view fix) { return absl::StrCat(what, "; ", fix); }

std::optional<std::string> ByStructure(absl::string_view begin, uint64_t file_bytes) {
  for (const Signature& signature : kSignatures) {
    if (begin.size() >= signature.at && absl::StartsWith(begin.substr(signature.at), signature.bytes)) {
      return Sentence(signature.what, signature.fix);
    }
  }
  if (absl::StartsWith(begin, "PK\x03\x04")) {
    // The names of the first entries; PyTorch's checkpoints begin with their pickle.
    if (!absl::StrContains(begin, "data.pkl")) return Sentence("is a zip archive", kUnpack);
    return Sentence("is a checkpoint of PyTorch (.pt, .pth, .bin)", kConvert);
  }
  if (begin.size() > 1 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5) {
    return Sentence("is a Python pickle, such as PyTorch's .bin, .pt and .pth files", kConvert);
  }
  if (begin.size() > 9 && begin[8] == '{') {  // the length of a JSON header, then that
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, begin.data(), sizeof(header_bytes));
    if (header_bytes >= 2 && header_bytes <= file_bytes - 8) return Sentence("is a safetensors file", kConvert);
  }
  return std::nullopt;
}

bool IsText(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && !absl::ascii_isspace(byte)) || byte == 0x7f;
  });
}

std::string DescribeJson(absl::string_view text) {
  if (absl::StrContains(text, "\"weight_map\"")) return Sentence("is the index of a model in safetensors", kConvert);
  if (absl::StrContains(text, "\"model_type\"") || absl::StrContains(text, "\"architectures\"")) {
    return Sentence("is the configuration of a model (config.json), without its weights", kConvert);
  }
  if (absl::StrContains(text, "\"schemaVersion\"")) {
    return Sentence("is a registry's manifest, which only names the model's file", "give the largest file it names");
  }
  const bool error = absl::StrContains(absl::AsciiStrToLower(text), "error");
  return Sentence(absl::StrCat("is JSON, ", error ? "a server's error message" : "not a model", ": ", ShownText(text)),
                  kAgain);
}

std::optional<std::string> ByText(absl::string_view begin) {
  absl::ConsumePrefix(&begin, "\xef\xbb\xbf");
  const absl::string_view text = absl::StripAsciiWhitespace(begin);
  if (text.empty() || !IsText(text)) return std::nullopt;
  if (absl::StartsWith(text, "version https://git-lfs.github.com/spec/")) {
    return Sentence("is a Git LFS pointer, which only names the model's file",
                    "run `git lfs pull` in its repository, or download the file itself");
  }
  if (absl::StrContains(text, "/annex/objects/")) {
    return Sentence("is a git-annex pointer, which only names the model's file", "run `git annex get` on it");
  }
  const std::string lower = absl::AsciiStrToLower(text);
  if (absl::StartsWith(lower, "<!doctype html") || absl::StartsWith(lower, "<html") ||
      absl::StartsWith(lower, "<head")) {
    return Sentence("is a web page, which a server sent in place of the file", kAgain);
  }
  if (text.front() == '<') return Sentence("is XML, such as a server's error message", kAgain);
  if (text.front() == '{' || text.front() == '[') return DescribeJson(text);
  const bool one_line = !absl::StrContains(text, '\n');
  for (const char* word : {"not found", "error", "denied", "forbidden", "unauthorized", "too many requests"}) {
    if (!one_line || !absl::StrContains(lower, word)) continue;
    return Sentence(absl::StrCat("is a server's error message: ", ShownText(text)), kAgain);
  }
  return Sentence(absl::StrCat("is a text file, not a model: ", ShownText(text.substr(0, text.find('\n')))),
                  kGiveModel);
}

// Whether `name` has a word such as "part2of3", "part-b", "split-c" or the end ".gguf.002".
bool NameSaysPart(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const absl::string_view word : {"part", "split"}) {
    for (size_t at = lower.find(word.data()); at != std::string::npos; at = lower.find(word.data(), at + 1)) {
      absl::string_view rest = absl::string_view(lower).substr(at + word.size());
      const bool dashed = absl::ConsumePrefix(&rest, "-") || absl::ConsumePrefix(&rest, "_");
      const bool begins = at > 0 && !absl::ascii_isalnum(static_cast<unsigned char>(lower[at - 1]));
      if (!begins || rest.empty()) continue;
      const bool one_letter = rest.size() == 1 || !absl::ascii_isalnum(static_cast<unsigned char>(rest[1]));
      if (absl::ascii_isdigit(static_cast<unsigned char>(rest[0])) || (dashed && one_letter)) return true;
    }
  }
  const size_t end = lower.rfind(".gguf.");
  if (end == std::string::npos) return false;
  const absl::string_view number = absl::string_view(lower).substr(end + 6);
  return !number.empty() &&
         std::all_of(number.begin(), number.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

}  // namespace

std::string PartOfACutFile(absl::string_view path) {
  if (!NameSaysPart(path.substr(path.rfind('/') + 1))) return "";
  return " (its name says that it is a part of a file that was cut: join all parts in their order, cat part1 part2 > "
         "model.gguf)";
}

std::string DescribeForeignFile(absl::string_view path, absl::string_view begin, uint64_t file_bytes) {
  if (begin.empty()) return Sentence("is empty, 0 bytes", kAgain);
  if (begin.find_first_not_of('\0') == begin.npos) {
    return Sentence("begins with zeros: a download or copy made room for it and did not write there",
                    "download or copy it again");
  }
  if (std::optional<std::string> found = ByStructure(begin, file_bytes); found.has_value()) return *std::move(found);
  if (std::optional<std::string> found = ByText(begin); found.has_value()) return *std::move(found);
  uint32_t magic = 0;
  std::memcpy(&magic, begin.data(), std::min(begin.size(), sizeof(magic)));
  return absl::StrCat("magic is 0x", absl::Hex(magic, absl::kZeroPad8), ", expected 0x",
                      absl::Hex(kGgufMagic, absl::kZeroPad8), " (\"GGUF\"); this is not a GGUF file",
                      PartOfACutFile(path));
}

std::string DescribeDirectory(const std::string& path) {
  constexpr int kMostEntries = 10000;
  std::vector<std::string> models;
  bool safetensors = false;
  std::error_code error;
  int entries = 0;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end && entries < kMostEntries;
       entry.increment(error), ++entries) {
    const std::string name = entry->path().filename().string();
    if (absl::EndsWith(name, ".gguf")) models.push_back(name);
    safetensors |= absl::EndsWith(name, ".safetensors");
  }
  const char* const what = "is a directory, expected a GGUF file";
  if (!models.empty()) {
    const std::string first = ShownText(*std::min_element(models.begin(), models.end()));
    return Sentence(what, models.size() == 1
                              ? absl::StrCat("give the one in it, ", first)
                              : absl::StrCat("give one of the ", models.size(), " in it, such as ", first));
  }
  return Sentence(what, safetensors ? absl::StrCat("it holds safetensors: ", kConvert) : "there is none in it");
}

}  // namespace stagecoach
