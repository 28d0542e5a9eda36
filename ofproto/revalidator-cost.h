/* SPDX-License-Identifier: Apache-2.0 */

#ifndef REVALIDATOR_COST_H
#define REVALIDATOR_COST_H 1

#include <stddef.h>
#include <stdint.h>
#include "cost-book.h"

struct revalidator_cost;

/* What revalidation costs.
 * ========================
 *
 * The hooks that ofproto-dpif-upcall calls, on top of lib/cost-span.h.  Each
 * datapath has two accounts: one of rounds, which the leading revalidator
 * thread records, and one of each thread's share of a round.  All events are
 * split.  The class of a share is the reason of the round; that of a round has
 * the move of the flow limit, too.  The recorders exist from thread_start() to
 * thread_stop(), except those named "main", which record purges: flows that
 * are deleted outside of rounds, in class "statistics".
 *
 * A thread collects its counts, and records them with its share; sweep_end()
 * adds them to the round's.  A round in progress when accounting is switched
 * off lacks the counts of threads whose share has not begun.  A round that is
 * cancelled, for a pause or an exit, has no more calls and is not recorded.
 * Its time is idle time of the next round.
 *
 *
 * Thread-safety
 * =============
 *
 * In a round, the leader calls round_begin(), dump_requested() and
 * round_end(), and each thread the other functions.  The leader's share is as
 * long as the round; that of another thread lasts from its dump_begin() to its
 * share_end().  The main thread calls changed() at any time and, while no
 * round is in progress, count() for each flow that it purges, and then
 * purged().  mark() does nothing in a thread that is in no round.  Any thread
 * may call the rest. */

/* Stages of a round. */
#define REVALIDATOR_COST_ROUND_STAGES(COLUMN)                                 \
    COLUMN(REVALIDATOR_COST_R_IDLE, "idle", NULL, COST_APART,                 \
           "Since the previous round, until the leading thread wakes up.")    \
    COLUMN(REVALIDATOR_COST_R_START, "start", NULL, 0,                        \
           "Until the dump has been requested from the datapath.")            \
    COLUMN(REVALIDATOR_COST_R_DUMP, "dump", NULL, 0,                          \
           "Until all threads have got and revalidated their flows.")         \
    COLUMN(REVALIDATOR_COST_R_SWEEP, "sweep", NULL, 0,                        \
           "Until all threads have looked for flows to be deleted.")          \
    COLUMN(REVALIDATOR_COST_R_FINISH, "finish", NULL, 0,                      \
           "Until the new flow limit is known.")                              \
    COLUMN(REVALIDATOR_COST_R_THREADS, "threads", "threads", 0,               \
           "Revalidator threads: all of them.")                               \
    COLUMN(REVALIDATOR_COST_R_FLOWS, "flows", "flows", 0,                     \
           "Flows that all threads have dumped.")                             \
    COLUMN(REVALIDATOR_COST_R_LIMIT, "limit", "flows", 0,                     \
           "The flow limit after the round.")                                 \
    COLUMN(REVALIDATOR_COST_R_TOTAL, "total", NULL, 0,                        \
           "All times but 'idle': upcall/show's dump duration, and counting " \
           "the flows before it.")
enum revalidator_cost_round_stage { REVALIDATOR_COST_ROUND_STAGES(COST_ENUM) };

/* Stages of a thread's share of a round. */
#define REVALIDATOR_COST_STAGES(COLUMN)                                       \
    COLUMN(REVALIDATOR_COST_IDLE, "idle", NULL, COST_APART,                   \
           "Since the thread's previous share.")                              \
    COLUMN(REVALIDATOR_COST_LEAD, "lead", NULL, 0,                            \
           "The round's 'start' and 'finish', in the leading thread only.")   \
    COLUMN(REVALIDATOR_COST_LOCK, "lock", NULL, 0,                            \
           "Waiting for the mutex that serializes reading from the dump.")    \
    COLUMN(REVALIDATOR_COST_KERNEL, "kernel", NULL, 0,                        \
           "Reading from the kernel, in its datapath, with that mutex held.") \
    COLUMN(REVALIDATOR_COST_DUMP, "dump", NULL, 0,                            \
           "The rest of getting flows: finding flows in the messages, or in " \
           "the userspace datapath's flow table, and RCU after each batch.")  \
    COLUMN(REVALIDATOR_COST_REVALIDATE, "revalidate", NULL, 0,                \
           "Revalidating the flows that were dumped.")                        \
    COLUMN(REVALIDATOR_COST_OPERATE, "operate", NULL, 0,                      \
           "Changing and deleting datapath flows, with their statistics.")    \
    COLUMN(REVALIDATOR_COST_SWEEP, "sweep", NULL, 0,                          \
           "Going through the thread's ukeys for flows to be deleted.")       \
    COLUMN(REVALIDATOR_COST_BARRIER, "barrier", NULL, 0,                      \
           "Waiting for the other threads: after the dump, after the sweep "  \
           "and, in the leading thread, before the dump.")                    \
    COLUMN(REVALIDATOR_COST_FLOWS, "flows", "flows", 0,                       \
           "Flows that the thread has dumped.")                               \
    COLUMN(REVALIDATOR_COST_TOTAL, "total", NULL, 0, "All times but 'idle'.")
