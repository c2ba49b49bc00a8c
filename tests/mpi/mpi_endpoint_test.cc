// The MPI endpoint between real ranks. Every rank runs every test; between tests stands a gather, so that no frame of
// one test meets the receives of another.

#include "common/transport/mpi/mpi_endpoint.h"

#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/transport/mpi/mpi_calls.h"
#include "common/transport/wait_ladder.h"
#include "gtest/gtest.h"

// The calls of MPI that an endpoint may make at a Poll, counted on their way to the library by MPI's profiling names.
namespace {
int tests_of_requests = 0;
int other_calls = 0;
}  // namespace
extern "C" {
int MPI_Testsome(int incount, MPI_Request* requests, int* outcount, int* indices, MPI_Status* statuses) {
  ++tests_of_requests;
  return PMPI_Testsome(incount, requests, outcount, indices, statuses);
}
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  ++other_calls;
  return PMPI_Test(request, flag, status);
}
int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request) {
  ++other_calls;
  return PMPI_Irecv(buffer, count, type, source, tag, comm, request);
}
}

namespace stagecoach {
namespace {

MpiWorld* world = nullptr;

constexpr int64_t kDeadlineUs = 30'000'000;

int Next() { return (world->rank() + 1) % world->size(); }
int Previous() { return (world->rank() + world->size() - 1) % world->size(); }

// The byte at `i` of the frame `number` of rank `rank`.
uint8_t Pattern(int rank, uint64_t number, size_t i) {
  return static_cast<uint8_t>(31 * rank + 7 * number + i + i / 251);
}

std::shared_ptr<FrameBuffer> MakeFrame(int rank, uint64_t number, size_t bytes) {
  auto buffer = std::make_shared<FrameBuffer>(64, bytes);
  for (size_t i = 0; i < bytes; ++i) buffer->payload()[i] = Pattern(rank, number, i);
  buffer->SetMessage(0, bytes);
  return buffer;
}

bool Matches(const ReceivedFrame& frame, uint64_t number, size_t bytes) {
  if (frame.bytes().size() != bytes) return false;
  for (size_t i = 0; i < bytes; ++i) {
    if (frame.bytes()[i] != Pattern(frame.source(), number, i)) return false;
  }
  return true;
}

// Polls until a frame arrives or an error is reported; a test that waits too long ends the job for all ranks.
absl::StatusOr<ReceivedFrame> Await(Endpoint* endpoint) {
  const int64_t deadline_us = MonotonicUs() + kDeadlineUs;
  WaitLadder ladder;
  while (MonotonicUs() < deadline_us) {
    absl::StatusOr<std::optional<ReceivedFrame>> frame = endpoint->Poll();
    if (!frame.ok()) return frame.status();
    if (frame->has_value()) return std::move(**frame);
    ladder.Wait();
  }
  std::fprintf(stderr, "rank %d: no frame arrived in time\n", world->rank());
  world->Abort(3);
}

void FinishSends(Endpoint* endpoint) {
  const int64_t deadline_us = MonotonicUs() + kDeadlineUs;
  WaitLadder ladder;
  while (endpoint->SendsPending()) {
    const absl::StatusOr<std::optional<ReceivedFrame>> frame = endpoint->Poll();
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_FALSE(frame->has_value()) << "a frame that nobody expects";
    if (MonotonicUs() > deadline_us) world->Abort(3);
    ladder.Wait();
  }
}

class MpiEndpointTest : public testing::Test {
 protected:
  void TearDown() override {
    FinishSends(endpoint_.get());
    endpoint_.reset();  // before the gather: its posted receives would take the frames of a rank that is ahead
    const auto gathered = world->AllGather("done", absl::Seconds(60));
    ASSERT_TRUE(gathered.ok()) << gathered.status();
  }
  void Open(Channel channel, int source, size_t bytes, int depth) {
    ASSERT_TRUE(endpoint_->OpenReceive(channel, source, bytes, depth).ok());
  }
  void Send(Channel channel, int destination, uint64_t number, size_t bytes) {
    ASSERT_TRUE(endpoint_->Send(channel, destination, MakeFrame(world->rank(), number, bytes)).ok());
  }
  ReceivedFrame AwaitFrame() { return Await(endpoint_.get()).value(); }

