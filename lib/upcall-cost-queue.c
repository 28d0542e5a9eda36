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

#include <config.h>

#include "upcall-cost-queue.h"

#include "openvswitch/dynamic-string.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/util.h"
#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "smap.h"
#include "unixctl.h"
#include "upcall-cost-kernel.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(upcall_cost_queue);

#ifdef HAVE_LIBBPF

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sys/socket.h>
#include <unistd.h>

/* Functions of libbpf, which is loaded when it is first needed: programs that
 * don't, or on a host without it, do as well. */
#define LIBBPF_NAME "libbpf.so." OVS_STRINGIZE(LIBBPF_MAJOR_VERSION)
#define LIBBPF_FUNCTIONS                \
    LIBBPF_FUNCTION(bpf_map_create)     \
    LIBBPF_FUNCTION(bpf_prog_load)      \
    LIBBPF_FUNCTION(ring_buffer__new)   \
    LIBBPF_FUNCTION(ring_buffer__free)  \
    LIBBPF_FUNCTION(ring_buffer__consume)
static struct {
#define LIBBPF_FUNCTION(NAME) __typeof__(NAME) *NAME;
    LIBBPF_FUNCTIONS
#undef LIBBPF_FUNCTION
} libbpf;

/* The part of a message that is hashed: most of the flow key, and, in short
 * messages, some of the packet.  Shorter messages have hash 0. */
#define HASH_OFFSET 64
#define HASH_LEN 128
#define HASH_MULT UINT64_C(0x9e3779b97f4a7c15)

/* Bytes of a socket's receive buffer for each byte of its ring buffer.  A
 * message takes at least 768 bytes of the receive buffer (struct sk_buff, and
 * the smallest piece of memory with room for an upcall), and its record takes
 * 24 of the ring buffer, which so has room for the records of all messages in
 * the socket. */
#define RING_SHARE (768 / 24)

/* Records that are kept for messages to come, a power of two.  A socket of
 * Open vSwitch has room for 6,553 upcalls: its buffer has 8 MB, of which an
 * upcall takes 1,280 bytes or more. */
#define MAX_RECORDS 8192

/* Messages may be put into the queue in another order than they went through
 * the filter, if they come from several CPUs.  A record is an orphan when a
 * message was received whose record is this many records later. */
#define WINDOW 16

/* A record is an orphan when the queue is empty and the record is this many
 * nanoseconds old. */
#define ORPHAN_NS 10000000

/* Records are looked up by hash in so many chains, a power of two, of which no
 * more than MAX_STEPS records are compared: the work for a message is bounded,
 * whatever the messages before it were. */
#define N_CHAINS 4096
#define MAX_STEPS 64

/* What the filter writes of a message. */
struct record {
    uint64_t ns;                        /* CLOCK_MONOTONIC; 0: was used. */
    uint32_t len;
    uint32_t hash;
};

struct upcall_cost_queue {
    int fd;                             /* Socket. */
    int map_fd;
    int prog_fd;
    struct ring_buffer *ring;

    /* Records that no message has been received for, in order. */
    struct record records[MAX_RECORDS];
    size_t head, tail;                  /* Modulo MAX_RECORDS. */

    /* Those that have not been used, by hash modulo N_CHAINS, in order: their
     * indexes in 'records', plus 1, or 0 for none. */
    struct chain {
        uint16_t first, last;
    } chains[N_CHAINS];
    uint16_t next[MAX_RECORDS];

    size_t n_orphans;                   /* Not reported yet. */
    bool overrun;                       /* May there be any in 'records'? */
};

