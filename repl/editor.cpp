// The line editor, based on libedit. libedit is loaded when the prompt starts, so that scripts start faster.
#include <dlfcn.h>
#include <histedit.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include "repl/history.h"
#include "repl/interrupt.h"
#include "repl/lines.h"

namespace pg::repl {
namespace {

constexpr size_t kListed = 120;  // the most completions shown

struct Library {
  decltype(&::el_init) init = nullptr;
  decltype(&::el_end) end = nullptr;
  decltype(&::el_set) set = nullptr;
  decltype(&::el_get) get = nullptr;
  decltype(&::el_gets) gets = nullptr;
  decltype(&::el_line) line = nullptr;
  decltype(&::el_insertstr) insert = nullptr;
  decltype(&::el_resize) resize = nullptr;
  decltype(&::el_source) source = nullptr;
  decltype(&::history_init) history_init = nullptr;
  decltype(&::history_end) history_end = nullptr;
  decltype(&::history) history = nullptr;

  bool load() {
    void* handle = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
    return find(handle, "el_init", init) && find(handle, "el_end", end) && find(handle, "el_set", set) &&
           find(handle, "el_get", get) && find(handle, "el_gets", gets) && find(handle, "el_line", line) &&
           find(handle, "el_insertstr", insert) && find(handle, "el_resize", resize) &&
           find(handle, "el_source", source) && find(handle, "history_init", history_init) &&
           find(handle, "history_end", history_end) && find(handle, "history", history);
  }

 private:
  template <class F>
  static bool find(void* handle, const char* name, F& f) {
    f = reinterpret_cast<F>(dlsym(handle, name));
    return f != nullptr;
  }
};

int terminal_width() {
  winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Prints the names in columns.
void list_names(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kListed);
  size_t widest = 0;
  for (size_t i = 0; i < shown; ++i) widest = std::max(widest, names[i].size());
  const size_t columns = std::max<size_t>(1, size_t(terminal_width()) / (widest + 2));
  const size_t rows = (shown + columns - 1) / columns;
  std::fputc('\n', stdout);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = r; i < shown; i += rows)
      std::printf("%-*s", i + rows < shown ? int(widest + 2) : 0, names[i].c_str());
    std::fputc('\n', stdout);
  }
  if (shown < names.size()) std::printf("… and %zu more\n", names.size() - shown);
  std::fflush(stdout);
}

std::string common_prefix(const std::vector<std::string>& names) {
  std::string prefix = names.front();
  for (const std::string& name : names)
    prefix.resize(size_t(std::mismatch(prefix.begin(), prefix.end(), name.begin(), name.end()).first - prefix.begin()));
  return prefix;
}

class Editor final : public LineReader {
 public:
  Editor(const Library& library, Completer completer) : lib_(library), completer_(std::move(completer)) {
    std::setlocale(LC_CTYPE, "");  // characters only; the decimal point of numbers stays
    edit_ = lib_.init("perigee", stdin, stdout, stderr);
    history_ = lib_.history_init();
    HistEvent event;
    lib_.history(history_, &event, H_SETSIZE, 1000);
    lib_.history(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& line : file_.load()) lib_.history(history_, &event, H_ENTER, line.c_str());
    configure();
  }
  ~Editor() override {
    lib_.history_end(history_);
    lib_.end(edit_);
  }

  Read read(const char* prompt, std::string& line) override {
    prompt_ = prompt;
    stopped_ = false;
    int count = 0;
    lib_.resize(edit_);
    const char* text = lib_.gets(edit_, &count);
    if (stopped_ || (count < 0 && interrupted())) {
      std::fputs("^C\n", stdout);
      return Read::kInterrupted;
    }
    if (!text || count <= 0) {
      std::fputc('\n', stdout);
      return Read::kEnd;
    }
    line.assign(text, size_t(count));
    if (line.back() == '\n') line.pop_back();
    return Read::kLine;
  }

  void remember(const std::string& line) override {
    if (line == last_ || line.find_first_not_of(" \t") == std::string::npos) return;
    last_ = line;
    HistEvent event;
    lib_.history(history_, &event, H_ENTER, line.c_str());
    file_.append(line);
  }

 private:
  static Editor& of(EditLine* edit) { return *static_cast<Editor*>(client_of(edit)); }
  static void* client_of(EditLine* edit) {
    void* client = nullptr;
    get_client(edit, EL_CLIENTDATA, &client);
    return client;
  }

  void configure() {
    get_client = lib_.get;
    lib_.set(edit_, EL_CLIENTDATA, this);
    lib_.set(edit_, EL_SIGNAL, 0);
    lib_.set(
        edit_, EL_PROMPT, +[](EditLine* e) { return const_cast<char*>(of(e).prompt_); });
    lib_.set(edit_, EL_EDITOR, "emacs");
    lib_.set(edit_, EL_HIST, lib_.history, history_);
    lib_.set(
        edit_, EL_GETCFN, +[](EditLine* e, wchar_t* c) { return of(e).get_character(c); });
    lib_.set(
        edit_, EL_ADDFN, "perigee-complete", "complete the name before the cursor",
        +[](EditLine* e, int) { return of(e).complete(); });
    const char* const keys[][2] = {
        {"\t", "perigee-complete"},    {"^R", "em-inc-search-prev"},  {"\033[3~", "ed-delete-next-char"},
        {"\033[H", "ed-move-to-beg"},  {"\033[F", "ed-move-to-end"},  {"\033[1~", "ed-move-to-beg"},
        {"\033[4~", "ed-move-to-end"}, {"\033[1;5C", "em-next-word"}, {"\033[1;5D", "ed-prev-word"}};
    for (const auto& [key, command] : keys) lib_.set(edit_, EL_BIND, key, command, nullptr);
    lib_.source(edit_, nullptr);  // ~/.editrc
  }

  // Reads one character. Ctrl-C ends the line.
  int get_character(wchar_t* out) {
    mbstate_t state = {};
    for (;;) {
      stopped_ = !wait_for_input();
      if (stopped_) return -1;
      char byte;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return 0;
      const size_t used = std::mbrtowc(out, &byte, 1, &state);
      if (used == size_t(-2)) continue;
      if (used == size_t(-1)) *out = L'?', state = {};
      return 1;
    }
  }

  unsigned char complete() {
    const LineInfo* line = lib_.line(edit_);
    const std::string text(line->buffer, line->cursor);
    if (text.find_first_not_of(" \t") == std::string::npos) {
      lib_.insert(edit_, "  ");
      return CC_REFRESH;
    }
    const Completions found = completer_(text);
    if (found.names.empty()) return CC_REFRESH_BEEP;
    const std::string added = common_prefix(found.names).substr(text.size() - found.word);
    if (!added.empty()) lib_.insert(edit_, added.c_str());
    if (found.names.size() == 1 || !added.empty()) return CC_REFRESH;
    list_names(found.names);
    return CC_REDISPLAY;
  }

  static inline decltype(&::el_get) get_client = nullptr;  // el_get, by which callbacks find their Editor

  Library lib_;
  Completer completer_;
  HistoryFile file_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  const char* prompt_ = "";
  std::string last_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<LineReader> make_editor(Completer completer) {
  Library library;
  if (!library.load()) return nullptr;
  return std::make_unique<Editor>(library, std::move(completer));
}

}  // namespace pg::repl
