#include "coordinator/plan/choice/host_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace stagecoach {
namespace {

constexpr double kTied = 1e-9;   // of two choices
using Hosts = std::vector<int>;  // of a pipeline, in order: places in the list of candidates

ChoiceFigures FiguresOf(const ClusterPlan& plan) {
  return {.output_tokens_per_s = plan.output_tokens_per_s,
          .itl_s = plan.decode.itl_s,
          .ttft_s = plan.prefill.ttft_s,
          .sequences = plan.sequences};
}

class HostChooser {
 public:
  HostChooser(const ClusterQuestion& question, const ChoiceRules& rules)
      : question_(question),
        rules_(rules),
        layers_(question.model->hyper.layer_count()),
        on_(&question, question.stage_hosts.size() > static_cast<size_t>(kMostExactHosts)),
        job_(question) {}

  absl::StatusOr<HostChoice> Choose() {
    ChooseWith(/*whole_hosts=*/false);
    bool shared = false;
    for (int i = 0; i < on_.size(); ++i) shared = shared || on_[i].slots > 1;
    if (shared) ChooseWith(/*whole_hosts=*/true);
    if (best_.jobs.empty()) return WhyNone();
    return Result();
  }

 private:
  struct Choice {
    std::vector<Hosts> jobs;
    std::vector<int64_t> sequences;  // [jobs]
    ChoiceFigures figures;
    bool whole_hosts = false;  // one stage on each host, whatever its slots
  };
  // --- one pipeline ----------------------------------------------------------------------------------------------

  std::vector<int> StagesOn(const Hosts& hosts) const {
    std::vector<int> stages;
    for (const int host : hosts) {
      const int count = whole_hosts_ ? 1 : on_[host].slots;
      stages.insert(stages.end(), static_cast<size_t>(count), on_[host].host);
    }
    if (rules_.stages > 0 && static_cast<int64_t>(stages.size()) > rules_.stages) {
      stages.resize(static_cast<size_t>(rules_.stages));
    }
    return stages;
  }

  // Valid until the next call.
  const ClusterQuestion& JobOn(const Hosts& hosts, int64_t sequences) {
    job_.stage_hosts = StagesOn(hosts);
    job_.job.set_max_num_seqs(static_cast<int32_t>(sequences));
    return job_;
  }

  // No sequences: it cannot run.
  ChoiceFigures FiguresOn(const Hosts& hosts, int64_t sequences) {
    std::vector<int64_t> key = {whole_hosts_ ? 1 : 0, sequences};
    for (const int host : hosts) key.push_back(on_[host].kind);
    const auto [known, is_new] = known_.try_emplace(std::move(key));
    if (!is_new) return known->second;
    const auto count = static_cast<int64_t>(StagesOn(hosts).size());
    if (count > layers_ || (rules_.stages > 0 && !HasJustTheStages(hosts)) || !on_.HaveMemory(hosts))
      return known->second;
    looked_at_ += count * (1 + count / 64);  // of long pipelines the cuts are many, too
    const absl::StatusOr<ClusterPlan> plan = PlanCluster(JobOn(hosts, sequences));
    if (plan.ok()) known->second = FiguresOf(*plan);
    return known->second;
  }

  // As many as are asked for, and on the last host too.
  bool HasJustTheStages(const Hosts& hosts) const {
    int64_t before = 0;
    for (size_t i = 0; i + 1 < hosts.size(); ++i) before += whole_hosts_ ? 1 : on_[hosts[i]].slots;
    return before < rules_.stages && static_cast<int64_t>(StagesOn(hosts).size()) == rules_.stages;
  }

  // What the hosts with most memory say that run as many stages as there may be.
  absl::Status WhyNone() {
    Hosts hosts(static_cast<size_t>(on_.size()));
    std::iota(hosts.begin(), hosts.end(), 0);
    std::stable_sort(hosts.begin(), hosts.end(), [&](int a, int b) { return MemoryOf(a) > MemoryOf(b); });
    whole_hosts_ = false;
    while (hosts.size() > 1 && static_cast<int64_t>(StagesOn(hosts).size()) > layers_) hosts.pop_back();
    RETURN_IF_ERROR(PlanCluster(JobOn(hosts, question_.job.max_num_seqs())).status());
    return absl::ResourceExhaustedError("no choice of hosts was found that runs the model");
  }
  uint64_t MemoryOf(int i) const { return question_.profile.hosts[static_cast<size_t>(on_[i].host)].available_bytes; }

