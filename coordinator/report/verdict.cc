#include "coordinator/report/verdict.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/shown_text.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

constexpr double kLeastGain = 1.1;     // below it a gain is called none
constexpr double kNearIdeal = 0.8;     // of what as many of the best host would give
constexpr double kFewerRows = 0.75;    // rows of a pass, against the single stage's
constexpr double kSmallBubble = 0.05;  // shares of time below it are no reason

// What may differ between the points of one line over stages: of each number of stages the fastest counts.
const std::vector<SweepField> kOverStages = {
    SweepField::kStages,       SweepField::kThreads,      SweepField::kHosts,        SweepField::kPolicy,
    SweepField::kDecodeGroups, SweepField::kMicroBatches, SweepField::kPrefillChunk, SweepField::kChunking,
    SweepField::kIsa,          SweepField::kCpuBind,      SweepField::kWeights,      SweepField::kBlockTokens,
    SweepField::kLayerSplit};
// What may differ between such a line and one beside it, of a simulation or of another series: what it ran on, how
// long, and bounds that follow the load.
constexpr SweepField kBesideLines[] = {
    SweepField::kSeries,   SweepField::kSimulated,  SweepField::kCluster,  SweepField::kClusterHosts,
    SweepField::kMachine,  SweepField::kLaunch,     SweepField::kRequests, SweepField::kMaxNumBatchedTokens,
    SweepField::kDuration, SweepField::kMaxNumSeqs, SweepField::kSlo,      SweepField::kSeed,
    SweepField::kContext};

bool Slower(const SweepCell* a, const SweepCell* b) { return a->Throughput().median < b->Throughput().median; }

const char* RateUnit(const SweepCell& cell) { return cell.prefill_only() ? "prompt tokens/s" : "output tokens/s"; }

// "2 stages × 4 threads"; where its stages have unequal threads, the stages alone.
std::string ShapeText(const SweepCell& cell) {
  const std::string stages = FieldText(cell, SweepField::kStages);
  return HasEvenThreads(cell) ? absl::StrCat(stages, " \xC3\x97 ", FieldText(cell, SweepField::kThreads)) : stages;
}

// Of each number of stages the fastest cell, rising.
CellPointers FastestOfEachStages(const CellPointers& group) {
  std::map<int64_t, const SweepCell*> fastest;
  for (const SweepCell* cell : group) {
    if (cell->stages == 0 || !(cell->Throughput().median > 0)) continue;
    const SweepCell*& best = fastest[cell->stages];
    if (best == nullptr || Slower(best, cell)) best = cell;
  }
  CellPointers line;
  for (const auto& [stages, cell] : fastest) line.push_back(cell);
  return line;
}

// The lines over stages under closed loads: those of the first series first, measured before simulated, decode before
// prefill, with a single stage before without, then by throughput.
std::vector<CellPointers> LinesOverStages(const CellPointers& cells) {
  const CellPointers closed =
      Where(cells, [](const SweepCell& cell) { return !cell.runs.empty() && !cell.open_load(); });
  std::vector<CellPointers> lines;
  for (const CellPointers& group : GroupCells(closed, kOverStages)) {
    if (CellPointers line = FastestOfEachStages(group); line.size() >= 2) lines.push_back(std::move(line));
  }
  const auto rank = [](const CellPointers& line) {
    return std::make_tuple(line[0]->series, line[0]->simulated, line[0]->prefill_only(), line[0]->stages != 1,
                           -BestThroughput(line));
  };
  std::stable_sort(lines.begin(), lines.end(),
                   [&](const CellPointers& a, const CellPointers& b) { return rank(a) < rank(b); });
  return lines;
}

// In what lines differ besides their stages, origin and load.
CellLabels LineLabels(const CellPointers& lines) {
  std::vector<SweepField> told = kOverStages;
  told.insert(told.end(),
              {SweepField::kSeries, SweepField::kConcurrency, SweepField::kArrivals, SweepField::kSimulated});
  return {lines, told};
}

