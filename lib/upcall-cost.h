/* SPDX-License-Identifier: Apache-2.0 */

#ifndef UPCALL_COST_H
#define UPCALL_COST_H 1

#include <errno.h>
#include "cost-span.h"
#include "cost.h"
#include "dp-packet.h"
#include "dpif.h"
#include "flow.h"

struct smap;

/* What upcalls cost.
 * ==================
 *
 * The hooks that the userspace datapath, ofproto-dpif-upcall and
 * ofproto-dpif-xlate call, on top of lib/cost-span.h.  Those for the kernel
 * datapath alone are in lib/upcall-cost-kernel.h; both are in one report.
 * Each class is defined in Documentation/topics/upcall-cost.rst.
 *
 * A lost upcall is not an event: it has no time.  It increments a counter and,
 * if its port is known, the losses of the port.
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h.  The thread that has the packet calls all hooks: a PMD thread
 * or, for the recorder "main", any other thread, with the datapath's mutex for
 * these; or a handler of the kernel datapath. */

/* Stages of an upcall in the userspace datapath. */
#define UPCALL_COST_STAGES(COLUMN)                                          \
    COLUMN(UPCALL_COST_PARSE, "parse", NULL, 0,                             \
           "From when no flow was found for the packet, or an action asked " \
           "for the upcall, until its type, bridge and port are known.")    \
    COLUMN(UPCALL_COST_TRANSLATE, "translate", NULL, 0,                     \
           "The OpenFlow lookup, which makes datapath actions, or sends "   \
           "the sample or packet-in.")                                      \
    COLUMN(UPCALL_COST_INSTALL, "install", NULL, 0,                         \
           "Adding the ukey, and, after 'execute', the datapath flow.")     \
    COLUMN(UPCALL_COST_EXECUTE, "execute", NULL, 0,                         \
           "Executing the actions on the packet.")                          \
    COLUMN(UPCALL_COST_TOTAL, "total", NULL, 0,                             \
           "The whole upcall, without upcalls and bursts within it.")

enum upcall_cost_stage { UPCALL_COST_STAGES(COST_ENUM) };

/* Stages of an upcall from the kernel datapath. */
#define UPCALL_COST_K_STAGES(COLUMN)                                        \
    COLUMN(UPCALL_COST_K_PARSE, "parse", NULL, 0,                           \
           "From when the upcall was received until its type, bridge and "  \
           "port are known.")                                               \
    COLUMN(UPCALL_COST_K_TRANSLATE, "translate", NULL, 0,                   \
           "The OpenFlow lookup, which makes datapath actions.")            \
    COLUMN(UPCALL_COST_K_WAIT, "wait", NULL, 0,                             \
           "Until the other upcalls of the batch have been received and "   \
           "translated.")                                                   \
    COLUMN(UPCALL_COST_K_INSTALL, "install", NULL, 0,                       \
           "Adding the batch's ukeys and preparing its operations.")        \
    COLUMN(UPCALL_COST_K_OPERATE, "operate", NULL, 0,                       \
           "Until the kernel, and tc, have done the batch's operations.")   \
    COLUMN(UPCALL_COST_K_BATCH, "batch", "upcalls", COST_ALWAYS,            \
           "Upcalls completed together; each batch counts once.")           \
    COLUMN(UPCALL_COST_K_QUEUE, "queue", NULL, COST_OPTIONAL,               \
           "In the queue of the handler's socket; only if "                 \
           "cost-kernel-queue is true.")                                    \
    COLUMN(UPCALL_COST_K_OVERHEAD, "overhead", NULL,                        \
           COST_OPTIONAL | COST_APART, "'queue' and 'operate' together.")   \
    COLUMN(UPCALL_COST_K_TOTAL, "total", NULL, 0,                           \
           "The whole upcall, from when it was sent if that is known.")

enum upcall_cost_kernel_stage { UPCALL_COST_K_STAGES(COST_ENUM) };

#define UPCALL_COST_COUNTERS(COLUMN)                                        \
    COLUMN(UPCALL_COST_INSTALLED, "installed", "flows", 0,                  \
           "A datapath flow was added.")                                    \
    COLUMN(UPCALL_COST_FLOW_LIMIT, "flow-limit", "flows", 0,                \
           "No flow was added: there are as many as there may be.")         \
    COLUMN(UPCALL_COST_NO_RECIRC, "no-recirc-context", "flows", 0,          \
           "No flow was added: the state of the packet's recirculation ID " \
           "is being freed.")                                               \
    COLUMN(UPCALL_COST_DUPLICATE, "duplicate", "flows", 0,                  \
           "No flow was added: another upcall has added it, or a "          \
           "revalidator is changing it.")                                   \
    COLUMN(UPCALL_COST_REFUSED, "refused", "flows", 0,                      \
           "The kernel did not add the flow.")                              \
    COLUMN(UPCALL_COST_LOST_LOCK, "lock", "lost", 0,                        \
           "Upcalls were disabled for a reconfiguration of ofproto.")       \
    COLUMN(UPCALL_COST_LOST_BRIDGE, "no-bridge", "lost", 0,                 \
           "No bridge has the port or tunnel, or the bridge is gone.")      \
    COLUMN(UPCALL_COST_LOST_ERROR, "error", "lost", 0,                      \
           "The upcall failed for another reason.")                         \
    COLUMN(UPCALL_COST_LOST_OVERRUN, "overrun", "lost", 0,                  \
           "The buffer of the handler's socket was full.")

