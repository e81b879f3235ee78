/* An optimizer as a Galley plugin, in plain C: signSGD (Bernstein et al. 2018, arXiv:1802.04434), p = p - lr * sign(g).
 *
 * A strategy has no code that runs during training, except kernels. So there are three parts: an op (what a node does), a kernel (how the
 * CPU computes it), and a strategy (which adds such nodes to the graph). Read them in this order, then read plugin.toml. */
#include <galley/galley.h>
#include <stdio.h>

static galley_status fail(galley_error* error, galley_status status, const char* text) {
  error->code = status;
  snprintf(error->text, sizeof error->text, "%s", text);
  return status;
}

/* A newer Galley may set flags that change what a struct means. Each function asks whether it understands what it is given. */
static const char unknown[] = "signsgd-c: Galley says more than this plugin knows; build it with a newer SDK";

/* ---- 1. The op: its operands, its shape rule, and what it means ------------------------------------------------------------------- */

enum { PARAMETER, GRADIENT, LR, APPLY, INPUTS };

/* INOUT: updated in place. ROWS: row i of one operand belongs to row i of the others. An update is not differentiated. */
static const galley_operand_rule rules[INPUTS] = {
    {sizeof(galley_operand_rule), 1, "parameter", GALLEY_ROLE_ROWS, -1, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, NULL},
    {sizeof(galley_operand_rule), 1, "gradient", GALLEY_ROLE_ROWS, -1, GALLEY_OPERAND_NO_GRADIENT, NULL},
    {sizeof(galley_operand_rule), 1, "lr", GALLEY_ROLE_WHOLE, -1, GALLEY_OPERAND_NO_GRADIENT, NULL},
    {sizeof(galley_operand_rule), 1, "apply", GALLEY_ROLE_WHOLE, -1, GALLEY_OPERAND_NO_GRADIENT, NULL},
};
static const galley_operand_rule* const inputs[INPUTS] = {&rules[PARAMETER], &rules[GRADIENT], &rules[LR], &rules[APPLY]};

/* The op has no outputs, so there are no shapes to infer. It only checks its inputs. */
static galley_status infer(void* self, const galley_node_view* node, galley_shape* const* outputs, galley_error* error) {
  (void)self, (void)outputs;
  if (!galley_node_understood(node)) return fail(error, GALLEY_INVALID, unknown);
  if (galley_operand_count(node->inputs[PARAMETER]) != galley_operand_count(node->inputs[GRADIENT]))
    return fail(error, GALLEY_INVALID, "signsgd_c_step: parameter and gradient differ in size");
  return GALLEY_OK;
}

/* The definition, in double precision. Tests compare kernels with it. Floating-point operands are passed as double. */
static galley_status reference(void* self, const galley_node_view* node, galley_error* error) {
  (void)self;
  if (!galley_node_understood(node)) return fail(error, GALLEY_INVALID, unknown);
  double* p = node->inputs[PARAMETER]->data;
  const double* g = node->inputs[GRADIENT]->data;
  const double lr = *(const double*)node->inputs[LR]->data;
  if (!*(const int32_t*)node->inputs[APPLY]->data) return GALLEY_OK; /* a skipped step changes nothing */
  for (int64_t i = 0; i < galley_operand_count(node->inputs[PARAMETER]); ++i) p[i] -= lr * ((g[i] > 0) - (g[i] < 0));
  return GALLEY_OK;
}

/* Cases on which tests run the reference and every kernel, with numbers from these ranges: one of several blocks with a rest, and a step
 * that is skipped. */
static const int64_t matrix[] = {37, 671}, one[] = {1};
static const galley_operand operands[] = {
    {.size = sizeof(galley_operand), .revision = 1, .shape = matrix, .rank = 2, .dtype = GALLEY_F32, .access = GALLEY_READ},
    {.size = sizeof(galley_operand), .revision = 1, .shape = one, .rank = 1, .dtype = GALLEY_F32, .access = GALLEY_READ},
    {.size = sizeof(galley_operand), .revision = 1, .shape = one, .rank = 1, .dtype = GALLEY_I32, .access = GALLEY_READ},
};
static const galley_operand* const drawn[INPUTS] = {&operands[0], &operands[0], &operands[1], &operands[2]};
static const double low[INPUTS] = {-1, -1, 0.001, 1}, high[INPUTS] = {1, 1, 0.1, 1}, low_skipped[INPUTS] = {-1, -1, 0.001, 0},
                    high_skipped[INPUTS] = {1, 1, 0.1, 0};
