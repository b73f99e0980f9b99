/* A game at 60 frames per second that trains the controller of a cart while it runs, in what is left of each frame.
 * cc game.c $(pkg-config --cflags --libs perigee) && ./a.out [FRAMES [MICROSECONDS]]
 * Without arguments it plays 600 frames with 2000 µs for the job in each. With MICROSECONDS 0 it does not wait for
 * the next frame. */
#define _POSIX_C_SOURCE 200809L
#include <perigee.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* train learns a controller from simulated carts, in as many slices as it takes. It needs to know nothing of frames. */
static const char script[] =
    "local pg = require 'perigee'\n"
    "local nn = pg.nn\n"
    "pg.manual_seed(1)\n"
    "local net = nn.HybridSequential{nn.Dense(32, {activation = 'tanh'}), nn.Dense(1)}\n"
    "net:initialize('xavier')\n"
    "net:hybridize()\n"
    "net(pg.zeros(1, 2))\n"
    "function act(x, v) return net(pg.tensor{{x, v}}):item() end\n"
    "function train(rounds)\n"
    "  local trainer = pg.optim.Trainer(net:collect_params(), 'adam', {learning_rate = 1e-2})\n"
    "  local step = pg.jit(function(x, v)\n"
    "    local cost = pg.record(function()\n"
    "      local total = 0\n"
    "      for _ = 1, 20 do\n"
    "        local force = net(pg.concat({x, v}, 2)):clip(-4, 4)\n"
    "        v = v + force * 0.1\n"
    "        x = x + v * 0.1\n"
    "        total = total + x:square():mean() + v:square():mean() * 0.1\n"
    "      end\n"
    "      return total\n"
    "    end)\n"
    "    cost:backward()\n"
    "    trainer:step(1)\n"
    "    return cost\n"
    "  end)\n"
    "  local cost\n"
    "  for i = 1, rounds do\n"
    "    cost = step(pg.rand(64, 1) * 4 - 2, pg.rand(64, 1) * 2 - 1)\n"
    "    pg.progress(i / rounds)\n"
    "  end\n"
    "  return cost:item()\n"
    "end\n";

static int fail(void) {
  const perigee_error* error = perigee_last_error();
  fprintf(stderr, "%s: %s\n%s", perigee_status_name(error->status), error->message, error->traceback);
  return 1;
}

static perigee_value number(double n) {
  perigee_value value = {.kind = PERIGEE_NUMBER};
  value.as.number = n;
  return value;
}

static double clip(double force) { return force > 4 ? 4 : force < -4 ? -4 : force; }

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void wait_until(int64_t us) {
  const struct timespec t = {us / 1000000, us % 1000000 * 1000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL)) {
  }
}

int main(int argc, char** argv) {
  const int frames = argc > 1 ? atoi(argv[1]) : 600;
  const int64_t budget = argc > 2 ? atoll(argv[2]) : 2000, frame_us = 1000000 / 60;
  perigee_runtime* runtime = NULL;
  perigee_state* state = NULL;
  perigee_job* job = NULL;
  const perigee_value rounds = number(argc > 1 ? frames / 4 : 400);
  if (perigee_runtime_create(NULL, &runtime) || perigee_state_open(runtime, NULL, &state)) return fail();
  if (perigee_run(state, script, strlen(script), "game.lua")) return fail();
  if (perigee_job_start(state, "train", &rounds, 1, &job)) return fail();

  double x = 1.5, v = 0, first = 0, last = 0, progress = 0;
  int done = 0;
  const int64_t start = now_us();
  for (int frame = 0; frame < frames || !done; ++frame) {
    const perigee_value cart[] = {number(x), number(v)};
    perigee_value force;
    if (perigee_call(state, "act", cart, 2, &force, 1, NULL)) return fail();
    v += clip(force.as.number) * 0.1;
    x += v * 0.1;
    if (frame % 60 == 59) x = 1.5, v = 0; /* a new round */
    if (frame < 60) first += x * x / 60;
    last = 0.95 * last + 0.05 * x * x;
    /* Half a millisecond of the budget may go to the collector. */
    if (!done && perigee_job_step(job, budget > 0 ? budget - 500 : 0, &done)) return fail();
    if (perigee_gc_step(state, budget > 0 ? 200 : 0)) return fail();
    if (budget > 0) wait_until(start + (frame + 1) * frame_us);
  }
  perigee_value cost;
  if (perigee_job_progress(job, &progress) || perigee_job_results(job, &cost, 1, NULL)) return fail();
  printf("trained %.0f %%, cost %.3f, squared distance %.2f at first, %.2f now\n", 100 * progress, cost.as.number, first, last);
  perigee_job_release(job);
  perigee_state_close(state);
  perigee_runtime_release(runtime);
  return !(cost.as.number < 40);
}
