// A strategy as a C++ class, and its options. Header-only.
#pragma once

#include <deque>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "galley/cpp/listener.hpp"
#include "galley/cpp/plugin.hpp"

namespace galley::sdk {

/// The recipe's options for one use. Getters without a second argument throw if the option has no value.
class Options {
 public:
  explicit Options(const galley_options* table) : table_(table) { understand(table); }

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

/// A subject that the host asks about, and what to claim of it. Whoever claims nothing leaves it to others.
class Claim : public galley_subject {
 public:
  Claim(const galley_claim_call& call, uint64_t index) : galley_subject(read(call.subjects[index])), call_(call), index_(index) {}
  void weak(int64_t number, const char* text = nullptr, const Attrs& attrs = {}) const { say(GALLEY_WEAK, number, text, attrs); }
  void strong(int64_t number, const char* text = nullptr, const Attrs& attrs = {}) const { say(GALLEY_STRONG, number, text, attrs); }

 private:
  /// `attrs`: options of what the text names.
  void say(uint32_t strength, int64_t number, const char* text, const Attrs& attrs) const {
    galley_claim_value value = fresh<galley_claim_value>();
    value.strength = strength;
    value.number = number;
    value.text = text;
    value.attrs = attrs.data();
    value.n_attrs = attrs.count();
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = call_.claim(call_.context, index_, &value, &error);
    if (status != GALLEY_OK) throw Failure(status, error.text, error.hint);
  }
  const galley_claim_call& call_;
  uint64_t index_;
};

/// The subjects of a call: for (const Claim& c : claims) if (c.trainable) c.weak(0, "signsgd");
class Claims {
 public:
  explicit Claims(const galley_claim_call& call) : facet_(call.facet) {
    for (uint64_t i = 0; i < call.n_subjects; ++i) all_.emplace_back(call, i);
  }
  uint32_t facet() const { return facet_; }
  bool about(uint32_t facet) const { return facet_ == facet; }
  /// Whether there is a subject of a kind: GALLEY_SUBJECT_….
  bool any(uint32_t kind) const {
    for (const Claim& claim : all_)
      if (claim.kind == kind) return true;
    return false;
  }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  uint32_t facet_;
  std::vector<Claim> all_;
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

/// Formats into which a strategy compresses saved tensors, for its method `formats`.
class SavedFormats {
 public:
  /// `name` outlives this.
  void add(const char* name, Attrs attrs = {}) {
    Format& made = formats_.emplace_back();
    made.attrs = std::move(attrs);
    made.table = fresh<galley_saved_format>();
    made.table.name = name;
    made.table.attrs = made.attrs.data();
    made.table.n_attrs = made.attrs.count();
    pointers_.push_back(&made.table);
  }
  const galley_saved_format* const* data() const { return pointers_.data(); }
  uint32_t count() const { return static_cast<uint32_t>(pointers_.size()); }

