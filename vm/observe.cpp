// core functions that start and end the observers of ops: profiles, pg.trace, the counts of net:summary.
#include <algorithm>
#include <unordered_map>

#include "tensor/anomaly.h"
#include "tensor/range.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/output.h"
#include "vm/profile.h"

namespace pg::vm {
namespace {

// Prints what each op and each step of a program got and gave. Ops that an op is made of are not shown.
class OpPrinter final : public Observer {
 public:
  explicit OpPrinter(State& state) : Observer(true), state_(state) {}

  void begin(Work& work) noexcept override {
    if (!shown(work)) return;
    try {
      started_[&work] = before(work);   // an op may write over its operands
    } catch (const std::exception&) {}  // the line is lost
  }
  void end(Work& work) noexcept override {
    const auto at = started_.find(&work);
    if (at == started_.end()) return;
    try {
      print_out(at->second + " -> " + after(work) + "\n");
    } catch (const std::exception&) {}
    started_.erase(at);
  }

 private:
  static bool shown(const Work& work) {
    if (work.kind != Work::Kind::kOp && work.kind != Work::Kind::kStep) return false;
    for (const Work* outer = work.outer; outer; outer = outer->outer)
      if (outer->kind == Work::Kind::kOp) return false;
    return true;
  }

  std::string before(const Work& work) const {
    std::string text = work.step && !work.step->line.empty() ? std::string(work.step->line)
                       : state_.entry                        ? script_position(state_.entry->L)
                                                             : "";
    if (!text.empty()) text += ": ";
    if (!work.op) return text + work.step->label();
    std::string operands = describe_operands(*work.op, work.values, work.in, true);
    for (size_t i = 0; i < work.op->attrs.size(); ++i) {
      const AttrDef& def = work.op->attrs[i];
      const AttrValue& value = (*work.attrs)[i];
      if (value == def.fallback || value.index() == 0 || def.kind == AttrKind::kRandom) continue;
      operands += fmt::format("{}{} = {}", operands.empty() ? "" : "; ", def.name, to_string(value));
    }
    return fmt::format("{}{}({})", text, work.op->name, operands);
  }

  static std::string after(const Work& work) {
    if (work.out.empty()) return "an error";
    if (work.op) return describe_results(*work.op, work.out, true);
    std::string text;
    for (const View& v : work.out)
      if (v) text += (text.empty() ? "" : "; ") + describe_range(v, true);
    return text;
  }

  State& state_;
  std::unordered_map<const Work*, std::string> started_;  // those of jobs do not nest
};

// Counts multiply-adds. An op that has its own count covers the ops that it is made of.
class WorkCounter final : public Observer {
 public:
  void begin(Work& work) noexcept override {
    if (!counts(work)) return;
    if (depth_++ == 0) outermost_ = &work;
  }
  void end(Work& work) noexcept override {
    if (!counts(work) || depth_ == 0) return;
    --depth_;
    if (outermost_ == &work && !work.out.empty()) total += work.op->multiply_adds(work.in, work.out);
  }
  double total = 0;

 private:
  static bool counts(const Work& work) { return work.op && work.op->multiply_adds; }
  int depth_ = 0;
  const Work* outermost_ = nullptr;
};

template <class T>
T* observer_of(State& state) {
  for (size_t i = state.observers.size(); i-- > 0;)
    if (auto* found = dynamic_cast<T*>(state.observers[i].get())) return found;
  return nullptr;
}

void start(State& state, std::unique_ptr<Observer> observer) {
  state.observers.push_back(std::move(observer));
  state.ctx.observer = state.observers.back().get();
}

// Ends the last observer of the type and returns it, or null. The one that was started before it goes on.
template <class T>
std::unique_ptr<T> stop(State& state) {
  auto& all = state.observers;
  for (size_t i = all.size(); i-- > 0;) {
    if (!dynamic_cast<T*>(all[i].get())) continue;
    std::unique_ptr<T> found(static_cast<T*>(all[i].release()));
    all.erase(all.begin() + ptrdiff_t(i));
    state.ctx.observer = all.empty() ? nullptr : all.back().get();
    return found;
  }
  return nullptr;
}

// start_profile(most events) → whether it has started: there is one profile at a time.
int start_profile(lua_State* L, State& state) {
  const int64_t most = check_integer(L, state, 1, "profile", "max_events");
  const bool first = !observer_of<Profile>(state);
  if (first) start(state, std::make_unique<Profile>(state, size_t(std::max<int64_t>(most, 0))));
  return lua_pushboolean(L, first), 1;
}

void set_number(lua_State* L, const char* name, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, name);
}

void set_text(lua_State* L, const char* name, const Profile& profile, int32_t number) {
  if (number < 0) return;
  const std::string& text = profile.text(number);
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, name);
}

