"""The cases of cases/*.lua in torch, eager, for any torch from 1.13 on. Usage: torch_peer.py THREADS BUDGET [PATTERN]
Prints the same JSON lines as bench.lua with "peer". PATTERN: a Lua pattern that is also a regular expression. The
environment variable DEVICE makes tensors on that device by default."""
import json, os, re, statistics, subprocess, sys, time
from itertools import repeat

threads, budget, pattern = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
os.environ["OMP_NUM_THREADS"] = str(threads)
os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # OpenBLAS 0.3.21 takes newer CPUs for Haswell
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(threads)
device = os.environ.get("DEVICE")
if device:
    torch.set_default_device(device)
rnd = lambda *s: torch.rand(*s) - 0.5


def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(key + ":"))


def case(name, make, scale=1, inner=None):
    if not re.search(pattern.replace("%", "\\"), name):
        return
    torch.manual_seed(0)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    rss = status("VmRSS")
    call = make()

    def block(n):
        t = time.perf_counter_ns()
        for _ in repeat(None, n):
            call()
        if device:
            torch.cuda.synchronize()
        return (time.perf_counter_ns() - t) / 1000 / n

    est, start = block(1), time.perf_counter()
    while time.perf_counter() - start < min(0.25, budget / 4):
        est = min(est, block(1))
    n = inner or max(1, min(100000, int(20000 / max(est, 0.05))))
    block(n)
    ts, start = [], time.perf_counter()
    while len(ts) < 5 or time.perf_counter() - start < budget:
        ts.append(block(n) / scale)
    print(json.dumps({"name": name, "us_min": round(min(ts), 4), "us_median": round(statistics.median(ts), 4),
                      "n": n * len(ts) * scale, "threads": threads, "peer": "torch " + torch.__version__,
                      "peak_rss_delta_mb": round(status("VmHWM") - rss, 1)}), flush=True)


def no_grad(f, *xs):
    def call():
        with torch.no_grad():
            f(*xs)
    return call


def add1(grad):
    a, b = torch.ones(1, requires_grad=grad), torch.ones(1)

    def f():
        for _ in range(1000):
            a + b
    return f


def chain100():
    x = torch.ones(1, requires_grad=True)

    def f():
        x.grad = None
        y = x
        for _ in range(100):
            y = y * x
        y.backward()
    return f


def mlp(sizes, i):
    layers = []
    for s in sizes[:-1]:
        layers += [nn.Linear(i, s), nn.ReLU()]
        i = s
    return nn.Sequential(*layers, nn.Linear(i, sizes[-1]))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class Unit(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                                  nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o))
        self.side = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride == 2 else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x), inplace=True)


def resnet18():
    units = [Unit(64 << s if i else max(64, 32 << s), 64 << s, 2 if s and not i else 1) for s in range(4) for i in range(2)]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                         *units, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def arith(a, b, c):
    return ((((a * b + c) * a - b) * c + a) * 0.5 - c) * b + 1


def transc(a, b, c):
    t = torch.tanh(a * b + c) * torch.sigmoid(a - b)
    return torch.relu(t + c * 0.5) * a


def infer(net, x):
    net = net.eval()

    def f():
        with torch.inference_mode():
            net(x)
    return f


def train(net, x, optimizer):
    y, o = torch.randint(0, 10, (x.shape[0],)), optimizer(net.parameters())

    def step():
        o.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        o.step()
    return step


sgd = lambda ps: torch.optim.SGD(ps, lr=0.01)
momentum = lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9)
adam = lambda ps: torch.optim.Adam(ps, lr=1e-3)
case("op_add1", lambda: add1(False), scale=1000)
case("op_add1_record", lambda: add1(True), scale=1000)
case("scalar_chain100_fwdbwd", chain100)
for b in (1, 32):
    case("seed_mlp_b%d" % b, lambda: infer(mlp((256, 128, 2), 512), rnd(b, 512)), inner=1000)
case("mlp_train_sgd_b64", lambda: train(mlp((256, 128, 10), 784), rnd(64, 784), sgd))
case("mlp_train_adam_b64", lambda: train(mlp((256, 128, 10), 784), rnd(64, 784), adam))
for b in (1, 64):
    case("lenet_train_b%d" % b, lambda: train(lenet(), rnd(b, 1, 28, 28), momentum))