  // The best order of these hosts.
  struct Ordered {
    Hosts hosts;
    ChoiceFigures figures;
  };
  const Ordered& BestOrder(const Hosts& sorted, int64_t sequences) {
    std::vector<int64_t> key = {whole_hosts_ ? 1 : 0, sequences};
    for (const int host : sorted) key.push_back(host);
    const auto [known, is_new] = ordered_.try_emplace(std::move(key));
    Ordered& best = known->second;
    if (!is_new) return best;
    const auto consider = [&](const Hosts& hosts) {
      const ChoiceFigures figures = FiguresOn(hosts, sequences);
      if (best.hosts.empty() || IsBetter(rules_.goal, figures, best.figures)) best = {hosts, figures};
    };
    consider(sorted);
    if (!on_.links_alike() || !on_.layers_alike()) {
      LookAtOrders(sorted, sequences, &best, consider);
      return best;
    }
    // Which one is first matters where memory is short: it has the embedding.
    const bool is_short = !on_.HaveMemory(sorted, 2) || best.figures.sequences < sequences;
    const size_t firsts = is_short ? sorted.size() : 1;
    for (size_t last = sorted.size(); last-- > 0;) {
      for (size_t first = 0; first < sorted.size() && first < std::max<size_t>(firsts, last == 0 ? 2 : 1); ++first) {
        if (first == last || OutOfBudget()) continue;
        Hosts hosts = {sorted[first]};
        for (size_t i = 0; i < sorted.size(); ++i) {
          if (i != first && i != last) hosts.push_back(sorted[i]);
        }
        hosts.push_back(sorted[last]);
        consider(hosts);
      }
    }
    return best;
  }

  // Every order that can be better than the best one, the most promising first: of one list of hosts so many at most.
  template <typename Consider>
  void LookAtOrders(const Hosts& sorted, int64_t sequences, const Ordered* best, const Consider& consider) {
    constexpr int kMostOrders = 60;
    struct Order {
      Hosts hosts;
      ChoiceFigures bound;
    };
    std::vector<Order> orders;
    Hosts hosts = sorted;
    std::set<std::vector<int>> seen;
    do {
      std::vector<int> kinds;
      for (const int host : hosts) kinds.push_back(on_[host].kind);
      if (seen.insert(std::move(kinds)).second) orders.push_back({hosts, on_.BoundOn(hosts, sequences, true)});
    } while (std::next_permutation(hosts.begin(), hosts.end()));
    std::stable_sort(orders.begin(), orders.end(),
                     [&](const Order& a, const Order& b) { return IsBetter(rules_.goal, a.bound, b.bound); });
    int looked_at = 0;
    for (const Order& order : orders) {
      if (!IsBetter(rules_.goal, order.bound, best->figures)) return;
      if (OutOfBudget()) return;
      if (++looked_at > kMostOrders) {
        exact_ = false;
        return;
      }
      consider(order.hosts);
    }
  }

  bool OutOfBudget() {
    if (looked_at_ > kMostStages) exact_ = false;
    return looked_at_ > kMostStages;
  }

  // --- several jobs ----------------------------------------------------------------------------------------------

  // Empty: there are too few.
  std::vector<int64_t> SharesOf(const std::vector<Hosts>& jobs) const {
    std::vector<double> rates;
    for (const Hosts& hosts : jobs) {
      double rate = 0;
      for (const int host : hosts) {
        if (on_[host].rate <= 0) return {};  // nothing can be said of it
        rate += on_[host].rate;
      }
      if (hosts.empty()) return {};
      rates.push_back(rate);
    }
    return ShareSequences(question_.job.max_num_seqs(), rates);
  }

  void Offer(Choice choice) {
    if (choice.figures.sequences == 0 || choice.jobs.empty()) return;
    if (!best_.jobs.empty() && !IsBetter(rules_.goal, choice.figures, best_.figures)) return;
    choice.whole_hosts = whole_hosts_;
    if (!best_.jobs.empty()) earlier_.push_back(std::move(best_));
    best_ = std::move(choice);
  }

  // These jobs with their hosts in this order. Each has to run.
  Choice ChoiceOf(const std::vector<Hosts>& jobs) {
    Choice choice{.jobs = jobs, .sequences = SharesOf(jobs)};
    if (choice.sequences.empty()) return {};
    std::vector<ChoiceFigures> figures;
    for (size_t i = 0; i < choice.sequences.size(); ++i) {
      figures.push_back(FiguresOn(jobs[i], choice.sequences[i]));
      if (figures.back().sequences == 0) return {};
    }
    choice.figures = on_.Together(choice.jobs, figures);
    return choice;
  }

