// The arithmetic that the rules share, on blocks that stay in the L1 cache.
// Every function does one fixed sequence of roundings per value; the source
// fixes the number of lanes, not the CPU.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "core/round/rules/rule.h"

namespace paceline {

// Coordinates a block.  1 KiB a row: two sets of rows of 16 members fit a
// 32 KiB L1.  A squared distance depends on it (SquaredDistance), so that equal
// results need the same value on every member.
inline constexpr size_t kRuleBlock = 256;

// Index of the first NaN or infinity, or values.size() when all are finite.
// Reads every value once, at the speed of memory.
size_t FindNonFinite(absl::Span<const float> values);

// The same coordinates of all members, one row each.  Rows are zero beyond
// the coordinates that were loaded, so that loops run over whole blocks.
class BlockRows {
 public:
  explicit BlockRows(size_t rows);

  // row[i] = parts[row].values[begin + i] * factors[row] for up to kRuleBlock
  // coordinates, count = min(kRuleBlock, end - begin); returns count.  -0
  // becomes +0, so that the order of equal values cannot show.
  size_t Load(absl::Span<const RulePart> parts, absl::Span<const float> factors,
              size_t begin, size_t end);

  size_t rows() const { return rows_; }
  float* row(size_t index) { return values_.data() + index * kPitch; }
  const float* row(size_t index) const {
    return values_.data() + index * kPitch;
  }

  // Distance between rows.  Not a power of two, or the rows of eight members
  // would share the cache's sets.
  static constexpr size_t kPitch = kRuleBlock + 16;

 private:
  size_t rows_;
  std::vector<float> values_;
};

// Sum of (a[i] - b[i])^2 over a whole block [kRuleBlock] of finite values.
// 16 lanes of float32, added in lane order in float64; a block whose sum is so
// small or large that squares may have left float32 is computed in float64.
double SquaredDistance(const float* a, const float* b);

// result[i] = sum over rows of parts[row].values[begin + i] * factors[row], in
// float32, rows in order; rows with factor 0 are left out (all: zeros).
// result [end - begin].
void WeightedSum(absl::Span<const RulePart> parts,
                 absl::Span<const float> factors, size_t begin, size_t end,
                 absl::Span<float> result);

// float32(1 / samples) of every part: turns sums into means.
std::vector<float> MeanFactors(absl::Span<const RulePart> parts);

// Sorts the members' values of every coordinate of a block at once, by a fixed
// list of exchanges without branches: many coordinates go through each
// exchange together, which a selection per coordinate cannot do.

// Sorts each column of `rows` over its whole block: row 0 gets the least.
// Batcher's odd-even merge exchange (Knuth, TAOCP 3, 5.2.2, algorithm M),
// O(rows log^2 rows) a coordinate; up to kUnrolledRows rows in registers.  With
// NaN the order of a column is unspecified.
void SortColumns(BlockRows& rows);

// Median of each column, [kRuleBlock]: the middle value, or the mean of the
// two middle ones rounded once.  Leaves the columns in no particular order.
void MedianOfColumns(BlockRows& rows, float* median);

// Above this many rows the exchanges go through the cache, not registers.
inline constexpr int kUnrolledRows = 16;

// mine = (mine + theirs) / 2, float32.  Both partners get the same bytes, since
// a sum of two does not depend on their order; where it overflows, halves are
// added.  Same sizes.
void AverageWith(absl::Span<float> mine, absl::Span<const float> theirs);

}  // namespace paceline
