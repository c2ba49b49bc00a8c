#include "coordinator/cli/plan/plan_sentences.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/shown_text.h"
#include "common/host/host_info.h"
#include "coordinator/cli/options/job_options.h"
#include "coordinator/launch/program_output.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr double kWorthSaying = 1.02;  // times as fast: less is within what such predictions can tell
constexpr double kSecondsOfHour = 3600;

using What = PipelineLimit::What;

std::string LimitSentence(const PlanReport& report) {
  const ChosenJob& job = report.choice->jobs.front();
  const MainLimit main = MainLimitOf(job);
  const std::string whose = main.prompts ? "In prefill" : "In decoding";
  const char* smaller =
      report.question->job.wire_type() == pb::WIRE_TYPE_F32 ? "; --wire-dtype bf16 halves the frames" : "";
  switch (main.limit.what) {
    case What::kStage: return "";
    case What::kLink:
      return absl::StrFormat("%s the link is the limit: %s takes longer for the frames than any stage for computing%s.",
                             whose, LimitText(job, main.limit), smaller);
    case What::kUplink:
      return absl::StrFormat(
          "%s the uplink is the limit: %s takes longer for all frames that cross it than any stage for computing%s. "
          "Jobs whose hosts are all behind one uplink do not cross it.",
          whose, LimitText(job, main.limit), smaller);
    case What::kCoordinator:
      return absl::StrFormat(
          "%s the coordinator is the limit: its turn takes longer than the steps, which are short; "
          "more sequences, hence more rows in each, would hide it.",
          whose);
    case What::kUnderWay: {
      const int given = report.question->job.micro_batches();
      const std::string remedy = given > 0 ? absl::StrCat("--micro-batches ", given, " allows no more")
                                           : std::string("more sequences at once would help");
      return absl::StrCat(whose, " too little is under way to keep all stages busy: ", remedy, ".");
    }
  }
  return "";
}

std::string ChangeWords(PlanChange change) {
  switch (change) {
    case PlanChange::kMoreSequences: return "twice as many sequences at once (--max-num-seqs)";
    case PlanChange::kFasterLinks: return "links and uplinks between the hosts with ten times the bandwidth";
    case PlanChange::kMoreMemory: return "twice the memory on every host";
    case PlanChange::kAnotherHost: return "another host like the last one";
    case PlanChange::kOneStageAHost: return "one stage a host with all of its cores";
    case PlanChange::kBestSplit: return "layers split by cost (leave --layer-split out)";
    case PlanChange::kBestChunk: return "another chunk (leave --prefill-chunk out)";
    case PlanChange::kBestGroups: return "another number of groups (leave --micro-batches out)";
  }
  return "";
}

// What the goal is the more of, the better.
double GoodnessOf(PlanGoal goal, double tokens_per_s, double itl_s, double ttft_s) {
  return goal == PlanGoal::kThroughput ? tokens_per_s : 1 / (goal == PlanGoal::kLatency ? itl_s : ttft_s);
}

void AddBestChange(const PlanReport& report, std::vector<std::string>* sentences) {
  const ClusterPlan& plan = report.choice->jobs.front().plan;
  if (report.alternatives.empty()) return;
  const auto goodness = [&](const PlanAlternative& a) {
    return GoodnessOf(report.goal, a.output_tokens_per_s, a.itl_s, a.ttft_s);
  };
  const PlanAlternative& best =
      *std::max_element(report.alternatives.begin(), report.alternatives.end(),
                        [&](const PlanAlternative& a, const PlanAlternative& b) { return goodness(a) < goodness(b); });
  const std::string of = report.choice->jobs.size() > 1 ? " for job 0" : "";
  const double now = GoodnessOf(report.goal, plan.output_tokens_per_s, plan.decode.itl_s, plan.prefill.ttft_s);
  if (goodness(best) > kWorthSaying * now) {
    sentences->push_back(absl::StrFormat(
        "Of all single changes this would help most%s: %s, with %s instead of %s (%.1f ms instead of %.1f between two "
        "tokens of a sequence, a first token after %.3f s instead of %.3f).",
        of, ChangeWords(best.change), PlannedRateText(best.output_tokens_per_s),
        PlannedRateText(plan.output_tokens_per_s), best.itl_s * 1e3, plan.decode.itl_s * 1e3, best.ttft_s,
        plan.prefill.ttft_s));
  } else {
    sentences->push_back(absl::StrCat(
        "No single change (more sequences, links, memory, another host, other chunks) would gain 2 %", of, "."));
  }
}

