// The CUDA device on the fake driver of tests/cuda: errors of the driver, memory, compiled kernels on disk, late
// errors, programs. Each case that needs a fresh plugin runs the program in a process of its own.
#ifdef PERIGEE_FAKE_CUDA
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "files.h"
#include "tensor/buffer.h"
#include "tensor/device_table.h"
#include "tensor/op.h"

namespace {

namespace fs = std::filesystem;

using pg::test::Folder;

// Runs Lua code on the fake driver. `fake` in the code is the library with the functions of tests/cuda/fake.h.
std::string run(const std::string& code, const std::map<std::string, std::string>& variables = {}) {
  static const Folder cache;
  const Folder folder;
  std::ofstream(folder.path() / "code.lua") << "local pg = require 'perigee'\nlocal ffi = require 'ffi'\n"
                                               "ffi.cdef 'void fake_fail(const char*, int, int, int); void "
                                               "fake_limit(size_t); int fake_calls(const char*);'\n"
                                               "local fake = ffi.load('" PERIGEE_FAKE_CUDA "')\n"
                                            << code;
  std::map<std::string, std::string> all = {
      {"PERIGEE_CUDA_DRIVER", PERIGEE_FAKE_CUDA}, {"PERIGEE_CUDA_NVRTC", PERIGEE_FAKE_CUDA},
      {"PERIGEE_CUDA_BLAS", PERIGEE_FAKE_CUDA},   {"PERIGEE_CUDA_CUDNN", PERIGEE_FAKE_CUDA},
      {"PERIGEE_CUDA_FFT", PERIGEE_FAKE_CUDA},    {"PERIGEE_CUDA_SOLVER", PERIGEE_FAKE_CUDA},
      {"PERIGEE_TEST_DEVICE_SEED", "1"},          {"XDG_CACHE_HOME", cache.path().string()}};
  for (const auto& [name, value] : variables) all[name] = value;
  std::string command = "env";
  for (const auto& [name, value] : all) command += " '" + name + "=" + value + "'";
  command += std::string(" ") + PERIGEE_PROGRAM + " '" + (folder.path() / "code.lua").string() + "' 2>&1";
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::array<char, 4096> part;
  while (const size_t n = std::fread(part.data(), 1, part.size(), pipe)) out.append(part.data(), n);
  ::pclose(pipe);
  return out;
}

const std::string kTry = "print(select(2, pcall(function() return pg.ones(2):to('cuda') end)))";

void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text, " lacks ", part);
}

}  // namespace

TEST_CASE("cuda: what the driver lacks is an error with the file or call") {
  check_contains(run(kTry, {{"PERIGEE_CUDA_DRIVER", "/absent/libcuda.so"}}),
                 "device 'cuda' cannot be loaded: /absent/libcuda.so cannot be opened: ");
  check_contains(run(kTry, {{"PERIGEE_CUDA_DRIVER", PERIGEE_TEST_DEVICE}}), " has no entry cuInit");
  check_contains(run("fake.fake_fail('cuInit', 1, 100, 1)\n" + kTry),
                 "cannot be loaded: cuInit: no CUDA-capable device is detected");
  check_contains(run(kTry, {{"PERIGEE_FAKE_GPUS", "0"}}), "the driver has no device");
  check_contains(run(kTry, {{"PERIGEE_FAKE_VERSION", "11080"}}), "the driver is of CUDA 11.8; 12.0 is needed");
  // A second try may succeed, and a failed one leaves no device.
  const std::string out =
      run("fake.fake_fail('cuInit', 1, 100, 1)\n" + kTry + " print(#pg.devices()) " + kTry + " print(#pg.devices())");
  check_contains(out, "\n1\n{1, 1}");
  check_contains(out, "\n3\n");
}

