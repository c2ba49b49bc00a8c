#include "stage_worker/model/ffn/ffn.h"

#include <algorithm>
#include <cstdint>

#include "stage_worker/model/layers/projection.h"
#include "stage_worker/weights/panel_shares.h"

namespace stagecoach {
namespace {

// gpt-oss's constants, which no file holds.
constexpr float kClampAlpha = 1.702f;
constexpr float kClampLimit = 7.0f;

// out[i] = the unit's activation of gate[i] and up[i]. In place is allowed.
void ApplyActivation(const Kernels& kernels, Activation activation, const float* gate, const float* up, int64_t n,
                     float* out) {
  switch (activation) {
    case Activation::kSwiglu: return kernels.swiglu(gate, up, n, out);
    case Activation::kGeglu: return kernels.geglu(gate, up, n, out);
    case Activation::kClampedSwiglu: return kernels.clamped_swiglu(gate, up, n, kClampAlpha, kClampLimit, out);
  }
}

// Where a vector begins that may not be there, or the one of an expert.
const float* OrNone(const std::vector<float>& vector, int64_t at = 0) {
  return vector.empty() ? nullptr : vector.data() + at;
}

// A unit's gate and up: a dense layer's, an expert's, or the shared one's.
struct UnitInput {
  const PackedMatrix& gate;
  const PackedMatrix& up;
  const float* gate_bias;  // nullptr: none
  const float* up_bias;
  Activation activation;
  StepPart part;  // of the step's account
};

UnitInput UnitOf(const StageLayer& layer) {
  const LayerWeights& w = layer.weights;
  const bool dense = layer.spec.ffn.kind != FfnKind::kExperts;
  return {w.gate,
          w.up,
          OrNone(w.gate_bias),
          OrNone(w.up_bias),
          layer.spec.ffn.activation,
          dense ? StepPart::kGateUp : StepPart::kExpertsGateUp};
}

// Rows [at, at + rows) of `to` = act(gate m, up m) for these panels, by way of `block`. next: as in PanelSpan. In the
// account the unit's part goes on behind it.
void ActivateBlock(const Kernels& kernels, const Worker& worker, const UnitInput& unit, const Activations& input,
                   int64_t rows, Gang::Part panels, const InputForms& forms, float* block, MatmulInput* to, int64_t at,
                   const uint8_t* next_up, const uint8_t* next) {
  worker.Enter(unit.part);  // an expert's rows may have been gathered before
  const int64_t stride = (panels.end - panels.begin) * kPanelRows;
  float* const up = block + rows * stride;
  Project(kernels, unit.gate, unit.gate_bias, input, rows, panels, block, stride, next_up);
  Project(kernels, unit.up, unit.up_bias, input, rows, panels, up, stride, next);
  worker.Enter(StepPart::kActivation);
  const Gang::Part columns = OutputColumns(unit.gate, panels);
  const int64_t count = columns.end - columns.begin;
  for (int64_t row = 0; row < rows; ++row) {
    float* const act = block + row * stride;
    ApplyActivation(kernels, unit.activation, act, up + row * stride, count, act);
    to->Set(kernels, forms, at + row, unit.gate.rows, columns.begin, act, count);
  }
  worker.Enter(unit.part);
}

// Pieces of work a thread takes in a phase, about. More balance better; fewer are longer runs of panels, which memory
// serves faster.
constexpr int64_t kActivationPieces = 16;
constexpr int64_t kOutputPieces = 8;

// From this number of rows a thread on, the router's work is shared by rows, otherwise by panels.
constexpr int64_t kRouterRows = 16;

// The kernels compute two panels at a time where computing is what takes the time.
constexpr int64_t kWidePanels = 2;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Panels, or pairs of them, cut into `pieces` runs, as equal as the unit allows, so that threads with as many pieces
// have as much work.
struct Runs {
  int64_t count = 0;   // of all
  int64_t pieces = 0;  // at most one a unit
  int64_t unit = 1;

