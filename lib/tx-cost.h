/* SPDX-License-Identifier: Apache-2.0 */

#ifndef TX_COST_H
#define TX_COST_H 1

#include "cost-span.h"

/* Cost of sending packets.
 * ========================
 *
 * The userspace datapath puts the packets for a port into an output queue, one
 * for each port and PMD thread, and one for each port, "main", that all other
 * threads share under a mutex; it sends them together, as a burst.  Every
 * burst is counted, and one in 'sample_interval' is timed.  Each port has an
 * account in the report tx/cost-show, and each of its tx queues is a class;
 * the last class is for all higher queues.
 *
 * The time of a burst that is sent within the thread's innermost event (see
 * lib/cost-span.h), such as an upcall whose packet fills an output queue, is
 * subtracted from that event, except for 'wait'; this takes two readings of
 * the clock for each such burst, unless the thread has just made them.
 * Iterations of the main loop, commands, OpenFlow messages and shares of
 * revalidators are never innermost: they include it.
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h: a tx port of a thread owns the recorder, and shares it with
 * its copies in that thread.  A netdev counts the packets that it drops for
 * the burst that the calling thread is sending; tx_cost_end() records them
 * together with it. */

#define TX_COST_STAGES(COLUMN)                                              \
    COLUMN(TX_COST_WAIT, "wait", NULL, 0,                                   \
           "From the latest reading of the clock before the oldest packet " \
           "was queued until sending begins.")                              \
    COLUMN(TX_COST_SEND, "send", NULL, 0,                                   \
           "Until the netdev has taken the packets over or dropped them.")  \
    COLUMN(TX_COST_PACKETS, "packets", "packets", 0,                        \
           "Packets in the burst, before segmentation.")                    \
    COLUMN(TX_COST_TOTAL, "total", NULL, 0,                                 \
           "'wait' and 'send' together, where both are known.")

enum tx_cost_stage { TX_COST_STAGES(COST_ENUM) };

/* The reasons why a burst is sent are before TX_COST_DROP_DOWN, those of drops
 * before TX_COST_RETRIES. */
#define TX_COST_COUNTERS(COLUMN)                                            \
    COLUMN(TX_COST_FULL, "full", "sent when", 0,                            \
           "The output queue had NETDEV_MAX_BURST packets.")                \
    COLUMN(TX_COST_INTERVAL, "interval", "sent when", 0,                    \
           "The time of tx-flush-interval was over.")                       \
    COLUMN(TX_COST_ITERATION, "iteration", "sent when", 0,                  \
           "An rx queue's packets were processed; tx-flush-interval is 0.") \
    COLUMN(TX_COST_FORCED, "forced", "sent when", 0,                        \
           "Any other reason: no packet may stay behind.")                  \
    COLUMN(TX_COST_DROP_DOWN, "down", "packets dropped", 0,                 \
           "The device is down.")                                           \
    COLUMN(TX_COST_DROP_MTU, "mtu", "packets dropped", 0,                   \
           "The packet is longer than the MTU.")                            \
    COLUMN(TX_COST_DROP_QOS, "qos", "packets dropped", 0,                   \
           "The packet exceeds the QoS policy.")                            \
    COLUMN(TX_COST_DROP_HWOL, "offload", "packets dropped", 0,              \
           "The device lacks an offload that the packet needs.")            \
    COLUMN(TX_COST_DROP_FULL, "no-room", "packets dropped", 0,              \
           "The ring of the device or guest is full.")                      \
    COLUMN(TX_COST_RETRIES, "retries", "other", 0,                          \
           "Sending to a vhost port was tried again: its ring was full.")   \
    COLUMN(TX_COST_ERRORS, "errors", "other", 0,                            \
           "The netdev refused the burst.")                                 \
    COLUMN(TX_COST_SENT, "packets", "sent", 0,                              \
           "Packets in all bursts, before segmentation.")

enum tx_cost_counter {
    TX_COST_COUNTERS(COST_ENUM)
    TX_COST_N_REASONS = TX_COST_DROP_DOWN
};

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
    uint32_t special;           /* TX_COST_* flags of its burst, 0 if it is
                                 * only counted. */
    uint32_t dropped;           /* Packets of its burst, so far, for probes. */
};

/* Values for tx_cost's 'special'. */
#define TX_COST_TIMED   (1u << 0)   /* The output queue's bursts are timed. */
#define TX_COST_NESTED  (1u << 1)   /* It is within the innermost event. */
#define TX_COST_COUNTED (1u << 2)   /* The netdev has counted something. */

/* The tx port that the calling thread sends a burst to, or NULL. */
DECLARE_EXTERN_PER_THREAD_DATA(struct tx_cost *, tx_cost_current);

void tx_cost_init(struct tx_cost *, struct cost_account *, const char *thread,
                  const uint64_t *tsc);
void tx_cost_count(enum tx_cost_counter, size_t n);
void tx_cost_register(void);

void tx_cost_queue__(struct tx_cost *);
void tx_cost_begin__(struct tx_cost *, bool fresh);
void tx_cost_end__(struct tx_cost *, enum tx_cost_counter reason,
                   size_t n_packets, bool has_oldest, int error, bool fresh);

/* The first packet is put into the output queue of 'tx', which is empty. */
static inline void
tx_cost_queue(struct tx_cost *tx)
{
    tx->special = 0;
    if (OVS_UNLIKELY(cost_sample(tx->recorder,
                                 cost_sample_interval(&tx_cost_config)))) {
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
    if (OVS_UNLIKELY(tx->special || *cost_innermost_get())) {
        tx_cost_begin__(tx, fresh);
    }
}

/* Records the burst of 'n_packets' packets that began last, and was sent for
 * 'reason'.  'has_oldest' says whether it has the oldest packet of the output
 * queue: it is not known how long any other burst has waited.  'error' is what
 * netdev_send() returned.
 *
 * A burst with nothing special takes some 30 instructions, including
 * tx_cost_queue() and tx_cost_begin(). */
static inline void
tx_cost_end(struct tx_cost *tx, enum tx_cost_counter reason, size_t n_packets,
            bool has_oldest, int error, bool fresh)
{
    *tx_cost_current_get() = NULL;
    if (OVS_UNLIKELY(tx->special | (uint32_t) error)) {
        tx_cost_end__(tx, reason, n_packets, has_oldest, error, fresh);
    } else {
        cost_count_event(tx->recorder, tx->qid, reason, TX_COST_SENT,
                         n_packets);
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
