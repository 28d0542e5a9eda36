/* SPDX-License-Identifier: Apache-2.0 */

#ifndef UPCALL_COST_KERNEL_H
#define UPCALL_COST_KERNEL_H 1

#include "ovs-atomic.h"
#include "upcall-cost.h"

struct upcall_cost_queue;
struct upcall_cost_socket;

/* What upcalls from the kernel datapath cost.
 * ===========================================
 *
 * A handler thread reads a batch of upcalls, one by one, and translates each
 * of them at once; then it installs the flows and executes the actions of all
 * of them together.  So upcalls of a batch overlap, and each has a span of its
 * own:
 *
 *     struct upcall_cost_batch batch;
 *
 *     upcall_cost_batch_start(&batch, recorder);
 *     for each upcall:
 *         upcall_cost_socket_received(...);
 *         upcall_cost_received();
 *         ...parse...
 *         cost_lap(&upcall_cost_kernel_kind, UPCALL_COST_K_PARSE);
 *         ...translate...
 *         upcall_cost_translated(...);
 *     upcall_cost_batch_complete();
 *     for each upcall that was translated without an error:
 *         ...install...
 *         upcall_cost_installed(...);
 *     upcall_cost_operating();
 *     ...operate...
 *     upcall_cost_operated();
 *     upcall_cost_batch_stop();
 *
 * If an upcall can't be parsed, the caller uses upcall_cost_failed() instead
 * of cost_lap() and upcall_cost_translated().  An upcall that is translated
 * with the error EAGAIN is complete, and recorded at once; with any other
 * error, it is counted as lost at once.  upcall_cost_operated() records all
 * others; upcall_cost_batch_stop() only makes the thread forget the batch.
 *
 * The hooks apply to the batch that the calling thread has started.  While
 * there is none, or accounting is off, they do nothing, except that those for
 * sockets still follow a watched queue.  They read the clock when an upcall
 * has been received and when the batch is done, and in between only if the
 * upcall, or one of the batch, is sampled or watched, or is complete early.
 *
 * lib/dpif-netlink.c calls the functions for sockets.  For each socket, the
 * kernel counts the upcalls that it drops because the socket's buffer is full.
 * Whoever reads, copies or clears accounts, or switches them on or off, adds
 * new ones, with refresh() of the settings, and so does whoever destroys the
 * account or closes the socket.  They go to a recorder named "sockets", which
 * belongs to the account of the socket's 'dpif'.
 *
 * An observer may know when an upcall was put into the queue.
 *
 *
 * Thread-safety
 * =============
 *
 * Any thread may create and destroy accounts and sockets, but not while
 * another uses them.  A mutex lets one thread at a time write "sockets".
 * Several threads may receive from a socket that is shared. */

#define UPCALL_COST_MAX_BATCH 64

/* On the stack of the code that starts and stops it. */
struct upcall_cost_batch {
    struct cost_recorder *recorder;     /* NULL if there is none, or accounting
                                         * was off when the batch started. */
    uint32_t interval;                  /* One in so many is sampled. */
    bool sampled;                       /* Is one of these? */
    size_t n;                           /* Upcalls that wait for the batch; the
                                         * one being received is upcalls[n]. */
    size_t n_installed;
    struct upcall_cost upcalls[UPCALL_COST_MAX_BATCH];
};

/* Hooks for ofproto-dpif-upcall.  Other datapaths than the kernel's have no
 * account, and their handlers no recorder.  A handler that exits destroys its
 * recorder. */
struct cost_account *upcall_cost_kernel_create(const struct dpif *);
void upcall_cost_kernel_destroy(struct cost_account *);
void upcall_cost_batch_start(struct upcall_cost_batch *,
                             struct cost_recorder *);
void upcall_cost_batch_stop(void);
void upcall_cost_received(void);
void upcall_cost_failed(const struct dpif_upcall *, int error);
void upcall_cost_translated(const struct dpif_upcall *, const struct flow *,
                            const struct ofpbuf *actions, int error);
void upcall_cost_batch_complete(void);
void upcall_cost_installed(const struct dpif_op *put);
void upcall_cost_operating(void);
void upcall_cost_operated(void);

/* Hooks for dpif-netlink. */
struct upcall_cost_socket *upcall_cost_socket_create(const struct dpif *,
                                                     int fd, bool shared);
void upcall_cost_socket_destroy(struct upcall_cost_socket *);
void upcall_cost_socket_received(struct upcall_cost_socket *,
                                 const struct ofpbuf *);
void upcall_cost_socket_overrun(struct upcall_cost_socket *);
void upcall_cost_socket_empty(struct upcall_cost_socket *);

/* Follows messages in the queues of sockets, in the threads that receive
 * them: see lib/upcall-cost-queue.h.  A queue is NULL if it is not watched. */
struct upcall_cost_observer {
    /* The socket 'fd', from which nobody but the caller receives, is empty.
     * '*seq' is for the observer, 0 at first.  Returns the queue from now
     * on. */
    struct upcall_cost_queue *(*update)(struct upcall_cost_queue *, int fd,
                                        unsigned int *seq);
    void (*stop)(struct upcall_cost_queue *);

    /* Returns when 'msg' was put into the queue, in ns of CLOCK_MONOTONIC, or
     * 0 if that is not known. */
    uint64_t (*received)(struct upcall_cost_queue *, const void *msg,
                         size_t len);
    void (*overrun)(struct upcall_cost_queue *);
    /* Nothing is left.  Returns the orphans found since the last call. */
    size_t (*empty)(struct upcall_cost_queue *);
};

extern atomic_count upcall_cost_n_shared;   /* Sockets that are 'shared'. */

/* Or NULL.  Constant once there is a socket. */
extern const struct upcall_cost_observer *upcall_cost_observer;

#endif /* upcall-cost-kernel.h */
