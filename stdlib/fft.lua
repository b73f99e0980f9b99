-- pg.fft: the ops whose names begin with fft_, without that prefix.
local core = ...
local namespace = core.require("support.namespace")

return namespace.seal("fft", namespace.of_ops("fft"))
