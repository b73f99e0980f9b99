/* A host in C: gives a script an array without a copy, and reads the result.
 * cc hello.c $(pkg-config --cflags --libs perigee) && ./a.out */
#include <perigee.h>
#include <stdio.h>
#include <string.h>

static const char script[] =
    "local pg = require 'perigee'\n"
    "function double(x) return x * 2, x:sum():item() end\n";

static int fail(void) {
  const perigee_error* error = perigee_last_error();
  fprintf(stderr, "%s: %s\n%s", perigee_status_name(error->status), error->message, error->traceback);
  return 1;
}

int main(void) {
  perigee_runtime* runtime = NULL;
  perigee_state* state = NULL;
  float numbers[] = {1, 2, 3};
  const int64_t shape[] = {3};
  perigee_value x = {.kind = PERIGEE_TENSOR}, results[2];
  if (perigee_runtime_create(NULL, &runtime) || perigee_state_open(runtime, NULL, &state)) return fail();
  if (perigee_run(state, script, strlen(script), "hello.lua")) return fail();
  if (perigee_tensor_wrap(runtime, numbers, PERIGEE_FLOAT32, 1, shape, NULL, NULL, NULL, &x.as.tensor)) return fail();
  if (perigee_call(state, "double", &x, 1, results, 2, NULL)) return fail();
  const float* y = perigee_tensor_data(results[0].as.tensor);
  printf("%g %g %g, sum %g\n", y[0], y[1], y[2], results[1].as.number);
  perigee_tensor_release(results[0].as.tensor);
  perigee_tensor_release(x.as.tensor);
  perigee_state_close(state);
  perigee_runtime_release(runtime);
  return 0;
}
