// Many schedules of faults against core/recover, or one once more: --help.
// Exits 1 when an invariant was broken, and prints the seed.
#include "tests/core/recover/world.h"
#include "tests/core/world/program.h"

namespace paceline::recover_world {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Many schedules of faults against core/recover, or one again.");
  world::Arguments arguments;
  const std::optional<int> ends =
      world::ParseArguments(app, argc, argv, kRecoverFlaws, arguments);
  if (ends.has_value()) return *ends;
  WorldOptions options;
  options.trace = arguments.trace;
  options.flaw = static_cast<RecoverFlaw>(arguments.flaw);
  return world::RunAndPrint(arguments, options, RunWorld);
}

}  // namespace
}  // namespace paceline::recover_world

int main(int argc, char** argv) {
  return paceline::recover_world::Main(argc, argv);
}
