#include "worker/data/image_folder_set.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/obs/log.h"
#include "core/os/files.h"
#include "core/transfer/checksum.h"
#include "worker/data/image_reader.h"

namespace paceline {
namespace {

struct ImageFolder {
  std::vector<std::string> classes;  // sorted bytewise; a label is an index
  ImageList train;
  ImageList test;  // empty where there is no second split
  OtherFiles others;
};

enum class Kind { kFolders, kPictures };

bool IsPicture(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".jpg") || absl::EndsWith(lower, ".jpeg") ||
         absl::EndsWith(lower, ".png");
}

// Names of that kind right in `folder`, sorted; links are followed.  Others are
// counted, unless their names begin with a dot.
//   sizes  gets that of each
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder,
                                                 Kind kind,
                                                 OtherFiles* others = nullptr,
                                                 Checksum* sizes = nullptr) {
  auto entries = ListFolder(folder);
  if (!entries.ok()) {
    return absl::Status(entries.status().code(),
                        absl::StrCat("data.path, on this worker: ",
                                     entries.status().message()));
  }
  std::sort(entries->begin(), entries->end(),
            [](const FolderEntry& a, const FolderEntry& b) {
              return a.name < b.name;
            });
  std::vector<std::string> names;
  for (const FolderEntry& entry : *entries) {
    if (absl::StartsWith(entry.name, ".")) continue;
    if (kind == Kind::kFolders ? entry.is_folder
                               : entry.is_file && IsPicture(entry.name)) {
      names.push_back(entry.name);
      if (sizes == nullptr) continue;
      sizes->Update({reinterpret_cast<const uint8_t*>(&entry.bytes),
                     sizeof(entry.bytes)});
    } else if (others != nullptr) {
      others->Add(absl::StrCat(folder, "/", entry.name));
    }
  }
  return names;
}

// Whether `path` has a sub-folder of that name that has sub-folders.
bool HasClasses(const std::string& path, const std::string& name) {
  const auto folders = NamesIn(absl::StrCat(path, "/", name), Kind::kFolders);
  return folders.ok() && !folders->empty();
}

absl::Status NoPictures(const std::string& folder) {
  return InvalidArgument(folder,
                         ": an empty class: no .jpg, .jpeg or .png in it; add "
                         "pictures or remove the folder");
}

// classes: those of the first split, sorted.
absl::StatusOr<ImageList> ListSplit(const std::string& folder,
                                    const std::vector<std::string>& classes,
                                    OtherFiles& others, Checksum& sizes) {
  ImageList list;
  list.folder = folder;
  PACELINE_ASSIGN_OR_RETURN(const std::vector<std::string> here,
                            NamesIn(folder, Kind::kFolders, &others));
  for (const std::string& name : here) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), name);
    if (found == classes.end() || *found != name) {
      return InvalidArgument(folder, ": has a class ", name,
                             " that the folder train has not: add a folder "
                             "with its pictures there, or take this one away");
    }
    const std::string of_class = absl::StrCat(folder, "/", name);
    PACELINE_ASSIGN_OR_RETURN(
        const std::vector<std::string> pictures,
        NamesIn(of_class, Kind::kPictures, &others, &sizes));
    if (pictures.empty()) return NoPictures(of_class);
    for (const std::string& picture : pictures) {
      list.names.push_back(absl::StrCat(name, "/", picture));
      list.labels.push_back(static_cast<int32_t>(found - classes.begin()));
    }
  }
  return list;
}

absl::StatusOr<ImageList> ListWithoutLabels(const std::string& folder,
                                            OtherFiles& others,
                                            Checksum& sizes) {
  ImageList list;
  list.folder = folder;
  PACELINE_ASSIGN_OR_RETURN(list.names,
                            NamesIn(folder, Kind::kPictures, &others, &sizes));
  if (list.names.empty()) {
    return InvalidArgument(
        folder,
        ": no sub-folders, and no .jpg, .jpeg or .png; point data.path to "
        "pictures, or to one folder of them a class");
  }
  list.labels.assign(list.names.size(), static_cast<int32_t>(kNoLabel));
  return list;
}