  int64_t MostJobs() const {
    if (rules_.stages > 0) return 1;
    return rules_.most_jobs > 0 ? rules_.most_jobs : question_.job.max_num_seqs();
  }

  void ChooseWith(bool whole_hosts) {
    whole_hosts_ = whole_hosts;
    const auto count = on_.size();
    // Of few hosts too: what is good already spares the looking at much.
    ChooseOfMany();
    if (count <= kMostExactHosts) {
      ChooseOfFew();
    } else {
      exact_ = false;
    }
  }

  // Calls `visit` with every way to put some of the hosts into jobs.
  template <typename Visit>
  void ForEachPartition(int host, std::vector<Hosts>* jobs, const Visit& visit) const {
    if (host == on_.size()) {
      if (!jobs->empty()) visit(*jobs);
      return;
    }
    ForEachPartition(host + 1, jobs, visit);
    for (size_t job = 0; job < jobs->size(); ++job) {
      (*jobs)[job].push_back(host);
      ForEachPartition(host + 1, jobs, visit);
      (*jobs)[job].pop_back();
    }
    if (static_cast<int64_t>(jobs->size()) >= MostJobs()) return;
    jobs->push_back({host});
    ForEachPartition(host + 1, jobs, visit);
    jobs->pop_back();
  }

  // The kinds of the hosts of each job: partitions that have the same are one.
  std::vector<std::vector<int>> KindsOf(const std::vector<Hosts>& jobs) const {
    std::vector<std::vector<int>> kinds;
    for (const Hosts& hosts : jobs) {
      std::vector<int>& of_job = kinds.emplace_back();
      for (const int host : hosts) of_job.push_back(on_[host].kind);
      std::sort(of_job.begin(), of_job.end());
    }
    std::sort(kinds.begin(), kinds.end());
    return kinds;
  }

