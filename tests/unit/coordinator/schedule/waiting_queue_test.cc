#include "coordinator/schedule/waiting_queue.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/matchers.h"

namespace stagecoach {
namespace {

// Sequences that wait, named by the order of their arrival, from 1.
struct WaitingQueueTest : ::testing::Test {
  uint64_t Arrive(const std::string& tenant, PriorityClass priority_class = PriorityClass::kDefault, double weight = 1,
                  bool resumed = false) {
    SequenceSpec spec{.id = ++last_, .prompt = {1}, .max_new_tokens = 2};
    spec.tenant = tenant;
    spec.priority_class = priority_class;
    spec.weight = weight;
    if (resumed) spec.output = {2};
    std::unique_ptr<Sequence>& sequence = sequences_[last_] = std::make_unique<Sequence>(std::move(spec));
    sequence->order = last_;
    queue.Arrive(*sequence);
    Check();
    return last_;
  }
  uint64_t Admit(int64_t rows) {
    Sequence* head = queue.Head();
    EXPECT_NE(head, nullptr);
    if (head == nullptr) return 0;
    queue.Admit(*head, rows);
    Check();
    return head->order;
  }
  // Admits all, each with so many rows.
  std::vector<uint64_t> AdmitAll(int64_t rows) {
    std::vector<uint64_t> order;
    while (queue.Head() != nullptr) order.push_back(Admit(rows));
    return order;
  }
  void Produce(uint64_t sequence, int64_t tokens) { queue.ChargeOutput(At(sequence), tokens), Check(); }
  void Preempt(uint64_t sequence) { queue.Requeue(At(sequence)), Check(); }
  void StandAside(uint64_t sequence) { queue.StandAside(At(sequence)), ++aside_, Check(); }
  void Rejoin(uint64_t sequence) { queue.Rejoin(At(sequence)), --aside_, Check(); }
  void End(uint64_t sequence) {
    if (queue.InTurn(At(sequence))) queue.Withdraw(At(sequence));
    queue.Finish(At(sequence));
    sequences_.erase(sequence);
    Check();
  }
  Sequence& At(uint64_t sequence) { return *sequences_.at(sequence); }

  WaitingQueue queue;

