#include "coordinator/sim/sim_guesses.h"

#include <algorithm>
#include <map>

#include "common/base/check.h"
#include "common/base/counter_rng.h"
#include "coordinator/sim/sim_pipeline.h"

namespace stagecoach {
namespace {

constexpr uint64_t kGuessStream = 0x9e55;

using OutputOutcomes = std::vector<std::optional<bool>>;  // by place in the output

}  // namespace

static_assert(SimGuesser::kWrongToken != kSimulatedToken);

SimOutcomes ByChance(double acceptance, uint64_t seed) {
  return [acceptance, seed](SequenceId sequence, int64_t position) {
    return UniformAt(MixBits(seed + kGuessStream) + sequence, static_cast<uint64_t>(position)) < acceptance;
  };
}

SimOutcomes ByLog(const std::vector<StepRecord>& records, std::vector<int64_t> prompt_tokens) {
  CHECK(!prompt_tokens.empty());
  std::map<SequenceId, int64_t> prompts;  // of the log
  std::map<SequenceId, OutputOutcomes> outputs;
  bool any = false;
  for (const StepRecord& record : records) {
    if (record.number == 0 && !prompts.empty()) break;  // the next job numbers sequences anew
    for (const RecordedCommand& command : record.inputs.commands) {
      if (!command.cancel) prompts[command.sequence] = command.prompt_tokens;
    }
    for (const StepRecord::Slice& slice : record.slices) {
      const auto prompt = prompts.find(slice.sequence);
      if (slice.guess == GuessRecord::kNone || prompt == prompts.end()) continue;
      OutputOutcomes& output = outputs[slice.sequence];
      const auto place = static_cast<size_t>(std::max<int64_t>(slice.start - prompt->second, 0));
      if (output.size() <= place) output.resize(place + 1);
      // Sent again behind a rewind, it may have held then.
      output[place] = output[place].value_or(false) || slice.guess == GuessRecord::kRight;
      any = true;
    }
  }
  if (!any) return nullptr;
  std::vector<OutputOutcomes> requests;
  requests.reserve(outputs.size());
  for (auto& [sequence, output] : outputs) requests.push_back(std::move(output));
  return [requests = std::make_shared<const std::vector<OutputOutcomes>>(std::move(requests)),
          prompts_of = std::move(prompt_tokens)](SequenceId sequence, int64_t position) -> std::optional<bool> {
    const OutputOutcomes& output = (*requests)[(sequence - 1) % requests->size()];
    const int64_t place = position - prompts_of[(sequence - 1) % prompts_of.size()];
    return place < 0 ? std::nullopt : output[static_cast<size_t>(place) % output.size()];
  };
}

std::optional<Guess> SimGuesser::Next(absl::Span<const TokenId> run) const {
  const std::optional<bool> right = outcomes_(sequence_, tokens_ + static_cast<int64_t>(run.size()));
  if (!right.has_value()) return std::nullopt;
  return Guess{.token = *right ? kSimulatedToken : kWrongToken, .confidence = 0.5};
}

}  // namespace stagecoach
