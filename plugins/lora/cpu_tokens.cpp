// The ops of token_ops.cpp on the CPU, at the bandwidth of memory. Where an output lies where its input does, only what differs is written.
#include <algorithm>

#include "galley/cpp/plugin.hpp"
#include "galley/cpp/stored.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kRun = kStoredTile, kBlock = 16384;  // numbers at a time; numbers of a piece of work

bool all_stored(const Node& node) {
  const auto fits = [](const galley_operand& t) { return t.dtype == GALLEY_I32 || Stored::takes(t); };
  for (uint32_t i = 0; i < node.view()->n_inputs; ++i)
    if (node.has(i) && !fits(node.in(i))) return false;
  return fits(node.out(0));
}

/// body(r) for R rows of C numbers.
template <class Body>
void each_row(int64_t R, int64_t C, const Body& body) {
  const int64_t rows_of_block = std::max<int64_t>(1, kBlock / std::max<int64_t>(C, 1));
  parallel((R + rows_of_block - 1) / rows_of_block, [&](int64_t block) {
    for (int64_t r = block * rows_of_block; r < std::min(R, (block + 1) * rows_of_block); ++r) body(r);
  });
}

/// n numbers from one operand to another, or zeros where `from` is nothing.
void move_numbers(const Stored& from, int64_t at, const Stored& to, int64_t where, int64_t n) {
  alignas(64) float room[kRun];
  for (int64_t c = 0; c < n; c += kRun) {
    const int64_t size = std::min(kRun, n - c);
    float* const target = to.in_place() ? to.load(where + c, size, nullptr) : room;
    if (from) {
      const float* const numbers = from.load(at + c, size, room);
      if (numbers != target) std::copy_n(numbers, size, target);
    } else {
      std::fill_n(target, size, 0.0f);
    }
    if (!to.in_place()) to.store(target, size, where + c);
  }
}

Stored stored_at(const Node& node, uint32_t i) { return node.has(i) ? Stored(node.in(i)) : Stored(); }
bool same_place(const Node& node) { return node.in(0).data == node.out(0).data; }

/// The tokens with their places, sorted in the workspace.
class Places {
 public:
  Places(const Node& node, uint32_t tokens, void* workspace) : first_(static_cast<int64_t*>(workspace)), n_(count(node.in(tokens))) {
    for (int64_t j = 0; j < n_; ++j) first_[j] = static_cast<int64_t>(node.read<int32_t>(tokens)[j]) << 32 | j;
    std::sort(first_, first_ + n_);
  }
  /// n where the id is no token.
  int64_t of(int32_t id) const {
    const int64_t key = static_cast<int64_t>(id) << 32;
    const int64_t* const at = std::lower_bound(first_, first_ + n_, key);
    return at != first_ + n_ && *at >> 32 == id ? *at & 0xFFFFFFFF : n_;
  }
  static int64_t bytes(int64_t n) { return n * static_cast<int64_t>(sizeof(int64_t)); }

 private:
  int64_t* first_;
  int64_t n_;
};

void run_put_token_rows(const Node& node, void* workspace) {
  const Places places(node, 2, workspace);
  const Stored x(node.in(0)), rows_put = stored_at(node, 3), y(node.out(0));
  const int32_t* const ids = node.read<int32_t>(1);
  const int64_t C = columns(node.in(0)), n = count(node.in(2));
  each_row(rows(node.in(0)), C, [&, stays = same_place(node)](int64_t r) {
    const int64_t slot = places.of(ids[r]);
    if (slot < n) move_numbers(rows_put, slot * C, y, r * C, C);
    else if (!stays) move_numbers(x, r * C, y, r * C, C);
  });
}
int64_t places_of_rows(const Node& node, const galley_target&) { return Places::bytes(count(node.in(2))); }

void run_token_slots(const Node& node, void* workspace) {
  const Places places(node, 1, workspace);
  const int32_t* const ids = node.read<int32_t>(0);
  const int64_t n = count(node.in(1)), padding = node.i("padding", -1);
  each_row(count(node.in(0)), 1,
           [&, to = node.write<int32_t>(0)](int64_t r) { to[r] = static_cast<int32_t>(ids[r] == padding ? n : places.of(ids[r])); });
}
int64_t places_of_slots(const Node& node, const galley_target&) { return Places::bytes(count(node.in(1))); }

void run_put_token_columns(const Node& node, void*) {
  const Stored x(node.in(0)), z = stored_at(node, 2), y(node.out(0));
  const int32_t* const tokens = node.read<int32_t>(1);
  const int64_t V = columns(node.in(0)), n = count(node.in(1));
  each_row(rows(node.in(0)), V, [&, stays = same_place(node)](int64_t r) {
    if (!stays) move_numbers(x, r * V, y, r * V, V);
    for (int64_t j = 0; j < n; ++j) move_numbers(z, r * n + j, y, r * V + tokens[j], 1);
  });
}

void run_take_token_columns(const Node& node, void*) {
  const Stored x(node.in(0)), z(node.out(0));
  const int32_t* const tokens = node.read<int32_t>(1);
  const int64_t V = columns(node.in(0)), n = count(node.in(1));
  each_row(rows(node.in(0)), n, [&, adds = node.accumulates(0)](int64_t r) {
    for (int64_t j = 0; j < n; ++j) {
      float from = 0, to = 0;
      const float taken = *x.load(r * V + tokens[j], 1, &from), sum = adds ? *z.load(r * n + j, 1, &to) + taken : taken;
      if (z.in_place()) *z.load(r * n + j, 1, nullptr) = sum;
      else z.store(&sum, 1, r * n + j);
    }
  });
}

void run_set_token_rows(const Node& node, void*) {
  const Stored table(node.in(0)), rows_set(node.in(2)), y(node.out(0));
  const int64_t V = rows(node.in(0)), C = columns(node.in(0)), n = count(node.in(1));
  if (!same_place(node)) each_row(V, C, [&](int64_t r) { move_numbers(table, r * C, y, r * C, C); });
  for (int64_t j = 0; j < n; ++j) move_numbers(rows_set, j * C, y, node.read<int32_t>(1)[j] * C, C);
}

void run_token_list(const Node& node, void*) {
  const auto* const tokens = static_cast<const int64_t*>(galley_attr_find(node.view(), "tokens")->data);
  std::transform(tokens, tokens + count(node.out(0)), node.write<int32_t>(0), [](int64_t id) { return static_cast<int32_t>(id); });
}

const bool added = add(kernel<run_put_token_rows, all_stored, places_of_rows>("put_token_rows.cpu", "put_token_rows")) &&
                   add(kernel<run_token_slots, all_stored, places_of_slots>("token_slots.cpu", "token_slots")) &&
                   add(kernel<run_put_token_columns, all_stored>("put_token_columns.cpu", "put_token_columns")) &&
                   add(kernel<run_take_token_columns, all_stored>("take_token_columns.cpu", "take_token_columns")) &&
                   add(kernel<run_set_token_rows, all_stored>("set_token_rows.cpu", "set_token_rows")) &&
                   add(kernel<run_token_list>("token_list.cpu", "token_list"));

}  // namespace
