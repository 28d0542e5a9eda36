/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "upcall-cost-kernel.h"

#include <errno.h>
#ifdef __linux__
#include <linux/sock_diag.h>
#include <sys/socket.h>
#endif

#include "dp-packet.h"
#include "openvswitch/list.h"
#include "ovs-thread.h"
#include "util.h"

const struct upcall_cost_observer *upcall_cost_observer;

/* Protects what is known of all sockets.  Whoever holds it is the one who
 * records losses. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* A datapath that has an account. */
struct kernel {
    struct ovs_list list_node;          /* In 'kernels'. */
    const struct dpif *dpif;
    struct cost_account *account;
    struct cost_recorder *losses OVS_GUARDED_BY(mutex);
};
static struct ovs_list kernels OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&kernels);

/* A socket that receives upcalls. */
struct upcall_cost_socket {
    struct ovs_list list_node OVS_GUARDED_BY(mutex);  /* In 'sockets'. */
    const struct dpif *dpif;
    int fd;
    bool shared;                        /* Do several threads receive? */
    struct upcall_cost_queue *queue;    /* Of the observer, or NULL. */
    unsigned int queue_seq;             /* Of its configuration. */

    uint32_t n_dropped OVS_GUARDED_BY(mutex);  /* By the kernel, counted. */
};
static struct ovs_list sockets OVS_GUARDED_BY(mutex)
    = OVS_LIST_INITIALIZER(&sockets);

atomic_count upcall_cost_n_shared = ATOMIC_COUNT_INIT(0);

static void upcall_cost_kernel_refresh(void);

/* The batch that the calling thread is working on, or NULL. */
DEFINE_STATIC_PER_THREAD_DATA(struct upcall_cost_batch *, current, NULL);

/* Returns the calling thread's batch if there is anything to record. */
static struct upcall_cost_batch *
current_batch(void)
{
    struct upcall_cost_batch *batch = *current_get();

    return batch && batch->recorder ? batch : NULL;
}

/* Creates and returns an account for the upcalls from 'dpif', or NULL if that
 * is not a datapath in the kernel.  The caller must destroy it with
 * upcall_cost_kernel_destroy(). */
struct cost_account *
upcall_cost_kernel_create(const struct dpif *dpif)
{
    struct kernel *kernel;

    if (strcmp(dpif_type(dpif), "system")) {
        return NULL;
    }

    upcall_cost_config.refresh = upcall_cost_kernel_refresh;
    kernel = xmalloc(sizeof *kernel);
    kernel->dpif = dpif;
    kernel->account = cost_account_create(&upcall_cost_kernel_kind,
                                          dpif_name(dpif), NULL);
    ovs_mutex_lock(&mutex);
    kernel->losses = cost_recorder_create(kernel->account, "sockets");
    ovs_list_push_back(&kernels, &kernel->list_node);
    ovs_mutex_unlock(&mutex);
    return kernel->account;
}

/* Destroys 'account', which may be NULL. */
void
upcall_cost_kernel_destroy(struct cost_account *account)
{
    struct kernel *kernel;

    upcall_cost_kernel_refresh();
    ovs_mutex_lock(&mutex);
    LIST_FOR_EACH_SAFE (kernel, list_node, &kernels) {
        if (kernel->account == account) {
            ovs_list_remove(&kernel->list_node);
            free(kernel);
        }
    }
    ovs_mutex_unlock(&mutex);
    cost_account_destroy(account);
}

static uint64_t
upcall_now(void)
{
    return cost_clock_now(upcall_cost_kernel_kind.event, 0);
}

/* Starts 'batch', for upcalls that the calling thread is going to receive,
 * with its 'recorder', which may be NULL.  The batch must be stopped with
 * upcall_cost_batch_stop(). */
void
upcall_cost_batch_start(struct upcall_cost_batch *batch,
                        struct cost_recorder *recorder)
{
    batch->interval = cost_sample_interval(&upcall_cost_config);
    batch->recorder = batch->interval ? recorder : NULL;
    batch->sampled = false;
    batch->n = 0;
    batch->upcalls[0].waited_ns = 0;
    *current_get() = batch;
}

/* Stops the calling thread's batch. */
void
upcall_cost_batch_stop(void)
{
    *current_get() = NULL;
    *cost_innermost_get() = NULL;
}

/* Ends 'stage' of all upcalls of 'batch' now. */
static void
batch_lap(struct upcall_cost_batch *batch, enum upcall_cost_kernel_stage stage)
{
    uint64_t now = OVS_UNLIKELY(batch->sampled) ? upcall_now() : 0;

    for (size_t i = 0; batch->sampled && i < batch->n; i++) {
        if (batch->upcalls[i].span.sampled) {
            cost_span_lap(&batch->upcalls[i].span, stage, now);
        }
    }
}

/* An upcall has been received. */
void
upcall_cost_received(void)
{
    struct upcall_cost_batch *batch = current_batch();

    if (batch) {
        struct cost_span *span = &batch->upcalls[batch->n].span;

        cost_span_open(span, batch->recorder,
                       cost_sample(batch->recorder, batch->interval),
                       upcall_now());
        *cost_innermost_get() = span;
    }
}

