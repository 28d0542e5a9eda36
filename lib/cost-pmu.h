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

#ifndef COST_PMU_H
#define COST_PMU_H 1

#include <stdbool.h>
#include <stdint.h>
#include "ovs-atomic.h"
#include "ovs-thread.h"
#include "util.h"

struct ds;

/* The CPU's performance counters.
 * ===============================
 *
 * Counts the CPU's cycles and the instructions that a thread executes in a
 * piece of code:
 *
 *     struct cost_pmu_counts counts;
 *     bool counting = cost_pmu_start(&counts);
 *
 *     ...the code...
 *     if (OVS_UNLIKELY(counting) && cost_pmu_stop(&counts)) {
 *         ...use 'counts'...
 *     }
 *
 * Reading the counters is a system call, so that this does nothing unless it
 * is configured, and callers only count what they time.  While it is not
 * configured, or has failed in a thread, cost_pmu_start() is one test.
 *
 * A thread opens its counters when it first needs them, and closes them when
 * it needs them no more or exits.  What the two system calls themselves take
 * between the readings is measured at first, and taken off.
 *
 * Linux only.  Elsewhere, opening the counters fails.
 *
 *
 * Thread-safety
 * =============
 *
 * Each thread has counters of its own.  cost_pmu_configure() and
 * cost_pmu_get_status() may be called by any thread. */

/* What has been counted.  Between cost_pmu_start() and cost_pmu_stop(), the
 * readings at the start.  In the form of a group's leader, see
 * perf_event_open(2). */
struct cost_pmu_counts {
    uint64_t n;
    uint64_t enabled_ns;                /* Time that they should have counted,
                                         * and did. */
    uint64_t running_ns;
    uint64_t cycles;
    uint64_t instructions;
};

/* Whether the counters can be read. */
struct cost_pmu_status {
    bool wanted;                        /* As configured. */
    bool user_space_only;               /* The kernel does not let them count
                                         * itself, too. */
    int error;                          /* Why a thread could not open them,
                                         * the latest one, or 0. */
};

void cost_pmu_configure(bool wanted);
void cost_pmu_get_status(struct cost_pmu_status *);
void cost_pmu_format_error(int error, struct ds *);

static inline bool cost_pmu_start(struct cost_pmu_counts *);
bool cost_pmu_stop(struct cost_pmu_counts *);

/* Whether the counters are wanted, in bit 0, and how often that has changed,
 * in the others. */
extern ATOMIC(unsigned int) cost_pmu_seq;

struct cost_pmu_group;

/* State of a thread. */
struct cost_pmu_thread {
    unsigned int idle_seq;              /* 'cost_pmu_seq' with which there is
                                         * nothing to do. */
    unsigned int seq;                   /* With which it opened 'group'. */
    struct cost_pmu_group *group;       /* Its counters, or NULL. */
};
DECLARE_EXTERN_PER_THREAD_DATA(struct cost_pmu_thread, cost_pmu_thread);

bool cost_pmu_start__(struct cost_pmu_counts *);

/* Returns true if the calling thread is to count from now on, until it calls
 * cost_pmu_stop() with the same 'counts'. */
static inline bool
cost_pmu_start(struct cost_pmu_counts *counts)
{
    unsigned int seq;

    atomic_read_relaxed(&cost_pmu_seq, &seq);
    return (OVS_UNLIKELY(seq != cost_pmu_thread_get()->idle_seq)
            && cost_pmu_start__(counts));
}

/* Closes the calling thread's counters, if it has any and they are not wanted
 * any more.  For a thread that has nothing to count. */
static inline void
cost_pmu_idle(void)
{
    struct cost_pmu_counts unused;

    cost_pmu_start(&unused);
}

#endif /* cost-pmu.h */