case("resnet18_n8_train", lambda: train(resnet18(), rnd(8, 3, 224, 224), momentum), inner=1)


# Convolutions of bfloat16, with the channels last as torch prefers them, eagerly and compiled.
def last(module_or_tensor):
    return module_or_tensor.bfloat16().to(memory_format=torch.channels_last)


try:
    from torchvision import models
except ImportError:
    models = None
for name in ("resnet18", "resnet50", "mobilenet_v2") if models else ():
    for wrap in (lambda net: net, torch.compile):
        case(name + "_b1_infer_bf16", lambda: infer(wrap(last(getattr(models, name)())), last(rnd(1, 3, 224, 224))))
case("resnet18_n8_train_bf16", lambda: train(last(resnet18()), last(rnd(8, 3, 224, 224)), momentum), inner=1)
for size, n in (("1k", 1 << 10), ("64k", 1 << 16), ("1m", 1 << 20), ("16m", 1 << 24)):
    for chain in (arith, transc):
        case("chain10_%s_%s" % (chain.__name__, size), lambda: no_grad(chain, rnd(n), rnd(n), rnd(n)))
case("softmax_4096x1024", lambda: no_grad(lambda x: torch.softmax(x, -1), rnd(4096, 1024)))
case("layernorm_4096x1024", lambda: no_grad(lambda x, g, b: F.layer_norm(x, (1024,), g, b), rnd(4096, 1024),
                                            torch.ones(1024), torch.zeros(1024)))
case("sum_16m", lambda: no_grad(torch.sum, rnd(1 << 24)))
heads = lambda dtype: [rnd(1, 8, 4096, 64).to(dtype).requires_grad_() for _ in range(3)]


def attention_step(q, k, v):
    def step():
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    return step


if hasattr(F, "scaled_dot_product_attention"):
    for suffix, dtype in (("", torch.float32), ("_bf16", torch.bfloat16)):
        case("attention_t4096" + suffix, lambda: no_grad(F.scaled_dot_product_attention, *heads(dtype)), inner=1)
        case("attention_t4096_train" + suffix, lambda: attention_step(*heads(dtype)), inner=1)
for n in (512, 1024, 2048):
    case("gemm_%d" % n, lambda: no_grad(torch.mm, rnd(n, n), rnd(n, n)))
case("gemm_bf16_1024", lambda: no_grad(torch.mm, (rnd(1024, 1024) - 0.5).bfloat16(), (rnd(1024, 1024) - 0.5).bfloat16()))
M = 1 << 20
for op in ("add", "mul", "div", "maximum"):
    case(op + "_1m", lambda: no_grad(getattr(torch, op), torch.rand(M) + 0.5, torch.rand(M) + 0.5))
for op in ("relu", "sqrt", "exp", "log", "sin", "tanh", "sigmoid", "erf", "gelu", "sum", "max", "mean", "argmax"):
    case(op + "_1m", lambda: no_grad(getattr(torch, op, None) or getattr(F, op), torch.rand(M) + 0.5))
for d in (0, 1):
    case("sum_dim%d_1024x1024" % (d + 1), lambda: no_grad(lambda x: x.sum(d), torch.rand(1024, 1024)))
case("add_row_1024x1024", lambda: no_grad(torch.add, torch.rand(1024, 1024), torch.rand(1024)))
case("transpose_copy_1024x1024", lambda: no_grad(lambda x: x.t().contiguous(), torch.rand(1024, 1024)))


def startup():
    t = time.perf_counter_ns()
    subprocess.run([sys.executable, "-c", "import torch; torch.ones(1) + torch.ones(1)"], check=True)
    return (time.perf_counter_ns() - t) / 1000


if re.search(pattern.replace("%", "\\"), "startup"):
    ts = [startup() for _ in range(5)]
    print(json.dumps({"name": "startup", "us_min": round(min(ts)), "us_median": round(statistics.median(ts)), "n": 5,
                      "threads": threads, "peer": "torch " + torch.__version__}), flush=True)
