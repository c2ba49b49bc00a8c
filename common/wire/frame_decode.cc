#include <limits>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/step/step.h"
#include "common/wire/frame.h"
#include "common/wire/frame_layout.h"
#include "common/wire/job_proto.h"
#include "common/wire/step_messages.h"

namespace stagecoach {
namespace {

using internal::CheckBody;
using internal::CheckNoTensor;
using internal::FieldError;
using internal::OpenedFrame;
using internal::OpenFrame;

absl::Status CheckTensor(const FrameLimits& limits, const OpenedFrame& frame, int32_t rows) {
  if (!frame.header.has_tensor()) return FieldError("tensor", "absent", "present on this hop");
  const pb::TensorDescription& tensor = frame.header.tensor();
  const pb::DataType type = limits.wire_type == WireType::kF32 ? pb::DATA_TYPE_F32 : pb::DATA_TYPE_BF16;
  if (tensor.data_type() != type) {
    return FieldError("tensor.data_type", static_cast<int>(tensor.data_type()),
                      absl::StrCat(static_cast<int>(type), " (", WireTypeName(limits.wire_type), ")"));
  }
  if (tensor.shape_size() != 2) {
    return FieldError("tensor.shape", absl::StrCat(tensor.shape_size(), " dimensions"), "2 dimensions");
  }
  const uint64_t hidden = static_cast<uint64_t>(limits.hidden);
  if (tensor.shape(0) != static_cast<uint64_t>(rows) || tensor.shape(1) != hidden) {
    return FieldError("tensor.shape", absl::StrCat("[", tensor.shape(0), ", ", tensor.shape(1), "]"),
                      absl::StrCat("[", rows, ", ", hidden, "] (rows of the slices, hidden width)"));
  }
  const uint64_t payload_bytes = static_cast<uint64_t>(rows) * hidden * WireTypeBytes(limits.wire_type);
  if (tensor.payload_bytes() != payload_bytes) {
    return FieldError("tensor.payload_bytes", tensor.payload_bytes(), payload_bytes);
  }
  if (!frame.parts.has_payload) return FieldError("payload", "absent", absl::StrCat(payload_bytes, " bytes long"));
  if (frame.parts.payload.size() != payload_bytes) {
    return FieldError("payload", absl::StrCat(frame.parts.payload.size(), " bytes long"),
                      absl::StrCat(payload_bytes, " bytes"));
  }
  return absl::OkStatus();
}

// A field is named in two parts, `at` and `field`, which are put together only for an error.

absl::Status CheckRange(absl::string_view at, absl::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return FieldError(absl::StrCat(at, field), value, absl::StrCat(least, " to ", most));
}

absl::Status CheckEntries(absl::string_view at, absl::string_view field, const std::vector<int32_t>& values,
                          int64_t least, int64_t most) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= least && values[i] <= most) continue;
    return CheckRange(absl::StrCat(at, field), absl::StrCat("[", i, "]"), values[i], least, most);
  }
  return absl::OkStatus();
}

absl::Status CheckAtMost(absl::string_view at, absl::string_view field, size_t entries, int64_t most) {
  if (static_cast<int64_t>(entries) <= most) return absl::OkStatus();
  return FieldError(absl::StrCat(at, field), absl::StrCat(entries, " entries long"),
                    absl::StrCat("at most ", most, " entries"));
}

// Refuses a sequence, or what else the noun says, that was seen before in the same list.
class Once {
 public:
  explicit Once(absl::string_view noun = "sequence") : noun_(noun) {}
  absl::Status Add(absl::string_view at, absl::string_view field, uint64_t id) {
    if (seen_.insert(id).second) return absl::OkStatus();
    return FieldError(absl::StrCat(at, field), absl::StrCat(noun_, " ", id, " for the second time"),
                      absl::StrCat("every ", noun_, " at most once"));
  }

 private:
  const absl::string_view noun_;
  absl::flat_hash_set<uint64_t> seen_;
};

