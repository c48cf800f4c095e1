// Counts the memory of a stage under each schedule.  No other file counts it.
// Pure.
//
// A device with m replicas in its stage, e devices in earlier stages and n in
// later ones keeps the activations of at most this many micro-batches (never
// more than the M of a step, since one replica may have nearly all of them; an
// endless stream has no M):
//   1f1b         ceil(n / m) + 1, from forward to backward: the warm-up of
//                Narayanan et al. 2019 ("PipeDream", section 3.2), per replica.
//                With fewer, a replica would idle while its micro-batch passes
//                through the later stages
//   interleaved-1f1b  the same: this counts one stage a device, where nothing
//                is interleaved
//   gpipe        M
//   zero-bubble  floor((e + n) / m) + 1, because the gradients of weights are
//                put off (ZB-H1 of Qi et al. 2023, section 2.2); of these
//                floor(e / m) + 1 are between the halves of their backward, and
//                keep the gradient of each layer's output as well
//   pipedream    as 1f1b of an endless stream, since nothing is flushed after
//                a step, and a copy of the parameters for each but one; with
//                vertical sync e + n copies on every stage
//   inference    none, but the activations of one layer at a time
// tests/core/plan/stage_memory_test.cc counts the same from the instructions of
// core/schedule.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/plan/problem.h"

namespace paceline {

// A stage's position among the devices of a pipeline.
struct StagePlace {
  int replicas = 1;         // devices of the stage itself
  int earlier_devices = 0;  // in the stages before it
  int later_devices = 0;    // in the stages after it
};

// Bytes of the layers of a stage.
template <typename Number>
struct StageAmountsOf {
  Number fixed = 0;       // parameters with all that always stays beside them
  Number parameters = 0;  // one copy
  Number kept = 0;        // of a micro-batch, from forward to backward
  // of a micro-batch, of every layer; when recomputing, also all kept
  // activations
  Number outputs = 0;
  Number boundary = 0;  // over its boundaries, one way
  Number frames = 0;    // the same in memory
  // of one micro-batch at a time: training: the largest segment; inference: the
  // largest layer
  Number once = 0;
};
using StageAmounts = StageAmountsOf<double>;

// The most micro-batches of one device.
template <typename Number>
struct InFlight {
  Number kept;     // from forward to backward
  Number split;    // of these, between the halves of their backward
  Number stashed;  // of these, with parameters of their own
};

// Here the counts of devices are whole numbers.  The policy soft
// (soft.h) counts fractions of devices, and has the same functions
// for numbers with derivatives.
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

// One activation and one gradient in transit.
inline constexpr double kFramesOfABoundary = 2;

// Returns the bytes on each of the stage's devices.
template <typename Number>
Number BytesOf(const PlanProblem& problem,
               const StageAmountsOf<Number>& amounts,
               const InFlight<Number>& in_flight) {
  return amounts.fixed + kFramesOfABoundary * amounts.frames +
         problem.reserved_bytes + amounts.once +
         in_flight.stashed * problem.version_copies * amounts.parameters +
         in_flight.kept * amounts.kept + in_flight.split * amounts.outputs;
}

// Returns whether the memory of a stage depends on the devices before it.
inline bool CountsEarlier(const PlanProblem& problem) {
  return problem.splits || (problem.stashes && problem.same_versions);
}

inline double DecodedBytes(const LayerCost& layer) {
  return layer.decoded_bytes > 0 ? layer.decoded_bytes : layer.output_bytes;
}

// Returns the bytes of a layer's input in memory.
inline double InputBytes(const PlanProblem& problem, int layer) {
  return layer > 0 ? DecodedBytes(problem.layers[layer - 1])
                   : problem.input_bytes;
}

// Returns how many layers have all their activations at once; 0: no
// recomputing, so all are kept.
inline int SegmentLayers(const PlanProblem& problem) {
  const int layers = static_cast<int>(problem.layers.size());
  return problem.training ? std::min(problem.segment_layers, layers) : 1;
}

// Returns the bytes that a layer adds to its segment.
inline double SegmentBytes(const PlanProblem& problem, const LayerCost& layer) {
  return layer.kept_bytes + (problem.training ? 0 : DecodedBytes(layer));
}

// Returns the bytes that a layer adds to StageAmounts::outputs.
inline double OutputBytes(const PlanProblem& problem, const LayerCost& layer) {
  return DecodedBytes(layer) +
         (problem.segment_layers > 0 ? layer.kept_bytes : 0);
}

// Returns the bytes of one layer's parameters, gradients and optimizer state.
// Only the owner of a borrowed parameter keeps its optimizer state; a frozen
// one has no gradient and no state.
double FixedBytes(const PlanProblem& problem, const LayerCost& layer);

// O(layers of the range).
StageAmounts AmountsOf(const PlanProblem& problem, LayerRange layers);

// Returns the bytes that a stage takes on each of its devices.  O(layers of the
// range).
double StageBytes(const PlanProblem& problem, LayerRange layers,
                  const StagePlace& place);

}  // namespace paceline
