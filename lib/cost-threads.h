/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_THREADS_H
#define COST_THREADS_H 1

#include <stdbool.h>
#include <stdint.h>
#include "cost-book.h"

struct ds;
struct json;

/* Why events are slow: what the scheduler does with threads.
 * =========================================================
 *
 * A thread spends all of its time in three ways: on a CPU, waiting for one
 * although it could run (its "run delay"), and blocked.  Linux counts the
 * first two for each thread.  The sampler, a thread for what no thread that
 * records may wait for, reads these counters of all threads of the process
 * twice a second.  It also copies numbers, so that others can read what
 * happened in the last minutes, logs slow events, and keeps what the flight
 * recorder has around one.
 *
 * The command "cost/threads" shows how much of the last seconds or minutes
 * each thread spent in each way.
 *
 * An event that enters the slowest has a cause, if there is proof of one: its
 * thread reads its own counters.  Let the event have taken E, and let I be the
 * time since an earlier reading, from before the event.  Of I, I - E was not
 * in the event.  So, if the thread was on a CPU for I - E / 2 or longer, it
 * was so for at least half of the event.  The same holds for the other two.
 * This needs no reading when an event begins, and no guess: a cause that
 * cannot be proven so is unknown.  The earlier reading is the sampler's, the
 * thread's own of its previous slow event, or, in the main loop, one of
 * cost_threads_mark(), which reads when an iteration begins and before it
 * sleeps, at most each 5 ms.  A thread reads for causes ten times a second at
 * most.
 *
 * A container or a service may have a limit of CPU time.  Linux counts time in
 * which a thread is held back because of it, "throttled", as run delay.
 *
 *
 * Thread-safety
 * =============
 *
 * The main thread calls cost_threads_init(), once, before others record; any
 * thread may call the other functions.  cost_threads_cause() and
 * cost_threads_mark() wait for nobody: a thread has a lock of its own, which
 * the sampler holds while it reads this thread. */

void cost_threads_init(void);
void cost_threads_mark(bool end);
bool cost_read_file(char *, size_t size, const char *format, ...)
    OVS_PRINTF_FORMAT(3, 4);

/* For tests. */
enum cost_cause cost_threads_cause(uint64_t event_ns, uint64_t age_ns);
struct json *cost_threads_to_json(int window_s, struct ds *);
extern const char *cost_threads_root;

#endif /* cost-threads.h */
