/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>
#undef NDEBUG

#include "upcall-cost-queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ovstest.h"
#include "util.h"

#if defined(__linux__) && defined(HAVE_LIBBPF)

#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A message of UPCALL_LEN bytes takes as much of a socket's buffer as the
 * upcall of a short packet. */
enum { LEN = 256, UPCALL_LEN = 600, MAX_QUEUED = 64 };

static int tx, rx;

static int n_printed;

static int
count_print(enum libbpf_print_level level OVS_UNUSED,
            const char *format OVS_UNUSED, va_list args OVS_UNUSED)
{
    n_printed++;
    return 0;
}

/* Sets libbpf's print function, as AF_XDP ports do. */
static void
set_print(void)
{
    void *library = dlopen("libbpf.so." OVS_STRINGIZE(LIBBPF_MAJOR_VERSION),
                           RTLD_NOW);
    __typeof__(libbpf_set_print) *set;

    set = library ? dlsym(library, "libbpf_set_print") : NULL;
    if (set) {
        set(count_print);
    }
}

static uint64_t
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
}

static void
make_sockets(void)
{
    struct sockaddr_nl addr = { .nl_family = AF_NETLINK };
    socklen_t addr_len = sizeof addr;
    int size = 4096;

    tx = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);
    rx = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);
    ovs_assert(tx >= 0 && rx >= 0);
    ovs_assert(!bind(rx, (struct sockaddr *) &addr, sizeof addr));
    ovs_assert(!getsockname(rx, (struct sockaddr *) &addr, &addr_len));
    ovs_assert(!connect(tx, (struct sockaddr *) &addr, sizeof addr));
    ovs_assert(!setsockopt(rx, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
}

/* Sends the 'n'th message, of 'len' bytes.  Returns false if there was no room
 * for it. */
static bool
send_message(size_t n, size_t len)
{
    char msg[UPCALL_LEN] = { 0 };
    struct nlmsghdr *nlmsg = (struct nlmsghdr *) (void *) msg;

    nlmsg->nlmsg_len = len;
    memcpy(&msg[100], &n, sizeof n);
    if (send(tx, msg, len, MSG_DONTWAIT) == len) {
        return true;
    }
    ovs_assert(errno == EAGAIN || errno == ENOBUFS);
    return false;
}

/* Receives a message, and returns when it was put into the queue, or 0 if that
 * is not known, or UINT64_MAX if there is no message. */
static uint64_t
receive(struct upcall_cost_queue *queue)
{
    char msg[UPCALL_LEN];
    ssize_t len = recv(rx, msg, sizeof msg, MSG_DONTWAIT);

    if (len < 0) {
        ovs_assert(errno == EAGAIN);
        return UINT64_MAX;
    }
    return upcall_cost_queue_received(queue, msg, len);
}

/* Each message has the time that lies between before and after sending it, in
 * whatever order they are. */
static void
check_times(struct upcall_cost_queue *queue, size_t len)
{
    for (size_t n = 1; n <= 4; n++) {
        uint64_t before[4], after[4];

        for (size_t i = 0; i < n; i++) {
            before[i] = now_ns();
            ovs_assert(send_message(i, len));
            after[i] = now_ns();
        }
        for (size_t i = 0; i < n; i++) {
            uint64_t ns = receive(queue);

            ovs_assert(before[i] <= ns && ns <= after[i]);
        }
        ovs_assert(receive(queue) == UINT64_MAX);
        ovs_assert(!upcall_cost_queue_empty(queue));
    }
}

/* More messages than there is room for.  Each of those that were put into the
 * queue has the time that lies between before and after sending it; of those
 * that can't be told apart from one that was dropped, it is not known. */
static void
check_overrun(struct upcall_cost_queue *queue, bool same)
{
    size_t n_queued = 0, n_dropped = 0, n_received = 0;
    uint64_t before[MAX_QUEUED], after[MAX_QUEUED];
    uint64_t ns;

    while (n_dropped < 20) {
        uint64_t now = now_ns();

        if (send_message(same ? 0 : n_queued + n_dropped, LEN)) {
            ovs_assert(!n_dropped && n_queued < MAX_QUEUED);
            before[n_queued] = now;
            after[n_queued++] = now_ns();
        } else {
            n_dropped++;
        }
    }
    ovs_assert(n_queued > 1);
    upcall_cost_queue_overrun(queue);
    while ((ns = receive(queue)) != UINT64_MAX) {
        ovs_assert(n_received < n_queued);
        if (same) {
            ovs_assert(!ns);
        } else {
            ovs_assert(before[n_received] <= ns && ns <= after[n_received]);
        }
        n_received++;
    }
    ovs_assert(n_received == n_queued);

    /* What was dropped can be told from a message in flight by its age. */
    xnanosleep(20000000);
    ovs_assert(upcall_cost_queue_empty(queue)
               == n_dropped + (same ? n_queued : 0));
}

/* As many messages as there is room for in a socket of Open vSwitch's, which
 * nobody receives from meanwhile: the time of each is known. */
static void
check_full_socket(void)
{
    size_t n_queued = 0, n_received = 0;
    struct upcall_cost_queue *queue;
    int size = 4 * 1024 * 1024;
    char *error;
    uint64_t ns;

    ovs_assert(!setsockopt(rx, SOL_SOCKET, SO_RCVBUFFORCE, &size,
                           sizeof size));
    queue = upcall_cost_queue_attach(rx, &error);
    ovs_assert(queue);
    while (send_message(n_queued, UPCALL_LEN)) {
        n_queued++;
    }
    ovs_assert(n_queued > 6000);
    while ((ns = receive(queue)) != UINT64_MAX) {
        ovs_assert(ns);
        n_received++;
    }
    ovs_assert(n_received == n_queued);
    upcall_cost_queue_detach(queue);
}

/* Returns the least file descriptor that is not in use. */
static int
free_fd(void)
{
    int fd = dup(rx);

    ovs_assert(fd >= 0);
    close(fd);
    return fd;
}

/* The queue can't be watched while the process may have no more files open
 * than it has, or one more, and so on.  Prints why, each reason once, and
 * checks that nothing is left of it. */
static void
check_few_files(void)
{
    int first = free_fd();
    struct rlimit before;
    char *last = NULL;

    ovs_assert(!getrlimit(RLIMIT_NOFILE, &before));
    for (int n = 0;; n++) {
        struct rlimit limit = { .rlim_cur = first + n,
                                .rlim_max = before.rlim_max };
        struct upcall_cost_queue *queue;
        char *error;

        ovs_assert(!setrlimit(RLIMIT_NOFILE, &limit));
        queue = upcall_cost_queue_attach(rx, &error);
        ovs_assert(!setrlimit(RLIMIT_NOFILE, &before));
        if (queue) {
            check_times(queue, LEN);
            upcall_cost_queue_detach(queue);
            break;
        }
        if (!last || strcmp(error, last)) {
            printf("%s\n", error);
        }
        free(last);
        last = error;
        ovs_assert(free_fd() == first);
    }
    free(last);
    ovs_assert(free_fd() == first);
}

/* The kernel refuses to map memory that is shared from now on. */
static void
refuse_shared_memory(void)
{
#ifdef __NR_mmap2
    const unsigned int nr = __NR_mmap2;
#else
    const unsigned int nr = __NR_mmap;
#endif
#ifdef WORDS_BIGENDIAN
    const size_t flags = offsetof(struct seccomp_data, args[3]) + 4;
#else
    const size_t flags = offsetof(struct seccomp_data, args[3]);
#endif
    struct sock_filter insns[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { ARRAY_SIZE(insns), insns };

    ovs_assert(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    ovs_assert(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void
test_upcall_cost_queue(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    struct upcall_cost_queue *queue;
    char msg[LEN];
    char *error;
    int fd;

    set_print();
    make_sockets();
    queue = upcall_cost_queue_attach(rx, &error);
    if (!queue) {
        printf("%s\n", error);
        free(error);
        exit(77);
    }

    check_times(queue, LEN);
    check_times(queue, 64);
    for (int i = 0; i < 3; i++) {
        check_overrun(queue, false);
        check_times(queue, LEN);
        check_overrun(queue, true);
        check_times(queue, LEN);
    }

    /* A message that was sent before anybody watched. */
    upcall_cost_queue_detach(queue);
    ovs_assert(send_message(1, LEN));
    queue = upcall_cost_queue_attach(rx, &error);
    ovs_assert(queue);
    ovs_assert(!receive(queue));
    check_times(queue, LEN);
    upcall_cost_queue_detach(queue);

    check_full_socket();

    /* Something that is not a socket. */
    queue = upcall_cost_queue_attach(-1, &error);
    ovs_assert(!queue);
    printf("%s\n", error);
    free(error);

    check_few_files();

    /* No memory to share with the kernel: the socket works as before. */
    fd = free_fd();
    refuse_shared_memory();
    queue = upcall_cost_queue_attach(rx, &error);
    ovs_assert(!queue);
    printf("%s\n", error);
    free(error);
    ovs_assert(free_fd() == fd);
    ovs_assert(n_printed);
    ovs_assert(send_message(1, LEN));
    ovs_assert(recv(rx, msg, sizeof msg, MSG_DONTWAIT) == LEN);
    close(tx);
    close(rx);
}

#else /* !HAVE_LIBBPF */

static void
test_upcall_cost_queue(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    printf("built without libbpf\n");
    exit(77);
}

#endif

OVSTEST_REGISTER("test-upcall-cost-queue", test_upcall_cost_queue);
