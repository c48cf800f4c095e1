// A curve as text.
#pragma once

#include <string>
#include <vector>

#include "paceline/v1/types.pb.h"

namespace paceline {

using LossCurve = google::protobuf::RepeatedPtrField<v1::StepRecord>;

struct PlotOptions {
  int columns = 60;  // of the plot itself, without the labels
  int rows = 8;
  bool unicode = false;  // eighth blocks instead of '#'
};

// The loss over the steps, as a filled curve between its least and its greatest
// value; points that share a column are averaged, and values that are not
// finite are left out.  Where none is finite, a line that says so.  Else
// empty for fewer than two points.
std::string PlotLoss(const LossCurve& curve, const PlotOptions& options);

}  // namespace paceline