// What the goal is measured by.
std::string GoalText(PlanGoal goal, const ChoiceFigures& figures) {
  switch (goal) {
    case PlanGoal::kThroughput: return PlannedRateText(figures.output_tokens_per_s);
    case PlanGoal::kLatency:
      return absl::StrFormat("%.4g ms between tokens (%s)", 1e3 * figures.itl_s,
                             PlannedRateText(figures.output_tokens_per_s));
    case PlanGoal::kFirstToken:
      return absl::StrFormat("a first token after %.4g s (%s)", figures.ttft_s,
                             PlannedRateText(figures.output_tokens_per_s));
  }
  return "";
}

// The best host alone and, of several jobs, the best single one.
void AddComparisons(const PlanReport& report, std::vector<std::string>* sentences) {
  const HostChoice& choice = *report.choice;
  const std::vector<int> hosts = HostsOfAll(report);
  const size_t stages = choice.jobs.front().question.stage_hosts.size();
  if (choice.jobs.size() == 1 && hosts.size() == 1) {
    const bool shared = stages > 1;
    const auto one = std::find_if(report.alternatives.begin(), report.alternatives.end(),
                                  [](const PlanAlternative& a) { return a.change == PlanChange::kOneStageAHost; });
    const double now = choice.figures.output_tokens_per_s;
    if (shared && one != report.alternatives.end() && one->output_tokens_per_s >= now) {
      sentences->push_back(
          absl::StrFormat("One stage over all cores of a host %s several on it: %s instead of %s. Give --pp 1.",
                          one->output_tokens_per_s > kWorthSaying * now ? "beats" : "is as fast as",
                          PlannedRateText(one->output_tokens_per_s), PlannedRateText(now)));
    } else if (!shared) {
      sentences->push_back(
          "This is one stage; a pipeline of several pays where the model needs the memory of several.");
    }
    return;
  }
  if (choice.alone.sequences == 0) {
    if (report.chosen) {
      sentences->push_back(
          "None of these hosts alone holds the model with the KV cache of one of these sequences, so a pipeline is "
          "what "
          "runs it.");
    }
    return;
  }
  const std::string& best = report.question->profile.hosts[static_cast<size_t>(choice.best_alone)].name;
  const int64_t cores = CoresOf(report, {choice.best_alone});
  const std::string alone =
      absl::StrFormat("%s alone would give %s%s, %s tokens per core-hour", best, GoalText(report.goal, choice.alone),
                      choice.alone.sequences < report.question->job.max_num_seqs()
                          ? absl::StrCat(" with ", choice.alone.sequences, " sequences at once")
                          : "",
                      FigureText(TokensPerCoreHour(choice.alone.output_tokens_per_s, cores)));
  if (choice.jobs.size() == 1) {
    const bool pays = IsBetter(report.goal, choice.figures, choice.alone);
    sentences->push_back(absl::StrCat(pays ? "The pipeline pays: " : "The pipeline does not pay: ", alone, "."));
    return;
  }
  std::string sentence = absl::StrFormat("%s on their own hosts are better than one pipeline",
                                         CountOf(static_cast<int64_t>(choice.jobs.size()), "independent job"));
  if (report.one_job.has_value())
    absl::StrAppend(&sentence, ": the best single job would give ", GoalText(report.goal, *report.one_job));
  sentences->push_back(absl::StrCat(sentence, "; ", alone, ". Start them with the lines below."));
}

