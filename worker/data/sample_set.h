// Data sets: samples by number, in two splits.  Opens them, and loads their
// micro-batches ahead of the compute thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/tensor.h"
#include "core/base/text.h"
#include "core/data/batch.h"
#include "core/data/data_sets.h"
#include "core/job/spec/job_spec.h"
#include "core/schedule/route.h"
#include "worker/pipeline/batch_source.h"

namespace paceline {

// Which samples a micro-batch takes.
struct MicroBatchPlace {
  BatchPhase split = BatchPhase::kTrain;
  int64_t epoch = 0;             // that augmentation draws from
  std::vector<int32_t> indices;  // of the split's samples, in order
};

// Files beside those of a set, which are left out.
struct OtherFiles {
  int64_t count = 0;
  std::string example;  // path of one; empty: there is none

  void Add(std::string path) {
    if (count++ == 0 || path < example) example = std::move(path);
  }
  // rule: what would be read
  void AddTo(std::vector<std::string>& notes,
             const std::string& rule = "") const {
    if (count == 0) return;
    notes.push_back(absl::StrCat(Counted(count, "file"),
                                 count == 1 ? " is" : " are",
                                 " not used, for example ", example, rule));
  }
};

// Samples are numbered with int32, and the order of an epoch holds them all.
constexpr int64_t kMostSamplesOfASplit = std::numeric_limits<int32_t>::max();

// The part of a tensor that is sample i.
template <typename T>
absl::Span<T> SampleOf(Tensor& tensor, size_t i) {
  const absl::Span<T> all = tensor.As<T>();
  const size_t size = all.size() / tensor.shape[0];
  return all.subspan(i * size, size);
}

// Immutable as far as the tensors go; several loader threads read it at the
// same time.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  // Samples of the training (kTrain) or test (kEvaluate) split.
  int64_t samples(BatchPhase split) const {
    return split == BatchPhase::kTrain ? train_samples_ : test_samples_;
  }

  // From now on the test split has no more than its first `most` samples.
  void LimitTest(int64_t most) {
    test_samples_ = std::min(test_samples_, most);
  }

  const SampleFormat& format() const { return format_; }
  const DataFacts& facts() const { return facts_; }

  // Writes the samples of `place` one after the other, into memory that is not
  // initialised:
  //   inputs  [n, ...format().shape] of format().dtype
  //   labels  [n, ...format().label_shape] int64, in [0, classes), or kNoLabel
  //           for what evaluation could not read; n = place.indices.size()
  // The same arguments give the same bytes on every machine.
  //
  // Errors: DataLoss  files have changed since they were opened, or too many
  //         cannot be read: names them
  virtual absl::Status Load(const MicroBatchPlace& place, Tensor& inputs,
                            Tensor& labels) const = 0;

  // The label of each training sample; empty where samples have several, or
  // none that is known before a sample is made.
  virtual std::vector<int32_t> TrainLabels() const { return {}; }

  // Bytes that are kept of or for its samples.
  virtual int64_t memory_bytes() const { return 0; }

  // As BatchSource.
  virtual UnreadableSamples Unreadable(BatchPhase /*split*/) const {
    return {};
  }

  // The names of the test split's samples, and of all classes.
  virtual SampleNames TestNames() const { return {}; }

 protected:
  SampleSet(SampleFormat format, int64_t train_samples, int64_t test_samples,
            DataFacts facts = {})
      : facts_(std::move(facts)),
        format_(std::move(format)),
        train_samples_(train_samples),
        test_samples_(test_samples) {}

  DataFacts facts_;  // constant once the set is open

 private:
  const SampleFormat format_;
  const int64_t train_samples_;
  int64_t test_samples_;
};

// DataFacts::classes of these names: a line each, or a hash of very many.
std::string ClassesText(const std::vector<std::string>& names);

// Loaders keep at most so much ready for the compute thread.
constexpr int kAheadPerThread = 4;
constexpr int64_t kMostBytesAhead = int64_t{256} << 20;

// How many micro-batches that is: kAheadPerThread a thread, or as many as have
// kMostBytesAhead together where these are fewer, but one a thread.
int64_t MicroBatchesAhead(const SampleFormat& format, int64_t micro_batch,
                          int threads);

// In memory of its own: inputs and labels.  Errors: those of Load()
absl::StatusOr<TensorList> LoadMicroBatch(const SampleSet& samples,
                                          const MicroBatchPlace& place);

// Writes a pair of sentences as a sample (core/data/data_sets.h).  Words are
// tokens that no text is about; sources have at most a block of them, targets
// one less.
//   input   [2 block]; written
//   labels  [block]; written
void WritePair(absl::Span<const int64_t> source,
               absl::Span<const int64_t> target, absl::Span<int64_t> input,
               absl::Span<int64_t> labels);

// Opens a set of files.  README.md says what each set reads.
//   data       valid (CheckDataSpec())
//   seed       that augmentation draws from
//   inference  only the test split matters
//
// Errors of all (the message names the file or the folder):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument             as below
using OpenedSet = absl::StatusOr<std::unique_ptr<SampleSet>>;

