// y = activation(y + bias), in place. T, Bias: the dtypes of the elements; ACTIVATED(v): the activation.
namespace pg::kernels {

PERIGEE_KERNEL(epilogue, EpilogueArgs) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  T* y = static_cast<T*>(a.y);
  const Bias* bias = static_cast<const Bias*>(a.bias);
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    Wide v = Wide(widen(y[i]));
    // Rounded before the activation, as the result of a convolution is.
    if (bias) v = Wide(widen(convert_one<T>(v + Wide(widen(bias[i / a.plane % a.channels])))));
    y[i] = convert_one<T>(ACTIVATED(v));
  }
}

}  // namespace pg::kernels
