#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

constexpr absl::string_view kStart = "<|start|>";
constexpr absl::string_view kAssistant = "<|start|>assistant";
constexpr absl::string_view kChannel = "<|channel|>";
constexpr absl::string_view kMessage = "<|message|>";
constexpr absl::string_view kRecipient = " to=";
constexpr absl::string_view kFunctions = "functions.";
constexpr size_t kMostHead = 512;

// What follows `mark` up to white space or the next mark; empty: `mark` is not there.
absl::string_view WordAfter(absl::string_view mark, absl::string_view head) {
  const size_t found = head.find(mark);
  if (found == absl::string_view::npos) return "";
  const absl::string_view rest = head.substr(found + mark.size());
  return rest.substr(0, rest.find_first_of(" \t\r\n<"));
}

absl::string_view FunctionOf(absl::string_view head) {
  absl::string_view recipient = WordAfter(kRecipient, head);
  if (absl::StartsWith(recipient, kFunctions)) recipient.remove_prefix(kFunctions.size());
  return recipient;
}

bool IsFunction(absl::string_view head, const OutputTools& tools) {
  const absl::string_view function = FunctionOf(head);
  return !function.empty() && (function.size() < WordAfter(kRecipient, head).size() || tools.Has(function));
}

OutputKind KindOf(absl::string_view head) {
  const bool thinks = WordAfter(kChannel, head) == "analysis" && WordAfter(kRecipient, head).empty();
  return thinks ? OutputKind::kReasoning : OutputKind::kContent;
}

// The head has been read; the body is an object of JSON.
class HarmonyCallReader : public CallReader {
 public:
  HarmonyCallReader(const OutputTools& tools, absl::string_view head) : CallReader(tools, ""), head_(head) {}

 protected:
  void ReadHead() override {
    in_.Expect(head_);
    BeginObject(FunctionOf(head_), "");
  }

 private:
  const std::string head_;
};

// The answer is a row of messages, each with a head that says what it is: reasoning (the channel "analysis"), a call
// (it has a function for its recipient), else content.
class HarmonyParser : public OutputParser {
 public:
  HarmonyParser(const OutputStart& start, std::shared_ptr<const OutputTools> tools)
      : tools_(tools != nullptr ? std::move(tools) : std::make_shared<OutputTools>()) {
    const absl::string_view prompt = start.prompt_end;
    const size_t message = prompt.rfind(kStart);
    if (start.inside_reasoning) {
      place_ = Place::kBody;
      kind_ = OutputKind::kReasoning;
    } else if (message != absl::string_view::npos && absl::EndsWith(prompt, kMessage)) {
      place_ = Place::kBody;
      kind_ = KindOf(prompt.substr(message));
    }
  }

  bool inside_reasoning() const override { return place_ == Place::kBody && kind_ == OutputKind::kReasoning; }
  size_t held_bytes() const override { return held().size(); }

 private:
  enum class Place {
    kBetween,  // after a message
    kHead,     // after the role, which is in the prompt the first time
    kBody,
    kCall,  // what is held is a head with what follows it
    kBrokenCall,
    kAfterCall,
  };

  // Each takes something off what is held or goes to another place; false: it cannot without more text.
  bool Step(bool at_end, Deltas* out) override {
    // A call that has left may be all there was.
    if (held().empty() && !(at_end && place_ == Place::kCall)) return false;
    switch (place_) {
      case Place::kBetween: return StepBetween(at_end, out);
      case Place::kHead: return StepHead(at_end, out);
      case Place::kBody: return StepBody(at_end, out);
      case Place::kCall: return StepCall(at_end, out);
      case Place::kBrokenCall:
        if (StepBrokenCall(kHarmonyBodyEnds, at_end, out).empty()) return false;
        place_ = Place::kBody;
        return true;
      case Place::kAfterCall:
        DropHeld(LeadingSpace(held()));
        if (!held().empty()) place_ = Place::kBody;
        return true;
    }
    return false;
  }

