/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>
#undef NDEBUG

#include "tx-cost.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>

#include "command-line.h"
#include "cost.h"
#include "cost-clock.h"
#include "latch.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "ovstest.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

/* Times that bursts wait, and that sending them takes, in ns, are these, from
 * 0.2 to 50 us. */
enum { N_TIMES = 9973 };

/* In the end, the numbers are copied so often, after so many bursts of each
 * thread to each port. */
enum { N_TICKS = 110, N_TICK_BURSTS = 64 };

/* Packets in a burst. */
enum { MAX_PACKETS = 32 };

/* A thread that sends to all ports. */
struct sender {
    struct tx_cost *ports;
    size_t n_ports;
    unsigned int n_bursts;              /* To each port. */
};

static void *
send_bursts(void *sender_)
{
    static const enum tx_cost_counter reasons[] = {
        TX_COST_FULL, TX_COST_ITERATION
    };
    struct sender *sender = sender_;

    for (unsigned int i = 0; i < sender->n_bursts; i++) {
        for (size_t j = 0; j < sender->n_ports; j++) {
            struct tx_cost *tx = &sender->ports[j];

            tx_cost_queue(tx);
            tx_cost_begin(tx, 0, false);
            tx_cost_end(tx, reasons[i % ARRAY_SIZE(reasons)],
                        1 + (i + j) % MAX_PACKETS, true, 0, false);
        }
        ovsrcu_quiesce();
    }
    return NULL;
}

/* Returns the memory of this process, in bytes. */
static uint64_t
resident(void)
{
    static const char path[] = "/proc/self/statm";
    FILE *stream = fopen(path, "r");
    unsigned long int pages;

    if (!stream || fscanf(stream, "%*u %lu", &pages) != 1) {
        ovs_fatal(errno, "%s", path);
    }
    fclose(stream);
    return pages * get_page_size();
}

/* Prints what all ports take 'when' this is called, after waiting until what
 * is free has been given back: what is accounted for, by how much the process
 * has grown from 'before' bytes, and that for each port. */
static void
print_memory(const char *when, uint64_t before, size_t n_ports)
{
    struct latch given_back;
    uint64_t accounted, now;

    latch_init(&given_back);
    ovsrcu_postpone(latch_set, &given_back);
    while (!latch_is_set(&given_back)) {
        xnanosleep(1000000);
    }
    latch_destroy(&given_back);
    accounted = cost_memory_used();
    now = resident();
    printf("%s: %.2f MB, %.2f MB resident, %"PRIu64" bytes a port\n", when,
           accounted / 1e6, (now - MIN(before, now)) / 1e6,
           accounted / n_ports);
}

/* Has each of 'senders' send 'n_bursts' to each port, one thread after the
 * other: all of them advance the same clock. */
static void
send_all(struct sender *senders, size_t n, unsigned int n_bursts)
{
    for (size_t i = 0; i < n; i++) {
        pthread_t thread;

        senders[i].n_bursts = n_bursts;
        thread = ovs_thread_create("sender", send_bursts, &senders[i]);
        /* What it replaces is given back meanwhile. */
        ovsrcu_quiesce_start();
        xpthread_join(thread, NULL);
        ovsrcu_quiesce_end();
    }
}

/* "memory PORTS THREADS BURSTS": shows what accounting for bursts takes,
 * before any, when each thread has sent one to each port, when it has sent so
 * many, and after 18 minutes more of bursts: copies of the last 17 minutes
 * are kept. */
static void
show_memory(struct ovs_cmdl_context *ctx)
{
    unsigned int n_ports, n_threads, n_bursts;
    struct cost_account **accounts;
    static uint64_t times[N_TIMES];
    struct sender *senders;
    uint64_t before;

    if (!str_to_uint(ctx->argv[1], 10, &n_ports)
        || !str_to_uint(ctx->argv[2], 10, &n_threads)
        || !str_to_uint(ctx->argv[3], 10, &n_bursts)
        || !n_ports || !n_threads || !n_bursts) {
        ovs_fatal(0, "positive numbers are expected");
    }
    for (size_t i = 0; i < N_TIMES; i++) {
        times[i] = 200 * pow(250, random_range(1000) / 1000.0);
    }
    cost_clock_set_test(NULL, times, N_TIMES);
    time_msec();
    timeval_stop();
    cost_config_register(&tx_cost_config);

    accounts = xmalloc(n_ports * sizeof *accounts);
    senders = xmalloc(n_threads * sizeof *senders);
    before = resident();
    for (size_t i = 0; i < n_ports; i++) {
        char *name = xasprintf("port%"PRIuSIZE, i);

        accounts[i] = cost_account_create(&tx_cost_kind, name,
                                          "netdev@ovs-netdev");
        free(name);
    }
    for (size_t i = 0; i < n_threads; i++) {
        char *name = xasprintf("pmd-c%02"PRIuSIZE, i);

        senders[i].ports = xmalloc(n_ports * sizeof *senders[i].ports);
        senders[i].n_ports = n_ports;
        for (size_t j = 0; j < n_ports; j++) {
            tx_cost_init(&senders[i].ports[j], accounts[j], name, NULL);
        }
        free(name);
    }
    print_memory("idle", before, n_ports);

    send_all(senders, n_threads, 1);
    print_memory("a burst each", before, n_ports);
    send_all(senders, n_threads, n_bursts);
    print_memory("many bursts", before, n_ports);
    for (int i = 0; i < N_TICKS; i++) {
        send_all(senders, n_threads, N_TICK_BURSTS);
        timeval_warp(COST_TICK_MS);
        cost_accounts_copy();
    }
    print_memory("18 minutes", before, n_ports);

    for (size_t i = 0; i < n_threads; i++) {
        for (size_t j = 0; j < n_ports; j++) {
            cost_recorder_destroy(senders[i].ports[j].recorder);
        }
        free(senders[i].ports);
    }
    for (size_t i = 0; i < n_ports; i++) {
        cost_account_destroy(accounts[i]);
    }
    free(accounts);
    free(senders);
}

