#include "vm/profile.h"

#include <chrono>

#include "tensor/device_table.h"

namespace pg::vm {
namespace {

constexpr size_t kMostDetails = 50000;  // texts about the types of ops

constexpr const char* kCategories[] = {"op", "kernel", "graph", "backward", "compile", "collector", "trace"};

Profile::Category category_of(Work::Kind kind) {
  static_assert(int(Profile::Category::kCollector) == int(Work::Kind::kCollector));
  return Profile::Category(kind);
}

// FNV-1a over words.
struct Hash {
  uint64_t value = 0xcbf29ce484222325u;
  void add(uint64_t word) { value = (value ^ word) * 0x100000001b3u; }
  void add(const char* text) {
    for (; *text; ++text) add(uint64_t(uint8_t(*text)));
  }
  void add(std::span<const View> views) {
    for (const View& v : views) {
      if (!v) {
        add(uint64_t(1));
        continue;
      }
      add(uint64_t(v.dtype()) << 8 | uint64_t(v.rank()) << 1);
      for (int64_t size : v.shape()) add(uint64_t(size));
    }
  }
};

int64_t bytes_of(std::span<const View> views) {
  uint64_t bytes = 0;
  for (const View& v : views)
    if (v) bytes += pg::bytes_of(*v.type).count();
  return int64_t(bytes);
}

std::string types_of(std::span<const View> views) {
  std::string text;
  for (const View& v : views)
    text += (text.empty() ? "" : ", ") + (v ? fmt::format("{} {}", name_of(v.dtype()), to_string(v.shape())) : "-");
  return text;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (uint8_t(c) < 0x20)
      out += fmt::format("\\u{:04x}", int(c));
    else
      out += c;
  }
  return out + '"';
}

}  // namespace

Profile::Profile(State& state, size_t most_events) : state_(state), most_events_(most_events), started_(now()) {
  op_rows_.resize(registry().ops().size(), -1);
}

int64_t Profile::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Texts ---------------------------------------------------------------------------------------------------------------

int32_t Profile::number_of(std::string_view text) {
  const auto at = numbers_.find(text);
  if (at != numbers_.end()) return at->second;
  const auto made = numbers_.emplace(std::string(text), int32_t(texts_.size())).first;
  texts_.push_back(&made->first);
  return made->second;
}

int32_t Profile::script_line() {
  lua_Debug frame;
  if (!state_.entry || !find_script(state_.entry->L, &frame)) return -1;
  Hash hash;
  hash.add(frame.short_src);
  hash.add(uint64_t(frame.currentline));
  const auto at = places_.find(hash.value);
  if (at != places_.end()) return at->second;
  const int32_t number = number_of(fmt::format("{}:{}", frame.short_src, frame.currentline));
  places_.emplace(hash.value, number);
  return number;
}

int32_t Profile::detail_of(const Work& work) {
  Hash hash;
  hash.add(reinterpret_cast<uintptr_t>(work.op));
  hash.add(work.in);
  hash.add(uint64_t(work.in.size()));
  hash.add(work.out);
  const auto at = details_.find(hash.value);
  if (at != details_.end()) return at->second;
  if (details_.size() >= kMostDetails) return -1;
  const int32_t number =
      number_of(fmt::format("\"in\":{},\"out\":{}", quoted(types_of(work.in)), quoted(types_of(work.out))));
  details_.emplace(hash.value, number);
  return number;
}

// Rows ----------------------------------------------------------------------------------------------------------------

int32_t Profile::row_of(Category category, std::string_view name, std::string_view program, int32_t line) {
  const std::tuple key{category, number_of(name), program.empty() ? -1 : number_of(program), line};
  const auto [at, made] = row_numbers_.emplace(key, int32_t(rows_.size()));
  if (made) rows_.push_back({category, std::get<1>(key), std::get<2>(key), line});
  return at->second;
}

int32_t Profile::row_of_op(const OpDef& op) {
  const size_t id = size_t(op.id);
  if (id >= op_rows_.size()) return row_of(Category::kOp, op.name, {}, -1);
  if (op_rows_[id] < 0) op_rows_[id] = row_of(Category::kOp, op.name, {}, -1);
  return op_rows_[id];
}

const Profile::Step& Profile::step_of(const Work& work) {
  const StepPlace& place = *work.step;
  if (place.plan != last_plan_ || !last_steps_) {
    last_steps_ = &steps_[place.plan];
    last_plan_ = place.plan;
  }
  if (last_steps_->size() <= place.index) last_steps_->resize(place.index + 1);
  Step& step = (*last_steps_)[place.index];
  if (step.row >= 0) return step;
  const std::string_view line = place.line.substr(0, place.line.find(": "));
  step.line = line.empty() ? -1 : number_of(line);
  step.row = row_of(Category::kKernel, place.label(), place.program, step.line);
  step.detail = number_of(fmt::format("\"in\":{},\"out\":{}", quoted(types_of(work.in)), quoted(types_of(work.out))));
  step.bytes = bytes_of(work.out);
  return step;
}

