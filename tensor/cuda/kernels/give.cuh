// Bytes of the host in the memory of the device.
namespace pg::kernels {

PERIGEE_KERNEL(give, GiveArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) a.to[i] = a.bytes[i];
}

}  // namespace pg::kernels
