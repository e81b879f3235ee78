#include "folder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/files.hpp"
#include "galley/cpp/op.hpp"
#include "state_number.hpp"

namespace galley::four_bit_folder {
namespace {

using namespace sdk;
using nlohmann::json;

constexpr const char* kStates = "*.quant_state.bitsandbytes__*";
constexpr const char* kInState = ".quant_state.bitsandbytes__";
constexpr uint64_t kMostStateBytes = 4096;

json parsed(const std::string& text, const std::string& place) {
  json out;
  try {
    out = json::parse(text);
  } catch (const json::exception&) {
    invalid(place + " is not JSON");
  }
  if (!out.is_object()) invalid(place + " is not a JSON object");
  return out;
}

const json* field(const json& of, const char* name) {
  const auto at = of.find(name);
  return at == of.end() || at->is_null() ? nullptr : &*at;
}

bool is_true(const json& of, const char* name) {
  const json* value = field(of, name);
  return value && value->is_boolean() && value->get<bool>();
}

std::string text_of(const json& of, const char* name, const std::string& otherwise) {
  const json* value = field(of, name);
  return value && value->is_string() ? value->get<std::string>() : otherwise;
}

int64_t whole_of(const json& of, const char* name, const std::string& place) {
  const json* value = field(of, name);
  if (!value || !value->is_number_integer()) invalid(place + ": '" + name + "' has to be a whole number");
  return value->get<int64_t>();
}

const char* name_of(four_bit::Type type) { return type == four_bit::kNf4 ? "nf4" : "fp4"; }

}  // namespace

std::optional<Folder> Folder::read(const GraphReader& graph) {
  const char* config = graph.config_of(kConfigKey);
  const std::string model = graph.run().model;
  if (!config || model.empty()) return {};
  const std::string place = model + "/config.json: '" + kConfigKey + "'";
  const json said = parsed(config, place);
  const std::string method = text_of(said, "quant_method", "");
  if (method != "bitsandbytes")
    invalid(place + ": the folder is quantized by '" + method + "', which is not read here", "bitsandbytes in 4 or 8 bit is");
  if (!is_true(said, "load_in_4bit"))
    invalid(place + ": the folder is not quantized to 4 bit", "one in 8 bit is read with use \"quantize-int8\" {}");
  if (const std::string storage = text_of(said, "bnb_4bit_quant_storage", "uint8"); storage != "uint8")
    invalid(place + ": codes are stored as '" + storage + "', which is not read here", "save it with bnb_4bit_quant_storage = uint8");
  Folder out;
  out.path_ = model;
  for (const auto& [name, text] : read_contents(model, kStates, kMostStateBytes)) out.read_state(name, text);
  if (out.states_.empty())
    invalid(model + ": config.json says that the folder is quantized, and no tensor is called " + kStates,
            "leave '" + std::string(kConfigKey) + "' out of config.json if the weights are numbers");
  out.check_book("*.weight.quant_map", code_book(out.type_));
  if (out.doubled_) out.check_book("*.weight.nested_quant_map", nested_code_book());
  return out;
}

void Folder::read_state(const std::string& tensor, const std::string& text) {
  const std::string place = path_ + ": tensor '" + tensor + "'";
  const json said = parsed(text, place);
  const size_t at = tensor.find(kInState);
  const std::string weight = tensor.substr(0, at), named = tensor.substr(at + std::strlen(kInState)),
                    type = text_of(said, "quant_type", "");
  if (type != named || (type != "nf4" && type != "fp4")) invalid(place + ": 'quant_type' is '" + type + "'; nf4 and fp4 are read");
  const bool doubled = field(said, "nested_blocksize") || field(said, "nested_offset");
  const int64_t block = whole_of(said, "blocksize", place);
  if (states_.empty()) {
    type_ = type == "nf4" ? four_bit::kNf4 : four_bit::kFp4;
    block_ = block;
    doubled_ = doubled;
  }
  if (type != name_of(type_) || block != block_ || doubled != doubled_)
    invalid(place + " is " + type + " in blocks of " + std::to_string(block) + (doubled ? " with" : " without") +
                " double quantization; that of '" + states_.begin()->first + "' is not",
            "all weights of a folder have to be quantized in one way");
  QuantState state;
  const json* shape = field(said, "shape");
  if (!shape || !shape->is_array()) invalid(place + ": 'shape' has to be a list");
  for (const json& extent : *shape) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 0) invalid(place + ": 'shape' has to hold whole numbers");
    state.shape.push_back(extent.get<int64_t>());
  }
  if (doubled) {
    if (whole_of(said, "nested_blocksize", place) != four_bit::kNested)
      invalid(place + ": 'nested_blocksize' has to be " + std::to_string(four_bit::kNested));
    const json* offset = field(said, "nested_offset");
    if (!offset || !offset->is_number() || !std::isfinite(offset->get<double>())) invalid(place + ": 'nested_offset' has to be a number");
    state.offset = offset->get<double>();
  }
  states_[weight] = std::move(state);
}

