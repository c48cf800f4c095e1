#include "coordinator/store/sqlite.h"

#include <sys/resource.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/errors.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<Database>> Database::Open(
    const std::string& path) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  // Even a failed open gives a handle, which has the message and must be
  // closed.
  std::unique_ptr<Database> database(new Database(path, handle));
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3_extended_result_codes(handle, 1);
  return database;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

absl::Status Database::Error(int code) const {
  const std::string message = absl::StrCat(
      "data base ", path_, ": ",
      handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code));
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return DataLoss(message, kMoveAway);
    case SQLITE_FULL:
      return ResourceExhausted(message, "; make room on that disk");
    case SQLITE_IOERR:
      // A full disk may also cut a write short.
      if (code == SQLITE_IOERR_WRITE) {
        return ResourceExhausted(message, "; is that disk full?");
      }
      [[fallthrough]];
    default:
      return Internal(message);
  }
}

absl::Status Database::Execute(const std::string& sql) {
  const int code =
      sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<int64_t> Database::QueryInteger(const std::string& sql) {
  Query query(*this, sql.c_str());
  if (query.Next()) return query.Integer(0);
  if (!query.status().ok()) return query.status();
  return DataLoss("data base ", path_, ": no answer to ", sql);
}

void Query::Prepare() {
  const auto kept = database_.statements_.extract(sql_);
  if (!kept.empty()) {
    statement_ = kept.mapped();
    return;
  }
  Check(sqlite3_prepare_v2(database_.handle(), sql_, -1, &statement_, nullptr));
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  if (!database_.statements_.emplace(sql_, statement_).second) {
    sqlite3_finalize(statement_);
  }
}

void Query::Bind(int64_t value) {
  Check(sqlite3_bind_int64(statement_, ++bound_, value));
}

void Query::Bind(const std::string& text) {
  Check(sqlite3_bind_text(statement_, ++bound_, text.data(),
                          static_cast<int>(text.size()), SQLITE_TRANSIENT));
}

void Query::Bind(const Blob& blob) {
  Check(sqlite3_bind_blob(statement_, ++bound_, blob.bytes.data(),
                          static_cast<int>(blob.bytes.size()),
                          SQLITE_TRANSIENT));
}

bool Query::Next() {
  if (!status_.ok()) return false;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) Check(code);
  return false;
}

std::string Query::Text(int column) const {
  const void* const bytes = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? std::string()
                          : std::string(static_cast<const char*>(bytes), size);
}

StoreCheck::StoreCheck(const std::string& path,
                       std::function<void(const absl::Status&)> on_damage)
    : on_damage_(std::move(on_damage)),
      database_(Database::Open(path).value_or(nullptr)),
      thread_("check", [this, path] {
        if (database_ != nullptr) Run(path);
        done_ = true;
      }) {}

// Repeats the interrupt: it has no effect on a statement that has not begun.
StoreCheck::~StoreCheck() {
  stopping_ = true;
  while (!done_) {
    if (database_ != nullptr) sqlite3_interrupt(database_->handle());
    absl::SleepFor(absl::Milliseconds(1));
  }
}

void StoreCheck::Run(const std::string& path) {
  setpriority(PRIO_PROCESS, 0, 19);  // of this thread
  Query check(*database_, "PRAGMA quick_check(1)");
  const bool answered = check.Next();
  if (stopping_ || (answered && check.Text(0) == "ok")) return;
  if (answered) {
    on_damage_(DataLoss("data base ", path, " is damaged: ", check.Text(0),
                        kMoveAway));
  } else if (absl::IsDataLoss(check.status())) {
    on_damage_(check.status());
  }
}

}  // namespace paceline
