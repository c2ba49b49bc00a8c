#include "common/wire/frame.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/wire/frame_buffer.h"
#include "proto/frame.pb.h"
#include "tests/testing/matchers.h"
#include "tests/testing/paths.h"
#include "tests/unit/common/wire/frame_samples.h"

namespace stagecoach {
namespace {

TEST(Frame, GivesBackEveryStepItCarries) {
  std::mt19937_64 random(1);
  for (const WireType type : {WireType::kF32, WireType::kBF16}) {
    FrameLimits limits = SmallLimits();
    limits.wire_type = type;
    FrameBuffer buffer = StepBuffer(limits);
    for (int i = 0; i < 500; ++i) {
      const StepFrame frame = FrameWith(RandomBatch(limits, &random), i % 2 == 1, 1 + i % (limits.stages - 1));
      ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
      const auto decoded = DecodeStep(limits, buffer.message(), frame.batch.number, frame.has_hidden).value();
      EXPECT_EQ(decoded.batch, frame.has_hidden ? WithoutTokens(frame.batch) : frame.batch);
      EXPECT_EQ(decoded.times, frame.times);
      EXPECT_EQ(decoded.has_hidden, frame.has_hidden);
      if (!frame.has_hidden) continue;
      EXPECT_EQ(decoded.hidden.data(), buffer.payload());
      EXPECT_EQ(decoded.hidden.size(), frame.batch.rows() * limits.hidden * WireTypeBytes(type));
    }
  }
}

TEST(Frame, GivesBackTheSlotsOfStates) {
  std::mt19937_64 random(2);
  const FrameLimits limits = StatefulLimits();
  FrameBuffer buffer = StepBuffer(limits);
  for (int i = 0; i < 500; ++i) {
    const StepFrame frame = FrameWith(RandomBatch(limits, &random), i % 2 == 1);
    ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
    const auto decoded = DecodeStep(limits, buffer.message(), frame.batch.number, frame.has_hidden);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->batch, frame.has_hidden ? WithoutTokens(frame.batch) : frame.batch);
  }
}

// What a model without states sends is what it sent before there were any.
TEST(Frame, WithoutSlotsTakesNoByteForThem) {
  const FrameLimits limits = StatefulLimits();
  EXPECT_EQ(EncodedStep(limits, SampleBatch(), false), EncodedStep(SmallLimits(), SampleBatch(), false));
  EXPECT_NE(EncodedStep(limits, StatefulBatch(), false), EncodedStep(limits, SampleBatch(), false));
}

TEST(Frame, CarriesTheTokensOfGuessesOnEveryHop) {
  std::mt19937_64 random(3);
  for (const FrameLimits& alone : {SmallLimits(), StatefulLimits()}) {
    FrameLimits limits = alone;
    limits.most_guesses = 3;
    FrameBuffer buffer = StepBuffer(limits);
    for (int i = 0; i < 250; ++i) {
      const StepFrame frame = FrameWith(RandomBatch(limits, &random), i % 2 == 1);
      ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
      const auto decoded = DecodeStep(limits, buffer.message(), frame.batch.number, frame.has_hidden);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(decoded->batch, frame.has_hidden ? WithoutTokens(frame.batch) : frame.batch);
    }
  }
}

// What a job sends that has none is what it sent before there were any.
TEST(Frame, WithoutGuessesTakesNoByteForThem) {
  const FrameLimits limits = GuessingLimits();
  EXPECT_EQ(EncodedStep(limits, SampleBatch(), true), EncodedStep(SmallLimits(), SampleBatch(), true));
  const StepResult result = SampleResult(SmallLimits());
  FrameBuffer with(limits.MaxResultFrameBytes(), 0), without(SmallLimits().MaxResultFrameBytes(), 0);
  ASSERT_TRUE(EncodeResult(limits, result, &with).ok() && EncodeResult(SmallLimits(), result, &without).ok());
  EXPECT_EQ(Bytes(with), Bytes(without));
}

TEST(Frame, CarriesChecksumsOfLayersWhereTheJobAsksForThem) {
  FrameLimits limits = SmallLimits();
  limits.checksum_layers = 7;
  StepFrame frame = FrameWith(WithoutTokens(SampleBatch()), true);
  const auto rows = static_cast<size_t>(frame.batch.rows());
  for (size_t i = 0; i < 3 * rows; ++i) frame.layer_checksums.push_back(0x80000000u + static_cast<uint32_t>(i));
  FrameBuffer buffer = StepBuffer(limits);
  ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
  const auto step = DecodeStep(limits, buffer.message(), frame.batch.number, true).value();
  EXPECT_EQ(step.layer_checksums, frame.layer_checksums);
  StepResult result = SampleResult(limits);
  result.layer_checksums.assign(7 * static_cast<size_t>(limits.max_rows), 0xffffffffu);
  FrameBuffer result_buffer(limits.MaxResultFrameBytes(), 0);
  ASSERT_TRUE(EncodeResult(limits, result, &result_buffer).ok());
  const auto decoded = DecodeResult(limits, result_buffer.message(), result.number).value();
  EXPECT_EQ(decoded.layer_checksums, result.layer_checksums);
}

TEST(Frame, RefusesChecksumsThatNobodyAskedForAndMoreThanThereAreLayers) {
  FrameLimits wide = SmallLimits();
  wide.checksum_layers = 100;
  StepFrame frame = FrameWith(WithoutTokens(SampleBatch()), true);
  const auto rows = static_cast<size_t>(frame.batch.rows());
  ASSERT_GT(rows, 1u);
  for (const auto& [layers, entries, expected] :
       {std::tuple<int32_t, size_t, const char*>(0, rows, "at most 0 entries"),
        {2, 3 * rows, "at most"},
        {3, 2 * rows + 1, "a multiple of"}}) {
    FrameLimits limits = SmallLimits();
    limits.checksum_layers = layers;
    frame.layer_checksums.assign(entries, 1);
    FrameBuffer buffer = StepBuffer(wide);
    ASSERT_TRUE(EncodeStep(wide, frame, &buffer).ok());
    EXPECT_THAT(DecodeStep(limits, buffer.message(), frame.batch.number, true).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::AllOf(HasSubstr("'layer_checksums' is"), HasSubstr(expected))));
  }
  const FrameLimits limits = SmallLimits();
  StepResult result = SampleResult(limits);
  result.layer_checksums = {1};
  FrameBuffer buffer(wide.MaxResultFrameBytes(), 0);
  ASSERT_TRUE(EncodeResult(wide, result, &buffer).ok());
  EXPECT_THAT(DecodeResult(limits, buffer.message(), result.number).status().message(), HasSubstr("layer_checksums"));
}