TEST_CASE("cuda: a compiler that fails or is absent is an error of the op") {
  const std::string code = "print(select(2, pcall(function() return tostring(pg.ones(2):to('cuda') + 1) end)))";
  const Folder empty;
  check_contains(run(code, {{"PERIGEE_CUDA_NVRTC", "/absent/nvrtc.so"}, {"XDG_CACHE_HOME", empty.path().string()}}),
                 "/absent/nvrtc.so cannot be opened");
  check_contains(
      run("fake.fake_fail('nvrtcCompileProgram', 1, 6, 1)\n" + code, {{"XDG_CACHE_HOME", empty.path().string()}}),
      "a kernel does not compile for sm_80");
  check_contains(run("fake.fake_fail('cuLaunchKernel', 1, 719, 1)\n" + code),
                 "cuLaunchKernel: unspecified launch failure");
}

TEST_CASE("cuda: a library that is absent is an error of the ops that need it") {
  const auto error_of = [](const std::string& call, const char* variable) {
    return run("print(select(2, pcall(function() return " + call + " end)))\nprint(pg.ones(2):to('cuda'):sum():item())",
               {{variable, "/absent/library.so"}});
  };
  const std::string fft = error_of("pg.fft.rfft(pg.ones(4):to('cuda'))", "PERIGEE_CUDA_FFT");
  check_contains(fft, "Fourier transforms on cuda need cuFFT: /absent/library.so cannot be opened");
  check_contains(fft, "\n2");
  const std::string svd = error_of("pg.linalg.svd(pg.eye(33):to('cuda'))", "PERIGEE_CUDA_SOLVER");
  check_contains(svd, "factorizations of matrices on cuda need cuSOLVER: /absent/library.so cannot be opened");
  check_contains(svd, "\n2");
}

TEST_CASE("cuda: compiled kernels are kept on disk, and a damaged file is compiled anew") {
  const Folder cache;
  const std::string code = "print((pg.ones(2):to('cuda') + 1), 'compiled ' .. fake.fake_calls('nvrtcCompileProgram'))";
  const std::map<std::string, std::string> where = {{"XDG_CACHE_HOME", cache.path().string()}};
  check_contains(run(code, where), "compiled 1");
  check_contains(run(code, where), "compiled 0");
  int files = 0;
  for (const auto& entry : fs::directory_iterator(cache.path() / "perigee")) {
    ++files;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('?');
  }
  CHECK(files == 1);
  check_contains(run(code, where), "compiled 1");
  for (const auto& entry : fs::directory_iterator(cache.path() / "perigee")) fs::resize_file(entry.path(), 100);
  check_contains(run(code, where), "compiled 1");
  check_contains(run(code, where), "{2, 2}");
  check_contains(run(code, {{"XDG_CACHE_HOME", "/proc/absent"}}), "compiled 1");
}

TEST_CASE("cuda: an architecture that NVRTC does not know gets PTX of an older one") {
  const auto made = [](const std::map<std::string, std::string>& variables) {
    const Folder cache;
    std::map<std::string, std::string> all = variables;
    all["XDG_CACHE_HOME"] = cache.path().string();
    const std::string code =
        "print((pg.ones(2):to('cuda') + 1), 'compiled ' .. fake.fake_calls('nvrtcCompileProgram'))";
    check_contains(run(code, all), "{2, 2}");
    check_contains(run(code, all), "compiled 0");
    std::string names;
    for (const auto& entry : fs::directory_iterator(cache.path() / "perigee")) {
      const std::string name = entry.path().filename().string();
      names += name.substr(0, name.find('-'));
    }
    // An NVRTC that knows the architecture makes a cubin.
    all["PERIGEE_FAKE_ARCHS"] = "75 80 90 " + all["PERIGEE_FAKE_ARCH"];
    check_contains(run(code, all), names.starts_with("sm_") ? "compiled 0" : "compiled 1");
    return names;
  };
  CHECK(made({{"PERIGEE_FAKE_ARCH", "90"}}) == "sm_90");
  CHECK(made({{"PERIGEE_FAKE_ARCH", "89"}}) == "compute_80");
  CHECK(made({{"PERIGEE_FAKE_ARCH", "121"}}) == "compute_90");
}

