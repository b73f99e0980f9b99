-- Names the script API promises: every op as a function of pg and, where it takes a tensor first, as a method.
local t = require "tests.support"
local pg = require "perigee"

local families = {
  unary = [[abs neg sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh
    cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma floor ceil round trunc isnan isinf isfinite clamp]],
  activation = [[relu relu6 leaky_relu prelu elu selu celu gelu silu mish sigmoid hardsigmoid hardswish hardtanh softplus
    softshrink softsign logsigmoid softmax log_softmax softmin glu]],
  binary = [[add sub mul div floor_divide remainder pow maximum minimum atan2 hypot lerp where eq ne lt le gt ge equal
    allclose logical_and logical_or logical_xor logical_not]],
  reduce = [[sum mean prod max min amax amin argmax argmin any all var std norm logsumexp count_nonzero cumsum cumprod
    cummax]],
  shape = [[reshape flatten squeeze unsqueeze transpose t permute moveaxis expand broadcast_to tile repeat_interleave cat
    stack split chunk unbind flip roll narrow select pad reshape_as expand_as sum_to]],
  index = [[gather scatter scatter_add index_select index_add take take_along_dim masked_fill masked_select nonzero topk
    sort argsort one_hot embedding pick tril triu diagonal diag unique bincount searchsorted]],
  linear = "matmul mm bmm mv dot outer einsum addmm baddbmm linear",
  neural = [[conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool adaptive_max_pool lp_pool batch_norm layer_norm group_norm
    instance_norm rms_norm dropout interpolate pixel_shuffle pixel_unshuffle scaled_dot_product_attention sequence_mask
    sequence_last sequence_reverse]],
  loss = [[cross_entropy nll_loss binary_cross_entropy_with_logits mse_loss l1_loss huber_loss smooth_l1_loss kl_div]],
}
local not_methods = {cat = true, stack = true, einsum = true}