 private:
  void Check() {
    const absl::Status status = queue.CheckIntegrity(static_cast<int64_t>(sequences_.size()), aside_);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::map<uint64_t, std::unique_ptr<Sequence>> sequences_;
  uint64_t last_ = 0;
  int64_t aside_ = 0;
};

TEST_F(WaitingQueueTest, TakesTenantsInTurnsHoweverManyRequestsOneHas) {
  for (int i = 0; i < 4; ++i) Arrive("flood");
  Arrive("other");
  Arrive("other");
  EXPECT_THAT(AdmitAll(100), ElementsAre(1, 5, 2, 6, 3, 4));
}

TEST_F(WaitingQueueTest, ChargesRowsAndTokensByWeight) {
  const uint64_t a = Arrive("a", PriorityClass::kDefault, 4);
  Arrive("b");
  Admit(100);
  EXPECT_EQ(queue.CounterOf("a"), 25);
  Produce(a, 10);
  EXPECT_EQ(queue.CounterOf("a"), 30);
  EXPECT_EQ(queue.CounterOf("b"), 0);
  Preempt(a);
  EXPECT_EQ(Admit(110), a);
  EXPECT_EQ(queue.CounterOf("a"), 30) << "what is computed again is charged to nobody";
  EXPECT_EQ(queue.CounterOf("nobody"), 0);
}

TEST_F(WaitingQueueTest, WhoWasAwayEarnsNothingByIt) {
  for (int i = 0; i < 10; ++i) Arrive("always");  // 1 to 10
  for (int i = 0; i < 6; ++i) Admit(100);
  Arrive("back"), Arrive("back"), Arrive("back");  // 11 to 13
  EXPECT_EQ(queue.CounterOf("back"), 600);
  EXPECT_THAT(AdmitAll(100), ElementsAre(7, 11, 8, 12, 9, 13, 10));
}

TEST_F(WaitingQueueTest, WhereNobodyWaitsTheLastOneToLeaveIsTheMeasure) {
  End((Arrive("a"), Admit(1000)));
  Arrive("b");
  EXPECT_EQ(queue.CounterOf("b"), 1000);
}

TEST_F(WaitingQueueTest, NoDebtIsLostByLeaving) {
  const uint64_t greedy = Arrive("greedy");
  const uint64_t modest = Arrive("modest");
  Admit(100);
  Produce(greedy, 450);
  End(greedy);  // nothing of it is left
  const uint64_t again = Arrive("greedy");
  EXPECT_EQ(queue.CounterOf("greedy"), 1000);
  for (int i = 0; i < 3; ++i) Arrive("modest");
  EXPECT_THAT(AdmitAll(100), ElementsAre(modest, again + 1, again + 2, again + 3, again));
}

TEST_F(WaitingQueueTest, ForgetsTenantsOfWhomItKnowsNothingThatTheLiftWouldNotSay) {
  const uint64_t kept = Arrive("keeps waiting");
  for (int i = 0; i < 20; ++i) {
    const uint64_t one = Arrive(absl::StrCat("tenant ", i));
    queue.Admit(At(one), i < 10 ? 0 : 5);  // before the one that waits
    End(one);
  }
  EXPECT_EQ(queue.tenants(), 11u) << "the ten that had more than the one that waits";
  Admit(5);
  End(kept);
  EXPECT_EQ(queue.tenants(), 0u);
}

TEST_F(WaitingQueueTest, RemembersNoMoreIdleTenantsThanItMay) {
  Arrive("keeps waiting");
  for (size_t i = 0; i < kMostIdleTenants + 100; ++i) {
    const uint64_t one = Arrive(absl::StrCat("tenant ", i));
    queue.Admit(At(one), static_cast<int64_t>(i) + 1);  // before the one that waits
    End(one);
  }
  EXPECT_EQ(queue.tenants(), kMostIdleTenants + 1);
  EXPECT_EQ(queue.CounterOf("tenant 99"), 0) << "who owes least is forgotten first";
  EXPECT_EQ(queue.CounterOf("tenant 100"), 101);
}

TEST_F(WaitingQueueTest, ClassesComeFirstAndATenantHasACounterInEach) {
  Arrive("a", PriorityClass::kBatch);        // 1
  Arrive("a");                               // 2
  Arrive("b", PriorityClass::kBatch);        // 3
  Arrive("a", PriorityClass::kInteractive);  // 4
  EXPECT_THAT(AdmitAll(10), ElementsAre(4, 2, 1, 3));
}

TEST_F(WaitingQueueTest, WhoWaitsInALowClassLiftsNobodyInAHigherOne) {
  Arrive("nightly", PriorityClass::kBatch);  // at a counter of 0, and stays there
  for (int i = 0; i < 3; ++i) Arrive("steady", PriorityClass::kInteractive);
  Admit(1000);
  Arrive("back", PriorityClass::kBatch);  // nor does who parks something there himself
  std::vector<uint64_t> back;
  for (int i = 0; i < 3; ++i) back.push_back(Arrive("back", PriorityClass::kInteractive));
  EXPECT_EQ(queue.CounterOf("back", PriorityClass::kInteractive), 1000);
  EXPECT_EQ(Admit(10), 3u) << "both have had as much, and this one came first";
  EXPECT_EQ(Admit(10), back[0]);
  EXPECT_EQ(Admit(10), 4u);
  EXPECT_EQ(Admit(10), back[1]);
}

TEST_F(WaitingQueueTest, ALowerClassHasATurnAfterTheBound) {
  const uint64_t batch = Arrive("b", PriorityClass::kBatch), later = Arrive("b", PriorityClass::kBatch);
  for (int64_t i = 0; i < 2 * kClassStarvationBound; ++i) Arrive("a", PriorityClass::kInteractive);
  std::vector<uint64_t> order = AdmitAll(10);
  EXPECT_EQ(order.at(kClassStarvationBound), batch);
  EXPECT_EQ(order.at(2 * kClassStarvationBound + 1), later);
}

TEST_F(WaitingQueueTest, AdmissionsBeforeALowerClassWaitedDoNotCount) {
  for (int64_t i = 0; i < 2 * kClassStarvationBound; ++i) Arrive("a", PriorityClass::kDefault);
  for (int64_t i = 0; i < kClassStarvationBound; ++i) Admit(1);
  const uint64_t batch = Arrive("b", PriorityClass::kBatch);
  EXPECT_EQ(AdmitAll(1).back(), batch);
}

TEST_F(WaitingQueueTest, WithThreeClassesThatAlwaysWaitNoneStarves) {
  for (int i = 0; i < 1000; ++i) {
    for (const auto& entry : kPriorityClasses) Arrive("a", entry.value);
  }
  std::map<PriorityClass, int64_t> since;
  for (int i = 0; i < 1000; ++i) {
    const PriorityClass taken = At(Admit(1)).spec().priority_class;
    for (const auto& entry : kPriorityClasses) {
      EXPECT_LE(++since[entry.value], kClassStarvationBound + 2) << entry.name;
    }
    since[taken] = 0;
  }
}

TEST_F(WaitingQueueTest, WhoWasAdmittedBeforeGoesBeforeAllOthersOfItsClassByRank) {
  Arrive("a"), Arrive("b"), Arrive("a"), Arrive("b");  // 1 to 4
  const uint64_t first = Admit(1000), second = Admit(10);
  EXPECT_LT(At(first).rank(), At(second).rank());
  Preempt(second);
  Preempt(first);
  const uint64_t resumed = Arrive("c", PriorityClass::kDefault, 1, /*resumed=*/true);
  const uint64_t batch = Arrive("d", PriorityClass::kBatch, 1, /*resumed=*/true);
  const uint64_t urgent = Arrive("a", PriorityClass::kInteractive);
  EXPECT_THAT(AdmitAll(10), ElementsAre(urgent, first, second, resumed, 4, 3, batch));
}

TEST_F(WaitingQueueTest, WhoStandsAsideIsPassedOverAndKeepsItsPlace) {
  Arrive("a"), Arrive("a"), Arrive("b"), Arrive("b");  // 1 to 4
  StandAside(3);
  StandAside(1);
  EXPECT_EQ(queue.in_turn(), 2);
  EXPECT_EQ(queue.waiting(), 4);
  EXPECT_EQ(Admit(10), 2u);
  Rejoin(1);
  Rejoin(3);
  EXPECT_THAT(AdmitAll(10), ElementsAre(3, 1, 4));
}

TEST_F(WaitingQueueTest, ATenantsWeightIsThatOfItsLatestRequest) {
  Arrive("a"), Arrive("a", PriorityClass::kDefault, 10);
  Admit(100);
  EXPECT_EQ(queue.CounterOf("a"), 10);
}

TEST_F(WaitingQueueTest, ServiceOfTenantsThatAlwaysWaitIsInTheRatioOfTheirWeights) {
  const std::map<std::string, double> weights = {{"one", 1}, {"two", 2}, {"four", 4}};
  std::map<std::string, double> service;
  for (int i = 0; i < 2000; ++i) {
    for (const auto& [tenant, weight] : weights) Arrive(tenant, PriorityClass::kDefault, weight);
  }
  for (int i = 0; i < 1400; ++i) {
    const int64_t rows = 50 + i * 37 % 100;
    const std::string tenant = queue.Head()->spec().tenant;
    const uint64_t sequence = Admit(rows);
    Produce(sequence, i % 30);
    service[tenant] += static_cast<double>(rows + 2 * (i % 30));
    End(sequence);
  }
  const double all_service = service["one"] + service["two"] + service["four"];
  for (const auto& [tenant, weight] : weights) {
    EXPECT_NEAR(service[tenant] / all_service, weight / 7, 0.01) << tenant;
  }
}

}  // namespace
}  // namespace stagecoach
