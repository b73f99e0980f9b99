/* The C API of perigee: Lua states with tensors, and exported models that run without one. C11 and C++17.
 *
 * Errors. A function that can fail returns a perigee_status and writes its results only on PERIGEE_OK. No call exits,
 * prints, throws or longjmps. NULL where a handle or a result is needed is PERIGEE_BAD_ARGUMENT. perigee_last_error
 * has the text.
 * Handles. Each _create, _open, _load and _wrap gives a handle with one reference. _retain adds one, _release drops
 * one; NULL may be released. A tensor or model may outlive the state that made it, and all outlive the runtime's
 * handle.
 * Structs. Those that the host fills begin with their size: set it with PERIGEE_INIT, which zeroes the rest.
 * Threads. Runtimes, models and tensors may be used from any thread. A state may be used from one thread at a time, not
 * always the same, and not by a callback of its own. Only perigee_interrupt may be called while a state is in use. A
 * thread needs a stack of 128 KiB; what scripts nest on it takes at most half of what is left. After fork the child may
 * go on with all handles that were not in use, but for jobs that have begun, which it may only release.
 * Callbacks. They return normally: a C++ exception or longjmp that leaves one has no promised effect.
 * The host's process. The library sets no signal handler and no locale, and reads no environment variable of its own;
 * libraries that it loads may read theirs: OMP_NUM_THREADS, and LuaJIT's LUA_PATH and LUA_CPATH in a state without a
 * sandbox. LuaJIT itself raises FE_INVALID, so floating-point traps must be off. */
#ifndef PERIGEE_H
#define PERIGEE_H
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PERIGEE_API __attribute__((visibility("default")))
#else
#define PERIGEE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct lua_State;
struct DLManagedTensor;

typedef struct perigee_runtime perigee_runtime; /* threads, tensor memory and a log */
typedef struct perigee_state perigee_state;     /* one Lua state */
typedef struct perigee_tensor perigee_tensor;   /* an array; its shape, dtype and elements do not change */
typedef struct perigee_model perigee_model;     /* an exported or frozen graph with its weights */
typedef struct perigee_job perigee_job;         /* a function of a script that runs in slices of time */

typedef enum {
  PERIGEE_OK,
  PERIGEE_BAD_ARGUMENT,
  PERIGEE_SCRIPT_ERROR, /* the script raised an error, or does not compile */
  PERIGEE_OUT_OF_MEMORY,
  PERIGEE_BUDGET_EXCEEDED, /* the call reached instruction_limit or time_limit_us */
  PERIGEE_CANCELLED,       /* by perigee_interrupt */
  PERIGEE_BAD_FILE,        /* a file that is malformed */
  PERIGEE_NO_DEVICE,
  PERIGEE_NOT_FOUND, /* no such file, or no such value in the state */
  PERIGEE_UNSUPPORTED,
  PERIGEE_INTERNAL
} perigee_status;

typedef struct {
  perigee_status status;
  const char* message;   /* "chunk:line: op: text" */
  const char* traceback; /* the script's frames, innermost first, a line each; "" if there are none */
  const char* chunk;     /* where the script raised it, or ""; longer names are cut to 59 characters, as Lua does */
  int line;              /* or 0 */
} perigee_error;

typedef enum {
  PERIGEE_BOOL,
  PERIGEE_UINT8,
  PERIGEE_INT8,
  PERIGEE_INT32,
  PERIGEE_INT64,
  PERIGEE_FLOAT16,
  PERIGEE_BFLOAT16,
  PERIGEE_FLOAT32,
  PERIGEE_FLOAT64
} perigee_dtype;

typedef enum {
  PERIGEE_NIL,
  PERIGEE_BOOLEAN,
  PERIGEE_NUMBER,
  PERIGEE_STRING,
  PERIGEE_TENSOR,
  PERIGEE_MODEL
} perigee_kind;

