// Counts the memory of a stage under each schedule.  Nothing else counts it.
// Pure.
//
// A device with m replicas in its stage, e devices in earlier stages and n in
// later ones keeps, of M micro-batches of a step (each replica has ceil(M / m)
// of them; of an endless stream there is no bound by M):
//   1f1b         ceil(n / m) + 1, from forward to backward: the warm-up of
//                Narayanan et al. 2019 ("PipeDream", section 3.2), per replica.
//                With fewer a replica would wait out its micro-batch's way
//                through the stages behind
//   interleaved-1f1b  the same: this is of one stage a device, where nothing
//                is interleaved
//   gpipe        all
//   zero-bubble  floor((e + n) / m) + 1, because the gradients of weights are
//                put off (ZB-H1 of Qi et al. 2023, section 2.2); of these
//                floor(e / m) + 1 are between the halves of their backward, and
//                keep the gradient of each layer's output besides
//   pipedream    as 1f1b of an endless stream, since nothing is flushed after
//                a step, and a copy of the parameters for each but one
//   inference    none
// tests/core/plan/stage_memory_test.cc counts the same along the instructions
// of core/schedule.
#pragma once

#include <cmath>

#include "core/plan/problem.h"

namespace paceline {

// Where a stage stands among the devices of a pipeline.
struct StagePlace {
  int replicas = 1;         // devices of the stage itself
  int earlier_devices = 0;  // in the stages before it
  int later_devices = 0;    // in the stages after it
};

// Bytes of the layers of a stage.
template <typename Number>
struct StageAmountsOf {
  Number fixed = 0;       // parameters and what is there of them always
  Number parameters = 0;  // one copy
  Number kept = 0;        // of a micro-batch, from forward to backward
  Number outputs = 0;     // of a micro-batch, of every layer
  Number boundary = 0;    // over its boundaries, one way
};
using StageAmounts = StageAmountsOf<double>;

// Micro-batches of one device, at most.
template <typename Number>
struct InFlight {
  Number kept;     // from forward to backward
  Number split;    // of these, between the halves of their backward
  Number stashed;  // of these, with parameters of their own
};

// Counts of devices are whole here.  soft (soft_relaxation.h) counts fractions
// of them and has the same functions for numbers that know their slopes.
inline double WholeBelow(double value) { return std::floor(value); }
inline double WholeAbove(double value) { return std::ceil(value); }

template <typename Number>
InFlight<Number> InFlightOf(const PlanProblem& problem, const Number& replicas,
                            const Number& earlier, const Number& later) {
  const Number none(0);
  const Number one(1);
  if (!problem.training) return {none, none, none};
  Number kept = problem.splits ? WholeBelow((earlier + later) / replicas)
                               : WholeAbove(later / replicas);
  kept = kept + one;
  Number split =
      problem.splits ? WholeBelow(earlier / replicas) + one : Number(0);
  if (problem.micro_batches > 0 && !problem.stashes) {
    const Number all(static_cast<double>(problem.micro_batches));
    Number mine = WholeAbove(all / replicas);
    if (mine < one) mine = one;
    if (problem.keeps_all || mine < kept) kept = mine;
    if (mine < split) split = mine;
  }
  return {kept, split, problem.stashes ? kept - one : none};
}

inline InFlight<double> InFlightOf(const PlanProblem& problem,
                                   const StagePlace& place) {
  return InFlightOf<double>(problem, place.replicas, place.earlier_devices,
                            place.later_devices);
}

// An activation and a gradient are on their way.
inline constexpr double kFramesOfABoundary = 2;

// On each of the stage's devices.
template <typename Number>
Number BytesOf(const PlanProblem& problem,
               const StageAmountsOf<Number>& amounts,
               const InFlight<Number>& in_flight) {
  return amounts.fixed + kFramesOfABoundary * amounts.boundary +
         problem.reserved_bytes + in_flight.stashed * amounts.parameters +
         in_flight.kept * amounts.kept + in_flight.split * amounts.outputs;
}

// Parameters, gradients, optimizer's state of one layer.  What it borrows has
// its state with the owner; what is frozen has neither.
double FixedBytes(const PlanProblem& problem, const LayerCost& layer);

// O(layers of the range).
StageAmounts AmountsOf(const PlanProblem& problem, LayerRange layers);

// Bytes that a stage takes on each of its devices.  O(layers of the range).
double StageBytes(const PlanProblem& problem, LayerRange layers,
                  const StagePlace& place);

}  // namespace paceline
