#include "coordinator/store/measurement_tables.h"

#include <cstddef>
#include <utility>

#include "core/base/status_macros.h"

namespace paceline {
namespace {

void BindKey(Query& query, const ProfileKey& key) {
  query.Bind(key.model)
      .Bind(key.micro_batch)
      .Bind(key.dtype)
      .Bind(int64_t{key.threads})
      .Bind(key.device);
}

absl::Status PutLayer(Database& database, const ProfileKey& key, size_t index,
                      const LayerMeasurement& layer) {
  Query query(database,
              "INSERT OR REPLACE INTO layer_profiles (model, micro_batch, "
              "dtype, threads, device, layer, name, kind, forward, "
              "forward_spread, forward_cpu, backward, backward_spread, "
              "backward_cpu, update_seconds, flops, output_bytes, "
              "parameter_bytes, kept_bytes) "
              "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  BindKey(query, key);
  return query.Bind(static_cast<int64_t>(index))
      .Bind(layer.name)
      .Bind(layer.kind)
      .Bind(layer.forward.wall)
      .Bind(layer.forward.spread)
      .Bind(layer.forward.cpu)
      .Bind(layer.backward.wall)
      .Bind(layer.backward.spread)
      .Bind(layer.backward.cpu)
      .Bind(layer.update_seconds)
      .Bind(layer.flops)
      .Bind(layer.output_bytes)
      .Bind(layer.parameter_bytes)
      .Bind(layer.kept_bytes)
      .Run();
}

absl::Status PutProfile(Database& database, const DeviceProfile& profile) {
  Query query(database,
              "INSERT OR REPLACE INTO device_profiles (model, micro_batch, "
              "dtype, threads, device, cpu_capability, cpu_model, runs, "
              "frame_seconds, frame_seconds_per_byte, gate_seconds, cpu_share, "
              "quota_period_seconds, unix_ms) "
              "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  BindKey(query, profile.key);
  PACELINE_RETURN_IF_ERROR(query.Bind(profile.cpu_capability)
                               .Bind(profile.cpu_model)
                               .Bind(int64_t{profile.runs})
                               .Bind(profile.frame_seconds)
                               .Bind(profile.frame_seconds_per_byte)
                               .Bind(profile.gate_seconds)
                               .Bind(profile.cpu_share)
                               .Bind(profile.quota_period_seconds)
                               .Bind(profile.measured_unix_ms)
                               .Run());
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(
        PutLayer(database, profile.key, i, profile.layers[i]));
  }
  return absl::OkStatus();
}

absl::Status LoadLayers(Database& database, DeviceProfile& profile) {
  Query query(database,
              "SELECT name, kind, forward, forward_spread, forward_cpu, "
              "backward, backward_spread, backward_cpu, update_seconds, flops, "
              "output_bytes, parameter_bytes, kept_bytes FROM layer_profiles "
              "WHERE model=? AND micro_batch=? AND dtype=? AND threads=? AND "
              "device=? ORDER BY layer");
  BindKey(query, profile.key);
  while (query.Next()) {
    LayerMeasurement layer;
    layer.name = query.Text(0);
    layer.kind = query.Text(1);
    layer.forward = {query.Real(2), query.Real(3), query.Real(4)};
    layer.backward = {query.Real(5), query.Real(6), query.Real(7)};
    layer.update_seconds = query.Real(8);
    layer.flops = query.Real(9);
    layer.output_bytes = query.Integer(10);
    layer.parameter_bytes = query.Integer(11);
    layer.kept_bytes = query.Integer(12);
    profile.layers.push_back(std::move(layer));
  }
  return query.status();
}

absl::Status LoadProfiles(Database& database,
                          StoredMeasurements& measurements) {
  Query query(database,
              "SELECT model, micro_batch, dtype, threads, device, "
              "cpu_capability, cpu_model, runs, frame_seconds, "
              "frame_seconds_per_byte, gate_seconds, cpu_share, "
              "quota_period_seconds, unix_ms FROM device_profiles");
  while (query.Next()) {
    DeviceProfile profile;
    profile.key = {query.Text(0), query.Integer(1), query.Text(2),
                   static_cast<int32_t>(query.Integer(3)), query.Text(4)};
    profile.cpu_capability = query.Text(5);
    profile.cpu_model = query.Text(6);
    profile.runs = static_cast<int32_t>(query.Integer(7));
    profile.frame_seconds = query.Real(8);
    profile.frame_seconds_per_byte = query.Real(9);
    profile.gate_seconds = query.Real(10);
    profile.cpu_share = query.Real(11);
    profile.quota_period_seconds = query.Real(12);
    profile.measured_unix_ms = query.Integer(13);
    PACELINE_RETURN_IF_ERROR(LoadLayers(database, profile));
    measurements.Put(profile);
  }
  return query.status();
}

}  // namespace

absl::Status PutMeasurements(Database& database,
                             const StoredMeasurements& measurements) {
  for (const auto& [key, profile] : measurements.profiles) {
    PACELINE_RETURN_IF_ERROR(PutProfile(database, profile));
  }
  for (const auto& [ends, link] : measurements.links) {
    PACELINE_RETURN_IF_ERROR(
        Query(database,
              "INSERT OR REPLACE INTO links (from_device, to_device, "
              "bytes_per_second, latency_seconds, unix_ms, "
              "send_cpu_seconds_per_byte, receive_cpu_seconds_per_byte) "
              "VALUES (?,?,?,?,?,?,?)")
            .Bind(link.from)
            .Bind(link.to)
            .Bind(link.bytes_per_second)
            .Bind(link.latency_seconds)
            .Bind(link.measured_unix_ms)
            .Bind(link.send_cpu_seconds_per_byte)
            .Bind(link.receive_cpu_seconds_per_byte)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status LoadMeasurements(Database& database,
                              StoredMeasurements& measurements) {
  PACELINE_RETURN_IF_ERROR(LoadProfiles(database, measurements));
  Query query(database,
              "SELECT from_device, to_device, bytes_per_second, "
              "latency_seconds, unix_ms, send_cpu_seconds_per_byte, "
              "receive_cpu_seconds_per_byte FROM links");
  while (query.Next()) {
    measurements.Put(LinkMeasurement{
        query.Text(0), query.Text(1), query.Real(2), query.Real(3),
        query.Integer(4), query.Real(5), query.Real(6)});
  }
  return query.status();
}

}  // namespace paceline
