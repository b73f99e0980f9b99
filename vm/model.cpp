// core.graph: the inputs, results and inner values of models, their texts and passes.
#include "vm/model.h"

#include <algorithm>

#include "graph/exec/frozen.h"
#include "graph/io/model_file.h"
#include "graph/io/model_names.h"
#include "graph/passes/passes.h"
#include "vm/args.h"
#include "vm/trace.h"
#include "vm/tree.h"

namespace pg::vm {

void push_places(lua_State* L, const std::vector<int32_t>& places) {
  lua_createtable(L, int(places.size()), 0);
  for (size_t k = 0; k < places.size(); ++k) {
    lua_pushnumber(L, places[k] + 1);
    lua_rawseti(L, -2, int(k) + 1);
  }
}

namespace {

void push_type(lua_State* L, const Type& type) {
  lua_createtable(L, 0, 3);
  lua_createtable(L, type.shape.size(), 0);
  for (int d = 0; d < type.shape.size(); ++d) {
    lua_pushnumber(L, double(type.shape[d]));
    lua_rawseti(L, -2, d + 1);
  }
  lua_setfield(L, -2, "shape");
  lua_pushstring(L, name_of(type.dtype));
  lua_setfield(L, -2, "dtype");
  lua_pushstring(L, name_of(type.device).c_str());
  lua_setfield(L, -2, "device");
}

// inputs(model) → {name=, role=, shape=, dtype=, device=, written=, …} by input
int push_inputs(lua_State* L, State&) {
  const Model& model = check_model(L, 1);
  lua_createtable(L, int(model.inputs.size()), 0);
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    const ModelInput& input = model.inputs[k];
    push_type(L, model.input_type(k));
    lua_pushlstring(L, input.name.data(), input.name.size()), lua_setfield(L, -2, "name");
    lua_pushstring(L, kRoleNames[int(input.role)]), lua_setfield(L, -2, "role");
    lua_pushstring(L, kRequestNames[int(input.req)]), lua_setfield(L, -2, "grad_req");
    lua_pushboolean(L, input.differentiable), lua_setfield(L, -2, "differentiable");
    lua_pushboolean(L, input.constant), lua_setfield(L, -2, "constant");
    lua_pushnumber(L, input.lr_mult), lua_setfield(L, -2, "lr_mult");
    lua_pushnumber(L, input.wd_mult), lua_setfield(L, -2, "wd_mult");
    bool written = false;
    for (const Model::Write& w : model.writes) written |= w.input == int32_t(k);
    lua_pushboolean(L, written), lua_setfield(L, -2, "written");
    lua_rawseti(L, -2, int(k) + 1);
  }
  return 1;
}

// trees(model) → trees of the arguments, of the results; see vm/tree.h
int push_model_trees(lua_State* L, State&) {
  const Model& model = check_model(L, 1);
  push_trees(L, model.arguments);
  push_trees(L, model.results);
  return 2;
}

// internals(model) → {name=, shape=, dtype=, device=}, … in the order of the nodes
int push_internals(lua_State* L, State&) {
  const Model& model = check_model(L, 1);
  const std::vector<Internal> all = internals(model);
  lua_createtable(L, int(all.size()), 0);
  for (size_t k = 0; k < all.size(); ++k) {
    push_type(L, model.graph.type(all[k].operand));
    lua_pushlstring(L, all[k].name.data(), all[k].name.size()), lua_setfield(L, -2, "name");
    lua_rawseti(L, -2, int(k) + 1);
  }
  return 1;
}

// output_names(model) → by output leaf of the results, the name of its internal
int push_output_names(lua_State* L, State&) {
  const Model& model = check_model(L, 1);
  const std::vector<Internal> all = internals(model);
  lua_newtable(L);
  int count = 0;
  for_each_leaf(model.results, [&](const Tree& leaf) {
    const Operand of = leaf.kind == Tree::Kind::kOutput ? model.graph.outputs[size_t(leaf.index)]
                                                        : Operand::of(size_t(model.graph.inputs[size_t(leaf.index)]));
    for (const Internal& internal : all)
      if (internal.operand == of) lua_pushlstring(L, internal.name.data(), internal.name.size());
    lua_rawseti(L, -2, ++count);
  });
  return 1;
}

// select(model, {results = trees}) → a model with these results. The outputs of the trees are positions among the
// internals.
int select_outputs(lua_State* L, State&) {
  const Model& model = check_model(L, 1);
  const std::vector<Internal> all = internals(model);
  std::vector<Operand> outputs;
  std::vector<Tree> results = read_trees(L, 2, "results", [&](bool, int32_t at) {
    if (at < 1 || size_t(at) > all.size()) throw Error("graph: no such internal");
    outputs.push_back(all[size_t(at) - 1].operand);
    return int32_t(outputs.size()) - 1;
  });
  std::vector<int32_t> kept;
  Model selected = with_outputs(model, outputs, &kept);
  selected.results = std::move(results);
  verify(selected, true);
  push_model(L, std::move(selected));
  push_places(L, kept);
  return 2;
}

std::vector<Type> types_at(lua_State* L, State& state, int i, const Model& model) {
  std::vector<Type> types;
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    Type type = model.input_type(k);
    lua_rawgeti(L, i, int(k) + 1);
    if (lua_istable(L, -1)) {
      type.shape = {};
      for (int d = 1, n = int(lua_objlen(L, -1)); d <= n; ++d) {
        lua_rawgeti(L, -1, d);
        type.shape.push_back(check_integer(L, state, lua_gettop(L), "infer_shape", model.inputs[k].name.c_str()));
        lua_pop(L, 1);
      }
      checked_numel("infer_shape", type.shape);
    }
    lua_pop(L, 1);
    types.push_back(type);
  }
  return types;
}

