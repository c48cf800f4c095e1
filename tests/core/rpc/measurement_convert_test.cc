#include "core/rpc/measurement_convert.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace paceline {
namespace {

// A measurement as the coordinator gets it.
absl::StatusOr<Measurement> Sent(const Measurement& measurement) {
  v1::Measurement proto;
  if (!proto.ParseFromString(ToProto(measurement).SerializeAsString())) {
    return absl::DataLossError("the coordinator cannot read it");
  }
  return FromProto(proto);
}

TEST(ConvertMeasurement, CarriesAnErrorOfAnyBytesAndAnyLength) {
  Measurement measurement;
  measurement.id = 7;
  measurement.error = absl::NotFoundError("no file caf\xE9.pt");
  auto got = Sent(measurement);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->id, 7);
  EXPECT_EQ(got->error, absl::NotFoundError("no file caf\\xe9.pt"));

  measurement.error = absl::NotFoundError(std::string(20 << 20, 'x'));
  got = Sent(measurement);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_LE(got->error.message().size(), size_t{16} << 10);
}

TEST(ConvertMeasurement, RefusesMoreLinksThanThereAndBack) {
  Measurement measurement;
  measurement.links = {{"a", "b", 1e8, 1e-3, 0}, {"b", "a", 1e8, 1e-3, 0}};
  EXPECT_TRUE(Sent(measurement).ok());
  measurement.links.push_back({"a", "c", 1e8, 1e-3, 0});

  const absl::Status status = Sent(measurement).status();

  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("3 links, need at most 2"));
}

TEST(ConvertMeasurement, CarriesNamesOfAnyBytes) {
  Measurement measurement;
  measurement.profile.emplace();
  measurement.profile->key.micro_batch = 1;
  measurement.profile->cpu_model = "CPU\xAE";
  measurement.profile->layers.emplace_back().name = "conv\xFF";
  measurement.script.emplace();
  ScriptLayer layer;
  layer.name = "\xC0";
  layer.parameters.emplace_back().name = "\xC1";
  measurement.script->layers = {layer};

  const auto got = Sent(measurement);

  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->profile->cpu_model, "CPU\\xae");
  EXPECT_EQ(got->profile->layers[0].name, "conv\\xff");
  EXPECT_EQ(got->script->layers[0].name, "\\xc0");
  EXPECT_EQ(got->script->layers[0].parameters[0].name, "\\xc1");
}

}  // namespace
}  // namespace paceline