// `imagefolder`.  Folders of JPEG and PNG files: the folder that a picture lies
// in is its class.
//
//   photos/cat/1.jpg  photos/cat/2.png  photos/dog/1.jpg         one split
//   photos/train/cat/1.jpg ...  photos/val/cat/7.jpg ...         two
//   photos/1.jpg  photos/2.png                                   no classes
//
// The sub-folders of data.path are the classes, or its sub-folder `train` has
// them, and `val` or `test` the second split's, by the same names.  In
// inference a split alone is the second one too; and where the path has no
// folders, the pictures in it are, sorted by name, without labels.  Pictures
// are files that end in .jpg, .jpeg or .png, in either case; facts() has a note
// of other files.  Names that begin with a dot are ignored.
//
// Decodes while loading, row by row into the tensor, turned as the camera has
// noted.  An unreadable picture is replaced: in training by the next one of the
// list, so that a batch keeps its size; in evaluation by zeros and in inference
// by NaN, both labelled kNoLabel.  The files alone decide which pictures are
// unreadable, and so every byte.
//
// Lists the folders; opens no picture.
// Errors: InvalidArgument  no class folder; one without pictures; other classes
//         than data.classes of them, or a class of the second split that the
//         first does not have
OpenedSet OpenImageFolder(const DataSpec& data, int64_t seed, bool inference);

// `text`.  Sample i of a split is its tokens [i * block, (i + 1) * block), and
// its labels are the same moved by one: what comes next, at each place.  What
// is left at a split's end, less than a block and one, is not used.
//
// data.tokens says what a token is.  `byte` and `uint16` (little endian, as
// nanoGPT's prepare.py writes them): nothing is kept in memory.  `character`:
// UTF-8, numbered by rank among all different ones of the files, which are
// sorted by code point; kept in memory at two bytes each.
//
// data.path: a file, or a folder with train.txt and val.txt, for uint16
// train.bin and val.bin; without the second, the end of the first is the test
// split (data.test_fraction).  Reads each file once to see that all tokens are
// below data.classes, where they might not be.
// Errors: InvalidArgument  half a token at the end, a token that is too great,
//         not UTF-8, more different characters than data.classes or 65536, a
//         block that does not fit into a split
OpenedSet OpenText(const DataSpec& data, bool inference = false);

// `text-labels`: a file is lines `LABEL TAB TEXT`.  The label is a whole number
// below data.classes, or kNoLabel where all lines are for inference
// (data.test_fraction 1), and the text any bytes but data.padding and line
// feeds.  A sample is token 2 (ASCII's "start of text", whose place in the last
// layer a classifier looks at), the text's bytes as far as the block goes, and
// data.padding up to its end.
//
// `text-pairs`: a file is lines `SOURCE TAB TARGET`, of any bytes but line
// feeds and those below kFirstWordToken, which mean something else to a
// decoder; a target may have tabulators.  Of a source a sample takes as many
// bytes as a block has, of a target one less.
//
// A byte-order mark before the first line is passed over, and so is a carriage
// return at a line's end.  Keeps where each text lies, and reads it when it is
// needed.
//
// data.path: a file whose last lines (data.test_fraction) are the test split;
// with data.test_fraction 1 all of it, which is in both splits then.  Or a
// folder with train.txt and perhaps val.txt.
// Errors: InvalidArgument  no tabulator, a label that is no class, nothing
//         before a pair's tabulator, a byte that no text may have (names the
//         line), or a split without lines
OpenedSet OpenTextLines(const DataSpec& data, bool inference = false);

// `idx`, `fashion-mnist`.  The files train-images-idx3-ubyte[.gz] and so on of
// a folder.  Keeps their bytes (47 MB for 60,000 images of 28x28).  Of a file
// whose header is refused no more than that is read.
//   most_bytes  the most memory for a file's images; 0: no limit
// Errors: those of ReadIdx; InvalidArgument when the files do not fit one
// another or the job; ResourceExhausted when one promises more than most_bytes;
// NotFound names both file names that were tried
OpenedSet OpenIdx(const DataSpec& data, int64_t most_bytes);

// `cifar10`, `cifar100`.  Reads every label, so that a job fails
// before its first step or not at all; pixels are read when they are needed.
// The crop `random` moves a training image by up to 4 pixels each way; what
// comes in at the edge is black.
// Errors: InvalidArgument  not whole records, none at all, a label that is no
//         class
OpenedSet OpenCifar(const DataSpec& data, int64_t seed);

struct IdxFile {
  std::string path;
  Shape shape;
  std::vector<uint8_t> values;  // row-major
};

// Refuses a file by its header: path and shape are known, values are not yet.
using IdxHeaderCheck = absl::FunctionRef<absl::Status(const IdxFile&)>;

// Reads `path` whole, once `check` has taken its header: a gzipped file may
// really contain a thousand times its own bytes.  Never holds more than about
// twice the bytes that the file really contains, whatever its header says.
//
// Errors (the message names the file):
//   NotFound, PermissionDenied  as the system says
//   InvalidArgument  not IDX, values that are no bytes, cut short, longer than
//                    its header says, or damaged gzip
//   those of `check`
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, IdxHeaderCheck check);

// The BatchSource of every data set.
// samples has at least one training sample.
//   threads  0: the caller's thread loads.  The tensors do not depend on it
//   turns    the batches that the walk takes
//   parts    which member sees which samples; null: all see all
//   order_bytes  of the order of an epoch; see core/plan/memory.h
std::unique_ptr<BatchSource> MakeBatchLoader(
    const TrainSpec& train, std::unique_ptr<const SampleSet> samples,
    int threads, const Turns& turns = {},
    std::unique_ptr<const SampleParts> parts = nullptr,
    int64_t order_bytes = 0);

// Opens spec.data, to be taken in the batches of spec.train, or of its walk
// those that `turns` has.  CheckJobSpec() has seen the spec.  README.md says
// what each data set reads.  Looks at every label but at no picture, so call it
// off the control threads.
//
// Errors (the message names the file and what to do):
//   NotFound         a file is missing
//   PermissionDenied a file may not be read
//   InvalidArgument  a file that is not what it should be, is cut short, holds
//                    other sizes than spec.data says, or a label that is no
//                    class
absl::StatusOr<std::unique_ptr<BatchSource>> OpenBatchSource(
    const JobSpec& spec, const Turns& turns = {});

}  // namespace paceline
