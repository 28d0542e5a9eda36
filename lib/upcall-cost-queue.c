/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "upcall-cost-queue.h"

#include "openvswitch/dynamic-string.h"
#include "smap.h"
#include "unixctl.h"
#include "upcall-cost-kernel.h"

#ifdef HAVE_LIBBPF

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sys/socket.h>
#include <unistd.h>

#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(upcall_cost_queue);

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

/* Records are counted by so many bits of their hash. */
#define HASH_BITS 16

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
    uint16_t n_unused[1 << HASH_BITS];  /* Of these, by hash. */

    size_t n_orphans;                   /* Not reported yet. */
    bool overrun;                       /* May there be any in 'records'? */
};

/* Loads libbpf.  Returns a null pointer, or why that is not possible. */
static const char *
load_libbpf(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;
    static bool ok;

    if (ovsthread_once_start(&once)) {
        void *library = dlopen(LIBBPF_NAME, RTLD_NOW);

        ok = library != NULL;
#define LIBBPF_FUNCTION(NAME) \
        ok = ok && (libbpf.NAME = dlsym(library, #NAME)) != NULL;
        LIBBPF_FUNCTIONS
#undef LIBBPF_FUNCTION
        ovsthread_once_done(&once);
    }
    return ok ? NULL : LIBBPF_NAME" can't be loaded";
}

/* The filter. */

#define INSN(CODE, DST, SRC, OFF, IMM)                                     \
    { .code = (CODE), .dst_reg = DST, .src_reg = SRC, .off = (OFF),        \
      .imm = (int32_t) (IMM) }
#define ALU(OP, DST, IMM) INSN(BPF_ALU64 | OP | BPF_K, DST, 0, 0, IMM)
#define ALU_REG(OP, DST, SRC) INSN(BPF_ALU64 | OP | BPF_X, DST, SRC, 0, 0)
#define CALL(FUNC) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##FUNC)
#define STORE(SIZE, OFF, SRC) INSN(BPF_STX | BPF_MEM | SIZE, 10, SRC, OFF, 0)
#define LOAD(SIZE, DST, SRC, OFF) \
    INSN(BPF_LDX | BPF_MEM | SIZE, DST, SRC, OFF, 0)
#define LOAD_IMM64(DST, SRC, IMM)                                          \
    INSN(BPF_LD | BPF_DW | BPF_IMM, DST, SRC, 0, (IMM)),                   \
    INSN(0, 0, 0, 0, (uint64_t) (IMM) >> 32)
#define HASH_WORD(OFF)                                                     \
    LOAD(BPF_DW, 1, 10, OFF), ALU_REG(BPF_XOR, 7, 1), ALU_REG(BPF_MUL, 7, 8)
#define HASH_WORDS(OFF)                                                    \
    HASH_WORD(OFF), HASH_WORD((OFF) + 8), HASH_WORD((OFF) + 16),           \
    HASH_WORD((OFF) + 24)

/* Loads the filter, which writes to the ring buffer 'map_fd'.  Returns its
 * file descriptor, or a negative number with errno set. */
static int
load_filter(int map_fd)
{
    enum {
        RECORD = -(int) sizeof(struct record),     /* On the stack. */
        PART = RECORD - HASH_LEN,
        N_HASHING = 2 + 3 * (HASH_LEN / 8) + 1
    };
    const struct bpf_insn insns[] = {
        ALU_REG(BPF_MOV, 6, 1),
        CALL(ktime_get_ns),
        STORE(BPF_DW, RECORD + (int) offsetof(struct record, ns), 0),
        LOAD(BPF_W, 1, 6, offsetof(struct __sk_buff, len)),
        STORE(BPF_W, RECORD + (int) offsetof(struct record, len), 1),

        ALU_REG(BPF_MOV, 1, 6),
        ALU(BPF_MOV, 2, HASH_OFFSET),
        ALU_REG(BPF_MOV, 3, 10),
        ALU(BPF_ADD, 3, PART),
        ALU(BPF_MOV, 4, HASH_LEN),
        CALL(skb_load_bytes),
        ALU(BPF_MOV, 7, 0),
        INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, N_HASHING, 0),
        LOAD_IMM64(8, 0, HASH_MULT),
        HASH_WORDS(PART), HASH_WORDS(PART + 32), HASH_WORDS(PART + 64),
        HASH_WORDS(PART + 96),
        ALU(BPF_RSH, 7, 32),
        STORE(BPF_W, RECORD + (int) offsetof(struct record, hash), 7),

        LOAD_IMM64(1, BPF_PSEUDO_MAP_FD, map_fd),
        ALU_REG(BPF_MOV, 2, 10),
        ALU(BPF_ADD, 2, RECORD),
        ALU(BPF_MOV, 3, sizeof(struct record)),
        ALU(BPF_MOV, 4, BPF_RB_NO_WAKEUP),
        CALL(ringbuf_output),

        /* Keep all of the message. */
        INSN(BPF_ALU | BPF_MOV | BPF_K, 0, 0, 0, -1),
        INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    };

    BUILD_ASSERT_DECL(HASH_LEN == 4 * 32);
    return libbpf.bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, "upcall_cost",
                                "Apache-2.0", insns, ARRAY_SIZE(insns), NULL);
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

/* Returns the number of records with 'hash' that no message has used. */
static uint16_t *
n_unused(struct upcall_cost_queue *queue, uint32_t hash)
{
    return &queue->n_unused[hash >> (32 - HASH_BITS)];
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
        struct record *record = get_record(queue, queue->tail++);

        memcpy(record, data, sizeof *record);
        *n_unused(queue, record->hash) += 1;
    }
    return 0;
}

