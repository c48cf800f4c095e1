#include "client/bench/bench_render.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/table.h"

namespace paceline {
namespace {

std::string Percent(double share) {
  return absl::StrFormat("%.1f", 100 * share);
}

std::string Milliseconds(double seconds) {
  return seconds > 0 ? absl::StrFormat("%.1f", 1e3 * seconds) : "-";
}

}  // namespace

std::string RenderBench(const std::vector<BenchRow>& rows) {
  constexpr Table::Align kRight = Table::Align::kRight;
  Table table({{"stages", kRight},
               {"policy"},
               {"schedule"},
               {"workers", kRight},
               {"samples/s", kRight},
               {"speedup", kRight},
               {"bound", kRight},
               {"of bound %", kRight},
               {"p50 ms", kRight},
               {"p99 ms", kRight},
               {"fill %", kRight},
               {"imbalance %", kRight},
               {"transfer %", kRight},
               {"slowdown %", kRight},
               {"other %", kRight},
               {"plan"}});
  for (const BenchRow& row : rows) {
    table.AddRow({absl::StrCat(row.stages), row.policy,
                  row.schedule.empty() ? "-" : row.schedule,
                  absl::StrCat(row.workers),
                  absl::StrFormat("%.4g", row.throughput),
                  absl::StrFormat("%.2f", row.speedup),
                  absl::StrFormat("%.2f", row.bound),
                  row.bound > 0 ? Percent(row.speedup / row.bound) : "-",
                  Milliseconds(row.latency_p50), Milliseconds(row.latency_p99),
                  Percent(row.losses.fill), Percent(row.losses.imbalance),
                  Percent(row.losses.transfer), Percent(row.losses.slowdown),
                  Percent(row.losses.unexplained), row.plan});
  }
  return table.Render();
}

Document BenchDocument(const BenchOptions& options,
                       const std::vector<BenchRow>& rows) {
  Document::List list;
  for (const BenchRow& row : rows) {
    list.push_back(Document::Map{
        {"stages", row.stages},
        {"policy", row.policy},
        {"schedule",
         row.schedule.empty() ? Document() : Document(row.schedule)},
        {"workers", row.workers},
        {"plan", row.plan},
        {"seconds", row.seconds},
        {"throughput", row.throughput},
        {"speedup", row.speedup},
        {"bound", row.bound},
        {"drift", row.drift},
        {"latency_p50_seconds", SecondsOrNull(row.latency_p50)},
        {"latency_p99_seconds", SecondsOrNull(row.latency_p99)},
        {"losses", Document::Map{{"fill", row.losses.fill},
                                 {"imbalance", row.losses.imbalance},
                                 {"transfer", row.losses.transfer},
                                 {"slowdown", row.losses.slowdown},
                                 {"unexplained", row.losses.unexplained}}}});
  }
  return Document::Map{{"model", options.model},
                       {"micro_batch", options.micro_batch},
                       {"micro_batches", options.micro_batches},
                       {"rows", std::move(list)}};
}

}  // namespace paceline