void push_rows(lua_State* L, const Profile& profile, Profile::Category category) {
  lua_newtable(L);
  int count = 0;
  for (const Profile::Row& row : profile.rows()) {
    if (row.category != category || row.count == 0) continue;
    lua_createtable(L, 0, 7);
    set_text(L, "name", profile, row.name);
    set_text(L, "graph", profile, row.program);
    set_text(L, "line", profile, row.line);
    set_number(L, "count", double(row.count));
    set_number(L, "total", double(row.total) / 1e6);
    set_number(L, "ms", double(row.own) / 1e6);
    set_number(L, "bytes", double(row.bytes));
    lua_rawseti(L, -2, ++count);
  }
}

void push_lines(lua_State* L, const Profile& profile) {
  lua_newtable(L);
  int count = 0;
  for (size_t i = 0; i < profile.lines().size(); ++i) {
    const Profile::Line& line = profile.lines()[i];
    if (line.own == 0) continue;
    lua_createtable(L, 0, 3);
    set_text(L, "line", profile, int32_t(i));
    set_number(L, "count", double(line.count));
    set_number(L, "ms", double(line.own) / 1e6);
    lua_rawseti(L, -2, ++count);
  }
}

// stop_profile(path or nil) → what was measured, in milliseconds; nil if there is no profile. Writes the events to
// the file.
int stop_profile(lua_State* L, State& state) {
  const std::string path = lua_isnoneornil(L, 1) ? "" : check_string(L, state, 1, "profile", "path");
  const std::unique_ptr<Profile> profile = stop<Profile>(state);
  if (!profile) return lua_pushnil(L), 1;
  const double total = double(profile->elapsed()) / 1e6;
  if (!path.empty())
    access_files(state, "profile", [&] { write_file_atomic(path, [&](FileSink& file) { profile->write(file); }); });
  lua_createtable(L, 0, 12);
  set_number(L, "total", total);
  set_number(L, "events", double(profile->events()));
  set_number(L, "dropped", double(profile->dropped()));
  using enum Profile::Category;
  const std::pair<const char*, Profile::Category> lists[] = {
      {"ops", kOp},           {"kernels", kKernel},      {"runs", kGraph},  {"backward", kBackward},
      {"compiled", kCompile}, {"collector", kCollector}, {"traced", kTrace}};
  for (const auto& [name, category] : lists) {
    push_rows(L, *profile, category);
    lua_setfield(L, -2, name);
  }
  push_lines(L, *profile);
  lua_setfield(L, -2, "lines");
  return 1;
}

// profile_mark() → time, own time: the start of a trace, for profile_trace. Nil if there is no profile.
int profile_mark(lua_State* L, State& state) {
  const Profile* profile = observer_of<Profile>(state);
  if (!profile) return lua_pushnil(L), 1;
  const Profile::Mark mark = profile->mark();
  lua_pushnumber(L, double(mark.time));
  lua_pushnumber(L, double(mark.own));
  return 2;
}

// profile_trace(name, time, own time, reason or "") notes that a function was traced since the mark.
int profile_trace(lua_State* L, State& state) {
  Profile* profile = observer_of<Profile>(state);
  if (profile)
    profile->add_trace(check_string(L, state, 1, "profile", "name"),
                       {int64_t(lua_tonumber(L, 2)), int64_t(lua_tonumber(L, 3))},
                       check_string(L, state, 4, "profile", "reason"));
  return 0;
}

int start_op_trace(lua_State*, State& state) { return start(state, std::make_unique<OpPrinter>(state)), 0; }
int stop_op_trace(lua_State*, State& state) { return stop<OpPrinter>(state), 0; }

int start_count(lua_State*, State& state) { return start(state, std::make_unique<WorkCounter>()), 0; }
// counted() → the multiply-adds since start_count.
int counted(lua_State* L, State& state) {
  const WorkCounter* counter = observer_of<WorkCounter>(state);
  lua_pushnumber(L, counter ? counter->total : 0);
  return 1;
}
int stop_count(lua_State*, State& state) { return stop<WorkCounter>(state), 0; }

// kept_bytes{tensor, …} → the bytes that the history of these tensors keeps for backward, without its leaves.
int kept_bytes_of(lua_State* L, State& state) {
  Values heads;
  for (int i = 1, n = int(lua_objlen(L, 1)); i <= n; ++i) {
    lua_rawgeti(L, 1, i);
    heads.push_back(check_value(L, state, lua_gettop(L), "summary", "output"));
    lua_pop(L, 1);
  }
  lua_pushnumber(L, double(kept_bytes(heads)));
  return 1;
}

}  // namespace

void open_observe(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"start_profile", entry<start_profile>},
                      {"stop_profile", entry<stop_profile>},
                      {"profile_mark", entry<profile_mark>},
                      {"profile_trace", entry<profile_trace>},
                      {"start_op_trace", entry<start_op_trace>},
                      {"stop_op_trace", entry<stop_op_trace>},
                      {"start_count", entry<start_count>},
                      {"counted", entry<counted>},
                      {"stop_count", entry<stop_count>},
                      {"kept_bytes", entry<kept_bytes_of>}});
}

}  // namespace pg::vm