  Gang::Part At(int64_t piece) const {
    const Gang::Part units = Gang::Share(CeilDiv(count, unit), static_cast<int>(piece), static_cast<int>(pieces));
    return {units.begin * unit, std::min(count, units.end * unit)};
  }
};

// About so many pieces, none of more than `most`.
Runs CutInto(int64_t count, int64_t pieces, int64_t most) {
  if (count == 0) return {};
  const int64_t fewest = CeilDiv(count, most), wanted = std::clamp(pieces, fewest, count);
  // In whole units a piece is up to one larger than the fair share.
  const bool wide = CeilDiv(count, wanted) > kWidePanels && most >= 2 * kWidePanels;
  if (!wide) return {count, wanted, 1};
  const int64_t units = CeilDiv(count, kWidePanels);
  return {count, std::clamp(wanted, CeilDiv(units, most / kWidePanels), units), kWidePanels};
}

// Some rows of a step, by one thread of those that work on them together.
class ExpertTile {
 public:
  // `input`: from row `first` on.
  ExpertTile(const StageLayer& layer, const Activations& input, int64_t first, int64_t rows, const StepContext& step,
             const Worker& worker)
      : layer_(layer),
        w_(layer.weights),
        spec_(layer.spec.ffn),
        forms_(layer.forms),
        input_(input),
        first_(first),
        rows_(rows),
        step_(step),
        worker_(worker),
        all_(step.scratch.experts),
        own_(step.scratch.experts.workers[static_cast<size_t>(worker.thread)]),
        block_(step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>()) {}

  void Run(float* out) {
    ComputeLogits();
    worker_.Barrier();  // the outputs of the tile before this one are complete, too
    worker_.Enter(StepPart::kRouting);
    if (spec_.shared_gated) ComputeGates();
    Choose();
    const ExpertPlan plan(chosen_, rows_, spec_.experts_used, spec_.experts, &own_);
    worker_.Enter(StepPart::kExpertsGateUp);
    worker_.AllRead(ActiveBytes(plan, w_.experts.gate) + ActiveBytes(plan, w_.experts.up) + w_.gate.bytes() +
                    w_.up.bytes());
    Activate(plan);
    worker_.Barrier();
    worker_.Enter(StepPart::kExpertsDown);
    worker_.AllRead(ActiveBytes(plan, w_.experts.down) + w_.down.bytes());
    AddOutputs(plan, out);
  }

 private:
  bool has_shared() const { return spec_.shared_width > 0; }

  // Experts' matrices of one kind are of one size.
  static size_t ActiveBytes(const ExpertPlan& plan, const std::vector<PackedMatrix>& matrices) {
    return static_cast<size_t>(plan.active_count) * matrices[0].bytes();
  }

  void ComputeLogits() {
    const PackedMatrix& router = w_.experts.router;
    worker_.Enter(StepPart::kRouter);
    worker_.AllRead(router.bytes());
    const bool by_rows = rows_ >= kRouterRows * worker_.threads();
    const Gang::Part rows = by_rows ? worker_.Share(rows_) : Gang::Part{0, rows_};
    const Gang::Part panels = by_rows ? Gang::Part{0, router.panels()} : worker_.Share(router.panels());
    const int64_t stride = router.padded_rows();
    for (int64_t row = rows.begin; row < rows.end; row += kBlockRows) {
      Project(step_.kernels, router, OrNone(w_.experts.router_bias), RowsFrom(input_, router.cols, row),
              std::min(kBlockRows, rows.end - row), panels,
              all_.logits.as<float>() + row * stride + panels.begin * kPanelRows, stride);
    }
  }

  // Of the shared unit, by rows. AddOutputs reads them, so they wait for the barrier that ends that of another tile.
  void ComputeGates() {
    const std::vector<float>& gate = w_.experts.shared_gate;
    const Gang::Part rows = worker_.Share(rows_);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float logit = step_.kernels.dot(gate.data(), input_.x + row * input_.x_stride, step_.hidden);
      all_.gates.as<float>()[row] = FixedSigmoid(logit);
    }
  }

