#include "folder.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "galley/cpp/dynamic8.hpp"
#include "galley/cpp/files.hpp"
#include "galley/cpp/glob.hpp"
#include "galley/cpp/op.hpp"
#include "state_number.hpp"

namespace galley::four_bit_folder {
namespace {

using namespace sdk;
using bitsandbytes::field;
using bitsandbytes::text_of;
using nlohmann::json;

constexpr const char* kStates = "*.quant_state.bitsandbytes__*";
constexpr const char* kInState = ".quant_state.bitsandbytes__";
constexpr uint64_t kMostStateBytes = 4096;

int64_t whole_of(const json& of, const char* name, const std::string& place) {
  const json* value = field(of, name);
  const bool fits = value && value->is_number_integer() && (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX);
  if (!fits) invalid(place + ": '" + name + "' has to be a whole number");
  return value->get<int64_t>();
}

const char* name_of(four_bit::Type type) { return type == four_bit::kNf4 ? "nf4" : "fp4"; }

}  // namespace

std::optional<Folder> Folder::read(const GraphReader& graph) {
  const std::optional<bitsandbytes::Config> config = bitsandbytes::Config::read(graph);
  if (!config) return {};
  if (!config->four_bit)
    invalid(config->place + ": the folder is not quantized to 4 bit", "one in 8 bit is read with use \"quantize-int8\" {}");
  if (const std::string storage = text_of(config->said, "bnb_4bit_quant_storage", "uint8"); storage != "uint8")
    invalid(config->place + ": codes are stored as '" + storage + "', which is not read here",
            "save it with bnb_4bit_quant_storage = uint8");
  Folder out;
  out.path_ = config->model;
  out.has_weights_ = config->has_weights();
  if (!out.has_weights_) {
    out.follow_config(*config);
    return out;
  }
  for (const auto& [name, text] : read_contents(out.path_, kStates, kMostStateBytes)) out.read_state(name, text);
  if (out.states_.empty())
    invalid(out.path_ + ": config.json says that the folder is quantized, and no tensor is called " + kStates,
            "leave '" + std::string(bitsandbytes::kConfigKey) + "' out of config.json if the weights are numbers");
  out.check_book("*.weight.quant_map", code_book(out.type_));
  if (out.doubled_) out.check_book("*.weight.nested_quant_map", nested_code_book());
  return out;
}

void Folder::follow_config(const bitsandbytes::Config& config) {
  const std::string type = text_of(config.said, "bnb_4bit_quant_type", "fp4");  // transformers' default
  if (type != "nf4" && type != "fp4") invalid(config.place + ": 'bnb_4bit_quant_type' is '" + type + "'; nf4 and fp4 are read");
  type_ = type == "nf4" ? four_bit::kNf4 : four_bit::kFp4;
  block_ = 64;
  doubled_ = bitsandbytes::is_true(config.said, "bnb_4bit_use_double_quant");
  skipped_ = config.skipped();
}

void Folder::check_known(const std::set<std::string>& weights) const {
  for (const auto& [weight, state] : states_)
    if (!weights.count(weight))
      invalid(path_ + ": '" + weight + "' is quantized, and no linear layer of the model has such a weight",
              "the file belongs to another model");
}

void Folder::read_state(const std::string& tensor, const std::string& text) {
  const std::string place = path_ + ": tensor '" + tensor + "'";
  const json said = bitsandbytes::object_of(text, place);
  const size_t at = tensor.find(kInState);
  const std::string weight = tensor.substr(0, at), named = tensor.substr(at + std::strlen(kInState)),
                    type = text_of(said, "quant_type", "");
  if (type != named || (type != "nf4" && type != "fp4")) invalid(place + ": 'quant_type' is '" + type + "'; nf4 and fp4 are read");
  const bool doubled = field(said, "nested_blocksize") || field(said, "nested_offset");
  const int64_t block = whole_of(said, "blocksize", place);
  if (block < 32 || block > 4096 || (block & (block - 1)))
    invalid(place + ": 'blocksize' is " + std::to_string(block) + "; 32, 64, 128, … and 4096 are read");
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
    state.offset = offset && offset->is_number() ? offset->get<double>() : -1;
    if (!(state.offset >= 0 && state.offset <= static_cast<double>(FLT_MAX)))
      invalid(place + ": 'nested_offset' has to be a number of at least 0, a mean of magnitudes");
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
  if (has_weights_) return at == states_.end() ? nullptr : &at->second;
  const std::string module = weight.substr(0, weight.rfind('.'));
  return std::any_of(skipped_.begin(), skipped_.end(), [&](const std::string& name) { return glob_match_suffix(name, module); }) ? nullptr
                                                                                                                                 : &any_;
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
              {"llm_int8_skip_modules", skipped}};  // without it, transformers leaves out the head
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
  op.flags(GALLEY_OP_PRIVATE)
      .output("y", GALLEY_ROLE_WHOLE)
      .attr("values", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED | GALLEY_ATTR_LIST, "what y holds, at most 256 numbers")
      .infer<table_shape>()
      .reference<table_reference>()
      .test("few", {}, Attrs().numbers("values", {0.5, -1.0, 0.25}));
  return op;
}
Op& state() {
  static Op op("four_bit_state", "bytes of text, after it the offset as a number and '}'");
  op.flags(GALLEY_OP_PRIVATE)
      .input("offset", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT)
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
