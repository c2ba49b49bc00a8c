#include <algorithm>
#include <cmath>
#include <functional>

#include "stage_worker/sample/sampler.h"

namespace stagecoach {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSorted = 256;   // so few logits are sorted instead of partitioned
constexpr int kMostSamples = 256;  // values drawn to choose a bracket

float Above(float x) { return std::nextafter(x, kInfinity); }

template <typename T>
T* WithRoomFor(int64_t count, std::vector<T>* memory) {
  if (memory->size() < static_cast<size_t>(count)) memory->resize(static_cast<size_t>(count));
  return memory->data();
}

// Logits x with low <= x < high.
struct Bracket {
  float low, high;
  bool one_value() const { return high == Above(low); }
};

// One search. The cut is where a mass is reached: a number of logits, or their weight. It lies among the row's logits
// in [low_, high_), the n_ at x_; above_ is the mass above them.
class CutSearch {
 public:
  CutSearch(const SamplingKernels& kernels, const float* row, int64_t size, RankingCutter::Memory* memory)
      : kernels_(kernels), row_(row), size_(size), memory_(*memory), x_(row), n_(size) {
    // All that any row of this length may need, so that no later search takes memory.
    WithRoomFor(size + kGatherSlack, &memory->indices);
    WithRoomFor(size, &memory->values);
  }

  // By weight from now on; returns that of the row.
  uint64_t Weigh(const Weighing& weighing) {
    weighing_ = &weighing;
    WithRoomFor(size_ / kWeightBlock + 1, &memory_.part_sums);
    WeighLogits();
    return mass_;
  }

  RankingCut Run(uint64_t wanted) {
    wanted_ = wanted;
    mass_ = weighing_ != nullptr ? mass_ : static_cast<uint64_t>(n_);
    bool one_value = false;
    while (n_ > kSorted) {
      const int64_t before = n_;
      const Bracket bracket = ChooseBracket(one_value);
      if (Narrow(bracket)) return CutAt(bracket.low, ties_, found_ties_);
      one_value = n_ > before / 2;  // little progress: then at least one value leaves
    }
    return Sort();
  }

 private:
  Bracket ChooseBracket(bool one_value) const;
  void SampleByWeight(float* values, int samples) const;
  bool Narrow(const Bracket& bracket);
  void TakeFrom(const float* x, int64_t count);
  void TakeUpInRow();
  void WeighLogits();
  RankingCut Sort() const;
  RankingCut CutAt(float floor, uint64_t ties, int64_t found_ties) const;

  const SamplingKernels& kernels_;
  const float* const row_;
  const int64_t size_;
  RankingCutter::Memory& memory_;
  const Weighing* weighing_ = nullptr;  // nullptr: by number
  uint64_t wanted_ = 0;

  const float* x_;
  int64_t n_;
  uint64_t mass_ = 0;  // of the logits at x_
  float low_ = -kInfinity, high_ = kInfinity;
  uint64_t above_ = 0;