// Which grammars are there, and what their programs say, the last stage knows.
absl::Status CheckGrammars(const FrameLimits& limits, const MicroBatch& batch) {
  RETURN_IF_ERROR(CheckAtMost("", "step.drop_grammars", batch.drop_grammars.size(), limits.MaxGrammars()));
  Once dropped("grammar"), defined("grammar");
  for (const GrammarId grammar : batch.drop_grammars) RETURN_IF_ERROR(dropped.Add("", "step.drop_grammars", grammar));
  RETURN_IF_ERROR(CheckAtMost("", "step.define_grammars", batch.define_grammars.size(), limits.max_slices));
  int64_t bytes = 0;
  for (size_t i = 0; i < batch.define_grammars.size(); ++i) {
    const GrammarDefinition& definition = batch.define_grammars[i];
    const auto at = [i] { return absl::StrCat("step.define_grammars[", i, "]"); };
    if (definition.id == kNoGrammar) return FieldError(at() + ".id", definition.id, "1 or more");
    RETURN_IF_ERROR(defined.Add(at(), ".id", definition.id));
    if (definition.program.empty()) return FieldError(at() + ".program", "empty", "a compiled grammar");
    bytes += static_cast<int64_t>(definition.program.size());
  }
  return CheckRange("", "step.define_grammars bytes of programs in all", bytes, 0, kMaxDefinitionBytes);
}

