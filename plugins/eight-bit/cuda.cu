// dynamic8_pack and dynamic8_unpack: a warp takes a block of 256 numbers, with the functions of the steps that read and write this format.
#include "galley/cuda/steps.hpp"

namespace {

using namespace galley::cuda;
using galley::sdk::Stored;

constexpr int kThreads = 256, kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) convert(Stored from, Stored to, int64_t count) {
  GALLEY_SHARED(detail::StepBooks, books, 1);
  books->with_signs[threadIdx.x] = galley::sdk::dynamic8::value(static_cast<int>(threadIdx.x), true);
  books->without[threadIdx.x] = galley::sdk::dynamic8::value(static_cast<int>(threadIdx.x), false);
  __syncthreads();
  const int64_t unit = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * detail::kStepUnit;
  if (unit >= count) return;  // a whole warp
  float numbers[detail::kLaneNumbers];
  detail::load_unit(from, *books, unit, count, numbers);
  detail::store_unit(to, unit, count, numbers);
}

Stored codes_of(const galley_operand& codes, const galley_operand& absmax, const Node& node) {
  Stored out;
  out.data = codes.data;
  out.scale = static_cast<float*>(absmax.data);
  out.as = node.i("signed", 1) ? galley::sdk::kStoredDynamic8 : galley::sdk::kStoredDynamic8Unsigned;
  return out;
}

void run(const Stored& from, const Stored& to, int64_t n, galley_queue* queue) {
  launch(convert, {blocks_of(n, kWarps * detail::kStepUnit), kThreads}, queue, from, to, n);
}
void pack(const Node& node, void*, galley_queue* queue) {
  run(Stored(node.in(0)), codes_of(node.out(0), node.out(1), node), count(node.in(0)), queue);
}
void unpack(const Node& node, void*, galley_queue* queue) {
  run(codes_of(node.in(0), node.in(1), node), Stored(node.out(0)), count(node.in(0)), queue);
}
bool any(const Node&) { return true; }

const bool registered =
    add(kernel<pack, any>("dynamic8_pack.cuda", "dynamic8_pack")) && add(kernel<unpack, any>("dynamic8_unpack.cuda", "dynamic8_unpack"));

}  // namespace

GALLEY_PLUGIN("eight-bit", "1.0.0");