// The text, and after it the other one if there is any.
std::string With(const std::string& text, const std::string& rest) {
  return absl::StrCat(text, rest.empty() ? "" : ", ", rest);
}

// Whether the two can be points of lines in one chart: model, load, types, links and all else that is not excepted are
// the same. Another series may have another copy of the model and another version.
bool Comparable(const SweepCell& a, const SweepCell& b) {
  for (int i = 0; i < kSweepFields; ++i) {
    const auto field = static_cast<SweepField>(i);
    const auto among = [&](const auto& fields) {
      return std::find(std::begin(fields), std::end(fields), field) != std::end(fields);
    };
    const bool of_series = field == SweepField::kVersion || field == SweepField::kModelFile;
    if (among(kOverStages) || among(kBesideLines) || (of_series && a.series != b.series)) continue;
    if (FieldText(a, field) != FieldText(b, field)) return false;
  }
  return true;
}

double ComputeSecondsPerToken(const SweepCell& cell) {
  const SweepPoint& run = MedianRun(cell);
  double compute_s = 0;
  for (const SweepStage& stage : run.stages) compute_s += stage.compute_s;
  return compute_s / static_cast<double>(std::max<int64_t>(1, run.result.output_tokens));
}

size_t BusiestStage(const SweepCell& cell) {
  const std::vector<SweepStage>& stages = MedianRun(cell).stages;
  const auto busiest = std::max_element(
      stages.begin(), stages.end(), [](const SweepStage& a, const SweepStage& b) { return a.compute_s < b.compute_s; });
  return static_cast<size_t>(busiest - stages.begin());
}

std::set<std::string> HostsOf(const SweepCell& cell) {
  std::set<std::string> hosts;
  for (const SweepStage& stage : MedianRun(cell).stages) hosts.insert(stage.host);
  return hosts;
}

// All stages of all cells ran on one host, which is known.
bool RanOnOneHost(const CellPointers& cells) {
  std::set<std::string> hosts;
  for (const SweepCell* cell : cells) hosts.merge(HostsOf(*cell));
  return hosts.size() == 1 && !hosts.begin()->empty();
}

// Of a single stage: it left none of its host's cores idle, as far as is known.
bool HasWholeHost(const SweepCell& single) {
  const std::vector<SweepStage>& stages = MedianRun(single).stages;
  return stages.empty() || stages[0].threads >= stages[0].cores;
}

// What to keep in mind where the single stage was no whole host.
std::string PartOfHostSentence(const SweepCell& single) {
  if (HasWholeHost(single)) return "";
  const SweepStage& stage = MedianRun(single).stages[0];
  return absl::StrCat(" The single stage ran on ", stage.threads, " of its host's ", CountOf(stage.cores, "core"),
                      ": the host alone was not measured.");
}

double ThreadsOfAStage(const SweepCell& cell) {
  const std::vector<SweepStage>& stages = MedianRun(cell).stages;
  int64_t threads = 0;
  for (const SweepStage& stage : stages) threads += stage.threads;
  return static_cast<double>(threads) / static_cast<double>(std::max<size_t>(1, stages.size()));
}

// What makes the stages of `best` compute `longer` times as long for a token as the single one does.
std::string SlowComputeText(const SweepCell& best, const SweepCell& base, double longer) {
  if (RanOnOneHost({&best, &base})) {
    return "its stages share the cores and the memory of one host, which a single stage has to itself";
  }
  const double threads = ThreadsOfAStage(best), of_base = ThreadsOfAStage(base);
  const double rows = best.Of(&SweepResult::rows_per_pass).median;
  const double rows_of_base = base.Of(&SweepResult::rows_per_pass).median;
  const std::string together = absl::StrCat("its stages together compute ", FigureText(longer),
                                            " times as long for a token as the single stage");
  if (rows > 0 && rows < kFewerRows * rows_of_base && longer * threads > of_base) {
    return absl::StrCat(together, ": each pass over the weights serves ", FigureText(rows), " rows instead of ",
                        FigureText(rows_of_base));
  }
  if (threads < of_base) {
    return absl::StrCat(together, ": a stage has ", FigureText(threads), " threads on average, the single one ",
                        FigureText(of_base));
  }
  return absl::StrCat(together, ": some of its hosts are slower, or two stages share one");
}

