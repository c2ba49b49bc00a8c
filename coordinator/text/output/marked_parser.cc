#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "coordinator/text/output/call_scanner.h"
#include "coordinator/text/output/output_grammar.h"

namespace stagecoach {
namespace {

// White space of which it is open to what it belongs. Further such is text.
constexpr size_t kMostSpace = 64;

// An OutputParser by a grammar.
class MarkedParser : public OutputParser {
 public:
  MarkedParser(OutputGrammar grammar, const OutputStart& start, std::shared_ptr<const OutputTools> tools)
      : grammar_(std::move(grammar)),
        tools_(std::move(tools)),
        reads_calls_(tools_ != nullptr && !tools_->empty() && grammar_.read != nullptr),
        drops_space_(grammar_.space_first) {
    const absl::string_view prompt = WithoutSpaceAround(start.prompt_end);
    if (start.inside_reasoning) {
      place_ = Place::kReasoning;
    } else if (absl::EndsWith(prompt, grammar_.open)) {
      place_ = Place::kReasoningStart;
      may_open_again_ = true;
    } else if (absl::EndsWith(prompt, grammar_.close)) {
      drops_space_ = true;
    }
    reasoning_ends_ = {grammar_.close};
    if (reads_calls_) {
      reasoning_ends_.insert(reasoning_ends_.end(), grammar_.calls_in_reasoning.begin(),
                             grammar_.calls_in_reasoning.end());
    }
    ChooseContentMarks();
  }

  bool inside_reasoning() const override { return place_ == Place::kReasoningStart || place_ == Place::kReasoning; }
  size_t held_bytes() const override { return held_.size() + space_.size(); }

 private:
  enum class Place {
    kStart,           // nothing but white space so far
    kReasoningStart,  // likewise, after the mark
    kReasoning,
    kContentStart,
    kContent,
    kCall,  // held_ begins with one
  };

  // Each takes something off held_ or goes to another place; false: it cannot without more text.
  bool Step(bool at_end, Deltas* out) override {
    if (held_.empty()) return false;
    switch (place_) {
      case Place::kStart: return StepStart(at_end);
      case Place::kReasoningStart: return StepReasoningStart(at_end);
      case Place::kReasoning: return StepReasoning(at_end, out);
      case Place::kContentStart: return StepContentStart(at_end);
      case Place::kContent: return StepContent(at_end, out);
      case Place::kCall: return StepCall(at_end, out);
    }
    return false;
  }

  void End(Deltas* out) override {
    // Around calls, and after them, it is the format's.
    if (!had_calls_) AppendDelta(inside_reasoning() ? OutputKind::kReasoning : OutputKind::kContent, space_, out);
    space_.clear();
  }

  bool StepStart(bool at_end) {
    SkipSpace();
    bool perhaps = false;
    if (grammar_.model_opens && space_.size() <= kMostSpace) {
      if (Begins({grammar_.open}, at_end, &perhaps)) {
        DropHeld(grammar_.open.size());
        space_.clear();
        place_ = Place::kReasoningStart;
        return true;
      }
      if (perhaps) return false;  // also where only white space has come
    }
    place_ = Place::kContentStart;
    return true;
  }

  bool StepReasoningStart(bool at_end) {
    DropHeld(LeadingSpace(held_));
    if (held_.empty()) return false;
    bool perhaps = false;
    if (may_open_again_ && Begins({grammar_.open}, at_end, &perhaps)) {
      DropHeld(grammar_.open.size());
      may_open_again_ = false;
      return true;
    }
    if (perhaps) return false;
    place_ = Place::kReasoning;
    return true;
  }

  bool StepReasoning(bool at_end, Deltas* out) {
    const MarkerPlace found = FindMarker(held_, reasoning_ends_, at_end);
    PutOut(OutputKind::kReasoning, found.position, out);
    if (found.marker.empty()) return false;
    if (found.marker == grammar_.close) DropHeld(found.marker.size());
    space_.clear();
    drops_space_ = true;
    place_ = Place::kContentStart;
    return true;
  }

  bool StepContentStart(bool at_end) {
    SkipSpace();
    if (held_.empty() && space_.size() <= kMostSpace) return false;
    bool perhaps = false;
    if (space_.size() <= kMostSpace) {
      if (!grammar_.content_open.empty() && Begins({grammar_.content_open}, at_end, &perhaps)) {
        DropHeld(grammar_.content_open.size());
        space_.clear();
        in_content_marks_ = true;
        ChooseContentMarks();
      } else if (reads_calls_ && grammar_.calls_at_start_only && Begins(grammar_.calls, at_end, &perhaps)) {
        place_ = Place::kCall;
        return true;
      }
      if (perhaps) return false;
    }
    drops_space_ = false;
    place_ = Place::kContent;
    return true;
  }

