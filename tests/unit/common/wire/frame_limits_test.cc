// Every limit, violated once: the error names the field, what it is and what it should be. And the bounds on sizes that
// follow from the limits hold for the largest frames there are.

#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/step/sampling.h"
#include "common/wire/frame.h"
#include "common/wire/frame_layout.h"
#include "common/wire/step_messages.h"
#include "tests/testing/matchers.h"
#include "tests/unit/common/wire/frame_samples.h"

namespace stagecoach {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct BatchCase {
  std::function<void(MicroBatch*)> change;
  std::string field, expected;
};

void ExpectRefused(const absl::Status& status, const std::string& field, const std::string& expected) {
  EXPECT_THAT(status, testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("'" + field), HasSubstr("expected " + expected))))
      << field;
}

void ExpectEachRefused(const std::vector<BatchCase>& cases, const FrameLimits& limits = SmallLimits(),
                       const MicroBatch& sample = SampleBatch()) {
  for (const BatchCase& one : cases) {
    StepFrame frame = FrameWith(sample, false);
    one.change(&frame.batch);
    FrameBuffer buffer(2 << 20, 1 << 20);
    FrameLimits wide = limits;
    wide.max_rows = 1000;
    wide.max_slices = 100;
    ASSERT_TRUE(EncodeStep(wide, frame, &buffer).ok());
    ExpectRefused(DecodeStep(limits, buffer.message(), frame.batch.number, false).status(), one.field, one.expected);
  }
}

TEST(FrameLimits, HoldForFreesAndOpens) {
  ExpectEachRefused({
      {[](auto* b) { b->free.assign(2, 4); }, "step.free' is sequence 4 for the second time",
       "every sequence at most once"},
      {[](auto* b) { b->free.resize(21); }, "step.free' is 21 entries long", "at most 16 entries"},
      {[](auto* b) { b->open.push_back(b->open[0]); }, "step.open[1].sequence' is sequence 2", "every sequence"},
      {[](auto* b) { b->open.resize(5); }, "step.open' is 5 entries long", "at most 4 entries"},
      {[](auto* b) { b->open[0].prompt.clear(); }, "step.open[0]': prompt is empty", "at least one token"},
      {[](auto* b) { b->open[0].prompt.assign(64, 1); }, "step.open[0] prompt and output tokens' is 65", "1 to 64"},
      {[](auto* b) {
         b->open[0].prompt.assign(50, 1);
         b->open.push_back({3, std::vector<TokenId>(50, 1), {}, {}});
       },
       "step.open tokens in all' is 101", "0 to 96"},
      {[](auto* b) { b->open[0].prompt[1] = 100; }, "step.open[0]': prompt[1] is 100", "0 to 99"},
      {[](auto* b) { b->open[0].output[0] = -1; }, "step.open[0]': output[0] is -1", "0 to 99"},
      {[](auto* b) { b->shutdown = true; }, "step.shutdown", "set on a frame without opens and slices"},
  });
}

TEST(FrameLimits, HoldForGrammars) {
  const std::string at = "step.define_grammars";
  ASSERT_TRUE(DecodeStep(SmallLimits(), EncodedStep(SmallLimits(), WithGrammars(SampleBatch()), false), 7, false).ok());
  ExpectEachRefused(
      {
          {[](auto* b) { b->drop_grammars[1] = 3; }, "step.drop_grammars' is grammar 3 for the second time",
           "every grammar at most once"},
          {[](auto* b) { b->drop_grammars.resize(21); }, "step.drop_grammars' is 21 entries long",
           "at most 20 entries"},
          {[](auto* b) { b->define_grammars.resize(5); }, at + "' is 5 entries long", "at most 4 entries"},
          {[](auto* b) { b->define_grammars[1].id = 4; }, at + "[1].id' is grammar 4 for the second time",
           "every grammar at most once"},
          {[](auto* b) { b->define_grammars[0].id = kNoGrammar; }, at + "[0].id' is 0", "1 or more"},
          {[](auto* b) { b->define_grammars[1].program.clear(); }, at + "[1].program' is empty", "a compiled grammar"},
          {[](auto* b) { b->define_grammars[0].program.assign(kMaxDefinitionBytes - 1, 'x'); },
           at + " bytes of programs in all' is 1048577", "0 to 1048576"},
      },
      SmallLimits(), WithGrammars(SampleBatch()));
}

