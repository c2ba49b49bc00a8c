#include "coordinator/schedule/waiting_queue.h"

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

// Sequences that wait, named by the order of their arrival, from 1.
class Waiters {
 public:
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
  void Produce(uint64_t sequence, int64_t tokens) { queue.Produced(At(sequence), tokens), Check(); }
  void Preempt(uint64_t sequence) { queue.Put(At(sequence)), Check(); }
  void StandAside(uint64_t sequence) { queue.StandAside(At(sequence)), ++aside_, Check(); }
  void Rejoin(uint64_t sequence) { queue.Rejoin(At(sequence)), --aside_, Check(); }
  void End(uint64_t sequence) {
    if (queue.InTurn(At(sequence))) queue.Take(At(sequence));
    queue.Forget(At(sequence));
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

TEST(WaitingQueue, OfOneTenantAndClassIsInOrderOfArrival) {
  Waiters all;
  EXPECT_EQ(all.queue.Head(), nullptr);
  for (int i = 0; i < 5; ++i) all.Arrive("");
  EXPECT_EQ(all.queue.in_turn(), 5);
  EXPECT_THAT(all.AdmitAll(100), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(all.queue.waiting(), 0);
}

TEST(WaitingQueue, TakesTenantsInTurnsHoweverManyRequestsOneHas) {
  Waiters all;
  for (int i = 0; i < 4; ++i) all.Arrive("flood");
  all.Arrive("other");
  all.Arrive("other");
  EXPECT_THAT(all.AdmitAll(100), ElementsAre(1, 5, 2, 6, 3, 4));
}

TEST(WaitingQueue, ChargesRowsAndTokensByWeight) {
  Waiters all;
  const uint64_t a = all.Arrive("a", PriorityClass::kDefault, 4);
  all.Arrive("b");
  all.Admit(100);
  EXPECT_EQ(all.queue.CounterOf("a"), 25);
  all.Produce(a, 10);
  EXPECT_EQ(all.queue.CounterOf("a"), 30);
  EXPECT_EQ(all.queue.CounterOf("b"), 0);
  all.Preempt(a);
  EXPECT_EQ(all.Admit(110), a);
  EXPECT_EQ(all.queue.CounterOf("a"), 30) << "what is computed again is charged to nobody";
  EXPECT_EQ(all.queue.CounterOf("nobody"), 0);
}

TEST(WaitingQueue, WhoWasAwayEarnsNothingByIt) {
  Waiters all;
  for (int i = 0; i < 10; ++i) all.Arrive("always");  // 1 to 10
  for (int i = 0; i < 6; ++i) all.Admit(100);
  all.Arrive("back"), all.Arrive("back"), all.Arrive("back");  // 11 to 13
  EXPECT_EQ(all.queue.CounterOf("back"), 600);
  EXPECT_THAT(all.AdmitAll(100), ElementsAre(7, 11, 8, 12, 9, 13, 10));
}

TEST(WaitingQueue, WhereNobodyWaitsTheLastOneToLeaveIsTheMeasure) {
  Waiters all;
  all.End((all.Arrive("a"), all.Admit(1000)));
  all.Arrive("b");
  EXPECT_EQ(all.queue.CounterOf("b"), 1000);
}

TEST(WaitingQueue, NoDebtIsLostByLeaving) {
  Waiters all;
  const uint64_t greedy = all.Arrive("greedy");
  const uint64_t modest = all.Arrive("modest");
  all.Admit(100);
  all.Produce(greedy, 450);
  all.End(greedy);  // nothing of it is left
  const uint64_t again = all.Arrive("greedy");
  EXPECT_EQ(all.queue.CounterOf("greedy"), 1000);
  for (int i = 0; i < 3; ++i) all.Arrive("modest");
  EXPECT_THAT(all.AdmitAll(100), ElementsAre(modest, again + 1, again + 2, again + 3, again));
}

TEST(WaitingQueue, ForgetsTenantsOfWhomItKnowsNothingThatTheLiftWouldNotSay) {
  Waiters all;
  const uint64_t kept = all.Arrive("keeps waiting");
  for (int i = 0; i < 20; ++i) {
    const uint64_t one = all.Arrive(absl::StrCat("tenant ", i));
    all.queue.Admit(all.At(one), i < 10 ? 0 : 5);  // before the one that waits
    all.End(one);
  }
  EXPECT_EQ(all.queue.tenants(), 11u) << "the ten that had more than the one that waits";
  all.Admit(5);
  all.End(kept);
  EXPECT_EQ(all.queue.tenants(), 0u);
}

TEST(WaitingQueue, RemembersNoMoreIdleTenantsThanItMay) {
  Waiters all;
  all.Arrive("keeps waiting");
  for (size_t i = 0; i < kMostIdleTenants + 100; ++i) {
    const uint64_t one = all.Arrive(absl::StrCat("tenant ", i));
    all.queue.Admit(all.At(one), static_cast<int64_t>(i) + 1);  // before the one that waits
    all.End(one);
  }
  EXPECT_EQ(all.queue.tenants(), kMostIdleTenants + 1);
  EXPECT_EQ(all.queue.CounterOf("tenant 99"), 0) << "who owes least is forgotten first";
  EXPECT_EQ(all.queue.CounterOf("tenant 100"), 101);
}

TEST(WaitingQueue, ClassesComeFirstAndATenantHasACounterInEach) {
  Waiters all;
  all.Arrive("a", PriorityClass::kBatch);        // 1
  all.Arrive("a");                               // 2
  all.Arrive("b", PriorityClass::kBatch);        // 3
  all.Arrive("a", PriorityClass::kInteractive);  // 4
  EXPECT_THAT(all.AdmitAll(10), ElementsAre(4, 2, 1, 3));
}

TEST(WaitingQueue, WhoWaitsInALowClassLiftsNobodyInAHigherOne) {
  Waiters all;
  all.Arrive("nightly", PriorityClass::kBatch);  // at a counter of 0, and stays there
  for (int i = 0; i < 3; ++i) all.Arrive("steady", PriorityClass::kInteractive);
  all.Admit(1000);
  all.Arrive("back", PriorityClass::kBatch);  // nor does who parks something there himself
  std::vector<uint64_t> back;
  for (int i = 0; i < 3; ++i) back.push_back(all.Arrive("back", PriorityClass::kInteractive));
  EXPECT_EQ(all.queue.CounterOf("back", PriorityClass::kInteractive), 1000);
  EXPECT_EQ(all.Admit(10), 3u) << "both have had as much, and this one came first";
  EXPECT_EQ(all.Admit(10), back[0]);
  EXPECT_EQ(all.Admit(10), 4u);
  EXPECT_EQ(all.Admit(10), back[1]);
}

TEST(WaitingQueue, ALowerClassHasATurnAfterTheBound) {
  Waiters all;
  const uint64_t batch = all.Arrive("b", PriorityClass::kBatch), later = all.Arrive("b", PriorityClass::kBatch);
  for (int64_t i = 0; i < 2 * kClassStarvationBound; ++i) all.Arrive("a", PriorityClass::kInteractive);
  std::vector<uint64_t> order = all.AdmitAll(10);
  EXPECT_EQ(order.at(kClassStarvationBound), batch);
  EXPECT_EQ(order.at(2 * kClassStarvationBound + 1), later);
}

TEST(WaitingQueue, AdmissionsBeforeALowerClassWaitedDoNotCount) {
  Waiters all;
  for (int64_t i = 0; i < 2 * kClassStarvationBound; ++i) all.Arrive("a", PriorityClass::kDefault);
  for (int64_t i = 0; i < kClassStarvationBound; ++i) all.Admit(1);
  const uint64_t batch = all.Arrive("b", PriorityClass::kBatch);
  std::vector<uint64_t> order = all.AdmitAll(1);
  EXPECT_EQ(order.back(), batch);
}

TEST(WaitingQueue, WithThreeClassesThatAlwaysWaitNoneStarves) {
  Waiters all;
  for (int i = 0; i < 1000; ++i) {
    for (const auto& entry : kPriorityClasses) all.Arrive("a", entry.value);
  }
  std::map<PriorityClass, int64_t> since;
  for (int i = 0; i < 1000; ++i) {
    const PriorityClass taken = all.At(all.Admit(1)).spec().priority_class;
    for (const auto& entry : kPriorityClasses) {
      EXPECT_LE(++since[entry.value], kClassStarvationBound + 2) << entry.name;
    }
    since[taken] = 0;
  }
}

TEST(WaitingQueue, WhoWasAdmittedBeforeGoesBeforeAllOthersOfItsClassByRank) {
  Waiters all;
  all.Arrive("a"), all.Arrive("b"), all.Arrive("a"), all.Arrive("b");  // 1 to 4
  const uint64_t first = all.Admit(1000), second = all.Admit(10);
  EXPECT_LT(all.At(first).rank(), all.At(second).rank());
  all.Preempt(second);
  all.Preempt(first);
  const uint64_t resumed = all.Arrive("c", PriorityClass::kDefault, 1, /*resumed=*/true);
  const uint64_t batch = all.Arrive("d", PriorityClass::kBatch, 1, /*resumed=*/true);
  const uint64_t urgent = all.Arrive("a", PriorityClass::kInteractive);
  EXPECT_THAT(all.AdmitAll(10), ElementsAre(urgent, first, second, resumed, 4, 3, batch));
}

TEST(WaitingQueue, WhoStandsAsideIsPassedOverAndKeepsItsPlace) {
  Waiters all;
  all.Arrive("a"), all.Arrive("a"), all.Arrive("b"), all.Arrive("b");  // 1 to 4
  all.StandAside(3);
  all.StandAside(1);
  EXPECT_EQ(all.queue.in_turn(), 2);
  EXPECT_EQ(all.queue.waiting(), 4);
  EXPECT_EQ(all.Admit(10), 2u);
  all.Rejoin(1);
  all.Rejoin(3);
  EXPECT_THAT(all.AdmitAll(10), ElementsAre(3, 1, 4));
}

TEST(WaitingQueue, ATenantsWeightIsThatOfItsLatestRequest) {
  Waiters all;
  all.Arrive("a"), all.Arrive("a", PriorityClass::kDefault, 10);
  all.Admit(100);
  EXPECT_EQ(all.queue.CounterOf("a"), 10);
}

TEST(WaitingQueue, ServiceOfTenantsThatAlwaysWaitIsInTheRatioOfTheirWeights) {
  Waiters all;
  const std::map<std::string, double> weights = {{"one", 1}, {"two", 2}, {"four", 4}};
  std::map<std::string, double> service;
  for (int i = 0; i < 2000; ++i) {
    for (const auto& [tenant, weight] : weights) all.Arrive(tenant, PriorityClass::kDefault, weight);
  }
  for (int i = 0; i < 1400; ++i) {
    const int64_t rows = 50 + i * 37 % 100;
    const std::string tenant = all.queue.Head()->spec().tenant;
    const uint64_t sequence = all.Admit(rows);
    all.Produce(sequence, i % 30);
    service[tenant] += static_cast<double>(rows + 2 * (i % 30));
    all.End(sequence);
  }
  const double all_service = service["one"] + service["two"] + service["four"];
  for (const auto& [tenant, weight] : weights) {
    EXPECT_NEAR(service[tenant] / all_service, weight / 7, 0.01) << tenant;
  }
}

}  // namespace
}  // namespace stagecoach
