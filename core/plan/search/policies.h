// The planning policies.  policy.h lists them and checks their answers; each
// function here is in the .cc file of its policy.  Pure.
//
// Every `problem` has passed CheckProblem.  Placements have the shares of
// SharesFor.  The same arguments give the same answer on every machine.
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
  bool exact = false;  // proved optimal, with the shares of SharesFor
};

// --- equal, min-cut (in_order.cc) -------------------------------------------
//
// Both policies cut the chain without regard to the devices.  Each device takes
// one stage, in order; when a device cannot hold its stage, the first free
// device that can takes it (PlacesFor of memory.h).

// Makes problem.stages stages; when that is 0, as many as layers, devices and
// their memory allow.  Layer counts differ by at most one, the longer ones
// first.
//
// Errors: ResourceExhausted  a stage does not fit in any order of the devices.
absl::StatusOr<Placement> EqualPlacement(const PlanProblem& problem);

// Makes as many stages as EqualPlacement, with the cuts that the fewest bytes
// cross in all.  These are the cheapest cuts, so the largest crossing is
// smallest too.  Among equal ones it takes the most even layer counts, by the
// least sum of squares.  O(stages x layers^2).
//
// Errors: ResourceExhausted  a stage does not fit in any order of the devices.
absl::StatusOr<Placement> MinCutPlacement(const PlanProblem& problem);

// --- brute ------------------------------------------------------------------
//
// It tries every placement.  Tests compare other policies with it.

inline constexpr double kMostBrutePlacements = 2e6;

// Returns the number of placements of `problem`: cuts x devices for each stage,
// with devices left out.  Infinity beyond the range of double.
double CountPlacements(const PlanProblem& problem);

// Returns the placement of the least step_seconds that fits; of equal ones the
// one with fewer stages, then the first that was tried.  O(CountPlacements).
//
// Errors:
//   InvalidArgument    more than kMostBrutePlacements: says both numbers
//   ResourceExhausted  no placement fits the memory
absl::StatusOr<Placement> BrutePlacement(const PlanProblem& problem);

// --- optimal (optimal.cc, optimal_exact.cc) ---

// Takes a short walk (walk.h), then runs the exact search for cheaper
// placements.  Where the exact one is too large or gives up, it takes a longer
// walk.  Counts of states and steps decide this, never a clock.
//
// Under schedules with backwards in halves or vertical sync a stage keeps more
// the more devices come before it (CountsEarlier() of stage_memory.h).  A
// search from the last stage to the first does not know these devices unless
// the number of stages is given.  Where it is not, the search first counts no
// earlier devices, and its answer stands if it also fits with them.  If not,
// the search runs with every number of stages that could beat the best answer
// so far, those nearest to the first answer's first.  After kMostStageCounts of
// them it stops at the first answer, which is then not proved.
//
// Errors: ResourceExhausted  no placement fits the memory, or (when the exact
// search is too large) the walk met none that does.
inline constexpr int kMostStageCounts = 8;
absl::StatusOr<Solved> SolveOptimal(const PlanProblem& problem);

// The exact search.
//
// It lays stages from the last to the first, because the number of
// micro-batches that a stage keeps depends on the devices behind it:
//
//   layers    0 ............ j .......... k ............ end
//             not yet laid   | stage on T | later stages |
//             devices        |<--- S: all devices used ->|
//
// A state is (j, S, T): the first layer laid, the set of devices used, and the
// set of the stage that starts at j.  Its labels are pairs (sum, bottleneck)
// none of which is better in both; without overlap a label also has the busy
// time of the stage at j so far.  The search drops a label when its lower bound
// reaches the incumbent; the bound comes from the same recursion without the
// transfers' far ends.  Sets are counts over interchangeable devices: 16 equal
// machines have 17 sets, not 65,536.

// Returns [classes][members], each ascending, classes by their first member.
// Two devices share a class when they have the same speed, measured seconds,
// memory and frame costs, and swapping them changes no link.  O(devices^3).
std::vector<std::vector<int>> InterchangeableDevices(
    const PlanProblem& problem);

