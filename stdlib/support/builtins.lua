-- Documentation of functions and methods that are written in C++ and have no row in the registry. Only the comments are
-- used.

--- pg.tensor(data[, {dtype =, device =}]) -> a tensor from a number, a boolean, nested tables of them, or a copy of a
--- tensor. The default dtype is float32 for numbers and bool for booleans. Ragged tables, tables with holes and numbers
--- that the dtype cannot represent are errors. int64 cdata, as totable returns them, count as numbers.

--- pg.from_bytes(bytes, dtype[, shape]) -> a tensor whose elements are the bytes of a string, in row-major order.

--- pg.version is the version of the library, a string.

--- x:item() -> the element of a one-element tensor as a number or boolean. An int64 beyond 2^53 is returned as an int64
--- cdata.

--- x:totable() -> the elements as nested tables, or the number or boolean of a 0-dim tensor. Each int64 beyond 2^53 is
--- an int64 cdata.

--- x:to_bytes() -> the elements in row-major order as a string.

--- x:size([dim]) -> the size of a dim, or a table with all of them.

--- x:dim() -> the number of dims.

--- x:numel() -> the number of elements.

--- x:stride() -> a table with the strides in elements.

--- x:is_contiguous() -> whether the elements are stored in row-major order without gaps.

--- x:equal(y) -> whether dtype, shape and all elements are the same.

--- x:allclose(y[, {rtol = 1e-5, atol = 1e-8, equal_nan = false}]) -> whether |x - y| <= atol + rtol * |y| for all
--- elements.

--- x:copy_(y) copies the elements of y into x and returns x. y is broadcast, converted and moved to the device of x as
--- needed.

--- x:fill_(number) sets every element and returns x.

--- x:zero_() sets every element to 0 and returns x.

--- x:release() frees the memory of x now. Any later use of x is an error.

--- x:attach_grad([request]) makes x a leaf and returns x: backward stores its gradient in x.grad. request is "write"
--- (the default), "add" or "null".

--- x:detach() -> a tensor with the same values and without history.

return {}
