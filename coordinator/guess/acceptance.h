#ifndef STAGECOACH_COORDINATOR_GUESS_ACCEPTANCE_H_
#define STAGECOACH_COORDINATOR_GUESS_ACCEPTANCE_H_

// Estimates which share of one guesser's guesses is right for one request. Outcomes lose half their weight in `memory`
// later ones. Feed it every outcome that is known, also of a guess that was made and not sent: otherwise a guesser that
// was wrong for a while is never asked again. Pure; not thread-safe.

#include <algorithm>
#include <cmath>

namespace stagecoach {

class Acceptance {
 public:
  static constexpr double kMemory = 32;                 // guesses
  static constexpr double kPriorWeight = 4;             // guesses that the prior counts as; forgotten like them
  static constexpr double kLeast = 0.01, kMost = 0.99;  // of all estimates

  explicit Acceptance(double prior = 0.5, double memory = kMemory)
      : kept_(std::exp2(-1 / memory)), seen_(kPriorWeight), right_(kPriorWeight * Bounded(prior)), said_(right_) {}

  // One of kMemory that expects what this one has seen.
  Acceptance Heir() const {
    Acceptance heir(Rate());
    heir.right_ = kPriorWeight * right_ / seen_;
    heir.said_ = kPriorWeight * said_ / seen_;
    return heir;
  }

  void Observe(double confidence, bool right) {
    seen_ = seen_ * kept_ + 1;
    right_ = right_ * kept_ + (right ? 1 : 0);
    said_ = said_ * kept_ + Bounded(confidence);
  }

  double Rate() const { return Bounded(right_ / seen_); }  // of its guesses on average
  // A guess's probability to be right: its own confidence, corrected by how far those before it were off.
  double Calibrated(double confidence) const { return Bounded(Bounded(confidence) * right_ / said_); }

 private:
  static double Bounded(double share) { return std::clamp(share, kLeast, kMost); }

  double kept_;                 // of an outcome's weight by each later one
  double seen_, right_, said_;  // guesses, how many of them were right, how many their confidences promised
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_GUESS_ACCEPTANCE_H_
