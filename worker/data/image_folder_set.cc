#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "core/base/errors.h"
#include "core/base/text.h"
#include "core/data/data_sets.h"
#include "core/obs/log.h"
#include "core/os/files.h"
#include "core/transfer/checksum.h"
#include "worker/data/crop.h"
#include "worker/data/image_reader.h"
#include "worker/data/sample_set.h"

namespace paceline {
namespace {

// Two vectors rather than one of pairs: a million names are enough memory.
struct ImageList {
  std::string folder;              // that names are relative to
  std::vector<std::string> names;  // "cat/1.jpg", sorted by class, then name
  std::vector<int32_t> labels;     // of each: the number of its class; kNoLabel

  int64_t memory_bytes() const {
    int64_t bytes = static_cast<int64_t>(sizeof(int32_t)) * std::ssize(labels);
    for (const std::string& name : names) {
      bytes += static_cast<int64_t>(sizeof(name) + name.capacity());
    }
    return bytes;
  }
};

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
  std::ranges::sort(*entries, {}, &FolderEntry::name);
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
    const auto found = absl::c_lower_bound(classes, name);
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

absl::StatusOr<ImageFolder> ListImageFolder(const DataSpec& data,
                                            bool inference, Checksum& sizes) {
  const std::string& path = data.path;
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
  if (found != data.classes) {
    return InvalidArgument(
        train, ": has ", found, " class folders, from ", folder.classes.front(),
        " to ", folder.classes.back(), ", the job's data.classes is ",
        data.classes, "; set data.classes to ", found,
        " or point data.path elsewhere");
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

// The pictures of a split, and those of them that turned out to be unreadable:
// at most MostUnreadable().  Thread-safe.
class ImageSplit {
 public:
  explicit ImageSplit(ImageList list)
      : images(std::move(list)), samples_(std::ssize(images.names)) {}

  const ImageList images;

  bool Skips(int32_t sample) const {
    absl::MutexLock lock(&mutex_);
    return skipped_.contains(sample);
  }
  UnreadableSamples Unreadable() const {
    absl::MutexLock lock(&mutex_);
    return {samples_, {skipped_.begin(), skipped_.end()}};
  }

  // Notes that `file`, which is the sample, cannot be read, and logs a warning
  // with the count so far; the second time changes nothing.
  // Errors: DataLoss  more of the split is gone
  absl::Status Skip(int32_t sample, const std::string& file,
                    const absl::Status& why) const {
    int64_t count = 0;
    {
      absl::MutexLock lock(&mutex_);
      if (!skipped_.insert(sample).second) return absl::OkStatus();
      count = std::ssize(skipped_);
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

 private:
  const int64_t samples_;
  mutable absl::Mutex mutex_;
  mutable std::set<int32_t> skipped_ ABSL_GUARDED_BY(mutex_);
};

// How a training sample is cut; by default as in evaluation.
struct Augmentation {
  Crop crop = Crop::kCenter;
  SplitMix64 random = SplitMix64(0);
  bool mirrored = false;
};

// A loader's memory, kept from sample to sample.
struct Scratch {
  std::vector<uint8_t> file;
  std::vector<uint8_t> row;
  std::vector<float> turned;  // a sample as the file has it
};

class ImageFolderSet final : public SampleSet {
 public:
  ImageFolderSet(const DataSpec& data, int64_t seed, bool inference,
                 ImageFolder folder, Checksum& contents)
      : SampleSet({DType::kF32, data.shape, {}}, std::ssize(folder.train.names),
                  std::ssize(folder.test.names)),
        crop_(CropOf(data.crop)),
        // 8/7 of the longer side: 256 for a crop of 224, as is usual.
        resize_(data.resize > 0
                    ? data.resize
                    : std::max(data.shape[1], data.shape[2]) * 8 / 7),
        flip_(data.flip),
        scales_(ScalesOf(data)),
        seed_(seed),
        inference_(inference),
        target_{data.shape[2], data.shape[1]},
        train_(std::move(folder.train)),
        test_(std::move(folder.test)),
        classes_(std::move(folder.classes)) {
    for (const ImageList* const list : {&train_.images, &test_.images}) {
      for (const std::string& name : list->names) {
        // With the zero at the end.
        contents.Update(
            {reinterpret_cast<const uint8_t*>(name.c_str()), name.size() + 1});
      }
      contents.Update({reinterpret_cast<const uint8_t*>(list->labels.data()),
                       list->labels.size() * sizeof(int32_t)});
    }
    facts_.contents = contents.Digest();
    facts_.classes = ClassesText(classes_);
    folder.others.AddTo(
        facts_.notes,
        ": pictures are .jpg, .jpeg and .png, each right in its class folder");
  }

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override {
    Scratch scratch;
    for (size_t i = 0; i < place.indices.size(); ++i) {
      const int32_t sample = place.indices[i];
      const absl::Span<float> values = SampleOf<float>(inputs, i);
      int64_t& label = labels.As<int64_t>()[i];
      PACELINE_RETURN_IF_ERROR(
          place.split == BatchPhase::kTrain
              ? LoadTraining(place.epoch, sample, scratch, values, label)
              : LoadTest(sample, scratch, values, label));
    }
    return absl::OkStatus();
  }
  std::vector<int32_t> TrainLabels() const override {
    return train_.images.labels;
  }
  int64_t memory_bytes() const override {
    return train_.images.memory_bytes() + test_.images.memory_bytes();
  }
  UnreadableSamples Unreadable(BatchPhase split) const override {
    return (split == BatchPhase::kTrain ? train_ : test_).Unreadable();
  }
  SampleNames TestNames() const override {
    const auto lines = [](absl::Span<const std::string> names) {
      std::string text;
      for (const std::string& name : names) {
        // A name may have any byte, but each is one line here.
        absl::StrAppend(&text, absl::StrReplaceAll(name, {{"\n", "?"}}), "\n");
      }
      return text;
    };
    return {lines(absl::MakeConstSpan(test_.images.names)
                      .first(samples(BatchPhase::kEvaluate))),
            lines(classes_)};
  }

 private:
  absl::Status LoadTraining(int64_t epoch, int32_t sample, Scratch& scratch,
                            absl::Span<float> values, int64_t& label) const {
    // Fixed draws first: how a picture is mirrored must not depend on its size.
    Augmentation how = {.crop = crop_,
                        .random = AugmentationOf(seed_, epoch, sample)};
    how.mirrored = how.random.Unit() < flip_;
    const auto count = static_cast<int32_t>(train_.images.names.size());
    // Ends: the split fails long before all of it is skipped.
    for (int32_t take = sample;; take = take + 1 == count ? 0 : take + 1) {
      PACELINE_ASSIGN_OR_RETURN(const bool loaded,
                                TryLoad(train_, take, how, scratch, values));
      if (!loaded) continue;
      label = train_.images.labels[take];
      return absl::OkStatus();
    }
  }

  absl::Status LoadTest(int32_t sample, Scratch& scratch,
                        absl::Span<float> values, int64_t& label) const {
    PACELINE_ASSIGN_OR_RETURN(
        const bool loaded,
        TryLoad(test_, sample, Augmentation(), scratch, values));
    label = loaded ? test_.images.labels[sample] : kNoLabel;
    // A prediction of nothing must not look like one of a picture.
    if (!loaded) {
      absl::c_fill(values,
                   inference_ ? std::numeric_limits<float>::quiet_NaN() : 0);
    }
    return absl::OkStatus();
  }

  // False: the picture cannot be read.
  absl::StatusOr<bool> TryLoad(const ImageSplit& from, int32_t sample,
                               Augmentation how, Scratch& scratch,
                               absl::Span<float> values) const {
    if (from.Skips(sample)) return false;
    const std::string path =
        absl::StrCat(from.images.folder, "/", from.images.names[sample]);
    const absl::Status status = Decode(path, how, scratch, values);
    if (status.ok()) return true;
    // Not the picture's fault: no descriptor or no memory left.
    if (absl::IsResourceExhausted(status)) return status;
    PACELINE_RETURN_IF_ERROR(from.Skip(sample, path, status));
    return false;
  }

  Box BoxOf(ImageSize picture, Augmentation& how) const {
    switch (how.crop) {
      case Crop::kCenter:
        break;
      case Crop::kRandom:
        return RandomBox(picture, resize_, target_, how.random);
      case Crop::kRandomResized:
        return RandomResizedBox(picture, how.random);
    }
    return CenterBox(picture, resize_, target_);
  }

  absl::Status Decode(const std::string& path, Augmentation how,
                      Scratch& scratch, absl::Span<float> values) const {
    const auto channels = static_cast<int>(scales_.size());
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
    Resampler resampler(
        {decoded, Scaled(box, reader->size(), decoded), target,
         turn.is_none() && how.mirrored, scales_},
        turn.is_none() ? values : absl::MakeSpan(scratch.turned));
    scratch.row.resize(decoded.width * channels);
    for (int64_t y = 0; y < decoded.height; ++y) {
      PACELINE_RETURN_IF_ERROR(reader->ReadRow(absl::MakeSpan(scratch.row)));
      resampler.AddRow(scratch.row);
    }
    if (!turn.is_none()) {
      turn.Apply(scratch.turned, target, how.mirrored, values);
    }
    return reader->Finish();
  }

  const Crop crop_;       // training; evaluation takes the centre
  const int64_t resize_;  // the shorter side's pixels
  const double flip_;     // probability; training
  const std::vector<ChannelScale> scales_;
  const int64_t seed_;  // that augmentation draws from
  const bool inference_;
  const ImageSize target_;
  const ImageSplit train_;
  const ImageSplit test_;
  const std::vector<std::string> classes_;
};

}  // namespace

OpenedSet OpenImageFolder(const DataSpec& data, int64_t seed, bool inference) {
  Checksum contents;
  PACELINE_ASSIGN_OR_RETURN(ImageFolder folder,
                            ListImageFolder(data, inference, contents));
  return std::make_unique<ImageFolderSet>(data, seed, inference,
                                          std::move(folder), contents);
}

}  // namespace paceline
