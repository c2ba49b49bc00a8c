#ifndef STAGECOACH_COMMON_STEP_STEP_PART_H_
#define STAGECOACH_COMMON_STEP_STEP_PART_H_

// The account of a step in one stage: which part of the model its threads worked on, and what they read for it.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/base/value_range.h"

namespace stagecoach {

// What a thread works on. Parts up to kHead multiply matrices.
enum class StepPart : uint8_t {
  kQkv,              // q, k, v, and the gate of gated attention
  kLatent,           // all matrices of latent attention but the output's
  kAttentionOutput,  // also its addition to the residual stream, as of kDown and kDeltaNetOutput
  kDeltaNetIn,       // qkv, z, beta, alpha
  kDeltaNetOutput,
  kGateUp,  // of dense layers
  kDown,
  kRouter,
  kExpertsGateUp,  // of the active experts and the shared unit
  kExpertsDown,
  kHead,  // the logits, scaled and capped

  kAttention,    // over K and V
  kDeltaRule,    // with its norm and gate; its bytes are read and written
  kInput,        // norms and the inputs of matrices, quantised; norms behind a half of a layer
  kHeads,        // of q and k: norm and RoPE; storing K and V
  kConvolution,  // and the gates of the delta rule
  kActivation,   // of gate and up, and its product as the input of down
  kRouting,      // the choice of experts, from the router's logits
  kExpertsSum,   // the weighted sum of what the active experts give
  kSampling,     // logits to tokens and log-probabilities
  kOther,        // embedding, angles of RoPE, checksums
  kWaking,       // from the call of Gang::Run to a thread's first work
};
inline constexpr size_t kStepParts = static_cast<size_t>(StepPart::kWaking) + 1;

// As reports and step logs name them.
inline constexpr NamedValue<StepPart> kStepPartNames[] = {
    {StepPart::kQkv, "q, k, v"},
    {StepPart::kLatent, "latent q, k, v"},
    {StepPart::kAttentionOutput, "attention output"},
    {StepPart::kDeltaNetIn, "delta net in"},
    {StepPart::kDeltaNetOutput, "delta net output"},
    {StepPart::kGateUp, "gate, up"},
    {StepPart::kDown, "down"},
    {StepPart::kRouter, "router"},
    {StepPart::kExpertsGateUp, "experts gate, up"},
    {StepPart::kExpertsDown, "experts down"},
    {StepPart::kHead, "head"},
    {StepPart::kAttention, "attention"},
    {StepPart::kDeltaRule, "delta rule"},
    {StepPart::kInput, "norms, inputs"},
    {StepPart::kHeads, "RoPE, KV store"},
    {StepPart::kConvolution, "convolution"},
    {StepPart::kActivation, "activation"},
    {StepPart::kRouting, "routing"},
    {StepPart::kExpertsSum, "sum of experts"},
    {StepPart::kSampling, "sampling"},
    {StepPart::kOther, "embedding, angles"},
    {StepPart::kWaking, "waking threads"},
};
static_assert(std::size(kStepPartNames) == kStepParts);

// Times are means over the threads, so those of all parts add up to the time within Gang::Run.
struct StepPartTotals {
  int64_t busy_ns = 0;
  int64_t wait_ns = 0;  // at the barriers in the part and behind it, for threads that are still busy with it
  // Of all threads: weights in panels, K and V, recurrent states. What is read again while it is in a cache (the rows
  // of a long chunk come in tiles) counts once.
  int64_t bytes = 0;
  friend bool operator==(const StepPartTotals&, const StepPartTotals&) = default;
};
using StepAccount = std::vector<StepPartTotals>;  // [kStepParts], or empty: not kept
// Of any number of a step's account: up to 2.4 hours, or 8.8 terabytes. Sums over all parts of 20,000 steps fit.
inline constexpr IntegerRange kStepPartRange = {0, int64_t{1} << 43};

// Within Gang::Run.
inline int64_t GangNs(const StepAccount& account) {
  int64_t ns = 0;
  for (const StepPartTotals& part : account) ns += part.busy_ns + part.wait_ns;
  return ns;
}

}  // namespace stagecoach

#endif  // STAGECOACH_COMMON_STEP_STEP_PART_H_
