#ifndef STAGECOACH_COORDINATOR_SCHEDULE_READ_CURVE_H_
#define STAGECOACH_COORDINATOR_SCHEDULE_READ_CURVE_H_

// How much of its weights a step reads, by its rows. Pure.

#include <cmath>

namespace stagecoach {

// By default a model all of whose rows see all weights. With experts a row sees those that it chooses, and a step reads
// what some row sees.
struct ReadCurve {
  double experts = 0;  // share of the weights that are experts'
  double chosen = 1;   // share of the experts that a row chooses: above 0, at most 1

  // As a multiple of what one row's step reads: 1 .. 1 / (1 - experts * (1 - chosen)).
  double Of(double rows) const { return Share(rows) / Share(1); }
  // What one more row adds to it.
  double Slope(double rows) const {
    return chosen < 1 ? -experts * std::log1p(-chosen) * std::pow(1 - chosen, rows) / Share(1) : 0;
  }

 private:
  double Share(double rows) const { return 1 - experts * std::pow(1 - chosen, rows); }  // of all weights
};

}  // namespace stagecoach

#endif  // STAGECOACH_COORDINATOR_SCHEDULE_READ_CURVE_H_
