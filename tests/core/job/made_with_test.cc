
#include <set>
#include <tuple>
#include <type_traits>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/data/data_sets.h"
#include "core/job/job_keys.h"
#include "core/job/job_model.h"
#include "core/model/catalog.h"
#include "core/weights/safetensors_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// They say with what a job begins and which samples it sees, not what it makes
// of a sample.
constexpr char kOfNoBearing[] =
    " model.name model.weights model.init model.reset_head data.name data.path "
    "data.train_samples data.test_samples data.workers data.distribution "
    "data.rotate data.crop data.flip data.test_fraction ";

// The specs that differ from `spec` in this key alone.
std::vector<JobSpec> Changed(const JobSpec& spec, const JobKey& key) {
  std::vector<JobSpec> changed;
  const auto add = [&](auto value) {
    JobSpec other = spec;
    *std::get<decltype(value)*>(key.at(other, 0)) = value;
    changed.push_back(std::move(other));
  };
  JobSpec from = spec;
  std::visit(
      [&](auto* at) {
        using T = std::remove_pointer_t<decltype(at)>;
        if constexpr (std::is_same_v<T, bool>) {
          add(!*at);
        } else if constexpr (std::is_same_v<T, std::string>) {
          for (const char* word : {"character", "uint16", "norm"}) {
            if (*at != word) add(T(word));
          }
        } else if constexpr (std::is_same_v<T, double>) {
          add(*at + 0.25);
        } else if constexpr (std::is_integral_v<T>) {
          for (const T value : {*at + 1, *at * 2, *at / 2}) {
            if (value != *at) add(static_cast<T>(value));
          }
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          add(T{0.25});
        } else if constexpr (!std::is_same_v<T, std::vector<std::string>>) {
          T twice = *at;
          for (auto& each : twice) each *= 2;
          if (!twice.empty()) add(twice);
        }
      },
      key.at(from, 0));
  return changed;
}

std::set<std::tuple<std::string, Shape, DType>> TensorsOf(
    const ModelDescription& model) {
  std::set<std::tuple<std::string, Shape, DType>> tensors;
  for (const Layer& layer : model.layers) {
    for (const Parameter& each : layer.parameters) {
      tensors.emplace(each.name, each.shape, each.dtype);
    }
  }
  return tensors;
}

// All jobs that a model of the catalogue can have on a data set.
std::vector<JobSpec> Jobs() {
  std::vector<JobSpec> jobs;
  for (const CatalogEntry& entry : ModelCatalog()) {
    for (const std::string& name : DataSetNames()) {
      JobSpec spec;
      spec.model = entry.model;
      // All blocks are alike.
      if (ModelReads(entry.model.name, "depth")) spec.model.depth = 2;
      spec.data = DefaultDataSpec(name);
      if (spec.data.shape.size() == entry.input.size() &&
          FindDataSet(name)->kind == SampleKind::kImages) {
        spec.data.shape = entry.input;
      }
      if (!DescribeModel(spec).ok()) continue;
      jobs.push_back(spec);
      spec.model.lora.rank = 2;
      if (DescribeModel(spec).ok()) jobs.push_back(spec);
    }
  }
  return jobs;
}

// The bug: heads of a file were the job's, and an accuracy fell without a word.
TEST(MadeWith, WhatNoShapeShowsIsRefusedOrSaidForEveryModelAndKey) {
  std::set<std::string> seen;
  for (const JobSpec& spec : Jobs()) {
    const auto model = DescribeModel(spec).value();
    const auto tensors = TensorsOf(model);
    for (const JobKey& key : JobKeys()) {
      const std::string path = key.path;
      const bool concerns =
          absl::StartsWith(path, "model.") || absl::StartsWith(path, "data.");
      if (!concerns || IsAmong(kOfNoBearing, path) ||
          !UnusedKeys(spec, {{path}}).empty()) {
        continue;
      }
      for (const JobSpec& other : Changed(spec, key)) {
        const auto changed = DescribeModel(other);
        if (!changed.ok() || TensorsOf(*changed) != tensors) continue;

        std::vector<std::string> notes;
        const absl::Status same = CheckMadeWith(
            model.made_with, changed->made_with, /*reset_head=*/false, notes);

        EXPECT_TRUE(!same.ok() || !notes.empty())
            << spec.model.name << " on " << spec.data.name << ": " << path;
        if (!same.ok() || !notes.empty()) seen.insert(path);
      }
    }
  }
  for (const char* const path :
       {"model.heads", "model.dropout", "model.lora.alpha", "data.mean",
        "data.deviation", "data.shape", "data.block", "data.tokens",
        "data.padding"}) {
    EXPECT_TRUE(seen.contains(path)) << path;
  }
}

JobSpec Vit() {
  JobSpec spec;
  spec.model = DefaultModel("vit");
  spec.data = DefaultDataSpec("fashion-mnist");
  return spec;
}

