// The planning policies.  policy.h lists them and checks what they answer; each
// function here is in the .cc file of its policy.  Pure.
//
// Every `problem` has passed CheckProblem.  Placements have shares as SharesFor
// gives them.  The same arguments give the same answer on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/plan/cost.h"
#include "core/plan/cost_table.h"
#include "core/plan/problem.h"

namespace paceline {

struct Solved {
  Placement placement;
  bool exact = false;  // proved optimal, with shares as SharesFor gives them
};

// --- equal, min-cut (in_order.cc) -------------------------------------------
//
// Both cut the chain without looking at the devices, which take the stages in
// order, one each; a stage that its device does not hold goes to the first free
// one that does (PlacesFor of memory.h).

// problem.stages stages, or as many as layers, devices and their memory allow
// when it is 0; layer counts differ by at most one, the longer ones first.
//
// Errors: ResourceExhausted  whatever the order, a stage does not fit.
absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem);

// As many stages as EqualPlacement makes, cut where the fewest bytes cross in
// all (which also makes the largest crossing smallest: the cuts are the
// cheapest there are); among those the most even layer counts, by the least
// sum of squares.  O(stages x layers^2).
//
// Errors: ResourceExhausted  whatever the order, a stage does not fit.
absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem);

// --- brute ------------------------------------------------------------------
//
// It tries every placement there is.  The tests take it as their oracle.

inline constexpr double kMostBrutePlacements = 2e6;

// How many placements `problem` has: cuts x devices for each stage, with
// devices left out.  Infinity beyond the range of double.
double CountPlacements(const PlanProblem& problem);

// The placement of the least step_seconds that fits; of equals the one with
// fewer stages, then the first in the order of the walk.  O(CountPlacements).
//
// Errors:
//   InvalidArgument    more than kMostBrutePlacements: says both numbers
//   ResourceExhausted  no placement fits the memory
absl::StatusOr<Placement> BrutePlacement(const PlanProblem& problem);

// --- dp (dp.cc, dp_exact.cc, dp_search.cc, two_level.cc) ---------------------

// A short heuristic search, then the exact one below what that found; where
// the exact one is too large or gives up, a longer heuristic search.  What is
// too large is a count of states and steps, never a clock.
//
// Errors: ResourceExhausted  no placement fits the memory, or (when the exact
// search is too large) none was found that does.
absl::StatusOr<Solved> SolveDp(const PlanProblem& problem);

using DpSolver = absl::StatusOr<Solved> (*)(const PlanProblem& problem);

// Schedules with backwards in halves, or vertical sync, keep more the more
// stages come before a stage (CountsEarlier() of stage_memory.h), which a
// search from the last stage to the first does not know, unless the number of
// stages is given.
//
// `solve` as it is where that does not matter or the number of stages is given.
// Else `solve` first counts nothing for earlier stages: what it finds is the
// answer where it fits as counted in full.  Where it does not, every number of
// stages is asked for that could be better than the best one so far; of more
// than kMostStageCounts those nearest to the first answer's, and then nothing
// is proved.
//
// Errors: those of `solve`
inline constexpr int kMostStageCounts = 8;
absl::StatusOr<Solved> SolveHalves(const PlanProblem& problem, DpSolver solve);

// The exact search.
//
// Stages are laid from the last to the first, because how many micro-batches a
// stage keeps depends on the devices behind it.  A state is (first layer j of
// what is laid, set S of devices used, set T of the stage that starts at j);
// its labels are pairs (sum, bottleneck) of which none is better in both, and
// without overlap also what the stage at j is busy for so far.  A label is
// dropped when the best that can still become of it, by the same recursion
// without the transfers' far ends, reaches the incumbent.  Sets are counts over
// interchangeable devices: 16 equal machines have 17 sets, not 65,536.

// [classes][members], each ascending, classes by their first member.  Two
// devices share a class when they have the same speed, measured seconds,
// memory and frame costs, and swapping them leaves every link as it was.
// O(devices^3).
std::vector<std::vector<int>> InterchangeableDevices(
    const PlanProblem& problem);

// Pairs (set of devices, a set inside it that can hold a stage): what the
// search's tables are as large as.
double CountPairs(const std::vector<std::vector<int>>& classes, bool replicas);

// Returns an optimal placement over all with shares as SharesFor gives them;
// not `exact`: the problem is too large, or the search gave up.
// O(layers^2 x 4^devices) at worst for unlike devices, mostly far less.
//
//   incumbent_seconds  this cost is known to be possible; only what is cheaper
//                      is looked for, and the placement is empty where nothing
//                      is.  Infinity: nothing is known
//   most_steps         (a stage tried at a label) after which it gives up
Solved SolveExactly(const CostTable& table, double incumbent_seconds,
                    double most_steps);

