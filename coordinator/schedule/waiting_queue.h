#ifndef STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_

// The admission order of waiting sequences. Pure and not thread-safe, like the scheduler that owns it.
//
// Order
//   1. Priority class; but a class with waiting sequences goes first after kClassStarvationBound admissions of higher
//      classes.
//   2. Sequences that were admitted before (preempted since, or resumed), by rank.
//   3. The tenant's counter, lowest first; then arrival. With one tenant that is the order of arrival.
//
// A tenant's counter in a class is its weighted service there, as in VTC (Sheng et al., "Fairness in Serving Large
// Language Models", OSDI 2024): (prompt rows + kOutputTokenCost * output tokens) / weight.
//   Charged    prompts at their first admission, less prefix-cache hits; recomputation after a preemption is free.
//   Lifted     a tenant that had nothing new waiting and gets some: to the lowest counter of the waiting tenants, else
//              to that of the last one that waited. Idle time earns no credit; a higher counter stays.
//   Result     tenants that always wait get service in the ratio of their weights, within one request.
//   Dropped    a tenant without unfinished sequences whose counter is no higher than a lift would make it; at most
//              kMostIdleTenants idle ones stay in a class, those with the highest counters.
// Classes share nothing but the order. No operation is linear in the number of waiting sequences.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/request/sequence.h"

namespace stagecoach {

// Admissions of higher classes before a waiting class goes first; unrelated to the kStarvationBound of policies.
inline constexpr int64_t kClassStarvationBound = 64;
inline constexpr double kOutputTokenCost = 2;  // in prompt rows
inline constexpr size_t kMostIdleTenants = 1024;

// A tenant in a class; sequences point at theirs.
struct TenantAccount {
  uint64_t number = 0;  // in the order of their coming
  std::string name;
  double counter = 0, weight = 1;
  int64_t unfinished = 0;               // sequences
  int64_t waiting = 0;                  // of them: never admitted, whether in turn or aside
  std::map<uint64_t, Sequence*> queue;  // those in turn, by order of arrival
};

class WaitingQueue {
 public:
  WaitingQueue() = default;
  WaitingQueue(const WaitingQueue&) = delete;

  // Adds a new sequence, whose weight becomes its tenant's. One with output ranks behind all that were admitted before.
  void Arrive(Sequence& sequence);
  // Adds one again after a preemption.
  void Requeue(Sequence& sequence);
  // Removes one that is in turn, without admitting it.
  void Withdraw(Sequence& sequence);
  // Removes one to be computed. The first time, it gets its rank and its tenant is charged for these rows.
  void Admit(Sequence& sequence, int64_t uncached_rows);
  // Between these two it waits but is passed over.
  void StandAside(Sequence& sequence);
  void Rejoin(Sequence& sequence);
  // Charges output of a sequence that does not wait.
  void ChargeOutput(Sequence& sequence, int64_t tokens);
  // Ends one that does not wait.
  void Finish(Sequence& sequence);

  // The next to admit; nullptr: none is in turn.
  Sequence* Head() const;
  int64_t in_turn() const { return in_turn_; }
  int64_t waiting() const;  // those that stand aside included
  bool InTurn(const Sequence& sequence) const;

  size_t tenants() const;  // of all classes
  // 0: nothing is known of it there.
  double CounterOf(absl::string_view tenant, PriorityClass priority_class = PriorityClass::kDefault) const;

  // Checks the invariants, and the totals against the caller's. kInternal names the first violation.
  absl::Status CheckIntegrity(int64_t unfinished, int64_t aside) const;

 private:
  using CounterKey = std::pair<double, uint64_t>;
  struct Class {
    std::map<uint64_t, Sequence*> ranked;           // those that were admitted before, by number of admission
    std::map<CounterKey, TenantAccount*> accounts;  // with a queue, by counter and the arrival of its first
    std::map<CounterKey, TenantAccount*> idle;      // without sequences, by counter and number
    absl::flat_hash_map<std::string, std::unique_ptr<TenantAccount>> tenants;
    double last_counter = 0;  // of the last tenant with a queue, when its queue emptied
    int64_t waiting = 0;      // those that stand aside included
    int64_t passed = 0;       // admissions of higher classes since one of this was admitted, while any waited
    bool in_turn() const { return !ranked.empty() || !accounts.empty(); }
    // To which a new tenant is lifted.
    double LeastCounter() const { return accounts.empty() ? last_counter : accounts.begin()->first.first; }
  };
  static size_t ClassOf(const Sequence& sequence) { return static_cast<size_t>(sequence.spec().priority_class); }

  void Charge(const Sequence& sequence, double cost);
  static void ForgetIdle(Class& of);
  absl::Status CheckClass(size_t number, int64_t* unfinished, int64_t* never_admitted, int64_t* in_turn) const;

  std::array<Class, kPriorityClassCount> classes_;
  int64_t in_turn_ = 0;
  uint64_t admissions_ = 0;
  uint64_t accounts_ = 0;  // ever
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_WAITING_QUEUE_H_
