// Folders of JPEG and PNG files as a data set: the folder that a picture lies
// in is its class.
//
//   photos/cat/1.jpg  photos/cat/2.png  photos/dog/1.jpg         one split
//   photos/train/cat/1.jpg ...  photos/val/cat/7.jpg ...         two
//   photos/1.jpg  photos/2.png                                   no classes
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/transfer/checksum.h"
#include "worker/data/crop.h"
#include "worker/data/sample_set.h"

namespace paceline {

// Two vectors rather than one of pairs: a million names are enough memory.
struct ImageList {
  std::string folder;              // that names are relative to
  std::vector<std::string> names;  // "cat/1.jpg", sorted by class, then name
  std::vector<int32_t> labels;     // of each: the number of its class; kNoLabel

  std::string PathOf(int32_t sample) const {
    return folder + "/" + names[sample];
  }
  int64_t memory_bytes() const;
};

// The samples of a split that turned out to be unreadable.  Thread-safe.
class SkipList {
 public:
  // samples: of the split, which may lose MostUnreadable() of them.
  explicit SkipList(int64_t samples) : samples_(samples) {}

  bool Contains(int32_t sample) const;

  UnreadableSamples Get() const;

  // Notes that `file`, which is the sample, cannot be read, and logs a warning
  // with the count so far; the second time changes nothing.
  // Errors: DataLoss  more of the split is gone
  absl::Status Add(int32_t sample, const std::string& file,
                   const absl::Status& why);

 private:
  const int64_t samples_;
  mutable absl::Mutex mutex_;
  std::set<int32_t> skipped_ ABSL_GUARDED_BY(mutex_);
};

struct ImageFolderOptions {
  std::string path;
  Shape shape;  // [1 or 3, height, width]
  int32_t classes = 1000;
  Crop crop = Crop::kCenter;  // training; evaluation takes the centre
  int64_t resize = 0;         // the shorter side's pixels; 0: DefaultResize()
  double flip = 0;            // probability; training
  std::vector<ChannelScale> channels;  // one for each
  int64_t seed = 1;                    // that augmentation draws from
  // A split alone is the second one too; and where `path` has no folders, the
  // pictures in it are, sorted by name, without labels.
  bool inference = false;
};

// 8/7 of the longer side: 256 for a crop of 224, as is usual.
int64_t DefaultResize(const Shape& shape);

// The sub-folders of `path` are the classes, or its sub-folder `train` has
// them, and `val` or `test` the second split's, by the same names.  Pictures
// are files that end in .jpg, .jpeg or .png, in either case; facts() has a note
// of other files.  Names that begin with a dot are ignored.
//
// Decodes while loading, row by row into the tensor, turned as the camera has
// noted.  An unreadable picture is replaced: in training by the next one of the
// list, so that a batch keeps its size; in evaluation by zeros and in inference
// by NaN, both labelled kNoLabel.  The files alone decide which pictures are
// unreadable, and so every byte.
class ImageFolderSet final : public SampleSet {
 public:
  // Lists the folders; opens no picture.
  // Errors (the message names the folder):
  //   NotFound, PermissionDenied  as the system says
  //   InvalidArgument  no class folder; one without pictures; other classes
  //                    than options.classes of them, or a class of the second
  //                    split that the first does not have
  static absl::StatusOr<std::unique_ptr<ImageFolderSet>> Open(
      const ImageFolderOptions& options);

  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;
  std::vector<int32_t> TrainLabels() const override {
    return train_.images.labels;
  }
  int64_t memory_bytes() const override {
    return train_.images.memory_bytes() + test_.images.memory_bytes();
  }
  UnreadableSamples Unreadable(BatchPhase split) const override {
    return (split == BatchPhase::kTrain ? train_ : test_).skipped.Get();
  }
  SampleNames TestNames(int64_t samples) const override;

 private:
  struct Split {
    explicit Split(ImageList list)
        : images(std::move(list)),
          skipped(static_cast<int64_t>(images.names.size())) {}

    const ImageList images;
    mutable SkipList skipped;
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

  ImageFolderSet(const ImageFolderOptions& options, ImageList train,
                 ImageList test, std::vector<std::string> classes);
  void HashLists(Checksum& checksum) const;
  Augmentation Draw(int64_t epoch, int32_t sample) const;
  absl::Status LoadTraining(int64_t epoch, int32_t sample, Scratch& scratch,
                            absl::Span<float> values, int64_t& label) const;
  absl::Status LoadTest(int32_t sample, Scratch& scratch,
                        absl::Span<float> values, int64_t& label) const;
  absl::StatusOr<bool> TryLoad(const Split& from, int32_t sample,
                               Augmentation how, Scratch& scratch,
                               absl::Span<float> values) const;
  absl::Status Decode(const std::string& path, Augmentation how,
                      Scratch& scratch, absl::Span<float> values) const;
  Box BoxOf(ImageSize picture, Augmentation& how) const;

  const ImageFolderOptions options_;
  const ImageSize target_;
  const Split train_;
  const Split test_;
  const std::vector<std::string> classes_;
};

}  // namespace paceline