TEST(FrameLimits, HoldForSharedBlocks) {
  const auto open = [](std::function<void(OpenSequence*)> change) {
    return [change](MicroBatch* b) {
      b->open[0].prompt.assign(20, 1);
      b->open[0].shared_rows = 16;
      b->open[0].shared_blocks = {{0, 15}, {11, 1}};
      change(&b->open[0]);
    };
  };
  ExpectEachRefused({
      {open([](auto* o) { o->shared_rows = 24; }), "step.open[0].shared_rows' is 24", "0 to 20"},
      {open([](auto* o) { o->shared_rows = -8; }), "step.open[0].shared_rows' is -8", "0 to 20"},
      {open([](auto* o) { o->shared_rows = 12; }), "step.open[0].shared_rows' is 12",
       "a multiple of 8, the tokens of a block"},
      {open([](auto* o) { o->shared_rows = 0; }), "step.open[0].shared_blocks' is of 2 block groups",
       "0 (shared_rows 0, the model has 2)"},
      {open([](auto* o) { o->shared_blocks.pop_back(); }), "step.open[0].shared_blocks' is of 1 block groups",
       "2 (shared_rows 16, the model has 2)"},
      {open([](auto* o) { o->shared_blocks[1].push_back(3); }), "step.open[0].shared_blocks[1]' is 3 entries long",
       "2 entries (shared_rows 16)"},
      {open([](auto* o) { o->shared_blocks[1][0] = 12; }), "step.open[0].shared_blocks[1][0]' is 12", "0 to 11"},
      {open([](auto* o) { o->shared_blocks[0][1] = -1; }), "step.open[0].shared_blocks[0][1]' is -1", "0 to 15"},
      {open([](auto* o) { o->shared_blocks[1] = {1}; }), "step.open[0].shared_blocks[1]' is 1 entries long",
       "2 entries (shared_rows 16)"},
      {open([](auto* o) {
         o->prompt.assign(30, 1), o->shared_rows = 24, o->shared_blocks = {{0, 1, 2}, {1}};
       }),
       "step.open[0].shared_blocks[1]' is 1 entries long", "2 to 3 entries (shared_rows 24)"},
      {open([](auto* o) {
         o->prompt.assign(30, 1), o->shared_rows = 24, o->shared_blocks = {{1, 2}, {1, 2}};
       }),
       "step.open[0].shared_blocks[0]' is 2 entries long", "3 entries (shared_rows 24)"},
  });
}

TEST(FrameLimits, HoldForReleasedBlocks) {
  const auto slice = [](std::vector<int32_t> released) {
    return [released](MicroBatch* b) {
      b->slices[0].start = 30;
      b->slices[0].released_blocks = released;
    };
  };
  const std::string at = "step.slices[0]': released_blocks";
  ExpectEachRefused({
      {slice({1}), at + " has 1 entries", "none or 2, one a block group"},
      {slice({0, 3}), at + "[1] is 3", "0 to 2, of what the row at position 30 does not see, with a window of 10"},
      {slice({0, -1}), at + "[1] is -1", "0 to 2"},
      {slice({1, 2}), at + "[0] is 1", "0 to 0, of a block group without a window"},
  });
}

TEST(FrameLimits, HoldForSamplingParameters) {  // step_check_test.cc has all of them
  ExpectEachRefused({
      {[](auto* b) { b->open[0].sampling.temperature = kNan; }, "step.open[0]': sampling.temperature is nan",
       "0 to 100"},
      {[](auto* b) { b->open[0].sampling.logprobs = kMaxLogprobs + 1; }, "step.open[0]': sampling.logprobs is 129",
       "-1 to 128"},
      {[](auto* b) { b->open[0].sampling.prompt_logprobs = 4; }, "step.open[0].sampling.prompt_logprobs' is 4",
       "0 to 3"},
      {[](auto* b) { b->open[0].sampling.logit_bias[0].second = kInfinity; },
       "step.open[0]': sampling.logit_bias[0].bias is inf", "-1000000 to 1000000 or -inf"},
  });
}

