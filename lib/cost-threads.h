/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_THREADS_H
#define COST_THREADS_H 1

#include <stdbool.h>
#include <stdint.h>
#include "cost-book.h"

struct cost_view;
struct ds;
struct json;

/* Why events are slow: what the scheduler does with threads.
 * =========================================================
 *
 * A thread is always in one of three states: on a CPU, waiting for one
 * although it could run (its "run delay"), or blocked.  Linux counts the time
 * in the first two for each thread.  The sampler, a thread named
 * "cost_threads", does work that must not delay recording (it does not choose
 * samples of events).  It reads these counters of all threads of the process
 * twice a second.  It also copies numbers for the reports of the last minutes,
 * logs slow events, and keeps the flight recorder's events around a slow one.
 *
 * The command "cost/threads" shows how much of the last seconds or minutes
 * each thread spent in each state.  While its report, "threads", is off, the
 * sampler reads no thread, and all causes are unknown.
 *
 * When an event may enter the slowest, or is to be logged, its thread reads
 * its own counters, to find the cause.  Let the event have taken E, and let I
 * be the time since an earlier reading, from before the event.  The thread
 * spent I - E outside of the event.  So if it was on a CPU for I - E / 2 or
 * longer, it was on a CPU for at least half of the event.  The same holds for
 * the other two states.  This needs no reading when an event begins, and no
 * guess: a cause that can't be proven in this way is unknown.  The earlier
 * reading is the sampler's, or the thread's own for its previous slow event.
 * In the main loop, cost_threads_mark() also reads when an iteration begins,
 * for the earlier reading, and before it sleeps, for the later one: iterations
 * are recorded after their sleep.  It does each at most every 5 ms.  A thread
 * reads for causes at most ten times in a burst, and then ten a second.
 *
 * A container or a service may have a CPU limit.  While it holds a thread back
 * ("throttled"), Linux counts the time as run delay.
 *
 *
 * Thread-safety
 * =============
 *
 * The main thread calls cost_threads_init(), once, before others record; any
 * thread may call the other functions.  cost_threads_cause() and
 * cost_threads_mark() never wait: each thread has a lock of its own, which the
 * sampler, or the worker for "cost/threads", holds while it reads that
 * thread.  The sampler and the worker also add a thread that is new, and free
 * its data when it is gone. */

void cost_threads_init(void);
void cost_threads_mark(bool end);
bool cost_read_file(char *, size_t size, const char *format, ...)
    OVS_PRINTF_FORMAT(3, 4);

/* For tests. */
enum cost_cause cost_threads_cause(uint64_t event_ns, uint64_t age_ns);
struct json *cost_threads_to_json(const struct cost_view *, struct ds *);
extern const char *cost_threads_root;

#endif /* cost-threads.h */
