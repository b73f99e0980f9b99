// perigee_runtime_*
#include <string>
#include <string_view>

#include "tensor/settings.h"
#include "vm/host/handles.h"

using namespace pg;
using namespace pg::host;

namespace {

// Pays for first uses, in a state that is closed again.
void warm_up(perigee_runtime* runtime) {
  constexpr std::string_view kScript = "require('perigee').warm_up()";
  perigee_state* state = nullptr;
  perigee_status status = perigee_state_open(runtime, nullptr, &state);
  if (status == PERIGEE_OK) status = perigee_run(state, kScript.data(), kScript.size(), "warm_up");
  perigee_state_close(state);
  if (status != PERIGEE_OK) throw Failure(status, std::string(perigee_last_error()->message));
}

}  // namespace

perigee_status perigee_runtime_create(const perigee_runtime_config* given, perigee_runtime** out) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_runtime_create";
    need(out, kName, "out");
    const perigee_runtime_config config = copy_config(given, kName);
    settings_ignored = !settings_kept;
    RuntimeOptions options;
    options.threads = config.threads;
    if (config.no_spin) options.spin_us = 0;
    options.jobs = {config.parallel_for, config.user};
    options.memory = {config.allocate, config.release, config.user};
    options.log = config.log;
    options.log_user = config.user;
    const Ref<Runtime> made = Runtime::create(options);
    if (config.warm_up) warm_up(reinterpret_cast<perigee_runtime*>(made.get()));
    *out = reinterpret_cast<perigee_runtime*>(give(made));
  });
}

void perigee_runtime_release(perigee_runtime* runtime) {
  if (runtime) reinterpret_cast<Runtime*>(runtime)->release();
}
