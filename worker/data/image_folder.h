// A folder of pictures, sorted into classes by the folders they lie in.
//
//   photos/cat/1.jpg  photos/cat/2.png  photos/dog/1.jpg         one split
//   photos/train/cat/1.jpg ...  photos/val/cat/7.jpg ...         two
//   photos/1.jpg  photos/2.png                                   no classes
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline {

// Two vectors rather than one of pairs: a million names are enough memory.
struct ImageList {
  std::string folder;              // that names are relative to
  std::vector<std::string> names;  // "cat/1.jpg", sorted by class, then name
  std::vector<int32_t> labels;     // of each: the number of its class; kNoLabel

  std::string PathOf(int32_t sample) const {
    return folder + "/" + names[sample];
  }
};

// Files beside the pictures, which are left out.
struct OtherFiles {
  int64_t count = 0;
  std::string example;  // path of one; empty: there is none
};

struct ImageFolder {
  std::vector<std::string> classes;  // sorted bytewise; a label is an index
  ImageList train;
  ImageList test;  // empty where there is no second split
  OtherFiles others;
};

// Lists `path`: its sub-folders are the classes, or its sub-folder `train` has
// them, and `val` or `test` the second split's, by the same names.  Pictures
// are files that end in .jpg, .jpeg or .png, in either case; other files are
// counted, and whatever begins with a dot is not looked at.  Opens no picture.
//   inference  a split alone is the second one too; and where `path` has no
//              folders, the pictures in it are, sorted by name, without labels
//
// Errors (the message names the folder):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  no class folder; one without pictures; other classes than
//                    `classes` of them, or a class of the second split that
//                    the first does not have
absl::StatusOr<ImageFolder> ListImageFolder(const std::string& path,
                                            int32_t classes,
                                            bool inference = false);

}  // namespace paceline
