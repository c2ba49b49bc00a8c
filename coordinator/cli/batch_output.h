#ifndef STAGECOACH_COORDINATOR_CLI_BATCH_OUTPUT_H_
#define STAGECOACH_COORDINATOR_CLI_BATCH_OUTPUT_H_

// A batch's output: the lines, and the file that survives being killed.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/front/batch_line.h"
#include "coordinator/front/completion.h"
#include "coordinator/front/json.h"

namespace stagecoach {

// An answer in OpenAI's form. `id` is unique, `created` in seconds since 1970.
Json BatchAnswerJson(const std::string& id, const BatchLine& line, const std::string& model, int64_t created,
                     int64_t prompt_tokens, const Completion& completion, const Tokenizer& tokenizer);

// {"id", "custom_id", "response": null, "error": {"code", "message", "line"}}. The message begins with the line's
// number.
Json BatchErrorJson(const std::string& id, const BatchLine& line);

// A token as OpenAI's completions show it: its text, or "bytes:\xe2\x80" when its bytes are no valid UTF-8.
std::string TokenText(const Tokenizer& tokenizer, TokenId token);

// Which lines of the input have their answer. A line is known by its custom_id; one without, or one that repeats an
// earlier one's, by its number.
class AnsweredLines {
 public:
  // Takes a line of an output file. kInvalidArgument for anything we did not write.
  absl::Status AddOutputLine(absl::string_view text);

  // Whether the line of the input needs no work. Must be asked for every line of the input in order, once: it marks the
  // custom_id as taken, and a line that repeats one is turned to a duplicate_custom_id error.
  bool CheckInputLine(BatchLine* line);

 private:
  absl::flat_hash_set<std::string> answered_ids_;
  absl::flat_hash_set<int64_t> answered_numbers_;
  absl::flat_hash_set<std::string> taken_ids_;
};

// The file. One process at a time has it open.
class BatchOutput {
 public:
  // Creates `path`, or reads what an earlier run left there into `answered`: a last line without its newline is cut
  // off, the others are kept. Errors end with ExitCode::kInputFile: not writable, in use by another run, or not a file
  // of ours, which is left as it is.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path, AnsweredLines* answered);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;

  absl::Status Append(const Json& line);  // with one write

 private:
  BatchOutput(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  absl::Status ReadAndCut(AnsweredLines* answered);

  const std::string path_;
  const int descriptor_;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_CLI_BATCH_OUTPUT_H_
