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

#ifndef TX_COST_H
#define TX_COST_H 1

#include <stddef.h>
#include <stdint.h>
#include "cost.h"
#include "cost-pmu.h"

/* Cost of sending packets.
 * ========================
 *
 * The userspace datapath puts the packets for a port into an output queue, one
 * for each port and PMD thread, and sends all of them at a time.  What is
 * accounted for here is such a burst: how many packets it has, how long they
 * have waited, how long sending took, and why they were sent then.  Each port
 * has an account, in which each tx queue is a class.
 *
 * "ovs-appctl tx/cost-show" shows it.
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h.  What a netdev drops while a thread sends a burst is counted
 * for the burst, without the netdev knowing about it. */

/* Stages of a burst. */
enum tx_cost_stage {
    TX_COST_WAIT,               /* From the latest reading of the clock before
                                 * the oldest packet was queued until sending
                                 * begins. */
    TX_COST_SEND,               /* In netdev_send(). */
    TX_COST_PACKETS,            /* Number of packets. */
    TX_COST_CYCLES,             /* Of the CPU, in netdev_send(), counted by
                                 * hardware, and instructions. */
    TX_COST_INSTRUCTIONS,
    TX_COST_TOTAL,
    TX_COST_N_STAGES
};

/* Why a burst is sent, and what becomes of packets that are not. */
enum tx_cost_counter {
    TX_COST_FULL,               /* NETDEV_MAX_BURST packets were there. */
    TX_COST_INTERVAL,           /* tx-flush-interval was over. */
    TX_COST_ITERATION,          /* All rx queues have been polled. */
    TX_COST_FORCED,             /* Nothing may stay behind. */

    TX_COST_DROP_DOWN,          /* The device is down. */
    TX_COST_DROP_MTU,           /* Longer than the device's MTU. */
    TX_COST_DROP_QOS,           /* Exceed the policy. */
    TX_COST_DROP_HWOL,          /* The device lacks an offload. */
    TX_COST_DROP_FULL,          /* The device or peer has no room. */

    TX_COST_RETRIES,            /* Of what a vhost peer had no room for. */
    TX_COST_ERRORS,             /* netdev_send() failed. */
    TX_COST_UNCOUNTED,          /* Hardware has not counted all of it. */
    TX_COST_COUNTED_PACKETS,    /* Of bursts with cycles and instructions. */
    TX_COST_N_COUNTERS
};

/* Tx queues with a class of their own.  The last one stands for all others. */
#define TX_COST_N_QUEUES 64

extern const struct cost_kind tx_cost_kind;

/* A burst that is being sent by a thread. */
struct tx_cost_burst {
    struct cost_account *account;
    struct cost_recorder **recorder;  /* For cost_record(). */
    size_t class;
    uint64_t begin;             /* Ticks. */
    uint64_t send;              /* Ticks, later if counting had to begin. */
    size_t dropped;             /* Packets, so far. */
    bool counting;              /* Does hardware count it? */
    struct cost_pmu_counts counts;
};

static inline uint64_t tx_cost_now(uint64_t tsc);
void tx_cost_begin(struct tx_cost_burst *, struct cost_account *,
                   struct cost_recorder **, int qid, uint64_t begin);
void tx_cost_end(struct tx_cost_burst *, enum tx_cost_counter reason,
                 size_t n_packets, uint64_t queued, uint64_t end, int error);
void tx_cost_count(enum tx_cost_counter, size_t n);

/* Commands. */
void tx_cost_init(void);

/* Returns the time, in ticks, for the functions above, or 0 if accounting is
 * off.  'tsc' is 0, or what the caller has just read from the CPU's time stamp
 * counter.  A burst any time of which is 0 is not recorded. */
static inline uint64_t
tx_cost_now(uint64_t tsc)
{
    return (OVS_UNLIKELY(!cost_enabled()) ? 0
            : tsc ? cost_clock_now_tsc(tx_cost_kind.name, tsc)
            : cost_clock_now(tx_cost_kind.name));
}

#endif /* tx-cost.h */