StepAccount SampleAccount() {
  StepAccount account(kStepParts);
  for (size_t part = 0; part < kStepParts; ++part) {
    const auto n = static_cast<int64_t>(part);
    account[part] = {n + 1, kStepPartRange.max - n, 1000 * n};
  }
  return account;
}

TEST(Frame, CarriesAccountsOfStepsWhereTheJobAsksForThem) {
  FrameLimits limits = SmallLimits();
  limits.step_account = true;
  StepFrame frame = FrameWith(WithoutTokens(SampleBatch()), true, 2);
  for (StageTimes& times : frame.times) times.account = SampleAccount();
  frame.times[1].account[3].busy_ns = 0;
  FrameBuffer buffer = StepBuffer(limits);
  ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
  EXPECT_EQ(DecodeStep(limits, buffer.message(), frame.batch.number, true).value().times, frame.times);
  StepResult result = SampleResult(limits);
  for (StageTimes& times : result.times) times.account = SampleAccount();
  FrameBuffer result_buffer(limits.MaxResultFrameBytes(), 0);
  ASSERT_TRUE(EncodeResult(limits, result, &result_buffer).ok());
  EXPECT_EQ(DecodeResult(limits, result_buffer.message(), result.number).value().times, result.times);
}

TEST(Frame, RefusesAccountsThatNobodyAskedForAndThoseThatAreNotWholeOrAreNoTimes) {
  FrameLimits accounted = SmallLimits();
  accounted.step_account = true;
  const auto with = [](StepAccount second) {
    StepFrame frame = FrameWith(WithoutTokens(SampleBatch()), true, 2);
    frame.times[0].account = SampleAccount();
    frame.times[1].account = std::move(second);
    return frame;
  };
  StepAccount short_one = SampleAccount(), long_one = SampleAccount(), negative = SampleAccount(),
              huge = SampleAccount();
  short_one.pop_back();
  long_one.push_back({});
  negative[2].wait_ns = -1;
  huge[5].bytes = kStepPartRange.max + 1;
  const std::string whole = absl::StrCat("expected ", 3 * kStepParts, " entries");
  for (const auto& [account, expected] : {std::pair(short_one, whole),
                                          {long_one, whole},
                                          {StepAccount(), whole},
                                          {negative, std::string("times[1].account' is -1")},
                                          {huge, absl::StrCat("times[1].account' is ", kStepPartRange.max + 1)}}) {
    const StepFrame frame = with(account);
    FrameLimits wide = accounted;
    wide.stages += 3;
    FrameBuffer buffer = StepBuffer(wide);
    ASSERT_TRUE(EncodeStep(wide, frame, &buffer).ok());
    EXPECT_THAT(DecodeStep(accounted, buffer.message(), frame.batch.number, true).status(),
                testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                  ::testing::AllOf(HasSubstr("times[1].account"), HasSubstr(expected))));
  }
  const StepFrame frame = with(SampleAccount());
  FrameBuffer buffer = StepBuffer(accounted);
  ASSERT_TRUE(EncodeStep(accounted, frame, &buffer).ok());
  EXPECT_THAT(DecodeStep(SmallLimits(), buffer.message(), frame.batch.number, true).status().message(),
              HasSubstr("expected 0 entries"));
}

