// Orders of devices that the heuristic search starts from.  Pure.
#pragma once

#include <vector>

#include "core/plan/dp_table.h"

namespace paceline {

// Devices, fastest first by their seconds for the whole model; ties by number.
std::vector<int> BySpeed(const DpTable& table);

// Orders of all devices: as given, by speed both ways, and paths that always
// go on over the cheapest wire for the model's mean boundary, from the fastest
// device and from the best connected one.  Without repetitions.
// O(devices^2).
std::vector<std::vector<int>> DeviceOrders(const DpTable& table);

// Neighbours of an order joined to groups of `size`, the last one smaller.
std::vector<std::vector<int>> Joined(const std::vector<int>& order, int size);

}  // namespace paceline