// The largest loss against as many of the fastest single stage, in words.
std::string ReasonOf(const SweepCell& best, const SweepCell& base, double share_of_ideal) {
  const std::optional<BubbleShares> causes = CausesOf(best);
  if (!causes.has_value()) return "";
  const double bubble = best.Of(&SweepResult::bubble).median;
  if (share_of_ideal >= kNearIdeal && bubble < 1 - kNearIdeal) {
    return absl::StrCat("its stages compute ", PercentText(1 - bubble), " of the time");
  }
  const double base_s = ComputeSecondsPerToken(base);
  const double longer = base.stages == 1 && base_s > 0 ? ComputeSecondsPerToken(best) / base_s : 1;
  const double computing = longer > 1 ? 1 - 1 / longer : 0;
  const double most = std::max({causes->few, causes->uneven, causes->links, causes->voids, computing});
  if (most < kSmallBubble) return "";
  if (computing == most) return SlowComputeText(best, base, longer);
  const std::string stages = FieldText(best, SweepField::kStages);
  if (causes->few == most) {
    return absl::StrCat(LoadText(best), (best.config.concurrency == 1 ? " is" : " are"), " too few for ", stages,
                        ": even without links the stages would have had nothing to do ", PercentText(most),
                        " of their time");
  }
  const size_t busiest = BusiestStage(best);
  const SweepStage& stage = MedianRun(best).stages[busiest];
  if (causes->uneven == most) {
    return absl::StrCat("the stages are uneven: stage ", busiest,
                        stage.host.empty() ? "" : absl::StrCat(" on ", stage.host),
                        " has the most to compute, which costs the others ", PercentText(most), " of all stages' time");
  }
  if (causes->voids == most) {
    return absl::StrCat("guesses that proved wrong took ", PercentText(most), " of the stages' time");
  }
  return absl::StrCat("links and the coordinator keep the stages waiting ", PercentText(most),
                      " of their time beyond what the work itself does");
}

std::string Rates(const SweepCell& best, const SweepCell& base) {
  return absl::StrCat(FigureText(best.Throughput().median), " against ", FigureText(base.Throughput().median), " ",
                      RateUnit(best));
}

// The first letter is a capital where nothing stands before it.
std::string Told(const SweepCell& cell, const std::string& text) {
  std::string sentence = text;
  if (cell.simulated) return "By simulation, " + sentence;
  sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  return sentence;
}

std::string Because(const std::string& what, const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(what, " because ", reason, ".");
}

// Of a line that begins with a single stage.
void Judge(const CellPointers& line, const std::string& load, Verdict* verdict) {
  const SweepCell& base = *line.front();
  const CellPointers pipelines(line.begin() + 1, line.end());
  const SweepCell& best = **std::max_element(pipelines.begin(), pipelines.end(), Slower);
  const Spread high = best.Throughput(), low = base.Throughput();
  const double gain = high.median / low.median;
  const double ideal = RateWhileComputing(base) * static_cast<double>(best.stages);
  const double share = high.median / ideal;
  const bool apart = high.low > low.high || low.low > high.high;
  const bool close = gain < kLeastGain && gain > 1 / kLeastGain;
  const bool one_host = RanOnOneHost({&best, &base}), whole = HasWholeHost(base);
  const std::string rates = absl::StrCat(" (", Rates(best, base), ", ", load, ")");
  const std::string single = absl::StrCat("one stage of ", FieldText(base, SweepField::kThreads));
  std::string text;
  if (gain >= kLeastGain && apart) {
    verdict->outcome = Outcome::kPays;
    text = absl::StrCat("the pipeline pays: ", ShapeText(best), " give ", FigureText(gain), " times the throughput of ",
                        one_host || !whole ? single : "the best single host", rates,
                        one_host ? ""
                                 : absl::StrCat(", ", PercentText(share), " of what ", best.stages, " such ",
                                                whole ? "hosts" : "stages", " could give"),
                        ".");
  } else if (gain <= 1 / kLeastGain && apart) {
    verdict->outcome = Outcome::kDoesNotPay;
    text = absl::StrCat("the pipeline does not pay here: ", ShapeText(best), " give ", FigureText(gain),
                        " times the throughput of ", single, rates, ".");
  } else {
    verdict->outcome = Outcome::kNoDifference;
    text = close ? absl::StrCat("the pipeline does not pay here: ", ShapeText(best), " and ", single,
                                " give about the same throughput", rates, ".")
                 : absl::StrCat("it is not clear whether the pipeline pays: ", ShapeText(best), " and ", single,
                                " differ less than the repetitions scatter", rates, ".");
  }
  verdict->sentence = Told(best, text) + PartOfHostSentence(base);
  const char* what = "It does not";
  if (verdict->outcome == Outcome::kPays) {
    what = one_host ? "It gives no more" : share >= kNearIdeal ? "It does" : "It falls short of the ideal";
  }
  // The share of the ideal is no measure on one host, whose cores the stages share.
  if (close || apart) verdict->because = Because(what, ReasonOf(best, base, one_host ? 0 : share));
  verdict->best = &best;
  verdict->baseline = &base;
}

