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
  MarkedParser(OutputFormat format, const OutputStart& start, std::shared_ptr<const OutputTools> tools)
      : format_(format),
        grammar_(GrammarOf(format)),
        tools_(std::move(tools)),
        reads_calls_(tools_ != nullptr && !tools_->empty() && !grammar_.calls.empty()),
        content_has_form_(start.content_has_form),
        drops_space_(grammar_.space_first) {
    const absl::string_view prompt = WithoutSpaceAround(start.prompt_end);
    if (start.reasoning_is_text) {
      place_ = Place::kContentStart;
      std::erase(grammar_.silent, grammar_.close);
    } else if (start.inside_reasoning) {
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
  size_t held_bytes() const override { return held().size() + space_.size() - space_before_calls_; }

 private:
  enum class Place {
    kStart,           // nothing but white space so far
    kReasoningStart,  // likewise, after the mark
    kReasoning,
    kContentStart,
    kContent,
    kCalls,       // what is held begins with some
    kBrokenCall,  // with the rest of one
  };

  // Each takes something off what is held or goes to another place; false: it cannot without more text.
  bool Step(bool at_end, Deltas* out) override {
    // A call that has left may be all there was.
    if (held().empty() && !(at_end && place_ == Place::kCalls)) return false;
    switch (place_) {
      case Place::kStart: return StepStart(at_end);
      case Place::kReasoningStart: return StepReasoningStart(at_end);
      case Place::kReasoning: return StepReasoning(at_end, out);
      case Place::kContentStart: return StepContentStart(at_end);
      case Place::kContent: return StepContent(at_end, out);
      case Place::kCalls: return StepInCalls(at_end, out);
      case Place::kBrokenCall: return StepInBrokenCall(at_end, out);
    }
    return false;
  }

  void End(Deltas* out) override {
    if (place_ == Place::kBrokenCall) out->push_back({OutputKind::kCallEnd, "", ""});
    // Around calls, and after them, it is the format's.
    if (!had_calls_) Append(inside_reasoning() ? OutputKind::kReasoning : OutputKind::kContent, space_, out);
    ClearSpace();
  }

  std::string ClearSpace() {
    space_before_calls_ = 0;
    return std::exchange(space_, "");
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
    DropHeld(LeadingSpace(held()));
    if (held().empty()) return false;
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
    const MarkerPlace found = FindMarker(held(), reasoning_ends_, at_end);
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
    if (held().empty() && space_.size() <= kMostSpace) return false;
    bool perhaps = false;
    if (space_.size() <= kMostSpace) {
      if (!grammar_.content_open.empty() && Begins({grammar_.content_open}, at_end, &perhaps)) {
        DropHeld(grammar_.content_open.size());
        space_.clear();
        in_content_marks_ = true;
        ChooseContentMarks();
      } else if (reads_calls_ && calls_at_start_only() && Begins(grammar_.calls, at_end, &perhaps)) {
        GoToCalls();
        return true;
      }
      if (perhaps) return false;
    }
    drops_space_ = false;
    place_ = Place::kContent;
    return true;
  }

  bool StepContent(bool at_end, Deltas* out) {
    const MarkerPlace found = FindMarker(held(), content_marks_, at_end);
    PutOut(OutputKind::kContent, found.position, out);
    if (found.marker.empty()) return false;
    const auto is_one_of = [&](const std::vector<absl::string_view>& marks) {
      return std::find(marks.begin(), marks.end(), found.marker) != marks.end();
    };
    if (is_one_of(grammar_.calls) || is_one_of(grammar_.calls_in_section)) {
      GoToCalls();
      return true;
    }
    DropHeld(found.marker.size());
    if (is_one_of(grammar_.section_ends)) in_section_ = false;
    if (found.marker == grammar_.content_close) in_content_marks_ = false;
    ChooseContentMarks();
    return true;
  }

  void GoToCalls() {
    BeginCalls(MakeCallReader(format_, grammar_, *tools_));
    place_ = Place::kCalls;
    space_before_calls_ = space_.size();
  }

  bool StepInCalls(bool at_end, Deltas* out) {
    const CallsStep step = StepCalls(at_end, out);
    if (step == CallsStep::kNone) return false;
    if (step == CallsStep::kNoCall) {
      PutOut(OutputKind::kContent, bytes_of_no_call(), out);
    } else {
      had_calls_ = in_section_ = true;
      ChooseContentMarks();
    }
    if (step == CallsStep::kSome) return true;
    drops_space_ = false;
    place_ = step == CallsStep::kBroken ? Place::kBrokenCall : Place::kContent;
    return true;
  }

  bool StepInBrokenCall(bool at_end, Deltas* out) {
    std::vector<absl::string_view> ends = content_marks_;
    if (!grammar_.call_end.empty()) ends.push_back(grammar_.call_end);
    const absl::string_view end = StepBrokenCall(ends, at_end, out);
    if (end.empty()) return false;
    if (end == grammar_.call_end) DropHeld(end.size());
    place_ = Place::kContent;
    return true;
  }

  // off what is held, into space_ or nowhere
  void SkipSpace() {
    if (drops_space_ && content_has_form_) {
      DropHeld(std::min(held().find_first_not_of('\n'), held().size()));
      drops_space_ = held().empty();
    }
    const size_t bytes = LeadingSpace(held());
    if (!drops_space_) space_ += TextOfHeld(bytes);
    DropHeld(bytes);
  }

  // What is held begins with one of `marks`, or may turn out to.
  bool Begins(const std::vector<absl::string_view>& marks, bool at_end, bool* perhaps) const {
    return std::any_of(marks.begin(), marks.end(), [&](absl::string_view mark) {
      const MarkerFit fit = FitMarker(held(), mark, at_end);
      *perhaps |= fit == MarkerFit::kPerhaps;
      return fit == MarkerFit::kYes;
    });
  }

  // The first bytes of what is held. White space is held back until it is known what follows.
  void PutOut(OutputKind kind, size_t bytes, Deltas* out) {
    if (bytes == 0) return;
    const std::string held = TextOfHeld(bytes);
    DropHeld(bytes);
    const absl::string_view text = held;
    const bool holds_space = kind == OutputKind::kReasoning || reads_calls_;
    const size_t trailing = holds_space ? TrailingSpace(text) : 0;
    if (trailing < text.size()) Append(kind, ClearSpace(), out);
    Append(kind, text.substr(0, text.size() - trailing), out);
    space_.append(held, text.size() - trailing, trailing);
    if (space_.size() > kMostSpace) {
      const size_t certain = space_.size() - kMostSpace;
      Append(kind, absl::string_view(space_).substr(0, certain), out);
      space_.erase(0, certain);
      space_before_calls_ -= std::min(space_before_calls_, certain);
    }
  }

  static void Append(OutputKind kind, absl::string_view text, Deltas* out) {
    if (!text.empty()) AppendDelta({kind, std::string(text), ""}, out);
  }

  bool calls_at_start_only() const { return grammar_.calls_at_start_only || (content_has_form_ && !had_calls_); }

  void ChooseContentMarks() {
    content_marks_ = grammar_.silent;
    const auto add = [&](const std::vector<absl::string_view>& marks) {
      content_marks_.insert(content_marks_.end(), marks.begin(), marks.end());
    };
    if (reads_calls_ && !calls_at_start_only()) add(grammar_.calls);
    if (in_section_) add(grammar_.calls_in_section);
    if (in_section_) add(grammar_.section_ends);
    if (in_content_marks_) add({grammar_.content_close});
  }

  const OutputFormat format_;
  OutputGrammar grammar_;  // constant after construction
  const std::shared_ptr<const OutputTools> tools_;
  const bool reads_calls_;
  const bool content_has_form_;
  Place place_ = Place::kStart;
  bool may_open_again_ = false;  // the prompt opened the reasoning, and the model does so once more
  bool drops_space_;             // white space belongs to the format here
  bool in_section_ = false;
  bool in_content_marks_ = false;
  bool had_calls_ = false;
  std::vector<absl::string_view> reasoning_ends_;
  std::vector<absl::string_view> content_marks_;
  std::string space_;  // before what is held
  // Of that, bytes that stand before calls: they have come to their end, though they leave only if content follows.
  size_t space_before_calls_ = 0;
};

}  // namespace

std::unique_ptr<OutputParser> MakeMarkedParser(OutputFormat format, const OutputStart& start,
                                               std::shared_ptr<const OutputTools> tools) {
  return std::make_unique<MarkedParser>(format, start, std::move(tools));
}

}  // namespace stagecoach