TEST(FrameLimits, HoldForSlices) {
  const auto slice = [](std::function<void(SequenceSlice*)> change) {
    return [change](MicroBatch* b) { change(&b->slices[0]); };
  };
  const std::string at = "step.slices[0]";
  ExpectEachRefused({
      {[](auto* b) { b->slices[1].sequence = 1; }, "step.slices[1].sequence' is sequence 1",
       "every sequence at most once"},
      {[](auto* b) { b->slices.resize(5); }, "step.slices' is 5 entries long", "at most 4 entries"},
      {[](auto* b) {
         b->slices[0] = {1, 0, 32, std::vector<TokenId>(32, 1), {{0, 1, 2, 3}, {0, 1, 2, 3}}, false, {}};
       },
       "step.slices rows in all' is 33", "0 to 32"},
      {slice([](auto* s) { s->start = -1; }), at + ".start' is -1", "0 to 63"},
      {slice([](auto* s) { s->start = std::numeric_limits<int32_t>::max(); }), at + ".start' is 2147483647", "0 to 63"},
      {slice([](auto* s) { s->count = 0; }), at + ".count' is 0", "1 to 32"},
      {slice([](auto* s) { s->count = 33; }), at + ".count' is 33", "1 to 32"},
      {slice([](auto* s) { s->count = -5; }), at + ".count' is -5", "1 to 32"},
      {slice([](auto* s) { s->start = 62; }), at + " end (start + count)' is 65", "1 to 64"},
      {slice([](auto* s) { s->tokens.pop_back(); }), at + ".tokens' is 2 entries long", "3 entries (start 6, count 3)"},
      {slice([](auto* s) { s->tokens[2] = 100; }), at + ".tokens[2]' is 100", "0 to 99"},
      {slice([](auto* s) { s->tokens[0] = kNoToken; }), at + ".tokens[0]' is -1", "0 to 99"},
      {slice([](auto* s) { s->new_blocks.clear(); }), at + ".new_blocks' is of 0 block groups",
       "2 (start 6, count 3, the model has 2)"},
      {slice([](auto* s) { s->new_blocks.pop_back(); }), at + ".new_blocks' is of 1 block groups", "2"},
      {slice([](auto* s) { s->new_blocks.push_back({1}); }), at + ".new_blocks' is of 3 block groups", "2"},
      {slice([](auto* s) { s->start = 3, s->new_blocks.assign(2, {}); }), at + ".new_blocks' is of 2 block groups",
       "0 (start 3, count 3, the model has 2)"},
      {slice([](auto* s) { s->new_blocks[0].clear(); }), at + ".new_blocks[0]' is 0 entries long", "1 entries"},
      {slice([](auto* s) { s->new_blocks[1].push_back(1); }), at + ".new_blocks[1]' is 2 entries long", "1 entries"},
      {slice([](auto* s) { s->new_blocks[0][0] = 16; }), at + ".new_blocks[0][0]' is 16", "0 to 15"},
      {slice([](auto* s) { s->new_blocks[1][0] = 12; }), at + ".new_blocks[1][0]' is 12", "0 to 11"},
      {slice([](auto* s) { s->new_blocks[0][0] = -1; }), at + ".new_blocks[0][0]' is -1", "0 to 15"},
      {slice([](auto* s) { s->targets.pop_back(); }), at + ".targets' is 2 entries long", "3 entries"},
      {slice([](auto* s) { s->targets[1] = -2; }), at + ".targets[1]' is -2", "-1 to 99"},
      {slice([](auto* s) { s->targets[1] = 100; }), at + ".targets[1]' is 100", "-1 to 99"},
  });
}

TEST(FrameLimits, HoldForStates) {
  constexpr SlotId kLargest = std::numeric_limits<SlotId>::max() - 1, kSmallest = std::numeric_limits<SlotId>::min();
  const auto read = [](size_t slice, SlotId slot) {
    return [=](MicroBatch* b) { b->slices[slice].state_read = slot; };
  };
  const auto write = [](size_t slice, SlotId slot) {
    return [=](MicroBatch* b) { b->slices[slice].state_write = slot; };
  };
  ExpectEachRefused({{read(0, 0), "step.slices[0].state_read' is 0", "none: the model has no recurrent states"},
                     {write(1, 3), "step.slices[1].state_write' is 3", "none: the model has no recurrent states"}});
  const FrameLimits limits = StatefulLimits();
  ASSERT_TRUE(DecodeStep(limits, EncodedStep(limits, StatefulBatch(), false), 7, false).ok());
  ExpectEachRefused(
      {{read(0, 9), "step.slices[0].state_read' is 9", "0 to 8"},
       {read(0, kNoSlot), "step.slices[0].state_read' is -1", "0 to 8"},
       {read(0, -2), "step.slices[0].state_read' is -2", "0 to 8"},
       {read(0, kLargest), "step.slices[0].state_read' is 2147483646", "0 to 8"},
       {read(1, 5), "step.slices[1].state_read' is 5", "none: before its first row a sequence has a state of zeros"},
       {write(1, kNoSlot), "step.slices[1].state_write' is -1", "0 to 8"},
       {write(0, kLargest), "step.slices[0].state_write' is 2147483646", "0 to 8"},
       {write(0, kSmallest + 1), "step.slices[0].state_write' is -2147483647", "0 to 8"},
       {write(1, 2), "step.slices[1].state_write' is 2", "another one: step.slices[0] writes it"},
       {write(1, 8), "step.slices[0].state_read' is 8", "another one: step.slices[1] writes it"}},
      limits, StatefulBatch());
}

