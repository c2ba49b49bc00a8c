#include "coordinator/report/sweep_cells.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/shown_text.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// Fields whose value others usually set.
constexpr SweepField kFollowers[] = {
    SweepField::kHosts,        SweepField::kMaxNumSeqs, SweepField::kMaxNumBatchedTokens,
    SweepField::kMicroBatches, SweepField::kRequests,   SweepField::kDuration,
    SweepField::kSeed};

template <typename Fields>
bool Contains(const Fields& fields, SweepField field) {
  return std::find(std::begin(fields), std::end(fields), field) != std::end(fields);
}

std::vector<SweepField> FieldsThat(const std::function<bool(SweepField)>& holds) {
  std::vector<SweepField> fields;
  for (int i = 0; i < kSweepFields; ++i) {
    if (holds(static_cast<SweepField>(i))) fields.push_back(static_cast<SweepField>(i));
  }
  return fields;
}

// Of a path; of a model without a file all that follows dummy://.
std::string ShortName(const std::string& path) {
  const size_t scheme = path.find("://");
  if (scheme != std::string::npos) return path.substr(scheme + 3);
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
}

std::string CountText(int64_t count, absl::string_view noun, absl::string_view none) {
  return count == 0 ? std::string(none) : CountOf(count, noun);
}

std::string LinkText(const SweepConfig& config) {
  std::vector<std::string> parts;
  if (config.emulated_link.latency_s > 0) parts.push_back(DurationText(config.emulated_link.latency_s));
  if (config.emulated_link.bytes_per_s > 0)
    parts.push_back(absl::StrCat(RateText(config.emulated_link.bytes_per_s * 8), "bit/s"));
  return parts.empty() ? "real links" : absl::StrCat("emulated links (", absl::StrJoin(parts, ", "), ")");
}

std::string SloText(const SweepConfig& config) {
  std::vector<std::string> parts;
  if (config.slo_ttft_s > 0) parts.push_back(absl::StrCat("TTFT within ", DurationText(config.slo_ttft_s)));
  if (config.slo_itl_s > 0) parts.push_back(absl::StrCat("ITL within ", DurationText(config.slo_itl_s)));
  return parts.empty() ? "no SLO" : absl::StrJoin(parts, " and ");
}

std::string TextOfFields(const SweepCell& cell, const std::vector<SweepField>& fields) {
  std::string text;
  for (SweepField field : fields) absl::StrAppend(&text, FieldText(cell, field), "\n");
  return text;
}

// Of the fields that follow others by nature (how many sequences may run, how many requests arrive, which hosts a
// number of stages takes, ...) those that `leaders` determine in these cells: equal leaders, equal follower.
std::vector<SweepField> FollowingFields(const CellPointers& cells, const std::vector<SweepField>& leaders) {
  std::vector<SweepField> following;
  for (SweepField follower : kFollowers) {
    if (Contains(leaders, follower)) continue;
    std::map<std::string, std::string> followed;  // by the leaders' texts
    const bool follows = std::all_of(cells.begin(), cells.end(), [&](const SweepCell* cell) {
      const std::string text = FieldText(*cell, follower);
      return followed.emplace(TextOfFields(*cell, leaders), text).first->second == text;
    });
    if (follows) following.push_back(follower);
  }
  return following;
}

// Short names of models: the whole path only where two would be alike.
void NameModels(std::vector<SweepCell>* cells) {
  std::map<std::string, std::set<std::string>> models;  // by short name
  for (const SweepCell& cell : *cells) models[ShortName(cell.config.model)].insert(cell.config.model);
  for (SweepCell& cell : *cells) {
    const std::string name = ShortName(cell.config.model);
    cell.model_name = models[name].size() > 1 ? cell.config.model : name;
  }
}

// Always shown if they differ: the split of the pipeline, the load, and what is not real.
bool AlwaysShown(SweepField field) {
  return field <= SweepField::kArrivals || field == SweepField::kSimulated || field == SweepField::kLink;
}

bool IsShown(const SweepCell& cell, SweepField field) {
  if (field == SweepField::kSimulated) return cell.simulated;
  // A load is either closed (concurrency) or open (arrivals); the other field is meaningless.
  if (field == SweepField::kConcurrency) return cell.config.concurrency > 0;
  if (field == SweepField::kArrivals) return cell.config.concurrency == 0;
  if (field == SweepField::kLink) return cell.link_emulated();
  return AlwaysShown(field) || cell.unusual[static_cast<size_t>(field)];
}

