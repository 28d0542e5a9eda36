/* SPDX-License-Identifier: Apache-2.0 */

#ifndef UNIXCTL_WORKER_H
#define UNIXCTL_WORKER_H 1

#include <stdbool.h>
#include "openvswitch/dynamic-string.h"

struct unixctl_conn;

/* Commands that take long.
 * ========================
 *
 * A unixctl command stops the main thread while it runs.  One that has much to
 * read or format calls unixctl_worker_do(): a thread makes the reply, one job
 * after the other.  While UNIXCTL_WORKER_MAX_JOBS have no reply, further ones
 * are refused, to limit memory.  Only the main thread may call this.
 *
 * A job that takes long has to call ovsrcu_quiesce() now and then, or threads
 * that wait for RCU wait for it.  When the daemon exits, jobs get no reply,
 * and one may still run: it must use nothing that the main thread frees. */

#define UNIXCTL_WORKER_MAX_JOBS 8

/* What the worker makes of a job. */
struct unixctl_worker_reply {
    bool json;                          /* Is JSON wanted? */
    struct ds body;                     /* The text, or one JSON value. */
    char *error;                        /* If nonnull, an error message, which
                                         * is replied instead. */
};

/* Does the job of 'aux', and frees 'aux'. */
typedef void unixctl_worker_cb(void *aux, struct unixctl_worker_reply *);

/* Returns false if the job is refused: then the reply has been sent, and the
 * caller keeps 'aux'. */
bool unixctl_worker_do(struct unixctl_conn *, unixctl_worker_cb *, void *aux);
void unixctl_worker_run(void);
void unixctl_worker_wait(void);
void unixctl_worker_dummy_register(void);

#endif /* unixctl-worker.h */
