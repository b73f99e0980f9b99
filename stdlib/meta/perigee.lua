---@meta perigee
-- Written by scripts/stubs.lua from the registry and the comments of the library.

---@alias perigee.DType "bool"|"uint8"|"int8"|"int32"|"int64"|"float16"|"bfloat16"|"float32"|"float64"

---@class perigee.Generator
local Generator = {}
---@param seed integer
function Generator:seed(seed) end

---@class perigee.Tensor
---@operator add(perigee.Tensor|number): perigee.Tensor
---@operator sub(perigee.Tensor|number): perigee.Tensor
---@operator mul(perigee.Tensor|number): perigee.Tensor
---@operator div(perigee.Tensor|number): perigee.Tensor
---@operator mod(perigee.Tensor|number): perigee.Tensor
---@operator pow(perigee.Tensor|number): perigee.Tensor
---@operator unm: perigee.Tensor
---@operator len: integer
---@field shape integer[]
---@field dtype perigee.DType
---@field device string
---@field name string?
---@field grad perigee.Tensor?
---@field requires_grad boolean
---@field T perigee.Tensor
---@field mT perigee.Tensor
---@field [integer|table|perigee.Tensor] perigee.Tensor
---@field abs_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field absolute_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field acos_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field acosh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field adaptive_avg_pool_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field add_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field addcdiv_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field addcmul_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field addmm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field addr_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field affine_grid_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field all_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field alpha_dropout_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field amax_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field amin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field any_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arccos_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arccosh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arcsin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arcsinh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arctan2_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arctan_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field arctanh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field argmax_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field argmin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field argsort_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field asin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field asinh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field assert_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field atan2_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field atan_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field atanh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field atleast_1d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field atleast_2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field atleast_3d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field avg_pool1d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field avg_pool2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field avg_pool3d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field baddbmm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bernoulli_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field binary_cross_entropy_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field binary_cross_entropy_with_logits_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bitwise_and_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bitwise_left_shift_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bitwise_not_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bitwise_or_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bitwise_right_shift_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bitwise_xor_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bmm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field bucketize_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cauchy_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cdist_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field ceil_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field celu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field clamp_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field clip_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field clone_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field combinations_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field conv1d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field conv2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field conv3d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field conv_transpose1d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field conv_transpose2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field conv_transpose3d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field copysign_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field corrcoef_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cos_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cosh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cosine_embedding_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cosine_similarity_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field count_nonzero_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cov_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cross_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cross_entropy_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field ctc_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cumprod_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field cumsum_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field deform_conv2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field diag_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field diag_embed_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field diff_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field digamma_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field div_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field divide_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field dot_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field dropout1d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field dropout2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field dropout3d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field elu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field embedding_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field embedding_bag_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field empty_like_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field eq_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field erf_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field erfc_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field erfinv_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field exp2_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field exp_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field expm1_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field exponential_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field feature_alpha_dropout_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field fix_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field flip_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field fliplr_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field flipud_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field floor_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field floor_divide_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field fmax_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field fmin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field fmod_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field fold_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field frac_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field full_like_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field gather_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field gaussian_nll_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field gcd_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field ge_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field gelu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field geometric_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field glu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field greater_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field greater_equal_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field grid_sample_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field group_norm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field gt_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field gumbel_softmax_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field hardshrink_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field hardsigmoid_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field hardswish_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field hardtanh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field heaviside_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field hinge_embedding_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field histc_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field huber_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field hypot_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field index_add_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field index_copy_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field index_fill_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field index_put_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field index_select_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field inner_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field instance_norm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field interpolate_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field isclose_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field isfinite_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field isinf_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field isnan_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field istft_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field kl_div_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field kron_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field l1_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field layer_norm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field lcm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field le_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field leaky_relu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field lerp_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field less_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field less_equal_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field lgamma_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field linear_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field local_response_norm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field log10_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field log1p_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field log2_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field log_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field log_normal_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field log_softmax_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logaddexp_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logcumsumexp_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logical_and_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logical_not_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logical_or_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logical_xor_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logit_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logsigmoid_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field logsumexp_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field lp_pool_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field lt_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field margin_ranking_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field masked_fill_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field masked_scatter_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field matmul_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field max_unpool1d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field max_unpool2d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field max_unpool3d_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field maximum_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field mean_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field minimum_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field mish_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field mm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field mse_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field mul_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field multi_margin_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field multilabel_margin_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field multilabel_soft_margin_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field multinomial_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field multiply_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field mv_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field nan_to_num_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field nanmean_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field nanquantile_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field nansum_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field ne_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field neg_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field negative_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field nll_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field norm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field normal_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field normalize_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field not_equal_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field one_hot_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field ones_like_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field outer_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field pad_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field pairwise_distance_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field pick_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field pixel_shuffle_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field pixel_unshuffle_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field poisson_nll_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field polygamma_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field pow_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field power_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field prelu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field prod_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field put_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field quantile_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field rand_like_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field randn_like_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field ravel_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field reciprocal_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field relu6_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field relu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field remainder_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field renorm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field repeat_interleave_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field rms_norm_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field roll_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field rot90_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field round_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field rrelu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field rsqrt_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field scaled_dot_product_attention_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field scatter_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field scatter_add_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field scatter_reduce_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field searchsorted_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field selu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sequence_last_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sequence_mask_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sequence_reverse_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sigmoid_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sign_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field silu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sinh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field smooth_l1_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field soft_margin_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field softmax_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field softmin_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field softplus_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field softshrink_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field softsign_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sqrt_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field square_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field std_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field stft_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sub_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field subtract_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sum_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field sum_to_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field take_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field take_along_dim_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field tan_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field tanh_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field tanhshrink_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field tensordot_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field threshold_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field tile_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field trace_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field tril_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field triplet_margin_loss_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field triu_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field true_divide_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field trunc_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field trunc_divide_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field type_as_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field unflatten_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field unfold_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field uniform_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field vander_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field var_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field vdot_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field where_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field xlogy_ fun(self: perigee.Tensor, ...): perigee.Tensor
---@field zeros_like_ fun(self: perigee.Tensor, ...): perigee.Tensor
local Tensor = {}

---The absolute value. The gradient at 0 is 0.
---@return perigee.Tensor out
function Tensor:abs() end

---The absolute value. The gradient at 0 is 0.
---Another name of abs.
---@return perigee.Tensor out
function Tensor:absolute() end

---The angle in 0..pi whose cosine is x; NaN outside -1..1.
---@return perigee.Tensor out
function Tensor:acos() end

---The inverse of cosh; NaN below 1.
---@return perigee.Tensor out
function Tensor:acosh() end

---Means over as many windows per spatial dim as given by `size`, whatever the size of x. The length of `size` is the number of spatial dims; one number is used for all of them when x has 4 dims or more.
---@param size integer|integer[] spatial sizes of the result
---@return perigee.Tensor out
function Tensor:adaptive_avg_pool(size) end

---Maxima over as many windows per spatial dim as given by `size`, whatever the size of x. The length of `size` is the number of spatial dims; one number is used for all of them when x has 4 dims or more. With return_indices also the positions of the maxima, as max_pool2d gives them.
---@param size integer|integer[] spatial sizes of the result
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, size: integer|integer[], options: {return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:adaptive_max_pool(size, return_indices, index_base) end

---x + y, with broadcasting; with alpha x + alpha y. For bools it is the logical or; integers wrap around.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function Tensor:add(y) end

---x + value * tensor1 / tensor2, with broadcasting. Integers give float32.
---@param tensor1 perigee.Tensor
---@param tensor2 perigee.Tensor
---@param value? number factor of the term
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, tensor1: perigee.Tensor, tensor2: perigee.Tensor, options: {value?: number}): perigee.Tensor
function Tensor:addcdiv(tensor1, tensor2, value) end

---x + value * tensor1 * tensor2, with broadcasting.
---@param tensor1 perigee.Tensor
---@param tensor2 perigee.Tensor
---@param value? number factor of the term
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, tensor1: perigee.Tensor, tensor2: perigee.Tensor, options: {value?: number}): perigee.Tensor
function Tensor:addcmul(tensor1, tensor2, value) end

---beta * input + alpha * mat1 mat2.
---@param mat1 perigee.Tensor
---@param mat2 perigee.Tensor
---@param beta? number factor of input; with 0 it is not read
---@param alpha? number factor of the product
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, mat1: perigee.Tensor, mat2: perigee.Tensor, options: {beta?: number, alpha?: number}): perigee.Tensor
function Tensor:addmm(mat1, mat2, beta, alpha) end

---beta * input + alpha * the outer product of two vectors.
---@param vec1 perigee.Tensor
---@param vec2 perigee.Tensor
---@param beta? number factor of input; with 0 it is not read
---@param alpha? number factor of the product
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, vec1: perigee.Tensor, vec2: perigee.Tensor, options: {beta?: number, alpha?: number}): perigee.Tensor
function Tensor:addr(vec1, vec2, beta, alpha) end

---The grid for grid_sample that moves each output point by the matrix theta (batch, 2, 3), or (batch, 3, 4) for volumes. size: batch, channels and spatial sizes of the output.
---@param size integer|integer[] batch, channels and spatial sizes
---@param align_corners? boolean -1 and 1 are the centers of the first and last elements, not their edges
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, size: integer|integer[], options: {align_corners?: boolean}): perigee.Tensor
function Tensor:affine_grid(size, align_corners) end

---Whether all elements over dims are not 0; true of nothing.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:all(dim, keepdim) end

---Dropout that keeps mean 0 and variance 1: in training elements become the negative limit of selu with probability p, and the result is scaled and shifted; otherwise x. Klambauer et al., Self-normalizing neural networks, 2017.
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:alpha_dropout(p, training) end

---The largest element over dims; NaN when there is one. Equal elements share the gradient.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:amax(dim, keepdim) end

---The smallest element over dims; NaN when there is one. Equal elements share the gradient.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:amin(dim, keepdim) end

---The smallest and the largest element over dim, or of all; NaN when there is one. Equal elements share the gradient.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor min
---@return perigee.Tensor max
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean}): perigee.Tensor, perigee.Tensor
function Tensor:aminmax(dim, keepdim) end

---Whether any element over dims is not 0; false of nothing.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:any(dim, keepdim) end

---The angle in 0..pi whose cosine is x; NaN outside -1..1.
---Another name of acos.
---@return perigee.Tensor out
function Tensor:arccos() end

---The inverse of cosh; NaN below 1.
---Another name of acosh.
---@return perigee.Tensor out
function Tensor:arccosh() end

---The angle in -pi/2..pi/2 whose sine is x; NaN outside -1..1.
---Another name of asin.
---@return perigee.Tensor out
function Tensor:arcsin() end

---The inverse of sinh.
---Another name of asinh.
---@return perigee.Tensor out
function Tensor:arcsinh() end

---The angle in -pi/2..pi/2 whose tangent is x.
---Another name of atan.
---@return perigee.Tensor out
function Tensor:arctan() end

---The angle of the point (y, x) in -pi..pi, with broadcasting. Note the order: pg.atan2(y, x).
---Another name of atan2.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:arctan2(x) end

---The inverse of tanh; NaN outside -1..1.
---Another name of atanh.
---@return perigee.Tensor out
function Tensor:arctanh() end

---The index of the first largest element along dim, of the flattened tensor without dim; int64, from 1 on.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:argmax(dim, keepdim, index_base) end

---The index of the first smallest element along dim, of the flattened tensor without dim; int64, from 1 on.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:argmin(dim, keepdim, index_base) end

---The positions that bring x in ascending order along `dim`, int64. Equal elements keep their order; NaN counts as the largest value.
---@param dim? integer the dim to order along
---@param descending? boolean the largest first
---@param stable? boolean accepted; equal values always keep their order
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, descending?: boolean, stable?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:argsort(dim, descending, stable, index_base) end

---Another name of nonzero.
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:argwhere(index_base) end

---The angle in -pi/2..pi/2 whose sine is x; NaN outside -1..1.
---@return perigee.Tensor out
function Tensor:asin() end

---The inverse of sinh.
---@return perigee.Tensor out
function Tensor:asinh() end

---The condition itself, after checking that no element of it is zero or false; else an error with the message. It checks at every run, in graphs too.
---@param message? string the text of the error
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {message?: string}): perigee.Tensor
function Tensor:assert(message) end

---The angle in -pi/2..pi/2 whose tangent is x.
---@return perigee.Tensor out
function Tensor:atan() end

---The angle of the point (y, x) in -pi..pi, with broadcasting. Note the order: pg.atan2(y, x).
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:atan2(x) end

---The inverse of tanh; NaN outside -1..1.
---@return perigee.Tensor out
function Tensor:atanh() end

---x, or a tensor of one element if x is 0-dim.
---@return perigee.Tensor out
function Tensor:atleast_1d() end

---x with leading dims of size 1 up to 2 dims.
---@return perigee.Tensor out
function Tensor:atleast_2d() end

---x with dims of size 1 up to 3 dims: n elements become 1 x n x 1, a matrix m x n becomes m x n x 1.
---@return perigee.Tensor out
function Tensor:atleast_3d() end

---The mean of each window, channel by channel.
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param count_include_pad? boolean count the padding in the mean
---@param divisor_override? integer divides the sums instead of the window's size
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): perigee.Tensor
function Tensor:avg_pool1d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---The mean of each window, channel by channel.
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param count_include_pad? boolean count the padding in the mean
---@param divisor_override? integer divides the sums instead of the window's size
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): perigee.Tensor
function Tensor:avg_pool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---The mean of each window, channel by channel.
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param count_include_pad? boolean count the padding in the mean
---@param divisor_override? integer divides the sums instead of the window's size
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): perigee.Tensor
function Tensor:avg_pool3d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---beta * input + alpha * batch1 batch2, for batches of matrices.
---@param batch1 perigee.Tensor
---@param batch2 perigee.Tensor
---@param beta? number factor of input; with 0 it is not read
---@param alpha? number factor of the product
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, batch1: perigee.Tensor, batch2: perigee.Tensor, options: {beta?: number, alpha?: number}): perigee.Tensor
function Tensor:baddbmm(batch1, batch2, beta, alpha) end

---Normalizes each channel (dim 2) over batch and positions, then scales and shifts by channel (Ioffe, Szegedy 2015). In training with the statistics of the batch, else with the running ones. Returns the result and the new running mean and variance: momentum times the old plus the rest times those of the batch; nothing is changed in place, and an empty batch changes nothing. Without running statistics it returns only the result and always uses the batch. training follows the mode (pg.record, pg.train_mode) when absent.
---@param running_mean? perigee.Tensor of each channel
---@param running_var? perigee.Tensor of each channel
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param training? boolean whether to use the statistics of the batch; by the mode when absent
---@param momentum? number share of the running statistics that is kept
---@param eps? number added to the variance
---@param running_var_correction? number taken from the count in the divisor of the running variance
---@return perigee.Tensor out
---@return perigee.Tensor new_running_mean
---@return perigee.Tensor new_running_var
---@overload fun(self: perigee.Tensor, options: {running_mean?: perigee.Tensor, running_var?: perigee.Tensor, weight?: perigee.Tensor, bias?: perigee.Tensor, training?: boolean, momentum?: number, eps?: number, running_var_correction?: number}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function Tensor:batch_norm(running_mean, running_var, weight, bias, training, momentum, eps, running_var_correction) end

---1 with the probability of each element of p, else 0, in the dtype of p. With `probability` all elements have that one, and p gives only shape and dtype: x:bernoulli_(0.5). A probability outside [0, 1] is an error.
---@param probability? number one probability for all elements
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {probability?: number, generator?: perigee.Generator}): perigee.Tensor
function Tensor:bernoulli(probability) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "bfloat16"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:bfloat16(device) end

----(t log(x) + (1 - t) log(1 - x)) times weight, reduced; logarithms are at least -100. Elements of x and of the target t outside of 0 to 1 are an error. target has the shape of x, but for dims of size 1; weight broadcasts to x.
---@param target perigee.Tensor
---@param weight? perigee.Tensor a factor for each element
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:binary_cross_entropy(target, weight, reduction) end

----(p t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) times weight, reduced, without overflow; p is pos_weight. target has the shape of x, but for dims of size 1; the factors broadcast to x.
---@param target perigee.Tensor
---@param weight? perigee.Tensor a factor for each element
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param pos_weight? perigee.Tensor a factor for the positive part
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum", pos_weight?: perigee.Tensor}): perigee.Tensor
function Tensor:binary_cross_entropy_with_logits(target, weight, reduction, pos_weight) end

---How often each label from index_base on occurs in x (1-dim), or the sum of the weights of its occurrences: int64 (float32 or float64 with weights) up to the largest label, at least minlength long. The size depends on values: eager only.
---@param weights? perigee.Tensor
---@param minlength? integer least size of the result
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {weights?: perigee.Tensor, minlength?: integer, index_base?: integer}): perigee.Tensor
function Tensor:bincount(weights, minlength, index_base) end

---The bitwise and of integers or bools, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:bitwise_and(y) end

---The bits of x shifted left by y places, with broadcasting; 0 where y is negative or not below the number of bits.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:bitwise_left_shift(y) end

---All bits of integers flipped; the logical not of bools.
---@return perigee.Tensor out
function Tensor:bitwise_not() end

---The bitwise or of integers or bools, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:bitwise_or(y) end

---The bits of x shifted right by y places with copies of the sign, with broadcasting; nothing but the sign is left where y is negative or not below the number of bits.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:bitwise_right_shift(y) end

---The bitwise exclusive or of integers or bools, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:bitwise_xor(y) end

---The products of two batches of matrices.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:bmm(y) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "bool"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:bool(device) end

---x broadcast to `shape`; -1 keeps a dim. A view.
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function Tensor:broadcast_to(shape) end

---The bucket of each element of x between the sorted `boundaries` (1-dim): the position of the first boundary that is not less (with right = true, that is greater). searchsorted with x first.
---@param boundaries perigee.Tensor
---@param right? boolean a boundary belongs to the bucket above it
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, boundaries: perigee.Tensor, options: {right?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:bucketize(boundaries, right, index_base) end

---Random numbers of density sigma / (pi (sigma^2 + (v - median)^2)), in shape and dtype of x; x:cauchy_() fills x.
---@param median? number the median
---@param sigma? number half the width at half the height
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {median?: number, sigma?: number, generator?: perigee.Generator}): perigee.Tensor
function Tensor:cauchy(median, sigma) end

---The p-norm distance of each row of x1 (… x P x M) from each row of x2 (… x R x M): … x P x R; leading dims broadcast. Distances are sums over differences, so near points keep their digits. The gradient at distance 0 is 0.
---@param x2 perigee.Tensor
---@param p? number the order of the norm; math.huge is the largest difference or element
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, x2: perigee.Tensor, options: {p?: number}): perigee.Tensor
function Tensor:cdist(x2, p) end

---The smallest whole number not below x. The gradient is zero.
---@return perigee.Tensor out
function Tensor:ceil() end

---x where it is positive, else alpha (exp(x / alpha) - 1), which has a continuous derivative. Barron, Continuously differentiable exponential linear units, 2017.
---@param alpha? number minus the limit at -inf, not 0
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {alpha?: number}): perigee.Tensor
function Tensor:celu(alpha) end

---Cuts x along `dim` into at most `chunks` pieces of equal size; the last may be smaller. An array table of views.
---@param chunks integer number of pieces
---@param dim? integer the dim to cut along
---@return perigee.Tensor[]
---@overload fun(self: perigee.Tensor, chunks: integer, options: {dim?: integer}): perigee.Tensor[]
function Tensor:chunk(chunks, dim) end

---x limited to [min, max]; either bound may be nil, a number or a tensor, with broadcasting. NaN stays NaN, and max wins where min is above it. The gradient passes inside the closed interval.
---@param min? perigee.Tensor|number
---@param max? perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {min?: perigee.Tensor|number, max?: perigee.Tensor|number}): perigee.Tensor
function Tensor:clamp(min, max) end

---x limited to [min, max]; either bound may be nil, a number or a tensor, with broadcasting. NaN stays NaN, and max wins where min is above it. The gradient passes inside the closed interval.
---Another name of clamp.
---@param min? perigee.Tensor|number
---@param max? perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {min?: perigee.Tensor|number, max?: perigee.Tensor|number}): perigee.Tensor
function Tensor:clip(min, max) end

---A copy of x with memory of its own.
---@return perigee.Tensor out
function Tensor:clone() end

---All choices of r elements of the 1-dim x in its order, one row each.
---@param r? integer how many elements to choose
---@param with_replacement? boolean whether an element can be chosen again
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {r?: integer, with_replacement?: boolean}): perigee.Tensor
function Tensor:combinations(r, with_replacement) end

---x itself when it is contiguous (row-major, without gaps), else a contiguous copy.
---@return perigee.Tensor out
function Tensor:contiguous() end

---Convolution of (N, C, W) or (C, W) with weights (out, in / groups, k), plus bias.
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides; also "valid" for none and, with stride 1, "same" to keep the size: an odd zero goes to the far end
---@param dilation? integer|integer[] distance between the elements of the window
---@param groups? integer groups of channels that see only each other
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], groups?: integer}): perigee.Tensor
function Tensor:conv1d(weight, bias, stride, padding, dilation, groups) end

---Convolution of (N, C, H, W) or (C, H, W) with weights (out, in / groups, kH, kW), plus bias.
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides; also "valid" for none and, with stride 1, "same" to keep the size: an odd zero goes to the far end
---@param dilation? integer|integer[] distance between the elements of the window
---@param groups? integer groups of channels that see only each other
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], groups?: integer}): perigee.Tensor
function Tensor:conv2d(weight, bias, stride, padding, dilation, groups) end

---Convolution of (N, C, D, H, W) or (C, D, H, W) with weights (out, in / groups, kD, kH, kW), plus bias.
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides; also "valid" for none and, with stride 1, "same" to keep the size: an odd zero goes to the far end
---@param dilation? integer|integer[] distance between the elements of the window
---@param groups? integer groups of channels that see only each other
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], groups?: integer}): perigee.Tensor
function Tensor:conv3d(weight, bias, stride, padding, dilation, groups) end

---The gradient of conv1d by its input, as an op; weights are (in, out / groups, k).
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides
---@param output_padding? integer|integer[] added to the size of the result on the far side
---@param groups? integer groups of channels that see only each other
---@param dilation? integer|integer[] distance between the elements of the window
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): perigee.Tensor
function Tensor:conv_transpose1d(weight, bias, stride, padding, output_padding, groups, dilation) end

---The gradient of conv2d by its input, as an op; weights are (in, out / groups, kH, kW).
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides
---@param output_padding? integer|integer[] added to the size of the result on the far side
---@param groups? integer groups of channels that see only each other
---@param dilation? integer|integer[] distance between the elements of the window
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): perigee.Tensor
function Tensor:conv_transpose2d(weight, bias, stride, padding, output_padding, groups, dilation) end

---The gradient of conv3d by its input, as an op; weights are (in, out / groups, kD, kH, kW).
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides
---@param output_padding? integer|integer[] added to the size of the result on the far side
---@param groups? integer groups of channels that see only each other
---@param dilation? integer|integer[] distance between the elements of the window
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): perigee.Tensor
function Tensor:conv_transpose3d(weight, bias, stride, padding, output_padding, groups, dilation) end

---The magnitude of x with the sign of y, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:copysign(y) end

---The correlation coefficients of variables in rows and observations in columns, in -1..1, NaN where a variable is constant. One variable gives 1, a 0-dim tensor.
---@return perigee.Tensor out
function Tensor:corrcoef() end

---The cosine of x in radians.
---@return perigee.Tensor out
function Tensor:cos() end

---The hyperbolic cosine.
---@return perigee.Tensor out
function Tensor:cosh() end

---1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1, reduced; the cosine is over the last dim.
---@param x2 perigee.Tensor
---@param target perigee.Tensor 1 or -1
---@param margin? number the margin
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, x2: perigee.Tensor, target: perigee.Tensor, options: {margin?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:cosine_embedding_loss(x2, target, margin, reduction) end

---The cosine of the angle between x1 and x2 along `dim`, with broadcasting: the sum of products of x1 and x2 over their norms, each at least eps.
---@param x2 perigee.Tensor
---@param dim? integer the dim of the vectors, after broadcasting
---@param eps? number the least norm
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, x2: perigee.Tensor, options: {dim?: integer, eps?: number}): perigee.Tensor
function Tensor:cosine_similarity(x2, dim, eps) end

---The number of elements over dims that are not 0, int64.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:count_nonzero(dim, keepdim) end

---The covariance matrix of variables in rows and observations in columns; 1-D input is one variable. One variable gives its variance, a 0-dim tensor.
---@param correction? number taken from the number of elements in the divisor
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {correction?: number}): perigee.Tensor
function Tensor:cov(correction) end

---The cross product of vectors of 3 elements along `dim`, by default the first dim of size 3. The other dims broadcast.
---@param y perigee.Tensor
---@param dim? integer the dim of the vectors
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor, options: {dim?: integer}): perigee.Tensor
function Tensor:cross(y, dim) end

---The cross entropy of logits x, with classes along dim 2 (dim 1 of a 1-D x), and labels from 1 to C or equal to ignore_index, or probabilities of the shape of x. mean divides by the sum of the weights of the labels that count; if there are none, it is NaN, and its gradient is 0.
---@param target perigee.Tensor labels or probabilities
---@param weight? perigee.Tensor a factor for each class
---@param ignore_index? integer label of samples that do not count
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param label_smoothing? number share of the target spread evenly over all classes
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", label_smoothing?: number, index_base?: integer}): perigee.Tensor
function Tensor:cross_entropy(target, weight, ignore_index, reduction, label_smoothing, index_base) end

----log of the probability that the steps spell the labels, with each label repeated any number of times and any number of blanks between labels. Classes count from 1. log_probs come from log_softmax; the gradient is for such input, as PyTorch's. mean divides each loss by its number of labels first. Graves et al., Connectionist temporal classification, 2006.
---@param targets perigee.Tensor labels (batch, length), or the labels of all samples in a row
---@param input_lengths? perigee.Tensor steps of each sample; all without
---@param target_lengths? perigee.Tensor labels of each sample; all without
---@param blank? integer the class of the blank
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param zero_infinity? boolean 0 instead of infinity, with a gradient of 0, where no path is long enough
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, targets: perigee.Tensor, options: {input_lengths?: perigee.Tensor, target_lengths?: perigee.Tensor, blank?: integer, reduction?: "none"|"mean"|"sum", zero_infinity?: boolean}): perigee.Tensor
function Tensor:ctc_loss(targets, input_lengths, target_lengths, blank, reduction, zero_infinity) end

---The largest element so far along dim and its index, the last of equal ones; NaN is larger than any number.
---@param dim integer the dim to run along
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, dim: integer, options: {index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:cummax(dim, index_base) end

---The smallest element so far along dim and its index, the last of equal ones; NaN is smaller than any number.
---@param dim integer the dim to run along
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, dim: integer, options: {index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:cummin(dim, index_base) end

---Running products along dim. bool and integers give int64. The gradient is exact where elements are 0.
---@param dim integer the dim to run along
---@param reverse? boolean run from the end
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, options: {reverse?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:cumprod(dim, reverse) end

---Running sums along dim. bool and integers give int64.
---@param dim integer the dim to run along
---@param reverse? boolean run from the end
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, options: {reverse?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:cumsum(dim, reverse) end

---A convolution whose windows read x (batch, channels, height, width) at places that are moved by offset (batch, 2 parts kh kw, out height, out width): for each part of the channels and element of the window a distance down and one to the right, in elements. Values between elements are interpolated, those outside are 0. weight is (out, channels / groups, kh, kw). mask (batch, parts kh kw, out height, out width) multiplies what is read. Dai et al., Deformable convolutional networks, 2017; Zhu et al., Deformable ConvNets v2, 2019.
---@param offset perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros around the image
---@param dilation? integer|integer[] distance between the elements of the window
---@param mask? perigee.Tensor
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, offset: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], mask?: perigee.Tensor}): perigee.Tensor
function Tensor:deform_conv2d(offset, weight, bias, stride, padding, dilation, mask) end

---The diagonal of a matrix, or a square matrix with x on its diagonal when x is 1-dim.
---@param diagonal? integer 0 is the main diagonal, positive ones are above it
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {diagonal?: integer}): perigee.Tensor
function Tensor:diag(diagonal) end

---Square matrices, spanned by dims dim1 and dim2 of the result, that are zero except for a diagonal, which is the last dim of x.
---@param offset? integer 0 is the main diagonal, positive ones are above it
---@param dim1? integer a dim that spans the matrices
---@param dim2? integer a dim that spans the matrices
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): perigee.Tensor
function Tensor:diag_embed(offset, dim1, dim2) end

---The diagonal of the matrices that dims dim1 and dim2 span, as a new last dim. A view.
---@param offset? integer 0 is the main diagonal, positive ones are above it
---@param dim1? integer a dim that spans the matrices
---@param dim2? integer a dim that spans the matrices
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): perigee.Tensor
function Tensor:diagonal(offset, dim1, dim2) end

---The differences of neighbors along `dim`, n times, after joining `prepend` and `append` to x. Of bools it is whether they differ.
---@param n? integer how often
---@param dim? integer the dim of the neighbors
---@param prepend? perigee.Tensor
---@param append? perigee.Tensor
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {n?: integer, dim?: integer, prepend?: perigee.Tensor, append?: perigee.Tensor}): perigee.Tensor
function Tensor:diff(n, dim, prepend, append) end

---The derivative of lgamma (Abramowitz and Stegun, 6.3).
---@return perigee.Tensor out
function Tensor:digamma() end

---x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {rounding_mode?: "trunc"|"floor"}): perigee.Tensor
function Tensor:div(y) end

---x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.
---Another name of div.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {rounding_mode?: "trunc"|"floor"}): perigee.Tensor
function Tensor:divide(y) end

---The product of two vectors, of two matrices or of one and the other; matrices may be transposed first.
---@param y perigee.Tensor
---@param transpose_a? boolean use the transpose of x
---@param transpose_b? boolean use the transpose of y
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor, options: {transpose_a?: boolean, transpose_b?: boolean}): perigee.Tensor
function Tensor:dot(y, transpose_a, transpose_b) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "float64"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:double(device) end

---In training each element is 0 with probability p, else x / (1 - p); otherwise x. `axes` lists dims along which all elements share one decision. Srivastava et al., Dropout, 2014.
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@param axes? integer|integer[] dims along which elements are dropped together
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, training?: boolean, axes?: integer|integer[], generator?: perigee.Generator}): perigee.Tensor
function Tensor:dropout(p, training, axes) end

---dropout of whole channels of x (batch, channels, length), or (channels, length). Tompson et al., Efficient object localization using convolutional networks, 2015.
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:dropout1d(p, training) end

---dropout of whole channels of x (batch, channels, height, width); 3 dims are (batch, channels, length).
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:dropout2d(p, training) end

---dropout of whole channels of x (batch, channels, depth, height, width), or without batch.
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:dropout3d(p, training) end

---x where it is positive, else alpha (exp(x) - 1). Clevert et al., Fast and accurate deep network learning by exponential linear units, 2015.
---@param alpha? number minus the limit at -inf
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {alpha?: number}): perigee.Tensor
function Tensor:elu(alpha) end

---Rows of `weight` (2-dim) at the positions `indices`, whose shape the result has in front. Positions are labels: negative ones are errors. The gradient of row padding_idx is zero.
---@param weight perigee.Tensor
---@param padding_idx? integer a row of weight (1-based or negative) that gets no gradient
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {padding_idx?: integer, index_base?: integer}): perigee.Tensor
function Tensor:embedding(weight, padding_idx, index_base) end

---The mean, sum or max of the rows of `weight` at the positions in each bag, in the shape (bags, columns). Each row of 2-dim `indices` is a bag. In 1-dim indices a bag starts at each of `offsets`, which are positions from index_base on, in order. The rows of bag i have the factors per_sample_weights (sum only). An empty bag gives 0. Positions that equal padding_idx do not count.
---@param weight perigee.Tensor
---@param offsets? perigee.Tensor
---@param mode? "mean"|"sum"|"max" how the rows of a bag join
---@param per_sample_weights? perigee.Tensor
---@param include_last_offset? boolean offsets ends with the end of the last bag
---@param padding_idx? integer a row of weight (1-based or negative) that does not count
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {offsets?: perigee.Tensor, mode?: "mean"|"sum"|"max", per_sample_weights?: perigee.Tensor, include_last_offset?: boolean, padding_idx?: integer, index_base?: integer}): perigee.Tensor
function Tensor:embedding_bag(weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx, index_base) end

---A tensor of the shape of x whose elements are not set.
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function Tensor:empty_like(dtype, device) end

---True where x equals y, with broadcasting. Lua's own == is identity: false for a tensor and a number.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:eq(y) end

---The error function.
---@return perigee.Tensor out
function Tensor:erf() end

---1 - erf(x), accurate for large x.
---@return perigee.Tensor out
function Tensor:erfc() end

---The inverse of erf; infinities at -1 and 1, NaN beyond. Starts from M. Giles, Approximating the erfinv function, 2011.
---@return perigee.Tensor out
function Tensor:erfinv() end

---e to the power x.
---@return perigee.Tensor out
function Tensor:exp() end

---2 to the power x.
---@return perigee.Tensor out
function Tensor:exp2() end

---x with dims of size 1 repeated, and new leading dims, up to `shape`; -1 keeps a dim. A view.
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function Tensor:expand(shape) end

---x expanded to the shape of `other`. A view.
---@param other perigee.Tensor
---@return perigee.Tensor out
function Tensor:expand_as(other) end

---exp(x) - 1, accurate near 0.
---@return perigee.Tensor out
function Tensor:expm1() end

---Random numbers of density lambda exp(-lambda v), v > 0, in shape and dtype of x; x:exponential_(lambda) fills x.
---@param lambda? number the rate, above 0
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lambda?: number, generator?: perigee.Generator}): perigee.Tensor
function Tensor:exponential(lambda) end

---alpha_dropout of whole channels of x (batch, channels, …).
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:feature_alpha_dropout(p, training) end

---x without its fraction. The gradient is zero.
---Another name of trunc.
---@return perigee.Tensor out
function Tensor:fix() end

---Joins the dims from start_dim to end_dim into one. A 0-dim tensor gives one dim of size 1.
---@param start_dim? integer first dim to join
---@param end_dim? integer last dim to join
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {start_dim?: integer, end_dim?: integer}): perigee.Tensor
function Tensor:flatten(start_dim, end_dim) end

---x in reverse order along `dims`.
---@param dims integer|integer[] dims to reverse
---@return perigee.Tensor out
function Tensor:flip(dims) end

---x in reverse order along dim 2.
---@return perigee.Tensor out
function Tensor:fliplr() end

---x in reverse order along dim 1.
---@return perigee.Tensor out
function Tensor:flipud() end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "float32"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:float(device) end

---The largest whole number not above x. The gradient is zero.
---@return perigee.Tensor out
function Tensor:floor() end

---The largest whole number not above x / y, with broadcasting. Keeps integer dtypes; an integer divisor of 0 is an error. The gradient is zero.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:floor_divide(y) end

---The larger of x and y, with broadcasting; NaN only where both are. Where they are equal each gets half of the gradient.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:fmax(y) end

---The smaller of x and y, with broadcasting; NaN only where both are. Where they are equal each gets half of the gradient.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:fmin(y) end

---The remainder of x / y with the sign of x, like C's fmod. Keeps integer dtypes; an integer divisor of 0 is an error.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:fmod(y) end

---The images (batch, channels, height, width) of size output_size that are the sums of the windows in the columns of x (batch, channels kh kw, windows). unfold makes such columns.
---@param output_size integer|integer[] height and width of the images
---@param kernel_size integer|integer[] height and width of the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param padding? integer|integer[] zeros around the image
---@param stride? integer|integer[] step of the window
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, output_size: integer|integer[], kernel_size: integer|integer[], options: {dilation?: integer|integer[], padding?: integer|integer[], stride?: integer|integer[]}): perigee.Tensor
function Tensor:fold(output_size, kernel_size, dilation, padding, stride) end

---x - trunc(x), the fraction with the sign of x; NaN for infinities.
---@return perigee.Tensor out
function Tensor:frac() end

---The value, a number or a boolean, everywhere in the shape and dtype of x. A number that an integer dtype cannot hold is an error.
---@param value number the element
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, value: number, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function Tensor:full_like(value, dtype, device) end

---The elements of x at the positions that `index` names along `dim`: out[i][j] = x[index[i][j]][j] for dim 1. index has the rank of x and at most its sizes except in dim; the result has the shape of index.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:gather(dim, index, index_base) end

---(log(var) + (x - target)^2 / var) / 2, the negative log-likelihood of normal distributions with means x and variances var, reduced; full adds log(2 pi) / 2. var is limited to at least eps. It broadcasts to x, and may lack the last dim. A negative one is an error. Nix and Weigend, Estimating the mean and variance of the target probability distribution, 1994.
---@param target perigee.Tensor
---@param var perigee.Tensor
---@param full? boolean add the terms that do not depend on x
---@param eps? number the smallest variance
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, var: perigee.Tensor, options: {full?: boolean, eps?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:gaussian_nll_loss(target, var, full, eps, reduction) end

---The greatest common divisor of integers, not negative, with broadcasting; 0 for 0 and 0.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:gcd(y) end

---True where x is at least y, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:ge(y) end

---x times the normal distribution function of x, or its tanh form. Hendrycks and Gimpel, Gaussian error linear units, 2016.
---@param approximate? "none"|"tanh" exact, or by tanh
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {approximate?: "none"|"tanh"}): perigee.Tensor
function Tensor:gelu(approximate) end

---How many trials with success probability p it takes to succeed: 1, 2, …, in shape and dtype of x; x:geometric_(p) fills x.
---@param p number the probability, above 0 and below 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, p: number, options: {generator?: perigee.Generator}): perigee.Tensor
function Tensor:geometric(p) end

---The first half of x along dim times the sigmoid of the second (Dauphin et al. 2017, Language modeling with gated convolutional networks).
---@param dim? integer the dim to halve
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer}): perigee.Tensor
function Tensor:glu(dim) end

---True where x is greater than y, with broadcasting.
---Another name of gt.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:greater(y) end

---True where x is at least y, with broadcasting.
---Another name of ge.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:greater_equal(y) end

---x (batch, channels, height, width) read at the points of grid (batch, out height, out width, 2), whose last dim is a column and a row from -1 to 1; or with a depth as well, which comes last in grid and first in x. bicubic is for images only. Jaderberg et al., Spatial transformer networks, 2015.
---@param grid perigee.Tensor
---@param mode? "bilinear"|"nearest"|"bicubic" how elements between others arise
---@param padding_mode? "zeros"|"border"|"reflection" what lies outside
---@param align_corners? boolean -1 and 1 are the centers of the first and last elements, not their edges
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, grid: perigee.Tensor, options: {mode?: "bilinear"|"nearest"|"bicubic", padding_mode?: "zeros"|"border"|"reflection", align_corners?: boolean}): perigee.Tensor
function Tensor:grid_sample(grid, mode, padding_mode, align_corners) end

---Normalizes each of num_groups groups of channels of each sample, then scales and shifts by channel (Wu, He 2018). x is batch x channels x …; weight and bias have one element per channel.
---@param num_groups integer number of groups of channels
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param eps? number added to the variance
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, num_groups: integer, options: {weight?: perigee.Tensor, bias?: perigee.Tensor, eps?: number}): perigee.Tensor
function Tensor:group_norm(num_groups, weight, bias, eps) end

---True where x is greater than y, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:gt(y) end

---softmax((x + g) / tau) along dim with Gumbel noise g: a soft sample of the classes with logits x. hard gives the one-hot vector of the largest element, with the gradient of the soft sample. Jang et al., Categorical reparameterization with Gumbel-Softmax, 2017.
---@param tau? number the temperature, above 0
---@param hard? boolean give one-hot vectors
---@param dim? integer the dim of the classes
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {tau?: number, hard?: boolean, dim?: integer, generator?: perigee.Generator}): perigee.Tensor
function Tensor:gumbel_softmax(tau, hard, dim) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "float16"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:half(device) end

---x, and 0 where |x| is at most lambda.
---@param lambda? number the largest |x| that becomes 0
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lambda?: number}): perigee.Tensor
function Tensor:hardshrink(lambda) end

---min(max(x + 3, 0), 6) / 6.
---@return perigee.Tensor out
function Tensor:hardsigmoid() end

---x min(max(x + 3, 0), 6) / 6. Howard et al., Searching for MobileNetV3, 2019.
---@return perigee.Tensor out
function Tensor:hardswish() end

---x limited to [min_val, max_val].
---@param min_val? number the lower limit
---@param max_val? number the upper limit, not below min_val
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {min_val?: number, max_val?: number}): perigee.Tensor
function Tensor:hardtanh(min_val, max_val) end

---The step function: 0 where x is below 0 or NaN, 1 where it is above, `values` where it is 0, with broadcasting. x gets no gradient.
---@param values perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:heaviside(values) end

---x where target is 1, max(0, margin - x) where it is -1, reduced; for distances x. target has the shape of x, but for dims of size 1.
---@param target perigee.Tensor 1 or -1
---@param margin? number the margin
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {margin?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:hinge_embedding_loss(target, margin, reduction) end

---How many elements lie in each of `bins` equally wide bins from min to max, in the dtype of x; the last bin has both its ends. Where min equals max, the range of the elements is taken, or 1 to both sides of it where all are equal. NaN and other elements are not counted.
---@param bins? integer how many
---@param min? number the start of the first bin
---@param max? number the end of the last bin
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {bins?: integer, min?: number, max?: number}): perigee.Tensor
function Tensor:histc(bins, min, max) end

---d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - target (Huber 1964), times weight, reduced.
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param delta? number where the square ends
---@param weight? perigee.Tensor a factor for each element
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", delta?: number, weight?: perigee.Tensor}): perigee.Tensor
function Tensor:huber_loss(target, reduction, delta, weight) end

---sqrt(x^2 + y^2) without overflow on the way, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:hypot(y) end

---x with alpha * source added at the positions `index` of dim `dim`, in the order of index. source is a number or a tensor that broadcasts to them.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param source perigee.Tensor
---@param alpha? number factor of source
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, source: perigee.Tensor, options: {alpha?: number, index_base?: integer}): perigee.Tensor
function Tensor:index_add(dim, index, source, alpha, index_base) end

---x with the positions `index` of dim `dim` replaced by those of source, a number or a tensor that broadcasts to them. Of several values for one position the last stays.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param source perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, source: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:index_copy(dim, index, source, index_base) end

---x with `value`, a number or a tensor of one element, at the positions `index` of dim `dim`.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param value perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, value: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:index_fill(dim, index, value, index_base) end

---x with `values`, a number or a tensor, written at positions of its first dims, or added there. indices[k] has the positions in dim k. The indices broadcast together; values broadcasts to their shape followed by the other dims of x. A single bool tensor is a mask over the first dims of x; values then has one row for each of its true elements, or one row for all. x[{i, j}] = values writes so in place, and x[{i, j}] reads.
---@param indices perigee.Tensor[]
---@param values perigee.Tensor
---@param accumulate? boolean add to the elements, else replace them; of several the last stays
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, indices: perigee.Tensor[], values: perigee.Tensor, options: {accumulate?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:index_put(indices, values, accumulate, index_base) end

---The positions `index` of dim `dim`, in that order; the dims of index (1, or any number) replace that dim.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:index_select(dim, index, index_base) end

---The sums of products over the last dims of x and y; the product where one of them is 0-dim.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:inner(y) end

---Normalizes each channel of each sample over its positions, then scales and shifts by channel (Ulyanov, Vedaldi, Lempitsky 2016). x is batch x channels x … Running statistics are read only without use_input_stats.
---@param running_mean? perigee.Tensor of each channel
---@param running_var? perigee.Tensor of each channel
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param use_input_stats? boolean whether to use the statistics of x
---@param eps? number added to the variance
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {running_mean?: perigee.Tensor, running_var?: perigee.Tensor, weight?: perigee.Tensor, bias?: perigee.Tensor, use_input_stats?: boolean, eps?: number}): perigee.Tensor
function Tensor:instance_norm(running_mean, running_var, weight, bias, use_input_stats, eps) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "int32"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:int(device) end

---x with its spatial dims resized to `size` or by `scale_factor`. linear is for 1 spatial dim, bilinear and bicubic are for 2, trilinear is for 3. area takes the mean of what a new element covers. bicubic is Keys, Cubic convolution interpolation for digital image processing, 1981, with a = -0.75.
---@param size? integer|integer[] new spatial sizes
---@param scale_factor? number[] or the factors
---@param mode? "nearest"|"nearest-exact"|"linear"|"bilinear"|"trilinear"|"bicubic"|"area" how elements between others arise
---@param align_corners? boolean keep the first and last elements at their positions
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {size?: integer|integer[], scale_factor?: number[], mode?: "nearest"|"nearest-exact"|"linear"|"bilinear"|"trilinear"|"bicubic"|"area", align_corners?: boolean}): perigee.Tensor
function Tensor:interpolate(size, scale_factor, mode, align_corners) end

---True where x equals y or |x - y| is at most atol + rtol |y|, with broadcasting. Integers are compared in float64, half precision in float32.
---@param y perigee.Tensor|number
---@param rtol? number tolerance as a share of |y|
---@param atol? number absolute tolerance
---@param equal_nan? boolean NaN is close to NaN
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {rtol?: number, atol?: number, equal_nan?: boolean}): perigee.Tensor
function Tensor:isclose(y, rtol, atol, equal_nan) end

---True where x is neither NaN nor an infinity; always for integers.
---@return perigee.Tensor out
function Tensor:isfinite() end

---True where x is an infinity; never for integers.
---@return perigee.Tensor out
function Tensor:isinf() end

---True where x is NaN; never for integers.
---@return perigee.Tensor out
function Tensor:isnan() end

---The inverse of stft: the signal whose frames have the spectra x (frequencies, frames, 2) best, in the sense of least squares (Griffin and Lim, Signal estimation from modified short-time Fourier transform, 1984). Elements at which all windows are 0 are NaN.
---@param n_fft integer the size of a frame
---@param hop_length? integer the distance between frames; n_fft / 4 if nil
---@param win_length? integer the size of the window, which zeros surround; n_fft if nil
---@param window? perigee.Tensor factors of a frame; ones without
---@param center? boolean whether the frames are centered at their elements, with padding at both ends
---@param normalized? boolean with a factor 1 / sqrt(n_fft)
---@param onesided? boolean the frequencies 0 to n_fft / 2 only
---@param length? integer the size of the result
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, n_fft: integer, options: {hop_length?: integer, win_length?: integer, window?: perigee.Tensor, center?: boolean, normalized?: boolean, onesided?: boolean, length?: integer}): perigee.Tensor
function Tensor:istft(n_fft, hop_length, win_length, window, center, normalized, onesided, length) end

---t (log t - x) of log-probabilities x and probabilities t (their logarithms with log_target), reduced; batchmean divides the sum by the size of dim 1.
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum"|"batchmean" none, mean or sum
---@param log_target? boolean whether target holds logarithms
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum"|"batchmean", log_target?: boolean}): perigee.Tensor
function Tensor:kl_div(target, reduction, log_target) end

---The Kronecker product: blocks of y times each element of x. The tensor with fewer dims gets leading ones.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:kron(y) end

---The k-th smallest element along dim, and its index. NaN is larger than any number.
---@param k integer which element, from 1 on
---@param dim? integer the dim to reduce
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, k: integer, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:kthvalue(k, dim, keepdim, index_base) end

---The size of the difference of x and target, reduced. With weight the mean divides by the sum of weight.
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param weight? perigee.Tensor a factor for each element
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", weight?: perigee.Tensor}): perigee.Tensor
function Tensor:l1_loss(target, reduction, weight) end

---(x - mean) / sqrt(var + eps) over the last dims, times weight, plus bias (Ba, Kiros, Hinton 2016). weight and bias have the shape of those dims.
---@param normalized_shape integer|integer[] the last dims, which are normalized together
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param eps? number added to the variance
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, normalized_shape: integer|integer[], options: {weight?: perigee.Tensor, bias?: perigee.Tensor, eps?: number}): perigee.Tensor
function Tensor:layer_norm(normalized_shape, weight, bias, eps) end

---The least common multiple of integers, with broadcasting; 0 where one is 0. Wraps around.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:lcm(y) end

---True where x is at most y, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:le(y) end

---x where it is positive, else negative_slope x.
---@param negative_slope? number the factor below 0
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {negative_slope?: number}): perigee.Tensor
function Tensor:leaky_relu(negative_slope) end

---x + weight (y - x), exact at both ends, with broadcasting.
---@param y perigee.Tensor|number
---@param weight perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:lerp(y, weight) end

---True where x is less than y, with broadcasting.
---Another name of lt.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:less(y) end

---True where x is at most y, with broadcasting.
---Another name of le.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:less_equal(y) end

---The logarithm of the absolute value of the gamma function.
---@return perigee.Tensor out
function Tensor:lgamma() end

---x weightᵀ + bias on the last dim of x; weight is (out, in).
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor}): perigee.Tensor
function Tensor:linear(weight, bias) end

---x / (k + alpha m)^beta with the mean m of the squares of `size` neighboring channels, those outside counted as 0. Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012.
---@param size integer number of channels
---@param alpha? number factor of the mean
---@param beta? number the exponent
---@param k? number added to the mean
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, size: integer, options: {alpha?: number, beta?: number, k?: number}): perigee.Tensor
function Tensor:local_response_norm(size, alpha, beta, k) end

---The natural logarithm; -inf at 0, NaN below.
---@return perigee.Tensor out
function Tensor:log() end

---The logarithm to base 10.
---@return perigee.Tensor out
function Tensor:log10() end

---log(1 + x), accurate near 0.
---@return perigee.Tensor out
function Tensor:log1p() end

---The logarithm to base 2.
---@return perigee.Tensor out
function Tensor:log2() end

---exp of normal random numbers of that mean and standard deviation, in shape and dtype of x; x:log_normal_() fills x.
---@param mean? number the mean of the logarithms
---@param std? number their standard deviation
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {mean?: number, std?: number, generator?: perigee.Generator}): perigee.Tensor
function Tensor:log_normal(mean, std) end

---The logarithm of softmax(x) along dim, computed as x - logsumexp(x).
---@param dim? integer the dim along which the results belong together
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer, dtype?: perigee.DType}): perigee.Tensor
function Tensor:log_softmax(dim) end

---log(exp(x) + exp(y)) without overflow, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:logaddexp(y) end

---The logarithm of the running sums of exp(x) along dim, without overflow.
---@param dim integer the dim to run along
---@return perigee.Tensor out
function Tensor:logcumsumexp(dim) end

---True where both x and y are nonzero, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:logical_and(y) end

---True where x is zero or false.
---@return perigee.Tensor out
function Tensor:logical_not() end

---True where x or y is nonzero, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:logical_or(y) end

---True where exactly one of x and y is nonzero, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:logical_xor(y) end

---log(x / (1 - x)), the inverse of sigmoid; NaN outside 0 to 1. With eps x is first limited to eps..1 - eps. Integers give float32.
---@param eps? number distance that x keeps from 0 and 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {eps?: number}): perigee.Tensor
function Tensor:logit(eps) end

---log(sigmoid(x)) without underflow.
---@return perigee.Tensor out
function Tensor:logsigmoid() end

---log(sum(exp(x))) over dims without overflow.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:logsumexp(dim, keepdim) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "int64"}.
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {device?: string}): perigee.Tensor
function Tensor:long(device) end

---The p-norm of each window: (sum of x ^ norm_type) ^ (1 / norm_type), channel by channel. Without a batch, kernel_size is a list with a size for each spatial dim.
---@param norm_type? number the exponent p
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param ceil_mode? boolean also use windows that reach past the end
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, norm_type?: number, kernel_size: integer|integer[], options: {stride?: integer|integer[], ceil_mode?: boolean}): perigee.Tensor
function Tensor:lp_pool(norm_type, kernel_size, stride, ceil_mode) end

---True where x is less than y, with broadcasting.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:lt(y) end

---max(0, -target (x1 - x2) + margin), reduced: 0 where x1 is larger than x2 by the margin and target is 1, or smaller and target is -1.
---@param x2 perigee.Tensor
---@param target perigee.Tensor 1 or -1
---@param margin? number the margin
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, x2: perigee.Tensor, target: perigee.Tensor, options: {margin?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:margin_ranking_loss(x2, target, margin, reduction) end

---x with `value`, a number or a tensor of one element, where mask is true. x and mask broadcast.
---@param mask perigee.Tensor
---@param value perigee.Tensor
---@return perigee.Tensor out
function Tensor:masked_fill(mask, value) end

---x with the elements of source, in row-major order, where mask is true. x and mask broadcast; source has at least as many elements as mask has true ones.
---@param mask perigee.Tensor
---@param source perigee.Tensor
---@return perigee.Tensor out
function Tensor:masked_scatter(mask, source) end

---The elements of x where mask is true, as a 1-dim tensor in row-major order. x and mask broadcast. The size depends on values: eager only.
---@param mask perigee.Tensor
---@return perigee.Tensor out
function Tensor:masked_select(mask) end

---The matrix product of the last two dims, broadcast over the leading ones. A 1-D x is a row, a 1-D y a column, and their dim is left out of the result.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:matmul(y) end

---The largest element as a 0-dim tensor or, with dim, the largest elements along it and their indices. The first of equal elements counts, NaN is larger than any number.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:max(dim, keepdim, index_base) end

---The largest element of each window, channel by channel. Padding never wins; a NaN does. With return_indices also the positions of these elements, int64, which max_unpool takes: each counts through its channel, row by row, from index_base on. A window of nothing but padding, which dilation can make, gives -inf and the position index_base - 1.
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:max_pool1d(kernel_size, stride, padding, dilation, ceil_mode, return_indices, index_base) end

---The largest element of each window, channel by channel. Padding never wins; a NaN does. With return_indices also the positions of these elements, int64, which max_unpool takes: each counts through its channel, row by row, from index_base on. A window of nothing but padding, which dilation can make, gives -inf and the position index_base - 1.
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:max_pool2d(kernel_size, stride, padding, dilation, ceil_mode, return_indices, index_base) end

---The largest element of each window, channel by channel. Padding never wins; a NaN does. With return_indices also the positions of these elements, int64, which max_unpool takes: each counts through its channel, row by row, from index_base on. A window of nothing but padding, which dilation can make, gives -inf and the position index_base - 1.
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:max_pool3d(kernel_size, stride, padding, dilation, ceil_mode, return_indices, index_base) end

---Zeros with the elements of x at the positions `indices` of each channel, as max pooling with return_indices gave them. The sizes are those before pooling, or output_size where several are possible. Of several elements for one position the last stays.
---@param indices perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param output_size? integer|integer[] spatial sizes of the result, or all sizes
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, indices: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], output_size?: integer|integer[], index_base?: integer}): perigee.Tensor
function Tensor:max_unpool1d(indices, kernel_size, stride, padding, output_size, index_base) end

---Zeros with the elements of x at the positions `indices` of each channel, as max pooling with return_indices gave them. The sizes are those before pooling, or output_size where several are possible. Of several elements for one position the last stays.
---@param indices perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param output_size? integer|integer[] spatial sizes of the result, or all sizes
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, indices: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], output_size?: integer|integer[], index_base?: integer}): perigee.Tensor
function Tensor:max_unpool2d(indices, kernel_size, stride, padding, output_size, index_base) end

---Zeros with the elements of x at the positions `indices` of each channel, as max pooling with return_indices gave them. The sizes are those before pooling, or output_size where several are possible. Of several elements for one position the last stays.
---@param indices perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param output_size? integer|integer[] spatial sizes of the result, or all sizes
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, indices: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], output_size?: integer|integer[], index_base?: integer}): perigee.Tensor
function Tensor:max_unpool3d(indices, kernel_size, stride, padding, output_size, index_base) end

---The larger of x and y, with broadcasting; NaN wins. Where they are equal each gets half of the gradient, and where one is NaN each gets all of it.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:maximum(y) end

---The mean over dims; NaN for no elements. bool and integers give float32.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:mean(dim, keepdim) end

---The middle element as a 0-dim tensor or, with dim, the middle elements along it and their indices: the lower one of two. NaN where there is one; the median of no floats is NaN.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:median(dim, keepdim, index_base) end

---The smallest element as a 0-dim tensor or, with dim, the smallest elements along it and their indices. The first of equal elements counts, NaN is smaller than any number.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:min(dim, keepdim, index_base) end

---The smaller of x and y, with broadcasting; NaN wins. Where they are equal each gets half of the gradient, and where one is NaN each gets all of it.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:minimum(y) end

---x tanh(softplus(x)). Misra, Mish: a self regularized non-monotonic activation function, 2019.
---@return perigee.Tensor out
function Tensor:mish() end

---The product of two matrices.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:mm(y) end

---The most frequent value along dim, the smallest of several, and the index of its last occurrence. Every NaN is different.
---@param dim? integer the dim to reduce
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:mode(dim, keepdim, index_base) end

---x with the dims `source` moved to the positions `destination`; the others keep their order. A view.
---@param source integer|integer[] dims of x to move
---@param destination integer|integer[] where they go in the result
---@return perigee.Tensor out
function Tensor:moveaxis(source, destination) end

---Another name of moveaxis.
---@param source integer|integer[] dims of x to move
---@param destination integer|integer[] where they go in the result
---@return perigee.Tensor out
function Tensor:movedim(source, destination) end

---The squared difference of x and target, reduced. With weight the mean divides by the sum of weight.
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param weight? perigee.Tensor a factor for each element
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", weight?: perigee.Tensor}): perigee.Tensor
function Tensor:mse_loss(target, reduction, weight) end

---x * y, with broadcasting. For bools it is the logical and; integers wrap around.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:mul(y) end

---The sum of max(0, margin - x[y] + x[i])^p over the classes i other than the label y, over the number of classes, times the weight of y; reduced. Labels are from 1 to the number of classes. Crammer and Singer, On the algorithmic implementation of multiclass kernel-based vector machines, 2001.
---@param target perigee.Tensor labels
---@param p? integer the exponent, 1 or 2
---@param margin? number the margin
---@param weight? perigee.Tensor a factor for each class
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {p?: integer, margin?: number, weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum", index_base?: integer}): perigee.Tensor
function Tensor:multi_margin_loss(target, p, margin, weight, reduction, index_base) end

---The sum of max(0, 1 - x[y] + x[i]) over the labels y of a sample and the classes i that are none of them, over the number of classes; reduced. target has the shape of x: the labels of each sample, from 1 on, up to the first element that is index_base - 1. Takes memory for samples times the square of classes.
---@param target perigee.Tensor labels, then 0
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", index_base?: integer}): perigee.Tensor
function Tensor:multilabel_margin_loss(target, reduction, index_base) end

---The mean over the classes, the last dim, of binary_cross_entropy_with_logits of x and target, reduced. weight has a factor for each class.
---@param target perigee.Tensor 0 or 1
---@param weight? perigee.Tensor a factor for each class
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:multilabel_soft_margin_loss(target, weight, reduction) end

---n indices (from 1) drawn with probabilities proportional to the weights p, one list or one list per row. Negative or infinite weights, a sum of 0, or fewer nonzero weights than draws without replacement are errors.
---@param n integer draws per row
---@param replacement? boolean whether an index may be drawn more than once
---@param index_base? integer the first index, 1 or 0
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, n: integer, options: {replacement?: boolean, index_base?: integer, generator?: perigee.Generator}): perigee.Tensor
function Tensor:multinomial(n, replacement, index_base) end

---x * y, with broadcasting. For bools it is the logical and; integers wrap around.
---Another name of mul.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:multiply(y) end

---The product of a matrix and a vector.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:mv(y) end

---x with other numbers for NaN and the infinities. Integers and bools come back as they are. The gradient of a replaced element is 0.
---@param nan? number for NaN
---@param posinf? number for infinity; by default the largest number of the dtype
---@param neginf? number for -infinity; by default the least number of the dtype
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {nan?: number, posinf?: number, neginf?: number}): perigee.Tensor
function Tensor:nan_to_num(nan, posinf, neginf) end

---The mean over dims of the elements that are not NaN; NaN for none.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:nanmean(dim, keepdim) end

---median of the elements that are not NaN; NaN where there are no others.
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:nanmedian(dim, keepdim, index_base) end

---quantile of the elements that are not NaN; NaN where there are no others.
---@param q perigee.Tensor a number or a tensor of at most 1 dim
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param interpolation? "linear"|"lower"|"higher"|"midpoint"|"nearest" what is between two elements
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, q: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, interpolation?: "linear"|"lower"|"higher"|"midpoint"|"nearest"}): perigee.Tensor
function Tensor:nanquantile(q, dim, keepdim, interpolation) end

---The sum over dims of the elements that are not NaN; 0 for none. bool and integers give int64.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:nansum(dim, keepdim) end

---The `length` positions of dim `dim` from `start` on (1-based, negative from the end). A view.
---@param dim integer the dim to cut along
---@param start integer first position kept
---@param length integer number of positions kept
---@return perigee.Tensor out
function Tensor:narrow(dim, start, length) end

---True where x differs from y, with broadcasting; NaN differs from everything.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:ne(y) end

----x. Bool is refused.
---@return perigee.Tensor out
function Tensor:neg() end

----x. Bool is refused.
---Another name of neg.
---@return perigee.Tensor out
function Tensor:negative() end

----x at the label of each sample times the weight of its class, for log-probabilities x with classes along dim 2. Labels and reductions as in cross_entropy.
---@param target perigee.Tensor labels
---@param weight? perigee.Tensor a factor for each class
---@param ignore_index? integer label of samples that do not count
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", index_base?: integer}): perigee.Tensor
function Tensor:nll_loss(target, weight, ignore_index, reduction, index_base) end

---The positions of the elements of x that are not zero, one row each in row-major order: an int64 tensor of shape (count, dims of x). The size depends on values: eager only.
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:nonzero(index_base) end

---The p-norm over dims: the sum of |x|^p to the power 1/p; math.huge gives the largest |x|, 0 the number of elements that are not 0. The gradient at 0 is 0.
---@param p? number the order
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function Tensor:norm(p, dim, keepdim) end

---Normal random numbers of that mean and standard deviation in shape and dtype of x; x:normal_(mean, std) fills x.
---@param mean? number the mean
---@param std? number the standard deviation
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {mean?: number, std?: number, generator?: perigee.Generator}): perigee.Tensor
function Tensor:normal(mean, std) end

---x over its p-norm along `dim`, or over eps where the norm is less. The gradient at a zero vector is that of x / eps.
---@param p? number the order of the norm; math.huge is the largest difference or element
---@param dim? integer|integer[] the dims of the norm
---@param eps? number the least divisor
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {p?: number, dim?: integer|integer[], eps?: number}): perigee.Tensor
function Tensor:normalize(p, dim, eps) end

---True where x differs from y, with broadcasting; NaN differs from everything.
---Another name of ne.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:not_equal(y) end

---int64 zeros with a 1 at position x of a new last dim of size num_classes, by default the largest of x (eagerly only, since the size then depends on values). The values of x are labels: negative ones are errors.
---@param num_classes? integer size of the new dim
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {num_classes?: integer, index_base?: integer}): perigee.Tensor
function Tensor:one_hot(num_classes, index_base) end

---Ones of the shape of x.
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function Tensor:ones_like(dtype, device) end

---All products of an element of vector x (rows) and one of vector y (columns).
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:outer(y) end

---x with its last dims widened by the pairs of `pad` (before and after; the last dim first). Negative widths cut elements away, in mode "circular" before the others are copied.
---@param pad integer|integer[] widths before and after, the last dim first; negative ones cut
---@param mode? "constant"|"reflect"|"replicate"|"circular" source of the new elements: `value`, a mirror image, the nearest element, or the other end
---@param value? number the number for mode "constant"
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, pad: integer|integer[], options: {mode?: "constant"|"reflect"|"replicate"|"circular", value?: number}): perigee.Tensor
function Tensor:pad(pad, mode, value) end

---The p-norm of x1 - x2 + eps along the last dim, with broadcasting.
---@param x2 perigee.Tensor
---@param p? number the order of the norm; math.huge is the largest difference or element
---@param eps? number added to each difference
---@param keepdim? boolean keep the last dim with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, x2: perigee.Tensor, options: {p?: number, eps?: number, keepdim?: boolean}): perigee.Tensor
function Tensor:pairwise_distance(x2, p, eps, keepdim) end

---x with its dims in the given order: dim i of the result is dim dims[i] of x. A view.
---@param dims integer|integer[] every dim once
---@return perigee.Tensor out
function Tensor:permute(dims) end

---One element along `dim` for each position of the other dims: out[i] = x[i][index[i]]. index has the shape of x without dim, or with size 1 there.
---@param index perigee.Tensor
---@param dim? integer the dim that the index values are positions of
---@param keepdim? boolean keep dim with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, index: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:pick(index, dim, keepdim, index_base) end

---(…, C r², H, W) rearranged to (…, C, H r, W r).
---@param upscale_factor integer the factor of height and width
---@return perigee.Tensor out
function Tensor:pixel_shuffle(upscale_factor) end

---(…, C, H r, W r) rearranged to (…, C r², H, W).
---@param downscale_factor integer the factor of height and width
---@return perigee.Tensor out
function Tensor:pixel_unshuffle(downscale_factor) end

---exp(x) - target x, the negative log-likelihood of counts with Poisson distributions of logarithmic rates x, reduced; x - target log(x + eps) for rates x, with log_input = false. full adds Stirling's approximation of log(target!) for targets above 1.
---@param target perigee.Tensor
---@param log_input? boolean x holds logarithms of rates
---@param full? boolean add the terms that do not depend on x
---@param eps? number added to x before the logarithm
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {log_input?: boolean, full?: boolean, eps?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:poisson_nll_loss(target, log_input, full, eps, reduction) end

---The n-th derivative of digamma (Abramowitz and Stegun, 6.4).
---@param n? integer which derivative
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {n?: integer}): perigee.Tensor
function Tensor:polygamma(n) end

---x to the power y, with broadcasting. Bool tensors are refused, except beside a number; integers keep their dtype, and a negative exponent of an integer tensor is an error.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:pow(y) end

---x to the power y, with broadcasting. Bool tensors are refused, except beside a number; integers keep their dtype, and a negative exponent of an integer tensor is an error.
---Another name of pow.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:power(y) end

---x where it is positive, else weight x: one weight for all, or one per channel (dim 2). He et al., Delving deep into rectifiers, 2015.
---@param weight perigee.Tensor
---@return perigee.Tensor out
function Tensor:prelu(weight) end

---The product over dims; 1 for no elements. bool and integers give int64. The gradient is exact where elements are 0.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:prod(dim, keepdim) end

---x with source, a number or a tensor of as many elements as `index`, written at the positions `index` of the flattened x, or added there.
---@param index perigee.Tensor
---@param source perigee.Tensor
---@param accumulate? boolean add to the elements, else replace them; of several the last stays
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, index: perigee.Tensor, source: perigee.Tensor, options: {accumulate?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:put(index, source, accumulate, index_base) end

---The value below which the share q of the elements lies, along dim or of all elements: of the sorted elements the one at q (n - 1), counted from 0. For a 1-dim q the results lie along a new first dim; an element of it outside of 0 to 1 gives NaN. NaN where an element is.
---@param q perigee.Tensor a number or a tensor of at most 1 dim
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param interpolation? "linear"|"lower"|"higher"|"midpoint"|"nearest" what is between two elements
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, q: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, interpolation?: "linear"|"lower"|"higher"|"midpoint"|"nearest"}): perigee.Tensor
function Tensor:quantile(q, dim, keepdim, interpolation) end

---Uniform random numbers in [0, 1) in the shape of x.
---@param dtype? perigee.DType a floating dtype; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function Tensor:rand_like(dtype, device) end

---Normal random numbers in the shape of x.
---@param dtype? perigee.DType a floating dtype; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function Tensor:randn_like(dtype, device) end

---The elements of x in row-major order in one dim. A view where the strides of x allow it.
---@return perigee.Tensor out
function Tensor:ravel() end

---1 / x. Integers give float32.
---@return perigee.Tensor out
function Tensor:reciprocal() end

---max(x, 0). Keeps integer dtypes; NaN stays. The gradient at 0 is 0.
---@return perigee.Tensor out
function Tensor:relu() end

---min(max(x, 0), 6). Keeps integer dtypes.
---@return perigee.Tensor out
function Tensor:relu6() end

---x - floor(x / y) * y, with the sign of y, like Lua's %. Keeps integer dtypes; an integer divisor of 0 is an error.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:remainder(y) end

---x with those of its slices at the positions of `dim` scaled down to the p-norm maxnorm whose norm is larger.
---@param p number the order of the norm, above 0
---@param dim integer the dim whose positions are the slices
---@param maxnorm number the largest norm
---@return perigee.Tensor out
function Tensor:renorm(p, dim, maxnorm) end

---Every position of dim `dim` `repeats` times in a row, or as often as the list says for each; without dim x is flattened first.
---@param repeats integer|integer[] a count, or one count per position: a list, or a tensor whose values are read
---@param dim? integer the dim to repeat along
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, repeats: integer|integer[], options: {dim?: integer}): perigee.Tensor
function Tensor:repeat_interleave(repeats, dim) end

---The elements of x in the same order under another shape. In `shape` 0 copies the dim of x at that place and one -1 is computed from the other sizes. A view where the strides of x allow it. Shares no writes with x.
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function Tensor:reshape(shape) end

---x under the shape of `other`, which has as many elements.
---@param other perigee.Tensor
---@return perigee.Tensor out
function Tensor:reshape_as(other) end

---x / sqrt(mean(x^2) + eps) over the last dims, times weight (Zhang, Sennrich 2019).
---@param normalized_shape integer|integer[] the last dims, which are normalized together
---@param weight? perigee.Tensor factors
---@param eps? number added to the mean square
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, normalized_shape: integer|integer[], options: {weight?: perigee.Tensor, eps?: number}): perigee.Tensor
function Tensor:rms_norm(normalized_shape, weight, eps) end

---x moved by shifts[i] along dims[i]; elements that leave at one end enter at the other. The shifts of a dim that is named twice add up. Without dims the flattened elements move.
---@param shifts integer|integer[] how far to move, negative backwards
---@param dims? integer|integer[] along which dims
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, shifts: integer|integer[], options: {dims?: integer|integer[]}): perigee.Tensor
function Tensor:roll(shifts, dims) end

---x turned by k quarters in the plane of two dims, from the first towards the second; a negative k turns back.
---@param k? integer how many quarters
---@param dims? integer|integer[] the two dims of the plane
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {k?: integer, dims?: integer|integer[]}): perigee.Tensor
function Tensor:rot90(k, dims) end

---The nearest whole number, halves to the even one. The gradient is zero.
---@return perigee.Tensor out
function Tensor:round() end

---x where it is positive, else x times a slope: in training a uniform random one from [lower, upper) for each element, otherwise their mean. Xu et al., Empirical evaluation of rectified activations in convolutional network, 2015.
---@param lower? number the smallest slope
---@param upper? number the limit of the slopes
---@param training? boolean whether slopes are random; nil follows the mode
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lower?: number, upper?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:rrelu(lower, upper, training) end

---1 / sqrt(x). Integers give float32.
---@return perigee.Tensor out
function Tensor:rsqrt() end

---softmax(query keyᵀ scale + mask) value over the last two dims (positions, features). A bool mask keeps the products where it is true; a floating mask is added. dropout_p acts in training. Vaswani et al., Attention is all you need, 2017. With enable_gqa, key and value may have fewer heads (dim -3) than query, a divisor of their number. Ainslie et al., GQA, 2023. Takes memory linear in the numbers of positions, except for the gradient of attn_mask (Dao, FlashAttention-2, 2023).
---@param key perigee.Tensor
---@param value perigee.Tensor
---@param attn_mask? perigee.Tensor
---@param dropout_p? number share of the weights that is dropped in training
---@param is_causal? boolean hide the positions after each query's own
---@param scale? number factor of the products; 1 / sqrt(features) by default
---@param enable_gqa? boolean each head of key and value serves a group of heads of query
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, key: perigee.Tensor, value: perigee.Tensor, options: {attn_mask?: perigee.Tensor, dropout_p?: number, is_causal?: boolean, scale?: number, enable_gqa?: boolean, generator?: perigee.Generator}): perigee.Tensor
function Tensor:scaled_dot_product_attention(key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) end

---x with src, a tensor or a number, written at the positions that `index` names along `dim`: out[index[i][j]][j] = src[i][j] for dim 1. Of several values for one element the last stays. src has at least the sizes of index.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param src perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, src: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:scatter(dim, index, src, index_base) end

---x with src, a tensor or a number, added at the positions that `index` names along `dim`: out[index[i][j]][j] += src[i][j] for dim 1, in the order of src.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param src perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, src: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:scatter_add(dim, index, src, index_base) end

---x with the elements of src reduced into the positions that `index` names along `dim`: out[index[i][j]][j] is the sum, product, mean or extreme of itself (unless include_self is false) and all src[i][j] for it. Positions that the index does not name stay. Integer means round down. src has at least the sizes of index. Equal extremes share the gradient, as in PyTorch with that of x even where it is not included; that of a product is exact where factors are 0.
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param src perigee.Tensor
---@param reduce "sum"|"prod"|"mean"|"amax"|"amin" how elements for one position are joined
---@param include_self? boolean whether the element of x is one of those that are joined
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, dim: integer, index: perigee.Tensor, src: perigee.Tensor, reduce: "sum"|"prod"|"mean"|"amax"|"amin", options: {include_self?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:scatter_reduce(dim, index, src, reduce, include_self, index_base) end

---Where each of `values` is to be inserted into the last dim of sorted_sequence to keep it in order: the position of the first element that is not less (with right = true, that is greater). sorted_sequence has 1 dim or the leading sizes of values.
---@param values perigee.Tensor
---@param right? boolean insert after equal elements
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, values: perigee.Tensor, options: {right?: boolean, index_base?: integer}): perigee.Tensor
function Tensor:searchsorted(values, right, index_base) end

---Position `index` of dim `dim` (1-based, negative from the end), without that dim. A view.
---@param dim integer the dim to select on
---@param index integer the position
---@return perigee.Tensor out
function Tensor:select(dim, index) end

---The scaled exponential linear unit that keeps mean and variance. Klambauer et al., Self-normalizing neural networks, 2017.
---@return perigee.Tensor out
function Tensor:selu() end

---The last step of each sequence: x without the time dim. Every sequence has at least one step.
---@param lengths? perigee.Tensor steps of each sequence; all without
---@param dim? integer the time dim, 1 or 2
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lengths?: perigee.Tensor, dim?: integer}): perigee.Tensor
function Tensor:sequence_last(lengths, dim) end

---x with `value` in the steps after the end of each sequence.
---@param lengths? perigee.Tensor steps of each sequence; all without
---@param value? number the number stored after the end
---@param dim? integer the time dim, 1 or 2
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lengths?: perigee.Tensor, value?: number, dim?: integer}): perigee.Tensor
function Tensor:sequence_mask(lengths, value, dim) end

---x with the steps of each sequence in reverse order; the steps after its end stay.
---@param lengths? perigee.Tensor steps of each sequence; all without
---@param dim? integer the time dim, 1 or 2
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lengths?: perigee.Tensor, dim?: integer}): perigee.Tensor
function Tensor:sequence_reverse(lengths, dim) end

---1 / (1 + exp(-x)).
---@return perigee.Tensor out
function Tensor:sigmoid() end

----1, 0 or 1; 0 for NaN. The gradient is zero.
---@return perigee.Tensor out
function Tensor:sign() end

---x sigmoid(x), also known as swish. Elfwing et al., Sigmoid-weighted linear units, 2017.
---@return perigee.Tensor out
function Tensor:silu() end

---The sine of x in radians.
---@return perigee.Tensor out
function Tensor:sin() end

---The hyperbolic sine.
---@return perigee.Tensor out
function Tensor:sinh() end

---d^2 / (2 beta) where |d| <= beta, else |d| - beta / 2, with d = x - target, reduced.
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param beta? number where the square ends
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", beta?: number}): perigee.Tensor
function Tensor:smooth_l1_loss(target, reduction, beta) end

---log(1 + exp(-target x)) for targets 1 and -1, reduced. target has the shape of x, but for dims of size 1.
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:soft_margin_loss(target, reduction) end

---exp(x) over its sum along dim, without overflow.
---@param dim? integer the dim along which the results belong together
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer, dtype?: perigee.DType}): perigee.Tensor
function Tensor:softmax(dim) end

---softmax(-x) along dim.
---@param dim? integer the dim along which the results belong together
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer, dtype?: perigee.DType}): perigee.Tensor
function Tensor:softmin(dim) end

---log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
---@param beta? number the sharpness
---@param threshold? number where it becomes linear
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {beta?: number, threshold?: number}): perigee.Tensor
function Tensor:softplus(beta, threshold) end

---x moved towards 0 by lambda, and 0 where |x| is at most lambda.
---@param lambda? number what is taken off |x|
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {lambda?: number}): perigee.Tensor
function Tensor:softshrink(lambda) end

---x / (1 + |x|).
---@return perigee.Tensor out
function Tensor:softsign() end

---x in ascending order along `dim`, and the original position of each element. Equal elements keep their order; NaN counts as the largest value.
---@param dim? integer the dim to order along
---@param descending? boolean the largest first
---@param stable? boolean accepted; equal values always keep their order
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, options: {dim?: integer, descending?: boolean, stable?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:sort(dim, descending, stable, index_base) end

---Cuts x along `dim` into pieces of split_size (the last may be smaller), or into pieces of the listed sizes, which sum to the size of the dim. An array table of views.
---@param split_size integer|integer[] size of each piece, or a list of sizes
---@param dim? integer the dim to cut along
---@return perigee.Tensor[]
---@overload fun(self: perigee.Tensor, split_size: integer|integer[], options: {dim?: integer}): perigee.Tensor[]
function Tensor:split(split_size, dim) end

---The square root; NaN below 0. Integers give float32.
---@return perigee.Tensor out
function Tensor:sqrt() end

---x * x.
---@return perigee.Tensor out
function Tensor:square() end

---x without its dims of size 1, or without those among `dim` that have size 1.
---@param dim? integer|integer[] dims to drop where their size is 1; all by default
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[]}): perigee.Tensor
function Tensor:squeeze(dim) end

---The standard deviation over dims, the root of var. The gradient is 0 where the deviation is.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor
function Tensor:std(dim, correction, keepdim) end

---The standard deviation and the mean over dims; see std and mean.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor std
---@return perigee.Tensor mean
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor, perigee.Tensor
function Tensor:std_mean(dim, correction, keepdim) end

---The Fourier transforms of overlapping frames of x (size) or (batch, size): (frequencies, frames, 2), with a batch if x has one. The last dim is (real, imaginary).
---@param n_fft integer the size of a frame
---@param hop_length? integer the distance between frames; n_fft / 4 if nil
---@param win_length? integer the size of the window, which zeros surround; n_fft if nil
---@param window? perigee.Tensor factors of a frame; ones without
---@param center? boolean whether the frames are centered at their elements, with padding at both ends
---@param pad_mode? "reflect"|"constant"|"replicate" the padding of `center`
---@param normalized? boolean with a factor 1 / sqrt(n_fft)
---@param onesided? boolean the frequencies 0 to n_fft / 2 only
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, n_fft: integer, options: {hop_length?: integer, win_length?: integer, window?: perigee.Tensor, center?: boolean, pad_mode?: "reflect"|"constant"|"replicate", normalized?: boolean, onesided?: boolean}): perigee.Tensor
function Tensor:stft(n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided) end

---x - y, with broadcasting; with alpha x - alpha y. Bool tensors are refused, except beside a number.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function Tensor:sub(y) end

---x - y, with broadcasting; with alpha x - alpha y. Bool tensors are refused, except beside a number.
---Another name of sub.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function Tensor:subtract(y) end

---The sum over dims; 0 for no elements. bool and integers give int64. Floats are added in blocks in a fixed order, so the result does not depend on the number of threads.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function Tensor:sum(dim, keepdim) end

---Sums x down to a shape that broadcasts to its own, the reverse of expand.
---@param shape integer|integer[] the shape of the result
---@return perigee.Tensor out
function Tensor:sum_to(shape) end

---x with two dims exchanged. A view.
---Another name of transpose.
---@param dim0 integer one dim
---@param dim1 integer the other
---@return perigee.Tensor out
function Tensor:swapaxes(dim0, dim1) end

---x with two dims exchanged. A view.
---Another name of transpose.
---@param dim0 integer one dim
---@param dim1 integer the other
---@return perigee.Tensor out
function Tensor:swapdims(dim0, dim1) end

---The transpose of a matrix; tensors of 0 or 1 dims come back as they are. A view.
---@return perigee.Tensor out
function Tensor:t() end

---The elements of the flattened x at the positions `index`; the result has the shape of index.
---@param index perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, index: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function Tensor:take(index, index_base) end

---The elements of x at the positions that `index` names along `dim`, as argsort and argmax return them; the other sizes broadcast. Without dim both are flattened.
---@param index perigee.Tensor
---@param dim? integer the dim that the index values are positions of
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, index: perigee.Tensor, options: {dim?: integer, index_base?: integer}): perigee.Tensor
function Tensor:take_along_dim(index, dim, index_base) end

---The tangent of x in radians.
---@return perigee.Tensor out
function Tensor:tan() end

---The hyperbolic tangent.
---@return perigee.Tensor out
function Tensor:tanh() end

---x - tanh(x), accurate near 0.
---@return perigee.Tensor out
function Tensor:tanhshrink() end

---The sum of products over dims of a and of b: over the last dims of a and the first of b if `dims` is their count, else over the listed dims of a with those of b, as in pg.tensordot(a, b, {{1, 3}, {2, 1}}). The result has the other dims of a, then those of b.
---@param b perigee.Tensor
---@param dims? integer|integer[] how many dims to sum over, or the dims of a
---@param dims_b? integer|integer[] the dims of b, as many as dims has
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, b: perigee.Tensor, options: {dims?: integer|integer[], dims_b?: integer|integer[]}): perigee.Tensor
function Tensor:tensordot(b, dims, dims_b) end

---x where it is above threshold, else value.
---@param threshold number the limit
---@param value number what replaces the elements up to the limit
---@return perigee.Tensor out
function Tensor:threshold(threshold, value) end

---x repeated dims[i] times along dim i, aligned at the last dim; more counts than dims add leading dims.
---@param dims integer|integer[] how often to repeat along each dim
---@return perigee.Tensor out
function Tensor:tile(dims) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function Tensor:to(dtype, device) end

---The k largest (or smallest) elements along `dim` in order, and their positions in x. NaN counts as the largest value.
---@param k integer how many
---@param dim? integer the dim to order along
---@param largest? boolean the largest elements, else the smallest
---@param sorted? boolean accepted; the result is always in order
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(self: perigee.Tensor, k: integer, options: {dim?: integer, largest?: boolean, sorted?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function Tensor:topk(k, dim, largest, sorted, index_base) end

---The sum of the diagonal of a matrix. Integers and bool give int64. pg.trace of a function instead prints what the ops in it got and gave.
---@return perigee.Tensor out
function Tensor:trace() end

---x with two dims exchanged. A view.
---@param dim0 integer one dim
---@param dim1 integer the other
---@return perigee.Tensor out
function Tensor:transpose(dim0, dim1) end

---The lower triangle of the matrices in the last two dims; elements above diagonal `diagonal` become 0.
---@param diagonal? integer 0 is the main diagonal, positive ones are above it
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {diagonal?: integer}): perigee.Tensor
function Tensor:tril(diagonal) end

---max(0, d(anchor, positive) - d(anchor, negative) + margin), reduced, with the p-norm d of the differences plus eps over the last dim. swap takes d(positive, negative) where that is smaller. Balntas et al., Learning local feature descriptors with triplets and shallow convolutional neural networks, 2016.
---@param positive perigee.Tensor
---@param negative perigee.Tensor
---@param margin? number the margin
---@param p? number the order of the norm
---@param eps? number added to the differences
---@param swap? boolean use the smaller distance to negative
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, positive: perigee.Tensor, negative: perigee.Tensor, options: {margin?: number, p?: number, eps?: number, swap?: boolean, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function Tensor:triplet_margin_loss(positive, negative, margin, p, eps, swap, reduction) end

---The upper triangle of the matrices in the last two dims; elements below diagonal `diagonal` become 0.
---@param diagonal? integer 0 is the main diagonal, positive ones are above it
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {diagonal?: integer}): perigee.Tensor
function Tensor:triu(diagonal) end

---x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.
---Another name of div.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, y: perigee.Tensor|number, options: {rounding_mode?: "trunc"|"floor"}): perigee.Tensor
function Tensor:true_divide(y) end

---x without its fraction. The gradient is zero.
---@return perigee.Tensor out
function Tensor:trunc() end

---x / y rounded towards zero, with broadcasting; div with rounding_mode = "trunc". Keeps integer dtypes; an integer divisor of 0 is an error. The gradient is zero.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:trunc_divide(y) end

---x in the dtype of `other`; see to.
---@param other perigee.Tensor
---@return perigee.Tensor out
function Tensor:type_as(other) end

---The positions of dim `dim`, each without that dim. An array table of views.
---@param dim? integer the dim to cut along
---@return perigee.Tensor[]
---@overload fun(self: perigee.Tensor, options: {dim?: integer}): perigee.Tensor[]
function Tensor:unbind(dim) end

---x with dim `dim` split into dims of the given sizes, one of which may be -1 and is computed.
---@param dim integer the dim to split
---@param sizes integer|integer[] what it becomes
---@return perigee.Tensor out
function Tensor:unflatten(dim, sizes) end

---The windows of images x (batch, channels, height, width) as columns: (batch, channels kh kw, windows).
---@param kernel_size integer|integer[] height and width of the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param padding? integer|integer[] zeros around the image
---@param stride? integer|integer[] step of the window
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, kernel_size: integer|integer[], options: {dilation?: integer|integer[], padding?: integer|integer[], stride?: integer|integer[]}): perigee.Tensor
function Tensor:unfold(kernel_size, dilation, padding, stride) end

---Uniform random numbers from [from, to) in shape and dtype of x; x:uniform_(a, b) fills x.
---@param from? number the smallest number
---@param to? number the end, not included
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {from?: number, to?: number, generator?: perigee.Generator}): perigee.Tensor
function Tensor:uniform(from, to) end

---The different values of x in ascending order as a 1-dim tensor; then, if asked for, for each element of x its position among them, and how often each occurs. With dim the same of the slices at its positions, ordered element by element. Every NaN is different. The size depends on values: eager only.
---@param sorted? boolean accepted; the result is always in order
---@param return_inverse? boolean also return `inverse`
---@param return_counts? boolean also return `counts`
---@param dim? integer the dim whose slices to compare
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor inverse
---@return perigee.Tensor counts
---@overload fun(self: perigee.Tensor, options: {sorted?: boolean, return_inverse?: boolean, return_counts?: boolean, dim?: integer, index_base?: integer}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function Tensor:unique(sorted, return_inverse, return_counts, dim, index_base) end

---The values of x without those that equal the one before them; otherwise like unique. The size depends on values: eager only.
---@param return_inverse? boolean also return `inverse`
---@param return_counts? boolean also return `counts`
---@param dim? integer the dim whose slices to compare
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor inverse
---@return perigee.Tensor counts
---@overload fun(self: perigee.Tensor, options: {return_inverse?: boolean, return_counts?: boolean, dim?: integer, index_base?: integer}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function Tensor:unique_consecutive(return_inverse, return_counts, dim, index_base) end

---x with a new dim of size 1 that becomes dim `dim` of the result.
---@param dim integer position of the new dim in the result
---@return perigee.Tensor out
function Tensor:unsqueeze(dim) end

---The matrix with a row of powers of each element of the 1-dim x, the highest first. Integers give int64.
---@param n? integer how many powers; as many as elements when nil
---@param increasing? boolean the lowest power first
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {n?: integer, increasing?: boolean}): perigee.Tensor
function Tensor:vander(n, increasing) end

---The variance over dims: squared deviations from the mean over n - correction.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor
function Tensor:var(dim, correction, keepdim) end

---The variance and the mean over dims; see var and mean.
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor var
---@return perigee.Tensor mean
---@overload fun(self: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor, perigee.Tensor
function Tensor:var_mean(dim, correction, keepdim) end

---The sum of products of two vectors.
---@param y perigee.Tensor
---@return perigee.Tensor out
function Tensor:vdot(y) end

---The elements of x in the same order under another shape. In `shape` 0 copies the dim of x at that place and one -1 is computed from the other sizes. A view where the strides of x allow it. Shares no writes with x.
---Another name of reshape.
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function Tensor:view(shape) end

---x under the shape of `other`, which has as many elements.
---Another name of reshape_as.
---@param other perigee.Tensor
---@return perigee.Tensor out
function Tensor:view_as(other) end

---x where the bool condition is true, else y, with broadcasting of all three. The condition gets no gradient.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:where(x, y) end

---x log(y), with broadcasting; 0 where x is 0 unless y is NaN. Integers give float32.
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function Tensor:xlogy(y) end

---Zeros of the shape of x.
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(self: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function Tensor:zeros_like(dtype, device) end

---x:allclose(y[, {rtol = 1e-5, atol = 1e-8, equal_nan = false}]) -> whether |x - y| <= atol + rtol * |y| for all
---elements.
---@param y any
---@param options any
---@return any
function Tensor:allclose(y, options) end

---x:attach_grad([request]) makes x a leaf and returns x: backward stores its gradient in x.grad. request is "write"
---(the default), "add" or "null".
---@param request any
---@return any
function Tensor:attach_grad(request) end

---x:backward{grad =, retain_graph =, create_graph =} computes the gradients of x and writes them to the `.grad` of its
---leaves. With create_graph the new `.grad` has a history that refers to its leaf, and the leaf refers to it: set
---x.grad = nil when done, or use pg.autograd.grad, which does not change `.grad`. A backward that fails writes no
---`.grad`. The part of the history that it has processed is released unless retain_graph is true. Raises if x was not
---computed under pg.record from a tensor with attach_grad. grad has the shape of x; it may be absent for one element.
---@param options any
---@return any
function Tensor:backward(options) end

---x:copy_(y) copies the elements of y into x and returns x. y is broadcast, converted and moved to the device of x as
---needed.
---@param y any
---@return any
function Tensor:copy_(y) end

---x:detach() -> a tensor with the same values and without history.
---@return any
function Tensor:detach() end

---x:dim() -> the number of dims.
---@return any
function Tensor:dim() end

---x:equal(y) -> whether dtype, shape and all elements are the same.
---@param y any
---@return any
function Tensor:equal(y) end

---x:fill_(number) sets every element and returns x.
---@param number any
---@return any
function Tensor:fill_(number) end

---x:lstm(…), x:gru(…) and x:rnn(…) are pg.lstm(x, …), pg.gru(x, …) and pg.rnn(x, …).
---@param ... any
---@return any
function Tensor:gru(...) end

---@param ... any
---@return any
function Tensor:initialize(...) end

---x:is_contiguous() -> whether the elements are stored in row-major order without gaps.
---@return any
function Tensor:is_contiguous() end

---x:item() -> the element of a one-element tensor as a number or boolean. An int64 beyond 2^53 is returned as an int64
---cdata.
---@return any
function Tensor:item() end

---x:iter() -> an iterator over x[1], x[2], … x[#x]: for row in x:iter() do … end.
---@return any
function Tensor:iter() end

---x:lstm(…), x:gru(…) and x:rnn(…) are pg.lstm(x, …), pg.gru(x, …) and pg.rnn(x, …).
---@param ... any
---@return any
function Tensor:lstm(...) end

---x:numel() -> the number of elements.
---@return any
function Tensor:numel() end

---x:release() frees the memory of x now. Any later use of x is an error.
---@return any
function Tensor:release() end

---x:lstm(…), x:gru(…) and x:rnn(…) are pg.lstm(x, …), pg.gru(x, …) and pg.rnn(x, …).
---@param ... any
---@return any
function Tensor:rnn(...) end

---@param ... any
---@return any
function Tensor:set_data(...) end

---@param ... any
---@return any
function Tensor:set_shape(...) end

---x:size([dim]) -> the size of a dim, or a table with all of them.
---@param dim any
---@return any
function Tensor:size(dim) end

---x:stride() -> a table with the strides in elements.
---@return any
function Tensor:stride() end

---x:tap(f) calls f with the value of x and returns x. Inside a hybridized block or pg.jit it calls f at every run. A net
---with a tap cannot be exported or frozen.
---@param f any
---@return any
function Tensor:tap(f) end

---x:to_bytes() -> the elements in row-major order as a string.
---@return any
function Tensor:to_bytes() end

---x:totable() -> the elements as nested tables, or the number or boolean of a 0-dim tensor. Each int64 beyond 2^53 is
---an int64 cdata.
---@return any
function Tensor:totable() end

---x:zero_() sets every element to 0 and returns x.
---@return any
function Tensor:zero_() end

---x:zero_grad() sets x.grad to zeros.
---@return any
function Tensor:zero_grad() end

---@class perigee.Block
local Block = {}

---Class:extend(name) -> a subclass. Define `init` (called with the constructor's arguments) and `forward` on it.
---`Class(…)` makes a block; `block(…)` calls forward.
---@param name any
---@return any
function Block:extend(name) end

---Block:init(…) is called by the constructor with its arguments. A class may define it.
---@param ... any
---@return any
function Block:init(...) end

---Block:forward(…) computes the outputs. A class defines it, or hybrid_forward(self, F, …, params), where F is the
---library and params a table of the block's own parameters by field.
---@param ... any
---@return any
function Block:forward(...) end

---block:initialize([init[, {force=, device=, dtype=}]]) gives every parameter its value and returns the block. init is
---an initializer of pg.init or its name; the default is Uniform(0.07). A parameter's own initializer takes precedence,
---then the rule of its name (bias 0, gamma 1), then init. Parameters that have a value keep it unless force is true.
---Parameters with unknown dims get their value at the first call.
---@param init any
---@param options any
---@return any
function Block:initialize(init, options) end

---block:parameters([pattern]) -> an iterator of path, tensor in a stable order, each parameter once. Only paths that
---contain the Lua pattern are included. Raises if none does and the pattern is a regular expression, with | or a backslash.
---@param pattern any
---@return any
function Block:parameters(pattern) end

---block:collect_params([pattern]) -> a set of the parameters: a table indexed by path with the methods initialize,
---zero_grad, set(key, value), save(path), load(path), iter() and len(). pattern is that of block:parameters.
---@param pattern any
---@return any
function Block:collect_params(pattern) end

---block:children() -> an iterator of name, child over the block's direct children.
---@return any
function Block:children() end

---block:apply(f) calls f(child) once for every block below this one, children first, then f(block). Returns the block.
---@param f any
---@return any
function Block:apply(f) end

---block:to(dtype or device, or {dtype=, device=}) converts every parameter and returns the block. The statistics and
---parameters of normalization layers stay float32 if the dtype is float16 or bfloat16. The states of trainers and the
---averages of pg.optim.EMA and SWA are converted too. The next call of a hybridized block or jitted function that reads
---them traces again; export takes it that arguments of this block change as the parameters do.
---@param dtype any
---@return any
function Block:to(dtype) end

---block:cast(dtype) is block:to(dtype).
---@param dtype any
---@return any
function Block:cast(dtype) end

---block:zero_grad() sets the gradients of all parameters to zeros.
---@return any
function Block:zero_grad() end

---block:register_forward_hook(f) -> handle. f(block, inputs, outputs) runs after each forward; inputs is the list of
---arguments, outputs the result (a list when there are several). handle:detach() removes it.
---@param f any
---@return any
function Block:register_forward_hook(f) end

---block:register_forward_pre_hook(f) -> handle. f(block, inputs) runs before each forward.
---@param f any
---@return any
function Block:register_forward_pre_hook(f) end

---block:save_parameters(path) writes all parameters under their paths to a safetensors file, atomically, and returns
---the block. Raises if a parameter has no value yet or the file cannot be written.
---@param path any
---@return any
function Block:save_parameters(path) end

---block:load_parameters(path, {allow_missing=, ignore_extra=, cast_dtype=, device=}) reads a file of save_parameters.
---It may be one of MXNet (.params): the children of a Sequential count from 0 on there, and names may begin with arg: or
---aux:. Everything is checked before the first parameter changes. cast_dtype converts to the dtypes of the block; without
---a device the parameters stay on theirs.
---@param path any
---@param options any
---@return any
function Block:load_parameters(path, options) end

---block:summary(…) -> a text with the output shape, the number of parameters and the multiply-adds of every block,
---from one forward pass with these arguments. The pass is recorded, in predict mode and op by op as in pg.debug, also
---for a hybridized block. Multiply-adds are those of products and convolutions. The memory of a training step is that
---of the parameters, their gradients and what the record keeps for backward, which is counted in this pass; the state of
---an optimizer and the temporary results of backward come on top.
---@param ... any
---@return any
function Block:summary(...) end

---block:export(path[, {epoch =, inputs =}]) writes the graph of forward to path.json and its tensors to
---path.safetensors (path-0001.safetensors with epoch = 1), and returns both paths. See nn.SymbolBlock.imports. Ops
---that depend on the training mode keep that, so the import can be trained. Tensors that forward replaces in fields and
---variables become states; it is warned of numbers that forward changes. The block must have been called once, or
---inputs = {…} must give example arguments.
---@param path any
---@param options any
---@return any
function Block:export(path, options) end

---block:freeze([{inputs =}]) -> a Graph that owns copies of the block's tensors. It may run in several threads and Lua
---states at once. Its random numbers are those of the state that runs it (see pg.manual_seed).
---@param options any
---@return any
function Block:freeze(options) end

---block:hybridize([{active=, static_alloc=, static_shape=} or boolean]) makes this block and the hybrid blocks below
---it run as native graphs, forward and backward, and returns the block. The first call traces forward. Later calls run
---the graph without entering Lua, as long as the shapes, types, fields, upvalues and arguments that forward read are
---the same; else forward is traced again. Sizes that forward did not read may change. forward cannot read the values
---of tensors. static_alloc (default true) keeps the planned memory between calls. static_shape (default false)
---promises one shape; another one is an error. hybridize(false) returns to plain Lua. Raises if a block is no
---HybridBlock, or if forward reads a value.
---@param options any
---@return any
function Block:hybridize(options) end

---block:cache_info() -> {traces=, specializations=, hits=, last_retrace=} of a hybridized block: the number of traces
---of forward, of graphs specialized for a set of types, and of calls that ran one, and why forward was traced again
---last.
---@return any
function Block:cache_info() end

---block:graph() -> the last trace of forward as text with types and script lines. The types are those of the call that
---was traced. graph():dot() returns it for Graphviz.
---@return any
function Block:graph() end

---block:graph() -> the Graph of the block, over its tensors.
---@return any
function Block:graph() end

---@class perigee.Trainer
local Trainer = {}

---trainer:update(batch_size[, {ignore_stale_grad = false}]) updates the parameters with their gradients divided by
---batch_size.
---@param batch_size any
---@param options any
---@return any
function Trainer:update(batch_size, options) end

---trainer:allreduce_grads() sums gradients over devices. With one device it does nothing.
---@return any
function Trainer:allreduce_grads() end

---trainer:step(batch_size[, {ignore_stale_grad = false}]) runs allreduce_grads, then update. Raises if backward has
---not written the gradient of a parameter since the last step, unless ignore_stale_grad is true. Gradients are divided
---by batch_size, a number > 0. To accumulate gradients over n batches, set grad_req = "add" on the parameters, call
---backward n times, step with the size of all n batches, then set the gradients to zeros with params:zero_grad().
---@param batch_size any
---@param options any
---@return any
function Trainer:step(batch_size, options) end

---trainer:learning_rate() -> the current learning rate. In a traced function it is a 0-dim tensor that is filled
---before each run.
---@return any
function Trainer:learning_rate() end

---trainer:set_learning_rate(v) sets the learning rate. Raises if the optimizer has a scheduler.
---@param v any
---@return any
function Trainer:set_learning_rate(v) end

---trainer:save_states(path) writes the optimizer's state, and those of a scheduler and a LossScaler, to a safetensors file, atomically.
---@param path any
---@return any
function Trainer:save_states(path) end

---trainer:load_states(path) reads the state that save_states wrote for the same optimizer and parameters. An error
---changes nothing.
---@param path any
---@return any
function Trainer:load_states(path) end

---@class perigee.Cell: perigee.Block
local Cell = {}

---cell:state_info([batch_size = 0]) -> a list of {shape =, layout =}, one entry per state. Each class defines it.
---@param batch_size any
---@return any
function Cell:state_info(batch_size) end

---cell:begin_state(batch_size[, {func = pg.zeros, dtype =, device =}]) -> the list of states before the first step,
---made by func(shape, {dtype =, device =}).
---@param batch_size any
---@param options any
---@return any
function Cell:begin_state(batch_size, options) end

---cell:reset() clears what the cell keeps from step to step besides its states. Call it before a new sequence.
---@return any
function Cell:reset() end

---cell:unroll(length, inputs[, begin_state, layout = "NTC", merge_outputs, valid_length] or {begin_state =, layout =,
---…}) -> outputs, states after all steps, run by pg.foreach. inputs is one tensor with the dims of layout ("NTC" or
---"TNC"), or a list of one tensor (batch, …) per step. length is the number of steps, or nil. merge_outputs: true
---returns the outputs as one tensor, false as a list; the default is the form of inputs. valid_length (batch) is the
---number of steps of each sequence: later outputs are zero, and the states are those after the last valid step.
---@param length any
---@param inputs any
---@param begin_state any
---@param layout any
---@param merge_outputs any
---@param valid_length any
---@return any
function Cell:unroll(length, inputs, begin_state, layout, merge_outputs, valid_length) end

---@class perigee.rnn
local rnn = {}

---nn.rnn.BidirectionalCell(l_cell, r_cell): l_cell reads the sequence from its start, r_cell from its end. Their
---outputs are concatenated along the features, or the channels of convolutional cells. The cell supports only unroll.
---With valid_length r_cell starts at the last valid step of each sequence.
---@param l_cell any
---@param r_cell any
---@return perigee.Cell
function rnn.BidirectionalCell(l_cell, r_cell) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv1DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv1DLSTMCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv1DRNNCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv2DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv2DLSTMCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv2DRNNCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv3DLSTMCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.Conv1DRNNCell, Conv2DRNNCell, Conv3DRNNCell, Conv1DLSTMCell, Conv2DLSTMCell, Conv3DLSTMCell, Conv1DGRUCell,
---Conv2DGRUCell, Conv3DGRUCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, {i2h_pad = 0, i2h_dilate = 1, h2h_dilate =
---1, activation = "tanh", dtype =, i2h_weight_initializer =, h2h_weight_initializer =, i2h_bias_initializer =,
---h2h_bias_initializer =}): the cells RNNCell, LSTMCell and GRUCell with convolutions in place of products. input_shape is
---{channels, sizes…} of a step without the batch; the states are (batch, hidden_channels, sizes…) with the sizes of the
---convolved input. Numbers per dim are one number or a list. Raises if h2h_kernel is even. Shi et al., Convolutional LSTM
---Network, 2015.
---@param input_shape any
---@param hidden_channels any
---@param i2h_kernel any
---@param h2h_kernel any
---@param options any
---@return perigee.Cell
function rnn.Conv3DRNNCell(input_shape, hidden_channels, i2h_kernel, h2h_kernel, options) end

---nn.rnn.DropoutCell(rate, {axes =}): dropout between cells. It has no states. axes lists the dims of a step's input
---that share one mask.
---@param rate any
---@param options any
---@return perigee.Cell
function rnn.DropoutCell(rate, options) end

---nn.rnn.GRU(hidden_size, num_layers = 1, {the options of RNN except activation}): layers of gated recurrent units,
---called like RNN. The gates are packed in the order reset, update, new. The reset gate acts after the product with
---the state.
---@param hidden_size any
---@param num_layers any
---@param options any
---@return perigee.Block
function rnn.GRU(hidden_size, num_layers, options) end

---nn.rnn.GRUCell(hidden_size, {the options of LSTMCell}): gated recurrent unit. The gates are packed in the order
---reset, update, new. The reset gate acts after the product with the state. cell(x, {h}) -> h, {h}. Cho et al.,
---Learning Phrase Representations, 2014.
---@param hidden_size any
---@param options any
---@return perigee.Cell
function rnn.GRUCell(hidden_size, options) end

---nn.rnn.RecurrentCell and nn.rnn.HybridRecurrentCell are the base classes of cells: define state_info(self,
---batch_size) and forward(self, x, states) -> output, new states.
---@param self any
---@param batch_size any
---@return perigee.Cell
function rnn.HybridRecurrentCell(self, batch_size) end

---nn.rnn.SequentialRNNCell{a, b, …} and nn.rnn.HybridSequentialRNNCell{a, b, …}: cells in a row, each fed with the
---output of the one before it. The states of all cells are one list. `cell[i]` is a child, `#cell` their number.
---@param options any
---@return perigee.Cell
function rnn.HybridSequentialRNNCell(options) end

---nn.rnn.LSTM(hidden_size, num_layers = 1, {projection_size =, state_clip_min =, state_clip_max =, state_clip_nan = false,
---and the options of RNN except activation}): layers of long short-term memory, called like RNN, with the states h and c.
---The gates are packed in the order in, forget, cell, out. projection_size sets the size of h. state_clip_min and
---state_clip_max limit c after each step; with state_clip_nan a NaN becomes state_clip_min.
---@param hidden_size any
---@param num_layers any
---@param options any
---@return perigee.Block
function rnn.LSTM(hidden_size, num_layers, options) end

---nn.rnn.LSTMCell(hidden_size, {activation = "tanh", recurrent_activation = "sigmoid", and the options of RNNCell}):
---long short-term memory. The gates are packed in the order in, forget, cell, out. cell(x, {h, c}) -> h, {h, c}.
---Hochreiter, Schmidhuber, Long Short-Term Memory, 1997.
---@param hidden_size any
---@param options any
---@return perigee.Cell
function rnn.LSTMCell(hidden_size, options) end

---nn.rnn.LSTMPCell(hidden_size, projection_size, {the options of RNNCell except activation, h2r_weight_initializer =}): long
---short-term memory whose state h is projected to projection_size elements: cell(x, {h, c}) -> h, {h, c}. Sak et al., Long
---Short-Term Memory Based Recurrent Neural Network Architectures for Large Vocabulary Speech Recognition, 2014.
---@param hidden_size any
---@param projection_size any
---@param options any
---@return perigee.Cell
function rnn.LSTMPCell(hidden_size, projection_size, options) end

---nn.rnn.ModifierCell is the base class of cells that wrap another cell, the field base_cell. Their states are those
---of base_cell.
---@return perigee.Cell
function rnn.ModifierCell() end

---nn.rnn.RNN(hidden_size, num_layers = 1, {activation = "relu", layout = "TNC", dropout = 0, bidirectional = false,
---input_size = 0, dtype =, use_sequence_length = false, i2h_weight_initializer =, h2h_weight_initializer =,
---i2h_bias_initializer =, h2h_bias_initializer =}):
---layers of h = activation(x i2hᵀ + h h2hᵀ + biases) over whole sequences. layer(x) -> outputs; layer(x, states) ->
---outputs, states; layer(x, states or nil, sequence_length) ends each sequence after its own number of steps: later
---outputs are zero. x is (time, batch, size), or (batch, time, size) with layout "NTC". states is a list as
---begin_state returns it, or a tensor where there is one state; the new states have the same form. dropout acts
---between layers. The parameters are l0_i2h_weight …, and r0_… for the reverse direction.
---@param hidden_size any
---@param num_layers any
---@param options any
---@return perigee.Block
function rnn.RNN(hidden_size, num_layers, options) end

---nn.rnn.RNNCell(hidden_size, {activation = "tanh", input_size = 0, dtype =, i2h_weight_initializer =,
---h2h_weight_initializer =, i2h_bias_initializer =, h2h_bias_initializer =}): h = activation(x i2hᵀ + h h2hᵀ + both
---biases). cell(x, {h}) -> h, {h}.
---@param hidden_size any
---@param options any
---@return perigee.Cell
function rnn.RNNCell(hidden_size, options) end

---nn.rnn.RecurrentCell and nn.rnn.HybridRecurrentCell are the base classes of cells: define state_info(self,
---batch_size) and forward(self, x, states) -> output, new states.
---@param self any
---@param batch_size any
---@return perigee.Cell
function rnn.RecurrentCell(self, batch_size) end

---nn.rnn.ResidualCell(base_cell) adds the input of base_cell to its output. Wu et al., Google's Neural Machine
---Translation System, 2016.
---@param base_cell any
---@return perigee.Cell
function rnn.ResidualCell(base_cell) end

---nn.rnn.SequentialRNNCell{a, b, …} and nn.rnn.HybridSequentialRNNCell{a, b, …}: cells in a row, each fed with the
---output of the one before it. The states of all cells are one list. `cell[i]` is a child, `#cell` their number.
---@param options any
---@return perigee.Cell
function rnn.SequentialRNNCell(options) end

---nn.rnn.VariationalDropoutCell(base_cell, drop_inputs = 0, drop_states = 0, drop_outputs = 0): in training mode drops elements of
---the inputs, of the first state and of the outputs with these probabilities, the same elements at all steps. Single
---steps keep their masks until reset(); use cell:unroll or dynamic_unroll in place of pg.foreach, whose body cannot make the
---masks at its first step only. Gal, Ghahramani, A Theoretically Grounded Application of Dropout in Recurrent
---Neural Networks, 2016.
---@param base_cell any
---@param drop_inputs any
---@param drop_states any
---@param drop_outputs any
---@return perigee.Cell
function rnn.VariationalDropoutCell(base_cell, drop_inputs, drop_states, drop_outputs) end

---nn.rnn.ZoneoutCell(base_cell, {zoneout_outputs = 0, zoneout_states = 0}): in training mode each element of the
---output and of the states keeps its value of the step before with these probabilities. The output before the first
---step is zero; reset() returns to that. With zoneout_outputs use cell:unroll or dynamic_unroll in place of pg.foreach,
---whose body cannot run the first step after reset. Krueger et al., Zoneout, 2016.
---@param base_cell any
---@param options any
---@return perigee.Cell
function rnn.ZoneoutCell(base_cell, options) end

---nn.rnn.dynamic_unroll(cell, inputs, begin_state[, {drop_inputs = 0, drop_outputs = 0, layout = "TNC" or "NTC",
---valid_length =}]) -> outputs, states: cell:unroll over one tensor of any number of steps, run by pg.foreach, with dropout
---that shares its mask over the steps. begin_state may be nil.
---@param cell any
---@param inputs any
---@param begin_state any
---@param options any
---@return perigee.Block
function rnn.dynamic_unroll(cell, inputs, begin_state, options) end

---@class perigee.transforms
local transforms = {}

---pg.data.vision.transforms.Cast(dtype = "float32") converts its input.
---@param dtype any
---@return perigee.Block
function transforms.Cast(dtype) end

---pg.data.vision.transforms.CenterCrop(size, interpolation = "bilinear", {layout = "HWC"}) cuts out the center, of a number
---or {width, height}. A smaller image gives the largest center of that aspect ratio, resized. As in Gluon, an odd pixel is
---cut off at the right and bottom.
---@param size any
---@param interpolation any
---@param options any
---@return perigee.Block
function transforms.CenterCrop(size, interpolation, options) end

---pg.data.vision.transforms.Compose{a, b, …} and pg.data.vision.transforms.HybridCompose{a, b, …} call transforms one after
---the other. They are nn.Sequential and nn.HybridSequential: hybridize() of Compose makes graphs of those children that allow it.
---@param options any
---@return perigee.Block
function transforms.Compose(options) end

---pg.data.vision.transforms.CropResize(x, y, width, height, size = nil, interpolation = "bilinear", {layout = "HWC"}) cuts out
---width x height pixels that have x pixels to their left and y above them, and resizes them to size if it is given.
---@param x any
---@param y any
---@param width any
---@param height any
---@param size any
---@param interpolation any
---@param options any
---@return perigee.Block
function transforms.CropResize(x, y, width, height, size, interpolation, options) end

---pg.data.vision.transforms.Compose{a, b, …} and pg.data.vision.transforms.HybridCompose{a, b, …} call transforms one after
---the other. They are nn.Sequential and nn.HybridSequential: hybridize() of Compose makes graphs of those children that allow it.
---@param options any
---@return perigee.Block
function transforms.HybridCompose(options) end

---pg.data.vision.transforms.RandomApply, pg.data.vision.transforms.HybridRandomApply(f, p = 0.5) call f, a transform or another
---function, with probability p. Lua reads the random number of RandomApply, so that f may do anything. HybridRandomApply
---decides with pg.cond, so it can be hybridized; f then keeps shape and dtype, and reads no values.
---@param f any
---@param p any
---@return perigee.Block
function transforms.HybridRandomApply(f, p) end

---pg.data.vision.transforms.Normalize(mean = 0, std = 1) is (x - mean) / std for tensors channels x height x width. mean and std
---are numbers, or lists with a number for each channel.
---@param mean any
---@param std any
---@return perigee.Block
function transforms.Normalize(mean, std) end

---pg.data.vision.transforms.RandomApply, pg.data.vision.transforms.HybridRandomApply(f, p = 0.5) call f, a transform or another
---function, with probability p. Lua reads the random number of RandomApply, so that f may do anything. HybridRandomApply
---decides with pg.cond, so it can be hybridized; f then keeps shape and dtype, and reads no values.
---@param f any
---@param p any
---@return perigee.Block
function transforms.RandomApply(f, p) end

---pg.data.vision.transforms.RandomBrightness, pg.data.vision.transforms.RandomContrast,
---pg.data.vision.transforms.RandomSaturation, pg.data.vision.transforms.RandomHue(amount, {layout = "HWC"}): RandomBrightness
---multiplies images by a random factor, RandomContrast their distance to the mean of their brightness, and RandomSaturation
---that to the brightness of each pixel. The factor lies in 1 - amount (at least 0) to 1 + amount. RandomHue turns the hues
---by a random share of the circle in -amount to amount. Brightness is 0.299 red + 0.587 green + 0.114 blue, truncated for
---whole numbers. uint8 images are cut to 0 to 255 and truncated, those of floating point are not cut. The changes are
---torchvision's.
---@param amount any
---@param options any
---@return perigee.Block
function transforms.RandomBrightness(amount, options) end

---pg.data.vision.transforms.RandomColorJitter(brightness = 0, contrast = 0, saturation = 0, hue = 0, {layout = "HWC"}) applies
---RandomBrightness, RandomContrast, RandomSaturation and RandomHue in random order. Lua reads the order, so it runs as plain
---Lua, while its four children can be hybridized.
---@param brightness any
---@param contrast any
---@param saturation any
---@param hue any
---@param options any
---@return perigee.Block
function transforms.RandomColorJitter(brightness, contrast, saturation, hue, options) end

---pg.data.vision.transforms.RandomBrightness, pg.data.vision.transforms.RandomContrast,
---pg.data.vision.transforms.RandomSaturation, pg.data.vision.transforms.RandomHue(amount, {layout = "HWC"}): RandomBrightness
---multiplies images by a random factor, RandomContrast their distance to the mean of their brightness, and RandomSaturation
---that to the brightness of each pixel. The factor lies in 1 - amount (at least 0) to 1 + amount. RandomHue turns the hues
---by a random share of the circle in -amount to amount. Brightness is 0.299 red + 0.587 green + 0.114 blue, truncated for
---whole numbers. uint8 images are cut to 0 to 255 and truncated, those of floating point are not cut. The changes are
---torchvision's.
---@param amount any
---@param options any
---@return perigee.Block
function transforms.RandomContrast(amount, options) end

---pg.data.vision.transforms.RandomCrop(size, pad = 0, pad_value = 0, interpolation = "bilinear", {layout = "HWC"}) cuts out
---size, a number or {width, height}, at a random place. Before that it pads with pad_value: pad is a number, or {top, bottom,
---left, right}. A smaller image gives a part of that aspect ratio, resized.
---@param size any
---@param pad any
---@param pad_value any
---@param interpolation any
---@param options any
---@return perigee.Block
function transforms.RandomCrop(size, pad, pad_value, interpolation, options) end

---pg.data.vision.transforms.RandomFlipLeftRight, pg.data.vision.transforms.RandomFlipTopBottom(p = 0.5, {layout = "HWC"})
---mirror images with probability p.
---@param p any
---@param options any
---@return perigee.Block
function transforms.RandomFlipLeftRight(p, options) end

---pg.data.vision.transforms.RandomFlipLeftRight, pg.data.vision.transforms.RandomFlipTopBottom(p = 0.5, {layout = "HWC"})
---mirror images with probability p.
---@param p any
---@param options any
---@return perigee.Block
function transforms.RandomFlipTopBottom(p, options) end

---pg.data.vision.transforms.RandomGray(p = 0.5, {layout = "HWC"}) makes images gray with probability p: all channels become
---0.299 red + 0.587 green + 0.114 blue, truncated for whole numbers as torchvision does.
---@param p any
---@param options any
---@return perigee.Block
function transforms.RandomGray(p, options) end

---pg.data.vision.transforms.RandomBrightness, pg.data.vision.transforms.RandomContrast,
---pg.data.vision.transforms.RandomSaturation, pg.data.vision.transforms.RandomHue(amount, {layout = "HWC"}): RandomBrightness
---multiplies images by a random factor, RandomContrast their distance to the mean of their brightness, and RandomSaturation
---that to the brightness of each pixel. The factor lies in 1 - amount (at least 0) to 1 + amount. RandomHue turns the hues
---by a random share of the circle in -amount to amount. Brightness is 0.299 red + 0.587 green + 0.114 blue, truncated for
---whole numbers. uint8 images are cut to 0 to 255 and truncated, those of floating point are not cut. The changes are
---torchvision's.
---@param amount any
---@param options any
---@return perigee.Block
function transforms.RandomHue(amount, options) end

---pg.data.vision.transforms.RandomLighting(alpha, {layout = "HWC"}) adds a random color to images: the main directions of the
---colors of ImageNet, each times its deviation and a normal random number of deviation alpha. The values of uint8 images are
---from 0 to 255, those of floating point from 0 to 1. Krizhevsky et al., ImageNet classification with deep convolutional
---neural networks, 2012.
---@param alpha any
---@param options any
---@return perigee.Block
function transforms.RandomLighting(alpha, options) end

---pg.data.vision.transforms.RandomResizedCrop(size, scale = {0.08, 1}, ratio = {3/4, 4/3}, interpolation = "bilinear", {layout =
---"HWC"}) cuts out a random part and resizes it to size, a number or {width, height}. scale limits the share of the area,
---ratio the ratio of width to height, whose logarithm is uniform. After ten parts that do not fit it is CenterCrop.
---The size of the part is a random number that Lua reads, so it runs as plain Lua. Szegedy et al., Going deeper with
---convolutions, 2014.
---@param size any
---@param scale any
---@param ratio any
---@param interpolation any
---@param options any
---@return perigee.Block
function transforms.RandomResizedCrop(size, scale, ratio, interpolation, options) end

---pg.data.vision.transforms.RandomRotation(angle_limits, zoom_in = false, zoom_out = false, rotate_with_proba = 1, {layout =
---"CHW"}) turns images as Rotate, each by its own random angle between the two limits in degrees. With rotate_with_proba < 1
---all images of a call are turned, or none.
---@param angle_limits any
---@param zoom_in any
---@param zoom_out any
---@param rotate_with_proba any
---@param options any
---@return perigee.Block
function transforms.RandomRotation(angle_limits, zoom_in, zoom_out, rotate_with_proba, options) end

---pg.data.vision.transforms.RandomBrightness, pg.data.vision.transforms.RandomContrast,
---pg.data.vision.transforms.RandomSaturation, pg.data.vision.transforms.RandomHue(amount, {layout = "HWC"}): RandomBrightness
---multiplies images by a random factor, RandomContrast their distance to the mean of their brightness, and RandomSaturation
---that to the brightness of each pixel. The factor lies in 1 - amount (at least 0) to 1 + amount. RandomHue turns the hues
---by a random share of the circle in -amount to amount. Brightness is 0.299 red + 0.587 green + 0.114 blue, truncated for
---whole numbers. uint8 images are cut to 0 to 255 and truncated, those of floating point are not cut. The changes are
---torchvision's.
---@param amount any
---@param options any
---@return perigee.Block
function transforms.RandomSaturation(amount, options) end

---pg.data.vision.transforms.Resize(size, keep_ratio = false, interpolation = "bilinear", {layout = "HWC"}) resizes images.
---size is a number or {width, height}. With keep_ratio a number is the size of the shorter side. interpolation is "nearest",
---"bilinear", "bicubic" or "area", or its number in OpenCV, 0 to 3, and means what it means in pg.interpolate: pixels are
---squares, and there is no antialiasing, as in OpenCV, and in torchvision with antialias = False. uint8 images are rounded.
---@param size any
---@param keep_ratio any
---@param interpolation any
---@param options any
---@return perigee.Block
function transforms.Resize(size, keep_ratio, interpolation, options) end

---pg.data.vision.transforms.Rotate(rotation_degrees, zoom_in = false, zoom_out = false, {layout = "CHW"}) turns images of
---floating point counterclockwise, with bilinear interpolation, and keeps their size. Outside of the image is 0, as in
---torchvision. zoom_in enlarges it until nothing of the outside is seen, zoom_out reduces it until all of it is.
---@param rotation_degrees any
---@param zoom_in any
---@param zoom_out any
---@param options any
---@return perigee.Block
function transforms.Rotate(rotation_degrees, zoom_in, zoom_out, options) end

---pg.data.vision.transforms.ToTensor() makes a float32 tensor channels x height x width in [0, 1] of a uint8 image height x
---width x channels. As in Gluon and torchvision: x / 255.
---@return perigee.Block
function transforms.ToTensor() end

---@class perigee.vision
---@field transforms perigee.transforms
local vision = {}

---pg.data.vision.CIFAR10{root=, train = true} -> the dataset in the files of the binary version of CIFAR-10 (data_batch_1.bin to
---data_batch_5.bin, or test_batch.bin; plain or .gz), in the folder root or in its folder cifar-10-batches-bin. Images are 3 x
---32 x 32, float32 in [0, 1]. Labels are int64 1..10; dataset.classes holds their names. For transforms of images, give
---these the layout "CHW". Krizhevsky, Learning multiple layers of features from tiny images, 2009.
---@param options any
---@return any
function vision.CIFAR10(options) end

---pg.data.vision.CIFAR100{root=, train = true, fine_label = false} -> the dataset in train.bin or test.bin, the binary version
---of CIFAR-100, in the folder root or in its folder cifar-100-binary. Images are those of CIFAR10. Labels are int64 1..20
---for the coarse classes, or 1..100 with fine_label = true.
---@param options any
---@return any
function vision.CIFAR100(options) end

---pg.data.vision.MNIST{root=, train = true} -> the dataset in the idx files of a folder (train-images-idx3-ubyte and
---so on, plain or .gz). Images are 1 x 28 x 28, float32 in [0, 1]. Labels are int64 1..10; dataset.classes holds their
---names.
---@param options any
---@return any
function vision.MNIST(options) end

---vision.read_idx(path, rank) -> a uint8 tensor from an idx file, plain or gzipped, with this number of dims. A
---malformed file is an error that names the path and the position.
---@param path any
---@param rank any
---@return any
function vision.read_idx(path, rank) end

---@class perigee.autograd
local autograd = {}

---pg.autograd.Function{name =, forward = function(ctx, ...), backward = function(ctx, dy...)} -> a callable with its
---own gradient. backward gets one gradient per output (zeros if none reached it) and returns one gradient or nil per
---argument of forward; those of last arguments that are no floating tensors may be absent. Any other number of them
---raises. Tensors that forward stores in ctx.saved are available in backward. Store an output there and not in an
---upvalue of backward: that would make a cycle, which is never collected.
---@param options any
---@return any
function autograd.Function(options) end

---pg.autograd.backward(heads, grads, {retain_graph =, create_graph =}) computes the gradients of several heads and
---writes them to the `.grad` of their leaves. grads has one gradient per head.
---@param heads any
---@param grads any
---@param options any
---@return any
function autograd.backward(heads, grads, options) end

---pg.checkpoint(f, ...) -> the results of f, run without keeping its intermediate results. backward computes them
---again, with the same flags, random numbers and values of the tensors that f changes, and without changing any of them
---a second time. Other tensors that f gets from outside must not change before backward. Eagerly f is called a second time:
---assignments to variables and fields happen again, as in n = n + 1. If that leads to other ops, numbers or tensors of few
---elements, backward raises.
---@param f any
---@param ... any
---@return any
function autograd.checkpoint(f, ...) end

---pg.autograd.detect_anomaly(f) -> the results of f. Raises at the first op, forward or backward, that makes a NaN,
---and names the op, the script line, and the ranges of its operands and results with their numbers of NaNs and
---infinities. For a gradient it also names the line of the forward and the range of the gradient that came in. Graphs
---run node by node meanwhile.
---@param f any
---@return any
function autograd.detect_anomaly(f) end

---pg.grad(f[, argnum = 1]) -> a function that returns the gradient of the scalar function f with respect to argument
---argnum. A list of argument numbers gives one result for each. Arguments may be trees.
---@param f any
---@param argnum any
---@return any
function autograd.functional_grad(f, argnum) end

---pg.autograd.grad(heads, variables, {head_grads =, retain_graph =, create_graph =}) -> one gradient per variable. It
---does not change `.grad`.
---@return any
function autograd.grad() end

---pg.is_recording() -> whether ops are recorded.
---@return any
function autograd.is_recording() end

---pg.is_training() -> whether ops such as dropout and batch_norm run in training mode.
---@return any
function autograd.is_training() end

---y, dy = pg.jvp(f, {primals}, {tangents}): y is the result of f, dy its directional derivative along the tangents. It
---differentiates the vjp, which is linear in its cotangent, a second time. Raises if the lists differ in length or a
---tangent in its shape.
---@param f any
---@param options any
---@return any
function autograd.jvp(f, options) end

---pg.no_grad(f[, {train =}]) -> the results of f, run with recording off: no gradients flow through it. The same as
---pg.pause(f). Training stays as it is; pg.predict_mode(f) or {train = false} turns it off.
---@param f any
---@param options any
---@return any
function autograd.no_grad(f, options) end

---pg.pause(f[, {train =}]) -> the results of f, run with recording off: no gradients flow through it. The same as
---pg.no_grad(f). Unlike MXNet's pause it leaves training as it is, so dropout inside pg.record still drops:
---pg.predict_mode(f) or {train = false} turns training off.
---@param f any
---@param options any
---@return any
function autograd.pause(f, options) end

---pg.predict_mode(f) -> the results of f, run with training off. Recording does not change.
---@param f any
---@return any
function autograd.predict_mode(f) end

---pg.record(f, {train = true}) -> the results of f, run with recording on, and training on unless train = false.
---@param f any
---@param options any
---@return any
function autograd.record(f, options) end

---pg.train_mode(f) -> the results of f, run with training on. Recording does not change.
---@param f any
---@return any
function autograd.train_mode(f) end

---pg.value_and_grad(f[, argnum = 1]) -> a function that returns the value of f, then the gradients. See pg.grad.
---@param f any
---@param argnum any
---@return any
function autograd.value_and_grad(f, argnum) end

---y, back = pg.vjp(f, ...): y is the result of f(...), and back(dy) returns one gradient per argument, nil for one that
---holds no floating tensor. Raises if dy does not have the structure and shapes of y.
---@param f any
---@param ... any
---@return any
function autograd.vjp(f, ...) end

---@class perigee.data
---@field vision perigee.vision
local data = {}

---pg.data.ArrayDataset(a, b, …): item i holds a[i], b[i] and so on. The arrays are tensors (indexed along dim 1) or
---lists, all of the same length. Lists of numbers become tensors: int64 if all are whole, else float32.
---@param a any
---@param b any
---@param ... any
---@return any
function data.ArrayDataset(a, b, ...) end

---pg.data.BatchSampler(sampler, batch_size[, last_batch = "keep"]): lists of batch_size positions. The rest at the end
---becomes a smaller batch ("keep"), is dropped ("discard") or starts the next round ("rollover").
---@param sampler any
---@param batch_size any
---@param last_batch any
---@return any
function data.BatchSampler(sampler, batch_size, last_batch) end

---pg.data.DataLoader(dataset, {batch_size=, shuffle = false, last_batch = "keep", "discard" or "rollover", sampler=,
---batch_sampler=, batchify=, num_workers = 0}): `for x, y in loader:iter() do … end` iterates over the dataset once.
---batchify(items) gets a list of items, each a list of values, and returns the values of the batch. Without it tensors
---are stacked and tables are joined by key; numbers give an int64 tensor if all of them are whole, else float32. That
---is all in the dataset if it is a list (ArrayDataset, SimpleDataset and parts of them), else all so far. num_workers
---has no effect: the calling thread makes the batches.
---Raises if dataset has no len and get, if batch_size is not a whole number >= 1, if it is combined with batch_sampler,
---or where items of a batch have different kinds of values.
---@param dataset any
---@param options any
---@return any
function data.DataLoader(dataset, options) end

---pg.data.Dataset is the base class: define len() and get(i). A dataset may also define get_batch(index), which
---loaders use: it returns the batched values of the items at an int64 tensor of positions.
---@return any
function data.Dataset() end

---pg.data.FilterSampler(f, dataset): the positions of the items for which f(values…) is true.
---@param f any
---@param dataset any
---@return any
function data.FilterSampler(f, dataset) end

---pg.data.IntervalSampler(length, interval[, {rollover = true}]): the positions 1, 1 + interval, …; with rollover then
---those from 2, from 3 and so on, until each position has come once.
---@param length any
---@param interval any
---@param options any
---@return any
function data.IntervalSampler(length, interval, options) end

---pg.data.RandomSampler(length): the positions 1..length, in a new random order in each round.
---@param length any
---@return any
function data.RandomSampler(length) end

---pg.data.Sampler is the base class: define iter() and len().
---@return any
function data.Sampler() end

---pg.data.SequentialSampler(length[, start = 1]): the positions start, start + 1, … of that number.
---@param length any
---@param start any
---@return any
function data.SequentialSampler(length, start) end

---pg.data.SimpleDataset(list): a list or tensor of items. An item that is a list has several values. A loader makes
---int64 tensors of numbers that are whole in all items, else float32.
---@param list any
---@return any
function data.SimpleDataset(list) end

---pg.data.digits([{train=}]) -> an ArrayDataset of handwritten digits: images 1 x 8 x 8, float32 in [0, 1], and int64
---labels 1..10 for the digits 0 to 9; dataset.classes holds their names. It has all 1797 digits, the first 1437 with
---train = true, or the last 360 with train = false. They are the test part of "Optical Recognition of Handwritten
---Digits" (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998) in scikit-learn's order. data/digits.bin
---holds 1797 images of 64 bytes (0 to 16), then 1797 labels.
---@param options any
---@return any
function data.digits(options) end

---@class perigee.fft
local fft = {}

---The Fourier transform along a dim: y[k] is the sum over j of x[j] exp(-2 pi i j k / n). x and y have a last dim of 2, (real, imaginary). For real x take pg.fft.rfft.
---@param x perigee.Tensor
---@param n? integer x is cut or padded with zeros to this size
---@param dim? integer the dim; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {n?: integer, dim?: integer, norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.fft(x, n, dim, norm) end

---pg.fft.fft along two dims.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.fft2(x, s, dim, norm) end

---The frequencies of the elements of pg.fft.fft of n elements a time d apart, the negative ones last.
---@param n integer how many
---@param d? number the time between two elements
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {d?: number, dtype?: perigee.DType, device?: string}): perigee.Tensor
function fft.fftfreq(n, d, dtype, device) end

---pg.fft.fft along all dims, or along those given.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.fftn(x, s, dim, norm) end

---x with frequency 0 in the middle of each dim. dim must be given if x has more than one.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims, counted as those of any tensor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[]}): perigee.Tensor
function fft.fftshift(x, dim) end

---The inverse of pg.fft.fft.
---@param x perigee.Tensor
---@param n? integer x is cut or padded with zeros to this size
---@param dim? integer the dim; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {n?: integer, dim?: integer, norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.ifft(x, n, dim, norm) end

---The inverse of pg.fft.fft2.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.ifft2(x, s, dim, norm) end

---The inverse of pg.fft.fftn.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.ifftn(x, s, dim, norm) end

---The inverse of pg.fft.fftshift.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims, counted as those of any tensor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[]}): perigee.Tensor
function fft.ifftshift(x, dim) end

---The inverse of pg.fft.rfft: real numbers. n is 2 (size - 1) if it is not given.
---@param x perigee.Tensor
---@param n? integer x is cut or padded with zeros to this size
---@param dim? integer the dim; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {n?: integer, dim?: integer, norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.irfft(x, n, dim, norm) end

---The inverse of pg.fft.rfft2: real numbers.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.irfft2(x, s, dim, norm) end

---The inverse of pg.fft.rfftn: real numbers.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.irfftn(x, s, dim, norm) end

---The frequencies 0 to n / 2 of the Fourier transform of real x along a dim, with a last dim of 2, (real, imaginary). The others are their conjugates.
---@param x perigee.Tensor
---@param n? integer x is cut or padded with zeros to this size
---@param dim? integer the dim; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {n?: integer, dim?: integer, norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.rfft(x, n, dim, norm) end

---pg.fft.rfft along the last of two dims, then pg.fft.fft along the first.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.rfft2(x, s, dim, norm) end

---The frequencies of the elements of pg.fft.rfft of n elements a time d apart.
---@param n integer how many
---@param d? number the time between two elements
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {d?: number, dtype?: perigee.DType, device?: string}): perigee.Tensor
function fft.rfftfreq(n, d, dtype, device) end

---pg.fft.rfft along the last dim, then pg.fft.fft along the others.
---@param x perigee.Tensor
---@param s? integer|integer[] x is cut or padded with zeros to these sizes
---@param dim? integer|integer[] the dims; a last dim of pairs does not count
---@param norm? "backward"|"ortho"|"forward" where the factor 1 / n goes: to the inverse transform, to the forward one, or its root to both
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {s?: integer|integer[], dim?: integer|integer[], norm?: "backward"|"ortho"|"forward"}): perigee.Tensor
function fft.rfftn(x, s, dim, norm) end

---@class perigee.init
local init = {}

---pg.init.Bilinear() initializes the weight of a transposed convolution to bilinear interpolation.
---@return any
function init.Bilinear() end

---pg.init.Constant(value) fills with a number, or copies a tensor of the parameter's shape.
---@param value any
---@return any
function init.Constant(value) end

---pg.init.FusedRNN(init, num_hidden, num_layers, mode = "rnn_relu", "rnn_tanh", "lstm" or "gru", bidirectional = false,
---forget_bias = 1): the parameters of a recurrent layer. Biases are 0, but forget_bias for the forget gates of "lstm";
---weights are made by init, by default Uniform(0.07). MXNet's layers have one packed parameter; those of perigee have
---one for each weight and bias, so num_hidden only checks the biases, and num_layers and bidirectional change nothing.
---@param init any
---@param num_hidden any
---@param num_layers any
---@param mode any
---@param bidirectional any
---@param forget_bias any
---@return any
function init.FusedRNN(init, num_hidden, num_layers, mode, bidirectional, forget_bias) end

---pg.init.Initializer is the base class: `local Mine = pg.init.Initializer:extend("Mine")` with a method
---`make(self, shape, options, path)` that returns a tensor; options holds dtype and device.
---@return any
function init.Initializer() end

---pg.init.LSTMBias(forget_bias = 1): zeros, except forget_bias for the forget gate. The order of the gates is in,
---forget, cell, out.
---@param forget_bias any
---@return any
function init.LSTMBias(forget_bias) end

---pg.init.Load(file or table, default_init): values by path, from a table or a file written by save_parameters,
---pg.save or MXNet. Other paths get default_init.
---@param file any
---@param default_init any
---@return any
function init.Load(file, default_init) end

---pg.init.MSRAPrelu(factor_type = "avg", slope = 0.25): Xavier with gaussian values for networks of leaky rectifiers
---with this slope.
---@param factor_type any
---@param slope any
---@return any
function init.MSRAPrelu(factor_type, slope) end

---pg.init.Mixed(patterns, initializers): the initializer of the first Lua pattern that is found in a parameter's path.
---It takes precedence over the rule of the name (bias 0, gamma 1), except for a pattern that matches every path, such
---as ".*". Raises for a regular expression, with | or a backslash; "%|" is a bar in a path.
---@param patterns any
---@param initializers any
---@return any
function init.Mixed(patterns, initializers) end

---pg.init.Normal(sigma = 0.01) draws from a normal distribution with mean 0 and standard deviation sigma.
---@param sigma any
---@return any
function init.Normal(sigma) end

---pg.init.One() fills with ones.
---@return any
function init.One() end

---pg.init.Orthogonal(scale = 1.414, rand_type = "uniform" or "normal") makes rows or columns orthogonal with length
---scale.
---@param scale any
---@param rand_type any
---@return any
function init.Orthogonal(scale, rand_type) end

---pg.init.TruncatedNormal(mean = 0, stdev = 0.01) draws from a normal distribution truncated at two standard
---deviations.
---@param mean any
---@param stdev any
---@return any
function init.TruncatedNormal(mean, stdev) end

---pg.init.Uniform(scale = 0.07) draws uniformly from [-scale, scale].
---@param scale any
---@return any
function init.Uniform(scale) end

---pg.init.Xavier(rnd_type = "uniform" or "gaussian", factor_type = "avg", "in" or "out", magnitude = 3): random values
---with scale sqrt(magnitude / fan), where fan is the number of inputs, of outputs, or their average.
---@param rnd_type any
---@param factor_type any
---@param magnitude any
---@return any
function init.Xavier(rnd_type, factor_type, magnitude) end

---pg.init.Zero() fills with zeros.
---@return any
function init.Zero() end

---pg.init.make(own, default, path, shape, options) -> a value for a parameter. Its own initializer takes precedence,
---then the rule of its name, then the default. If the default is Mixed or Load, it chooses by path and takes
---precedence over the rule.
---@param own any
---@param default any
---@param path any
---@param shape any
---@param options any
---@return any
function init.make(own, default, path, shape, options) end

---pg.init.resolve(op, value) -> an initializer. value is a name, a number, a tensor, an initializer, a class of
---pg.init, a function (shape, options, path) -> tensor, or nil for Uniform(0.07).
---@param op any
---@param value any
---@return any
function init.resolve(op, value) end

---pg.init.rule(path) -> the initializer for the name of a parameter, the end of its path (bias, beta, running_mean: 0;
---gamma, running_var: 1), or nil.
---@param path any
---@return any
function init.rule(path) end

---@class perigee.linalg
local linalg = {}

---The lower triangular L with L Lᵀ = a for symmetric positive definite matrices a, of which only the lower triangle is read.
---@param a perigee.Tensor
---@return perigee.Tensor out
function linalg.cholesky(a) end

---x with a x = b for a = l lᵀ, where l is the result of pg.linalg.cholesky(a); for a = lᵀ l if `upper`.
---@param b perigee.Tensor
---@param l perigee.Tensor
---@param upper? boolean whether l is an upper triangle
---@return perigee.Tensor out
---@overload fun(b: perigee.Tensor, l: perigee.Tensor, options: {upper?: boolean}): perigee.Tensor
function linalg.cholesky_solve(b, l, upper) end

---pg.linalg.cond(a[, p]) -> the condition numbers of matrices: the norm of a times that of its inverse, for the norms of
---pg.linalg.norm. Without p, or with 2, it is the ratio of the largest to the smallest singular value, of matrices of
---any shape; -2 is the inverse ratio. Singular matrices have inf, or 0 for -2; matrices of zeros have NaN.
---@param a any
---@param p any
---@return any
function linalg.cond(a, p) end

---The determinants of square matrices. Gradients of order 1 and 2 are exact for singular matrices too.
---@param a perigee.Tensor
---@return perigee.Tensor out
function linalg.det(a) end

---The eigenvalues in ascending order, and the eigenvectors as columns, of symmetric matrices, of which only the lower triangle is read. The largest element of each vector, by absolute value, is positive. NaN or inf in a matrix gives NaN. The gradient of the vectors needs distinct eigenvalues.
---@param a perigee.Tensor
---@return perigee.Tensor values
---@return perigee.Tensor vectors
function linalg.eigh(a) end

---The eigenvalues in ascending order of symmetric matrices, of which only the lower triangle is read.
---@param a perigee.Tensor
---@return perigee.Tensor out
function linalg.eigvalsh(a) end

---The inverse of square matrices. A singular one is an error, or has inf everywhere.
---@param a perigee.Tensor
---@param check_errors? boolean whether a singular matrix is an error
---@return perigee.Tensor out
---@overload fun(a: perigee.Tensor, options: {check_errors?: boolean}): perigee.Tensor
function linalg.inv(a, check_errors) end

---x with the smallest sum of squares of a x - b, and of those the shortest; b is a vector or a matrix for each a. The driver "gels" (by QR) is for matrices of full rank, min(rows, columns): others give numbers without meaning. "gelsd" (by SVD, slower) is for all.
---@param a perigee.Tensor
---@param b perigee.Tensor
---@param rcond? number rtol of pg.linalg.pinv, for "gelsd"
---@param driver? "gels"|"gelsd" how it is computed
---@return perigee.Tensor out
---@overload fun(a: perigee.Tensor, b: perigee.Tensor, options: {rcond?: number, driver?: "gels"|"gelsd"}): perigee.Tensor
function linalg.lstsq(a, b, rcond, driver) end

---The exponential of square matrices: I + a + a a / 2! + …
---@param a perigee.Tensor
---@return perigee.Tensor out
function linalg.matrix_exp(a) end

---The product of n times the same square matrix; of its inverse for negative n, and the identity for 0.
---@param a perigee.Tensor
---@param n integer the power
---@return perigee.Tensor out
function linalg.matrix_power(a, n) end

---How many singular values of a matrix are above the larger tolerance. int64.
---@param a perigee.Tensor
---@param atol? number singular values up to it count as 0
---@param rtol? number the same, times the largest one; when nil 0 with an atol, else max(rows, columns) times the epsilon of the dtype
---@return perigee.Tensor out
---@overload fun(a: perigee.Tensor, options: {atol?: number, rtol?: number}): perigee.Tensor
function linalg.matrix_rank(a, atol, rtol) end

---pg.linalg.multi_dot(tensors) -> the product of a list of matrices, in the order that takes the fewest
---multiplications. The first tensor may be a row and the last one a column, with one dim, which the result then lacks.
---@param tensors any
---@return any
function linalg.multi_dot(tensors) end

---pg.linalg.norm(x[, ord[, dim[, keepdim]]]) -> the norm of vectors along one dim (ord is a number, as p in x:norm{p
---=}) or of matrices along two dims (ord is "fro", "nuc", 1, -1, 2, -2, math.huge or -math.huge; "nuc", 2 and -2 are the
---sum, the largest and the smallest of the singular values). Without ord it is the root of the sum of squares along
---dim, or along all dims.
---@param x any
---@param ord any
---@param dim any
---@param keepdim any
---@return any
function linalg.norm(x, ord, dim, keepdim) end

---The Moore-Penrose pseudoinverse of matrices. Singular values up to the larger tolerance count as 0. The gradient is for changes that keep the rank.
---@param a perigee.Tensor
---@param atol? number singular values up to it count as 0
---@param rtol? number the same, times the largest one; when nil 0 with an atol, else max(rows, columns) times the epsilon of the dtype
---@return perigee.Tensor out
---@overload fun(a: perigee.Tensor, options: {atol?: number, rtol?: number}): perigee.Tensor
function linalg.pinv(a, atol, rtol) end

---a = q r with orthonormal columns in q and an upper triangle r. With k = min(rows, columns), q has k columns in mode "reduced" and is square in mode "complete". The signs of the diagonal of r are not specified. The gradient needs linearly independent first k columns of a.
---@param a perigee.Tensor
---@param mode? "reduced"|"complete" the size of q
---@return perigee.Tensor q
---@return perigee.Tensor r
---@overload fun(a: perigee.Tensor, options: {mode?: "reduced"|"complete"}): perigee.Tensor, perigee.Tensor
function linalg.qr(a, mode) end

---The sign (-1, 0 or 1) of the determinants of square matrices, and the logarithm of their absolute value, which does not overflow. The gradient of a singular matrix is an error.
---@param a perigee.Tensor
---@return perigee.Tensor sign
---@return perigee.Tensor logabsdet
function linalg.slogdet(a) end

---x with a x = b for square matrices a; b is a vector or a matrix for each. A singular a is an error.
---@param a perigee.Tensor
---@param b perigee.Tensor
---@return perigee.Tensor out
function linalg.solve(a, b) end

---x with a x = b for triangular matrices a, or with x a = b if not `left`. The other triangle of a is not read. A 0 on the diagonal gives numbers without meaning.
---@param a perigee.Tensor
---@param b perigee.Tensor
---@param upper boolean whether a is the upper triangle, else the lower one
---@param left? boolean whether a is on the left of x
---@param transpose? boolean use the transpose of a; `upper` is still that of a
---@param unitriangular? boolean the diagonal of a counts as ones and is not read
---@return perigee.Tensor out
---@overload fun(a: perigee.Tensor, b: perigee.Tensor, upper: boolean, options: {left?: boolean, transpose?: boolean, unitriangular?: boolean}): perigee.Tensor
function linalg.solve_triangular(a, b, upper, left, transpose, unitriangular) end

---a = u diag(s) vh with orthonormal columns in u and rows in vh, and s in descending order. The largest element of each column of u, by absolute value, is positive. NaN or inf in a matrix gives NaN. The gradient of u and vh needs distinct singular values, and s > 0 where a is not square; that of s does not.
---@param a perigee.Tensor
---@param full_matrices? boolean square u and vh, not only the first min(rows, columns)
---@return perigee.Tensor u
---@return perigee.Tensor s
---@return perigee.Tensor vh
---@overload fun(a: perigee.Tensor, options: {full_matrices?: boolean}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function linalg.svd(a, full_matrices) end

---The singular values of matrices in descending order; NaN where a matrix has NaN or inf.
---@param a perigee.Tensor
---@return perigee.Tensor out
function linalg.svdvals(a) end

---@class perigee.loss
local loss = {}

---pg.loss.CTCLoss({layout = "NTC" or "TNC", label_layout = "NT" or "TN", weight=}), called as
---loss(pred, label[, pred_lengths[, label_lengths[, sample_weight]]]) with scores of C classes, of which class C is the
---blank: -log of the probability of the labels 1..C-1, one value a sample. Without label_lengths the labels of a sample
---end before its first label below 1. See pg.ctc_loss.
---@param options any
---@return perigee.Block
function loss.CTCLoss(options) end

---pg.loss.CosineEmbeddingLoss({weight=, batch_axis = 1, margin = 0}), called as loss(x1, x2, label): 1 - cos if label
---is 1, max(0, cos - margin) if it is -1.
---@param options any
---@return perigee.Block
function loss.CosineEmbeddingLoss(options) end

---pg.loss.HingeLoss({margin = 1, weight=, batch_axis = 1}): max(0, margin - pred * label), with labels -1 and 1.
---@param options any
---@return perigee.Block
function loss.HingeLoss(options) end

---pg.loss.HuberLoss({rho = 1, weight=, batch_axis = 1}): quadratic for errors up to rho, linear above.
---@param options any
---@return perigee.Block
function loss.HuberLoss(options) end

---pg.loss.KLDivLoss({from_logits = true, axis = -1, weight=, batch_axis = 1}): the sum of label * (log label - pred)
---over each sample. pred holds log-probabilities, or scores if from_logits is false.
---@param options any
---@return perigee.Block
function loss.KLDivLoss(options) end

---pg.loss.L1Loss({weight=, batch_axis = 1}): the mean of |pred - label| over each sample.
---@param options any
---@return perigee.Block
function loss.L1Loss(options) end

---pg.loss.L2Loss({weight = 1, batch_axis = 1}): the mean of (pred - label)² / 2 over each sample.
---@param options any
---@return perigee.Block
function loss.L2Loss(options) end

---pg.loss.LogisticLoss({weight=, batch_axis = 1, label_format = "signed" or "binary"}): log(1 + exp(-pred * label)).
---@param options any
---@return perigee.Block
function loss.LogisticLoss(options) end

---pg.loss.Loss is the base class of losses. All take the options weight (a factor) and batch_axis (default 1).
---@param a any
---@return perigee.Block
function loss.Loss(a) end

---pg.loss.PoissonNLLLoss({weight=, from_logits = true, batch_axis = 1, compute_full = false}): the negative log
---likelihood of counts, averaged over all elements. compute_full adds Stirling's approximation of log(label!).
---@param options any
---@return perigee.Block
function loss.PoissonNLLLoss(options) end

---pg.loss.SDMLLoss({smoothing_parameter = 0.3, weight = 1, batch_axis = 1}), called as loss(x1, x2[, sample_weight]) with
---vectors (batch, size): row i of x1 belongs to row i of x2, and every other row of x2 is a wrong partner. The loss is the
---divergence of softmax(-squared distances of row i) from the labels 1 - smoothing_parameter for row i and an equal share
---of the rest for the others. The batch must have two rows or more. Bonadiman et al., Large Scale Question Paraphrase
---Retrieval with Smoothed Deep Metric Learning, 2019.
---@param options any
---@return perigee.Block
function loss.SDMLLoss(options) end

---pg.loss.SigmoidBinaryCrossEntropyLoss({from_sigmoid = false, weight=, batch_axis = 1}), called as
---loss(pred, label[, sample_weight[, pos_weight]]): binary cross entropy of logits, or of probabilities.
---@param options any
---@return perigee.Block
function loss.SigmoidBCELoss(options) end

---pg.loss.SigmoidBinaryCrossEntropyLoss({from_sigmoid = false, weight=, batch_axis = 1}), called as
---loss(pred, label[, sample_weight[, pos_weight]]): binary cross entropy of logits, or of probabilities.
---@param options any
---@return perigee.Block
function loss.SigmoidBinaryCrossEntropyLoss(options) end

---pg.loss.SoftmaxCrossEntropyLoss({axis = -1, sparse_label = true, from_logits = false, weight=, batch_axis = 1}):
---cross entropy with class labels 1..C, or with distributions if sparse_label is false. from_logits = true means that
---pred holds log-probabilities, as in Gluon.
---@param options any
---@return perigee.Block
function loss.SoftmaxCELoss(options) end

---pg.loss.SoftmaxCrossEntropyLoss({axis = -1, sparse_label = true, from_logits = false, weight=, batch_axis = 1}):
---cross entropy with class labels 1..C, or with distributions if sparse_label is false. from_logits = true means that
---pred holds log-probabilities, as in Gluon.
---@param options any
---@return perigee.Block
function loss.SoftmaxCrossEntropyLoss(options) end

---pg.loss.SquaredHingeLoss({margin = 1, weight=, batch_axis = 1}): the square of HingeLoss's terms.
---@param options any
---@return perigee.Block
function loss.SquaredHingeLoss(options) end

---pg.loss.TripletLoss({margin = 1, weight=, batch_axis = 1}), called as loss(anchor, positive, negative):
---max(0, |positive - anchor|² - |negative - anchor|² + margin).
---@param options any
---@return perigee.Block
function loss.TripletLoss(options) end

---@class perigee.metric
local metric = {}

---pg.metric.Accuracy({axis = 2}): the share of correct predictions. pred holds class indices (in the shape of labels),
---or scores with the classes along axis. Raises if labels and predictions differ in number, or for a label that is no
---class of the scores.
---@param options any
---@return any
function metric.Accuracy(options) end

---pg.metric.CompositeEvalMetric(metrics): several metrics updated together; get() -> lists of names and values.
---@param metrics any
---@return any
function metric.CompositeEvalMetric(metrics) end

---pg.metric.CrossEntropy({eps = 1e-12}): the mean of -log(p + eps), where p is the label's probability in pred (rows
---of probabilities).
---@param options any
---@return any
function metric.CrossEntropy(options) end

---pg.metric.CustomMetric(f[, name]): f(label, pred) -> a number or a tensor of one element, averaged over updates.
---@param f any
---@param name any
---@return any
function metric.CustomMetric(f, name) end

---pg.metric.F1({average = "macro"}) and pg.metric.MCC({average = "macro"}) score two classes, where class 2 is the
---positive one. "macro" is the mean of the scores of all updates, "micro" the score of the counts of all updates
---together.
---@param options any
---@return any
function metric.F1(options) end

---pg.metric.Loss(): the mean of all values given as preds. It ignores labels.
---@return any
function metric.Loss() end

---pg.metric.MAE(): the mean of |label - pred|, averaged over updates.
---@return any
function metric.MAE() end

---pg.metric.F1({average = "macro"}) and pg.metric.MCC({average = "macro"}) score two classes, where class 2 is the
---positive one. "macro" is the mean of the scores of all updates, "micro" the score of the counts of all updates
---together.
---@param options any
---@return any
function metric.MCC(options) end

---pg.metric.MSE(): the mean of (label - pred)², averaged over updates.
---@return any
function metric.MSE() end

---pg.metric.Metric is the base class. A subclass defines measure(label, pred) -> sum, count, each a number or a tensor
---of one element, which update accumulates. It may define finish(sum, count) -> the value, from two numbers. A measure
---that returns tensors and reads none of their values also runs inside pg.jit; if it reads no sizes either, one trace
---fits batches of all sizes.
---@param label any
---@param pred any
---@return any
function metric.Metric(label, pred) end

---pg.metric.NegativeLogLikelihood({eps = 1e-12}): the same value as CrossEntropy, with the name nll-loss.
---@param options any
---@return any
function metric.NegativeLogLikelihood(options) end

---pg.metric.PCC(): the correlation of labels and predicted classes, the Matthews correlation coefficient of any number
---of classes, from the counts of all updates. pred holds classes, or scores with the classes along dim 2. Gorodkin,
---Comparing two K-category assignments by a K-category correlation coefficient, 2004.
---@return any
function metric.PCC() end

---pg.metric.PearsonCorrelation(): the correlation of labels and preds, averaged over updates.
---@return any
function metric.PearsonCorrelation() end

---pg.metric.Perplexity({ignore_label=}): the exponential of the mean of -log of the label's probability. Labels equal
---to ignore_label are skipped.
---@param options any
---@return any
function metric.Perplexity(options) end

---pg.metric.RMSE(): the root of the mean of (label - pred)², averaged over updates.
---@return any
function metric.RMSE() end

---pg.metric.TopKAccuracy(top_k = 1): the share of labels among the top_k highest scores. Raises for a label that is no
---class.
---@param top_k any
---@return any
function metric.TopKAccuracy(top_k) end

---pg.metric.create(value, …) -> a metric. value is a name (such as "acc"), a list of names or metrics, a function or a
---metric.
---@param value any
---@param ... any
---@return any
function metric.create(value, ...) end

---@class perigee.models
local models = {}

---pg.models.AlexNet({classes = 1000}) is the class of pg.models.alexnet.
---@param options any
---@return perigee.Block
function models.AlexNet(options) end

---pg.models.DenseNet(num_init_features, growth_rate, block_config, {bn_size = 4, dropout = 0, classes = 1000}) is the class
---of the DenseNets: the channels of the first convolution, those that each layer adds, and the number of layers of each
---block.
---@param num_init_features any
---@param growth_rate any
---@param block_config any
---@param options any
---@return perigee.Block
function models.DenseNet(num_init_features, growth_rate, block_config, options) end

---pg.models.Inception3({classes = 1000}) is the class of pg.models.inception_v3.
---@param options any
---@return perigee.Block
function models.Inception3(options) end

---pg.models.MobileNet(multiplier = 1, {classes = 1000}) is the class of the MobileNets of version 1, with multiplier times
---the channels.
---@param multiplier any
---@param options any
---@return perigee.Block
function models.MobileNet(multiplier, options) end

---pg.models.MobileNetV2(multiplier = 1, {classes = 1000}) is the class of the MobileNets of version 2, with multiplier times
---the channels.
---@param multiplier any
---@param options any
---@return perigee.Block
function models.MobileNetV2(multiplier, options) end

---pg.models.ResNetV1, pg.models.ResNetV2(layers, channels, {bottleneck = false, classes = 1000, thumbnail = false}) are the
---classes of the ResNets: for each stage the number of its blocks and their channels, with the channels of the first
---convolution before them. thumbnail begins with a convolution of 3 x 3 instead of 7 x 7 and pooling, for small images.
---@param layers any
---@param channels any
---@param options any
---@return perigee.Block
function models.ResNetV1(layers, channels, options) end

---pg.models.ResNetV1, pg.models.ResNetV2(layers, channels, {bottleneck = false, classes = 1000, thumbnail = false}) are the
---classes of the ResNets: for each stage the number of its blocks and their channels, with the channels of the first
---convolution before them. thumbnail begins with a convolution of 3 x 3 instead of 7 x 7 and pooling, for small images.
---@param layers any
---@param channels any
---@param options any
---@return perigee.Block
function models.ResNetV2(layers, channels, options) end

---pg.models.SqueezeNet(version, {classes = 1000}) is the class of the SqueezeNets; version is "1.0" or "1.1".
---@param version any
---@param options any
---@return perigee.Block
function models.SqueezeNet(version, options) end

---pg.models.VGG(layers, filters, {classes = 1000, batch_norm = false}) is the class of the VGG nets: for each block the
---number of its convolutions and of their channels.
---@param layers any
---@param filters any
---@param options any
---@return perigee.Block
function models.VGG(layers, filters, options) end

---pg.models.alexnet({classes = 1000}) -> AlexNet with random weights after initialize(). Images are (batch, 3, height, width),
---of at least 63 x 63; the first call fixes the size. Krizhevsky, One weird trick for parallelizing convolutional neural
---networks, 2014.
---@param options any
---@return perigee.Block
function models.alexnet(options) end

---pg.models.densenet121, pg.models.densenet161, pg.models.densenet169, pg.models.densenet201({classes = 1000, bn_size = 4,
---dropout = 0}) -> a DenseNet for images (batch, 3, height, width) of at least 29 x 29. The last pooling is over whole
---channels, where Gluon's is over 7 x 7, the same for images of 224 x 224. Huang et al., Densely connected convolutional
---networks, 2016.
---@param options any
---@return perigee.Block
function models.densenet121(options) end

---pg.models.densenet121, pg.models.densenet161, pg.models.densenet169, pg.models.densenet201({classes = 1000, bn_size = 4,
---dropout = 0}) -> a DenseNet for images (batch, 3, height, width) of at least 29 x 29. The last pooling is over whole
---channels, where Gluon's is over 7 x 7, the same for images of 224 x 224. Huang et al., Densely connected convolutional
---networks, 2016.
---@param options any
---@return perigee.Block
function models.densenet161(options) end

---pg.models.densenet121, pg.models.densenet161, pg.models.densenet169, pg.models.densenet201({classes = 1000, bn_size = 4,
---dropout = 0}) -> a DenseNet for images (batch, 3, height, width) of at least 29 x 29. The last pooling is over whole
---channels, where Gluon's is over 7 x 7, the same for images of 224 x 224. Huang et al., Densely connected convolutional
---networks, 2016.
---@param options any
---@return perigee.Block
function models.densenet169(options) end

---pg.models.densenet121, pg.models.densenet161, pg.models.densenet169, pg.models.densenet201({classes = 1000, bn_size = 4,
---dropout = 0}) -> a DenseNet for images (batch, 3, height, width) of at least 29 x 29. The last pooling is over whole
---channels, where Gluon's is over 7 x 7, the same for images of 224 x 224. Huang et al., Densely connected convolutional
---networks, 2016.
---@param options any
---@return perigee.Block
function models.densenet201(options) end

---pg.models.get_model(name[, {classes = 1000, …}]) -> the model of that name: pg.models.NAME(options). Gluon's names with dots,
---such as "mobilenetv2_1.0" and "inceptionv3", are names too.
---@param name any
---@param options any
---@return perigee.Block
function models.get_model(name, options) end

---pg.models.inception_v3({classes = 1000}) -> Inception v3, without the second output for training, for images (batch, 3,
---height, width) of at least 75 x 75. The last pooling is over whole channels, where Gluon's is over 8 x 8, the same for
---images of 299 x 299. Szegedy et al., Rethinking the Inception architecture for computer vision, 2015.
---@param options any
---@return perigee.Block
function models.inception_v3(options) end

---pg.models.list() -> the sorted list of the names of the models.
---@return string[]
function models.list() end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet0_25(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet0_5(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet0_75(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet1_0(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet_v2_0_25(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet_v2_0_5(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet_v2_0_75(options) end

---pg.models.mobilenet1_0, pg.models.mobilenet0_75, pg.models.mobilenet0_5, pg.models.mobilenet0_25, pg.models.mobilenet_v2_1_0,
---pg.models.mobilenet_v2_0_75, pg.models.mobilenet_v2_0_5, pg.models.mobilenet_v2_0_25({classes = 1000}) -> a MobileNet of
---version 1 or 2 for images (batch, 3, height, width) of any size. The last number multiplies the channels. As in Gluon,
---the first block of version 2 has its convolution of 1 x 1 although it expands nothing, and the output has no bias. Howard
---et al., MobileNets, 2017, and Sandler et al., MobileNetV2, 2018.
---@param options any
---@return perigee.Block
function models.mobilenet_v2_1_0(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet101_v1(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet101_v2(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet152_v1(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet152_v2(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet18_v1(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet18_v2(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet34_v1(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet34_v2(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet50_v1(options) end

---pg.models.resnet18_v1, pg.models.resnet34_v1, pg.models.resnet50_v1, pg.models.resnet101_v1, pg.models.resnet152_v1,
---pg.models.resnet18_v2, pg.models.resnet34_v2, pg.models.resnet50_v2, pg.models.resnet101_v2,
---pg.models.resnet152_v2({classes = 1000, thumbnail = false}) -> a ResNet for images (batch, 3, height, width) of any size. As
---in Gluon, the bottlenecks of v1 have their stride in the first convolution and biases in the convolutions of 1 x 1.
---thumbnail begins with a convolution of 3 x 3, for small images. He et al., Deep residual learning for image recognition,
---2015, and Identity mappings in deep residual networks, 2016.
---@param options any
---@return perigee.Block
function models.resnet50_v2(options) end

---pg.models.squeezenet1_0, pg.models.squeezenet1_1({classes = 1000}) -> a SqueezeNet for images (batch, 3, height, width) of
---at least 21 x 21. The second has the same accuracy with less computation. The last pooling is over whole channels, where Gluon's is
---over 13 x 13, the same for images of 224 x 224. Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer
---parameters, 2016.
---@param options any
---@return perigee.Block
function models.squeezenet1_0(options) end

---pg.models.squeezenet1_0, pg.models.squeezenet1_1({classes = 1000}) -> a SqueezeNet for images (batch, 3, height, width) of
---at least 21 x 21. The second has the same accuracy with less computation. The last pooling is over whole channels, where Gluon's is
---over 13 x 13, the same for images of 224 x 224. Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer
---parameters, 2016.
---@param options any
---@return perigee.Block
function models.squeezenet1_1(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg11(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg11_bn(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg13(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg13_bn(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg16(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg16_bn(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg19(options) end

---pg.models.vgg11, pg.models.vgg13, pg.models.vgg16, pg.models.vgg19, pg.models.vgg11_bn, pg.models.vgg13_bn,
---pg.models.vgg16_bn, pg.models.vgg19_bn({classes = 1000}) -> a VGG net; those with _bn have a BatchNorm after each
---convolution. Images are (batch, 3, height, width), of at least 32 x 32; the first call fixes the size. Simonyan and Zisserman,
---Very deep convolutional networks for large-scale image recognition, 2014.
---@param options any
---@return perigee.Block
function models.vgg19_bn(options) end

---@class perigee.nn
---@field rnn perigee.rnn
local nn = {}

---nn.Activation(name) applies "relu", "sigmoid", "tanh", "softrelu", "softsign" or another activation op.
---@param name any
---@return perigee.Block
function nn.Activation(name) end

---nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
---0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
---channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
---1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
---pool_size.
---@param pool_size any
---@param strides any
---@param options any
---@return perigee.Block
function nn.AvgPool1D(pool_size, strides, options) end

---nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
---0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
---channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
---1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
---pool_size.
---@param pool_size any
---@param strides any
---@param options any
---@return perigee.Block
function nn.AvgPool2D(pool_size, strides, options) end

---nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
---0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
---channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
---1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
---pool_size.
---@param pool_size any
---@param strides any
---@param options any
---@return perigee.Block
function nn.AvgPool3D(pool_size, strides, options) end

---nn.BatchNorm({axis = 2, momentum = 0.9, epsilon = 1e-5, center = true, scale = true, use_global_stats = false,
---in_channels = 0, beta_initializer=, gamma_initializer=, running_mean_initializer=, running_variance_initializer=})
---normalizes each channel. In training mode it uses the statistics of the batch and updates running_mean and
---running_var, where momentum is the share of the old value and the variance is the biased one. In predict mode it
---uses the running statistics.
---@param options any
---@return perigee.Block
function nn.BatchNorm(options) end

---nn.BatchNormReLU({the options of BatchNorm}): relu of BatchNorm.
---@param options any
---@return perigee.Block
function nn.BatchNormReLU(options) end

---nn.Block is the base class of blocks that run as plain Lua. See nn.HybridBlock for blocks that can be hybridized.
---@return perigee.Block
function nn.Block() end

---nn.Concurrent({a, b, …}, {axis = -1}) and nn.HybridConcurrent({a, b, …}, {axis = -1}) give their inputs to each child
---and concatenate the results along axis. Without a list, add() adds the children: nn.HybridConcurrent{axis = 2}.
---Children are blocks or functions. Szegedy et al., Going Deeper with Convolutions, 2014.
---@param options any
---@return perigee.Block
function nn.Concurrent(options) end

---nn.Conv1D, Conv2D, Conv3D(channels, kernel_size, {strides = 1, padding = 0, dilation = 1, groups = 1,
---activation=, use_bias = true, weight_initializer=, bias_initializer=, in_channels = 0}): a convolution of x (batch,
---in_channels, sizes…) with weight (channels, in_channels / groups, kernel sizes…), plus bias. The result is (batch,
---channels, sizes…) with sizes floor((size + 2 padding - dilation (kernel_size - 1) - 1) / strides) + 1. Numbers per
---dim are one number or a list. padding may be "valid" or, with strides of 1, "same": the result has the size of x,
---and an odd zero goes to the far end. With in_channels = 0 the first call infers it. Raises if groups does not
---divide both channels and in_channels.
---@param channels any
---@param kernel_size any
---@param options any
---@return perigee.Block
function nn.Conv1D(channels, kernel_size, options) end

---nn.Conv1DTranspose, Conv2DTranspose, Conv3DTranspose(channels, kernel_size, {strides = 1, padding = 0,
---output_padding = 0, dilation = 1, groups = 1, activation=, use_bias = true, weight_initializer=,
---bias_initializer=, in_channels = 0}): a transposed convolution, the gradient of a convolution by its input, with
---weight (in_channels, channels / groups, kernel sizes…). The result is (batch, channels, sizes…) with sizes (size -
---1) strides - 2 padding + dilation (kernel_size - 1) + output_padding + 1. Raises if groups does not divide both
---channels and in_channels.
---@param channels any
---@param kernel_size any
---@param options any
---@return perigee.Block
function nn.Conv1DTranspose(channels, kernel_size, options) end

---nn.Conv1D, Conv2D, Conv3D(channels, kernel_size, {strides = 1, padding = 0, dilation = 1, groups = 1,
---activation=, use_bias = true, weight_initializer=, bias_initializer=, in_channels = 0}): a convolution of x (batch,
---in_channels, sizes…) with weight (channels, in_channels / groups, kernel sizes…), plus bias. The result is (batch,
---channels, sizes…) with sizes floor((size + 2 padding - dilation (kernel_size - 1) - 1) / strides) + 1. Numbers per
---dim are one number or a list. padding may be "valid" or, with strides of 1, "same": the result has the size of x,
---and an odd zero goes to the far end. With in_channels = 0 the first call infers it. Raises if groups does not
---divide both channels and in_channels.
---@param channels any
---@param kernel_size any
---@param options any
---@return perigee.Block
function nn.Conv2D(channels, kernel_size, options) end

---nn.Conv1DTranspose, Conv2DTranspose, Conv3DTranspose(channels, kernel_size, {strides = 1, padding = 0,
---output_padding = 0, dilation = 1, groups = 1, activation=, use_bias = true, weight_initializer=,
---bias_initializer=, in_channels = 0}): a transposed convolution, the gradient of a convolution by its input, with
---weight (in_channels, channels / groups, kernel sizes…). The result is (batch, channels, sizes…) with sizes (size -
---1) strides - 2 padding + dilation (kernel_size - 1) + output_padding + 1. Raises if groups does not divide both
---channels and in_channels.
---@param channels any
---@param kernel_size any
---@param options any
---@return perigee.Block
function nn.Conv2DTranspose(channels, kernel_size, options) end

---nn.Conv1D, Conv2D, Conv3D(channels, kernel_size, {strides = 1, padding = 0, dilation = 1, groups = 1,
---activation=, use_bias = true, weight_initializer=, bias_initializer=, in_channels = 0}): a convolution of x (batch,
---in_channels, sizes…) with weight (channels, in_channels / groups, kernel sizes…), plus bias. The result is (batch,
---channels, sizes…) with sizes floor((size + 2 padding - dilation (kernel_size - 1) - 1) / strides) + 1. Numbers per
---dim are one number or a list. padding may be "valid" or, with strides of 1, "same": the result has the size of x,
---and an odd zero goes to the far end. With in_channels = 0 the first call infers it. Raises if groups does not
---divide both channels and in_channels.
---@param channels any
---@param kernel_size any
---@param options any
---@return perigee.Block
function nn.Conv3D(channels, kernel_size, options) end

---nn.Conv1DTranspose, Conv2DTranspose, Conv3DTranspose(channels, kernel_size, {strides = 1, padding = 0,
---output_padding = 0, dilation = 1, groups = 1, activation=, use_bias = true, weight_initializer=,
---bias_initializer=, in_channels = 0}): a transposed convolution, the gradient of a convolution by its input, with
---weight (in_channels, channels / groups, kernel sizes…). The result is (batch, channels, sizes…) with sizes (size -
---1) strides - 2 padding + dilation (kernel_size - 1) + output_padding + 1. Raises if groups does not divide both
---channels and in_channels.
---@param channels any
---@param kernel_size any
---@param options any
---@return perigee.Block
function nn.Conv3DTranspose(channels, kernel_size, options) end

---nn.DeformableConvolution, ModulatedDeformableConvolution(channels, {kernel_size = 1, strides = 1, padding = 0,
---dilation = 1, groups = 1, num_deformable_group = 1, use_bias = true, in_channels = 0, activation=,
---weight_initializer=, bias_initializer=, offset_weight_initializer = "zeros", offset_bias_initializer = "zeros",
---offset_use_bias = true}): a convolution of images (batch, in_channels, height, width) whose windows read at places
---that a convolution of the same image moves; see pg.deform_conv2d. The modulated one also multiplies each element by
---2 sigmoid of a further result of that convolution. With in_channels = 0 the first call infers it. Raises if groups
---does not divide both channels and in_channels.
---@param channels any
---@param options any
---@return perigee.Block
function nn.DeformableConvolution(channels, options) end

---nn.Dense(units, {activation=, use_bias = true, flatten = true, dtype=, weight_initializer=, bias_initializer=,
---in_units = 0}): x weightᵀ + bias with weight (units, in_units). flatten = true flattens all dims of x except the
---first; false applies the layer to the last dim. With in_units = 0 the first call infers it. Raises if x does not have
---in_units features.
---@param units any
---@param options any
---@return perigee.Block
function nn.Dense(units, options) end

---nn.Dropout(rate, {axes=}): in training mode sets each element to zero with probability rate and scales the others by
---1 / (1 - rate). axes lists the dims along which all elements share one mask.
---@param rate any
---@param options any
---@return perigee.Block
function nn.Dropout(rate, options) end

---nn.ELU(alpha = 1): x where x > 0, else alpha * (exp(x) - 1).
---@param alpha any
---@return perigee.Block
function nn.ELU(alpha) end

---nn.Embedding(input_dim, output_dim, {dtype=, weight_initializer=, index_base = 1, sparse_grad = false}): looks up rows of
---weight (input_dim, output_dim) by index. With sparse_grad the gradient consists of the rows that occur, and a Trainer
---updates these rows and their states only, as MXNet's lazy_update: the time depends on the number of rows and not on
---input_dim. Weight decay and momentum do not change other rows. This holds eagerly, in hybridized nets and in pg.jit.
---Reading weight.grad makes the gradient dense, so that it can be clipped; the step then updates the rows that are not all
---0. The gradient is also dense for lookups in pg.checkpoint and in the body of a branch or loop, for weights that are used
---elsewhere too, and if the step is jitted without the backward. LAMB, LARS and LBSGD, which need the norm of the whole
---weight, and optimizers with lazy_update = false update all rows. pg.autograd.grad takes no weight with sparse gradients.
---@param input_dim any
---@param output_dim any
---@param options any
---@return perigee.Block
function nn.Embedding(input_dim, output_dim, options) end

---nn.Flatten() flattens all dims except the first.
---@return perigee.Block
function nn.Flatten() end

---nn.GELU(approximation = "erf" or "tanh"): x times the cumulative distribution function of the standard normal
---distribution at x.
---@param approximation any
---@return perigee.Block
function nn.GELU(approximation) end

---nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
---maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
---another number of dims.
---@return perigee.Block
function nn.GlobalAvgPool1D() end

---nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
---maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
---another number of dims.
---@return perigee.Block
function nn.GlobalAvgPool2D() end

---nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
---maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
---another number of dims.
---@return perigee.Block
function nn.GlobalAvgPool3D() end

---nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
---maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
---another number of dims.
---@return perigee.Block
function nn.GlobalMaxPool1D() end

---nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
---maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
---another number of dims.
---@return perigee.Block
function nn.GlobalMaxPool2D() end

---nn.GlobalMaxPool1D, GlobalMaxPool2D, GlobalMaxPool3D, GlobalAvgPool1D, GlobalAvgPool2D, GlobalAvgPool3D(): the
---maximum or mean of each channel of x (batch, channels, sizes…). The result is (batch, channels, 1…). Raises for
---another number of dims.
---@return perigee.Block
function nn.GlobalMaxPool3D() end

---nn.GroupNorm(num_groups = 1, {epsilon = 1e-5, center = true, scale = true, beta_initializer=, gamma_initializer=})
---normalizes groups of channels of each sample. gamma and beta hold one value per group, as in Gluon 1.x.
---@param num_groups any
---@param options any
---@return perigee.Block
function nn.GroupNorm(num_groups, options) end

---nn.HybridBlock is the base class of blocks that can be hybridized: `local Net = nn.HybridBlock:extend("Net")`.
---@return perigee.Block
function nn.HybridBlock() end

---nn.Concurrent({a, b, …}, {axis = -1}) and nn.HybridConcurrent({a, b, …}, {axis = -1}) give their inputs to each child
---and concatenate the results along axis. Without a list, add() adds the children: nn.HybridConcurrent{axis = 2}.
---Children are blocks or functions. Szegedy et al., Going Deeper with Convolutions, 2014.
---@param options any
---@return perigee.Block
function nn.HybridConcurrent(options) end

---nn.Lambda(f) and nn.HybridLambda(f) wrap a function in a block. f is a function or the name of an op.
---@param f any
---@return perigee.Block
function nn.HybridLambda(f) end

---nn.Sequential{a, b, …} and nn.HybridSequential{a, b, …} call their children in order. Children are blocks or
---functions. The first child gets all arguments, each other child the result of the one before it. `net[i]` is a
---child, `#net` their number.
---@param options any
---@return perigee.Block
function nn.HybridSequential(options) end

---nn.Identity() returns its input.
---@return perigee.Block
function nn.Identity() end

---nn.InstanceNorm({axis = 2, epsilon = 1e-5, center = true, scale = false, in_channels = 0, beta_initializer=,
---gamma_initializer=}) normalizes each channel of each sample.
---@param options any
---@return perigee.Block
function nn.InstanceNorm(options) end

---nn.Lambda(f) and nn.HybridLambda(f) wrap a function in a block. f is a function or the name of an op.
---@param f any
---@return perigee.Block
function nn.Lambda(f) end

---nn.LayerNorm({axis = -1, epsilon = 1e-5, center = true, scale = true, in_channels = 0, beta_initializer=,
---gamma_initializer=}) normalizes over one dim.
---@param options any
---@return perigee.Block
function nn.LayerNorm(options) end

---nn.LeakyReLU(alpha = 0.01): x where x > 0, else alpha * x.
---@param alpha any
---@return perigee.Block
function nn.LeakyReLU(alpha) end

---nn.LoRA(block, rank = 8, {alpha = rank, dropout = 0}) wraps a Dense layer, which it freezes, and adds alpha / rank * b a to
---its weight, where a (rank, in_units) and b (units, rank), zeros at first, are trained: the parameters lora_a and lora_b.
---dropout acts on the input of a. The layer is the field `base`. Hu et al., LoRA: Low-Rank Adaptation of Large Language
---Models, 2021.
---@param block any
---@param rank any
---@param options any
---@return perigee.Block
function nn.LoRA(block, rank, options) end

---nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
---0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
---channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
---1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
---pool_size.
---@param pool_size any
---@param strides any
---@param options any
---@return perigee.Block
function nn.MaxPool1D(pool_size, strides, options) end

---nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
---0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
---channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
---1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
---pool_size.
---@param pool_size any
---@param strides any
---@param options any
---@return perigee.Block
function nn.MaxPool2D(pool_size, strides, options) end

---nn.MaxPool1D, MaxPool2D, MaxPool3D, AvgPool1D, AvgPool2D, AvgPool3D(pool_size = 2, strides = pool_size, {padding =
---0, ceil_mode = false, count_include_pad = true (averages only)}): the maximum or mean of each window of each
---channel of x (batch, channels, sizes…). The result has the sizes floor((size + 2 padding - pool_size) / strides) +
---1, rounded up with ceil_mode. Numbers per dim are one number or a list. Raises if padding is more than half of
---pool_size.
---@param pool_size any
---@param strides any
---@param options any
---@return perigee.Block
function nn.MaxPool3D(pool_size, strides, options) end

---nn.DeformableConvolution, ModulatedDeformableConvolution(channels, {kernel_size = 1, strides = 1, padding = 0,
---dilation = 1, groups = 1, num_deformable_group = 1, use_bias = true, in_channels = 0, activation=,
---weight_initializer=, bias_initializer=, offset_weight_initializer = "zeros", offset_bias_initializer = "zeros",
---offset_use_bias = true}): a convolution of images (batch, in_channels, height, width) whose windows read at places
---that a convolution of the same image moves; see pg.deform_conv2d. The modulated one also multiplies each element by
---2 sigmoid of a further result of that convolution. With in_channels = 0 the first call infers it. Raises if groups
---does not divide both channels and in_channels.
---@param channels any
---@param options any
---@return perigee.Block
function nn.ModulatedDeformableConvolution(channels, options) end

---nn.MultiHeadAttention(units, num_heads, {num_kv_heads = num_heads, dropout = 0, causal = false, rotary = false,
---use_bias = true, weight_initializer=, bias_initializer=, dtype=}): attention of several heads, called as
---layer(query[, key = query[, value = key[, mask[, cache]]]]) with tensors (batch, positions, size) -> (batch, positions of
---query, units). With causal = true each position sees those up to its own. mask says what a query sees:
---a bool tensor, true where it sees a key, or a floating one that is added to the products; of 2 dims (batch, keys), 3
---(batch, queries, keys) or 4 (batch, heads, queries, keys); or the number of valid keys of each sequence, integers
---(batch). A query that sees no key gets zeros. dropout drops weights in training mode. rotary = true rotates queries and
---keys by nn.RotaryEmbedding. With fewer num_kv_heads groups of queries share a head of keys and values (Ainslie et al.,
---GQA, 2023).
---With a cache of begin_cache the call takes the next positions of the sequence only, sees the earlier ones too, and
---returns the output and the new cache; a mask then covers max_length keys. With a cache of remember it returns the
---output and that cache. Raises if num_heads does not divide units. Vaswani et al., Attention Is All You Need, 2017.
---@param units any
---@param num_heads any
---@param options any
---@return perigee.Block
function nn.MultiHeadAttention(units, num_heads, options) end

---nn.PReLU({alpha_initializer = 0.25, in_channels = 1}): a leaky rectifier with one learned slope, or one per channel.
---@param options any
---@return perigee.Block
function nn.PReLU(options) end

---nn.PixelShuffle1D, PixelShuffle2D, PixelShuffle3D(factor): x (batch, channels * product of the factors, sizes…)
---rearranged to (batch, channels, sizes times factors…). factor is one number or a list of one per dim. Raises if the
---product does not divide the channels. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.
---@param factor any
---@return perigee.Block
function nn.PixelShuffle1D(factor) end

---nn.PixelShuffle1D, PixelShuffle2D, PixelShuffle3D(factor): x (batch, channels * product of the factors, sizes…)
---rearranged to (batch, channels, sizes times factors…). factor is one number or a list of one per dim. Raises if the
---product does not divide the channels. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.
---@param factor any
---@return perigee.Block
function nn.PixelShuffle2D(factor) end

---nn.PixelShuffle1D, PixelShuffle2D, PixelShuffle3D(factor): x (batch, channels * product of the factors, sizes…)
---rearranged to (batch, channels, sizes times factors…). factor is one number or a list of one per dim. Raises if the
---product does not divide the channels. Shi et al., Real-Time Single Image and Video Super-Resolution, 2016.
---@param factor any
---@return perigee.Block
function nn.PixelShuffle3D(factor) end

---nn.RMSNorm({axis = -1, epsilon = 1e-6, scale = true, in_channels = 0, gamma_initializer=}): x / sqrt(mean of x² +
---epsilon) over one dim, times gamma. Zhang, Sennrich, Root Mean Square Layer Normalization, 2019.
---@param options any
---@return perigee.Block
function nn.RMSNorm(options) end

---nn.ReflectionPad2D(padding = 0) pads height and width by reflection. padding is one number, or {left, right, top,
---bottom}.
---@param padding any
---@return perigee.Block
function nn.ReflectionPad2D(padding) end

---nn.RotaryEmbedding({base = 10000}), called as layer(x[, offset = 0]): rotates each pair of elements i and i + size / 2
---of x (…, positions, size) by the angle p / base^(2 i / size) for the position p, which counts from offset. Products of
---rotated queries and keys depend on the distance of their positions only. Raises for an odd size. Su et al., RoFormer,
---2021.
---@param options any
---@return perigee.Block
function nn.RotaryEmbedding(options) end

---nn.SELU(): the scaled exponential linear unit of self-normalizing networks.
---@return perigee.Block
function nn.SELU() end

---nn.Sequential{a, b, …} and nn.HybridSequential{a, b, …} call their children in order. Children are blocks or
---functions. The first child gets all arguments, each other child the result of the one before it. `net[i]` is a
---child, `#net` their number.
---@param options any
---@return perigee.Block
function nn.Sequential(options) end

---nn.SinusoidalPositions({base = 10000}), called as layer(x[, offset = 0]): x (…, positions, size) plus the sines and
---cosines of each position, which counts from offset: element 2 i of position p is sin(p / base^(2 i / size)), element
---2 i + 1 the cosine, both from 0. offset is a number or a tensor of one element. Raises for an odd size. Vaswani et al.,
---Attention Is All You Need, 2017.
---@param options any
---@return perigee.Block
function nn.SinusoidalPositions(options) end

---nn.SparseEmbedding(input_dim, output_dim, {the options of Embedding}): an Embedding with sparse_grad = true.
---@param input_dim any
---@param output_dim any
---@param options any
---@return perigee.Block
function nn.SparseEmbedding(input_dim, output_dim, options) end

---nn.SpectralNorm(block, {axis = 1, iterations = 1, epsilon = 1e-12}) runs a layer, such as Dense or Conv2D, with its weight
---divided by the largest singular value of the weight as a matrix W (size of axis, rest). In training mode each call improves
---the estimate of the singular vector u = weight_u by power iterations v = W'u / |W'u|, u = Wv / |Wv|, as in PyTorch; the
---value is u'Wv. In prediction mode v follows from weight_u, which stays as it is, also in an imported graph. The layer is
---the field `base`. Miyato et al., Spectral Normalization for Generative Adversarial Networks, 2018.
---@param block any
---@param options any
---@return perigee.Block
function nn.SpectralNorm(block, options) end

---nn.Swish(beta = 1): x * sigmoid(beta * x).
---@param beta any
---@return perigee.Block
function nn.Swish(beta) end

---nn.SymbolBlock(outputs, inputs[, params]) makes a block that runs a graph. outputs and inputs are symbols
---(pg.symbol) or internals of a Graph. params are tensors by name that replace those of the graph. The block's
---parameters have the names of the graph.
---@param outputs any
---@param inputs any
---@param params any
---@return perigee.Block
function nn.SymbolBlock(outputs, inputs, params) end

---nn.SyncBatchNorm(in_channels = 0, num_devices = 1, {the options of BatchNorm except axis}): BatchNorm over dim 2 with
---the statistics of all devices. A net runs on one device, so num_devices must be 1. Zhang et al., Context Encoding for
---Semantic Segmentation, 2018.
---@param in_channels any
---@param num_devices any
---@param options any
---@return perigee.Block
function nn.SyncBatchNorm(in_channels, num_devices, options) end

---nn.TransformerDecoder(num_layers, units, num_heads, {the options of TransformerDecoderLayer}): layers in a row, and a last
---norm with pre_norm. decoder(x, memory[, mask[, memory_mask[, cache]]]) -> (batch, positions, units), and the new caches if
---those of begin_cache are given. `decoder[i]` is a layer.
---@param num_layers any
---@param units any
---@param num_heads any
---@param options any
---@return perigee.Block
function nn.TransformerDecoder(num_layers, units, num_heads, options) end

---nn.TransformerDecoderLayer(units, num_heads, {the options of TransformerEncoderLayer except causal}): causal
---self-attention, attention to a memory, which is the result of an encoder (batch, positions, size), and a feed-forward net.
---layer(x, memory[, mask[, memory_mask[, cache]]]) -> (batch, positions, units). With a cache of begin_cache, which holds the
---memory, x is the next positions only, and the new cache is the second result. Vaswani et al., 2017.
---@param units any
---@param num_heads any
---@param options any
---@return perigee.Block
function nn.TransformerDecoderLayer(units, num_heads, options) end

---nn.TransformerEncoder(num_layers, units, num_heads, {the options of TransformerEncoderLayer}): layers in a row, and a last
---norm with pre_norm. encoder(x[, mask[, cache]]) -> (batch, positions, units), and the new caches if those of begin_cache
---are given. `encoder[i]` is a layer. A net for language that decodes from itself is a causal encoder.
---@param num_layers any
---@param units any
---@param num_heads any
---@param options any
---@return perigee.Block
function nn.TransformerEncoder(num_layers, units, num_heads, options) end

---nn.TransformerEncoderLayer(units, num_heads, {hidden_size = 4 * units, dropout = 0.1, attention_dropout = dropout,
---activation = "relu", pre_norm = false, norm = "layer" or "rms", epsilon = 1e-5, causal = false, rotary = false,
---num_kv_heads=, use_bias = true, weight_initializer=, bias_initializer=, dtype=}): self-attention, then two Dense layers of
---hidden_size and units. Each has a residual connection; its norm comes after the sum, or before the sub-layer with
---pre_norm. layer(x[, mask[, cache]]) -> (batch, positions, units), and the new cache if one is given. mask, causal, rotary
---and cache are those of nn.MultiHeadAttention; layers that decode step by step are causal. Vaswani et al., Attention Is
---All You Need, 2017; pre_norm: Xiong et al., On Layer Normalization in the Transformer Architecture, 2020.
---@param units any
---@param num_heads any
---@param options any
---@return perigee.Block
function nn.TransformerEncoderLayer(units, num_heads, options) end

---nn.WeightNorm(block, {axis = 1}) runs a layer, such as Dense or Conv2D, with the weight weight_g v / |v|, where v is the
---weight of the layer and |v| its norm over all dims except axis. weight_g (size of axis) begins as |v|, so that the layer
---computes the same at first. The layer is the field `base`. Salimans, Kingma, Weight Normalization, 2016.
---@param block any
---@param options any
---@return perigee.Block
function nn.WeightNorm(block, options) end

---nn.block{field = child or parameter, …, forward = function(self, …) … end} makes the table a hybrid block and
---returns it. hybrid = false makes it a plain nn.Block.
---@param options any
---@return perigee.Block
function nn.block(options) end

---@class perigee.optim
---@field lr_scheduler table
local optim = {}

---pg.optim.AdaDelta{learning_rate = 1, rho = 0.9, epsilon = 1e-5, wd=, …}: finds the sizes of its steps (Zeiler 2012). The
---step d is g times the root of the average of d ^ 2 over that of g ^ 2, w = w - lr * (d + wd * w).
---@param options any
---@return any
function optim.AdaDelta(options) end

---pg.optim.AdaGrad{learning_rate = 0.01, eps = 1e-7, wd=, …}: divides by the root of all squared gradients (Duchi, Hazan,
---Singer 2011). history = history + g ^ 2, w = w - lr * (g / sqrt(history + eps) + wd * w).
---@param options any
---@return any
function optim.AdaGrad(options) end

---pg.optim.AdaMax{learning_rate = 0.002, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: Adam with the largest |g|,
---which decays with beta2 (Kingma, Ba 2014). w = w - lr / (1 - beta1 ^ t) * mean / (max + epsilon).
---@param options any
---@return any
function optim.AdaMax(options) end

---pg.optim.Adam{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: steps by the mean over the
---root of the mean square of gradients (Kingma, Ba 2014). As in MXNet, epsilon is outside of the bias correction, and
---wd * w is added to the gradient.
---@param options any
---@return any
function optim.Adam(options) end

---pg.optim.AdamW{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, wd=, …}: Adam with decoupled
---weight decay w = w - lr * wd * w, as in PyTorch (Loshchilov, Hutter 2019).
---@param options any
---@return any
function optim.AdamW(options) end

---pg.optim.DCASGD{learning_rate = 0.01, momentum = 0, lamda = 0.04, wd=, …}: SGD that compensates for gradients one update
---late (Zheng et al. 2017). They become g + wd * w + lamda * g ^ 2 * (w - w_before).
---@param options any
---@return any
function optim.DCASGD(options) end

---pg.optim.EMA(params, {decay = 0.999}): exponential averages of the parameters (Polyak, Juditsky 1992). average = decay *
---average + (1 - decay) * p at each ema:update(). ema:apply(f) evaluates with them, ema:swap() exchanges them with the
---parameters, ema.averages holds them by name. params is net:collect_params(), a block, or a table of tensors, with
---values; running statistics are averaged too.
---@param params any
---@param options any
---@return any
function optim.EMA(params, options) end

---pg.optim.FTML{learning_rate = 0.01, beta1 = 0.6, beta2 = 0.999, epsilon = 1e-8, wd=, …}: follows the moving
---leader (Zheng, Kwok 2017). d = (1 - beta1 ^ t) / lr * (sqrt(var / (1 - beta2 ^ t)) + epsilon), z averages
---g - (d - beta1 * d_before) / (1 - beta1) * w, w = -z / d.
---@param options any
---@return any
function optim.FTML(options) end

---pg.optim.Ftrl{learning_rate = 0.1, lamda1 = 0.01, beta = 1, wd=, …}: sparse weights for a large lamda1 (McMahan et al.
---2013). z = z + g - (sqrt(n + g ^ 2) - sqrt(n)) * w / lr, n = n + g ^ 2, w = 0 where |z| <= lamda1, else
---(sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd).
---@param options any
---@return any
function optim.Ftrl(options) end

---pg.optim.GroupAdaGrad{learning_rate = 0.01, eps = 1e-5, …}: AdaGrad with one history for each row of a weight, the mean
---of g ^ 2 in the row (MXNet's contrib.GroupAdaGrad). It has no weight decay.
---@param options any
---@return any
function optim.GroupAdaGrad(options) end

---pg.optim.LAMB{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, lower_bound=, upper_bound=,
---bias_correction = true, wd=, …}: Adam's step s with wd * w added, scaled by |w| / |s| (You et al. 2019). The bounds limit
---|w| there.
---@param options any
---@return any
function optim.LAMB(options) end

---pg.optim.LARS{learning_rate = 0.01, momentum = 0, eta = 0.001, eps = 0, momentum_correction = true, wd=, …}: SGD whose rate
---follows the norms of each parameter (You, Gitman, Ginsburg 2017). The factor is eta * |w| / (|g| + wd * |w| + eps), or 1
---for those named bias, gamma or beta. momentum_correction scales past steps to the current rate (Goyal et al. 2017).
---@param options any
---@return any
function optim.LARS(options) end

---pg.optim.LBSGD{learning_rate = 0.01, momentum = 0, batch_scale = 1, warmup_strategy = "linear", "power2", "sqrt" or
---"lars", warmup_epochs = 5, updates_per_epoch = 32, begin_epoch = 0, num_epochs = 60, wd=, …}: SGD that updates with the
---mean of each batch_scale gradients. The rate grows to batch_scale times learning_rate during warmup_epochs (Goyal et al.
---2017). "lars" scales it by sqrt(|w| ^ 2 / (|g| ^ 2 + wd * |w| ^ 2)) in 0.01..100 instead (You, Gitman, Ginsburg 2017).
---@param options any
---@return any
function optim.LBSGD(options) end

---pg.optim.LossScaler(trainer, {init_scale = 2 ^ 16, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000,
---max_scale = 2 ^ 24}) scales losses, so that small gradients in float16 do not become 0 (Micikevicius et al. 2018; MXNet's
---amp, PyTorch's GradScaler). Call scaler:scale(loss):backward(), then trainer:step(batch_size), in pg.jit too. The step
---divides the gradients by the scale. If one of them is not finite, the step changes no parameter and no state of the
---optimizer, and the scale is multiplied by backoff_factor. After growth_interval steps in a row that were not skipped it
---is multiplied by growth_factor. trainer:save_states saves the scale too. A schedule counts skipped steps, a correction
---such as Adam's does not.
---@param trainer any
---@param options any
---@return any
function optim.LossScaler(trainer, options) end

---pg.optim.NAG{learning_rate = 0.01, momentum = 0, wd=, …}: SGD with the momentum of Nesterov (1983).
---@param options any
---@return any
function optim.NAG(options) end

---pg.optim.Nadam{learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, schedule_decay = 0.004, wd=, …}: Adam
---with Nesterov's momentum (Dozat 2016). It follows the schedule beta1 * (1 - 0.5 * 0.96 ^ (t * schedule_decay)).
---Each parameter has its own schedule; MXNet advances one for all of them.
---@param options any
---@return any
function optim.Nadam(options) end

---pg.optim.Optimizer is the base class. A subclass lists the names of its state tensors in `states` and defines the
---update of one weight, written once with ops: rule(w, g, state, h) returns the new weight and stores new tensors in
---the fields of state, which are zeros before the first update. g is the gradient, rescaled and clipped. With
---decay_in_gradient = true, wd * w is already in g, and the sum is clipped; else the rule applies h.wd. The fields of h
---are lr, wd and t (the number of updates, including this one): numbers, or in a step that pg.jit or hybridize
---traces 0-dim tensors that are filled before each run, so write `h.lr ^ 0.5`, not math.sqrt or a Lua `if`. wd is the
---number 0 if no weight decays; the step is traced again when that changes. h.path is the parameter's name. float16 and bfloat16 weights come as float32. state_shapes maps the name of a state to a function
---from the weight's shape to the state's, if it differs. All optimizers take learning_rate, wd = 0, rescale_grad = 1,
---clip_gradient, lr_scheduler, multi_precision = false and lazy_update = true; a subclass lists more in `options`, with
---defaults. With lazy_update = false a sparse gradient (nn.Embedding) updates all rows.
---multi_precision keeps the states of float16 and bfloat16 weights in float32, and what their rounding takes away, so
---that small updates add up. To scale the loss by a factor, also pass rescale_grad = 1 / factor.
---
---A subclass may define update(group) instead, for all weights at once. group holds the lists weights, grads and one
---list of tensors per state, their length n, lr, wd and t, each a number or a list with one per weight, and the numbers
---rescale_grad and clip_gradient. In a trace lr, wd, t and rescale_grad are 0-dim tensors. Lua compares a tensor and a
---number as different without calling the library, so `group.t == 1` is always false in a trace: write
---`pg.where(pg.eq(group.t, 1), g, m)`. The tensors have the dtype of the weights, or float32 if some weights are float32
---and some float64. Other mixtures get lists. self:with(group) returns the options of a fused update op such as
---pg.sgd_update_, in a trace too.
---@param w any
---@param g any
---@param state any
---@param h any
---@return any
function optim.Optimizer(w, g, state, h) end

---pg.optim.RMSProp{learning_rate = 0.001, gamma1 = 0.9, gamma2 = 0.9, epsilon = 1e-8, centered = false, clip_weights=,
---wd=, …}: divides by the root of the average squared gradient (Tieleman, Hinton 2012). w = w - lr * g / sqrt(var +
---epsilon), where var averages g ^ 2 with gamma1. centered subtracts the square of the average gradient from var, and
---steps have the momentum gamma2 (Graves 2013). clip_weights bounds the size of each element of w.
---@param options any
---@return any
function optim.RMSProp(options) end

---pg.optim.SGD{learning_rate = 0.01, momentum = 0, wd=, …}: m = momentum * m - lr * g, w = w + m, where g is the
---rescaled, clipped gradient plus wd * w.
---@param options any
---@return any
function optim.SGD(options) end

---pg.optim.SGLD{learning_rate = 0.01, wd=, …}: half a step of SGD and normal noise of variance lr, so that the weights become
---samples of the posterior (Welling, Teh 2011).
---@param options any
---@return any
function optim.SGLD(options) end

---pg.optim.SWA(params): the mean of the parameters at each swa:update() (Izmailov et al. 2018). It has the methods of
---pg.optim.EMA. Call update at the end of epochs with a constant or cyclic rate.
---@param params any
---@return any
function optim.SWA(params) end

---pg.optim.Signum{learning_rate = 0.01, momentum = 0.9, wd_lh = 0, wd=, …}: steps by the sign of the average
---gradient (Bernstein et al. 2018). w = (1 - lr * wd_lh) * w - lr * sign(m), where m averages g + wd * w. Without momentum
---it is signSGD: w = (1 - lr * wd) * w - lr * sign(g).
---@param options any
---@return any
function optim.Signum(options) end

---pg.optim.Test{…}: w = w + g, and the state "copy" is the new w. For tests of what surrounds an optimizer: it has no rate
---and no decay (MXNet's optimizer of this name).
---@param options any
---@return any
function optim.Test(options) end

---pg.optim.Trainer(params, optimizer, options[, kvstore[, compression_params[, update_on_kvstore]]]): params is
---net:collect_params(), a block, a table of tensors, or a list of groups. optimizer is a name such as "sgd", with options
---{learning_rate=, momentum=, wd=, …}, or an optimizer object. Raises for an unknown name or option, and for values of
---params that are no tensors.
---
---A group is {params =, learning_rate=, wd=, lr_mult = 1, wd_mult = 1}, as in PyTorch: its parameters have this rate and
---decay instead of the trainer's. The rate is stored as a multiple of the trainer's, so a schedule or set_learning_rate
---changes the rates of all groups by the same factor. trainer.param_groups[i] has the fields lr_mult, wd and wd_mult,
---which a script may set at any time; save_states does not save them. Without groups all parameters are in
---trainer.param_groups[1]. The fields lr_mult and wd_mult of each parameter are factors too. Groups that differ in other
---options need one trainer each.
---
---kvstore, compression_params and update_on_kvstore are Gluon's. A trainer updates its parameters in this process, so
---kvstore = "local" or "device" changes nothing, and what a store of several machines would do is an error.
---@param params any
---@param optimizer any
---@param options any
---@param kvstore any
---@param compression_params any
---@param update_on_kvstore any
---@return any
function optim.Trainer(params, optimizer, options, kvstore, compression_params, update_on_kvstore) end

---pg.optim.create(name or optimizer, options) -> an optimizer. The names are those of the classes in lower case: "sgd",
---"nag", "adam", "adamw", "adamax", "nadam", "adagrad", "groupadagrad", "adadelta", "rmsprop", "ftrl", "ftml", "signum",
---"sgld", "dcasgd", "lars", "lamb", "lbsgd", "test".
---@param name any
---@param options any
---@return any
function optim.create(name, options) end

---@class perigee.tree
local tree = {}

---pg.tree.flatten(t) -> leaves, spec: the leaves as a list in walking order, and the structure for tree.unflatten.
---@param t any
---@return any
function tree.flatten(t) end

---pg.tree.leaves(t) -> an iterator over position, leaf.
---@param t any
---@return any
function tree.leaves(t) end

---pg.tree.map(f, t, …) -> a tree of the same structure whose leaves are f(leaf, …). The leaves of further trees, which
---must have the same structure, are further arguments of f. A leaf is any value that is not a plain table.
---@param f any
---@param t any
---@param ... any
---@return any
function tree.map(f, t, ...) end

---pg.tree.unflatten(spec, leaves) -> a tree with these leaves and the structure that tree.flatten returned.
---@param spec any
---@param leaves any
---@return any
function tree.unflatten(spec, leaves) end

---@class perigee.utils
local utils = {}

---pg.utils.clip_global_norm(arrays, max_norm[, {check_isfinite = true}]) -> the norm of all tensors together, a 0-dim
---tensor. All tensors are scaled in place by min(1, max_norm / (norm + 1e-8)). If the norm is not finite they do not
---change, and it is an error unless check_isfinite is false. The check is an op, so it runs at every call in pg.jit
---too.
---@param arrays any
---@param max_norm any
---@param options any
---@return any
function utils.clip_global_norm(arrays, max_norm, options) end

---pg.utils.clip_value(arrays, max_value) limits each element of all tensors to -max_value..max_value, in place.
---@param arrays any
---@param max_value any
---@return any
function utils.clip_value(arrays, max_value) end

---pg.utils.plot(x[, kind]) -> the drawing of a tensor or a list of numbers as text for a terminal: "line" (also of the
---rows of a matrix), "hist", "heat" or "image". Without kind 1 dim is a line, 2 dims are a heat map and 3 dims an image.
---@param x any
---@param kind any
---@return any
function utils.plot(x, kind) end

---pg.utils.progress(total[, label]) -> a progress display on standard error: a bar on a terminal, else a line per
---tenth of the total. In a host with a print callback the lines go there.
---@param total any
---@param label any
---@return any
function utils.progress(total, label) end

---pg.utils.reload(module, path) -> module, after the script at the path has run again. The script gets as its argument a
---table that reads from `module`, and stores in it what belongs to the module: `local M = …; M.net = M.net or Net()`
---keeps the network that it made before. If the script raises, `module` is as it was. Otherwise its functions replace
---those before, and tables and classes are changed in place: objects get the new methods, and graphs of functions that
---have changed are traced again. path may be a function instead.
---@param module any
---@param path any
---@return any
function utils.reload(module, path) end

---pg.utils.seed_all(seed) seeds the random numbers of tensors and math.random.
---@param seed any
---@return any
function utils.seed_all(seed) end

---pg.utils.split_data(data, num_slice[, {batch_axis = 1, even_split = true}]) -> a list of num_slice parts of data.
---With even_split num_slice must divide the size; without it the last part also gets the remainder.
---@param data any
---@param num_slice any
---@param options any
---@return any
function utils.split_data(data, num_slice, options) end

---@class perigee
---@field autograd perigee.autograd
---@field data perigee.data
---@field fft perigee.fft
---@field init perigee.init
---@field linalg perigee.linalg
---@field loss perigee.loss
---@field metric perigee.metric
---@field models perigee.models
---@field nn perigee.nn
---@field optim perigee.optim
---@field tree perigee.tree
---@field utils perigee.utils
---@field version string
local pg = {}

---The absolute value. The gradient at 0 is 0.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.abs(x) end

---The absolute value. The gradient at 0 is 0.
---Another name of abs.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.absolute(x) end

---The angle in 0..pi whose cosine is x; NaN outside -1..1.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.acos(x) end

---The inverse of cosh; NaN below 1.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.acosh(x) end

---Adam (Kingma, Ba 2014) with MXNet's epsilon: g = clip(rescale_grad g + wd w), m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, w - lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon). Answers the new weights, means, vars.
---@param weights perigee.Tensor[] the parameters
---@param grads perigee.Tensor[] a gradient for each
---@param means perigee.Tensor[] running mean of each gradient
---@param vars perigee.Tensor[] running mean square of each gradient
---@param rates? perigee.Tensor lr, wd, t and rescale_grad in its rows, one column for all or one for each weight; instead of the attributes. A fifth row replaces momentum or beta1
---@param lr number[] learning rate, one for all or one for each weight
---@param wd? number[] weight decay, one for all or one for each weight
---@param rescale_grad? number factor on the gradients
---@param clip_gradient? number bound on the size of each element of a rescaled gradient
---@param t? integer|integer[] number of updates, this one included; one for all or one for each weight
---@param beta1? number share of the mean that is kept
---@param beta2? number share of the mean square that is kept
---@param epsilon? number added to the root
---@return perigee.Tensor[]
---@overload fun(weights: perigee.Tensor[], grads: perigee.Tensor[], means: perigee.Tensor[], vars: perigee.Tensor[], rates?: perigee.Tensor, lr: number[], options: {wd?: number[], rescale_grad?: number, clip_gradient?: number, t?: integer|integer[], beta1?: number, beta2?: number, epsilon?: number}): perigee.Tensor[]
function pg.adam_update(weights, grads, means, vars, rates, lr, wd, rescale_grad, clip_gradient, t, beta1, beta2, epsilon) end

---AdamW (Loshchilov, Hutter 2019) as PyTorch's: w (1 - lr wd) - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon) with Adam's m and v of the rescaled, clipped gradient. Answers the new weights, means, vars.
---@param weights perigee.Tensor[] the parameters
---@param grads perigee.Tensor[] a gradient for each
---@param means perigee.Tensor[] running mean of each gradient
---@param vars perigee.Tensor[] running mean square of each gradient
---@param rates? perigee.Tensor lr, wd, t and rescale_grad in its rows, one column for all or one for each weight; instead of the attributes. A fifth row replaces momentum or beta1
---@param lr number[] learning rate, one for all or one for each weight
---@param wd? number[] weight decay, one for all or one for each weight
---@param rescale_grad? number factor on the gradients
---@param clip_gradient? number bound on the size of each element of a rescaled gradient
---@param t? integer|integer[] number of updates, this one included; one for all or one for each weight
---@param beta1? number share of the mean that is kept
---@param beta2? number share of the mean square that is kept
---@param epsilon? number added to the root
---@return perigee.Tensor[]
---@overload fun(weights: perigee.Tensor[], grads: perigee.Tensor[], means: perigee.Tensor[], vars: perigee.Tensor[], rates?: perigee.Tensor, lr: number[], options: {wd?: number[], rescale_grad?: number, clip_gradient?: number, t?: integer|integer[], beta1?: number, beta2?: number, epsilon?: number}): perigee.Tensor[]
function pg.adamw_update(weights, grads, means, vars, rates, lr, wd, rescale_grad, clip_gradient, t, beta1, beta2, epsilon) end

---Means over as many windows per spatial dim as given by `size`, whatever the size of x. The length of `size` is the number of spatial dims; one number is used for all of them when x has 4 dims or more.
---@param x perigee.Tensor
---@param size integer|integer[] spatial sizes of the result
---@return perigee.Tensor out
function pg.adaptive_avg_pool(x, size) end

---Maxima over as many windows per spatial dim as given by `size`, whatever the size of x. The length of `size` is the number of spatial dims; one number is used for all of them when x has 4 dims or more. With return_indices also the positions of the maxima, as max_pool2d gives them.
---@param x perigee.Tensor
---@param size integer|integer[] spatial sizes of the result
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, size: integer|integer[], options: {return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.adaptive_max_pool(x, size, return_indices, index_base) end

---x + y, with broadcasting; with alpha x + alpha y. For bools it is the logical or; integers wrap around.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function pg.add(x, y) end

---x + value * tensor1 / tensor2, with broadcasting. Integers give float32.
---@param x perigee.Tensor
---@param tensor1 perigee.Tensor
---@param tensor2 perigee.Tensor
---@param value? number factor of the term
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, tensor1: perigee.Tensor, tensor2: perigee.Tensor, options: {value?: number}): perigee.Tensor
function pg.addcdiv(x, tensor1, tensor2, value) end

---x + value * tensor1 * tensor2, with broadcasting.
---@param x perigee.Tensor
---@param tensor1 perigee.Tensor
---@param tensor2 perigee.Tensor
---@param value? number factor of the term
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, tensor1: perigee.Tensor, tensor2: perigee.Tensor, options: {value?: number}): perigee.Tensor
function pg.addcmul(x, tensor1, tensor2, value) end

---beta * input + alpha * mat1 mat2.
---@param input perigee.Tensor
---@param mat1 perigee.Tensor
---@param mat2 perigee.Tensor
---@param beta? number factor of input; with 0 it is not read
---@param alpha? number factor of the product
---@return perigee.Tensor out
---@overload fun(input: perigee.Tensor, mat1: perigee.Tensor, mat2: perigee.Tensor, options: {beta?: number, alpha?: number}): perigee.Tensor
function pg.addmm(input, mat1, mat2, beta, alpha) end

---beta * input + alpha * the outer product of two vectors.
---@param input perigee.Tensor
---@param vec1 perigee.Tensor
---@param vec2 perigee.Tensor
---@param beta? number factor of input; with 0 it is not read
---@param alpha? number factor of the product
---@return perigee.Tensor out
---@overload fun(input: perigee.Tensor, vec1: perigee.Tensor, vec2: perigee.Tensor, options: {beta?: number, alpha?: number}): perigee.Tensor
function pg.addr(input, vec1, vec2, beta, alpha) end

---The grid for grid_sample that moves each output point by the matrix theta (batch, 2, 3), or (batch, 3, 4) for volumes. size: batch, channels and spatial sizes of the output.
---@param theta perigee.Tensor
---@param size integer|integer[] batch, channels and spatial sizes
---@param align_corners? boolean -1 and 1 are the centers of the first and last elements, not their edges
---@return perigee.Tensor out
---@overload fun(theta: perigee.Tensor, size: integer|integer[], options: {align_corners?: boolean}): perigee.Tensor
function pg.affine_grid(theta, size, align_corners) end

---Whether all elements over dims are not 0; true of nothing.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.all(x, dim, keepdim) end

---Dropout that keeps mean 0 and variance 1: in training elements become the negative limit of selu with probability p, and the result is scaled and shifted; otherwise x. Klambauer et al., Self-normalizing neural networks, 2017.
---@param x perigee.Tensor
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.alpha_dropout(x, p, training) end

---The largest element over dims; NaN when there is one. Equal elements share the gradient.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.amax(x, dim, keepdim) end

---The smallest element over dims; NaN when there is one. Equal elements share the gradient.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.amin(x, dim, keepdim) end

---The smallest and the largest element over dim, or of all; NaN when there is one. Equal elements share the gradient.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor min
---@return perigee.Tensor max
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean}): perigee.Tensor, perigee.Tensor
function pg.aminmax(x, dim, keepdim) end

---Whether any element over dims is not 0; false of nothing.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.any(x, dim, keepdim) end

---The angle in 0..pi whose cosine is x; NaN outside -1..1.
---Another name of acos.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arccos(x) end

---The inverse of cosh; NaN below 1.
---Another name of acosh.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arccosh(x) end

---The angle in -pi/2..pi/2 whose sine is x; NaN outside -1..1.
---Another name of asin.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arcsin(x) end

---The inverse of sinh.
---Another name of asinh.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arcsinh(x) end

---The angle in -pi/2..pi/2 whose tangent is x.
---Another name of atan.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arctan(x) end

---The angle of the point (y, x) in -pi..pi, with broadcasting. Note the order: pg.atan2(y, x).
---Another name of atan2.
---@param y perigee.Tensor|number
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arctan2(y, x) end

---The inverse of tanh; NaN outside -1..1.
---Another name of atanh.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.arctanh(x) end

---The index of the first largest element along dim, of the flattened tensor without dim; int64, from 1 on.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor
function pg.argmax(x, dim, keepdim, index_base) end

---The index of the first smallest element along dim, of the flattened tensor without dim; int64, from 1 on.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor
function pg.argmin(x, dim, keepdim, index_base) end

---The positions that bring x in ascending order along `dim`, int64. Equal elements keep their order; NaN counts as the largest value.
---@param x perigee.Tensor
---@param dim? integer the dim to order along
---@param descending? boolean the largest first
---@param stable? boolean accepted; equal values always keep their order
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, descending?: boolean, stable?: boolean, index_base?: integer}): perigee.Tensor
function pg.argsort(x, dim, descending, stable, index_base) end

---Another name of nonzero.
---@param x perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.argwhere(x, index_base) end

---The angle in -pi/2..pi/2 whose sine is x; NaN outside -1..1.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.asin(x) end

---The inverse of sinh.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.asinh(x) end

---The condition itself, after checking that no element of it is zero or false; else an error with the message. It checks at every run, in graphs too.
---@param condition perigee.Tensor
---@param message? string the text of the error
---@return perigee.Tensor out
---@overload fun(condition: perigee.Tensor, options: {message?: string}): perigee.Tensor
function pg.assert(condition, message) end

---The angle in -pi/2..pi/2 whose tangent is x.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.atan(x) end

---The angle of the point (y, x) in -pi..pi, with broadcasting. Note the order: pg.atan2(y, x).
---@param y perigee.Tensor|number
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.atan2(y, x) end

---The inverse of tanh; NaN outside -1..1.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.atanh(x) end

---x, or a tensor of one element if x is 0-dim.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.atleast_1d(x) end

---x with leading dims of size 1 up to 2 dims.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.atleast_2d(x) end

---x with dims of size 1 up to 3 dims: n elements become 1 x n x 1, a matrix m x n becomes m x n x 1.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.atleast_3d(x) end

---The mean of each window, channel by channel.
---@param x perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param count_include_pad? boolean count the padding in the mean
---@param divisor_override? integer divides the sums instead of the window's size
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): perigee.Tensor
function pg.avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---The mean of each window, channel by channel.
---@param x perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param count_include_pad? boolean count the padding in the mean
---@param divisor_override? integer divides the sums instead of the window's size
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): perigee.Tensor
function pg.avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---The mean of each window, channel by channel.
---@param x perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param count_include_pad? boolean count the padding in the mean
---@param divisor_override? integer divides the sums instead of the window's size
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], ceil_mode?: boolean, count_include_pad?: boolean, divisor_override?: integer}): perigee.Tensor
function pg.avg_pool3d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) end

---beta * input + alpha * batch1 batch2, for batches of matrices.
---@param input perigee.Tensor
---@param batch1 perigee.Tensor
---@param batch2 perigee.Tensor
---@param beta? number factor of input; with 0 it is not read
---@param alpha? number factor of the product
---@return perigee.Tensor out
---@overload fun(input: perigee.Tensor, batch1: perigee.Tensor, batch2: perigee.Tensor, options: {beta?: number, alpha?: number}): perigee.Tensor
function pg.baddbmm(input, batch1, batch2, beta, alpha) end

---Normalizes each channel (dim 2) over batch and positions, then scales and shifts by channel (Ioffe, Szegedy 2015). In training with the statistics of the batch, else with the running ones. Returns the result and the new running mean and variance: momentum times the old plus the rest times those of the batch; nothing is changed in place, and an empty batch changes nothing. Without running statistics it returns only the result and always uses the batch. training follows the mode (pg.record, pg.train_mode) when absent.
---@param x perigee.Tensor
---@param running_mean? perigee.Tensor of each channel
---@param running_var? perigee.Tensor of each channel
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param training? boolean whether to use the statistics of the batch; by the mode when absent
---@param momentum? number share of the running statistics that is kept
---@param eps? number added to the variance
---@param running_var_correction? number taken from the count in the divisor of the running variance
---@return perigee.Tensor out
---@return perigee.Tensor new_running_mean
---@return perigee.Tensor new_running_var
---@overload fun(x: perigee.Tensor, options: {running_mean?: perigee.Tensor, running_var?: perigee.Tensor, weight?: perigee.Tensor, bias?: perigee.Tensor, training?: boolean, momentum?: number, eps?: number, running_var_correction?: number}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function pg.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, running_var_correction) end

---1 with the probability of each element of p, else 0, in the dtype of p. With `probability` all elements have that one, and p gives only shape and dtype: x:bernoulli_(0.5). A probability outside [0, 1] is an error.
---@param p perigee.Tensor
---@param probability? number one probability for all elements
---@return perigee.Tensor out
---@overload fun(p: perigee.Tensor, options: {probability?: number, generator?: perigee.Generator}): perigee.Tensor
function pg.bernoulli(p, probability) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "bfloat16"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.bfloat16(x, device) end

----(t log(x) + (1 - t) log(1 - x)) times weight, reduced; logarithms are at least -100. Elements of x and of the target t outside of 0 to 1 are an error. target has the shape of x, but for dims of size 1; weight broadcasts to x.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param weight? perigee.Tensor a factor for each element
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.binary_cross_entropy(x, target, weight, reduction) end

----(p t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) times weight, reduced, without overflow; p is pos_weight. target has the shape of x, but for dims of size 1; the factors broadcast to x.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param weight? perigee.Tensor a factor for each element
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param pos_weight? perigee.Tensor a factor for the positive part
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum", pos_weight?: perigee.Tensor}): perigee.Tensor
function pg.binary_cross_entropy_with_logits(x, target, weight, reduction, pos_weight) end

---How often each label from index_base on occurs in x (1-dim), or the sum of the weights of its occurrences: int64 (float32 or float64 with weights) up to the largest label, at least minlength long. The size depends on values: eager only.
---@param x perigee.Tensor
---@param weights? perigee.Tensor
---@param minlength? integer least size of the result
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {weights?: perigee.Tensor, minlength?: integer, index_base?: integer}): perigee.Tensor
function pg.bincount(x, weights, minlength, index_base) end

---The bitwise and of integers or bools, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.bitwise_and(x, y) end

---The bits of x shifted left by y places, with broadcasting; 0 where y is negative or not below the number of bits.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.bitwise_left_shift(x, y) end

---All bits of integers flipped; the logical not of bools.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.bitwise_not(x) end

---The bitwise or of integers or bools, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.bitwise_or(x, y) end

---The bits of x shifted right by y places with copies of the sign, with broadcasting; nothing but the sign is left where y is negative or not below the number of bits.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.bitwise_right_shift(x, y) end

---The bitwise exclusive or of integers or bools, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.bitwise_xor(x, y) end

---The Blackman window of n elements: 0.42 - 0.5 cos(2 pi j / n) + 0.08 cos(4 pi j / n).
---@param n integer how many
---@param periodic? boolean of a period n; else symmetric
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {periodic?: boolean, dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.blackman_window(n, periodic, dtype, device) end

---A matrix with the tensors, of at most 2 dims, as blocks on its diagonal and zeros elsewhere. Vectors are rows. dtypes promote.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.block_diag(tensors) end

---The products of two batches of matrices.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.bmm(x, y) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "bool"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.bool(x, device) end

---The tensors expanded to the shape that they broadcast to. An array table.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor[]
function pg.broadcast_tensors(tensors) end

---x broadcast to `shape`; -1 keeps a dim. A view.
---@param x perigee.Tensor
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function pg.broadcast_to(x, shape) end

---The bucket of each element of x between the sorted `boundaries` (1-dim): the position of the first boundary that is not less (with right = true, that is greater). searchsorted with x first.
---@param x perigee.Tensor
---@param boundaries perigee.Tensor
---@param right? boolean a boundary belongs to the bucket above it
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, boundaries: perigee.Tensor, options: {right?: boolean, index_base?: integer}): perigee.Tensor
function pg.bucketize(x, boundaries, right, index_base) end

---All choices of one element of each of the 1-dim tensors, one row each, the last tensor varying fastest. A single tensor comes back as it is. dtypes promote.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.cartesian_prod(tensors) end

---The tensors one after the other along `dim`; their other sizes are equal. dtypes promote.
---@param tensors perigee.Tensor[]
---@param dim? integer the dim to join along
---@return perigee.Tensor out
---@overload fun(tensors: perigee.Tensor[], options: {dim?: integer}): perigee.Tensor
function pg.cat(tensors, dim) end

---Random numbers of density sigma / (pi (sigma^2 + (v - median)^2)), in shape and dtype of x; x:cauchy_() fills x.
---@param x perigee.Tensor
---@param median? number the median
---@param sigma? number half the width at half the height
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {median?: number, sigma?: number, generator?: perigee.Generator}): perigee.Tensor
function pg.cauchy(x, median, sigma) end

---The p-norm distance of each row of x1 (… x P x M) from each row of x2 (… x R x M): … x P x R; leading dims broadcast. Distances are sums over differences, so near points keep their digits. The gradient at distance 0 is 0.
---@param x1 perigee.Tensor
---@param x2 perigee.Tensor
---@param p? number the order of the norm; math.huge is the largest difference or element
---@return perigee.Tensor out
---@overload fun(x1: perigee.Tensor, x2: perigee.Tensor, options: {p?: number}): perigee.Tensor
function pg.cdist(x1, x2, p) end

---The smallest whole number not below x. The gradient is zero.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.ceil(x) end

---x where it is positive, else alpha (exp(x / alpha) - 1), which has a continuous derivative. Barron, Continuously differentiable exponential linear units, 2017.
---@param x perigee.Tensor|number
---@param alpha? number minus the limit at -inf, not 0
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function pg.celu(x, alpha) end

---The product of matrices, in the order that takes the fewest multiplications.
---@param matrices perigee.Tensor[]
---@return perigee.Tensor out
function pg.chain_matmul(matrices) end

---Cuts x along `dim` into at most `chunks` pieces of equal size; the last may be smaller. An array table of views.
---@param x perigee.Tensor
---@param chunks integer number of pieces
---@param dim? integer the dim to cut along
---@return perigee.Tensor[]
---@overload fun(x: perigee.Tensor, chunks: integer, options: {dim?: integer}): perigee.Tensor[]
function pg.chunk(x, chunks, dim) end

---x limited to [min, max]; either bound may be nil, a number or a tensor, with broadcasting. NaN stays NaN, and max wins where min is above it. The gradient passes inside the closed interval.
---@param x perigee.Tensor|number
---@param min? perigee.Tensor|number
---@param max? perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {min?: perigee.Tensor|number, max?: perigee.Tensor|number}): perigee.Tensor
function pg.clamp(x, min, max) end

---x limited to [min, max]; either bound may be nil, a number or a tensor, with broadcasting. NaN stays NaN, and max wins where min is above it. The gradient passes inside the closed interval.
---Another name of clamp.
---@param x perigee.Tensor|number
---@param min? perigee.Tensor|number
---@param max? perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {min?: perigee.Tensor|number, max?: perigee.Tensor|number}): perigee.Tensor
function pg.clip(x, min, max) end

---A copy of x with memory of its own.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.clone(x) end

---All choices of r elements of the 1-dim x in its order, one row each.
---@param x perigee.Tensor
---@param r? integer how many elements to choose
---@param with_replacement? boolean whether an element can be chosen again
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {r?: integer, with_replacement?: boolean}): perigee.Tensor
function pg.combinations(x, r, with_replacement) end

---The tensors one after the other along `dim`; their other sizes are equal. dtypes promote.
---Another name of cat.
---@param tensors perigee.Tensor[]
---@param dim? integer the dim to join along
---@return perigee.Tensor out
---@overload fun(tensors: perigee.Tensor[], options: {dim?: integer}): perigee.Tensor
function pg.concat(tensors, dim) end

---The tensors one after the other along `dim`; their other sizes are equal. dtypes promote.
---Another name of cat.
---@param tensors perigee.Tensor[]
---@param dim? integer the dim to join along
---@return perigee.Tensor out
---@overload fun(tensors: perigee.Tensor[], options: {dim?: integer}): perigee.Tensor
function pg.concatenate(tensors, dim) end

---x itself when it is contiguous (row-major, without gaps), else a contiguous copy.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.contiguous(x) end

---Convolution of (N, C, W) or (C, W) with weights (out, in / groups, k), plus bias.
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides; also "valid" for none and, with stride 1, "same" to keep the size: an odd zero goes to the far end
---@param dilation? integer|integer[] distance between the elements of the window
---@param groups? integer groups of channels that see only each other
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], groups?: integer}): perigee.Tensor
function pg.conv1d(x, weight, bias, stride, padding, dilation, groups) end

---Convolution of (N, C, H, W) or (C, H, W) with weights (out, in / groups, kH, kW), plus bias.
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides; also "valid" for none and, with stride 1, "same" to keep the size: an odd zero goes to the far end
---@param dilation? integer|integer[] distance between the elements of the window
---@param groups? integer groups of channels that see only each other
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], groups?: integer}): perigee.Tensor
function pg.conv2d(x, weight, bias, stride, padding, dilation, groups) end

---Convolution of (N, C, D, H, W) or (C, D, H, W) with weights (out, in / groups, kD, kH, kW), plus bias.
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides; also "valid" for none and, with stride 1, "same" to keep the size: an odd zero goes to the far end
---@param dilation? integer|integer[] distance between the elements of the window
---@param groups? integer groups of channels that see only each other
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], groups?: integer}): perigee.Tensor
function pg.conv3d(x, weight, bias, stride, padding, dilation, groups) end

---The gradient of conv1d by its input, as an op; weights are (in, out / groups, k).
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides
---@param output_padding? integer|integer[] added to the size of the result on the far side
---@param groups? integer groups of channels that see only each other
---@param dilation? integer|integer[] distance between the elements of the window
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): perigee.Tensor
function pg.conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation) end

---The gradient of conv2d by its input, as an op; weights are (in, out / groups, kH, kW).
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides
---@param output_padding? integer|integer[] added to the size of the result on the far side
---@param groups? integer groups of channels that see only each other
---@param dilation? integer|integer[] distance between the elements of the window
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): perigee.Tensor
function pg.conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation) end

---The gradient of conv3d by its input, as an op; weights are (in, out / groups, kD, kH, kW).
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros added on both sides
---@param output_padding? integer|integer[] added to the size of the result on the far side
---@param groups? integer groups of channels that see only each other
---@param dilation? integer|integer[] distance between the elements of the window
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], output_padding?: integer|integer[], groups?: integer, dilation?: integer|integer[]}): perigee.Tensor
function pg.conv_transpose3d(x, weight, bias, stride, padding, output_padding, groups, dilation) end

---The magnitude of x with the sign of y, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.copysign(x, y) end

---The correlation coefficients of variables in rows and observations in columns, in -1..1, NaN where a variable is constant. One variable gives 1, a 0-dim tensor.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.corrcoef(x) end

---The cosine of x in radians.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.cos(x) end

---The hyperbolic cosine.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.cosh(x) end

---1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1, reduced; the cosine is over the last dim.
---@param x1 perigee.Tensor
---@param x2 perigee.Tensor
---@param target perigee.Tensor 1 or -1
---@param margin? number the margin
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x1: perigee.Tensor, x2: perigee.Tensor, target: perigee.Tensor, options: {margin?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.cosine_embedding_loss(x1, x2, target, margin, reduction) end

---The cosine of the angle between x1 and x2 along `dim`, with broadcasting: the sum of products of x1 and x2 over their norms, each at least eps.
---@param x1 perigee.Tensor
---@param x2 perigee.Tensor
---@param dim? integer the dim of the vectors, after broadcasting
---@param eps? number the least norm
---@return perigee.Tensor out
---@overload fun(x1: perigee.Tensor, x2: perigee.Tensor, options: {dim?: integer, eps?: number}): perigee.Tensor
function pg.cosine_similarity(x1, x2, dim, eps) end

---The number of elements over dims that are not 0, int64.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.count_nonzero(x, dim, keepdim) end

---The covariance matrix of variables in rows and observations in columns; 1-D input is one variable. One variable gives its variance, a 0-dim tensor.
---@param x perigee.Tensor
---@param correction? number taken from the number of elements in the divisor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {correction?: number}): perigee.Tensor
function pg.cov(x, correction) end

---The cross product of vectors of 3 elements along `dim`, by default the first dim of size 3. The other dims broadcast.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@param dim? integer the dim of the vectors
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, y: perigee.Tensor, options: {dim?: integer}): perigee.Tensor
function pg.cross(x, y, dim) end

---The cross entropy of logits x, with classes along dim 2 (dim 1 of a 1-D x), and labels from 1 to C or equal to ignore_index, or probabilities of the shape of x. mean divides by the sum of the weights of the labels that count; if there are none, it is NaN, and its gradient is 0.
---@param x perigee.Tensor
---@param target perigee.Tensor labels or probabilities
---@param weight? perigee.Tensor a factor for each class
---@param ignore_index? integer label of samples that do not count
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param label_smoothing? number share of the target spread evenly over all classes
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", label_smoothing?: number, index_base?: integer}): perigee.Tensor
function pg.cross_entropy(x, target, weight, ignore_index, reduction, label_smoothing, index_base) end

----log of the probability that the steps spell the labels, with each label repeated any number of times and any number of blanks between labels. Classes count from 1. log_probs come from log_softmax; the gradient is for such input, as PyTorch's. mean divides each loss by its number of labels first. Graves et al., Connectionist temporal classification, 2006.
---@param log_probs perigee.Tensor log-probabilities (steps, batch, classes), or (steps, classes)
---@param targets perigee.Tensor labels (batch, length), or the labels of all samples in a row
---@param input_lengths? perigee.Tensor steps of each sample; all without
---@param target_lengths? perigee.Tensor labels of each sample; all without
---@param blank? integer the class of the blank
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param zero_infinity? boolean 0 instead of infinity, with a gradient of 0, where no path is long enough
---@return perigee.Tensor out
---@overload fun(log_probs: perigee.Tensor, targets: perigee.Tensor, options: {input_lengths?: perigee.Tensor, target_lengths?: perigee.Tensor, blank?: integer, reduction?: "none"|"mean"|"sum", zero_infinity?: boolean}): perigee.Tensor
function pg.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity) end

---The largest element so far along dim and its index, the last of equal ones; NaN is larger than any number.
---@param x perigee.Tensor
---@param dim integer the dim to run along
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, dim: integer, options: {index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.cummax(x, dim, index_base) end

---The smallest element so far along dim and its index, the last of equal ones; NaN is smaller than any number.
---@param x perigee.Tensor
---@param dim integer the dim to run along
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, dim: integer, options: {index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.cummin(x, dim, index_base) end

---Running products along dim. bool and integers give int64. The gradient is exact where elements are 0.
---@param x perigee.Tensor
---@param dim integer the dim to run along
---@param reverse? boolean run from the end
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, options: {reverse?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.cumprod(x, dim, reverse) end

---Running sums along dim. bool and integers give int64.
---@param x perigee.Tensor
---@param dim integer the dim to run along
---@param reverse? boolean run from the end
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, options: {reverse?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.cumsum(x, dim, reverse) end

---A convolution whose windows read x (batch, channels, height, width) at places that are moved by offset (batch, 2 parts kh kw, out height, out width): for each part of the channels and element of the window a distance down and one to the right, in elements. Values between elements are interpolated, those outside are 0. weight is (out, channels / groups, kh, kw). mask (batch, parts kh kw, out height, out width) multiplies what is read. Dai et al., Deformable convolutional networks, 2017; Zhu et al., Deformable ConvNets v2, 2019.
---@param x perigee.Tensor
---@param offset perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@param stride? integer|integer[] step of the window
---@param padding? integer|integer[] zeros around the image
---@param dilation? integer|integer[] distance between the elements of the window
---@param mask? perigee.Tensor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, offset: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor, stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], mask?: perigee.Tensor}): perigee.Tensor
function pg.deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask) end

---The values of x as a constant: no gradient flows through.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.detach(x) end

---The diagonal of a matrix, or a square matrix with x on its diagonal when x is 1-dim.
---@param x perigee.Tensor
---@param diagonal? integer 0 is the main diagonal, positive ones are above it
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {diagonal?: integer}): perigee.Tensor
function pg.diag(x, diagonal) end

---Square matrices, spanned by dims dim1 and dim2 of the result, that are zero except for a diagonal, which is the last dim of x.
---@param x perigee.Tensor
---@param offset? integer 0 is the main diagonal, positive ones are above it
---@param dim1? integer a dim that spans the matrices
---@param dim2? integer a dim that spans the matrices
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): perigee.Tensor
function pg.diag_embed(x, offset, dim1, dim2) end

---The diagonal of the matrices that dims dim1 and dim2 span, as a new last dim. A view.
---@param x perigee.Tensor
---@param offset? integer 0 is the main diagonal, positive ones are above it
---@param dim1? integer a dim that spans the matrices
---@param dim2? integer a dim that spans the matrices
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {offset?: integer, dim1?: integer, dim2?: integer}): perigee.Tensor
function pg.diagonal(x, offset, dim1, dim2) end

---The differences of neighbors along `dim`, n times, after joining `prepend` and `append` to x. Of bools it is whether they differ.
---@param x perigee.Tensor
---@param n? integer how often
---@param dim? integer the dim of the neighbors
---@param prepend? perigee.Tensor
---@param append? perigee.Tensor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {n?: integer, dim?: integer, prepend?: perigee.Tensor, append?: perigee.Tensor}): perigee.Tensor
function pg.diff(x, n, dim, prepend, append) end

---The derivative of lgamma (Abramowitz and Stegun, 6.3).
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.digamma(x) end

---x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {rounding_mode?: "trunc"|"floor"}): perigee.Tensor
function pg.div(x, y) end

---x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.
---Another name of div.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {rounding_mode?: "trunc"|"floor"}): perigee.Tensor
function pg.divide(x, y) end

---The product of two vectors, of two matrices or of one and the other; matrices may be transposed first.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@param transpose_a? boolean use the transpose of x
---@param transpose_b? boolean use the transpose of y
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, y: perigee.Tensor, options: {transpose_a?: boolean, transpose_b?: boolean}): perigee.Tensor
function pg.dot(x, y, transpose_a, transpose_b) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "float64"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.double(x, device) end

---In training each element is 0 with probability p, else x / (1 - p); otherwise x. `axes` lists dims along which all elements share one decision. Srivastava et al., Dropout, 2014.
---@param x perigee.Tensor
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@param axes? integer|integer[] dims along which elements are dropped together
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, training?: boolean, axes?: integer|integer[], generator?: perigee.Generator}): perigee.Tensor
function pg.dropout(x, p, training, axes) end

---dropout of whole channels of x (batch, channels, length), or (channels, length). Tompson et al., Efficient object localization using convolutional networks, 2015.
---@param x perigee.Tensor
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.dropout1d(x, p, training) end

---dropout of whole channels of x (batch, channels, height, width); 3 dims are (batch, channels, length).
---@param x perigee.Tensor
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.dropout2d(x, p, training) end

---dropout of whole channels of x (batch, channels, depth, height, width), or without batch.
---@param x perigee.Tensor
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.dropout3d(x, p, training) end

---The tensors behind each other: joined along dim 3; lines count as rows, and matrices of shape (m, n) as (m, n, 1). dtypes promote.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.dstack(tensors) end

---Sums of products by Einstein's convention: one letter per dim of each tensor, terms separated by commas, then "->" and the letters of the result (by default those that occur once, in alphabetic order). "..." is for leading dims that broadcast; a letter that occurs twice in a term selects the diagonal.
---@param equation string the terms
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.einsum(equation, tensors) end

---x where it is positive, else alpha (exp(x) - 1). Clevert et al., Fast and accurate deep network learning by exponential linear units, 2015.
---@param x perigee.Tensor|number
---@param alpha? number minus the limit at -inf
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function pg.elu(x, alpha) end

---Rows of `weight` (2-dim) at the positions `indices`, whose shape the result has in front. Positions are labels: negative ones are errors. The gradient of row padding_idx is zero.
---@param indices perigee.Tensor
---@param weight perigee.Tensor
---@param padding_idx? integer a row of weight (1-based or negative) that gets no gradient
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(indices: perigee.Tensor, weight: perigee.Tensor, options: {padding_idx?: integer, index_base?: integer}): perigee.Tensor
function pg.embedding(indices, weight, padding_idx, index_base) end

---The mean, sum or max of the rows of `weight` at the positions in each bag, in the shape (bags, columns). Each row of 2-dim `indices` is a bag. In 1-dim indices a bag starts at each of `offsets`, which are positions from index_base on, in order. The rows of bag i have the factors per_sample_weights (sum only). An empty bag gives 0. Positions that equal padding_idx do not count.
---@param indices perigee.Tensor
---@param weight perigee.Tensor
---@param offsets? perigee.Tensor
---@param mode? "mean"|"sum"|"max" how the rows of a bag join
---@param per_sample_weights? perigee.Tensor
---@param include_last_offset? boolean offsets ends with the end of the last bag
---@param padding_idx? integer a row of weight (1-based or negative) that does not count
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(indices: perigee.Tensor, weight: perigee.Tensor, options: {offsets?: perigee.Tensor, mode?: "mean"|"sum"|"max", per_sample_weights?: perigee.Tensor, include_last_offset?: boolean, padding_idx?: integer, index_base?: integer}): perigee.Tensor
function pg.embedding_bag(indices, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx, index_base) end

---A tensor whose elements are not set: their values are unspecified until written.
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(shape: integer|integer[], options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.empty(shape, dtype, device) end

---A tensor of the shape of x whose elements are not set.
---@param x perigee.Tensor
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.empty_like(x, dtype, device) end

---True where x equals y, with broadcasting. Lua's own == is identity: false for a tensor and a number.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.eq(x, y) end

---The error function.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.erf(x) end

---1 - erf(x), accurate for large x.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.erfc(x) end

---The inverse of erf; infinities at -1 and 1, NaN beyond. Starts from M. Giles, Approximating the erfinv function, 2011.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.erfinv(x) end

---e to the power x.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.exp(x) end

---2 to the power x.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.exp2(x) end

---x with dims of size 1 repeated, and new leading dims, up to `shape`; -1 keeps a dim. A view.
---@param x perigee.Tensor
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function pg.expand(x, shape) end

---x expanded to the shape of `other`. A view.
---@param x perigee.Tensor
---@param other perigee.Tensor
---@return perigee.Tensor out
function pg.expand_as(x, other) end

---exp(x) - 1, accurate near 0.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.expm1(x) end

---Random numbers of density lambda exp(-lambda v), v > 0, in shape and dtype of x; x:exponential_(lambda) fills x.
---@param x perigee.Tensor
---@param lambda? number the rate, above 0
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {lambda?: number, generator?: perigee.Generator}): perigee.Tensor
function pg.exponential(x, lambda) end

---Ones on the diagonal of n rows and m columns (n when nil), zeros elsewhere.
---@param n integer rows
---@param m? integer columns
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {m?: integer, dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.eye(n, m, dtype, device) end

---alpha_dropout of whole channels of x (batch, channels, …).
---@param x perigee.Tensor
---@param p? number the share that is dropped
---@param training? boolean whether to drop; nil follows the mode
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.feature_alpha_dropout(x, p, training) end

---x without its fraction. The gradient is zero.
---Another name of trunc.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.fix(x) end

---Joins the dims from start_dim to end_dim into one. A 0-dim tensor gives one dim of size 1.
---@param x perigee.Tensor
---@param start_dim? integer first dim to join
---@param end_dim? integer last dim to join
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {start_dim?: integer, end_dim?: integer}): perigee.Tensor
function pg.flatten(x, start_dim, end_dim) end

---x in reverse order along `dims`.
---@param x perigee.Tensor
---@param dims integer|integer[] dims to reverse
---@return perigee.Tensor out
function pg.flip(x, dims) end

---x in reverse order along dim 2.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.fliplr(x) end

---x in reverse order along dim 1.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.flipud(x) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "float32"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.float(x, device) end

---The largest whole number not above x. The gradient is zero.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.floor(x) end

---The largest whole number not above x / y, with broadcasting. Keeps integer dtypes; an integer divisor of 0 is an error. The gradient is zero.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.floor_divide(x, y) end

---The larger of x and y, with broadcasting; NaN only where both are. Where they are equal each gets half of the gradient.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.fmax(x, y) end

---The smaller of x and y, with broadcasting; NaN only where both are. Where they are equal each gets half of the gradient.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.fmin(x, y) end

---The remainder of x / y with the sign of x, like C's fmod. Keeps integer dtypes; an integer divisor of 0 is an error.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.fmod(x, y) end

---The images (batch, channels, height, width) of size output_size that are the sums of the windows in the columns of x (batch, channels kh kw, windows). unfold makes such columns.
---@param x perigee.Tensor
---@param output_size integer|integer[] height and width of the images
---@param kernel_size integer|integer[] height and width of the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param padding? integer|integer[] zeros around the image
---@param stride? integer|integer[] step of the window
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, output_size: integer|integer[], kernel_size: integer|integer[], options: {dilation?: integer|integer[], padding?: integer|integer[], stride?: integer|integer[]}): perigee.Tensor
function pg.fold(x, output_size, kernel_size, dilation, padding, stride) end

---x - trunc(x), the fraction with the sign of x; NaN for infinities.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.frac(x) end

---A tensor with the value everywhere: a number, or a boolean, whose tensor is bool unless dtype is given. A number that an integer dtype cannot hold is an error.
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param value number the element
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(shape: integer|integer[], value: number, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.full(shape, value, dtype, device) end

---The value, a number or a boolean, everywhere in the shape and dtype of x. A number that an integer dtype cannot hold is an error.
---@param x perigee.Tensor
---@param value number the element
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, value: number, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.full_like(x, value, dtype, device) end

---The elements of x at the positions that `index` names along `dim`: out[i][j] = x[index[i][j]][j] for dim 1. index has the rank of x and at most its sizes except in dim; the result has the shape of index.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.gather(x, dim, index, index_base) end

---(log(var) + (x - target)^2 / var) / 2, the negative log-likelihood of normal distributions with means x and variances var, reduced; full adds log(2 pi) / 2. var is limited to at least eps. It broadcasts to x, and may lack the last dim. A negative one is an error. Nix and Weigend, Estimating the mean and variance of the target probability distribution, 1994.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param var perigee.Tensor
---@param full? boolean add the terms that do not depend on x
---@param eps? number the smallest variance
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, var: perigee.Tensor, options: {full?: boolean, eps?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.gaussian_nll_loss(x, target, var, full, eps, reduction) end

---The greatest common divisor of integers, not negative, with broadcasting; 0 for 0 and 0.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.gcd(x, y) end

---True where x is at least y, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.ge(x, y) end

---x times the normal distribution function of x, or its tanh form. Hendrycks and Gimpel, Gaussian error linear units, 2016.
---@param x perigee.Tensor|number
---@param approximate? "none"|"tanh" exact, or by tanh
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {approximate?: "none"|"tanh"}): perigee.Tensor
function pg.gelu(x, approximate) end

---How many trials with success probability p it takes to succeed: 1, 2, …, in shape and dtype of x; x:geometric_(p) fills x.
---@param x perigee.Tensor
---@param p number the probability, above 0 and below 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, p: number, options: {generator?: perigee.Generator}): perigee.Tensor
function pg.geometric(x, p) end

---The first half of x along dim times the sigmoid of the second (Dauphin et al. 2017, Language modeling with gated convolutional networks).
---@param x perigee.Tensor
---@param dim? integer the dim to halve
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer}): perigee.Tensor
function pg.glu(x, dim) end

---True where x is greater than y, with broadcasting.
---Another name of gt.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.greater(x, y) end

---True where x is at least y, with broadcasting.
---Another name of ge.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.greater_equal(x, y) end

---x (batch, channels, height, width) read at the points of grid (batch, out height, out width, 2), whose last dim is a column and a row from -1 to 1; or with a depth as well, which comes last in grid and first in x. bicubic is for images only. Jaderberg et al., Spatial transformer networks, 2015.
---@param x perigee.Tensor
---@param grid perigee.Tensor
---@param mode? "bilinear"|"nearest"|"bicubic" how elements between others arise
---@param padding_mode? "zeros"|"border"|"reflection" what lies outside
---@param align_corners? boolean -1 and 1 are the centers of the first and last elements, not their edges
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, grid: perigee.Tensor, options: {mode?: "bilinear"|"nearest"|"bicubic", padding_mode?: "zeros"|"border"|"reflection", align_corners?: boolean}): perigee.Tensor
function pg.grid_sample(x, grid, mode, padding_mode, align_corners) end

---Normalizes each of num_groups groups of channels of each sample, then scales and shifts by channel (Wu, He 2018). x is batch x channels x …; weight and bias have one element per channel.
---@param x perigee.Tensor
---@param num_groups integer number of groups of channels
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param eps? number added to the variance
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, num_groups: integer, options: {weight?: perigee.Tensor, bias?: perigee.Tensor, eps?: number}): perigee.Tensor
function pg.group_norm(x, num_groups, weight, bias, eps) end

---True where x is greater than y, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.gt(x, y) end

---softmax((x + g) / tau) along dim with Gumbel noise g: a soft sample of the classes with logits x. hard gives the one-hot vector of the largest element, with the gradient of the soft sample. Jang et al., Categorical reparameterization with Gumbel-Softmax, 2017.
---@param x perigee.Tensor
---@param tau? number the temperature, above 0
---@param hard? boolean give one-hot vectors
---@param dim? integer the dim of the classes
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {tau?: number, hard?: boolean, dim?: integer, generator?: perigee.Generator}): perigee.Tensor
function pg.gumbel_softmax(x, tau, hard, dim) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "float16"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.half(x, device) end

---The Hamming window of n elements: 0.54 - 0.46 cos(2 pi j / n).
---@param n integer how many
---@param periodic? boolean of a period n; else symmetric
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {periodic?: boolean, dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.hamming_window(n, periodic, dtype, device) end

---The Hann window of n elements: 0.5 - 0.5 cos(2 pi j / n).
---@param n integer how many
---@param periodic? boolean of a period n; else symmetric
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {periodic?: boolean, dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.hann_window(n, periodic, dtype, device) end

---x, and 0 where |x| is at most lambda.
---@param x perigee.Tensor|number
---@param lambda? number the largest |x| that becomes 0
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {lambda?: number}): perigee.Tensor
function pg.hardshrink(x, lambda) end

---min(max(x + 3, 0), 6) / 6.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.hardsigmoid(x) end

---x min(max(x + 3, 0), 6) / 6. Howard et al., Searching for MobileNetV3, 2019.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.hardswish(x) end

---x limited to [min_val, max_val].
---@param x perigee.Tensor|number
---@param min_val? number the lower limit
---@param max_val? number the upper limit, not below min_val
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {min_val?: number, max_val?: number}): perigee.Tensor
function pg.hardtanh(x, min_val, max_val) end

---The step function: 0 where x is below 0 or NaN, 1 where it is above, `values` where it is 0, with broadcasting. x gets no gradient.
---@param x perigee.Tensor|number
---@param values perigee.Tensor|number
---@return perigee.Tensor out
function pg.heaviside(x, values) end

---x where target is 1, max(0, margin - x) where it is -1, reduced; for distances x. target has the shape of x, but for dims of size 1.
---@param x perigee.Tensor
---@param target perigee.Tensor 1 or -1
---@param margin? number the margin
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {margin?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.hinge_embedding_loss(x, target, margin, reduction) end

---How many elements lie in each of `bins` equally wide bins from min to max, in the dtype of x; the last bin has both its ends. Where min equals max, the range of the elements is taken, or 1 to both sides of it where all are equal. NaN and other elements are not counted.
---@param x perigee.Tensor
---@param bins? integer how many
---@param min? number the start of the first bin
---@param max? number the end of the last bin
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {bins?: integer, min?: number, max?: number}): perigee.Tensor
function pg.histc(x, bins, min, max) end

---The tensors beside each other: joined along dim 2, or along their only dim; 0-dim tensors count as lines of one. dtypes promote.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.hstack(tensors) end

---d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - target (Huber 1964), times weight, reduced.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param delta? number where the square ends
---@param weight? perigee.Tensor a factor for each element
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", delta?: number, weight?: perigee.Tensor}): perigee.Tensor
function pg.huber_loss(x, target, reduction, delta, weight) end

---sqrt(x^2 + y^2) without overflow on the way, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.hypot(x, y) end

---x with alpha * source added at the positions `index` of dim `dim`, in the order of index. source is a number or a tensor that broadcasts to them.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param source perigee.Tensor
---@param alpha? number factor of source
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, source: perigee.Tensor, options: {alpha?: number, index_base?: integer}): perigee.Tensor
function pg.index_add(x, dim, index, source, alpha, index_base) end

---x with the positions `index` of dim `dim` replaced by those of source, a number or a tensor that broadcasts to them. Of several values for one position the last stays.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param source perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, source: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.index_copy(x, dim, index, source, index_base) end

---x with `value`, a number or a tensor of one element, at the positions `index` of dim `dim`.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param value perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, value: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.index_fill(x, dim, index, value, index_base) end

---x with `values`, a number or a tensor, written at positions of its first dims, or added there. indices[k] has the positions in dim k. The indices broadcast together; values broadcasts to their shape followed by the other dims of x. A single bool tensor is a mask over the first dims of x; values then has one row for each of its true elements, or one row for all. x[{i, j}] = values writes so in place, and x[{i, j}] reads.
---@param x perigee.Tensor
---@param indices perigee.Tensor[]
---@param values perigee.Tensor
---@param accumulate? boolean add to the elements, else replace them; of several the last stays
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, indices: perigee.Tensor[], values: perigee.Tensor, options: {accumulate?: boolean, index_base?: integer}): perigee.Tensor
function pg.index_put(x, indices, values, accumulate, index_base) end

---The positions `index` of dim `dim`, in that order; the dims of index (1, or any number) replace that dim.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.index_select(x, dim, index, index_base) end

---The sums of products over the last dims of x and y; the product where one of them is 0-dim.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.inner(x, y) end

---Normalizes each channel of each sample over its positions, then scales and shifts by channel (Ulyanov, Vedaldi, Lempitsky 2016). x is batch x channels x … Running statistics are read only without use_input_stats.
---@param x perigee.Tensor
---@param running_mean? perigee.Tensor of each channel
---@param running_var? perigee.Tensor of each channel
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param use_input_stats? boolean whether to use the statistics of x
---@param eps? number added to the variance
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {running_mean?: perigee.Tensor, running_var?: perigee.Tensor, weight?: perigee.Tensor, bias?: perigee.Tensor, use_input_stats?: boolean, eps?: number}): perigee.Tensor
function pg.instance_norm(x, running_mean, running_var, weight, bias, use_input_stats, eps) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "int32"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.int(x, device) end

---x with its spatial dims resized to `size` or by `scale_factor`. linear is for 1 spatial dim, bilinear and bicubic are for 2, trilinear is for 3. area takes the mean of what a new element covers. bicubic is Keys, Cubic convolution interpolation for digital image processing, 1981, with a = -0.75.
---@param x perigee.Tensor
---@param size? integer|integer[] new spatial sizes
---@param scale_factor? number[] or the factors
---@param mode? "nearest"|"nearest-exact"|"linear"|"bilinear"|"trilinear"|"bicubic"|"area" how elements between others arise
---@param align_corners? boolean keep the first and last elements at their positions
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {size?: integer|integer[], scale_factor?: number[], mode?: "nearest"|"nearest-exact"|"linear"|"bilinear"|"trilinear"|"bicubic"|"area", align_corners?: boolean}): perigee.Tensor
function pg.interpolate(x, size, scale_factor, mode, align_corners) end

---True where x equals y or |x - y| is at most atol + rtol |y|, with broadcasting. Integers are compared in float64, half precision in float32.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@param rtol? number tolerance as a share of |y|
---@param atol? number absolute tolerance
---@param equal_nan? boolean NaN is close to NaN
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {rtol?: number, atol?: number, equal_nan?: boolean}): perigee.Tensor
function pg.isclose(x, y, rtol, atol, equal_nan) end

---True where x is neither NaN nor an infinity; always for integers.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.isfinite(x) end

---True where x is an infinity; never for integers.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.isinf(x) end

---True where x is NaN; never for integers.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.isnan(x) end

---The inverse of stft: the signal whose frames have the spectra x (frequencies, frames, 2) best, in the sense of least squares (Griffin and Lim, Signal estimation from modified short-time Fourier transform, 1984). Elements at which all windows are 0 are NaN.
---@param x perigee.Tensor
---@param n_fft integer the size of a frame
---@param hop_length? integer the distance between frames; n_fft / 4 if nil
---@param win_length? integer the size of the window, which zeros surround; n_fft if nil
---@param window? perigee.Tensor factors of a frame; ones without
---@param center? boolean whether the frames are centered at their elements, with padding at both ends
---@param normalized? boolean with a factor 1 / sqrt(n_fft)
---@param onesided? boolean the frequencies 0 to n_fft / 2 only
---@param length? integer the size of the result
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, n_fft: integer, options: {hop_length?: integer, win_length?: integer, window?: perigee.Tensor, center?: boolean, normalized?: boolean, onesided?: boolean, length?: integer}): perigee.Tensor
function pg.istft(x, n_fft, hop_length, win_length, window, center, normalized, onesided, length) end

---t (log t - x) of log-probabilities x and probabilities t (their logarithms with log_target), reduced; batchmean divides the sum by the size of dim 1.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum"|"batchmean" none, mean or sum
---@param log_target? boolean whether target holds logarithms
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum"|"batchmean", log_target?: boolean}): perigee.Tensor
function pg.kl_div(x, target, reduction, log_target) end

---The Kronecker product: blocks of y times each element of x. The tensor with fewer dims gets leading ones.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.kron(x, y) end

---The k-th smallest element along dim, and its index. NaN is larger than any number.
---@param x perigee.Tensor
---@param k integer which element, from 1 on
---@param dim? integer the dim to reduce
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, k: integer, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.kthvalue(x, k, dim, keepdim, index_base) end

---The size of the difference of x and target, reduced. With weight the mean divides by the sum of weight.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param weight? perigee.Tensor a factor for each element
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", weight?: perigee.Tensor}): perigee.Tensor
function pg.l1_loss(x, target, reduction, weight) end

---(x - mean) / sqrt(var + eps) over the last dims, times weight, plus bias (Ba, Kiros, Hinton 2016). weight and bias have the shape of those dims.
---@param x perigee.Tensor
---@param normalized_shape integer|integer[] the last dims, which are normalized together
---@param weight? perigee.Tensor factors
---@param bias? perigee.Tensor terms
---@param eps? number added to the variance
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, normalized_shape: integer|integer[], options: {weight?: perigee.Tensor, bias?: perigee.Tensor, eps?: number}): perigee.Tensor
function pg.layer_norm(x, normalized_shape, weight, bias, eps) end

---The least common multiple of integers, with broadcasting; 0 where one is 0. Wraps around.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.lcm(x, y) end

---True where x is at most y, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.le(x, y) end

---x where it is positive, else negative_slope x.
---@param x perigee.Tensor|number
---@param negative_slope? number the factor below 0
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {negative_slope?: number}): perigee.Tensor
function pg.leaky_relu(x, negative_slope) end

---x + weight (y - x), exact at both ends, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@param weight perigee.Tensor|number
---@return perigee.Tensor out
function pg.lerp(x, y, weight) end

---True where x is less than y, with broadcasting.
---Another name of lt.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.less(x, y) end

---True where x is at most y, with broadcasting.
---Another name of le.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.less_equal(x, y) end

---The logarithm of the absolute value of the gamma function.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.lgamma(x) end

---x weightᵀ + bias on the last dim of x; weight is (out, in).
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@param bias? perigee.Tensor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, weight: perigee.Tensor, options: {bias?: perigee.Tensor}): perigee.Tensor
function pg.linear(x, weight, bias) end

---steps numbers from start to stop, both included, equally far apart; truncated for integers. An end that an integer dtype cannot hold is an error.
---@param start number the first element
---@param stop number the last element
---@param steps integer how many
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(start: number, stop: number, steps: integer, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.linspace(start, stop, steps, dtype, device) end

---x / (k + alpha m)^beta with the mean m of the squares of `size` neighboring channels, those outside counted as 0. Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012.
---@param x perigee.Tensor
---@param size integer number of channels
---@param alpha? number factor of the mean
---@param beta? number the exponent
---@param k? number added to the mean
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, size: integer, options: {alpha?: number, beta?: number, k?: number}): perigee.Tensor
function pg.local_response_norm(x, size, alpha, beta, k) end

---The natural logarithm; -inf at 0, NaN below.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.log(x) end

---The logarithm to base 10.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.log10(x) end

---log(1 + x), accurate near 0.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.log1p(x) end

---The logarithm to base 2.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.log2(x) end

---exp of normal random numbers of that mean and standard deviation, in shape and dtype of x; x:log_normal_() fills x.
---@param x perigee.Tensor
---@param mean? number the mean of the logarithms
---@param std? number their standard deviation
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {mean?: number, std?: number, generator?: perigee.Generator}): perigee.Tensor
function pg.log_normal(x, mean, std) end

---The logarithm of softmax(x) along dim, computed as x - logsumexp(x).
---@param x perigee.Tensor
---@param dim? integer the dim along which the results belong together
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer, dtype?: perigee.DType}): perigee.Tensor
function pg.log_softmax(x, dim) end

---log(exp(x) + exp(y)) without overflow, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.logaddexp(x, y) end

---The logarithm of the running sums of exp(x) along dim, without overflow.
---@param x perigee.Tensor
---@param dim integer the dim to run along
---@return perigee.Tensor out
function pg.logcumsumexp(x, dim) end

---True where both x and y are nonzero, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.logical_and(x, y) end

---True where x is zero or false.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.logical_not(x) end

---True where x or y is nonzero, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.logical_or(x, y) end

---True where exactly one of x and y is nonzero, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.logical_xor(x, y) end

---log(x / (1 - x)), the inverse of sigmoid; NaN outside 0 to 1. With eps x is first limited to eps..1 - eps. Integers give float32.
---@param x perigee.Tensor|number
---@param eps? number distance that x keeps from 0 and 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {eps?: number}): perigee.Tensor
function pg.logit(x, eps) end

---log(sigmoid(x)) without underflow.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.logsigmoid(x) end

---log(sum(exp(x))) over dims without overflow.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.logsumexp(x, dim, keepdim) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---Another name of to{dtype = "int64"}.
---@param x perigee.Tensor
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {device?: string}): perigee.Tensor
function pg.long(x, device) end

---The p-norm of each window: (sum of x ^ norm_type) ^ (1 / norm_type), channel by channel. Without a batch, kernel_size is a list with a size for each spatial dim.
---@param x perigee.Tensor
---@param norm_type? number the exponent p
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param ceil_mode? boolean also use windows that reach past the end
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, norm_type?: number, kernel_size: integer|integer[], options: {stride?: integer|integer[], ceil_mode?: boolean}): perigee.Tensor
function pg.lp_pool(x, norm_type, kernel_size, stride, ceil_mode) end

---True where x is less than y, with broadcasting.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.lt(x, y) end

---max(0, -target (x1 - x2) + margin), reduced: 0 where x1 is larger than x2 by the margin and target is 1, or smaller and target is -1.
---@param x1 perigee.Tensor
---@param x2 perigee.Tensor
---@param target perigee.Tensor 1 or -1
---@param margin? number the margin
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x1: perigee.Tensor, x2: perigee.Tensor, target: perigee.Tensor, options: {margin?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.margin_ranking_loss(x1, x2, target, margin, reduction) end

---x with `value`, a number or a tensor of one element, where mask is true. x and mask broadcast.
---@param x perigee.Tensor
---@param mask perigee.Tensor
---@param value perigee.Tensor
---@return perigee.Tensor out
function pg.masked_fill(x, mask, value) end

---x with the elements of source, in row-major order, where mask is true. x and mask broadcast; source has at least as many elements as mask has true ones.
---@param x perigee.Tensor
---@param mask perigee.Tensor
---@param source perigee.Tensor
---@return perigee.Tensor out
function pg.masked_scatter(x, mask, source) end

---The elements of x where mask is true, as a 1-dim tensor in row-major order. x and mask broadcast. The size depends on values: eager only.
---@param x perigee.Tensor
---@param mask perigee.Tensor
---@return perigee.Tensor out
function pg.masked_select(x, mask) end

---The matrix product of the last two dims, broadcast over the leading ones. A 1-D x is a row, a 1-D y a column, and their dim is left out of the result.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.matmul(x, y) end

---The largest element as a 0-dim tensor or, with dim, the largest elements along it and their indices. The first of equal elements counts, NaN is larger than any number.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.max(x, dim, keepdim, index_base) end

---The largest element of each window, channel by channel. Padding never wins; a NaN does. With return_indices also the positions of these elements, int64, which max_unpool takes: each counts through its channel, row by row, from index_base on. A window of nothing but padding, which dilation can make, gives -inf and the position index_base - 1.
---@param x perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.max_pool1d(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices, index_base) end

---The largest element of each window, channel by channel. Padding never wins; a NaN does. With return_indices also the positions of these elements, int64, which max_unpool takes: each counts through its channel, row by row, from index_base on. A window of nothing but padding, which dilation can make, gives -inf and the position index_base - 1.
---@param x perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices, index_base) end

---The largest element of each window, channel by channel. Padding never wins; a NaN does. With return_indices also the positions of these elements, int64, which max_unpool takes: each counts through its channel, row by row, from index_base on. A window of nothing but padding, which dilation can make, gives -inf and the position index_base - 1.
---@param x perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param ceil_mode? boolean also use windows that reach past the end
---@param return_indices? boolean also return the positions
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], dilation?: integer|integer[], ceil_mode?: boolean, return_indices?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.max_pool3d(x, kernel_size, stride, padding, dilation, ceil_mode, return_indices, index_base) end

---Zeros with the elements of x at the positions `indices` of each channel, as max pooling with return_indices gave them. The sizes are those before pooling, or output_size where several are possible. Of several elements for one position the last stays.
---@param x perigee.Tensor
---@param indices perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param output_size? integer|integer[] spatial sizes of the result, or all sizes
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, indices: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], output_size?: integer|integer[], index_base?: integer}): perigee.Tensor
function pg.max_unpool1d(x, indices, kernel_size, stride, padding, output_size, index_base) end

---Zeros with the elements of x at the positions `indices` of each channel, as max pooling with return_indices gave them. The sizes are those before pooling, or output_size where several are possible. Of several elements for one position the last stays.
---@param x perigee.Tensor
---@param indices perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param output_size? integer|integer[] spatial sizes of the result, or all sizes
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, indices: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], output_size?: integer|integer[], index_base?: integer}): perigee.Tensor
function pg.max_unpool2d(x, indices, kernel_size, stride, padding, output_size, index_base) end

---Zeros with the elements of x at the positions `indices` of each channel, as max pooling with return_indices gave them. The sizes are those before pooling, or output_size where several are possible. Of several elements for one position the last stays.
---@param x perigee.Tensor
---@param indices perigee.Tensor
---@param kernel_size integer|integer[] size of the window
---@param stride? integer|integer[] step of the window; the kernel size by default
---@param padding? integer|integer[] padding on both sides, at most half the window
---@param output_size? integer|integer[] spatial sizes of the result, or all sizes
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, indices: perigee.Tensor, kernel_size: integer|integer[], options: {stride?: integer|integer[], padding?: integer|integer[], output_size?: integer|integer[], index_base?: integer}): perigee.Tensor
function pg.max_unpool3d(x, indices, kernel_size, stride, padding, output_size, index_base) end

---The larger of x and y, with broadcasting; NaN wins. Where they are equal each gets half of the gradient, and where one is NaN each gets all of it.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.maximum(x, y) end

---The mean over dims; NaN for no elements. bool and integers give float32.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.mean(x, dim, keepdim) end

---The middle element as a 0-dim tensor or, with dim, the middle elements along it and their indices: the lower one of two. NaN where there is one; the median of no floats is NaN.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.median(x, dim, keepdim, index_base) end

---The coordinates of the points of a grid: for each tensor of 0 or 1 dims one of the shape of the grid, with its elements along its own dim. With indexing "xy" the first two dims are exchanged. An array table.
---@param tensors perigee.Tensor[]
---@param indexing? "ij"|"xy" the order of the dims: that of the tensors, or the second tensor first
---@return perigee.Tensor[]
---@overload fun(tensors: perigee.Tensor[], options: {indexing?: "ij"|"xy"}): perigee.Tensor[]
function pg.meshgrid(tensors, indexing) end

---The smallest element as a 0-dim tensor or, with dim, the smallest elements along it and their indices. The first of equal elements counts, NaN is smaller than any number.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.min(x, dim, keepdim, index_base) end

---The smaller of x and y, with broadcasting; NaN wins. Where they are equal each gets half of the gradient, and where one is NaN each gets all of it.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.minimum(x, y) end

---x tanh(softplus(x)). Misra, Mish: a self regularized non-monotonic activation function, 2019.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.mish(x) end

---The product of two matrices.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.mm(x, y) end

---The most frequent value along dim, the smallest of several, and the index of its last occurrence. Every NaN is different.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.mode(x, dim, keepdim, index_base) end

---x with the dims `source` moved to the positions `destination`; the others keep their order. A view.
---@param x perigee.Tensor
---@param source integer|integer[] dims of x to move
---@param destination integer|integer[] where they go in the result
---@return perigee.Tensor out
function pg.moveaxis(x, source, destination) end

---Another name of moveaxis.
---@param x perigee.Tensor
---@param source integer|integer[] dims of x to move
---@param destination integer|integer[] where they go in the result
---@return perigee.Tensor out
function pg.movedim(x, source, destination) end

---The squared difference of x and target, reduced. With weight the mean divides by the sum of weight.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param weight? perigee.Tensor a factor for each element
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", weight?: perigee.Tensor}): perigee.Tensor
function pg.mse_loss(x, target, reduction, weight) end

---x * y, with broadcasting. For bools it is the logical and; integers wrap around.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.mul(x, y) end

---The sum of max(0, margin - x[y] + x[i])^p over the classes i other than the label y, over the number of classes, times the weight of y; reduced. Labels are from 1 to the number of classes. Crammer and Singer, On the algorithmic implementation of multiclass kernel-based vector machines, 2001.
---@param x perigee.Tensor scores (samples, classes), or (classes)
---@param target perigee.Tensor labels
---@param p? integer the exponent, 1 or 2
---@param margin? number the margin
---@param weight? perigee.Tensor a factor for each class
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {p?: integer, margin?: number, weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum", index_base?: integer}): perigee.Tensor
function pg.multi_margin_loss(x, target, p, margin, weight, reduction, index_base) end

---The sum of max(0, 1 - x[y] + x[i]) over the labels y of a sample and the classes i that are none of them, over the number of classes; reduced. target has the shape of x: the labels of each sample, from 1 on, up to the first element that is index_base - 1. Takes memory for samples times the square of classes.
---@param x perigee.Tensor scores (samples, classes), or (classes)
---@param target perigee.Tensor labels, then 0
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", index_base?: integer}): perigee.Tensor
function pg.multilabel_margin_loss(x, target, reduction, index_base) end

---The mean over the classes, the last dim, of binary_cross_entropy_with_logits of x and target, reduced. weight has a factor for each class.
---@param x perigee.Tensor
---@param target perigee.Tensor 0 or 1
---@param weight? perigee.Tensor a factor for each class
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.multilabel_soft_margin_loss(x, target, weight, reduction) end

---n indices (from 1) drawn with probabilities proportional to the weights p, one list or one list per row. Negative or infinite weights, a sum of 0, or fewer nonzero weights than draws without replacement are errors.
---@param p perigee.Tensor
---@param n integer draws per row
---@param replacement? boolean whether an index may be drawn more than once
---@param index_base? integer the first index, 1 or 0
---@return perigee.Tensor out
---@overload fun(p: perigee.Tensor, n: integer, options: {replacement?: boolean, index_base?: integer, generator?: perigee.Generator}): perigee.Tensor
function pg.multinomial(p, n, replacement, index_base) end

---x * y, with broadcasting. For bools it is the logical and; integers wrap around.
---Another name of mul.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.multiply(x, y) end

---The product of a matrix and a vector.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.mv(x, y) end

---m = momentum m - lr (g + wd w); w + momentum m - lr (g + wd w) (Nesterov 1983). Answers the new weights, then the new moms. g is the rescaled, clipped gradient.
---@param weights perigee.Tensor[] the parameters
---@param grads perigee.Tensor[] a gradient for each
---@param moms perigee.Tensor[] the last step of each weight
---@param rates? perigee.Tensor lr, wd, t and rescale_grad in its rows, one column for all or one for each weight; instead of the attributes. A fifth row replaces momentum or beta1
---@param lr number[] learning rate, one for all or one for each weight
---@param wd? number[] weight decay, one for all or one for each weight
---@param rescale_grad? number factor on the gradients
---@param clip_gradient? number bound on the size of each element of a rescaled gradient
---@param t? integer|integer[] number of updates, this one included; one for all or one for each weight
---@param momentum? number share of the last step that is kept
---@return perigee.Tensor[]
---@overload fun(weights: perigee.Tensor[], grads: perigee.Tensor[], moms: perigee.Tensor[], rates?: perigee.Tensor, lr: number[], options: {wd?: number[], rescale_grad?: number, clip_gradient?: number, t?: integer|integer[], momentum?: number}): perigee.Tensor[]
function pg.nag_update(weights, grads, moms, rates, lr, wd, rescale_grad, clip_gradient, t, momentum) end

---x with other numbers for NaN and the infinities. Integers and bools come back as they are. The gradient of a replaced element is 0.
---@param x perigee.Tensor|number
---@param nan? number for NaN
---@param posinf? number for infinity; by default the largest number of the dtype
---@param neginf? number for -infinity; by default the least number of the dtype
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {nan?: number, posinf?: number, neginf?: number}): perigee.Tensor
function pg.nan_to_num(x, nan, posinf, neginf) end

---The mean over dims of the elements that are not NaN; NaN for none.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.nanmean(x, dim, keepdim) end

---median of the elements that are not NaN; NaN where there are no others.
---@param x perigee.Tensor
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.nanmedian(x, dim, keepdim, index_base) end

---quantile of the elements that are not NaN; NaN where there are no others.
---@param x perigee.Tensor
---@param q perigee.Tensor a number or a tensor of at most 1 dim
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param interpolation? "linear"|"lower"|"higher"|"midpoint"|"nearest" what is between two elements
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, q: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, interpolation?: "linear"|"lower"|"higher"|"midpoint"|"nearest"}): perigee.Tensor
function pg.nanquantile(x, q, dim, keepdim, interpolation) end

---The sum over dims of the elements that are not NaN; 0 for none. bool and integers give int64.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.nansum(x, dim, keepdim) end

---The `length` positions of dim `dim` from `start` on (1-based, negative from the end). A view.
---@param x perigee.Tensor
---@param dim integer the dim to cut along
---@param start integer first position kept
---@param length integer number of positions kept
---@return perigee.Tensor out
function pg.narrow(x, dim, start, length) end

---True where x differs from y, with broadcasting; NaN differs from everything.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.ne(x, y) end

----x. Bool is refused.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.neg(x) end

----x. Bool is refused.
---Another name of neg.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.negative(x) end

----x at the label of each sample times the weight of its class, for log-probabilities x with classes along dim 2. Labels and reductions as in cross_entropy.
---@param x perigee.Tensor
---@param target perigee.Tensor labels
---@param weight? perigee.Tensor a factor for each class
---@param ignore_index? integer label of samples that do not count
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param index_base? integer the number of the first class
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {weight?: perigee.Tensor, ignore_index?: integer, reduction?: "none"|"mean"|"sum", index_base?: integer}): perigee.Tensor
function pg.nll_loss(x, target, weight, ignore_index, reduction, index_base) end

---The positions of the elements of x that are not zero, one row each in row-major order: an int64 tensor of shape (count, dims of x). The size depends on values: eager only.
---@param x perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.nonzero(x, index_base) end

---The p-norm over dims: the sum of |x|^p to the power 1/p; math.huge gives the largest |x|, 0 the number of elements that are not 0. The gradient at 0 is 0.
---@param x perigee.Tensor
---@param p? number the order
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, dim?: integer|integer[], keepdim?: boolean}): perigee.Tensor
function pg.norm(x, p, dim, keepdim) end

---Normal random numbers of that mean and standard deviation in shape and dtype of x; x:normal_(mean, std) fills x.
---@param x perigee.Tensor
---@param mean? number the mean
---@param std? number the standard deviation
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {mean?: number, std?: number, generator?: perigee.Generator}): perigee.Tensor
function pg.normal(x, mean, std) end

---x over its p-norm along `dim`, or over eps where the norm is less. The gradient at a zero vector is that of x / eps.
---@param x perigee.Tensor
---@param p? number the order of the norm; math.huge is the largest difference or element
---@param dim? integer|integer[] the dims of the norm
---@param eps? number the least divisor
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {p?: number, dim?: integer|integer[], eps?: number}): perigee.Tensor
function pg.normalize(x, p, dim, eps) end

---True where x differs from y, with broadcasting; NaN differs from everything.
---Another name of ne.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.not_equal(x, y) end

---int64 zeros with a 1 at position x of a new last dim of size num_classes, by default the largest of x (eagerly only, since the size then depends on values). The values of x are labels: negative ones are errors.
---@param x perigee.Tensor
---@param num_classes? integer size of the new dim
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {num_classes?: integer, index_base?: integer}): perigee.Tensor
function pg.one_hot(x, num_classes, index_base) end

---A tensor of ones.
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(shape: integer|integer[], options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.ones(shape, dtype, device) end

---Ones of the shape of x.
---@param x perigee.Tensor
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.ones_like(x, dtype, device) end

---All products of an element of vector x (rows) and one of vector y (columns).
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.outer(x, y) end

---x with its last dims widened by the pairs of `pad` (before and after; the last dim first). Negative widths cut elements away, in mode "circular" before the others are copied.
---@param x perigee.Tensor
---@param pad integer|integer[] widths before and after, the last dim first; negative ones cut
---@param mode? "constant"|"reflect"|"replicate"|"circular" source of the new elements: `value`, a mirror image, the nearest element, or the other end
---@param value? number the number for mode "constant"
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, pad: integer|integer[], options: {mode?: "constant"|"reflect"|"replicate"|"circular", value?: number}): perigee.Tensor
function pg.pad(x, pad, mode, value) end

---The p-norm of x1 - x2 + eps along the last dim, with broadcasting.
---@param x1 perigee.Tensor
---@param x2 perigee.Tensor
---@param p? number the order of the norm; math.huge is the largest difference or element
---@param eps? number added to each difference
---@param keepdim? boolean keep the last dim with size 1
---@return perigee.Tensor out
---@overload fun(x1: perigee.Tensor, x2: perigee.Tensor, options: {p?: number, eps?: number, keepdim?: boolean}): perigee.Tensor
function pg.pairwise_distance(x1, x2, p, eps, keepdim) end

---x with its dims in the given order: dim i of the result is dim dims[i] of x. A view.
---@param x perigee.Tensor
---@param dims integer|integer[] every dim once
---@return perigee.Tensor out
function pg.permute(x, dims) end

---One element along `dim` for each position of the other dims: out[i] = x[i][index[i]]. index has the shape of x without dim, or with size 1 there.
---@param x perigee.Tensor
---@param index perigee.Tensor
---@param dim? integer the dim that the index values are positions of
---@param keepdim? boolean keep dim with size 1
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, index: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, index_base?: integer}): perigee.Tensor
function pg.pick(x, index, dim, keepdim, index_base) end

---(…, C r², H, W) rearranged to (…, C, H r, W r).
---@param x perigee.Tensor
---@param upscale_factor integer the factor of height and width
---@return perigee.Tensor out
function pg.pixel_shuffle(x, upscale_factor) end

---(…, C, H r, W r) rearranged to (…, C r², H, W).
---@param x perigee.Tensor
---@param downscale_factor integer the factor of height and width
---@return perigee.Tensor out
function pg.pixel_unshuffle(x, downscale_factor) end

---exp(x) - target x, the negative log-likelihood of counts with Poisson distributions of logarithmic rates x, reduced; x - target log(x + eps) for rates x, with log_input = false. full adds Stirling's approximation of log(target!) for targets above 1.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param log_input? boolean x holds logarithms of rates
---@param full? boolean add the terms that do not depend on x
---@param eps? number added to x before the logarithm
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {log_input?: boolean, full?: boolean, eps?: number, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.poisson_nll_loss(x, target, log_input, full, eps, reduction) end

---The n-th derivative of digamma (Abramowitz and Stegun, 6.4).
---@param x perigee.Tensor|number
---@param n? integer which derivative
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {n?: integer}): perigee.Tensor
function pg.polygamma(x, n) end

---x to the power y, with broadcasting. Bool tensors are refused, except beside a number; integers keep their dtype, and a negative exponent of an integer tensor is an error.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.pow(x, y) end

---x to the power y, with broadcasting. Bool tensors are refused, except beside a number; integers keep their dtype, and a negative exponent of an integer tensor is an error.
---Another name of pow.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.power(x, y) end

---x where it is positive, else weight x: one weight for all, or one per channel (dim 2). He et al., Delving deep into rectifiers, 2015.
---@param x perigee.Tensor
---@param weight perigee.Tensor
---@return perigee.Tensor out
function pg.prelu(x, weight) end

---The product over dims; 1 for no elements. bool and integers give int64. The gradient is exact where elements are 0.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.prod(x, dim, keepdim) end

---x with source, a number or a tensor of as many elements as `index`, written at the positions `index` of the flattened x, or added there.
---@param x perigee.Tensor
---@param index perigee.Tensor
---@param source perigee.Tensor
---@param accumulate? boolean add to the elements, else replace them; of several the last stays
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, index: perigee.Tensor, source: perigee.Tensor, options: {accumulate?: boolean, index_base?: integer}): perigee.Tensor
function pg.put(x, index, source, accumulate, index_base) end

---The value below which the share q of the elements lies, along dim or of all elements: of the sorted elements the one at q (n - 1), counted from 0. For a 1-dim q the results lie along a new first dim; an element of it outside of 0 to 1 gives NaN. NaN where an element is.
---@param x perigee.Tensor
---@param q perigee.Tensor a number or a tensor of at most 1 dim
---@param dim? integer the dim to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@param interpolation? "linear"|"lower"|"higher"|"midpoint"|"nearest" what is between two elements
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, q: perigee.Tensor, options: {dim?: integer, keepdim?: boolean, interpolation?: "linear"|"lower"|"higher"|"midpoint"|"nearest"}): perigee.Tensor
function pg.quantile(x, q, dim, keepdim, interpolation) end

---Uniform random numbers in [0, 1).
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(shape: integer|integer[], options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function pg.rand(shape, dtype, device) end

---Uniform random numbers in [0, 1) in the shape of x.
---@param x perigee.Tensor
---@param dtype? perigee.DType a floating dtype; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function pg.rand_like(x, dtype, device) end

---Uniform random whole numbers from low to high, both included, like math.random.
---@param low integer the smallest
---@param high integer the largest
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(low: integer, high: integer, shape: integer|integer[], options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function pg.randint(low, high, shape, dtype, device) end

---Normal random numbers of mean 0 and variance 1 (Box and Muller's method).
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(shape: integer|integer[], options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function pg.randn(shape, dtype, device) end

---Normal random numbers in the shape of x.
---@param x perigee.Tensor
---@param dtype? perigee.DType a floating dtype; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dtype?: perigee.DType, device?: string, generator?: perigee.Generator}): perigee.Tensor
function pg.randn_like(x, dtype, device) end

---The numbers from 1 to n (from 0 with index_base 0) in random order.
---@param n integer how many
---@param dtype? perigee.DType the dtype of the result
---@param index_base? integer the first index, 1 or 0
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(n: integer, options: {dtype?: perigee.DType, index_base?: integer, device?: string, generator?: perigee.Generator}): perigee.Tensor
function pg.randperm(n, dtype, index_base, device) end

---start, start + step, … up to stop, both ends included, like `for i = start, stop, step`. Empty where step leads away from stop. An element that an integer dtype cannot hold is an error.
---@param start number the first element
---@param stop number the limit, included
---@param step? number the difference, not 0
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(start: number, stop: number, options: {step?: number, dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.range(start, stop, step, dtype, device) end

---The elements of x in row-major order in one dim. A view where the strides of x allow it.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.ravel(x) end

---1 / x. Integers give float32.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.reciprocal(x) end

---max(x, 0). Keeps integer dtypes; NaN stays. The gradient at 0 is 0.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.relu(x) end

---min(max(x, 0), 6). Keeps integer dtypes.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.relu6(x) end

---x - floor(x / y) * y, with the sign of y, like Lua's %. Keeps integer dtypes; an integer divisor of 0 is an error.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.remainder(x, y) end

---x with those of its slices at the positions of `dim` scaled down to the p-norm maxnorm whose norm is larger.
---@param x perigee.Tensor
---@param p number the order of the norm, above 0
---@param dim integer the dim whose positions are the slices
---@param maxnorm number the largest norm
---@return perigee.Tensor out
function pg.renorm(x, p, dim, maxnorm) end

---Every position of dim `dim` `repeats` times in a row, or as often as the list says for each; without dim x is flattened first.
---@param x perigee.Tensor
---@param repeats integer|integer[] a count, or one count per position: a list, or a tensor whose values are read
---@param dim? integer the dim to repeat along
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, repeats: integer|integer[], options: {dim?: integer}): perigee.Tensor
function pg.repeat_interleave(x, repeats, dim) end

---The elements of x in the same order under another shape. In `shape` 0 copies the dim of x at that place and one -1 is computed from the other sizes. A view where the strides of x allow it. Shares no writes with x.
---@param x perigee.Tensor
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function pg.reshape(x, shape) end

---x under the shape of `other`, which has as many elements.
---@param x perigee.Tensor
---@param other perigee.Tensor
---@return perigee.Tensor out
function pg.reshape_as(x, other) end

---x / sqrt(mean(x^2) + eps) over the last dims, times weight (Zhang, Sennrich 2019).
---@param x perigee.Tensor
---@param normalized_shape integer|integer[] the last dims, which are normalized together
---@param weight? perigee.Tensor factors
---@param eps? number added to the mean square
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, normalized_shape: integer|integer[], options: {weight?: perigee.Tensor, eps?: number}): perigee.Tensor
function pg.rms_norm(x, normalized_shape, weight, eps) end

---x moved by shifts[i] along dims[i]; elements that leave at one end enter at the other. The shifts of a dim that is named twice add up. Without dims the flattened elements move.
---@param x perigee.Tensor
---@param shifts integer|integer[] how far to move, negative backwards
---@param dims? integer|integer[] along which dims
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, shifts: integer|integer[], options: {dims?: integer|integer[]}): perigee.Tensor
function pg.roll(x, shifts, dims) end

---x turned by k quarters in the plane of two dims, from the first towards the second; a negative k turns back.
---@param x perigee.Tensor
---@param k? integer how many quarters
---@param dims? integer|integer[] the two dims of the plane
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {k?: integer, dims?: integer|integer[]}): perigee.Tensor
function pg.rot90(x, k, dims) end

---The nearest whole number, halves to the even one. The gradient is zero.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.round(x) end

---The tensors below each other: joined along dim 1; tensors of fewer than 2 dims count as rows. dtypes promote.
---Another name of vstack.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.row_stack(tensors) end

---x where it is positive, else x times a slope: in training a uniform random one from [lower, upper) for each element, otherwise their mean. Xu et al., Empirical evaluation of rectified activations in convolutional network, 2015.
---@param x perigee.Tensor
---@param lower? number the smallest slope
---@param upper? number the limit of the slopes
---@param training? boolean whether slopes are random; nil follows the mode
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {lower?: number, upper?: number, training?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.rrelu(x, lower, upper, training) end

---1 / sqrt(x). Integers give float32.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.rsqrt(x) end

---softmax(query keyᵀ scale + mask) value over the last two dims (positions, features). A bool mask keeps the products where it is true; a floating mask is added. dropout_p acts in training. Vaswani et al., Attention is all you need, 2017. With enable_gqa, key and value may have fewer heads (dim -3) than query, a divisor of their number. Ainslie et al., GQA, 2023. Takes memory linear in the numbers of positions, except for the gradient of attn_mask (Dao, FlashAttention-2, 2023).
---@param query perigee.Tensor
---@param key perigee.Tensor
---@param value perigee.Tensor
---@param attn_mask? perigee.Tensor
---@param dropout_p? number share of the weights that is dropped in training
---@param is_causal? boolean hide the positions after each query's own
---@param scale? number factor of the products; 1 / sqrt(features) by default
---@param enable_gqa? boolean each head of key and value serves a group of heads of query
---@return perigee.Tensor out
---@overload fun(query: perigee.Tensor, key: perigee.Tensor, value: perigee.Tensor, options: {attn_mask?: perigee.Tensor, dropout_p?: number, is_causal?: boolean, scale?: number, enable_gqa?: boolean, generator?: perigee.Generator}): perigee.Tensor
function pg.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa) end

---x with src, a tensor or a number, written at the positions that `index` names along `dim`: out[index[i][j]][j] = src[i][j] for dim 1. Of several values for one element the last stays. src has at least the sizes of index.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param src perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, src: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.scatter(x, dim, index, src, index_base) end

---x with src, a tensor or a number, added at the positions that `index` names along `dim`: out[index[i][j]][j] += src[i][j] for dim 1, in the order of src.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param src perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, src: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.scatter_add(x, dim, index, src, index_base) end

---x with the elements of src reduced into the positions that `index` names along `dim`: out[index[i][j]][j] is the sum, product, mean or extreme of itself (unless include_self is false) and all src[i][j] for it. Positions that the index does not name stay. Integer means round down. src has at least the sizes of index. Equal extremes share the gradient, as in PyTorch with that of x even where it is not included; that of a product is exact where factors are 0.
---@param x perigee.Tensor
---@param dim integer the dim that the index values are positions of
---@param index perigee.Tensor
---@param src perigee.Tensor
---@param reduce "sum"|"prod"|"mean"|"amax"|"amin" how elements for one position are joined
---@param include_self? boolean whether the element of x is one of those that are joined
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, dim: integer, index: perigee.Tensor, src: perigee.Tensor, reduce: "sum"|"prod"|"mean"|"amax"|"amin", options: {include_self?: boolean, index_base?: integer}): perigee.Tensor
function pg.scatter_reduce(x, dim, index, src, reduce, include_self, index_base) end

---Where each of `values` is to be inserted into the last dim of sorted_sequence to keep it in order: the position of the first element that is not less (with right = true, that is greater). sorted_sequence has 1 dim or the leading sizes of values.
---@param sorted_sequence perigee.Tensor
---@param values perigee.Tensor
---@param right? boolean insert after equal elements
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(sorted_sequence: perigee.Tensor, values: perigee.Tensor, options: {right?: boolean, index_base?: integer}): perigee.Tensor
function pg.searchsorted(sorted_sequence, values, right, index_base) end

---Position `index` of dim `dim` (1-based, negative from the end), without that dim. A view.
---@param x perigee.Tensor
---@param dim integer the dim to select on
---@param index integer the position
---@return perigee.Tensor out
function pg.select(x, dim, index) end

---The scaled exponential linear unit that keeps mean and variance. Klambauer et al., Self-normalizing neural networks, 2017.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.selu(x) end

---The last step of each sequence: x without the time dim. Every sequence has at least one step.
---@param x perigee.Tensor
---@param lengths? perigee.Tensor steps of each sequence; all without
---@param dim? integer the time dim, 1 or 2
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {lengths?: perigee.Tensor, dim?: integer}): perigee.Tensor
function pg.sequence_last(x, lengths, dim) end

---x with `value` in the steps after the end of each sequence.
---@param x perigee.Tensor
---@param lengths? perigee.Tensor steps of each sequence; all without
---@param value? number the number stored after the end
---@param dim? integer the time dim, 1 or 2
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {lengths?: perigee.Tensor, value?: number, dim?: integer}): perigee.Tensor
function pg.sequence_mask(x, lengths, value, dim) end

---x with the steps of each sequence in reverse order; the steps after its end stay.
---@param x perigee.Tensor
---@param lengths? perigee.Tensor steps of each sequence; all without
---@param dim? integer the time dim, 1 or 2
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {lengths?: perigee.Tensor, dim?: integer}): perigee.Tensor
function pg.sequence_reverse(x, lengths, dim) end

---m = momentum m - lr (g + wd w); w + m. Answers the new weights, then the new moms. g is the rescaled, clipped gradient.
---@param weights perigee.Tensor[] the parameters
---@param grads perigee.Tensor[] a gradient for each
---@param moms perigee.Tensor[] the last step of each weight
---@param rates? perigee.Tensor lr, wd, t and rescale_grad in its rows, one column for all or one for each weight; instead of the attributes. A fifth row replaces momentum or beta1
---@param lr number[] learning rate, one for all or one for each weight
---@param wd? number[] weight decay, one for all or one for each weight
---@param rescale_grad? number factor on the gradients
---@param clip_gradient? number bound on the size of each element of a rescaled gradient
---@param t? integer|integer[] number of updates, this one included; one for all or one for each weight
---@param momentum? number share of the last step that is kept
---@return perigee.Tensor[]
---@overload fun(weights: perigee.Tensor[], grads: perigee.Tensor[], moms: perigee.Tensor[], rates?: perigee.Tensor, lr: number[], options: {wd?: number[], rescale_grad?: number, clip_gradient?: number, t?: integer|integer[], momentum?: number}): perigee.Tensor[]
function pg.sgd_momentum_update(weights, grads, moms, rates, lr, wd, rescale_grad, clip_gradient, t, momentum) end

---w - lr (g + wd w), with g the rescaled, clipped gradient, for all weights at once; returns the new weights.
---@param weights perigee.Tensor[] the parameters
---@param grads perigee.Tensor[] a gradient for each
---@param rates? perigee.Tensor lr, wd, t and rescale_grad in its rows, one column for all or one for each weight; instead of the attributes. A fifth row replaces momentum or beta1
---@param lr number[] learning rate, one for all or one for each weight
---@param wd? number[] weight decay, one for all or one for each weight
---@param rescale_grad? number factor on the gradients
---@param clip_gradient? number bound on the size of each element of a rescaled gradient
---@param t? integer|integer[] number of updates, this one included; one for all or one for each weight
---@return perigee.Tensor[]
---@overload fun(weights: perigee.Tensor[], grads: perigee.Tensor[], rates?: perigee.Tensor, lr: number[], options: {wd?: number[], rescale_grad?: number, clip_gradient?: number, t?: integer|integer[]}): perigee.Tensor[]
function pg.sgd_update(weights, grads, rates, lr, wd, rescale_grad, clip_gradient, t) end

---1 / (1 + exp(-x)).
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.sigmoid(x) end

----1, 0 or 1; 0 for NaN. The gradient is zero.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.sign(x) end

---x sigmoid(x), also known as swish. Elfwing et al., Sigmoid-weighted linear units, 2017.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.silu(x) end

---The sine of x in radians.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.sin(x) end

---The hyperbolic sine.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.sinh(x) end

---d^2 / (2 beta) where |d| <= beta, else |d| - beta / 2, with d = x - target, reduced.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@param beta? number where the square ends
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum", beta?: number}): perigee.Tensor
function pg.smooth_l1_loss(x, target, reduction, beta) end

---log(1 + exp(-target x)) for targets 1 and -1, reduced. target has the shape of x, but for dims of size 1.
---@param x perigee.Tensor
---@param target perigee.Tensor
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, target: perigee.Tensor, options: {reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.soft_margin_loss(x, target, reduction) end

---exp(x) over its sum along dim, without overflow.
---@param x perigee.Tensor
---@param dim? integer the dim along which the results belong together
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer, dtype?: perigee.DType}): perigee.Tensor
function pg.softmax(x, dim) end

---softmax(-x) along dim.
---@param x perigee.Tensor
---@param dim? integer the dim along which the results belong together
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer, dtype?: perigee.DType}): perigee.Tensor
function pg.softmin(x, dim) end

---log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
---@param x perigee.Tensor|number
---@param beta? number the sharpness
---@param threshold? number where it becomes linear
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {beta?: number, threshold?: number}): perigee.Tensor
function pg.softplus(x, beta, threshold) end

---x moved towards 0 by lambda, and 0 where |x| is at most lambda.
---@param x perigee.Tensor|number
---@param lambda? number what is taken off |x|
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, options: {lambda?: number}): perigee.Tensor
function pg.softshrink(x, lambda) end

---x / (1 + |x|).
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.softsign(x) end

---x in ascending order along `dim`, and the original position of each element. Equal elements keep their order; NaN counts as the largest value.
---@param x perigee.Tensor
---@param dim? integer the dim to order along
---@param descending? boolean the largest first
---@param stable? boolean accepted; equal values always keep their order
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, options: {dim?: integer, descending?: boolean, stable?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.sort(x, dim, descending, stable, index_base) end

---Cuts x along `dim` into pieces of split_size (the last may be smaller), or into pieces of the listed sizes, which sum to the size of the dim. An array table of views.
---@param x perigee.Tensor
---@param split_size integer|integer[] size of each piece, or a list of sizes
---@param dim? integer the dim to cut along
---@return perigee.Tensor[]
---@overload fun(x: perigee.Tensor, split_size: integer|integer[], options: {dim?: integer}): perigee.Tensor[]
function pg.split(x, split_size, dim) end

---The square root; NaN below 0. Integers give float32.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.sqrt(x) end

---x * x.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.square(x) end

---x without its dims of size 1, or without those among `dim` that have size 1.
---@param x perigee.Tensor
---@param dim? integer|integer[] dims to drop where their size is 1; all by default
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[]}): perigee.Tensor
function pg.squeeze(x, dim) end

---The tensors, all of one shape, along a new dim `dim` of the result. dtypes promote.
---@param tensors perigee.Tensor[]
---@param dim? integer position of the new dim
---@return perigee.Tensor out
---@overload fun(tensors: perigee.Tensor[], options: {dim?: integer}): perigee.Tensor
function pg.stack(tensors, dim) end

---The standard deviation over dims, the root of var. The gradient is 0 where the deviation is.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor
function pg.std(x, dim, correction, keepdim) end

---The standard deviation and the mean over dims; see std and mean.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor std
---@return perigee.Tensor mean
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor, perigee.Tensor
function pg.std_mean(x, dim, correction, keepdim) end

---The Fourier transforms of overlapping frames of x (size) or (batch, size): (frequencies, frames, 2), with a batch if x has one. The last dim is (real, imaginary).
---@param x perigee.Tensor
---@param n_fft integer the size of a frame
---@param hop_length? integer the distance between frames; n_fft / 4 if nil
---@param win_length? integer the size of the window, which zeros surround; n_fft if nil
---@param window? perigee.Tensor factors of a frame; ones without
---@param center? boolean whether the frames are centered at their elements, with padding at both ends
---@param pad_mode? "reflect"|"constant"|"replicate" the padding of `center`
---@param normalized? boolean with a factor 1 / sqrt(n_fft)
---@param onesided? boolean the frequencies 0 to n_fft / 2 only
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, n_fft: integer, options: {hop_length?: integer, win_length?: integer, window?: perigee.Tensor, center?: boolean, pad_mode?: "reflect"|"constant"|"replicate", normalized?: boolean, onesided?: boolean}): perigee.Tensor
function pg.stft(x, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided) end

---x - y, with broadcasting; with alpha x - alpha y. Bool tensors are refused, except beside a number.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function pg.sub(x, y) end

---x - y, with broadcasting; with alpha x - alpha y. Bool tensors are refused, except beside a number.
---Another name of sub.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {alpha?: number}): perigee.Tensor
function pg.subtract(x, y) end

---The sum over dims; 0 for no elements. bool and integers give int64. Floats are added in blocks in a fixed order, so the result does not depend on the number of threads.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], keepdim?: boolean, dtype?: perigee.DType}): perigee.Tensor
function pg.sum(x, dim, keepdim) end

---Sums x down to a shape that broadcasts to its own, the reverse of expand.
---@param x perigee.Tensor
---@param shape integer|integer[] the shape of the result
---@return perigee.Tensor out
function pg.sum_to(x, shape) end

---x with two dims exchanged. A view.
---Another name of transpose.
---@param x perigee.Tensor
---@param dim0 integer one dim
---@param dim1 integer the other
---@return perigee.Tensor out
function pg.swapaxes(x, dim0, dim1) end

---x with two dims exchanged. A view.
---Another name of transpose.
---@param x perigee.Tensor
---@param dim0 integer one dim
---@param dim1 integer the other
---@return perigee.Tensor out
function pg.swapdims(x, dim0, dim1) end

---The transpose of a matrix; tensors of 0 or 1 dims come back as they are. A view.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.t(x) end

---The elements of the flattened x at the positions `index`; the result has the shape of index.
---@param x perigee.Tensor
---@param index perigee.Tensor
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, index: perigee.Tensor, options: {index_base?: integer}): perigee.Tensor
function pg.take(x, index, index_base) end

---The elements of x at the positions that `index` names along `dim`, as argsort and argmax return them; the other sizes broadcast. Without dim both are flattened.
---@param x perigee.Tensor
---@param index perigee.Tensor
---@param dim? integer the dim that the index values are positions of
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, index: perigee.Tensor, options: {dim?: integer, index_base?: integer}): perigee.Tensor
function pg.take_along_dim(x, index, dim, index_base) end

---The tangent of x in radians.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.tan(x) end

---The hyperbolic tangent.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.tanh(x) end

---x - tanh(x), accurate near 0.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.tanhshrink(x) end

---The sum of products over dims of a and of b: over the last dims of a and the first of b if `dims` is their count, else over the listed dims of a with those of b, as in pg.tensordot(a, b, {{1, 3}, {2, 1}}). The result has the other dims of a, then those of b.
---@param a perigee.Tensor
---@param b perigee.Tensor
---@param dims? integer|integer[] how many dims to sum over, or the dims of a
---@param dims_b? integer|integer[] the dims of b, as many as dims has
---@return perigee.Tensor out
---@overload fun(a: perigee.Tensor, b: perigee.Tensor, options: {dims?: integer|integer[], dims_b?: integer|integer[]}): perigee.Tensor
function pg.tensordot(a, b, dims, dims_b) end

---x where it is above threshold, else value.
---@param x perigee.Tensor|number
---@param threshold number the limit
---@param value number what replaces the elements up to the limit
---@return perigee.Tensor out
function pg.threshold(x, threshold, value) end

---x repeated dims[i] times along dim i, aligned at the last dim; more counts than dims add leading dims.
---@param x perigee.Tensor
---@param dims integer|integer[] how often to repeat along each dim
---@return perigee.Tensor out
function pg.tile(x, dims) end

---x in another dtype or on another device; x itself where nothing changes. Floats become integers by truncation, and numbers out of range saturate (NaN gives 0); integers that do not fit wrap. The gradient is converted back.
---@param x perigee.Tensor
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.to(x, dtype, device) end

---The k largest (or smallest) elements along `dim` in order, and their positions in x. NaN counts as the largest value.
---@param x perigee.Tensor
---@param k integer how many
---@param dim? integer the dim to order along
---@param largest? boolean the largest elements, else the smallest
---@param sorted? boolean accepted; the result is always in order
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor indices
---@overload fun(x: perigee.Tensor, k: integer, options: {dim?: integer, largest?: boolean, sorted?: boolean, index_base?: integer}): perigee.Tensor, perigee.Tensor
function pg.topk(x, k, dim, largest, sorted, index_base) end

---The sum of the diagonal of a matrix. Integers and bool give int64. pg.trace of a function instead prints what the ops in it got and gave.
---@param x perigee.Tensor
---@return perigee.Tensor out
function pg.trace(x) end

---x with two dims exchanged. A view.
---@param x perigee.Tensor
---@param dim0 integer one dim
---@param dim1 integer the other
---@return perigee.Tensor out
function pg.transpose(x, dim0, dim1) end

---The lower triangle of the matrices in the last two dims; elements above diagonal `diagonal` become 0.
---@param x perigee.Tensor
---@param diagonal? integer 0 is the main diagonal, positive ones are above it
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {diagonal?: integer}): perigee.Tensor
function pg.tril(x, diagonal) end

---The rows (first) and columns of the lower triangle of a row x col matrix, row by row: int64 of shape 2 x count.
---@param row integer how many rows
---@param col integer how many columns
---@param offset? integer 0 is the main diagonal, positive ones are above it
---@param index_base? integer the number of the first position in index values
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(row: integer, col: integer, options: {offset?: integer, index_base?: integer, device?: string}): perigee.Tensor
function pg.tril_indices(row, col, offset, index_base, device) end

---max(0, d(anchor, positive) - d(anchor, negative) + margin), reduced, with the p-norm d of the differences plus eps over the last dim. swap takes d(positive, negative) where that is smaller. Balntas et al., Learning local feature descriptors with triplets and shallow convolutional neural networks, 2016.
---@param anchor perigee.Tensor
---@param positive perigee.Tensor
---@param negative perigee.Tensor
---@param margin? number the margin
---@param p? number the order of the norm
---@param eps? number added to the differences
---@param swap? boolean use the smaller distance to negative
---@param reduction? "none"|"mean"|"sum" none, mean or sum
---@return perigee.Tensor out
---@overload fun(anchor: perigee.Tensor, positive: perigee.Tensor, negative: perigee.Tensor, options: {margin?: number, p?: number, eps?: number, swap?: boolean, reduction?: "none"|"mean"|"sum"}): perigee.Tensor
function pg.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction) end

---The upper triangle of the matrices in the last two dims; elements below diagonal `diagonal` become 0.
---@param x perigee.Tensor
---@param diagonal? integer 0 is the main diagonal, positive ones are above it
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {diagonal?: integer}): perigee.Tensor
function pg.triu(x, diagonal) end

---The rows (first) and columns of the upper triangle of a row x col matrix, row by row: int64 of shape 2 x count.
---@param row integer how many rows
---@param col integer how many columns
---@param offset? integer 0 is the main diagonal, positive ones are above it
---@param index_base? integer the number of the first position in index values
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(row: integer, col: integer, options: {offset?: integer, index_base?: integer, device?: string}): perigee.Tensor
function pg.triu_indices(row, col, offset, index_base, device) end

---x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.
---Another name of div.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor|number, y: perigee.Tensor|number, options: {rounding_mode?: "trunc"|"floor"}): perigee.Tensor
function pg.true_divide(x, y) end

---x without its fraction. The gradient is zero.
---@param x perigee.Tensor|number
---@return perigee.Tensor out
function pg.trunc(x) end

---x / y rounded towards zero, with broadcasting; div with rounding_mode = "trunc". Keeps integer dtypes; an integer divisor of 0 is an error. The gradient is zero.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.trunc_divide(x, y) end

---x in the dtype of `other`; see to.
---@param x perigee.Tensor
---@param other perigee.Tensor
---@return perigee.Tensor out
function pg.type_as(x, other) end

---The positions of dim `dim`, each without that dim. An array table of views.
---@param x perigee.Tensor
---@param dim? integer the dim to cut along
---@return perigee.Tensor[]
---@overload fun(x: perigee.Tensor, options: {dim?: integer}): perigee.Tensor[]
function pg.unbind(x, dim) end

---x with dim `dim` split into dims of the given sizes, one of which may be -1 and is computed.
---@param x perigee.Tensor
---@param dim integer the dim to split
---@param sizes integer|integer[] what it becomes
---@return perigee.Tensor out
function pg.unflatten(x, dim, sizes) end

---The windows of images x (batch, channels, height, width) as columns: (batch, channels kh kw, windows).
---@param x perigee.Tensor
---@param kernel_size integer|integer[] height and width of the window
---@param dilation? integer|integer[] distance between the elements of the window
---@param padding? integer|integer[] zeros around the image
---@param stride? integer|integer[] step of the window
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, kernel_size: integer|integer[], options: {dilation?: integer|integer[], padding?: integer|integer[], stride?: integer|integer[]}): perigee.Tensor
function pg.unfold(x, kernel_size, dilation, padding, stride) end

---Uniform random numbers from [from, to) in shape and dtype of x; x:uniform_(a, b) fills x.
---@param x perigee.Tensor
---@param from? number the smallest number
---@param to? number the end, not included
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {from?: number, to?: number, generator?: perigee.Generator}): perigee.Tensor
function pg.uniform(x, from, to) end

---The different values of x in ascending order as a 1-dim tensor; then, if asked for, for each element of x its position among them, and how often each occurs. With dim the same of the slices at its positions, ordered element by element. Every NaN is different. The size depends on values: eager only.
---@param x perigee.Tensor
---@param sorted? boolean accepted; the result is always in order
---@param return_inverse? boolean also return `inverse`
---@param return_counts? boolean also return `counts`
---@param dim? integer the dim whose slices to compare
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor inverse
---@return perigee.Tensor counts
---@overload fun(x: perigee.Tensor, options: {sorted?: boolean, return_inverse?: boolean, return_counts?: boolean, dim?: integer, index_base?: integer}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function pg.unique(x, sorted, return_inverse, return_counts, dim, index_base) end

---The values of x without those that equal the one before them; otherwise like unique. The size depends on values: eager only.
---@param x perigee.Tensor
---@param return_inverse? boolean also return `inverse`
---@param return_counts? boolean also return `counts`
---@param dim? integer the dim whose slices to compare
---@param index_base? integer the number of the first position in index values
---@return perigee.Tensor values
---@return perigee.Tensor inverse
---@return perigee.Tensor counts
---@overload fun(x: perigee.Tensor, options: {return_inverse?: boolean, return_counts?: boolean, dim?: integer, index_base?: integer}): perigee.Tensor, perigee.Tensor, perigee.Tensor
function pg.unique_consecutive(x, return_inverse, return_counts, dim, index_base) end

---x with a new dim of size 1 that becomes dim `dim` of the result.
---@param x perigee.Tensor
---@param dim integer position of the new dim in the result
---@return perigee.Tensor out
function pg.unsqueeze(x, dim) end

---The matrix with a row of powers of each element of the 1-dim x, the highest first. Integers give int64.
---@param x perigee.Tensor
---@param n? integer how many powers; as many as elements when nil
---@param increasing? boolean the lowest power first
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {n?: integer, increasing?: boolean}): perigee.Tensor
function pg.vander(x, n, increasing) end

---The variance over dims: squared deviations from the mean over n - correction.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor
function pg.var(x, dim, correction, keepdim) end

---The variance and the mean over dims; see var and mean.
---@param x perigee.Tensor
---@param dim? integer|integer[] the dims to reduce; all when absent
---@param correction? number taken from the number of elements in the divisor
---@param keepdim? boolean keep reduced dims with size 1
---@return perigee.Tensor var
---@return perigee.Tensor mean
---@overload fun(x: perigee.Tensor, options: {dim?: integer|integer[], correction?: number, keepdim?: boolean, unbiased?: boolean}): perigee.Tensor, perigee.Tensor
function pg.var_mean(x, dim, correction, keepdim) end

---The sum of products of two vectors.
---@param x perigee.Tensor
---@param y perigee.Tensor
---@return perigee.Tensor out
function pg.vdot(x, y) end

---The elements of x in the same order under another shape. In `shape` 0 copies the dim of x at that place and one -1 is computed from the other sizes. A view where the strides of x allow it. Shares no writes with x.
---Another name of reshape.
---@param x perigee.Tensor
---@param shape integer|integer[] sizes of the result
---@return perigee.Tensor out
function pg.view(x, shape) end

---x under the shape of `other`, which has as many elements.
---Another name of reshape_as.
---@param x perigee.Tensor
---@param other perigee.Tensor
---@return perigee.Tensor out
function pg.view_as(x, other) end

---The tensors below each other: joined along dim 1; tensors of fewer than 2 dims count as rows. dtypes promote.
---@param tensors perigee.Tensor[]
---@return perigee.Tensor out
function pg.vstack(tensors) end

---x where the bool condition is true, else y, with broadcasting of all three. The condition gets no gradient.
---@param condition perigee.Tensor|number
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.where(condition, x, y) end

---x log(y), with broadcasting; 0 where x is 0 unless y is NaN. Integers give float32.
---@param x perigee.Tensor|number
---@param y perigee.Tensor|number
---@return perigee.Tensor out
function pg.xlogy(x, y) end

---A tensor of zeros.
---@param shape integer|integer[] the sizes; an empty list is 0-dim
---@param dtype? perigee.DType the dtype of the result
---@param device? string device of the result
---@return perigee.Tensor out
---@overload fun(shape: integer|integer[], options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.zeros(shape, dtype, device) end

---Zeros of the shape of x.
---@param x perigee.Tensor
---@param dtype? perigee.DType the dtype of the result; x's when nil
---@param device? string device of the result; x's when nil
---@return perigee.Tensor out
---@overload fun(x: perigee.Tensor, options: {dtype?: perigee.DType, device?: string}): perigee.Tensor
function pg.zeros_like(x, dtype, device) end

---pg.Generator(seed) -> a separate random stream, for the option `generator` of random ops.
---@param seed any
---@return any
function pg.Generator(seed) end

---x:allclose(y[, {rtol = 1e-5, atol = 1e-8, equal_nan = false}]) -> whether |x - y| <= atol + rtol * |y| for all
---elements.
---@param x any
---@param y any
---@param options any
---@return any
function pg.allclose(x, y, options) end

---pg.checkpoint(f, ...) -> the results of f, run without keeping its intermediate results. backward computes them
---again, with the same flags, random numbers and values of the tensors that f changes, and without changing any of them
---a second time. Other tensors that f gets from outside must not change before backward. Eagerly f is called a second time:
---assignments to variables and fields happen again, as in n = n + 1. If that leads to other ops, numbers or tensors of few
---elements, backward raises.
---@param f any
---@param ... any
---@return any
function pg.checkpoint(f, ...) end

---pg.cond(pred, then_f, else_f, …) -> what then_f(…) returns if pred (a boolean, or a tensor of one element) is true,
---else what else_f(…) returns. Only the taken branch runs. If pred is a tensor, both branches are traced once and must
---return the same structure, shapes and dtypes. Gradients flow through the taken branch; inputs of the other branch
---only get zeros.
---@param pred any
---@param then_f any
---@param else_f any
---@param ... any
---@return any
function pg.cond(pred, then_f, else_f, ...) end

---pg.constant(v[, {dtype =, device =}]) -> a tensor that is saved with its block but never trained. v is a tensor, a number
---or a nested table.
---@param v any
---@param options any
---@return any
function pg.constant(v, options) end

---pg.debug(f, …) -> what f(…) returns, run with graphs off: hybridized blocks and jitted functions run as plain Lua,
---and every value can be read. The branch that a cond does not take is traced only, to check it and to keep the random
---numbers the same. A first step of a loop that infers the shapes of parameters draws other random numbers than a graph. A
---debugger that has set a hook (debug.sethook) sees every line of a forward; LuaJIT's compiler is off meanwhile.
---@param f any
---@param ... any
---@return any
function pg.debug(f, ...) end

---pg.devices() -> the names of the devices that can be used now.
---@return any
function pg.devices() end

---x:equal(y) -> whether dtype, shape and all elements are the same.
---@param x any
---@param y any
---@return any
function pg.equal(x, y) end

---pg.foreach(body, data, states[, {checkpoint =}]) -> outs, states. data is a tree of tensors; body(item, states) runs
---for each index along their dim 1 and returns the outputs of the step and the new states. The outputs of all steps
---are stacked along dim 1. States keep structure, shapes and dtypes. With checkpoint = k the gradient stores the
---states of every k-th step and recomputes the others.
---@param body any
---@param data any
---@param states any
---@param options any
---@return any
function pg.foreach(body, data, states, options) end

---pg.from_bytes(bytes, dtype[, shape]) -> a tensor whose elements are the bytes of a string, in row-major order.
---@param bytes any
---@param dtype any
---@param shape any
---@return any
function pg.from_bytes(bytes, dtype, shape) end

---pg.get_num_threads() -> the most threads that kernels use.
---@return any
function pg.get_num_threads() end

---pg.grad(f[, argnum = 1]) -> a function that returns the gradient of the scalar function f with respect to argument
---argnum. A list of argument numbers gives one result for each. Arguments may be trees.
---@param f any
---@param argnum any
---@return any
function pg.grad(f, argnum) end

---pg.graph(outputs, inputs) -> a Graph. outputs is a tree of symbols (see pg.symbol) or of internals of another Graph
---(see g:internals). inputs is a symbol or a list of symbols, in the order of the arguments of run.
---@param outputs any
---@param inputs any
---@return any
function pg.graph(outputs, inputs) end

---pg.gru(x, h0, weights, {options of pg.lstm}) -> y, hn: layers of gated recurrent units, called like pg.lstm. The
---order of the gates is reset, update, new.
---@param x any
---@param h0 any
---@param weights any
---@param options any
---@return any
function pg.gru(x, h0, weights, options) end

---pg.help([what]) prints the documentation of a function, an op, a class or a module, or of the one with that name,
---and the example of an op with its result. Without arguments it prints an overview. It returns nothing. In a traced
---function it prints once, while that is traced.
---@param what any
---@return any
function pg.help(what) end

---pg.instruction_set() -> "amx" (tiles of bfloat16 besides AVX-512), "avx512", "avx2", "sse4" or "sse2" ("neon" on ARM): the
---instructions that kernels on the CPU use. The environment variable PERIGEE_MAX_ISA can lower it.
---@return any
function pg.instruction_set() end

---pg.is_recording() -> whether ops are recorded.
---@return any
function pg.is_recording() end

---pg.is_tensor(v) -> whether v is a tensor. Takes any value, also nil.
---@param v any
---@return any
function pg.is_tensor(v) end

---pg.is_training() -> whether ops such as dropout and batch_norm run in training mode.
---@return any
function pg.is_training() end

---pg.jit(f[, {static_alloc=, static_shape=, name=}]) -> a callable with cache_info() and graph() that runs f as a
---native graph. f takes and returns tensors, numbers, booleans, strings and trees of them. f may be a whole training
---step. What f reads is guarded, see Block:hybridize. Raises if f reads the value of a tensor. If no graph can repeat what
---f does, f runs as plain Lua and a warning says why. The call that finds out starts again, so what it prints or writes to
---files happens twice.
---@param f any
---@param options any
---@return any
function pg.jit(f, options) end

---pg.job(f, …) -> a job that calls f(…) in slices: see job:step. f needs no change: it is stopped between two ops,
---between two steps of loops and of compiled plans, in kernels between the parts that a thread runs, and in plain Lua
---code. Not stopped are traces and, in a Lua state that the library did not open, Lua code without ops. Between slices
---others see parameters and `.grad` as the last complete op or program left them. A job begins outside of pg.record and
---other scopes of its caller, with a copy of the default random state. While a slice runs, LuaJIT's compiler is off, and
---it never compiles f.
---@param f any
---@param ... any
---@return any
function pg.job(f, ...) end

---y, dy = pg.jvp(f, {primals}, {tangents}): y is the result of f, dy its directional derivative along the tangents. It
---differentiates the vjp, which is linear in its cotangent, a second time. Raises if the lists differ in length or a
---tangent in its shape.
---@param f any
---@param options any
---@return any
function pg.jvp(f, options) end

---pg.keep(x) -> x. No enclosing pg.scope frees it.
---@param x any
---@return any
function pg.keep(x) end

---pg.live(f) -> a 0-dim float32 tensor with the number that f() returns. Inside hybridized code f is called before
---each run.
---@param f any
---@return any
function pg.live(f) end

---pg.load(path) -> the tensors of a .safetensors or .npz file by name, or the tensor of a .npy file. Files in an .npz
---archive that are not arrays are left out. Of a .params file of MXNet the arrays by name, or as a list if they have no
---names; sparse ones become dense. NumPy's int16 and uint16 become int32, uint32 and uint64 int64.
---@param path any
---@return any
function pg.load(path) end

---pg.loop(count, body, state[, {checkpoint =}]) -> the state after count steps of state = body(i, state), where i is a
---0-dim int64 tensor from 1 to count. count is a whole number >= 0 or a 0-dim tensor. checkpoint: see pg.foreach.
---@param count any
---@param body any
---@param state any
---@param options any
---@return any
function pg.loop(count, body, state, options) end

---pg.lstm(x, states, weights, {num_layers =, bidirectional = false, dropout = 0, batch_first = false, train =,
---has_biases =, sequence_length =}) -> y, hn, cn: layers of long short-term memory over x (time, batch, size). states
---is {h0, c0}, each (layers * directions, batch, hidden), or nil for zeros. weights lists w_ih, w_hh, b_ih, b_hh for
---each layer and direction, with the gates in the order in, forget, cell, out. dropout acts between layers if train is
---true, or in training mode if train is nil. The tensors may also be passed one by one. See nn.rnn.LSTM.
---@param x any
---@param states any
---@param weights any
---@param options any
---@return any
function pg.lstm(x, states, weights, options) end

---pg.manual_seed(seed) restarts the default random stream. A hybridized block or jitted function that calls it, or makes or
---seeds a Generator, runs as plain Lua, with a warning.
---@param seed any
---@return any
function pg.manual_seed(seed) end

---pg.memory() -> {live =, cached =, peak =, tensors =}: bytes in use, bytes kept for reuse, the highest number of
---bytes in use so far, and the number of tensors.
---@return any
function pg.memory() end

---pg.no_grad(f[, {train =}]) -> the results of f, run with recording off: no gradients flow through it. The same as
---pg.pause(f). Training stays as it is; pg.predict_mode(f) or {train = false} turns it off.
---@param f any
---@param options any
---@return any
function pg.no_grad(f, options) end

---pg.ops() -> the sorted names of the registry.
---@return any
function pg.ops() end

---pg.param{shape=, dtype=, init=, grad_req=, lr_mult=, wd_mult=, differentiable=} -> a parameter: a tensor that gets
---its value from `initialize`. A 0 in shape is a dim that the first call infers. init is an initializer, its name, a
---number or a tensor. grad_req is "write", "add" or "null" (frozen). pg.param(tensor[, options]) makes a parameter
---with a copy of the tensor as value.
---@param options any
---@return any
function pg.param(options) end

---pg.pause(f[, {train =}]) -> the results of f, run with recording off: no gradients flow through it. The same as
---pg.no_grad(f). Unlike MXNet's pause it leaves training as it is, so dropout inside pg.record still drops:
---pg.predict_mode(f) or {train = false} turns training off.
---@param f any
---@param options any
---@return any
function pg.pause(f, options) end

---pg.predict_mode(f) -> the results of f, run with training off. Recording does not change.
---@param f any
---@return any
function pg.predict_mode(f) end

---pg.print(label, x) prints the label and the value of x. Inside a hybridized block or pg.jit it prints at every run.
---@param label any
---@param x any
---@return any
function pg.print(label, x) end

---pg.profile(f[, {path =, max_events = 1000000}]) -> report, the results of f. tostring(report) shows where the time
---went, the most first: report.ops (eager ops), report.kernels (of graphs) and report.lines (of scripts) are lists of
---{name =, line =, count =, ms =, bytes =}, where ms is without the ops inside and bytes is what was written.
---report.graphs has {name =, runs =, ms =, hits =, traces =, retraces =, reasons =, compiled =} of each hybridized
---block and jitted function, report.collector {steps =, ms =, cycles =}, report.backward {count =, ms =}, and
---report.total the time of f in milliseconds. path: a file for the events, which Perfetto (ui.perfetto.dev) and Chrome
---(chrome://tracing) show; events after the first max_events are only in the sums. Work on other devices than the CPU
---is waited for. An error of f ends the profile. Raises inside another profile.
---@param f any
---@param options any
---@return any
function pg.profile(f, options) end

---pg.progress(fraction) sets what job:progress() returns, inside a job. It does nothing outside of a job.
---@param fraction any
---@return any
function pg.progress(fraction) end

---pg.record(f, {train = true}) -> the results of f, run with recording on, and training on unless train = false.
---@param f any
---@param options any
---@return any
function pg.record(f, options) end

---pg.rnn(x, h0, weights, {nonlinearity = "tanh", options of pg.lstm}) -> y, hn: layers of h = nonlinearity(x w_ihᵀ + h
---w_hhᵀ + biases), where nonlinearity is "tanh" or "relu". Called like pg.lstm.
---@param x any
---@param h0 any
---@param weights any
---@param options any
---@return any
function pg.rnn(x, h0, weights, options) end

---pg.save(path, tensors) writes a table of tensors by name to a .safetensors file, or one tensor to a .npy file,
---atomically. Whole numbers as keys become names: the list {a, b} loads as {["1"] = a, ["2"] = b}.
---@param path any
---@param tensors any
---@return any
function pg.save(path, tensors) end

---pg.scope(f) runs f, frees every tensor that f made and did not return, and returns the results of f.
---@param f any
---@return any
function pg.scope(f) end

---pg.set_num_threads(n) limits kernels to n threads.
---@param n any
---@return any
function pg.set_num_threads(n) end

---pg.symbol(name, {shape =, dtype = "float32"}) -> a symbolic tensor. Ops, functions and blocks that are called with
---it build a graph instead of computing. pg.graph and nn.SymbolBlock make a callable of that graph.
---@param name any
---@param options any
---@return any
function pg.symbol(name, options) end

---pg.synchronize(device) waits until the device has finished all its work.
---@param device any
---@return any
function pg.synchronize(device) end

---pg.tensor(data[, {dtype =, device =}]) -> a tensor from a number, a boolean, nested tables of them, or a copy of a
---tensor. The default dtype is float32 for numbers and bool for booleans. Ragged tables, tables with holes and numbers
---that the dtype cannot represent are errors. int64 cdata, as totable returns them, count as numbers.
---@param data any
---@param options any
---@return any
function pg.tensor(data, options) end

---pg.train_mode(f) -> the results of f, run with training on. Recording does not change.
---@param f any
---@return any
function pg.train_mode(f) end

---pg.type(v) -> "tensor", "block", "graph" or what Lua's type returns.
---@param v any
---@return any
function pg.type(v) end

---pg.value_and_grad(f[, argnum = 1]) -> a function that returns the value of f, then the gradients. See pg.grad.
---@param f any
---@param argnum any
---@return any
function pg.value_and_grad(f, argnum) end

---y, back = pg.vjp(f, ...): y is the result of f(...), and back(dy) returns one gradient per argument, nil for one that
---holds no floating tensor. Raises if dy does not have the structure and shapes of y.
---@param f any
---@param ... any
---@return any
function pg.vjp(f, ...) end

---pg.warm_up([f, …]) pays now for what the first calls of networks would pay: it starts threads, compiles kernels and
---loads modules of the library, once, in some hundredths of a second. With a function or a block it then calls f(…)
---twice in predict mode without a record, which prepares kernels for its shapes and, if f is hybridized, its graph.
---Random streams do not change.
---@param f any
---@param ... any
---@return any
function pg.warm_up(f, ...) end

---pg.while_loop(cond, body, vars[, {max_iterations =, checkpoint =}]) -> outs, vars, n. While cond(vars…) is true,
---body(vars…) runs and returns the outputs of the step (or nil) and the list of new variables. outs has max_iterations
---rows, with zeros after the last step. n is the number of steps, a 0-dim int64 tensor. Without max_iterations the
---number of steps has no limit, and a step has no outputs. checkpoint: see pg.foreach.
---@param cond any
---@param body any
---@param vars any
---@param options any
---@return any
function pg.while_loop(cond, body, vars, options) end

---pg.yield() gives the rest of the slice back, inside a job. It does nothing outside of a job and during a trace.
---@return any
function pg.yield() end

return pg
