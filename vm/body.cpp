// BodyBuilder: captures and writes of outer tensors while a body is traced.
#include "vm/trace.h"

namespace pg::vm {
namespace {
constexpr int kMaxBodies = 200;  // with gradients this depth takes less than 2 MB of the C stack
}

BodyBuilder::BodyBuilder(lua_State* L, State& state, TraceSession& session, Kind kind)
    : GraphBuilder(Stage::kTrace, session.innermost),
      state_(state),
      session_(session),
      outer_(state.ctx.interpreter),
      enclosing_(session.innermost),
      enclosing_body_(session.body),
      kind_(kind),
      first_box_(state.next_box),
      depth_(session.body ? session.body->depth_ + 1 : 1) {
  if (depth_ > kMaxBodies)
    throw Error(fmt::format(
        "bodies of branches and loops nest deeper than {}: a function that calls itself through cond has no end in a "
        "graph; use while_loop",
        kMaxBodies));
  own_streams = kind == Kind::kCombinator;
  lua_newtable(L);
  boxes_ = Reference(L, state);
  session.innermost = session.body = this;
  state.ctx.interpreter = this;
}

BodyBuilder::~BodyBuilder() { close(); }

void BodyBuilder::close() {
  if (std::exchange(closed_, true)) return;
  for (Outside& o : outside) {
    o.now = stored(o.box->get());
    o.written = o.now.is_array() && !(owns(o.now) && symbol_of(o.now) == symbol_of(o.symbol));
    put_value(*o.box, o.before);
  }
  session_.innermost = enclosing_;
  session_.body = enclosing_body_;
  state_.ctx.interpreter = outer_;
}

void BodyBuilder::touch(lua_State* L, Box& box, int i) {
  if (enclosing_body_) enclosing_body_->touch(L, box, i);
  if (kind_ == Kind::kBackward || box.serial >= first_box_ || box.cell || !box.get().is_array()) return;
  if (!places_.emplace(&box, outside.size()).second) return;
  const Value before = box.get();
  Value symbol = add_input(before.type());
  symbol.link(before.node(), before.node_output());
  if (before.node() && before.node()->leaf) link_leaf(symbol, before.node());
  outside.push_back({&box, before, symbol, {}});
  put_value(box, std::move(symbol));
  need_stack(L, 4, "trace");
  lua_pushvalue(L, i);
  boxes_.push(L);
  lua_insert(L, -2);
  lua_rawseti(L, -2, int(outside.size()));
  lua_pop(L, 1);
}

void BodyBuilder::guard(const Value& value, TypeGuard::Kind kind, int32_t dim, int64_t answer) {
  if (kind != TypeGuard::kRequiresGrad || !owns(value)) return GraphBuilder::guard(value, kind, dim, answer);
  for (const Outside& o : outside)
    if (symbol_of(value) == symbol_of(o.symbol)) enclosing_->guard(o.before, kind, dim, answer);
}

Value BodyBuilder::read_gradient(TapeNode& leaf) { return session_.read_gradient(leaf); }

void BodyBuilder::write_gradient(TapeNode& leaf, Value gradient) {
  const Value made = value_of(&leaf);
  if (!owns(made) || graph.node(symbol_of(made)).kind != NodeKind::kLeaf)
    throw Error("backward: a body cannot write the .grad of a tensor from outside; use pg.grad inside of it");
  GraphBuilder::write_gradient(leaf, std::move(gradient));
}

}  // namespace pg::vm