/* A value of a script. Values handed in are borrowed for the call. Tensors and models handed out carry a reference;
 * strings handed out are valid until the next call on the state. */
typedef struct {
  perigee_kind kind;
  union {
    int boolean;
    double number;
    struct {
      const char* data; /* ends in a zero byte that size does not count when it is handed out */
      size_t size;
    } string;
    perigee_tensor* tensor;
    perigee_model* model;
  } as;
} perigee_value;

/* A struct of this type with its size set and all other members zero. */
#ifdef __cplusplus
}
template <class T>
inline T perigee_init() {
  T value = T();
  value.size = uint32_t(sizeof(T));
  return value;
}
#define PERIGEE_INIT(type) perigee_init<type>()
extern "C" {
#else
#define PERIGEE_INIT(type) ((type){.size = sizeof(type)})
#endif

typedef struct {
  uint32_t size;
  int threads; /* that a kernel may use, the caller included; 0: one per processor */
  /* Runs task(arg, i) for each i < count, on any threads, and returns when all are done. NULL: own threads. */
  void (*parallel_for)(void* user, size_t count, void (*task)(void* arg, size_t index), void* arg);
  /* Tensor memory. Both or neither. allocate returns NULL if there is none. Called from any thread. */
  void* (*allocate)(void* user, size_t bytes, size_t alignment);
  void (*release)(void* user, void* data, size_t bytes);
  void (*log)(void* user, int level, const char* text); /* level 1: error, 2: warning, 3: info; NULL: dropped */
  /* 1: pays now, some hundredths of a second, for what the first calls of networks would pay: threads, and kernels that
   * are compiled when first used. Each state still loads modules of the library at their first use; pg.warm_up() in a
   * script loads them. */
  int warm_up;
  void* user;
  /* 1: threads sleep at once when they have nothing to do, for hosts whose other threads need the processors. 0: they
   * spin before that, for about 20 us after a kernel, and for up to 2 ms while others still run it or a graph runs. */
  int no_spin;
} perigee_runtime_config;

/* An open file of the host. read and write return a number of bytes, which may be less than `size`; read returns 0 at
 * the end; less than 0 is a failure. close is called once: with commit = 1 after the whole content was written, else
 * with 0, and then what was written is to be dropped. A result below 0 means that the content could not be kept. Called
 * on the thread of the call that reads or writes, or of the job: see Jobs. */
typedef struct {
  void* handle;
  int64_t (*read)(void* handle, void* data, size_t size);
  int64_t (*write)(void* handle, const void* data, size_t size);
  int (*close)(void* handle, int commit);
} perigee_file;

typedef struct {
  uint32_t size;
  /* 1: for scripts that are not trusted. They get an allow-list of globals, no io, debug, jit, ffi, package or
   * bytecode, of os only clock, date, difftime and time, no files but those of open_file, no modules but those of
   * find_module and open_file, no finalizers, and metatables of strings, tensors and modules that are locked. Patterns
   * have a limit of steps, and the results of string.rep, string.format, string.gsub and table.concat one of 256 MiB
   * (the operator .. has none). The JIT compiler is off. Set the three limits too: without them a script may run for
   * ever or take all memory. A process of its own protects better against defects of LuaJIT and of this library. */
  int sandboxed;
  /* Bytes of Lua, tensors and the working memory of ops together, the last in pieces from 1 MiB on; 0: no limit. A
   * request above it is an error that the script may catch; uncaught it is OUT_OF_MEMORY. Tensors are refused only
   * after a full collection. Lua has none when a request fails: its collector runs as soon as garbage may fill half of
   * the room that the last collection left, and after a refused request. Views, histories, traces and the nodes of
   * graphs count by a flat size each; what else compiled graphs hold and tensors that the host made are not counted. */
  uint64_t memory_limit;
  /* Limits of one call; 0: none. instruction_limit counts instructions of Lua in hundreds, and in a sandbox the work of
   * patterns. An op, a step of a plan and a step of a captured loop count for ten, whatever their size; up to 4096
   * short steps may count as one. time_limit_us is polled in ops, steps of loops and plans, long kernels and Lua code;
   * a C function of Lua is not interrupted. A call that reaches one ends with BUDGET_EXCEEDED, which pcall, coroutines
   * and message handlers cannot prevent. The JIT compiler is off in a state with one of these limits, because compiled
   * code cannot be stopped: plain Lua is slower, ops are not. debug.sethook, jit.on and newproxy are not available, the
   * first also with a memory_limit. A trusted script can break limits by the FFI. */
  uint64_t instruction_limit;
  int64_t time_limit_us;
  void (*print)(void* user, const char* text, size_t size); /* a line with its end; NULL: dropped */
  /* Opens a file, mode "rb" or "wb", and fills *out. Returns 0 if there is no such file or it is not allowed. When it
   * is set, perigee's functions (pg.save, pg.load, parameters, exports, data sets), loadfile, dofile, require and
   * perigee_run_file use no other files. package.path is then "?.lua;?/init.lua", and modules in C are not found. Lua's
   * io and os of a state that is not sandboxed are not changed. NULL: the files of the system. */
  int (*open_file)(void* user, const char* path, const char* mode, perigee_file* out);
  /* Gives the source text of a module that `require` asks for. Returns 0 if there is none. The text is borrowed until
   * the next call. */
  int (*find_module)(void* user, const char* name, const char** source, size_t* source_size);
  void* user;
} perigee_state_config;

typedef struct {
  uint32_t size;
  uint64_t lua_bytes, tensor_bytes;  /* of the state */
  uint64_t cached_bytes, peak_bytes; /* tensor memory of the runtime: kept for reuse, the most in use so far */
  uint64_t tensors;                  /* that the state's scripts hold, garbage included */
} perigee_memory_info;

PERIGEE_API const char* perigee_version(void);

/* The last failure of the calling thread, or a struct with PERIGEE_OK. Valid until the thread's next failing call. */
PERIGEE_API const perigee_error* perigee_last_error(void);
PERIGEE_API const char* perigee_status_name(perigee_status status); /* "PERIGEE_OK" */

/* Runtimes -------------------------------------------------------------------------------------------------------- */

/* config: NULL for defaults. Errors: BAD_ARGUMENT, OUT_OF_MEMORY. warm_up opens a Lua state and closes it. */
PERIGEE_API perigee_status perigee_runtime_create(const perigee_runtime_config* config, perigee_runtime** out);
PERIGEE_API void perigee_runtime_release(perigee_runtime* runtime);

/* States ---------------------------------------------------------------------------------------------------------- */

/* Opens a Lua state with LuaJIT's standard libraries (fewer in a sandbox), in which `require "perigee"` works. os.exit
 * raises an error. LuaJIT's compiler is off, since its code cannot be interrupted; a trusted script that needs fast
 * plain Lua more than that calls jit.on(). Ops and graphs do not depend on it. config: NULL lets print write to
 * standard output. Errors: BAD_ARGUMENT, OUT_OF_MEMORY (also if memory_limit is too small), UNSUPPORTED. */
PERIGEE_API perigee_status perigee_state_open(perigee_runtime* runtime, const perigee_state_config* config,
                                              perigee_state** out);
/* Uses a LuaJIT 2.1 state of the host with its standard libraries: sets package.loaded.perigee, and no global. `lua` is
 * the main thread of the state, not a coroutine. The host keeps the state open longer than the handle, and the state
 * has one handle at a time. Errors: BAD_ARGUMENT (also if another runtime or handle has it, or if it has loaded
 * perigee's module, which is another copy of the library), OUT_OF_MEMORY, SCRIPT_ERROR. */
PERIGEE_API perigee_status perigee_state_attach(perigee_runtime* runtime, struct lua_State* lua, perigee_state** out);
/* Closes a state that was opened; forgets one that was attached. Does nothing during a call of the state. */
PERIGEE_API void perigee_state_close(perigee_state* state);
PERIGEE_API struct lua_State* perigee_state_lua(perigee_state* state); /* NULL for NULL */

/* Runs a chunk. text: source, not bytecode. chunk_name: the name in messages, or NULL. Errors: BAD_ARGUMENT,
 * SCRIPT_ERROR, CANCELLED, BUDGET_EXCEEDED, OUT_OF_MEMORY; for a file NOT_FOUND and BAD_FILE too. */
PERIGEE_API perigee_status perigee_run(perigee_state* state, const char* text, size_t size, const char* chunk_name);
PERIGEE_API perigee_status perigee_run_file(perigee_state* state, const char* path);

/* Calls a global function, or one in a table: "controller.step". Writes the first `capacity` results, and the number of
 * all to result_count, which may be NULL. Errors: those of perigee_run; NOT_FOUND if there is no function; UNSUPPORTED
 * for a result that is no perigee_value. */
PERIGEE_API perigee_status perigee_call(perigee_state* state, const char* path, const perigee_value* args,
                                        size_t arg_count, perigee_value* results, size_t capacity,
                                        size_t* result_count);
/* Sets or gets a global or a field. Errors: BAD_ARGUMENT, NOT_FOUND if a table on the path is absent, UNSUPPORTED,
 * SCRIPT_ERROR, OUT_OF_MEMORY. */
PERIGEE_API perigee_status perigee_set(perigee_state* state, const char* path, const perigee_value* value);
PERIGEE_API perigee_status perigee_get(perigee_state* state, const char* path, perigee_value* value);

/* Ends the running call with PERIGEE_CANCELLED at its next op, loop step or interpreted instruction, also inside pcall
 * and message handlers. From any thread or signal handler. Not ended: a loop without ops that LuaJIT has compiled (in
 * an attached state, or after jit.on()), and a C function of Lua. An interrupt from another thread that comes just when
 * a finalizer ends may be lost for code without ops, unless the state has limits of calls. No effect between calls. */
PERIGEE_API void perigee_interrupt(perigee_state* state);

/* Collects garbage for about this many microseconds, or until a collection is complete. A step of LuaJIT's collector is
 * not cut: one through a table of 100 000 entries takes milliseconds. Errors: BAD_ARGUMENT. */
PERIGEE_API perigee_status perigee_gc_step(perigee_state* state, int64_t budget_us);
/* Fills the members that info->size covers. Errors: BAD_ARGUMENT. */
PERIGEE_API perigee_status perigee_memory(perigee_state* state, perigee_memory_info* info);

/* Jobs --------------------------------------------------------------------------------------------------------------
 */

/* A job runs a function of the script a few milliseconds at a time, such as a training loop inside the frames of a
 * game. The function needs no change. In it, pg.progress(x) reports and pg.yield() gives the rest of the slice back.
 * Suspended. Between two ops, between two steps of loops and of compiled plans, inside kernels, where all threads of
 * one wait, and in Lua code without ops. Not suspended: a call of a library below the kernels (about a millisecond; a
 * step of svd, 30 ms for 2000 rows and columns), a trace, the compilation of a plan, a run of a model with state, a C
 * function of Lua such as table.concat, of which many may be called before the time is looked at again, and Lua code
 * without ops where the state was attached, or where a function that the job calls was compiled by LuaJIT since its
 * first slice. In a state that was opened, LuaJIT's compiler is off during slices.
 * Between slices. The state may be used for anything, other jobs included. Parameters and .grad are those that the last
 * complete op or program has left.
 * Separate. A job begins outside of all scopes, such as pg.record, and with a copy of the default random state.
 * Threads. The functions belong to the thread that uses the state. A job has a thread of its own from its first slice
 * to its end, which runs only while the host waits in perigee_job_step; the callbacks of the state and C functions of
 * the host run on it too. A job that is suspended inside a kernel keeps the threads of that kernel, and other work gets
 * new ones. At most 16 jobs of a runtime do so at a time; the kernels of others run to their end. Threads of the host's
 * parallel_for may not wait: there a job is suspended between two calls of parallel_for. */

/* Makes a job that will call the function at `path` with these arguments. It runs nothing yet. Errors: those of
 * perigee_call. */
PERIGEE_API perigee_status perigee_job_start(perigee_state* state, const char* path, const perigee_value* args,
                                             size_t arg_count, perigee_job** out);
/* Runs the job for about budget_us microseconds, or to its end; from 0 downwards only to the next place where it can be
 * suspended. Writes to `done` whether the function has returned; later calls write 1 and run nothing. Errors:
 * BAD_ARGUMENT, also if the state is closed or in use; SCRIPT_ERROR and OUT_OF_MEMORY with the traceback of the job;
 * CANCELLED if perigee_interrupt was called meanwhile; BUDGET_EXCEEDED if the slice reached a limit of the state. The
 * last four end the job, and later calls return them again. */
PERIGEE_API perigee_status perigee_job_step(perigee_job* job, int64_t budget_us, int* done);
/* What the function has returned, as perigee_call gives it. Errors: BAD_ARGUMENT if the job is not done, UNSUPPORTED,
 * OUT_OF_MEMORY, the error of the job. */
PERIGEE_API perigee_status perigee_job_results(perigee_job* job, perigee_value* results, size_t capacity,
                                               size_t* result_count);
/* The number that the script passed to pg.progress last, or 0. Works after the state is closed. Errors: BAD_ARGUMENT.
 */
PERIGEE_API perigee_status perigee_job_progress(perigee_job* job, double* progress);
/* Ends a job that is not done: an error is raised where it is suspended, which pcall does not keep. In a callback of
 * the job's own slice that happens at the end of the slice. perigee_state_close ends the jobs of its state too; their
 * handles must still be released, after or before. */
PERIGEE_API void perigee_job_release(perigee_job* job);

/* Tensors: shapes and strides in elements -------------------------------------------------------------------------- */

/* Zeros. rank: 0 to 12. Errors: BAD_ARGUMENT, OUT_OF_MEMORY. */
PERIGEE_API perigee_status perigee_tensor_create(perigee_runtime* runtime, perigee_dtype dtype, int rank,
                                                 const int64_t* shape, perigee_tensor** out);
/* The host's memory without a copy. strides: NULL for row-major. release, if not NULL, is called on any thread when the
 * last tensor that uses the memory is gone; not if the call fails. With NULL the memory must outlive every tensor that
 * a script made of it. Scripts never write into the memory; a host that does while they may read it makes a data race.
 * Bools are bytes of 0 and 1, which the call checks and a host that writes later keeps to: ops that count others may
 * read beyond their results. Errors: BAD_ARGUMENT (also for negative strides, and data that is not aligned to its
 * elements), OUT_OF_MEMORY. */
PERIGEE_API perigee_status perigee_tensor_wrap(perigee_runtime* runtime, void* data, perigee_dtype dtype, int rank,
                                               const int64_t* shape, const int64_t* strides,
                                               void (*release)(void* user, void* data), void* user,
                                               perigee_tensor** out);
PERIGEE_API perigee_tensor* perigee_tensor_retain(perigee_tensor* tensor); /* returns the tensor */
PERIGEE_API void perigee_tensor_release(perigee_tensor* tensor);
/* Row-major elements in host memory, copied only if they are not; valid while the handle lives. NULL on failure:
 * OUT_OF_MEMORY or BAD_ARGUMENT in perigee_last_error. */
PERIGEE_API const void* perigee_tensor_data(perigee_tensor* tensor);
/* For NULL: PERIGEE_BOOL, -1, NULL, 0. */
PERIGEE_API perigee_dtype perigee_tensor_dtype(const perigee_tensor* tensor);
PERIGEE_API int perigee_tensor_rank(const perigee_tensor* tensor);
PERIGEE_API const int64_t* perigee_tensor_shape(const perigee_tensor* tensor);
PERIGEE_API size_t perigee_tensor_bytes(const perigee_tensor* tensor); /* of the row-major elements */

/* DLPack, of the CPU. from: on success the tensor owns `managed` and calls its deleter after the last use; no copy. to:
 * the consumer must not write into the memory, and calls the deleter. Errors: BAD_ARGUMENT, UNSUPPORTED (device,
 * dtype), OUT_OF_MEMORY. */
PERIGEE_API perigee_status perigee_tensor_from_dlpack(perigee_runtime* runtime, struct DLManagedTensor* managed,
                                                      perigee_tensor** out);
PERIGEE_API perigee_status perigee_tensor_to_dlpack(perigee_tensor* tensor, struct DLManagedTensor** out);

/* Models: no Lua state is involved ----------------------------------------------------------------------------------
 */

/* Loads the two files of an export. weights_path: NULL if the model has no weights. Errors: BAD_ARGUMENT, NOT_FOUND,
 * BAD_FILE, OUT_OF_MEMORY. */
PERIGEE_API perigee_status perigee_model_load(perigee_runtime* runtime, const char* graph_path,
                                              const char* weights_path, perigee_model** out);
/* The same from the contents of the files, which are borrowed for the call. weights: NULL if there are none. */
PERIGEE_API perigee_status perigee_model_load_memory(perigee_runtime* runtime, const void* graph, size_t graph_size,
                                                     const void* weights, size_t weights_size, perigee_model** out);
PERIGEE_API perigee_model* perigee_model_retain(perigee_model* model); /* returns the model */
PERIGEE_API void perigee_model_release(perigee_model* model);
PERIGEE_API size_t perigee_model_input_count(const perigee_model* model);                   /* 0 for NULL */
PERIGEE_API const char* perigee_model_input_name(const perigee_model* model, size_t index); /* NULL if there is none */
PERIGEE_API size_t perigee_model_output_count(const perigee_model* model);
PERIGEE_API const char* perigee_model_output_name(const perigee_model* model, size_t index);
/* Runs the model on any thread. Inputs have the dtypes of the export; other sizes may do. Writes output_count new
 * tensors, which must be the number of outputs and share no memory with the inputs. A model with state (running
 * statistics, the parameters of a training step that pg.jit's export has written) runs for one thread at a time and
 * updates the state after the run has succeeded. Errors: BAD_ARGUMENT (number or types of the tensors), OUT_OF_MEMORY.
 */
PERIGEE_API perigee_status perigee_model_run(perigee_model* model, perigee_tensor* const* inputs, size_t input_count,
                                             perigee_tensor** outputs, size_t output_count);
/* The same into tensors from perigee_tensor_create or _wrap, with the types of the outputs and row-major elements. No
 * script may have them: there tensors do not change. They may be inputs too, but not overlap each other. A steady state
 * of one shape allocates nothing. After BAD_ARGUMENT nothing has changed; if the run itself fails, the elements are
 * unspecified. */
PERIGEE_API perigee_status perigee_model_run_into(perigee_model* model, perigee_tensor* const* inputs,
                                                  size_t input_count, perigee_tensor* const* outputs,
                                                  size_t output_count);
/* Writes the weights and states as they are now, for perigee_model_load. The random numbers of a model start anew when
 * it is loaded. Errors: BAD_ARGUMENT, BAD_FILE if the file
 * cannot be written, OUT_OF_MEMORY. */
PERIGEE_API perigee_status perigee_model_save(perigee_model* model, const char* weights_path);

#ifdef __cplusplus
}
#endif
#endif
