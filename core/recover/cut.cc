#include "core/recover/cut.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "core/base/errors.h"

namespace paceline {

std::string CutText(Cut cut) {
  if (cut == Cut()) return "the beginning";
  if (cut.attempt == 0) return absl::StrCat("step ", cut.step);
  return absl::StrCat("step ", cut.step, " of attempt ", cut.attempt);
}

void Lineage::Add(const AttemptRow& row) {
  PACELINE_CHECK(row.attempt > newest(), "attempt ", row.attempt, " after ",
                 newest());
  rows_.push_back(row);
}

void Lineage::SetSound(int64_t attempt, int64_t step) {
  for (AttemptRow& row : rows_) {
    if (row.attempt == attempt) row.sound_through = step;
  }
}

bool Lineage::IsValid(Cut cut) const {
  const bool known =
      cut.attempt == 0 ||
      std::any_of(rows_.begin(), rows_.end(), [cut](const AttemptRow& row) {
        return row.attempt == cut.attempt;
      });
  return known && !IsSuperseded(cut);
}

bool Lineage::IsSuperseded(Cut cut) const {
  return std::any_of(rows_.begin(), rows_.end(), [cut](const AttemptRow& row) {
    return row.attempt == cut.attempt
               ? cut.step > row.sound_through.value_or(cut.step)
               : row.attempt > cut.attempt && row.base.step < cut.step;
  });
}

void Holdings::Set(const MemberId& process, MachineId machine,
                   std::set<Piece> pieces) {
  held_[process] = {machine, std::move(pieces)};
}

bool Holdings::HoldsAll(const Held& held, Cut cut) const {
  for (int layer = 0; layer < layers_; ++layer) {
    if (held.pieces.count({cut, layer}) == 0) return false;
  }
  return true;
}

std::vector<std::vector<MemberId>> Holdings::HoldersOf(Cut cut) const {
  std::vector<std::vector<MemberId>> holders(layers_);
  for (const auto& [process, held] : held_) {
    if (one_process_ && !HoldsAll(held, cut)) continue;
    for (int layer = 0; layer < layers_; ++layer) {
      if (held.pieces.contains({cut, layer})) holders[layer].push_back(process);
    }
    if (one_process_) break;
  }
  return holders;
}

std::map<Cut, int> Holdings::Copies(const std::set<MemberId>& without) const {
  // The inner map is by layer.  A peer may name many cuts of one layer each, so
  // a cut has no place for layers that nobody named.
  std::map<Cut, std::map<int, std::set<MachineId>>> machines;
  for (const auto& [process, held] : held_) {
    if (without.count(process) > 0) continue;
    for (const Piece& piece : held.pieces) {
      if (piece.layer < 0 || piece.layer >= layers_) continue;
      if (one_process_ && !HoldsAll(held, piece.cut)) continue;
      machines[piece.cut][piece.layer].insert(held.machine);
    }
  }
  std::map<Cut, int> copies;
  for (const auto& [cut, holders] : machines) {
    if (std::ssize(holders) < layers_) continue;
    const auto rarest = std::min_element(
        holders.begin(), holders.end(), [](const auto& a, const auto& b) {
          return a.second.size() < b.second.size();
        });
    copies[cut] = static_cast<int>(rarest->second.size());
  }
  return copies;
}

Cut NewestCut(const std::map<Cut, int>& copies, int machines,
              const std::function<bool(Cut)>& is_valid) {
  const auto newest =
      std::find_if(copies.rbegin(), copies.rend(), [&](const auto& each) {
        return each.second >= machines && is_valid(each.first);
      });
  return newest == copies.rend() ? Cut() : newest->first;
}

int FollowersOf(int wanted, int machines) {
  return std::max(0, std::min(wanted, machines - 1));
}

bool MayDrop(const Piece& piece, const KeepRule& rule) {
  if (!rule.floor.has_value() || rule.pins.count(piece.cut) > 0) return false;
  return piece.cut < *rule.floor || Lineage(rule.rows).IsSuperseded(piece.cut);
}

std::optional<Cut> FloorAfter(const std::optional<Cut>& before,
                              const KeepRule& next) {
  if (!before.has_value() || Lineage(next.rows).IsSuperseded(*before)) {
    return next.floor;
  }
  return std::max(before, next.floor);
}

}  // namespace paceline
