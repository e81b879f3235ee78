// Single numbers (see op.cpp), each by one thread of its own: bound by their launches. They are read and written on the device, so that no
// step waits for the host.
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/segments.hpp"

namespace galley::cuda::step_op {
namespace {

__global__ void begin_step(const int64_t* attempted, const int64_t* applied, int64_t* applied_step, int32_t* apply, float* loss_scale,
                           int64_t* random, int64_t seed, int64_t rows) {
  *applied_step = *applied + 1;
  *apply = 1;
  *loss_scale = 1;
  random[0] = seed;
  random[1] = *attempted - 1;
  random[2] = -rows;
  random[3] = 0;
}
void step_begin(const Node& n, void*, galley_queue* queue) {
  launch(begin_step, {1, 1}, queue, n.read<int64_t>(0), n.read<int64_t>(1), n.write<int64_t>(0), n.write<int32_t>(1), n.write<float>(2),
         n.write<int64_t>(3), n.i("seed", 0), n.i("rows", 0));
}

__global__ void begin_loss(double* loss) { *loss = 0; }
void loss_begin(const Node& n, void*, galley_queue* queue) { launch(begin_loss, {1, 1}, queue, n.write<double>(0)); }

__global__ void seed_loss(const float* loss_scale, const double* tokens, float* seed, float* factor) {
  const double scale = *loss_scale, count = *tokens;
  *seed = static_cast<float>(count > 0 ? scale / count : 0);
  *factor = static_cast<float>(1 / scale);
}
void loss_seed(const Node& n, void*, galley_queue* queue) {
  launch(seed_loss, {1, 1}, queue, n.read<float>(0), n.read<double>(1), n.write<float>(0), n.write<float>(1));
}

/// Any number of options, a block of one thread each.
struct Option {
  const int64_t* step;
  const int64_t* first;
  const double* values;
  int64_t size;
  double factor;
  float* value;
};
__global__ void look_up(GALLEY_SEGMENTS(Option) options) {
  const Option& o = options.find(blockIdx.x).entry;
  const int64_t at = *o.step - *o.first;
  *o.value = static_cast<float>(o.factor * o.values[at < 0 ? 0 : at < o.size ? at : o.size - 1]);
}
class Scheduled {
 public:
  static void query(const Nodes&, const galley_target&, galley_kernel_plan&) {}
  Scheduled(const Nodes& nodes, const galley_kernel_setup&) {
    for (const Node& n : nodes)
      options_.add({n.read<int64_t>(0), n.read<int64_t>(1), n.read<double>(2), count(n.in(2)), n.f("factor", 1), n.write<float>(0)}, 1);
  }
  void run(galley_queue* queue) const { options_.launch(look_up, 1, queue); }

 private:
  Segments<Option> options_;
};

__global__ void move_on(int64_t* random, int64_t rows) { random[2] += rows; }
void next_rows(const Node& n, void*, galley_queue* queue) { launch(move_on, {1, 1}, queue, n.update<int64_t>(0), n.i("rows", 0)); }

__global__ void count_step(const int32_t* apply, int64_t* applied) { *applied += *apply != 0; }
void step_end(const Node& n, void*, galley_queue* queue) { launch(count_step, {1, 1}, queue, n.read<int32_t>(0), n.update<int64_t>(1)); }

__global__ void put_bytes_back(char* state, const char* before, const int32_t* apply, int64_t bytes) {
  if (*apply) return;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < bytes) state[i] = before[i];
}
void put_back(const Node& n, void*, galley_queue* queue) {
  const int64_t bytes = galley_operand_bytes(&n.in(0));
  launch(put_bytes_back, {bytes / 256 + 1, 256}, queue, n.update<char>(0), n.read<char>(1), n.read<int32_t>(2), bytes);
}

bool any(const Node&) { return true; }

const bool added =
    add(kernel<step_begin, any>("step_begin.cuda", "step_begin")) && add(kernel<loss_begin, any>("loss_begin.cuda", "loss_begin")) &&
    add(kernel<loss_seed, any>("loss_seed.cuda", "loss_seed")) && add(nodes_kernel<Scheduled>("scheduled.cuda", "scheduled")) &&
    add(kernel<next_rows, any>("next_rows.cuda", "next_rows")) && add(kernel<step_end, any>("step_end.cuda", "step_end")) &&
    add(kernel<put_back, any>("put_back.cuda", "put_back"));

}  // namespace
}  // namespace galley::cuda::step_op
