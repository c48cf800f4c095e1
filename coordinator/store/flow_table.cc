#include "coordinator/store/flow_table.h"

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/cluster/flow_fields.h"

namespace paceline {
namespace {

// ", micro_batches, samples, ...": columns are called as the fields are, but
// for one that is a word of SQL.
std::string Columns() {
  std::string columns;
  FlowTimes flow;
  ForEachFlowField(flow, [&columns](absl::string_view name, const auto&) {
    absl::StrAppend(&columns, ", ", name == "update" ? "update_time" : name);
  });
  return columns;
}

std::string Places() {
  std::string places;
  FlowTimes flow;
  ForEachFlowField(flow, [&places](absl::string_view, const auto&) {
    absl::StrAppend(&places, ",?");
  });
  return places;
}

void BindField(Query& query, absl::string_view /*name*/, int64_t value) {
  query.Bind(value);
}

// A loss may be NaN, which these columns do not take: the worst that they do.
void BindField(Query& query, absl::string_view name, double value) {
  query.BindOr(value,
               name == "loss" ? std::numeric_limits<double>::infinity() : 0);
}

}  // namespace

absl::Status PutFlows(Database& database, const JobRecord& job) {
  const std::string sql =
      absl::StrCat("INSERT OR REPLACE INTO flow_times (job, worker", Columns(),
                   ") VALUES (?,?", Places(), ")");
  for (const JobWorker& worker : job.workers) {
    if (!worker.flow.has_value()) continue;
    Query query(database, sql.c_str());
    query.Bind(job.id.value).Bind(worker.id.value);
    ForEachFlowField(*worker.flow,
                     [&query](absl::string_view name, const auto& value) {
                       BindField(query, name, value);
                     });
    PACELINE_RETURN_IF_ERROR(query.Run());
  }
  return absl::OkStatus();
}

absl::Status LoadFlows(Database& database, JobRecord& job) {
  const std::string sql =
      absl::StrCat("SELECT worker", Columns(), " FROM flow_times WHERE job=?");
  Query query(database, sql.c_str());
  query.Bind(job.id.value);
  while (query.Next()) {
    for (JobWorker& worker : job.workers) {
      if (worker.id.value != query.Integer(0)) continue;
      int column = 0;
      ForEachFlowField(worker.flow.emplace(),
                       [&query, &column](absl::string_view, auto& value) {
                         using Value = std::decay_t<decltype(value)>;
                         ++column;
                         if constexpr (std::is_same_v<Value, int64_t>) {
                           value = query.Integer(column);
                         } else {
                           value = query.Real(column);
                         }
                       });
    }
  }
  return query.status();
}

}  // namespace paceline