TEST(FrameLimits, HoldForGuesses) {
  const FrameLimits limits = GuessingLimits();
  ASSERT_TRUE(DecodeStep(limits, EncodedStep(limits, GuessingBatch(), false), 7, false).ok());
  const auto guess = [](std::function<void(SequenceSlice*)> change) {
    return [change](MicroBatch* b) { change(&b->slices[0]); };
  };
  const std::string at = "step.slices[0]";
  ExpectEachRefused(
      {
          {guess([](auto* s) { s->start = 0; }), at + ".start of a guess' is 0", "1 to 63"},
          {guess([](auto* s) {
             s->count = 2, s->tokens = {1, 2};
           }),
           at + ".count of a guess' is 2", "1"},
          {guess([](auto* s) { s->sample = false; }), at + ".sample of a guess' is not set", "set"},
          {guess([](auto* s) { s->targets = {5}; }), at + ".targets of a guess' is 1 entries long", "at most 0"},
          {guess([](auto* s) { s->tokens.clear(); }), at + ".tokens' is 0 entries long", "1 entries"},
          {guess([](auto* s) {
             s->tokens = {1, 2};
           }),
           at + ".tokens' is 2 entries long", "1 entries"},
          {guess([](auto* s) { s->tokens = {100}; }), at + ".tokens[0]' is 100", "0 to 99"},
          {guess([](auto* s) { s->new_blocks[1].clear(); }), at + ".new_blocks[1]' is 0 entries long", "1 entries"},
          {guess([](auto* s) { s->new_blocks[0].push_back(3); }), at + ".new_blocks[0]' is 2 entries", "1 entries"},
          {guess([](auto* s) { s->guess = false, s->sample = false, s->new_blocks.clear(); }),
           at + ".new_blocks' is of 0 block groups", "2 (start 24, count 1"},
          {[](auto* b) { b->slices[1].sequence = 1; }, "step.slices[1].sequence' is sequence 1", "every sequence"},
      },
      limits, GuessingBatch());
  ExpectEachRefused({{[](auto*) {}, at + ".guess' is set", "not set: the job has no guesses"},
                     {guess([](auto* s) { s->guess = false; }), "step.slices[1].new_blocks' is of 0 block groups",
                      "2 (start 16, count 1"}},
                    SmallLimits(), GuessingBatch());
}

// A header of a frame between stages, to be spoilt, and its payload's length.
struct HeaderCase {
  std::function<void(pb::FrameHeader*)> change;
  std::string field, expected;
  bool has_payload = true;
  size_t payload_bytes = 4 * 5 * 4;
};

pb::FrameHeader ParsedHeader(const std::vector<uint8_t>& bytes) {
  const auto parts = internal::SplitFrame(bytes, bytes.size());
  pb::FrameHeader header;
  EXPECT_TRUE(parts.ok() && header.ParseFromArray(parts->header.data(), static_cast<int>(parts->header.size())));
  return header;
}

