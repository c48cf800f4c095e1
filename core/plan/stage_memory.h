// Counts the memory of a stage under each schedule.  Nothing else counts it.
// Pure.
//
// A device with m replicas in its stage, e devices in earlier stages and n in
// later ones keeps, of M micro-batches of a step (a replica with a large share
// has nearly all of them; of an endless stream there is no bound by M):
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
//                a step, and a copy of the parameters for each but one; with
//                vertical sync e + n copies on every stage
//   inference    none, but one layer's at a time
// tests/core/plan/stage_memory_test.cc counts the same along the instructions
// of core/schedule.
#pragma once

#include <algorithm>
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
  Number outputs = 0;   // of a micro-batch, of every layer; where a segment is
                        // computed again all that it keeps besides
  Number boundary = 0;  // over its boundaries, one way
  Number frames = 0;    // the same in memory
  Number once = 0;      // of one micro-batch at a time, besides: the largest
                        // segment, of inference the largest layer
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
    if (problem.keeps_all || all < kept) kept = all;
    if (all < split) split = all;
  }
  if (!problem.stashes) return {kept, split, none};
  return {kept, split, problem.same_versions ? earlier + later : kept - one};
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
  return amounts.fixed + kFramesOfABoundary * amounts.frames +
         problem.reserved_bytes + amounts.once +
         in_flight.stashed * problem.version_copies * amounts.parameters +
         in_flight.kept * amounts.kept + in_flight.split * amounts.outputs;
}

// Whether what a stage keeps depends on the devices before it.
inline bool CountsEarlier(const PlanProblem& problem) {
  return problem.splits || (problem.stashes && problem.same_versions);
}

inline double DecodedBytes(const LayerCost& layer) {
  return layer.decoded_bytes > 0 ? layer.decoded_bytes : layer.output_bytes;
}

// Bytes of a layer's input in memory.
inline double InputBytes(const PlanProblem& problem, int layer) {
  return layer > 0 ? DecodedBytes(problem.layers[layer - 1])
                   : problem.input_bytes;
}

// Layers of which everything is there at once; 0: there is no such thing.
inline int SegmentLayers(const PlanProblem& problem) {
  const int layers = static_cast<int>(problem.layers.size());
  return problem.training ? std::min(problem.segment_layers, layers) : 1;
}

// Bytes that a layer adds to its segment.
inline double SegmentBytes(const PlanProblem& problem, const LayerCost& layer) {
  return layer.kept_bytes + (problem.training ? 0 : DecodedBytes(layer));
}

// Bytes that a layer adds to StageAmounts::outputs.
inline double OutputBytes(const PlanProblem& problem, const LayerCost& layer) {
  return DecodedBytes(layer) +
         (problem.segment_layers > 0 ? layer.kept_bytes : 0);
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