/* Those of the kernel datapath alone. */
#define UPCALL_COST_K_COUNTERS(COLUMN)                                      \
    COLUMN(UPCALL_COST_K_UNKNOWN, "unknown", "queue", 0,                    \
           "The time of an upcall in the watched queue is not known.")      \
    COLUMN(UPCALL_COST_K_ORPHAN, "orphan", "queue", 0,                      \
           "The watched queue has a record of an upcall that was lost.")

enum upcall_cost_counter {
    UPCALL_COST_COUNTERS(COST_ENUM)
    UPCALL_COST_K_COUNTERS(COST_ENUM)
};

/* Why the datapath asks: the classes of upcalls. */
enum upcall_cost_type {
    UPCALL_COST_MISS,
    UPCALL_COST_SLOW_PATH,
    UPCALL_COST_CONTROLLER,
    UPCALL_COST_SFLOW,
    UPCALL_COST_IPFIX,
    UPCALL_COST_SAMPLE,
    UPCALL_COST_BAD,            /* Datapath's request makes no sense. */
    UPCALL_COST_UNKNOWN,        /* Lost before anybody looked at it; has the
                                 * counters of the queue, too. */
    UPCALL_COST_N_TYPES
};

/* Features of an upcall, known only if it is split into stages. */
enum upcall_cost_feature {
    UPCALL_COST_CT = 1 << 0,
    UPCALL_COST_NAT = 1 << 1,
    UPCALL_COST_RECIRC = 1 << 2,
    UPCALL_COST_TUNNEL = 1 << 3,
    UPCALL_COST_N_FEATURES = 4
};

/* Who upcalls are for.  The port is that which the packet came from; the rule
 * is the one that was found last; the last list has types with features. */
enum {
    UPCALL_COST_PORT,
    UPCALL_COST_RULE,
    UPCALL_COST_FEATURES,
    UPCALL_COST_N_LISTS
};

extern struct cost_config upcall_cost_config;
extern atomic_bool upcall_cost_packets; /* other_config:cost-packets. */
/* Events of either are events of both to cost_lap(), cost_outcome() and
 * cost_span_current(). */
extern const struct cost_kind upcall_cost_netdev_kind;
extern const struct cost_kind upcall_cost_kernel_kind;

/* So many bytes of the packet are kept of each of the slowest upcalls, if
 * other_config:cost-packets is true. */
#define UPCALL_COST_PACKET_MAX 128

/* An upcall. */
struct upcall_cost {
    struct cost_span span;
    const struct miniflow *miniflow;    /* For details, or NULL, ... */
    const struct flow *flow;            /* ...and then this is not. */
    bool left;                          /* It ends when the next miss begins,
                                         * a packet no longer needs one, or the
                                         * batch of packets ends. */
    uint32_t packet_len;
    uint32_t n_kept;                    /* Bytes in 'packet'. */
    uint8_t packet[UPCALL_COST_PACKET_MAX];  /* How it begins, before actions
                                              * are executed. */

    /* From the kernel. */
    uint64_t waited_ns;                 /* Before it was received, or 0 if that
                                         * is not known. */
    const struct dpif_op *put;          /* That installs the flow, or NULL. */
};

/* Hooks for the userspace datapath. */
void upcall_cost_action_begin(struct upcall_cost *, struct cost_recorder *,
                              const struct dp_packet *);
void upcall_cost_action_stop(struct upcall_cost *,
                             const struct nlattr *userdata,
                             const struct flow *,
                             const struct ofpbuf *actions, int error);
void upcall_cost_end(struct upcall_cost *, uint64_t now);
void upcall_cost_fail(struct cost_span *, enum upcall_cost_type, int error);
void upcall_cost_keep_packet(struct upcall_cost *, const struct dp_packet *);
void upcall_cost_lost_lock(struct cost_recorder *, enum dpif_upcall_type,
                           const struct nlattr *userdata, size_t n);

/* Who an upcall is for. */
uint64_t upcall_cost_port_id(const char *name, const char *bridge);
void upcall_cost_set_rule(struct cost_span *, const char *bridge,
                          uint8_t table, uint64_t cookie);
void upcall_cost_set_features(struct cost_span *, enum upcall_cost_type,
                              const struct flow *,
                              const struct ofpbuf *actions);

/* Makes the port 'name' of 'bridge', with 'id' from upcall_cost_port_id(),
 * that of the upcall of 'span', sampled or not.  This is called when a miss
 * has been translated, and for other types before. */
