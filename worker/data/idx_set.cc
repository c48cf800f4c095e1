#include "worker/data/idx_set.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "worker/data/idx_file.h"

namespace paceline {
namespace {

// The file as it is, or gzipped; the plain one first.
absl::StatusOr<std::string> FindFile(const IdxOptions& options,
                                     const std::string& name) {
  const std::string plain = absl::StrCat(options.folder, "/", name);
  const std::string zipped = absl::StrCat(plain, ".gz");
  if (access(plain.c_str(), F_OK) == 0) return plain;
  if (access(zipped.c_str(), F_OK) == 0) return zipped;
  if (errno == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrCat(options.folder, ": may not be searched by this user"));
  }
  return absl::NotFoundError(absl::StrCat("no data file ", plain, " nor ", name,
                                          ".gz beside it; ", options.remedy));
}

absl::StatusOr<IdxFile> ReadNamed(const IdxOptions& options,
                                  const std::string& name,
                                  IdxHeaderCheck check) {
  PACELINE_ASSIGN_OR_RETURN(const std::string path, FindFile(options, name));
  return ReadIdx(path, check);
}

// [28, 28] holds samples of shape [28, 28] and of [1, 28, 28].
bool FitsSample(absl::Span<const int64_t> found,
                absl::Span<const int64_t> job) {
  if (job.size() == found.size() + 1 && job[0] == 1) job.remove_prefix(1);
  return found == job;
}

// Looks at the header alone.
absl::Status CheckImages(const IdxOptions& options, const IdxFile& images) {
  const absl::Span<const int64_t> sample =
      absl::MakeConstSpan(images.shape).subspan(1);
  if (!FitsSample(sample, options.shape)) {
    return absl::InvalidArgumentError(absl::StrCat(
        images.path, ": holds samples of shape [", absl::StrJoin(sample, ", "),
        "], the job's data.shape is [", absl::StrJoin(options.shape, ", "),
        "]"));
  }
  if (images.shape[0] > kMostSamplesOfASplit) {
    return absl::InvalidArgumentError(
        absl::StrCat(images.path, ": says that it has ", images.shape[0],
                     " samples, at most ", kMostSamplesOfASplit,
                     " can be numbered; take less"));
  }
  const int64_t bytes = NumElements(images.shape);
  if (options.most_bytes > 0 && bytes > options.most_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        images.path, ": says that it has ", bytes,
        " bytes of images, but this worker has memory for ", options.most_bytes,
        ": take fewer samples, or read them where there is more memory"));
  }
  return absl::OkStatus();
}

// Looks at the headers alone.
absl::Status CheckLabelCount(const IdxFile& labels, const IdxFile& images) {
  if (labels.shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        labels.path, ": ", labels.shape.size(), " dimensions, labels need 1"));
  }
  if (labels.shape[0] != images.shape[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat(labels.path, ": ", labels.shape[0], " labels for the ",
                     images.shape[0], " images of ", images.path));
  }
  return absl::OkStatus();
}

absl::Status CheckLabels(const IdxOptions& options, const IdxFile& labels) {
  const auto& values = labels.values;
  const auto bad = std::find_if(
      values.begin(), values.end(),
      [&options](const auto label) { return label >= options.classes; });
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      labels.path, ": label ", *bad, " of sample ", bad - values.begin(),
      " is no class, the job's data.classes is ", options.classes,
      ": set data.classes to ",
      *std::max_element(values.begin(), values.end()) + 1,
      " or more, or take the file of other labels"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<IdxSet>> IdxSet::Open(
    const IdxOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(Split train, OpenSplit(options, "train"));
  if (train.labels.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.folder, ": no training samples"));
  }
  PACELINE_ASSIGN_OR_RETURN(Split test, OpenSplit(options, "t10k"));
  return std::unique_ptr<IdxSet>(
      new IdxSet(options, std::move(train), std::move(test)));
}

absl::StatusOr<IdxSet::Split> IdxSet::OpenSplit(const IdxOptions& options,
                                                const std::string& prefix) {
  PACELINE_ASSIGN_OR_RETURN(
      IdxFile images,
      ReadNamed(options, absl::StrCat(prefix, "-images-idx3-ubyte"),
                [&options](const IdxFile& header) {
                  return CheckImages(options, header);
                }));
  PACELINE_ASSIGN_OR_RETURN(
      IdxFile labels,
      ReadNamed(options, absl::StrCat(prefix, "-labels-idx1-ubyte"),
                [&images](const IdxFile& header) {
                  return CheckLabelCount(header, images);
                }));
  PACELINE_RETURN_IF_ERROR(CheckLabels(options, labels));
  return Split{std::move(images.values), std::move(labels.values)};
}

IdxSet::IdxSet(const IdxOptions& options, Split train, Split test)
    : format_{DType::kF32, options.shape, {}},
      train_(std::move(train)),
      test_(std::move(test)) {
  for (int pixel = 0; pixel < 256; ++pixel) {
    scaled_[pixel] = options.scale.Of(static_cast<float>(pixel));
  }
}

const IdxSet::Split& IdxSet::split(BatchPhase phase) const {
  return phase == BatchPhase::kTrain ? train_ : test_;
}

int64_t IdxSet::samples(BatchPhase phase) const {
  return static_cast<int64_t>(split(phase).labels.size());
}

absl::Status IdxSet::Load(const MicroBatchPlace& place, Tensor& inputs,
                          Tensor& labels) const {
  const Split& from = split(place.split);
  const int64_t size = NumElements(format_.shape);
  const absl::Span<float> values = inputs.As<float>();
  for (size_t i = 0; i < place.indices.size(); ++i) {
    const int32_t sample = place.indices[i];
    labels.As<int64_t>()[i] = from.labels[sample];
    const auto image = from.images.begin() + sample * size;
    std::transform(image, image + size, values.begin() + i * size,
                   [this](uint8_t pixel) { return scaled_[pixel]; });
  }
  return absl::OkStatus();
}

}  // namespace paceline