  // Of few rows each thread finds the choice for itself, which takes less than a barrier.
  void Choose() {
    const bool few = rows_ <= kFewRows;
    int32_t* const chosen = (few ? own_.chosen : all_.chosen).as<int32_t>();
    float* const weights = (few ? own_.weights : all_.weights).as<float>();
    const Gang::Part part = few ? Gang::Part{0, rows_} : worker_.Share(rows_);
    for (int64_t row = part.begin; row < part.end; ++row) {
      Route(spec_.router, spec_.experts, spec_.experts_used,
            all_.logits.as<float>() + row * w_.experts.router.padded_rows(), OrNone(w_.experts.selection_bias),
            own_.routing.as<float>(), chosen + row * spec_.experts_used, weights + row * spec_.experts_used);
    }
    if (!few) worker_.Barrier();
    chosen_ = chosen;
    weights_ = weights;
  }

  // --- activations ---------------------------------------------------------------------------------------------------

  // Fills scratch.activated, and scratch.ffn_input for the shared unit: the inputs of all down projections. Pieces are
  // runs of panel pairs of one unit, the shared one's first.
  void Activate(const ExpertPlan& plan) {
    const int64_t pieces = kActivationPieces * worker_.threads();
    const int64_t shared_pairs = has_shared() ? PanelPairs(w_.gate) : 0;
    const int64_t units = plan.active_count + (has_shared() ? 1 : 0);
    const Runs shared = CutInto(shared_pairs, rows_ > kFewRows ? pieces : CeilDiv(pieces, units), shared_pairs);
    const int64_t pairs = PanelPairs(w_.experts.gate[0]);
    const Runs routed = CutInto(pairs, CeilDiv(pieces, units), pairs);
    const int64_t all = shared.pieces + plan.active_count * routed.pieces;
    const auto expert_of = [&](int64_t i) { return plan.active[(i - shared.pieces) / routed.pieces]; };
    const auto pairs_of = [&](int64_t i) {
      return i < shared.pieces ? shared.At(i) : routed.At((i - shared.pieces) % routed.pieces);
    };
    const auto begin_of = [&](int64_t i) {
      const PackedMatrix& gate = i < shared.pieces ? w_.gate : w_.experts.gate[static_cast<size_t>(expert_of(i))];
      return PanelsAt(gate, 2 * pairs_of(i).begin);
    };
    worker_.Divide(all, {.most = 1}, [&](WorkRun run) {
      const int64_t i = run.items.begin;
      const uint8_t* const next = run.more ? begin_of(i + 1) : nullptr;
      if (i < shared.pieces) {
        ActivateShared(pairs_of(i), next);
      } else {
        ActivateExpert(plan, expert_of(i), pairs_of(i), next);
      }
    });
  }

  // `next`, here and below: as in PanelSpan, behind all of the piece.
  void ActivateShared(Gang::Part pairs, const uint8_t* next) {
    const UnitInput unit = UnitOf(layer_);
    for (int64_t row = 0; row < rows_; row += kBlockRows) {
      ActivateRows(unit, RowsFrom(input_, step_.hidden, row), std::min(kBlockRows, rows_ - row), pairs, forms_.down,
                   &step_.scratch.ffn_input, first_ + row, next);
    }
  }

  void ActivateExpert(const ExpertPlan& plan, int32_t expert, Gang::Part pairs, const uint8_t* next) {
    const ExpertWeights& w = w_.experts;
    const UnitInput unit = {w.gate[static_cast<size_t>(expert)],
                            w.up[static_cast<size_t>(expert)],
                            OrNone(w.gate_bias, expert * spec_.width),
                            OrNone(w.up_bias, expert * spec_.width),
                            spec_.activation,
                            StepPart::kExpertsGateUp};
    const int64_t end = plan.begins[expert + 1];
    for (int64_t place = plan.begins[expert]; place < end; place += kExpertGatherRows) {
      const int64_t count = std::min(kExpertGatherRows, end - place);
      ActivateRows(unit, InputOf(plan, place, count), count, pairs, forms_.expert_down, &all_.activated, place, next);
    }
  }