void AddDraft(const PlanReport& report, std::vector<std::string>* sentences) {
  if (!report.draft.has_value()) return;
  const PlannedDraft& draft = *report.draft;
  if (!draft.why_not.empty()) {
    sentences->push_back(absl::StrCat("The draft does not fit on ", draft.host, ": ", WithFlags(draft.why_not),
                                      ". A job goes on without it."));
  } else if (!draft.beside.empty()) {
    sentences->push_back(absl::StrCat(
        "The draft shares ", draft.host, " with stage", draft.beside.size() > 1 ? "s " : " ",
        absl::StrJoin(draft.beside, ", "), ", which then ", draft.beside.size() > 1 ? "have" : "has",
        " fewer cores than these figures reckon with; a host of its own (`draft` in the host file) takes none."));
  }
}

void AddLeftOut(const PlanReport& report, std::vector<std::string>* sentences) {
  std::vector<int> unasked;  // because fewer stages were asked for
  for (const LeftOutHosts& left_out : report.choice->left_out) {
    const ChoiceFigures& with = left_out.with_one;
    if (with.sequences == 0 && report.stages > 0) {
      unasked.insert(unasked.end(), left_out.hosts.begin(), left_out.hosts.end());
      continue;
    }
    const char* one = left_out.hosts.size() == 1 ? "it" : "one of them";
    std::string what = absl::StrCat("A job with ", one, ": ", left_out.why);
    if (with.sequences > 0) {
      const std::string now = GoalText(report.goal, report.choice->figures), then = GoalText(report.goal, with);
      what = absl::StrCat("With ", one, now == then ? " nothing would change" : ": ",
                          now == then ? "" : absl::StrCat(then, " instead of ", now));
    }
    sentences->push_back(absl::StrCat("Left out: ", NamesOf(report, left_out.hosts), ". ", what, "."));
  }
  if (unasked.empty()) return;
  sentences->push_back(absl::StrCat("Left out: ", NamesOf(report, unasked), ". ", CountOf(report.stages, "stage"),
                                    report.stages == 1 ? " was" : " were", " asked for."));
}

}  // namespace

const HostFacts& HostOf(const ChosenJob& job, int stage) {
  const ClusterQuestion& question = job.question;
  return question.profile.hosts[static_cast<size_t>(question.stage_hosts[static_cast<size_t>(stage)])];
}