// infer(model, {shapes by input, or nil}) → {shape=, dtype=, device=} by graph output
int infer_model(lua_State* L, State& state) {
  const Model& model = check_model(L, 1);
  const std::vector<Type> found = infer(model, types_at(L, state, 2, model));
  lua_createtable(L, int(found.size()), 0);
  for (size_t k = 0; k < found.size(); ++k) {
    push_type(L, found[k]);
    lua_rawseti(L, -2, int(k) + 1);
  }
  return 1;
}

int model_text(lua_State* L, State&) {
  lua_pushstring(L, to_string(check_model(L, 1).graph).c_str());
  return 1;
}

int model_dot(lua_State* L, State&) {
  lua_pushstring(L, to_dot(check_model(L, 1).graph).c_str());
  return 1;
}

// optimize(model, {names of passes} or nil) → the model for exactly its own types, after these passes. The default is
// all passes whose result is made of ops of the registry.
int optimize_model(lua_State* L, State& state) {
  Model model = check_model(L, 1);
  Signature signature;
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    signature.types.push_back(model.input_type(k));
    signature.flows.push_back(Flow::kNone);
  }
  signature.training = state.ctx.training;
  PassOptions options;
  options.last = Pass::kShape;
  if (lua_istable(L, 2)) {
    std::vector<std::string> wanted;
    for (int k = 1, n = int(lua_objlen(L, 2)); k <= n; ++k) {
      lua_rawgeti(L, 2, k);
      wanted.push_back(check_string(L, state, lua_gettop(L), "optimize", "passes"));
      lua_pop(L, 1);
    }
    std::vector<std::string_view> known;
    for (const Pass& pass : passes())
      if (pass.stage != Pass::kKernels) known.push_back(pass.name);
    for (const std::string& name : wanted) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      bad_argument("optimize", "passes", "names of passes", fmt::format("\"{}\"{}", name, did_you_mean(name, known)));
    }
    for (std::string_view name : known)
      if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) options.disabled.emplace_back(name);
  }
  model.graph = optimize(specialize(model.graph, signature).graph, options);
  push_model(L, std::move(model));
  return 1;
}

}  // namespace

void open_model(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"inputs", entry<push_inputs>},
                      {"trees", entry<push_model_trees>},
                      {"internals", entry<push_internals>},
                      {"output_names", entry<push_output_names>},
                      {"select", entry<select_outputs>},
                      {"infer", entry<infer_model>},
                      {"text", entry<model_text>},
                      {"dot", entry<model_dot>},
                      {"optimize", entry<optimize_model>}});
}

}  // namespace pg::vm
