#include "coordinator/schedule/waiting_queue.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagecoach {

void WaitingQueue::Arrive(Sequence& sequence) {
  const SequenceSpec& spec = sequence.spec();
  std::unique_ptr<TenantAccount>& account = tenants_[spec.tenant];
  if (account == nullptr) {
    account = std::make_unique<TenantAccount>();
    account->number = ++accounts_;
    account->name = spec.tenant;
  } else if (account->unfinished == 0) {
    idle_.erase({account->counter, account->number});
  }
  ++account->unfinished;
  account->weight = spec.weight;
  sequence.account = account.get();
  if (!spec.output.empty()) sequence.admission = ++admissions_;
  Put(sequence);
  ForgetIdle();
}

void WaitingQueue::Put(Sequence& sequence) {
  ++classes_[ClassOf(sequence)].waiting;
  TenantAccount& account = *sequence.account;
  if (sequence.admission == 0 && account.waiting++ == 0) account.counter = std::max(account.counter, LeastCounter());
  List(sequence);
}

void WaitingQueue::Take(Sequence& sequence) {
  Unlist(sequence);
  if (sequence.admission == 0) --sequence.account->waiting;
  --classes_[ClassOf(sequence)].waiting;
}

void WaitingQueue::Admit(Sequence& sequence, int64_t uncached_rows) {
  if (sequence.admission == 0) Charge(*sequence.account, static_cast<double>(uncached_rows));
  Take(sequence);
  if (sequence.admission == 0) sequence.admission = ++admissions_;
  const size_t own = ClassOf(sequence);
  classes_[own].passed = 0;
  for (size_t lower = own + 1; lower < classes_.size(); ++lower) {
    Class& passed = classes_[lower];
    passed.passed = passed.waiting > 0 ? passed.passed + 1 : 0;
  }
}

void WaitingQueue::StandAside(Sequence& sequence) { Unlist(sequence); }
void WaitingQueue::StandInTurn(Sequence& sequence) { List(sequence); }

void WaitingQueue::Produced(Sequence& sequence, int64_t tokens) {
  Charge(*sequence.account, kOutputTokenCost * static_cast<double>(tokens));
}

void WaitingQueue::Forget(Sequence& sequence) {
  TenantAccount& account = *sequence.account;
  sequence.account = nullptr;
  if (--account.unfinished == 0) idle_.emplace(CounterKey(account.counter, account.number), &account);
  ForgetIdle();
}

Sequence* WaitingQueue::Head() const {
  const auto waits = [](const Class& c) { return c.in_turn(); };
  const auto starves = [](const Class& c) { return c.in_turn() && c.passed >= kClassStarvationBound; };
  auto turn = std::find_if(classes_.begin(), classes_.end(), starves);
  if (turn == classes_.end()) turn = std::find_if(classes_.begin(), classes_.end(), waits);
  if (turn == classes_.end()) return nullptr;
  if (!turn->ranked.empty()) return turn->ranked.begin()->second;
  const auto number = static_cast<size_t>(turn - classes_.begin());
  return turn->accounts.begin()->second->queues[number].begin()->second;
}

int64_t WaitingQueue::waiting() const {
  int64_t waiting = 0;
  for (const Class& c : classes_) waiting += c.waiting;
  return waiting;
}

bool WaitingQueue::InTurn(const Sequence& sequence) const {
  const size_t number = ClassOf(sequence);
  const bool ranked = sequence.admission > 0;
  const auto& places = ranked ? classes_[number].ranked : sequence.account->queues[number];
  const auto found = places.find(ranked ? sequence.admission : sequence.order);
  return found != places.end() && found->second == &sequence;
}

double WaitingQueue::CounterOf(absl::string_view tenant) const {
  const auto found = tenants_.find(std::string(tenant));
  return found == tenants_.end() ? 0 : found->second->counter;
}

void WaitingQueue::List(Sequence& sequence) {
  ++in_turn_;
  Class& of = classes_[ClassOf(sequence)];
  if (sequence.admission > 0) {
    of.ranked.emplace(sequence.admission, &sequence);
    return;
  }
  TenantAccount& account = *sequence.account;
  auto& queue = account.queues[ClassOf(sequence)];
  const bool first = queue.empty() || sequence.order < queue.begin()->first;
  if (first && !queue.empty()) of.accounts.erase({account.counter, queue.begin()->first});
  if (first) of.accounts.emplace(CounterKey(account.counter, sequence.order), &account);
  queue.emplace(sequence.order, &sequence);
}