static inline void
upcall_cost_set_port(struct cost_span *span, uint64_t id, const char *name,
                     const char *bridge)
{
    struct cost_who *who = &span->who[UPCALL_COST_PORT];

    who->id = id;
    who->name = name;
    who->group = bridge;
}

/* Makes the rule with 'cookie' in 'table' of 'bridge' that of the calling
 * thread's upcall, if that is split into stages.  This is called once, when
 * the upcall has been translated or, for a packet-in, before that is sent. */
static inline void
upcall_cost_rule(const char *bridge, uint8_t table, uint64_t cookie)
{
    struct cost_span *span = cost_span_current(&upcall_cost_netdev_kind);

    if (span && OVS_UNLIKELY(span->sampled)) {
        upcall_cost_set_rule(span, bridge, table, cookie);
    }
}

/* Makes 'packet' that of 'upcall'. */
static inline void
upcall_cost_set_packet(struct upcall_cost *upcall,
                       const struct dp_packet *packet)
{
    bool keep;

    upcall->packet_len = dp_packet_size(packet);
    upcall->n_kept = 0;
    atomic_read_relaxed(&upcall_cost_packets, &keep);
    if (OVS_UNLIKELY(keep)) {
        upcall_cost_keep_packet(upcall, packet);
    }
}

/* Makes 'upcall' ready for the misses of a packet batch, one by one. */
static inline void
upcall_cost_init_upcalls(struct upcall_cost *upcall)
{
    upcall->left = false;
}

/* Ends the miss that 'upcall' has left open, if any: none follows at once. */
static inline void
upcall_cost_end_upcalls(struct upcall_cost *upcall)
{
    if (upcall->left) {
        upcall_cost_end(upcall, cost_span_now(&upcall->span));
    }
}

/* Begins a flow miss of 'recorder' for 'packet', which ends the one before it.
 * 'tsc' is 0, or what the caller has just read from the CPU's time stamp
 * counter, which may save reading the clock. */
static inline void
upcall_cost_begin(struct upcall_cost *upcall,
                  struct cost_recorder *recorder,
                  const struct dp_packet *packet, uint64_t tsc)
{
    uint32_t interval = cost_sample_interval(&upcall_cost_config);

    if (OVS_LIKELY(interval | upcall->left)) {
        uint64_t now = cost_clock_now(upcall_cost_netdev_kind.event, tsc);

        if (upcall->left) {
            upcall_cost_end(upcall, now);
        }
        if (OVS_LIKELY(interval)) {
            cost_span_begin__(&upcall->span, recorder,
                              cost_sample(recorder, interval), now);
            upcall_cost_set_packet(upcall, packet);
            return;
        }
    }
    upcall->span.recorder = NULL;
    upcall->span.sampled = false;
}

/* Ends 'stage' of 'upcall', which has begun, if it is sampled. */
static inline void
upcall_cost_lap(struct upcall_cost *upcall, size_t stage)
{
    if (OVS_UNLIKELY(upcall->span.sampled)) {
        cost_span_lap(&upcall->span, stage, cost_span_now(&upcall->span));
    }
}

/* Makes 'upcall', which has begun, increment 'counter' when it ends. */
static inline void
upcall_cost_outcome(struct upcall_cost *upcall,
                    enum upcall_cost_counter counter)
{
    upcall->span.entry.counter = counter;
}

/* The flow miss of 'upcall', for a packet of 'flow', of which 'miniflow' is a
 * copy that stays valid until the next upcall begins, has led to 'actions',
 * which have been executed, and its flow has been added.  The time since the
 * latest lap belongs to installing the flow, until upcall_cost_begin() or
 * upcall_cost_end_upcalls() ends it.  'error' is what the upcall callback
 * returned: 0, ENOSPC if no flow is to be installed, or another value if the
 * upcall failed. */
static inline void
upcall_cost_miss_stop(struct upcall_cost *upcall,
                      const struct flow *flow, const struct miniflow *miniflow,
                      const struct ofpbuf *actions, int error)
{
    struct cost_span *span = &upcall->span;

    if (!span->recorder) {
        return;
    } else if (OVS_LIKELY(!error || error == ENOSPC)) {
        upcall->miniflow = miniflow;
        upcall->left = true;
        if (OVS_UNLIKELY(span->sampled)) {
            upcall_cost_set_features(span, UPCALL_COST_MISS, flow, actions);
        }
    } else {
        upcall_cost_fail(span, UPCALL_COST_MISS, error);
    }
}

void upcall_cost_count_lost(const struct cost_span *, enum upcall_cost_type,
                            int error);
enum upcall_cost_type upcall_cost_type(enum dpif_upcall_type,
                                       const struct nlattr *userdata);

/* Commands and settings. */
void upcall_cost_init(void);
void upcall_cost_apply(const struct smap *other_config);

#endif /* upcall-cost.h */
