// The words of the format, shared by the reader and the writer.
#pragma once
#include <map>
#include <set>
#include <string>

#include "graph/io/model.h"

namespace pg {

inline constexpr const char* kModelFormat = "perigee graph";
inline constexpr const char* kRoleNames[] = {"argument", "parameter", "state"};
inline constexpr const char* kRequestNames[] = {"null", "write", "add"};
inline constexpr const char* kGuardNames[] = {"dim", "rank", "dtype", "device", "requires_grad", "outputs"};
inline constexpr const char* kKindNames[] = {"input",  "constant", "op",       "fused", "leaf",
                                             "detach", "write",    "gradient", "custom"};
static_assert(std::size(kRoleNames) == size_t(ModelInput::Role::kState) + 1);
static_assert(std::size(kRequestNames) == size_t(GradReq::kAdd) + 1);
static_assert(std::size(kGuardNames) == size_t(TypeGuard::kOutputs) + 1);
static_assert(std::size(kKindNames) == size_t(NodeKind::kCustom) + 1);

// The first version of the format that supports the node, or all nodes of a graph and of its bodies.
int version_of(const Node& node);
int version_of(const Graph& graph);

// The name of each constant's tensor.
using ConstantNames = std::map<const Node*, std::string>;
ConstantNames constant_names(const Model& model);

}  // namespace pg
