// A storage format: its components beside what its ops make, what comes back of numbers, ranges by themselves, and its codec on the processor.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "host/exec/convert.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/isa.hpp"
#include "host/tools/check/cases.hpp"
#include "host/tools/check/rules.hpp"
#include "host/tools/check/tests.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

struct Component {
  uint32_t dtype = 0;
  Shape shape;
  int64_t numbers = 0;
  bool operator==(const Component&) const = default;
};

class FormatCheck {
 public:
  FormatCheck(const CheckContext& context, const galley_format& format, TestLog& log)
      : context_(context),
        format_(format),
        log_(log),
        ops_([&plugins = context.plugins](std::string_view name) { return plugins.op(name).table; }) {}

  Status run() {
    if (format_.pack_op) pack_ = ops_(format_.pack_op);
    unpack_ = ops_(format_.unpack_op);
    if (!unpack_ || (format_.pack_op && !pack_))
      return find("", std::string("there is no op '") + (unpack_ ? format_.pack_op : format_.unpack_op) + "'", rules::kComponents), ok();
    if (!pack_) return log_.unchecked("nothing is packed into it"), ok();
    if (!pack_->reference || !unpack_->reference) return log_.unchecked("its ops have no references"), ok();
    std::set<std::string> seen;
    for (uint32_t c = 0; c < pack_->n_cases; ++c) {
      std::mt19937_64 random(context_.seed + c);
      LoneNode node = TRY(LoneNode::of(pack_, *pack_->cases[c], random));
      if (node.inputs.empty() || !node.inputs[0] || node.inputs[0]->dtype != GALLEY_F32) continue;
      for (size_t i = 1; i < node.inputs.size(); ++i)
        if (input_rule(pack_, i)->flags & GALLEY_OPERAND_OPTIONAL) node.inputs[i].reset();  // random bits: to the nearest
      if (seen.insert(node.attrs.key() + shape_key(node.inputs[0]->shape)).second)
        TRY_STATUS(check_case(node, pack_->cases[c]->node->name));
    }
    if (seen.empty()) log_.unchecked("its pack op has no test cases in F32");
    const auto about = [&](const FormatPromise& promise) { return promise.format == format_.name; };
    if (!(format_.flags & GALLEY_FORMAT_EXACT) && std::ranges::none_of(context_.plugin.manifest.promises, about))
      log_.unchecked("how near numbers come back: the manifest has no [[promise]] of it");
    check_unknown();
    return ok();
  }

 private:
  void find(const std::string& where, const std::string& sentence, const char* rule, double size = INFINITY) {
    log_.find({where, sentence, rule, size});
  }
  static std::string shape_key(const Shape& shape) {
    std::string out;
    for (const int64_t e : shape) out += "," + std::to_string(e);
    return out;
  }

  Result<std::vector<Component>> components(const Shape& shape, const std::vector<const galley_attr*>& attrs) const {
    std::array<galley_component, GALLEY_MAX_COMPONENTS> room;
    std::array<galley_component*, GALLEY_MAX_COMPONENTS> pointers = {};
    for (size_t i = 0; i < room.size(); ++i) room[i] = new_struct<galley_component>(), pointers[i] = &room[i];
    uint32_t n = 0;
    TRY_STATUS(call_plugin(caller_of(&format_, format_.name), "components", [&](galley_error* error) {
      return format_.components(format_.self, shape.data(), static_cast<uint32_t>(shape.size()), attrs.data(),
                                static_cast<uint32_t>(attrs.size()), pointers.data(), &n, error);
    }));
    std::vector<Component> out;
    for (uint32_t i = 0; i < n; ++i)
      out.push_back({room[i].dtype, Shape(room[i].extents, room[i].extents + room[i].rank), room[i].numbers});
    return out;
  }

  Result<Values> pack(const LoneNode& like, const std::vector<double>& numbers, const Shape& shape) const {
    LoneNode node = like;
    node.inputs[0] = Numbers::of(GALLEY_F32, shape);
    if (!numbers.empty()) node.inputs[0]->set(numbers);
    return outputs_of(node, ops_);
  }
  Result<std::vector<double>> unpack(const LoneNode& like, const Values& components) const {
    LoneNode node;
    node.op = unpack_;
    node.name = like.name + ".unpacked";
    for (const galley_attr* a : options_of(like.attrs)) node.attrs.set(*a);
    for (const auto& component : components)
      if (component) node.inputs.push_back(component);
    return TRY(outputs_of(node, ops_)).front()->floats;
  }
  Result<std::vector<double>> back(const LoneNode& like, const std::vector<double>& numbers, const Shape& shape) const {
    return unpack(like, TRY(pack(like, numbers, shape)));
  }