static void
use_record(struct upcall_cost_queue *queue, struct record *record)
{
    *n_unused(queue, record->hash) -= 1;
    record->ns = 0;
}

/* Drops the first record, which is an orphan if it has not been used. */
static void
drop_first(struct upcall_cost_queue *queue)
{
    struct record *record = get_record(queue, queue->head++);

    if (record->ns) {
        use_record(queue, record);
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
    if ((queue->map_fd = libbpf.bpf_map_create(
             BPF_MAP_TYPE_RINGBUF, "upcall_cost", 0, 0, ring_size(fd),
             NULL)) < 0) {
        what = "creating a BPF ring buffer";
    } else if (!(queue->ring = libbpf.ring_buffer__new(
                     queue->map_fd, add_record, queue, NULL))) {
        what = "mapping a BPF ring buffer";
    } else if ((queue->prog_fd = load_filter(queue->map_fd)) < 0) {
        what = "loading a BPF program";
    } else if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &queue->prog_fd,
                          sizeof queue->prog_fd)) {
        what = "attaching a BPF program to a socket";
    } else {
        return queue;
    }
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

/* Returns the index of the first record, from 'i' on, of a message of 'len'
 * bytes with 'hash', or the tail if there is none.  Records are in about the
 * order of messages: few are skipped, unless they are dropped then. */
static size_t
find_record(struct upcall_cost_queue *queue, size_t i, size_t len,
            uint32_t hash)
{
    if (!*n_unused(queue, hash)) {
        return queue->tail;
    }
    for (; i != queue->tail; i++) {
        const struct record *record = get_record(queue, i);

        if (record->hash == hash && record->len == len && record->ns) {
            break;
        }
    }
    return i;
}

/* The message 'msg' has been received.  Returns when it was put into the
 * queue, in nanoseconds of CLOCK_MONOTONIC, or 0 if that is not known. */