/* Loads libbpf.  Returns a null pointer, or why that is not possible. */
static const char *
load_libbpf(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    static const char *error;

    if (ovsthread_once_start(&once)) {
        void *library = dlopen(LIBBPF_NAME, RTLD_NOW);
        bool ok = library != NULL;

#define LIBBPF_FUNCTION(NAME)                           \
        if (ok) {                                       \
            libbpf.NAME = dlsym(library, #NAME);        \
            ok = libbpf.NAME != NULL;                   \
        }
        LIBBPF_FUNCTIONS
#undef LIBBPF_FUNCTION
        if (!ok) {
            error = LIBBPF_NAME" can't be loaded";
        }
        ovsthread_once_done(&once);
    }
    return error;
}

/* The filter. */

#define INSN(CODE, DST, SRC, OFF, IMM)                                     \
    ((struct bpf_insn) { .code = (CODE), .dst_reg = BPF_REG_##DST,         \
                         .src_reg = BPF_REG_##SRC, .off = (OFF),           \
                         .imm = (IMM) })
#define MOV(DST, SRC) INSN(BPF_ALU64 | BPF_MOV | BPF_X, DST, SRC, 0, 0)
#define MOV_IMM(DST, IMM) INSN(BPF_ALU64 | BPF_MOV | BPF_K, DST, 0, 0, IMM)
#define ADD_IMM(DST, IMM) INSN(BPF_ALU64 | BPF_ADD | BPF_K, DST, 0, 0, IMM)
#define CALL(FUNC) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##FUNC)
#define STORE(SIZE, OFF, SRC) INSN(BPF_STX | BPF_MEM | SIZE, 10, SRC, OFF, 0)
#define LOAD(SIZE, DST, SRC, OFF) \
    INSN(BPF_LDX | BPF_MEM | SIZE, DST, SRC, OFF, 0)

/* Loads the filter, which writes to the ring buffer 'map_fd'.  Returns its
 * file descriptor, or a negative number with errno set. */
static int
load_filter(int map_fd)
{
    enum {
        RECORD = -(int) sizeof(struct record),     /* On the stack. */
        NS = offsetof(struct record, ns),
        LEN = offsetof(struct record, len),
        HASH = offsetof(struct record, hash),
        PART = RECORD - HASH_LEN,
        N_WORDS = HASH_LEN / 8,
        MAX_INSNS = 40 + 3 * N_WORDS
    };
    struct bpf_insn insns[MAX_INSNS];
    size_t n = 0, jump;

    insns[n++] = MOV(6, 1);
    insns[n++] = CALL(ktime_get_ns);
    insns[n++] = STORE(BPF_DW, RECORD + NS, 0);
    insns[n++] = LOAD(BPF_W, 1, 6, offsetof(struct __sk_buff, len));
    insns[n++] = STORE(BPF_W, RECORD + LEN, 1);

    insns[n++] = MOV(1, 6);
    insns[n++] = MOV_IMM(2, HASH_OFFSET);
    insns[n++] = MOV(3, 10);
    insns[n++] = ADD_IMM(3, PART);
    insns[n++] = MOV_IMM(4, HASH_LEN);
    insns[n++] = CALL(skb_load_bytes);
    insns[n++] = MOV_IMM(7, 0);
    jump = n++;
    insns[n++] = INSN(BPF_LD | BPF_DW | BPF_IMM, 8, 0, 0,
                      (int32_t) HASH_MULT);
    insns[n++] = INSN(0, 0, 0, 0, (int32_t) (HASH_MULT >> 32));
    for (size_t i = 0; i < N_WORDS; i++) {
        insns[n++] = LOAD(BPF_DW, 1, 10, PART + (int) (8 * i));
        insns[n++] = INSN(BPF_ALU64 | BPF_XOR | BPF_X, 7, 1, 0, 0);
        insns[n++] = INSN(BPF_ALU64 | BPF_MUL | BPF_X, 7, 8, 0, 0);
    }
    insns[n++] = INSN(BPF_ALU64 | BPF_RSH | BPF_K, 7, 0, 0, 32);
    insns[jump] = INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, n - jump - 1, 0);
    insns[n++] = STORE(BPF_W, RECORD + HASH, 7);

    insns[n++] = INSN(BPF_LD | BPF_DW | BPF_IMM, 1, 0, 0, map_fd);
    insns[n - 1].src_reg = BPF_PSEUDO_MAP_FD;
    insns[n++] = INSN(0, 0, 0, 0, 0);
    insns[n++] = MOV(2, 10);
    insns[n++] = ADD_IMM(2, RECORD);
    insns[n++] = MOV_IMM(3, sizeof(struct record));
    insns[n++] = MOV_IMM(4, BPF_RB_NO_WAKEUP);
    insns[n++] = CALL(ringbuf_output);

    /* Keep all of the message. */
    insns[n++] = INSN(BPF_ALU | BPF_MOV | BPF_K, 0, 0, 0, -1);
    insns[n++] = INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    ovs_assert(n <= MAX_INSNS);

    return libbpf.bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, "upcall_cost",
                                "Apache-2.0", insns, n, NULL);
}