TEST(Frame, IsAMessageThatAnyProtobufLibraryReads) {
  std::mt19937_64 random(2);
  const FrameLimits limits = SmallLimits();
  FrameBuffer buffer = StepBuffer(limits);
  for (int i = 0; i < 200; ++i) {
    const StepFrame frame = FrameWith(RandomBatch(limits, &random), i % 2 == 1);
    ASSERT_TRUE(EncodeStep(limits, frame, &buffer).ok());
    pb::Frame parsed;
    ASSERT_TRUE(parsed.ParseFromArray(buffer.message().data(), static_cast<int>(buffer.message().size())));
    EXPECT_EQ(parsed.header_crc32c(),
              Crc32c({reinterpret_cast<const uint8_t*>(parsed.header().data()), parsed.header().size()}));
    pb::FrameHeader header;
    ASSERT_TRUE(header.ParseFromString(parsed.header()));
    EXPECT_EQ(header.sequence_number(), frame.batch.number);
    EXPECT_EQ(header.step().slices_size(), static_cast<int>(frame.batch.slices.size()));
    const size_t payload_bytes = frame.has_hidden ? frame.batch.rows() * limits.hidden * sizeof(float) : 0;
    EXPECT_EQ(header.tensor().payload_bytes(), payload_bytes);
    ASSERT_EQ(parsed.payload().size(), payload_bytes);
    EXPECT_EQ(std::memcmp(parsed.payload().data(), buffer.payload(), payload_bytes), 0);
    // What protobuf itself would write is what stands in the buffer, byte for byte.
    if (!parsed.padding().empty() && payload_bytes > 0) {
      EXPECT_EQ(parsed.SerializeAsString(), std::string(buffer.message().begin(), buffer.message().end()));
    }
  }
}

TEST(Frame, PayloadStartsAtAMultipleOf64Bytes) {
  std::mt19937_64 random(3);
  const FrameLimits limits = SmallLimits();
  FrameBuffer buffer = StepBuffer(limits);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(EncodeStep(limits, FrameWith(RandomBatch(limits, &random), true), &buffer).ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.message().data()) % 64, 0u);
    EXPECT_EQ((buffer.payload() - buffer.message().data()) % 64, 0);
    EXPECT_LE(buffer.message().size(), limits.MaxStepFrameBytes());
  }
}

TEST(Frame, WithoutRowsStillSaysThatItsTensorIsEmpty) {
  const FrameLimits limits = SmallLimits();
  FrameBuffer buffer = StepBuffer(limits);
  MicroBatch batch;
  batch.number = 3;
  batch.shutdown = true;
  ASSERT_TRUE(EncodeStep(limits, FrameWith(batch, true, 2), &buffer).ok());
  const auto decoded = DecodeStep(limits, buffer.message(), 3, true).value();
  EXPECT_TRUE(decoded.batch.shutdown);
  EXPECT_TRUE(decoded.has_hidden);
  EXPECT_TRUE(decoded.hidden.empty());
  EXPECT_FALSE(DecodeStep(limits, buffer.message(), 3, false).ok());
}

