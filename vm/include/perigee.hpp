// The handles of perigee.h as C++17 objects. Nothing here throws: a call that fails returns a status, as in C.
#pragma once
#include <perigee.h>

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace perigee {

// Owns one reference of a handle. Release drops it.
template <class Handle, void (*Release)(Handle*)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle* handle) : handle_(handle) {}  // takes the reference over
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() { Release(handle_); }

  Handle* get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  // The place for a function's result. What was held is released.
  Handle** out() {
    Release(std::exchange(handle_, nullptr));
    return &handle_;
  }

 private:
  Handle* handle_ = nullptr;
};

using Runtime = Owned<perigee_runtime, perigee_runtime_release>;
using Tensor = Owned<perigee_tensor, perigee_tensor_release>;
using Model = Owned<perigee_model, perigee_model_release>;
using State = Owned<perigee_state, perigee_state_close>;
using Job = Owned<perigee_job, perigee_job_release>;

inline perigee_status run(const State& state, std::string_view text, const char* chunk_name = nullptr) {
  return perigee_run(state.get(), text.data(), text.size(), chunk_name);
}

// Values to hand in. They borrow what they refer to.
inline perigee_value value() { return perigee_value{}; }
// Numbers of any type; bool, strings, tensors and models have their own.
template <class Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
perigee_value value(Number number) {
  perigee_value v{};
  v.kind = PERIGEE_NUMBER;
  v.as.number = double(number);
  return v;
}
inline perigee_value value(bool boolean) {
  perigee_value v{};
  v.kind = PERIGEE_BOOLEAN;
  v.as.boolean = boolean;
  return v;
}
inline perigee_value value(std::string_view text) {
  perigee_value v{};
  v.kind = PERIGEE_STRING;
  v.as.string = {text.data(), text.size()};
  return v;
}
inline perigee_value value(const char* text) { return value(std::string_view(text)); }
inline perigee_value value(perigee_tensor* tensor) {
  perigee_value v{};
  v.kind = PERIGEE_TENSOR;
  v.as.tensor = tensor;
  return v;
}
inline perigee_value value(perigee_model* model) {
  perigee_value v{};
  v.kind = PERIGEE_MODEL;
  v.as.model = model;
  return v;
}
inline perigee_value value(const Tensor& tensor) { return value(tensor.get()); }
inline perigee_value value(const Model& model) { return value(model.get()); }

}  // namespace perigee
