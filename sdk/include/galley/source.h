/* galley.source/1: a kind of data. A recipe names it, data.NAME { options }, and the manifest of its plugin lists it ([[source]]). The
 * source knows its items (texts, pairs, images) by their numbers and writes each as one row or several rows of named tensors. The host
 * shuffles the items of an epoch, deals rows out to windows, pads, remembers how far a run has come, and goes on there. A source without
 * end (GALLEY_SOURCE_ENDLESS) has no items and makes the rows of each window as they are asked for.
 *
 * Tensors. Every row has tokens and labels. Whatever else a model or a strategy reads, the source declares by name, and they ask for it by
 * that name (g:input in a family; `input` in rewrite.h). */
#ifndef GALLEY_SOURCE_H
#define GALLEY_SOURCE_H

#include "galley/entry.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_SOURCE_PER_POSITION (-1) /* an extent: a number for each position of the row */
#define GALLEY_SOURCE_MOST_TENSORS 8u

/* Flags of a source's tensor. */
/* It holds labels: if the model reads it, a window's loss is divided by how many of its numbers count, which are all but -100, and not by
 * the labels of tokens. One tensor of a source may have this. */
#define GALLEY_SOURCE_COUNTS 1ull

/* A tensor that a source declares. Each row of it has `extent` numbers. The pointers live as long as the instance. */
typedef struct galley_source_tensor {
  uint32_t size;
  uint32_t revision;
  const char* name; /* of the model's input */
  const char* unit; /* with GALLEY_SOURCE_COUNTS: what one label is of, "pair"; else NULL */
  int64_t extent;   /* at least 1, or GALLEY_SOURCE_PER_POSITION */
  uint32_t dtype;   /* GALLEY_I32 or GALLEY_F32 */
  uint32_t reserved;
  uint64_t flags;
} galley_source_tensor;
#define GALLEY_SOURCE_TENSOR_MIN_SIZE 48u

/* What a model learns of a row, and where the source writes it. */
#define GALLEY_LEARNS_NEXT_TOKENS 0u   /* galley_source_row.labels, unless the host makes them */
#define GALLEY_LEARNS_MASKED_TOKENS 1u /* learned: for each position that is masked, the token that was there */
#define GALLEY_LEARNS_TOKEN_LABELS 2u  /* learned: the label of each position */
#define GALLEY_LEARNS_ROW_LABELS 3u    /* learned: the row's label; where there are several, 1 for each that it has, and 0 for the others */
#define GALLEY_LEARNS_ROW_VALUES 4u    /* learned: numbers of the row, in F32 */
#define GALLEY_LEARNS_TARGET 5u        /* learned: the tokens that a decoder writes */

/* What a source is told before it describes itself. */
typedef struct galley_source_call {
  uint32_t size;
  uint32_t revision;
  int64_t rows;    /* of a micro-batch */
  int64_t length;  /* positions of a row */
  uint64_t flags;  /* none yet */
  int64_t classes; /* labels of GALLEY_LEARNS_TOKEN_LABELS and of GALLEY_LEARNS_ROW_LABELS are below this; 0: it learns no labels */
  uint32_t learns; /* GALLEY_LEARNS_… */
  uint32_t reserved;
} galley_source_call;
#define GALLEY_SOURCE_CALL_MIN_SIZE 32u

/* Flags of a source's description. */
#define GALLEY_SOURCE_LABELS 1ull    /* it writes the labels itself; else the host makes them: the token that follows in the row */
#define GALLEY_SOURCE_VALIDATES 2ull /* it has items that are held out for validation: at least one, once it is open */
#define GALLEY_SOURCE_LEARNED 4ull   /* it writes `learned`; else models that learn something else than next tokens are refused */
/* It has no items for training and no epochs. A row of it is a function of the window's number, counted from 0, and of the row's number in
 * the window: galley_source_row.item and .row. So that a run goes on without looking back, a window of so many tokens has as many rows as
 * it would take if every position counted. */
