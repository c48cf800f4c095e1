// Means, medians and quantiles of measured numbers.
#pragma once

#include <vector>

namespace paceline {

double Mean(const std::vector<double>& values);  // 0 for none
double Median(std::vector<double> values);       // 0 for none
// Between the ranks; `part` in [0, 1], `sorted` ascending and not empty.
double Quantile(const std::vector<double>& sorted, double part);

}  // namespace paceline
