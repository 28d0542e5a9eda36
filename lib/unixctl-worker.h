/*
 * SPDX-License-Identifier: Apache-2.0
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef UNIXCTL_WORKER_H
#define UNIXCTL_WORKER_H 1

#include <stdbool.h>
#include "openvswitch/dynamic-string.h"

struct unixctl_conn;

/* Commands that take long.
 * ========================
 *
 * A unixctl command runs in the main thread, which cannot do anything else
 * meanwhile.  One that has much to read, format or write is better done by
 * the worker, a thread that is created when the first one comes: the command
 * checks its arguments and calls unixctl_worker_do().  The main thread only
 * hands over what the worker has made.
 *
 * There is one worker, which does one job after the other.  As long as
 * UNIXCTL_WORKER_MAX_JOBS are waiting or being done, further ones are refused,
 * so that clients cannot take more than so much memory.
 *
 *
 * Thread-safety
 * =============
 *
 * These functions are for the main thread only, except for
 * unixctl_worker_call_main(), which is for the worker. */

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

bool unixctl_worker_do(struct unixctl_conn *, unixctl_worker_cb *, void *aux);
void unixctl_worker_run(void);
void unixctl_worker_wait(void);

void unixctl_worker_call_main(void (*cb)(void *aux), void *aux);

void unixctl_worker_dummy_register(void);

#endif /* unixctl-worker.h */
