// open_file: the files of a state are those that its host gives.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/vm/host.h"

namespace {

struct Disk {
  std::map<std::string, std::string> files;
  std::string log;                // of the calls: "rb:path", "close 1:path"
  size_t room = size_t(1) << 30;  // bytes until a write fails
  int opened = 0;
};

struct OpenFile {
  Disk* disk;
  std::string path, content;
  size_t position = 0;
  bool writes = false;
};

int64_t read_some(void* handle, void* data, size_t size) {
  auto& file = *static_cast<OpenFile*>(handle);
  const size_t n = file.content.copy(static_cast<char*>(data), std::min<size_t>(size, 1000), file.position);
  file.position += n;
  return int64_t(n);
}

int64_t write_some(void* handle, const void* data, size_t size) {
  auto& file = *static_cast<OpenFile*>(handle);
  size = std::min<size_t>(size, 1000);
  if (file.content.size() + size > file.disk->room) return -1;
  file.content.append(static_cast<const char*>(data), size);
  return int64_t(size);
}

int close_file(void* handle, int commit) {
  auto* file = static_cast<OpenFile*>(handle);
  file->disk->log += "close " + std::to_string(commit) + ":" + file->path + "\n";
  if (commit) file->disk->files[file->path] = file->content;
  --file->disk->opened;
  delete file;
  return 0;
}

int open_file(void* user, const char* path, const char* mode, perigee_file* out) {
  auto& disk = *static_cast<Disk*>(user);
  disk.log += std::string(mode) + ":" + path + "\n";
  const bool writes = !std::strcmp(mode, "wb");
  if (std::strstr(path, "secret") || (!writes && !disk.files.count(path))) return 0;
  ++disk.opened;
  out->handle = new OpenFile{&disk, path, writes ? "" : disk.files[path], 0, writes};
  out->read = read_some;
  out->write = write_some;
  out->close = close_file;
  return 1;
}

struct FileHost : LimitedHost {
  explicit FileHost(Disk& disk, bool sandboxed = false)
      : LimitedHost([&](perigee_state_config& config) {
          config.sandboxed = sandboxed;
          config.open_file = open_file;
          config.user = &disk;
          config.print = nullptr;
        }) {}
};

}  // namespace

TEST_CASE("host files: tensors and models are saved and loaded through open_file") {
  Disk disk;
  FileHost host(disk);
  CHECK(host.run("pg = require 'perigee' x = pg.range(1, 5000) pg.save('a/x.npy', x) "
                 "assert(pg.load('a/x.npy'):equal(x))") == PERIGEE_OK);
  CHECK(disk.log == "wb:a/x.npy\nclose 1:a/x.npy\nrb:a/x.npy\nclose 0:a/x.npy\n");
  CHECK(disk.files["a/x.npy"].size() > 5000 * 4);
  CHECK(host.run("pg.save('t.safetensors', {x = x}) assert(pg.load('t.safetensors').x:equal(x))") == PERIGEE_OK);
  CHECK(host.run(
            "local nn = pg.nn net = nn.HybridSequential{nn.Dense(3), nn.Dense(2)} net:initialize() "
            "v = pg.ones(1, 4) y = net(v) net:save_parameters('p.safetensors') net:load_parameters('p.safetensors') "
            "local json, weights = net:export('model') local again = nn.SymbolBlock.imports(json, {'data'}, weights) "
            "assert(again(v):allclose(y))") == PERIGEE_OK);
  CHECK(disk.files.count("model.json") == 1);
  CHECK(host.run("local trainer = pg.optim.Trainer(net:collect_params(), 'adam') "
                 "pg.record(function() return net(v):sum() end):backward() trainer:step(1) "
                 "trainer:save_states('s.safetensors') trainer:load_states('s.safetensors')") == PERIGEE_OK);
  CHECK(host.run("pg.data.vision.MNIST{root = 'mnist'}") == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("MNIST: no file") != std::string::npos);
  CHECK(disk.opened == 0);
  CHECK(access("a", F_OK) != 0);
  CHECK(access("p.safetensors", F_OK) != 0);
}

