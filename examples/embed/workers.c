/* A worker pool: 16 threads answer requests with one model, each in memory of its own. A request is a line such as
 * "PREDICT 1 2 3" on standard input; the answers come in the order of the requests:
 *   workers net.json net.safetensors <requests */
#include <perigee.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWorkers = 16, kMost = 4096, kWidth = 64, kText = 512 };

static char requests[kMost][kText], answers[kMost][kText];
static size_t request_count, next_request;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static perigee_runtime* runtime;
static perigee_model* model;

static size_t take_request(void) {
  pthread_mutex_lock(&lock);
  const size_t taken = next_request++;
  pthread_mutex_unlock(&lock);
  return taken;
}

static int read_numbers(const char* text, float* row) {
  int count = 0;
  char* end;
  for (float x = strtof(text, &end); end != text && count < kWidth; x = strtof(text, &end)) {
    row[count++] = x;
    text = end;
  }
  return count;
}

static void predict(const char* text, char* answer) {
  float row[kWidth];
  const int64_t shape[] = {1, read_numbers(text, row)};
  perigee_tensor *x = NULL, *y = NULL;
  perigee_status status = perigee_tensor_wrap(runtime, row, PERIGEE_FLOAT32, 2, shape, NULL, NULL, NULL, &x);
  if (!status) status = perigee_model_run(model, &x, 1, &y, 1);
  if (status) {
    snprintf(answer, kText, "400 %s", perigee_status_name(status));
  } else {
    const float* out = perigee_tensor_data(y);
    size_t at = (size_t)snprintf(answer, kText, "200");
    for (size_t i = 0; i < perigee_tensor_bytes(y) / sizeof *out && at < kText; ++i)
      at += (size_t)snprintf(answer + at, kText - at, " %g", out[i]);
  }
  perigee_tensor_release(y);
  perigee_tensor_release(x);
}

static void* work(void* unused) {
  for (size_t i; (i = take_request()) < request_count;) {
    if (strncmp(requests[i], "PREDICT", 7) == 0)
      predict(requests[i] + 7, answers[i]);
    else
      snprintf(answers[i], kText, "404");
  }
  return unused;
}

int main(int argc, char** argv) {
  perigee_runtime_config config = PERIGEE_INIT(perigee_runtime_config);
  pthread_t workers[kWorkers];
  config.threads = 1; /* the workers are the threads */
  if (argc < 3) return fprintf(stderr, "usage: workers GRAPH WEIGHTS\n"), 2;
  if (perigee_runtime_create(&config, &runtime) || perigee_model_load(runtime, argv[1], argv[2], &model))
    return fprintf(stderr, "%s\n", perigee_last_error()->message), 1;
  while (request_count < kMost && fgets(requests[request_count], kText, stdin)) ++request_count;
  for (int i = 0; i < kWorkers; ++i) pthread_create(&workers[i], NULL, work, NULL);
  for (int i = 0; i < kWorkers; ++i) pthread_join(workers[i], NULL);
  for (size_t i = 0; i < request_count; ++i) puts(answers[i]);
  perigee_model_release(model);
  perigee_runtime_release(runtime);
  return 0;
}
