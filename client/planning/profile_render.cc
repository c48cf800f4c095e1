#include "client/planning/profile_render.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/table.h"
#include "client/text.h"

namespace paceline {
namespace {

constexpr Table::Align kRight = Table::Align::kRight;

Document LayersDocument(const std::vector<LayerMeasurement>& layers) {
  Document::List list;
  for (const LayerMeasurement& layer : layers) {
    list.push_back(
        Document::Map{{"name", layer.name},
                      {"kind", layer.kind},
                      {"forward_seconds", layer.forward.wall},
                      {"forward_spread_seconds", layer.forward.spread},
                      {"forward_cpu_seconds", layer.forward.cpu},
                      {"backward_seconds", layer.backward.wall},
                      {"backward_spread_seconds", layer.backward.spread},
                      {"backward_cpu_seconds", layer.backward.cpu},
                      {"update_seconds", layer.update_seconds},
                      {"flops", layer.flops},
                      {"output_bytes", layer.output_bytes},
                      {"parameter_bytes", layer.parameter_bytes},
                      {"kept_bytes", layer.kept_bytes}});
  }
  return list;
}

Document ProfileDocument(const DeviceProfile& profile) {
  return Document::Map{
      {"device", profile.key.device},
      {"model", profile.key.model},
      {"micro_batch", profile.key.micro_batch},
      {"dtype", profile.key.dtype},
      {"threads", profile.key.threads},
      {"cpu_capability", profile.cpu_capability},
      {"cpu_model", profile.cpu_model},
      {"runs", profile.runs},
      {"layers", LayersDocument(profile.layers)},
      {"frame_seconds", profile.frame_seconds},
      {"frame_seconds_per_byte", profile.frame_seconds_per_byte},
      {"gate_seconds", profile.gate_seconds},
      {"cpu_share", profile.cpu_share},
      {"quota_period_seconds", profile.quota_period_seconds},
      {"measured_unix_ms", profile.measured_unix_ms}};
}

// "1.25 +- 0.02": milliseconds of one micro-batch.
std::string Milliseconds(const MeasuredSeconds& seconds) {
  return absl::StrFormat("%.3f +- %.3f", seconds.wall * 1e3,
                         seconds.spread * 1e3);
}

std::string Bytes(int64_t bytes) {
  return HumanBytes(static_cast<double>(bytes));
}

std::string LayersTable(const DeviceProfile& profile) {
  Table table({{"layer"},
               {"kind"},
               {"forward ms", kRight},
               {"backward ms", kRight},
               {"output", kRight},
               {"parameters", kRight},
               {"kept", kRight}});
  MeasuredSeconds forward, backward;
  int64_t parameter_bytes = 0, kept_bytes = 0;
  for (const LayerMeasurement& layer : profile.layers) {
    table.AddRow({layer.name, layer.kind, Milliseconds(layer.forward),
                  Milliseconds(layer.backward), Bytes(layer.output_bytes),
                  Bytes(layer.parameter_bytes), Bytes(layer.kept_bytes)});
    forward.wall += layer.forward.wall;
    backward.wall += layer.backward.wall;
    parameter_bytes += layer.parameter_bytes;
    kept_bytes += layer.kept_bytes;
  }
  table.AddRow({"all", "", absl::StrFormat("%.3f", forward.wall * 1e3),
                absl::StrFormat("%.3f", backward.wall * 1e3), "",
                Bytes(parameter_bytes), Bytes(kept_bytes)});
  return table.Render();
}

// A worker sees that it is stopped, not by whom.
std::string ShareText(const DeviceProfile& profile) {
  std::string text =
      absl::StrFormat("%.0f %% of a core", profile.cpu_share * 100);
  if (profile.quota_period_seconds > 0) {
    absl::StrAppend(&text, ", stopped every ",
                    HumanSeconds(profile.quota_period_seconds),
                    ": by a quota, or by what else this machine does; plans "
                    "take it as lasting, so without a quota measure again when "
                    "the machine is quiet");
  }
  return text;
}

std::string RenderProfile(const DeviceProfile& profile) {
  const ProfileKey& key = profile.key;
  std::string text = absl::StrCat(
      Printable(key.device), ": ", Printable(key.model), ", ", key.micro_batch,
      key.micro_batch == 1 ? " sample" : " samples", " a micro-batch, ",
      Printable(key.dtype), ", ", key.threads,
      key.threads == 1 ? " thread, " : " threads, ",
      Printable(profile.cpu_capability), ", median of ", profile.runs,
      " runs\n", LayersTable(profile));
  absl::StrAppend(
      &text, "\n",
      RenderFacts(
          {{"cpu", profile.cpu_model},
           {"a busy thread gets", ShareText(profile)},
           {"a frame costs",
            absl::StrFormat("%.1f us and %.3f us a KiB, at each end",
                            profile.frame_seconds * 1e6,
                            profile.frame_seconds_per_byte * 1024 * 1e6)},
           {"a gate report costs",
            absl::StrFormat("%.1f us", profile.gate_seconds * 1e6)}}));
  return text;
}

std::string CpuText(double seconds_per_byte) {
  return seconds_per_byte > 0
             ? absl::StrFormat("%.2f", seconds_per_byte * 1024 * 1e6)
             : "";
}

std::string LinksTable(const std::vector<LinkMeasurement>& links) {
  Table table({{"from"},
               {"to"},
               {"MB/s", kRight},
               {"latency us", kRight},
               {"us/KiB sent", kRight},
               {"received", kRight}});
  for (const LinkMeasurement& link : links) {
    table.AddRow({link.from, link.to,
                  absl::StrFormat("%.1f", link.bytes_per_second / 1e6),
                  absl::StrFormat("%.1f", link.latency_seconds * 1e6),
                  CpuText(link.send_cpu_seconds_per_byte),
                  CpuText(link.receive_cpu_seconds_per_byte)});
  }
  return table.Render();
}

}  // namespace

Document ToDocument(const ProfileProgress& progress) {
  Document::List profiles, links;
  for (const DeviceProfile& profile : progress.profiles) {
    profiles.push_back(ProfileDocument(profile));
  }
  for (const LinkMeasurement& link : progress.links) {
    links.push_back(Document::Map{
        {"from", link.from},
        {"to", link.to},
        {"bytes_per_second", link.bytes_per_second},
        {"latency_seconds", link.latency_seconds},
        {"measured_unix_ms", link.measured_unix_ms},
        {"send_cpu_seconds_per_byte", link.send_cpu_seconds_per_byte},
        {"receive_cpu_seconds_per_byte", link.receive_cpu_seconds_per_byte}});
  }
  return Document::Map{{"profiles", std::move(profiles)},
                       {"links", std::move(links)},
                       {"failed", TextList(progress.failed)}};
}

std::string RenderProfiles(const ProfileProgress& progress) {
  std::string text;
  for (const DeviceProfile& profile : progress.profiles) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", RenderProfile(profile));
  }
  if (!progress.links.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n",
                    LinksTable(progress.links));
  }
  return text;
}

}  // namespace paceline