/* Does what the filter does. */
static uint32_t
message_hash(const void *msg, size_t len)
{
    uint64_t hash = 0;

    if (len >= HASH_OFFSET + HASH_LEN) {
        for (size_t i = 0; i < HASH_LEN; i += 8) {
            uint64_t word;

            memcpy(&word, (const char *) msg + HASH_OFFSET + i, sizeof word);
            hash = (hash ^ word) * HASH_MULT;
        }
    }
    return hash >> 32;
}

/* Records. */

static struct record *
get_record(struct upcall_cost_queue *queue, size_t i)
{
    return &queue->records[i % MAX_RECORDS];
}

static struct chain *
get_chain(struct upcall_cost_queue *queue, uint32_t hash)
{
    return &queue->chains[hash % N_CHAINS];
}

/* Takes the record with index 'link' minus 1 out of its chain, in which it
 * comes after 'prev', or is the first one if that is 0. */
static void
use_record(struct upcall_cost_queue *queue, uint16_t link, uint16_t prev)
{
    struct record *record = &queue->records[link - 1];
    struct chain *chain = get_chain(queue, record->hash);

    if (prev) {
        queue->next[prev - 1] = queue->next[link - 1];
    } else {
        chain->first = queue->next[link - 1];
    }
    if (chain->last == link) {
        chain->last = prev;
    }
    record->ns = 0;
}

/* Takes a record from the ring buffer. */
static int
add_record(void *queue_, void *data, size_t size)
{
    struct upcall_cost_queue *queue = queue_;

    if (size < sizeof(struct record)
        || queue->tail - queue->head >= MAX_RECORDS) {
        queue->n_orphans++;
    } else {
        uint16_t link = queue->tail % MAX_RECORDS + 1;
        struct record *record = get_record(queue, queue->tail++);
        struct chain *chain;

        memcpy(record, data, sizeof *record);
        chain = get_chain(queue, record->hash);
        queue->next[link - 1] = 0;
        if (chain->first) {
            queue->next[chain->last - 1] = link;
        } else {
            chain->first = link;
        }
        chain->last = link;
    }
    return 0;
}

/* Drops the first record, which is an orphan if it has not been used. */
static void
drop_first(struct upcall_cost_queue *queue)
{
    uint16_t link = queue->head % MAX_RECORDS + 1;

    if (get_record(queue, queue->head++)->ns) {
        /* No unused record is older. */
        use_record(queue, link, 0);
        queue->n_orphans++;
    }
}

/* Returns how many bytes the ring buffer for the socket 'fd' takes: a power of
 * two, and a page at least. */
static uint32_t
ring_size(int fd)
{
    int rcvbuf;
    socklen_t len = sizeof rcvbuf;

    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, &len)) {
        rcvbuf = 0;
    }
    return ROUND_UP_POW2(MAX(rcvbuf / RING_SHARE, get_page_size()));
}

/* Starts to watch the socket 'fd', from which nobody but the caller receives.
 * Returns NULL and stores why in '*error', which the caller must free, if that
 * is not possible. */
struct upcall_cost_queue *
upcall_cost_queue_attach(int fd, char **error)
{
    struct upcall_cost_queue *queue;
    const char *what = load_libbpf();

    if (what) {
        *error = xstrdup(what);
        return NULL;
    }

    queue = xzalloc(sizeof *queue);
    queue->fd = fd;
    queue->prog_fd = -1;
    queue->map_fd = libbpf.bpf_map_create(BPF_MAP_TYPE_RINGBUF, "upcall_cost",
                                          0, 0, ring_size(fd), NULL);
    if (queue->map_fd < 0) {
        what = "creating a BPF ring buffer";
        goto error;
    }
    queue->ring = libbpf.ring_buffer__new(queue->map_fd, add_record, queue,
                                          NULL);
    if (!queue->ring) {
        what = "mapping a BPF ring buffer";
        goto error;
    }
    queue->prog_fd = load_filter(queue->map_fd);
    if (queue->prog_fd < 0) {
        what = "loading a BPF program";
        goto error;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &queue->prog_fd,
                   sizeof queue->prog_fd)) {
        what = "attaching a BPF program to a socket";
        goto error;
    }
    *error = NULL;
    return queue;