void WaitingQueue::Unlist(Sequence& sequence) {
  --in_turn_;
  Class& of = classes_[ClassOf(sequence)];
  if (sequence.admission > 0) {
    CHECK_EQ(of.ranked.erase(sequence.admission), 1u);
    return;
  }
  TenantAccount& account = *sequence.account;
  auto& queue = account.queues[ClassOf(sequence)];
  const bool first = sequence.order == queue.begin()->first;
  CHECK_EQ(queue.erase(sequence.order), 1u);
  if (first) of.accounts.erase({account.counter, sequence.order});
  if (first && !queue.empty()) of.accounts.emplace(CounterKey(account.counter, queue.begin()->first), &account);
  const bool any = std::any_of(classes_.begin(), classes_.end(), [](const Class& c) { return !c.accounts.empty(); });
  if (!any) last_counter_ = std::max(last_counter_, account.counter);
}

void WaitingQueue::Charge(TenantAccount& account, double cost) {
  const double before = account.counter;
  account.counter += cost / account.weight;
  for (size_t number = 0; number < classes_.size(); ++number) {
    if (account.queues[number].empty()) continue;
    const uint64_t first = account.queues[number].begin()->first;
    classes_[number].accounts.erase({before, first});
    classes_[number].accounts.emplace(CounterKey(account.counter, first), &account);
  }
}

double WaitingQueue::LeastCounter() const {
  bool any = false;
  double least = last_counter_;
  for (const Class& c : classes_) {
    if (c.accounts.empty()) continue;
    const double first = c.accounts.begin()->first.first;
    least = any ? std::min(least, first) : first;
    any = true;
  }
  return least;
}

void WaitingQueue::ForgetIdle() {
  while (!idle_.empty() && (idle_.begin()->first.first <= LeastCounter() || idle_.size() > kMostIdleTenants)) {
    const std::string name = std::move(idle_.begin()->second->name);
    idle_.erase(idle_.begin());
    tenants_.erase(name);
  }
}

absl::Status WaitingQueue::CheckIntegrity(int64_t unfinished, int64_t aside) const {
  const auto violation = [](const auto&... detail) {
    return absl::InternalError(absl::StrCat("the waiting queue: ", detail...));
  };
  int64_t sequences = 0, queued = 0, never_admitted = 0, waits = 0, in_turn = 0;
  std::array<size_t, kPriorityClassCount> with_queue = {};
  for (const auto& [name, account] : tenants_) {
    if (!std::isfinite(account->counter) || account->counter < 0 || !Contains(kWeightRange, account->weight)) {
      return violation("tenant '", name, "' has counter ", account->counter, " and weight ", account->weight);
    }
    sequences += account->unfinished;
    never_admitted += account->waiting;
    int64_t own = 0;
    for (size_t number = 0; number < classes_.size(); ++number) {
      const auto& queue = account->queues[number];
      own += static_cast<int64_t>(queue.size());
      if (queue.empty()) continue;
      ++with_queue[number];
      const auto found = classes_[number].accounts.find({account->counter, queue.begin()->first});
      if (found == classes_[number].accounts.end() || found->second != account.get()) {
        return violation("tenant '", name, "' is not found under its counter ", account->counter);
      }
    }
    queued += own;
    const auto idle = idle_.find({account->counter, account->number});
    const bool is_idle = idle != idle_.end() && idle->second == account.get();
    if (own > account->waiting || account->waiting > account->unfinished || is_idle != (account->unfinished == 0)) {
      return violation("tenant '", name, "' has ", account->unfinished, " sequences, ", account->waiting,
                       " of them new, ", own, " in turn", is_idle ? ", and is idle" : "");
    }
  }
  for (size_t number = 0; number < classes_.size(); ++number) {
    const Class& of = classes_[number];
    waits += of.waiting;
    in_turn += static_cast<int64_t>(of.ranked.size());
    if (of.accounts.size() != with_queue[number]) {
      return violation("class ", number, " lists ", of.accounts.size(), " tenants, expected ", with_queue[number]);
    }
  }
  in_turn += queued;
  if (sequences != unfinished || in_turn != in_turn_ || waits != in_turn + aside || never_admitted > queued + aside) {
    return violation(sequences, " sequences of ", unfinished, ", ", in_turn, " in turn, counted ", in_turn_, ", ",
                     waits, " wait, ", aside, " of them aside, ", never_admitted, " never admitted");
  }
  return absl::OkStatus();
}

}  // namespace stagecoach