// The heuristic search: good orders of devices packed at the best pace, then
// improved by local search.  Returns the best placement found, shares as
// SharesFor gives them; empty when none was found that fits.
//
//   most_steps  devices looked at while packing; see dp.cc for what one takes
Placement SearchPlacement(const CostTable& table, double most_steps);

// As PipeDream does (Narayanan et al. 2019, section 3.1): the best stages
// inside a machine are found for every range of layers, then a chain of
// machines with their ranges is laid by dynamic programming.  Devices of one
// machine hold neighbouring stages, or one stage is replicated over all devices
// of some machines; a machine may be left out.  Of many layers only some cuts
// are looked at between machines, at small outputs; at the end all cuts are
// moved layer by layer.  Orders of machines: all of at most four, else as given
// and by speed, both ways.
//
// Our departure: what is kept to is the cost of the whole (cost.h), not that of
// each level, and memory is judged with all devices behind a stage.
//
// Never cheaper than the exact single level, and `exact` only where all devices
// are in one machine.
//
// Errors: as SolveDp, which is also asked when no chain of machines fits.
absl::StatusOr<Solved> SolveTwoLevels(const PlanProblem& problem);

// At most `most` places to cut inside `layers`, both ends included, ascending:
// about evenly spaced in work, each where the fewest bytes cross nearby.
std::vector<int> GoodCuts(const CostTable& table, LayerRange layers, int most);

// The layers between neighbouring `cuts` joined to one each, on `devices` alone
// as if nothing was before or behind, in any number of stages.
PlanProblem PartOf(const PlanProblem& problem, const std::vector<int>& cuts,
                   const std::vector<int>& devices);

// --- mcmc -------------------------------------------------------------------

// A Metropolis-Hastings walk over placements, after the search of FlexFlow
// (Jia, Zaharia, Aiken 2018, "Beyond Data and Model Parallelism for Deep Neural
// Networks", section 6): the best placement that it met and that fits.  A step
// changes a cut, the devices of a stage or two, or the
// number of stages (kept when problem.stages is not 0); it is taken with
// probability min(1, exp(-increase / temperature)).  What does not fit is
// charged by how much, so that the walk may pass through it.
//
// Ours differs from the paper: the temperature falls (the paper's is fixed),
// half of the proposals are about the stage that bounds the step (so the chain
// is not symmetric: it minimises, it does not sample), and the costs are exact
// rather than simulated.
//
// The number of steps grows with layers + devices: 8 layers on
// 5 devices take some milliseconds, 1,000 layers on 64 a second.
//
// Errors: ResourceExhausted  no placement that it met fits; not a proof.
absl::StatusOr<Placement> McmcPlacement(const PlanProblem& problem,
                                        uint64_t seed);

// --- soft -------------------------------------------------------------------

// Gradient descent on a relaxation of the placement, then rounding.
//
// For several numbers of stages (the one asked for, when problem.stages is not
// 0) and several seeded starts: descend on the Relaxation by Adam (Kingma and
// Ba 2015, algorithm 1) while it is annealed from soft to hard, round, and walk
// downhill from there by random steps: they mend what does not fit and what the
// rounding cost.  The best of all is the answer.
//
// 8 layers on 5 devices take some ten milliseconds, 1,000 layers on 64 two to
// four seconds (measured 2026-11-25, two cores under load).
//
// Errors: ResourceExhausted  no placement that it met fits; not a proof.
absl::StatusOr<Placement> SoftPlacement(const PlanProblem& problem,
                                        uint64_t seed);

// --- lower bounds (lower_bound.cc) ------------------------------------------

// Seconds of the layers [0, l) at least, whoever holds them: [layers + 1].
struct LeastSeconds {
  std::vector<double> alone = {0};     // each layer on the fastest device
  std::vector<double> together = {0};  // each layer on all devices at once
};

// O(layers x devices).
LeastSeconds LeastSecondsOf(const CostTable& table);

// A bound under the step_seconds of every placement that `problem` allows
// (stages, replicas, memory), whatever its shares: total work over total speed,
// the largest layer on the fastest device (or on all of them where replicas
// are allowed), one device a stage and the fewest transfers.  O(layers x
// devices), some hundred times.
double LowerBoundSeconds(const PlanProblem& problem);

// Under the step_seconds of every placement with one device a stage.
//
// At a pace b a device holds at most the largest run of whole layers whose
// compute, frames and (without overlap) cheapest transfers take at most b and
// whose memory it has; only one device holds the first layer and only one the
// last.  The pace must be one at which the runs together hold all layers.  For
// a step of M micro-batches the sum of the stages is at least what filling the
// devices in order of speed gives, and the bound is the least of sum(b) +
// (M - 1) b over b, by intervals: both sides fall or rise with b.
// O(layers x devices) for each of about 100 paces.
double PackingBoundSeconds(const CostTable& table);

}  // namespace paceline