 private:
  struct Format {
    Attrs attrs;
    galley_saved_format table;
  };
  std::deque<Format> formats_;
  std::vector<const galley_saved_format*> pointers_;
};

namespace detail {

#define GALLEY_SDK_PART(Trait, part, G) \
  template <class T, class = void>      \
  struct Trait : std::false_type {};    \
  template <class T>                    \
  struct Trait<T, std::void_t<decltype(std::declval<const T&>().part(std::declval<G&>()))>> : std::true_type {}
GALLEY_SDK_PART(RewritesModel, model, ModelGraph);
GALLEY_SDK_PART(RewritesWindow, window, Graph);
GALLEY_SDK_PART(RewritesLoad, load, LoadGraph);
GALLEY_SDK_PART(RewritesSave, save, ExportGraph);
GALLEY_SDK_PART(RewritesMerge, merge, ExportGraph);
#undef GALLEY_SDK_PART
template <class T>
inline constexpr bool kRewrites =
    RewritesModel<T>::value || RewritesWindow<T>::value || RewritesLoad<T>::value || RewritesSave<T>::value || RewritesMerge<T>::value;
template <class T, class = void>
struct HasClaims : std::false_type {};
template <class T>
struct HasClaims<T,
                 std::void_t<decltype(std::declval<const T&>().claim(std::declval<const GraphReader&>(), std::declval<const Claims&>()))>>
    : std::true_type {};
template <class T, class = void>
struct UpdatesEach : std::false_type {};
template <class T>
struct UpdatesEach<T, std::void_t<decltype(std::declval<const T&>().build(std::declval<UpdateGraph&>(), std::declval<Trained>()))>>
    : std::true_type {};
template <class T, class = void>
struct UpdatesAll : std::false_type {};
template <class T>
struct UpdatesAll<T, std::void_t<decltype(std::declval<const T&>().build(std::declval<UpdateGraph&>(), std::declval<const UpdateCall&>()))>>
    : std::true_type {};
template <class T>
inline constexpr bool kUpdates = UpdatesEach<T>::value || UpdatesAll<T>::value;
template <class T, class = void>
struct Evaluates : std::false_type {};
template <class T>
struct Evaluates<T, std::void_t<decltype(std::declval<const T&>().evaluate(std::declval<UpdateGraph&>(), galley_tensor{}))>>
    : std::true_type {};
template <class T, class = void>
struct HasPhase : std::false_type {};
template <class T>
struct HasPhase<T, std::void_t<decltype(uint32_t{T::phase})>> : std::true_type {};
template <class T, class = void>
struct HasOrder : std::false_type {};
template <class T>
struct HasOrder<T, std::void_t<decltype(uint32_t{T::order})>> : std::true_type {};
template <class T, class = void>
struct Saves : std::false_type {};
template <class T>
struct Saves<T, std::void_t<decltype(std::declval<const T&>().decide(std::declval<const galley_saved_set&>(), std::declval<uint32_t*>()))>>
    : std::true_type {};
template <class T, class = void>
struct HoldsBudget : std::false_type {};
template <class T>
struct HoldsBudget<T, std::void_t<decltype(int64_t{std::declval<const T&>().budget()})>> : std::true_type {};
template <class T, class = void>
struct Compresses : std::false_type {};
template <class T>
struct Compresses<T, std::enable_if_t<std::is_same_v<decltype(std::declval<const T&>().formats()), const SavedFormats&>>> : std::true_type {
};
template <class T, class = void>
struct Listens : std::false_type {};
template <class T>
struct Listens<
    T, std::void_t<decltype(std::unique_ptr<Listener>(std::declval<const T&>().listen(std::declval<const galley_started_event&>())))>>
    : std::true_type {};
template <class T, class = void>
struct EndsRun : std::false_type {};
template <class T>
struct EndsRun<T, std::void_t<decltype(bool{T::ends_run})>> : std::bool_constant<T::ends_run> {};

/// Whether T has a member of a name, whatever its type: found by the ambiguity with a base that has all of them. A class that is final
/// cannot be asked.
struct AllNames {
  int rewrite, model, window, load, save, merge, claim, build, evaluate, decide, budget, formats, listen;
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
GALLEY_SDK_MEMBER(HasModel, model);
GALLEY_SDK_MEMBER(HasWindow, window);
GALLEY_SDK_MEMBER(HasLoad, load);
GALLEY_SDK_MEMBER(HasSave, save);
GALLEY_SDK_MEMBER(HasMerge, merge);
GALLEY_SDK_MEMBER(HasClaim, claim);
GALLEY_SDK_MEMBER(HasBuild, build);
GALLEY_SDK_MEMBER(HasEvaluate, evaluate);
GALLEY_SDK_MEMBER(HasDecide, decide);
GALLEY_SDK_MEMBER(HasBudget, budget);
GALLEY_SDK_MEMBER(HasFormats, formats);
GALLEY_SDK_MEMBER(HasListen, listen);
#undef GALLEY_SDK_MEMBER

/// A method that the host would never call, because it is not const or takes something else. Constants of a class, so that tests can see
/// them.
template <class T>
struct Misfits {
  static constexpr bool rewrite = HasRewrite<T>::value;  // of ABI 0.3
  static constexpr bool model = HasModel<T>::value && !RewritesModel<T>::value;
  static constexpr bool window = HasWindow<T>::value && !RewritesWindow<T>::value;
  static constexpr bool load = HasLoad<T>::value && !RewritesLoad<T>::value;
  static constexpr bool save = HasSave<T>::value && !RewritesSave<T>::value;
  static constexpr bool merge = HasMerge<T>::value && !RewritesMerge<T>::value;
  static constexpr bool claim = HasClaim<T>::value && !HasClaims<T>::value;
  static constexpr bool build = HasBuild<T>::value && !kUpdates<T>;
  static constexpr bool evaluate = HasEvaluate<T>::value && !(Evaluates<T>::value && UpdatesEach<T>::value);
  static constexpr bool decide = HasDecide<T>::value && !Saves<T>::value;
  static constexpr bool budget = HasBudget<T>::value && !(HoldsBudget<T>::value && Saves<T>::value);
  static constexpr bool formats = HasFormats<T>::value && !(Compresses<T>::value && Saves<T>::value);
  static constexpr bool listen = HasListen<T>::value && !Listens<T>::value;
};

template <class T>
struct StrategyOf {
  static_assert(
      !Misfits<T>::rewrite,
      "since ABI 0.4 a strategy has model, window, load, save and merge in the place of rewrite(Graph&, segment): sdk/CHANGES.md");
  static_assert(!Misfits<T>::model, "the strategy's model is not `void model(ModelGraph&) const`");
  static_assert(!Misfits<T>::window, "the strategy's window is not `void window(Graph&) const`");
  static_assert(!Misfits<T>::load, "the strategy's load is not `void load(LoadGraph&) const`");
  static_assert(!Misfits<T>::save, "the strategy's save is not `void save(ExportGraph&) const`");
  static_assert(!Misfits<T>::merge, "the strategy's merge is not `void merge(ExportGraph&) const`");
  static_assert(!Misfits<T>::claim,
                "the strategy's claim is not `void claim(const GraphReader&, const Claims&) const`, as since ABI 0.4: sdk/CHANGES.md");
  static_assert(
      !Misfits<T>::build,
      "the strategy's build is not `void build(UpdateGraph&, Trained) const` or `void build(UpdateGraph&, const UpdateCall&) const`");
  static_assert(!Misfits<T>::evaluate,
                "the strategy's evaluate is not `void evaluate(UpdateGraph&, galley_tensor parameter) const` beside a `build(UpdateGraph&, "
                "Trained)`");
  static_assert(!Misfits<T>::decide, "the strategy's decide is not `void decide(const galley_saved_set&, uint32_t* choices) const`");
  static_assert(!Misfits<T>::budget, "the strategy's budget is not `int64_t budget() const` beside a `decide`");
  static_assert(!Misfits<T>::formats, "the strategy's formats is not `const SavedFormats& formats() const` beside a `decide`");
  static_assert(!Misfits<T>::listen, "the strategy's listen is not `std::unique_ptr<Listener> listen(const galley_started_event&) const`");

