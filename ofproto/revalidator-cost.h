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

#ifndef REVALIDATOR_COST_H
#define REVALIDATOR_COST_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cost.h"
#include "ovs-thread.h"

struct revalidator_cost;

/* What revalidation costs.
 * ========================
 *
 * The hooks that ofproto-dpif-upcall and the datapaths call, on top of
 * lib/cost.h.  Each datapath has two accounts: one of rounds, which the
 * leading revalidator thread records, and one of each thread's share of them.
 * Each stage, class and counter is defined in
 * Documentation/topics/revalidator-cost.rst.
 *
 *
 * Thread-safety
 * =============
 *
 * A round belongs to the threads that take part in it, of which one leads.
 * Those functions below that say who calls them rely on that; the others may
 * be called by any thread, and do nothing in one that is not in a round. */

/* Stages of a round. */
enum revalidator_cost_round_stage {
    REVALIDATOR_COST_R_IDLE,    /* Since the round before. */
    REVALIDATOR_COST_R_START,   /* Until the dump has been requested. */
    REVALIDATOR_COST_R_DUMP,    /* Until all threads have revalidated. */
    REVALIDATOR_COST_R_SWEEP,   /* Until all threads have swept. */
    REVALIDATOR_COST_R_FINISH,  /* Until the new flow limit is known. */
    REVALIDATOR_COST_R_THREADS, /* A number: of threads. */
    REVALIDATOR_COST_R_FLOWS,   /* A number: flows that were dumped. */
    REVALIDATOR_COST_R_LIMIT,   /* A number: the flow limit afterwards. */
    REVALIDATOR_COST_R_TOTAL,   /* All times but 'idle'. */
    REVALIDATOR_COST_R_N_STAGES
};

/* Stages of a thread's share of a round. */
enum revalidator_cost_stage {
    REVALIDATOR_COST_IDLE,      /* Since its share before. */
    REVALIDATOR_COST_LEAD,      /* Of the leader: 'start' and 'finish'. */
    REVALIDATOR_COST_LOCK,      /* Waiting for the dump's mutex. */
    REVALIDATOR_COST_KERNEL,    /* Reading from the kernel. */
    REVALIDATOR_COST_DUMP,      /* Other work on getting flows. */
    REVALIDATOR_COST_REVALIDATE,  /* Revalidating them. */
    REVALIDATOR_COST_OPERATE,   /* Changing and deleting datapath flows. */
    REVALIDATOR_COST_SWEEP,     /* Looking for flows to be deleted. */
    REVALIDATOR_COST_BARRIER,   /* Waiting for other threads. */
    REVALIDATOR_COST_FLOWS,     /* A number: flows that were dumped. */
    REVALIDATOR_COST_TOTAL,     /* All times but 'idle'. */
    REVALIDATOR_COST_N_STAGES
};

/* What became of a flow.  REVALIDATOR_COST_DELETED, and those that follow it,
 * are the values of 'enum flow_del_reason' in ofproto-dpif-upcall. */
enum revalidator_cost_counter {
    REVALIDATOR_COST_KEPT,
    REVALIDATOR_COST_MODIFIED,
    REVALIDATOR_COST_DUPLICATE, /* Dumped before in this round, or new. */
    REVALIDATOR_COST_SKIPPED,   /* Busy or in an unexpected state. */
    REVALIDATOR_COST_DELETED,
    REVALIDATOR_COST_N_COUNTERS = REVALIDATOR_COST_DELETED + 12
};

/* What moves the flow limit. */
enum revalidator_cost_limit {
    REVALIDATOR_COST_LIMIT_KEPT,
    REVALIDATOR_COST_LIMIT_SCALED,  /* The round took more than 2 s. */
    REVALIDATOR_COST_LIMIT_REDUCED, /* It took more than 1.3 s. */
    REVALIDATOR_COST_LIMIT_GREW,    /* It took less than 1 s. */
    REVALIDATOR_COST_LIMIT_SET,     /* The configuration, or a command. */
    REVALIDATOR_COST_N_LIMITS
};

/* Classes: whether flows had to be translated again, together with what moved
 * the flow limit. */
#define REVALIDATOR_COST_N_CLASSES (REVALIDATOR_COST_N_LIMITS << 1)

extern const struct cost_kind revalidator_cost_round_kind;
extern const struct cost_kind revalidator_cost_share_kind;

struct revalidator_cost *revalidator_cost_create(const char *name,
                                                 unsigned int flow_limit);
void revalidator_cost_destroy(struct revalidator_cost *);

/* A thread. */
void revalidator_cost_thread_start(struct revalidator_cost *, size_t i);
void revalidator_cost_thread_stop(void);

/* A round, in the order of calls. */
void revalidator_cost_round_begin(struct revalidator_cost *,
                                  uint64_t reval_seq);
void revalidator_cost_dump_requested(struct revalidator_cost *,
                                     size_t n_flows);
void revalidator_cost_dump_begin(struct revalidator_cost *, bool leader);
void revalidator_cost_dump_end(bool leader);
void revalidator_cost_sweep_end(struct revalidator_cost *);
void revalidator_cost_share_end(bool leader);
void revalidator_cost_round_end(struct revalidator_cost *, size_t n_threads,
                                long long int duration_ms,
                                enum revalidator_cost_limit,
                                unsigned int flow_limit);

/* Outside of rounds. */
void revalidator_cost_purged(struct revalidator_cost *);
void revalidator_cost_limit_set(struct revalidator_cost *,
                                unsigned int flow_limit);

/* What a thread has recorded of its share of a round. */
struct revalidator_cost_thread {
    struct cost_recorder *recorder;     /* Of shares, NULL if the thread is no
                                         * revalidator. */
    bool on;                            /* In a round, with accounting on? */
    uint64_t end;                       /* Of its latest share, ticks or 0. */
    uint64_t begin;                     /* Of this share. */
    uint64_t last;                      /* Latest mark. */
    size_t class;                       /* Of the round. */
    uint64_t n_dp_flows;                /* Flows in the datapath then. */
    uint64_t n_flows;                   /* That it has dumped. */
    struct cost_event share;
    uint64_t counters[REVALIDATOR_COST_N_COUNTERS];

    /* Of the leader. */
    struct cost_recorder *leader;       /* Of rounds, NULL in other threads. */
    uint64_t last_phase;                /* Latest mark of the round. */
    struct cost_event round;
};
DECLARE_EXTERN_PER_THREAD_DATA(struct revalidator_cost_thread,
                               revalidator_cost_thread);

void revalidator_cost_mark__(struct revalidator_cost_thread *,
                             enum revalidator_cost_stage);

/* Ends 'stage' of the calling thread's share of a round, if it is in one.  A
 * stage that ends several times has the sum of the times. */
static inline void
revalidator_cost_mark(enum revalidator_cost_stage stage)
{
    struct revalidator_cost_thread *thread = revalidator_cost_thread_get();

    if (thread->on) {
        revalidator_cost_mark__(thread, stage);
    }
}

/* Ends getting 'n_flows' flows from the datapath. */
static inline void
revalidator_cost_batch(size_t n_flows)
{
    revalidator_cost_thread_get()->n_flows += n_flows;
    revalidator_cost_mark(REVALIDATOR_COST_DUMP);
}

/* Counts a flow that 'counter' has happened to.  This takes about a
 * nanosecond. */
static inline void
revalidator_cost_count(enum revalidator_cost_counter counter)
{
    revalidator_cost_thread_get()->counters[counter]++;
}

/* Commands. */
void revalidator_cost_init(void);

#endif /* revalidator-cost.h */