void MarkUnusual(std::vector<SweepCell>* cells) {
  for (int i = 0; i < kSweepFields; ++i) {
    const auto text = [i](const SweepCell& cell) { return FieldText(cell, static_cast<SweepField>(i)); };
    std::map<std::string, int64_t> counts;
    for (const SweepCell& cell : *cells) ++counts[text(cell)];
    const auto usual = std::max_element(counts.begin(), counts.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
    for (SweepCell& cell : *cells) cell.unusual.push_back(text(cell) != usual->first);
  }
}

SweepCell NewCell(const SweepPoint& point, SweepConfig config) {
  SweepCell cell;
  cell.config = std::move(config);
  cell.simulated = point.simulated;
  cell.stages = cell.config.stages;
  cell.threads = cell.config.threads;
  return cell;
}

void AddPoint(const SweepPoint& point, SweepCell* cell) {
  if (!point.ok()) return cell->failures.push_back(&point);
  cell->runs.push_back(&point);
  if (cell->stages == 0) cell->stages = static_cast<int64_t>(point.stages.size());
  if (cell->threads == 0 && !point.stages.empty()) cell->threads = point.stages[0].threads;
}

bool Decodes(const SweepCell& cell) { return !cell.prefill_only(); }
bool Prefills(const SweepCell& cell) { return cell.prefill_only(); }
bool IsAlone(const SweepCell& cell) { return cell.config.concurrency == 1; }
constexpr PredictedQuantity kQuantities[] = {
    {"output-rate", "output tokens/s", "output tokens/s", 1, Decodes, &SweepPrediction::output_tokens_per_s,
     [](const SweepResult& result) { return result.output_tokens_per_s; }},
    {"prefill-rate", "prefill", "prompt tokens/s", 1, Prefills, &SweepPrediction::prefill_tokens_per_s,
     [](const SweepResult& result) { return result.prompt_tokens_per_s; }},
    {"itl", "median gap between tokens", "ITL, ms", 1e3, Decodes, &SweepPrediction::itl_s,
     [](const SweepResult& result) { return result.itl_s.p50; }},
    {"ttft", "first token of a prompt alone", "TTFT, ms", 1e3, IsAlone, &SweepPrediction::ttft_s,
     [](const SweepResult& result) { return result.ttft_s.p50; }},
};

std::string FactsOf(const SweepPrediction& prediction) {
  if (prediction.source == "assumed") return "assumed hosts, nothing measured";
  if (absl::StartsWith(prediction.source, "cluster ")) return prediction.source;  // somebody's own words
  return absl::StrCat(prediction.source == "probe" ? "a probe before the sweep" : prediction.source, ", ",
                      prediction.measured_steps ? "with" : "without", " measured steps of this model");
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); }),
               values.end());
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : values[middle - 1] / 2 + values[middle] / 2;
  return {median, values.front(), values.back(), static_cast<int64_t>(values.size())};
}

Spread SweepCell::Of(const std::function<double(const SweepPoint&)>& value) const {
  std::vector<double> values;
  for (const SweepPoint* run : runs) values.push_back(value(*run));
  return SpreadOf(std::move(values));
}

Spread SweepCell::Of(double SweepResult::*value, double unit) const {
  return Of([=](const SweepPoint& point) { return unit * point.result.*value; });
}

Spread SweepCell::MsOf(Percentiles SweepResult::*sample, double Percentiles::*percentile) const {
  return Of([=](const SweepPoint& point) { return 1e3 * point.result.*sample.*percentile; });
}

Spread SweepCell::Throughput() const {
  return Of(prefill_only() ? &SweepResult::prompt_tokens_per_s : &SweepResult::output_tokens_per_s);
}

