// Many schedules of faults against core/recover, or one once more: --help.
// Exits 1 when an invariant was broken, and prints the seed.
#include "tests/core/recover/world.h"
#include "tests/core/world/program.h"

int main(int argc, char** argv) {
  using paceline::recover_world::RunWorld;
  return paceline::world::Main(
      argc, argv,
      "Many schedules of faults against core/recover, or one again.",
      paceline::kRecoverFlaws, RunWorld);
}
