// Curves for the tests of core/predict, made from formulas.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/predict/curve.h"
#include "gtest/gtest.h"
#include "tests/support/status_checks.h"

namespace paceline {

// Seconds of one curve by its size.
using TimeOf = std::function<double(double size)>;

struct CurveRecipe {
  std::vector<std::string> features;
  TimeOf time;
};

// 0, 1, 2, 4, ..., 2^(count - 2).
inline std::vector<double> Doublings(int count) {
  std::vector<double> sizes = {0};
  for (int i = 0; i + 1 < count; ++i) sizes.push_back(std::exp2(i));
  return sizes;
}

inline TimingTable MakeTable(const std::vector<std::string>& columns,
                             const std::vector<CurveRecipe>& recipes,
                             const std::vector<double>& sizes) {
  TimingTable table;
  table.size_column = "elements";
  table.columns = columns;
  for (const CurveRecipe& recipe : recipes) {
    for (const double size : sizes) {
      table.measurements[recipe.features].emplace_back(size, recipe.time(size));
    }
  }
  return table;
}

inline CurveSet MakeCurves(const std::vector<std::string>& columns,
                           const std::vector<CurveRecipe>& recipes,
                           const std::vector<double>& sizes = Doublings(20)) {
  return BuildCurves({MakeTable(columns, recipes, sizes)});
}

inline const Curve& CurveOf(const CurveSet& set,
                            const std::vector<std::string>& features) {
  for (const Curve& curve : set.curves) {
    if (curve.features == features) return curve;
  }
  ADD_FAILURE() << "no such curve";
  return set.curves.front();
}

// A latency and a bandwidth; the factor is what curves differ in.
inline TimeOf Affine(double latency_seconds, double seconds_an_element) {
  return
      [=](double size) { return latency_seconds + seconds_an_element * size; };
}

}  // namespace paceline
