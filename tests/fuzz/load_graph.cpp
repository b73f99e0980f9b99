// The input is an exported graph: JSON, a byte of 0, tensors. A graph that loads is written as text again, frozen, run
// with inputs of several sizes, and differentiated.
#include <atomic>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "graph/exec/frozen.h"
#include "graph/io/model_file.h"
#include "tensor/tape.h"
#include "tests/fuzz/loader.h"

using pg::test::require;
using Json = nlohmann::ordered_json;

namespace pg::test {
namespace {

constexpr int64_t kMostElements = 1 << 14;

// Cancels a run that takes long, because a loop may count to 2^53. A run that ignores the request is found by -timeout.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) { thread_.detach(); }
  void start(Context& ctx) {
    ctx.cancel = false;
    context_ = &ctx;
    deadline_ = now() + 300;
  }
  void stop() {
    deadline_ = 0;
    while (busy_) std::this_thread::yield();
  }

 private:
  static int64_t now() {
    const auto passed = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
  }
  void watch() {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      busy_ = true;
      const int64_t deadline = deadline_;
      if (deadline && now() > deadline) context_.load()->cancel = true;
      busy_ = false;
    }
  }
  std::atomic<int64_t> deadline_{0};
  std::atomic<bool> busy_{false};
  std::atomic<Context*> context_{nullptr};
  std::thread thread_;
};

Watchdog& watchdog() {
  static auto* const dog = new Watchdog;
  return *dog;
}

// How the dims of the inputs differ from those in the file.
struct Sizes {
  const char* name;
  int64_t (*of)(int64_t dim, size_t input, int place);
};
const Sizes kSizes[] = {
    {"as declared", [](int64_t dim, size_t, int) { return dim; }},
    {"one more each", [](int64_t dim, size_t, int) { return dim + 1; }},
    {"first dims longer", [](int64_t dim, size_t, int place) { return place == 0 ? dim * 2 + 1 : dim; }},
    {"first dims shorter", [](int64_t dim, size_t, int place) { return place == 0 ? (dim + 1) / 2 : dim; }},
    {"last input longer", [](int64_t dim, size_t input, int) { return input == 0 ? dim : dim + 3; }},
    {"ones", [](int64_t, size_t, int) { return int64_t(1); }},
    {"nothing", [](int64_t dim, size_t, int place) { return place == 0 ? 0 : dim; }},
    {"nothing beside a huge dim", [](int64_t, size_t, int place) { return place == 0 ? 0 : int64_t(1) << 45; }},
};

Value filled(const Type& type, size_t seed) {
  Value v = make_array(type);
  for (int64_t i = 0; i < v.numel(); ++i) {
    const double number = double((size_t(i) * 7 + seed * 3) % 11) / 2 - 1;
    store_number(type.dtype, static_cast<char*>(v.array().data()) + i * size_of(type.dtype),
                 type.dtype == DType::kBool ? double(i % 2) : number);
  }
  return v;
}

// Returns one value per argument, or nothing when these sizes are too large.
Values arguments_of(const Model& model, const Sizes& sizes) {
  Values out;
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    if (model.inputs[k].role != ModelInput::Role::kArgument) continue;
    Type type = model.input_type(k);
    if (!type.device.is_cpu()) return {};
    for (int d = 0; d < int(type.shape.size()); ++d) type.shape[d] = sizes.of(type.shape[d], k, d);
    try {
      if (numel(type.shape) > kMostElements) return {};
    } catch (const Error&) {
      return {};
    }
    out.push_back(filled(type, k));
  }
  return out;
}

void with_time(Context& ctx, FunctionRef<void()> body) {
  watchdog().start(ctx);
  try {
    body();
  } catch (const Error& e) {
    require(*e.what() != 0, "an error without a text");
  }
  watchdog().stop();
}

void check_outputs(const Values& out) {
  for (const Value& v : out) {
    if (!v.is_array() || v.numel() > kMostElements) continue;
    Context ctx;
    const Value whole = to_contiguous(ctx, v.detached());
    // Reads every byte, so that AddressSanitizer checks it.
    [[maybe_unused]] static volatile char sink;
    const char* bytes = static_cast<const char*>(whole.array().data());
    for (int64_t i = 0; i < whole.numel() * size_of(whole.dtype()); ++i) sink = bytes[i];
  }
}

void run_frozen(const LoadedModel& loaded) {
  Context ctx;
  Ref<FrozenGraph> frozen;
  with_time(ctx, [&] { frozen = Ref<FrozenGraph>(new FrozenGraph(loaded.model, loaded.values, {1, 0})); });
  if (!frozen) return;
  for (const Sizes& sizes : kSizes) {
    const Values arguments = arguments_of(loaded.model, sizes);
    if (arguments.size() != frozen->argument_count()) continue;
    with_time(ctx, [&] { check_outputs(frozen->run(ctx, arguments)); });
  }
}

