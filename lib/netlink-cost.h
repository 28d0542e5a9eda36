/* SPDX-License-Identifier: Apache-2.0 */

#ifndef NETLINK_COST_H
#define NETLINK_COST_H 1

#include <stdint.h>
#include "cost-span.h"

struct json;
struct ofpbuf;

/* What Netlink calls cost.
 * ========================
 *
 * Each event is a call on a Netlink socket: a batch of requests and their
 * replies, a dump's request, one buffer full of a dump's replies, or one
 * notification.  Each family of messages, such as "link" or "ovs_flow", has an
 * account, which is created when it is first used, and each kind of call is a
 * class.  A batch belongs to the family of its first request.  Notifications
 * of generic Netlink, such as upcalls, are not accounted for.
 *
 * The time of a call is also part of the event around it, such as an upcall's
 * 'operate'.
 *
 *
 * Thread-safety
 * =============
 *
 * As lib/cost.h.  A thread creates a recorder for each family, under a lock,
 * at the first call, and destroys it when the thread exits.  In a program that
 * does not call nl_cost_init(), these functions do nothing, except for
 * nl_cost_define_family(), which may be called before. */

/* Stages of a call. */
#define NL_COST_STAGES(COLUMN)                                                \
    COLUMN(NL_COST_SEND, "send", NULL, 0,                                     \
           "sendmsg().  The kernel executes requests before it returns, but " \
           "of a dump it makes only the first message.")                      \
    COLUMN(NL_COST_RECEIVE, "receive", NULL, 0,                               \
           "recvmsg(), for a batch several times, and matching replies with " \
           "requests.  The kernel makes the other messages of a dump now.")   \
    COLUMN(NL_COST_REQUESTS, "requests", "requests", 0, "Requests sent.")     \
    COLUMN(NL_COST_BYTES, "bytes", "bytes", 0, "Bytes received.")             \
    COLUMN(NL_COST_TOTAL, "total", NULL, 0, "'send' and 'receive' together.")

enum nl_cost_stage { NL_COST_STAGES(COST_ENUM) };

/* Results of a call. */
#define NL_COST_COUNTERS(COLUMN)                                              \
    COLUMN(NL_COST_DONE, "done", "result", 0,                                 \
           "The call is complete, even if the kernel refused the request.")   \
    COLUMN(NL_COST_NOTHING, "nothing", "result", 0,                           \
           "There was nothing to be received.")                               \
    COLUMN(NL_COST_INTERRUPTED, "interrupted", "result", 0,                   \
           "The dumped objects have changed meanwhile, so that some may be "  \
           "missing.")                                                        \
    COLUMN(NL_COST_ERROR, "error", "result", 0, "The socket failed.")         \
    COLUMN(NL_COST_OVERRUN, "overrun", "lost", 0,                             \
           "The socket's buffer was full, and the kernel has dropped "        \
           "messages that did not fit.")

enum nl_cost_counter { NL_COST_COUNTERS(COST_ENUM) };

/* Kinds of calls. */
enum nl_cost_op {
    NL_COST_DUMP,
    NL_COST_TRANSACT,
    NL_COST_NOTIFY,             /* Receiving notifications. */
    NL_COST_N_OPS
};

/* A call in progress.  A notification's family is known when it is there. */
struct nl_cost {
    struct cost_span span;      /* No recorder if not accounted for. */
    enum nl_cost_op op;
    int protocol;
    uint16_t type;              /* nlmsg_type. */
    const struct ofpbuf *msg;   /* Or NULL. */
};

void nl_cost_start(struct nl_cost *, enum nl_cost_op, int protocol,
                   uint16_t type, const struct ofpbuf *request);
/* 'receive' ends with nl_cost_stop(). */
void nl_cost_sent(struct nl_cost *, size_t n_requests);
void nl_cost_received(struct nl_cost *, int error, const struct ofpbuf *);
void nl_cost_stop(struct nl_cost *, int error);

void nl_cost_define_family(uint16_t type, const char *name);

void nl_cost_init(void);

/* For tests. */
extern const struct cost_kind nl_cost_kind;
void nl_cost_put_details(const char *account, const uint64_t *words,
                         bool packet, struct json *);

#endif /* netlink-cost.h */