  // The inputs of the rows at these places of one expert: in place if consecutive, otherwise copies.
  Activations InputOf(const ExpertPlan& plan, int64_t place, int64_t count) {
    const int32_t first = plan.rows[place];
    if (plan.rows[place + count - 1] - first == count - 1) return RowsFrom(input_, step_.hidden, first);
    if (gathered_ != place) {
      worker_.Enter(StepPart::kInput);
      for (int64_t i = 0; i < count; ++i) {
        own_.gathered.Copy(forms_.experts, i, step_.hidden, RowsFrom(input_, step_.hidden, plan.rows[place + i]));
      }
      gathered_ = place;
    }
    return own_.gathered.View(step_.hidden);
  }

  // Rows [at, at + rows) of `to` = act(gate m, up m) for these panel pairs, in blocks that stay in the cache.
  void ActivateRows(const UnitInput& unit, const Activations& input, int64_t rows, Gang::Part pairs,
                    const InputForms& forms, MatmulInput* to, int64_t at, const uint8_t* next) {
    const int64_t end = std::min(2 * pairs.end, unit.gate.panels()), most = BlockPanels(rows);
    for (int64_t panel = 2 * pairs.begin; panel < end; panel += most) {
      const Gang::Part panels = {panel, std::min(panel + most, end)};
      ActivateBlock(step_.kernels, worker_, unit, input, rows, panels, forms, block_, to, at,
                    PanelsAt(unit.up, panels.begin), panels.end < end ? PanelsAt(unit.gate, panels.end) : next);
    }
  }

  // --- outputs -------------------------------------------------------------------------------------------------------

  // Pieces are runs of panels of D, each of all units: a thread has all summands of its columns.
  void AddOutputs(const ExpertPlan& plan, float* out) {
    const int64_t panels = w_.experts.down[0].panels();
    const int64_t places = rows_ * (spec_.experts_used + (has_shared() ? 1 : 0));
    const int64_t most = std::min(all_.output_floats / (places * kPanelRows), 2 * kBlockFloats / kPanelRows);
    const Runs runs = CutInto(panels, kOutputPieces * worker_.threads(), std::max<int64_t>(1, most));
    const PackedMatrix& first = w_.experts.down[static_cast<size_t>(plan.active[0])];
    worker_.Divide(runs.pieces, {.most = 1}, [&](WorkRun run) {
      const Gang::Part part = runs.At(run.items.begin);
      ComputeOutputs(plan, part, run.more ? PanelsAt(first, runs.At(run.items.begin + 1).begin) : nullptr);
      worker_.Enter(StepPart::kExpertsSum);
      SumOutputs(plan, part, out);
      worker_.Enter(StepPart::kExpertsDown);
    });
  }

  // own_.outputs [places, columns of the panels]: experts' rows by place, then the shared unit's by row.
  void ComputeOutputs(const ExpertPlan& plan, Gang::Part panels, const uint8_t* next) {
    const int64_t stride = (panels.end - panels.begin) * kPanelRows;
    float* const outputs = own_.outputs.as<float>();
    const auto project = [&](const PackedMatrix& down, const float* bias, const MatmulInput& input, int64_t at,
                             int64_t rows, float* to, const uint8_t* then) {
      for (int64_t row = 0; row < rows; row += kBlockRows) {
        Project(step_.kernels, down, bias, RowsFrom(input.View(down.cols), down.cols, at + row),
                std::min(kBlockRows, rows - row), panels, to + row * stride, stride, then);
      }
    };
    for (int32_t i = 0; i < plan.active_count; ++i) {
      const int32_t expert = plan.active[i], place = plan.begins[expert];
      const uint8_t* const then = i + 1 < plan.active_count
                                      ? PanelsAt(w_.experts.down[static_cast<size_t>(plan.active[i + 1])], panels.begin)
                                  : has_shared() ? PanelsAt(w_.down, panels.begin)
                                                 : next;
      project(w_.experts.down[static_cast<size_t>(expert)], OrNone(w_.experts.down_bias, expert * step_.hidden),
              all_.activated, place, plan.RowsOf(expert), outputs + place * stride, then);
    }
    if (has_shared()) {
      project(w_.down, OrNone(w_.down_bias), step_.scratch.ffn_input, first_, rows_,
              outputs + rows_ * spec_.experts_used * stride, next);
    }
  }

