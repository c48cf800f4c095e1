#include "client/rpc/profile_file.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/files.h"
#include "client/rpc/json_fields.h"
#include "client/rpc/plan_file.h"
#include "client/text.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

using nlohmann::json;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

void ReadSeconds(JsonFields& fields, const std::string& direction,
                 MeasuredSeconds& seconds) {
  fields.Amount((direction + "_seconds").c_str(), seconds.wall);
  // Who writes a profile by hand has one time.
  seconds.cpu = seconds.wall;
  fields.OptionalAmount((direction + "_spread_seconds").c_str(),
                        seconds.spread);
  fields.OptionalAmount((direction + "_cpu_seconds").c_str(), seconds.cpu);
}

void ReadLayer(JsonFields& fields, LayerMeasurement& layer) {
  fields.OptionalText("name", layer.name);
  fields.OptionalText("kind", layer.kind);
  ReadSeconds(fields, "forward", layer.forward);
  ReadSeconds(fields, "backward", layer.backward);
  fields.OptionalAmount("update_seconds", layer.update_seconds);
  fields.OptionalAmount("flops", layer.flops);
  fields.Whole("output_bytes", 0, kMost, layer.output_bytes);
  fields.Whole("parameter_bytes", 0, kMost, layer.parameter_bytes);
  fields.Whole("kept_bytes", 0, kMost, layer.kept_bytes);
}

void ReadProfile(JsonFields& fields, DeviceProfile& profile) {
  fields.Text("device", profile.key.device);
  fields.Text("model", profile.key.model);
  fields.Whole("micro_batch", 1, kMost, profile.key.micro_batch);
  fields.OptionalText("dtype", profile.key.dtype);
  if (fields.Has("threads")) {
    fields.Whole("threads", 1, 4096, profile.key.threads);
  }
  fields.OptionalAmount("frame_seconds", profile.frame_seconds);
  fields.OptionalAmount("frame_seconds_per_byte",
                        profile.frame_seconds_per_byte);
  fields.OptionalAmount("gate_seconds", profile.gate_seconds);
  fields.OptionalAmount("cpu_share", profile.cpu_share);
  fields.OptionalAmount("quota_period_seconds", profile.quota_period_seconds);
  if (!(profile.cpu_share > 0 && profile.cpu_share <= 1)) {
    fields.Fail("cpu_share", absl::StrCat("is ", profile.cpu_share,
                                          ", need above 0, at most 1"));
  }
  fields.ForEach("layers", [&](JsonFields& layer) {
    ReadLayer(layer, profile.layers.emplace_back());
  });
  if (profile.layers.empty()) fields.Fail("layers", "there are none");
}

void ReadLink(JsonFields& fields, LinkMeasurement& link) {
  fields.Text("from", link.from);
  fields.Text("to", link.to);
  fields.Amount("bytes_per_second", link.bytes_per_second);
  fields.OptionalAmount("latency_seconds", link.latency_seconds);
  fields.OptionalAmount("send_cpu_seconds_per_byte",
                        link.send_cpu_seconds_per_byte);
  fields.OptionalAmount("receive_cpu_seconds_per_byte",
                        link.receive_cpu_seconds_per_byte);
  if (link.bytes_per_second <= 0) {
    fields.Fail("bytes_per_second", "is 0, need more");
  }
}

// Layers of two profiles mean the same.
bool AreAlike(const DeviceProfile& a, const DeviceProfile& b) {
  return a.key.model == b.key.model && a.key.micro_batch == b.key.micro_batch &&
         a.layers.size() == b.layers.size();
}

void CheckAlike(JsonFields& root, const std::vector<DeviceProfile>& profiles) {
  std::set<std::string> devices;
  for (const DeviceProfile& profile : profiles) {
    if (!devices.insert(profile.key.device).second) {
      root.Fail("profiles",
                absl::StrCat("device ", Printable(profile.key.device),
                             " has two: keep one"));
    }
    if (!AreAlike(profile, profiles.front())) {
      root.Fail("profiles",
                absl::StrCat("of ", Printable(profiles.front().key.model),
                             " in micro-batches of ",
                             profiles.front().key.micro_batch, " and of ",
                             Printable(profile.key.model), " in those of ",
                             profile.key.micro_batch,
                             ": a plan is made from one of them"));
    }
  }
}

absl::StatusOr<ProfileSource> ReadProfiles(const json& value) {
  absl::Status status;
  ProfileSource source;
  JsonFields root(value, "", status);
  root.ForEach("profiles", [&](JsonFields& fields) {
    ReadProfile(fields, source.profiles.emplace_back());
  });
  if (root.Has("links")) {
    root.ForEach("links", [&](JsonFields& fields) {
      ReadLink(fields, source.links.emplace_back());
    });
  }
  if (source.profiles.empty()) root.Fail("profiles", "there are none");
  CheckAlike(root, source.profiles);
  PACELINE_RETURN_IF_ERROR(status);
  return source;
}

absl::StatusOr<ProfileSource> Parse(const std::string& name,
                                    const std::string& text) {
  ProfileSource source;
  if (!absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{")) {
    PACELINE_ASSIGN_OR_RETURN(source.graph, ParseGraphProfile(text));
    return source;
  }
  PACELINE_ASSIGN_OR_RETURN(const json value, ParseJson(name, text));
  if (!value.contains("problem")) return ReadProfiles(value);
  PACELINE_ASSIGN_OR_RETURN(source.plan, ParsePlanFile(name, text));
  return source;
}

}  // namespace

absl::StatusOr<ProfileSource> ParseProfileFile(const std::string& name,
                                               const std::string& text) {
  absl::StatusOr<ProfileSource> source = Parse(name, text);
  if (!source.ok()) {
    const absl::string_view why = source.status().message();
    return absl::InvalidArgumentError(absl::StartsWith(why, name)
                                          ? std::string(why)
                                          : absl::StrCat(name, ": ", why));
  }
  source->name = name;
  return source;
}

absl::StatusOr<ProfileSource> ReadProfileFile(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadWholeFile(path, kMaxPlanFileBytes));
  return ParseProfileFile(path, text);
}

}  // namespace paceline
