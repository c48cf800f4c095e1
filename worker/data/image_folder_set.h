// Folders of JPEG and PNG files as a data set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/crop.h"
#include "worker/data/image_folder.h"
#include "worker/data/pixel_scale.h"
#include "worker/data/sample_set.h"
#include "worker/data/skip_list.h"

namespace paceline {

struct ImageFolderOptions {
  std::string path;
  Shape shape;  // [1 or 3, height, width]
  int32_t classes = 1000;
  Crop crop = Crop::kCenter;  // training; evaluation takes the centre
  int64_t resize = 0;         // the shorter side's pixels; 0: DefaultResize()
  double flip = 0;            // probability; training
  std::vector<ChannelScale> channels;  // one for each
  int64_t seed = 1;                    // that augmentation draws from
  bool inference = false;              // as ListImageFolder() says
};

// 8/7 of the longer side: 256 for a crop of 224, as is usual.
int64_t DefaultResize(const Shape& shape);

// Decodes while loading, row by row into the tensor.  In training the next
// picture of the list takes an unreadable one's place, so that a batch keeps
// its size; in evaluation zeros do, in inference NaN, labelled kNoLabel.  Which
// ones are unreadable depends on the files alone, and so does every byte.
class ImageFolderSet final : public SampleSet {
 public:
  // Errors: those of ListImageFolder
  static absl::StatusOr<std::unique_ptr<ImageFolderSet>> Open(
      const ImageFolderOptions& options);

  int64_t samples(BatchPhase split) const override;
  const SampleFormat& format() const override { return format_; }
  absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                    Tensor& labels) const override;
  int64_t unreadable() const override {
    return train_.skipped.count() + test_.skipped.count();
  }

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
  };

  ImageFolderSet(const ImageFolderOptions& options, ImageFolder folder);
  const Split& split(BatchPhase phase) const;
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
  const SampleFormat format_;
  const ImageSize target_;
  const Split train_;
  const Split test_;
};

}  // namespace paceline