TEST(Frame, GivesBackEveryResultItCarries) {
  for (const FrameLimits& limits : {SmallLimits(), GuessingLimits()}) {
    FrameBuffer buffer(limits.MaxResultFrameBytes(), 0);
    const StepResult result = SampleResult(limits);
    ASSERT_TRUE(EncodeResult(limits, result, &buffer).ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.message().data()) % 64, 0u);
    EXPECT_EQ(DecodeResult(limits, buffer.message(), result.number).value(), result);
  }
}

template <typename Message>
void ExpectControlRoundTrip(const JobEpoch& job, const Message& message) {
  FrameBuffer buffer(kMaxSetupFrameBytes, 0);
  ASSERT_TRUE(EncodeControl(job, message, &buffer).ok());
  const auto decoded = DecodeControl(job, buffer.message()).value();
  ASSERT_TRUE(std::holds_alternative<Message>(decoded));
  EXPECT_EQ(std::get<Message>(decoded).SerializeAsString(), message.SerializeAsString());
}

TEST(Frame, GivesBackEveryControlMessageItCarries) {
  pb::Hello hello;
  hello.set_host("one");
  hello.set_role(pb::Hello::ROLE_STAGE);
  ExpectControlRoundTrip({}, hello);
  pb::StageAssignment assignment;
  assignment.set_model_path("model.gguf");
  assignment.add_cpus(3);
  assignment.set_kv_type(pb::KV_TYPE_Q8_0);
  assignment.set_wire_type(pb::WIRE_TYPE_BF16);
  assignment.set_isa(pb::INSTRUCTION_SET_AVX2);
  ExpectControlRoundTrip({}, assignment);
  pb::StageReady ready;
  ready.set_weight_bytes(1ull << 40);
  ExpectControlRoundTrip({77, 1}, ready);
  pb::StageFailure failure;
  failure.set_message("no memory");
  ExpectControlRoundTrip({77, 1}, failure);
  pb::Heartbeat heartbeat;
  heartbeat.set_layers_done(12);
  ExpectControlRoundTrip({77, 1}, heartbeat);
  pb::ProbeOrder order;
  order.set_number(3);
  order.mutable_speed()->mutable_threads()->add_cpus(1);
  ExpectControlRoundTrip({}, order);
  pb::ProbeAnswer answer;
  answer.mutable_host()->set_memory_bytes(1ull << 40);
  ExpectControlRoundTrip({}, answer);
}

TEST(Frame, GivesBackAPingWithAndWithoutItsPayload) {
  pb::ProbePing ping;
  ping.set_number(0xffffffff);
  ping.set_wants_answer(true);
  ping.set_at_us(-1);
  for (const bool with_payload : {false, true}) {
    FrameBuffer buffer(kMaxPingHeaderBytes, kPingPayloadBytes);
    ASSERT_TRUE(EncodePing(ping, with_payload, &buffer).ok());
    EXPECT_LE(buffer.message().size(), with_payload ? kMaxPingFrameBytes : kMaxPingHeaderBytes);
    const auto decoded = DecodePing(buffer.message()).value();
    EXPECT_EQ(decoded.has_payload, with_payload);
    EXPECT_EQ(decoded.ping.SerializeAsString(), ping.SerializeAsString());
    // Cut anywhere it is none, and no other frame is one.
    for (size_t length = 0; length < std::min<size_t>(buffer.message().size(), 300); ++length) {
      EXPECT_FALSE(DecodePing(buffer.message().subspan(0, length)).ok());
    }
    EXPECT_FALSE(DecodePing(buffer.message().subspan(0, buffer.message().size() - 1)).ok());
    EXPECT_FALSE(DecodeControl({}, buffer.message()).ok());
  }
  FrameBuffer other(kMaxSetupFrameBytes, 0);
  ASSERT_TRUE(EncodeControl({}, pb::Heartbeat(), &other).ok());
  EXPECT_THAT(DecodePing(other.message()).status().message(), HasSubstr("ping"));
}

