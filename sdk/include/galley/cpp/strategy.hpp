// A strategy as a C++ class, and its options. Header-only.
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "galley/cpp/plugin.hpp"

namespace galley::sdk {

/// The recipe's options for one use. Getters without a second argument throw if the option has no value.
class Options {
 public:
  explicit Options(const galley_options* table) : table_(table) {}

  bool given(const char* name) const {
    uint64_t n = 0;
    return table_->count(table_->handle, name, &n) == GALLEY_OK;
  }
  int64_t integer(const char* name) const { return get<int64_t>(name, table_->integer); }
  int64_t integer(const char* name, int64_t otherwise) const { return given(name) ? integer(name) : otherwise; }
  /// For a scheduled option, its value at step 1; nodes should read the scalar of Graph::option or Graph::rate instead.
  double number(const char* name) const { return get<double>(name, table_->number); }
  double number(const char* name, double otherwise) const { return given(name) ? number(name) : otherwise; }
  bool boolean(const char* name) const { return get<int32_t>(name, table_->boolean) != 0; }
  bool boolean(const char* name, bool otherwise) const { return given(name) ? boolean(name) : otherwise; }
  std::string string(const char* name) const { return get<const char*>(name, table_->string); }
  std::string string(const char* name, const char* otherwise) const { return given(name) ? string(name) : otherwise; }
  /// The word that stands in place of a number; "" if it is a number, or has no value.
  std::string word(const char* name) const {
    const char* text = nullptr;
    return table_->string(table_->handle, name, &text) == GALLEY_OK && text ? text : "";
  }
  /// Returns an empty list if the option has no value.
  std::vector<std::string> strings(const char* name) const {
    std::vector<std::string> out;
    each(name, [&](uint64_t i) {
      const char* text = nullptr;
      if (table_->string_at(table_->handle, name, i, &text) != GALLEY_OK) absent(name);
      out.emplace_back(text);
    });
    return out;
  }
  std::vector<double> numbers(const char* name) const {
    std::vector<double> out;
    each(name, [&](uint64_t i) {
      double x = 0;
      if (table_->number_at(table_->handle, name, i, &x) != GALLEY_OK) absent(name);
      out.push_back(x);
    });
    return out;
  }
  /// The entries of a list of tables, as long as these options.
  std::vector<Options> tables(const char* name) const {
    std::vector<Options> out;
    each(name, [&](uint64_t i) {
      const galley_options* entry = GALLEY_HAS(table_, galley_options, table_at) ? table_->table_at(table_->handle, name, i) : nullptr;
      if (!entry) absent(name);
      out.emplace_back(entry);
    });
    return out;
  }

 private:
  [[noreturn]] static void absent(const char* name) {
    invalid(std::string("option '") + name + "' has no value of the type that the plugin asks for");
  }
  template <class T, class Getter>
  T get(const char* name, Getter getter) const {
    T out = {};
    if (getter(table_->handle, name, &out) != GALLEY_OK) absent(name);
    return out;
  }
  template <class Body>
  void each(const char* name, const Body& body) const {
    uint64_t n = 0;
    if (table_->count(table_->handle, name, &n) != GALLEY_OK) return;
    for (uint64_t i = 0; i < n; ++i) body(i);
  }
  const galley_options* table_;
};

/// The answer to a claim. Texts and attributes must live as long as the strategy.
class Claim {
 public:
  explicit Claim(galley_claim_value* out) : out_(out) {}
  void weak(int64_t number, const char* text = nullptr) { set(GALLEY_WEAK, number, text); }
  void strong(int64_t number, const char* text = nullptr) { set(GALLEY_STRONG, number, text); }
  /// Sets options of what the text names: weak(0, "nf4"), then with(options).
  void with(const Attrs& attrs) {
    out_->attrs = attrs.data();
    out_->n_attrs = attrs.count();
  }