TEST(FrameLimits, HoldForHeaderAndTensor) {
  const FrameLimits limits = SmallLimits();
  const std::vector<uint8_t> good = EncodedStep(limits, SampleBatch(), true);
  const std::vector<HeaderCase> cases = {
      {[](auto* h) { h->set_protocol_version(1); }, "protocol_version' is 1", absl::StrCat(kProtocolVersion)},
      {[](auto* h) { h->set_run_id(5); }, "run_id' is 5", "81985529216486895"},
      {[](auto* h) { h->set_epoch(2); }, "epoch' is 2", "1"},
      {[](auto* h) { h->set_sequence_number(8); }, "sequence_number' is 8", "7"},
      {[](auto* h) { h->mutable_result(); }, "body' is field 11", "field 10 (step)"},
      {[](auto* h) { h->clear_body(); }, "body' is field 0", "field 10 (step)"},
      {[](auto* h) { h->clear_times(); }, "times entries' is 0", "1 to 2"},
      {[](auto* h) { h->add_times()->set_stage(1), h->add_times()->set_stage(2); }, "times entries' is 3", "1 to 2"},
      {[](auto* h) { h->mutable_times(0)->set_stage(1); }, "times[0].stage' is 1", "0"},
      {[](auto* h) { h->clear_tensor(); }, "tensor' is absent", "present on this hop"},
      {[](auto* h) { h->mutable_tensor()->set_data_type(pb::DATA_TYPE_BF16); }, "tensor.data_type' is 2", "1 (f32)"},
      {[](auto* h) { h->mutable_tensor()->add_shape(1); }, "tensor.shape' is 3 dimensions", "2 dimensions"},
      {[](auto* h) { h->mutable_tensor()->set_shape(0, 5); }, "tensor.shape' is [5, 5]", "[4, 5]"},
      {[](auto* h) { h->mutable_tensor()->set_shape(1, 1ull << 62); }, "tensor.shape' is [4, 46116", "[4, 5]"},
      {[](auto* h) { h->mutable_tensor()->set_payload_bytes(79); }, "tensor.payload_bytes' is 79", "80"},
      {[](auto*) {}, "payload' is 79 bytes long", "80 bytes", true, 79},
      {[](auto*) {}, "payload' is absent", "80 bytes long", false, 0},
      {[](auto* h) { h->mutable_step()->mutable_slices(0)->add_tokens(1); }, "step.slices[0].tokens' is 1 entries",
       "0 entries"},
  };
  for (const HeaderCase& one : cases) {
    pb::FrameHeader header = ParsedHeader(good);
    one.change(&header);
    FrameBuffer buffer = StepBuffer(limits);
    ASSERT_TRUE(internal::WriteFrame(header, 1 << 20, one.has_payload, one.payload_bytes, &buffer).ok());
    ExpectRefused(DecodeStep(limits, buffer.message(), 7, true).status(), one.field, one.expected);
  }
}

TEST(FrameLimits, RefuseAGuessWithoutItsTokenBetweenStages) {
  const FrameLimits limits = GuessingLimits();
  pb::FrameHeader header = ParsedHeader(EncodedStep(limits, GuessingBatch(), true));
  header.mutable_step()->mutable_slices(0)->clear_tokens();
  FrameBuffer buffer = StepBuffer(limits);
  ASSERT_TRUE(internal::WriteFrame(header, 1 << 20, true, 2 * 5 * 4, &buffer).ok());
  ExpectRefused(DecodeStep(limits, buffer.message(), 7, true).status(), "step.slices[0].tokens' is 0 entries",
                "1 entries");
}

TEST(FrameLimits, RefuseAVoidResultThatSaysMoreThanItsPosition) {
  const FrameLimits limits = GuessingLimits();
  FrameBuffer buffer(1 << 20, 0);
  ASSERT_TRUE(EncodeResult(limits, SampleResult(limits), &buffer).ok());
  const pb::FrameHeader good = ParsedHeader(Bytes(buffer));
  const int last = good.result().sampled_size() - 1;
  ASSERT_TRUE(good.result().sampled(last).is_void());
  const std::string at = absl::StrCat("result.sampled[", last, "]");
  const auto refused = [&](void (*change)(pb::SampledToken*), const std::string& field, const std::string& expected,
                           const FrameLimits& by) {
    pb::FrameHeader header = good;
    change(header.mutable_result()->mutable_sampled(last));
    ASSERT_TRUE(internal::WriteFrame(header, 1 << 20, false, 0, &buffer).ok());
    ExpectRefused(DecodeResult(by, buffer.message(), 7).status(), field, expected);
  };
  for (void (*change)(pb::SampledToken*) : std::initializer_list<void (*)(pb::SampledToken*)>{
           [](auto* t) { t->set_token(5); }, [](auto* t) { t->set_logprob(-1.f); },
           [](auto* t) { t->set_logprob(kNan); }, [](auto* t) { t->add_top()->set_token(5); },
           [](auto* t) { t->set_invalid_logits(true); }, [](auto* t) { t->set_grammar_exhausted(true); }}) {
    refused(change, at + "' is void and has", "nothing beside sequence and position", limits);
  }
  refused([](auto* t) { t->set_position(65); }, at + ".position' is 65", "1 to 64", limits);
  refused([](auto* t) { t->set_is_void(false), t->set_token(-1); }, at + ".token' is -1", "0 to 99", limits);
  refused([](auto*) {}, at + ".is_void' is set", "not set: the job has no guesses", SmallLimits());
}