error:
    *error = xasprintf("%s failed (%s%s)", what, ovs_strerror(errno),
                       (errno == EPERM
                        ? ", the process lacks CAP_BPF, as it does with --user"
                        : ""));
    upcall_cost_queue_detach(queue);
    return NULL;
}

/* Stops watching, which the socket must still be open for. */
void
upcall_cost_queue_detach(struct upcall_cost_queue *queue)
{
    if (!queue) {
        return;
    }
    if (queue->prog_fd >= 0) {
        int unused = 0;

        setsockopt(queue->fd, SOL_SOCKET, SO_DETACH_BPF, &unused,
                   sizeof unused);
        close(queue->prog_fd);
    }
    libbpf.ring_buffer__free(queue->ring);
    if (queue->map_fd >= 0) {
        close(queue->map_fd);
    }
    free(queue);
}

/* Returns the index, plus 1, of the first record of a message of 'len' bytes
 * with 'hash', starting with that at 'link' in its chain, and stores in
 * '*prev' what comes before it, if it is not 'link'.  Returns 0 if there is
 * none, TOO_FAR if that would take too long to find out. */
#define TOO_FAR UINT16_MAX
static uint16_t
find_record(const struct upcall_cost_queue *queue, uint16_t link, size_t len,
            uint32_t hash, uint16_t *prev)
{
    for (int i = 0; link; i++) {
        const struct record *record = &queue->records[link - 1];

        if (record->hash == hash && record->len == len) {
            break;
        } else if (i == MAX_STEPS) {
            return TOO_FAR;
        }
        *prev = link;
        link = queue->next[link - 1];
    }
    return link;
}

/* The message 'msg' has been received.  Returns when it was put into the
 * queue, in nanoseconds of CLOCK_MONOTONIC, or 0 if that is not known. */
uint64_t
upcall_cost_queue_received(struct upcall_cost_queue *queue,
                           const void *msg, size_t len)
{
    uint32_t hash = message_hash(msg, len);
    const struct chain *chain = get_chain(queue, hash);
    uint16_t link = 0, prev = 0, unused;
    uint64_t ns;
    size_t i;

    if (!queue->overrun) {
        link = find_record(queue, chain->first, len, hash, &prev);
    }
    if (!link) {
        libbpf.ring_buffer__consume(queue->ring);
        prev = 0;
        link = find_record(queue, chain->first, len, hash, &prev);
    }
    if (!link || link == TOO_FAR
        || (queue->overrun
            && find_record(queue, queue->next[link - 1], len, hash,
                           &unused))) {
        /* There is none, or one of several may be an orphan. */
        return 0;
    }

    i = queue->head + (link - 1 - queue->head) % MAX_RECORDS;
    ns = get_record(queue, i)->ns;
    use_record(queue, link, prev);
    while (queue->head != queue->tail
           && (!get_record(queue, queue->head)->ns
               || (ssize_t) (i - queue->head) > WINDOW)) {
        drop_first(queue);
    }
    return ns;
}

/* The kernel has dropped messages. */
void
upcall_cost_queue_overrun(struct upcall_cost_queue *queue)
{
    queue->overrun = true;
}

/* The socket's queue is empty.  Returns how many orphans were found since this
 * was last called. */
size_t
upcall_cost_queue_empty(struct upcall_cost_queue *queue)
{
    size_t n_orphans;

    if (queue->overrun) {
        libbpf.ring_buffer__consume(queue->ring);
    }
    if (queue->head != queue->tail) {
        uint64_t now_ns = cost_clock_monotonic();

        while (queue->head != queue->tail
               && get_record(queue, queue->head)->ns + ORPHAN_NS < now_ns) {
            drop_first(queue);
        }
    }
    if (queue->head == queue->tail) {
        queue->overrun = false;
    }
    n_orphans = queue->n_orphans;
    queue->n_orphans = 0;
    return n_orphans;
}

#else /* !HAVE_LIBBPF */

struct upcall_cost_queue *
upcall_cost_queue_attach(int fd OVS_UNUSED, char **error)
{
    *error = xstrdup("built without libbpf");
    return NULL;
}

