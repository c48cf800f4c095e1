// Mistakes that the adapters of a group's attempt could contain.  The
// simulation puts one into a schedule on purpose, to see that its checks find
// it.
#pragma once

#include <cstdint>

namespace paceline {

enum class JointFlaw : uint8_t {
  kNone,
  kSayUnconfirmed,      // a deposit is said before the next round has committed
  kViewOutsideAttempt,  // the first view is stored after the attempt's row
  kJoinerAdopts,        // a joiner's report adopts the stored attempt
  kStopAtReportedStep,  // a stop keeps a step that a member has reported
  kMixDepositors,       // gossip: any process's pieces make a cut
  kFloorIsBase,         // the furthest step of a group is its base
  // No mistake of its own: nothing that is known and not mended is passed over
  // (World::PassOver()).
  kPassOverNothing,
};
constexpr int kJointFlaws = 8;

}  // namespace paceline
