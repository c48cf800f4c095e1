// Many schedules of faults against groups of core/recover and core/round, or
// one once more: --help.  Exits 1 when an invariant was broken, and prints the
// seed.
#include "tests/core/joint/world.h"
#include "tests/core/world/program.h"

int main(int argc, char** argv) {
  using paceline::joint_world::RunWorld;
  return paceline::world::Main(
      argc, argv,
      "Many schedules of faults against groups that recover, or one again.",
      paceline::kJointFlaws, RunWorld);
}
