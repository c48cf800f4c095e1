#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/rpc/convert/job_convert.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "tests/core/rpc/filler.h"

namespace paceline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Fields that are not set, by their path: ToProto promises that there is none.
std::string Unset(const Message& message, const std::string& path = "") {
  const auto* descriptor = message.GetDescriptor();
  const Reflection* reflection = message.GetReflection();
  std::string unset;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const std::string name = absl::StrCat(path, field->name());
    if (field->is_repeated() || !field->has_presence()) continue;
    if (!reflection->HasField(message, field)) {
      absl::StrAppend(&unset, name, " ");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      unset += Unset(reflection->GetMessage(message, field), name + ".");
    }
  }
  return unset;
}

TEST(ConvertJobSpec, KeepsEveryFieldThatTheProtoKnows) {
  EXPECT_EQ(LostOnTheWay(Filled<v1::JobSpec>()), "");
}

TEST(ConvertJobSpec, SetsEveryFieldEvenWhenItIsTheDefault) {
  EXPECT_EQ(Unset(ToProto(JobSpec())), "");
}

TEST(ConvertJobSpec, FillsInTheStructsDefaultsForWhatIsAbsent) {
  EXPECT_EQ(Difference(ToProto(JobSpec()), ToProto(FromProto(v1::JobSpec()))),
            "");
}

TEST(ConvertJobSpec, TakesAZeroThatSomebodyWroteForAZero) {
  v1::JobSpec proto;
  proto.set_threads(0);
  proto.mutable_data()->set_workers(0);
  proto.mutable_train()->mutable_learning_rate()->set_base(0);
  proto.mutable_train()->set_evaluate_every(0);
  proto.mutable_pipeline()->set_schedule("");

  const JobSpec spec = FromProto(proto);

  EXPECT_EQ(spec.threads, 0);
  EXPECT_EQ(spec.data.workers, 0);
  EXPECT_EQ(spec.train.learning_rate.base, 0);
  EXPECT_EQ(spec.train.evaluate_every, 0);
  EXPECT_EQ(spec.pipeline.schedule, "");
}

TEST(ConvertJobSpec, KnowsEachDataSetsOwnDefaults) {
  v1::JobSpec proto;
  proto.mutable_data()->set_name("cifar100");
  EXPECT_EQ(FromProto(proto).data.shape, (Shape{3, 32, 32}));
  EXPECT_EQ(FromProto(proto).data.classes, 100);

  proto.mutable_data()->set_name("text");
  proto.mutable_data()->set_block(64);
  EXPECT_EQ(FromProto(proto).data.shape, Shape{64});
  EXPECT_EQ(FromProto(proto).data.classes, 256);

  proto.mutable_data()->add_shape(7);
  EXPECT_EQ(FromProto(proto).data.shape, Shape{7}) << "to be complained about";
}

TEST(ConvertJobSpec, FillsInTheModelsOwnSizesAndData) {
  v1::JobSpec proto;
  proto.mutable_model()->set_name("deit_small_patch16_224");
  proto.mutable_model()->set_depth(3);
  proto.mutable_data()->set_name("synthetic");

  const JobSpec spec = FromProto(proto);

  EXPECT_EQ(spec.model.depth, 3);
  EXPECT_EQ(spec.model.width, 384);
  EXPECT_EQ(spec.data.shape, (Shape{3, 224, 224}));
  EXPECT_EQ(spec.data.classes, 1000);
}

TEST(ConvertJobSpec, LeavesADataSetTheShapeThatItHas) {
  v1::JobSpec proto;
  proto.mutable_model()->set_name("deit_small_patch16_224");
  proto.mutable_data()->set_name("fashion-mnist");
  EXPECT_EQ(FromProto(proto).data.shape, (Shape{1, 28, 28}));
  EXPECT_EQ(FromProto(proto).data.classes, 10);

  proto.mutable_data()->set_name("synthetic");
  proto.mutable_data()->set_classes(7);
  EXPECT_EQ(FromProto(proto).data.shape, (Shape{3, 224, 224}));
  EXPECT_EQ(FromProto(proto).data.classes, 7);
}

TEST(ConvertJobSpec, NamesAJobWithoutANameAfterItsModel) {
  v1::JobSpec proto;
  proto.mutable_model()->set_name("lenet");
  EXPECT_EQ(FromProto(proto).name, "lenet");

  proto.set_name("my job");
  EXPECT_EQ(FromProto(proto).name, "my job");
}

StepReport SampleReport() {
  return {.step = 7,
          .stage = 2,
          .result_hash = 0xFEDCBA9876543210u,
          .squared_norms = {0.1, 0, 1e76},
          .finite = true,
          .samples = 60};
}

TEST(ConvertStepReport, ComesBackTheSame) {
  EXPECT_EQ(FromProto(ToProto(SampleReport())).value(), SampleReport());
}

TEST(ConvertStepReport, MayHoldInfinityAndNanWhenItSaysSo) {
  StepReport report = SampleReport();
  report.finite = false;
  report.squared_norms = {std::numeric_limits<double>::infinity(), NAN};

  const absl::StatusOr<StepReport> back = FromProto(ToProto(report));

  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::isnan(back->squared_norms[1]));
  EXPECT_FALSE(back->finite);
}

TEST(ConvertStepReport, RefusesWhatNoGradientCanHave) {
  const auto refused = [](auto change) {
    v1::StepReport proto = ToProto(SampleReport());
    change(proto);
    return FromProto(proto).status();
  };
  const auto kBad = absl::StatusCode::kInvalidArgument;

  const absl::Status negative =
      refused([](auto& p) { p.set_squared_norms(1, -0.5); });
  EXPECT_EQ(negative.code(), kBad);
  EXPECT_EQ(negative.message(),
            "report of stage 2 step 7: squared_norms[1] is -0.5, below 0");
  using Spoil = void (*)(v1::StepReport&);
  for (const Spoil spoil : std::initializer_list<Spoil>{
           [](auto& p) { p.set_step(-1); }, [](auto& p) { p.set_stage(-1); },
           [](auto& p) { p.set_samples(-1); },
           [](auto& p) { p.set_squared_norms(1, NAN); },
           [](auto& p) {
             p.set_squared_norms(2, std::numeric_limits<double>::infinity());
           }}) {
    EXPECT_EQ(refused(spoil).code(), kBad);
  }
}

TEST(ConvertStepVerdict, KeepsEveryFieldThatTheProtoKnows) {
  EXPECT_EQ(LostOnTheWay(Filled<v1::StepVerdict>()), "");
}

}  // namespace
}  // namespace paceline