void Folder::check_book(const char* pattern, const std::vector<float>& book) const {
  for (const auto& [name, data] : read_contents(path_, pattern, 4096))
    if (data.size() != book.size() * sizeof(float) || std::memcmp(data.data(), book.data(), data.size()) != 0)
      invalid(path_ + ": tensor '" + name + "' is another code book than that of " + name_of(type_),
              "a folder whose code book is its own is not read here");
}

const QuantState* Folder::find(const std::string& weight) const {
  const auto at = states_.find(weight);
  return at == states_.end() ? nullptr : &at->second;
}

std::vector<float> code_book(four_bit::Type type) {
  std::vector<float> out;
  for (int code = 0; code < 16; ++code) out.push_back(four_bit::value(code, type));
  return out;
}

std::vector<float> nested_code_book() { return {dynamic8::book(true), dynamic8::book(true) + 256}; }

std::string state_text(four_bit::Type type, int64_t block, bool doubled, const std::vector<int64_t>& shape) {
  std::string out = R"({"quant_type": ")" + std::string(name_of(type)) + R"(", "blocksize": )" + std::to_string(block) +
                    R"(, "dtype": "float32", "shape": )" + json(shape).dump();
  if (!doubled) return out + "}";
  return out + R"(, "nested_blocksize": )" + std::to_string(four_bit::kNested) + R"(, "nested_dtype": "float32", "nested_offset": )";
}

std::string config_text(four_bit::Type type, bool doubled, const std::vector<std::string>& skipped) {
  json out = {{"quant_method", "bitsandbytes"},
              {"load_in_4bit", true},
              {"load_in_8bit", false},
              {"_load_in_4bit", true},
              {"_load_in_8bit", false},
              {"bnb_4bit_quant_type", name_of(type)},
              {"bnb_4bit_use_double_quant", doubled},
              {"bnb_4bit_quant_storage", "uint8"},
              {"bnb_4bit_compute_dtype", "float32"},
              {"llm_int8_enable_fp32_cpu_offload", false},
              {"llm_int8_has_fp16_weight", false},
              {"llm_int8_threshold", 6.0},
              {"llm_int8_skip_modules", nullptr}};
  if (!skipped.empty()) out["llm_int8_skip_modules"] = skipped;
  return out.dump();
}

// ---- Ops ----------------------------------------------------------------------------------------------------------------------------

namespace {

std::string text_attr(const Node& node) {
  const galley_attr* text = galley_attr_find(node.view(), "text");
  return {static_cast<const char*>(text->data), text->count};
}

void table_shape(const Node& node, Shapes& out) {
  out.set(0, GALLEY_F32, {static_cast<int64_t>(galley_attr_find(node.view(), "values")->count)});
}
void table_reference(const Node& node) {
  const galley_attr* values = galley_attr_find(node.view(), "values");
  std::copy_n(static_cast<const double*>(values->data), values->count, node.write<double>(0));
}

void state_shape(const Node& node, Shapes& out) {
  if (node.has(0) && (node.in(0).dtype != GALLEY_F32 || count(node.in(0)) != 1))
    invalid(std::string(node.name()) + ": the offset is one F32 number");
  const auto bytes = static_cast<int64_t>(text_attr(node).size());
  out.set(0, GALLEY_U8, {node.has(0) ? bytes + kNumberBytes + 1 : bytes});
}
void state_reference(const Node& node) {
  const std::string text = text_attr(node);
  uint8_t* const to = node.write<uint8_t>(0);
  std::copy(text.begin(), text.end(), to);
  if (!node.has(0)) return;
  write_number(static_cast<float>(*node.read<double>(0)), to + text.size());
  to[text.size() + kNumberBytes] = '}';
}

Op& table() {
  static Op op("four_bit_table", "y = values");
  op.output("y", GALLEY_ROLE_WHOLE)
      .attr("values", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED | GALLEY_ATTR_LIST, "what y holds, at most 256 numbers")
      .infer<table_shape>()
      .reference<table_reference>()
      .test("few", {}, Attrs().numbers("values", {0.5, -1.0, 0.25}));
  return op;
}
Op& state() {
  static Op op("four_bit_state", "bytes of text, behind it the offset as a number and '}'");
  op.input("offset", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT)
      .output("y", GALLEY_ROLE_WHOLE)
      .attr("text", GALLEY_ATTR_STRING, GALLEY_ATTR_REQUIRED, "at most 512 bytes")
      .infer<state_shape>()
      .reference<state_reference>()
      .test("text", {{0, {}}}, Attrs().s("text", "{\"shape\": [3, 4]}"))
      .test("number", {{GALLEY_F32, {1}, 0.001, 9}}, Attrs().s("text", "{\"nested_offset\": "))
      .test("large number", {{GALLEY_F32, {1}, 1e6, 1e9}}, Attrs().s("text", "{\"nested_offset\": "));
  return op;
}

}  // namespace

bool add_ops() { return add(table()) && add(state()); }

}  // namespace galley::four_bit_folder
