#include "core/rpc/convert.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::MessageDifferencer;

// Gives every field of a message, and of those inside, a value that no other
// field has and that is nobody's default.
class Filler {
 public:
  void Fill(Message& message) {
    const auto* descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (field->is_repeated()) {
        Add(message, field);
        Add(message, field);
      } else {
        Set(message, field);
      }
    }
  }

 private:
  void Set(Message& message, const FieldDescriptor* field) {
    const Reflection* reflection = message.GetReflection();
    ++next_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->SetInt32(&message, field, next_);
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->SetInt64(&message, field,
                                    (int64_t{1} << 40) + next_);
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->SetUInt64(&message, field,
                                     (uint64_t{1} << 63) + next_);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->SetDouble(&message, field, next_ + 0.1);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->SetFloat(&message, field, next_ + 0.1f);
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->SetBool(&message, field, true);
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->SetString(&message, field,
                                     absl::StrCat(field->name(), next_));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(*reflection->MutableMessage(&message, field));
      default:
        FAIL() << "teach the filler the type of " << field->full_name();
    }
  }

  void Add(Message& message, const FieldDescriptor* field) {
    const Reflection* reflection = message.GetReflection();
    ++next_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->AddInt32(&message, field, next_);
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->AddInt64(&message, field,
                                    (int64_t{1} << 40) + next_);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->AddDouble(&message, field, next_ + 0.1);
      default:
        FAIL() << "teach the filler the type of " << field->full_name();
    }
  }

  int next_ = 1000;
};

// Empty when equal; else what differs.
std::string Difference(const Message& want, const Message& got) {
  std::string report;
  MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  return differencer.Compare(want, got) ? "" : report;
}

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
  v1::JobSpec proto;
  Filler().Fill(proto);

  EXPECT_EQ(Difference(proto, ToProto(FromProto(proto))), "");
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
  proto.mutable_data()->set_prefetch_threads(0);
  proto.mutable_train()->mutable_learning_rate()->set_base(0);
  proto.mutable_train()->set_evaluate_every(0);
  proto.mutable_pipeline()->set_schedule("");

  const JobSpec spec = FromProto(proto);

  EXPECT_EQ(spec.threads, 0);
  EXPECT_EQ(spec.data.prefetch_threads, 0);
  EXPECT_EQ(spec.train.learning_rate.base, 0);
  EXPECT_EQ(spec.train.evaluate_every, 0);
  EXPECT_EQ(spec.pipeline.schedule, "");
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
  const StepReport report = SampleReport();

  const absl::StatusOr<StepReport> back = FromProto(ToProto(report));

  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, report);
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

  EXPECT_EQ(refused([](auto& p) { p.set_step(-1); }).code(), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_stage(-1); }).code(), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_samples(-1); }).code(), kBad);
  EXPECT_EQ(refused([](auto& p) { p.set_squared_norms(1, NAN); }).code(), kBad);
  EXPECT_EQ(refused([](auto& p) {
              p.set_squared_norms(2, std::numeric_limits<double>::infinity());
            }).code(),
            kBad);
  const absl::Status negative =
      refused([](auto& p) { p.set_squared_norms(1, -0.5); });
  EXPECT_EQ(negative.code(), kBad);
  EXPECT_EQ(negative.message(),
            "report of stage 2 step 7: squared_norms[1] is -0.5, below 0");
}

TEST(ConvertStepVerdict, KeepsEveryFieldThatTheProtoKnows) {
  v1::StepVerdict proto;
  Filler().Fill(proto);

  EXPECT_EQ(Difference(proto, ToProto(FromProto(proto))), "");
}

}  // namespace
}  // namespace paceline
