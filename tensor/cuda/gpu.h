// The devices of the driver.
#pragma once
#include <memory>
#include <string>

#include "tensor/cuda/driver.h"

namespace pg::cuda {

class Memory;
class Modules;

struct Gpu {
  explicit Gpu(int index);
  ~Gpu();
  Gpu(const Gpu&) = delete;

  const int index;
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::string title;  // the product's name
  int arch = 0;       // 90 for sm_90
  int multiprocessors = 1;
  const std::unique_ptr<Memory> memory;
  const std::unique_ptr<Modules> modules;

  int attribute(CUdevice_attribute which) const;
};

// Starts the driver; returns the number of devices. Throws Error if there is none.
int start();
int gpu_count();  // after start
// Returns a device, opened at its first use. Its context becomes that of the calling thread.
Gpu& gpu(int index);

}  // namespace pg::cuda