uint64_t
upcall_cost_queue_received(struct upcall_cost_queue *queue,
                           const void *msg, size_t len)
{
    uint32_t hash = message_hash(msg, len);
    size_t i = queue->tail;
    struct record *record;
    uint64_t ns;

    if (!queue->overrun) {
        i = find_record(queue, queue->head, len, hash);
    }
    if (i == queue->tail) {
        libbpf.ring_buffer__consume(queue->ring);
        i = find_record(queue, queue->head, len, hash);
    }
    if (i == queue->tail
        || (queue->overrun && *n_unused(queue, hash) > 1
            && find_record(queue, i + 1, len, hash) != queue->tail)) {
        /* There is none, or one of several may be an orphan. */
        return 0;
    }

    record = get_record(queue, i);
    ns = record->ns;
    use_record(queue, record);
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

/* The queues of upcalls. */

/* Whether queues are to be watched, in bit 0, and how often that has changed,
 * in the others. */
static ATOMIC(unsigned int) config_seq = 0;

/* Sockets that are watched. */
static atomic_count n_watched = ATOMIC_COUNT_INIT(0);

/* Why one is not watched, since the configuration has changed. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static char *latest_error OVS_GUARDED_BY(mutex);

static unsigned int
get_config_seq(void)
{
    unsigned int seq;

    atomic_read_relaxed(&config_seq, &seq);
    return seq;
}

static void
keep_error(char *error)
{
    ovs_mutex_lock(&mutex);
    if (error && !latest_error) {
        VLOG_WARN("queues of upcalls are not watched: %s", error);
    }
    free(latest_error);
    latest_error = error;
    ovs_mutex_unlock(&mutex);
}

static void
stop_queue(struct upcall_cost_queue *queue)
{
    if (queue) {
        upcall_cost_queue_detach(queue);
        atomic_count_dec(&n_watched);
    }
}

/* Starts or stops watching the socket 'fd', whose queue is 'queue', if the
 * configuration has changed since '*seq'. */
static struct upcall_cost_queue *
update_queue(struct upcall_cost_queue *queue, int fd, unsigned int *seq)
{
    if (OVS_UNLIKELY(*seq != get_config_seq())) {
        stop_queue(queue);
        queue = NULL;
        *seq = get_config_seq();
        if (*seq & 1) {
            char *error;

            queue = upcall_cost_queue_attach(fd, &error);
            if (queue) {
                atomic_count_inc(&n_watched);
            } else {
                keep_error(error);
            }
        }
    }
    return queue;
}

/* Applies "cost-kernel-queue" from 'other_config', the column in the
 * Open_vSwitch table (see ovs-vswitchd.conf.db(5)).  Takes effect for a socket
 * when it is empty, after the next upcall has been received from it. */
static void
apply_config(const struct smap *other_config)
{
    unsigned int seq = get_config_seq();

    upcall_cost_apply(other_config);
    if (smap_get_bool(other_config, "cost-kernel-queue", false) != (seq & 1)) {
        keep_error(NULL);
        atomic_store_relaxed(&config_seq, seq + 1);
    }
}

static void
queue_show(struct unixctl_conn *conn, int argc OVS_UNUSED,
           const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    unsigned int n = atomic_count_get(&n_watched);
    struct ds s = DS_EMPTY_INITIALIZER;

    ovs_mutex_lock(&mutex);
    if (!(get_config_seq() & 1)) {
        ds_put_cstr(&s, "off: other_config:cost-kernel-queue is not true");
    } else if (atomic_count_get(&upcall_cost_n_shared)) {
        ds_put_cstr(&s, "off: not possible in per-vport dispatch mode (see "
                    "dpif-netlink/dispatch-mode), where all handlers receive "
                    "from all sockets");
    } else if (latest_error) {
        ds_put_format(&s, "off: %s", latest_error);
    } else if (!n) {
        ds_put_cstr(&s, "off: no upcall has come yet");
    } else {
        ds_put_format(&s, "on, for %u socket%s", n, n == 1 ? "" : "s");
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
        .update = update_queue,
        .stop = stop_queue,
        .received = upcall_cost_queue_received,
        .overrun = upcall_cost_queue_overrun,
        .empty = upcall_cost_queue_empty,
    };

    upcall_cost_observer = &watcher;
    upcall_cost_config.apply = apply_config;
    unixctl_command_register("upcall/cost-queue", "", 0, 0, queue_show, NULL);
}

#else /* !HAVE_LIBBPF */

static void
queue_show(struct unixctl_conn *conn, int argc OVS_UNUSED,
           const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    unixctl_command_reply(conn, "off: built without libbpf");
}

void
upcall_cost_queue_init(void)
{
    unixctl_command_register("upcall/cost-queue", "", 0, 0, queue_show, NULL);
}

#endif /* !HAVE_LIBBPF */