  void End(Deltas* out) override {
    if (place_ == Place::kBrokenCall) out->push_back({OutputKind::kCallEnd, "", ""});
  }

  // Either the next message begins as it should, or its head stands there alone, or text without any.
  bool StepBetween(bool at_end, Deltas* out) {
    const MarkerFit fit = FitMarker(held(), kAssistant, at_end);
    if (fit == MarkerFit::kPerhaps) return false;
    place_ = Place::kHead;
    if (fit == MarkerFit::kYes) {
      DropHeld(kAssistant.size());
    } else if (absl::StartsWith(held(), kStart)) {  // the role of another
      kind_ = OutputKind::kContent;
      PutOut(kStart.size(), out);
      place_ = Place::kBody;
    }
    return true;
  }

  bool StepHead(bool at_end, Deltas* out) {
    bool is_head = false;
    const bool is_marked = absl::StartsWith(held(), kChannel);
    for (const absl::string_view mark : {kChannel, kRecipient, kMessage}) {
      const MarkerFit fit = FitMarker(held(), mark, at_end);
      if (fit == MarkerFit::kPerhaps) return false;
      is_head |= fit == MarkerFit::kYes;
    }
    if (is_head) {
      const size_t end = held().substr(0, kMostHead).find(kMessage);
      if (end != absl::string_view::npos) {
        TakeHead(end + kMessage.size(), out);
        return true;
      }
      if (held().size() < kMostHead && !at_end) return false;
      if (held().size() < kMostHead && is_marked) {
        DropHeld(held().size());  // marks alone, and no message after them
        return false;
      }
    }
    kind_ = OutputKind::kContent;
    place_ = Place::kBody;
    return true;
  }

  bool StepBody(bool at_end, Deltas* out) {
    const MarkerPlace found = FindMarker(held(), kHarmonyBodyEnds, at_end);
    PutOut(found.position, out);
    if (found.marker.empty()) return false;
    if (found.marker != kStart) DropHeld(found.marker.size());
    place_ = Place::kBetween;
    return true;
  }

  bool StepCall(bool at_end, Deltas* out) {
    switch (StepCalls(at_end, out)) {
      case CallsStep::kNone: return false;
      case CallsStep::kSome: return true;
      case CallsStep::kAll: place_ = Place::kAfterCall; break;
      case CallsStep::kBroken: place_ = Place::kBrokenCall; break;
      case CallsStep::kNoCall:
        place_ = Place::kBody;
        PutOut(head_bytes_, out);  // the rest is read as the text that it is
        break;
    }
    kind_ = OutputKind::kContent;
    return true;
  }

  // Where the head ends with a message's mark.
  void TakeHead(size_t bytes, Deltas* out) {
    const absl::string_view head = held().substr(0, bytes);
    kind_ = KindOf(head);
    place_ = Place::kBody;
    if (!IsFunction(head, *tools_)) {
      DropHeld(bytes);
    } else if (tools_->empty()) {
      PutOut(bytes, out);
    } else {
      BeginCalls(std::make_unique<HarmonyCallReader>(*tools_, head));
      head_bytes_ = bytes;
      place_ = Place::kCall;
    }
  }

  void PutOut(size_t bytes, Deltas* out) {
    const std::string text = TextOfHeld(bytes);
    if (!text.empty()) AppendDelta({kind_, text, ""}, out);
    DropHeld(bytes);
  }

  const std::shared_ptr<const OutputTools> tools_;
  Place place_ = Place::kHead;
  OutputKind kind_ = OutputKind::kContent;  // of the body
  size_t head_bytes_ = 0;                   // kCall
};

}  // namespace

std::unique_ptr<OutputParser> MakeHarmonyParser(const OutputStart& start, std::shared_ptr<const OutputTools> tools) {
  return std::make_unique<HarmonyParser>(start, std::move(tools));
}

}  // namespace stagecoach