TEST(Frame, OfAnotherRunOrOfAnEarlierArrangementOfItsStagesIsRefused) {
  FrameBuffer buffer(kMaxSetupFrameBytes, 0);
  ASSERT_TRUE(EncodeControl({77, 1}, pb::Heartbeat(), &buffer).ok());
  EXPECT_TRUE(DecodeControl({77, 1}, buffer.message()).ok());
  EXPECT_THAT(DecodeControl({78, 1}, buffer.message()).status().message(), HasSubstr("'run_id' is 77, expected 78"));
  EXPECT_THAT(DecodeControl({77, 2}, buffer.message()).status().message(), HasSubstr("'epoch' is 1, expected 2"));
}

TEST(Frame, IsNotWrittenWhenItsHeaderIsTooLong) {
  FrameBuffer buffer(kMaxSetupFrameBytes, 0);
  pb::StageFailure failure;
  failure.set_message(std::string(kMaxTelemetryFrameBytes, 'x'));
  EXPECT_THAT(EncodeControl({1, 1}, failure, &buffer),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected at most 16384")));
  EXPECT_TRUE(buffer.message().empty());
}

TEST(Frame, IsNotWrittenWhenItHasMoreRowsThanAMicroBatchMay) {
  const FrameLimits limits = SmallLimits();
  FrameBuffer buffer = StepBuffer(limits);
  StepFrame frame = FrameWith(SampleBatch(), true);
  frame.batch.slices[0].count = limits.max_rows + 1;
  EXPECT_EQ(EncodeStep(limits, frame, &buffer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(buffer.message().empty());
}

TEST(Frame, IsNotWrittenWhenTheBufferIsTooSmall) {
  const FrameLimits limits = SmallLimits();
  FrameBuffer no_header(64, limits.MaxStepPayloadBytes());
  EXPECT_EQ(EncodeStep(limits, FrameWith(SampleBatch(), false), &no_header).code(), absl::StatusCode::kInvalidArgument);
  FrameBuffer no_payload(limits.MaxStepHeaderBytes(), 8);
  const absl::Status status = EncodeStep(limits, FrameWith(SampleBatch(), true), &no_payload);
  EXPECT_THAT(status.message(), HasSubstr("'payload' is 80 bytes long, expected at most 8"));
}

TEST(FramePool, UsesABufferAgainOnceItsLastReferenceIsGone) {
  FramePool pool(100, 200);
  std::shared_ptr<FrameBuffer> first = pool.Acquire();
  EXPECT_GE(first->header_capacity(), 100u);
  EXPECT_EQ(first->payload_capacity(), 200u);
  const FrameBuffer* address = first.get();
  std::shared_ptr<const FrameBuffer> second_reference = first;
  first.reset();
  const std::shared_ptr<FrameBuffer> other = pool.Acquire();
  EXPECT_NE(other.get(), address);
  second_reference.reset();
  EXPECT_EQ(pool.Acquire().get(), address);
  EXPECT_EQ(pool.buffers_made(), 2u);
}

uint32_t BitwiseCrc32c(const std::vector<uint8_t>& bytes) {
  uint32_t crc = 0xffffffff;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

TEST(Crc32c, GivesTheValuesOfRfc3720) {
  const std::string digits = "123456789";
  EXPECT_EQ(Crc32c({reinterpret_cast<const uint8_t*>(digits.data()), digits.size()}), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0)), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, EqualsTheBitwiseDefinitionAtEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(300);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t end = begin; end < bytes.size(); end += 1 + begin) {
      const std::vector<uint8_t> part(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                                      bytes.begin() + static_cast<std::ptrdiff_t>(end));
      ASSERT_EQ(Crc32c(absl::MakeSpan(bytes).subspan(begin, end - begin)), BitwiseCrc32c(part));
    }
  }
}

float ThroughBf16(float value) {
  uint8_t bytes[2];
  EncodeHidden(WireType::kBF16, &value, 1, bytes);
  float back;
  DecodeHidden(WireType::kBF16, bytes, 1, &back);
  return back;
}

TEST(HiddenCodec, F32IsExact) {
  const std::vector<float> values = {0.f, -0.f, 1e-45f, 3.14f, -std::numeric_limits<float>::infinity()};
  std::vector<uint8_t> bytes(values.size() * 4);
  std::vector<float> back(values.size());
  EncodeHidden(WireType::kF32, values.data(), values.size(), bytes.data());
  DecodeHidden(WireType::kF32, bytes.data(), values.size(), back.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[i]));
  }
}

