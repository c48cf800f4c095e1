// The calls of SQLite that the store needs, with Status instead of codes; and
// the search for damage in a data base.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/os/thread.h"
#include "sqlite3.h"

namespace paceline {

// Ends an error about a data base that is damaged.
inline constexpr char kMoveAway[] =
    "; move the file away to start without what it knew";

// One data base file.  Thread-compatible.  Errors of everything here: those of
// JobStore; the message names the file.
class Database {
 public:
  // Opens or makes `path`.
  static absl::StatusOr<std::unique_ptr<Database>> Open(
      const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Statements without values and results, separated by semicolons.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<int64_t> QueryInteger(const std::string& sql);

  // The number of rows that the last statement changed.
  int64_t changes() const { return sqlite3_changes(handle_); }

  // The text of the last failing call.
  absl::Status Error(int code) const;

  sqlite3* handle() { return handle_; }

 private:
  friend class Query;

  Database(std::string path, sqlite3* handle)
      : path_(std::move(path)), handle_(handle) {}

  const std::string path_;
  sqlite3* const handle_;
  // Prepared statements that no Query uses, by their text.
  std::map<std::string, sqlite3_stmt*> statements_;
};

// A value that is bytes, where a std::string would be text.
struct Blob {
  absl::string_view bytes;
};

// One statement with its values in the order of the question marks, used once:
// numbers, ids, texts, blobs, and messages as blobs.  status() has the first
// error.  The Database keeps the prepared statement for the next Query with
// this text.
//   Query query(db, "SELECT a FROM t WHERE b=?", 7);
//   while (query.Next()) use(query.Integer(0));
//   return query.status();
class Query {
 public:
  template <typename... Values>
  Query(Database& database, const char* sql, const Values&... values)
      : database_(database), sql_(sql) {
    Prepare();
    (Bind(values), ...);
  }
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  // True: there is a row.  False: no more rows, or an error.
  bool Next();
  // Runs a statement that has no rows.
  absl::Status Run() {
    Next();
    return status_;
  }
  const absl::Status& status() const { return status_; }

  int64_t Integer(int column) const {
    return sqlite3_column_int64(statement_, column);
  }
  std::string Text(int column) const;  // or a blob's bytes

 private:
  void Prepare();
  void Bind(int64_t value);
  void Bind(const std::string& text);
  void Bind(const Blob& blob);
  template <typename Message>
  requires requires(const Message& message) { message.SerializeAsString(); }
  void Bind(const Message& message) { Bind(Blob{message.SerializeAsString()}); }
  template <typename Id>
  requires requires(const Id& id) { id.value; }
  void Bind(const Id& id) { Bind(static_cast<int64_t>(id.value)); }
  void Check(int code) {
    if (code != SQLITE_OK && status_.ok()) status_ = database_.Error(code);
  }

  Database& database_;
  const char* const sql_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  absl::Status status_;
};

// Thread-compatible.  SQLite's quick_check reads the whole file, which may be
// large: a low-priority thread, "check", runs it.
class StoreCheck {
 public:
  // Opens `path` once more.  on_damage: called on that thread, at most once,
  // with DataLoss, which names the damage, or with the error of the check.
  StoreCheck(const std::string& path,
             std::function<void(const absl::Status&)> on_damage);
  // Ends a running check.
  ~StoreCheck();

 private:
  void Run(const std::string& path);

  const std::function<void(const absl::Status&)> on_damage_;
  const std::unique_ptr<Database> database_;  // null: it cannot be opened
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> done_ = false;
  Thread thread_;
};

}  // namespace paceline
