/* Runs an exported model on one row of numbers, without Lua:
 *   model net.json net.safetensors 1 2 3 4 */
#include <perigee.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(void) {
  const perigee_error* error = perigee_last_error();
  fprintf(stderr, "%s: %s\n", perigee_status_name(error->status), error->message);
  return 1;
}

int main(int argc, char** argv) {
  float row[256];
  perigee_runtime* runtime = NULL;
  perigee_model* model = NULL;
  perigee_tensor *x = NULL, *y = NULL;
  if (argc < 4 || argc > 3 + 256) return fprintf(stderr, "usage: model GRAPH WEIGHTS NUMBERS…\n"), 2;
  const int64_t shape[] = {1, argc - 3};
  for (int i = 3; i < argc; ++i) row[i - 3] = strtof(argv[i], NULL);
  if (perigee_runtime_create(NULL, &runtime)) return fail();
  if (perigee_model_load(runtime, argv[1], argv[2], &model)) return fail();
  if (perigee_tensor_wrap(runtime, row, PERIGEE_FLOAT32, 2, shape, NULL, NULL, NULL, &x)) return fail();
  if (perigee_model_run(model, &x, 1, &y, 1)) return fail();
  const float* out = perigee_tensor_data(y);
  printf("%s:", perigee_model_output_name(model, 0));
  for (size_t i = 0; i < perigee_tensor_bytes(y) / sizeof *out; ++i) printf(" %g", out[i]);
  printf("\n");
  perigee_tensor_release(y);
  perigee_tensor_release(x);
  perigee_model_release(model);
  perigee_runtime_release(runtime);
  return 0;
}
