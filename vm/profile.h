// Profile: an observer that measures how long ops, steps of programs and script lines take, and that keeps what
// happened as events, for a file that Perfetto and Chrome show.
#pragma once
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tensor/io/file.h"
#include "vm/state.h"

namespace pg::vm {

class Profile final : public Observer {
 public:
  enum class Category : uint8_t { kOp, kKernel, kGraph, kBackward, kCompile, kCollector, kTrace };

  // Times are in nanoseconds. `own` is without the work inside.
  struct Row {
    Category category;
    int32_t name, program, line;  // numbers of texts, -1 for none
    int64_t count = 0, total = 0, own = 0, bytes = 0;
  };
  struct Line {
    int64_t count = 0;  // of ops and kernels
    int64_t own = 0;    // of all work
  };

  // Events after the first `most_events` are only counted.
  Profile(State& state, size_t most_events);
  void begin(Work& work) noexcept override;
  void end(Work& work) noexcept override;

  // Adds the trace of a function, which began at the mark. `reason`: why it was traced again, or "".
  struct Mark {
    int64_t time, own;
  };
  Mark mark() const { return {now(), own_}; }
  void add_trace(const std::string& name, const Mark& since, const std::string& reason);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Line>& lines() const { return lines_; }  // by number of text
  const std::string& text(int32_t number) const { return *texts_[size_t(number)]; }
  size_t events() const { return events_.size(); }
  size_t dropped() const { return dropped_; }
  int64_t elapsed() const { return now() - started_; }
  void write(FileSink& file) const;

 private:
  struct Event {
    int64_t start, duration;
    int32_t row, line, detail;
    int32_t thread;
  };
  struct Step {
    int32_t row = -1, line = -1, detail = -1;
    int64_t bytes = 0;
  };

  static int64_t now();
  int32_t number_of(std::string_view text);
  int32_t row_of(Category category, std::string_view name, std::string_view program, int32_t line);
  int32_t row_of_op(const OpDef& op);
  const Step& step_of(const Work& work);
  int32_t line_of(const Work& work);
  int32_t script_line();
  int32_t detail_of(const Work& work);
  int32_t thread();
  void measure(int32_t row, int32_t line, int64_t duration, int64_t own, int64_t bytes);
  void keep(const Event& event);
  void finish(Work& work);
  std::string event_text(const Event& event) const;

  State& state_;
  const size_t most_events_;
  const int64_t started_;
  int64_t own_ = 0;  // the sum of all own times
  size_t dropped_ = 0;
  std::map<std::string, int32_t, std::less<>> numbers_;
  std::vector<const std::string*> texts_;
  std::vector<Row> rows_;
  std::map<std::tuple<Category, int32_t, int32_t, int32_t>, int32_t> row_numbers_;
  std::vector<int32_t> op_rows_;                           // by OpDef::id
  std::unordered_map<uint64_t, std::vector<Step>> steps_;  // by plan
  uint64_t last_plan_ = 0;
  std::vector<Step>* last_steps_ = nullptr;
  std::vector<Line> lines_;
  std::unordered_map<uint64_t, int32_t> places_;   // numbers of script lines, by hash
  std::unordered_map<uint64_t, int32_t> details_;  // numbers of texts about types, by hash
  std::vector<Event> events_;
  std::unordered_map<const void*, int32_t> threads_;  // by job
};

}  // namespace pg::vm
