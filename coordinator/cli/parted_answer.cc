#include "coordinator/cli/parted_answer.h"

#include <utility>

namespace stagecoach {
namespace {

std::vector<OutputDelta> Content(std::string text) {
  std::vector<OutputDelta> deltas;
  if (!text.empty()) deltas.push_back({OutputKind::kContent, std::move(text), ""});
  return deltas;
}

}  // namespace

PartedAnswer::PartedAnswer(const Tokenizer* tokenizer, std::vector<std::string> stops,
                           std::unique_ptr<OutputParser> parser) {
  if (parser == nullptr) {
    raw_.emplace(tokenizer, std::move(stops));
  } else {
    parsed_.emplace(tokenizer, std::move(stops), std::move(parser));
  }
}

std::vector<OutputDelta> PartedAnswer::Take(const SessionEvent& event) {
  return Keep(raw_.has_value() ? Content(raw_->Take(event)) : parsed_->Take(event));
}

std::vector<OutputDelta> PartedAnswer::Abandon() {
  return Keep(raw_.has_value() ? Content(raw_->Abandon()) : parsed_->Abandon());
}

std::vector<OutputDelta> PartedAnswer::Keep(std::vector<OutputDelta> deltas) {
  for (const OutputDelta& delta : deltas) (delta.kind == OutputKind::kReasoning ? reasoning_ : text_) += delta.text;
  return deltas;
}

}  // namespace stagecoach