  void ChooseOfFew() {
    struct Candidate {
      std::vector<Hosts> jobs;
      std::vector<int64_t> sequences;
      ChoiceFigures bound;
    };
    std::vector<Candidate> candidates;
    std::set<std::vector<std::vector<int>>> seen;
    std::vector<Hosts> none;
    ForEachPartition(0, &none, [&](const std::vector<Hosts>& jobs) {
      for (const Hosts& hosts : jobs) {
        if (!on_.HaveMemory(hosts)) return;
        for (const int host : hosts) {
          if (on_[host].rate <= 0) return;
        }
      }
      if (!seen.insert(KindsOf(jobs)).second) return;
      Candidate candidate{.jobs = jobs, .sequences = SharesOf(jobs)};
      std::vector<ChoiceFigures> bounds;
      for (size_t i = 0; i < candidate.sequences.size(); ++i)
        bounds.push_back(on_.BoundOn(jobs[i], candidate.sequences[i], /*ordered=*/false));
      candidate.bound = Together(bounds);
      if (!bounds.empty()) candidates.push_back(std::move(candidate));
    });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](const Candidate& a, const Candidate& b) { return IsBetter(rules_.goal, a.bound, b.bound); });
    for (const Candidate& candidate : candidates) {
      if (!best_.jobs.empty() && !IsBetter(rules_.goal, candidate.bound, best_.figures)) break;
      if (OutOfBudget() && !best_.jobs.empty()) break;
      Choice choice{.sequences = candidate.sequences};
      std::vector<ChoiceFigures> figures;
      for (size_t i = 0; i < candidate.jobs.size(); ++i) {
        const Ordered& ordered = BestOrder(candidate.jobs[i], candidate.sequences[i]);
        if (ordered.figures.sequences == 0) break;
        figures.push_back(ordered.figures);
        choice.jobs.push_back(ordered.hosts);
      }
      if (figures.size() < candidate.jobs.size()) continue;
      choice.figures = on_.Together(choice.jobs, figures);
      Offer(std::move(choice));
    }
  }

  // Hosts that are taken together or left out together: at most so many sets of them, the faster ones first.
  std::vector<Hosts> FasterHosts() const {
    constexpr size_t kMostSets = 12;
    Hosts by_speed(static_cast<size_t>(on_.size()));
    std::iota(by_speed.begin(), by_speed.end(), 0);
    std::stable_sort(by_speed.begin(), by_speed.end(), [&](int a, int b) { return on_[a].rate > on_[b].rate; });
    std::vector<size_t> ends;  // where a slower host follows
    for (size_t i = 1; i <= by_speed.size(); ++i) {
      const auto rate = [&](size_t at) { return on_[by_speed[at]].rate; };
      if (rate(i - 1) <= 0) break;
      if (i == by_speed.size() || rate(i) < rate(i - 1) * (1 - kTied)) ends.push_back(i);
    }
    std::vector<Hosts> sets;
    const size_t count = std::min(kMostSets, ends.size());
    for (size_t i = 1; i <= count; ++i) {
      sets.emplace_back(by_speed.begin(),
                        by_speed.begin() + static_cast<std::ptrdiff_t>(ends[ends.size() * i / count - 1]));
    }
    std::reverse(sets.begin(), sets.end());
    return sets;
  }

  // Runs of the hosts, as even as can be, no longer than a pipeline may be; the rest is left out.
  std::vector<Hosts> CutInto(const Hosts& hosts, int64_t jobs) const {
    std::vector<Hosts> cut;
    const auto count = static_cast<int64_t>(hosts.size());
    for (int64_t job = 0; job < jobs; ++job) {
      const int64_t begin = count * job / jobs, end = count * (job + 1) / jobs;
      Hosts& run = cut.emplace_back();
      int64_t stages = 0;
      for (int64_t i = begin; i < end; ++i) {
        const int host = hosts[static_cast<size_t>(i)], more = whole_hosts_ ? 1 : on_[host].slots;
        // As many stages as were asked for may end on a host that has more slots.
        if (rules_.stages > 0 ? stages >= rules_.stages : stages + more > layers_) continue;
        stages += more;
        run.push_back(host);
      }
    }
    return cut;
  }

  void ChooseOfMany() {
    const int64_t most_jobs = MostJobs();
    if (rules_.stages > 0) ChooseRuns();
    for (const Hosts& set : FasterHosts()) {
      Hosts by_uplink = set;
      std::stable_sort(by_uplink.begin(), by_uplink.end(), [&](int a, int b) { return on_[a].uplink < on_[b].uplink; });
      for (const Hosts& order : {by_uplink, set}) {
        const auto count = static_cast<int64_t>(order.size());
        const int64_t full = (count + layers_ - 1) / layers_;  // jobs that are as long as they can be
        std::set<int64_t> numbers = {std::min(full, most_jobs), std::min(count, most_jobs)};
        for (int64_t jobs = 1; jobs <= std::min(count, most_jobs); jobs += 1 + jobs / 4) numbers.insert(jobs);
        for (const int64_t jobs : numbers) {
          if (OutOfBudget() && !best_.jobs.empty()) return;
          Offer(ChoiceOf(CutInto(order, jobs)));
        }
        if (by_uplink == set) break;
      }
    }
    LeaveOutMore();
    TakeInMore();
  }

  // One job of as many stages as were asked for: on neighbours in the order of speed, or on those with most memory.
  void ChooseRuns() {
    constexpr size_t kMostRuns = 64;
    Hosts by_speed(static_cast<size_t>(on_.size()));
    std::iota(by_speed.begin(), by_speed.end(), 0);
    Hosts by_memory = by_speed;
    std::stable_sort(by_speed.begin(), by_speed.end(), [&](int a, int b) { return on_[a].rate > on_[b].rate; });
    std::stable_sort(by_memory.begin(), by_memory.end(), [&](int a, int b) { return MemoryOf(a) > MemoryOf(b); });
    Offer(ChoiceOf(CutInto(by_memory, 1)));
    const size_t step = (by_speed.size() + kMostRuns - 1) / kMostRuns;
    for (size_t begin = 0; begin < by_speed.size() && !OutOfBudget(); begin += step) {
      Offer(ChoiceOf(CutInto({by_speed.begin() + static_cast<std::ptrdiff_t>(begin), by_speed.end()}, 1)));
    }
  }

  // Takes hosts out of the best choice, one kind after the other in each job, as long as that is better.
  void LeaveOutMore() {
    for (bool better = true; better && !best_.jobs.empty();) {
      better = false;
      const std::vector<Hosts> jobs = best_.jobs;
      for (size_t job = 0; job < jobs.size() && !better; ++job) {
        std::set<int> tried;
        for (size_t i = 0; i < jobs[job].size() && !better; ++i) {
          if (!tried.insert(on_[jobs[job][i]].kind).second || OutOfBudget()) continue;
          std::vector<Hosts> fewer = jobs;
          fewer[job].erase(fewer[job].begin() + static_cast<std::ptrdiff_t>(i));
          if (fewer[job].empty()) fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(job));
          if (fewer.empty()) continue;
          const ChoiceFigures before = best_.figures;
          Offer(ChoiceOf(fewer));
          better = IsBetter(rules_.goal, best_.figures, before);
        }
      }
    }
  }

  // The best that is found with the host in one of the jobs, or as a job of its own.
  Choice With(int host) {
    constexpr size_t kMostTried = 8;  // jobs: there are many only of the same
    Choice best;
    const auto consider = [&](const std::vector<Hosts>& jobs) {
      Choice choice = ChoiceOf(jobs);
      if (!choice.jobs.empty() && IsBetter(rules_.goal, choice.figures, best.figures)) best = std::move(choice);
    };
    for (size_t job = 0; job < std::min(kMostTried, best_.jobs.size()); ++job) {
      for (const size_t place : {size_t{0}, best_.jobs[job].size() / 2, best_.jobs[job].size()}) {
        std::vector<Hosts> more = best_.jobs;
        more[job].insert(more[job].begin() + static_cast<std::ptrdiff_t>(place), host);
        consider(more);
      }
    }
    if (static_cast<int64_t>(best_.jobs.size()) < MostJobs()) {
      std::vector<Hosts> more = best_.jobs;
      more.push_back({host});
      consider(more);
    }
    return best;
  }

  // Those in no job of the best choice, by kind, at most kMostGroups: the last group has the rest.
  std::vector<std::vector<int>> LeftOut() const {
    constexpr size_t kMostGroups = 8;
    std::vector<bool> used(static_cast<size_t>(on_.size()), false);
    for (const Hosts& hosts : best_.jobs) {
      for (const int host : hosts) used[static_cast<size_t>(host)] = true;
    }
    std::map<int, size_t> of_kind;
    std::vector<std::vector<int>> groups;
    for (size_t host = 0; host < static_cast<size_t>(on_.size()); ++host) {
      if (used[host]) continue;
      const auto [known, is_new] =
          of_kind.try_emplace(on_[static_cast<int>(host)].kind, std::min(groups.size(), kMostGroups - 1));
      if (known->second == groups.size()) groups.emplace_back();
      groups[known->second].push_back(static_cast<int>(host));
    }
    return groups;
  }

  void TakeInMore() {
    for (bool better = true; better && !best_.jobs.empty();) {
      better = false;
      for (const std::vector<int>& group : LeftOut()) {
        if (OutOfBudget()) return;
        const ChoiceFigures before = best_.figures;
        Offer(With(group.front()));
        better = IsBetter(rules_.goal, best_.figures, before);
        if (better) break;
      }
    }
  }

  // --- the answer ------------------------------------------------------------------------------------------------

  // The plans of the best choice, or of the best earlier one: hosts of one kind are alike only nearly.
  absl::StatusOr<HostChoice> PlanBest() {
    earlier_.push_back(best_);
    absl::Status first;
    for (auto choice = earlier_.rbegin(); choice != earlier_.rend(); ++choice) {
      whole_hosts_ = choice->whole_hosts;
      HostChoice result{.exact = exact_};
      std::vector<ChoiceFigures> figures;
      absl::Status status;
      for (size_t job = 0; job < choice->jobs.size() && status.ok(); ++job) {
        ClusterQuestion question = JobOn(choice->jobs[job], choice->sequences[job]);
        absl::StatusOr<ClusterPlan> plan = PlanCluster(question);
        status = plan.status();
        if (!plan.ok()) break;
        figures.push_back(FiguresOf(*plan));
        result.jobs.push_back({std::move(question), *std::move(plan)});
      }
      if (first.ok()) first = status;
      if (!status.ok()) continue;
      result.figures = on_.Together(choice->jobs, figures);
      best_ = *choice;
      return result;
    }
    return first;
  }

  // The best of those that may be better with a host more, of which there are few.
  void TakeInTheRest() {
    constexpr int kMostRounds = 16;
    for (int round = 0; round < kMostRounds; ++round) {
      const ChoiceFigures before = best_.figures;
      for (const std::vector<int>& group : LeftOut()) Offer(With(group.front()));
      if (!IsBetter(rules_.goal, best_.figures, before)) return;
    }
  }

  absl::StatusOr<HostChoice> Result() {
    whole_hosts_ = best_.whole_hosts;
    TakeInTheRest();
    ASSIGN_OR_RETURN(HostChoice result, PlanBest());
    std::stable_sort(result.jobs.begin(), result.jobs.end(), [](const ChosenJob& a, const ChosenJob& b) {
      return a.plan.output_tokens_per_s > b.plan.output_tokens_per_s;
    });
    std::set<int> tried;
    for (int i = 0; i < on_.size(); ++i) {
      if (!tried.insert(on_[i].kind).second) continue;
      job_.stage_hosts = {on_[i].host};
      job_.job.set_max_num_seqs(question_.job.max_num_seqs());
      const absl::StatusOr<ClusterPlan> alone = PlanCluster(job_);
      if (!alone.ok() || !IsBetter(rules_.goal, FiguresOf(*alone), result.alone)) continue;
      result.alone = FiguresOf(*alone);
      result.best_alone = on_[i].host;
    }
    for (const std::vector<int>& group : LeftOut()) {
      LeftOutHosts& left_out = result.left_out.emplace_back();
      for (const int host : group) left_out.hosts.push_back(on_[host].host);
      ChoiceFigures& with_one = left_out.with_one = With(group.front()).figures;
      if (with_one.sequences == 0) {
        Hosts hosts = best_.jobs.front();
        hosts.push_back(group.front());
        left_out.why = std::string(PlanCluster(JobOn(hosts, best_.sequences.front())).status().message());
      }
      with_one.output_tokens_per_s *= result.figures.output_tokens_per_s / best_.figures.output_tokens_per_s;
      with_one.itl_s *= result.figures.itl_s / best_.figures.itl_s;
      with_one.ttft_s *= result.figures.ttft_s / best_.figures.ttft_s;
    }
    return result;
  }

  const ClusterQuestion& question_;
  const ChoiceRules rules_;
  const int64_t layers_;
  const HostCandidates on_;
  ClusterQuestion job_;  // the question of JobOn
  // The search.
  bool whole_hosts_ = false;
  bool exact_ = true;
  int64_t looked_at_ = 0;  // stages
  std::map<std::vector<int64_t>, ChoiceFigures> known_;
  std::map<std::vector<int64_t>, Ordered> ordered_;
  Choice best_;
  std::vector<Choice> earlier_;  // that were the best ones, each better than the one before
};

}  // namespace

