// Checks the properties that every row of the registry must have.
#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

#include "tensor/attr_check.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

std::vector<std::string> words(const char* text) {
  std::istringstream in(text ? text : "");
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

bool snake_case(const char* name) {
  if (!*name) return false;
  for (const char* p = name; *p; ++p)
    if (!(*p >= 'a' && *p <= 'z') && !(*p >= '0' && *p <= '9') && *p != '_') return false;
  return true;
}

std::set<std::string> input_names(const OpDef& op) {
  std::set<std::string> names;
  for (const InputDef& input : op.inputs) names.insert(input.name);
  return names;
}

bool within_bounds(const AttrDef& attr, const AttrValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return double(*i) >= attr.min && double(*i) <= attr.max;
  if (const auto* d = std::get_if<double>(&v)) return *d >= attr.min && *d <= attr.max;
  if (const auto* s = std::get_if<std::string>(&v); s && !attr.choices.empty())
    return std::any_of(attr.choices.begin(), attr.choices.end(), [&](const char* c) { return *s == c; });
  return true;
}

}  // namespace

#define EXPECT(condition, ...) CHECK_MESSAGE((condition), std::string(op->name), ": ", __VA_ARGS__)

TEST_CASE("registry: rows have documentation and examples") {
  CHECK(!registry().ops().empty());
  for (const OpDef* op : registry().ops()) {
    EXPECT(snake_case(op->name), "the name is not snake_case");
    EXPECT(op->doc && std::strlen(op->doc) >= 3, "no doc");
    if (op->has(kHidden)) {
      EXPECT(!op->example, "an example, though scripts cannot call it");
      continue;
    }
    EXPECT(op->example && std::strstr(op->example, "return"), "no example that returns something");
    EXPECT(op->example && std::strstr(op->example, op->name), "the example does not use the op");
  }
}

TEST_CASE("registry: every op runs on the CPU") {
  for (const OpDef* op : registry().ops()) {
    const bool runs = registry().kernel(*op, {}).fn || op->decompose || op->view || op->has(kBodies);
    EXPECT(runs, "neither kernel nor decomposition nor view");
    EXPECT(!op->has(kView) || op->view, "the trait kView without a view");
    EXPECT(!op->view || op->has(kView) || op->decompose || registry().kernel(*op, {}).fn,
           "a view at times, without a fallback");
    EXPECT(op->infer || op->has(kPointwise), "no infer, and not pointwise");
  }
}

TEST_CASE("registry: every op has a derivative or is marked as without") {
  for (const OpDef* op : registry().ops()) {
    EXPECT(op->differentiable() || op->decompose || op->has(kNoGrad) || op->has(kBodies),
           "neither vjp nor decomposition nor kNoGrad");
    EXPECT(!(op->differentiable() && op->has(kNoGrad)), "a vjp and kNoGrad");
    EXPECT(!(!op->vjp.empty() && op->vjp_all), "vjp and vjp_all");
    EXPECT(op->vjp.empty() || op->vjp.size() == op->inputs.size(), "vjp has not one rule an input");
  }
}

TEST_CASE("registry: vjp_uses names only inputs and outputs") {
  for (const OpDef* op : registry().ops()) {
    std::set<std::string> known = input_names(*op);
    for (const char* name : op->outputs) known.insert(name);
    for (const std::string& word : words(op->vjp_uses))
      EXPECT(known.contains(word), "vjp_uses has the unknown name ", word);
    EXPECT(op->inputs.size() <= 32, "more inputs than bits in a mask");
  }
}

