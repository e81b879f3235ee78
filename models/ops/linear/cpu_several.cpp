// Products in one launch: q, k and v, gate and up, LoRA's A of several weights, and gradients of the weights that share an input. Their
// tasks are those that they have alone, in one parallel region, so that no thread waits at the end of each.
//
// Products with the activation after them, where nobody else reads the product: a block passes through the activation while it is in the
// cache, and has no other memory. Where others read the product too, the chain took 1.0 to 1.09 of its links' time, as parts of rows of the
// activation's other operands come from memory in an order that the processor does not foresee.
//
// Measured on one thread of an Intel core with 512-bit vectors and AMX, in turns with the nodes alone (tests/bench/kernels.cpp); share
// of their time at 256 rows, least and median:
//                                         F32            BF16 (AMX)     F16
//     576 → 576, 192, 192              .99 | .99      .97 | .97
//     576 → 1536, 1536                1.00 | 1.00    1.00 | .98
//     576 → 8, 8, 8                    .99 | .98      .97 | .97
//     dW of 576 → 576, 192, 192       1.00 | 1.00     .93 | .93
//     dW of 576 → 1536, 1536           .99 | .99     1.01 | .99
//     768 → 3072, GELU                 .97 | .96        –             .99 | .99
//     768 → 3072, T, GELU              .98 | .97        –             .98 | .99
//     576 → 1536, SiLU                 .98 | .97        –             .98 | .99
//     576 → 1536, ReLU                 .96 | .97        –             .99 | .99
//     576 → 1536, SwiGLU              1.00 | .99        –            1.00 | 1.00
// –: refused (cpu_bf16.cpp says why).
//
// Thin products with the sum after them: an adapter's B, whose time is that of its output. The sum has the bits that it has by itself.
#include "ops/linear/products.hpp"

namespace galley::cpu {
namespace {

using sdk::add;
using sdk::nodes_kernel;

using Several = Launch<Best, Links::One>;
using Activated = Launch<Best, Links::Two>;

constexpr uint64_t groups = GALLEY_KERNEL_GROUPS, coded_too = GALLEY_KERNEL_FORMATS;  // of weights in formats

const bool added = add(nodes_kernel<Several>("linear.several", "linear", GALLEY_KERNEL_DEVICE, groups | coded_too)) &&
                   add(nodes_kernel<Several>("linear_dx.several", "linear_dx", GALLEY_KERNEL_DEVICE, groups | coded_too)) &&
                   add(nodes_kernel<Several>("linear_dw.several", "linear_dw")) &&
                   add(nodes_kernel<Activated>("linear_gelu.cpu", "linear>gelu", "cpu", coded_too)) &&
                   add(nodes_kernel<Activated>("linear_silu.cpu", "linear>silu", "cpu", coded_too)) &&
                   add(nodes_kernel<Activated>("linear_relu.cpu", "linear>relu", "cpu", coded_too)) &&
                   add(nodes_kernel<Activated>("linear_swiglu.cpu", "linear>swiglu", "cpu", coded_too)) &&
                   add(nodes_kernel<Activated>("linear_add.cpu", "linear>add"));

}  // namespace
}  // namespace galley::cpu