TEST_CASE("host files: what open_file refuses or breaks off is an error") {
  Disk disk;
  FileHost host(disk);
  CHECK(host.run("pg = require 'perigee' pg.load('absent.npy')") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "host.lua:1: load: absent.npy: no such file, or not allowed");
  CHECK(host.run("pg.save('secret.npy', pg.ones(3))") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "host.lua:1: save: secret.npy: not allowed");
  CHECK(host.run("pg.load('/etc/passwd')") == PERIGEE_SCRIPT_ERROR);
  disk.log.clear();
  disk.room = 2000;
  CHECK(host.run("pg.save('x.npy', pg.ones(1000))") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "host.lua:1: save: x.npy: cannot write");
  CHECK(disk.log == "wb:x.npy\nclose 0:x.npy\n");
  CHECK(disk.files.empty());
  disk.files["bad.npy"] = "no array";
  CHECK(host.run("pg.load('bad.npy')") == PERIGEE_SCRIPT_ERROR);
  CHECK(disk.opened == 0);
}

TEST_CASE("host files: scripts come from open_file") {
  Disk disk;
  disk.files = {{"main.lua", "#!shell\nlocal m = require 'lib.more' result = m.x + dofile('one.lua')"},
                {"lib/more.lua", "return {x = 40, name = ...}"},
                {"lib/init.lua", "return 'init'"},
                {"one.lua", "return 1"},
                {"bad.lua", "return ="}};
  FileHost host(disk);
  CHECK(perigee_run_file(host.state, "main.lua") == PERIGEE_OK);
  CHECK(host.run("assert(result == 41) assert(require('lib.more').name == 'lib.more')") == PERIGEE_OK);
  CHECK(host.run("assert(require 'lib' == 'init')") == PERIGEE_OK);
  CHECK(host.run("assert(loadfile('one.lua')() == 1) assert(not loadfile('absent.lua'))") == PERIGEE_OK);
  CHECK(host.run("require 'absent'") == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("the host gives no file 'absent.lua'") != std::string::npos);
  CHECK(host.run("require 'bad'") == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("cannot load module 'bad' from file 'bad.lua'") != std::string::npos);
  CHECK(perigee_run_file(host.state, "absent.lua") == PERIGEE_NOT_FOUND);
  CHECK(perigee_run_file(host.state, "/etc/passwd") == PERIGEE_NOT_FOUND);
  CHECK(disk.opened == 0);
}

TEST_CASE("host files: a sandbox has the files and modules of open_file, as text") {
  Disk disk;
  disk.files = {{"lib.lua", "return {x = 5}"},
                {"bytes.lua", "\x1bLJ\x02\x02"},
                {"hot.lua", "local m = ... m.y = 7 return m"},
                {"main.lua", "result = require('lib').x"}};
  FileHost host(disk, true);
  CHECK(host.run("assert(require('lib').x == 5 and dofile('lib.lua').x == 5 and io == nil)") == PERIGEE_OK);
  CHECK(host.run("pg = require 'perigee' pg.save('x.npy', pg.ones(3)) assert(pg.load('x.npy'):numel() == 3)") ==
        PERIGEE_OK);
  CHECK(host.run("local m = {} pg.utils.reload(m, 'hot.lua') assert(m.y == 7)") == PERIGEE_OK);
  CHECK(host.run("require 'bytes'") == PERIGEE_SCRIPT_ERROR);
  CHECK(host.run("assert(loadfile('bytes.lua'))") == PERIGEE_SCRIPT_ERROR);
  CHECK(host.run("pg.load('secret.npy')") == PERIGEE_SCRIPT_ERROR);
  CHECK(perigee_run_file(host.state, "main.lua") == PERIGEE_OK);
  CHECK(host.run("assert(result == 5)") == PERIGEE_OK);
  CHECK(disk.opened == 0);
}
