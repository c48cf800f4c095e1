// Scripts of data sets: what lies in a folder, and what a job reads of it.
#pragma once

#include <sys/stat.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/data/data_sets.h"
#include "tests/support/job_changes.h"
#include "tests/support/script.h"
#include "tests/worker/data/data_files.h"

namespace paceline {

// A grey level that names a picture.
inline std::string GreyPng(int level) {
  return EncodePng(Plain(8, 8, {static_cast<uint8_t>(level)}));
}

// Header and values of an IDX file of bytes.
inline std::string Idx(const std::vector<uint32_t>& sizes,
                       const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes += static_cast<char>(size >> shift);
    }
  }
  return bytes + values;
}

inline std::string Zipped(const std::string& bytes) {
  z_stream stream = {};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, /*gzip=*/15 + 16, 8,
               Z_DEFAULT_STRATEGY);
  std::string zipped(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(zipped.data());
  stream.avail_out = zipped.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  zipped.resize(stream.total_out);
  deflateEnd(&stream);
  return zipped;
}

// data NAME: the job's data set, of the whole folder, without test_fraction
// set CHANGES, path NAME: ChangeJob(); where in the folder the data lies
// infer: the job trains no more
// write NAME TEXT, both with escapes as C has them; tokens NAME NUMBER..., of
// 16
//   bits; pictures FOLDER COUNT LEVEL [SUFFIX]: plain ones, each a level above
//   the one before; idx NAME SIZES [VALUE...], FROM..TO for many; zip NAME
// remove NAME, move NAME TO, folder NAME, pipe NAME, link NAME TO
// open: what is said of it, and of its names with "names"
// walk: all that is read, a line for each sample, and which ones were not
class DataScript : public Script {
 protected:
  bool Do(const std::string& verb) override {
    return DoJob(verb) || DoFile(verb) || DoRead(verb);
  }

 private:
  bool DoJob(const std::string& verb) {
    if (verb == "data") {
      spec_ = JobSpec();
      spec_.data = DefaultDataSpec(Word(1));
      spec_.data.path = folder_.path();
      spec_.data.test_fraction = 0;
      spec_.data.workers = 0;
      spec_.train.batch = spec_.train.micro_batch = 64;
    } else if (verb == "set") {
      ChangeJob(spec_, Rest(1));
    } else if (verb == "path") {
      spec_.data.path = folder_.Path(Word(1));
    } else if (verb == "infer") {
      spec_.kind = "infer";
      spec_.train.steps = spec_.train.epochs = 0;
    } else {
      return false;
    }
    return true;
  }

  bool DoFile(const std::string& verb) {
    const std::string path = folder_.Path(Word(1));
    if (verb == "write") {
      std::string name, bytes;
      EXPECT_TRUE(absl::CUnescape(Word(1), &name)) << Word(1);
      EXPECT_TRUE(absl::CUnescape(Rest(2), &bytes)) << Rest(2);
      folder_.Write(name, bytes);
    } else if (verb == "tokens") {
      std::string bytes;
      for (size_t i = 2; Has(i); ++i) {
        bytes += static_cast<char>(Number(i));
        bytes += static_cast<char>(Number(i) >> 8);
      }
      folder_.Write(Word(1), bytes);
    } else if (verb == "pictures") {
      for (int i = 0; i < Number(2); ++i) {
        folder_.Write(absl::StrCat(Word(1), "/", i, Has(4) ? Word(4) : ".png"),
                      GreyPng(static_cast<int>(Number(3)) + i));
      }
    } else if (verb == "idx") {
      folder_.Write(Word(1), IdxAt(2));
    } else if (verb == "zip") {
      folder_.Write(Word(1) + ".gz", Zipped(ReadFile(path)));
      std::filesystem::remove(path);
    } else if (verb == "remove") {
      std::filesystem::remove_all(path);
    } else if (verb == "move") {
      std::filesystem::rename(path, folder_.Path(Word(2)));
    } else if (verb == "folder") {
      std::filesystem::create_directories(path);
    } else if (verb == "link") {
      std::filesystem::create_symlink(Word(2), path);
    } else if (verb == "pipe") {
      EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    } else {
      return false;
    }
    return true;
  }

