-- Hosts in C and the symbols of libperigee.so. tests/vm/test_host.cpp tests the functions of perigee.h.
local t = require "tests.support"

t.skip_in("hybrid", "hosts have states of their own")
t.skip_in("gcstress", "hosts have states of their own")

local folder, run = t.build_folder(), t.output_of

local root = run("cd '" .. t.root .. "' && pwd"):match("^[^\n]*")

t.test("a host of one C file gets the sum of its array", function()
  t.equal(run("'" .. folder .. "/perigee_host_hello'"), "2 4 6, sum 6\ncode 0\n")
end)

t.test("a host brings its own job system, allocator and log", function()
  t.equal(run("'" .. folder .. "/perigee_host_engine'"), [[
the loss fell: yes
tasks ran in the host's jobs: yes
the host's memory at most: more than 300 KB
blocks left: 0
code 0
]])
end)

local function small_model()
  local pg = require "perigee"
  local net = pg.nn.HybridSequential{pg.nn.Dense(2, {activation = "relu"}), pg.nn.Dense(2)}
  net:initialize("ones")
  net(pg.ones(1, 3))
  return net:export(t.tmp("small"))
end

t.test("16 workers answer requests with one model", function()
  local graph, weights = small_model()
  local requests, answers = {}, {}
  for i = 1, 400 do
    requests[i] = i % 50 == 0 and "GET" or i % 40 == 0 and "PREDICT 1 2" or "PREDICT 1 2 " .. i
    answers[i] = i % 50 == 0 and "404" or i % 40 == 0 and "400 PERIGEE_BAD_ARGUMENT" or ("200 %d %d"):format(2 * (3 + i), 2 * (3 + i))
  end
  local file = t.write(t.tmp("requests"), table.concat(requests, "\n") .. "\n")
  t.equal(run(("'%s/perigee_host_workers' %s %s <%s"):format(folder, graph, weights, file)), table.concat(answers, "\n") .. "\ncode 0\n")
end)

-- These hosts link libperigee.so and have no Lua.
local function skip_without_lua_inside()
  if t.sanitized then t.skip("the libraries of the sanitizers must come first") end
  local static = run("grep -s PERIGEE_STATIC:BOOL=ON '" .. folder .. "/CMakeCache.txt'"):find("code 0")
  if static then t.skip("libperigee.so of a static build takes Lua's functions from its host") end
end

