// Arguments that all readers of data files have: the plan of a schema, and the arrays of a batch.
#pragma once
#include "binding/arguments.h"
#include "data/lines.h"

namespace kintsugi::binding {

bool readPlan(Napi::Value value, LinePlan& out);

/** The arrays of a batch, which belong to JavaScript, and numbers of the state that both sides share. */
struct RowsArgument {
  std::uint32_t* state = nullptr;
  SchemaRows rows;
  Logarithms logarithms;
};

/** (state, targets, dense, weights, times, lists, table, places, numbers) */
bool readRows(Arguments& arguments, const LinePlan& plan, RowsArgument& out);
/** Notes in the state where a call stopped. */
void writeRows(const Stopped& stopped, const RowsArgument& from);

}  // namespace kintsugi::binding