enum revalidator_cost_stage { REVALIDATOR_COST_STAGES(COST_ENUM) };

/* Results for flows.  REVALIDATOR_COST_DELETED and those that follow it are in
 * the order of enum flow_del_reason in ofproto-dpif-upcall. */
#define REVALIDATOR_COST_COUNTERS(COLUMN)                                     \
    COLUMN(REVALIDATOR_COST_KEPT, "kept", "flows", 0,                         \
           "The flow was left as it is.")                                     \
    COLUMN(REVALIDATOR_COST_MODIFIED, "modified", "flows", 0,                 \
           "The flow's actions were changed.")                                \
    COLUMN(REVALIDATOR_COST_DUPLICATE, "duplicate", "flows", 0,               \
           "The flow was just added, or was already dumped in this round.")   \
    COLUMN(REVALIDATOR_COST_SKIPPED, "skipped", "flows", 0,                   \
           "Another thread uses the flow, it is gone, or the ukey's state "   \
           "does not fit.")                                                   \
    COLUMN(REVALIDATOR_COST_DELETED, "unknown", "deleted", 0,                 \
           "No ukey can be made for the flow, or its statistics can't be "    \
           "attributed.")                                                     \
    COLUMN(REVALIDATOR_COST_DEL_AVOID_CACHING, "avoid-caching", "deleted", 0, \
           "The flow's actions depend on more than the packet.")              \
    COLUMN(REVALIDATOR_COST_DEL_BAD_ODP_FIT, "bad-odp-fit", "deleted", 0,     \
           "The flow's key can't be parsed.")                                 \
    COLUMN(REVALIDATOR_COST_DEL_IDLE, "idle", "deleted", 0,                   \
           "The flow was unused for max-idle or, above the limit, 100 ms.")   \
    COLUMN(REVALIDATOR_COST_DEL_FLOW_LIMIT, "flow-limit", "deleted", 0,       \
           "There are more than twice as many flows as the flow limit.")      \
    COLUMN(REVALIDATOR_COST_DEL_WILDCARDED, "wildcarded", "deleted", 0,       \
           "The flow matches more packets than it may.")                      \
    COLUMN(REVALIDATOR_COST_DEL_NO_OFPROTO, "no-ofproto", "deleted", 0,       \
           "The flow's bridge is gone.")                                      \
    COLUMN(REVALIDATOR_COST_DEL_PURGE, "purge", "deleted", 0,                 \
           "All flows were purged: by a command, with a bridge or a PMD "     \
           "thread, or because the number of threads changes.")               \
    COLUMN(REVALIDATOR_COST_DEL_TOO_EXPENSIVE, "too-expensive", "deleted", 0, \
           "A round takes too long for a flow with so few packets.")          \
    COLUMN(REVALIDATOR_COST_DEL_UPDATE_FAIL, "update-fail", "deleted", 0,     \
           "The datapath failed to change the flow.")                         \
    COLUMN(REVALIDATOR_COST_DEL_TRANSLATION, "translation", "deleted", 0,     \
           "The flow can't be translated.")                                   \
    COLUMN(REVALIDATOR_COST_DEL_MISSING, "missing", "deleted", 0,             \
           "The flow was not dumped in four rounds.")
enum revalidator_cost_counter {
    REVALIDATOR_COST_COUNTERS(COST_ENUM) REVALIDATOR_COST_N_COUNTERS
};

/* Reasons for a change of the flow limit. */
enum revalidator_cost_limit {
    REVALIDATOR_COST_LIMIT_KEPT,
    REVALIDATOR_COST_LIMIT_SCALED,  /* The round took more than 2 s. */
    REVALIDATOR_COST_LIMIT_REDUCED, /* It took more than 1.3 s. */
    REVALIDATOR_COST_LIMIT_GREW,    /* It took less than 1 s. */
    REVALIDATOR_COST_LIMIT_SET,     /* The configuration, or a command. */
    REVALIDATOR_COST_N_LIMITS
};

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
void revalidator_cost_dump_begin(struct revalidator_cost *);
void revalidator_cost_batch(size_t n_flows);
void revalidator_cost_mark(enum revalidator_cost_stage);
void revalidator_cost_count(enum revalidator_cost_counter);
void revalidator_cost_dump_end(void);
void revalidator_cost_sweep_end(struct revalidator_cost *);
void revalidator_cost_share_end(void);
void revalidator_cost_round_end(struct revalidator_cost *, size_t n_threads,
                                long long int duration_ms,
                                enum revalidator_cost_limit,
                                unsigned int flow_limit);

/* Any time, and outside of rounds.  'reason' is an enum revalidate_reason. */
void revalidator_cost_changed(struct revalidator_cost *, unsigned int reason);
void revalidator_cost_purged(struct revalidator_cost *);
/* A command passes -1 for 'duration_ms': not part of a round's class, but of
 * "revalidator/cost-limit", which has the latest 16 moves. */
enum revalidator_cost_limit revalidator_cost_limit_set(
    struct revalidator_cost *, enum revalidator_cost_limit why,
    unsigned int limit, long long int duration_ms);

/* Commands. */
void revalidator_cost_init(void);

#endif /* revalidator-cost.h */
