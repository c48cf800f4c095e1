#include "core/plan/policies/soft_cuts.h"

#include <algorithm>

namespace paceline {

SoftCuts::SoftCuts(const CostTable& table, int stages)
    : table_(table),
      stages_(stages),
      layers_(table.layers()),
      rows_(table.rows()),
      widths_(static_cast<size_t>(stages)),
      position_(static_cast<size_t>(stages) + 1),
      to_widths_(static_cast<size_t>(stages)) {
  mean_.assign(At(features(), 0), 0);
  slope_ = mean_;
  for (int feature = 0; feature < features(); ++feature) {
    mean_[At(feature, 0)] = Feature(feature, 0);
    mean_[At(feature, stages)] = Feature(feature, layers_);
  }
}

double SoftCuts::Feature(int feature, int layer) const {
  if (feature < rows_) return table_.SecondsOfRow(feature, layer);
  if (feature == ParametersFeature())
    return table_.AmountsBefore(layer).parameters;
  if (feature == KeptFeature()) return table_.AmountsBefore(layer).kept;
  if (feature == FixedFeature()) return table_.AmountsBefore(layer).fixed;
  if (feature == OutputsFeature()) return table_.AmountsBefore(layer).outputs;
  return table_.BytesBefore(layer);
}

void SoftCuts::Place(const double* logits) {
  Softmax(logits, widths_.size(), 1, widths_.data());
  double before = 0;
  for (int cut = 1; cut < stages_; ++cut) {
    before += widths_[cut - 1];
    position_[cut] = cut + (layers_ - stages_) * before;
  }
}

void SoftCuts::Soften(int cut, double width) {
  // Layers further off weigh less than 1e-8.
  constexpr double kWidths = 6;
  const double at = position_[cut];
  const int least = std::max(cut, static_cast<int>(at - kWidths * width - 1));
  const int most = std::min(layers_ - stages_ + cut,
                            static_cast<int>(at + kWidths * width + 2));
  const double nearest =
      std::clamp(std::floor(at + 0.5), double(least), double(most));
  const double top = (at - nearest) * (at - nearest);
  weight_.resize(static_cast<size_t>(most - least + 1));
  double total = 0;
  double mean = 0;
  for (int j = least; j <= most; ++j) {
    const double off = at - j;
    const double w = ExpOf((top - off * off) / (2 * width * width));
    weight_[j - least] = w;
    total += w;
    mean += w * j;
  }
  mean /= total;
  for (int feature = 0; feature < features(); ++feature) {
    double sum = 0;
    double slope = 0;
    for (int j = least; j <= most; ++j) {
      const double part = weight_[j - least] / total * Feature(feature, j);
      sum += part;
      slope += part * (j - mean);
    }
    mean_[At(feature, cut)] = sum;
    slope_[At(feature, cut)] = slope / (width * width);
  }
}

void SoftCuts::Forward(const double* logits, double width) {
  Place(logits);
  for (int cut = 1; cut < stages_; ++cut) Soften(cut, width);
}

void SoftCuts::Backward(const std::vector<double>& to_mean, double* gradient) {
  double to_positions = 0;  // of all cuts behind the stage
  for (int cut = stages_; cut-- > 0;) {
    to_widths_[cut] = (layers_ - stages_) * to_positions;
    for (int feature = 0; cut > 0 && feature < features(); ++feature) {
      to_positions += to_mean[At(feature, cut)] * slope_[At(feature, cut)];
    }
  }
  SoftmaxBack(widths_.data(), to_widths_.data(), widths_.size(), 1, gradient);
}

std::vector<int> SoftCuts::Nearest(const double* logits) {
  Place(logits);
  std::vector<int> cuts(static_cast<size_t>(stages_) + 1, 0);
  for (int cut = 1; cut < stages_; ++cut) {
    // Positions are 1 apart at least; their sums may round a little closer.
    const int near = static_cast<int>(std::floor(position_[cut] + 0.5));
    cuts[cut] = std::clamp(near, cuts[cut - 1] + 1, layers_ - stages_ + cut);
  }
  cuts[stages_] = layers_;
  return cuts;
}

}  // namespace paceline