TEST(HiddenCodec, Bf16RoundsToTheNearestAndTiesToEven) {
  const auto bits = [](uint32_t word) { return std::bit_cast<float>(word); };
  EXPECT_EQ(ThroughBf16(bits(0x3f800000)), bits(0x3f800000));
  EXPECT_EQ(ThroughBf16(bits(0x3f808000)), bits(0x3f800000));  // a tie, down to even
  EXPECT_EQ(ThroughBf16(bits(0x3f818000)), bits(0x3f820000));  // a tie, up to even
  EXPECT_EQ(ThroughBf16(bits(0x3f808001)), bits(0x3f810000));
  EXPECT_EQ(ThroughBf16(bits(0xbf807fff)), bits(0xbf800000));
  EXPECT_EQ(ThroughBf16(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ThroughBf16(bits(0x7f800001))));  // a NaN whose mantissa rounding would lose
  EXPECT_TRUE(std::isnan(ThroughBf16(bits(0xffffffff))));
  EXPECT_TRUE(std::signbit(ThroughBf16(-0.f)));
}

TEST(HiddenCodec, Bf16OfRandomNumbersIsWithinHalfAStep) {
  std::mt19937 random(2);
  std::vector<float> values(1001);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  std::vector<uint8_t> bytes(values.size() * 2);
  std::vector<float> back(values.size());
  EncodeHidden(WireType::kBF16, values.data(), values.size(), bytes.data());
  DecodeHidden(WireType::kBF16, bytes.data(), values.size(), back.data());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) / 256);
}

// A chunk of three tokens of sequence 1 at positions 22 to 24, from stage 0 to stage 1: hidden states of width 4,
// blocks of 8 tokens, and beside the group of all layers that see everything one with a window of 8.
std::string DrawnFrame() {
  FrameLimits limits = SmallLimits();
  limits.hidden = 4;
  limits.group_blocks = {16, 12};
  limits.group_windows = {0, 8};
  StepFrame frame;
  frame.batch.number = 7;
  frame.batch.slices = {{.sequence = 1,
                         .start = 22,
                         .count = 3,
                         .tokens = {},
                         .new_blocks = {{15}, {4}},
                         .sample = true,
                         .targets = {},
                         .released_blocks = {0, 1}}};
  frame.times = {{0, 1'700'000'000'000'000, 1'700'000'000'000'040, 1'700'000'000'000'900, 55}};
  frame.has_hidden = true;
  FrameBuffer buffer = StepBuffer(limits);
  for (int i = 0; i < 12; ++i) {
    const float value = 0.5f * static_cast<float>(i);
    EncodeHidden(WireType::kF32, &value, 1, buffer.payload() + 4 * i);
  }
  EXPECT_TRUE(EncodeStep(limits, frame, &buffer).ok());
  EXPECT_TRUE(DecodeStep(limits, buffer.message(), 7, true).ok());
  return std::string(buffer.message().begin(), buffer.message().end());
}

// The bytes of the lines "<offset, 4 hex digits>  <hex bytes>  | <meaning>" of the README, each of which must start
// where the last ended.
std::string BytesOfReadme() {
  std::ifstream file(testing::SourcePath("proto/README.md"));
  EXPECT_TRUE(file.good());
  std::string bytes;
  for (std::string line; std::getline(file, line);) {
    const size_t bar = line.find('|');
    if (line.size() < 6 || bar == std::string::npos || line.find_first_not_of("0123456789abcdef") != 4) continue;
    EXPECT_EQ(line.substr(0, 4), absl::StrCat(absl::Hex(bytes.size(), absl::kZeroPad4))) << line;
    std::istringstream words(line.substr(4, bar - 4));
    for (std::string word; words >> word;) bytes += absl::HexStringToBytes(word);
  }
  return bytes;
}

TEST(ProtoReadme, DrawsTheBytesThatTheEncoderWrites) {
  EXPECT_EQ(absl::BytesToHexString(BytesOfReadme()), absl::BytesToHexString(DrawnFrame()));
}

}  // namespace
}  // namespace stagecoach
