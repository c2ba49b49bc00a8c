#include "stage_worker/stream/weight_stream.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

constexpr JobEpoch kJob = {.run_id = 77, .epoch = 1};
constexpr uint64_t kChunk = kMaxWeightChunkBytes;

uint8_t ByteAt(int shard, uint64_t offset) { return static_cast<uint8_t>(offset * 131 + offset / 4099 + shard * 17); }

std::vector<uint8_t> Bytes(const WeightRange& range) {
  std::vector<uint8_t> bytes(range.bytes);
  for (uint64_t i = 0; i < range.bytes; ++i) bytes[i] = ByteAt(range.shard, range.offset + i);
  return bytes;
}

// A frame as it arrives: at a multiple of 64 bytes.
ReceivedFrame Arrived(const std::shared_ptr<const FrameBuffer>& buffer) {
  return ReceivedFrame(Channel::kWeights, 0, buffer->message(), buffer);
}

std::shared_ptr<FrameBuffer> Chunk(uint64_t number, const WeightRange& range) {
  auto buffer = std::make_shared<FrameBuffer>(kMaxWeightHeaderBytes, kMaxWeightChunkBytes);
  const std::vector<uint8_t> bytes = Bytes(range);
  std::memcpy(buffer->payload(), bytes.data(), bytes.size());
  EXPECT_TRUE(EncodeWeightChunk(kJob, number, range, Crc32c(bytes), buffer.get()).ok());
  return buffer;
}

class WeightStreamTest : public ::testing::Test {
 protected:
  ~WeightStreamTest() override {
    if (!carrier_.joinable()) return;
    stop_ = true;
    carrier_.join();
  }

  // The requests that can be sent now.
  std::vector<WeightRange> Requests() {
    std::vector<WeightRange> requests;
    while (const std::shared_ptr<const FrameBuffer> frame = stream_.NextRequest().value()) {
      requests.push_back(DecodeWeightRequest(kJob, frame->message(), number_ + requests.size()).value());
    }
    number_ += requests.size();
    return requests;
  }
  absl::Status Answer(uint64_t number, const WeightRange& range) {
    return stream_.Deliver(Arrived(Chunk(number, range)));
  }
  // Answers every request from now on, with a note of each.
  void Carry() {
    carrier_ = std::thread([this] {
      while (!stop_) {
        for (const WeightRange& range : Requests()) {
          carried_.push_back(range);
          ASSERT_TRUE(Answer(answered_++, range).ok());
        }
        std::this_thread::yield();
      }
    });
  }
  // Ends the carrying.
  const std::vector<WeightRange>& Carried() {
    stop_ = true;
    carrier_.join();
    return carried_;
  }
  void ExpectReads(const WeightRange& range) {
    std::vector<uint8_t> got(range.bytes);
    const absl::Status read = stream_.Read(range.shard, range.offset, absl::MakeSpan(got));
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_TRUE(got == Bytes(range));
  }

  WeightStream stream_{kJob, [] {}};
  uint64_t number_ = 0;
  std::atomic<bool> stop_{false};
  std::thread carrier_;
  std::vector<WeightRange> carried_;
  uint64_t answered_ = 0;
};

TEST_F(WeightStreamTest, AsksForThePlanInItsOrderAsFarAsTheCreditGoes) {
  const uint64_t far = uint64_t{5} << 40;  // beyond what 32 bits hold
  const std::vector<WeightRange> plan = {{1, far, 20 * kChunk}, {0, 96, 2 * kChunk + 7}};
  stream_.Plan(plan);
  const std::vector<WeightRange> first = Requests();
  ASSERT_THAT(first, SizeIs(kWeightCredit));
  for (uint64_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i] == (WeightRange{1, far + i * kChunk, kChunk}));
  // An answer alone gives no credit: its memory is taken until it was read.
  ASSERT_TRUE(Answer(0, first[0]).ok());
  EXPECT_THAT(Requests(), SizeIs(0));
  ExpectReads({1, far, kChunk / 2});
  EXPECT_THAT(Requests(), SizeIs(0));
  ExpectReads({1, far + kChunk / 2, kChunk / 2});
  EXPECT_THAT(Requests(), ElementsAre(WeightRange{1, far + kWeightCredit * kChunk, kChunk}));
}

