// The words of the format, shared by its reader and its writer.
#pragma once
#include <map>
#include <set>
#include <string>

#include "graph/model.h"

namespace pg {

inline constexpr const char* kModelFormat = "perigee graph";
inline constexpr const char* kRoleNames[] = {"argument", "parameter", "state"};
inline constexpr const char* kRequestNames[] = {"null", "write", "add"};
inline constexpr const char* kGuardNames[] = {"dim", "rank", "dtype", "device", "requires_grad", "outputs"};
inline constexpr const char* kKindNames[] = {"input", "constant", "op",     "fused",    "cond",
                                             "loop",  "leaf",     "detach", "write", "gradient", "custom"};

// Whether the graph or a body in it holds a branch or a loop, which files have from version 2 on.
bool has_control_flow(const Graph& graph);

// The name of each constant's tensor.
using ConstantNames = std::map<const Node*, std::string>;
ConstantNames constant_names(const Model& model);

}  // namespace pg