bool IsBetter(PlanGoal goal, const ChoiceFigures& a, const ChoiceFigures& b) {
  // Where requests wait for others to end, how fast they are then says little.
  const bool waits = goal != PlanGoal::kThroughput && a.sequences != b.sequences;
  if (waits || a.sequences == 0 || b.sequences == 0) return a.sequences > b.sequences;
  const auto less = [](double x, double y) { return x < y * (1 - kTied); };
  if (goal == PlanGoal::kLatency && (less(a.itl_s, b.itl_s) || less(b.itl_s, a.itl_s))) return a.itl_s < b.itl_s;
  if (goal == PlanGoal::kFirstToken && (less(a.ttft_s, b.ttft_s) || less(b.ttft_s, a.ttft_s))) {
    return a.ttft_s < b.ttft_s;
  }
  return less(b.output_tokens_per_s, a.output_tokens_per_s);
}

std::vector<int64_t> ShareSequences(int64_t all, const std::vector<double>& rates) {
  if (static_cast<int64_t>(rates.size()) > all) return {};
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<int64_t> shares;
  shares.reserve(rates.size());
  for (const double rate : rates) {
    shares.push_back(std::max<int64_t>(1, std::llround(static_cast<double>(all) * rate / sum)));
  }
  std::vector<size_t> order(rates.size());
  std::iota(order.begin(), order.end(), 0);
  const auto of_rate = [&](size_t job) { return static_cast<double>(shares[job]) / rates[job]; };
  for (int64_t left = all - std::accumulate(shares.begin(), shares.end(), int64_t{0}); left != 0;) {
    const int64_t step = left > 0 ? 1 : -1;
    const auto before = [&](size_t a, size_t b) {
      if (step > 0) return of_rate(a) < of_rate(b);
      return (shares[a] == 1) != (shares[b] == 1) ? shares[b] == 1 : of_rate(a) > of_rate(b);
    };
    shares[*std::min_element(order.begin(), order.end(), before)] += step;
    left -= step;
  }
  return shares;
}

absl::StatusOr<HostChoice> ChooseHosts(const ClusterQuestion& question, const ChoiceRules& rules) {
  if (question.stage_hosts.empty()) return PlanCluster(question).status();
  return HostChooser(question, rules).Choose();
}

}  // namespace stagecoach
