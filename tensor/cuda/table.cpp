// The table of the device, and the entry of the plugin.
#include "tensor/cuda/blas.h"
#include "tensor/cuda/capture.h"
#include "tensor/cuda/condition.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/memory.h"
#include "tensor/cuda/stream.h"
#include "tensor/device_abi.h"

namespace pg::cuda {
namespace {

CUdeviceptr address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }
CUstream handle(int index, void* stream) {
  gpu(index);
  return stream_at(stream).handle;
}

void* allocate(int index, void* stream, size_t bytes) { return gpu(index).memory->allocate(&stream_at(stream), bytes); }
void release(int index, void* stream, void* data, size_t) { gpu(index).memory->release(&stream_at(stream), data); }

void copy_in(int index, void* stream, void* to, const void* from_host, size_t bytes) {
  driver().cuMemcpyHtoDAsync(address(to), from_host, bytes, handle(index, stream));
}
void copy_out(int index, void* stream, void* to_host, const void* from, size_t bytes) {
  driver().cuMemcpyDtoHAsync(to_host, address(from), bytes, handle(index, stream));
}
void copy(int index, void* stream, void* to, const void* from, size_t bytes) {
  driver().cuMemcpyDtoDAsync(address(to), address(from), bytes, handle(index, stream));
}
void clear(int index, void* stream, void* to, size_t bytes) {
  driver().cuMemsetD8Async(address(to), 0, bytes, handle(index, stream));
}
void copy_between(int index, void* stream, void* to, int from_index, const void* from, size_t bytes) {
  const CUcontext source = gpu(from_index).context, target = gpu(index).context;
  driver().cuMemcpyPeerAsync(address(to), target, address(from), source, bytes, stream_at(stream).handle);
}

void* allocate_pinned(size_t bytes) {
  gpu(0);
  void* data = nullptr;
  const CUresult status = driver().cuMemHostAlloc.status(&data, bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  check_driver(status, "cuMemHostAlloc");
  return data;
}
void release_pinned(void* data, size_t) { driver().cuMemFreeHost.status(data); }

const char* title(int index) { return gpu(index).title.c_str(); }

DeviceMemory memory(int index) {
  const MemoryCounts counts = gpu(index).memory->counts();
  DeviceMemory out{counts.used, counts.reserved - counts.used};
  driver().cuMemGetInfo(&out.free, &out.total);
  return out;
}

bool set_switch(const char* name, bool on) {
  if (std::string_view(name) != "allow_tf32") return false;
  allow_tf32(on);
  return true;
}

std::span<const KernelRow> rows() {
  static const std::vector<KernelRow> all = [] {
    std::vector<KernelRow> rows;
    for (const auto family :
         {move_rows,       reduce_rows,    index_rows,    softmax_rows, random_rows,       product_rows,
          optim_rows,      conv_rows,      pool_rows,     sample_rows,  norm_rows,         label_rows,
          pad_rows,        point_rows,     sequence_rows, fft_rows,     linalg_solve_rows, linalg_factor_rows,
          matrix_exp_rows, attention_rows, join_rows,     scan_rows,    mask_rows,         sort_rows,
          unique_rows,     search_rows,    scatter_rows,  bag_rows,     distance_rows,     ctc_rows})
      for (const KernelRow& row : family()) rows.push_back(row);
    return rows;
  }();
  return all;
}

const DeviceTable& table() {
  static const bool programs = !waits_each();
  static const DeviceTable instance = {
      .abi = kDeviceAbi,
      .name = "cuda",
      .count = gpu_count,
      .create_stream = create_stream,
      .destroy_stream = destroy_stream,
      .synchronize = synchronize,
      .create_event = create_event,
      .destroy_event = destroy_event,
      .record = record,
      .follow = follow,
      .await = await,
      .allocate = allocate,
      .release = release,
      .copy_in = copy_in,
      .copy_out = copy_out,
      .copy = copy,
      .clear = clear,
      .copy_between = copy_between,
      .allocate_pinned = allocate_pinned,
      .release_pinned = release_pinned,
      .kernels = rows(),
      .kernel_for = pointwise_row,
      .host_fallback = true,
      .compile = compile_body,
      .strided_outputs = true,
      .create_program = programs ? create_program : nullptr,
      .begin_capture = programs ? begin_capture : nullptr,
      .end_capture = programs ? end_capture : nullptr,
      .launch = programs ? launch_program : nullptr,
      .destroy_program = programs ? destroy_program : nullptr,
      .nest = programs && has_conditional_nodes() ? nest_program : nullptr,
      .next_step = next_step,
      .read_row = read_row,
      .write_row = write_row,
      .title = title,
      .memory = memory,
      .set_switch = set_switch,
  };
  return instance;
}

}  // namespace
}  // namespace pg::cuda

extern "C" __attribute__((visibility("default"))) const pg::DeviceTable* perigee_device(uint64_t abi,
                                                                                        const pg::DeviceTable*) {
  if (abi != pg::kDeviceAbi) return nullptr;
  pg::cuda::start();
  return &pg::cuda::table();
}