TEST(FrameLimits, RefuseATensorWhereNoneIsExpected) {
  const FrameLimits limits = SmallLimits();
  pb::FrameHeader header = ParsedHeader(EncodedStep(limits, SampleBatch(), false));
  FrameBuffer buffer = StepBuffer(limits);
  ASSERT_TRUE(internal::WriteFrame(header, 1 << 20, true, 8, &buffer).ok());
  ExpectRefused(DecodeStep(limits, buffer.message(), 7, false).status(), "payload' is present", "absent on this hop");
  header.mutable_tensor();
  ASSERT_TRUE(internal::WriteFrame(header, 1 << 20, false, 0, &buffer).ok());
  ExpectRefused(DecodeStep(limits, buffer.message(), 7, false).status(), "tensor' is present", "absent on this hop");
  header.clear_tensor();
  header.add_times();
  ASSERT_TRUE(internal::WriteFrame(header, 1 << 20, false, 0, &buffer).ok());
  ExpectRefused(DecodeStep(limits, buffer.message(), 7, false).status(), "times entries' is 1", "0 to 0");
}

struct ResultCase {
  std::function<void(StepResult*)> change;
  std::string field, expected;
};

TEST(FrameLimits, HoldForResults) {
  const FrameLimits limits = SmallLimits();
  const std::vector<ResultCase> cases = {
      {[](auto* r) { r->number = 8; }, "sequence_number' is 8", "7"},
      {[](auto* r) { r->times.pop_back(); }, "times entries' is 2", "3 to 3"},
      {[](auto* r) { std::swap(r->times[0], r->times[1]); }, "times[0].stage' is 1", "0"},
      {[](auto* r) { r->times[1].received_us = -1; }, "times[1]' is received -1", "none below 0"},
      {[](auto* r) { r->times[0].start_us = 5; }, "times[0]' is received 1700000000000000, start 5",
       "none below 0, and none of the first three below"},
      {[](auto* r) { r->times[2].end_us = std::numeric_limits<int64_t>::min(); }, "times[2]' is received",
       "none below 0"},
      {[](auto* r) { r->times[2].send_us = -1; }, "times[2]' is received", "none below 0"},
      {[](auto* r) { r->times[2].send_start_us = -1; }, "times[2]' is received", "none below 0"},
      {[](auto* r) { r->times[2].send_start_us = std::numeric_limits<int64_t>::max(); }, "times[2]' is received",
       "none below 0, and none of the first three below the one before it; the send over before the start"},
      {[](auto* r) { r->times[1].send_us = std::numeric_limits<int64_t>::max(); }, "times[1]' is received",
       "none below 0, and none of the first three below the one before it; the send over before the start"},
      {[](auto* r) { r->sampled[1].sequence = 2; }, "result.sampled[1].sequence' is sequence 2", "every sequence"},
      {[](auto* r) { r->sampled.resize(5); }, "result.sampled' is 5 entries long", "at most 4"},
      {[](auto* r) { r->sampled[0].position = 0; }, "result.sampled[0].position' is 0", "1 to 64"},
      {[](auto* r) { r->sampled[1].position = 65; }, "result.sampled[1].position' is 65", "1 to 64"},
      {[](auto* r) { r->sampled[0].token = 100; }, "result.sampled[0].token' is 100", "0 to 99"},
      {[](auto* r) { r->sampled[0].token = -1; }, "result.sampled[0].token' is -1", "0 to 99"},
      {[](auto* r) { r->sampled[0].top.resize(129); }, "result.sampled[0].top' is 129 entries", "at most 128"},
      {[](auto* r) { r->sampled[0].top[1].token = 100; }, "result.sampled[0].top token' is 100", "0 to 99"},
      {[](auto* r) { r->targets.resize(5); }, "result.targets' is 5 entries long", "at most 4"},
      {[](auto* r) { r->targets.push_back(r->targets[0]); }, "result.targets[1].sequence' is sequence 1",
       "every sequence"},
      {[](auto* r) { r->targets[0].start = -1; }, "result.targets[0].start' is -1", "0 to 63"},
      {[](auto* r) { r->targets[0].logprobs.clear(); }, "result.targets[0].logprobs' is empty", "at least one"},
      {[](auto* r) { r->targets[0].start = 62; }, "result.targets[0] end (start + logprobs)' is 65", "1 to 64"},
      {[](auto* r) { r->targets[0].logprobs.resize(33), r->targets[0].top.clear(); },
       "result.targets rows in all' is 33", "0 to 32"},
      {[](auto* r) { r->targets[0].top.resize(12); }, "result.targets[0].top' is 12 entries long", "at most 9"},
      {[](auto* r) { r->targets[0].top.pop_back(); }, "result.targets[0].top' is 5 entries long", "a multiple of 3"},
      {[](auto* r) { r->targets[0].top[1].token = 100; }, "result.targets[0].top token' is 100", "-1 to 99"},
  };
  for (const ResultCase& one : cases) {
    StepResult result = SampleResult(limits);
    one.change(&result);
    FrameLimits wide = limits;
    wide.max_slices = 100;
    FrameBuffer buffer(1 << 20, 0);
    ASSERT_TRUE(EncodeResult(wide, result, &buffer).ok());
    ExpectRefused(DecodeResult(limits, buffer.message(), 7).status(), one.field, one.expected);
  }
}