std::vector<int> HostsOf(const ChosenJob& job) {
  std::vector<int> hosts;
  for (const int host : job.question.stage_hosts) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

std::vector<int> HostsOfAll(const PlanReport& report) {
  std::vector<int> hosts;
  for (const ChosenJob& job : report.choice->jobs) {
    const std::vector<int> of_job = HostsOf(job);
    hosts.insert(hosts.end(), of_job.begin(), of_job.end());
  }
  return hosts;
}

int64_t CoresOf(const PlanReport& report, const std::vector<int>& hosts) {
  int64_t cores = 0;
  for (const int host : hosts) cores += report.question->profile.hosts[static_cast<size_t>(host)].cores;
  return cores;
}

double TokensPerCoreHour(double tokens_per_s, int64_t cores) {
  return cores > 0 ? kSecondsOfHour * tokens_per_s / static_cast<double>(cores) : 0;
}

std::string NamesOf(const PlanReport& report, const std::vector<int>& hosts) {
  constexpr size_t kMost = 4;
  std::vector<std::string> names;
  for (size_t i = 0; i < hosts.size() && (i + 1 < kMost || hosts.size() <= kMost); ++i) {
    names.push_back(report.question->profile.hosts[static_cast<size_t>(hosts[i])].name);
  }
  const size_t more = hosts.size() - names.size();
  return absl::StrCat(absl::StrJoin(names, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

std::string PlannedRateText(double tokens_per_s) { return FigureText(tokens_per_s) + " tokens/s"; }

MainLimit MainLimitOf(const ChosenJob& job) {
  const ClusterPlan& plan = job.plan;
  const PlanLoad& load = job.question.load;
  const double prompts =
      static_cast<double>(plan.sequences) * static_cast<double>(load.prompt_tokens) / plan.prefill.tokens_per_s;
  const double decode = static_cast<double>(load.output_tokens - 1) * plan.decode.itl_s;
  if (prompts > decode) return {true, prompts / (prompts + decode), plan.prefill.limit};
  return {false, decode / (prompts + decode), plan.decode.limit};
}

std::string LimitText(const ChosenJob& job, PipelineLimit limit) {
  const int next = std::min(limit.index + 1, job.plan.stages() - 1);
  switch (limit.what) {
    case What::kStage: return absl::StrFormat("stage %d on %s", limit.index, HostOf(job, limit.index).name);
    case What::kLink:
      return absl::StrFormat("the link from %s to %s", HostOf(job, limit.index).name, HostOf(job, next).name);
    case What::kUplink:
      return absl::StrFormat("the uplink %s", job.question.profile.uplinks[static_cast<size_t>(limit.index)].name);
    case What::kCoordinator: return "the coordinator's turns";
    case What::kUnderWay: return "too few sequences under way";
  }
  return "";
}

std::vector<std::string> PlanSentences(const PlanReport& report) {
  std::vector<std::string> sentences;
  if (const int64_t asked = report.question->job.max_num_seqs(), held = report.choice->figures.sequences;
      held < asked) {
    sentences.push_back(absl::StrFormat(
        "The KV cache holds %d of %d sequences of this length at once; the figures are for so many.", held, asked));
  }
  if (std::string limit = LimitSentence(report); !limit.empty()) sentences.push_back(std::move(limit));
  AddDraft(report, &sentences);
  if (report.chosen) AddLeftOut(report, &sentences);
  AddComparisons(report, &sentences);
  AddBestChange(report, &sentences);
  return sentences;
}

SavedPlan SavedPlanOf(const PlanReport& report, const ChosenJob& job) {
  SavedPlan saved;
  SetModelOf(*report.question->model, &saved);
  saved.here = report.places->here;
  for (int s = 0; s < job.plan.stages(); ++s) {
    const HostFacts& host = HostOf(job, s);
    const pb::StageAssignment& stage = job.plan.job.stages[s];
    saved.stages.push_back(
        {.host = host.name,
         .layers = stage.last_layer() - stage.first_layer(),
         .cores = report.places->CoresKnown(job.question.stage_hosts[static_cast<size_t>(s)]) ? host.cores : 0,
         .memory_bytes = job.plan.memory[s].total()});
  }
  saved.threads = report.question->job.threads();
  saved.micro_batches = job.plan.job.micro_batches;
  saved.prefill_chunk = job.plan.prefill.chunk;
  return saved;
}

std::vector<std::string> JobLines(const PlanReport& report) {
  std::vector<std::string> lines;
  if (report.choice->jobs.size() < 2) return lines;
  const PlanLoad& load = report.question->load;
  for (const ChosenJob& job : report.choice->jobs) {
    std::string place = absl::StrReplaceAll(HostListOf(SavedPlanOf(report, job)) + ",", {{":1,", ","}});
    place.pop_back();
    const std::string number = absl::StrCat(lines.size());
    const int64_t sequences = job.question.job.max_num_seqs();
    std::vector<std::string> words = {"coordinator", report.has_tokenizer ? "batch" : "bench"};
    words.insert(words.end(), report.model_words.begin(), report.model_words.end());
    if (!place.empty() && !(job.plan.stages() == 1 && place == HostName()))
      words.insert(words.end(), {"--host", place});
    if (job.plan.stages() > 1) {
      const auto layers = [](std::string* out, const pb::StageAssignment& stage) {
        absl::StrAppend(out, stage.last_layer() - stage.first_layer());
      };
      words.insert(words.end(),
                   {"--layer-split", absl::StrJoin(job.plan.job.stages, ",", layers), "--micro-batches",
                    absl::StrCat(job.plan.job.micro_batches), "--prefill-chunk", absl::StrCat(job.plan.prefill.chunk)});
    }
    words.insert(words.end(), report.job_words.begin(), report.job_words.end());
    if (report.has_tokenizer) {
      words.insert(words.end(),
                   {"--max-num-seqs", absl::StrCat(sequences), "-i", absl::StrCat("requests-", number, ".jsonl"), "-o",
                    absl::StrCat("answers-", number, ".jsonl")});
    } else {
      words.insert(words.end(), {"-p", absl::StrCat(load.prompt_tokens), "-n", absl::StrCat(load.output_tokens), "-b",
                                 absl::StrCat(sequences)});
    }
    lines.push_back(JoinShellWords(words));
  }
  return lines;
}

}  // namespace stagecoach
