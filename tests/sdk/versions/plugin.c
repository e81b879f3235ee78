/* For tests: a plugin in C that fills and reads every table and description of the ABI, and of each only the fields that every version
 * has. It is built against headers with a field less and a field more in each struct (tests/python/abi_versions.py), loaded by this host,
 * and has to train to the same bytes.
 *
 * A strategy "versions": SGD with momentum, p = p - lr * (m = 0.5 * m + g), whose momentum is stored in the format "halves" (two
 * components); a device "versions", which computes as the processor does. */
#include <galley/galley.h>
#include <stdlib.h>

#ifndef TEST_NEEDS_MINOR
#define TEST_NEEDS_MINOR GALLEY_ABI_MINOR /* a later SDK builds a plugin that needs less */
#endif
#ifndef TEST_SHORTER
#define TEST_SHORTER 0 /* 1: the structs lack what comes after their minimum */
#endif

/* Sizes and revisions that are wrong on purpose. */
#ifndef TEST_SIZE_KERNEL
#define TEST_SIZE_KERNEL sizeof(galley_kernel)
#endif
#ifndef TEST_SIZE_CLAIM
#define TEST_SIZE_CLAIM sizeof(galley_claim)
#endif
#ifndef TEST_SIZE_DEVICE
#define TEST_SIZE_DEVICE sizeof(galley_device)
#endif
#ifndef TEST_REVISION_KERNEL
#define TEST_REVISION_KERNEL 1
#endif
#ifndef TEST_REVISION_CLAIM
#define TEST_REVISION_CLAIM 1
#endif
#ifndef TEST_REVISION_DEVICE
#define TEST_REVISION_DEVICE 1
#endif

#define HEAD(T) .size = sizeof(T), .revision = 1

static const galley_host* host;

static galley_status fail(galley_error* error, galley_status status, const char* text) {
  size_t n = strlen(text);
  if (n >= sizeof error->text) n = sizeof error->text - 1;
  memcpy(error->text, text, n);
  error->text[n] = 0;
  error->code = status;
  return status;
}

/* ---- Ops and kernels ---------------------------------------------------------------------------------------------------------------- */

#define RULE(name_, role_, flags_) \
  { HEAD(galley_operand_rule), .name = name_, .role = role_, .flags = flags_, .alias = -1 }
