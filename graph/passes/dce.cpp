// Dead code: nodes that no output and no effect needs.
//
// Kept: inputs, ops with an effect and what they read, and every node that an output reaches. A node is kept whole: its
// other outputs stay although nobody reads them.
#include "graph/passes/passes.h"

namespace pg {

Graph eliminate_dead(Graph graph) { return without_dead_nodes(graph); }

}  // namespace pg