void
upcall_cost_queue_detach(struct upcall_cost_queue *queue OVS_UNUSED)
{
}

uint64_t
upcall_cost_queue_received(struct upcall_cost_queue *queue OVS_UNUSED,
                           const void *msg OVS_UNUSED, size_t len OVS_UNUSED)
{
    return 0;
}

void
upcall_cost_queue_overrun(struct upcall_cost_queue *queue OVS_UNUSED)
{
}

size_t
upcall_cost_queue_empty(struct upcall_cost_queue *queue OVS_UNUSED)
{
    return 0;
}

#endif /* !HAVE_LIBBPF */

/* The queues of upcalls. */

#define STAGES(COLUMN)                                                      \
    COLUMN(QUEUE, "queue", NULL, COST_OPTIONAL,                             \
           "In the queue of the handler's socket; only if "                 \
           "cost-kernel-queue is true.")                                    \
    COLUMN(OVERHEAD, "overhead", NULL, COST_OPTIONAL | COST_APART,          \
           "'queue' and 'operate' together.")

#define COUNTERS(COLUMN)                                                    \
    COLUMN(UNKNOWN, "unknown", "queue", 0,                                  \
           "The time of an upcall in the watched queue is not known.")      \
    COLUMN(ORPHAN, "orphan", "queue", 0,                                    \
           "The watched queue has a record of an upcall that was lost.")

enum { STAGES(COST_ENUM) };
enum { COUNTERS(COST_ENUM) };
static const struct cost_column stages[] = { STAGES(COST_COLUMN) };
static const struct cost_column counters[] = { COUNTERS(COST_COLUMN) };
static struct cost_extension extension = {
    stages, ARRAY_SIZE(stages), counters, ARRAY_SIZE(counters), 0, 0
};

/* Whether queues are to be watched, in bit 0, and how often that has changed,
 * in the others. */
static ATOMIC(unsigned int) config_seq = 0;

/* What became of it. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static size_t n_shared OVS_GUARDED_BY(mutex);   /* Can't be watched. */
static size_t n_watched OVS_GUARDED_BY(mutex);
static char *latest_error OVS_GUARDED_BY(mutex);

/* A socket that receives upcalls.  Used by the thread that does, unless it is
 * shared. */
struct watch {
    int fd;
    bool shared;                        /* Do several threads receive? */
    struct upcall_cost_queue *queue;    /* NULL if it is not watched. */
    unsigned int config_seq;            /* Of the configuration applied. */
};

static unsigned int
get_config_seq(void)
{
    unsigned int seq;

    atomic_read_relaxed(&config_seq, &seq);
    return seq;
}

static void *
watch_open(int fd, bool shared)
{
    struct watch *watch = xzalloc(sizeof *watch);

    watch->fd = fd;
    watch->shared = shared;
    ovs_mutex_lock(&mutex);
    n_shared += shared;
    ovs_mutex_unlock(&mutex);
    return watch;
}

static void
watch_stop(struct watch *watch)
{
    if (watch->queue) {
        upcall_cost_queue_detach(watch->queue);
        watch->queue = NULL;
        ovs_mutex_lock(&mutex);
        n_watched--;
        ovs_mutex_unlock(&mutex);
    }
}

static void
watch_close(void *watch_)
{
    struct watch *watch = watch_;

    watch_stop(watch);
    ovs_mutex_lock(&mutex);
    n_shared -= watch->shared;
    ovs_mutex_unlock(&mutex);
    free(watch);
}

/* Starts or stops watching if that is configured now, and was not when this
 * was last called. */
static void
watch_apply_config(struct watch *watch)
{
    char *error = NULL;

    watch_stop(watch);
    watch->config_seq = get_config_seq();
    if (!(watch->config_seq & 1)) {
        return;
    }
    watch->queue = upcall_cost_queue_attach(watch->fd, &error);

    ovs_mutex_lock(&mutex);
    if (watch->queue) {
        n_watched++;
    } else {
        if (!latest_error) {
            VLOG_WARN("queues of upcalls are not watched: %s", error);
        }
        free(latest_error);
        latest_error = error;
    }
    ovs_mutex_unlock(&mutex);
}

