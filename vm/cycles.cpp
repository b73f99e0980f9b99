// Frees cycles through Lua: a backward function that refers to a tensor of its own history. The registry holds the
// function while the tape entry lives, so the collector does not see the cycle. During one full collection the
// functions are held differently: the environment of each tensor holds the functions in its history. If anything else
// reaches a tape entry (a value in C++, a tensor that is not tracked), its function stays in the registry.
#include "vm/box.h"

namespace pg::vm {
namespace {

const char kHistory = 0;  // its address is a key in a tensor's environment

class Sweep {
 public:
  Sweep(lua_State* L, State& state) : L_(L), state_(state) {}

  // Returns false and does nothing if no function can be released. The collector is stopped except for the one
  // collection, because the data built here points to tape entries, which a finalizer would free. It runs again
  // afterwards, as after any full collection.
  bool operator()() {
    lua_gc(L_, LUA_GCSTOP, 0);
    const bool swept = sweep();
    lua_gc(L_, LUA_GCRESTART, 0);
    return swept;
  }

 private:
  bool sweep() {
    kTracked.push_table(L_);
    tracked_ = lua_gettop(L_);
    find_loose();
    if (loose_.empty()) return lua_settop(L_, tracked_ - 1), false;
    make_tables();
    attach_tables();
    let_go();
    lua_gc(L_, LUA_GCCOLLECT, 0);
    lua_gc(L_, LUA_GCSTOP, 0);
    take_back();
    lua_settop(L_, tracked_ - 1);
    return true;
  }

  static TapeNode* history_of(Box& box) { return box.cell || !box.value.defined() ? nullptr : box.value.node(); }

  // Calls f for each tracked tensor that has a history, with the tensor on top of the stack.
  template <class F>
  void each_tracked(const F& f) {
    for (lua_pushnil(L_); lua_next(L_, tracked_); lua_pop(L_, 1))
      if (Box* box = to_box(L_, state_, -1); box && history_of(*box)) f(*box, history_of(*box));
  }

  // Finds the functions that are reachable from tracked tensors only.
  void find_loose() {
    for (HostedFunction* f : state_.hosted) reach_.add(f->node);
    each_tracked([&](Box&, TapeNode* node) { reach_.add(node); });
    each_tracked([&](Box&, TapeNode* node) { reach_.count(node); });
    reach_.find_outside();
    for (HostedFunction* f : state_.hosted)
      if (f->reference && !reach_.outside(f->node)) loose_.push_back(f);
  }

  // Makes one table per tape node that leads to such a function. It holds the tables of the node's inputs, and the
  // function.
  void make_tables() {
    std::vector<std::vector<size_t>> before(reach_.size());
    for (size_t i = 0; i < reach_.size(); ++i)
      each_link(reach_.node(i), [&](const TapeNode* n) { before[reach_.index_of(n)].push_back(i); });
    leads_.resize(reach_.size());
    std::vector<size_t> open;
    auto mark = [&](size_t i) {
      if (!std::exchange(leads_[i], true)) open.push_back(i);
    };
    for (HostedFunction* f : loose_) mark(reach_.index_of(f->node));
    lua_newtable(L_);
    tables_ = lua_gettop(L_);
    while (!open.empty()) {
      const size_t i = open.back();
      open.pop_back();
      for (size_t k : before[i]) mark(k);
    }
    for (size_t i = 0; i < leads_.size(); ++i)
      if (leads_[i]) lua_newtable(L_), lua_rawseti(L_, tables_, int(i) + 1);
    for (size_t i = 0; i < leads_.size(); ++i) fill_table(i);
    for (HostedFunction* f : loose_) {
      lua_rawgeti(L_, tables_, int(reach_.index_of(f->node)) + 1);
      f->reference.push(L_);
      lua_setfield(L_, -2, "backward");
      lua_pop(L_, 1);
    }
  }
  void fill_table(size_t i) {
    if (!leads_[i]) return;
    int links = 0;
    lua_rawgeti(L_, tables_, int(i) + 1);
    each_link(reach_.node(i), [&](const TapeNode* n) {
      const size_t k = reach_.index_of(n);
      if (!leads_[k]) return;
      lua_rawgeti(L_, tables_, int(k) + 1);
      lua_rawseti(L_, -2, ++links);
    });
    lua_pop(L_, 1);
  }