// Of a line without a single stage.
void JudgeGrowth(const CellPointers& line, const std::string& load, Verdict* verdict) {
  const SweepCell& few = *line.front();
  const CellPointers more(line.begin() + 1, line.end());
  const SweepCell& best = **std::max_element(more.begin(), more.end(), Slower);
  const double gain = best.Throughput().median / few.Throughput().median;
  const double share = gain * static_cast<double>(few.stages) / static_cast<double>(best.stages);
  verdict->outcome = Outcome::kGrows;
  verdict->sentence = Told(
      best, absl::StrCat("from ", few.stages, " to ", FieldText(best, SweepField::kStages), " the throughput changes ",
                         FigureText(gain), "-fold (", Rates(best, few), ", ", load, "), ", PercentText(share),
                         " of growth in proportion; no single host was measured, so whether the pipeline pays is "
                         "not known."));
  if (share < 1) verdict->because = Because("It falls short of proportion", ReasonOf(best, few, 0));
  verdict->best = &best;
  verdict->baseline = &few;
}

void JudgeOpenLoad(const CellPointers& open, Verdict* verdict) {
  const auto rank = [](const SweepCell* cell) {
    return std::make_tuple(!cell->simulated, OfferedRate(*cell),
                           -cell->MsOf(&SweepResult::latency_s, &Percentiles::p50).median);
  };
  const SweepCell& best = **std::max_element(open.begin(), open.end(),
                                             [&](const SweepCell* a, const SweepCell* b) { return rank(a) < rank(b); });
  verdict->outcome = Outcome::kOpen;
  verdict->best = &best;
  const auto time = [&](Percentiles SweepResult::*sample) {
    return DurationText(best.MsOf(sample, &Percentiles::p50).median / 1e3);
  };
  verdict->sentence =
      Told(best, absl::StrCat("under ", LoadText(best), ", ", ShapeText(best), " finish ",
                              PercentText(best.Of(ServedShare).median),
                              " of the requests; in the median the first token comes after ",
                              time(&SweepResult::ttft_s), ", the last after ", time(&SweepResult::latency_s),
                              ". Such a load shows what can be served, not how throughput grows."));
}

// What a pipeline costs beside a single host.
std::string CostSentence(const Verdict& verdict) {
  if (verdict.best == nullptr) return "";
  const double best = verdict.best->Of(&SweepResult::tokens_per_core_hour).median;
  if (!(best > 0)) return "";
  const double base = verdict.baseline != nullptr ? verdict.baseline->Of(&SweepResult::tokens_per_core_hour).median : 0;
  std::string text = absl::StrCat("A core-hour yields ", FigureText(best), " output tokens");
  if (base > 0) absl::StrAppend(&text, ", against ", FigureText(base), " with ", ShapeText(*verdict.baseline));
  return text + ".";
}