  Status check_case(const LoneNode& node, const std::string& name) {
    const std::string where = "case '" + name + "'";
    const Shape shape = node.inputs[0]->shape;
    const auto options = options_of(node.attrs);
    const auto said = components(shape, options), again = components(shape, options);
    if (!said || !again) return find(where, (said ? again : said).error().cause, rules::kComponents), ok();
    if (*said != *again) return find(where, "components() says something else when it is asked again", rules::kPure), ok();
    const Result<Values> packed = outputs_of(node, ops_);
    if (!packed) return find(where, packed.error().cause, rules::kReference), ok();
    if (!check_components(where, node, *said, *packed)) return ok();
    const auto y = unpack(node, *packed);
    if (!y) return find(where, y.error().cause, rules::kReference), ok();
    log_.held("components, packed and unpacked");
    TRY_STATUS(check_zeros(where, node, shape));
    TRY_STATUS(check_exact(where, node, *packed, *y));
    TRY_STATUS(check_range(where, node, *said, *packed, *y));
    TRY_STATUS(check_codec(where, node, *packed, *y));
    return ok();
  }

  /// Components have the shapes that the pack op makes, and as many elements as their numbers ask for.
  bool check_components(const std::string& where, const LoneNode& node, const std::vector<Component>& said, const Values& packed) {
    size_t at = 0;
    const int64_t count = node.inputs[0]->count();
    for (const auto& made : packed) {
      if (!made) continue;
      const std::string which = where + ", component " + std::to_string(at);
      if (at == said.size()) return find(which, "the pack op makes it, and components() does not say it", rules::kComponents), false;
      const Component& c = said[at++];
      if (c.dtype != made->dtype || c.shape != made->shape)
        return find(which,
                    "components() says " + dtype_text(c.dtype) + shape_text(c.shape) + ", and the pack op makes " +
                        dtype_text(made->dtype) + shape_text(made->shape),
                    rules::kComponents),
               false;
      const int64_t n = elements(c.shape);
      if (c.numbers > 0 && (n * c.numbers < count || (n - 1) * c.numbers >= count))
        return find(which,
                    std::to_string(n) + " elements of " + std::to_string(c.numbers) + " numbers each are not the tensor's " +
                        std::to_string(count),
                    rules::kNumbers),
               false;
    }
    if (at != said.size()) return find(where, "components() says more than the pack op makes", rules::kComponents), false;
    return true;
  }

  Status check_zeros(const std::string& where, const LoneNode& node, const Shape& shape) {
    const auto y = back(node, std::vector<double>(static_cast<size_t>(elements(shape)), 0), shape);
    if (!y) return find(where + ", zeros", y.error().cause, rules::kZeros), ok();
    if (std::ranges::any_of(*y, [](double v) { return v != 0; }))
      find(where + ", zeros", printed("they come back as %g", *std::ranges::find_if(*y, [](double v) { return v != 0; })), rules::kZeros);
    else log_.held("zeros");
    // Of what is no number only that nothing else happens: it is said, not asked for.
    std::vector<double> numbers = node.inputs[0]->floats;
    if (numbers.empty()) return ok();
    std::string become;
    for (const double x : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
      numbers.front() = x;
      const auto z = back(node, numbers, shape);
      become += std::string(become.empty() ? "" : ", ") + (std::isnan(x) ? "NaN" : "infinity") + " becomes " +
                (z ? number_text(z->front()) : "an error");
    }
    log_.held(become);
    return ok();
  }

  /// GALLEY_FORMAT_EXACT: a number is rounded by itself, and packing again changes nothing.
  Status check_exact(const std::string& where, const LoneNode& node, const Values& packed, const std::vector<double>& y) {
    if (!(format_.flags & GALLEY_FORMAT_EXACT) || y.size() < 2) return ok();
    const Shape shape = node.inputs[0]->shape;
    std::vector<double> other = node.inputs[0]->floats;
    other.front() = 1000;
    const auto z = back(node, other, shape), again = back(node, y, shape);
    if (!z || !again) return find(where, (z ? again : z).error().cause, rules::kExact), ok();
    for (size_t i = 1; i < y.size(); ++i)
      if ((*z)[i] != y[i] || (*again)[i] != y[i])
        return find(where,
                    printed("number %zu comes back as %.7g, and as %.7g ", i, y[i], (*z)[i] != y[i] ? (*z)[i] : (*again)[i]) +
                        ((*z)[i] != y[i] ? "when another number is larger" : "when it is packed again"),
                    rules::kExact),
               ok();
    (void)packed;
    log_.held("exact");
    return ok();
  }