  std::unique_ptr<Endpoint> endpoint_ = world->MakeEndpoint();
};

TEST_F(MpiEndpointTest, AFrameTravelsAroundTheRing) {
  constexpr size_t kBytes = 1000;
  Open(Channel::kStep, Previous(), kBytes, 2);
  Send(Channel::kStep, Next(), 0, kBytes);
  const auto frame = AwaitFrame();
  EXPECT_EQ(frame.source(), Previous());
  EXPECT_EQ(frame.channel(), Channel::kStep);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(frame.bytes().data()) % 64, 0u);
  EXPECT_TRUE(Matches(frame, 0, kBytes));
}

TEST_F(MpiEndpointTest, LargeFramesArriveWholeInBothDirectionsAtOnce) {
  constexpr size_t kBytes = 8 << 20;
  Open(Channel::kStep, Previous(), kBytes, 1);
  Open(Channel::kResult, Next(), kBytes, 1);
  Send(Channel::kStep, Next(), 1, kBytes);
  Send(Channel::kResult, Previous(), 2, kBytes);
  bool seen_step = false, seen_result = false;
  for (int i = 0; i < 2; ++i) {
    const auto frame = AwaitFrame();
    const bool step = frame.channel() == Channel::kStep;
    (step ? seen_step : seen_result) = true;
    EXPECT_EQ(frame.source(), step ? Previous() : Next());
    EXPECT_TRUE(Matches(frame, step ? 1 : 2, kBytes));
  }
  EXPECT_TRUE(seen_step && seen_result);
}

TEST_F(MpiEndpointTest, LargeStepFramesToOneRankGoOneBehindTheOther) {
  constexpr size_t kBytes = 3 << 20;
  constexpr uint64_t kFrames = 3;
  Open(Channel::kStep, Previous(), kBytes, kFrames);
  const int64_t begin_us = MonotonicUs();
  for (uint64_t number = 0; number < kFrames; ++number) Send(Channel::kStep, Next(), number, kBytes);
  for (uint64_t number = 0; number < kFrames; ++number) {
    EXPECT_TRUE(Matches(AwaitFrame(), number, kBytes));
  }
  FinishSends(endpoint_.get());
  const EndpointCounters counters = endpoint_->counters();
  EXPECT_EQ(counters.frames_sent, kFrames);
  // The times of sends that share no moment add up to no more than what has passed.
  EXPECT_LE(counters.send_us, static_cast<uint64_t>(MonotonicUs() - begin_us));
}

TEST_F(MpiEndpointTest, FramesOfOneSourceKeepTheirOrderWhateverTheirSizes) {
  constexpr uint64_t kFrames = 200;
  constexpr size_t kLargest = 300'000;
  const auto size_of = [](uint64_t number) { return number % 3 == 0 ? kLargest - number : 10 + number; };
  Open(Channel::kStep, Previous(), kLargest, 4);
  for (uint64_t number = 0; number < kFrames; ++number) Send(Channel::kStep, Next(), number, size_of(number));
  for (uint64_t number = 0; number < kFrames; ++number) {
    const auto frame = AwaitFrame();
    ASSERT_TRUE(Matches(frame, number, size_of(number))) << "frame " << number;
  }
  FinishSends(endpoint_.get());
  EXPECT_EQ(endpoint_->counters().frames_sent, kFrames);
  EXPECT_EQ(endpoint_->counters().frames_received, kFrames);
}

TEST_F(MpiEndpointTest, FramesFromAnyRankKeepTheOrderOfEachSource) {
  constexpr uint64_t kFrames = 50;
  const int ranks = world->size();
  Open(Channel::kTelemetry, kAnyRank, 4096, 3);
  for (uint64_t number = 0; number < kFrames; ++number) {
    for (int rank = 0; rank < ranks; ++rank) {
      Send(Channel::kTelemetry, rank, number, 100 + number);
    }
  }
  std::map<int, uint64_t> next;
  for (uint64_t i = 0; i < kFrames * static_cast<uint64_t>(ranks); ++i) {
    const auto frame = AwaitFrame();
    const uint64_t number = next[frame.source()]++;
    ASSERT_TRUE(Matches(frame, number, 100 + number)) << "frame " << number << " of rank " << frame.source();
  }
  EXPECT_EQ(next.size(), static_cast<size_t>(ranks));
}

TEST_F(MpiEndpointTest, ALeaseDroppedByAnotherThreadFreesItsReceive) {
  constexpr uint64_t kFrames = 20;
  constexpr size_t kBytes = 100'000;  // above the eager limit: without a receive the send stays pending
  Open(Channel::kStep, Previous(), kBytes, 1);
  for (uint64_t number = 0; number < kFrames; ++number) Send(Channel::kStep, Next(), number, kBytes);
  for (uint64_t number = 0; number < kFrames; ++number) {
    ReceivedFrame frame = AwaitFrame();
    ASSERT_TRUE(Matches(frame, number, kBytes));
    for (int i = 0; i < 20; ++i) {
      const auto early = endpoint_->Poll();
      ASSERT_TRUE(early.ok() && !early->has_value()) << "a frame arrived in memory that is lent";
    }
    std::thread([lease = std::move(frame)] {}).join();
  }
}

TEST_F(MpiEndpointTest, AFrameLongerThanItsReceiveIsAnErrorAndTheNextOneArrives) {
  if (world->size() == 1)
    GTEST_SKIP() << "Open MPI cuts what a rank sends to itself without a word; no rank of a job does";
  constexpr size_t kLimit = 500;
  Open(Channel::kStep, Previous(), kLimit, 2);
  for (const size_t bytes : {kLimit + 1, kLimit + 400, kLimit}) Send(Channel::kStep, Next(), 5, bytes);
  for (int i = 0; i < 2; ++i) {
    const auto refused = Await(endpoint_.get());
    ASSERT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
    EXPECT_NE(
        std::string(refused.status().message())
            .find(absl::StrCat("channel step from rank ", Previous(), " is too long, expected at most 500 bytes")),
        std::string::npos)
        << refused.status();
  }
  EXPECT_TRUE(Matches(AwaitFrame(), 5, kLimit));
}

TEST_F(MpiEndpointTest, APollThatFindsNothingIsTwoTestsHoweverManyReceivesArePosted) {
  Open(Channel::kStep, Previous(), 100, 8);
  Open(Channel::kSetup, 0, 100, 1);
  for (int rank = 0; rank < world->size(); ++rank) Open(Channel::kTelemetry, rank, 100, 2);
  ASSERT_TRUE(endpoint_->Poll().ok());
  tests_of_requests = other_calls = 0;
  constexpr int kPolls = 50;
  for (int i = 0; i < kPolls; ++i) {
    const auto frame = endpoint_->Poll();
    ASSERT_TRUE(frame.ok() && !frame->has_value());
  }
  EXPECT_EQ(tests_of_requests, 2 * kPolls);
  EXPECT_EQ(other_calls, 0);
}

TEST_F(MpiEndpointTest, WrongRanksDepthsAndSecondOpensAreRefused) {
  EXPECT_FALSE(endpoint_->OpenReceive(Channel::kStep, world->size(), 100, 1).ok());
  EXPECT_FALSE(endpoint_->OpenReceive(Channel::kStep, 0, 100, 0).ok());
  EXPECT_FALSE(endpoint_->OpenReceive(Channel::kStep, 0, size_t{3} << 30, 1).ok());
  EXPECT_TRUE(endpoint_->OpenReceive(Channel::kStep, 0, 100, 1).ok());
  EXPECT_FALSE(endpoint_->OpenReceive(Channel::kStep, 0, 100, 1).ok());
  EXPECT_FALSE(endpoint_->OpenReceive(Channel::kStep, kAnyRank, 100, 1).ok());
  EXPECT_FALSE(endpoint_->Send(Channel::kStep, world->size(), MakeFrame(0, 0, 1)).ok());
  EXPECT_FALSE(endpoint_->Send(Channel::kStep, -1, MakeFrame(0, 0, 1)).ok());
}

TEST_F(MpiEndpointTest, AGatherGivesEveryRankTheBytesOfAll) {
  const auto bytes_of = [](int rank) {
    return std::string(static_cast<size_t>(rank) * 1000, static_cast<char>('a' + rank));
  };
  const auto gathered = world->AllGather(bytes_of(world->rank()), absl::Seconds(30)).value();
  ASSERT_EQ(gathered.size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) EXPECT_EQ(gathered[rank], bytes_of(rank));
}

TEST_F(MpiEndpointTest, AGatherOfMoreThan64KibIsRefusedBeforeAnyCall) {
  EXPECT_EQ(world->AllGather(std::string((64 << 10) + 1, 'x'), absl::Seconds(1)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MpiEndpointTest, TheWorldKnowsThatALauncherStartedIt) { EXPECT_TRUE(StartedInMpiWorld()); }

}  // namespace
}  // namespace stagecoach

int main(int argc, char** argv) {
  auto world = stagecoach::MpiWorld::Init(&argc, &argv);
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 1;
  }
  stagecoach::world = world->get();
  testing::InitGoogleTest(&argc, argv);
  if ((*world)->rank() != 0) {  // one report is enough; failures of the other ranks are printed as they happen
    delete testing::UnitTest::GetInstance()->listeners().Release(
        testing::UnitTest::GetInstance()->listeners().default_result_printer());
    class FailurePrinter : public testing::EmptyTestEventListener {
      void OnTestPartResult(const testing::TestPartResult& result) override {
        if (result.failed()) std::fprintf(stderr, "rank %d: %s\n", stagecoach::world->rank(), result.message());
      }
    };
    testing::UnitTest::GetInstance()->listeners().Append(new FailurePrinter);
  }
  return RUN_ALL_TESTS();
}
