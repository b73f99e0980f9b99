// The line editor, based on libedit. libedit is loaded when the prompt starts, so that scripts start faster.
#include <dlfcn.h>
#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "repl/history.h"
#include "repl/interrupt.h"
#include "repl/lines.h"
#include "tensor/terminal.h"

namespace pg::repl {
namespace {

constexpr size_t kListed = 120;  // the most completions shown

// Bracketed paste: a terminal in this mode marks what is pasted.
constexpr const char *kMarkPastes = "\033[?2004h", *kPlainPastes = "\033[?2004l";
constexpr const char *kPasteBegins = "\033[200~", *kPasteEnds = "\033[201~";

// The look of hints. kEscape marks characters that move no cursor, for libedit.
constexpr char kEscape = '\1';
constexpr const char *kDim = "\1\033[2m\1", *kNormal = "\1\033[0m\1";
constexpr size_t kLeastHint = 20;  // columns

struct Library {
  decltype(&::el_init) init = nullptr;
  decltype(&::el_end) end = nullptr;
  decltype(&::el_set) set = nullptr;
  decltype(&::el_get) get = nullptr;
  decltype(&::el_gets) gets = nullptr;
  decltype(&::el_line) line = nullptr;
  decltype(&::el_insertstr) insert = nullptr;
  decltype(&::el_deletestr) delete_before = nullptr;
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
           find(handle, "el_insertstr", insert) && find(handle, "el_deletestr", delete_before) &&
           find(handle, "el_resize", resize) && find(handle, "el_source", source) &&
           find(handle, "history_init", history_init) && find(handle, "history_end", history_end) &&
           find(handle, "history", history);
  }

 private:
  template <class F>
  static bool find(void* handle, const char* name, F& f) {
    f = reinterpret_cast<F>(dlsym(handle, name));
    return f != nullptr;
  }
};

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
  Editor(const Library& library, Assistant assistant) : lib_(library), assistant_(std::move(assistant)) {
    std::setlocale(LC_CTYPE, "");  // characters only; the decimal point of numbers stays
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    edit_ = lib_.init("perigee", stdin, stdout, stderr);
    history_ = lib_.history_init();
    HistEvent event;
    lib_.history(history_, &event, H_SETSIZE, 1000);
    lib_.history(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& entry : file_.load()) lib_.history(history_, &event, H_ENTER, entry.c_str());
    configure();
  }
  ~Editor() override {
    lib_.history_end(history_);
    lib_.end(edit_);
  }

  Read read(const char* prompt, std::string& line) override {
    prompt_ = prompt;
    stopped_ = false;
    block_.clear();
    int count = 0;
    lib_.resize(edit_);
    write_now(kMarkPastes);
    const char* text = lib_.gets(edit_, &count);
    write_now(kPlainPastes);
    if (stopped_ || (count < 0 && interrupted())) {
      std::fputs("^C\n", stdout);
      return Read::kInterrupted;
    }
    if (!text || count <= 0) {
      std::fputc('\n', stdout);
      return Read::kEnd;
    }
    line = block_ + std::string(text, size_t(count));
    if (line.back() == '\n') line.pop_back();
    return Read::kLine;
  }

  void remember(const std::string& entry) override {
    if (entry == last_ || entry.find_first_not_of(" \t\n") == std::string::npos) return;
    last_ = entry;
    forget(entry);
    HistEvent event;
    lib_.history(history_, &event, H_ENTER, entry.c_str());
    file_.append(entry);
  }

 private:
  static Editor& of(EditLine* edit) { return *static_cast<Editor*>(client_of(edit)); }
  static void* client_of(EditLine* edit) {
    void* client = nullptr;
    get_client(edit, EL_CLIENTDATA, &client);
    return client;
  }

  static void write_now(const char* text) {
    std::fputs(text, stdout);
    std::fflush(stdout);
  }

  // Removes an earlier entry of this text.
  void forget(const std::string& entry) {
    HistEvent event;
    for (int more = lib_.history(history_, &event, H_FIRST); more >= 0; more = lib_.history(history_, &event, H_NEXT)) {
      if (entry != event.str) continue;
      const int number = event.num;
      lib_.history(history_, &event, H_DEL, number);
      return;
    }
  }

