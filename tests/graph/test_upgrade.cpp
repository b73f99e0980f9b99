// Files whose ops are of an older version: the row's hook brings their attributes up to date.
#include <limits>

#include "graph/io/model_file.h"
#include "tensor/rule.h"
#include "tests/graph/graphs.h"
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

// Version 1 called `shift` `offset`. Version 2 had the default 1 for `scale`, and one number for `dims`.
void upgrade(int version, NamedAttrs& attrs) {
  if (version == 1) {
    if (auto entry = attrs.extract("offset")) {
      entry.key() = "shift";
      attrs.insert(std::move(entry));
    }
    return;
  }
  attrs.try_emplace("scale", 1.0);
  const auto dims = attrs.find("dims");
  if (dims == attrs.end()) return;
  const auto* one = std::get_if<int64_t>(&dims->second);
  if (!one) throw Error("'dims' is not one number");
  dims->second = Ints{*one};
}

std::vector<OpDef> rows() {
  return {{.name = "test_affine",
           .doc = "x times scale plus shift, summed over dims",
           .inputs = {{"x", kFloating}},
           .attrs = {{.name = "scale", .kind = AttrKind::kFloat, .fallback = 2.0, .doc = "the factor"},
                     {.name = "shift", .kind = AttrKind::kFloat, .fallback = 0.0, .doc = "the summand"},
                     {.name = "dims", .kind = AttrKind::kDims, .doc = "what is summed", .optional = true},
                     {.name = "dtype", .kind = AttrKind::kDType, .doc = "of the result", .optional = true}},
           .infer =
               [](Infer& c) {
                 Dims shape;
                 const Dims summed = c.has_attr("dims") ? c.dims("dims", c.rank(0)) : Dims{};
                 for (int d = 0; d < c.rank(0); ++d)
                   if (std::find(summed.begin(), summed.end(), d) == summed.end()) shape.push_back(c.shape(0)[d]);
                 c.output(c.has_attr("dtype") ? c.attr<DType>("dtype") : c.dtype(0), shape);
               },
           .decompose =
               [](Rule& c) {
                 Var y = c.in(0) * Var(c.attr<double>("scale")) + Var(c.attr<double>("shift"));
                 if (c.has_attr("dims")) y = call<"sum">(y, {{"dim", c.raw("dims")}});
                 if (c.has_attr("dtype")) y = call<"to">(y, {{"dtype", c.raw("dtype")}});
                 return std::vector<Var>{y};
               },
           .traits = kHidden,
           .version = 3,
           .upgrade = upgrade}};
}
const MoreRows kRows(rows);

// A model of one test_affine, whose version and attributes read `op`.
std::string model_text(const std::string& op, const std::string& type = R"(["float32",[2,3]])") {
  return R"({"format":"perigee graph","version":1,"producer":"","name":"g","graphs":[{"nodes":[)"
         R"({"kind":"input","name":"x","types":[["float32",[2,3]]]},{"op":"test_affine",)" +
         op + R"(,"in":[0],"types":[)" + type +
         R"(]}],"inputs":[0],"outputs":[1],"ticks":[],"guards":[],"lines":[]}],)"
         R"("inputs":[{"name":"x","role":"argument"}],"arguments":[{"input":0}],"results":[{"output":0}],)"
         R"("writes":[],"generators":[]})";
}

Model load(const std::string& text) {
  const NamedTensors none;
  return parse_model(text, {"m.json", &none, "m.safetensors", true}).model;
}

Attrs attrs_of(const std::string& text) { return load(text).graph.nodes[1].attrs; }

std::string refused(const std::string& text) {
  return error_of([&] { load(text); });
}

}  // namespace

TEST_CASE("an op of an older version is upgraded when its file is loaded") {
  const OpDef& op = registry().require("test_affine");
  const Attrs old_default = make_attrs(op, {{"scale", 1.0}});
  CHECK(attrs_of(model_text(R"("version":1)")) == old_default);
  CHECK(attrs_of(model_text(R"("version":2)")) == old_default);
  CHECK(attrs_of(model_text(R"("version":3)")) == make_attrs(op));
  CHECK(attrs_of(model_text(R"("version":1,"attrs":{"offset":0.5,"scale":3})")) ==
        make_attrs(op, {{"scale", 3.0}, {"shift", 0.5}}));
  CHECK(attrs_of(
            model_text(R"("version":2,"attrs":{"shift":"-inf","dims":2,"dtype":"float64"})", R"(["float64",[2]])")) ==
        make_attrs(op, {{"scale", 1.0},
                        {"shift", -std::numeric_limits<double>::infinity()},
                        {"dims", Ints{2}},
                        {"dtype", DType::kFloat64}}));
}

TEST_CASE("an upgraded model runs as it did, and is written in the new version") {
  const Model model = load(model_text(R"("version":1,"attrs":{"offset":10})"));
  Context ctx;
  const Value in[] = {range({2, 3})};
  CHECK(same(replay(ctx, model.graph, in, {})[0], range({2, 3}, 10)));
  const std::string text = model_json(model);
  CHECK_MESSAGE(contains(text, R"("op":"test_affine","version":3,"in":[0],"attrs":{"scale":1.0,"shift":10.0})"), text);
  CHECK(model_json(load(text)) == text);
}

TEST_CASE("attributes that an upgrade cannot take are refused with the version and what is wrong") {
  struct Case {
    const char *op, *error;
  };
  const Case cases[] = {
      {R"("version":4)", "version 4 of the op; this program reads up to version 3: a newer perigee wrote the file"},
      {R"("version":0)", "expected a whole number from 1"},
      {R"("version":3,"attrs":{"offset":1})", "unknown attribute 'offset'"},
      {R"("version":1,"attrs":{"slope":1})", "upgraded from version 1 of the op: unknown attribute 'slope'"},
      {R"("version":1,"attrs":{"offset":1,"offset":2})", "duplicate key 'offset'"},
      {R"("version":2,"attrs":{"dims":[1]})", "upgraded from version 2 of the op: 'dims' is not one number"},
      {R"("version":2,"attrs":{"dims":3})", "dims"},
      {R"("version":2,"attrs":{"scale":true})", "attribute 'scale' is of another kind: true"},
      {R"("version":2,"attrs":{"scale":"much"})", "attribute 'scale' is of another kind: \"much\""},
      {R"("version":2,"attrs":{"scale":[1,2.5]})", "attribute 'scale' is of another kind"},
      {R"("version":2,"attrs":{"scale":{"a":1}})", "unknown field 'a'"},
      {R"("version":2,"attrs":{"dtype":"float31"})", "attribute 'dtype' is of another kind: \"float31\""},
      {R"("version":2,"attrs":[])", "expected an object"},
  };
  for (const Case& c : cases) {
    const std::string text = refused(model_text(c.op));
    CHECK_MESSAGE(text.starts_with("load: m.json: "), text);
    CHECK_MESSAGE(contains(text, c.error), c.op, ": ", text);
  }
}

TEST_CASE("a row of a later version without an upgrade is refused") {
  Registry rows_only;
  OpDef row = *registry().find("test_affine");
  row.upgrade = nullptr;
  CHECK(error_of([&] { rows_only.add({&row, 1}); }) == "op test_affine has no upgrade from version 1");
}

}  // namespace pg::test
