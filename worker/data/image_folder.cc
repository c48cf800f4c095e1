#include "worker/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/model/data_sets.h"

namespace paceline {
namespace {

namespace fs = std::filesystem;

enum class Kind { kFolders, kPictures };

bool IsPicture(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") ||
         absl::EndsWith(lower, ".png");
}

// Names of that kind right in `folder`, sorted; links are followed.  Other
// files are counted, unless their names begin with a dot.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder,
                                                 Kind kind,
                                                 OtherFiles* others = nullptr) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (absl::StartsWith(name, ".")) continue;
    std::error_code broken;  // a link to nowhere is neither
    if (kind == Kind::kFolders) {
      if (entry->is_directory(broken)) names.push_back(name);
    } else if (entry->is_regular_file(broken)) {
      if (IsPicture(name)) {
        names.push_back(name);
      } else if (others != nullptr && others->count++ == 0) {
        others->example = entry->path().string();
      }
    }
  }
  if (error) {
    return absl::ErrnoToStatus(
        error.value(),
        absl::StrCat("data.path, on this worker: cannot list ", folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether `path` has a sub-folder of that name that has sub-folders.
bool HasClasses(const std::string& path, const std::string& name) {
  const auto folders = NamesIn(absl::StrCat(path, "/", name), Kind::kFolders);
  return folders.ok() && !folders->empty();
}

absl::Status NoPictures(const std::string& folder) {
  return absl::InvalidArgumentError(
      absl::StrCat(folder,
                   ": an empty class: no .jpg, .jpeg or .png in it; "
                   "add pictures or remove the folder"));
}

// classes: those of the first split, sorted.
absl::StatusOr<ImageList> ListSplit(const std::string& folder,
                                    const std::vector<std::string>& classes,
                                    OtherFiles& others) {
  ImageList list;
  list.folder = folder;
  PACELINE_ASSIGN_OR_RETURN(const std::vector<std::string> here,
                            NamesIn(folder, Kind::kFolders));
  for (const std::string& name : here) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), name);
    if (found == classes.end() || *found != name) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder, ": has a class ", name,
          " that the training split has not: add a folder with its pictures "
          "there, or take this one away"));
    }
    const std::string of_class = absl::StrCat(folder, "/", name);
    PACELINE_ASSIGN_OR_RETURN(const std::vector<std::string> pictures,
                              NamesIn(of_class, Kind::kPictures, &others));
    if (pictures.empty()) return NoPictures(of_class);
    for (const std::string& picture : pictures) {
      list.names.push_back(absl::StrCat(name, "/", picture));
      list.labels.push_back(static_cast<int32_t>(found - classes.begin()));
    }
  }
  return list;
}

absl::StatusOr<ImageList> ListWithoutLabels(const std::string& folder,
                                            OtherFiles& others) {
  ImageList list;
  list.folder = folder;
  PACELINE_ASSIGN_OR_RETURN(list.names,
                            NamesIn(folder, Kind::kPictures, &others));
  if (list.names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        ": no sub-folders, and no .jpg, .jpeg or .png; point data.path to "
        "pictures, or to one folder of them a class"));
  }
  list.labels.assign(list.names.size(), static_cast<int32_t>(kNoLabel));
  return list;
}

}  // namespace

absl::StatusOr<ImageFolder> ListImageFolder(const std::string& path,
                                            int32_t classes, bool inference) {
  const bool split = HasClasses(path, "train");
  const std::string train = split ? absl::StrCat(path, "/train") : path;
  ImageFolder folder;
  PACELINE_ASSIGN_OR_RETURN(folder.classes, NamesIn(train, Kind::kFolders));
  const auto found = static_cast<int64_t>(folder.classes.size());
  if (found == 0 && inference) {
    PACELINE_ASSIGN_OR_RETURN(folder.test,
                              ListWithoutLabels(train, folder.others));
    folder.train = folder.test;
    return folder;
  }
  if (found == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        train, ": no sub-folders; pictures lie in one folder a class"));
  }
  if (found == 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        train, ": has one class folder, ", folder.classes.front(),
        "; there is nothing to tell apart: point data.path at the folder that "
        "holds one folder for each class",
        inference ? absl::StrCat(", or, for pictures without labels, at ",
                                 train, "/", folder.classes.front())
                  : ""));
  }
  if (found != classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        train, ": has ", found, " class folders, from ", folder.classes.front(),
        " to ", folder.classes.back(), ", the job's data.classes is ", classes,
        "; set data.classes to ", found, " or point data.path elsewhere"));
  }
  PACELINE_ASSIGN_OR_RETURN(folder.train,
                            ListSplit(train, folder.classes, folder.others));
  if (!split) {
    if (inference) folder.test = folder.train;
    return folder;
  }
  for (const char* const name : {"val", "test"}) {
    if (!HasClasses(path, name)) continue;
    PACELINE_ASSIGN_OR_RETURN(
        folder.test, ListSplit(absl::StrCat(path, "/", name), folder.classes,
                               folder.others));
    break;
  }
  return folder;
}

}  // namespace paceline
