#include "coordinator/report/sweep_cells.h"

#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/shown_text.h"
#include "coordinator/bench/sweep_plan.h"
#include "coordinator/report/report_text.h"

namespace stagecoach {
namespace {

// Fields whose value others usually set.
constexpr SweepField kFollowers[] = {
    SweepField::kHosts,        SweepField::kMaxNumSeqs,   SweepField::kMaxNumBatchedTokens,
    SweepField::kMicroBatches, SweepField::kRequests,     SweepField::kDuration,
    SweepField::kSeed,         SweepField::kLayerSplit,   SweepField::kContext,
    SweepField::kModelFile,    SweepField::kArrivalsFile, SweepField::kMachine,
    SweepField::kVersion,      SweepField::kCluster,      SweepField::kClusterHosts,
    SweepField::kWorld};
// What PointName says.
constexpr SweepField kNamedFields[] = {SweepField::kStages,       SweepField::kThreads,      SweepField::kConcurrency,
                                       SweepField::kArrivals,     SweepField::kPrompt,       SweepField::kOutput,
                                       SweepField::kSpeculate,    SweepField::kAcceptance,   SweepField::kPolicy,
                                       SweepField::kDecodeGroups, SweepField::kMicroBatches, SweepField::kPrefillChunk,
                                       SweepField::kChunking,     SweepField::kWireType,     SweepField::kLink};

// The fields that alone may set a follower that is no choice but a fact of the world: hosts follow stages, and no
// chunk. None: any field may.
std::vector<SweepField> MastersOf(SweepField follower) {
  switch (follower) {
    case SweepField::kHosts: return {SweepField::kSeries, SweepField::kSimulated, SweepField::kStages};
    case SweepField::kLayerSplit:
      return {SweepField::kSeries, SweepField::kSimulated, SweepField::kModel, SweepField::kStages, SweepField::kHosts};
    case SweepField::kModelFile: return {SweepField::kSeries, SweepField::kModel};
    case SweepField::kArrivalsFile: return {SweepField::kSeries, SweepField::kArrivals};
    case SweepField::kClusterHosts: return {SweepField::kSeries, SweepField::kSimulated, SweepField::kCluster};
    case SweepField::kMachine:
    case SweepField::kVersion:
    case SweepField::kCluster:
    case SweepField::kWorld: return {SweepField::kSeries, SweepField::kSimulated};
    default: return {};
  }
}

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

constexpr double kOfFloats = 6e-8;  // numbers of the command line are floats

// `text` begins with the value in one of our units, rounded. Where that is another value, this one itself.
std::string Exactly(double value, double tolerance, const std::string& text, absl::string_view unit) {
  double shown = 0;
  if (absl::SimpleAtod(text.substr(0, text.find(' ')), &shown)) {
    for (const double factor : {1.0, 60.0, 1e-3, 1e-6, 1e3, 1e6, 1e9, 1048576.0, 1073741824.0}) {
      if (std::abs(shown * factor - value) <= tolerance * value) return text;
    }
  }
  return absl::StrFormat("%.17g %s", value, unit);
}

std::string SecondsText(double seconds) { return Exactly(seconds, kOfFloats, DurationText(seconds), "s"); }

std::string AcceptanceText(double share) {
  return share > 0 ? absl::StrCat("acceptance ", Exactly(share, kOfFloats, absl::StrCat(share), "of the tokens")) : "";
}

std::string KvCacheText(uint64_t bytes) {
  return bytes == 0 ? "KV cache from free memory"
                    : absl::StrCat("KV cache ", Exactly(static_cast<double>(bytes), 0, BytesText(bytes), "bytes"));
}

std::string ModelFileText(const SweepConfig& config) {
  if (config.header_hash.empty()) return "";
  const absl::Time changed = absl::FromUnixMicros(config.file_time_us);
  return absl::StrCat("model file of ",
                      config.file_time_us == 0 ? "a time not known"
                                               : absl::FormatTime("%Y-%m-%d %H:%M:%E*S", changed, absl::UTCTimeZone()),
                      " with ", config.file_bytes, " bytes and header ", config.header_hash);
}

std::string HashText(absl::string_view what, const std::string& hash) {
  return hash.empty() ? "" : absl::StrCat(what, " ", hash);
}

std::string LinkText(const SweepConfig& config) {
  std::vector<std::string> parts;
  const EmulatedLink& link = config.emulated_link;
  if (link.latency_s > 0) parts.push_back(SecondsText(link.latency_s));
  if (link.bytes_per_s > 0) {
    const double bits = link.bytes_per_s * 8;
    parts.push_back(Exactly(bits, kOfFloats, RateText(bits) + "bit/s", "bit/s"));
  }
  return parts.empty() ? "real links" : absl::StrCat("emulated links (", absl::StrJoin(parts, ", "), ")");
}

std::string SloText(const SweepConfig& config) {
  std::vector<std::string> parts;
  if (config.slo_ttft_s > 0) parts.push_back(absl::StrCat("TTFT within ", SecondsText(config.slo_ttft_s)));
  if (config.slo_itl_s > 0) parts.push_back(absl::StrCat("ITL within ", SecondsText(config.slo_itl_s)));
  return parts.empty() ? "no SLO" : absl::StrJoin(parts, " and ");
}

std::string TextOfFields(const SweepCell& cell, const std::vector<SweepField>& fields) {
  std::string text;
  for (SweepField field : fields) absl::StrAppend(&text, FieldText(cell, field), "\n");
  return text;
}

// Of the fields that follow others by nature (how many sequences may run, how many requests arrive, which hosts a
// number of stages takes, ...) those that `leaders`, or its masters where it has some, determine in these cells: equal
// leaders, equal follower. One that does not follow leads those behind it.
std::vector<SweepField> FollowingFields(const CellPointers& cells, std::vector<SweepField> leaders) {
  std::vector<SweepField> following;
  for (SweepField follower : kFollowers) {
    if (Contains(leaders, follower)) continue;
    const std::vector<SweepField> masters = MastersOf(follower);
    const std::vector<SweepField>& by = masters.empty() ? leaders : masters;
    std::map<std::string, std::string> followed;  // by the leaders' texts
    const bool follows = std::all_of(cells.begin(), cells.end(), [&](const SweepCell* cell) {
      const std::string text = FieldText(*cell, follower);
      return followed.emplace(TextOfFields(*cell, by), text).first->second == text;
    });
    (follows ? following : leaders).push_back(follower);
  }
  return following;
}

// The fields in which the cells differ, without `along` and those that follow others.
std::vector<SweepField> TellingFields(const CellPointers& cells, const std::vector<SweepField>& along) {
  const std::vector<SweepField> varying = VaryingFields(cells);
  std::vector<SweepField> leaders = along, telling;
  for (SweepField field : varying) {
    if (!Contains(kFollowers, field)) leaders.push_back(field);
  }
  const std::vector<SweepField> following = FollowingFields(cells, leaders);
  std::copy_if(varying.begin(), varying.end(), std::back_inserter(telling),
               [&](SweepField field) { return !Contains(along, field) && !Contains(following, field); });
  return telling;
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

// Always shown if they differ: the split of the pipeline, the load, who guesses, and what is not real.
bool AlwaysShown(SweepField field) {
  return field <= SweepField::kArrivals || field == SweepField::kSpeculate || field == SweepField::kAcceptance ||
         field == SweepField::kSimulated || field == SweepField::kLink;
}

bool IsShown(const SweepCell& cell, SweepField field) {
  if (field == SweepField::kSimulated) return cell.simulated;
  // A load is either closed (concurrency) or open (arrivals); of an open one a simulation may bound the concurrency.
  if (field == SweepField::kConcurrency) return cell.config.concurrency > 0;
  if (field == SweepField::kArrivals) return cell.config.concurrency == 0 || cell.config.arrivals != "closed";
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

SweepCell NewCell(bool simulated, SweepConfig config) {
  SweepCell cell;
  cell.config = std::move(config);
  cell.simulated = simulated;
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

void AddPoints(absl::Span<const SweepPoint> points, std::vector<SweepCell>* cells) {
  using Identity = std::pair<bool, std::string>;  // simulated; key
  std::map<Identity, size_t> last;                // of each repetition: the point that counts
  for (size_t i = 0; i < points.size(); ++i) last[{points[i].simulated, SweepKey(points[i].config)}] = i;
  std::map<Identity, size_t> places;  // of cells
  for (size_t i = 0; i < points.size(); ++i) {
    const SweepPoint& point = points[i];
    const auto [place, fresh] = places.emplace(Identity(point.simulated, RepetitionsKey(point.config)), cells->size());
    if (fresh) {
      cells->push_back(NewCell(point.simulated, point.config));
      cells->back().config.repetition = 0;
    }
    if (last[{point.simulated, SweepKey(point.config)}] == i) AddPoint(point, &(*cells)[place->second]);
  }
}

bool Decodes(const SweepCell& cell) { return !cell.prefill_only(); }
bool Prefills(const SweepCell& cell) { return cell.prefill_only(); }
bool IsAlone(const SweepCell& cell) { return cell.config.concurrency == 1; }
// With how many sequences is known: of a load that comes by a clock of its own the predicted gap is that of all places
// taken.
bool DecodesKnownNumber(const SweepCell& cell) { return Decodes(cell) && !cell.open_load(); }

constexpr PredictedQuantity kQuantities[] = {
    {"output-rate", "output tokens/s", "output tokens/s", 1, Decodes, &SweepPrediction::output_tokens_per_s,
     [](const SweepResult& result) { return result.output_tokens_per_s; }},
    {"prefill-rate", "prefill", "prompt tokens/s", 1, Prefills, &SweepPrediction::prefill_tokens_per_s,
     [](const SweepResult& result) { return result.prompt_tokens_per_s; }},
    {"itl", "median gap between tokens", "ITL, ms", 1e3, DecodesKnownNumber, &SweepPrediction::itl_s,
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

std::vector<SweepCell> SweepCells(absl::Span<const SweepSeries> series) {
  std::vector<SweepCell> cells;
  for (size_t i = 0; i < series.size(); ++i) {
    const size_t first = cells.size();
    AddPoints(series[i].points, &cells);
    for (size_t place = first; place < cells.size(); ++place) {
      cells[place].series = i;
      cells[place].series_label = series[i].label;
      cells[place].series_folder = series[i].folder;
    }
  }
  NameModels(&cells);
  MarkUnusual(&cells);
  return cells;
}

std::string FieldText(const SweepCell& cell, SweepField field) {
  const SweepConfig& config = cell.config;
  switch (field) {
    case SweepField::kSeries: return cell.series_label;
    case SweepField::kModel: return cell.model_name;
    case SweepField::kStages: return CountText(cell.stages, "stage", "stages not known");
    case SweepField::kThreads: return CountText(cell.threads, "thread", "threads not known");
    case SweepField::kConcurrency:
      return config.concurrency == 0 ? "open loop" : absl::StrCat(config.concurrency, " at once");
    case SweepField::kArrivals: return absl::StrCat(config.arrivals, " arrivals");
    case SweepField::kPrompt: return absl::StrCat("prompt ", config.prompt);
    case SweepField::kOutput: return absl::StrCat("output ", config.output);
    case SweepField::kSpeculate:
      return cell.guesses() ? absl::StrCat("guesses (", NameOf(kSpeculations, config.speculate), ")") : "no guesses";
    case SweepField::kAcceptance: return AcceptanceText(config.acceptance);
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
    case SweepField::kKvCacheBytes: return KvCacheText(config.kv_cache_bytes);
    case SweepField::kRequests:
      return config.requests == 0 ? "any number of requests" : CountOf(config.requests, "request");
    case SweepField::kDuration:
      return config.duration_s == 0 ? "no end" : absl::StrCat("for ", SecondsText(config.duration_s));
    case SweepField::kSlo: return SloText(config);
    case SweepField::kSeed: return absl::StrCat("seed ", config.seed);
    case SweepField::kLayerSplit:
      return config.layer_split.empty() ? "" : absl::StrCat("layers ", absl::StrJoin(config.layer_split, ","));
    case SweepField::kContext: return config.context == 0 ? "" : absl::StrCat("context ", config.context);
    case SweepField::kQ2Layout: return config.q2_layout == "auto" ? "" : absl::StrCat("q2 layout ", config.q2_layout);
    case SweepField::kPrefixCaching: return config.prefix_caching ? "prefix cache" : "";
    case SweepField::kStageDelay:
      return config.stage_delay_us == 0 ? "" : absl::StrCat("stages delayed by ", config.stage_delay_us, " us");
    case SweepField::kLaunch: return config.launch;
    case SweepField::kModelFile: return ModelFileText(config);
    case SweepField::kArrivalsFile: return HashText("trace file", config.arrivals_hash);
    case SweepField::kMachine: return config.machine.empty() ? "" : absl::StrCat("coordinator on ", config.machine);
    case SweepField::kVersion:
      return config.program_version.empty() ? "" : absl::StrCat("version ", config.program_version);
    case SweepField::kCluster: return config.cluster;
    case SweepField::kClusterHosts: return HashText("hosts as described in", config.cluster_hash);
    case SweepField::kWorld: return config.world;
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
  for (SweepField field : TellingFields(cells, {})) {
    if (AlwaysShown(field)) continue;
    const auto usual = std::find_if(cells.begin(), cells.end(),
                                    [&](const SweepCell* cell) { return !cell->unusual[static_cast<size_t>(field)]; });
    if (usual != cells.end() && !FieldText(**usual, field).empty()) texts.push_back(FieldText(**usual, field));
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

PointNames::PointNames(const std::vector<SweepConfig>& points) {
  std::vector<SweepCell> cells;
  for (const SweepConfig& point : points) {
    cells.push_back(NewCell(/*simulated=*/false, point));
    cells.back().model_name = point.model;
  }
  fields_ = TellingFields(PointersTo(cells), {});
  std::erase_if(fields_, [](SweepField field) { return Contains(kNamedFields, field); });
}

std::string PointNames::Of(const SweepConfig& point) const {
  SweepCell cell = NewCell(/*simulated=*/false, point);
  cell.model_name = point.model;
  std::string name = PointName(point);
  for (const SweepField field : fields_) {
    if (const std::string text = FieldText(cell, field); !text.empty()) absl::StrAppend(&name, ", ", text);
  }
  return name;
}

CellLabels::CellLabels(const CellPointers& cells, const std::vector<SweepField>& along)
    : fields_(TellingFields(cells, along)) {
  if (Contains(along, SweepField::kStages)) return;
  // Threads are shown with their stages.
  const auto threads = std::find(fields_.begin(), fields_.end(), SweepField::kThreads);
  const bool told = Contains(fields_, SweepField::kStages);
  if (!told && (threads != fields_.end() || fields_.empty())) fields_.insert(threads, SweepField::kStages);
}

std::string CellLabels::Of(const SweepCell& cell) const {
  std::vector<std::string> told, usual;
  for (SweepField field : fields_) {
    const std::string text = FieldText(cell, field);
    if (text.empty()) continue;
    const bool joins = field == SweepField::kThreads && Contains(fields_, SweepField::kStages);
    if (joins) {
      absl::StrAppend(&told.back(), " \xC3\x97 ", text);
    } else {
      (IsShown(cell, field) ? told : usual).push_back(text);
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
  constexpr size_t kMostFacts = 3;
  if (facts.size() <= kMostFacts) return absl::StrJoin(facts, "; ");
  const auto shown_end = std::next(facts.begin(), kMostFacts - 1);
  return absl::StrCat(absl::StrJoin(facts.begin(), shown_end, "; "), "; ", facts.size() - kMostFacts + 1, " others");
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
