#include "core/plan/pipedream_run.h"

namespace paceline {

double RunSyncSeconds(const LevelOptions& options, const StateSpace& space,
                      int first, int last, int machines) {
  const double bytes =
      space.parameter_bytes[last] - space.parameter_bytes[first];
  const double seconds =
      4.0 * (machines - 1) * bytes / (options.bytes_per_second * machines);
  return first == 0 ? seconds / options.row.devices : seconds;
}

double RunTransferSeconds(const LevelOptions& options, const StateSpace& space,
                          int state) {
  if (!options.row.count_transfers || state == space.last) return 0;
  return 2 * space.boundary_bytes[state] / options.bytes_per_second;
}

int LaterDevices(const LevelOptions& options, int rest_machines, int machines) {
  if (options.row.memory_bytes == 0) return 0;  // nothing depends on it
  const int later = rest_machines * options.row.devices;
  return (later + machines - 1) / machines;
}

double MostHeldBytes(double memory_bytes, int later_devices, int devices) {
  double bytes = 0;
  for (int i = 0; i < devices; ++i)
    bytes += memory_bytes / (1 + later_devices + i);
  return bytes;
}

}  // namespace paceline
