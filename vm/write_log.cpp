#include "vm/write_log.h"

#include <algorithm>

#include "vm/bindings.h"
#include "vm/handle.h"

namespace pg::vm {
namespace {

constexpr RegistryKey kWriteLogClass;

using Handle = std::unique_ptr<WriteLog>;

WriteLog& check_log(lua_State* L) {
  Handle* handle = to_handle<Handle>(L, 1, kWriteLogClass);
  if (!handle || !*handle) throw Error("checkpoint: expected a log");
  return **handle;
}

int collect_log(lua_State* L) {
  if (auto* handle = static_cast<Handle*>(lua_touserdata(L, 1))) handle->reset();
  return 0;
}

// log_writes() → a log of the writes to older tensors from now on, until log:stop(). log:restore() sets what they held.
int log_writes(lua_State* L, State& state) {
  auto* handle = new (lua_newuserdata(L, sizeof(Handle))) Handle;
  kWriteLogClass.push_table(L);
  lua_setmetatable(L, -2);
  *handle = std::make_unique<WriteLog>(state);
  return 1;
}

int stop_log(lua_State* L, State&) { return check_log(L).stop(), 0; }
int restore_log(lua_State* L, State&) { return check_log(L).restore(), 0; }

}  // namespace

WriteLog::WriteLog(State& state) : outer(state.write_log), state_(&state), first_box_(state.next_box) {
  state.write_log = this;
  state.logs.push_back(this);
}

WriteLog::~WriteLog() {
  if (state_->closed) return;
  stop();
  std::erase(state_->logs, this);
}

// The collector may stop a log of a coroutine that was abandoned while others note, also in a chain that is parked.
void WriteLog::stop() {
  if (!std::exchange(running_, false)) return;
  const auto remove = [this](Dynamics& from) {
    for (WriteLog** at = &from.write_log; *at; at = &(*at)->outer)
      if (*at == this) return *at = outer, true;
    return false;
  };
  if (remove(*state_)) return;
  for (Dynamics* parked : state_->parked)
    if (remove(*parked)) return;
}

void WriteLog::note(Box& box) {
  if (box.cell) return note(box.cell);
  if (box.serial >= first_box_ || !noted_.insert(&box).second) return;
  entries_.push_back({&box, {}, box.value});
  box.logged = true;
}

void WriteLog::note(const Ref<Cell>& cell) {
  if (noted_.insert(cell.get()).second) entries_.push_back({nullptr, cell, cell->value});
}

void WriteLog::forget(Box& box) {
  if (noted_.erase(&box) > 0) std::erase_if(entries_, [&](const Entry& e) { return e.box == &box; });
}

void WriteLog::restore() {
  for (const Entry& e : entries_) {
    if (e.box) {
      set_value(*e.box, e.before);
      continue;
    }
    note_write(*state_, e.cell);
    e.cell->value = e.before;
  }
}

void open_write_log(lua_State* L, State& state) {
  register_functions(L, state, {{"log_writes", entry<log_writes>}});
  make_class(L, state, kWriteLogClass, collect_log, {{"stop", entry<stop_log>}, {"restore", entry<restore_log>}});
}

}  // namespace pg::vm
