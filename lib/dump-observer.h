/* SPDX-License-Identifier: Apache-2.0 */

#ifndef DUMP_OBSERVER_H
#define DUMP_OBSERVER_H 1

#include "compiler.h"
#include "ovs-atomic.h"

/* Observing dumps.
 * ================
 *
 * Threads that share a dump, of a datapath's flows for instance, take turns at
 * getting the next batch of it.  An observer, if there is one, is called at
 * each step, in the thread that takes it, and so can tell what they wait for.
 *
 *
 * Thread-safety
 * =============
 *
 * Any thread may call any of these functions, at any time.  An observer may
 * be called a last time after it has been replaced. */

enum dump_step {
    DUMP_STEP_WAIT,             /* A thread begins to wait for its turn, */
    DUMP_STEP_TURN,             /* has its turn, */
    DUMP_STEP_READ,             /* and has read what the kernel sent. */
};

typedef void dump_observer_cb(enum dump_step);

extern ATOMIC(dump_observer_cb *) dump_observer;

void dump_observer_set(dump_observer_cb *);

/* Tells the observer, if there is one, that the calling thread has come to
 * 'step' of a dump. */
static inline void
dump_observe(enum dump_step step)
{
    dump_observer_cb *cb;

    atomic_read_relaxed(&dump_observer, &cb);
    if (OVS_UNLIKELY(cb)) {
        cb(step);
    }
}

#endif /* dump-observer.h */