TEST_CASE("cuda: a device that is too old is an error") {
  check_contains(run(kTry, {{"PERIGEE_FAKE_ARCH", "72"}}), "cuda:0 has compute capability 7.2; 7.5 is needed");
  const Folder empty;
  check_contains(run("print(select(2, pcall(function() return tostring(pg.ones(2):to('cuda') + 1) end)))",
                     {{"PERIGEE_FAKE_ARCHS", "90 100"}, {"XDG_CACHE_HOME", empty.path().string()}}),
                 "cuda: NVRTC 12.0 compiles for newer architectures than sm_80 only");
}

TEST_CASE("cuda: two processes share a folder of kernels") {
  const Folder cache;
  const std::string code =
      "local shell = ...\n"
      "local x = pg.ones(3):to('cuda')\n"
      "for i = 1, 5 do x = (x * 2):exp():log() end print(x)";
  const std::map<std::string, std::string> where = {{"XDG_CACHE_HOME", cache.path().string()}};
  const pid_t child = ::fork();
  if (child == 0) {
    run(code, where);
    ::_exit(0);
  }
  check_contains(run(code, where), "{32, 32, 32}");
  int status = 0;
  ::waitpid(child, &status, 0);
  for (const auto& entry : fs::directory_iterator(cache.path() / "perigee"))
    CHECK(entry.path().extension().string().empty());  // no temporary file is left
}

TEST_CASE("cuda: memory is cached, given back when it runs out, and then an error") {
  // Tensors of 3 MB, dropped one by one, come from one segment.
  check_contains(run("for i = 1, 20 do local x = pg.zeros(750000, {device = 'cuda'}) x:release() end\n"
                     "print('segments ' .. fake.fake_calls('cuMemAlloc_v2'))"),
                 "segments 1\n");
  check_contains(run("for i = 1, 2000 do local x = pg.zeros(10, {device = 'cuda'}) end\n"
                     "print('segments ' .. fake.fake_calls('cuMemAlloc_v2'))"),
                 "segments 1\n");
  // The cached segment of the first size is in the way of the second.
  check_contains(run("fake.fake_limit(64 * 2^20)\n"
                     "local x = pg.zeros(10 * 2^20, {device = 'cuda'}) x:release()\n"
                     "local y = pg.zeros(14 * 2^20, {device = 'cuda'})\n"
                     "print(y:sum(), 'freed ' .. fake.fake_calls('cuMemFree_v2'))"),
                 "freed 1");
  check_contains(run("fake.fake_limit(64 * 2^20)\n"
                     "print(select(2, pcall(pg.zeros, 20 * 2^20, {device = 'cuda'})))\n"
                     "print(pg.ones(2, {device = 'cuda'}))"),
                 "out of memory: cannot allocate 83886080 bytes on cuda");
}

TEST_CASE("cuda: what a kernel refuses is reported by the next wait, or at once") {
  const std::string code =
      "local x, i = pg.ones(3):to('cuda'), pg.tensor({1, 4}, {dtype = 'int64'}):to('cuda')\n"
      "local ok, y = pcall(x.index_select, x, 1, i)\n"
      "print('first', ok)\n"
      "print('second', pcall(y.totable, y))\n"
      "print('third', x:sum():item())";
  const std::string late = run(code);
  check_contains(late, "first\ttrue");
  check_contains(
      late, "index_select: bad argument 'index' (expected index values from 1 to 3 or -3 to -1, got 4 at position 2)");
  check_contains(late, "third\t3");
  check_contains(run(code.substr(0, code.find("print('second'")), {{"PERIGEE_CUDA_SYNC", "1"}}), "first\tfalse");
}