 private:
  void set(uint32_t strength, int64_t number, const char* text) {
    out_->strength = strength;
    out_->number = number;
    out_->text = text;
  }
  galley_claim_value* out_;
};

/// A parameter and its gradient, as an update stage gets them.
struct Trained {
  galley_tensor parameter;
  galley_tensor gradient;
};

/// What `build` is called for: a stage with all parameters that it is about; see galley_update_call.
struct UpdateCall {
  uint32_t stage;
  uint32_t purpose;
  std::vector<Trained> trained;
  bool trains() const { return purpose == GALLEY_PURPOSE_TRAIN; }
};

namespace detail {

template <class T, class = void>
struct Rewrites : std::false_type {};
template <class T>
struct Rewrites<T, std::void_t<decltype(std::declval<const T&>().rewrite(std::declval<Graph&>(), 0u))>> : std::true_type {};
template <class T, class = void>
struct Claims : std::false_type {};
template <class T>
struct Claims<T, std::void_t<decltype(std::declval<const T&>().claim(std::declval<const GraphReader&>(),
                                                                     std::declval<const galley_subject&>(), std::declval<Claim&>()))>>
    : std::true_type {};
template <class T, class = void>
struct UpdatesEach : std::false_type {};
template <class T>
struct UpdatesEach<T, std::void_t<decltype(std::declval<const T&>().build(std::declval<Graph&>(), std::declval<Trained>()))>>
    : std::true_type {};
template <class T, class = void>
struct UpdatesAll : std::false_type {};
template <class T>
struct UpdatesAll<T, std::void_t<decltype(std::declval<const T&>().build(std::declval<Graph&>(), std::declval<const UpdateCall&>()))>>
    : std::true_type {};
template <class T>
inline constexpr bool kUpdates = UpdatesEach<T>::value || UpdatesAll<T>::value;
template <class T, class = void>
struct Evaluates : std::false_type {};
template <class T>
struct Evaluates<T, std::void_t<decltype(std::declval<const T&>().evaluate(std::declval<Graph&>(), galley_tensor{}))>> : std::true_type {};
template <class T, class = void>
struct HasPhase : std::false_type {};
template <class T>
struct HasPhase<T, std::void_t<decltype(uint32_t{T::phase})>> : std::true_type {};
template <class T, class = void>
struct Saves : std::false_type {};
template <class T>
struct Saves<T, std::void_t<decltype(std::declval<const T&>().decide(std::declval<const galley_saved_set&>(), std::declval<uint32_t*>()))>>
    : std::true_type {};
template <class T, class = void>
struct HoldsBudget : std::false_type {};
template <class T>
struct HoldsBudget<T, std::void_t<decltype(int64_t{std::declval<const T&>().budget()})>> : std::true_type {};

/// Whether T has a member of a name, whatever its type: found by the ambiguity with a base that has all of them. A class that is final
/// cannot be asked.
struct AllNames {
  int rewrite, claim, build, evaluate, decide, budget;
};
struct Nothing {};
template <class T>
struct WithAllNames : std::conditional_t<std::is_final_v<T>, Nothing, T>, AllNames {};
#define GALLEY_SDK_MEMBER(Trait, member) \
  template <class T, class = void>       \
  struct Trait : std::true_type {};      \
  template <class T>                     \
  struct Trait<T, std::void_t<decltype(&WithAllNames<T>::member)>> : std::false_type {}
GALLEY_SDK_MEMBER(HasRewrite, rewrite);
GALLEY_SDK_MEMBER(HasClaim, claim);
GALLEY_SDK_MEMBER(HasBuild, build);
GALLEY_SDK_MEMBER(HasEvaluate, evaluate);
GALLEY_SDK_MEMBER(HasDecide, decide);
GALLEY_SDK_MEMBER(HasBudget, budget);
#undef GALLEY_SDK_MEMBER

/// A method that the host would never call, because it is not const or takes something else. Constants of a class, so that tests can see
/// them.
template <class T>
struct Misfits {
  static constexpr bool rewrite = HasRewrite<T>::value && !Rewrites<T>::value;
  static constexpr bool claim = HasClaim<T>::value && !Claims<T>::value;
  static constexpr bool build = HasBuild<T>::value && !kUpdates<T>;
  static constexpr bool evaluate = HasEvaluate<T>::value && !(Evaluates<T>::value && UpdatesEach<T>::value);
  static constexpr bool decide = HasDecide<T>::value && !Saves<T>::value;
  static constexpr bool budget = HasBudget<T>::value && !(HoldsBudget<T>::value && Saves<T>::value);
};

template <class T>
struct StrategyOf {
  static_assert(!Misfits<T>::rewrite, "the strategy's rewrite is not `void rewrite(Graph&, uint32_t segment) const`");
  static_assert(!Misfits<T>::claim, "the strategy's claim is not `void claim(const GraphReader&, const galley_subject&, Claim&) const`");
  static_assert(!Misfits<T>::build,
                "the strategy's build is not `void build(Graph&, Trained) const` or `void build(Graph&, const UpdateCall&) const`");
  static_assert(!Misfits<T>::evaluate,
                "the strategy's evaluate is not `void evaluate(Graph&, galley_tensor parameter) const` beside a `build(Graph&, Trained)`");
  static_assert(!Misfits<T>::decide, "the strategy's decide is not `void decide(const galley_saved_set&, uint32_t* choices) const`");
  static_assert(!Misfits<T>::budget, "the strategy's budget is not `int64_t budget() const` beside a `decide`");