  static galley_status create(void*, const galley_options* options, void** instance, galley_error* error) noexcept {
    return guard(error, [&] { *instance = new T(Options(options)); });
  }
  static void destroy(void* instance) noexcept { delete static_cast<T*>(instance); }
  static const T& self(void* instance) { return *static_cast<const T*>(instance); }

  static galley_status model(void* instance, const galley_model_verbs* verbs, galley_graph* graph, galley_error* error) noexcept {
    return guard(error, [&] {
      ModelGraph g(verbs, graph);
      self(instance).model(g);
    });
  }
  static galley_status window(void* instance, const galley_graph_verbs* verbs, galley_graph* graph, galley_error* error) noexcept {
    return guard(error, [&] {
      Graph g(verbs, graph);
      self(instance).window(g);
    });
  }
  static galley_status load(void* instance, const galley_load_verbs* verbs, galley_graph* graph, galley_error* error) noexcept {
    return guard(error, [&] {
      LoadGraph g(verbs, graph);
      self(instance).load(g);
    });
  }
  static galley_status save(void* instance, const galley_export_verbs* verbs, galley_graph* graph, galley_error* error) noexcept {
    return guard(error, [&] {
      ExportGraph g(verbs, graph);
      self(instance).save(g);
    });
  }
  static galley_status merge(void* instance, const galley_export_verbs* verbs, galley_graph* graph, galley_error* error) noexcept {
    return guard(error, [&] {
      ExportGraph g(verbs, graph);
      self(instance).merge(g);
    });
  }
  static galley_status claim(void* instance, const galley_graph_reader* reader, galley_graph* graph, const galley_claim_call* given,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      const galley_claim_call call = read(given);
      self(instance).claim(GraphReader(reader, graph), Claims(call));
    });
  }
  static galley_status build(void* instance, const galley_update_verbs* verbs, galley_graph* graph, const galley_update_call* given,
                             galley_error* error) noexcept {
    return guard(error, [&] {
      const galley_update_call call = read(given);
      UpdateGraph g(verbs, graph);
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
  static galley_status formats(void* instance, const galley_saved_format* const** out, uint32_t* n, galley_error* error) noexcept {
    return guard(error, [&] {
      *out = self(instance).formats().data();
      *n = self(instance).formats().count();
    });
  }
  static galley_status started(void* instance, const galley_started_event* event, void** listener, galley_error* error) noexcept {
    return guard(error, [&] {
      std::unique_ptr<Listener> made(self(instance).listen(read(event)));
      if (!made) throw Failure(GALLEY_FAILED, "it made no listener");
      *listener = made.release();
    });
  }
  static constexpr uint32_t phase() {
    if constexpr (HasPhase<T>::value) return T::phase;
    else return GALLEY_PHASE_ADD;
  }
  static constexpr uint32_t order() {
    if constexpr (HasOrder<T>::value) return T::order;
    else return GALLEY_ORDER_USUAL;
  }
  static const void* get(void*, const char* id) noexcept {
    if constexpr (kRewrites<T>) {
      static const galley_rewrite table = [] {
        galley_rewrite t = fresh<galley_rewrite>();
        if constexpr (RewritesModel<T>::value) t.model = model;
        if constexpr (RewritesWindow<T>::value) t.window = window;
        if constexpr (RewritesLoad<T>::value) t.load = load;
        if constexpr (RewritesSave<T>::value) t.save = save;
        if constexpr (RewritesMerge<T>::value) t.merge = merge;
        t.phase = phase();
        return t;
      }();
      if (galley_same_text(id, GALLEY_REWRITE)) return &table;
    }
    if constexpr (HasClaims<T>::value) {
      static const galley_claim table = {sizeof(galley_claim), 1, claim, 0};
      if (galley_same_text(id, GALLEY_CLAIM)) return &table;
    }
    if constexpr (kUpdates<T>) {
      static const galley_update table = {sizeof(galley_update), 1, T::stages, order(), build, 0};
      if (galley_same_text(id, GALLEY_UPDATE)) return &table;
    }
    if constexpr (Saves<T>::value) {
      static const galley_saved table = [] {
        galley_saved t = {sizeof(galley_saved), 1, decide, 0, nullptr, nullptr};
        if constexpr (HoldsBudget<T>::value) t.budget = budget;
        if constexpr (Compresses<T>::value) t.formats = formats;
        return t;
      }();
      if (galley_same_text(id, GALLEY_SAVED)) return &table;
    }
    if constexpr (Listens<T>::value) {
      static const galley_observer table = listener_table(started, EndsRun<T>::value ? GALLEY_OBSERVER_ENDS_RUN : 0);
      if (galley_same_text(id, GALLEY_OBSERVER)) return &table;
    }
    return nullptr;
  }
};

}  // namespace detail

/// Returns the table of a strategy `T`. T is constructed from Options and has those of the following const methods that it needs:
///   void model(ModelGraph&); void window(Graph&); void load(LoadGraph&); void save(ExportGraph&); void merge(ExportGraph&);
///     the parts of a run that it changes (rewrite.h); static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;  without it GALLEY_PHASE_ADD
///   void claim(const GraphReader&, const Claims&);
///   static constexpr uint32_t stages = GALLEY_STAGE_STEP;  static constexpr uint32_t order = GALLEY_ORDER_FIRST;  without it
///     GALLEY_ORDER_USUAL; and one of
///     void build(UpdateGraph&, Trained);         for each parameter, with GALLEY_PURPOSE_TRAIN; and where evaluation reads something else,
///     void evaluate(UpdateGraph&, galley_tensor); for each parameter, with GALLEY_PURPOSE_EVAL
///     void build(UpdateGraph&, const UpdateCall&); for each stage and purpose, with all parameters
///   void decide(const galley_saved_set&, uint32_t* choices);  int64_t budget();  const SavedFormats& formats();
///   std::unique_ptr<Listener> listen(const galley_started_event&);  static constexpr bool ends_run = true;  where its failure ends the run
/// Exceptions become a status and a text. At namespace scope: static const bool registered = add(strategy<AdamW>("adamw"));
template <class T>
const galley_strategy* strategy(const char* name) {
  using S = detail::StrategyOf<T>;
  static const galley_strategy table = {sizeof(galley_strategy), 1, nullptr, name, S::create, S::destroy, S::get, 0};
  return &table;
}

}  // namespace galley::sdk