std::vector<SweepCell> SweepCells(absl::Span<const SweepPoint> points) {
  using Identity = std::pair<bool, std::string>;  // simulated; key
  std::map<Identity, size_t> last;                // of each repetition: the point that counts
  for (size_t i = 0; i < points.size(); ++i) last[{points[i].simulated, SweepKey(points[i].config)}] = i;
  std::map<Identity, size_t> places;  // of cells, by the key of their first repetition
  std::vector<SweepCell> cells;
  for (size_t i = 0; i < points.size(); ++i) {
    SweepConfig config = points[i].config;
    const Identity point_identity = {points[i].simulated, SweepKey(config)};
    config.repetition = 0;
    const auto [place, fresh] = places.emplace(Identity(points[i].simulated, SweepKey(config)), cells.size());
    if (fresh) cells.push_back(NewCell(points[i], std::move(config)));
    if (last[point_identity] == i) AddPoint(points[i], &cells[place->second]);
  }
  NameModels(&cells);
  MarkUnusual(&cells);
  return cells;
}

std::string FieldText(const SweepCell& cell, SweepField field) {
  const SweepConfig& config = cell.config;
  switch (field) {
    case SweepField::kModel: return cell.model_name;
    case SweepField::kStages: return CountText(cell.stages, "stage", "stages not known");
    case SweepField::kThreads: return CountText(cell.threads, "thread", "threads not known");
    case SweepField::kConcurrency:
      return config.concurrency == 0 ? "open loop" : absl::StrCat(config.concurrency, " at once");
    case SweepField::kArrivals: return absl::StrCat(config.arrivals, " arrivals");
    case SweepField::kPrompt: return absl::StrCat("prompt ", config.prompt);
    case SweepField::kOutput: return absl::StrCat("output ", config.output);
    case SweepField::kPolicy: return absl::StrCat("policy ", PolicyName(config.policy));
    case SweepField::kDecodeGroups: return CountText(config.decode_groups, "decode group", "decode groups fitted");
    case SweepField::kMicroBatches: return CountText(config.micro_batches, "micro-batch", "a micro-batch a stage");
    case SweepField::kPrefillChunk: return absl::StrCat("chunk ", config.prefill_chunk);
    case SweepField::kChunking: return absl::StrCat(NameOf(kChunkings, config.chunking), " chunks");
    case SweepField::kWireType: return absl::StrCat(WireTypeName(config.wire_type), " wire");
    case SweepField::kKvType: return absl::StrCat(KvTypeName(config.kv_type), " KV");
    case SweepField::kBlockTokens: return absl::StrCat("blocks of ", config.block_tokens);
    case SweepField::kLink: return LinkText(config);
    case SweepField::kSimulated: return cell.simulated ? "simulated" : "measured";
    case SweepField::kHosts: return config.hosts.empty() ? "this host" : absl::StrCat("hosts ", config.hosts);
    case SweepField::kIsa:
      return absl::StrCat("isa ", config.isa.has_value() ? InstructionSetName(*config.isa) : "auto");
    case SweepField::kCpuBind: return absl::StrCat("binding ", NameOf(kCpuBinds, config.cpu_bind));
    case SweepField::kWeights: return absl::StrCat("weights ", NameOf(kWeightSources, config.weights));
    case SweepField::kMaxNumSeqs: return absl::StrCat("at most ", config.max_num_seqs, " running");
    case SweepField::kMaxNumBatchedTokens: return absl::StrCat(config.max_num_batched_tokens, " rows a micro-batch");
    case SweepField::kKvCacheBytes:
      return config.kv_cache_bytes == 0 ? "KV cache from free memory"
                                        : absl::StrCat("KV cache ", BytesText(config.kv_cache_bytes));
    case SweepField::kRequests:
      return config.requests == 0 ? "any number of requests" : CountOf(config.requests, "request");
    case SweepField::kDuration:
      return config.duration_s == 0 ? "no end" : absl::StrCat("for ", DurationText(config.duration_s));
    case SweepField::kSlo: return SloText(config);
    case SweepField::kSeed: return absl::StrCat("seed ", config.seed);
  }
  return "";
}

CellPointers PointersTo(const std::vector<SweepCell>& cells) {
  CellPointers pointers;
  for (const SweepCell& cell : cells) pointers.push_back(&cell);
  return pointers;
}

CellPointers Where(const CellPointers& cells, const std::function<bool(const SweepCell&)>& holds) {
  CellPointers found;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(found),
               [&](const SweepCell* cell) { return holds(*cell); });
  return found;
}

CellPointers Joined(const std::vector<CellPointers>& groups) {
  CellPointers all;
  for (const CellPointers& group : groups) all.insert(all.end(), group.begin(), group.end());
  return all;
}