  std::string IdxAt(size_t at) const {
    std::vector<uint32_t> sizes;
    ReadValue(Word(at), sizes);
    std::string values;
    for (size_t i = at + 1; Has(i); ++i) {
      const std::vector<std::string> ends = absl::StrSplit(words_[i], "..");
      for (int value = std::stoi(ends[0]); value <= std::stoi(ends.back());
           ++value) {
        values += static_cast<char>(value);
      }
    }
    return Idx(sizes, values);
  }

  bool DoRead(const std::string& verb) {
    if (verb != "open" && verb != "walk") return false;
    const auto source = OpenBatchSource(spec_, {});
    if (!source.ok()) {
      SayHere(source.status().ToString());
    } else if (verb == "walk") {
      Walk(**source);
    } else {
      SayFacts(**source);
    }
    return true;
  }

  void SayFacts(const BatchSource& source) {
    const DataFacts facts = source.Facts();
    Say(absl::StrCat("opens", facts.classes.empty() ? "" : ", of ",
                     absl::StrReplaceAll(facts.classes, {{"\n", " "}})));
    for (const std::string& note : facts.notes) SayHere("note: " + note);
    SayUnreadable(source);
    if (Word(1) != "names") return;
    const SampleNames names = source.TestNames();
    Say(absl::StrCat("files: ", absl::CEscape(names.files)));
    Say(absl::StrCat("classes: ", absl::CEscape(names.classes)));
  }

  void Walk(BatchSource& source) {
    for (;;) {
      const auto batch = source.NextBatch().value();
      if (!batch.has_value()) break;
      Say(batch->phase == BatchPhase::kTrain ? "training" : "evaluation");
      for (int i = 0; i < batch->micro_batches; ++i) {
        const auto tensors = source.NextMicroBatch();
        if (!tensors.ok()) return SayHere(tensors.status().ToString());
        SaySamples((*tensors)[0], (*tensors)[1]);
      }
    }
    SayUnreadable(source);
  }
  void SayUnreadable(const BatchSource& source) {
    for (const BatchPhase split : {BatchPhase::kTrain, BatchPhase::kEvaluate}) {
      const UnreadableSamples bad = source.Unreadable(split);
      if (bad.numbers.empty()) continue;
      Say(absl::StrCat("unreadable: ", absl::StrJoin(bad.numbers, " "), " of ",
                       bad.of));
    }
  }

  void SaySamples(const Tensor& inputs, const Tensor& labels) {
    const int64_t samples = inputs.shape[0];
    EXPECT_EQ(labels.shape[0], samples);
    for (int64_t i = 0; i < samples; ++i) {
      const std::string label = Values(labels.As<int64_t>(), i, samples);
      Say(absl::StrCat("  ",
                       inputs.dtype == DType::kI64
                           ? Values(inputs.As<int64_t>(), i, samples)
                           : Values(inputs.As<float>(), i, samples),
                       ": ", label));
    }
  }
  // Says equal ones in a row, if many, once.
  template <typename Span>
  std::string Values(const Span& all, int64_t sample, int64_t samples) {
    const size_t width = all.size() / static_cast<size_t>(samples);
    std::string text;
    for (size_t at = 0, count = 0; at < width; at += count) {
      const auto one = all.subspan(sample * width);
      for (count = 1; at + count < width; ++count) {
        if (absl::StrCat(one[at + count]) != absl::StrCat(one[at])) break;
      }
      const bool many = count > 20;
      if (many) absl::StrAppend(&text, at > 0 ? " " : "", count, " of");
      for (size_t i = 0; i < (many ? 1 : count); ++i) {
        absl::StrAppend(&text, text.empty() ? "" : " ", one[at]);
      }
    }
    return text;
  }

  void SayHere(const std::string& text) {
    Say(absl::CEscape(absl::StrReplaceAll(text, {{folder_.path(), "FOLDER"}})));
  }

  TempFolder folder_;
  JobSpec spec_;
};

}  // namespace paceline