  /// A range that begins and ends at multiples of the components' numbers, by itself.
  Status check_range(const std::string& where, const LoneNode& node, const std::vector<Component>& said, const Values& packed,
                     const std::vector<double>& y) {
    int64_t unit = 1;
    for (const Component& c : said) {
      if (c.numbers <= 0) return ok();
      unit = std::lcm(unit, c.numbers);
    }
    const auto count = static_cast<int64_t>(y.size());
    const int64_t first = unit, n = (count / unit - 1) / 2 * unit;
    if (n <= 0 || first + n > count) return ok();
    const auto of_range = components({n}, options_of(node.attrs));
    if (!of_range) return ok();
    Values part;
    size_t at = 0;
    for (const auto& made : packed) {
      if (!made) continue;
      const Component& c = (*of_range)[at];
      const int64_t numbers = said[at++].numbers, begin = first / numbers, size = n / numbers;
      if (elements(c.shape) != size) return ok();  // no range by itself
      Numbers& to = *part.emplace_back(Numbers::of(made->dtype, c.shape));
      const int64_t bytes = made->floating() ? 0 : galley_dtype_bytes(made->dtype);
      if (made->floating()) std::copy_n(made->floats.begin() + begin, size, to.floats.begin());
      else std::copy_n(made->bytes.begin() + begin * bytes, size * bytes, to.bytes.begin());
    }
    const auto z = unpack(node, part);
    if (!z) return find(where + ", a range", z.error().cause, rules::kRange), ok();
    for (int64_t i = 0; i < n; ++i)
      if ((*z)[static_cast<size_t>(i)] != y[static_cast<size_t>(first + i)])
        return find(where + ", a range",
                    printed("number %lld is %.7g in the tensor, and %.7g in its range", static_cast<long long>(first + i),
                            y[static_cast<size_t>(first + i)], (*z)[static_cast<size_t>(i)]),
                    rules::kRange),
               ok();
    log_.held("a range by itself");
    return ok();
  }

  // ---- The codec -------------------------------------------------------------------------------------------------------------------------

  /// Bytes of the components as they are stored.
  static std::vector<std::vector<std::byte>> bytes_of(const Values& packed) {
    std::vector<std::vector<std::byte>> out;
    for (const auto& n : packed) {
      if (!n) continue;
      std::vector<std::byte>& bytes = out.emplace_back(static_cast<size_t>(n->count() * galley_dtype_bytes(n->dtype)));
      if (n->floating()) convert(bytes.data(), n->dtype, n->floats.data(), GALLEY_F64, n->count());
      else std::ranges::copy(n->bytes, bytes.begin());
    }
    return out;
  }

  Status check_codec(const std::string& where, const LoneNode& node, const Values& packed, const std::vector<double>& y) {
    const std::string machine = cpu_isa();
    std::set<std::string> levels;
    for (const KernelLibrary& library : context_.plugin.manifest.kernel_libraries)
      if (library.device == "cpu" && isa_rank(library.isa, machine)) levels.insert(library.isa);
    levels.insert(machine);
    std::set<const galley_codec*> seen;
    for (const std::string& isa : levels) {
      const galley_codec* const codec = context_.plugins.codec(format_.name, "cpu", isa);
      if (codec && seen.insert(codec).second)
        TRY_STATUS(check_codec(where + ", codec" + (isa == machine ? "" : " for " + isa), *codec, node, packed, y));
    }
    if (seen.empty()) log_.unchecked("it has no codec for the processor");
    return ok();
  }

