// Ends a call of a state that has been interrupted or has used up its limits, and limits the memory of the state.
#pragma once
#include <atomic>
#include <lua.hpp>
#include <optional>
#include <string>

#include "tensor/context.h"
#include "tensor/memory_account.h"
#include "tensor/work_meter.h"
#include "vm/host/watchdog.h"
#include "vm/past_handlers.h"
#include "vm/include/perigee.h"

namespace pg::vm {
class State;
}

namespace pg::host {

// Once a call must end, `reason` stays set until it has ended. Every op throws Cancelled, and a hook raises an error at
// every instruction of Lua, so that neither pcall nor coroutines swallow it. The hook's error is one of memory, because
// message handlers are not called for those; Lua has its hooks off inside a handler that a hook's error has called.
class Limits {
 public:
  Limits(lua_State* L, const perigee_state_config& config);
  Limits(const Limits&) = delete;
  // Before the state is closed, or forgotten: takes the limits off.
  void leave();

  // Starts to count memory. Throws std::bad_alloc if the state is larger than the limit already.
  void limit_memory();
  // Makes the limits known to the Lua state. In one that the library has opened the compiler is off, since its code
  // runs no hooks. With limits of calls, and in a sandbox, takes from the script what would switch them off: jit.on,
  // debug.sethook, and finalizers of proxies, which run without hooks. Raises Lua errors.
  void protect(bool opened);
  // Whether the Lua state has limits.
  static bool has(lua_State* L) { return of(L) != nullptr; }

  // Around a call. `context` is null while the state is being opened: then only memory is limited.
  void begin(Context* context);
  void end();

  // From any thread or signal handler.
  void interrupt();

  // Ends a call whose last C function has used up the instructions.
  void settle();
  bool ended() const { return reason_ != PERIGEE_OK; }
  perigee_status reason() const { return reason_; }
  // What a call that has ended reports: with the place of the script, unless an op or a C function ended it, and
  // without. Call them after the script has left.
  const std::string& message() const { return message_; }
  const std::string& traceback() const { return traceback_; }
  std::string text() const;
  MemoryAccount* account() const { return account_.get(); }

 private:
  static void* allocate(void* self, void* data, size_t old_size, size_t size);
  static void hook(lua_State* L, lua_Debug*);
  static Limits* of(lua_State* L);
  void urge_collector();
  void restore_collector();
  static void note_refusal(void* self);
  void tick(lua_State* L);
  void collect(lua_State* L);
  void forget_interrupt();
  void set_usual_hook();
  void set_hook(int count);
  void end_call(perigee_status reason);
  void describe(lua_State* L) noexcept;
  bool limits_calls() const { return instructions_ > 0 || time_us_ > 0; }

  struct Hook {
    lua_Hook function = nullptr;
    int mask = 0, count = 0;
  };

  lua_State* const L_;
  Hook host_hook_;              // that the state had before the call
  vm::State* state_ = nullptr;  // none while the state is being opened
  const uint64_t instructions_;
  const int64_t time_us_;
  const int64_t memory_;

  std::atomic<Context*> context_{nullptr};  // read by interrupt(), on any thread
  std::atomic<perigee_status> reason_{PERIGEE_OK};
  WorkMeter meter_;
  WorkMeter* outer_meter_ = nullptr;
  std::optional<Watchdog::Key> deadline_;
  bool described_ = false;
  vm::Grace grace_;
  std::string message_, traceback_;

  Ref<MemoryAccount> account_;
  lua_Alloc inner_ = nullptr;  // the allocator that ours calls
  void* inner_data_ = nullptr;
  int64_t low_ = 0, urged_at_ = 0;  // the memory in use: the least since the collector was urged, and then
  int step_factor_ = 0;             // of the collector before it was urged; 0: it is not urged
  bool refused_ = false;            // whether a request was refused, and no collection has followed
  bool refused_in_call_ = false;
  int watched_ = 0;               // instructions after a refusal during which the hook runs at each
  int collections_ = 0;           // that may still follow the refusal
  lua_State* starved_ = nullptr;  // where the last collection of such a time ran,
  int frames_ = 0;                // and the number of frames there
};

}  // namespace pg::host
