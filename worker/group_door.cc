#include "worker/group_door.h"

#include "absl/strings/str_cat.h"

namespace paceline {

absl::Status ExcludedError(ViewId view, ViewId last) {
  return absl::AbortedError(absl::StrCat(
      "view ", ViewText(view),
      " goes on without this member, which was one until view ", ViewText(last),
      ": only another process of this worker can become one "
      "again"));
}

}  // namespace paceline
