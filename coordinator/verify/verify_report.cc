#include "coordinator/verify/verify_report.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/shown_text.h"
#include "common/json/json.h"
#include "common/json/json_value.h"

namespace stagecoach {
namespace {

std::string CountText(const VerifyCount& count) {
  std::string text = absl::StrCat(CountOf(count.tokens, "token"), " and ", count.logprobs, " log-probabilities");
  if (count.checksums > 0) absl::StrAppend(&text, ", ", count.checksums, " hidden states");
  return text;
}

const pb::StageSummary* StageOfLayer(const pb::JobReady& ready, int64_t layer) {
  for (const pb::StageSummary& stage : ready.stages()) {
    if (layer >= stage.first_layer() && layer < stage.last_layer()) return &stage;
  }
  return nullptr;
}

std::string Place(const VerifyRecord& record, int64_t layer) {
  const pb::StageSummary* stage = StageOfLayer(record.ready, layer);
  if (stage == nullptr) return absl::StrCat("run ", record.number);
  return absl::StrCat("stage ", stage->stage(), " on ", stage->host(), " in run ", record.number);
}

std::string TokenText(const VerifyReport& report, TokenId token) {
  if (report.tokenizer == nullptr || token < 0 || token >= report.tokenizer->vocab_size()) return absl::StrCat(token);
  return absl::StrCat(token, " (\"",
                      absl::Utf8SafeCEscape(report.tokenizer->TokenBytes(token, /*render_control=*/true)), "\")");
}

std::string Number(float value) { return absl::StrFormat("%.9g", value); }

std::string OutputText(const VerifyReport& report, const VerifyFinding& finding) {
  const OutputDifference& d = *finding.difference.output;
  const int a = finding.a->number, b = finding.b->number;
  if (d.tokens[0] != d.tokens[1]) {
    return absl::StrCat("the token at position ", d.position, " is ", TokenText(report, d.tokens[0]), " in run ", a,
                        " and ", TokenText(report, d.tokens[1]), " in run ", b);
  }
  return absl::StrCat("the log-probability of ", d.prompt ? "the prompt's token " : "token ", TokenText(report, d.of),
                      " at position ", d.position, " is ", Number(d.logprobs[0]), " in run ", a, " and ",
                      Number(d.logprobs[1]), " in run ", b);
}

std::string HiddenText(const VerifyFinding& finding) {
  const std::string again = finding.looked_again ? "run again with checksums, " : "";
  if (!finding.trouble.empty()) return absl::StrCat("the layer is not known: ", finding.trouble);
  if (finding.difference.hidden.has_value()) {
    const HiddenDifference& d = *finding.difference.hidden;
    return absl::StrCat(again, "their hidden states differ first at position ", d.position, ", behind layer ", d.layer,
                        ": ", Place(*finding.a, d.layer), ", ", Place(*finding.b, d.layer));
  }
  if (finding.differed_again == false) {
    return absl::StrCat(
        again, finding.without_cache ? "and without the prefix cache, " : "", "the two agreed: what differed ",
        finding.without_cache ? "is in the cache, or does not differ each time" : "does not differ each time");
  }
  return absl::StrCat(again, "all of their hidden states are the same: the two part behind the last layer, ",
                      "in the output head or in sampling");
}

// What to do about a layer that differs; empty where none is known.
std::string NextText(const VerifyReport& report, const VerifyFinding& finding) {
  if (!finding.difference.hidden.has_value()) return "";
  std::vector<std::string> hosts;
  for (const VerifyRecord* record : {finding.a, finding.b}) {
    const pb::StageSummary* stage = StageOfLayer(record->ready, finding.difference.hidden->layer);
    if (stage != nullptr && (hosts.empty() || hosts.front() != stage->host())) hosts.push_back(stage->host());
  }
  if (hosts.empty()) return "";
  return absl::StrCat(
      "next: compare the SHA-256 of ", report.model, " on ", absl::StrJoin(hosts, " and "),
      " with the original's; if it is the same, run again with another --isa and --threads 1, and test ",
      "the memory there");
}

std::string GroupsText(const std::vector<std::vector<int>>& agreeing) {
  std::vector<std::string> groups;
  groups.reserve(agreeing.size());
  for (const std::vector<int>& group : agreeing) groups.push_back(absl::StrJoin(group, ", "));
  return absl::StrCat("runs that agree with each other: ", absl::StrJoin(groups, "; "));
}

Json RunJson(const VerifyReport& report, const VerifyRecord& record) {
  Json json = {{"number", record.number}, {"name", record.run.name}};
  if (!record.left_out.empty()) {
    json["verdict"] = "left out";
    json["why"] = record.left_out;
    if (!record.run.layer_split.empty()) json["layer_split"] = record.run.layer_split;
    return json;
  }
  json["prefill_chunk"] = record.prefill_chunk;
  json["one_by_one"] = record.run.one_by_one;
  json["restarted"] = record.run.restarted;
  json["relaunches"] = record.relaunches;
  if (record.guesses > 0) {
    json["guesses"] = record.guesses;
    json["guesses_right"] = record.guesses_right;
  }
  json["stages"] = Json::array();
  for (const pb::StageSummary& stage : record.ready.stages()) {
    json["stages"].push_back({{"stage", stage.stage()},
                              {"host", stage.host()},
                              {"first_layer", stage.first_layer()},
                              {"layers", stage.last_layer() - stage.first_layer()}});
  }
  const VerifyRecord& first = report.records.front();
  const VerifyCount count = CountCompared(report.requests, first.answers, record.answers);
  json["tokens"] = count.tokens;
  json["logprobs"] = count.logprobs;
  json["hidden_states"] = count.checksums;
  const bool same = !FirstDifference(report.requests, first.answers, record.answers).has_value();
  json["verdict"] = same ? "identical" : "different";
  return json;
}

Json FindingJson(const VerifyReport& report, const VerifyFinding& finding) {
  Json json = {{"runs", {finding.a->number, finding.b->number}},
               {"request", report.requests[finding.difference.request].name},
               {"output", nullptr},
               {"hidden", nullptr}};
  if (const auto& d = finding.difference.output; d.has_value()) {
    json["output"] = {{"position", d->position}};
    if (d->tokens[0] != d->tokens[1]) {
      json["output"]["tokens"] = {d->tokens[0], d->tokens[1]};
    } else {
      json["output"]["of_token"] = d->of;
      json["output"]["logprobs"] = {FloatJson(d->logprobs[0]), FloatJson(d->logprobs[1])};
    }
  }
  if (const auto& d = finding.difference.hidden; d.has_value()) {
    json["hidden"] = {{"position", d->position}, {"layer", d->layer}, {"stages", Json::array()}};
    for (const VerifyRecord* record : {finding.a, finding.b}) {
      const pb::StageSummary* stage = StageOfLayer(record->ready, d->layer);
      if (stage == nullptr) continue;
      json["hidden"]["stages"].push_back({{"run", record->number}, {"stage", stage->stage()}, {"host", stage->host()}});
    }
  }
  json["looked_again"] = finding.looked_again;
  if (finding.differed_again.has_value()) json["differed_again"] = *finding.differed_again;
  if (!finding.trouble.empty()) json["trouble"] = finding.trouble;
  return json;
}

}  // namespace

std::string VerifyHeading(const VerifyReport& report, const std::vector<int64_t>& planned) {
  std::vector<std::string> requests;
  for (const VerifyRequest& request : report.requests) {
    requests.push_back(
        absl::StrCat(request.name, " (", CountOf(static_cast<int64_t>(request.prompt.size()), "token"), ")"));
  }
  std::string text = absl::StrCat(report.model, ": ", CountOf(report.layers, "layer"), " over ",
                                  CountOf(static_cast<int64_t>(planned.size()), "stage"), ", ",
                                  CountOf(report.requests.front().new_tokens, "new token"), " each of ",
                                  absl::StrJoin(requests, ", "));
  if (report.cut_to > 0) {
    absl::StrAppend(&text, "; verify's own prompts are cut to ", CountOf(report.cut_to, "token"), " for the context");
  }
  if (!report.note.empty()) absl::StrAppend(&text, "\nnote: ", report.note);
  return absl::StrCat(text, "\n");
}

std::string VerifyLine(const VerifyReport& report, const VerifyRecord& record) {
  std::string line = absl::StrFormat("%2d  %-19s  ", record.number, record.run.name);
  if (!record.left_out.empty()) {
    const std::vector<int64_t>& split = record.run.layer_split;
    if (!split.empty()) absl::StrAppend(&line, "layers ", absl::StrJoin(split, ","), ": ");
    return absl::StrCat(line, "left out: ", record.left_out, "\n");
  }
  absl::StrAppend(&line, "layers ", absl::StrJoin(LayersOf(record.ready), ","), ", chunk ", record.prefill_chunk);
  if (record.guesses > 0) absl::StrAppend(&line, ", ", record.guesses, " guesses, ", record.guesses_right, " right");
  absl::StrAppend(&line, ": ");
  if (record.relaunches > 0) absl::StrAppend(&line, "(after losing stages ", CountOf(record.relaunches, "time"), ") ");
  const VerifyRecord& first = report.records.front();
  const VerifyCount count = CountCompared(report.requests, first.answers, record.answers);
  if (&record == &first) return absl::StrCat(line, CountText(count), ", which the others are compared with\n");
  const std::optional<AnswerDifference> difference = FirstDifference(report.requests, first.answers, record.answers);
  if (!difference.has_value()) return absl::StrCat(line, CountText(count), " identical\n");
  const int64_t position = difference->output.has_value() ? difference->output->position : difference->hidden->position;
  return absl::StrCat(line, "DIFFERENT: ", report.requests[difference->request].name, ", from position ", position,
                      " on\n");
}

std::string VerifyDifference(const VerifyReport& report) {
  if (!report.finding.has_value()) return report.unsteady.front();
  const VerifyFinding& finding = *report.finding;
  const AnswerDifference& d = finding.difference;
  std::string text =
      absl::StrCat("runs ", finding.a->number, " and ", finding.b->number, " differ: ", report.requests[d.request].name,
                   ", position ", d.output.has_value() ? d.output->position : d.hidden->position);
  if (d.hidden.has_value()) absl::StrAppend(&text, "; first behind layer ", d.hidden->layer);
  return text;
}

std::string VerifyVerdict(const VerifyReport& report) {
  if (report.identical()) {
    int64_t runs = 0;
    for (const VerifyRecord& record : report.records) runs += record.left_out.empty() ? 1 : 0;
    const std::vector<VerifyAnswer>& first = report.records.front().answers;
    return absl::StrCat(
        report.incomplete.empty() ? "identical: " : "incomplete, identical so far: ", CountOf(runs, "run"), ", ",
        CountText(CountCompared(report.requests, first, first)), ", bit for bit\n");
  }
  std::vector<std::string> lines;
  if (report.finding.has_value()) {
    const VerifyFinding& finding = *report.finding;
    const std::string which = absl::StrCat("different: ", report.requests[finding.difference.request].name, ": ");
    if (finding.difference.output.has_value()) {
      lines.push_back(absl::StrCat(which, OutputText(report, finding)));
    } else {
      lines.push_back(absl::StrCat(which, "runs ", finding.a->number, " and ", finding.b->number,
                                   " have the same tokens and log-probabilities, but not the same hidden states"));
    }
    lines.push_back(absl::StrCat("           ", HiddenText(finding)));
    lines.push_back(absl::StrCat("           ", GroupsText(report.agreeing)));
    const std::string next = NextText(report, finding);
    if (!next.empty()) lines.push_back(absl::StrCat("           ", next));
  }
  for (const std::string& run : report.unsteady) lines.push_back(absl::StrCat("different: ", run));
  if (!report.incomplete.empty()) lines.push_back(absl::StrCat("not all runs were made: ", report.incomplete));
  return absl::StrCat(absl::StrJoin(lines, "\n"), "\n");
}

std::string VerifyJson(const VerifyReport& report) {
  Json json = {{"verdict", !report.identical()         ? "different"
                           : report.incomplete.empty() ? "identical"
                                                       : "incomplete"},
               {"model", report.model},
               {"layers", report.layers},
               {"requests", Json::array()},
               {"runs", Json::array()},
               {"agreeing", report.agreeing},
               {"difference", nullptr}};
  if (report.cut_to > 0) json["own_prompts_cut_to"] = report.cut_to;
  if (!report.note.empty()) json["note"] = report.note;
  if (!report.incomplete.empty()) json["incomplete_because"] = report.incomplete;
  for (const VerifyRequest& request : report.requests) {
    json["requests"].push_back(
        {{"name", request.name}, {"prompt_tokens", request.prompt.size()}, {"new_tokens", request.new_tokens}});
  }
  for (const VerifyRecord& record : report.records) json["runs"].push_back(RunJson(report, record));
  if (report.finding.has_value()) json["difference"] = FindingJson(report, *report.finding);
  if (!report.unsteady.empty()) json["unsteady"] = report.unsteady;
  return PrettyJson(json);
}

}  // namespace stagecoach