  bool StepContent(bool at_end, Deltas* out) {
    const MarkerPlace found = FindMarker(held_, content_marks_, at_end);
    PutOut(OutputKind::kContent, found.position, out);
    if (found.marker.empty()) return false;
    const auto is_one_of = [&](const std::vector<absl::string_view>& marks) {
      return std::find(marks.begin(), marks.end(), found.marker) != marks.end();
    };
    if (is_one_of(grammar_.calls) || is_one_of(grammar_.calls_in_section)) {
      place_ = Place::kCall;
      return true;
    }
    DropHeld(found.marker.size());
    if (is_one_of(grammar_.section_ends)) in_section_ = false;
    if (found.marker == grammar_.content_close) in_content_marks_ = false;
    ChooseContentMarks();
    return true;
  }

  bool StepCall(bool at_end, Deltas* out) {
    const bool too_long = held_.size() > kMostCallBytes;
    CallScanner scanner(absl::string_view(held_).substr(0, kMostCallBytes), at_end && !too_long);
    Calls calls = grammar_.read(*tools_, &scanner);
    const CallReading reading = scanner.Result(std::move(calls));
    switch (reading.state) {
      case CallReading::State::kDone: PutOutCalls(reading.calls, reading.bytes, out); break;
      case CallReading::State::kMore:
        if (!too_long) return false;
        // What a code point cut here has left follows at once.
        PutOut(OutputKind::kContent, kMostCallBytes, out);
        break;
      case CallReading::State::kBad:
        // A byte at least: what begins with a mark would be read as a call again.
        PutOut(OutputKind::kContent, std::max<size_t>(reading.bytes, 1), out);
        break;
    }
    drops_space_ = false;
    place_ = Place::kContent;
    return true;
  }

  // off held_, into space_ or nowhere
  void SkipSpace() {
    const size_t bytes = LeadingSpace(held_);
    if (!drops_space_) space_ += TextOfHeld(bytes);
    DropHeld(bytes);
  }

  // The first of `marks` is what held_ begins with (kYes), or may turn out to begin with.
  bool Begins(const std::vector<absl::string_view>& marks, bool at_end, bool* perhaps) const {
    return std::any_of(marks.begin(), marks.end(), [&](absl::string_view mark) {
      const MarkerFit fit = FitMarker(held_, mark, at_end);
      *perhaps |= fit == MarkerFit::kPerhaps;
      return fit == MarkerFit::kYes;
    });
  }

  // Text at the beginning of held_. White space is held back until it is known what follows.
  void PutOut(OutputKind kind, size_t bytes, Deltas* out) {
    if (bytes == 0) return;
    const std::string held = TextOfHeld(bytes);
    DropHeld(bytes);
    const absl::string_view text = held;
    const bool holds_space = kind == OutputKind::kReasoning || reads_calls_;
    const size_t trailing = holds_space ? TrailingSpace(text) : 0;
    if (trailing < text.size()) AppendDelta(kind, std::exchange(space_, ""), out);
    AppendDelta(kind, text.substr(0, text.size() - trailing), out);
    space_.append(held, text.size() - trailing, trailing);
    if (space_.size() > kMostSpace) {
      const size_t certain = space_.size() - kMostSpace;
      AppendDelta(kind, absl::string_view(space_).substr(0, certain), out);
      space_.erase(0, certain);
    }
  }

  void PutOutCalls(const Calls& calls, size_t bytes, Deltas* out) {
    for (const ToolCall& call : calls) AppendCall(call, out);
    DropHeld(bytes);
    had_calls_ = true;
    in_section_ = true;
    ChooseContentMarks();
  }

  void ChooseContentMarks() {
    content_marks_ = grammar_.silent;
    const auto add = [&](const std::vector<absl::string_view>& marks) {
      content_marks_.insert(content_marks_.end(), marks.begin(), marks.end());
    };
    if (reads_calls_ && !grammar_.calls_at_start_only) add(grammar_.calls);
    if (in_section_) add(grammar_.calls_in_section);
    if (in_section_) add(grammar_.section_ends);
    if (in_content_marks_) add({grammar_.content_close});
  }

  const OutputGrammar grammar_;
  const std::shared_ptr<const OutputTools> tools_;
  const bool reads_calls_;
  Place place_ = Place::kStart;
  bool may_open_again_ = false;  // the prompt opened the reasoning, and the model does so once more
  bool drops_space_;             // white space belongs to the format here
  bool in_section_ = false;
  bool in_content_marks_ = false;
  bool had_calls_ = false;
  std::vector<absl::string_view> reasoning_ends_;
  std::vector<absl::string_view> content_marks_;
  std::string space_;  // before held_
};

}  // namespace

std::unique_ptr<OutputParser> MakeMarkedParser(OutputGrammar grammar, const OutputStart& start,
                                               std::shared_ptr<const OutputTools> tools) {
  return std::make_unique<MarkedParser>(std::move(grammar), start, std::move(tools));
}

}  // namespace stagecoach
