/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>
#undef NDEBUG

#include "upcall-cost-kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dpif-provider.h"
#include "ovstest.h"
#include "smap.h"
#include "util.h"

#ifdef __linux__

#include <linux/netlink.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

/* A sender and a receiver.  The kernel drops, and counts, the messages to a
 * group that the receiver has no room for, as it does with upcalls. */
static int tx, rx;
static size_t n_sent;
static atomic_count n_received = ATOMIC_COUNT_INIT(0);

static struct upcall_cost_socket *upcall_socket;
static atomic_bool stop = false;

/* Opens the sockets in a namespace of their own, where nobody else is in the
 * group.  Returns false if that is not possible. */
static bool
open_sockets(void)
{
    struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = 1 };
    int size = 4096;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) && unshare(CLONE_NEWNET)) {
        return false;
    }
    tx = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);
    rx = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);
    ovs_assert(tx >= 0 && rx >= 0);
    ovs_assert(!setsockopt(rx, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
    ovs_assert(!bind(rx, (struct sockaddr *) &addr, sizeof addr));
    return true;
}

static void
send_messages(size_t n)
{
    struct sockaddr_nl addr = { .nl_family = AF_NETLINK, .nl_groups = 1 };
    struct nlmsghdr nlmsg = { .nlmsg_len = sizeof nlmsg };

    for (size_t i = 0; i < n; i++) {
        /* The error is about who gets it apart from the group: nobody. */
        ovs_assert(sendto(tx, &nlmsg, sizeof nlmsg, 0,
                          (struct sockaddr *) &addr, sizeof addr) < 0);
        ovs_assert(errno == ECONNREFUSED);
        n_sent++;
    }
}

/* Receives until there is nothing left.  If 'tell', does for 'upcall_socket'
 * what lib/dpif-netlink.c does. */
static void
receive_messages(bool tell)
{
    for (;;) {
        struct nlmsghdr nlmsg;

        if (recv(rx, &nlmsg, sizeof nlmsg, MSG_DONTWAIT) > 0) {
            atomic_count_inc(&n_received);
        } else if (errno == ENOBUFS) {
            if (tell) {
                upcall_cost_socket_overrun(upcall_socket);
            }
        } else {
            ovs_assert(errno == EAGAIN);
            if (tell) {
                upcall_cost_socket_empty(upcall_socket);
            }
            break;
        }
    }
}

/* Returns how many messages have ever been lost, when all others have been
 * received. */
static size_t
n_lost(void)
{
    return n_sent - atomic_count_get(&n_received);
}

/* Sends more messages than there is room for, and receives the others.
 * Returns how many were lost. */
static size_t
flood(bool tell)
{
    size_t before = n_lost();

    send_messages(100);
    receive_messages(tell);
    ovs_assert(n_lost() > before);
    return n_lost() - before;
}

/* Returns false if the kernel does not tell how many messages it has dropped,
 * as before Linux 4.12. */
static bool
kernel_counts(void)
{
    uint32_t meminfo[16];
    socklen_t len = sizeof meminfo;

    return (!getsockopt(rx, SOL_SOCKET, SO_MEMINFO, meminfo, &len)
            && len >= 9 * sizeof *meminfo);
}

static const struct cost_kind *const kinds[] = { &upcall_cost_kernel_kind };

static uint64_t
n_counted(void)
{
    struct cost_reading reading;
    struct cost_block *sum;
    struct cost_accounts all;
    uint64_t n;

    cost_accounts_get(kinds, 1, "system@test", 0, &all);
    ovs_assert(all.n == 1);
    ovs_assert(cost_account_read(all.accounts[0], &all.from, &reading));
    sum = cost_book_sum(&reading.total, COST_ALL_CLASSES);
    n = cost_load(&sum->counters[UPCALL_COST_LOST_OVERRUN]);
    cost_block_destroy(sum);
    cost_reading_uninit(&reading);
    cost_accounts_put(&all);
    return n;
}

/* Returns how many losses deleted accounts have. */
static uint64_t
n_deleted(void)
{
    struct cost_accounts all;
    struct cost_block *sum;
    uint64_t n;

    cost_accounts_get(kinds, 1, NULL, 0, &all);
    sum = cost_book_sum(&all.deleted->book, COST_ALL_CLASSES);
    n = cost_load(&sum->counters[UPCALL_COST_LOST_OVERRUN]);
    cost_block_destroy(sum);
    cost_accounts_put(&all);
    return n;
}

static void
clear(void)
{
    ovs_assert(cost_accounts_clear(kinds, 1, "system@test") == 1);
}

static void
switch_accounting(bool on)
{
    struct smap config = SMAP_INITIALIZER(&config);

    smap_add(&config, "cost-accounting", on ? "true" : "false");
    cost_configure(&config);
    smap_destroy(&config);
}

static void *
receive_until_stopped(void *unused OVS_UNUSED)
{
    bool stopped;

    do {
        atomic_read(&stop, &stopped);
        receive_messages(true);
    } while (!stopped);
    return NULL;
}

static void
test_upcall_cost_kernel(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    static const struct dpif_class class = { .type = "system" };
    struct upcall_cost_socket *other_socket;
    struct cost_account *account;
    struct dpif dpif, other;
    pthread_t threads[2];
    size_t n, before;

    if (!open_sockets()) {
        exit(77);
    }
    dpif_init(&dpif, &class, "test", 0, 0);
    dpif_init(&other, &class, "other", 0, 0);
    account = upcall_cost_kernel_create(&dpif);
    upcall_socket = upcall_cost_socket_create(&dpif, rx, true);
    receive_messages(false);
    if (!kernel_counts()) {
        exit(77);
    }
    ovs_assert(flood(false) == n_counted());

    /* Whoever looks first counts what was lost, once. */
    clear();
    ovs_assert(!n_counted());
    n = flood(false);
    ovs_assert(n_counted() == n);
    n += flood(true);
    ovs_assert(n_counted() == n && n_counted() == n);

    /* A handler that is told of it while messages are still being lost. */
    before = n_lost();
    send_messages(50);
    upcall_cost_socket_overrun(upcall_socket);
    send_messages(50);
    receive_messages(false);
    n += n_lost() - before;
    ovs_assert(n_counted() == n);

    /* Nothing that was lost before the account was cleared counts. */
    flood(false);
    clear();
    ovs_assert(!n_counted());
    n = flood(true);

    /* What nobody has counted yet when accounting is switched off counts, but
     * nothing that is lost while it is off. */
    n += flood(false);
    switch_accounting(false);
    ovs_assert(n_counted() == n);
    flood(false);
    flood(true);
    ovs_assert(n_counted() == n);
    flood(false);
    switch_accounting(true);
    ovs_assert(n_counted() == n);
    n += flood(false);
    ovs_assert(n_counted() == n);

    /* A report while handlers receive. */
    before = n_lost();
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        threads[i] = ovs_thread_create("handler", receive_until_stopped, NULL);
    }
    for (size_t i = 0; i < 100; i++) {
        send_messages(50);
        n_counted();
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        xpthread_join(threads[i], NULL);
    }
    n += n_lost() - before;
    ovs_assert(n_counted() == n);

    /* A socket of another datapath, which has no account. */
    n += flood(false);
    upcall_cost_socket_destroy(upcall_socket);
    ovs_assert(n_counted() == n);
    other_socket = upcall_cost_socket_create(&other, rx, true);
    flood(false);
    ovs_assert(n_counted() == n);
    upcall_cost_socket_destroy(other_socket);

    /* A datapath that goes before its socket: its losses count. */
    upcall_socket = upcall_cost_socket_create(&dpif, rx, true);
    ovs_assert(n_counted() > n && !n_deleted());
    n = n_counted() + flood(false);
    upcall_cost_kernel_destroy(account);
    ovs_assert(n_deleted() == n);
    upcall_cost_socket_destroy(upcall_socket);
    dpif_uninit(&dpif, false);
    dpif_uninit(&other, false);
    close(tx);
    close(rx);
}

#else /* !__linux__ */

static void
test_upcall_cost_kernel(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    exit(77);
}

#endif

OVSTEST_REGISTER("test-upcall-cost-kernel", test_upcall_cost_kernel);