// Whether the blocks are full, and who has them, the stages know.
absl::Status CheckShared(const FrameLimits& limits, const std::string& at, const OpenSequence& open, int64_t tokens) {
  RETURN_IF_ERROR(CheckRange(at, ".shared_rows", open.shared_rows, 0, tokens - 1));
  if (open.shared_rows % limits.block_tokens != 0) {
    return FieldError(absl::StrCat(at, ".shared_rows"), open.shared_rows,
                      absl::StrCat("a multiple of ", limits.block_tokens, ", the tokens of a block"));
  }
  const size_t groups = open.shared_rows > 0 ? limits.group_blocks.size() : 0;
  if (open.shared_blocks.size() != groups) {
    return FieldError(
        absl::StrCat(at, ".shared_blocks"), absl::StrCat("of ", open.shared_blocks.size(), " block groups"),
        absl::StrCat(groups, " (shared_rows ", open.shared_rows, ", the model has ", limits.group_blocks.size(), ")"));
  }
  const int64_t blocks = open.shared_rows / limits.block_tokens;
  for (size_t group = 0; group < groups; ++group) {
    const std::string list = absl::StrCat(".shared_blocks[", group, "]");
    const auto entries = static_cast<int64_t>(open.shared_blocks[group].size());
    const int64_t least =
        blocks - FirstPlaceSeen(open.shared_rows, WindowOf(limits.group_windows, group), limits.block_tokens);
    if (entries < least || entries > blocks) {
      return FieldError(absl::StrCat(at, list), absl::StrCat(entries, " entries long"),
                        absl::StrCat(least < blocks ? absl::StrCat(least, " to ") : "", blocks,
                                     " entries (shared_rows ", open.shared_rows, ")"));
    }
    RETURN_IF_ERROR(CheckEntries(at, list, open.shared_blocks[group], 0, limits.group_blocks[group] - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckOpens(const FrameLimits& limits, const std::vector<OpenSequence>& opens) {
  RETURN_IF_ERROR(CheckAtMost("", "step.open", opens.size(), limits.max_slices));
  Once once;
  int64_t tokens = 0;
  for (size_t i = 0; i < opens.size(); ++i) {
    const OpenSequence& open = opens[i];
    const std::string at = absl::StrCat("step.open[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", open.sequence));
    const int64_t sequence_tokens = static_cast<int64_t>(open.prompt.size() + open.output.size());
    if (absl::Status status = CheckOpenSequence(open, limits.vocab); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("frame field '", at, "': ", status.message()));
    }
    RETURN_IF_ERROR(
        CheckRange(at, ".sampling.prompt_logprobs", open.sampling.prompt_logprobs, 0, limits.max_prompt_logprobs));
    RETURN_IF_ERROR(CheckRange(at, " prompt and output tokens", sequence_tokens, 1, limits.context));
    RETURN_IF_ERROR(CheckShared(limits, at, open, sequence_tokens));
    tokens += sequence_tokens;
    RETURN_IF_ERROR(CheckRange("", "step.open tokens in all", tokens, 0, limits.max_open_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view at, absl::string_view field, size_t found, int64_t expected,
                        const SequenceSlice& slice) {
  if (static_cast<int64_t>(found) == expected) return absl::OkStatus();
  return FieldError(absl::StrCat(at, field), absl::StrCat(found, " entries long"),
                    absl::StrCat(expected, " entries (start ", slice.start, ", count ", slice.count, ")"));
}

// With guesses, a row that goes back over some may find the blocks of later rows in its table: that the stages know.
absl::Status CheckNewBlocks(const FrameLimits& limits, const std::string& at, const SequenceSlice& slice) {
  if (limits.most_guesses > 0 && slice.count == 1 && slice.sample && slice.new_blocks.empty()) return absl::OkStatus();
  const int64_t blocks = limits.BlocksFor(int64_t{slice.start} + slice.count) - limits.BlocksFor(slice.start);
  const size_t groups = blocks > 0 ? limits.group_blocks.size() : 0;
  if (slice.new_blocks.size() != groups) {
    return FieldError(absl::StrCat(at, ".new_blocks"), absl::StrCat("of ", slice.new_blocks.size(), " block groups"),
                      absl::StrCat(groups, " (start ", slice.start, ", count ", slice.count, ", the model has ",
                                   limits.group_blocks.size(), ")"));
  }
  for (size_t group = 0; group < groups; ++group) {
    const std::string list = absl::StrCat(".new_blocks[", group, "]");
    RETURN_IF_ERROR(CheckCount(at, list, slice.new_blocks[group].size(), blocks, slice));
    RETURN_IF_ERROR(CheckEntries(at, list, slice.new_blocks[group], 0, limits.group_blocks[group] - 1));
  }
  return absl::OkStatus();
}

// Which rows a slot holds, the stages know.
absl::Status CheckState(const FrameLimits& limits, const std::string& at, const SequenceSlice& slice) {
  const bool continues = limits.state_slots > 0 && slice.start > 0;
  const int64_t last = limits.state_slots - 1;
  const auto check = [&](absl::string_view field, SlotId slot, bool named) {
    if (named) return CheckRange(at, field, slot, 0, last);
    if (slot == kNoSlot) return absl::OkStatus();
    return FieldError(absl::StrCat(at, field), slot,
                      limits.state_slots == 0 ? "none: the model has no recurrent states"
                                              : "none: before its first row a sequence has a state of zeros");
  };
  RETURN_IF_ERROR(check(".state_read", slice.state_read, continues));
  return check(".state_write", slice.state_write, limits.state_slots > 0);
}

// What else makes a guess, the stages know.
absl::Status CheckGuess(const FrameLimits& limits, const std::string& at, const SequenceSlice& slice) {
  if (!slice.guess) return absl::OkStatus();
  if (limits.most_guesses == 0) return FieldError(absl::StrCat(at, ".guess"), "set", "not set: the job has no guesses");
  RETURN_IF_ERROR(CheckRange(at, ".start of a guess", slice.start, 1, limits.context - 1));
  if (slice.count != 1) return FieldError(absl::StrCat(at, ".count of a guess"), slice.count, 1);
  if (!slice.sample) return FieldError(absl::StrCat(at, ".sample of a guess"), "not set", "set");
  return CheckAtMost(at, ".targets of a guess", slice.targets.size(), 0);
}

absl::Status CheckSlice(const FrameLimits& limits, const std::string& at, const SequenceSlice& slice, bool has_hidden) {
  RETURN_IF_ERROR(CheckRange(at, ".start", slice.start, 0, limits.context - 1));
  RETURN_IF_ERROR(CheckRange(at, ".count", slice.count, 1, limits.max_rows));
  const int64_t end = int64_t{slice.start} + slice.count;
  RETURN_IF_ERROR(CheckRange(at, " end (start + count)", end, 1, limits.context));
  RETURN_IF_ERROR(CheckGuess(limits, at, slice));
  const bool has_tokens = !has_hidden || slice.guess;
  RETURN_IF_ERROR(CheckCount(at, ".tokens", slice.tokens.size(), has_tokens ? slice.count : 0, slice));
  RETURN_IF_ERROR(CheckEntries(at, ".tokens", slice.tokens, 0, limits.vocab - 1));
  RETURN_IF_ERROR(CheckNewBlocks(limits, at, slice));
  if (absl::Status status =
          CheckReleasedBlocks(slice, limits.group_blocks.size(), limits.group_windows, limits.block_tokens);
      !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("frame field '", at, "': ", status.message()));
  }
  RETURN_IF_ERROR(CheckState(limits, at, slice));
  if (slice.targets.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCount(at, ".targets", slice.targets.size(), slice.count, slice));
  return CheckEntries(at, ".targets", slice.targets, kNoToken, limits.vocab - 1);
}

// A slot that a slice writes is named by no other: the slices of a micro-batch are computed in any order.
absl::Status CheckStatesApart(const std::vector<SequenceSlice>& slices) {
  absl::flat_hash_map<SlotId, size_t> writers;
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto [writer, is_new] = writers.try_emplace(slices[i].state_write, i);
    if (is_new) continue;
    return FieldError(absl::StrCat("step.slices[", i, "].state_write"), slices[i].state_write,
                      absl::StrCat("another one: step.slices[", writer->second, "] writes it"));
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto writer = writers.find(slices[i].state_read);
    if (slices[i].state_read == kNoSlot || writer == writers.end() || writer->second == i) continue;
    return FieldError(absl::StrCat("step.slices[", i, "].state_read"), slices[i].state_read,
                      absl::StrCat("another one: step.slices[", writer->second, "] writes it"));
  }
  return absl::OkStatus();
}

absl::Status CheckSlices(const FrameLimits& limits, const std::vector<SequenceSlice>& slices, bool has_hidden) {
  RETURN_IF_ERROR(CheckAtMost("", "step.slices", slices.size(), limits.max_slices));
  Once once;
  int64_t rows = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const std::string at = absl::StrCat("step.slices[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", slices[i].sequence));
    RETURN_IF_ERROR(CheckSlice(limits, at, slices[i], has_hidden));
    rows += slices[i].count;
    RETURN_IF_ERROR(CheckRange("", "step.slices rows in all", rows, 0, limits.max_rows));
  }
  return limits.state_slots > 0 ? CheckStatesApart(slices) : absl::OkStatus();
}

// Whether the row was a guess, who sent it knows.
absl::Status CheckVoid(const FrameLimits& limits, const std::string& at, const SampledToken& token) {
  if (limits.most_guesses == 0)
    return FieldError(absl::StrCat(at, ".is_void"), "set", "not set: the job has no guesses");
  const SampledToken expected = {.sequence = token.sequence, .position = token.position, .is_void = true};
  if (token == expected) return absl::OkStatus();
  return FieldError(at, "void and has a token, a log-probability or an error", "nothing beside sequence and position");
}

absl::Status CheckSampled(const FrameLimits& limits, const std::vector<SampledToken>& tokens) {
  RETURN_IF_ERROR(CheckAtMost("", "result.sampled", tokens.size(), limits.max_slices));
  Once once;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string at = absl::StrCat("result.sampled[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", tokens[i].sequence));
    RETURN_IF_ERROR(CheckRange(at, ".position", tokens[i].position, 1, limits.context));
    if (tokens[i].is_void) {
      RETURN_IF_ERROR(CheckVoid(limits, at, tokens[i]));
      continue;
    }
    RETURN_IF_ERROR(CheckRange(at, ".token", tokens[i].token, 0, limits.vocab - 1));
    RETURN_IF_ERROR(CheckAtMost(at, ".top", tokens[i].top.size(), kMaxLogprobs));
    for (const TokenLogprob& top : tokens[i].top) {
      RETURN_IF_ERROR(CheckRange(at, ".top token", top.token, 0, limits.vocab - 1));
    }
  }
  return absl::OkStatus();
}

