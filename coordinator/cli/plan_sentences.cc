// Plain words on a plan: what holds it back, and what would be better.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/cli/plan_report.h"
#include "coordinator/launch/local_host.h"
#include "coordinator/launch/shell_words.h"

namespace stagecoach {
namespace {

constexpr double kWorthNaming = 0.05;  // of the stages' time
constexpr double kWorthSaying = 1.02;  // times as fast: less is within what such predictions can tell

int HostCount(const PlanReport& report) {
  std::vector<int> hosts = report.places->stage_hosts;
  std::sort(hosts.begin(), hosts.end());
  return static_cast<int>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
}

std::string RateText(double tokens_per_s) { return absl::StrFormat("%.3g tokens/s", tokens_per_s); }

const PlanAlternative* FindAlternative(const PlanAdvice& advice, PlanChange change) {
  for (const PlanAlternative& alternative : advice.alternatives) {
    if (alternative.change == change) return &alternative;
  }
  return nullptr;
}

std::string ChangeWords(PlanChange change) {
  switch (change) {
    case PlanChange::kMoreSequences: return "twice as many sequences at once (--max-num-seqs)";
    case PlanChange::kFasterLinks: return "links between the hosts with ten times the bandwidth";
    case PlanChange::kMoreMemory: return "twice the memory on every host";
    case PlanChange::kAnotherHost: return "another host like the last one";
    case PlanChange::kOneStageAHost: return "one stage a host with all of its cores";
    case PlanChange::kBestSplit: return "layers split by cost (leave --layer-split out)";
    case PlanChange::kBestChunk: return "another chunk (leave --prefill-chunk out)";
    case PlanChange::kBestGroups: return "another number of groups (leave --micro-batches out)";
  }
  return "";
}

std::string LimitSentence(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  const DecodePrediction& decode = plan.decode;
  const int next = std::min(decode.bottleneck + 1, plan.stages() - 1);
  const char* remedy =
      report.question->job.wire_type() == pb::WIRE_TYPE_F32 ? "; --wire-dtype bf16 halves the frames" : "";
  if (decode.link_is_bottleneck) {
    return absl::StrFormat(
        "The link is the limit: the one from %s to %s takes longer for the frame of a step than any stage for "
        "computing it%s.",
        report.HostOf(decode.bottleneck).name, report.HostOf(next).name, remedy);
  }
  if (plan.prefill.link_is_bottleneck) {
    return absl::StrFormat(
        "In prefill the link is the limit: the one from %s to %s takes longer for a prompt than any stage for "
        "computing it%s.",
        report.HostOf(plan.prefill.bottleneck).name,
        report.HostOf(std::min(plan.prefill.bottleneck + 1, plan.stages() - 1)).name, remedy);
  }
  const double others = std::max({decode.bubble_few, decode.bubble_imbalance, kWorthNaming});
  if (decode.bubble_hop > std::max(others, decode.bubble_coordinator)) {
    return "The way between the stages costs more than anything else in decoding: more sequences, hence more groups "
           "under way, would hide it.";
  }
  if (decode.bubble_coordinator > others) {
    return "The coordinator's turn between a result and the next step costs more than anything else in decoding, for "
           "the steps are short: more sequences, hence more rows in each, would hide it.";
  }
  return "";
}

void AddBestChange(const PlanReport& report, std::vector<std::string>* sentences) {
  const ClusterPlan& plan = *report.plan;
  if (report.advice->alternatives.empty()) return;
  const PlanAlternative& best = report.advice->alternatives.front();
  if (best.output_tokens_per_s > kWorthSaying * plan.output_tokens_per_s) {
    sentences->push_back(absl::StrFormat(
        "Of all single changes this would help most: %s, with %s instead of %s (%.1f ms instead of %.1f between two "
        "tokens of a sequence).",
        ChangeWords(best.change), RateText(best.output_tokens_per_s), RateText(plan.output_tokens_per_s),
        best.itl_s * 1e3, plan.decode.itl_s * 1e3));
  } else {
    sentences->push_back(
        "No single change (more sequences, links, memory, another host, other chunks) would gain 2 %.");
  }
}

std::string WhereItFits(const IndependentJobs& jobs, const PlanReport& report) {
  if (static_cast<int>(jobs.hosts.size()) == HostCount(report)) return "one host";
  return absl::StrCat(absl::StrJoin(jobs.hosts, ", ",
                                    [&](std::string* out, int host) {
                                      out->append(report.places->profile.hosts[static_cast<size_t>(host)].name);
                                    }),
                      " alone");
}

std::string JobsText(const IndependentJobs& jobs) {
  const std::vector<int64_t>& each = jobs.sequences;
  const bool alike = std::equal(each.begin() + 1, each.end(), each.begin());
  const std::string sequences = absl::StrCat(alike ? absl::StrCat(each.front()) : absl::StrJoin(each, ", "),
                                             alike && each.front() == 1 ? " sequence" : " sequences");
  if (jobs.hosts.size() == 1) return absl::StrCat("A job of ", sequences, " there");
  return absl::StrCat(jobs.hosts.size(), " independent jobs of ", sequences, alike ? " each" : "");
}

void AddPipelineSentences(const PlanReport& report, std::vector<std::string>* sentences) {
  const ClusterPlan& plan = *report.plan;
  if (plan.stages() == 1) {
    sentences->push_back("This is one stage; a pipeline of several pays where the model needs the memory of several.");
    return;
  }
  const double now = plan.output_tokens_per_s;
  const PlanAlternative* one_a_host = FindAlternative(*report.advice, PlanChange::kOneStageAHost);
  if (one_a_host != nullptr && one_a_host->output_tokens_per_s >= now) {
    const bool faster = one_a_host->output_tokens_per_s > kWorthSaying * now;
    sentences->push_back(
        absl::StrFormat("One stage over all cores of a host %s several on it: %s instead of %s. Give %s.",
                        faster ? "beats" : "is as fast as", RateText(one_a_host->output_tokens_per_s), RateText(now),
                        HostCount(report) == 1 ? std::string("--pp 1") : std::string("every host one slot")));
  }
  const std::optional<IndependentJobs>& jobs = report.advice->independent;
  if (HostCount(report) == 1) return;
  if (!jobs.has_value()) {
    sentences->push_back(
        "None of these hosts alone holds the model with the KV cache of one of these sequences, so a pipeline is what "
        "runs it.");
    return;
  }
  const std::string fits = absl::StrCat("the model fits ", WhereItFits(*jobs, report));
  const std::string both = absl::StrFormat("%s: %s in all; this pipeline: %s.", JobsText(*jobs),
                                           RateText(jobs->output_tokens_per_s), RateText(now));
  sentences->push_back(jobs->output_tokens_per_s >= now
                           ? absl::StrCat("The pipeline does not pay: ", fits, ". ", both,
                                          jobs->hosts.size() == 1 ? " Start it with the line below."
                                                                  : " Start them with the lines below.")
                           : absl::StrCat("Here ", fits, ", but the pipeline is expected to be faster. ", both));
}

}  // namespace

std::vector<std::string> PlanSentences(const PlanReport& report) {
  const ClusterPlan& plan = *report.plan;
  std::vector<std::string> sentences;
  if (const int64_t asked = report.question->job.max_num_seqs(); plan.sequences < asked) {
    sentences.push_back(
        absl::StrFormat("The KV cache holds %d of %d sequences of this length at once; the figures are for so many.",
                        plan.sequences, asked));
  }
  if (std::string limit = LimitSentence(report); !limit.empty()) sentences.push_back(std::move(limit));
  AddBestChange(report, &sentences);
  AddPipelineSentences(report, &sentences);
  return sentences;
}

std::vector<std::string> IndependentLines(const PlanReport& report) {
  std::vector<std::string> lines;
  const std::optional<IndependentJobs>& jobs = report.advice->independent;
  if (!jobs.has_value() || HostCount(report) < 2 || jobs->output_tokens_per_s < report.plan->output_tokens_per_s) {
    return lines;
  }
  const PlanLoad& load = report.question->load;
  for (size_t i = 0; i < jobs->hosts.size(); ++i) {
    const std::string& host = report.places->profile.hosts[static_cast<size_t>(jobs->hosts[i])].name;
    std::vector<std::string> words = {"coordinator", report.has_tokenizer ? "batch" : "bench"};
    words.insert(words.end(), report.model_words.begin(), report.model_words.end());
    if (!IsThisHost(host)) words.insert(words.end(), {"--host", host});
    words.insert(words.end(), report.job_words.begin(), report.job_words.end());
    if (report.has_tokenizer) {
      words.insert(words.end(), {"--max-num-seqs", absl::StrCat(jobs->sequences[i]), "-i",
                                 absl::StrCat("requests-", i, ".jsonl"), "-o", absl::StrCat("answers-", i, ".jsonl")});
    } else {
      words.insert(words.end(), {"-p", absl::StrCat(load.prompt_tokens), "-n", absl::StrCat(load.output_tokens), "-b",
                                 absl::StrCat(jobs->sequences[i])});
    }
    lines.push_back(JoinShellWords(words));
  }
  return lines;
}

}  // namespace stagecoach
