// perigee_runtime_*
#include "vm/host/handles.h"

using namespace pg;
using namespace pg::host;

perigee_status perigee_runtime_create(const perigee_runtime_config* given, perigee_runtime** out) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_runtime_create";
    need(out, kName, "out");
    const perigee_runtime_config config = copy_config(given, kName);
    if (config.warm_up)
      throw Failure(PERIGEE_UNSUPPORTED, "perigee_runtime_create: this version does not support warm_up; leave it 0");
    RuntimeOptions options;
    options.threads = config.threads;
    options.jobs = {config.parallel_for, config.user};
    options.memory = {config.allocate, config.release, config.user};
    options.log = config.log;
    options.log_user = config.user;
    *out = reinterpret_cast<perigee_runtime*>(give(Runtime::create(options)));
  });
}

void perigee_runtime_release(perigee_runtime* runtime) {
  if (runtime) reinterpret_cast<Runtime*>(runtime)->release();
}
