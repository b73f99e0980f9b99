// Span kernels of elementary functions and activations: float32 in vectors where speed matters, the rest by libm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/pointwise_math.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/spans-inl.h"
#include "tensor/cpu/pointwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace s = pg::scalar;

static constexpr SpanRow kRows[] = {
    simd_row<VectorExp, s::Exp>("exp", 400),
    simd_row<VectorExp2, s::Exp2>("exp2", 400),
    simd_row<VectorExpm1, s::Expm1>("expm1", 400),
    simd_row<VectorLog, s::Log>("log", 500),
    simd_row<VectorLog2, s::Log2>("log2", 500),
    simd_row<VectorLog1p, s::Log1p>("log1p", 600),
    simd_row<VectorTanh, s::Tanh>("tanh", 500),
    simd_row<VectorSigmoid, s::Sigmoid>("sigmoid", 500),
    simd_row<VectorErf, s::Erf>("erf", 800),
    simd_row<VectorSin, s::Sin>("sin", 600),
    simd_row<VectorCos, s::Cos>("cos", 600),
    simd_row<VectorTan, s::Tan>("tan", 1300),
    simd_row<VectorSilu, s::Silu>("silu", 500),
    simd_row<VectorMish, s::Mish>("mish", 600),
    simd_row<VectorGelu, s::Gelu>("gelu", 800),
    simd_row<VectorElu, s::Elu>("elu", 400),
    simd_row<VectorCelu, s::Celu>("celu", 400),
    simd_row<VectorSelu, s::Selu>("selu", 400),
    simd_row<VectorSoftplus, s::Softplus>("softplus", 900),
    simd_row<VectorLogsigmoid, s::Logsigmoid>("logsigmoid", 900),
    float_row<UnaryOf, s::Log10>("log10", 6000),
    float_row<UnaryOf, s::Asin>("asin", 6000),
    float_row<UnaryOf, s::Acos>("acos", 6000),
    float_row<UnaryOf, s::Atan>("atan", 6000),
    float_row<UnaryOf, s::Sinh>("sinh", 9000),
    float_row<UnaryOf, s::Cosh>("cosh", 9000),
    float_row<UnaryOf, s::Asinh>("asinh", 9000),
    float_row<UnaryOf, s::Acosh>("acosh", 9000),
    float_row<UnaryOf, s::Atanh>("atanh", 9000),
    float_row<UnaryOf, s::Erfc>("erfc", 9000),
    float_row<UnaryOf, s::Erfinv>("erfinv", 60000),
    float_row<UnaryOf, s::Lgamma>("lgamma", 20000),
    float_row<UnaryOf, s::Digamma>("digamma", 30000),
    float_row<UnaryOf, s::Polygamma>("polygamma", 300000),
    float_row<BinaryOf, s::Atan2>("atan2", 15000),
    float_row<BinaryOf, s::Hypot>("hypot", 5000),
    float_row<BinaryOf, s::Copysign>("copysign", 100),
    float_row<BinaryOf, s::Logaddexp>("logaddexp", 15000),
};
std::span<const SpanRow> math_table() { return kRows; }

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(math_table);
std::span<const SpanRow> math_spans() { return HWY_DYNAMIC_DISPATCH(math_table)(); }
}  // namespace pg::cpu
#endif
