/* galley.observer/1: a strategy that listens to a run: it writes down what happens, draws it, or sends it somewhere. It changes no number
 * of the run. `started` makes a listener for the session that trains, the other functions take it, and `ended` frees it.
 *
 * Only a run that trains tells: one that is planned, evaluated, sampled or exported does not, nor one that has nothing left to do. The next
 * step may wait for a listener: what takes long belongs on a thread of the listener's own. */
#ifndef GALLEY_OBSERVER_H
#define GALLEY_OBSERVER_H

#include "galley/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GALLEY_OBSERVER "galley.observer/1"

/* Events. The host owns them, and what they point to, and they are valid during the call. A number may be infinite or NaN. */

/* The weights are loaded, and step `steps_done` + 1 comes next. */
typedef struct galley_started_event {
  uint32_t size;
  uint32_t revision;
  /* Of the run. What a listener writes belongs below it: the recipe, and a path that it gives, may be another person's. */
  const char* directory;
  /* By earlier processes. What a listener has of later steps was told by a process that was killed: it has to go, because these steps are
   * done again. */
  int64_t steps_done;
  int64_t steps;         /* of the run, which may end before */
  int64_t parameters;    /* numbers that the model has */
  int64_t trainable;     /* those of them that are trained */
  int64_t planned_bytes; /* of the memory that computes */
  uint64_t flags;        /* none yet */
} galley_started_event;
#define GALLEY_STARTED_EVENT_MIN_SIZE 64u

#define GALLEY_STEP_APPLIED 1ull /* without it a strategy has skipped the step's update, because the gradients were not finite */

#define GALLEY_STEP_KNOWN 1ull /* all of them */

/* A step is done. */
typedef struct galley_step_event {
  uint32_t size;
  uint32_t revision;
  int64_t step;      /* from 1 */
  double loss;       /* mean over the tokens that count */
  double grad_norm;  /* before clipping */
  double lr;         /* of the first optimizer; where there are several, each is among the metrics */
  double epoch;      /* how often the data has been gone through; 0: it has no epochs */
  double seconds;    /* from the end of the step before, without validation and saving */
  double aside;      /* seconds that went into validation and saving since the step before */
  int64_t tokens;    /* that count in the loss */
  int64_t positions; /* of all rows, padding included */
  int64_t micro_batches;
  /* What strategies report of the step, by the names of metrics.jsonl: the same ones in each step of a run. */
  const char* const* metric_names;
  const double* metric_values;
  uint64_t n_metrics;
  uint64_t flags; /* GALLEY_STEP_… */
} galley_step_event;
#define GALLEY_STEP_EVENT_MIN_SIZE 120u

#define GALLEY_VALIDATED_BEST 1ull /* the lowest loss of the run so far, not counting that before the first step */

#define GALLEY_VALIDATED_KNOWN 1ull /* all of them */

/* A validation is done. */
typedef struct galley_validated_event {
  uint32_t size;
  uint32_t revision;
  int64_t step; /* after which; 0: before the first one */
  double loss;
  double seconds; /* that it took */
  /* Of models with labels: "accuracy" and "f1". */
  const char* const* metric_names;
  const double* metric_values;
  uint64_t n_metrics;
  uint64_t flags; /* GALLEY_VALIDATED_… */
} galley_validated_event;
#define GALLEY_VALIDATED_EVENT_MIN_SIZE 64u

/* Something that a person should read: the run stops early, another listener has failed. */
typedef struct galley_note_event {
  uint32_t size;
  uint32_t revision;
  const char* text;
  uint64_t flags; /* none yet */
} galley_note_event;
#define GALLEY_NOTE_EVENT_MIN_SIZE 24u

/* How the run ends in this process. */
#define GALLEY_ENDED_DONE 1u        /* all of it is done, and saved as the recipe says */
#define GALLEY_ENDED_INTERRUPTED 2u /* before its last step, by a signal or because it was to pause there: it can be resumed */
#define GALLEY_ENDED_FAILED 3u      /* by the error `error` */

typedef struct galley_ended_event {
  uint32_t size;
  uint32_t revision;
  uint32_t how; /* GALLEY_ENDED_…; a listener takes one that it does not know for GALLEY_ENDED_FAILED */
  uint32_t reserved;
  int64_t steps_done; /* of the run */
  const char* error;  /* one line; NULL: it has not failed */
  uint64_t flags;     /* none yet */
} galley_ended_event;
#define GALLEY_ENDED_EVENT_MIN_SIZE 40u

/* The run ends with the error of a function that fails, and can be resumed. Without this flag the run goes on without the listener: it
 * warns at once and again at its end. Either way the listener is told nothing more but `ended`. */
#define GALLEY_OBSERVER_ENDS_RUN 1ull

#define GALLEY_OBSERVER_KNOWN 1ull /* all of them */

/* A function that is NULL is not called; `started` and `ended` have to be there. All are [session-thread]: so two sessions may have a
 * listener each of one instance at once. */
typedef struct galley_observer {
  uint32_t size;
  uint32_t revision;
  /* Makes a listener. One that fails makes none. */
  galley_status (*started)(void* instance, const galley_started_event*, void** listener, galley_error*);
  galley_status (*step)(void* listener, const galley_step_event*, galley_error*);
  galley_status (*validated)(void* listener, const galley_validated_event*, galley_error*);
  /* A state is about to be saved, or the run to end: what has been told so far has to outlast it, so files are flushed to the disk. */
  galley_status (*saving)(void* listener, galley_error*);
  galley_status (*note)(void* listener, const galley_note_event*, galley_error*);
  /* Called once for each listener, also after a failure of its own or of the run, and frees it. Only a process that is killed, or dies,
   * does not call it. */
  galley_status (*ended)(void* listener, const galley_ended_event*, galley_error*);
  uint64_t flags; /* GALLEY_OBSERVER_… */
} galley_observer;
#define GALLEY_OBSERVER_MIN_SIZE 64u

/* End of draft 0.4. */

#ifdef __cplusplus
}
#endif
#endif
