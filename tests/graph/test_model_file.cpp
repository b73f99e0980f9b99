// Model files: round trips, and the golden file of each version.
#include "graph/exec/frozen.h"
#include "tests/graph/sample_models.h"

namespace pg::test {

TEST_CASE("a model loads as it was saved") {
  const Sample s;
  verify(s.model);
  const LoadedModel back = parse(s.json, s.tensors);
  CHECK(model_json(back.model) == s.json);
  CHECK(to_string(back.model.graph) == to_string(s.model.graph));
  CHECK(back.model.arguments == s.model.arguments);
  CHECK(back.model.results == s.model.results);
  CHECK(same(back.values[1], range({4, 3})));
  CHECK(!back.values[0].defined());
  CHECK(parse_model(replaced(s.json, R"("tensor":"constant/1")", R"("tensor":"constant/1")"),
                    {"m", &s.tensors, "t", false})
            .model.writes.size() == 1);
  CHECK(contains(error_of([&] { parse_model(s.json, {"m", nullptr, "", false}); }), "needs the file with the tensors"));
}

TEST_CASE("branches and loops load as they were saved, as format version 4") {
  const Sample s = control_flow_sample();
  verify(s.model);
  CHECK(contains(s.json, R"("version":4,"producer")"));
  CHECK(contains(s.json, R"("attrs":{"name":"foreach","streams":[0,1,0,0,0],"body":0,"slices":1,"carries":1,)"
                         R"("reverse":true,"limit":2,"checkpoint":5})"));
  CHECK(contains(s.json, R"("attrs":{"name":"while_loop","body":1,"condition":2,"carries":1,"conditional":true,)"
                         R"("limit":4})"));
  CHECK(contains(s.json, R"("op":"cond","version":1,"in":[6,[5,1]],"attrs":{"then_body":3,"else_body":4})"));
  const LoadedModel back = parse(s.json, s.tensors);
  CHECK(model_json(back.model) == s.json);
  CHECK(to_string(back.model.graph) == to_string(s.model.graph));
  CHECK(control_of(back.model.graph.nodes[3]).streams == control_of(s.model.graph.nodes[3]).streams);
  CHECK(contains(Sample().json, R"("version":1,"producer")"));
}

TEST_CASE("branches and loops of format version 2 load as current ones") {
  const Sample s = control_flow_sample();
  const LoadedModel old = parse(old_control_flow(), s.tensors);
  CHECK(to_string(old.model.graph) == to_string(s.model.graph));
  CHECK(model_json(old.model) == s.json);
}

TEST_CASE("a model is written to both files or none") {
  const Folder folder;
  const Sample s;
  const Values values = sample_values();
  save_model(folder / "m.json", folder / "m.safetensors", s.model, values);
  CHECK(folder.count() == 2);
  CHECK(model_json(load_model(folder / "m.json", folder / "m.safetensors").model) == s.json);
  const std::string before = get(folder / "m.safetensors");
  CHECK_THROWS_AS(save_model(folder / "no/m.json", folder / "m.safetensors", s.model, values), Error);
  CHECK_THROWS_AS(save_model(folder / "m.json", folder / "no/m.safetensors", s.model, values), Error);
  CHECK(get(folder / "m.safetensors") == before);
  CHECK(get(folder / "m.json") == s.json);
  CHECK(folder.count() == 2);
  CHECK(contains(error_of([&] { load_model(folder / "x.json", ""); }), "x.json"));
}

TEST_CASE("keys may be in any order, with any white space") {
  const Sample s;
  std::string text = replaced(s.json, R"({"format":"perigee graph","version":1,)", "{ ");
  text = replaced(text, R"("generators":[{"default":true}]})",
                  "\"generators\" : [ {\"default\":true} ]\t,\r\n\"version\":1,\"format\":\"perigee graph\" } ");
  CHECK(model_json(parse(text, s.tensors).model) == s.json);
}

TEST_CASE("the golden export of format version 1 loads and computes the same results") {
  const std::string folder = PERIGEE_SOURCE_DIR "/tests/golden/";
  const LoadedModel loaded = load_model(folder + "model-v1.json", folder + "model-v1.safetensors");
  CHECK(loaded.model.name == "Golden");
  Ref<FrozenGraph> graph(new FrozenGraph(loaded.model, loaded.values, {}));
  const NamedTensors expected = load_safetensors(folder + "model-v1-expected.safetensors");
  auto tensor = [&](const char* name) {
    for (const auto& [key, value] : expected.tensors)
      if (key == name) return value;
    FAIL(name);
    return Value();
  };
  Context ctx;
  const Value arguments[] = {tensor("x"), tensor("h")};
  for (const char* suffix : {"1", "2"}) {
    const Values out = graph->run(ctx, arguments);
    REQUIRE(out.size() == 2);
    for (size_t k = 0; k < 2; ++k) {
      const Value want = tensor((std::string(k == 0 ? "y" : "h") + suffix).c_str());
      REQUIRE(out[k].type() == want.type());
      const auto *a = static_cast<const float*>(to_contiguous(ctx, out[k]).array().data()),
                 *b = static_cast<const float*>(want.array().data());
      for (int64_t i = 0; i < want.numel(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-5));
    }
  }
}

}  // namespace pg::test