ChartPoint PredictedPoint(const SweepCell& cell) {
  const double rate =
      cell.Of([&](const SweepPoint& run) {
            if (!run.prediction.has_value()) return kNoValue;
            return cell.prefill_only() ? run.prediction->prefill_tokens_per_s : run.prediction->output_tokens_per_s;
          })
          .median;
  const double x = static_cast<double>(cell.stages);
  return {
      x, rate > 0 ? rate : kNoValue, rate, rate, "", absl::StrCat(ShapeText(cell), ": predicted ", FigureText(rate))};
}

ChartSeries RateSeries(const std::string& label, size_t index, const CellPointers& line) {
  ChartSeries series = SeriesOf(label, index, *line[0]);
  for (const SweepCell* cell : line) {
    const Spread y = cell->Throughput();
    series.points.push_back(
        SpreadPoint(static_cast<double>(cell->stages), y,
                    absl::StrCat(ShapeText(*cell), ": ", FigureText(y.median), " ", RateUnit(*cell))));
    series.points.back().label = FigureText(y.median);
  }
  return series;
}

using NamedLine = std::pair<std::string, CellPointers>;

// `lines`: the first one with predictions and the ideal.
ReportFigure VerdictFigure(const std::vector<NamedLine>& lines, const std::string& load) {
  const CellPointers& line = lines[0].second;
  const SweepCell& first = *line.front();
  XyChart chart;
  chart.title = absl::StrCat(first.prefill_only() ? "Prompt" : "Output", " tokens/s over stages, ", load);
  chart.y.label = RateUnit(first);
  chart.x.label = "stages";
  std::set<double> marks;
  double low = first.Throughput().median, high = low;
  CellPointers shown;
  for (const auto& [name, cells] : lines) {
    for (const SweepCell* cell : cells) {
      marks.insert(static_cast<double>(cell->stages));
      low = std::min(low, cell->Throughput().median), high = std::max(high, cell->Throughput().median);
    }
    shown.insert(shown.end(), cells.begin(), cells.end());
    chart.series.push_back(RateSeries(name, chart.series.size(), cells));
  }
  chart.x.marks.assign(marks.begin(), marks.end());
  if (*marks.rbegin() >= 8 * *marks.begin() && (*marks.rbegin() > 16 || high > kWideRange * low)) {
    chart.x.kind = chart.y.kind = ScaleKind::kLog;
  }
  ChartSeries predicted = {.label = "predicted", .style = static_cast<int>(std::max<size_t>(2, lines.size()))};
  for (const SweepCell* cell : line) {
    if (ChartPoint point = PredictedPoint(*cell); point.y > 0) predicted.points.push_back(std::move(point));
  }
  if (!predicted.points.empty()) chart.series.push_back(std::move(predicted));
  const bool single = first.stages == 1, of_hosts = single && !RanOnOneHost(line);
  const double each =
      of_hosts ? RateWhileComputing(first) : first.Throughput().median / static_cast<double>(first.stages);
  ChartGuide ideal = {"in proportion to the fewest stages", {}};
  if (single) ideal.label = "in proportion to the single stage";
  if (of_hosts)
    ideal.label = HasWholeHost(first) ? "ideal: as many of the best single host" : "ideal: as many such stages";
  for (double x : marks) ideal.points.push_back({x, each * x, each * x, each * x});
  chart.guides.push_back(std::move(ideal));
  return MakeXyFigure("verdict", "Of each number of stages the fastest configuration.", std::move(chart), shown);
}

// Adds a line for each group of the cells, named by what they differ in.
void AddLines(const std::string& name, const CellPointers& cells, std::vector<NamedLine>* lines) {
  std::vector<CellPointers> found;
  for (const CellPointers& group : GroupCells(cells, kOverStages)) {
    if (CellPointers line = FastestOfEachStages(group); !line.empty()) found.push_back(std::move(line));
  }
  const CellLabels labels = LineLabels(Joined(found));
  for (CellPointers& line : found) {
    if (lines->size() + 1 >= kMostSeries) return;
    const std::string rest = found.size() == 1 ? "" : labels.Of(*line[0]);
    lines->emplace_back(With(name, rest), std::move(line));
  }
}

