// Cuts of a job's state: which are valid, which machines hold their pieces,
// and what may be dropped.  Values and pure functions.
//
// Assumes: within one attempt steps are applied in order, and a step is applied
// on all stages or on none.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/round/view.h"

namespace paceline {

// A machine may run several workers; all their pieces are lost with it.
using MachineId = Id<struct MachineTag>;

// The state of all layers after `step` steps, as `attempt` computed it.  Cut{}
// is the beginning: every worker makes it from the seed or the weights file.
// Any other cut of attempt 0 comes from another job's checkpoint, from which
// this job begins.  Of two valid cuts the greater one has at least as many
// steps.
struct Cut {
  int64_t attempt = 0;
  int64_t step = 0;

  friend auto operator<=>(const Cut&, const Cut&) = default;
};
std::string CutText(Cut cut);  // "step 10 of attempt 2", "the beginning"

// One layer's state in a cut.  A piece that is restored keeps its key.
struct Piece {
  Cut cut;
  int layer = 0;

  friend auto operator<=>(const Piece&, const Piece&) = default;
};

// An attempt and its base cut, stored before any process hears of the attempt.
struct AttemptRow {
  int64_t attempt = 0;
  Cut base;
  // The states of a group's members differ after later steps, and no majority
  // has the same one.
  std::optional<int64_t> sound_through = {};

  friend bool operator==(const AttemptRow&, const AttemptRow&) = default;
};

// The attempts of a job, as they are stored.
class Lineage {
 public:
  Lineage() = default;
  explicit Lineage(std::vector<AttemptRow> rows) : rows_(std::move(rows)) {}

  // row.attempt must be greater than newest().
  void Add(const AttemptRow& row);
  // Sets AttemptRow::sound_through of an attempt.
  void SetSound(int64_t attempt, int64_t step);

  // True if its attempt is known and it is not superseded.
  bool IsValid(Cut cut) const;
  // True if a later attempt began below it, or if its step is not sound.  The
  // next attempt alone does not decide: a third one may have begun lower.  Not
  // the opposite of IsValid(): a cut of an unknown attempt is never valid.
  bool IsSuperseded(Cut cut) const;

  const std::vector<AttemptRow>& rows() const { return rows_; }  // ascending
  int64_t newest() const { return rows_.empty() ? 0 : rows_.back().attempt; }

 private:
  std::vector<AttemptRow> rows_;
};

// The pieces that processes say they hold.
class Holdings {
 public:
  // one_process: all pieces of a cut must be of the same process.
  explicit Holdings(int layers, bool one_process = false)
      : layers_(layers), one_process_(one_process) {}

  void Set(const MemberId& process, MachineId machine, std::set<Piece> pieces);
  void Remove(const MemberId& process) { held_.erase(process); }

  // [layers]: the processes that hold the cut's piece, by id.  Of `one_process`
  // the first that holds all of them.
  std::vector<std::vector<MemberId>> HoldersOf(Cut cut) const;
  // For each cut of which every layer is held: the number of machines that hold
  // its rarest layer.
  //   without  processes that do not count
  std::map<Cut, int> Copies(const std::set<MemberId>& without = {}) const;

 private:
  struct Held {
    MachineId machine;
    std::set<Piece> pieces;
  };

  bool HoldsAll(const Held& held, Cut cut) const;

  int layers_;
  bool one_process_;
  std::map<MemberId, Held> held_;
};

// The newest cut of `copies` that is valid and lies on at least `machines`
// machines; Cut{}: there is none.
Cut NewestCut(const std::map<Cut, int>& copies, int machines,
              const std::function<bool(Cut)>& is_valid);

// The number of machines besides the owner's that shall hold each piece, at
// most `wanted`.  machines: not declared lost, even if not heard of yet.
int FollowersOf(int wanted, int machines);

// A worker decides by this rule which pieces it may drop.
struct KeepRule {
  // The newest cut that was safe.  Nothing: not known; the worker keeps all.
  std::optional<Cut> floor;
  // The floor's attempt and all later ones.
  std::vector<AttemptRow> rows;
  // Cuts that a worker keeps whatever the floor is: a base that is being
  // fetched, a cut that the coordinator copies.
  std::set<Cut> pins;

  friend bool operator==(const KeepRule&, const KeepRule&) = default;
};

// A worker may drop only a piece that is below the floor or can never be valid
// again.  A list of pieces to keep may leave out the last copy of a piece.
bool MayDrop(const Piece& piece, const KeepRule& rule);

// The floor that a worker uses when `next` comes after the floor `before`.  A
// lower one counts only if a later attempt began below `before`.
std::optional<Cut> FloorAfter(const std::optional<Cut>& before,
                              const KeepRule& next);

}  // namespace paceline
