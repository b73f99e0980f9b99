/* Training in slices at 60 frames per second: how often frames overrun, and what slicing costs.
 *   cc -O2 scripts/benchmarks/jobs.c -Ivm/include -Lbuild -lperigee -Wl,-rpath,$PWD/build -o /tmp/jobs
 *   /tmp/jobs lenet|lstm [eager|hybrid|jit [SECONDS [BUDGET_US [FRAMES_PER_SECOND [THREADS]]]]]
 * With 0 frames per second no frame waits for the next.
 * Each frame runs an inference of another net, then the job and the collector within the budget. It overruns by what
 * the job and the collector take longer than that. Unsliced is the same function in one call, before and after; paced
 * is one whole step per frame, since a machine that has slept computes more slowly at first. */
#define _POSIX_C_SOURCE 200809L
#include <perigee.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char script[] =
    "local pg = require 'perigee'\n"
    "local nn = pg.nn\n"
    "local other = nn.HybridSequential{nn.Dense(64, {activation = 'relu'}), nn.Dense(8)}\n"
    "other:initialize()\n"
    "other:hybridize()\n"
    "local input = pg.ones(1, 16)\n"
    "function frame() return other(input):sum():item() end\n"
    "local makers = {}\n"
    "function makers.lenet()\n"
    "  local net = nn.HybridSequential{\n"
    "    nn.Conv2D(6, 5, {activation = 'relu'}), nn.MaxPool2D(2), nn.Conv2D(16, 5, {activation = 'relu'}), nn.MaxPool2D(2),\n"
    "    nn.Flatten(), nn.Dense(120, {activation = 'relu'}), nn.Dense(84, {activation = 'relu'}), nn.Dense(10)}\n"
    "  return net, pg.rand(64, 1, 28, 28)\n"
    "end\n"
    "function makers.lstm()\n"
    "  local net = nn.block{lstm = nn.rnn.LSTM(128, {layout = 'NTC'}), out = nn.Dense(10),\n"
    "    forward = function(self, x) return self.out(self.lstm(x)) end}\n"
    "  return net, pg.rand(32, 20, 32)\n"
    "end\n"
    "steps = 0\n"
    "function make(name, way)\n"
    "  pg.manual_seed(1)\n"
    "  local net, x = makers[name]()\n"
    "  net:initialize('xavier')\n"
    "  if way == 'hybrid' then net:hybridize() end\n"
    "  local y = pg.range(1, x:size(1)) % 10 + 1\n"
    "  local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()\n"
    "  net(x)\n"
    "  local trainer = pg.optim.Trainer(net:collect_params(), 'sgd', {learning_rate = 1e-3, momentum = 0.9})\n"
    "  local function step(x, y)\n"
    "    local l = pg.record(function() return loss_fn(net(x), y):mean() end)\n"
    "    l:backward()\n"
    "    trainer:step(1)\n"
    "    return l\n"
    "  end\n"
    "  if way == 'jit' then step = pg.jit(step) end\n"
    "  function train(n)\n"
    "    for _ = 1, n do\n"
    "      step(x, y)\n"
    "      steps = steps + 1\n"
    "    end\n"
    "  end\n"
    "  train(5)\n"
    "end\n";

static perigee_state* state;

static void fail(void) {
  const perigee_error* error = perigee_last_error();
  fprintf(stderr, "%s: %s\n%s", perigee_status_name(error->status), error->message, error->traceback);
  exit(1);
}
#define CHECK(call) \
  if (call) fail()