void run_recorded(const LoadedModel& loaded) {
  Context ctx;
  ctx.recording = ctx.training = true;
  std::vector<Ref<Generator>> generators;
  for (size_t g = 0; g < loaded.model.generators.size(); ++g) generators.push_back(ctx.generator);
  with_time(ctx, [&] {
    const Ref<Program> program(new Program(loaded.model.graph, generators, {}));
    for (const size_t which : {0, 1}) {
      const Values arguments = arguments_of(loaded.model, kSizes[which]);
      Values inputs;
      size_t next = 0;
      for (const Value& given : loaded.values) {
        const bool argument = !given.defined();
        if (argument && next == arguments.size()) return;
        Value v = argument ? arguments[next++] : given.detached();
        if (v.is_array() && is_float(v.dtype())) v.link(make_leaf(v.type(), GradReq::kWrite).get(), 0);
        inputs.push_back(std::move(v));
      }
      const Values out = program->run(ctx, inputs);
      Values heads, cotangents;
      for (const Value& v : out)
        if (requires_grad(v) && v.numel() <= kMostElements) heads.push_back(v);
      for (size_t k = 0; k < heads.size(); ++k) cotangents.push_back(Value());
      const ScopedFlag quiet(ctx.recording, false);
      if (heads.size()) backward(ctx, heads, cotangents, {});
    }
  });
}

// Throws when the graph cannot be parsed. The text of a parsed graph must parse to the same graph.
void check_text(const LoadedModel& loaded, const NamedTensors& tensors) {
  const std::string text = model_json(loaded.model);
  try {
    const LoadedModel again = parse_model(text, {"again.json", &tensors, "weights", false});
    require(model_json(again.model) == text, "the text of a loaded model changes from load to load");
  } catch (const OutOfMemory&) {
  } catch (const Error& e) {
    fmt::print(stderr, "{}\n{}\n", e.what(), text);
    require(false, "the text of a loaded model is refused");
  }
}

void run_input(std::string_view bytes) {
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  NamedTensors tensors;
  if (cut < bytes.size())
    load_bytes(bytes.substr(cut + 1), [&](const std::string& path) { tensors = load_safetensors(path); });
  limit_allocation(kLargestRequest);
  LoadedModel loaded;
  try {
    loaded = parse_model(bytes.substr(0, cut), {"model.json", &tensors, "weights", false});
  } catch (const OutOfMemory&) {
    return;
  } catch (const Error& e) {
    return require(std::string_view(e.what()).starts_with("load: "), e.what());
  }
  check_text(loaded, tensors);
  run_frozen(loaded);
  run_recorded(loaded);
}

// Mutation of the JSON ----------------------------------------------------------------------------------------------

void collect(Json& at, std::vector<Json*>& out) {
  out.push_back(&at);
  if (at.is_structured())
    for (auto& child : at) collect(child, out);
}

void change(Json& place, const std::vector<Json*>& all, std::mt19937& random) {
  const auto draw = [&](size_t n) { return random() % n; };
  const int64_t edges[] = {
      0, 1, -1, 2, 3, 5, 100, int64_t(1) << 31, int64_t(1) << 53, int64_t(1) << 56, int64_t(1) << 62, INT64_MIN};
  if (place.is_number() && draw(4)) {
    if (draw(3) == 0)
      place = edges[draw(std::size(edges))];
    else if (place.is_number_float())
      place = place.get<double>() * (double(draw(5)) - 2);
    else
      place = int64_t(uint64_t(place.get<int64_t>()) + draw(5) - 2);
  } else if (place.is_array() && place.size() > 0 && draw(3)) {
    const size_t i = draw(place.size());
    if (draw(2))
      place.erase(std::next(place.begin(), std::ptrdiff_t(i)));
    else
      place.insert(std::next(place.begin(), std::ptrdiff_t(i)), Json(place[draw(place.size())]));
  } else if (place.is_object() && place.size() > 0 && draw(2)) {
    place.erase(std::next(place.begin(), std::ptrdiff_t(draw(place.size()))));
  } else {
    const Json other = *all[draw(all.size())];  // from another place in the file
    place = other;
  }
}

}  // namespace
}  // namespace pg::test

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Usually mutates the JSON so that it stays JSON; otherwise mutates bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 random(seed);
  const std::string_view bytes = pg::test::text_of(data, size);
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  Json json = random() % 8 ? Json::parse(bytes.substr(0, cut), nullptr, false) : Json(Json::value_t::discarded);
  if (json.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
  for (size_t count = random() % 3 + 1; count > 0; --count) {
    std::vector<Json*> all;
    pg::test::collect(json, all);
    pg::test::change(*all[random() % all.size()], all, random);
  }
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text += bytes.substr(cut);
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pg::test::run_input(pg::test::text_of(data, size));
  return 0;
}