static uint64_t
watch_received(void *watch_, const struct ofpbuf *msg,
               struct cost_recorder *recorder)
{
    struct watch *watch = watch_;
    uint64_t ns, now;

    if (!watch->queue) {
        return 0;
    }
    ns = upcall_cost_queue_received(watch->queue, msg->data, msg->size);
    if (!ns) {
        if (recorder) {
            upcall_cost_count_unknown(recorder,
                                      extension.first_counter + UNKNOWN, 1);
        }
        return 0;
    }
    now = cost_clock_monotonic();
    return now > ns ? now - ns : 1;
}

static void
watch_overrun(void *watch_)
{
    struct watch *watch = watch_;

    if (watch->queue) {
        upcall_cost_queue_overrun(watch->queue);
    }
}

static void
watch_empty(void *watch_, struct cost_recorder *recorder)
{
    struct watch *watch = watch_;

    if (watch->queue) {
        size_t n_orphans = upcall_cost_queue_empty(watch->queue);

        if (recorder) {
            upcall_cost_count_unknown(recorder,
                                      extension.first_counter + ORPHAN,
                                      n_orphans);
        }
    }
    if (!watch->shared && OVS_UNLIKELY(watch->config_seq
                                       != get_config_seq())) {
        watch_apply_config(watch);
    }
}

static void
watch_finish(struct upcall_cost_upcall *upcall)
{
    struct cost_span *span = &upcall->span;

    if (span->sampled) {
        cost_entry_add(&span->entry, extension.first_stage + QUEUE,
                       upcall->waited_ns);
        if (span->lapped & (1u << UPCALL_COST_K_OPERATE)) {
            cost_entry_add(&span->entry, extension.first_stage + OVERHEAD,
                           upcall->waited_ns + cost_clock_ns(
                               span->laps[UPCALL_COST_K_OPERATE]));
        }
    }
}

/* Applies "cost-kernel-queue" from 'other_config', the column in the
 * Open_vSwitch table (see ovs-vswitchd.conf.db(5)).  Takes effect for a socket
 * when it is empty, after the next upcall has been received from it. */
static void
apply_config(const struct smap *other_config, bool enabled)
{
    unsigned int seq = get_config_seq();

    upcall_cost_apply(other_config, enabled);
    if (smap_get_bool(other_config, "cost-kernel-queue", false) != (seq & 1)) {
        ovs_mutex_lock(&mutex);
        free(latest_error);
        latest_error = NULL;
        ovs_mutex_unlock(&mutex);
        atomic_store_relaxed(&config_seq, seq + 1);
    }
}

static void
queue_show(struct unixctl_conn *conn, int argc OVS_UNUSED,
           const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    ovs_mutex_lock(&mutex);
    if (!(get_config_seq() & 1)) {
        ds_put_cstr(&s, "off: other_config:cost-kernel-queue is not true");
    } else if (n_shared) {
        ds_put_cstr(&s, "off: not possible in per-vport dispatch mode (see "
                    "dpif-netlink/dispatch-mode), where all handlers receive "
                    "from all sockets");
    } else if (latest_error) {
        ds_put_format(&s, "off: %s", latest_error);
    } else if (!n_watched) {
        ds_put_cstr(&s, "off: no upcall has come yet");
    } else {
        ds_put_format(&s, "on, for %"PRIuSIZE" socket%s", n_watched,
                      n_watched == 1 ? "" : "s");
    }
    ovs_mutex_unlock(&mutex);
    unixctl_command_reply(conn, ds_cstr(&s));
    ds_destroy(&s);
}

/* Makes the time in queues part of what upcalls from the kernel cost, if it is
 * so configured, and registers the command "upcall/cost-queue". */
void
upcall_cost_queue_init(void)
{
    static const struct upcall_cost_observer watcher = {
        .open = watch_open,
        .close = watch_close,
        .received = watch_received,
        .overrun = watch_overrun,
        .empty = watch_empty,
        .finish = watch_finish,
    };

    cost_kind_extend(&upcall_cost_kernel_kind, &extension);
    upcall_cost_kernel_observe(&watcher);
    upcall_cost_config.apply = apply_config;
    unixctl_command_register("upcall/cost-queue", "", 0, 0, queue_show, NULL);
}
