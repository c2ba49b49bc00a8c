#include "coordinator/cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "coordinator/front/exit_codes.h"
#include "coordinator/text/utf8.h"
#include "nlohmann/json.hpp"

namespace stagecoach {
namespace {

constexpr char kDuplicate[] = "duplicate_custom_id";
constexpr char kLineStart[] = "{\"id\":";  // of every line we write

bool IsValidUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = DecodeUtf8(text, i);
    if (c.code_point == kReplacementCharacter && c.bytes == 1) return false;
    i += c.bytes;
  }
  return true;
}

Json LogprobsOf(const Completion& completion, const Tokenizer& tokenizer, int32_t wanted) {
  if (wanted < 0) return nullptr;
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array();
  for (const SampledToken& token : completion.tokens()) {
    tokens.push_back(TokenText(tokenizer, token.token));
    logprobs.push_back(FloatJson(token.logprob));
    Json top = Json::object();
    for (const TokenLogprob& entry : token.top) {
      const std::string text = TokenText(tokenizer, entry.token);
      if (!top.contains(text)) top[text] = FloatJson(entry.logprob);  // of tokens that look alike the most probable
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", wanted > 0 ? std::move(tops) : Json(nullptr)},
          {"text_offset", completion.text_offsets()}};
}

absl::Status FileError(const std::string& path, const char* what) {
  return InputFileError(absl::StrCat("cannot ", what, " '", path, "': ", std::strerror(errno)));
}

}  // namespace

std::string TokenText(const Tokenizer& tokenizer, TokenId token) {
  const std::string bytes = tokenizer.TokenBytes(token, /*render_control=*/true);
  if (IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (char byte : bytes) absl::StrAppendFormat(&text, "\\x%02x", static_cast<uint8_t>(byte));
  return text;
}

Json BatchAnswerJson(const std::string& id, const BatchLine& line, const std::string& model, int64_t created,
                     int64_t prompt_tokens, const Completion& completion, const Tokenizer& tokenizer) {
  const int64_t completion_tokens = static_cast<int64_t>(completion.tokens().size());
  const Json choice = {{"index", 0},
                       {"text", completion.text()},
                       {"finish_reason", completion.finish_reason()},
                       {"logprobs", LogprobsOf(completion, tokenizer, line.request.sampling.logprobs)}};
  const Json body = {{"id", absl::StrCat("cmpl-", id)},
                     {"object", "text_completion"},
                     {"created", created},
                     {"model", line.request.model.empty() ? model : line.request.model},
                     {"choices", Json::array({choice})},
                     {"usage",
                      {{"prompt_tokens", prompt_tokens},
                       {"completion_tokens", completion_tokens},
                       {"total_tokens", prompt_tokens + completion_tokens}}}};
  return {{"id", absl::StrCat("batch_req_", id)},
          {"custom_id", line.custom_id},
          {"response", {{"status_code", 200}, {"request_id", absl::StrCat("req_", id)}, {"body", body}}},
          {"error", nullptr}};
}

Json BatchErrorJson(const std::string& id, const BatchLine& line) {
  return {{"id", absl::StrCat("batch_req_", id)},
          {"custom_id", line.custom_id.empty() ? Json(nullptr) : Json(line.custom_id)},
          {"response", nullptr},
          {"error",
           {{"code", line.error->code},
            {"message", absl::StrCat("line ", line.number, ": ", line.error->message)},
            {"line", line.number}}}};
}

absl::Status AnsweredLines::AddOutputLine(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const absl::Status bad = absl::InvalidArgumentError("is no line of a batch's output");
  if (!json.is_object() || !json.contains("custom_id") || !json.contains("response") || !json.contains("error"))
    return bad;
  const Json& id = json["custom_id"];
  const Json& error = json["error"];
  const bool by_number = id.is_null() || (error.is_object() && error.contains("code") && error["code"] == kDuplicate);
  if (!by_number) {
    if (!id.is_string()) return bad;
    answered_ids_.insert(id.get<std::string>());
    return absl::OkStatus();
  }
  if (!error.is_object() || !error.contains("line") || !error["line"].is_number_integer()) return bad;
  answered_numbers_.insert(error["line"].get<int64_t>());
  return absl::OkStatus();
}

bool AnsweredLines::CheckInputLine(BatchLine* line) {
  if (line->custom_id.empty()) return answered_numbers_.contains(line->number);
  if (taken_ids_.insert(line->custom_id).second) return answered_ids_.contains(line->custom_id);
  line->error =
      BatchError{kDuplicate, absl::StrCat("the custom_id '", line->custom_id, "' was used by an earlier line")};
  return answered_numbers_.contains(line->number);
}

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path, AnsweredLines* answered) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor < 0) return FileError(path, "write");
  std::unique_ptr<BatchOutput> output(new BatchOutput(path, descriptor));
  struct stat info;
  if (fstat(descriptor, &info) != 0) return FileError(path, "read");
  if (!S_ISREG(info.st_mode)) {
    return InputFileError(absl::StrCat("'", path, "' is no regular file, and a run could not be resumed from it"));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    return InputFileError(absl::StrCat("'", path, "' is in use by another run"));
  }
  RETURN_IF_ERROR(output->ReadAndCut(answered));
  return output;
}

BatchOutput::~BatchOutput() { close(descriptor_); }

absl::Status BatchOutput::ReadAndCut(AnsweredLines* answered) {
  std::ifstream in(path_, std::ios::binary);
  std::string line;
  int64_t whole_bytes = 0;
  int64_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    if (in.eof()) {  // no newline: torn, if it is ours at all
      const absl::string_view start(kLineStart);
      if (!absl::StartsWith(line, start) && !absl::StartsWith(start, line)) {
        return InputFileError(
            absl::StrCat("'", path_, "' line ", number, " is no line of a batch's output; give another -o"));
      }
      if (ftruncate(descriptor_, whole_bytes) != 0) return FileError(path_, "cut the torn last line of");
      return absl::OkStatus();
    }
    if (absl::Status status = answered->AddOutputLine(line); !status.ok()) {
      return InputFileError(absl::StrCat("'", path_, "' line ", number, " ", status.message(), "; give another -o"));
    }
    whole_bytes += static_cast<int64_t>(line.size()) + 1;
  }
  return in.bad() ? FileError(path_, "read") : absl::OkStatus();
}

absl::Status BatchOutput::Append(const Json& line) {
  const std::string text = CompactJson(line) + "\n";
  size_t done = 0;
  while (done < text.size()) {  // more than one round only when the system takes less, as on a full disk
    const ssize_t written = write(descriptor_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path_, "write");
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
