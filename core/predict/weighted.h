// Small statistics that the predictors share.
#pragma once

#include <vector>

namespace paceline {

struct Weighted {
  double value = 0;
  double weight = 0;  // > 0
};

// The least value with half the weight at or below it; 0 for none.
// O(n log n).
double WeightedMedian(std::vector<Weighted> values);

double Mean(const std::vector<double>& values);  // 0 for none
double Median(std::vector<double> values);       // 0 for none
// Between the ranks; `part` in [0, 1], `sorted` ascending and not empty.
double Quantile(const std::vector<double>& sorted, double part);

}  // namespace paceline
