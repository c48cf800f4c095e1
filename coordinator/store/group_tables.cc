#include "coordinator/store/group_tables.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace paceline {
namespace {

absl::Status PutView(Database& database, JobId job, const KeptView& kept) {
  const View& view = kept.view;
  PACELINE_RETURN_IF_ERROR(
      Query(database,
            "INSERT OR REPLACE INTO views (job, attempt, term, counter, "
            "leveller, leveller_incarnation, faults_are_spent) VALUES "
            "(?,?,?,?,?,?,?)")
          .Bind(job.value)
          .Bind(kept.attempt)
          .Bind(view.id.term)
          .Bind(view.id.counter)
          .Bind(view.leveller.worker.value)
          .Bind(static_cast<int64_t>(view.leveller.incarnation.value))
          .Bind(int64_t{kept.faults_are_spent})
          .Run());
  for (const char* const clear : {"DELETE FROM view_members WHERE job=?",
                                  "DELETE FROM view_excluded WHERE job=?"}) {
    PACELINE_RETURN_IF_ERROR(Query(database, clear).Bind(job.value).Run());
  }
  for (const auto& [worker, incarnation] : kept.excluded) {
    PACELINE_RETURN_IF_ERROR(
        Query(database,
              "INSERT INTO view_excluded (job, worker, incarnation) VALUES "
              "(?,?,?)")
            .Bind(job.value)
            .Bind(worker.value)
            .Bind(static_cast<int64_t>(incarnation.value))
            .Run());
  }
  for (const ViewMember& member : view.members) {
    PACELINE_RETURN_IF_ERROR(
        Query(database,
              "INSERT INTO view_members (job, worker, incarnation, from_step, "
              "share) VALUES (?,?,?,?,?)")
            .Bind(job.value)
            .Bind(member.id.worker.value)
            .Bind(static_cast<int64_t>(member.id.incarnation.value))
            .Bind(member.from_step)
            .Bind(member.share)
            .Run());
  }
  return absl::OkStatus();
}

absl::Status LoadMembers(Database& database, JobId job, View& view) {
  Query query(database,
              "SELECT worker, incarnation, from_step, share FROM view_members "
              "WHERE job=? ORDER BY worker");
  query.Bind(job.value);
  while (query.Next()) {
    view.members.push_back({{WorkerId{query.Integer(0)},
                             {static_cast<uint64_t>(query.Integer(1))}},
                            query.Integer(2),
                            query.Real(3)});
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  // A group whose last member is gone keeps no leveller.
  if (view.members.empty()) return absl::OkStatus();
  const absl::Status checked = CheckView(view);
  if (checked.ok()) return checked;
  return absl::DataLossError(absl::StrCat(
      "job ", job.value, " in the store is damaged: ", checked.message()));
}

absl::Status LoadExcluded(Database& database, StoredState& state) {
  Query query(database, "SELECT job, worker, incarnation FROM view_excluded");
  while (query.Next()) {
    const auto kept = state.views.find(JobId{query.Integer(0)});
    if (kept == state.views.end()) continue;
    kept->second.excluded[WorkerId{query.Integer(1)}] =
        Incarnation{static_cast<uint64_t>(query.Integer(2))};
  }
  return query.status();
}

}  // namespace

absl::Status PutGroups(Database& database, const StoreBatch& batch) {
  for (const auto& [worker, drained] : batch.drained) {
    PACELINE_RETURN_IF_ERROR(
        Query(database, drained
                            ? "INSERT OR REPLACE INTO drained (worker) VALUES "
                              "(?)"
                            : "DELETE FROM drained WHERE worker=?")
            .Bind(worker.value)
            .Run());
  }
  if (batch.term.has_value()) {
    PACELINE_RETURN_IF_ERROR(
        Query(database, "UPDATE meta SET value=max(value,?) WHERE key='term'")
            .Bind(*batch.term)
            .Run());
  }
  for (const auto& [job, view] : batch.views) {
    PACELINE_RETURN_IF_ERROR(PutView(database, job, view));
  }
  return absl::OkStatus();
}

absl::Status LoadGroups(Database& database, StoredState& state) {
  PACELINE_ASSIGN_OR_RETURN(
      state.term,
      database.QueryInteger("SELECT value FROM meta WHERE key='term'"));
  Query drained(database, "SELECT worker FROM drained");
  while (drained.Next()) state.drained.insert(WorkerId{drained.Integer(0)});
  PACELINE_RETURN_IF_ERROR(drained.status());
  Query query(database,
              "SELECT job, attempt, term, counter, leveller, "
              "leveller_incarnation, faults_are_spent FROM views");
  while (query.Next()) {
    const JobId job{query.Integer(0)};
    KeptView& kept = state.views[job];
    kept.attempt = query.Integer(1);
    kept.view.id = {query.Integer(2), query.Integer(3)};
    kept.view.leveller = {WorkerId{query.Integer(4)},
                          {static_cast<uint64_t>(query.Integer(5))}};
    kept.faults_are_spent = query.Integer(6) != 0;
    PACELINE_RETURN_IF_ERROR(LoadMembers(database, job, kept.view));
  }
  PACELINE_RETURN_IF_ERROR(query.status());
  return LoadExcluded(database, state);
}

}  // namespace paceline