static const galley_node_view blocks = {
    .size = sizeof blocks, .revision = 1, .op = "signsgd_c_step", .name = "blocks", .inputs = drawn, .n_inputs = INPUTS, .block = -1};
static const galley_node_view skipped = {
    .size = sizeof skipped, .revision = 1, .op = "signsgd_c_step", .name = "skipped", .inputs = drawn, .n_inputs = INPUTS, .block = -1};
static const galley_op_case case_of_blocks = {sizeof(galley_op_case), 1, &blocks, low, high, 0};
static const galley_op_case case_of_skipped = {sizeof(galley_op_case), 1, &skipped, low_skipped, high_skipped, 0};
static const galley_op_case* const cases[] = {&case_of_blocks, &case_of_skipped};

static const galley_op op = {
    .size = sizeof(galley_op),
    .revision = 1,
    .name = "signsgd_c_step",
    .summary = "p = p - lr * sign(g)",
    .inputs = inputs,
    .n_inputs = INPUTS,
    .cases = cases,
    .n_cases = 2,
    .grain = GALLEY_GRAIN_ELEMENT, /* any part of it can be computed by itself */
    .infer = infer,
    .reference = reference,
};

/* ---- 2. The kernel: the op for F32 on the CPU ------------------------------------------------------------------------------------ */

static const galley_host* host; /* set by `opened` below */

enum { BLOCK = 16384 }; /* elements; fixed, so that the result does not depend on the number of threads */

static void step_block(void* context, int64_t block) {
  const galley_node_view* node = context;
  float* p = node->inputs[PARAMETER]->data;
  const float* g = node->inputs[GRADIENT]->data;
  const float lr = *(const float*)node->inputs[LR]->data;
  const int64_t n = galley_operand_count(node->inputs[PARAMETER]), begin = block * BLOCK;
  const int64_t end = begin + BLOCK < n ? begin + BLOCK : n;
  for (int64_t i = begin; i < end; ++i) p[i] -= lr * (float)((g[i] > 0) - (g[i] < 0));
}

/* Called while a run is planned: does this kernel support the node? After GALLEY_UNSUPPORTED, Galley tries another kernel. */
static galley_status query(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_target* target,
                           galley_kernel_plan* plan, galley_error* error) {
  (void)self, (void)plan;
  for (uint32_t i = 0; i < n; ++i)
    if (!galley_node_understood(nodes[i])) return fail(error, GALLEY_UNSUPPORTED, unknown);
  if (!galley_target_understood(target)) return fail(error, GALLEY_UNSUPPORTED, unknown);
  if (n != 1 || nodes[0]->inputs[PARAMETER]->dtype != GALLEY_F32 || nodes[0]->inputs[GRADIENT]->dtype != GALLEY_F32)
    return fail(error, GALLEY_UNSUPPORTED, "one F32 parameter at a time");
  return GALLEY_OK;
}

/* Called once, when addresses are known. The view stays valid until `release`, so it can be the kernel's state. */
static galley_status prepare(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup* setup, void** state,
                             galley_error* error) {
  (void)self, (void)n;
  if (!galley_node_understood(nodes[0]) || !galley_understood(setup, 0, 0)) return fail(error, GALLEY_INVALID, unknown);
  *state = (void*)nodes[0];
  return GALLEY_OK;
}

/* Called in each step. Must not allocate or wait. */
static galley_status enqueue(void* state, galley_queue* queue, galley_error* error) {
  (void)queue, (void)error;
  const galley_node_view* node = state;
  if (!*(const int32_t*)node->inputs[APPLY]->data) return GALLEY_OK;
  host->parallel(host->context, (galley_operand_count(node->inputs[PARAMETER]) + BLOCK - 1) / BLOCK, step_block, state);
  return GALLEY_OK;
}

static void release(void* state) { (void)state; }