static perigee_value text(const char* s) {
  perigee_value value = {.kind = PERIGEE_STRING};
  value.as.string.data = s;
  value.as.string.size = strlen(s);
  return value;
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static double steps(void) {
  perigee_value value;
  CHECK(perigee_get(state, "steps", &value));
  return value.as.number;
}

/* Until frame i begins. */
static void wait_for_frame(double start, int i, double per_second) {
  if (per_second <= 0) return;
  const double next = start + i * 1e6 / per_second;
  const struct timespec t = {(time_t)(next / 1e6), (long)(next - (double)(int64_t)(next / 1e6) * 1e6) * 1000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Steps per second of computing, one step per frame. */
static double paced(int frames, double per_second) {
  perigee_value n = {.kind = PERIGEE_NUMBER};
  n.as.number = 1;
  const double start = now_us();
  double used = 0;
  for (int i = 0; i < frames; ++i) {
    const double begin = now_us();
    CHECK(perigee_call(state, "train", &n, 1, NULL, 0, NULL));
    used += now_us() - begin;
    wait_for_frame(start, i + 1, per_second);
  }
  return frames / used * 1e6;
}

/* Steps per second in one call. */
static double unsliced(double seconds) {
  perigee_value n = {.kind = PERIGEE_NUMBER};
  n.as.number = 20;
  const double start = now_us(), before = steps();
  do
    CHECK(perigee_call(state, "train", &n, 1, NULL, 0, NULL));
  while (now_us() - start < seconds * 1e6);
  return (steps() - before) / (now_us() - start) * 1e6;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void print_percentiles(const char* what, const double* sorted, int n) {
  printf("  %s against the budget: p1 %+.0f, p50 %+.0f, p90 %+.0f, p99 %+.0f, p99.9 %+.0f, max %+.0f us\n", what,
         sorted[n / 100], sorted[n / 2], sorted[n * 9 / 10], sorted[n * 99 / 100], sorted[n * 999 / 1000], sorted[n - 1]);
}

int main(int argc, char** argv) {
  const char *net = argc > 1 ? argv[1] : "lenet", *way = argc > 2 ? argv[2] : "jit";
  const double seconds = argc > 3 ? atof(argv[3]) : 60, budget = argc > 4 ? atof(argv[4]) : 2000;
  const double per_second = argc > 5 ? atof(argv[5]) : 60;
  const int frames = (int)(seconds * 60);
  perigee_runtime* runtime = NULL;
  perigee_runtime_config config = PERIGEE_INIT(perigee_runtime_config);
  config.threads = argc > 6 ? atoi(argv[6]) : 0;
  CHECK(perigee_runtime_create(&config, &runtime));
  CHECK(perigee_state_open(runtime, NULL, &state));
  CHECK(perigee_run(state, script, strlen(script), "jobs.lua"));
  const perigee_value names[] = {text(net), text(way)};
  CHECK(perigee_call(state, "make", names, 2, NULL, 0, NULL));
  const double rate_before = unsliced(seconds / 8), rate_paced = paced(frames / 8, per_second);

  perigee_job* job = NULL;
  perigee_value many = {.kind = PERIGEE_NUMBER};
  many.as.number = 1e15;
  CHECK(perigee_job_start(state, "train", &many, 1, &job));
  double *over = malloc(sizeof(double) * (size_t)frames), *slice = malloc(sizeof(double) * (size_t)frames);
  double used = 0, inference = 0;
  const double before = steps(), start = now_us();
  int late = 0, done = 0;
  for (int i = 0; i < frames; ++i) {
    const double begin = now_us();
    CHECK(perigee_call(state, "frame", NULL, 0, NULL, 0, NULL));
    const double called = now_us();
    CHECK(perigee_job_step(job, (int64_t)(budget * 0.95), &done));
    const double stepped = now_us(), left = called + budget - stepped;
    CHECK(perigee_gc_step(state, left > 0 ? (int64_t)left : 0));
    over[i] = now_us() - called - budget;
    slice[i] = stepped - called - budget;
    used += stepped - called;
    inference += called - begin;
    late += over[i] > 300;
    wait_for_frame(start, i + 1, per_second);
  }
  const double rate = (steps() - before) / used * 1e6;
  perigee_job_release(job);
  const double rate_after = unsliced(seconds / 8), whole = rate_before > rate_after ? rate_before : rate_after;
  qsort(over, (size_t)frames, sizeof(double), compare);
  qsort(slice, (size_t)frames, sizeof(double), compare);
  printf("%s %s: %d frames of %.0f us, %d over by more than 300 us (%.2f %%)\n", net, way, frames, budget, late,
         100.0 * late / frames);
  print_percentiles("slice and collector", over, frames);
  print_percentiles("slice", slice, frames);
  printf("  %.1f steps/s of slices, unsliced %.1f and %.1f: %.1f %%; paced %.1f: %.1f %%; inference %.0f us\n", rate,
         rate_before, rate_after, 100 * rate / whole, rate_paced, 100 * rate / rate_paced, inference / frames);
  free(over);
  free(slice);
  perigee_state_close(state);
  perigee_runtime_release(runtime);
  return 0;
}
