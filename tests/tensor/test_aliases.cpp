// Aliases and options of rows: checks of the registry, and the ops that options expand to.
#include <cstring>
#include <set>

#include "tensor/attr_check.h"
#include "tensor/rule.h"
#include "tests/tensor/arrays.h"

namespace pg::test {

TEST_CASE("registry: an alias is one name of one op, and fixes an attribute of the right kind") {
  std::set<std::string> seen;
  for (const auto& [op, alias] : registry().aliases()) {
    CHECK_MESSAGE(seen.insert(alias->name).second, alias->name);
    CHECK_MESSAGE(!registry().find(alias->name), alias->name, " is an op");
    CHECK(registry().find_alias(alias->name)->op == op);
    CHECK_MESSAGE(!op->has(kHidden), alias->name, " of a hidden op");
    if (alias->attr) CHECK(has_kind(op->attrs[size_t(op->attr_index(alias->attr))], alias->value));
  }
  CHECK(!registry().find_alias("add"));
  CHECK(registry().find_alias("view")->op == registry().find("reshape"));
}

TEST_CASE("registry: options are documented, optional, and no attributes or inputs") {
  for (const OpDef* op : registry().ops()) {
    CHECK(op->options.empty() == !op->expand);
    for (const AttrDef& option : op->options) {
      CHECK_MESSAGE((option.doc && *option.doc && option.optional), op->name, " ", option.name);
      CHECK_MESSAGE(op->attr_index(option.name) < 0, op->name, " ", option.name);
      for (const InputDef& input : op->inputs) CHECK(std::strcmp(input.name, option.name));
    }
  }
}

TEST_CASE("registry: names of aliases are not accepted where programs are read") {
  CHECK(error_text([] { registry().require("view"); }).starts_with("no op 'view'"));
}

}  // namespace pg::test