  void attach_tables() {
    each_tracked([&](Box& box, TapeNode* node) {
      const size_t i = reach_.index_of(node);
      if (!leads_[i]) return;
      const int at = lua_gettop(L_);
      push_extra(L_, box, at);
      lua_pushlightuserdata(L_, const_cast<char*>(&kHistory));
      lua_rawgeti(L_, tables_, int(i) + 1);
      lua_rawset(L_, -3);
      lua_pop(L_, 1);
    });
  }

  // Moves the functions and tables out of the registry. Only the environments hold them now; weak tables find them
  // again.
  void let_go() {
    push_weak_table(L_, "v");
    for (HostedFunction* f : loose_) {
      f->reference.push(L_);
      lua_rawseti(L_, -2, int(f->place) + 1);
      f->reference.give_back(L_);
    }
    kLoose.set(L_);
    state_.loose = true;
    push_weak_table(L_, "v");
    for (size_t i = 0; i < leads_.size(); ++i)
      if (leads_[i]) lua_rawgeti(L_, tables_, int(i) + 1), lua_rawseti(L_, -2, int(i) + 1);
    lua_replace(L_, tables_);
  }

  // Moves the surviving functions back to the registry. Their `place` is still valid, since no entry moves while
  // `loose` is set.
  void take_back() {
    kLoose.push_table(L_);
    for (HostedFunction* f : state_.hosted) {
      if (!f || f->reference) continue;
      lua_rawgeti(L_, -1, int(f->place) + 1);
      if (lua_isnil(L_, -1))
        lua_pop(L_, 1);
      else
        f->reference = Reference(L_, state_);
    }
    state_.loose = false;
    lua_pushnil(L_);
    kLoose.set(L_);
    for (size_t i = 0; i < leads_.size(); ++i) {  // clears the tables, which environments still hold
      if (!leads_[i]) continue;
      lua_rawgeti(L_, tables_, int(i) + 1);
      if (lua_istable(L_, -1)) empty_table(lua_gettop(L_));
      lua_pop(L_, 1);
    }
  }
  void empty_table(int at) {
    for (lua_pushnil(L_); lua_next(L_, at);) {
      lua_pop(L_, 1);
      lua_pushvalue(L_, -1);
      lua_pushnil(L_);
      lua_rawset(L_, at);
    }
  }

  lua_State* L_;
  State& state_;
  int tracked_ = 0, tables_ = 0;
  TapeReach reach_;
  std::vector<HostedFunction*> loose_;
  std::vector<char> leads_;
};

constexpr size_t kFewFunctions = 64;

}  // namespace

void State::track(lua_State* L, Box& box) {
  kTracked.push_table(L);
  lua_pushlightuserdata(L, &box);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void State::adopt(HostedFunction& function, TapeNode& node) {
  function.place = hosted.size();
  hosted.push_back(&function);
  function.node = &node;  // from here on its destructor calls disown
  node.hosted = true;
  for (const Value& v : node.held)
    if (v.is_array() && v.array().buffer) hosted_bytes += v.array().buffer->bytes;
}

void State::disown(HostedFunction& function) {
  hosted[function.place] = nullptr;
  if (loose) return;  // places must not change now
  if (HostedFunction* last = hosted.back()) {
    last->place = function.place;
    hosted[function.place] = last;
  }
  hosted.pop_back();
}

void State::collect_cycles(lua_State* L) {
  hosted_bytes = 0;
  const bool look = !loose && walks + parked_walks == 0 && !trace && !hosted.empty() && lua_checkstack(L, 12);
  if (!look || !Sweep(L, *this)()) lua_gc(L, LUA_GCCOLLECT, 0);
  if (!loose) {
    std::erase(hosted, nullptr);
    for (size_t i = 0; i < hosted.size(); ++i) hosted[i]->place = i;
  }
  break_cycles(ctx);
  next_hosted = 2 * hosted.size() + kFewFunctions;
}

}  // namespace pg::vm
