// DuckDB as a reader of parquet: the shared library of its package for Node, opened at run time, and the few
// functions of its C interface that reading takes. A result is fetched a piece of columns at a time, and rows
// of a batch are made of it where it lies.
#include <dlfcn.h>

#include <memory>
#include <string>

#include "binding/data.h"
#include "binding/objects.h"
#include "data/columns.h"

namespace kintsugi::binding {
namespace {

using Handle = void*;
using Index = std::uint64_t;

/** duckdb_result. */
struct Result {
  Index columns, rows, changed;
  void* deprecated;
  char* message;
  void* internal;
};

constexpr int kSuccess = 0;

/** The functions of DuckDB, by their names without `duckdb_`. */
struct Api {
  int (*open)(const char*, Handle*);
  void (*close)(Handle*);
  int (*connect)(Handle, Handle*);
  void (*disconnect)(Handle*);
  int (*query)(Handle, const char*, Result*);
  int (*prepare)(Handle, const char*, Handle*);
  const char* (*prepare_error)(Handle);
  void (*destroy_prepare)(Handle*);
  int (*pending_prepared_streaming)(Handle, Handle*);
  const char* (*pending_error)(Handle);
  int (*execute_pending)(Handle, Result*);
  void (*destroy_pending)(Handle*);
  const char* (*result_error)(Result*);
  Index (*column_count)(Result*);
  Handle (*fetch_chunk)(Result);
  void (*destroy_result)(Result*);
  Index (*data_chunk_get_size)(Handle);
  Handle (*data_chunk_get_vector)(Handle, Index);
  void (*destroy_data_chunk)(Handle*);
  void* (*vector_get_data)(Handle);
  std::uint64_t* (*vector_get_validity)(Handle);
  Handle (*vector_get_column_type)(Handle);
  int (*get_type_id)(Handle);
  char* (*logical_type_get_alias)(Handle);
  Handle (*list_type_child_type)(Handle);
  void (*destroy_logical_type)(Handle*);
  Handle (*list_vector_get_child)(Handle);
  void (*free)(void*);
};

/** False where the library has no such function. */
bool find(void* library, Api& api) {
  bool all = true;
  const auto set = [&](auto& function, const char* name) {
    const std::string whole = std::string("duckdb_") + name;
    void* const found = dlsym(library, whole.c_str());
    all = all && found != nullptr;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
#define KINTSUGI_FIND(name) set(api.name, #name)
  KINTSUGI_FIND(open);
  KINTSUGI_FIND(close);
  KINTSUGI_FIND(connect);
  KINTSUGI_FIND(disconnect);
  KINTSUGI_FIND(query);
  KINTSUGI_FIND(prepare);
  KINTSUGI_FIND(prepare_error);
  KINTSUGI_FIND(destroy_prepare);
  KINTSUGI_FIND(pending_prepared_streaming);
  KINTSUGI_FIND(pending_error);
  KINTSUGI_FIND(execute_pending);
  KINTSUGI_FIND(destroy_pending);
  KINTSUGI_FIND(result_error);
  KINTSUGI_FIND(column_count);
  KINTSUGI_FIND(fetch_chunk);
  KINTSUGI_FIND(destroy_result);
  KINTSUGI_FIND(data_chunk_get_size);
  KINTSUGI_FIND(data_chunk_get_vector);
  KINTSUGI_FIND(destroy_data_chunk);
  KINTSUGI_FIND(vector_get_data);
  KINTSUGI_FIND(vector_get_validity);
  KINTSUGI_FIND(vector_get_column_type);
  KINTSUGI_FIND(get_type_id);
  KINTSUGI_FIND(logical_type_get_alias);
  KINTSUGI_FIND(list_type_child_type);
  KINTSUGI_FIND(destroy_logical_type);
  KINTSUGI_FIND(list_vector_get_child);
  KINTSUGI_FIND(free);
#undef KINTSUGI_FIND
  return all;
}

/** An open database without a file. */
class Database {
 public:
  Database(const Api& api, Handle database, Handle connection)
      : api_(api), database_(database), connection_(connection) {}
  ~Database() {
    api_.disconnect(&connection_);
    api_.close(&database_);
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const Api& api() const { return api_; }
  Handle connection() const { return connection_; }

 private:
  const Api api_;
  Handle database_, connection_;
};

constexpr int kList = 24;

/** The type of cells of a column; false: it is not one that rows are made of. */
bool cellType(int type, CellType& out) {
  constexpr struct {
    int id;
    CellType type;
  } kTypes[] = {{1, CellType::Bool},  {2, CellType::I8},   {3, CellType::I16},  {4, CellType::I32},
                {5, CellType::I64},   {6, CellType::U8},   {7, CellType::U16},  {8, CellType::U32},
                {9, CellType::U64},   {10, CellType::F32}, {11, CellType::F64}, {17, CellType::Text},
                {18, CellType::Bytes}};
  for (const auto& [id, found] : kTypes) {
    if (id != type) continue;
    out = found;
    return true;
  }
  return false;
}

/** A query whose rows become rows of batches. */
class Columns {
 public:
  Columns(std::shared_ptr<Database> database, LinePlan plan)
      : database_(std::move(database)), api_(database_->api()), parser_(std::move(plan)) {}
  ~Columns() { end(); }
  Columns(const Columns&) = delete;
  Columns& operator=(const Columns&) = delete;

  const LinePlan& plan() const { return parser_.plan(); }
  const std::string& error() const { return error_; }

  bool begin(const std::string& sql) {
    if (api_.prepare(database_->connection(), sql.c_str(), &statement_) != kSuccess)
      return refuse(api_.prepare_error(statement_));
    if (api_.pending_prepared_streaming(statement_, &pending_) != kSuccess)
      return refuse(api_.pending_error(pending_));
    hasResult_ = true;
    if (api_.execute_pending(pending_, &result_) != kSuccess) return refuse(api_.result_error(&result_));
    return true;
  }

  /**
   * Makes at most `most` rows, until a batch is full, or a row is not taken, as none is after an error of the
   * query.
   */
  Stopped next(std::size_t most, SchemaRows& rows, Logarithms& logarithms) {
    for (;;) {
      const std::size_t until = std::min(size_, at_ + most), from = at_;
      Stopped stopped = parser_.parse(vectors_, from, until, rows, logarithms);
      at_ = stopped.at;
      most -= at_ - from;
      if (stopped.why != Stop::End || most == 0) return stopped;
      if (fetch()) continue;
      if (!error_.empty()) stopped.why = Stop::Hard;
      return stopped;
    }
  }

  /** Leaves rows out. False: there are not so many. */
  bool skip(std::size_t rows) {
    while (rows > size_ - at_) {
      rows -= size_ - at_;
      if (!fetch()) return false;
    }
    at_ += rows;
    return true;
  }

  void end() {
    dropChunk();
    if (hasResult_) api_.destroy_result(&result_);
    if (pending_ != nullptr) api_.destroy_pending(&pending_);
    if (statement_ != nullptr) api_.destroy_prepare(&statement_);
    hasResult_ = false;
    pending_ = statement_ = nullptr;
  }

 private:
  bool refuse(const char* why) {
    error_ = why != nullptr ? why : "the query failed";
    end();
    return false;
  }

  void dropChunk() {
    vectors_.clear();
    at_ = size_ = 0;
    if (chunk_ != nullptr) api_.destroy_data_chunk(&chunk_);
    chunk_ = nullptr;
  }

  /** False: there is no further chunk, or the query has failed. */
  bool fetch() {
    dropChunk();
    if (!hasResult_) return false;
    chunk_ = api_.fetch_chunk(result_);
    if (chunk_ == nullptr) {
      const char* const why = api_.result_error(&result_);
      if (why != nullptr && *why != 0) return refuse(why);
      return false;
    }
    size_ = api_.data_chunk_get_size(chunk_);
    if (size_ == 0) return false;
    for (std::uint32_t i = 0; i < plan().fields; i++) {
      CellVector vector;
      if (!read(api_.data_chunk_get_vector(chunk_, i), vector))
        return refuse("a column has a type of its own");
      vectors_.push_back(vector);
    }
    return true;
  }

  bool read(Handle from, CellVector& out) {
    Handle type = api_.vector_get_column_type(from);
    out.list = api_.get_type_id(type) == kList;
    Handle cells = from;
    if (out.list) {
      out.lists = static_cast<const ListValue*>(api_.vector_get_data(from));
      out.listValid = api_.vector_get_validity(from);
      Handle child = api_.list_type_child_type(type);
      api_.destroy_logical_type(&type);
      type = child;
      cells = api_.list_vector_get_child(from);
    }
    const bool known = cellType(api_.get_type_id(type), out.type);
    api_.destroy_logical_type(&type);
    out.data = api_.vector_get_data(cells);
    out.valid = api_.vector_get_validity(cells);
    return known;
  }

  std::shared_ptr<Database> database_;
  const Api& api_;
  ColumnParser parser_;
  Handle statement_ = nullptr, pending_ = nullptr, chunk_ = nullptr;
  Result result_{};
  bool hasResult_ = false;
  std::vector<CellVector> vectors_;
  std::size_t at_ = 0, size_ = 0;
  std::string error_;
};

/** (library, settings): see `openDuckdb` in src/engine/native-data.ts. */
Napi::Value openDuckdb(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const Napi::Value path = arguments.next(), settings = arguments.next();
  if (arguments.ok() && (!path.IsString() || !settings.IsString())) arguments.refuse("expected two strings");
  if (!arguments.ok()) return env.Undefined();
  // The library stays: its threads and static objects may outlive every database.
  void* const library = dlopen(path.As<Napi::String>().Utf8Value().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(env, "DEPENDENCY_MISSING", dlerror());
  Api api;
  if (!find(library, api))
    return fail(env, "DEPENDENCY_MISSING", "the library has not all functions of DuckDB");
  Handle database = nullptr, connection = nullptr;
  if (api.open(nullptr, &database) != kSuccess)
    return fail(env, "INTERNAL", "DuckDB does not open a database");
  if (api.connect(database, &connection) != kSuccess) {
    api.close(&database);
    return fail(env, "INTERNAL", "DuckDB does not connect");
  }
  auto opened = std::make_shared<Database>(api, database, connection);
  Result result{};
  const bool set =
      api.query(connection, settings.As<Napi::String>().Utf8Value().c_str(), &result) == kSuccess;
  const char* const why = set ? nullptr : api.result_error(&result);
  const std::string message = why != nullptr ? why : "DuckDB does not take the settings";
  api.destroy_result(&result);
  if (!set) return fail(env, "INTERNAL", message.c_str());
  using Shared = std::shared_ptr<Database>;
  return Napi::External<Shared>::New(env, new Shared(std::move(opened)),
                                     [](Napi::Env, Shared* shared) { delete shared; });
}

/** (database, plan, query) */
Napi::Value openColumns(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  const auto* const database = arguments.external<std::shared_ptr<Database>>("expected a database");
  LinePlan plan;
  if (arguments.ok() && !readPlan(arguments.next(), plan))
    arguments.refuse("a column of the plan has a wrong field");
  const Napi::Value sql = arguments.next();
  if (arguments.ok() && !sql.IsString()) arguments.refuse("expected a query");
  if (!arguments.ok()) return env.Undefined();
  auto columns = std::make_unique<Columns>(*database, std::move(plan));
  if (!columns->begin(sql.As<Napi::String>().Utf8Value()))
    return fail(env, "BAD_DATA", columns->error().c_str());
  return Napi::External<Columns>::New(env, columns.release(), [](Napi::Env, Columns* gone) { delete gone; });
}

/** (columns, most, state, targets, dense, weights, times, lists, table, places, numbers) */
Napi::Value takeColumns(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Arguments arguments(info);
  Columns* const columns = arguments.external<Columns>("expected columns");
  const std::uint32_t most = arguments.u32();
  RowsArgument argument;
  if (columns == nullptr || !readRows(arguments, columns->plan(), argument)) return env.Undefined();
  const Stopped stopped = columns->next(most, argument.rows, argument.logarithms);
  writeRows(stopped, argument);
  return env.Undefined();
}

/** (columns, rows): whether there are so many */
Napi::Value skipColumns(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  Columns* const columns = arguments.external<Columns>("expected columns");
  const std::uint32_t rows = arguments.u32();
  if (!arguments.ok()) return info.Env().Undefined();
  return Napi::Boolean::New(info.Env(), columns->skip(rows));
}

/** (columns): ends the query, and frees what it holds. */
Napi::Value closeColumns(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  Columns* const columns = arguments.external<Columns>("expected columns");
  if (columns != nullptr) columns->end();
  return info.Env().Undefined();
}

}  // namespace

void defineDuckdb(Napi::Env env, Napi::Object exports) {
  const auto set = [&](const char* name, Napi::Value (*function)(const Napi::CallbackInfo&)) {
    exports.Set(name, Napi::Function::New(env, function, name));
  };
  set("openDuckdb", openDuckdb);
  set("openColumns", openColumns);
  set("takeColumns", takeColumns);
  set("skipColumns", skipColumns);
  set("closeColumns", closeColumns);
}

}  // namespace kintsugi::binding