absl::Status Check(const JobSpec& file, const JobSpec& job,
                   std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> unread;
  return CheckMadeWith(MetadataOf(DescribeModel(file).value()),
                       DescribeModel(job).value().made_with,
                       job.model.reset_head,
                       notes == nullptr ? unread : *notes);
}

TEST(MadeWith, ARefusalNamesTheKeyAndBothValues) {
  JobSpec other = Vit();
  other.model.heads = 8;
  other.data.mean = {0.5};

  const absl::Status status = Check(Vit(), other);

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("model.heads 4, and the job has 8"),
                    HasSubstr("data.mean [0.286], and the job has [0.5]")));
}

TEST(MadeWith, EqualJobsOfAnotherNameAreSilent) {
  std::vector<std::string> notes;
  JobSpec deit = Vit(), vit = Vit();
  deit.model = DefaultModel("deit_tiny_patch16_224");
  vit.model = DefaultModel("vit_tiny_patch16_224");
  for (JobSpec* const spec : {&deit, &vit}) {
    spec->data = DefaultDataSpec("imagefolder");
  }
  // One number is one for each channel.
  deit.data.mean = {0.5};
  vit.data.mean = {0.5, 0.5, 0.5};

  EXPECT_EQ(Check(deit, vit, &notes), absl::OkStatus());

  EXPECT_THAT(notes, IsEmpty());
}

TEST(MadeWith, AnotherTaskMayHaveOtherData) {
  JobSpec other = Vit();
  other.data.mean = {0.5};
  other.model.reset_head = true;
  std::vector<std::string> notes;

  EXPECT_EQ(Check(Vit(), other, &notes), absl::OkStatus());

  EXPECT_THAT(notes, ElementsAre(HasSubstr("data.mean [0.286]")));
}

TEST(MadeWith, TrainingsOwnSettingsAreOnlySaid) {
  JobSpec other = Vit();
  other.model.dropout = 0.25;
  other.train.layer_drop = 0.5;
  std::vector<std::string> notes;

  EXPECT_EQ(Check(Vit(), other, &notes), absl::OkStatus());

  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("model.dropout 0"),
                                       HasSubstr("train.layer_drop 0"))));
}

TEST(MadeWith, AFileThatSaysNothingIsTakenAtItsWordAndSaid) {
  std::vector<std::string> notes;

  EXPECT_EQ(CheckMadeWith({{"format", "pt"}},
                          DescribeModel(Vit()).value().made_with, false, notes),
            absl::OkStatus());

  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("model.heads 4"),
                                       HasSubstr("data.mean [0.286]"))));
}

TEST(MadeWith, OtherActivationsAreRefusedUnderAnyName) {
  auto metadata = MetadataOf(DescribeModel(Vit()).value());
  EXPECT_THAT(metadata[kOperationsKey], HasSubstr("gelu"));
  metadata[kOperationsKey] = "gelu_new layer_norm";
  std::vector<std::string> notes;

  EXPECT_TRUE(absl::IsInvalidArgument(CheckMadeWith(
      metadata, DescribeModel(Vit()).value().made_with, false, notes)));
}

TEST(MadeWith, BlocksThatWereLeftOutAreSaid) {
  JobSpec without = Vit();
  FaultSpec& fault = without.faults.emplace_back();
  fault.kind = kSkipStage;
  fault.block = 1;
  std::vector<std::string> notes;

  EXPECT_EQ(Check(without, Vit(), &notes), absl::OkStatus());

  EXPECT_THAT(notes, ElementsAre(HasSubstr("faults.block [1]")));
}

TEST(MadeWith, ATeachersIsItsOwn) {
  JobSpec spec = Vit();
  spec.train.distill.weights = "/teacher";
  spec.model.sizes = DescribeModel(Vit()).value().sizes;

  const ModelDescription model = DescribeModel(spec).value();

  ASSERT_NE(model.teacher, nullptr);
  EXPECT_EQ(model.teacher->made_with.at("model.heads"), "4");
}

TEST(CheckClasses, ComparesNamesInTheirOrder) {
  WeightsOrigin origin;
  const auto check = [&](const std::string& data, bool reset_head = false) {
    ModelSpec spec;
    spec.weights = "/w";
    spec.reset_head = reset_head;
    return CheckClasses(origin, data, spec);
  };
  EXPECT_EQ(check("bird\ncat"), absl::OkStatus()) << "the file says nothing";
  origin.metadata[kClassesKey] = "cat\ndog";

  EXPECT_EQ(check("cat\ndog"), absl::OkStatus());
  EXPECT_EQ(check(""), absl::OkStatus()) << "pictures without labels";
  EXPECT_EQ(check("bird\ncat", true), absl::OkStatus()) << "a new head";
  EXPECT_THAT(std::string(check("bird\ncat").message()),
              AllOf(HasSubstr("/w: "),
                    HasSubstr("number 0 is 'cat' there, and 'bird' here")));
  EXPECT_THAT(std::string(check("cat").message()),
              HasSubstr("number 1 is 'dog' there, and nothing here"));
}

}  // namespace
}  // namespace paceline