// The position is looked up once in a call of the script, since that takes as long as a small op.
int32_t Profile::line_of(const Work& work) {
  if (work.outer && work.outer->place == work.place && work.outer->line >= 0) return work.outer->line;
  return script_line();
}

int32_t Profile::thread() {
  if (!state_.job) return 1;
  return threads_.emplace(state_.job, int32_t(threads_.size()) + 2).first->second;
}

// Work ----------------------------------------------------------------------------------------------------------------

void Profile::begin(Work& work) noexcept {
  work.place = state_.entry;
  try {
    if (!work.step) work.line = line_of(work);
  } catch (const std::exception&) {}  // it has no line then
  work.start = now();
}

void Profile::end(Work& work) noexcept {
  try {
    finish(work);
  } catch (const std::exception&) {
    ++dropped_;
  }
}

void Profile::finish(Work& work) {
  const int64_t end = now(), duration = end - work.start, own = duration - work.inner;
  if (work.outer) work.outer->inner += duration;
  Event event{.start = work.start, .duration = duration, .row = -1, .line = work.line, .detail = -1, .thread = 1};
  int64_t bytes = 0;
  if (work.step) {
    if (work.out.empty()) return;  // the step failed
    const Step& step = step_of(work);
    event.row = step.row, event.line = step.line, event.detail = step.detail;
    if (event.line < 0) event.line = line_of(work);
    bytes = step.bytes;
  } else if (work.op) {
    event.row = row_of_op(*work.op);
    if (events_.size() < most_events_) event.detail = detail_of(work);
    bytes = work.is_view ? 0 : bytes_of(work.out);
  } else {
    event.row = row_of(category_of(work.kind), work.name, {}, -1);
  }
  measure(event.row, event.line, duration, own, bytes);
  keep(event);
}

void Profile::add_trace(const std::string& name, const Mark& since, const std::string& reason) {
  const int64_t duration = now() - since.time, own = std::max<int64_t>(duration - (own_ - since.own), 0);
  if (state_.ctx.work) state_.ctx.work->inner += own;
  const int32_t row = row_of(Category::kTrace, name, {}, -1), line = script_line();
  measure(row, line, duration, own, 0);
  keep({.start = since.time,
        .duration = duration,
        .row = row,
        .line = line,
        .detail = reason.empty() ? -1 : number_of("\"reason\":" + quoted(reason)),
        .thread = 1});
}

void Profile::measure(int32_t row, int32_t line, int64_t duration, int64_t own, int64_t bytes) {
  Row& r = rows_[size_t(row)];
  ++r.count, r.total += duration, r.own += own, r.bytes += bytes;
  own_ += own;
  if (line < 0) return;
  if (lines_.size() <= size_t(line)) lines_.resize(size_t(line) + 1);
  lines_[size_t(line)].count += r.category == Category::kOp || r.category == Category::kKernel;
  lines_[size_t(line)].own += own;
}

void Profile::keep(const Event& event) {
  if (events_.size() >= most_events_) return void(++dropped_);
  events_.push_back(event);
  events_.back().thread = thread();
}

// The file ------------------------------------------------------------------------------------------------------------

std::string Profile::event_text(const Event& e) const {
  const Row& row = rows_[size_t(e.row)];
  std::string args;
  const auto add = [&](const std::string& part) { args += (args.empty() ? "" : ",") + part; };
  if (e.line >= 0) add("\"line\":" + quoted(text(e.line)));
  if (row.program >= 0) add("\"graph\":" + quoted(text(row.program)));
  if (e.detail >= 0) add(text(e.detail));
  return fmt::format(R"({{"name":{},"cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":1,"tid":{},"args":{{{}}}}})",
                     quoted(text(row.name)), kCategories[int(row.category)], double(e.start - started_) / 1e3,
                     double(e.duration) / 1e3, e.thread, args);
}

void Profile::write(FileSink& file) const {
  file.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
  const auto name = [&](const char* what, int thread, const std::string& text) {
    file.write(
        fmt::format(R"({{"name":"{}","ph":"M","pid":1,"tid":{},"args":{{"name":{}}}}})", what, thread, quoted(text)));
  };
  name("process_name", 1, "perigee");
  file.write(",\n");
  name("thread_name", 1, "script");
  for (const auto& [job, thread] : threads_)
    file.write(",\n"), name("thread_name", thread, fmt::format("job {}", thread - 1));
  for (const Event& e : events_) {
    file.write(",\n");
    file.write(event_text(e));
  }
  file.write(fmt::format("\n],\"otherData\":{{\"dropped\":{}}}}}\n", dropped_));
}

}  // namespace pg::vm
