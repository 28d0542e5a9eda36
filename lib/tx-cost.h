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
#include "ovs-thread.h"

/* Cost of sending packets.
 * ========================
 *
 * The userspace datapath puts the packets for a port into an output queue, one
 * for each port and PMD thread, and sends all of them at a time.  What is
 * accounted for here is such a burst: how many packets it has and why it is
 * sent, for every burst, and for one in 'split_interval' of them how long they
 * have waited and how long sending takes.  Each port has an account, in which
 * each tx queue is a class.
 *
 * A burst that is sent while another event is measured, such as an upcall
 * whose packet fills an output queue, is an event within it, whose time is not
 * the upcall's.
 *
 * "ovs-appctl tx/cost-show" shows it.
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h: a tx port of a thread owns the recorder.  What a netdev drops
 * while a thread sends a burst is counted for the burst, without the netdev
 * knowing about it. */

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
    TX_COST_N_REASONS,

    TX_COST_DROP_DOWN = TX_COST_N_REASONS,          /* The device is down. */
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

/* Packets in a burst that are counted one by one. */
#define TX_COST_MAX_PACKETS 32

extern const struct cost_kind tx_cost_kind;
extern struct cost_config tx_cost_config;

/* A tx port of a thread. */
struct tx_cost {
    struct cost_recorder *recorder;
    const uint64_t *tsc;        /* Where the thread keeps the CPU's time stamp
                                 * counter when it has just read it, or NULL if
                                 * it does not. */
    uint64_t queued;            /* If TX_COST_TIMED, ticks when the oldest
                                 * packet was queued. */
    int qid;                    /* Tx queue that it is sending on. */
    uint32_t special;           /* TX_COST_* flags: what is to be done for its
                                 * burst, apart from counting it. */
    uint32_t dropped;           /* Packets of its burst, so far. */
};

/* Values for tx_cost's 'special'. */
#define TX_COST_TIMED   (1u << 0)   /* The output queue's bursts are timed. */
#define TX_COST_NESTED  (1u << 1)   /* This one is within another event. */
#define TX_COST_COUNTED (1u << 2)   /* The netdev has counted something. */

/* The tx port that the calling thread sends a burst to, or NULL. */
DECLARE_EXTERN_PER_THREAD_DATA(struct tx_cost *, tx_cost_current);

void tx_cost_init(struct tx_cost *, struct cost_account *, const char *thread,
                  const uint64_t *tsc);
static inline void tx_cost_queue(struct tx_cost *);
static inline void tx_cost_begin(struct tx_cost *, int qid, bool fresh);
static inline void tx_cost_end(struct tx_cost *, enum tx_cost_counter reason,
                               size_t n_packets, bool has_oldest, int error,
                               bool fresh);
static inline void tx_cost_set_queue(int qid);
void tx_cost_count(enum tx_cost_counter, size_t n);

void tx_cost_queue__(struct tx_cost *);
void tx_cost_begin__(struct tx_cost *, bool fresh);
void tx_cost_end__(struct tx_cost *, enum tx_cost_counter reason,
                   size_t n_packets, bool has_oldest, int error, bool fresh);

/* Commands. */
void tx_cost_register(void);

/* A packet has been put into the output queue of 'tx', which was empty. */
static inline void
tx_cost_queue(struct tx_cost *tx)
{
    tx->special = 0;
    if (OVS_UNLIKELY(cost_recorder_split(
                         tx->recorder,
                         cost_split_interval(&tx_cost_config)))) {
        tx_cost_queue__(tx);
    }
}

/* The calling thread is going to send a burst on tx queue 'qid' of 'tx'.
 * 'fresh' says whether the thread has just read the time stamp counter into
 * tx->tsc, if that is not NULL. */
static inline void
tx_cost_begin(struct tx_cost *tx, int qid, bool fresh)
{
    tx->qid = qid;
    *tx_cost_current_get() = tx;
    if (OVS_UNLIKELY(tx->special | (uintptr_t) cost_thread_get()->timer)) {
        tx_cost_begin__(tx, fresh);
    }
}

/* Records the burst of 'n_packets' packets that began last, and was sent for
 * 'reason'.  It has the oldest packet of the output queue if 'has_oldest': of
 * any other, it is not known how long it has waited.  'error' is what
 * netdev_send() returned.
 *
 * A burst that has nothing special takes some 30 instructions, including
 * tx_cost_queue() and tx_cost_begin(). */
static inline void
tx_cost_end(struct tx_cost *tx, enum tx_cost_counter reason, size_t n_packets,
            bool has_oldest, int error, bool fresh)
{
    *tx_cost_current_get() = NULL;
    if (OVS_UNLIKELY(tx->special | (uint32_t) error)) {
        tx_cost_end__(tx, reason, n_packets, has_oldest, error, fresh);
    } else {
        cost_recorder_tally(tx->recorder, tx->qid, reason, n_packets,
                            TX_COST_MAX_PACKETS);
    }
}

/* The netdev sends the calling thread's burst, if it is sending one, on tx
 * queue 'qid', whatever it was told. */
static inline void
tx_cost_set_queue(int qid)
{
    struct tx_cost *tx = *tx_cost_current_get();

    if (tx) {
        tx->qid = qid;
    }
}

#endif /* tx-cost.h */
