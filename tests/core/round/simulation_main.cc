// Many schedules of faults against core/round, or one once more: --help.
// Exits 1 when an invariant was broken, and prints the seed.
#include "tests/core/round/world/world.h"
#include "tests/core/world/program.h"

int main(int argc, char** argv) {
  using paceline::round_world::RunWorld;
  return paceline::world::Main(
      argc, argv, "Many schedules of faults against core/round, or one again.",
      paceline::kRoundFlaws, RunWorld);
}