/* Ports of which not all are copied at a tick. */
enum { N_PORTS = 300, N_COPIED = 256, N_REST = N_PORTS - N_COPIED };

/* Sends 'n' bursts of a packet to 'tx'. */
static void
send_to(struct tx_cost *tx, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tx_cost_queue(tx);
        tx_cost_begin(tx, 0, false);
        tx_cost_end(tx, TX_COST_FULL, 1, true, 0, false);
    }
}

/* Sends 'n_first' bursts to each of the first ports, and 'n_others' to each of
 * the others, in 'ms' milliseconds. */
static void
send_to_all(struct tx_cost ports[], size_t n_first, size_t n_others, int ms)
{
    for (size_t i = 0; i < N_PORTS; i++) {
        send_to(&ports[i], i < N_REST ? n_first : n_others);
    }
    timeval_warp(ms);
}

/* Checks that, in the last 'last_s' seconds, ports 'first' to 'last' have sent
 * 'n' bursts, which is known of the last 'elapsed_s' seconds, or not at all if
 * that is 0. */
static void
check_window(int last_s, size_t first, size_t last, int elapsed_s, uint64_t n)
{
    static const struct cost_kind *const kinds[] = { &tx_cost_kind };
    struct cost_accounts all;

    cost_accounts_get(kinds, 1, NULL, last_s * 1000, &all);
    ovs_assert(all.n == N_PORTS && all.from.number);
    for (size_t i = first; i <= last; i++) {
        struct cost_reading reading;
        bool known = cost_account_read(all.accounts[i], &all.from, &reading);

        ovs_assert(known == (elapsed_s != 0));
        if (known) {
            ovs_assert(cost_book_events(&reading.total, COST_ALL_CLASSES)
                       == n);
            ovs_assert(reading.elapsed_ms == elapsed_s * 1000);
            cost_reading_uninit(&reading);
        }
    }
    cost_accounts_put(&all);
}

/* "windows": of more accounts than are copied, the most active ones have a
 * window from a tick on, and others from the first one at which they are twice
 * as active as one that has. */
static void
check_windows(struct ovs_cmdl_context *ctx OVS_UNUSED)
{
    struct cost_account *accounts[N_PORTS];
    struct tx_cost ports[N_PORTS];
    const uint64_t no_time = 0;

    cost_clock_set_test(NULL, &no_time, 1);
    time_msec();
    timeval_stop();
    for (size_t i = 0; i < N_PORTS; i++) {
        char *name = xasprintf("port%03"PRIuSIZE, i);

        accounts[i] = cost_account_create(&tx_cost_kind, name,
                                          "netdev@ovs-netdev");
        tx_cost_init(&ports[i], accounts[i], "main", NULL);
        free(name);
    }

    /* The first ports are the least active ones. */
    for (size_t i = 0; i < N_PORTS; i++) {
        send_to(&ports[i], i + 1);
    }
    cost_accounts_copy();

    /* They are more active than others, but not twice as much. */
    send_to_all(ports, 15, 10, COST_TICK_MS);
    check_window(10, 0, N_REST - 1, 0, 0);
    check_window(10, N_REST, N_PORTS - 1, 10, 10);
    cost_accounts_copy();

    /* Then they are, and the last ones of the others are not copied. */
    send_to_all(ports, 30, 10, COST_TICK_MS);
    check_window(10, 0, N_REST - 1, 0, 0);
    check_window(10, N_REST, N_PORTS - 1, 10, 10);
    cost_accounts_copy();
    send_to_all(ports, 20, 20, 5000);
    check_window(5, 0, N_COPIED - 1, 5, 20);
    check_window(5, N_COPIED, N_PORTS - 1, 0, 0);
    check_window(25, 0, N_REST - 1, 5, 20);
    check_window(25, N_REST, N_PORTS - 1, 25, 40);

    for (size_t i = 0; i < N_PORTS; i++) {
        cost_recorder_destroy(ports[i].recorder);
        cost_account_destroy(accounts[i]);
    }
    printf("ok\n");
}

static const struct ovs_cmdl_command commands[] = {
    { "memory", "ports threads bursts", 3, 3, show_memory, OVS_RO },
    { "windows", NULL, 0, 0, check_windows, OVS_RO },
    { NULL, NULL, 0, 0, NULL, OVS_RO },
};

static void
test_tx_cost_main(int argc, char *argv[])
{
    struct ovs_cmdl_context ctx = {
        .argc = argc - optind,
        .argv = argv + optind,
    };

    set_program_name(argv[0]);
    ovs_cmdl_run_command(&ctx, commands);
}

OVSTEST_REGISTER("test-tx-cost", test_tx_cost_main);