// Returns an optimal placement among all with the shares of SharesFor; not
// `exact`: the problem is too large, or the search gave up.
// O(layers^2 x 4^devices) at worst for unlike devices, mostly far less.
//
//   incumbent_seconds  a cost that is known to be possible.  The search finds
//                      only cheaper placements, and returns an empty one when
//                      there is none.  Infinity: no cost is known
//   most_steps         the search gives up after this many; a step tries one
//                      stage at one label
Solved SolveExactly(const CostTable& table, double incumbent_seconds,
                    double most_steps);

// --- mcmc -------------------------------------------------------------------

// Walks over placements by Metropolis-Hastings, after the search of FlexFlow
// (Jia, Zaharia, Aiken 2018, "Beyond Data and Model Parallelism for Deep Neural
// Networks", section 6), and returns the best one that it met and that fits.  A
// step changes a cut, all cuts, the devices of a stage or two, or the number of
// stages (kept when problem.stages is not 0).  The walk takes a step with
// probability min(1, exp(-increase / temperature)).  A placement that does not
// fit costs more in proportion to its excess bytes, so that the walk may pass
// through it.
//
// Our departures: the temperature falls (the paper's is fixed); half of the
// proposals change the stage that bounds the step, so the chain is not
// symmetric: it minimises, it does not sample; and the costs are exact, not
// simulated.
//
// The number of steps grows with layers + devices: 8 layers on 5 devices take
// some milliseconds, 1,000 layers on 64 one or two seconds.
//
// Errors: ResourceExhausted  no placement that it met fits; not a proof.
absl::StatusOr<Placement> McmcPlacement(const PlanProblem& problem,
                                        uint64_t seed);

// --- soft -------------------------------------------------------------------

// Descends the gradient of a relaxed placement (soft.h), then rounds it.
//
// It tries several numbers of stages (only problem.stages when that is not 0),
// each from several seeded starts.  A try descends on the Relaxation by Adam
// (Kingma and Ba 2015, algorithm 1) while the softness is annealed, rounds the
// result, and improves it by random downhill steps.  These steps repair
// placements that do not fit and losses of rounding.  The answer is the best
// placement of all tries.
//
// 8 layers on 5 devices take some ten milliseconds, 1,000 layers on 64 two to
// four seconds (measured 2026-11-25, two cores under load).
//
// Errors: ResourceExhausted  no placement that it met fits; not a proof.
absl::StatusOr<Placement> SoftPlacement(const PlanProblem& problem,
                                        uint64_t seed);

// --- lower bounds (lower_bound.cc) ------------------------------------------

// The least seconds of the layers [0, l) on any devices: [layers + 1].
struct LeastSeconds {
  std::vector<double> alone = {0};     // each layer on the fastest device
  std::vector<double> together = {0};  // each layer on all devices at once
};

// O(layers x devices).
LeastSeconds LeastSecondsOf(const CostTable& table);

// Returns a lower bound of step_seconds over every placement that `problem`
// allows (stages, replicas, memory), with any shares.  The bound comes from
// total work over total speed, the largest layer on the fastest device (or on
// all of them where replicas are allowed), one device a stage and the fewest
// transfers.  O(layers x devices), some hundred times.
double LowerBoundSeconds(const PlanProblem& problem);

// Returns a lower bound of step_seconds over every placement with one device a
// stage.
//
// At a pace b a device holds at most the largest run of whole layers that takes
// at most b and fits its memory.  A run takes its compute, its frames and
// (without overlap) its cheapest transfers.  Only one device holds the first
// layer, and only one the last.  At a possible pace the runs together hold all
// layers.  For a step of M micro-batches, the sum of the stages is at least
// that of filling the devices in order of speed.  The bound is the least of
// sum(b) + (M - 1) b over b.  It is found by intervals of b, since sum(b) falls
// and (M - 1) b rises with b.
// O(layers x devices) for each of about 100 paces.
double PackingBoundSeconds(const CostTable& table);

}  // namespace paceline