  static galley_status create(void*, const galley_options* options, void** instance, galley_error* error) noexcept {
    return guard(error, [&] { *instance = new T(Options(options)); });
  }
  static void destroy(void* instance) noexcept { delete static_cast<T*>(instance); }
  static const T& self(void* instance) { return *static_cast<const T*>(instance); }

  static galley_status rewrite(void* instance, const galley_graph_verbs* verbs, galley_graph* graph, uint32_t segment,
                               galley_error* error) noexcept {
    return guard(error, [&] {
      Graph g(verbs, graph);
      self(instance).rewrite(g, segment);
    });
  }
  static galley_status claim(void* instance, const galley_graph_reader* reader, galley_graph* graph, const galley_subject* subject,
                             galley_claim_value* out, galley_error* error) noexcept {
    return guard(error, [&] {
      const GraphReader g(reader, graph);
      galley_claim_value value = read(out);
      Claim answer(&value);
      self(instance).claim(g, read(subject), answer);
      galley_assign(out, &value);
    });
  }
  static galley_status build(void* instance, const galley_graph_verbs* verbs, galley_graph* graph, const galley_update_call* given,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      const galley_update_call call = read(given);
      Graph g(verbs, graph);
      if constexpr (UpdatesAll<T>::value) {
        UpdateCall all{call.stage, call.purpose, {}};
        for (uint64_t i = 0; i < call.n; ++i) all.trained.push_back({call.parameters[i], call.gradients[i]});
        self(instance).build(g, all);
      } else {
        for (uint64_t i = 0; i < call.n; ++i) {
          g.about(call.parameters[i]);
          if (call.purpose == GALLEY_PURPOSE_TRAIN) self(instance).build(g, Trained{call.parameters[i], call.gradients[i]});
          if constexpr (Evaluates<T>::value)
            if (call.purpose == GALLEY_PURPOSE_EVAL) self(instance).evaluate(g, call.parameters[i]);
        }
      }
    });
  }
  static galley_status decide(void* instance, const galley_saved_set* set, uint32_t* choices, galley_error* error) noexcept {
    return guard(error, [&] { self(instance).decide(read(set), choices); });
  }
  static galley_status budget(void* instance, int64_t* out, galley_error* error) noexcept {
    return guard(error, [&] { *out = self(instance).budget(); });
  }
  static constexpr uint32_t phase() {
    if constexpr (HasPhase<T>::value) return T::phase;
    else return GALLEY_PHASE_ADD;
  }
  static const void* get(void*, const char* id) noexcept {
    if constexpr (Rewrites<T>::value) {
      static const galley_rewrite table = {sizeof(galley_rewrite), 1, rewrite, 0, phase(), 0};
      if (galley_same_text(id, GALLEY_REWRITE)) return &table;
    }
    if constexpr (Claims<T>::value) {
      static const galley_claim table = {sizeof(galley_claim), 1, claim, 0};
      if (galley_same_text(id, GALLEY_CLAIM)) return &table;
    }
    if constexpr (kUpdates<T>) {
      static const galley_update table = {sizeof(galley_update), 1, T::stages, 0, build, 0};
      if (galley_same_text(id, GALLEY_UPDATE)) return &table;
    }
    if constexpr (Saves<T>::value) {
      static const galley_saved table = [] {
        galley_saved t = {sizeof(galley_saved), 1, decide, 0, nullptr};
        if constexpr (HoldsBudget<T>::value) t.budget = budget;
        return t;
      }();
      if (galley_same_text(id, GALLEY_SAVED)) return &table;
    }
    return nullptr;
  }
};

}  // namespace detail

/// Returns the table of a strategy `T`. T is constructed from Options and has those of the following const methods that it needs:
///   void rewrite(Graph&, uint32_t segment);  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;  without it GALLEY_PHASE_ADD
///   void claim(const GraphReader&, const galley_subject&, Claim&);
///   static constexpr uint32_t stages = GALLEY_STAGE_STEP;  and one of
///     void build(Graph&, Trained);               for each parameter, with GALLEY_PURPOSE_TRAIN; and where evaluation reads something else,
///     void evaluate(Graph&, galley_tensor);      for each parameter, with GALLEY_PURPOSE_EVAL
///     void build(Graph&, const UpdateCall&);     for each stage and purpose, with all parameters
///   void decide(const galley_saved_set&, uint32_t* choices);  int64_t budget();
/// Exceptions become a status and a text. At namespace scope: static const bool registered = add(strategy<AdamW>("adamw"));
template <class T>
const galley_strategy* strategy(const char* name) {
  using S = detail::StrategyOf<T>;
  static const galley_strategy table = {sizeof(galley_strategy), 1, nullptr, name, S::create, S::destroy, S::get, 0};
  return &table;
}

}  // namespace galley::sdk