#define GALLEY_SOURCE_ENDLESS 8ull

#define GALLEY_SOURCE_INFO_KNOWN 15ull /* all of them */

/* What is known before anything is read. On entry, all fields are 0 but size and revision. */
typedef struct galley_source_info {
  uint32_t size;
  uint32_t revision;
  int64_t rows_of_item; /* each item is so many rows, one after the other, in one micro-batch; the rows of that are a multiple of it */
  int64_t vocabulary;   /* every token is below this; 0: not known */
  const galley_source_tensor* const* tensors;
  uint32_t n_tensors;
  uint32_t reserved;
  const char* summary; /* "pairs of pairs.csv": for people; lives as long as the instance */
  uint64_t flags;
} galley_source_info;
#define GALLEY_SOURCE_INFO_MIN_SIZE 56u

/* What opening it has found. On entry, all fields are 0 but size, revision and those that say "in". */
typedef struct galley_source_contents {
  uint32_t size;
  uint32_t revision;
  int64_t items; /* for training, at least 1; with GALLEY_SOURCE_ENDLESS 0 */
  int64_t validation_items;
  uint64_t fingerprint; /* a hash of everything that was read: a run does not go on with other data. Options the host compares itself */
  int64_t vocabulary;   /* in: of the model, whose tokens are below this */
  uint64_t seed;        /* in: of the run, for what the source draws */
  int64_t length;       /* in: positions of a row: what is longer is cut by `read`, or refused here */
} galley_source_contents;
#define GALLEY_SOURCE_CONTENTS_MIN_SIZE 32u

/* A row to write. On entry tokens are 0, labels and I32 tensors with GALLEY_SOURCE_COUNTS are -100, and other tensors 0. `learned` and
 * `target` are -100 as I32, whose bits are no number in F32. */
typedef struct galley_source_row {
  uint32_t size;
  uint32_t revision;
  int64_t item; /* from 0, of the items for training or of those for validation */
  int64_t row;  /* from 0, of the item's rows */
  int64_t room; /* positions */
  int32_t* tokens;
  int32_t* labels;      /* of each position, the token to predict there, which is mostly tokens[i + 1]; nothing is moved later. -100: none */
  void* const* tensors; /* in the order in which they were declared */
  int64_t length;       /* out: positions that hold tokens, from the first on; the rest is padding */
  uint32_t validation;  /* 1: of a validation item */
  uint32_t reserved;
  void* learned;     /* what galley_source_call.learns says, -100 where nothing is learned; NULL: it learns from `labels` */
  int64_t n_learned; /* its numbers: one a position, as many as the model tells of a row, or as many as a target has room for */
  int32_t* target;   /* n_learned tokens that the decoder reads; NULL: there is none. What stays -100 becomes `learned` after the token that
                      * begins a target */
} galley_source_row;
#define GALLEY_SOURCE_ROW_MIN_SIZE 72u

typedef struct galley_source {
  uint32_t size;
  uint32_t revision;
  void* self; /* the plugin's own */
  const char* name;
  galley_status (*create)(void* self, const galley_options*, void** instance, galley_error*); /* [plan-time] */
  void (*destroy)(void* instance);
  /* Looks at headers and sizes at most, since it is called for plans, too. [plan-time] */
  galley_status (*describe)(void* instance, const galley_source_call*, galley_source_info* out, galley_error*);
  /* Reads what has to be read before items can be written. Called once, before a device is opened; it may take a while. [main-thread] */
  galley_status (*open)(void* instance, galley_source_contents* out, galley_error*);
  /* Writes a row. The same row is the same numbers whenever it is asked for. [thread-safe] */
  galley_status (*read)(void* instance, galley_source_row*, galley_error*);
  uint64_t flags; /* none yet */
} galley_source;
#define GALLEY_SOURCE_MIN_SIZE 72u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