constexpr int64_t kMostFileBytes = int64_t{1} << 27;

ImageFolderOptions WithDefaults(ImageFolderOptions options) {
  if (options.resize == 0) options.resize = DefaultResize(options.shape);
  return options;
}

absl::Status ReadWhole(const std::string& path, std::vector<uint8_t>& bytes) {
  PACELINE_ASSIGN_OR_RETURN(const auto file, ByteFile::Open(path));
  if (file->size() > kMostFileBytes) {
    return InvalidArgument("has ", file->size(), " bytes; at most ",
                           kMostFileBytes, " are read");
  }
  bytes.resize(file->size());
  return file->ReadAt(0, absl::MakeSpan(bytes));
}

// How much smaller, each way, a picture may be decoded so that the box still
// has a pixel or more for each of the target's.
int MostShrink(const Box& box, ImageSize target) {
  for (const int shrink : {8, 4, 2}) {
    if (box.width >= static_cast<double>(shrink * target.width) &&
        box.height >= static_cast<double>(shrink * target.height)) {
      return shrink;
    }
  }
  return 1;
}

Box Scaled(const Box& box, ImageSize from, ImageSize to) {
  const double across = static_cast<double>(to.width) / from.width;
  const double down = static_cast<double>(to.height) / from.height;
  return {box.left * across, box.top * down, box.width * across,
          box.height * down};
}

absl::StatusOr<ImageFolder> ListImageFolder(const std::string& path,
                                            int32_t classes, bool inference,
                                            Checksum& sizes) {
  const bool split = HasClasses(path, "train");
  const std::string train = split ? absl::StrCat(path, "/train") : path;
  ImageFolder folder;
  PACELINE_ASSIGN_OR_RETURN(folder.classes, NamesIn(train, Kind::kFolders));
  const auto found = static_cast<int64_t>(folder.classes.size());
  if (found == 0 && inference) {
    PACELINE_ASSIGN_OR_RETURN(folder.test,
                              ListWithoutLabels(train, folder.others, sizes));
    folder.train = folder.test;
    return folder;
  }
  if (found == 0) {
    return InvalidArgument(
        train, ": no sub-folders; pictures lie in one folder a class");
  }
  if (found == 1) {
    return InvalidArgument(
        train, ": has one class folder, ", folder.classes.front(),
        "; there is nothing to tell apart: point data.path at the folder that "
        "holds one folder for each class",
        inference ? absl::StrCat(", or, for pictures without labels, at ",
                                 train, "/", folder.classes.front())
                  : "");
  }
  if (found != classes) {
    return InvalidArgument(
        train, ": has ", found, " class folders, from ", folder.classes.front(),
        " to ", folder.classes.back(), ", the job's data.classes is ", classes,
        "; set data.classes to ", found, " or point data.path elsewhere");
  }
  PACELINE_ASSIGN_OR_RETURN(
      folder.train, ListSplit(train, folder.classes, folder.others, sizes));
  if (!split) {
    if (inference) folder.test = folder.train;
    return folder;
  }
  const std::string second = HasClasses(path, "val") ? "val" : "test";
  PACELINE_ASSIGN_OR_RETURN(const std::vector<std::string> beside,
                            NamesIn(path, Kind::kFolders, &folder.others));
  for (const std::string& name : beside) {
    const std::string split_path = absl::StrCat(path, "/", name);
    if (name == second && HasClasses(path, name)) {
      PACELINE_ASSIGN_OR_RETURN(
          folder.test,
          ListSplit(split_path, folder.classes, folder.others, sizes));
    } else if (name != "train") {
      folder.others.Add(split_path);
    }
  }
  return folder;
}

}  // namespace

bool SkipList::Contains(int32_t sample) const {
  absl::MutexLock lock(&mutex_);
  return skipped_.contains(sample);
}

UnreadableSamples SkipList::Get() const {
  absl::MutexLock lock(&mutex_);
  return {samples_, {skipped_.begin(), skipped_.end()}};
}

