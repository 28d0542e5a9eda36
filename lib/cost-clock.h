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
 * Reads a clock in ticks, whose differences are converted to nanoseconds only
 * when they are recorded.  A tick is one of:
 *
 *    - the CPU's time stamp counter, when it runs at a constant rate in all
 *      power states and the kernel has not found it to be unstable (x86-64),
 *      or the generic timer (arm64).
 *
 *    - a nanosecond of CLOCK_MONOTONIC, otherwise.
 *
 *    - whatever a test has set with "cost/set-test-clock".
 *
 *
 * Thread-safety
 * =============
 *
 * All functions may be called by any thread, after cost_clock_init() has
 * returned once.
 */

enum cost_clock_source {
    COST_CLOCK_MONOTONIC,
    COST_CLOCK_TSC,
    COST_CLOCK_TEST
};

/* Nanoseconds in a tick are 'mult' / 2**COST_CLOCK_SHIFT, less than 256. */
#define COST_CLOCK_SHIFT 24

struct cost_clock {
    atomic_int source;                  /* One of COST_CLOCK_*. */
    atomic_uint32_t mult;
};
extern struct cost_clock cost_clock;

void cost_clock_init(void);
const char *cost_clock_name(void);
double cost_clock_drift_ppm(void);
void cost_clock_dummy_register(void);

uint64_t cost_clock_now__(int source, const char *event);

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
 * one kind of events. */
static inline uint64_t
cost_clock_now(const char *event)
{
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    return (OVS_LIKELY(source == COST_CLOCK_TSC)
            ? cost_clock_tsc()
            : cost_clock_now__(source, event));
}

/* Like cost_clock_now(), for a caller that has just read the CPU's time stamp
 * counter itself, on x86-64: saves reading it again when it is the clock. */
static inline uint64_t
cost_clock_now_tsc(const char *event, uint64_t tsc OVS_UNUSED)
{
#if defined(__x86_64__)
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    return (OVS_LIKELY(source == COST_CLOCK_TSC)
            ? tsc
            : cost_clock_now__(source, event));
#else
    return cost_clock_now(event);
#endif
}

/* Returns the ticks from 'from' to 'to'.  The time stamp counters of two CPUs
 * may differ by a few ticks. */
static inline uint64_t
cost_clock_between(uint64_t from, uint64_t to)
{
    return OVS_LIKELY(to > from) ? to - from : 0;
}

/* Returns how many nanoseconds 'ticks', a difference between two readings,
 * are. */
static inline uint64_t
cost_clock_ns(uint64_t ticks)
{
    uint64_t ns;
    uint32_t mult;

    atomic_read_relaxed(&cost_clock.mult, &mult);
    ns = (ticks & UINT32_MAX) * mult >> COST_CLOCK_SHIFT;
    if (OVS_UNLIKELY(ticks > UINT32_MAX)) {
        ns += (ticks >> 32) * mult << (32 - COST_CLOCK_SHIFT);
    }
    return ns;
}

#endif /* cost-clock.h */