  // Set when the cut is at one value: how many logits have it, and how many of them are needed.
  int64_t found_ties_ = 0;
  uint64_t ties_ = 0;
};

// A small bracket that probably contains the cut: its estimated place among values sampled in proportion to their mass,
// plus and minus some standard deviations.
Bracket CutSearch::ChooseBracket(bool one_value) const {
  float values[kMostSamples];
  const int samples = n_ < 16 * kMostSamples ? kMostSamples / 4 : kMostSamples;
  if (weighing_ != nullptr) {
    SampleByWeight(values, samples);
  } else {
    for (int i = 0; i < samples; ++i) {
      const float value = x_[(2 * i + 1) * n_ / (2 * samples)];
      values[i] = std::isnan(value) ? -kInfinity : value;
    }
  }
  std::sort(values, values + samples, std::greater<float>());
  const double share = std::min(1.0, static_cast<double>(wanted_ - above_) / static_cast<double>(mass_));
  const double at = share * samples, margin = 1 + 2 * std::sqrt(at * (1 - share));
  const auto value = [&values, samples](double place) {
    return values[std::clamp(static_cast<int>(place), 0, samples - 1)];
  };
  // Many equal ones: very probably the cut is there.
  if (one_value || value(at - margin / 2) == value(at + margin / 2)) return {value(at), Above(value(at))};
  return {.low = at + margin < samples ? value(at + margin) : -kInfinity,
          .high = at - margin >= 0 ? Above(value(at - margin)) : kInfinity};
}

// The logits at evenly spaced points of the running sum of weights.
void CutSearch::SampleByWeight(float* values, int samples) const {
  uint32_t weights[kWeightBlock];
  int64_t weighed = -1;  // the block whose weights these are
  int64_t block = 0;
  uint64_t before = 0;  // weight of the blocks before
  for (int i = 0; i < samples; ++i) {
    const uint64_t point = static_cast<uint64_t>(static_cast<double>(mass_) * (i + 0.5) / samples);
    while (before + memory_.sums[block] <= point) before += memory_.sums[block++];
    const float* x = x_ + block * kWeightBlock;
    if (weighed != block) kernels_.weigh_each(x, std::min<int64_t>(kWeightBlock, n_ - (x - x_)), *weighing_, weights);
    weighed = block;
    uint64_t sum = before;
    int j = 0;
    while (sum + weights[j] <= point) sum += weights[j++];
    values[i] = x[j];
  }
}

// Narrows the search to the bracket, or to what is above or below it. True if it ended at one value.
bool CutSearch::Narrow(const Bracket& bracket) {
  int64_t count_above = 0;
  const int64_t inside = kernels_.gather(x_, n_, bracket.low, bracket.high, memory_.indices.data(), &count_above);
  uint64_t mass_above = static_cast<uint64_t>(count_above);
  if (weighing_ != nullptr && count_above > 0) {
    const Weighing weighing = {weighing_->best, weighing_->scale, bracket.high};
    mass_above = kernels_.weigh(x_, n_, weighing, memory_.part_sums.data());
  }
  if (above_ + mass_above >= wanted_) {
    low_ = bracket.high;
    TakeUpInRow();
    return false;
  }
  above_ += mass_above;
  if (bracket.one_value() && inside > 0) {
    uint32_t each = 1;
    if (weighing_ != nullptr) kernels_.weigh_each(&bracket.low, 1, *weighing_, &each);
    if (above_ + each * static_cast<uint64_t>(inside) >= wanted_) {
      found_ties_ = inside;
      ties_ = (wanted_ - above_ + each - 1) / each;
      return true;
    }
    mass_ = each * static_cast<uint64_t>(inside);
  } else {
    TakeFrom(x_, inside);
    if (above_ + mass_ >= wanted_) {
      low_ = std::max(low_, bracket.low);
      high_ = std::min(high_, bracket.high);
      return false;
    }
  }
  above_ += mass_;
  high_ = bracket.low;
  TakeUpInRow();
  return false;
}

// x_ = the logits of x that `indices` names.
void CutSearch::TakeFrom(const float* x, int64_t count) {
  float* const values = memory_.values.data();
  // The indices ascend, so x may be `values` itself.
  for (int64_t i = 0; i < count; ++i) values[i] = x[memory_.indices[i]];
  x_ = values;
  n_ = count;
  mass_ = static_cast<uint64_t>(count);
  if (weighing_ != nullptr) WeighLogits();
}

// x_ = the logits in [low_, high_) once more from the row: a bracket was beside the cut.
void CutSearch::TakeUpInRow() {
  int64_t above = 0;
  TakeFrom(row_, kernels_.gather(row_, size_, low_, high_, memory_.indices.data(), &above));
}

void CutSearch::WeighLogits() {
  mass_ = kernels_.weigh(x_, n_, *weighing_, WithRoomFor(size_ / kWeightBlock + 1, &memory_.sums));
}

RankingCut CutSearch::Sort() const {
  float sorted[kSorted];
  const int64_t count = std::copy_if(x_, x_ + n_, sorted, [](float x) { return !std::isnan(x); }) - sorted;
  std::sort(sorted, sorted + count, std::greater<float>());
  uint32_t weights[kSorted];
  std::fill_n(weights, count, 1);
  if (weighing_ != nullptr) kernels_.weigh_each(sorted, count, *weighing_, weights);
  uint64_t reached = above_;
  for (int64_t i = 0; i < count; ++i) {
    reached += weights[i];
    if (reached < wanted_) continue;
    const auto [first, last] = std::equal_range(sorted, sorted + count, sorted[i], std::greater<float>());
    return CutAt(sorted[i], static_cast<uint64_t>(sorted + i - first) + 1, last - first);
  }
  return {};  // there are not as many
}

// The cut behind the first `ties` of the logits that equal `floor`, of which there are `found_ties`.
RankingCut CutSearch::CutAt(float floor, uint64_t ties, int64_t found_ties) const {
  if (ties >= static_cast<uint64_t>(found_ties)) return {.floor = floor};
  int64_t above = 0;
  kernels_.gather(row_, size_, floor, Above(floor), memory_.indices.data(), &above);
  return {floor, int64_t{memory_.indices[ties - 1]} + 1};
}

}  // namespace

RankingCut RankingCutter::First(const SamplingKernels& kernels, const float* x, int64_t n, int64_t count) {
  if (count >= n) return {};
  return CutSearch(kernels, x, n, &memory_).Run(static_cast<uint64_t>(count));
}

RankingCut RankingCutter::Heaviest(const SamplingKernels& kernels, const float* x, int64_t n, const Weighing& weighing,
                                   float share) {
  CutSearch search(kernels, x, n, &memory_);
  const uint64_t all = search.Weigh(weighing);
  const double wanted = static_cast<double>(all) * static_cast<double>(share);
  return search.Run(std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, all));
}

size_t RankingCutter::MaxBytes(int64_t n) {
  return (static_cast<size_t>(n) + kGatherSlack) * (sizeof(int32_t) + sizeof(float)) +
         (static_cast<size_t>(n / kWeightBlock) + 1) * 2 * sizeof(uint64_t);
}

}  // namespace stagecoach
