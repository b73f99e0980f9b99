// What tensors held before they were written, while pg.checkpoint runs a function. Its second run begins with these
// values, and what it has written is undone after it.
#pragma once
#include <unordered_set>
#include <vector>

#include "vm/box.h"

namespace pg::vm {

class WriteLog {
 public:
  explicit WriteLog(State& state);  // begins the log: it notes writes until it is stopped
  ~WriteLog();
  WriteLog(const WriteLog&) = delete;

  // Called before a write to a box, or to a gradient. Only the first write counts, and a box that is older than the
  // log.
  void note(Box& box);
  void note(const Ref<Cell>& cell);
  void forget(Box& box);

  void stop();
  void restore();  // sets the noted values again, as writes, which outer logs note

  WriteLog* outer;  // the log that was begun before, and still notes

 private:
  struct Entry {
    Box* box;
    Ref<Cell> cell;
    Value before;
  };

  State* state_;
  uint64_t first_box_;
  std::vector<Entry> entries_;
  std::unordered_set<const void*> noted_;
  bool running_ = true;
};

// What a trace writes are symbols. The values are written after a run.
inline void note_write(Box& box) {
  if (box.state->trace) return;
  for (WriteLog* log = box.state->write_log; log; log = log->outer) log->note(box);
}
inline void note_write(const State& state, const Ref<Cell>& cell) {
  if (state.trace) return;
  for (WriteLog* log = state.write_log; log; log = log->outer) log->note(cell);
}

void open_write_log(lua_State* L, State& state);

}  // namespace pg::vm
