/* SPDX-License-Identifier: Apache-2.0 */

#ifndef WORK_OBSERVER_H
#define WORK_OBSERVER_H 1

#include <stdbool.h>
#include <sys/types.h>
#include "compiler.h"
#include "ovs-atomic.h"

struct ofp_header;

/* Observing work.
 * ===============
 *
 * Calls an observer, if there is one, when a thread begins or ends work that
 * may take it long.  'done' says which of the two.
 *
 *
 * Thread-safety
 * =============
 *
 * The thread that does the work calls its observer.  Any thread may set an
 * observer, or NULL, with atomic_store_relaxed(), at any time.  An observer
 * may be called a last time after it has been replaced. */

/* Threads that share a dump, of a datapath's flows for instance, take turns at
 * getting the next batch of it.  Any thread. */
enum dump_step {
    DUMP_STEP_WAIT,             /* A thread begins to wait for its turn, */
    DUMP_STEP_TURN,             /* has its turn, */
    DUMP_STEP_READ,             /* and has read what the kernel sent. */
};
typedef void work_dump_cb(enum dump_step);

/* ovsrcu_synchronize() waits for other threads.  Any thread. */
typedef void work_synchronize_cb(bool done);

/* All routes are read, or the addresses of a device that tunnels use.  One may
 * be within the other.  Main thread. */
typedef void work_routes_cb(bool done);

/* A unixctl command, whose name and arguments are in 'argv', is executed.
 * Main thread. */
typedef void work_command_cb(int argc, const char *argv[], bool done);

/* The OpenFlow message 'oh' is handled, from 'peer', "BRIDGE<->TARGET", and
 * from process 'peer_pid' unless that is 0.  When it is 'done', pointers are
 * NULL.  Main thread. */
typedef void work_message_cb(const char *peer, pid_t peer_pid,
                             const struct ofp_header *oh, bool done);

extern struct work_observer {
    ATOMIC(work_dump_cb *) dump;
    ATOMIC(work_synchronize_cb *) synchronize;
    ATOMIC(work_routes_cb *) routes;
    ATOMIC(work_command_cb *) command;
    ATOMIC(work_message_cb *) message;
} work_observer;

/* Calls the observer of WORK, a member of 'work_observer'. */
#define WORK_OBSERVE(WORK, ...)                                 \
    do {                                                        \
        work_##WORK##_cb *cb__;                                 \
                                                                \
        atomic_read_relaxed(&work_observer.WORK, &cb__);        \
        if (OVS_UNLIKELY(cb__)) {                               \
            cb__(__VA_ARGS__);                                  \
        }                                                       \
    } while (0)

#endif /* work-observer.h */