static const galley_operand_rule step_rules[] = {
    RULE("parameter", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT),
    RULE("gradient", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT),
    RULE("momentum", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT),
    RULE("lr", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT),
    RULE("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT),
};
static const galley_operand_rule row_rules[] = {RULE("high", GALLEY_ROLE_ROWS, 0), RULE("low", GALLEY_ROLE_ROWS, 0),
                                                RULE("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)};
static const galley_operand_rule* const step_inputs[] = {&step_rules[0], &step_rules[1], &step_rules[2], &step_rules[3], &step_rules[4]};
static const galley_operand_rule* const halves[] = {&row_rules[0], &row_rules[1]};
static const galley_operand_rule* const whole[] = {&row_rules[2]};

static galley_status step_infer(void* self, const galley_node_view* node, galley_shape* const* outputs, galley_error* error) {
  (void)outputs;
  return galley_operand_count(node->inputs[0]) == galley_operand_count(node->inputs[1]) ? GALLEY_OK
                                                                                        : fail(error, GALLEY_INVALID, "sizes differ");
}
static void shape_like(galley_shape* out, const galley_operand* like, uint32_t dtype) {
  out->rank = like->rank;
  out->dtype = dtype;
  for (uint32_t i = 0; i < like->rank; ++i) out->extents[i] = like->shape[i];
}
static galley_status pack_infer(void* self, const galley_node_view* node, galley_shape* const* outputs, galley_error* error) {
  (void)error;
  for (int i = 0; i < 2; ++i) shape_like(outputs[i], node->inputs[0], GALLEY_U16);
  return GALLEY_OK;
}
static galley_status unpack_infer(void* self, const galley_node_view* node, galley_shape* const* outputs, galley_error* error) {
  if (!galley_same_text(galley_attr_string(node, "dtype", "f32"), "f32")) return fail(error, GALLEY_INVALID, "unpacked as F32 only");
  shape_like(outputs[0], node->inputs[0], GALLEY_F32);
  return GALLEY_OK;
}
#if !TEST_SHORTER
static galley_status step_cost(void* self, const galley_node_view* node, galley_cost* cost, galley_error* error) {
  (void)error;
  cost->flops = 3 * (double)galley_operand_count(node->inputs[0]);
  return GALLEY_OK;
}
#endif

static const double low[] = {-1, -1, -1, 0, 1}, high[] = {1, 1, 1, 1, 1};
static const galley_node_view no_view = {HEAD(galley_node_view), .op = "versions_step", .name = "none"};
static const galley_op_case step_case = {HEAD(galley_op_case), .node = &no_view, .low = low, .high = high};
static const galley_op_case* const no_cases[] = {&step_case};

static const galley_op step_op = {HEAD(galley_op),
                                  .name = "versions_step",
                                  .summary = "p = p - lr (m = m / 2 + g)",
                                  .inputs = step_inputs,
                                  .n_inputs = 5,
                                  .cases = no_cases,
                                  .n_cases = 1,
                                  .grain = GALLEY_GRAIN_ELEMENT,
                                  .infer = step_infer,
#if !TEST_SHORTER
                                  .cost = step_cost
#endif
};
static const int64_t two = 2;
static const galley_attr parts = {HEAD(galley_attr), .name = "parts", .data = &two, .type = GALLEY_ATTR_I64, .count = 1};
static const galley_attr_rule parts_rule = {HEAD(galley_attr_rule), .name = "parts", .type = GALLEY_ATTR_I64, .otherwise = &parts};
static const galley_attr_rule* const format_rules[] = {&parts_rule};

static const galley_op pack_op = {HEAD(galley_op),    .name = "halves_pack", .summary = "the halves of each F32",
                                  .inputs = halves,   .n_inputs = 1,         .outputs = halves,
                                  .n_outputs = 2,     .attrs = format_rules, .n_attrs = 1,
                                  .infer = pack_infer};
static const galley_op unpack_op = {HEAD(galley_op),      .name = "halves_unpack", .summary = "F32 from its halves",
                                    .inputs = halves,     .n_inputs = 2,           .outputs = whole,
                                    .n_outputs = 1,       .attrs = format_rules,   .n_attrs = 1,
                                    .infer = unpack_infer};

enum { BLOCK = 4096 };

static void step_block(void* context, int64_t block) {
  const galley_node_view* node = context;
  float *p = node->inputs[0]->data, *m = node->inputs[2]->data;
  const float *g = node->inputs[1]->data, lr = *(const float*)node->inputs[3]->data;
  const int64_t n = galley_operand_count(node->inputs[0]), begin = block * BLOCK, end = begin + BLOCK < n ? begin + BLOCK : n;
  for (int64_t i = begin; i < end; ++i) {
    m[i] = 0.5f * m[i] + g[i];
    p[i] -= lr * m[i];
  }
}
typedef struct state {
  const galley_node_view* node;
  unsigned char* workspace;
} state;
static galley_status query(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_target* target,
                           galley_kernel_plan* plan, galley_error* error) {
  if (n != 1 || target->n_peaks < 1 || target->n_memories < 1 || !target->memories[0]->name || target->peaks[0]->flops <= 0)
    return fail(error, GALLEY_UNSUPPORTED, "one node at a time, on a machine that is described");
  for (uint32_t i = 0; i < target->n_libraries; ++i)
    if (!target->libraries[i]->name) return fail(error, GALLEY_INVALID, "a library without a name");
  (void)nodes;
  plan->workspace_bytes = 64;
  plan->priority = 1;
  return GALLEY_OK;
}
static galley_status prepare(void* self, const galley_node_view* const* nodes, uint32_t n, const galley_kernel_setup* setup, void** out,
                             galley_error* error) {
  state* s = malloc(sizeof *s);
  if (n != 1 || !s || setup->workspace_bytes != 64 || !setup->target || setup->constants)
    return fail(error, GALLEY_FAILED, "not what was asked for");
  s->node = nodes[0];
  s->workspace = setup->workspace;
  *out = s;
  return GALLEY_OK;
}
static void release(void* s) { free(s); }
static galley_status step(void* s, galley_queue* queue, galley_error* error) {
  const galley_node_view* node = ((state*)s)->node;
  (void)queue, (void)error;
  memset(((state*)s)->workspace, 1, 64);
  if (*(const int32_t*)node->inputs[4]->data)
    host->parallel(host->context, (galley_operand_count(node->inputs[0]) + BLOCK - 1) / BLOCK, step_block, (void*)node);
  return GALLEY_OK;
}
static galley_status pack(void* s, galley_queue* queue, galley_error* error) {
  const galley_node_view* node = ((state*)s)->node;
  const uint32_t* x = node->inputs[0]->data;
  uint16_t *a = node->outputs[0]->data, *b = node->outputs[1]->data;
  (void)queue, (void)error;
  for (int64_t i = 0; i < galley_operand_count(node->inputs[0]); ++i) {
    a[i] = (uint16_t)(x[i] >> 16);
    b[i] = (uint16_t)x[i];
  }
  return GALLEY_OK;
}
static galley_status unpack(void* s, galley_queue* queue, galley_error* error) {
  const galley_node_view* node = ((state*)s)->node;
  const uint16_t *a = node->inputs[0]->data, *b = node->inputs[1]->data;
  uint32_t* y = node->outputs[0]->data;
  (void)queue, (void)error;
  for (int64_t i = 0; i < galley_operand_count(node->inputs[0]); ++i) y[i] = (uint32_t)a[i] << 16 | b[i];
  return GALLEY_OK;
}
#define KERNEL(name_, op_, run_)                                                                                           \
  {                                                                                                                        \
    .size = TEST_SIZE_KERNEL, .revision = TEST_REVISION_KERNEL, .name = name_, .op = op_, .device = "cpu", .query = query, \
    .prepare = prepare, .enqueue = run_, .release = release                                                                \
  }
static const galley_kernel step_kernel = KERNEL("versions_step.c", "versions_step", step),
                           pack_kernel = KERNEL("halves_pack.c", "halves_pack", pack),
                           unpack_kernel = KERNEL("halves_unpack.c", "halves_unpack", unpack);

/* ---- The format --------------------------------------------------------------------------------------------------------------------- */

static galley_status components(void* self, const int64_t* shape, uint32_t rank, const galley_attr* const* attrs, uint32_t n_attrs,
                                galley_component* const* out, uint32_t* n, galley_error* error) {
  if (n_attrs > 1) return fail(error, GALLEY_INVALID, "halves have one option");
  if (n_attrs && (attrs[0]->count != 1 || !galley_same_text(attrs[0]->name, "parts") || *(const int64_t*)attrs[0]->data != 2))
    return fail(error, GALLEY_INVALID, "halves come in two parts");
  for (int c = 0; c < 2; ++c) {
    out[c]->suffix = c ? ".low" : ".high";
    out[c]->rank = rank;
    out[c]->dtype = GALLEY_U16;
    for (uint32_t i = 0; i < rank; ++i) out[c]->extents[i] = shape[i];
  }
  *n = 2;
  return GALLEY_OK;
}
static const galley_format format = {HEAD(galley_format),
                                     .name = "halves",
                                     .pack_op = "halves_pack",
                                     .unpack_op = "halves_unpack",
                                     .flags = GALLEY_FORMAT_EXACT | GALLEY_FORMAT_TRAINABLE,
                                     .components = components};

/* ---- The strategy ------------------------------------------------------------------------------------------------------------------- */

#if !TEST_SHORTER
static galley_status see_text(void* context, const char* text, uint64_t bytes) {
  *(uint64_t*)context = text[bytes] == 0 ? bytes : 0;
  return GALLEY_OK;
}
static galley_status see_tensor(void* context, const galley_file_tensor* tensor) {
  uint64_t* good = context;
  *good += tensor->name && tensor->dtype && tensor->rank == 2 && tensor->extents[0] > 0 && tensor->bytes == 24;
  return GALLEY_OK;
}

/* Reads files by the host's service: a text, and a safetensors file with the matrices that tests/python/abi_versions.py writes. */
static galley_status look_into_files(galley_error* error) {
  const galley_files* files = host->service(host->context, GALLEY_FILES);
  uint64_t bytes = 0, matrices = 0;
  if (!files || files->size < GALLEY_FILES_MIN_SIZE) return fail(error, GALLEY_INVALID, "no service for files");
  const galley_status read = files->text(host->context, "versions.lua", 65536, see_text, &bytes, error);
  if (read != GALLEY_OK) return read;
  if (bytes < 20) return fail(error, GALLEY_INVALID, "the recipe has no text");
  const galley_status looked = files->tensors(host->context, "versions.safetensors", see_tensor, &matrices, error);
  if (looked != GALLEY_OK) return looked;
  if (matrices != 2) return fail(error, GALLEY_INVALID, "versions.safetensors has two matrices of 24 bytes");
  galley_error why = GALLEY_ERROR_INIT;
  if (files->tensors(host->context, "versions.lua", see_tensor, &matrices, &why) == GALLEY_OK || !why.text[0])
    return fail(error, GALLEY_INVALID, "a recipe passes for a safetensors file");
  return GALLEY_OK;
}
#endif

static galley_status create(void* self, const galley_options* options, void** instance, galley_error* error) {
  double lr = 0;
  uint64_t n = 0;
  *instance = NULL;
  if (options->number(options->handle, "lr", &lr) != GALLEY_OK || options->count(options->handle, "lr", &n) != GALLEY_OK || n != 1)
    return fail(error, GALLEY_INVALID, "no rate");
#if !TEST_SHORTER
  return look_into_files(error);
#else
  return GALLEY_OK;
#endif
}
static void destroy(void* instance) { (void)instance; }

/* Walks the whole model. */
static galley_status model(void* instance, const galley_model_verbs* verbs, galley_graph* graph, galley_error* error) {
  const galley_graph_reader* reader = verbs->graph->reader;
  int64_t parameters = 0;
  (void)instance;
  for (galley_tensor t = reader->tensor_next(graph, 0); t; t = reader->tensor_next(graph, t)) {
    galley_tensor_info info = {HEAD(galley_tensor_info)};
    const galley_status status = reader->tensor_get(graph, t, &info, error);
    if (status != GALLEY_OK) return status;
    parameters += info.kind == GALLEY_KIND_PARAMETER;
    if (info.producer) {
      galley_node_info node = {HEAD(galley_node_info)};
      if (reader->node_get(graph, info.producer, &node, error) != GALLEY_OK || !node.n_outputs) return GALLEY_FAILED;
    }
  }
  return parameters ? GALLEY_OK : fail(error, GALLEY_FAILED, "a model without parameters");
}

#if !TEST_SHORTER
static const galley_attr* const format_options[] = {&parts};
#endif

static galley_status claim(void* instance, const galley_graph_reader* reader, galley_graph* graph, const galley_claim_call* call,
                           galley_error* error) {
  galley_status status = GALLEY_OK;
  (void)instance, (void)reader, (void)graph;
  for (uint64_t i = 0; i < call->n_subjects && status == GALLEY_OK; ++i) {
    const galley_subject* subject = call->subjects[i];
    galley_claim_value value = {HEAD(galley_claim_value)};
    if (call->facet == GALLEY_FACET_UPDATE && subject->trainable) {
      value.strength = GALLEY_WEAK;
      value.text = "versions";
    }
    if (call->facet == GALLEY_FACET_STORAGE && subject->kind == GALLEY_SUBJECT_STATE) {
      value.strength = GALLEY_STRONG;
      value.text = "halves";
#if !TEST_SHORTER
      value.attrs = format_options;
      value.n_attrs = 1;
#endif
    }
    if (value.strength) status = call->claim(call->context, i, &value, error);
  }
  return status;
}

static galley_status build_one(const galley_update_verbs* verbs, galley_graph* graph, galley_tensor parameter, galley_tensor gradient,
                               galley_error* error) {
  galley_tensor_info p = {HEAD(galley_tensor_info)};
  galley_tensor_desc m = {HEAD(galley_tensor_desc), .dtype = GALLEY_F32, .kind = GALLEY_KIND_STATE};
  galley_tensor in[5] = {parameter, gradient};
  const galley_node_desc node = {HEAD(galley_node_desc), .op = "versions_step", .inputs = in, .n_inputs = 5};
  char name[300] = "momentum.";
  galley_status status = verbs->graph->reader->tensor_get(graph, parameter, &p, error);
  if (status != GALLEY_OK) return status;
  strncat(name, p.name, 256);
  m.name = name;
  m.shape = p.shape;
  m.rank = p.rank;
#if !TEST_SHORTER
  m.parameter = parameter;
#endif
  status = verbs->graph->tensor_make(graph, &m, &in[2], error);
  if (status == GALLEY_OK) status = verbs->rate(graph, "lr", parameter, &in[3], error);
  if (status == GALLEY_OK) status = verbs->graph->scalar(graph, GALLEY_SCALAR_APPLY, &in[4], error);
  if (status == GALLEY_OK) status = verbs->graph->node_make(graph, &node, NULL, error);
  return status;
}

static galley_status build(void* instance, const galley_update_verbs* verbs, galley_graph* graph, const galley_update_call* call,
                           galley_error* error) {
  galley_status status = GALLEY_OK;
  (void)instance;
  if (call->purpose != GALLEY_PURPOSE_TRAIN || call->stage != GALLEY_STAGE_STEP) return GALLEY_OK;
  for (uint64_t i = 0; i < call->n && status == GALLEY_OK; ++i)
    status = build_one(verbs, graph, call->parameters[i], call->gradients[i], error);
  return status;
}

static galley_status decide(void* instance, const galley_saved_set* set, uint32_t* choices, galley_error* error) {
  int64_t peak = 0;
  (void)instance;
  for (uint64_t i = 0; i < set->n_items; ++i)
    if (!set->items[i]->name || set->items[i]->bytes <= 0) return fail(error, GALLEY_FAILED, "an item of nothing");
  return set->peak(set->context, choices, 0, &peak, error);
}

/* Listens to the run, and ends it where an event says something else than the one before. */
static galley_status started(void* instance, const galley_started_event* event, void** listener, galley_error* error) {
  int64_t* steps = malloc(sizeof *steps);
  (void)instance;
  if (!steps || !event->directory[0] || event->trainable <= 0 || event->planned_bytes <= 0)
    return fail(error, GALLEY_FAILED, "a start of nothing");
  *steps = event->steps_done;
  *listener = steps;
  return GALLEY_OK;
}
static galley_status stepped(void* listener, const galley_step_event* event, galley_error* error) {
  const int applied = (event->flags & GALLEY_STEP_APPLIED) != 0;
  if (event->step != ++*(int64_t*)listener || !(event->loss > 0) || !applied) return fail(error, GALLEY_FAILED, "a step of nothing");
  return event->n_metrics == 0 ? GALLEY_OK : fail(error, GALLEY_FAILED, "a metric of nobody");
}
static galley_status ended(void* listener, const galley_ended_event* event, galley_error* error) {
  const int right = event->how == GALLEY_ENDED_DONE && !event->error && event->steps_done == *(int64_t*)listener;
  free(listener);
  return right ? GALLEY_OK : fail(error, GALLEY_FAILED, "an end of nothing");
}

static const galley_rewrite rewrites = {HEAD(galley_rewrite), .model = model};
static const galley_claim claims = {.size = TEST_SIZE_CLAIM, .revision = TEST_REVISION_CLAIM, .claim = claim};
static const galley_update updates = {HEAD(galley_update), .stages = GALLEY_STAGE_STEP, .build = build};
static const galley_saved saved = {HEAD(galley_saved), .decide = decide};
static const galley_observer observes = {HEAD(galley_observer), .started = started, .step = stepped, .ended = ended,
                                         .flags = GALLEY_OBSERVER_ENDS_RUN};
static const void* get(void* self, const char* id) {
  (void)self;
  if (galley_same_text(id, GALLEY_REWRITE)) return &rewrites;
  if (galley_same_text(id, GALLEY_CLAIM)) return &claims;
  if (galley_same_text(id, GALLEY_UPDATE)) return &updates;
  if (galley_same_text(id, GALLEY_OBSERVER)) return &observes;
  return galley_same_text(id, GALLEY_SAVED) ? &saved : NULL;
}
static const galley_strategy strategy = {HEAD(galley_strategy), .name = "versions", .create = create, .destroy = destroy, .get = get};

/* ---- The device --------------------------------------------------------------------------------------------------------------------- */

typedef struct machine {
  char* arenas[2];
  uint32_t n_events;
} machine;

static galley_status describe(void* self, galley_target* out, galley_error* error) {
  static const galley_peak peak = {HEAD(galley_peak), .name = "f32", .flops = 1e11};
  static const galley_target_memory memory = {HEAD(galley_target_memory), .name = "host", .capacity = 1 << 30, .in_bandwidth = 1e10,
                                              .out_bandwidth = 1e10};
  static const galley_library library = {HEAD(galley_library), .name = "none", .version = "1"};
  static const galley_peak* const peaks[] = {&peak};
  static const galley_target_memory* const memories[] = {&memory};
  static const galley_library* const libraries[] = {&library};
  (void)error;
  out->device = "cpu";
  out->isa = "x86-64-v3";
  out->threads = 1;
  out->workspace_budget = 1 << 26;
  out->peaks = peaks;
  out->n_peaks = 1;
  out->memories = memories;
  out->n_memories = 1;
  out->libraries = libraries;
  out->n_libraries = 1;
  return GALLEY_OK;
}
static galley_status open_device(void* self, const galley_device_options* options, void** device, galley_error* error) {
  machine* m = calloc(1, sizeof *m);
  if (!m || !options->target->device) return fail(error, GALLEY_FAILED, "no machine");
  m->n_events = options->n_events;
  *device = m;
  return GALLEY_OK;
}
static void close_device(void* device) { free(device); }
static galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) {
  void* p = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
  if (!p || memory > 1) return fail(error, GALLEY_FAILED, "no memory");
  ((machine*)device)->arenas[memory] = p;
  *out = p;
  return GALLEY_OK;
}
static void release_memory(void* device, uint32_t memory, void* data, int64_t bytes) {
  (void)device, (void)memory, (void)bytes;
  free(data);
}
static galley_status launch(void* device, uint32_t queue, const galley_kernel* kernel, void* s, galley_error* error) {
  (void)device, (void)queue;
  return kernel->enqueue(s, NULL, error);
}
static galley_status copy(void* device, uint32_t queue, const galley_copy* c, galley_error* error) {
  const machine* m = device;
  void* to = c->to_memory == GALLEY_MEMORY_PROCESS ? c->to_address : m->arenas[c->to_memory] + c->to_offset;
  const void* from = c->from_memory == GALLEY_MEMORY_PROCESS ? c->from_address : m->arenas[c->from_memory] + c->from_offset;
  (void)queue, (void)error;
  memmove(to, from, (size_t)c->bytes);
  return GALLEY_OK;
}
static galley_status event(void* device, uint32_t queue, uint32_t number, galley_error* error) {
  (void)queue;
  return number && number <= ((machine*)device)->n_events ? GALLEY_OK : fail(error, GALLEY_FAILED, "an event beyond the last");
}
static galley_status await(void* device, uint32_t number, galley_error* error) { return event(device, 0, number, error); }
static galley_status synchronize(void* device, galley_error* error) {
  (void)device, (void)error;
  return GALLEY_OK;
}
static const galley_memory_class memories[] = {
    {HEAD(galley_memory_class), .name = "host", .alignment = 64, .flags = GALLEY_MEMORY_HOST_ACCESS | GALLEY_MEMORY_COMPUTES},
    {HEAD(galley_memory_class), .name = "spill", .alignment = 64, .flags = GALLEY_MEMORY_HOST_ACCESS}};
static const galley_memory_class* const memory_list[] = {&memories[0], &memories[1]};
static const galley_queue_info queues[] = {{HEAD(galley_queue_info), .role = GALLEY_QUEUE_COMPUTE},
                                           {HEAD(galley_queue_info), .role = GALLEY_QUEUE_OUT}};
static const galley_queue_info* const queue_list[] = {&queues[0], &queues[1]};
static const galley_device device = {.size = TEST_SIZE_DEVICE,
                                     .revision = TEST_REVISION_DEVICE,
                                     .kind = "versions",
                                     .memories = memory_list,
                                     .queues = queue_list,
                                     .n_memories = 2,
                                     .n_queues = 2,
                                     .describe = describe,
                                     .open = open_device,
                                     .close = close_device,
                                     .allocate = allocate,
                                     .release = release_memory,
                                     .launch = launch,
                                     .copy = copy,
                                     .record = event,
                                     .wait = event,
                                     .await = await,
                                     .synchronize = synchronize};

/* ---- The entry ---------------------------------------------------------------------------------------------------------------------- */

static galley_status opened(const galley_host* table, galley_error* error) {
  (void)error;
  host = table;
  host->log(host->context, GALLEY_LOG_DEBUG, "opened");
  return GALLEY_OK;
}
#if !TEST_SHORTER
static void closed(void) { host->log(host->context, GALLEY_LOG_DEBUG, "closed"); }
#endif
static const galley_strategy* const strategies[] = {&strategy};
static const galley_op* const ops[] = {&step_op, &pack_op, &unpack_op};
static const galley_kernel* const kernels[] = {&step_kernel, &pack_kernel, &unpack_kernel};
static const galley_format* const formats[] = {&format};
static const galley_device* const devices[] = {&device};

GALLEY_PUBLIC extern const galley_entry galley_entry_v1;
const galley_entry galley_entry_v1 = {HEAD(galley_entry),
                                      .abi_major = GALLEY_ABI_MAJOR,
                                      .abi_minor = TEST_NEEDS_MINOR,
                                      .id = "versions",
                                      .version = "1.0.0",
                                      .open = opened,
                                      .strategies = strategies,
                                      .n_strategies = 1,
                                      .ops = ops,
                                      .n_ops = 3,
                                      .kernels = kernels,
                                      .n_kernels = 3,
                                      .formats = formats,
                                      .n_formats = 1,
                                      .devices = devices,
                                      .n_devices = 1,
#if !TEST_SHORTER
                                      .close = closed
#endif
};
