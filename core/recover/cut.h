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

// A machine may run several workers; what they hold is lost together.
using MachineId = Id<struct MachineTag>;

// The state of all layers after `step` steps, as `attempt` computed it.  Cut{}
// is the beginning: every worker makes it from the seed or the weights file.
// Another cut of attempt 0 is the checkpoint of another job, with which this
// one begins.
// The greater one of two valid cuts has at least as many steps.
struct Cut {
  int64_t attempt = 0;
  int64_t step = 0;

  friend auto operator<=>(const Cut&, const Cut&) = default;
};
std::string CutText(Cut cut);  // "step 10 of attempt 2", "the beginning"

// One layer's share of a cut.  A piece that is restored keeps its key.
struct Piece {
  Cut cut;
  int layer = 0;

  friend auto operator<=>(const Piece&, const Piece&) = default;
};

// An attempt began from this cut.  Stored before anybody hears of the attempt.
struct AttemptRow {
  int64_t attempt = 0;
  Cut base;

  friend bool operator==(const AttemptRow&, const AttemptRow&) = default;
};

// The attempts of a job, as they are stored.
class Lineage {
 public:
  Lineage() = default;
  explicit Lineage(std::vector<AttemptRow> rows) : rows_(std::move(rows)) {}

  // row: of a later attempt than all before.
  void Add(const AttemptRow& row);

  // Its attempt is known, and no later attempt began below it.  To look at the
  // next attempt only is not enough: it may have begun above a third one.
  bool IsValid(Cut cut) const;
  // A later attempt began below it.  Not the opposite of IsValid(): a cut of an
  // attempt that is not known is neither.
  bool IsSuperseded(Cut cut) const;

  const std::vector<AttemptRow>& rows() const { return rows_; }  // ascending
  int64_t newest() const { return rows_.empty() ? 0 : rows_.back().attempt; }

 private:
  std::vector<AttemptRow> rows_;
};

// The pieces that processes say they hold.
class Holdings {
 public:
  explicit Holdings(int layers) : layers_(layers) {}

  void Set(const MemberId& process, MachineId machine, std::set<Piece> pieces);
  void Remove(const MemberId& process) { held_.erase(process); }

  // By id.
  std::vector<MemberId> HoldersOf(const Piece& piece) const;
  // [layers]: of the cut's pieces.
  std::vector<std::vector<MemberId>> HoldersOf(Cut cut) const;
  // The number of machines that hold the layer of which the fewest do, for
  // each cut of which every layer is held.
  //   without  processes that do not count
  std::map<Cut, int> Copies(const std::set<MemberId>& without = {}) const;

 private:
  struct Held {
    MachineId machine;
    std::set<Piece> pieces;
  };

  int layers_;
  std::map<MemberId, Held> held_;
};

// The newest cut of `copies` that is valid and lies on `machines` machines;
// Cut{} where none is.
Cut NewestCut(const std::map<Cut, int>& copies, int machines,
              const std::function<bool(Cut)>& is_valid);

// How many machines besides its owner's hold each piece: `wanted`, or as many
// as there are.  machines: not declared lost, also those not heard of yet.
int FollowersOf(int wanted, int machines);

// A worker decides by this what it may drop.
struct KeepRule {
  // The newest cut that was safe; nothing: not known, and all is kept.
  std::optional<Cut> floor;
  // The attempts from the floor's on.
  std::vector<AttemptRow> rows;
  // Kept whatever the floor says: a base that is being fetched, a cut that is
  // being uploaded.
  std::set<Cut> pins;

  friend bool operator==(const KeepRule&, const KeepRule&) = default;
};

// Only what is below the floor, or can never be valid again, may go.  What a
// list of pieces to keep would leave out may be the only copy that is left.
bool MayDrop(const Piece& piece, const KeepRule& rule);

// The floor that counts for a worker when `next` comes after `before`.  A lower
// one counts only where a later attempt began below the one before.
std::optional<Cut> FloorAfter(const std::optional<Cut>& before,
                              const KeepRule& next);

}  // namespace paceline
