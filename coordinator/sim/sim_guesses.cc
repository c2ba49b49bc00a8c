#include "coordinator/sim/sim_guesses.h"

#include <algorithm>
#include <map>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "coordinator/sim/sim_pipeline.h"

namespace stagecoach {
namespace {

constexpr uint64_t kGuessStream = 0x9e55;

// Of a request of a log.
struct RequestOutcomes {
  int64_t prompt_tokens = 0;
  std::map<int64_t, bool> right;  // by place in the output, where it was guessed
};

}  // namespace

static_assert(SimGuesser::kWrongToken != kSimulatedToken);

SimOutcomes ByChance(double acceptance, uint64_t seed) {
  return [acceptance, seed](SequenceId sequence, int64_t position) {
    return UniformAt(MixBits(seed + kGuessStream) + sequence, static_cast<uint64_t>(position)) < acceptance;
  };
}

SimOutcomes ByLog(const std::vector<StepRecord>& records, std::vector<int64_t> prompt_tokens) {
  CHECK(!prompt_tokens.empty());
  std::map<SequenceId, RequestOutcomes> sequences;
  bool any = false;
  for (const StepRecord& record : records) {
    if (record.number == 0 && !sequences.empty()) break;  // the next job numbers sequences anew
    for (const RecordedCommand& command : record.inputs.commands) {
      if (!command.cancel) sequences[command.sequence].prompt_tokens = command.prompt_tokens;
    }
    for (const StepRecord::Slice& slice : record.slices) {
      const auto found = sequences.find(slice.sequence);
      if (slice.guess == GuessRecord::kNone || found == sequences.end()) continue;
      RequestOutcomes& request = found->second;
      bool& right = request.right[std::max<int64_t>(slice.start - request.prompt_tokens, 0)];
      right = right || slice.guess == GuessRecord::kRight;  // sent again behind a rewind, it may have held then
      any = true;
    }
  }
  if (!any) return nullptr;
  std::vector<RequestOutcomes> requests;
  requests.reserve(sequences.size());
  for (auto& [sequence, request] : sequences) requests.push_back(std::move(request));
  return [requests = std::make_shared<const std::vector<RequestOutcomes>>(std::move(requests)),
          prompts_of = std::move(prompt_tokens)](SequenceId sequence, int64_t position) -> std::optional<bool> {
    const std::map<int64_t, bool>& right = (*requests)[(sequence - 1) % requests->size()].right;
    const int64_t place = position - prompts_of[(sequence - 1) % prompts_of.size()];
    if (place < 0 || right.empty()) return std::nullopt;
    const auto found = right.find(place % (right.rbegin()->first + 1));
    return found == right.end() ? std::nullopt : std::optional<bool>(found->second);
  };
}

std::optional<Guess> SimGuesser::Next(absl::Span<const TokenId> run) const {
  const std::optional<bool> right = outcomes_(sequence_, tokens_ + static_cast<int64_t>(run.size()));
  if (!right.has_value()) return std::nullopt;
  return Guess{.token = *right ? kSimulatedToken : kWrongToken, .confidence = 0.5};
}

}  // namespace stagecoach