  void SumOutputs(const ExpertPlan& plan, Gang::Part panels, float* out) {
    const Gang::Part columns = OutputColumns(w_.experts.down[0], panels);
    const int64_t stride = (panels.end - panels.begin) * kPanelRows, count = columns.end - columns.begin;
    const float* const outputs = own_.outputs.as<float>();
    const float* const shared = outputs + rows_ * spec_.experts_used * stride;
    float* const sum = block_;
    for (int64_t row = 0; row < rows_; ++row) {
      const int32_t* const places = plan.places + row * spec_.experts_used;
      const float* const weights = weights_ + row * spec_.experts_used;
      std::fill_n(sum, count, 0.0f);
      for (int64_t rank = 0; rank < spec_.experts_used; ++rank) {
        step_.kernels.add_scaled(outputs + places[rank] * stride, weights[rank], count, sum);
      }
      if (has_shared()) {
        const float gate = spec_.shared_gated ? all_.gates.as<float>()[row] : 1.0f;
        step_.kernels.add_scaled(shared + row * stride, gate, count, sum);
      }
      step_.kernels.add(sum, count, out + row * step_.hidden + columns.begin);
    }
  }

  const StageLayer& layer_;
  const LayerWeights& w_;
  const FfnSpec& spec_;
  const LayerInputForms& forms_;
  const Activations input_;
  const int64_t first_;  // of the step
  const int64_t rows_;
  const StepContext& step_;
  const Worker& worker_;
  ExpertScratch& all_;
  ExpertWorkerScratch& own_;
  float* const block_;
  const int32_t* chosen_ = nullptr;  // [rows, k]
  const float* weights_ = nullptr;   // [rows, k]
  int64_t gathered_ = -1;            // the first place of what own_.gathered holds
};

void AddExperts(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker,
                float* out) {
  const int64_t rows = step.plan.row_count(), most = step.scratch.experts.rows;
  for (int64_t first = 0; first < rows; first += most) {
    ExpertTile(layer, RowsFrom(input, step.hidden, first), first, std::min(most, rows - first), step, worker)
        .Run(out + first * step.hidden);
  }
}

// scratch.ffn_input [rows, F] = act(Wgate m, Wup m), in the forms of the down projection. Divided by output panels, the
// same of both matrices, so the product needs no other thread's part.
void ActivateDense(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker) {
  const UnitInput unit = UnitOf(layer);
  const int64_t rows = step.plan.row_count();
  float* const block = step.scratch.workers[static_cast<size_t>(worker.thread)].block.as<float>();
  worker.Enter(StepPart::kGateUp);
  worker.AllRead(unit.gate.bytes() + unit.up.bytes());
  worker.Divide(PanelPairs(unit.gate), PanelRuns(unit.gate, 2, rows), [&](WorkRun run) {
    const Gang::Part taken = PanelsOfPairs(unit.gate, run.items);
    ForEachBlock(taken, BlockPanels(rows), rows, [&](Gang::Part panels, int64_t first, int64_t count) {
      ActivateBlock(step.kernels, worker, unit, RowsFrom(input, unit.gate.cols, first), count, panels, layer.forms.down,
                    block, &step.scratch.ffn_input, first, PanelsAt(unit.up, panels.begin),
                    panels.end < taken.end || run.more ? PanelsAt(unit.gate, panels.end) : nullptr);
    });
  });
}

}  // namespace

void AddFfn(const StageLayer& layer, const Activations& input, const StepContext& step, const Worker& worker,
            float* out) {
  if (layer.spec.ffn.kind == FfnKind::kExperts) return AddExperts(layer, input, step, worker, out);
  ActivateDense(layer, input, step, worker);
  worker.Barrier();
  AddProjection(StepPart::kDown, layer.weights.down, layer.weights.down_bias,
                step.scratch.ffn_input.View(layer.spec.ffn.width), step, worker, out);
}

}  // namespace stagecoach