  void configure() {
    get_client = lib_.get;
    lib_.set(edit_, EL_CLIENTDATA, this);
    lib_.set(edit_, EL_SIGNAL, 0);
    lib_.set(
        edit_, EL_PROMPT, +[](EditLine* e) { return const_cast<char*>(of(e).prompt_); });
    lib_.set(
        edit_, EL_RPROMPT_ESC, +[](EditLine* e) { return of(e).hint(); }, kEscape);
    lib_.set(edit_, EL_EDITOR, "emacs");
    lib_.set(edit_, EL_HIST, lib_.history, history_);
    lib_.set(
        edit_, EL_GETCFN, +[](EditLine* e, wchar_t* c) { return of(e).get_character(c); });
    lib_.set(
        edit_, EL_ADDFN, "perigee-complete", "complete the name before the cursor",
        +[](EditLine* e, int) { return of(e).complete(); });
    lib_.set(
        edit_, EL_ADDFN, "perigee-paste", "insert what is pasted", +[](EditLine* e, int) { return of(e).paste(); });
    lib_.set(edit_, EL_BIND, kPasteBegins, "perigee-paste", nullptr);
    const char* const keys[][2] = {
        {"\t", "perigee-complete"},    {"^R", "em-inc-search-prev"},  {"\033[3~", "ed-delete-next-char"},
        {"\033[H", "ed-move-to-beg"},  {"\033[F", "ed-move-to-end"},  {"\033[1~", "ed-move-to-beg"},
        {"\033[4~", "ed-move-to-end"}, {"\033[1;5C", "em-next-word"}, {"\033[1;5D", "ed-prev-word"}};
    for (const auto& [key, command] : keys) lib_.set(edit_, EL_BIND, key, command, nullptr);
    lib_.set(
        edit_, EL_ADDFN, "perigee-insert", "insert, and look for a hint",
        +[](EditLine* e, int key) { return of(e).insert_with_hint(key); });
    for (const char* key : {"(", ")", "{", "}", ","}) lib_.set(edit_, EL_BIND, key, "perigee-insert", nullptr);
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

  // Pasted lines but the last one are kept in block_, and the last one can be edited. What ends with a newline is
  // entered at once.
  unsigned char paste() {
    std::string pasted;
    while (!pasted.ends_with(kPasteEnds)) {
      char byte;
      stopped_ = !wait_for_input();
      if (stopped_ || ::read(STDIN_FILENO, &byte, 1) <= 0) return CC_EOF;
      pasted += byte == '\r' ? '\n' : byte;
    }
    pasted.resize(pasted.size() - std::strlen(kPasteEnds));
    const size_t last = pasted.rfind('\n');
    if (last == pasted.npos) {
      lib_.insert(edit_, pasted.c_str());
      return CC_REFRESH;
    }
    const LineInfo* line = lib_.line(edit_);
    const std::string before(line->buffer, line->cursor), after(line->cursor, line->lastchar);
    block_ += before + pasted.substr(0, last + 1);
    lib_.delete_before(edit_, int(before.size()));
    write_now(pasted.substr(0, last + 1).c_str());
    const bool whole = last + 1 == pasted.size() && after.empty();
    lib_.insert(edit_, whole ? "\n" : pasted.c_str() + last + 1);
    return whole ? CC_NEWLINE : CC_REDISPLAY;
  }

  unsigned char insert_with_hint(int key) {
    const char text[] = {char(key), 0};
    lib_.insert(edit_, text);
    return CC_REFRESH;
  }

  // The hint beside the line, as far as there is room. There is none while more input is waiting.
  char* hint() {
    hint_.clear();
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    const LineInfo* line = lib_.line(edit_);
    if (!colours_ || line->cursor == line->buffer || poll(&input, 1, 0) != 0) return hint_.data();
    const std::string text = assistant_.hint(std::string(line->buffer, line->cursor));
    const auto used = size_t(line->lastchar - line->buffer) + std::strlen(prompt_) + 4;
    const auto width = size_t(terminal_width());
    if (text.empty() || used + kLeastHint > width) return hint_.data();
    const bool fits = used + text.size() <= width;
    hint_ = kDim + (fits ? text : text.substr(0, width - used - 3) + "...") + kNormal;
    return hint_.data();
  }

  unsigned char complete() {
    const LineInfo* line = lib_.line(edit_);
    const std::string text(line->buffer, line->cursor);
    if (text.find_first_not_of(" \t") == std::string::npos) {
      lib_.insert(edit_, "  ");
      return CC_REFRESH;
    }
    const Completions found = assistant_.complete(text);
    if (found.names.empty()) return CC_REFRESH_BEEP;
    const std::string added = common_prefix(found.names).substr(text.size() - found.word);
    if (!added.empty()) lib_.insert(edit_, added.c_str());
    if (found.names.size() == 1 || !added.empty()) return CC_REFRESH;
    list_names(found.names);
    return CC_REDISPLAY;
  }

  static inline decltype(&::el_get) get_client = nullptr;  // el_get, by which callbacks find their Editor

  Library lib_;
  Assistant assistant_;
  HistoryFile file_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  const char* prompt_ = "";
  std::string last_;
  std::string block_;  // whole lines that were pasted into the line that is being read
  std::string hint_;
  bool stopped_ = false;
  const bool colours_ = has_colours(STDOUT_FILENO);
};

}  // namespace

std::unique_ptr<LineReader> make_editor(Assistant assistant) {
  Library library;
  if (!library.load()) return nullptr;
  return std::make_unique<Editor>(library, std::move(assistant));
}

}  // namespace pg::repl
