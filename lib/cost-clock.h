/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_CLOCK_H
#define COST_CLOCK_H 1

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ovs-atomic.h"
#include "util.h"

/* Clock for cost accounting.
 * ==========================
 *
 * Reads a clock in ticks, whose differences are converted to nanoseconds when
 * an event ends.  A tick is one of:
 *
 *    - the CPU's time stamp counter (x86-64) or generic timer (arm64), if it
 *      runs at a constant rate and the kernel's own clock is made of it.
 *
 *    - a nanosecond of CLOCK_MONOTONIC, otherwise.
 *
 *    - a nanosecond of a clock that each reading moves by a step, which a test
 *      has set with "cost/set-test-clock".
 *
 * The kernel watches the counter, and stops using it when it cannot be
 * trusted.  cost_clock_run() then stops using it, too, for good.  Readings
 * before and after such a change differ by more than COST_CLOCK_MAX_NS: an
 * event that took so long is counted, but its times are not.  The time of an
 * event that ends in the moment of the change may be off by the ratio of the
 * two rates.
 *
 *
 * Thread-safety
 * =============
 *
 * All functions may be called by any thread, after cost_clock_init() has
 * returned once, except that only the main loop calls cost_clock_run(). */

/* For a function that recording an event calls now and then: were it inlined,
 * recording would have to save registers for it each time. */
#if __GNUC__
#define COST_COLD __attribute__((__noinline__, __cold__))
#else
#define COST_COLD
#endif

enum cost_clock_source {
    COST_CLOCK_MONOTONIC,
    COST_CLOCK_TSC,
    COST_CLOCK_TEST
};

/* Nanoseconds in a tick are 'mult' / 2**COST_CLOCK_SHIFT, less than 256. */
#define COST_CLOCK_SHIFT 24

/* No event takes longer: an hour. */
#define COST_CLOCK_MAX_NS UINT64_C(3600000000000)

/* What cost_clock_ns() returns for a longer time. */
#define COST_CLOCK_UNKNOWN UINT64_MAX

struct cost_clock {
    atomic_int source;                  /* One of COST_CLOCK_*. */
    atomic_uint32_t mult;
};
extern struct cost_clock cost_clock;

void cost_clock_init(void);
void cost_clock_run(void);
const char *cost_clock_name(void);

uint64_t cost_clock_monotonic(void);
uint64_t cost_clock_now__(const char *event);

/* Returns the CPU's time stamp counter, or 0 where there is none. */
static inline uint64_t
cost_clock_tsc(void)
{
#if defined(__x86_64__)
    uint32_t lo, hi;

    asm volatile("rdtsc" : "=a" (lo), "=d" (hi));
    return (uint64_t) hi << 32 | lo;
#elif defined(__aarch64__)
    uint64_t ticks;

    asm volatile("mrs %0, cntvct_el0" : "=r" (ticks));
    return ticks;
#else
    return 0;
#endif
}

/* Returns the clock's present reading, in ticks.  'event' is the name of what
 * is measured, such as "upcall": in a test, the clock may advance only for
 * one kind of events.  'tsc' is 0, or what the caller has just read from the
 * CPU's time stamp counter, which may save reading it again. */
static inline uint64_t
cost_clock_now(const char *event, uint64_t tsc OVS_UNUSED)
{
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    if (OVS_UNLIKELY(source != COST_CLOCK_TSC)) {
        return cost_clock_now__(event);
    }
#if defined(__x86_64__)
    if (tsc) {
        return tsc;
    }
#endif
    return cost_clock_tsc();
}

/* Returns the ticks from 'from' to 'to'.  Returns 0 if 'to' is a little less,
 * as it may be if the two were read on different CPUs. */
static inline uint64_t
cost_clock_ticks(uint64_t from, uint64_t to)
{
    return OVS_LIKELY(to >= from) || from - to > UINT32_MAX ? to - from : 0;
}

/* Returns how many nanoseconds 'ticks', from cost_clock_ticks(), are.  Returns
 * COST_CLOCK_UNKNOWN if they are more than COST_CLOCK_MAX_NS. */
static inline uint64_t
cost_clock_ns(uint64_t ticks)
{
    uint32_t mult;
    uint64_t ns;

    atomic_read_relaxed(&cost_clock.mult, &mult);
    if (OVS_LIKELY(ticks <= UINT32_MAX)) {
        return ticks * mult >> COST_CLOCK_SHIFT;
    }
    ns = (((ticks & UINT32_MAX) * mult >> COST_CLOCK_SHIFT)
          + ((ticks >> 32) * mult << (32 - COST_CLOCK_SHIFT)));
    return (OVS_LIKELY(ticks >> 54 == 0 && ns <= COST_CLOCK_MAX_NS)
            ? ns : COST_CLOCK_UNKNOWN);
}

/* For tests. */
extern const char *cost_clock_kernel_file;
void cost_clock_set_test(const char *event, const uint64_t *steps,
                         size_t n_steps);
void cost_clock_dummy_register(void);

#endif /* cost-clock.h */
