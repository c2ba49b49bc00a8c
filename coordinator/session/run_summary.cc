#include "coordinator/session/run_summary.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagecoach {
namespace {

double SafeRate(double count, double seconds) { return seconds > 0 && count > 0 ? count / seconds : 0; }

using Sizes = google::protobuf::RepeatedField<uint64_t>;

void AddSizes(const Sizes& earlier, Sizes* sizes) {
  if (sizes->size() < earlier.size()) sizes->Resize(earlier.size(), 0);
  for (int i = 0; i < earlier.size(); ++i) sizes->Set(i, sizes->Get(i) + earlier.Get(i));
}

using Guessers = google::protobuf::RepeatedPtrField<pb::GuesserStatistics>;

void AddGuessers(const Guessers& earlier, Guessers* guessers) {
  for (const pb::GuesserStatistics& one : earlier) {
    const auto same = std::find_if(guessers->begin(), guessers->end(),
                                   [&](const pb::GuesserStatistics& other) { return other.name() == one.name(); });
    if (same == guessers->end()) {
      *guessers->Add() = one;
    } else {
      same->set_tried(same->tried() + one.tried());
      same->set_right(same->right() + one.right());
    }
  }
}

}  // namespace

const pb::GuesserStatistics& DraftGuesses(const pb::JobStatistics& job) {
  const auto draft = std::find_if(job.guessers().begin(), job.guessers().end(),
                                  [](const pb::GuesserStatistics& one) { return one.name() == "draft"; });
  return draft == job.guessers().end() ? pb::GuesserStatistics::default_instance() : *draft;
}

std::string CpuList(const pb::StageSummary& stage) {
  if (stage.cpus().empty()) return "any";
  std::vector<int32_t> cpus(stage.cpus().begin(), stage.cpus().end());
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i], last > i ? absl::StrCat("-", cpus[last]) : "");
    i = last + 1;
  }
  return text;
}

double DecodeRate(const RunTotals& totals) {
  return SafeRate(static_cast<double>(totals.decode_tokens - totals.requests_with_tokens), totals.decode_s);
}

double RowsAPass(const pb::JobStatistics& job) {
  return SafeRate(static_cast<double>(job.prefill_rows() + job.decode_rows() + job.guesses_right()),
                  static_cast<double>(job.micro_batches()));
}

double DecodeRowsAPass(const pb::JobStatistics& job) {
  return SafeRate(static_cast<double>(job.decode_rows()), static_cast<double>(job.decode_micro_batches()));
}

double AcceptedShare(const pb::JobStatistics& job, const pb::JobStatistics& before) {
  double tried = 0, right = 0;
  const auto add = [&](const pb::JobStatistics& statistics, double sign) {
    for (const pb::GuesserStatistics& guesser : statistics.guessers()) {
      tried += sign * static_cast<double>(guesser.tried());
      right += sign * static_cast<double>(guesser.right());
    }
  };
  add(job, 1);
  add(before, -1);
  return SafeRate(right, tried);
}

IdealTime IdealOf(const pb::JobStatistics& statistics, int stages) {
  IdealTime ideal;
  for (int i = 0; i < std::min(stages, statistics.stages_size()); ++i) {
    ideal.compute_s += statistics.stages(i).compute_s();
  }
  ideal.compute_s = std::max(0.0, ideal.compute_s - statistics.void_s());  // it is no work
  if (statistics.bubble_floor() < 1) ideal.span_s = ideal.compute_s / (1 - statistics.bubble_floor());
  return ideal;
}

double TotalRate(const RunTotals& totals) {
  return SafeRate(static_cast<double>(totals.prompt_tokens + totals.decode_tokens), totals.seconds);
}

void AddStatistics(const pb::JobStatistics& later, pb::JobStatistics* sum) {
  const pb::JobStatistics earlier = *sum;
  *sum = later;
  sum->set_micro_batches(earlier.micro_batches() + later.micro_batches());
  sum->set_prefill_rows(earlier.prefill_rows() + later.prefill_rows());
  sum->set_decode_rows(earlier.decode_rows() + later.decode_rows());
  sum->set_decode_micro_batches(earlier.decode_micro_batches() + later.decode_micro_batches());
  sum->set_preemptions(earlier.preemptions() + later.preemptions());
  AddSizes(earlier.prefill_sizes(), sum->mutable_prefill_sizes());
  AddSizes(earlier.decode_sizes(), sum->mutable_decode_sizes());
  sum->set_prefix_query_tokens(earlier.prefix_query_tokens() + later.prefix_query_tokens());
  sum->set_prefix_hit_tokens(earlier.prefix_hit_tokens() + later.prefix_hit_tokens());
  sum->set_prefix_stateless_tokens(earlier.prefix_stateless_tokens() + later.prefix_stateless_tokens());
  sum->set_guesses(earlier.guesses() + later.guesses());
  sum->set_guesses_right(earlier.guesses_right() + later.guesses_right());
  sum->set_guesses_void(earlier.guesses_void() + later.guesses_void());
  sum->set_void_s(earlier.void_s() + later.void_s());
  AddGuessers(earlier.guessers(), sum->mutable_guessers());
  const double busy_s = earlier.busy_s() + later.busy_s();
  sum->set_busy_s(busy_s);
  if (busy_s > 0) {
    sum->set_bubble((earlier.bubble() * earlier.busy_s() + later.bubble() * later.busy_s()) / busy_s);
  }
  const int stages = later.stages().empty() ? earlier.stages_size() : later.stages_size();
  const IdealTime before = IdealOf(earlier, stages), after = IdealOf(later, stages);
  if (before.span_s > 0) {
    const double compute_s = before.compute_s + after.compute_s, span_s = before.span_s + after.span_s;
    sum->set_bubble_floor(std::clamp(1 - compute_s / span_s, 0.0, 1.0));
  }
  if (later.stages().empty()) *sum->mutable_stages() = earlier.stages();
  for (int i = 0; i < std::min(earlier.stages_size(), later.stages_size()); ++i) {
    const pb::StageSummary& before = earlier.stages(i);
    pb::StageSummary* stage = sum->mutable_stages(i);
    stage->set_compute_s(before.compute_s() + stage->compute_s());
    stage->set_void_s(before.void_s() + stage->void_s());
    stage->set_send_s(before.send_s() + stage->send_s());
    stage->set_wait_s(before.wait_s() + stage->wait_s());
    stage->set_bytes_sent(before.bytes_sent() + stage->bytes_sent());
    stage->set_grammar_mask_s(before.grammar_mask_s() + stage->grammar_mask_s());
    stage->set_grammar_mask_hits(before.grammar_mask_hits() + stage->grammar_mask_hits());
    stage->set_tensor_bytes_read(before.tensor_bytes_read() + stage->tensor_bytes_read());
    stage->set_blocks_used_peak(std::max(before.blocks_used_peak(), stage->blocks_used_peak()));
  }
}

}  // namespace stagecoach
