// Layout: chains of convolutions run on images whose channels are the last dim, where the device's convolutions are
// fastest. An image in this form is an ordinary tensor (N, spatial..., C), and a permutation is its form for the rest
// of the graph. The image is reordered only where it enters a chain. Pointwise ops, pooling, concatenation of channels
// and sums over all positions belong to a chain; other ops read the permutation.
//
// Programs that compute gradients of weights have this form where the device's kernels of these gradients pay on it,
// too; otherwise each image would be kept in both forms. Batch normalization then belongs to a chain as that of a
// matrix, whose rows are all positions. Sums of channels read the chain, and images that meet it are reordered.
//
// Convolutions add up in another order, so results differ by a few units in the last place of the largest term of a
// sum, relatively 1e-5 in float32. Outputs of the graph are row-major, as without the pass.
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/device_table.h"
#include "tensor/ops/conv_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Dims numbers_of_dims(int rank) {
  Dims dims;
  for (int d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

using Types = SmallVector<Type, 4>;

// Whether the device's kernel of an op with the channels last pays for the node of its plain form. `in`, `out`: the
// types of that kernel; those of absent inputs are not read.
bool kernel_pays(const OpDef& op, const Node& node, const Types& in, const Type& out, bool reorders) {
  const KernelRow row = kernel_row(op, out.device, std::span<const Type>(in.data(), in.size()));
  if (!row.fn || !row.pays) return false;
  SmallVector<View, 4> views;
  for (size_t i = 0; i < in.size(); ++i)
    views.push_back(node.inputs[i].is_none() ? View{} : View{&in[i], nullptr, nullptr});
  const View result{&out, nullptr, nullptr};
  auto no_allocation = [](int, const Dims&) -> View { return {}; };
  return row.pays(KernelArgs{op, {views.data(), views.size()}, {&result, 1}, node.attrs, no_allocation}, reorders);
}

// Whether a gradient by weights pays on images with the channels last.
bool gradient_pays(const Graph& graph, const Node& node) {
  Types types;
  for (const Operand& operand : node.inputs) types.push_back(graph.type(operand));
  const OpDef* op = node.op->channels_last(AttrReader(*node.op, node.attrs), types[0].shape.size());
  if (!op) return false;
  for (Type& t : types) t.shape = channels_last(t.shape);
  return kernel_pays(*op, node, types, node.types[0], true);
}

class Layouts {
 public:
  Layouts(Graph graph, bool learns) : rewrite_(std::move(graph)), learns_(learns), reads_more_(rewrite_.size()) {
    const auto read = [&](const Operand& operand) {
      if (operand.is_node() && operand.output > 0) reads_more_[size_t(operand.node)] = true;
    };
    for (size_t i = 0; i < rewrite_.size(); ++i)
      for (const Operand& operand : rewrite_.old(i).inputs) read(operand);
    for (const Operand& operand : rewrite_.old_outputs()) read(operand);
  }

  Graph run() {
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      Node node = rewrite_.take(i);
      line_ = node.line;
      if (learns_ && (gradient_of_weight(i, node) || gradient_of_bias(i, node) || normalized(i, node))) continue;
      const Operand last = in_chain(i, node);
      if (last.is_none()) {
        rewrite_.keep(i, rewrite_.append(std::move(node)));
        continue;
      }
      for (size_t k = 0; k < node.types.size(); ++k) replace(i, k, {last.node, int32_t(k)});
    }
    if (last_.empty()) return rewrite_.finish();
    Graph graph = rewrite_.finish();
    make_dense(graph);
    return without_dead_nodes(graph);
  }

 private:
  const Type& type(const Operand& operand) const { return rewrite_.graph().type(operand); }
  int rank(const Operand& operand) const { return type(operand).shape.size(); }

  // Replaces output k of an old node by a permutation of its form with the channels last.
  void replace(size_t i, size_t k, const Operand& last) {
    const Operand plain = permuted(last, false);
    rewrite_.replace(i, k, plain);
    last_[plain.node] = last;
  }

  Operand permuted(const Operand& x, bool last) {
    const Dims dims = numbers_of_dims(rank(x)), order = last ? channels_last(dims) : channels_first(dims);
    return rewrite_.emit<"permute">({x}, {{"dims", user_dims(order)}}, line_);
  }

  // Returns the form with the channels last that exists already, or none.
  Operand existing(const Operand& x) const {
    if (!x.is_node() || x.output != 0) return {};
    const auto at = last_.find(x.node);
    return at == last_.end() ? Operand() : at->second;
  }
  Operand with_channels_last(const Operand& x) {
    if (const Operand last = existing(x); !last.is_none()) return last;
    const Operand last = rewrite_.emit<"contiguous">({permuted(x, true)}, {}, line_);
    if (x.output == 0) last_[x.node] = last;
    return last;
  }

  // Returns the output of the node with the channels last, or none if the node does not belong to a chain.
  Operand in_chain(size_t i, const Node& node) {
    if (node.kind != NodeKind::kOp || node.inputs.size() == 0) return {};
    if (reads_more_[i] && !node.is<"max_pool">()) return {};
    if (node.is<"conv_by_weight">()) return {};
    if (node.is<"max_pool_backward">()) return moved_to_maxima(node);
    if (node.op->channels_last) return windowed(node);
    if (node.is<"cat">()) return joined(node);
    if (node.op->has(kPointwise) && !node.op->has(kRandom)) return pointwise(node);
    if (node.is<"mean", "sum", "amax", "amin">()) return reduced(node);
    return {};
  }

  // A convolution whose kernel pays on this form, or pooling within a chain.
  Operand windowed(const Node& node) {
    const Operand& x = node.inputs[0];
    const OpDef* op = node.op->channels_last(AttrReader(*node.op, node.attrs), rank(x));
    const bool is_conv = node.inputs.size() > 1;
    if (!op || (is_conv ? !pays(*op, node) : existing(x).is_none())) return {};
    Operands inputs(node.inputs);
    inputs[0] = with_channels_last(x);
    return rewrite_.emit(*op, inputs, node.attrs, line_);
  }

  // The gradient of max pooling within a chain.
  Operand moved_to_maxima(const Node& node) {
    const Operand index = existing(node.inputs[1]);
    const OpDef* op = node.op->channels_last(AttrReader(*node.op, node.attrs), rank(node.inputs[0]));
    if (!op || index.is_none()) return {};
    return rewrite_.emit(*op, Operands{with_channels_last(node.inputs[0]), index}, node.attrs, line_);
  }

  bool pays(const OpDef& op, const Node& node) const {
    Types types;
    for (const Operand& operand : node.inputs) types.push_back(operand.is_none() ? Type{} : type(operand));
    Type out = node.types[0];
    types[0].shape = channels_last(types[0].shape), out.shape = channels_last(out.shape);
    return kernel_pays(op, node, types, out, existing(node.inputs[0]).is_none());
  }

  // A gradient by weights, one of whose images has this form already.
  bool gradient_of_weight(size_t i, const Node& node) {
    if (!node.is<"conv_by_weight">() || (existing(node.inputs[0]).is_none() && existing(node.inputs[1]).is_none()))
      return false;
    const OpDef* op = node.op->channels_last(AttrReader(*node.op, node.attrs), rank(node.inputs[0]));
    const Operand x = with_channels_last(node.inputs[0]), dy = with_channels_last(node.inputs[1]);
    rewrite_.replace(i, 0, rewrite_.emit(*op, Operands{x, dy}, node.attrs, line_));
    return true;
  }

  // A sum of each channel.
  bool gradient_of_bias(size_t i, const Node& node) {
    if (!node.is<"sum">() || existing(node.inputs[0]).is_none()) return false;
    const AttrReader c(*node.op, node.attrs);
    const int dims = rank(node.inputs[0]);
    Ints given, all_but_channels, leading;
    for (int64_t d : c.dims("dim", dims)) given.push_back(d + 1);
    std::sort(given.begin(), given.end());
    for (int d = 1; d < dims; ++d) all_but_channels.push_back(d == 1 ? 1 : d + 1), leading.push_back(d);
    if (given != all_but_channels || c.attr<bool>("keepdim")) return false;
    Attrs attrs = node.attrs;
    attrs[size_t(node.op->attr_index("dim"))] = leading;
    rewrite_.replace(i, 0, rewrite_.emit(*node.op, Operands{existing(node.inputs[0])}, std::move(attrs), line_));
    return true;
  }

  // Batch normalization, or a gradient of it, of the matrix (positions, channels).
  bool normalized(size_t i, const Node& node) {
    if (!node.is<"batch_norm_train", "batch_norm_apply", "batch_norm_sums", "batch_norm_dx">()) return false;
    const Dims shape = type(node.inputs[0]).shape;
    const auto is_image = [&](const Operand& x) { return x.is_node() && rank(x) == shape.size(); };
    if (shape.size() < 3 || std::none_of(node.inputs.begin(), node.inputs.end(),
                                         [&](const Operand& x) { return is_image(x) && !existing(x).is_none(); }))
      return false;
    const int64_t channels = shape[1], rows = channels ? numel(shape) / channels : 0;
    Operands inputs;
    for (const Operand& x : node.inputs)
      inputs.push_back(is_image(x) ? reshaped(with_channels_last(x), {rows, channels}) : x);
    const Operand first = rewrite_.emit(*node.op, inputs, node.attrs, line_);
    for (size_t k = 0; k < node.types.size(); ++k) {
      const Operand output{first.node, int32_t(k)};
      if (node.types[k].shape.size() < 2)
        rewrite_.replace(i, k, output);
      else
        replace(i, 0, reshaped(output, channels_last(shape)));
    }
    return true;
  }

  Operand reshaped(const Operand& x, const Dims& shape) {
    return rewrite_.emit<"reshape_to">({x}, {{"shape", Ints(shape.begin(), shape.end())}}, line_);
  }

  // All operands must be numbers, have this form, have one element, or be one value per channel. Gradients also meet
  // images that do not have it yet.
  Operand pointwise(const Node& node) {
    if (node.types.size() != 1) return {};
    const Dims& shape = node.types[0].shape;
    Operands inputs;
    bool chained = false;
    for (const Operand& x : node.inputs) {
      inputs.push_back(x);
      if (!x.is_node()) continue;
      if (const Operand last = existing(x); !last.is_none() && type(x).shape == shape)
        inputs.back() = last, chained = true;
      else if (learns_ && type(x).shape == shape && shape.size() > 2)
        continue;
      else if (numel(type(x).shape) != 1 && !is_per_channel(type(x).shape, shape))
        return {};
    }
    if (!chained) return {};
    for (size_t k = 0; k < inputs.size(); ++k) {
      Operand& x = inputs[k];
      if (!x.is_node() || numel(type(x).shape) == 1 || !(x == node.inputs[k])) continue;
      x = is_per_channel(type(x).shape, shape) ? reshaped(x, {numel(type(x).shape)}) : with_channels_last(x);
    }
    return rewrite_.emit(*node.op, inputs, node.attrs, line_);
  }
  static bool is_per_channel(const Dims& shape, const Dims& image) {
    const int at = shape.size() - (image.size() - 1);  // of the channels
    if (image.size() < 2 || at < 0 || at > 1 || shape[at] != image[1]) return false;
    return numel(shape) == image[1];
  }

  // Channels joined.
  Operand joined(const Node& node) {
    const AttrReader c(*node.op, node.attrs);
    const int dims = node.types[0].shape.size();
    if (dims < 3 || c.dim("dim", dims) != 1) return {};
    Operands inputs;
    for (const Operand& x : node.inputs) {
      inputs.push_back(existing(x));
      if (inputs.back().is_none()) return {};
    }
    return rewrite_.emit(*node.op, inputs, make_attrs(*node.op, {{"dim", int64_t(dims)}}), line_);
  }

  // A sum or extreme of all positions that keeps their dims. A product might overflow in another order.
  Operand reduced(const Node& node) {
    const Operand last = existing(node.inputs[0]);
    if (last.is_none() || node.types.size() != 1 || node.inputs.size() != 1) return {};
    if (node.op->attr_index("dim") < 0 || node.op->attr_index("keepdim") < 0) return {};
    const AttrReader c(*node.op, node.attrs);
    const size_t at = size_t(node.op->attr_index("dim"));
    if (node.op->attrs[at].kind != AttrKind::kDims || !c.attr<bool>("keepdim")) return {};
    const int dims = rank(last);
    const Dims given = c.dims("dim", dims);
    Ints wanted, positions;
    for (int64_t d : given) wanted.push_back(d + 1);
    std::sort(wanted.begin(), wanted.end());
    for (int d = 3; d <= dims; ++d) positions.push_back(d);
    if (wanted != positions) return {};
    for (int64_t& d : positions) --d;
    Attrs attrs = node.attrs;
    attrs[at] = positions;
    return rewrite_.emit(*node.op, Operands{last}, std::move(attrs), line_);
  }

  // Copies outputs that are permutations of this pass.
  void make_dense(Graph& graph) const {
    std::map<int32_t, Operand> copies;
    for (Operand& output : graph.outputs) {
      if (output.output != 0 || !last_.contains(output.node) || !graph.node(output).is<"permute">()) continue;
      const auto [at, is_new] = copies.try_emplace(output.node);
      if (is_new) {
        graph.nodes.push_back(make_node(graph, op_named<"contiguous">(), Operands{output},
                                        make_attrs(op_named<"contiguous">(), {}), graph.node(output).line));
        at->second = Operand::of(graph.nodes.size() - 1);
      }
      output = at->second;
    }
  }

  Rewrite rewrite_;
  const bool learns_;                // the program computes gradients of weights
  std::vector<char> reads_more_;     // by old node: something reads another output than the first
  std::map<int32_t, Operand> last_;  // by new node: its first output with the channels last
  int32_t line_ = -1;
};

}  // namespace

Graph choose_layouts(Graph graph) {
  bool learns = false;
  for (const Node& node : graph.nodes) {
    if (!node.is<"conv_by_weight">()) continue;
    if (!gradient_pays(graph, node)) return graph;
    learns = true;
  }
  return Layouts(std::move(graph), learns).run();
}

}  // namespace pg
