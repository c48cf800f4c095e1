#include "worker/data/image_folder_set.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/obs/log.h"
#include "worker/byte_file.h"
#include "worker/data/image_reader.h"
#include "worker/data/resampler.h"

namespace paceline {
namespace {

constexpr int64_t kMostFileBytes = int64_t{1} << 27;

ImageFolderOptions WithDefaults(ImageFolderOptions options) {
  if (options.resize == 0) options.resize = DefaultResize(options.shape);
  return options;
}

absl::Status ReadWhole(const std::string& path, std::vector<uint8_t>& bytes) {
  PACELINE_ASSIGN_OR_RETURN(const auto file, ByteFile::Open(path));
  if (file->size() > kMostFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", file->size(), " bytes; at most ", kMostFileBytes, " are read"));
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

}  // namespace

int64_t DefaultResize(const Shape& shape) {
  return std::max(shape[1], shape[2]) * 8 / 7;
}

absl::StatusOr<std::unique_ptr<ImageFolderSet>> ImageFolderSet::Open(
    const ImageFolderOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(
      ImageFolder folder,
      ListImageFolder(options.path, options.classes, options.inference));
  if (folder.others.count > 0) {
    Log(LogLevel::kWarn,
        "files are left out of the pictures: only .jpg, .jpeg and .png are "
        "read",
        {{"files", folder.others.count}, {"example", folder.others.example}});
  }
  return std::unique_ptr<ImageFolderSet>(
      new ImageFolderSet(options, std::move(folder)));
}

ImageFolderSet::ImageFolderSet(const ImageFolderOptions& options,
                               ImageFolder folder)
    : options_(WithDefaults(options)),
      format_{DType::kF32, options.shape, {}},
      target_{options.shape[2], options.shape[1]},
      train_(std::move(folder.train)),
      test_(std::move(folder.test)) {}

const ImageFolderSet::Split& ImageFolderSet::split(BatchPhase phase) const {
  return phase == BatchPhase::kTrain ? train_ : test_;
}

int64_t ImageFolderSet::samples(BatchPhase phase) const {
  return static_cast<int64_t>(split(phase).images.names.size());
}

absl::Status ImageFolderSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                                  Tensor& labels) const {
  const int64_t size = NumElements(format_.shape);
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
  const Box box = BoxOf(reader->size(), how);
  PACELINE_ASSIGN_OR_RETURN(const ImageSize decoded,
                            reader->Start(MostShrink(box, target_)));
  Resampler resampler({decoded, Scaled(box, reader->size(), decoded), target_,
                       how.mirrored, options_.channels},
                      values);
  scratch.row.resize(decoded.width * channels);
  for (int64_t y = 0; y < decoded.height; ++y) {
    PACELINE_RETURN_IF_ERROR(reader->ReadRow(absl::MakeSpan(scratch.row)));
    resampler.AddRow(scratch.row);
  }
  return reader->Finish();
}

}  // namespace paceline
