/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what it takes to add up a flow's statistics of another CPU, as the
 * kernel datapath does: to take a lock, read, and release the lock, for each
 * of many entries that the other CPU has just written.
 *
 *     cc -O2 -pthread -o flow-stats bench/flow-stats.c
 *     ./flow-stats CPU CPU
 *
 * The first CPU reads, the second one writes. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define N_ENTRIES 200000
#define N_ROUNDS 41

/* As the kernel's 'struct sw_flow_stats'. */
struct entry {
    uint64_t packet_count;
    uint64_t byte_count;
    uint64_t used;
    atomic_int lock;
    uint16_t tcp_flags;
};

static struct entry entries[N_ENTRIES];
static struct entry *order[N_ENTRIES];
static pthread_barrier_t barrier;

static void
use_cpu(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) {
        perror("sched_setaffinity");
        exit(EXIT_FAILURE);
    }
}

static void
entry_lock(struct entry *entry)
{
    int unlocked = 0;

    while (!atomic_compare_exchange_weak_explicit(
               &entry->lock, &unlocked, 1,
               memory_order_acquire, memory_order_relaxed)) {
        unlocked = 0;
    }
}

static void
entry_unlock(struct entry *entry)
{
    atomic_store_explicit(&entry->lock, 0, memory_order_release);
}

static void *
write_entries(void *cpu)
{
    use_cpu(*(int *) cpu);
    for (int i = 0; i < N_ROUNDS; i++) {
        for (int j = 0; j < N_ENTRIES; j++) {
            entry_lock(order[j]);
            order[j]->packet_count++;
            order[j]->byte_count += 64;
            order[j]->used = i;
            entry_unlock(order[j]);
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static double
now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static int
compare(const void *a_, const void *b_)
{
    const double *a = a_;
    const double *b = b_;

    return *a < *b ? -1 : *a > *b;
}

int
main(int argc, char *argv[])
{
    double ns[N_ROUNDS];
    uint64_t sum = 0;
    pthread_t writer;
    int writer_cpu;

    if (argc != 3) {
        fprintf(stderr, "usage: %s READER-CPU WRITER-CPU\n", argv[0]);
        return EXIT_FAILURE;
    }
    use_cpu(atoi(argv[1]));
    writer_cpu = atoi(argv[2]);

    srand(1);
    for (int i = 0; i < N_ENTRIES; i++) {
        int j = rand() % (i + 1);

        order[i] = order[j];
        order[j] = &entries[i];
    }
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&writer, NULL, write_entries, &writer_cpu);
    for (int i = 0; i < N_ROUNDS; i++) {
        double start;

        pthread_barrier_wait(&barrier);
        start = now_ns();
        for (int j = 0; j < N_ENTRIES; j++) {
            entry_lock(order[j]);
            sum += order[j]->packet_count + order[j]->byte_count
                   + order[j]->used;
            entry_unlock(order[j]);
        }
        ns[i] = (now_ns() - start) / N_ENTRIES;
        pthread_barrier_wait(&barrier);
    }
    pthread_join(writer, NULL);

    qsort(ns, N_ROUNDS, sizeof ns[0], compare);
    printf("%zu bytes, %.1f ns an entry, median of %d rounds, %.1f to %.1f"
           " (sum %llu)\n", sizeof entries[0], ns[N_ROUNDS / 2], N_ROUNDS,
           ns[0], ns[N_ROUNDS - 1], (unsigned long long) sum);
    return EXIT_SUCCESS;
}