  Status check_codec(const std::string& where, const galley_codec& codec, const LoneNode& node, const Values& packed,
                     const std::vector<double>& y) {
    std::vector<std::vector<std::byte>> bytes = bytes_of(packed);
    std::vector<galley_operand> parts;
    parts.reserve(bytes.size());
    std::vector<const galley_operand*> pointers;
    for (const auto& n : packed) {
      if (!n) continue;
      auto part = new_struct<galley_operand>();
      part.name = "";
      part.data = bytes[parts.size()].data();
      part.shape = n->shape.data();
      part.rank = static_cast<uint32_t>(n->shape.size());
      part.dtype = n->dtype;
      part.access = GALLEY_READ_WRITE;
      pointers.push_back(&parts.emplace_back(part));
    }
    const auto options = options_of(node.attrs);
    const Shape& shape = node.inputs[0]->shape;
    auto operand = new_struct<galley_operand>();
    operand.name = "";
    operand.shape = shape.data();
    operand.rank = static_cast<uint32_t>(shape.size());
    operand.dtype = GALLEY_F32;
    operand.access = GALLEY_READ;
    operand.format = format_.name;
    operand.components = pointers.data();
    operand.n_components = static_cast<uint32_t>(pointers.size());
    operand.attrs = options.data();
    operand.n_attrs = static_cast<uint32_t>(options.size());
    alignas(16) std::array<std::byte, GALLEY_CODEC_STATE + 64> state = {};
    std::fill(state.begin() + GALLEY_CODEC_STATE, state.end(), std::byte{0x5a});
    int64_t unit = 0;
    const Caller caller = caller_of(&codec, format_.name);
    galley_operand newer = operand;
    newer.flags = kUnknownFlag;
    if (call_plugin(caller, "open", [&](galley_error* error) { return codec.open(codec.self, &newer, state.data(), &unit, error); }))
      find(where, "it opens an operand with an unknown flag", rules::kFlags);
    const Status opened =
        call_plugin(caller, "open", [&](galley_error* error) { return codec.open(codec.self, &operand, state.data(), &unit, error); });
    if (!opened) return log_.unchecked(where + ": " + opened.error().cause), ok();
    if (std::any_of(state.begin() + GALLEY_CODEC_STATE, state.end(), [](std::byte b) { return b != std::byte{0x5a}; }))
      return find(where, "its state is larger than GALLEY_CODEC_STATE", rules::kCodec), ok();

    const auto count = static_cast<int64_t>(y.size());
    std::vector<float> whole(static_cast<size_t>(count));
    const auto decode = [&](int64_t first, int64_t n, void* to, uint32_t dtype) {
      return call_plugin(
          caller, "decode", [&](galley_error* error) { return codec.decode(state.data(), first, n, dtype, to, nullptr, error); },
          Phase::Run);
    };
    if (const Status status = decode(0, count, whole.data(), GALLEY_F32); !status)
      return find(where, status.error().cause, rules::kCodec), ok();
    for (int64_t i = 0; i < count; ++i) {
      const double is = whole[static_cast<size_t>(i)], wanted = y[static_cast<size_t>(i)];
      if (std::fabs(is - wanted) <= 2e-6 * std::fabs(wanted) + 1e-30 || (std::isnan(is) && std::isnan(wanted))) continue;
      return find(where, printed("number %lld is %.7g, and the unpack op says %.7g", static_cast<long long>(i), is, wanted), rules::kCodec),
             ok();
    }
    // Ranges that begin and end anywhere.
    for (const int64_t step : {int64_t{1}, int64_t{7}, int64_t{61}})
      for (int64_t first = 0; first < std::min<int64_t>(count, 40 * step); first += step) {
        const int64_t n = std::min(step, count - first);
        std::vector<float> part(static_cast<size_t>(n + 8), 12345.f);
        if (const Status status = decode(first, n, part.data(), GALLEY_F32); !status)
          return find(where, status.error().cause, rules::kDecode), ok();
        for (int64_t i = 0; i < n + 8; ++i) {
          const float wanted = i < n ? whole[static_cast<size_t>(first + i)] : 12345.f, is = part[static_cast<size_t>(i)];
          if (is == wanted || (std::isnan(is) && std::isnan(wanted))) continue;
          return find(where,
                      printed("of numbers %lld to %lld, number %lld is %.7g, and in the whole tensor %.7g", static_cast<long long>(first),
                              static_cast<long long>(first + n - 1), static_cast<long long>(first + i), static_cast<double>(is),
                              static_cast<double>(wanted)),
                      rules::kDecode),
                 ok();
        }
      }
    for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
      const std::string to_dtype = where + " to " + dtype_text(dtype);
      std::vector<uint16_t> is(static_cast<size_t>(count) + 8, 0x5a5a), nearest(is.size());
      if (const Status status = decode(0, count, is.data(), dtype); !status)
        return find(to_dtype, status.error().cause, rules::kRounded), ok();
      if (std::any_of(is.begin() + count, is.end(), [](uint16_t x) { return x != 0x5a5a; }))
        return find(to_dtype, "it writes after its last number", rules::kRounded), ok();
      convert(nearest.data(), dtype, y.data(), GALLEY_F64, count);
      for (size_t i = 0; i < y.size(); ++i) {
        if (is[i] == nearest[i] || std::isnan(y[i])) continue;
        double number = 0, wanted = 0;
        convert(&number, GALLEY_F64, &is[i], dtype, 1);
        convert(&wanted, GALLEY_F64, &nearest[i], dtype, 1);
        // What is rounded may be that number in F32.
        if (std::isfinite(wanted) && std::fabs(number - y[i]) <= std::fabs(wanted - y[i]) + 4e-6 * std::fabs(y[i])) continue;
        return find(to_dtype, printed("number %zu is %.7g, and %.7g rounded once is %.7g", i, number, y[i], wanted), rules::kRounded), ok();
      }
    }
    log_.held("codec: decode");
    return check_encode(where, codec, caller, node, state.data(), unit, bytes, whole, decode);
  }

  template <class Decode>
  Status check_encode(const std::string& where, const galley_codec& codec, const Caller& caller, const LoneNode& node, void* state,
                      int64_t unit, std::vector<std::vector<std::byte>>& bytes, const std::vector<float>& before, const Decode& decode) {
    if (!codec.encode) return ok();
    const auto count = static_cast<int64_t>(before.size());
    std::vector<float> x(before.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(node.inputs[0]->floats[i]);
    if (unit < 1) return find(where, "its unit is " + std::to_string(unit), rules::kCodec), ok();
    for (std::vector<std::byte>& component : bytes) std::ranges::fill(component, std::byte{0});
    const int64_t half = count / 2 / unit * unit;
    for (const auto& [first, n] : {std::pair{half, count - half}, std::pair{int64_t{0}, half}}) {
      if (n == 0) continue;
      const Status status = call_plugin(
          caller, "encode", [&](galley_error* error) { return codec.encode(state, first, n, x.data() + first, nullptr, error); },
          Phase::Run);
      if (!status) return find(where, status.error().cause, rules::kCodec), ok();
    }
    std::vector<float> back(before.size());
    if (const Status status = decode(0, count, back.data(), GALLEY_F32); !status)
      return find(where, status.error().cause, rules::kCodec), ok();
    for (size_t i = 0; i < x.size(); ++i) {
      const double is = std::fabs(static_cast<double>(back[i]) - x[i]), was = std::fabs(static_cast<double>(before[i]) - x[i]);
      if (is <= was * 1.001 + 2e-6 * std::fabs(x[i]) + 1e-12) continue;
      return find(where,
                  printed("number %zu, %.7g, is encoded as %.7g, and packed as %.7g", i, static_cast<double>(x[i]),
                          static_cast<double>(back[i]), static_cast<double>(before[i])),
                  rules::kCodec),
             ok();
    }
    log_.held("codec: encode");
    return ok();
  }

  /// An option that the format does not know, and one with a flag that it does not know.
  void check_unknown() {
    AttrList attrs;
    attrs.set("no-such-option", int64_t{1});
    std::array<galley_component, GALLEY_MAX_COMPONENTS> room;
    std::array<galley_component*, GALLEY_MAX_COMPONENTS> pointers = {};
    for (size_t i = 0; i < room.size(); ++i) room[i] = new_struct<galley_component>(), pointers[i] = &room[i];
    const int64_t shape[] = {64, 64};
    uint32_t n = 77;
    galley_error error = GALLEY_ERROR_INIT;
    const auto view = attrs.view();
    const galley_status status = format_.components(format_.self, shape, 2, view.data(), 1, pointers.data(), &n, &error);
    if (status != GALLEY_INVALID)
      find("an option that is not there", status == GALLEY_OK ? "it is taken" : "it is no GALLEY_INVALID", rules::kOption);
    else if (!error.text[0]) find("an option that is not there", "it is refused without a word", rules::kText);
    else if (n != 77) find("an option that is not there", "it is refused, and the number of components is set", rules::kOnError);
    else log_.held("unknown options are refused");
  }

  const CheckContext& context_;
  const galley_format& format_;
  TestLog& log_;
  OpLookup ops_;
  const galley_op *pack_ = nullptr, *unpack_ = nullptr;
};

}  // namespace

Status check_format(const CheckContext& context, const galley_format& format, TestLog& log) {
  return FormatCheck(context, format, log).run();
}

}  // namespace galley
