// The sentences that findings cite: of the headers, and of the page for authors.
#pragma once

#include <string>

namespace galley::rules {

/// The sentence that a run's or a plan's error says is broken.
const char* broken_by(const std::string& cause);

inline constexpr const char* kPure = "abi.h: [plan-time] \"the function is pure, but for files that it reads by galley.files/1\"";
inline constexpr const char* kFlags = "abi.h: \"a reader that finds an unknown flag there refuses the whole struct\"";
inline constexpr const char* kQueryFlags =
    "abi.h: \"a reader that finds an unknown flag there refuses the whole struct. […] A kernel's `query` "
    "returns GALLEY_UNSUPPORTED then\"";
inline constexpr const char* kOnError = "abi.h: \"On error, outputs stay unchanged\"";
inline constexpr const char* kText = "abi.h: galley_error, \"`text` is one line: place, value, cause\"";
inline constexpr const char* kSizes = "abi.h: \"Reader and writer use the smaller of their two sizes (galley_assign)\"";
inline constexpr const char* kTables =
    "abi.h: \"Arrays are arrays of pointers\", of as many as their number says, and each struct begins with its size and revision";
inline constexpr const char* kStatus =
    "abi.h: \"No exception crosses the ABI. Functions return galley_status and fill a galley_error of the caller\"";
inline constexpr const char* kAsFound = "abi.h: \"A plugin leaves the process as it finds it\"";
inline constexpr const char* kSeconds = "abi.h: \"A function comes back in seconds\"";
inline constexpr const char* kShared = "abi.h: [session-thread] \"what their calls share is the plugin's to guard\"";

inline constexpr const char* kLoad = "entry.h: the symbol, `open` and the tables; abi.h: \"Structs begin with `size` and `revision`\"";

inline constexpr const char* kDestroy = "entry.h: destroy \"frees all that `create` has taken\"";
inline constexpr const char* kLog = "entry.h: log, \"Logs one line\", of text";
inline constexpr const char* kBlocks = "entry.h: parallel \"Runs fn(fn_context, i) for i in [0, blocks)\"";
inline constexpr const char* kBlockOrder = "entry.h: parallel, \"The result must not depend on which thread runs which block\"";

inline constexpr const char* kGradient =
    "op.h: galley_gradient_call, \"On return, the tensor that holds the gradient of each input that needs one\"";
inline constexpr const char* kGradientAdds = "op.h: galley_gradient_call, \"where `accumulate` is not 0, a tensor to add to\"";
inline constexpr const char* kReference = "op.h: galley_op.reference, \"Computes the op as it is defined\"";
inline constexpr const char* kSteady = "op.h: galley_op.reference, \"Computes the op as it is defined\", which no address is part of";
inline constexpr const char* kRoles =
    "op.h: \"computed for any contiguous rows of its ROWS operands […] an op gives the numbers that it gives for all rows at once\"";
inline constexpr const char* kGrain = "op.h: grain, \"the smallest part of its ROWS operands that can be computed by itself\"";
inline constexpr const char* kEvaluation = "op.h: GALLEY_OP_TRAINING_ONLY, \"Outside training, output 0 equals input 0\"";
inline constexpr const char* kInfer = "op.h: infer, \"Checks inputs and attributes, and fills the shapes of the n_outputs outputs\"";
inline constexpr const char* kEmpty = "op.h: infer, \"It may be asked about an extent of 0, which no tensor has\"";
inline constexpr const char* kCost =
    "op.h: galley_cost, \"multiplications and additions of matrix products and attention\", bytes and link_bytes "
    "are numbers of at least 0";
inline constexpr const char* kNames =
    "op.h: \"Names of ops, formats, kernels and devices consist of a-z, 0-9 and \"._-/\", and no two plugins have "
    "one in common\"";
inline constexpr const char* kBatches = "philox.h: \"a batch of 8 draws the same numbers as 8 batches of 1\"";
inline constexpr const char* kNodeHash = "philox.h: a draw is keyed by \"hash of the node's name\"";

inline constexpr const char* kKernel = "op.h: \"a reference in double precision that all kernels are tested against\"";
inline constexpr const char* kAdds = "tensor.h: ACCUMULATE, \"it adds to the operand instead of overwriting it\"";
inline constexpr const char* kAlias =
    "op.h: alias, \"the input, counted from 0, whose buffer it may reuse if that input is no longer needed\"";
inline constexpr const char* kWork =
    "kernel.h: enqueue \"Enqueues the work\" of each node that query takes, in outputs, workspace and constants and nowhere else";
inline constexpr const char* kBytes =
    "kernel.h: \"A kernel whose plan lacks GALLEY_PLAN_VARIES leaves the same bytes for the same operands: in another run, at other "
    "addresses, with other threads, in any order of blocks\"";
inline constexpr const char* kAfter =
    "kernel.h: \"On a device without queues it does the work: there is none of it that goes on after `enqueue` has come back\"";
inline constexpr const char* kNoMemory = "kernel.h: \"A kernel never allocates and never waits\"";
inline constexpr const char* kBudget = "kernel.h: galley_target, \"workspace_budget; bytes that one kernel may ask for\"";
inline constexpr const char* kUnsupported =
    "kernel.h: query \"Returns GALLEY_UNSUPPORTED if it does not support these dtypes or shapes or this target\"";
inline constexpr const char* kQueryTime = "kernel.h: query, \"A plan asks hundreds of times\"";
inline constexpr const char* kPrepare = "kernel.h: prepare; \"the views stay valid until `release`\", and each state is its own";
inline constexpr const char* kBelow = "observer.h: \"What a listener writes belongs below it\"";
inline constexpr const char* kLaterRows =
    "observer.h: \"What a listener has of later steps was told by a process that was killed: it has to go\"";
inline constexpr const char* kFlushed =
    "observer.h: saving, \"what has been told so far has to outlast it, so files are flushed to the disk\"";
inline constexpr const char* kFreed =
    "observer.h: ended, \"Called once for each listener, also after a failure of its own or of the run, and frees it\"";
inline constexpr const char* kTwoListeners = "observer.h: \"two sessions may have a listener each of one instance at once\"";
inline constexpr const char* kListenerWaits = "observer.h: \"what takes long belongs on a thread of the listener's own\"";

inline constexpr const char* kApply =
    "graph.h: GALLEY_SCALAR_APPLY, \"0: the step is skipped. Every node that writes a parameter or a state reads it\"";
inline constexpr const char* kFactor = "update.h: gradients are \"not yet multiplied by GALLEY_SCALAR_GRADIENT_FACTOR\"";
inline constexpr const char* kPurpose = "update.h: purpose, \"a plugin ignores calls for another one\"";
inline constexpr const char* kStates = "update.h: \"what it keeps between steps are tensors of kind STATE\"";
inline constexpr const char* kAttributes = "graph.h: galley_node_desc.attrs, \"each name once\"";
inline constexpr const char* kDeclared =
    "op.h: \"A node with one that its op does not declare, or of another type, is refused\", as with an attribute";
inline constexpr const char* kFrozen = "claim.h: \"The parameter has no gradient and no optimizer\", GALLEY_FACET_TRAINABLE 0";
inline constexpr const char* kSaved = "rewrite.h: GALLEY_EXPORT_OWN, \"tensors with a file of their own (an adapter), without the model\"";
inline constexpr const char* kMerge =
    "rewrite.h: merge, \"a strategy that has tensors of its own merges them into the model's by export_as\"";

inline constexpr const char* kComponents =
    "format.h: pack_op, outputs are the components \"with the shapes and dtypes that `components` says\"";
inline constexpr const char* kNumbers = "format.h: numbers, \"How many consecutive numbers of the tensor one element represents\"";
inline constexpr const char* kRange =
    "format.h: \"A range of the tensor that begins and ends at multiples of all of them can be unpacked and packed by itself\"";
inline constexpr const char* kExact =
    "format.h: GALLEY_FORMAT_EXACT, \"unpack(pack(x)) is x rounded once, and packing it again changes nothing\"";
inline constexpr const char* kZeros = "format.h: \"zeros come back as zeros\"";
inline constexpr const char* kOption = "format.h: components, \"Returns GALLEY_INVALID for an option that it does not know\"";
inline constexpr const char* kCodec = "format.h: galley_codec, \"Every number is the one that the unpack op gives\"";
inline constexpr const char* kRounded = "format.h: decode, numbers \"each rounded once to `dtype` (F32, BF16 or F16)\"";
inline constexpr const char* kDecode = "format.h: decode, \"Writes the operand's numbers with the indices first to first + n - 1\"";

inline constexpr const char* kRows = "source.h: read, \"The same row is the same numbers whenever it is asked for\"";
inline constexpr const char* kRowThreads =
    "source.h: read, \"Writes a row. The same row is the same numbers whenever it is asked for. [thread-safe]\"";
inline constexpr const char* kRoom = "source.h: galley_source_row, room: \"positions\" that there are, of tokens, labels and tensors";
inline constexpr const char* kPadding = "source.h: length, \"positions that hold tokens, from the first on; the rest is padding\"";
inline constexpr const char* kVocabulary = "source.h: vocabulary, \"every token is below this\"";
inline constexpr const char* kFingerprint =
    "source.h: fingerprint, \"a hash of everything that was read: a run does not go on with other data\"";
inline constexpr const char* kLabels = "source.h: labels, \"of each position, the token to predict there, which is mostly tokens[i + 1]\"";
inline constexpr const char* kValidates = "source.h: GALLEY_SOURCE_VALIDATES, \"it has items that are held out for validation\"";

inline constexpr const char* kSanitized = "sdk/README.md: of a plugin built with sanitizers, \"whatever they report is a finding\"";
inline constexpr const char* kDefaults = "sdk/README.md: \"Its defaults are a recipe that works\", or example.lua says one";
inline constexpr const char* kConfig = "sdk/README.md: config, \"A run with this strategy reads such a model\"";
inline constexpr const char* kRanges = "sdk/README.md: \"`create` takes every value that its range allows\"";
inline constexpr const char* kUnused = "sdk/README.md: \"an option that the plugin never asks for\" is a mistake";
inline constexpr const char* kUndeclared = "sdk/README.md: the plugin \"asks for no other option\"";
inline constexpr const char* kProvides = "sdk/README.md: provides, \"facets that the strategy decides\"";
inline constexpr const char* kRequires = "sdk/README.md: requires, \"other plugins whose ops this one names\"";
inline constexpr const char* kPromise = "sdk/README.md: promise, \"how near numbers in a format lie to those that were packed\"";
inline constexpr const char* kWithout =
    "sdk/README.md: against = \"without\", \"losses, gradients and updated weights are those of the same recipe without it\"";
inline constexpr const char* kGradientsOnly =
    "sdk/README.md: against = \"gradients\", \"the first window's loss, and the gradients that both have, are those of the same recipe "
    "without it\"";
inline constexpr const char* kStart =
    "sdk/README.md: against = \"start\", \"before the first update the model computes what it computes without it\"";
inline constexpr const char* kInstead =
    "sdk/README.md: against = { instead }, \"losses, gradients and updated weights are those of the recipe with that strategy in its "
    "place\"";

inline constexpr const char* kRanks = "ranks.h: \"all[r * bytes] … is what rank r gave\"; `check` is GALLEY_OK while no rank is gone";

}  // namespace galley::rules