void SortBy(const std::function<double(const SweepCell&)>& value, CellPointers* cells) {
  std::stable_sort(cells->begin(), cells->end(),
                   [&](const SweepCell* a, const SweepCell* b) { return value(*a) < value(*b); });
}

std::vector<SweepField> VaryingFields(const CellPointers& cells) {
  return FieldsThat([&](SweepField field) {
    return std::any_of(cells.begin(), cells.end(),
                       [&](const SweepCell* cell) { return FieldText(*cell, field) != FieldText(*cells[0], field); });
  });
}

std::vector<std::string> UsualTexts(const CellPointers& cells) {
  std::vector<std::string> texts;
  for (SweepField field : VaryingFields(cells)) {
    if (AlwaysShown(field) || Contains(kFollowers, field)) continue;
    const auto usual = std::find_if(cells.begin(), cells.end(),
                                    [&](const SweepCell* cell) { return !cell->unusual[static_cast<size_t>(field)]; });
    if (usual != cells.end()) texts.push_back(FieldText(**usual, field));
  }
  return texts;
}

std::vector<CellPointers> GroupCells(const CellPointers& cells, const std::vector<SweepField>& along) {
  const std::vector<SweepField> following = FollowingFields(cells, along);
  const std::vector<SweepField> fixed =
      FieldsThat([&](SweepField field) { return !Contains(along, field) && !Contains(following, field); });
  std::map<std::string, size_t> places;
  std::vector<CellPointers> groups;
  for (const SweepCell* cell : cells) {
    const auto [place, fresh] = places.emplace(TextOfFields(*cell, fixed), groups.size());
    if (fresh) groups.emplace_back();
    groups[place->second].push_back(cell);
  }
  return groups;
}

CellLabels::CellLabels(const CellPointers& cells, const std::vector<SweepField>& along) {
  const std::vector<SweepField> varying = VaryingFields(cells);
  std::vector<SweepField> leaders = along;
  for (SweepField field : varying) {
    if (!Contains(kFollowers, field)) leaders.push_back(field);
  }
  const std::vector<SweepField> following = FollowingFields(cells, leaders);
  for (SweepField field : varying) {
    if (!Contains(along, field) && !Contains(following, field)) fields_.push_back(field);
  }
  if (Contains(along, SweepField::kStages)) return;
  // Threads are shown with their stages.
  const auto threads = std::find(fields_.begin(), fields_.end(), SweepField::kThreads);
  const bool told = Contains(fields_, SweepField::kStages);
  if (!told && (threads != fields_.end() || fields_.empty())) fields_.insert(threads, SweepField::kStages);
}

std::string CellLabels::Of(const SweepCell& cell) const {
  std::vector<std::string> told, usual;
  for (SweepField field : fields_) {
    const bool joins = field == SweepField::kThreads && Contains(fields_, SweepField::kStages);
    if (joins) {
      absl::StrAppend(&told.back(), " \xC3\x97 ", FieldText(cell, field));
    } else if (IsShown(cell, field)) {
      told.push_back(FieldText(cell, field));
    } else {
      usual.push_back(FieldText(cell, field));
    }
  }
  return absl::StrJoin(told.empty() ? usual : told, ", ");
}

absl::Span<const PredictedQuantity> PredictedQuantities() { return kQuantities; }

std::string FactsText(const CellPointers& cells) {
  std::set<std::string> facts;
  for (const SweepCell* cell : cells) {
    for (const SweepPoint* run : cell->runs) {
      if (run->prediction.has_value()) facts.insert(FactsOf(*run->prediction));
    }
  }
  return absl::StrJoin(facts, "; ");
}

std::optional<PredictionRatio> RatioOf(const SweepCell& cell, const PredictedQuantity& quantity) {
  if (!quantity.applies(cell)) return std::nullopt;
  std::vector<double> predicted;
  for (const SweepPoint* run : cell.runs) {
    if (run->prediction.has_value()) predicted.push_back((*run->prediction).*quantity.predicted);
  }
  PredictionRatio ratio;
  ratio.predicted = SpreadOf(std::move(predicted)).median;
  ratio.measured = cell.Of([&](const SweepPoint& point) { return quantity.measured(point.result); });
  if (!(ratio.predicted > 0) || !(ratio.measured.median > 0)) return std::nullopt;
  return ratio;
}

}  // namespace stagecoach