for family, names in pairs(families) do
  t.test("every " .. family .. " op is in pg and is a method", function()
    local x, missing = pg.ones(2), {}
    for name in names:gmatch("%S+") do
      if not pcall(function() return assert(pg[name]) end) then missing[#missing + 1] = "pg." .. name end
      if not not_methods[name] and not pcall(function() return assert(x[name]) end) then missing[#missing + 1] = "x:" .. name end
    end
    t.equal(table.concat(missing, " "), "")
  end)
end

t.test("every op whose first argument is a tensor is a method, but those of modules", function()
  local x, missing = pg.ones(2), {}
  for _, name in ipairs(pg.ops()) do
    local row = pg.testing.op_row(name)
    local first = row.inputs[1]
    if first and first.arity == "one" and row.signature[1] == first.name and not row.public:find(".", 1, true)
        and not pcall(function() return assert(x[name]) end) then
      missing[#missing + 1] = name
    end
  end
  t.equal(missing, {})
  t.equal(pg.ones(16):stft(8):istft(8), pg.ones(16))
  t.equal(pg.ones(1, 2, 4, 4):deform_conv2d(pg.zeros(1, 18, 2, 2), pg.ones(1, 2, 3, 3)).shape, {1, 1, 2, 2})
  local scores, labels = pg.zeros(4, 1, 3):log_softmax(), pg.tensor({{2, 3}}, {dtype = "int64"})
  t.equal(scores:ctc_loss(labels), pg.ctc_loss(scores, labels))
end)

t.test("pg.linalg", function()
  local names = "cholesky qr svd eigh solve solve_triangular inv det slogdet norm matrix_power pinv"
  for name in names:gmatch("%S+") do t.check(pg.linalg[name], name) end
end)

t.test("creation, runtime and gradient functions", function()
  local names = [[tensor zeros ones full empty eye range linspace from_bytes rand randn randint randperm bernoulli
    multinomial manual_seed Generator zeros_like ones_like full_like rand_like randn_like assert is_tensor type ops help record pause
    no_grad train_mode predict_mode is_recording is_training grad value_and_grad vjp jvp checkpoint param constant save load
    scope keep memory set_num_threads devices synchronize version tree autograd nn loss optim data init metric utils linalg fft]]
  for name in names:gmatch("%S+") do t.check(pg[name] ~= nil, name) end
  for name in ("record pause no_grad train_mode predict_mode is_recording is_training grad backward Function detect_anomaly")
    :gmatch("%S+") do t.check(pg.autograd[name], "autograd." .. name) end
end)

t.test("pg.type and pg.is_tensor tell what a value is", function()
  local net = pg.nn.Dense(2, {in_units = 2})
  net:initialize()
  net:hybridize()
  net(pg.ones(1, 2))
  local graph = net:freeze()
  t.equal({pg.type(pg.ones(1)), pg.type(net), pg.type(graph), pg.type(pg.nn.Dense), pg.type(nil), pg.type("x")},
          {"tensor", "block", "graph", "table", "nil", "string"})
  t.equal({pg.is_tensor(net.weight), pg.is_tensor(net), pg.is_tensor(nil), pg.is_tensor(1)}, {true, false, false, false})
  local f = pg.jit(function(x) return pg.type(x) == "tensor" and pg.is_tensor(x) and x + 1 or x end)
  t.equal(f(pg.ones(1)):item(), 2)
end)

t.test("tensor methods", function()
  local x = pg.ones(2)
  local names = [[size dim numel stride is_contiguous item totable iter to clone detach contiguous release to_bytes
    attach_grad backward]]
  for name in names:gmatch("%S+") do t.check(x[name], name) end
  for name in ("add sub mul div fill copy zero relu clamp exp pow maximum masked_fill sqrt tanh neg"):gmatch("%S+") do
    t.check(x[name .. "_"], name .. "_")
  end
end)

t.test("layers, initializers, losses, optimizers, schedulers, data, metrics, utilities", function()
  local sets = {
    [pg.nn] = [[Block HybridBlock block Sequential HybridSequential Dense Conv1D Conv2D Conv3D Conv1DTranspose
      Conv2DTranspose Conv3DTranspose MaxPool1D MaxPool2D MaxPool3D AvgPool1D AvgPool2D AvgPool3D GlobalMaxPool1D
      GlobalMaxPool2D GlobalMaxPool3D GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D BatchNorm LayerNorm GroupNorm
      InstanceNorm Dropout Embedding Flatten Activation LeakyReLU PReLU ELU SELU GELU Swish Lambda HybridLambda
      Concurrent HybridConcurrent SyncBatchNorm BatchNormReLU RMSNorm PixelShuffle1D PixelShuffle2D PixelShuffle3D
      SinusoidalPositions RotaryEmbedding MultiHeadAttention TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder
      TransformerDecoder LoRA WeightNorm SpectralNorm]],
    [pg.nn.rnn] = [[RecurrentCell HybridRecurrentCell RNNCell LSTMCell GRUCell SequentialRNNCell HybridSequentialRNNCell BidirectionalCell
      DropoutCell ZoneoutCell ResidualCell ModifierCell RNN LSTM GRU LSTMPCell VariationalDropoutCell Conv1DRNNCell Conv2DRNNCell Conv3DRNNCell
      Conv1DLSTMCell Conv2DLSTMCell Conv3DLSTMCell Conv1DGRUCell Conv2DGRUCell Conv3DGRUCell dynamic_unroll]],
    [pg.init] = "Zero One Constant Uniform Normal TruncatedNormal Orthogonal Xavier MSRAPrelu Bilinear LSTMBias Mixed Load FusedRNN",
    [pg.loss] = "L2Loss L1Loss SigmoidBinaryCrossEntropyLoss SoftmaxCrossEntropyLoss HuberLoss SDMLLoss",
    [pg.optim] = "Trainer SGD NAG Adam AdamW lr_scheduler",
    [pg.optim.lr_scheduler] = "Factor MultiFactor Poly Cosine",
    [pg.data] = "ArrayDataset SimpleDataset DataLoader digits vision",
    [pg.data.vision] = "MNIST CIFAR10 CIFAR100 transforms",
    [pg.data.vision.transforms] = [[Compose HybridCompose Cast ToTensor Normalize Resize CenterCrop CropResize RandomCrop
      RandomResizedCrop RandomFlipLeftRight RandomFlipTopBottom RandomBrightness RandomContrast RandomSaturation RandomHue
      RandomColorJitter RandomLighting RandomGray Rotate RandomRotation RandomApply HybridRandomApply]],
    [pg.models] = [[get_model list resnet18_v1 resnet34_v1 resnet50_v1 resnet101_v1 resnet152_v1 resnet18_v2 resnet34_v2
      resnet50_v2 resnet101_v2 resnet152_v2 vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn alexnet densenet121
      densenet161 densenet169 densenet201 squeezenet1_0 squeezenet1_1 inception_v3 mobilenet1_0 mobilenet0_75 mobilenet0_5
      mobilenet0_25 mobilenet_v2_1_0 mobilenet_v2_0_75 mobilenet_v2_0_5 mobilenet_v2_0_25]],
    [pg.metric] = "Accuracy Loss",
    [pg.utils] = "clip_global_norm split_data progress seed_all",
  }
  for set, names in pairs(sets) do
    for name in names:gmatch("%S+") do t.check(pcall(function() return assert(set[name]) end), name) end
  end
end)