TEST_CASE("registry: names of inputs, attributes and outputs are valid and unique") {
  for (const OpDef* op : registry().ops()) {
    std::set<std::string> seen;
    for (const InputDef& input : op->inputs) {
      EXPECT(snake_case(input.name), "input ", input.name);
      EXPECT(seen.insert(input.name).second, "duplicate ", input.name);
      EXPECT(input.dtypes != 0, "no dtype fits ", input.name);
      EXPECT(input.low < input.high, "an empty domain of ", input.name);
    }
    for (const AttrDef& attr : op->attrs) {
      EXPECT(snake_case(attr.name), "attribute ", attr.name);
      EXPECT(seen.insert(attr.name).second, "duplicate ", attr.name);
    }
    EXPECT(!op->outputs.empty() || op->has(kEffect), "no outputs");
    EXPECT((std::set<std::string>(op->outputs.begin(), op->outputs.end()).size() == op->outputs.size()),
           "duplicate outputs");
  }
}

TEST_CASE("registry: the signature names every input once and only existing attributes") {
  for (const OpDef* op : registry().ops()) {
    if (!op->signature) continue;
    std::set<std::string> seen;
    for (const std::string& word : words(op->signature)) {
      EXPECT(seen.insert(word).second, word, " twice in the signature");
      EXPECT(input_names(*op).contains(word) || op->attr_index(word.c_str()) >= 0,
             "unknown name in the signature: ", word);
    }
    for (const std::string& name : input_names(*op)) EXPECT(seen.contains(name), "the signature lacks ", name);
  }
}

TEST_CASE("registry: attributes have documentation and valid defaults") {
  for (const OpDef* op : registry().ops()) {
    bool random = false;
    for (const AttrDef& attr : op->attrs) {
      random = random || attr.kind == AttrKind::kRandom;
      if (attr.kind != AttrKind::kRandom) EXPECT(attr.doc && *attr.doc, "attribute ", attr.name, " has no doc");
      if (attr.fallback.index() == 0) continue;
      EXPECT(has_kind(attr, attr.fallback), "the default of ", attr.name, " is of another kind");
      EXPECT(within_bounds(attr, attr.fallback), "the default of ", attr.name, " is out of bounds");
      EXPECT(!attr.optional, attr.name, " has a default and is optional");
    }
    EXPECT(random == op->has(kRandom), "kRandom and a random attribute go together");
  }
}

TEST_CASE("registry: a list input is the only list") {
  for (const OpDef* op : registry().ops()) {
    size_t lists = 0;
    for (const InputDef& input : op->inputs) lists += input.arity == Arity::kList;
    if (lists > 0)
      EXPECT(op->inputs.back().arity == Arity::kList || op->vjp.empty(), "a list in the middle needs vjp_all");
    if (lists > 0) EXPECT(op->vjp.empty(), "ops on lists take vjp_all");
  }
}

TEST_CASE("registry: lookup finds every op and suggests names") {
  CHECK(registry().find("add") != nullptr);
  CHECK(registry().find("no_such_op") == nullptr);
  CHECK(registry().find("") == nullptr);
  CHECK(error_text([] { registry().require("ad"); }) == "no op 'ad'; did you mean 'add'?");
  CHECK(error_text([] { registry().require("zzzzzzzzzz"); }) == "no op 'zzzzzzzzzz'");
  const auto ops = registry().ops();
  for (size_t i = 1; i < ops.size(); ++i) CHECK(std::strcmp(ops[i - 1]->name, ops[i]->name) < 0);
}

TEST_CASE("registry: wrong calls are errors for every op") {
  Context ctx;
  for (const OpDef* op : registry().ops()) {
    std::vector<Value> many(op->inputs.size() + 40);
    SmallVector<Value, 2> none;
    const auto call = [&](std::span<Value> in) { return error_text([&] { apply(ctx, *op, in, make_attrs(*op)); }); };
    bool required = false, lists = false;
    for (const InputDef& input : op->inputs) {
      required = required || input.arity == Arity::kOne;
      lists = lists || input.arity == Arity::kList;
    }
    if (required) EXPECT(!call(none).empty(), "no inputs at all are taken");
    if (required || !lists) EXPECT(!call(many).empty(), "too many inputs are taken");
    EXPECT(error_text([&] {
             make_attrs(*op, {{"no_such_attribute", true}});
           }) == std::string(op->name) + ": no attribute 'no_such_attribute'",
           "an unknown attribute is taken");
  }
}

}  // namespace pg::test
