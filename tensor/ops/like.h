// Rows that differ in their names and texts only: the kernel, the formula or scripts tell the ops apart by name.
#pragma once
#include "tensor/op.h"

namespace pg {

inline OpDef like(OpDef row, const char* name, const char* doc, const char* example) {
  row.name = name;
  row.doc = doc;
  row.example = example;
  return row;
}

}  // namespace pg