/* It could not be parsed, for the reason that is 'error', or translated. */
void
upcall_cost_failed(const struct dpif_upcall *dupcall, int error)
{
    struct upcall_cost_batch *batch = current_batch();

    if (batch) {
        *cost_innermost_get() = NULL;
        upcall_cost_count_lost(&batch->upcalls[batch->n].span,
                               upcall_cost_type(dupcall->type,
                                                dupcall->userdata), error);
    }
}

/* Records 'upcall', which ends 'now'.  It began when it was sent, if that is
 * known, or when it was received. */
static void
upcall_finish(struct upcall_cost *upcall, uint64_t now)
{
    if (upcall->waited_ns) {
        struct cost_span *span = &upcall->span;
        uint64_t operate_ns = COST_CLOCK_UNKNOWN;

        if (span->lapped & (1u << UPCALL_COST_K_OPERATE)) {
            operate_ns = cost_clock_ns(
                span->entry.stages[UPCALL_COST_K_OPERATE]);
        }
        cost_entry_add(&span->entry, UPCALL_COST_K_TOTAL, upcall->waited_ns);
        if (span->sampled) {
            cost_entry_add(&span->entry, UPCALL_COST_K_QUEUE,
                           upcall->waited_ns);
        }
        if (operate_ns != COST_CLOCK_UNKNOWN) {
            cost_entry_add(&span->entry, UPCALL_COST_K_OVERHEAD,
                           upcall->waited_ns + operate_ns);
        }
    }
    cost_span_finish(&upcall->span, now, upcall->span.entry.class, NULL);
}

/* It has been translated, from a packet of 'flow' to 'actions', with the
 * result 'error' (EAGAIN if that is all there is to do). */
void
upcall_cost_translated(const struct dpif_upcall *dupcall,
                       const struct flow *flow, const struct ofpbuf *actions,
                       int error)
{
    struct upcall_cost_batch *batch = current_batch();
    struct upcall_cost *upcall;

    if (!batch) {
        return;
    } else if (error && error != EAGAIN) {
        upcall_cost_failed(dupcall, error);
        return;
    }

    *cost_innermost_get() = NULL;
    upcall = &batch->upcalls[batch->n];
    upcall_cost_lap(upcall, UPCALL_COST_K_TRANSLATE);
    upcall->span.entry.class = upcall_cost_type(dupcall->type,
                                                dupcall->userdata);
    if (upcall->span.sampled) {
        upcall_cost_set_features(&upcall->span, upcall->span.entry.class, flow,
                                 actions);
    }
    upcall->miniflow = NULL;
    upcall->flow = flow;
    upcall_cost_set_packet(upcall, &dupcall->packet);
    if (!error) {
        batch->sampled |= upcall->span.sampled;
        if (++batch->n < UPCALL_COST_MAX_BATCH) {
            batch->upcalls[batch->n].waited_ns = 0;
        }
    } else {
        /* It does not take part in the rest. */
        upcall_finish(upcall, (upcall->span.sampled ? upcall->span.last
                               : upcall_now()));
    }
}

/* The batch is complete: what follows is done for all of its upcalls
 * together. */
void
upcall_cost_batch_complete(void)
{
    struct upcall_cost_batch *batch = current_batch();

    if (batch) {
        batch_lap(batch, UPCALL_COST_K_WAIT);
        batch->n_installed = 0;
        *cost_innermost_get() = batch->n ? &batch->upcalls[0].span : NULL;
    }
}

/* All that installing the flow of the batch's next upcall takes has been
 * prepared.  'put' is the operation that will add it to the datapath, or NULL
 * if it is not to be added, for the reason that cost_outcome() was given. */
void
upcall_cost_installed(const struct dpif_op *put)
{
    struct upcall_cost_batch *batch = current_batch();

    if (batch) {
        struct upcall_cost *upcall
            = &batch->upcalls[batch->n_installed++];

        upcall->put = put;
        *cost_innermost_get() = (batch->n_installed < batch->n
                                 ? &upcall[1].span : NULL);
    }
}

/* The batch's operations are about to be sent to the kernel. */
void
upcall_cost_operating(void)
{
    struct upcall_cost_batch *batch = current_batch();

    if (batch) {
        *cost_innermost_get() = NULL;
        batch_lap(batch, UPCALL_COST_K_INSTALL);
    }
}

/* The kernel has done them: records the batch's upcalls. */
void
upcall_cost_operated(void)
{
    struct upcall_cost_batch *batch = current_batch();

    if (!batch) {
        return;
    }

    uint64_t now = upcall_now();

    for (size_t i = 0; i < batch->n; i++) {
        struct upcall_cost *upcall = &batch->upcalls[i];
        struct cost_entry *entry = &upcall->span.entry;

        if (upcall->put) {
            entry->counter = (!upcall->put->error ? UPCALL_COST_INSTALLED
                              : upcall->put->error == EEXIST
                              ? UPCALL_COST_DUPLICATE
                              : UPCALL_COST_REFUSED);
        }
        if (OVS_UNLIKELY(upcall->span.sampled)) {
            cost_span_lap(&upcall->span, UPCALL_COST_K_OPERATE, now);
        }
        if (!i) {
            /* Once per batch. */
            cost_entry_add(entry, UPCALL_COST_K_BATCH, batch->n);
        }
        upcall_finish(upcall, now);
    }
    batch->n = 0;
    batch->sampled = false;
}