FrameLimits WideLimits() {
  FrameLimits limits = SmallLimits();
  limits.vocab = std::numeric_limits<int32_t>::max();
  limits.context = std::numeric_limits<int32_t>::max();
  limits.group_blocks = {std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::max()};
  limits.max_open_tokens = 1000;
  limits.max_prompt_logprobs = kMaxPromptLogprobs;
  return limits;
}

TEST(FrameLimits, LeaveRoomForTheLargestStep) {
  FrameLimits limits = WideLimits();
  constexpr int32_t kLarge = std::numeric_limits<int32_t>::max() - 64;
  MicroBatch batch;
  batch.number = ~0ull;
  for (uint64_t i = 0; i < 200; ++i) batch.free.push_back(~i);
  for (int64_t i = 0; i < limits.MaxGrammars(); ++i) batch.drop_grammars.push_back(~0ull - static_cast<uint64_t>(i));
  for (uint64_t i = 0; i < 4; ++i) {
    SamplingParams sampling{1.5f, kLarge, 0.5f, 0.5f, 1.5f, 1.5f, 1.5f, -1, ~0ull, -1, 20, {}, kLarge, {}};
    sampling.logit_bias.assign(kMaxLogitBias, {kLarge, 1.f});
    sampling.end_tokens.assign(kMaxEndTokens, kLarge);
    const std::vector<BlockId> shared(31, kLarge);
    batch.define_grammars.push_back({~i, std::string(kMaxDefinitionBytes / 4, 'x')});
    batch.open.push_back(
        {~i, std::vector<TokenId>(125, kLarge), std::vector<TokenId>(125, kLarge), sampling, {shared, shared}, 31 * 8});
    batch.open.back().grammar = ~i;
    batch.slices.push_back({~i,
                            kLarge - 3,
                            8,
                            std::vector<TokenId>(8, kLarge),
                            {{kLarge, kLarge}, {kLarge, kLarge}},
                            true,
                            std::vector<TokenId>(8, kNoToken),
                            {kLarge, kLarge}});
  }
  for (const int32_t slots : {0, kLarge + 1}) {
    limits.state_slots = slots;
    limits.most_guesses = slots == 0 ? 0 : 3;
    for (SequenceSlice& slice : batch.slices) {
      slice.state_read = slice.state_write = slots == 0 ? kNoSlot : kLarge;
      slice.guess = slots != 0;
    }
    // As many frees as blocks would not fit a test: their share of the bound is taken out.
    const size_t spare_frees = static_cast<size_t>(limits.MaxFrees() - 200) * 10;
    FrameBuffer buffer(2 << 20, limits.MaxStepPayloadBytes());
    StepFrame frame;
    frame.batch = batch;
    frame.times = SampleTimes(3);
    ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
    EXPECT_LE(buffer.message().size(), limits.MaxStepHeaderBytes() - spare_frees);
    const size_t programs = static_cast<size_t>(kMaxDefinitionBytes);
    EXPECT_GT((buffer.message().size() - programs) * 5 / 4, limits.MaxStepHeaderBytes() - spare_frees - programs)
        << "the bound is far from what frames reach";
  }
}