TEST_F(WeightStreamTest, ReadsWhatWasPlannedInPiecesOfAnySizeByManyThreads) {
  const std::vector<WeightRange> plan = {{0, 64, 5 * kChunk + 1001}, {2, 4096, 3}, {2, 8192, 12 * kChunk}};
  stream_.Plan(plan);
  Carry();
  constexpr uint64_t kPiece = 300007;
  std::vector<WeightRange> pieces;
  for (const WeightRange& range : plan) {
    for (uint64_t done = 0; done < range.bytes; done += kPiece) {
      pieces.push_back({range.shard, range.offset + done, std::min(kPiece, range.bytes - done)});
    }
  }
  std::atomic<size_t> next{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (size_t piece = next++; piece < pieces.size(); piece = next++) ExpectReads(pieces[piece]);
    });
  }
  for (std::thread& reader : readers) reader.join();
  uint64_t total = 0;
  for (const WeightRange& range : Carried()) total += range.bytes;
  EXPECT_EQ(total, 17 * kChunk + 1004);  // each byte once
  EXPECT_EQ(stream_.bytes_streamed(), total);
  EXPECT_EQ(stream_.streamed().bytes(), total);
  EXPECT_FALSE(stream_.waiting());
}

TEST_F(WeightStreamTest, AnotherOrderThanPlannedCostsAskingTwiceAndNeverStops) {
  const WeightRange all = {0, 0, 30 * kChunk};
  stream_.Plan({&all, 1});
  Carry();
  for (uint64_t i = 30; i-- > 0;) ExpectReads({0, i * kChunk, kChunk});
  EXPECT_GE(Carried().size(), 30u);
}

TEST_F(WeightStreamTest, WhatWasReadMayBeReadAgain) {
  const WeightRange all = {0, 0, 3 * kChunk};
  stream_.Plan({&all, 1});
  Carry();
  for (int i = 0; i < 3; ++i) ExpectReads(all);
  EXPECT_THAT(Carried(), SizeIs(9));
  EXPECT_EQ(stream_.streamed().bytes(), 3 * kChunk);
}

TEST_F(WeightStreamTest, ANewPlanForgetsTheOldOneWhoseAnswersMayStillCome) {
  const WeightRange header = {0, 0, 3 * kChunk}, tensor = {0, kChunk / 2, kChunk};
  stream_.Plan({&header, 1});
  const std::vector<WeightRange> first = Requests();
  ASSERT_THAT(first, SizeIs(3));
  stream_.Plan({&tensor, 1});
  EXPECT_THAT(Requests(), ElementsAre(tensor));
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(Answer(i, first[i]).ok());
  ASSERT_TRUE(Answer(3, tensor).ok());
  ExpectReads(tensor);
  EXPECT_FALSE(stream_.waiting());
}

TEST_F(WeightStreamTest, SingleRowsComeFirstThenMatricesInTheOrderOfTheFiles) {
  const auto tensor = [](int shard, uint64_t offset, std::vector<int64_t> dims) {
    GgufTensor out;
    out.dims = std::move(dims);
    out.shard = shard;
    out.file_offset = offset;
    out.bytes = 64;
    return out;
  };
  const GgufTensor norm = tensor(1, 640, {16}), bias = tensor(0, 64, {16}), late = tensor(1, 64, {8, 2}),
                   early = tensor(0, 640, {8, 2});
  const std::vector<const GgufTensor*> tensors = {&late, &norm, &early, &bias};
  stream_.PlanTensors(tensors);
  EXPECT_THAT(Requests(), ElementsAre(WeightRange{1, 640, 64}, WeightRange{0, 64, 64}, WeightRange{0, 640, 64},
                                      WeightRange{1, 64, 64}));
}

