# Passes tensors to numpy and back through DLPack, without a copy: python3 dlpack.py libperigee.so. Prints "dlpack ok".
# scripts/checks/hosts runs it; no other test needs Python.
import ctypes
import sys

import numpy

lib = ctypes.CDLL(sys.argv[1])
api, pointer = ctypes.pythonapi, ctypes.c_void_p
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [pointer, ctypes.c_char_p, pointer]
api.PyCapsule_GetPointer.restype = pointer
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
lib.perigee_tensor_data.restype = pointer
lib.perigee_tensor_rank.restype = ctypes.c_int
for name in ("data", "rank", "release"):
    getattr(lib, "perigee_tensor_" + name).argtypes = [pointer]
lib.perigee_runtime_release.argtypes = [pointer]


class Value(ctypes.Structure):  # perigee_value with a tensor
    _fields_ = [("kind", ctypes.c_int), ("tensor", pointer), ("rest", ctypes.c_size_t)]


TENSOR = 4


class Error(ctypes.Structure):  # the start of perigee_error
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char_p)]


lib.perigee_last_error.restype = ctypes.POINTER(Error)


def must(status):
    assert status == 0, lib.perigee_last_error()[0].message


class Capsule:
    """What numpy.from_dlpack takes."""

    def __init__(self, managed):
        self.capsule = api.PyCapsule_New(managed, b"dltensor", None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


runtime, state = pointer(), pointer()
must(lib.perigee_runtime_create(None, ctypes.byref(runtime)))
must(lib.perigee_state_open(runtime, None, ctypes.byref(state)))

for dtype in ("uint8", "int8", "int32", "int64", "float16", "float32", "float64"):
    array = numpy.arange(12, dtype=dtype).reshape(3, 4).T  # strides that are not row-major
    capsule = array.__dlpack__()
    tensor = pointer()
    managed = api.PyCapsule_GetPointer(capsule, b"dltensor")
    must(lib.perigee_tensor_from_dlpack(runtime, pointer(managed), ctypes.byref(tensor)))
    api.PyCapsule_SetName(capsule, b"used_dltensor")
    must(lib.perigee_set(state, b"x", ctypes.byref(Value(TENSOR, tensor))))
    text = b"assert(x:size(1) == 4 and x[{2, 3}]:item() == 9 and x.dtype == '%s') y = (x + x):t()" % dtype.encode()
    must(lib.perigee_run(state, text, ctypes.c_size_t(len(text)), b"dlpack"))
    result = Value()
    must(lib.perigee_get(state, b"y", ctypes.byref(result)))
    out = pointer()
    must(lib.perigee_tensor_to_dlpack(pointer(result.tensor), ctypes.byref(out)))
    back = numpy.from_dlpack(Capsule(out))
    assert back.dtype == array.dtype and (back == 2 * array.T).all(), back
    out = pointer()
    must(lib.perigee_tensor_to_dlpack(tensor, ctypes.byref(out)))
    same = numpy.from_dlpack(Capsule(out))
    assert same.ctypes.data == array.ctypes.data and same.strides == array.strides, "a copy"
    lib.perigee_tensor_release(pointer(result.tensor))
    lib.perigee_tensor_release(tensor)

lib.perigee_state_close.argtypes = [pointer]
lib.perigee_state_close(state)
lib.perigee_runtime_release(runtime)
assert (back == 2 * array.T).all()  # it outlives the runtime
print("dlpack ok")
