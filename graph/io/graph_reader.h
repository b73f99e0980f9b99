// GraphReader: reads the graphs of a model file, each into a Graph whose references are checked.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/io/model_file.h"
#include "graph/io/value_reader.h"

namespace pg {

class GraphReader : public ValueReader {
 protected:
  GraphReader(std::string_view text, const ModelSource& source) : ValueReader(source.name, text), source_(source) {}

  std::string context() const override;

  Graph read_graphs();  // the last one, whose nodes hold the others
  GradReq read_request();

  // Returns null if the file with the tensors has none of this name.
  const Value* find_tensor(const std::string& name);
  // Ignores the device. Tensor files store no devices: the graph says where its tensors are.
  static bool alike(const Type& a, const Type& b);
  static Value on_device(const Value& value, Device device);

  const ModelSource& source_;
  std::unordered_set<size_t> taken_;  // the tensors that were found
  int64_t version_ = 1;               // of the format

 private:
  void read_graph(Graph& graph);
  Operand read_operand();
  TypeGuard read_guard(const Graph& graph);

  void read_node(const Graph& graph, Node& node);
  void read_kind(size_t op_at, size_t version_at, size_t kind_at, Node& node);
  void check_kind(const Node& node, size_t tensor_at);
  Operand read_earlier(const Graph& graph);
  void read_constant(Node& node);

  void set_body(Node& node, const std::vector<std::shared_ptr<const Graph>>& bodies, size_t loop_at, size_t streams_at);
  std::vector<std::shared_ptr<const Graph>> read_bodies();
  std::shared_ptr<const Graph> take_body(int64_t g, size_t at) override;

  void read_old_control(Node& node, std::vector<std::shared_ptr<const Graph>> bodies, size_t loop_at,
                        size_t streams_at);
  void read_loop(LoopForm& loop);
  BodyStream read_stream();

  std::vector<std::shared_ptr<Graph>> graphs_;
  std::vector<int> depths_;  // by graph: levels of graphs nested in it
  std::unordered_set<int32_t> used_;
  std::unordered_map<std::string, size_t> places_;
  int64_t graph_ = -1, node_ = -1;
  const OpDef* old_control_ = nullptr;  // the op of a branch or loop of versions 2 and 3
  const OpDef* op_ = nullptr;
  int64_t op_version_ = 1;
};

}  // namespace pg