absl::Status SkipList::Add(int32_t sample, const std::string& file,
                           const absl::Status& why) {
  int64_t count = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (!skipped_.insert(sample).second) return absl::OkStatus();
    count = static_cast<int64_t>(skipped_.size());
  }
  Log(LogLevel::kWarn, "image skipped",
      {{"file", file},
       {"why", why.message()},
       {"skipped", count},
       {"of", samples_}});
  if (count <= MostUnreadable(samples_)) return absl::OkStatus();
  return DataLoss(
      count, " of ", Counted(samples_, "image"),
      " cannot be read, more than a tenth; the last is ", file, ": ",
      why.message(),
      "; the log names those that were met so far: replace or remove them");
}

int64_t DefaultResize(const Shape& shape) {
  return std::max(shape[1], shape[2]) * 8 / 7;
}

absl::StatusOr<std::unique_ptr<ImageFolderSet>> ImageFolderSet::Open(
    const ImageFolderOptions& options) {
  Checksum contents;
  PACELINE_ASSIGN_OR_RETURN(ImageFolder folder,
                            ListImageFolder(options.path, options.classes,
                                            options.inference, contents));
  std::unique_ptr<ImageFolderSet> set(
      new ImageFolderSet(options, std::move(folder.train),
                         std::move(folder.test), std::move(folder.classes)));
  set->HashLists(contents);
  set->facts_.contents = contents.Digest();
  folder.others.AddTo(
      set->facts_.notes,
      ": pictures are .jpg, .jpeg and .png, each right in its class folder");
  return set;
}

// Names and labels of both splits.
void ImageFolderSet::HashLists(Checksum& checksum) const {
  for (const ImageList* const list : {&train_.images, &test_.images}) {
    for (const std::string& name : list->names) {
      // With the zero at the end.
      checksum.Update(
          {reinterpret_cast<const uint8_t*>(name.c_str()), name.size() + 1});
    }
    checksum.Update({reinterpret_cast<const uint8_t*>(list->labels.data()),
                     list->labels.size() * sizeof(int32_t)});
  }
}

ImageFolderSet::ImageFolderSet(const ImageFolderOptions& options,
                               ImageList train, ImageList test,
                               std::vector<std::string> classes)
    : SampleSet({DType::kF32, options.shape, {}}, std::ssize(train.names),
                std::ssize(test.names)),
      options_(WithDefaults(options)),
      target_{options.shape[2], options.shape[1]},
      train_(std::move(train)),
      test_(std::move(test)),
      classes_(std::move(classes)) {
  facts_.classes = ClassesText(classes_);
}

SampleNames ImageFolderSet::TestNames(int64_t samples) const {
  const auto lines = [](auto begin, auto end) {
    std::string text;
    for (; begin != end; ++begin) {
      // A name may have any byte, but each is one line here.
      absl::StrAppend(&text, absl::StrReplaceAll(*begin, {{"\n", "?"}}), "\n");
    }
    return text;
  };
  const std::vector<std::string>& files = test_.images.names;
  return {lines(files.begin(),
                files.begin() + std::min(samples, std::ssize(files))),
          lines(classes_.begin(), classes_.end())};
}

int64_t ImageList::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof(int32_t)) * std::ssize(labels);
  for (const std::string& name : names) {
    bytes += static_cast<int64_t>(sizeof(name) + name.capacity());
  }
  return bytes;
}

absl::Status ImageFolderSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                                  Tensor& labels) const {
  const int64_t size = NumElements(format().shape);
  Scratch scratch;
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const int32_t sample = place.indices[i];
    const absl::Span<float> values = inputs.As<float>().subspan(i * size, size);
    int64_t& label = labels.As<int64_t>()[i];
    PACELINE_RETURN_IF_ERROR(
        place.split == BatchPhase::kTrain
            ? LoadTraining(place.epoch, sample, scratch, values, label)
            : LoadTest(sample, scratch, values, label));
  }
  return absl::OkStatus();
}

