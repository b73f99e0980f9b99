// Dead code: removes the nodes that no output and no effect needs.
//
// Inputs, ops with an effect and what they read, and every node that an output needs are kept. A node is kept with all
// its outputs, even those that nothing reads.
#include "graph/passes/passes.h"

namespace pg {

Graph eliminate_dead(Graph graph) { return without_dead_nodes(graph); }

}  // namespace pg