/* Sockets. */

/* Counts the upcalls that the kernel has dropped, because the buffer was full,
 * since this was last done for 'socket', unless accounting is off. */
static void
count_dropped(struct upcall_cost_socket *socket OVS_UNUSED)
    OVS_REQUIRES(mutex)
{
#ifdef SO_MEMINFO                       /* Since Linux 4.12. */
    uint32_t meminfo[SK_MEMINFO_DROPS + 1];
    socklen_t len = sizeof meminfo;
    struct kernel *kernel;

    if (!getsockopt(socket->fd, SOL_SOCKET, SO_MEMINFO, meminfo, &len)
        && len == sizeof meminfo) {
        /* Modulo 2**32, as the kernel counts. */
        uint32_t n = meminfo[SK_MEMINFO_DROPS] - socket->n_dropped;

        socket->n_dropped += n;
        LIST_FOR_EACH (kernel, list_node, &kernels) {
            if (kernel->dpif == socket->dpif) {
                cost_count(kernel->losses, UPCALL_COST_UNKNOWN,
                           UPCALL_COST_LOST_OVERRUN, n);
            }
        }
    }
#endif
}

/* Counts the upcalls that the kernel has dropped so far and that nobody has
 * counted yet.  If accounting is off, they won't be counted later, either. */
static void
upcall_cost_kernel_refresh(void)
{
    struct upcall_cost_socket *socket;

    ovs_mutex_lock(&mutex);
    LIST_FOR_EACH (socket, list_node, &sockets) {
        count_dropped(socket);
    }
    ovs_mutex_unlock(&mutex);
}

/* Creates and returns a socket for 'fd', which has just been opened to receive
 * upcalls from 'dpif'.  'shared' is true if several threads receive from it.
 * The caller must destroy it with upcall_cost_socket_destroy() before it
 * closes 'fd'. */
struct upcall_cost_socket *
upcall_cost_socket_create(const struct dpif *dpif, int fd, bool shared)
{
    struct upcall_cost_socket *socket = xzalloc(sizeof *socket);

    socket->dpif = dpif;
    socket->fd = fd;
    socket->shared = shared;
    if (shared) {
        atomic_count_inc(&upcall_cost_n_shared);
    }

    ovs_mutex_lock(&mutex);
    ovs_list_push_back(&sockets, &socket->list_node);
    ovs_mutex_unlock(&mutex);
    return socket;
}

/* Destroys 'socket', which may be NULL. */
void
upcall_cost_socket_destroy(struct upcall_cost_socket *socket)
{
    if (socket) {
        if (socket->shared) {
            atomic_count_dec(&upcall_cost_n_shared);
        }
        if (socket->queue) {
            upcall_cost_observer->stop(socket->queue);
        }
        ovs_mutex_lock(&mutex);
        count_dropped(socket);
        ovs_list_remove(&socket->list_node);
        ovs_mutex_unlock(&mutex);
        free(socket);
    }
}

/* 'msg' has been received. */
void
upcall_cost_socket_received(struct upcall_cost_socket *socket,
                            const struct ofpbuf *msg)
{
    if (socket->queue) {
        uint64_t ns = upcall_cost_observer->received(socket->queue, msg->data,
                                                     msg->size);
        uint64_t now = cost_clock_monotonic();
        struct upcall_cost_batch *batch = current_batch();

        if (batch) {
            cost_count(batch->recorder, UPCALL_COST_UNKNOWN,
                       UPCALL_COST_K_UNKNOWN, !ns);
            batch->upcalls[batch->n].waited_ns = (!ns ? 0
                                                  : now > ns ? now - ns : 1);
        }
    }
}

/* Receiving from 'socket' has failed with ENOBUFS. */
void
upcall_cost_socket_overrun(struct upcall_cost_socket *socket)
{
    if (socket->queue) {
        upcall_cost_observer->overrun(socket->queue);
    }
}

/* There is nothing to receive from 'socket'. */
void
upcall_cost_socket_empty(struct upcall_cost_socket *socket)
{
    if (socket->queue) {
        size_t n_orphans = upcall_cost_observer->empty(socket->queue);
        struct upcall_cost_batch *batch = current_batch();

        if (batch) {
            cost_count(batch->recorder, UPCALL_COST_UNKNOWN,
                       UPCALL_COST_K_ORPHAN, n_orphans);
        }
    }
    if (upcall_cost_observer && !socket->shared) {
        socket->queue = upcall_cost_observer->update(socket->queue, socket->fd,
                                                     &socket->queue_seq);
    }
}
