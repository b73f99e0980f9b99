// NVRTC by the host's compiler. The "cubin" is the size of a shared object and its bytes; "PTX" has 8 bytes before,
// which begin with "ptx_" and the architecture. $PERIGEE_FAKE_ARCHS lists the architectures that this NVRTC knows.
#include <nvrtc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "fake.h"

struct _nvrtcProgram {
  std::string source, log, binary, ptx;
};

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<int> known_archs() {
  const char* given = std::getenv("PERIGEE_FAKE_ARCHS");
  std::istringstream text(given ? given : "75 80 90");
  return {std::istream_iterator<int>(text), {}};
}

// Adds the source to the folder $PERIGEE_FAKE_SOURCES, for the compiler of CUDA.
void keep_source(const std::string& source) {
  const char* folder = std::getenv("PERIGEE_FAKE_SOURCES");
  if (!folder) return;
  std::ofstream(folder + ("/" + std::to_string(std::hash<std::string>()(source))) + ".cu") << source;
}

void compile(_nvrtcProgram& program) {
  static std::atomic<int> compiled{0};
  const std::string name = "perigee-fake-" + std::to_string(::getpid()) + "-" + std::to_string(++compiled);
  const std::string folder = (std::filesystem::temp_directory_path() / name).string();
  std::error_code ignored;
  std::filesystem::create_directory(folder, ignored);
  keep_source(program.source);
  std::ofstream(folder + "/kernel.cpp") << program.source;
  const std::string command =
      "c++ -std=c++20 -O1 -ffp-contract=off -fno-math-errno -w -fmax-errors=3 -shared -fPIC -include " +
      std::string(PERIGEE_ON_HOST) + " " + folder + "/kernel.cpp -o " + folder + "/kernel.so 2>" + folder + "/log";
  if (std::system(command.c_str()) == 0) {
    const std::string object = bytes_of(folder + "/kernel.so");
    const uint64_t size = object.size();
    program.binary.assign(reinterpret_cast<const char*>(&size), sizeof size);
    program.binary += object;
  }
  program.log = bytes_of(folder + "/log");
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace

#pragma GCC visibility push(default)
nvrtcResult nvrtcVersion(int* major, int* minor) { return *major = 12, *minor = 0, NVRTC_SUCCESS; }
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char*, int, const char* const*,
                               const char* const*) {
  *program = new _nvrtcProgram{text, "", "", ""};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) { return delete *program, NVRTC_SUCCESS; }
nvrtcResult nvrtcGetNumSupportedArchs(int* count) { return *count = int(known_archs().size()), NVRTC_SUCCESS; }
nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  for (const int a : known_archs()) *archs++ = a;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  if (const int status = fake::failure("nvrtcCompileProgram")) return nvrtcResult(status);
  const std::string_view target = options[count - 1];
  const std::string arch(target.substr(target.rfind('_') + 1));
  const bool ptx = target == "--gpu-architecture=compute_" + arch;
  if (!ptx && target != "--gpu-architecture=sm_" + arch) return NVRTC_ERROR_INVALID_OPTION;
  if (!known_archs().contains(std::stoi(arch))) return NVRTC_ERROR_INVALID_OPTION;
  compile(*program);
  if (program->binary.empty()) return NVRTC_ERROR_COMPILATION;
  if (ptx) program->ptx = ("ptx_" + arch + "    ").substr(0, 8) + std::exchange(program->binary, {});
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  return *size = program->log.size() + 1, NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  return *size = program->binary.size(), NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* binary) {
  std::memcpy(binary, program->binary.data(), program->binary.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) { return *size = program->ptx.size(), NVRTC_SUCCESS; }
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* text) {
  std::memcpy(text, program->ptx.data(), program->ptx.size());
  return NVRTC_SUCCESS;
}
#pragma GCC visibility pop
