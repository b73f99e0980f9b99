-- What to write instead of names that users of other libraries know: the one table that every error for an unknown name
-- reads (hint.lua). The first string of an entry lists the kinds of places that its names are for. A line is
-- "name name …: code -- reason"; the code or the reason may be absent. NAME is replaced by the name. The tests run the
-- code.
return {
{"pg tensor", [[
  inverse: pg.linalg.inv(pg.eye(2))
  logdet: pg.linalg.slogdet(pg.eye(2)) -- the sign, and the logarithm of the absolute value
  pinverse: pg.linalg.pinv(pg.eye(2))
  symeig syevd: pg.linalg.eigh(pg.eye(2))
  inv det slogdet svd svdvals qr eigh eigvalsh cholesky pinv matrix_rank matrix_exp: pg.linalg.NAME(pg.eye(2))
  eig eigvals: pg.linalg.eigh(pg.eye(2)) -- of symmetric matrices; there are no complex numbers
  matrix_power: pg.linalg.matrix_power(pg.eye(2), 3)
  solve lstsq: pg.linalg.NAME(pg.eye(2), pg.ones(2))
  lu lu_factor lu_solve: pg.linalg.solve(pg.eye(2), pg.ones(2)) -- or pg.linalg.cholesky, pg.linalg.qr
  cholesky_solve: pg.linalg.cholesky_solve(pg.ones(2, 1), pg.eye(2))
  multi_dot: pg.linalg.multi_dot{pg.eye(2), pg.ones(2)}
  conv convolution: image:conv2d(kernel)
  pool pooling maxpool: image:max_pool2d(2)
  avgpool: image:avg_pool2d(2)
  column_stack hstack_columns: pg.cat({x, y}, 2) -- 1-dim tensors: pg.stack({a, b}, 2)
  L2Normalization l2_normalize: x:normalize(2, -1)
  reshape_like: x:reshape(y.shape)
  broadcast_add elemwise_add broadcast_plus plus: x + y -- shapes broadcast
  broadcast_sub elemwise_sub broadcast_minus: x - y -- shapes broadcast
  broadcast_mul elemwise_mul times: x * y -- shapes broadcast
  broadcast_div elemwise_div: x / y -- shapes broadcast
  broadcast_mod mod: x % y -- the sign is that of y
  broadcast_power: x ^ y
  broadcast_maximum: pg.maximum(x, y)
  broadcast_minimum: pg.minimum(x, y)
  broadcast_equal equals: x:eq(y)
  broadcast_not_equal: x:ne(y)
  broadcast_greater: x:gt(y)
  broadcast_greater_equal: x:ge(y)
  broadcast_lesser broadcast_less lesser: x:lt(y)
  broadcast_lesser_equal lesser_equal: x:le(y)
  broadcast_logical_and: pg.logical_and(x:gt(0), y:gt(0))
  broadcast_like: x:expand_as(y)
  rint: x:round()
  expand_dims: x:unsqueeze(1) -- dims count from 1
  slice_axis: x:narrow(1, 1, 2) -- the arguments are dim, first position and length
  slice: x[{{1, 2}}] -- it takes the rows 1 to 2
  SliceChannel split_v2 array_split: x:chunk(2, 1)
  repeat repeats: x:tile{2, 1} -- repeat is a keyword of Lua; x:repeat_interleave(2) repeats each element
  SwapAxis: x:transpose(1, 2) -- dims count from 1
  batch_dot: pg.bmm(a, a:transpose(2, 3)) -- both have 3 dims
  batch_take: pg.pick(x, labels)
  SequenceMask: pg.sequence_mask(x)
  FullyConnected: x:linear(w, b)
  Convolution: image:conv2d(kernel)
  Pooling: image:max_pool2d(2)
  BatchNorm: nn.BatchNorm()
  LayerNorm: nn.LayerNorm()
  Activation: x:relu()
  LeakyReLU: x:leaky_relu(0.01)
  Dropout: x:dropout(0.5)
  Embedding: nn.Embedding(10, 4)
  SoftmaxOutput softmax_cross_entropy: pg.cross_entropy(x, labels) -- labels count from 1
  Flatten: x:flatten(2) -- it keeps dim 1
  Concat: pg.cat({x, y}, 1)
  Reshape: x:reshape(3, 2)
  Cast astype: x:to("float64")
  stop_gradient BlockGrad: x:detach()
  make_loss MakeLoss: -- a loss needs no mark: call backward on it]]},
{"pg", [[
  model model_zoo zoo: pg.models
  npx mxnet: pg.relu(x) -- ops are fields of pg itself
  Size size: x.shape -- a shape is a list of numbers
  from_list fromlist: pg.tensor{1, 2, 3}
  save_parameters save_params: net:save_parameters(path)
  load_parameters load_params: net:load_parameters(path)
  float32 float64 float16 int8 int32 int64 uint8: pg.zeros(2, 3, {dtype = "NAME"}) -- a dtype is a string
  arange: pg.range(1, 5) -- both ends are included, as in `for i = 1, 5`
  array asarray from_numpy as_tensor ndarray Tensor NDArray from_table: pg.tensor{1, 2, 3}
  FloatTensor: pg.tensor({1, 2}, {dtype = "float32"})
  LongTensor: pg.tensor({1, 2}, {dtype = "int64"})
  nd np numpy mx torch: pg.zeros(2, 3) -- ops are fields of pg itself
  sym Symbol: pg.symbol("data", {shape = {2, 3}})
  gluon: -- pg.nn, pg.loss, pg.optim, pg.data and pg.metric hold what Gluon has
  Variable: pg.ones(3):attach_grad() -- any tensor can have a gradient
  Parameter: pg.param{shape = {2, 3}}
  contrib: pg.foreach(function(v, s) return v, s + v end, x, pg.zeros(3)) -- there are pg.while_loop and pg.cond too
  scan fori_loop: pg.foreach(function(v, s) return v, s + v end, x, pg.zeros(3))
  random: pg.randn(2, 3)
  random_uniform uniform_random: pg.rand(2, 3)
  random_normal standard_normal: pg.randn(2, 3)
  seed random_seed set_seed: pg.manual_seed(42)
  shuffle: x[pg.randperm(2)] -- it takes the rows in random order
  identity: pg.eye(3)
  copy: x:clone()
  device Device context Context ctx: x:to("cpu") -- a device is a string such as "cpu" or "cuda"
  gpu: pg.devices() -- it lists the devices; x:to("cuda") moves a tensor
  cpu: x:to("cpu")
  num_gpus device_count: pg.cuda.device_count()
  is_available cuda_is_available: pg.cuda.is_available()
  set_default_dtype set_default_tensor_type: pg.zeros(2, 3, {dtype = "float64"}) -- there is no global default
  enable_grad set_grad_enabled: pg.record(function() return x:sum() end)
  inference_mode: pg.no_grad(function() return net(x) end)
  is_grad_enabled: pg.is_recording()
  compile script: pg.jit(function(a) return a * 2 end)
  jacrev jacfwd jacobian hessian: pg.grad(function(v) return v:sum() end)(x) -- there are pg.vjp and pg.jvp too
  vmap: pg.foreach(function(v) return v * 2 end, x) -- it maps over dim 1 and stacks the results; most ops take batches
  isin in1d is_in: x:unsqueeze(-1):eq(labels):any(-1)
  upsample: image:interpolate{scale_factor = 2}
  clip_grad_norm_ clip_grad_norm clip_global_norm: pg.utils.clip_global_norm({w}, 1) -- it takes a list of gradients
  clip_grad_value_ clip_grad_value: pg.utils.clip_value({w}, 1) -- it takes a list of gradients
  waitall: pg.synchronize("cpu")
  metrics: pg.metric
  losses: pg.loss
  optimizer optimizers: pg.optim
  initializer initializers: pg.init
  lr_scheduler: pg.optim.lr_scheduler
  vision datasets: pg.data.vision
  transforms: pg.data.vision.transforms
  functional F: pg.relu(x) -- ops are fields of pg itself
  Function: pg.autograd.Function
  Module Block HybridBlock: pg.nn.HybridBlock
  Sequential HybridSequential: nn.HybridSequential{nn.Dense(4), nn.Dense(2)}
  Dense Linear: nn.Dense(10)
  Dataset TensorDataset: data.ArrayDataset(x, y)
  DataLoader: data.DataLoader(ds, {batch_size = 2})
  Trainer SGD Adam: optim.Trainer(net, "sgd", {learning_rate = 0.1})
  CrossEntropyLoss: loss.SoftmaxCrossEntropyLoss()
  eval train: pg.predict_mode(function() return net(x) end) -- pg.record trains, other calls predict
  tolist asnumpy: x:totable()
  summary: net:summary(x)
  item asscalar: -- write x:item(), the number of a one-element tensor
  null None Nil: nil -- nil is Lua's None]]},
{"nn", [[
  MultiheadAttention Attention MultiHeadAttentionCell: nn.MultiHeadAttention(64, 4)
  Transformer: nn.TransformerEncoder(2, 64, 4) -- and nn.TransformerDecoder
  PositionalEncoding PositionalEmbedding SinusoidalPositionalEmbedding: nn.SinusoidalPositions()
  RoPE RotaryPositionalEmbeddings: nn.RotaryEmbedding()
  PixelShuffle: nn.PixelShuffle2D(2)
  weight_norm: nn.WeightNorm(nn.Dense(10))
  spectral_norm: nn.SpectralNorm(nn.Dense(10))
  Upsample UpSampling2D UpsamplingNearest2d: image:interpolate{scale_factor = 2} -- nn.HybridLambda(f) makes a layer of a function
  Linear LazyLinear FullyConnected: nn.Dense(10) -- the number of inputs is inferred at the first call
  Module: nn.HybridBlock:extend("Net")
  ReLU Relu relu: nn.Activation("relu") -- pg.relu can be a child too
  Sigmoid sigmoid: nn.Activation("sigmoid")
  Tanh tanh: nn.Activation("tanh")
  Softplus SoftReLU: nn.Activation("softrelu")
  Softsign: nn.Activation("softsign")
  ReLU6 Hardswish HardSwish Hardsigmoid Hardtanh Mish LogSigmoid CELU: nn.Activation("relu6") -- it takes the names of such ops
  SiLU: nn.Swish()
  Softmax: nn.HybridLambda("softmax")
  LogSoftmax: nn.HybridLambda("log_softmax")
  Conv Convolution: nn.Conv2D(6, 3)
  ConvTranspose1d: nn.Conv1DTranspose(6, 3)
  ConvTranspose2d Deconvolution: nn.Conv2DTranspose(6, 3)
  BatchNorm1d BatchNorm2d BatchNorm3d: nn.BatchNorm()
  InstanceNorm1d InstanceNorm2d: nn.InstanceNorm()
  AdaptiveAvgPool2d: nn.GlobalAvgPool2D()
  AdaptiveMaxPool2d: nn.GlobalMaxPool2D()
  LSTM: nn.rnn.LSTM(16)
  GRU: nn.rnn.GRU(16)
  RNN: nn.rnn.RNN(16)
  LSTMCell: nn.rnn.LSTMCell(16)
  GRUCell: nn.rnn.GRUCell(16)
  RNNCell: nn.rnn.RNNCell(16)
  Parameter ParameterList: pg.param{shape = {2, 3}}
  ModuleList BlockList ModuleDict: nn.block{layers = {nn.Dense(4), nn.Dense(2)}} -- blocks in a plain table are children
  CrossEntropyLoss SoftmaxCrossEntropyLoss: loss.SoftmaxCrossEntropyLoss()
  MSELoss: pg.mse_loss(x, x) -- loss.L2Loss() is half of the mean square, one value per sample
  L2Loss: loss.L2Loss()
  L1Loss: loss.L1Loss()
  BCELoss: loss.SigmoidBinaryCrossEntropyLoss{from_sigmoid = true}
  BCEWithLogitsLoss: loss.SigmoidBinaryCrossEntropyLoss()
  NLLLoss: loss.SoftmaxCrossEntropyLoss{from_logits = true}
  functional F: pg.relu(x) -- ops are fields of pg
  init: pg.init
  utils: pg.utils
  loss losses: pg.loss
  optim: pg.optim
  Trainer: optim.Trainer(net, "sgd", {learning_rate = 0.1})
  DataLoader: data.DataLoader(ds, {batch_size = 2})
  Input: -- a block needs no input layer; its first call sets the shapes]]},
{"loss", [[
  CrossEntropyLoss CrossEntropy: loss.SoftmaxCrossEntropyLoss() -- labels count from 1
  MSELoss MSE: loss.L2Loss() -- it is half of the mean square; pg.mse_loss is the mean square
  MAELoss MAE: loss.L1Loss()
  BCELoss: loss.SigmoidBinaryCrossEntropyLoss{from_sigmoid = true}
  BCEWithLogitsLoss: loss.SigmoidBinaryCrossEntropyLoss()
  NLLLoss: loss.SoftmaxCrossEntropyLoss{from_logits = true}
  SmoothL1Loss: loss.HuberLoss()
  TripletMarginLoss: loss.TripletLoss()
  cross_entropy softmax_cross_entropy: pg.cross_entropy(x, labels)
  mse_loss: pg.mse_loss(x, x)
  l1_loss: pg.l1_loss(x, x)]]},
{"optim", [[
  RAdam: optim.Trainer(net, "adam", {learning_rate = 0.001}) -- there are adamw, adamax and nadam too
  NAdam: optim.Nadam()
  Adamax: optim.AdaMax()
  Adagrad: optim.AdaGrad()
  Adadelta: optim.AdaDelta()
  RMSprop: optim.RMSProp()
  AveragedModel: optim.EMA(net) -- optim.SWA(net) is the plain mean
  LambdaLR: optim.Trainer(net, "sgd", {lr_scheduler = function(n) return 0.1 / n end})
  Momentum momentum: optim.Trainer(net, "sgd", {learning_rate = 0.1, momentum = 0.9})
  Nesterov: optim.Trainer(net, "nag", {learning_rate = 0.1, momentum = 0.9})
  trainer step: optim.Trainer(net, "sgd", {learning_rate = 0.1}):step(2)]]},
{"optim lr_scheduler", [[
  StepLR ExponentialLR: optim.lr_scheduler.Factor(1000, {factor = 0.5})
  MultiStepLR: optim.lr_scheduler.MultiFactor({1000, 2000}, {factor = 0.1})
  CosineAnnealingLR: optim.lr_scheduler.Cosine(1000)
  OneCycleLR: optim.lr_scheduler.OneCycle(1000)
  ReduceLROnPlateau: optim.lr_scheduler.Plateau()
  PolynomialLR Linear: optim.lr_scheduler.Poly(1000, {pwr = 1})]]},
{"data", [[
  Loader BatchLoader DataIter NDArrayIter: data.DataLoader(ds, {batch_size = 2})
  TensorDataset: data.ArrayDataset(x, y)
  ListDataset: data.SimpleDataset{1, 2, 3}
  Subset random_split: ds:take(1) -- there are ds:filter(f) and ds:shard(n, i) too
  MNIST mnist: data.vision.MNIST -- data.digits() needs no files
  CIFAR10 CIFAR100: data.vision.NAME
  transforms: data.vision.transforms
  datasets: data.vision
  load_digits Digits: data.digits()
  utils: data.DataLoader(ds, {batch_size = 2})]]},
{"vision", [[
  datasets: data.vision.MNIST -- CIFAR10 and CIFAR100 are there too
  models: pg.models
  FashionMNIST: data.vision.MNIST -- its files have the same format
  Compose ToTensor Normalize Resize CenterCrop RandomCrop: data.vision.transforms.NAME]]},
{"transforms", [[
  RandomHorizontalFlip: data.vision.transforms.RandomFlipLeftRight()
  RandomVerticalFlip: data.vision.transforms.RandomFlipTopBottom()
  ColorJitter: data.vision.transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1)
  RandomGrayscale: data.vision.transforms.RandomGray(0.1)
  ConvertImageDtype: data.vision.transforms.Cast("float32")
  Lambda: ds:transform_first(function(v) return v * 2 end) -- a function is a transform
  Pad: data.vision.transforms.RandomCrop(32, 4) -- pg.pad pads tensors]]},
{"models", [[
  resnet18 resnet34 resnet50 resnet101 resnet152: pg.models.NAME_v1()
  mobilenet mobilenet_v1: pg.models.mobilenet1_0()
  mobilenet_v2: pg.models.mobilenet_v2_1_0()
  squeezenet: pg.models.squeezenet1_1()
  inceptionv3 inception: pg.models.inception_v3()
  densenet: pg.models.densenet121()
  vgg: pg.models.vgg16()
  resnet: pg.models.resnet50_v1()
  list_models: pg.models.list()
  model: pg.models.get_model("resnet18_v1")]]},
{"init", [[
  kaiming kaiming_normal kaiming_normal_ kaiming_uniform_ KaimingNormal Kaiming he He HeNormal: pg.init.MSRAPrelu()
  xavier_uniform_ xavier_normal_ XavierUniform XavierNormal glorot Glorot: pg.init.Xavier()
  normal_ gaussian: pg.init.Normal(0.01)
  uniform_: pg.init.Uniform(0.07)
  zeros_ Zeros: pg.init.Zero()
  ones_ Ones: pg.init.One()
  constant_ const: pg.init.Constant(0.5)
  orthogonal_: pg.init.Orthogonal()
  trunc_normal_: pg.init.TruncatedNormal()]]},
{"initializer", [[
  kaiming kaiming_normal kaiming_uniform he he_normal: "msraprelu"
  xavier_uniform xavier_normal glorot glorot_uniform: "xavier"
  constant: pg.init.Constant(0.5)
  random: "uniform"]]},
{"optimizer", [[
  momentum: optim.Trainer(net, "sgd", {learning_rate = 0.1, momentum = 0.9})
  nesterov: optim.Trainer(net, "nag", {learning_rate = 0.1, momentum = 0.9})]]},
{"metric", [[
  Acc acc: pg.metric.Accuracy()
  Precision Recall AUC: pg.metric.F1()
  TopK: pg.metric.TopKAccuracy(5)
  precision recall auc: pg.metric.F1()
  R2: pg.metric.PearsonCorrelation()]]},
{"utils", [[
  clip_grad_norm_ clip_grad_norm clip_by_global_norm: pg.utils.clip_global_norm({w}, 1) -- it takes a list of gradients
  clip_grad_value_ clip_grad_value: pg.utils.clip_value({w}, 1) -- it takes a list of gradients
  data: pg.data]]},
{"activation", [[
  leaky leakyrelu: nn.LeakyReLU(0.01) -- a layer of its own
  prelu: nn.PReLU() -- a layer of its own
  linear identity none: nn.Dense(10) -- leave the option out
  softmax: nn.HybridLambda("softmax") -- the losses take scores without softmax
  log_softmax: nn.HybridLambda("log_softmax")]]},
{"dtype", [[
  float single f32 fp32 torch.float32: "float32"
  double f64 fp64: "float64"
  half f16 fp16: "float16"
  bf16: "bfloat16"
  long i64: "int64"
  int integer i32: "int32"
  byte u8 uint: "uint8"
  char i8: "int8"
  boolean: "bool"]]},
{"device", [[
  gpu gpu(0): "cuda" -- "cuda:1" is the second one
  host: "cpu"]]},
{"tensor", [[
  values indices: local values, indices = x:max(1) -- such ops return two tensors
  stype: x.dtype -- there are no sparse tensors
  list_data: -- write x itself; a parameter is a tensor
  append: pg.cat({x, y}, 1)
  apply: x:relu() -- ops work on all elements at once
  is_floating_point: x.dtype -- it is a string, such as "float32"
  asnumpy numpy tolist to_list asarray: x:totable() -- x:item() reads one element
  asscalar tonumber: -- write x:item(), the number of a one-element tensor
  data: x:detach() -- it has the values without history
  cpu: x:to("cpu")
  cuda gpu: -- write x:to("cuda")
  as_in_context as_in_ctx copyto: x:to("cpu") -- x:to("cuda") moves it to the GPU
  ctx context: x.device
  is_cuda: x.device ~= "cpu"
  type: x.dtype
  ndim ndimension rank: x:dim()
  nelement: x:numel()
  len length: #x -- it is the size of dim 1; x:size(d) is that of dim d
  sizes: x.shape
  unsqueeze_: x:unsqueeze(1) -- shape ops return a new tensor
  squeeze_: x:squeeze() -- shape ops return a new tensor
  transpose_ t_ permute_: x:transpose(1, 2) -- shape ops return a new tensor
  reshape_ resize_ resize view_: x:reshape(3, 2) -- shape ops return a new tensor
  requires_grad_: x:attach_grad() -- it returns x
  retain_grad: -- pg.autograd.grad(loss, h) returns the gradient of a result h
  is_leaf grad_fn: x.requires_grad -- it says whether backward reaches x
  detach_ detach_grad: x:detach()
  register_hook: -- x:tap(f) sees the value; to see or change gradients write the backward of a pg.autograd.Function
  apply_ map_ map: x:relu() -- ops work on all elements at once
  wait_to_read: pg.synchronize("cpu") -- reads wait by themselves
  copy: x:clone()
  new_zeros: pg.zeros_like(x)
  new_ones: pg.ones_like(x)
  first: x[1] -- positions count from 1
  last: x[-1]
  get at index: x[{1, 2}] -- it is row 1, column 2
  set setitem: x:fill_(5) -- x[{1, 2}] = 5 sets one element
  rows each pairs ipairs: x:iter() -- as in for row in x:iter() do … end
  save: pg.save(path, {x = x})
  zero: x:zero_()
  fill: x:fill_(5)
  float32 float64 float16 int8 int32 int64 uint8: x:to("NAME")
  train eval: pg.predict_mode(function() return net(x) end)
  step: trainer:step(2)]]},
{"tensor_set", [[
  requires_grad: x:attach_grad() -- it makes x a leaf with a gradient
  data: x:copy_(y) -- it writes the values
  shape: x:reshape(3, 2) -- it returns another tensor
  dtype: x:to("float64") -- it returns another tensor
  device: x:to("cpu") -- it returns another tensor]]},
{"block", [[
  train training: pg.record(function() return net(x) end) -- this trains; calls outside of pg.record predict
  eval evaluate: net(x) -- calls outside of pg.record predict
  cuda gpu: -- write net:to("cuda")
  cpu reset_ctx reset_device: net:to("cpu")
  half: net:to("float16")
  double: net:to("float64")
  float: net:to("float32")
  state_dict save save_params save_weights: net:save_parameters(path)
  load_state_dict load load_params load_weights: net:load_parameters(path)
  named_parameters get_parameters params: net:parameters() -- as in for path, p in net:parameters() do … end
  named_children named_modules modules layers: net:children() -- as in for name, child in net:children() do … end
  add_module register_child register_module: net.extra = nn.Dense(2) -- a field that holds a block is a child
  register_parameter register_buffer: net.scale = pg.param{shape = {1}} -- pg.constant(v) is saved but not trained
  append insert push: nn.HybridSequential():add(nn.Dense(2)) -- it returns the net
  name_scope: nn.block{fc = nn.Dense(4)} -- names are the paths of the fields
  backward: pg.record(function() return net(x):sum() end):backward() -- it is a method of the loss
  requires_grad_ freeze_parameters: net:collect_params():set("grad_req", "null")
  compile jit script: net:hybridize()
  predict: net(x)
  fit: optim.Trainer(net, "sgd", {learning_rate = 0.1}) -- a loop then calls pg.record, backward and step
  init_params init_weights reset_parameters: net:initialize("xavier", {force = true})
  num_parameters count_params: net:summary(x)
  length len: #net
  print show: print(net)]]},
{"Trainer", [[
  lr set_lr set_learning: trainer:set_learning_rate(0.1)
  get_lr: trainer:learning_rate()
  zero_grad: net:zero_grad() -- it is needed only where grad_req is "add"
  state_dict save: trainer:save_states(path)
  load_state_dict load: trainer:load_states(path)
  backward: pg.record(function() return net(x):sum() end):backward()
  minimize optimize: trainer:step(2)
  optimize: trainer:step(2)]]},
{"DataLoader", [[
  next get: loader:iter()() -- for x, y in loader:iter() do … end takes all
  reset: loader:iter() -- each call starts a new round
  size length count num_batches: loader:len()
  batch_size: data.DataLoader(ds, {batch_size = 2})
  each pairs ipairs batches: loader:iter() -- as in for x, y in loader:iter() do … end]]},
{"Dataset", [[
  size length count: ds:len()
  item getitem __getitem__ at: ds:get(1)
  map apply: ds:transform(function(a, b) return a, b end)
  batch shuffle: data.DataLoader(ds, {batch_size = 2, shuffle = true})
  iter each: data.DataLoader(ds, {batch_size = 1}):iter()]]},
{"Metric", [[
  compute result value avg accuracy: metric:get() -- it returns name, value
  add: metric:update(labels, scores)
  clear: metric:reset()]]},
{"collect_params", [[
  get: -- write params["1.weight"]
  keys values items pairs ipairs each: net:collect_params():iter() -- as in for path, p in params:iter() do … end
  state_dict: net:save_parameters(path)]]},
{"global", [[
  mx torch np numpy tf: local pg = require "perigee" -- it has the ops, such as pg.zeros(2, 3)
  gluon: local nn, loss, optim = pg.nn, pg.loss, pg.optim
  nd F: local pg = require "perigee" -- ops are fields of pg
  autograd: local autograd = pg.autograd
  pg perigee: local pg = require "perigee"
  nn: local nn = pg.nn
  loss: local loss = pg.loss
  optim: local optim = pg.optim
  data: local data = pg.data
  metric: local metric = pg.metric
  ctx device: x:to("cpu") -- a device is a string
  range: pg.range(1, 5) -- a loop is for i = 1, 5 do … end
  len: #x
  str: tostring(x)
  int: math.floor(1.5)
  enumerate: ipairs{1, 2} -- as in for i, v in ipairs(list) do … end
  isinstance: pg.is_tensor(x)
  printf: print(("%.2f"):format(1.5))
  self: function Net:forward(x) return x end -- the colon gives the method self]]},
-- Here a line is "name name …: option option …", the options that may mean the same, or "name: option = text". The
-- first one that the function has counts.
{"option", [[
  axis axes dims: dim dims axis axes
  dim: axis dims
  keep_dims: keepdim
  lr: learning_rate base_lr
  weight_decay l2: wd
  eps: epsilon
  epsilon: eps
  nesterov: momentum = the optimizer "nag" is SGD with Nesterov's momentum
  betas: beta1 = write beta1 = 0.9, beta2 = 0.999
  grad_clip clip_grad clip max_grad_norm: clip_gradient
  scheduler schedule: lr_scheduler
  shape: size
  size: shape
  ctx context: device
  gpu cuda: device = write device = "cuda"
  out_features num_hidden output_size hidden: units
  in_features input_size: in_units
  out_channels filters num_filter: channels
  kernel ksize filter_size: kernel_size
  stride: strides
  strides: stride
  pad: padding
  dilate: dilation
  num_group num_groups: groups
  bias: use_bias
  no_bias: use_bias = write use_bias = false
  act act_type nonlinearity: activation
  p prob probability: rate p
  dropout_rate: rate dropout
  rate: p
  num_embeddings vocab_size: input_dim
  embedding_dim: output_dim
  batch: batch_size
  drop_last: last_batch = write last_batch = "discard"
  collate_fn batchify_fn: batchify
  workers: num_workers
  pin_memory: num_workers = leave it out
  batch_first: layout = write layout = "NTC"
  gamma: factor
  step_size milestones: step
  T_max max_steps total_steps: max_update
  epochs num_epochs: max_update = schedulers count updates: max_update = epochs * loader:len()
  warmup: warmup_steps
  max_lr: base_lr
  total_steps: max_update
  max_iter maxiter max_steps: max_iterations
  requires_grad: grad_req = write grad_req = "null" to freeze a parameter
  requires_grad: dtype = call attach_grad() on the result
  reduction size_average: batch_axis = a loss gives one value per sample; call :mean() on the result
  ignore_label: ignore_index
  ddof: correction
  is_ascend ascending reverse: descending
  allow_missing_keys: allow_missing
  strict: allow_missing = write allow_missing = true, ignore_extra = true
  start_axis: start_dim
  num_classes: depth
  depth: num_classes
  k: top_k
  unbiased: correction = write correction = 1, or 0 for unbiased = false
  init initializer: force = the initializer comes first: initialize("xavier")
  download: root = files are not downloaded; root is the folder that holds them
  name: label]]},
}
