// Kinds of data in C++ (galley/source.h). Header-only.
//
//   class Pairs {
//    public:
//     explicit Pairs(const Options&);                          // of data.pairs { … }
//     SourceInfo describe(const galley_source_call&);          // before anything is read
//     galley_source_contents open();                           // once: reads what it needs; or open(const galley_source_contents&), which
//                                                              // has the model's vocabulary, the run's seed and the length of rows
//     void read(galley_source_row&) const;                     // [thread-safe]
//   };
//   const bool added = add(source<Pairs>("pairs"));
//
// Exceptions become a status and a text.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "galley/cpp/strategy.hpp"
#include "galley/source.h"

namespace galley::sdk {

/// What a source says of itself. Names and units are literals.
struct SourceInfo {
  struct Tensor {
    const char* name;
    uint32_t dtype = GALLEY_I32;
    int64_t extent = GALLEY_SOURCE_PER_POSITION;
    const char* unit = nullptr;  ///< not null: its labels are what counts
  };
  std::string summary;
  std::vector<Tensor> tensors;
  int64_t rows_of_item = 1, vocabulary = 0;
  uint64_t flags = 0;
};

namespace detail {

template <class T, class = void>
struct OpensForRun : std::false_type {};
template <class T>
struct OpensForRun<T, std::void_t<decltype(std::declval<T&>().open(std::declval<const galley_source_contents&>()))>> : std::true_type {};

/// An instance, and what its description points to.
template <class T>
struct OwnSource {
  explicit OwnSource(const Options& options) : source(options) {}
  T source;
  std::string summary;
  std::vector<galley_source_tensor> tensors;
  std::vector<const galley_source_tensor*> pointers;
};

template <class T>
struct SourceOf {
  using Own = OwnSource<T>;
  static galley_status create(void*, const galley_options* options, void** instance, galley_error* error) noexcept {
    return guard(error, [&] { *instance = new Own(Options(options)); });
  }
  static void destroy(void* instance) noexcept { delete static_cast<Own*>(instance); }
  static galley_status describe(void* instance, const galley_source_call* call, galley_source_info* out, galley_error* error) noexcept {
    return guard(error, [&] {
      Own& own = *static_cast<Own*>(instance);
      const SourceInfo info = own.source.describe(read(call));
      own.summary = info.summary;
      own.tensors.clear();
      own.pointers.clear();
      for (const SourceInfo::Tensor& from : info.tensors) {
        galley_source_tensor t = fresh<galley_source_tensor>();
        t.name = from.name;
        t.unit = from.unit;
        t.extent = from.extent;
        t.dtype = from.dtype;
        t.flags = from.unit ? GALLEY_SOURCE_COUNTS : 0;
        own.tensors.push_back(t);
      }
      for (const galley_source_tensor& t : own.tensors) own.pointers.push_back(&t);
      galley_source_info to = fresh<galley_source_info>();
      to.rows_of_item = info.rows_of_item;
      to.vocabulary = info.vocabulary;
      to.tensors = own.pointers.data();
      to.n_tensors = static_cast<uint32_t>(own.pointers.size());
      to.summary = own.summary.c_str();
      to.flags = info.flags;
      galley_assign(out, &to);
    });
  }
  static galley_status open(void* instance, galley_source_contents* out, galley_error* error) noexcept {
    return guard(error, [&] {
      T& source = static_cast<Own*>(instance)->source;
      galley_source_contents found;
      if constexpr (OpensForRun<T>::value) found = source.open(read(out));
      else found = source.open();
      galley_assign(out, &found);
    });
  }
  static galley_status read_row(void* instance, galley_source_row* row, galley_error* error) noexcept {
    return guard(error, [&] {
      understand(row);
      static_cast<const Own*>(instance)->source.read(*row);
    });
  }
};

}  // namespace detail

template <class T>
const galley_source* source(const char* name) {
  using S = detail::SourceOf<T>;
  static const galley_source table = {sizeof(galley_source), 1, nullptr, name, S::create, S::destroy, S::describe, S::open, S::read_row, 0};
  return &table;
}

}  // namespace galley::sdk
