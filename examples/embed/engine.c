/* A host that brings its own job system, allocator and log: the library starts no thread and takes tensor memory only
 * from the host. It trains a small net and prints what the host was asked for. */
#include <perigee.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kThreads = 3 };

/* The job system: the caller and three threads take the indices of one job at a time. */
struct jobs {
  pthread_mutex_t entry, lock; /* one job at a time; the fields below */
  pthread_cond_t changed;
  void (*task)(void* arg, size_t index);
  void* arg;
  size_t next, count, running;
  int closing;
  atomic_size_t done;
};

static void run_tasks(struct jobs* jobs) { /* with the lock held */
  while (jobs->next < jobs->count) {
    const size_t index = jobs->next++;
    ++jobs->running;
    pthread_mutex_unlock(&jobs->lock);
    jobs->task(jobs->arg, index);
    atomic_fetch_add(&jobs->done, 1);
    pthread_mutex_lock(&jobs->lock);
    if (--jobs->running == 0) pthread_cond_broadcast(&jobs->changed);
  }
}

static void* job_thread(void* place) {
  struct jobs* jobs = place;
  pthread_mutex_lock(&jobs->lock);
  while (!jobs->closing) {
    run_tasks(jobs);
    pthread_cond_wait(&jobs->changed, &jobs->lock);
  }
  pthread_mutex_unlock(&jobs->lock);
  return NULL;
}

struct host {
  struct jobs jobs;
  atomic_long blocks, bytes, most; /* of tensor memory, in use */
};

static void parallel_for(void* user, size_t count, void (*task)(void* arg, size_t index), void* arg) {
  struct jobs* jobs = &((struct host*)user)->jobs;
  pthread_mutex_lock(&jobs->entry);
  pthread_mutex_lock(&jobs->lock);
  jobs->task = task, jobs->arg = arg, jobs->next = 0, jobs->count = count;
  pthread_cond_broadcast(&jobs->changed);
  run_tasks(jobs);
  while (jobs->running > 0) pthread_cond_wait(&jobs->changed, &jobs->lock);
  pthread_mutex_unlock(&jobs->lock);
  pthread_mutex_unlock(&jobs->entry);
}

static void* allocate(void* user, size_t bytes, size_t alignment) {
  struct host* host = user;
  void* block = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!block) return NULL;
  atomic_fetch_add(&host->blocks, 1);
  const long now = atomic_fetch_add(&host->bytes, (long)bytes) + (long)bytes;
  if (now > host->most) host->most = now;
  return block;
}

static void release(void* user, void* data, size_t bytes) {
  struct host* host = user;
  atomic_fetch_sub(&host->blocks, 1);
  atomic_fetch_sub(&host->bytes, (long)bytes);
  free(data);
}

static void log_line(void* user, int level, const char* text) {
  (void)user;
  fprintf(stderr, "perigee, level %d: %s\n", level, text);
}

static const char kScript[] =
    "local pg = require 'perigee' pg.manual_seed(1)\n"
    "local net = pg.nn.HybridSequential{pg.nn.Dense(256, {activation = 'tanh'}), pg.nn.Dense(1)}\n"
    "net:initialize('xavier') net:hybridize()\n"
    "local trainer, loss_fn = pg.optim.Trainer(net:collect_params(), 'adam', {learning_rate = 0.01}), pg.loss.L2Loss()\n"
    "local x = pg.randn(1024, 64) local y = x:sum(2):reshape(1024, 1):sin()\n"
    "function train() local l = pg.record(function() return loss_fn(net(x), y) end)\n"
    "  l:backward() trainer:step(1024) return l:mean():item() end";

int main(void) {
  static struct host host = {.jobs = {.entry = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
                                      .changed = PTHREAD_COND_INITIALIZER}};
  pthread_t threads[kThreads];
  perigee_runtime* runtime = NULL;
  perigee_state* state = NULL;
  perigee_value loss[2];
  perigee_runtime_config config = PERIGEE_INIT(perigee_runtime_config);
  config.threads = kThreads + 1;
  config.parallel_for = parallel_for;
  config.allocate = allocate, config.release = release;
  config.log = log_line;
  config.user = &host;
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, job_thread, &host.jobs);
  perigee_status status = perigee_runtime_create(&config, &runtime);
  if (!status) status = perigee_state_open(runtime, NULL, &state);
  if (!status) status = perigee_run(state, kScript, strlen(kScript), "engine.lua");
  for (int i = 0; i < 50 && !status; ++i) status = perigee_call(state, "train", NULL, 0, &loss[i > 0], 1, NULL);
  if (status) return fprintf(stderr, "%s\n", perigee_last_error()->message), 1;
  printf("the loss fell: %s\n", loss[1].as.number < loss[0].as.number ? "yes" : "no");
  printf("tasks ran in the host's jobs: %s\n", host.jobs.done > 0 ? "yes" : "no");
  printf("the host's memory at most: %s\n", host.most > 300000 ? "more than 300 KB" : "too little");
  perigee_state_close(state);
  perigee_runtime_release(runtime);
  pthread_mutex_lock(&host.jobs.lock);
  host.jobs.closing = 1;
  pthread_cond_broadcast(&host.jobs.changed);
  pthread_mutex_unlock(&host.jobs.lock);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  printf("blocks left: %ld\n", host.blocks);
  return 0;
}