// How many of a row were asked for, who asked knows.
absl::Status CheckTops(const FrameLimits& limits, const std::string& at, const TargetLogprobs& targets) {
  const auto rows = static_cast<int64_t>(targets.logprobs.size());
  RETURN_IF_ERROR(CheckAtMost(at, ".top", targets.top.size(), rows * limits.max_prompt_logprobs));
  if (static_cast<int64_t>(targets.top.size()) % rows != 0) {
    return FieldError(absl::StrCat(at, ".top"), absl::StrCat(targets.top.size(), " entries long"),
                      absl::StrCat("a multiple of ", rows, ", the rows"));
  }
  for (const TokenLogprob& top : targets.top) {
    RETURN_IF_ERROR(CheckRange(at, ".top token", top.token, kNoToken, limits.vocab - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckMicroBatch(const FrameLimits& limits, const MicroBatch& batch, bool has_hidden) {
  RETURN_IF_ERROR(CheckAtMost("", "step.free", batch.free.size(), limits.MaxFrees()));
  Once once;
  for (const SequenceId sequence : batch.free) RETURN_IF_ERROR(once.Add("", "step.free", sequence));
  RETURN_IF_ERROR(CheckGrammars(limits, batch));
  RETURN_IF_ERROR(CheckOpens(limits, batch.open));
  RETURN_IF_ERROR(CheckSlices(limits, batch.slices, has_hidden));
  if (batch.shutdown && !(batch.open.empty() && batch.slices.empty())) {
    return FieldError("step.shutdown", "set on a frame with work", "set on a frame without opens and slices");
  }
  return absl::OkStatus();
}

// Whole rows of at most the model's layers, none where the job asks for none. The receiver knows how many exactly.
absl::Status CheckChecksums(const FrameLimits& limits, size_t entries, int32_t rows) {
  RETURN_IF_ERROR(CheckAtMost("", "layer_checksums", entries, int64_t{limits.checksum_layers} * rows));
  if (rows == 0 || entries % static_cast<size_t>(rows) == 0) return absl::OkStatus();
  return FieldError("layer_checksums", absl::StrCat(entries, " entries long"),
                    absl::StrCat("a multiple of ", rows, ", the rows of the slices"));
}

// An account of every stage where the job asks for it, and none elsewhere; before any is used.
absl::Status CheckAccounts(const FrameLimits& limits, const pb::FrameHeader& header) {
  const int expected = limits.step_account ? 3 * static_cast<int>(kStepParts) : 0;
  for (int i = 0; i < header.times_size(); ++i) {
    const pb::StageTimes& times = header.times(i);
    const auto name = [i] { return absl::StrCat("times[", i, "].account"); };
    if (times.account_size() != expected) {
      return FieldError(name(), absl::StrCat(times.account_size(), " entries long"),
                        absl::StrCat(expected, " entries, three for each part of a step"));
    }
    for (const int64_t number : times.account()) {
      if (!Contains(kStepPartRange, number)) {
        return CheckRange(name(), "", number, kStepPartRange.min, kStepPartRange.max);
      }
    }
  }
  return absl::OkStatus();
}

// The stages 0, 1, ... in order: from `least` to `most` of them, none of which ends before it begins.
absl::Status CheckTimes(const std::vector<StageTimes>& times, size_t least, size_t most) {
  RETURN_IF_ERROR(CheckRange("", "times entries", static_cast<int64_t>(times.size()), static_cast<int64_t>(least),
                             static_cast<int64_t>(most)));
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].stage != static_cast<int32_t>(i)) {
      return FieldError(absl::StrCat("times[", i, "].stage"), times[i].stage, i);
    }
    // One clock took them, in this order, and it never goes back.
    const StageTimes& t = times[i];
    if (t.received_us < 0 || t.start_us < t.received_us || t.end_us < t.start_us || t.send_us < 0 ||
        t.send_start_us < 0 || t.send_us > t.start_us - t.send_start_us) {
      return FieldError(
          absl::StrCat("times[", i, "]"),
          absl::StrCat("received ", t.received_us, ", start ", t.start_us, ", end ", t.end_us, ", send ", t.send_us,
                       " from ", t.send_start_us),
          "none below 0, and none of the first three below the one before it; the send over before the start");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckResult(const FrameLimits& limits, const StepResult& result) {
  RETURN_IF_ERROR(CheckSampled(limits, result.sampled));
  RETURN_IF_ERROR(CheckAtMost("", "result.targets", result.targets.size(), limits.max_slices));
  Once once;
  int64_t rows = 0;
  for (size_t i = 0; i < result.targets.size(); ++i) {
    const TargetLogprobs& targets = result.targets[i];
    const std::string at = absl::StrCat("result.targets[", i, "]");
    RETURN_IF_ERROR(once.Add(at, ".sequence", targets.sequence));
    RETURN_IF_ERROR(CheckRange(at, ".start", targets.start, 0, limits.context - 1));
    if (targets.logprobs.empty()) return FieldError(absl::StrCat(at, ".logprobs"), "empty", "at least one");
    RETURN_IF_ERROR(CheckRange(at, " end (start + logprobs)",
                               targets.start + static_cast<int64_t>(targets.logprobs.size()), 1, limits.context));
    RETURN_IF_ERROR(CheckTops(limits, at, targets));
    rows += static_cast<int64_t>(targets.logprobs.size());
    RETURN_IF_ERROR(CheckRange("", "result.targets rows in all", rows, 0, limits.max_rows));
  }
  RETURN_IF_ERROR(CheckAtMost("", "layer_checksums", result.layer_checksums.size(),
                              int64_t{limits.checksum_layers} * limits.max_rows));
  return CheckTimes(result.times, static_cast<size_t>(limits.stages), static_cast<size_t>(limits.stages));
}

template <typename T>
std::vector<T> Get(const google::protobuf::RepeatedField<T>& values) {
  return std::vector<T>(values.begin(), values.end());
}

// Slots travel one higher. Of what is no slot anything may come but one.
SlotId GetSlot(int32_t value) { return value == std::numeric_limits<int32_t>::min() ? value : value - 1; }

SequenceSlice Get(const pb::SequenceSlice& in) {
  SequenceSlice slice;
  slice.sequence = in.sequence();
  slice.start = in.start();
  slice.count = in.count();
  slice.tokens = Get(in.tokens());
  slice.new_blocks.reserve(static_cast<size_t>(in.new_blocks_size()));
  for (const pb::BlockList& list : in.new_blocks()) slice.new_blocks.push_back(Get(list.blocks()));
  slice.sample = in.sample();
  slice.targets = Get(in.targets());
  slice.released_blocks = Get(in.released_blocks());
  slice.state_read = GetSlot(in.state_read());
  slice.state_write = GetSlot(in.state_write());
  slice.guess = in.guess();
  return slice;
}

MicroBatch Get(uint64_t number, const pb::StepHeader& in) {
  MicroBatch batch;
  batch.number = number;
  batch.free.assign(in.free().begin(), in.free().end());
  batch.drop_grammars.assign(in.drop_grammars().begin(), in.drop_grammars().end());
  for (const pb::GrammarDefinition& definition : in.define_grammars()) {
    batch.define_grammars.push_back({definition.id(), definition.program()});
  }
  for (const pb::OpenSequence& open : in.open()) {
    OpenSequence& entry = batch.open.emplace_back();
    entry = {open.sequence(), Get(open.prompt()), Get(open.output()), FromProto(open.sampling())};
    entry.shared_blocks.reserve(static_cast<size_t>(open.shared_blocks_size()));
    for (const pb::BlockList& list : open.shared_blocks()) entry.shared_blocks.push_back(Get(list.blocks()));
    entry.shared_rows = open.shared_rows();
    entry.grammar = open.grammar();
  }
  for (const pb::SequenceSlice& slice : in.slices()) batch.slices.push_back(Get(slice));
  batch.shutdown = in.shutdown();
  return batch;
}

std::vector<StageTimes> GetTimes(const pb::FrameHeader& in) {
  std::vector<StageTimes> times;
  for (const pb::StageTimes& entry : in.times()) {
    times.push_back(
        {entry.stage(), entry.received_us(), entry.start_us(), entry.end_us(), entry.send_us(), entry.send_start_us()});
    for (int i = 0; i < entry.account_size(); i += 3) {
      times.back().account.push_back({entry.account(i), entry.account(i + 1), entry.account(i + 2)});
    }
  }
  return times;
}

StepResult Get(uint64_t number, const pb::StepResult& in) {
  StepResult result;
  result.number = number;
  for (const pb::SampledToken& token : in.sampled()) result.sampled.push_back(FromProto(token));
  for (const pb::TargetLogprobs& targets : in.targets()) result.targets.push_back(FromProto(targets));
  return result;
}

}  // namespace

absl::StatusOr<StepFrame> DecodeStep(const FrameLimits& limits, absl::Span<const uint8_t> bytes,
                                     uint64_t expected_number, bool expect_hidden) {
  ASSIGN_OR_RETURN(const OpenedFrame opened,
                   OpenFrame(limits.job, expected_number, bytes, limits.MaxStepHeaderBytes()));
  RETURN_IF_ERROR(CheckBody(opened.header, pb::FrameHeader::kStep, "step"));
  StepFrame frame;
  frame.batch = Get(expected_number, opened.header.step());
  RETURN_IF_ERROR(CheckAccounts(limits, opened.header));
  frame.times = GetTimes(opened.header);
  frame.layer_checksums = Get(opened.header.layer_checksums());
  RETURN_IF_ERROR(CheckMicroBatch(limits, frame.batch, expect_hidden));
  // The coordinator's frames come from no stage; those of a stage have passed it and those before, not the last.
  const size_t most = limits.stages > 0 ? static_cast<size_t>(limits.stages - 1) : 0;
  RETURN_IF_ERROR(CheckTimes(frame.times, expect_hidden ? 1 : 0, expect_hidden ? most : 0));
  RETURN_IF_ERROR(CheckChecksums(limits, frame.layer_checksums.size(), frame.batch.rows()));
  if (expect_hidden) {
    RETURN_IF_ERROR(CheckTensor(limits, opened, frame.batch.rows()));
    frame.has_hidden = true;
    frame.hidden = opened.parts.payload;
  } else {
    RETURN_IF_ERROR(CheckNoTensor(opened));
  }
  return frame;
}

absl::StatusOr<StepResult> DecodeResult(const FrameLimits& limits, absl::Span<const uint8_t> bytes,
                                        uint64_t expected_number) {
  ASSIGN_OR_RETURN(const OpenedFrame opened,
                   OpenFrame(limits.job, expected_number, bytes, limits.MaxResultFrameBytes()));
  RETURN_IF_ERROR(CheckBody(opened.header, pb::FrameHeader::kResult, "result"));
  RETURN_IF_ERROR(CheckNoTensor(opened));
  StepResult result = Get(expected_number, opened.header.result());
  RETURN_IF_ERROR(CheckAccounts(limits, opened.header));
  result.times = GetTimes(opened.header);
  result.layer_checksums = Get(opened.header.layer_checksums());
  RETURN_IF_ERROR(CheckResult(limits, result));
  return result;
}

absl::StatusOr<ControlBody> DecodeControl(const JobEpoch& job, absl::Span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const OpenedFrame opened, OpenFrame(job, 0, bytes, kMaxSetupFrameBytes));
  RETURN_IF_ERROR(CheckNoTensor(opened));
  switch (opened.header.body_case()) {
    case pb::FrameHeader::kHello: return opened.header.hello();
    case pb::FrameHeader::kAssignment: {
      const pb::StageAssignment& assignment = opened.header.assignment();
      RETURN_IF_ERROR(FromProto(assignment.kv_type()).status());
      RETURN_IF_ERROR(FromProto(assignment.wire_type()).status());
      RETURN_IF_ERROR(FromProto(assignment.weights()).status());
      RETURN_IF_ERROR(FromProto(assignment.isa()).status());
      return assignment;
    }
    case pb::FrameHeader::kReady: return opened.header.ready();
    case pb::FrameHeader::kFailure: return opened.header.failure();
    case pb::FrameHeader::kHeartbeat: return opened.header.heartbeat();
    case pb::FrameHeader::kProbeOrder: return opened.header.probe_order();
    case pb::FrameHeader::kProbeAnswer: return opened.header.probe_answer();
    default:
      return FieldError("body", absl::StrCat("field ", static_cast<int>(opened.header.body_case())),
                        "hello, assignment, ready, failure, heartbeat or what a probe sends");
  }
}

absl::StatusOr<PingFrame> DecodePing(absl::Span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const OpenedFrame opened, OpenFrame({}, 0, bytes, kMaxPingHeaderBytes));
  RETURN_IF_ERROR(CheckBody(opened.header, pb::FrameHeader::kProbePing, "ping"));
  if (opened.header.has_tensor() != opened.parts.has_payload) {
    return FieldError("payload", opened.parts.has_payload ? "present" : "absent",
                      "present where a tensor is described");
  }
  if (opened.parts.has_payload && opened.parts.payload.size() != kPingPayloadBytes) {
    return FieldError("payload", absl::StrCat(opened.parts.payload.size(), " bytes long"),
                      absl::StrCat(kPingPayloadBytes, " bytes"));
  }
  return PingFrame{opened.header.probe_ping(), opened.parts.has_payload};
}

}  // namespace stagecoach