TEST_F(WeightStreamTest, BytesThatWereNotPlannedAreAnErrorAndNoWaitForEver) {
  const WeightRange range = {0, 100, 50};
  stream_.Plan({&range, 1});
  Carry();
  std::vector<uint8_t> out(10);
  for (const auto& [shard, offset] : std::vector<std::pair<int, uint64_t>>{{0, 90}, {0, 145}, {1, 100}, {0, 150}}) {
    const absl::Status read = stream_.Read(shard, offset, absl::MakeSpan(out));
    EXPECT_EQ(read.code(), absl::StatusCode::kInternal) << shard << " " << offset;
  }
}

TEST_F(WeightStreamTest, StoppingEndsEveryReadWithTheFirstReason) {
  const WeightRange range = {0, 0, 10 * kChunk};
  stream_.Plan({&range, 1});
  std::vector<absl::Status> read(3);
  std::vector<std::thread> readers;
  for (uint64_t i = 0; i < 3; ++i) {
    readers.emplace_back([this, i, &read] {
      std::vector<uint8_t> out(100);
      read[i] = stream_.Read(0, i * 3 * kChunk, absl::MakeSpan(out));
    });
  }
  stream_.Stop(absl::UnavailableError("the coordinator is gone"));
  stream_.Stop(absl::InternalError("later"));
  for (std::thread& reader : readers) reader.join();
  for (const absl::Status& status : read) EXPECT_EQ(status, absl::UnavailableError("the coordinator is gone"));
  EXPECT_THAT(Requests(), SizeIs(0));
}

TEST_F(WeightStreamTest, ARefusalIsWhatTheReaderGets) {
  const WeightRange range = {0, 0, 100};
  stream_.Plan({&range, 1});
  ASSERT_THAT(Requests(), SizeIs(1));
  auto buffer = std::make_shared<FrameBuffer>(kMaxWeightHeaderBytes, 0);
  ASSERT_TRUE(EncodeWeightRefusal(kJob, 0, absl::DataLossError("the file was cut"), buffer.get()).ok());
  ASSERT_TRUE(stream_.Deliver(Arrived(buffer)).ok());
  std::vector<uint8_t> out(10);
  EXPECT_EQ(stream_.Read(0, 0, absl::MakeSpan(out)), absl::DataLossError("the file was cut"));
}

TEST_F(WeightStreamTest, AnAnswerThatNobodyAskedForIsRefused) {
  EXPECT_EQ(Answer(0, {0, 0, 100}).code(), absl::StatusCode::kInvalidArgument);
  const WeightRange range = {0, 0, 100};
  stream_.Plan({&range, 1});
  // Planned, but not yet sent.
  EXPECT_THAT(Answer(0, range).message(), HasSubstr("nothing was asked for"));
  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_THAT(Answer(1, range).message(), HasSubstr("'sequence_number' is 1, expected 0"));
  EXPECT_THAT(Answer(0, {0, 0, 99}).message(), HasSubstr("bytes [0, 99) of shard 0, expected bytes [0, 100)"));
  EXPECT_THAT(Answer(0, {0, 1, 100}).message(), HasSubstr("weight_chunk.range"));
  EXPECT_THAT(Answer(0, {1, 0, 100}).message(), HasSubstr("of shard 1"));
  ASSERT_TRUE(Answer(0, range).ok());
  EXPECT_THAT(Answer(1, range).message(), HasSubstr("nothing was asked for"));
}

TEST_F(WeightStreamTest, ADamagedAnswerIsFoundByItsChecksum) {
  const WeightRange range = {0, 0, 100};
  stream_.Plan({&range, 1});
  ASSERT_THAT(Requests(), SizeIs(1));
  std::shared_ptr<FrameBuffer> buffer = Chunk(0, range);
  buffer->payload()[57] ^= 4;
  EXPECT_THAT(stream_.Deliver(Arrived(buffer)).message(), HasSubstr("payload_crc32c"));
  buffer->payload()[57] ^= 4;
  const absl::Span<const uint8_t> cut = buffer->message().first(buffer->message().size() - 1);
  EXPECT_EQ(stream_.Deliver(ReceivedFrame(Channel::kWeights, 0, cut, buffer)).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(stream_.Deliver(Arrived(buffer)).ok());
}

}  // namespace
}  // namespace stagecoach