TEST_CASE("cuda: where each launch waits, a step that fails leaves gradients and parameters as they were") {
  const std::string code =
      "local net = pg.nn.HybridSequential{pg.nn.Dense(8, {in_units = 5}), pg.nn.Dense(3, {in_units = 8})}\n"
      "net:initialize() net:to('cuda')\n"
      "local loss_fn = pg.loss.SoftmaxCrossEntropyLoss()\n"
      "local trainer = pg.optim.Trainer(net:collect_params(), 'sgd', {learning_rate = 0.1})\n"
      "local step = pg.jit(function(x, y)\n"
      "  local l = pg.record(function() return loss_fn(net(x), y):mean() end)\n"
      "  l:backward() trainer:step(1) return l\n"
      "end)\n"
      "local x, y = pg.randn(4, 5):to('cuda'), pg.tensor({1, 3, 2, 1}, {dtype = 'int64'}):to('cuda')\n"
      "for i = 1, 4 do step(x, y) end\n"
      "local w = net[1].weight\n"
      "local before, grad = w:totable(), w.grad:totable()\n"
      "local function same(a, b) return pg.tensor(a):equal(pg.tensor(b)) end\n"
      "local ok = pcall(step, x, y + 2)\n"
      "print('refused', not ok)\n"
      "pcall(w.totable, w)\n"
      "print('left', same(w:totable(), before), same(w.grad:totable(), grad))\n"
      "step(x, y)\n"
      "print('goes on', not same(w:totable(), before))";
  const std::string at_once = run(code, {{"PERIGEE_CUDA_SYNC", "1"}});
  check_contains(at_once, "refused\ttrue");
  check_contains(at_once, "left\ttrue\ttrue");
  check_contains(at_once, "goes on\ttrue");
  check_contains(run(code), "refused\tfalse");  // it is reported late
}

TEST_CASE("cuda: a program is launched as one, patched and keeps its errors") {
  const std::string code =
      "local f = pg.jit(function(x, i)\n"
      "  local y, z = x * 2 + 1, x\n"
      "  for _ = 1, 8 do z = z:softmax(1) end\n"
      "  return y:index_select(1, i):exp():sum() + z:sum() - 1\n"
      "end)\n"
      "local i = pg.tensor({1, 2}, {dtype = 'int64'}):to('cuda')\n"
      "for _, k in ipairs{1, 3} do\n"
      "  local x = pg.full({3}, k / 4, {device = 'cuda'})\n"
      "  for run = 1, 4 do\n"
      "    local y = f(x, i)\n"
      "    local got, expected = y:item(), 2 * math.exp(k / 2 + 1)\n"
      "    y:release()  -- the next result has the same memory\n"
      "    assert(math.abs(got - expected) < 1e-4 * expected, got)\n"
      "  end\n"
      "  print('launches ' .. fake.fake_calls('cuGraphLaunch'), 'made ' .. "
      "fake.fake_calls('cuGraphInstantiateWithFlags'))\n"
      "end\n"
      "local bad = pg.tensor({1, 9}, {dtype = 'int64'}):to('cuda')\n"
      "print(pcall(function() return f(pg.ones(3):to('cuda'), bad):item() end))\n"
      "print(f(pg.zeros(3):to('cuda'), i):item())";
  const std::string out = run(code);
  check_contains(out, "launches 3\tmade 1");
  check_contains(out, "launches 7\tmade 1");
  check_contains(out, "got 9 at position 2");
  check_contains(out, "code.lua:");
  check_contains(out, "5.436");
}

namespace {

// The CUDA device in this process.
pg::Device device_here() {
  for (const char* name : {"PERIGEE_CUDA_DRIVER", "PERIGEE_CUDA_NVRTC", "PERIGEE_CUDA_BLAS"})
    ::setenv(name, PERIGEE_FAKE_CUDA, 1);
  return pg::device_from_name("cuda");
}

// Elements in the memory of a device.
template <class T>
class Remote {
 public:
  Remote(pg::Device device, std::vector<T> elements)
      : device_(device), count_(elements.size()), buffer_(pg::Buffer::allocate(device, pg::Bytes(count_ * sizeof(T)))) {
    set(elements);
  }
  void set(const std::vector<T>& elements) { pg::upload(device_, buffer_->data, elements.data(), count_ * sizeof(T)); }
  std::vector<T> get() const {
    std::vector<T> elements(count_);
    pg::download(device_, elements.data(), buffer_->data, count_ * sizeof(T));
    return elements;
  }
  T* at(size_t i = 0) const { return static_cast<T*>(buffer_->data) + i; }

