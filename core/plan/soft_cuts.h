// Where a chain is cut, made soft.  Pure.
//
// The widths of the stages are a softmax of logits, so that cuts keep their
// order and each stage at least one layer.  A cut at position p sits before
// layer j with weight ~ exp(-(p - j)^2 / (2 width^2)), j among those that leave
// the stages on both sides a layer each.
#pragma once

#include <cstddef>
#include <vector>

#include "core/plan/walk_state.h"

namespace paceline {

// Thread-compatible.  The tables must outlive it.
class SoftCuts {
 public:
  // 1 <= stages <= layers.
  SoftCuts(const PlanTables& tables, int stages);

  // What a cut is asked for: the sums over the layers before it (seconds by
  // rows of the tables, and bytes as StageAmounts has them), and the bytes over
  // it.
  int features() const { return rows_ + 5; }
  int SecondsFeature(int row) const { return row; }
  int ParametersFeature() const { return rows_; }
  int KeptFeature() const { return rows_ + 1; }
  int BytesFeature() const { return rows_ + 2; }
  int FixedFeature() const { return rows_ + 3; }
  int OutputsFeature() const { return rows_ + 4; }

  // logits: [stages].  O(stages x features x min(width, layers)).
  void Forward(const double* logits, double width);

  // Means under the weights; cuts 0 and `stages` are the ends of the chain.
  double Mean(int feature, int cut) const { return mean_[At(feature, cut)]; }
  size_t At(int feature, int cut) const {
    return static_cast<size_t>(feature) * static_cast<size_t>(stages_ + 1) +
           static_cast<size_t>(cut);
  }

  // to_mean: [features x (stages + 1)], by At().  Adds to gradient [stages].
  void Backward(const std::vector<double>& to_mean, double* gradient);

  // The nearest layer to each cut, ascending: [stages + 1], from 0 to layers.
  std::vector<int> Nearest(const double* logits);

 private:
  double Feature(int feature, int layer) const;
  void Place(const double* logits);
  void Soften(int cut, double width);

  const PlanTables& tables_;
  const int stages_;
  const int layers_;
  const int rows_;
  std::vector<double> widths_;              // [stages]: parts of what is free
  std::vector<double> position_;            // [stages + 1]
  std::vector<double> mean_, slope_;        // [features][stages + 1]
  std::vector<double> weight_, to_widths_;  // scratch
};

}  // namespace paceline