// The line, and beside it what was simulated under the same load, or what the other series have under it.
std::vector<NamedLine> LinesBeside(const CellPointers& line, const CellPointers& cells) {
  const SweepCell& first = *line[0];
  const char* const origin = first.simulated ? "simulated" : "measured";
  const bool several =
      std::any_of(cells.begin(), cells.end(), [&](const SweepCell* cell) { return cell->series != first.series; });
  std::vector<NamedLine> lines = {{several ? first.series_label : origin, line}};
  if (!several && !first.simulated) {
    AddLines("simulated",
             Where(cells, [&](const SweepCell& cell) { return cell.simulated && Comparable(cell, first); }), &lines);
  }
  std::set<size_t> others;
  for (const SweepCell* cell : cells) others.insert(cell->series);
  others.erase(first.series);
  for (size_t series : others) {
    const CellPointers other = Where(cells, [&](const SweepCell& cell) {
      return cell.series == series && cell.simulated == first.simulated && Comparable(cell, first);
    });
    if (!other.empty()) AddLines(other[0]->series_label, other, &lines);
  }
  return lines;
}

// Of several series: how each of the others compares with the first one, in throughput, under open loads in latency;
// whether the pipeline pays there comes second.
void JudgeSeries(const CellPointers& cells, Verdict* verdict) {
  const Baselines baselines(cells);
  std::map<std::pair<size_t, bool>, std::vector<double>> factors;  // by series and whether the load is open
  std::map<size_t, std::string> labels;
  for (const SweepCell* cell : cells) {
    const SweepCell* baseline = baselines.Of(*cell);
    if (baseline == nullptr) continue;
    const bool open = cell->open_load();
    const auto value = [open](const SweepCell& of) {
      return open ? of.MsOf(&SweepResult::latency_s, &Percentiles::p50).median : of.Throughput().median;
    };
    if (!(value(*cell) > 0) || !(value(*baseline) > 0)) continue;
    factors[{cell->series, open}].push_back(value(*cell) / value(*baseline));
    labels[cell->series] = cell->series_label;
  }
  std::string text;
  for (const auto& [of, values] : factors) {
    const auto& [series, open] = of;
    const Spread spread = SpreadOf(values);
    absl::StrAppend(&text, text.empty() ? "" : " ", "Against ", baselines.name(), ", ", labels[series], " changes ",
                    open ? "the median time of a whole answer under open loads" : "throughput", " by ",
                    ChangeText(spread.median),
                    values.size() == 1 ? ""
                                       : absl::StrCat(" in the median of ", values.size(), " configurations (",
                                                      ChangeText(spread.low), " to ", ChangeText(spread.high), ")"),
                    ".");
  }
  if (text.empty()) text = absl::StrCat("No configuration of ", baselines.name(), " is also in another directory.");
  verdict->because = absl::StrCat(verdict->sentence, verdict->because.empty() ? "" : " ", verdict->because);
  verdict->sentence = std::move(text);
}

}  // namespace

const SweepPoint& MedianRun(const SweepCell& cell) {
  std::vector<const SweepPoint*> runs = cell.runs;
  std::stable_sort(runs.begin(), runs.end(), [](const SweepPoint* a, const SweepPoint* b) {
    return a->result.output_tokens_per_s < b->result.output_tokens_per_s;
  });
  return *runs[(runs.size() - 1) / 2];
}

bool HasEvenThreads(const SweepCell& cell) {
  const std::vector<SweepStage>& stages = MedianRun(cell).stages;
  return std::all_of(stages.begin(), stages.end(),
                     [&](const SweepStage& stage) { return stage.threads == stages[0].threads; });
}

