#include "core/rpc/convert/measurement_convert.h"

#include <string>

#include "core/rpc/convert/job_convert.h"
#include "core/rpc/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// As the coordinator gets it.
v1::Measurement Sent(const v1::Measurement& measurement) {
  v1::Measurement got;
  EXPECT_TRUE(got.ParseFromString(measurement.SerializeAsString()));
  return got;
}

TEST(CheckMeasurement, LetsAnErrorOfAnyBytesAndAnyLengthThrough) {
  v1::Measurement measurement;
  SetError(absl::NotFoundError("no file caf\xE9.pt"), measurement);
  EXPECT_TRUE(CheckMeasurement(Sent(measurement)).ok());
  EXPECT_EQ(ErrorOf(Sent(measurement)),
            absl::NotFoundError("no file caf\\xe9.pt"));

  SetError(absl::NotFoundError(std::string(20 << 20, 'x')), measurement);
  EXPECT_LE(measurement.error_message().size(), size_t{16} << 10);
  measurement.set_error_message(std::string(20 << 20, 'x'));
  EXPECT_LE(ErrorOf(measurement).message().size(), size_t{16} << 10);
}

TEST(CheckMeasurement, RefusesACodeThatDoesNotExist) {
  v1::Measurement measurement;
  for (const int code : {-1, 17}) {
    measurement.set_error_code(code);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckMeasurement(measurement)));
  }
}

TEST(CheckMeasurement, RefusesMoreLinksThanThereAndBack) {
  v1::Measurement measurement;
  for (const LinkMeasurement& link :
       {LinkMeasurement{"a", "b", 1e8, 1e-3, 0},
        LinkMeasurement{"b", "a", 1e8, 1e-3, 0}}) {
    *measurement.add_links() = ToProto(link);
  }
  EXPECT_TRUE(CheckMeasurement(measurement).ok());
  *measurement.add_links() = measurement.links(0);

  const absl::Status status = CheckMeasurement(measurement);

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("links: got 3, need 0 to 2"));
}

TEST(CheckMeasurement, RefusesMoreMissingFilesThanWereEverAskedFor) {
  v1::Measurement measurement;
  for (int i = 0; i < kMaxFilesLookedFor; ++i) measurement.add_missing();
  EXPECT_TRUE(CheckMeasurement(measurement).ok());

  measurement.add_missing();

  EXPECT_TRUE(absl::IsInvalidArgument(CheckMeasurement(measurement)));
}

TEST(MeasureOrders, ToLookForFilesArriveAsTheyWere) {
  MeasureOrder order;
  order.id = 7;
  order.files = {"/data", "/net.pt"};
  order.reader.emplace().model.name = "lenet";
  order.inputs.set_teacher(8);

  const auto arrived = FromProto(ToProto(order));

  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_EQ(arrived->id, 7);
  EXPECT_EQ(arrived->files, order.files);
  EXPECT_EQ(arrived->reader.value().model.name, "lenet");
  EXPECT_EQ(arrived->inputs.teacher(), 8u);
  EXPECT_FALSE(arrived->layers.has_value() || arrived->link.has_value());
}

TEST(CheckMeasurement, RefusesAProfileAndALinkThatCannotBe) {
  v1::Measurement profile;
  profile.mutable_profile();  // of no layers
  v1::Measurement link;
  link.add_links();  // of no bandwidth, to itself

  EXPECT_TRUE(absl::IsInvalidArgument(CheckMeasurement(profile)));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckMeasurement(link)));
}

TEST(ConvertMeasurement, CarriesNamesOfAnyBytes) {
  DeviceProfile profile;
  profile.key.micro_batch = 1;
  profile.cpu_model = "CPU\xAE";
  profile.layers.emplace_back().name = "conv\xFF";
  ScriptModel script;
  ScriptLayer layer;
  layer.name = "\xC0";
  layer.parameters.emplace_back().name = "\xC1";
  script.layers = {layer};
  v1::Measurement measurement;
  *measurement.mutable_profile() = ToProto(profile);
  *measurement.mutable_script() = ToProto(script);

  const v1::Measurement got = Sent(measurement);

  EXPECT_TRUE(CheckMeasurement(got).ok());
  EXPECT_EQ(got.profile().cpu_model(), "CPU\\xae");
  EXPECT_EQ(got.profile().layers(0).name(), "conv\\xff");
  EXPECT_EQ(got.script().layers(0).name(), "\\xc0");
  EXPECT_EQ(got.script().layers(0).parameters(0).name(), "\\xc1");
}

}  // namespace
}  // namespace paceline
