-- Documents of what is written in C++ and has no row in the registry. Only the comments are read.

--- pg.tensor(data[, {dtype =, device =}]) -> a tensor from a number, a boolean, nested tables of them, or a copy of a
--- tensor. Numbers give float32, booleans bool. Ragged tables, tables with holes and numbers that the dtype cannot
--- hold are errors.

--- pg.from_bytes(bytes, dtype[, shape]) -> a tensor whose elements are the bytes of a string, in row-major order.

--- pg.version is the version of the library, a string.

--- x:item() -> the one element of a tensor as a number or boolean; an int64 beyond 2^53 as an int64 cdata.

--- x:totable() -> the elements as nested tables; the bare value of a 0-dim tensor.

--- x:to_bytes() -> the elements in row-major order as a string.

--- x:size([dim]) -> the size of a dim, or a table with all of them.

--- x:dim() -> the number of dims.

--- x:numel() -> the number of elements.

--- x:stride() -> a table with the strides in elements.

--- x:is_contiguous() -> whether the elements lie in row-major order without gaps.

--- x:equal(y) -> true when dtype, shape and all elements are the same.

--- x:allclose(y[, {rtol = 1e-5, atol = 1e-8, equal_nan = false}]) -> true when |x - y| <= atol + rtol * |y| everywhere.

--- x:copy_(y) takes the elements of y, which is broadcast, converted and moved as needed, and returns x.

--- x:fill_(number) sets every element and returns x.

--- x:zero_() sets every element to 0 and returns x.

--- x:release() gives the memory back now; any later use of x is an error.

--- x:attach_grad([request]) makes x a variable: backward leaves the gradient in x.grad. request is "write" (the
--- default), "add" or "null".

--- x:detach() -> the same values without history.

return {}
