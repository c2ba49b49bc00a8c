#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_

// Splits the text of a model into reasoning, content and tool calls while it is generated.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/json/json.h"
#include "coordinator/text/output/call_scanner.h"

namespace stagecoach {

// How a family of models marks reasoning and tool calls in its text.
enum class OutputFormat {
  kPlain,  // no marks: all is content (but a prompt that opens <think> is heeded)
  kHermesJson,
  kQwen3Coder,
  kQwen35,
  kNemotron3,
  kHarmony,
  kGlm45,
  kGlm47,
  kDeepseekV31,
  kDeepseekR1,
  kDeepseekV32,
  kKimiK2,
  kLlama3Json,
  kMistralV3,
  kMistralSmall32,
  kMistralArgs,
  kMinimaxM2,
  kGemma4,
  kCommandR7b,
  kLfm2,
  kGranite3,
  kNemotronNanoV2,
};

// "hermes_json", "harmony", ...; plain: "none".
absl::string_view OutputFormatName(OutputFormat format);
std::optional<OutputFormat> OutputFormatByName(absl::string_view name);
std::vector<absl::string_view> OutputFormatNames();

// By how a chat template writes the assistant's earlier turns; kPlain where it has no known marks.
OutputFormat FindOutputFormat(absl::string_view chat_template);

enum class OutputKind {
  kReasoning,
  kContent,
  // A call is kCallStart, any number of kCallArguments, kCallEnd, with nothing between; only of a call that could be
  // read to its end. Calls come in the order in which the model wrote them.
  kCallStart,
  kCallArguments,
  kCallEnd,
};

struct OutputDelta {
  OutputKind kind;
  // Reasoning, content; kCallStart: the name of the function; kCallArguments: a piece of the arguments, which are the
  // text of a JSON object. Empty for kCallEnd.
  std::string text;
  std::string call_id;  // kCallStart: the model's own; empty where it gave none

  bool operator==(const OutputDelta&) const = default;
};

// What must be known of the tools of a request. Immutable.
class OutputTools {
 public:
  OutputTools() = default;  // none: the text of a call is content then
  // A list of {"type": "function", "function": {"name", "parameters": a JSON schema}}; the rest is left out.
  explicit OutputTools(const Json& tools);

  bool empty() const { return functions_.empty(); }
  bool Has(absl::string_view function) const { return functions_.contains(function); }
  enum class Parameter { kUnknown, kText, kOther };
  // kText: the schema allows a string, so that a value without quotes is one.
  Parameter Find(absl::string_view function, absl::string_view parameter) const;

 private:
  absl::flat_hash_map<std::string, absl::flat_hash_map<std::string, Parameter>> functions_;
};

struct OutputStart {
  // A few hundred bytes: whether the answer begins inside a reasoning block, or after one that the prompt closed.
  std::string prompt_end;
  // The answer continues reasoning that the prompt has begun, whatever the prompt ends with.
  bool inside_reasoning = false;

  // Of an answer to a prompt with this text.
  static OutputStart After(absl::string_view prompt);
};

// Fed with the text of an answer, control tokens as their text, without the token that ended it. Not thread-safe.
//   Pieces   The joined deltas do not depend on how the text is cut.
//   Delay    Text is returned when it cannot belong to a marker, a call when it is complete; held back are at most
//            kMostCallBytes.
//   Content  What is no valid call is content, with its markers that were fed as text. A control token is a marker or
//            nothing. Invalid UTF-8 passes through.
//   Dropped  Markers, and white space at both ends of a reasoning block and after it, and around calls that no text
//            follows.
class OutputParser {
 public:
  static constexpr size_t kMostCallBytes = 256 << 10;  // what is longer is no call but content

  // `tools`: null or empty: there are none.
  static std::unique_ptr<OutputParser> Make(OutputFormat format, const OutputStart& start,
                                            std::shared_ptr<const OutputTools> tools);
  virtual ~OutputParser() = default;

  // No delta has an empty text but kCallEnd.
  std::vector<OutputDelta> Feed(absl::string_view text);
  // The text of one control token. A stop string may have taken its beginning.
  std::vector<OutputDelta> FeedControl(absl::string_view text);
  // The text ends here. Nothing is to be fed afterwards.
  std::vector<OutputDelta> Finish();

  // Whether what has been fed ends inside reasoning, as far as that is certain.
  virtual bool inside_reasoning() const = 0;
  // Of the end of what has been fed: how many bytes are not decided yet.
  virtual size_t held_bytes() const = 0;

 protected:
  using Deltas = std::vector<OutputDelta>;

  // Takes a step if what is held allows one; at_end: no more will come.
  virtual bool Step(bool at_end, Deltas* out) = 0;
  // After the last step of all.
  virtual void End(Deltas*) {}

  // Appends to the last delta where that is of the same kind.
  static void AppendDelta(OutputKind kind, absl::string_view text, Deltas* out);
  static void AppendCall(const ToolCall& call, Deltas* out);

  // The first bytes of what is held, as text without the control tokens in it.
  std::string TextOfHeld(size_t bytes) const;
  void DropHeld(size_t bytes);

  std::string held_;  // not decided yet

 private:
  Deltas Advance(bool at_end);

  struct Range {
    size_t begin, end;  // bytes since the beginning
  };
  size_t dropped_bytes_ = 0;   // before held_
  std::deque<Range> control_;  // control tokens in held_
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_