// Fixed draws first: how a picture is mirrored must not depend on its size.
ImageFolderSet::Augmentation ImageFolderSet::Draw(int64_t epoch,
                                                  int32_t sample) const {
  Augmentation how;
  how.crop = options_.crop;
  how.random = AugmentationOf(options_.seed, epoch, sample);
  how.mirrored = how.random.Unit() < options_.flip;
  return how;
}

absl::Status ImageFolderSet::LoadTraining(int64_t epoch, int32_t sample,
                                          Scratch& scratch,
                                          absl::Span<float> values,
                                          int64_t& label) const {
  const Augmentation how = Draw(epoch, sample);
  const auto count = static_cast<int32_t>(train_.images.names.size());
  // Ends: the skip list fails long before it holds everything.
  for (int32_t take = sample;; take = take + 1 == count ? 0 : take + 1) {
    PACELINE_ASSIGN_OR_RETURN(const bool loaded,
                              TryLoad(train_, take, how, scratch, values));
    if (!loaded) continue;
    label = train_.images.labels[take];
    return absl::OkStatus();
  }
}

absl::Status ImageFolderSet::LoadTest(int32_t sample, Scratch& scratch,
                                      absl::Span<float> values,
                                      int64_t& label) const {
  PACELINE_ASSIGN_OR_RETURN(
      const bool loaded,
      TryLoad(test_, sample, Augmentation(), scratch, values));
  label = loaded ? test_.images.labels[sample] : kNoLabel;
  if (!loaded) {
    // A prediction of nothing must not look like one of a picture.
    std::fill(values.begin(), values.end(),
              options_.inference ? std::numeric_limits<float>::quiet_NaN() : 0);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ImageFolderSet::TryLoad(const Split& from, int32_t sample,
                                             Augmentation how, Scratch& scratch,
                                             absl::Span<float> values) const {
  if (from.skipped.Contains(sample)) return false;
  const std::string path = from.images.PathOf(sample);
  const absl::Status status = Decode(path, how, scratch, values);
  if (status.ok()) return true;
  // Not the picture's fault: no descriptor or no memory left.
  if (absl::IsResourceExhausted(status)) return status;
  PACELINE_RETURN_IF_ERROR(from.skipped.Add(sample, path, status));
  return false;
}

Box ImageFolderSet::BoxOf(ImageSize picture, Augmentation& how) const {
  switch (how.crop) {
    case Crop::kCenter:
      break;
    case Crop::kRandom:
      return RandomBox(picture, options_.resize, target_, how.random);
    case Crop::kRandomResized:
      return RandomResizedBox(picture, how.random);
  }
  return CenterBox(picture, options_.resize, target_);
}

absl::Status ImageFolderSet::Decode(const std::string& path, Augmentation how,
                                    Scratch& scratch,
                                    absl::Span<float> values) const {
  const auto channels = static_cast<int>(options_.shape[0]);
  PACELINE_RETURN_IF_ERROR(ReadWhole(path, scratch.file));
  PACELINE_ASSIGN_OR_RETURN(const auto reader,
                            OpenImage(scratch.file, channels));
  const Turn turn(reader->orientation());
  const Box box =
      turn.InFile(BoxOf(turn.Size(reader->size()), how), reader->size());
  const ImageSize target = turn.Size(target_);
  PACELINE_ASSIGN_OR_RETURN(const ImageSize decoded,
                            reader->Start(MostShrink(box, target)));
  scratch.turned.resize(turn.is_none() ? 0 : values.size());
  Resampler resampler({decoded, Scaled(box, reader->size(), decoded), target,
                       turn.is_none() && how.mirrored, options_.channels},
                      turn.is_none() ? values : absl::MakeSpan(scratch.turned));
  scratch.row.resize(decoded.width * channels);
  for (int64_t y = 0; y < decoded.height; ++y) {
    PACELINE_RETURN_IF_ERROR(reader->ReadRow(absl::MakeSpan(scratch.row)));
    resampler.AddRow(scratch.row);
  }
  if (!turn.is_none()) turn.Apply(scratch.turned, target, how.mirrored, values);
  return reader->Finish();
}

}  // namespace paceline