 private:
  pg::Device device_;
  size_t count_;
  pg::Ref<pg::Buffer> buffer_;
};

}  // namespace

TEST_CASE("cuda: a program runs parts of itself by flags") {
  const pg::Device device = device_here();
  const pg::DeviceTable& table = pg::device_table(device);
  REQUIRE(pg::has_conditions(device));
  Remote<uint8_t> flags(device, {0, 0});
  const Remote<int32_t> numbers(device, {1, 2, 3, 4}), out(device, {0, 0, 0, 0});
  const auto flag = [&](size_t i) { return reinterpret_cast<const bool*>(flags.at(i)); };
  pg::CapturedWork work(device);
  const auto queue = [&](pg::Recording& r) {
    const auto copy = [&](size_t to, size_t from) {
      table.copy(device.index, r.stream(), out.at(to), numbers.at(from), sizeof(int32_t));
    };
    table.clear(device.index, r.stream(), out.at(), 4 * sizeof(int32_t));
    r.nest(pg::When::kIf, flag(0), [&] {
      copy(0, 0);
      r.nest(pg::When::kIf, flag(1), [&] { copy(1, 1); });
      r.nest(pg::When::kUnless, flag(1), [&] { copy(1, 2); });
      r.nest(pg::When::kIf, flag(1), [] {});
    });
    r.nest(pg::When::kUnless, flag(0), [&] { copy(0, 2); });
    copy(3, 3);
  };
  work.capture(0, queue, true);
  work.capture(
      1, [&](pg::Recording& r) { table.copy(device.index, r.stream(), out.at(2), numbers.at(1), sizeof(int32_t)); });
  const auto ran = [&](std::vector<uint8_t> values) {
    flags.set(values);
    REQUIRE(work.launch());
    return out.get();
  };
  CHECK(ran({0, 0}) == std::vector<int32_t>{3, 0, 2, 4});
  CHECK(ran({1, 0}) == std::vector<int32_t>{1, 3, 2, 4});
  CHECK(ran({1, 1}) == std::vector<int32_t>{1, 2, 2, 4});
  // A piece after it is replaced, then the piece with conditions.
  work.capture(
      1, [&](pg::Recording& r) { table.copy(device.index, r.stream(), out.at(2), numbers.at(3), sizeof(int32_t)); });
  CHECK(ran({0, 1}) == std::vector<int32_t>{3, 0, 4, 4});
  work.capture(
      0, [&](pg::Recording& r) { table.clear(device.index, r.stream(), out.at(), 8); }, true);
  CHECK(ran({0, 1}) == std::vector<int32_t>{0, 0, 4, 4});
  CHECK_THROWS_AS(
      work.capture(
          0, [&](pg::Recording& r) { r.nest(pg::When::kIf, flag(0), [] { throw pg::Error("no"); }); }, true),
      pg::Error);
  pg::CapturedWork other(device);
  other.capture(0, queue, true);
  REQUIRE(other.launch());
  CHECK(out.get() == std::vector<int32_t>{3, 0, 0, 4});
}