static const galley_kernel kernel = {
    .size = sizeof(galley_kernel),
    .revision = 1,
    .name = "signsgd_c_step.cpu",
    .op = "signsgd_c_step",
    .device = "cpu",
    .query = query,
    .prepare = prepare,
    .enqueue = enqueue,
    .release = release,
};

/* ---- 3. The strategy: which parameters it updates, and with which nodes ------------------------------------------------------------- */

/* The instance has no data: the learning rate is a scalar on the device (see `build`). */
static galley_status create(void* self, const galley_options* options, void** instance, galley_error* error) {
  (void)self, (void)options, (void)error;
  *instance = NULL;
  return GALLEY_OK;
}
static void destroy(void* instance) { (void)instance; }

/* Called once for each property of tensors. Claims the update of every trainable parameter, weakly: a strong claim of another strategy
 * wins. */
static galley_status claim(void* instance, const galley_graph_reader* reader, galley_graph* graph, const galley_claim_call* call,
                           galley_error* error) {
  const galley_claim_value update = {.size = sizeof update, .revision = 1, .strength = GALLEY_WEAK, .text = "signsgd-c"};
  galley_status status = GALLEY_OK;
  (void)instance, (void)reader, (void)graph;
  if (!galley_understood(call, call->flags, 0)) return fail(error, GALLEY_INVALID, unknown);
  if (call->facet != GALLEY_FACET_UPDATE) return GALLEY_OK;
  for (uint64_t i = 0; i < call->n_subjects && status == GALLEY_OK; ++i)
    if (call->subjects[i]->trainable) status = call->claim(call->context, i, &update, error);
  return status;
}

/* Called once for all parameters whose update it won. `rate` returns a scalar that follows the recipe's schedule for a parameter. */
static galley_status build(void* instance, const galley_update_verbs* verbs, galley_graph* graph, const galley_update_call* call,
                           galley_error* error) {
  galley_tensor in[INPUTS] = {0};
  const galley_node_desc node = {.size = sizeof node, .revision = 1, .op = "signsgd_c_step", .inputs = in, .n_inputs = INPUTS};
  (void)instance;
  if (!galley_understood(call, call->flags, 0)) return fail(error, GALLEY_INVALID, unknown);
  if (call->purpose != GALLEY_PURPOSE_TRAIN) return GALLEY_OK; /* evaluation reads the parameters as they are */
  galley_status status = verbs->graph->scalar(graph, GALLEY_SCALAR_APPLY, &in[APPLY], error);
  for (uint64_t i = 0; i < call->n && status == GALLEY_OK; ++i) {
    in[PARAMETER] = call->parameters[i];
    in[GRADIENT] = call->gradients[i];
    status = verbs->rate(graph, "lr", in[PARAMETER], &in[LR], error);
    if (status == GALLEY_OK) status = verbs->graph->node_make(graph, &node, NULL, error);
  }
  return status;
}

static const galley_claim claims = {sizeof(galley_claim), 1, claim, 0};
static const galley_update updates = {sizeof(galley_update), 1, GALLEY_STAGE_STEP, 0, build, 0};

static const void* get(void* self, const char* id) {
  (void)self;
  if (galley_same_text(id, GALLEY_CLAIM)) return &claims;
  if (galley_same_text(id, GALLEY_UPDATE)) return &updates;
  return NULL;
}

static const galley_strategy strategy = {sizeof(galley_strategy), 1, NULL, "signsgd-c", create, destroy, get, 0};

/* ---- The symbol that the library exports ------------------------------------------------------------------------------------------ */

static galley_status opened(const galley_host* table, galley_error* error) {
  (void)error;
  host = table;
  return GALLEY_OK;
}

static const galley_strategy* const strategies[] = {&strategy};
static const galley_op* const ops[] = {&op};
static const galley_kernel* const kernels[] = {&kernel};

GALLEY_PUBLIC extern const galley_entry galley_entry_v1;
const galley_entry galley_entry_v1 = {
    .size = sizeof(galley_entry),
    .revision = 1,
    .abi_major = GALLEY_ABI_MAJOR,
    .abi_minor = GALLEY_ABI_MINOR,
    .id = "signsgd-c",
    .version = "1.0.0",
    .open = opened,
    .strategies = strategies,
    .n_strategies = 1,
    .ops = ops,
    .n_ops = 1,
    .kernels = kernels,
    .n_kernels = 1,
};
