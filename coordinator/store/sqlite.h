// The calls of SQLite that the store needs, with Status instead of codes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sqlite3.h"

namespace paceline {

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

// One statement with its values, used once.  Chain Bind() in the order of the
// question marks; Next() returns the first error.  The Database keeps the
// prepared statement for the next Query with this text.
//   Query query(db, "SELECT a FROM t WHERE b=?");
//   query.Bind(7);
//   while (query.Next()) use(query.Integer(0));
//   return query.status();
class Query {
 public:
  Query(Database& database, const char* sql);
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  Query& Bind(int64_t value);
  Query& Bind(const std::string& text);
  Query& BindBlob(const std::string& bytes);

  // True: there is a row.  False: no more rows, or an error.
  bool Next();
  // Runs a statement that has no rows.
  absl::Status Run();
  const absl::Status& status() const { return status_; }

  int64_t Integer(int column) const;
  std::string Text(int column) const;  // or a blob's bytes

 private:
  void Check(int code);

  Database& database_;
  const char* const sql_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  absl::Status status_;
};

}  // namespace paceline