-- Every function of Lua's C API in the host ends the process, and the library calls the host's.
local function without_lua(names)
  local lines = {"#include <stdlib.h>"}
  for name in names:gmatch("%f[%w_](luaL?_[%w_]+)") do lines[#lines + 1] = ("void %s(void) { abort(); }"):format(name) end
  return table.concat(lines, "\n") .. "\n", #lines
end

t.test("a model runs in a host that has no Lua", function()
  skip_without_lua_inside()
  local graph, weights = small_model()
  local text, count = without_lua(run("nm -D --undefined-only '" .. folder .. "/libperigee.so'"))
  t.check(count > 50, "no Lua functions found")
  local host = t.tmp("no_lua")
  t.write(host .. ".c", text)
  t.equal(run(("cc -I'%s/vm/include' '%s/examples/embed/model.c' %s.c -o %s -L'%s' -lperigee -Wl,-rpath,'%s' 2>&1 | grep -i error; %s %s %s 1 2 3")
    :format(root, root, host, host, folder, folder, host, graph, weights)), "linear2: 12 12\ncode 0\n")
  t.equal(run(("%s %s %s 1 2"):format(host, graph, weights)):match("^PERIGEE_BAD_ARGUMENT: [^\n]*linear[^\n]*\ncode 1"):sub(1, 20),
    "PERIGEE_BAD_ARGUMENT")
  t.check(run(("%s %s %s 1 2"):format(host, weights, weights)):find("^PERIGEE_BAD_FILE: "))
end)

t.test("the library exports the functions of perigee.h and luaopen_perigee", function()
  if t.sanitized then t.skip("the sanitizers export symbols of their own") end
  local exported, declared = {}, {}
  for name in run("nm -D --defined-only '" .. folder .. "/libperigee.so'"):gmatch(" [TWBDRV] ([%w_]+)") do
    exported[#exported + 1] = name
  end
  for name in t.read(root .. "/vm/include/perigee.h"):gmatch("PERIGEE_API [^;(]-(perigee_[%w_]+)%(") do
    declared[#declared + 1] = name
  end
  declared[#declared + 1] = "luaopen_perigee"
  table.sort(exported)
  table.sort(declared)
  t.equal(table.concat(exported, "\n"), table.concat(declared, "\n"))
end)

-- A function that takes no pointer has nothing to refuse, and is only called.
t.test("a test calls each function of perigee.h in a way that it refuses", function()
  local tests = run("cat '" .. root .. "'/tests/vm/test_host*.cpp")
  local missing = {}
  for name, parameters in t.read(root .. "/vm/include/perigee.h"):gmatch("PERIGEE_API [^;(]-(perigee_[%w_]+)(%b())") do
    local found = false
    for call in tests:gmatch(name .. "(%b())") do
      found = found or call:find("nullptr") ~= nil or not parameters:find("*", 1, true)
    end
    if not found then missing[#missing + 1] = name end
  end
  t.equal(table.concat(missing, "\n"), "")
end)

t.test("the headers compile without a warning, as C11 and as C++17", function()
  local c = t.write(t.tmp("host.c"), "#include <perigee.h>\nint main(void) { return perigee_last_error()->line; }\n")
  local cpp = t.write(t.tmp("host.cpp"), [[
#include <perigee.hpp>
int main() {
  perigee::Runtime runtime;
  perigee::State state;
  perigee_value seven = perigee::value(7.0);
  auto config = PERIGEE_INIT(perigee_runtime_config);
  return perigee_runtime_create(&config, runtime.out()) || perigee_state_open(runtime.get(), nullptr, state.out()) ||
    perigee_set(state.get(), "x", &seven) || perigee::run(state, "assert(x == 7)", "text");
}
]])
  local missing = {}
  for c_compiler, cpp_compiler in pairs{gcc = "g++", clang = "clang++"} do
    if run("command -v " .. cpp_compiler):find("code 0") then
      for _, command in ipairs{"%s -std=c11 " .. c, "%s -std=c++17 -x c++ " .. c, "%s -std=c++17 " .. cpp} do
        command = command:format(command:find("c11") and c_compiler or cpp_compiler)
        t.equal(run(("%s -Wall -Wextra -pedantic -Werror -fsyntax-only -I'%s/vm/include'"):format(command, root)), "code 0\n")
      end
    else
      missing[#missing + 1] = c_compiler
    end
  end
  if missing[1] then t.skip("no " .. table.concat(missing, " and ")) end
end)

t.test("an installation is found by pkg-config and by CMake, wherever it is moved", function()
  skip_without_lua_inside()
  local place = t.tmp("installed")
  t.equal(run(("cmake --install '%s' --prefix '%s.first' >/dev/null && mv '%s.first' '%s'"):format(folder, place, place, place)), "code 0\n")
  t.equal(run(("'%s/bin/perigee' -e 'print(1)'"):format(place)), "1\ncode 0\n")
  local source = root .. "/examples/embed/hello.c"
  t.equal(run(([[
cd '%s' && flags=$(PKG_CONFIG_PATH=$(dirname $(find . -name perigee.pc)) pkg-config --cflags --libs perigee) &&
cc '%s' $flags -Wl,-rpath,"$PWD/$(dirname $(find . -name libperigee.so))" -o hello && ./hello
]]):format(place, source)), "2 4 6, sum 6\ncode 0\n")
  t.write(t.tmp("CMakeLists.txt"), ([[
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(perigee 0.2 CONFIG REQUIRED)
add_executable(hello "%s")
target_link_libraries(hello PRIVATE perigee::perigee)
]]):format(source))
  local folder_of = t.tmp("CMakeLists.txt"):match("^(.*)/")
  t.equal(run(("cd '%s' && cmake -S . -B out -DCMAKE_PREFIX_PATH='%s' >log 2>&1 && cmake --build out >>log 2>&1 && out/hello || cat log")
    :format(folder_of, place)), "2 4 6, sum 6\ncode 0\n")
end)

t.test("the module changes nothing of a stock luajit, with its own settings", function()
  if t.sanitized then t.skip("the libraries of the sanitizers must come first") end
  if not run("command -v luajit"):find("code 0") then t.skip("luajit is not installed") end
  t.equal(run(("LUA_CPATH='%s/?.so' luajit '%s/tests/hosts/module.lua'"):format(folder, root)), "perigee ok\ncode 0\n")
end)

t.test("states in threads are closed in any order, after a fork and for a second life", function()
  if t.sanitized then t.skip("the libraries of the sanitizers must come first") end
  local host = t.tmp("states")
  t.equal(run(("cc $(pkg-config --cflags luajit) '%s/tests/hosts/states.c' -o '%s' $(pkg-config --libs luajit) -pthread && '%s' '%s/?.so'")
    :format(root, host, host, folder)), "states ok\ncode 0\n")
end)

t.test("the module takes Lua's functions from its host", function()
  local needed = run(("readelf -d '%s/perigee.so'"):format(folder))
  t.check(needed:find("libc.so", 1, true), needed)
  t.check(not needed:find("luajit", 1, true), needed)
end)
