// Shared libraries of CUDA, opened at their first use, and their functions by name.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

namespace pg::cuda {

class Library {
 public:
  // Opens the file that the environment variable `variable` names, if it is set, else the first of `names` that can be
  // opened, as it is or in the folder of the toolkit. Throws Error with the loader's text.
  Library(const char* variable, std::initializer_list<const char*> names);
  void* find(const char* function) const;  // throws Error

 private:
  std::string path_;
  void* handle_ = nullptr;  // never closed: a driver does not end before the process
};

// The text of a status, or null for success.
[[noreturn]] void fail_call(const char* function, const std::string& why);

// A function of a library that returns a status. `Check` throws for one that is no success.
template <class F, void (*check)(int status, const char* function)>
class Function;
template <class R, class... A, void (*check)(int status, const char* function)>
class Function<R(A...), check> {
 public:
  void bind(const Library& library, const char* name) {
    name_ = name;
    call_ = reinterpret_cast<R (*)(A...)>(library.find(name));
  }
  void operator()(A... a) const { check(int(call_(a...)), name_); }
  R status(A... a) const { return call_(a...); }
  void require(R status) const { check(int(status), name_); }  // what `status` returned

 private:
  const char* name_ = "";
  R (*call_)(A...) = nullptr;
};

}  // namespace pg::cuda

// PERIGEE_CUDA_NAME(cuMemAlloc) is "cuMemAlloc_v2": the headers rename functions by macros.
#define PERIGEE_CUDA_TEXT(name) #name
#define PERIGEE_CUDA_NAME(name) PERIGEE_CUDA_TEXT(name)

// PERIGEE_CUDA_TABLE(Cufft, PERIGEE_CUFFT_FUNCTIONS, check_cufft) declares check_cufft and a struct with the functions
// that the macro lists. It is made like its Library.
#define PERIGEE_CUDA_MEMBER(name) Member<decltype(::name)> name;
#define PERIGEE_CUDA_BIND(name) name.bind(library, PERIGEE_CUDA_NAME(name));
#define PERIGEE_CUDA_TABLE(Table, functions, check)                               \
  void check(int status, const char* function);                                   \
  struct Table {                                                                  \
    template <class F>                                                            \
    using Member = Function<F, check>;                                            \
    Table(const char* variable, std::initializer_list<const char*> names)         \
        : library(variable, names){functions(PERIGEE_CUDA_BIND)} Library library; \
    functions(PERIGEE_CUDA_MEMBER)                                                \
  };
