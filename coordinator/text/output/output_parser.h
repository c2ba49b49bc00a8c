#ifndef STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_
#define STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_

// Splits the text of a model into reasoning, content and tool calls while it is generated.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/json/json.h"

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
  // A call is kCallStart, any number of kCallArguments, kCallEnd, with nothing else between. Calls come in the order in
  // which the model wrote them.
  kCallStart,
  kCallArguments,
  kCallEnd,
};

struct OutputDelta {
  OutputKind kind;
  // Reasoning, content; kCallStart: the name of the function; kCallArguments: a piece of the arguments. The pieces of a
  // call are the text of a JSON object, unless the call is broken (OutputParser). Empty for kCallEnd.
  std::string text;
  std::string call_id;  // kCallStart: the model's own; empty where it gave none

  bool operator==(const OutputDelta&) const = default;
};

// Joins it to the last one where that is of the same kind.
void AppendDelta(OutputDelta delta, std::vector<OutputDelta>* deltas);

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
  // Reasoning is content, and its marks are text. kHarmony, whose whole answer is marks, parts it all the same.
  bool reasoning_is_text = false;
  // The content has a form (grammar/form/answer_form.h): calls stand at its beginning or nowhere, and after reasoning
  // line breaks alone belong to the format. kHarmony has no need of it.
  bool content_has_form = false;

  // Of an answer to a prompt with this text.
  static OutputStart After(absl::string_view prompt);
};

class CallReader;

// Fed with the text of an answer, control tokens as their text, without the token that ended it. Not thread-safe.
//   Pieces   The joined deltas do not depend on how the text is cut.
//   Delay    Text is returned when it cannot belong to a marker.
//   Calls    A call begins to leave when it is complete, or when its name is known and its first kTrialBytes could be
//            read. From there on its arguments leave as they become certain: JSON and strings as they are written,
//            never half an escape or character; other values between tags, and arguments that are JSON in a string, as
//            a whole. An id that is written behind the arguments comes too late for a call that has begun to leave.
//   Broken   A call that has begun to leave and then cannot be read, or is not written to its end, keeps what has left.
//            The rest of it follows as arguments, as the model wrote it, up to the mark that ends a call.
//   Content  What else is no valid call is content, with its markers that were fed as text. A control token is a marker
//            or nothing. Invalid UTF-8 passes through.
//   Dropped  Markers, and white space at both ends of a reasoning block and after it, and around calls that no text
//            follows.
//   Limits   At most kMostCallBytes are held back: of a call of which the name is not known, or of a value that leaves
//            as a whole; the call is content or broken then. A call that leaves as it is written may be of any length.
//   Cost     Linear in the text, however it is cut.
class OutputParser {
 public:
  static constexpr size_t kTrialBytes = 256;  // from the call's first marker on, or from the end of the call before
  static constexpr size_t kMostCallBytes = 256 << 10;

  // `tools`: null or empty: there are none.
  static std::unique_ptr<OutputParser> Make(OutputFormat format, const OutputStart& start,
                                            std::shared_ptr<const OutputTools> tools);
  virtual ~OutputParser();

  // No delta has an empty text but kCallEnd. No two neighbours are of one kind.
  std::vector<OutputDelta> Feed(absl::string_view text);
  // The text of one control token. A stop string may have taken its beginning.
  std::vector<OutputDelta> FeedControl(absl::string_view text);
  // The text ends here. Nothing is to be fed afterwards.
  std::vector<OutputDelta> Finish();

  // Whether what has been fed ends inside reasoning, as far as that is certain.
  virtual bool inside_reasoning() const = 0;
  // Of the end of what has been fed: how many bytes are not decided yet.
  virtual size_t held_bytes() const = 0;
  // That reading calls has looked at, again or for the first time.
  uint64_t scanned_bytes() const { return scanned_bytes_; }

 protected:
  using Deltas = std::vector<OutputDelta>;

  OutputParser();
  // Takes a step if what is held allows one; at_end: no more will come.
  virtual bool Step(bool at_end, Deltas* out) = 0;
  // After the last step of all.
  virtual void End(Deltas*) {}

  // The calls that held() begins with.
  void BeginCalls(std::unique_ptr<CallReader> reader);
  enum class CallsStep {
    kNone,    // nothing without more text
    kSome,    // a part was taken off held()
    kAll,     // they were read to the end of their markers
    kBroken,  // a call has begun to leave and broke: what is held begins with its rest
    kNoCall,  // what is held breaks at bytes_of_no_call()
  };
  CallsStep StepCalls(bool at_end, Deltas* out);
  size_t bytes_of_no_call() const;  // one at least, unless nothing is held: what begins with a mark would be read again
  // Of the rest of a broken call: takes what there is up to the first of `ends`, which it returns; empty: it goes on.
  absl::string_view StepBrokenCall(absl::Span<const absl::string_view> ends, bool at_end, Deltas* out);

  absl::string_view held() const { return absl::string_view(text_).substr(begin_); }  // not decided yet
  // The first bytes of what is held, as text without the control tokens in it.
  std::string TextOfHeld(size_t bytes) const;
  void DropHeld(size_t bytes);

 private:
  Deltas Advance(bool at_end);

  struct Range {
    size_t begin, end;  // bytes since the beginning
  };
  std::string text_;
  size_t begin_ = 0;           // of what is held; what is before it is removed when that is most of the text
  size_t dropped_bytes_ = 0;   // before what is held
  std::deque<Range> control_;  // control tokens in what is held
  std::unique_ptr<CallReader> reader_;
  uint64_t scanned_bytes_ = 0;
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_TEXT_OUTPUT_OUTPUT_PARSER_H_