TEST_CASE("cuda: a program repeats a part of itself and counts") {
  const pg::Device device = device_here();
  const pg::DeviceTable& table = pg::device_table(device);
  using Bytes = std::vector<uint8_t>;
  for (const size_t bytes : {1, 2, 3, 4, 8, 12, 24})
    for (const bool reverse : {false, true}) {
      CAPTURE(bytes);
      CAPTURE(reverse);
      constexpr size_t kRows = 5;
      Bytes elements(kRows * bytes);
      for (size_t i = 0; i < elements.size(); ++i) elements[i] = uint8_t(i + 1);
      const Remote<uint8_t> rows(device, elements), row(device, Bytes(bytes)), more(device, {9}), flag(device, {1});
      Remote<uint8_t> out(device, Bytes(kRows * bytes));
      const Remote<int64_t> number(device, {0}), steps(device, {-1});
      Remote<int64_t> count(device, {0});
      const pg::LoopState loop = {steps.at(),
                                  number.at(),
                                  reinterpret_cast<bool*>(more.at()),
                                  count.at(),
                                  reinterpret_cast<bool*>(flag.at()),
                                  int64_t(kRows),
                                  reverse};
      pg::CapturedWork work(device);
      work.capture(
          0,
          [&](pg::Recording& r) {
            table.next_step(device.index, r.stream(), loop, true);
            r.nest(pg::When::kWhile, loop.more, [&] {
              table.read_row(device.index, r.stream(), row.at(), rows.at(), bytes, number.at());
              table.write_row(device.index, r.stream(), out.at(), row.at(), bytes, number.at());
              table.next_step(device.index, r.stream(), loop, false);
            });
          },
          true);
      for (const int64_t n : {3, 0, 9, -2}) {
        count.set({n});
        out.set(Bytes(kRows * bytes));
        REQUIRE(work.launch());
        const int64_t taken = std::clamp<int64_t>(n, 0, kRows);
        CHECK(steps.get() == std::vector<int64_t>{taken});
        Bytes expected = elements;
        std::fill(expected.begin() + taken * int64_t(bytes), expected.end(), uint8_t(0));
        CHECK(out.get() == expected);
        if (taken > 0) CHECK(number.get() == std::vector<int64_t>{reverse ? 1 : taken});
      }
    }
}

TEST_CASE("cuda: the host decides for a driver that has no conditional nodes") {
  const std::string code =
      "local f = pg.jit(function(x)\n"
      "  local y = x\n"
      "  for _ = 1, 6 do y = y:softmax(1) end\n"
      "  y = pg.cond(x:sum():gt(0), function() return y + 1 end, function() return y - 1 end)\n"
      "  for _ = 1, 6 do y = y:softmax(1) end\n"
      "  return y\n"
      "end)\n"
      "local kept = {}\n"
      "for i = 1, 6 do\n"
      "  local x = pg.full({3}, (-1) ^ i, {device = 'cuda'})\n"
      "  local before = fake.fake_calls('cuGraphLaunch')\n"
      "  kept[i] = f(x)\n"
      "  print(kept[i]:sum():item(), 'launches ' .. fake.fake_calls('cuGraphLaunch') - before)\n"
      "end";
  const std::string old = run(code, {{"PERIGEE_FAKE_VERSION", "12030"}}),
                    now = run(code, {{"PERIGEE_FAKE_VERSION", "12040"}});
  check_contains(old.substr(old.rfind('\n', old.size() - 2)), "1\tlaunches 2");
  check_contains(now.substr(now.rfind('\n', now.size() - 2)), "1\tlaunches 1");
}

// The ops that golden/cuda_by_host.txt lists run on the CPU through copies. The list may only shrink.
TEST_CASE("cuda: every op has a kernel or a decomposition, or is listed") {
  const pg::Device device = device_here();
  std::ifstream golden(PERIGEE_SOURCE_DIR "/tests/golden/cuda_by_host.txt");
  const std::set<std::string> listed{std::istream_iterator<std::string>(golden), {}};
  std::set<std::string> found;
  for (const pg::OpDef* op : pg::registry().ops()) {
    const pg::KernelRow row = pg::registry().kernel(*op, device);
    const bool served = row.fn && !pg::runs_by_host(row.fn);
    const bool moves = op->has(pg::kEffect) || op->has(pg::kBodies) || op->view || !op->cpu_kernel.fn;
    if (!served && !op->decompose && !moves) found.insert(op->name);
  }
  std::string text;
  for (const std::string& name : found) {
    CHECK_MESSAGE(listed.count(name), name, " has no kernel on cuda");
    text += name + "\n";
  }
  for (const std::string& name : listed) CHECK_MESSAGE(found.count(name), name, " can leave the list");
  if (std::getenv("PERIGEE_WRITE_GOLDEN")) std::ofstream(PERIGEE_SOURCE_DIR "/tests/golden/cuda_by_host.txt") << text;
  MESSAGE(found.size(), " ops run on the CPU");
}
#endif