std::optional<BubbleShares> CausesOf(const SweepCell& cell) {
  const SweepPoint& run = MedianRun(cell);
  double most = 0, sum = 0;
  for (const SweepStage& stage : run.stages) most = std::max(most, stage.compute_s), sum += stage.compute_s;
  if (run.stages.empty() || !(most > 0) || !std::isfinite(sum)) return std::nullopt;
  const double bubble = std::clamp(run.result.bubble, 0.0, 1.0);
  const double floor = std::clamp(run.result.bubble_floor, 0.0, bubble);
  BubbleShares causes;
  causes.uneven = std::clamp(1 - sum / (most * static_cast<double>(run.stages.size())), 0.0, floor);
  causes.few = floor - causes.uneven;
  const double all_s = run.result.busy_s * static_cast<double>(run.stages.size());
  if (all_s > 0) causes.voids = std::clamp(run.result.void_s / all_s, 0.0, bubble - floor);
  causes.links = bubble - floor - causes.voids;
  return causes;
}

double RateWhileComputing(const SweepCell& cell) {
  const double computing = 1 - std::clamp(cell.Of(&SweepResult::bubble).median, 0.0, 0.99);
  return cell.Throughput().median / computing;
}

Baselines::Baselines(const CellPointers& cells) {
  const bool several =
      std::any_of(cells.begin(), cells.end(), [&](const SweepCell* cell) { return cell->series != cells[0]->series; });
  name_ = several ? cells[0]->series_label : "the fastest single stage";
  for (const CellPointers& group : GroupCells(cells, several ? std::vector{SweepField::kSeries} : kOverStages)) {
    const SweepCell* baseline = nullptr;
    for (const SweepCell* cell : group) {
      if (cell->runs.empty() || (several ? cell->series != cells[0]->series : cell->stages != 1 || cell->open_load())) {
        continue;
      }
      if (baseline == nullptr || Slower(baseline, cell)) baseline = cell;
    }
    for (const SweepCell* cell : group) {
      if (baseline == nullptr || cell == baseline || cell->runs.empty()) continue;
      baselines_[cell] = baseline;
      ones_.insert(baseline);
    }
  }
}

const SweepCell* Baselines::Of(const SweepCell& cell) const {
  const auto found = baselines_.find(&cell);
  return found == baselines_.end() ? nullptr : found->second;
}

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPays: return "pays";
    case Outcome::kDoesNotPay: return "does-not-pay";
    case Outcome::kNoDifference: return "no-difference";
    case Outcome::kGrows: return "grows";
    case Outcome::kOpen: return "open-load";
    case Outcome::kNotKnown: return "not-known";
  }
  return "";
}

Verdict VerdictOf(const CellPointers& cells) {
  Verdict verdict;
  const CellPointers ran =
      Where(cells, [](const SweepCell& cell) { return !cell.runs.empty() && cell.Throughput().median > 0; });
  const CellPointers open = Where(ran, [](const SweepCell& cell) { return cell.open_load(); });
  if (const std::vector<CellPointers> lines = LinesOverStages(ran); !lines.empty()) {
    const std::string load = With(LoadText(*lines[0][0]), LineLabels(Joined(lines)).Of(*lines[0][0]));
    lines[0][0]->stages == 1 ? Judge(lines[0], load, &verdict) : JudgeGrowth(lines[0], load, &verdict);
    verdict.figure = VerdictFigure(LinesBeside(lines[0], ran), load);
  } else if (!open.empty() && open.size() == ran.size()) {
    JudgeOpenLoad(open, &verdict);
  } else if (!ran.empty()) {
    const SweepCell& best = **std::max_element(ran.begin(), ran.end(), Slower);
    verdict.best = &best;
    verdict.sentence = Told(
        best, absl::StrCat("the most is ", FigureText(best.Throughput().median), " ", RateUnit(best), " (",
                           ShapeText(best), ", ", LoadText(best),
                           "). Whether more stages pay is not known: no load was run with two numbers of stages."));
  } else {
    verdict.sentence = "Nothing ran to its end, so there is no answer.";
  }
  verdict.cost = CostSentence(verdict);
  if (std::any_of(ran.begin(), ran.end(), [&](const SweepCell* cell) { return cell->series != ran[0]->series; })) {
    JudgeSeries(ran, &verdict);
  }
  return verdict;
}

}  // namespace stagecoach
