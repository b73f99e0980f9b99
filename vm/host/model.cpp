// perigee_model_*: no function here uses Lua.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "graph/io/model_file.h"
#include "vm/host/handles.h"

using namespace pg;
using namespace pg::host;

namespace {

std::vector<std::string> output_names(const Model& model) {
  const std::vector<Internal> all = internals(model);
  std::vector<std::string> names;
  for_each_leaf(model.results, [&](const Tree& leaf) {
    if (leaf.kind == Tree::Kind::kInput) return names.push_back(model.inputs[size_t(leaf.index)].name);
    const Operand wanted = model.graph.outputs[size_t(leaf.index)];
    const auto found = std::find_if(all.begin(), all.end(), [&](const Internal& i) { return i.operand == wanted; });
    names.push_back(found == all.end() ? "" : found->name);
  });
  return names;
}

void need_file(const char* path, const char* function, const char* argument) {
  need(path, function, argument);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    throw Failure(PERIGEE_NOT_FOUND, fmt::format("{}: there is no file '{}'", function, path));
}

// A call of a model for the duration of one run.
class CallLease {
 public:
  explicit CallLease(perigee_model& model) : model_(model), call_(model.take()) {}
  ~CallLease() {
    for (Values* values : {&call_->arguments, &call_->targets, &call_->results}) values->clear();
    model_.give(std::move(call_));
  }
  CallLease(const CallLease&) = delete;
  ModelCall* operator->() const { return call_.get(); }
  ModelCall& operator*() const { return *call_; }

 private:
  perigee_model& model_;
  std::unique_ptr<ModelCall> call_;
};

// What the model was exported with, and what a run got.
std::string types_of(const perigee_model& model, const Values& arguments) {
  std::string text;
  for (size_t i = 0; i < arguments.size(); ++i)
    text += fmt::format("{}'{}' {}, exported with {}", i ? "; " : "", model.inputs[i], to_string(arguments[i].type()),
                        to_string(model.input_types[i]));
  return text;
}

// Results in the memory of an argument, which the host may change or free, become tensors of their own.
void copy_arguments(ModelCall& call) {
  for (Value& result : call.results) {
    const auto shares = [&](const Value& x) { return x.array().buffer.get() == result.array().buffer.get(); };
    if (std::none_of(call.arguments.begin(), call.arguments.end(), shares)) continue;
    Value in[] = {result.detached()};
    result = apply(call.ctx, op_named<"clone">(), in, {})[0];
  }
}

// accept() may refuse the results: then the run has changed nothing.
void run(const char* function, ModelCall& call, perigee_model* model, perigee_tensor* const* inputs, size_t input_count,
         size_t output_count, FunctionRef<void()> accept) {
  need(inputs || input_count == 0, function, "inputs");
  if (input_count != model->inputs.size() || output_count != model->outputs.size())
    throw Failure(PERIGEE_BAD_ARGUMENT, fmt::format("{}: {} takes {} inputs and gives {} outputs, got {} and {}",
                                                    function, model->graph->model().name, model->inputs.size(),
                                                    model->outputs.size(), input_count, output_count));
  for (size_t i = 0; i < input_count; ++i) {
    need(inputs[i], function, model->inputs[i].c_str());
    const DType dtype = inputs[i]->value.dtype(), wanted = model->input_types[i].dtype;
    if (dtype != wanted)
      throw Failure(PERIGEE_BAD_ARGUMENT, fmt::format("{}: bad argument '{}' (expected {}, got {})", function,
                                                      model->inputs[i], name_of(wanted), name_of(dtype)));
    call.arguments.push_back(inputs[i]->value);
  }
  try {
    model->graph->run(call.ctx, nullptr, call.arguments, call.targets, call.work, call.results, [&] {
      copy_arguments(call);
      accept();
    });
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Cancelled&) {
    throw;
  } catch (const Failure&) {
    throw;
  } catch (const Error& e) {
    throw Failure(PERIGEE_BAD_ARGUMENT,
                  fmt::format("{}: {} (inputs: {})", function, e.what(), types_of(*model, call.arguments)));
  }
}

bool overlap(const Value& a, const Value& b) {
  const auto [x, y] = std::pair(a.array().buffer.get(), b.array().buffer.get());
  const char *from = static_cast<const char*>(x->data), *other = static_cast<const char*>(y->data);
  return from < other + y->bytes && other < from + x->bytes;
}

// The run may write into the tensors while it reads its inputs, so none may overlap an input.
bool are_separate(perigee_tensor* const* inputs, size_t input_count, perigee_tensor* const* outputs, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!outputs[i]->is_target || !outputs[i]->value.array().contiguous) return false;
    for (size_t k = 0; k < input_count; ++k)
      if (inputs[k] && overlap(outputs[i]->value, inputs[k]->value)) return false;
  }
  return true;
}

void check_target(const Value& value, const perigee_tensor& out, const std::string& name) {
  const Array& target = out.value.array();
  const char* wrong = !out.is_target       ? ", a tensor of a script or of another library"
                      : !target.contiguous ? ", not row-major"
                                           : "";
  if (*wrong || !(value.type() == target.type))
    throw Failure(PERIGEE_BAD_ARGUMENT, fmt::format("perigee_model_run_into: output '{}' is {}, got {}{}", name,
                                                    to_string(value.type()), to_string(target.type), wrong));
}

void copy_elements(const Value& whole, const perigee_tensor& out) {
  const Array& target = out.value.array();
  if (whole.array().data() == target.data()) return;  // written by the run
  if (const size_t bytes = bytes_of(target.type).count()) std::memcpy(target.data(), whole.array().data(), bytes);
}

}  // namespace