TEST(FrameLimits, CountWhatAStageHoldsOfFrames) {
  FrameLimits limits = SmallLimits();
  const size_t rows = static_cast<size_t>(limits.max_rows) * static_cast<size_t>(limits.hidden);
  limits.wire_type = WireType::kF32;
  EXPECT_EQ(limits.HiddenOutsideBytes(false), 0u) << "computed in the frame that leaves";
  EXPECT_EQ(limits.HiddenOutsideBytes(true), rows * 4);
  const size_t rare = static_cast<size_t>(limits.max_slices) * (kMaxLogitBias * 13 + kMaxEndTokens * 5) +
                      static_cast<size_t>(kMaxDefinitionBytes);
  EXPECT_EQ(limits.StageFrameBytes(false, 3), 8 * (limits.MaxStepFrameBytes() - rare));
  EXPECT_EQ(limits.StageFrameBytes(true, 1),
            2 * (limits.MaxStepFrameBytes() - rare + limits.MaxResultFrameBytes()) + rows * 4);
  limits.wire_type = WireType::kBF16;
  EXPECT_EQ(limits.StageFrameBytes(false, 3), 8 * (limits.MaxStepFrameBytes() - rare) + rows * 4);
}

TEST(FrameLimits, LeaveRoomForTheLargestResult) {
  FrameLimits limits = WideLimits();
  constexpr int32_t kLarge = std::numeric_limits<int32_t>::max() - 64;
  StepResult result;
  result.number = ~0ull;
  for (uint64_t i = 0; i < 4; ++i) {
    result.sampled.push_back(
        {~i, kLarge, kLarge, -1.f, std::vector<TokenLogprob>(kMaxLogprobs, {kLarge, -1.f}), true, true});
    result.targets.push_back({~i, kLarge, std::vector<float>(8, -1.f), true});
    result.targets.back().top.assign(8 * kMaxPromptLogprobs, {kNoToken, -1.f});
  }
  result.times = SampleTimes(3);
  size_t without_account = 0;
  for (const bool account : {false, true}) {
    limits.step_account = account;
    for (StageTimes& times : result.times) times.account.assign(account ? kStepParts : 0, {1, kStepPartRange.max, 0});
    FrameBuffer buffer(limits.MaxResultFrameBytes(), 0);
    ASSERT_TRUE(EncodeResult(limits, result, &buffer).ok());
    EXPECT_TRUE(DecodeResult(limits, buffer.message(), ~0ull).ok());
    const size_t bytes = buffer.message().size(), most = limits.MaxResultFrameBytes();
    EXPECT_LE(bytes, most);
    EXPECT_GT(bytes * 5 / 4, most) << "the bound is far from what frames reach";
    if (!account) without_account = most - bytes;
    EXPECT_LE(most - bytes, without_account + 3 * 16) << "of an account's numbers every byte is used";
  }
}

TEST(StepMessages, MostProbableTokensWithoutAsManyNumbersAreNone) {
  pb::TargetLogprobs scores;
  for (int i = 0; i < 6; ++i) scores.add_top_tokens(i);
  for (int i = 0; i < 6; ++i) scores.add_top_logprobs(-1.f);
  EXPECT_EQ(FromProto(scores).top.size(), 6u);
  scores.add_top_tokens(6);
  EXPECT_TRUE(FromProto(scores).top.empty());
  scores.add_top_logprobs(-1.f);
  scores.add_top_logprobs(-1.f);
  EXPECT_TRUE(FromProto(scores).top.empty());
}

TEST(FrameLimits, LeaveRoomForMostProbableTokensOfPromptsWhereAJobHasThem) {
  FrameLimits with = WideLimits(), without = with;
  without.max_prompt_logprobs = 0;
  const auto rows = static_cast<size_t>(with.max_rows);
  EXPECT_NEAR(with.MaxResultFrameBytes(), without.MaxResultFrameBytes() + rows * kMaxPromptLogprobs * 8, 8);
  EXPECT_EQ(with.MaxStepFrameBytes(), without.MaxStepFrameBytes());
  EXPECT_EQ(with.StageFrameBytes(false, 3), without.StageFrameBytes(false, 3));
}

}  // namespace
}  // namespace stagecoach
