// What tests compile with the real NVRTC, which needs no GPU: the modules of the hand-written kernels.
#include <string>
#include <vector>

#include "tensor/cuda/compiler.h"
#include "tensor/cuda/condition.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/variants.h"
#include "tensor/error.h"
#include "tensor/ops/epilogue.h"

namespace pg::cuda {
namespace {

using Each = void (*)(void* user, const char* name, const char* source);

constexpr DType kAll[] = {DType::kBool,    DType::kUInt8,    DType::kInt8,    DType::kInt32,  DType::kInt64,
                          DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// What a fused body adds to the declarations of a reduction.
constexpr const char* kFusedElement =
    "#define kFusedWords 2\n"
    "__device__ inline T element(const Words<2>& a, int64_t at) { return load<T>(a.word[1], at); }\n";

void give(std::string_view family, const std::string& types, Each each, void* user) {
  std::string name = std::string(family) + ": " + types;
  for (char& c : name) c = c == '\n' ? ' ' : c;
  each(user, name.c_str(), family_source(family, types).c_str());
}

// The kernels of images and of what networks make of them.
void give_images(bool all, DType t, Each each, void* user) {
  for (const char* mode : {"constant", "replicate", "reflect", "circular"})
    if (all || mode == std::string("reflect")) give("pad", pad_types(t, mode), each, user);
  give("sequence", sequence_types(t, DType::kInt64), each, user);
  if (!is_float(t)) return;
  std::vector<const char*> activations = activation_attr().choices;
  activations.push_back("");
  for (const char* activation : activations)
    if (all || *activation == 'g') give("epilogue", epilogue_types(t, t, activation), each, user);
  for (const int64_t elements : {int64_t(1), int64_t(1) << 40}) {
    give("pool", pool_types(t, elements), each, user);
    give("norm", norm_types({t, t, t, t, t, elements > 1}), each, user);
  }
  for (const char* kind : {"nearest", "nearest-exact", "linear", "corners", "cubic", "cubic-corners"})
    if (all || *kind == 'c') give("sample", sample_types(t, kind), each, user);
  for (const DType label : {DType::kUInt8, DType::kInt8, DType::kInt32, DType::kInt64})
    if (all || label == DType::kInt64) give("labels", label_types(t, label), each, user);
  if (size_of(t) == 2) return;
  for (const char* outside : {"kZero", "kBorder", "kReflect"})
    for (const bool corners : {false, true})
      if (all || corners) give("points", point_types(t, outside, corners), each, user);
}

// The kernels that go by the order of elements.
void give_order(bool all, DType t, Each each, void* user) {
  for (const char* op : {"kSum", "kProd"}) give("scan", scan_types(t, is_float(t) ? t : DType::kInt64, op), each, user);
  for (const char* op : {"kMax", "kMin"})
    if (all || op == std::string("kMax")) give("scan", scan_types(t, t, op), each, user);
  if (is_float(t)) give("scan", scan_types(t, t, "kAffine"), each, user);
  if (size_of(t) < 8) give("sort", sort_types(t, "kPacked"), each, user);
  give("sort", sort_types(t, "kWide"), each, user);
  give("sort", sort_types(t, "kSlices"), each, user);
  for (const DType other : kAll)
    if (all || other == DType::kInt64) give("search", search_types(t, other), each, user);
  if (is_integer(t)) give("count", count_types(t), each, user);
}

// The kernels that read or write at the places that index values or masks name.
void give_places(bool all, DType t, Each each, void* user) {
  for (const DType index : {DType::kUInt8, DType::kInt8, DType::kInt32, DType::kInt64}) {
    if (!all && index != DType::kInt64) continue;
    give("index", index_types(t, index), each, user);
    for (const DType number : {DType::kInt32, DType::kInt64})
      if (all || number == DType::kInt32) give("scatter", scatter_types(t, index, number), each, user);
    if (t == DType::kFloat32 || t == DType::kFloat64) give("bag", bag_types(t, index), each, user);
  }
  for (const DType rank : {DType::kInt32, DType::kInt64}) {
    if (!all && rank != DType::kInt32) continue;
    give("mask", mask_types(t, rank), each, user);
    give("unique", unique_types(t, rank), each, user);
    if (t == DType::kBool) give("scan", scan_types(t, rank, "kSum"), each, user);
  }
  if (t != DType::kFloat32 && t != DType::kFloat64) return;
  for (const char* order : {"kZero", "kOne", "kTwo", "kInfinite", "kAny"})
    give("distance", distance_types(t, order), each, user);
  for (int directions = 0; directions <= 4; ++directions)
    if (all || directions < 2) give("ctc", ctc_types(t, directions), each, user);
}

// Attention by tensor cores.
void give_halves(bool all, Each each, void* user) {
  using Mask = std::optional<DType>;
  for (const DType t : {DType::kFloat16, DType::kBFloat16})
    for (const Mask mask : {Mask(), Mask(DType::kBool), Mask(t), Mask(DType::kFloat32)})
      for (const int64_t width : {32, 64, 128})
        if (all || (width == 32) == mask.has_value())
          give("attention_halves", attention_halves_types({t, mask, mask.has_value(), width, width}), each, user);
}

}  // namespace
}  // namespace pg::cuda

#pragma GCC visibility push(default)

// Calls `each` with the sources of all modules of hand-written kernels that an architecture has; or of those for a few
// dtypes, and on other architectures than sm_80 only with those that depend on the architecture.
extern "C" void perigee_cuda_corpus(bool all, int arch, pg::cuda::Each each, void* user) {
  using namespace pg;
  using namespace pg::cuda;
  if (arch >= 80) give_halves(all, each, user);
  if (!all && arch != 80) return;
  give("flat", "", each, user);
  give("give", "", each, user);
  for (const DType t : kAll) {
    if (!all && t != DType::kFloat32 && t != DType::kBFloat16 && t != DType::kInt64) continue;
    const std::string element = fmt::format("using T = {};\n", type_text(t));
    for (const char* op :
         {"kSum", "kSumSquares", "kSumNumbers", "kDeviation", "kExp", "kProd", "kMax", "kMin", "kCount"})
      for (const char* finish : {"kPlain", "kScale", "kRoot", "kAny", "kAll", "kLog"})
        for (const DType out : {t, DType::kFloat64})
          if (all || (out == t && finish == std::string("kPlain")))
            give("reduce", reduce_types(t, out, op, finish), each, user);
    give("reduce", reduce_types(t, t, "kSum", "kPlain") + kFusedElement, each, user);
    give("product", element, each, user);
    give("join", join_types(size_of(t)), each, user);
    give("loop", join_types(size_of(t)), each, user);
    give("random", random_types(t), each, user);
    give("matrix", element, each, user);
    give_order(all, t, each, user);
    give_places(all, t, each, user);
    give_images(all, t, each, user);
    if (is_float(t)) give("optim", element + "using G = T;\nusing M = T;\n#define kRule kAdam\n", each, user);
    if (t == DType::kFloat32 || t == DType::kFloat64)
      give("fft", element, each, user), give("linalg", element, each, user), give("jacobi", element, each, user),
          give("reflect", element, each, user);
    if (t == DType::kFloat32 || t == DType::kFloat64)
      for (const std::optional<DType> mask : {std::optional<DType>(), std::optional(DType::kBool), std::optional(t)})
        for (const int64_t width : {64, 128})
          if (all || (width == 128) == mask.has_value())
            give("attention", attention_types({t, mask, mask.has_value(), width, width}), each, user);
    if (!is_float(t)) continue;
    for (const bool log : {false, true})
      give("softmax", element + fmt::format("constexpr bool kLog = {};\n", log), each, user);
  }
}

// The PTX of the module that the driver links with a function of its own.
extern "C" const char* perigee_cuda_condition() { return pg::cuda::condition_text().data(); }

// Compiles the formulas and a source for an architecture. Returns the size of the result, or -1 and a text in `error`.
extern "C" int64_t perigee_cuda_compile(int arch, const char* source, char* error, size_t bytes) {
  try {
    return int64_t(pg::cuda::compile(pg::cuda::target_for(arch), source).size());
  } catch (const std::exception& e) {
    std::string(e.what()).copy(error, bytes - 1);
    return -1;
  }
}

#pragma GCC visibility pop