std::unique_ptr<ModelCall> perigee_model::take() {
  const std::lock_guard hold(lock_);
  if (idle_.empty()) {
    idle_.reserve(made_ + 1);  // so that give() does not allocate
    auto call = std::make_unique<ModelCall>();
    ++made_;
    return call;
  }
  std::unique_ptr<ModelCall> call = std::move(idle_.back());
  idle_.pop_back();
  return call;
}

void perigee_model::give(std::unique_ptr<ModelCall> call) {
  const std::lock_guard hold(lock_);
  idle_.push_back(std::move(call));
}

perigee_model::perigee_model(Ref<FrozenGraph> frozen)
    : graph(std::move(frozen)), runtime(Ref<Runtime>(&Runtime::current())), outputs(output_names(graph->model())) {
  const Model& exported = graph->model();
  for (size_t k = 0; k < exported.inputs.size(); ++k) {
    if (exported.inputs[k].role != ModelInput::Role::kArgument) continue;
    inputs.push_back(exported.inputs[k].name);
    input_types.push_back(exported.input_type(k));
  }
}

namespace {

perigee_model* give_model(LoadedModel loaded) {
  Context ctx;
  const Ref<FrozenGraph> graph(new FrozenGraph(std::move(loaded.model), loaded.values, ctx.generator->state()));
  return give(Ref<perigee_model>(new perigee_model(graph)));
}

}  // namespace

perigee_status perigee_model_load(perigee_runtime* runtime, const char* graph_path, const char* weights_path,
                                  perigee_model** out) {
  return guarded(PERIGEE_BAD_FILE, [&] {
    constexpr const char* kName = "perigee_model_load";
    need(out, kName, "out");
    const Border border(runtime_of(runtime, kName));
    need_file(graph_path, kName, "graph_path");
    if (weights_path) need_file(weights_path, kName, "weights_path");
    *out = give_model(load_model(graph_path, weights_path ? weights_path : ""));
  });
}

perigee_status perigee_model_load_memory(perigee_runtime* runtime, const void* graph, size_t graph_size,
                                         const void* weights, size_t weights_size, perigee_model** out) {
  return guarded(PERIGEE_BAD_FILE, [&] {
    constexpr const char* kName = "perigee_model_load_memory";
    need(out, kName, "out");
    const Border border(runtime_of(runtime, kName));
    need(graph, kName, "graph");
    const std::string_view text(static_cast<const char*>(graph), graph_size);
    if (!weights) return void(*out = give_model(parse_model(text, {"graph in memory", nullptr, "", false})));
    const std::string name = "weights in memory";
    const NamedTensors tensors =
        read_safetensors(name, std::string_view(static_cast<const char*>(weights), weights_size));
    *out = give_model(parse_model(text, {"graph in memory", &tensors, name, false}));
  });
}

perigee_model* perigee_model_retain(perigee_model* model) {
  if (model) model->retain();
  return model;
}

void perigee_model_release(perigee_model* model) {
  if (model) model->release();
}

size_t perigee_model_input_count(const perigee_model* model) { return model ? model->inputs.size() : 0; }
size_t perigee_model_output_count(const perigee_model* model) { return model ? model->outputs.size() : 0; }

const char* perigee_model_input_name(const perigee_model* model, size_t index) {
  return index < perigee_model_input_count(model) ? model->inputs[index].c_str() : nullptr;
}
const char* perigee_model_output_name(const perigee_model* model, size_t index) {
  return index < perigee_model_output_count(model) ? model->outputs[index].c_str() : nullptr;
}

perigee_status perigee_model_run(perigee_model* model, perigee_tensor* const* inputs, size_t input_count,
                                 perigee_tensor** outputs, size_t output_count) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_model_run";
    need(model, kName, "model");
    need(outputs || output_count == 0, kName, "outputs");
    const Border border(*model->runtime);
    const CallLease call(*model);
    std::vector<Ref<perigee_tensor>> made(output_count);
    run(kName, *call, model, inputs, input_count, output_count, [&] {
      for (size_t i = 0; i < output_count; ++i) made[i] = Ref<perigee_tensor>(new perigee_tensor(call->results[i]));
    });
    for (size_t i = 0; i < output_count; ++i) outputs[i] = give(made[i]);
  });
}

perigee_status perigee_model_run_into(perigee_model* model, perigee_tensor* const* inputs, size_t input_count,
                                      perigee_tensor* const* outputs, size_t output_count) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_model_run_into";
    need(model, kName, "model");
    need(outputs || output_count == 0, kName, "outputs");
    for (size_t i = 0; i < output_count; ++i) {
      need(outputs[i], kName, "outputs", "no NULL among them");
      for (size_t k = 0; k < i; ++k)
        need(!overlap(outputs[i]->value, outputs[k]->value), kName, "outputs", "tensors that do not overlap");
    }
    const Border border(*model->runtime);
    const CallLease call(*model);
    Values& values = call->results;
    if (inputs && are_separate(inputs, input_count, outputs, output_count))
      for (size_t i = 0; i < output_count; ++i) call->targets.push_back(outputs[i]->value);
    run(kName, *call, model, inputs, input_count, output_count, [&] {
      for (size_t i = 0; i < output_count; ++i) {
        check_target(values[i], *outputs[i], model->outputs[i]);
        values[i] = to_contiguous(call->ctx, values[i]);
      }
    });
    for (size_t i = 0; i < output_count; ++i) copy_elements(values[i], *outputs[i]);
  });
}

perigee_status perigee_model_save(perigee_model* model, const char* weights_path) {
  return guarded(PERIGEE_BAD_FILE, [&] {
    constexpr const char* kName = "perigee_model_save";
    need(model, kName, "model");
    need(weights_path, kName, "weights_path");
    const Border border(*model->runtime);
    save_safetensors(weights_path, model_tensors(model->graph->model(), model->graph->values()));
  });
}
