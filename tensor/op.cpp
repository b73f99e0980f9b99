#include "tensor/op.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <tuple>

#include "tensor/cpu/register.h"
#include "tensor/ops/all.h"
#include "tensor/settings.h"

namespace pg {
namespace {

uint32_t mask_of(const OpDef& op, const char* name, uint32_t& outputs) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (!std::strcmp(op.inputs[i].name, name)) return 1u << i;
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (!std::strcmp(op.outputs[i], name)) outputs |= 1u << i;
  return 0;
}

// Converts vjp_uses, as in "x out", to bit masks.
void parse_uses(OpDef& op) {
  if (!op.vjp_uses) return;
  op.saved_inputs = op.saved_outputs = 0;
  for (const std::string& word : words(op.vjp_uses)) op.saved_inputs |= mask_of(op, word.c_str(), op.saved_outputs);
}

// Counts insertions, deletions, replacements and swaps of neighbors (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = int(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = char(c - 'A' + 'a');
  return out;
}

constexpr size_t kShortName = 5;

// The order of suggestions: edits without regard to case, edits, minus the length of the common prefix, the name.
using Nearness = std::tuple<int, int, int, std::string_view>;

}  // namespace

// Names that start with _ are internal and never suggested. A short name shares its first letter with what it is near
// to: one edit more turns too many other words into it.
std::string suggest(std::string_view name, std::span<const std::string_view> known) {
  const std::string lowered = lower(name);
  const int limit = name.size() < 2 ? 0 : name.size() < 5 ? 1 : 2;
  std::optional<Nearness> best;
  for (std::string_view k : known) {
    if (k.size() > name.size() + 2 || name.size() > k.size() + 2 || k.empty() || k.starts_with('_')) continue;
    if (name.size() <= kShortName && lowered[0] != lower(k)[0]) continue;
    const int edits = edit_distance(lowered, lower(k));
    if (edits > limit || k == name) continue;
    const auto mismatch = std::mismatch(name.begin(), name.end(), k.begin(), k.end());
    const Nearness near{edits, edit_distance(name, k), int(name.begin() - mismatch.first), k};
    if (!best || near < *best) best = near;
  }
  return best ? std::string(std::get<3>(*best)) : "";
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  const std::string near = suggest(name, known);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

std::vector<std::string> words(const char* text) {
  std::vector<std::string> out(1);
  for (; text && *text; ++text) {
    if (*text != ' ')
      out.back() += *text;
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

Registry& registry() {
  static Registry* instance = [] {
    check_settings();
    auto* r = new Registry;
    add_all_ops(*r);
    for (const MoreRows* more = MoreRows::first; more; more = more->next) r->add(more->rows());
    add_all_cpu_kernels(*r);
    for (const MoreRows* more = MoreRows::first; more; more = more->next)
      if (more->kernels) r->add_kernels(0, more->kernels());
    r->add_aliases();
    for (const NamedOp* use = NamedOp::first; use; use = use->next) r->require(use->name);
    return r;
  }();
  return *instance;
}

void Registry::add(std::span<const OpDef> rows) {
  static std::deque<OpDef> storage;
  for (const OpDef& row : rows) {
    OpDef& op = storage.emplace_back(row);
    op.id = int(by_id_.size());
    if (op.options.empty() != !op.expand) throw Error(fmt::format("{}: options and expand go together", op.name));
    if (op.version > 1 && !op.upgrade) throw Error(fmt::format("op {} has no upgrade from version 1", op.name));
    parse_uses(op);
    for (size_t i = 0; i < op.attrs.size(); ++i)
      if (op.attrs[i].kind == AttrKind::kRandom) op.random_attr = int(i);
    op.training_attr = op.attr_index("training");
    by_id_.push_back(&op);
    const auto at = std::lower_bound(ops_.begin(), ops_.end(), std::string_view(op.name),
                                     [](const OpDef* a, std::string_view b) { return a->name < b; });
    if (at != ops_.end() && !std::strcmp((*at)->name, op.name))
      throw Error(fmt::format("op {} is defined twice", op.name));
    ops_.insert(at, &op);
  }
}

const OpDef* Registry::find(std::string_view name) const {
  const auto at =
      std::lower_bound(ops_.begin(), ops_.end(), name, [](const OpDef* a, std::string_view b) { return a->name < b; });
  return at != ops_.end() && (*at)->name == name ? *at : nullptr;
}

const OpDef& Registry::require(std::string_view name) const {
  if (const OpDef* op = find(name)) return *op;
  std::vector<std::string_view> names;
  for (const OpDef* op : ops_) names.push_back(op->name);
  throw Error(fmt::format("no op '{}'{}", name, did_you_mean(name, names)));
}

KernelRow Registry::kernel(const OpDef& op, Device device) const {
  if (size_t(op.id) >= kernels_[device.kind].size()) return {op.name, nullptr};
  return kernels_[device.kind][op.id];
}

void Registry::add_kernels(int device_kind, std::span<const KernelRow> rows) {
  std::vector<KernelRow> table = kernels_[device_kind];
  table.resize(by_id_.size(), KernelRow{"", nullptr});
  for (const KernelRow& row : rows) {
    const OpDef& op = require(row.op);
    table[op.id] = row;
    if (device_kind == 0) const_cast<OpDef&>(op).cpu_kernel = row;
  }
  kernels_[device_kind] = std::move(table);
}

void Registry::add_aliases() {
  for (const OpDef* op : ops_)
    for (const Alias& alias : op->aliases) {
      if (find(alias.name)) throw Error(fmt::format("{}: its alias '{}' is an op", op->name, alias.name));
      if (alias.attr && op->attr_index(alias.attr) < 0)
        throw Error(
            fmt::format("{}: its alias '{}' sets the unknown attribute '{}'", op->name, alias.name, alias.attr));
      aliases_.push_back({op, &alias});
    }
  const auto by_name = [](const AliasOf& a, const AliasOf& b) { return std::strcmp(a.alias->name, b.alias->name) < 0; };
  std::sort(aliases_.begin(), aliases_.end(), by_name);
  for (size_t i = 1; i < aliases_.size(); ++i)
    if (!std::strcmp(aliases_[i - 1].alias->name, aliases_[i].alias->name))
      throw Error(fmt::format("the alias '{}' belongs to two ops", aliases_[i].alias->name));
}

const AliasOf* Registry::find_alias(std::string_view name) const {
  const auto at = std::lower_bound(aliases_.begin(), aliases_.end(), name,
                                   [](const AliasOf& a, std::string_view b) { return a.alias->name < b; });
  return at != aliases_.end() && at->alias->name == name ? &*at : nullptr;
}

Attrs make_attrs(const OpDef& op, AttrList given, const AttrReader* like) {
  if (op.attrs.empty() && given.size() == 0) return {};
  Attrs attrs(op.attrs.size());
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const int same = like ? like->op().attr_index(op.attrs[i].name) : -1;
    attrs[i] = same < 0 ? op.attrs[i].fallback : like->attrs()[size_t(same)];
  }
  for (const auto& [name, value] : given) {
    const int i = op.attr_index(name);
    if (i < 0) throw Error(fmt::format("{}: no attribute '{}'", op.name, name));
    attrs[size_t(i)] = value;
  }
  return attrs;
}

bool over_rows(const OpDef& op, int rank, Attrs& attrs) {
  const AttrReader c(op, attrs);
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& def = op.attrs[i];
    if (def.kind == AttrKind::kDim) {
      if (attrs[i].index() == 0 || rank == 0) return false;
      attrs[i] = int64_t(c.dim(def.name, rank) + 2);
    } else if (def.kind == AttrKind::kDims) {
      Ints dims;
      for (int64_t d : c.dims(def.name, rank)) dims.push_back(d + 2);
      if (dims.empty()) return false;
      attrs[i] = std::move(dims);
    }
  }
  return true;
}

}  // namespace pg
