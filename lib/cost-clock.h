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

struct ds;
struct json;

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
 * When the counter fails
 * ======================
 *
 * A counter that was reliable at first may cease to be: the kernel may find it
 * unstable, a virtual machine may be paused, restored, or moved to a CPU that
 * runs at another rate.  cost_clock_run() compares the counter with the
 * kernel's clock every few seconds, for the time since it last did that, and
 * so does whoever converts COST_CLOCK_LONG ticks or more, before believing
 * them.  If they disagree, the counter is not used any more.
 *
 * This changes how ticks are read, but not what a tick is: from then on they
 * are made from CLOCK_MONOTONIC, at the counter's rate.  They continue a bit
 * below where the counter should have been, so that an event that began before
 * the change ends with 0 nanoseconds: cost_clock_between() returns 0 if it
 * ends before it began, and cost_clock_ns() if it seems to have taken
 * COST_CLOCK_LONG ticks or more, and longer than it is since the change.
 *
 *
 * Thread-safety
 * =============
 *
 * All functions may be called by any thread, after cost_clock_init() has
 * returned once, except that only one thread may call cost_clock_run().
 */

enum cost_clock_source {
    COST_CLOCK_MONOTONIC,
    COST_CLOCK_TSC,
    COST_CLOCK_TEST
};

/* Nanoseconds in a tick are 'mult' / 2**COST_CLOCK_SHIFT, less than 256, and
 * ticks in a nanosecond 'inverse' / 2**COST_CLOCK_SHIFT.  Once set, they only
 * change for a test. */
#define COST_CLOCK_SHIFT 24

/* So many ticks are converted to nanoseconds only after comparing the counter
 * with the kernel's clock.  That is 7 ms at 2.4 GHz. */
#define COST_CLOCK_LONG (UINT64_C(1) << 24)

struct cost_clock {
    atomic_int source;                  /* One of COST_CLOCK_*. */
    atomic_uint32_t mult;
    atomic_uint32_t inverse;
};
extern struct cost_clock cost_clock;

void cost_clock_init(void);
void cost_clock_run(void);

/* Reporting. */
const char *cost_clock_name(void);
double cost_clock_drift_ppm(void);
void cost_clock_format(struct ds *);
void cost_clock_to_json(struct json *);

uint64_t cost_clock_now__(const char *event);
uint64_t cost_clock_ns__(uint64_t ticks);

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
            : cost_clock_now__(event));
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
            : cost_clock_now__(event));
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

/* Returns 'x' times 'factor' / 2**COST_CLOCK_SHIFT. */
static inline uint64_t
cost_clock_scale(uint64_t x, uint32_t factor)
{
    return (((x & UINT32_MAX) * factor >> COST_CLOCK_SHIFT)
            + ((x >> 32) * factor << (32 - COST_CLOCK_SHIFT)));
}

/* Returns how many nanoseconds 'ticks', a difference between two readings,
 * are. */
static inline uint64_t
cost_clock_ns(uint64_t ticks)
{
    uint32_t mult;

    if (OVS_UNLIKELY(ticks >= COST_CLOCK_LONG)) {
        return cost_clock_ns__(ticks);
    }
    atomic_read_relaxed(&cost_clock.mult, &mult);
    return ticks * mult >> COST_CLOCK_SHIFT;
}

/* Returns how many ticks 'ns' nanoseconds are. */
static inline uint64_t
cost_clock_ticks(uint64_t ns)
{
    uint32_t inverse;

    atomic_read_relaxed(&cost_clock.inverse, &inverse);
    return cost_clock_scale(ns, inverse);
}

/* The counter and the kernel's clock, read together. */
struct cost_clock_sample {
    uint64_t ticks;                     /* The counter. */
    uint64_t ns;                        /* The kernel's clock... */
    uint64_t width;                     /* ...good to plus or minus half of
                                         * this many ns. */
};

void cost_clock_read(struct cost_clock_sample *, uint64_t width);
bool cost_clock_judge(const struct cost_clock_sample *from,
                      const struct cost_clock_sample *to, uint32_t mult,
                      double *gained_ns);
uint64_t cost_clock_continue(const struct cost_clock_sample *from,
                             const struct cost_clock_sample *to,
                             uint32_t inverse);

/* For tests. */

/* What a clock is judged by. */
struct cost_clock_machine {
    /* Is the counter's rate constant, as far as the CPU says? */
    bool (*is_invariant)(void);

    /* Reads the counter and the kernel's clock, with as small a width as can
     * be or, to be quick, with any that is no more than 'width'. */
    void (*sample)(struct cost_clock_sample *, uint64_t width);

    /* The kernel's name of the counter, and the directory that has the files
     * "available_clocksource" and "current_clocksource". */
    const char *counter;
    const char *directory;
};

void cost_clock_set_machine(const struct cost_clock_machine *);
void cost_clock_set_test(const char *event, const uint64_t *steps,
                         size_t n_steps);
void cost_clock_dummy_register(void);

/* A test clock of its own, for events that have to be independent of others:
 * while a test has set the clock, the first reading of each event advances the
 * stepper by 1 us, the next one by 2 us, and so on.  Otherwise, it reads the
 * clock.  An event that has begun in one way ends in the same way.
 *
 * Initialize it to all zeros.  It may only be used by one thread at a time. */
struct cost_clock_stepper {
    uint64_t now;                       /* Latest reading in a test. */
    uint32_t n;                         /* Readings of this event. */
    bool testing;                       /* Did it begin in a test? */
};

/* Returns true if a test has set the clock. */
static inline bool
cost_clock_is_test(void)
{
    int source;

    atomic_read_relaxed(&cost_clock.source, &source);
    return source == COST_CLOCK_TEST;
}

/* Returns true if the latest event of 's' began in a test that is over now, or
 * the other way round, so that its readings and later ones are of different
 * clocks. */
static inline bool
cost_clock_stepper_is_stale(const struct cost_clock_stepper *s)
{
    return s->testing != cost_clock_is_test();
}

/* Returns the present reading of 's', for 'event'. */
static inline uint64_t
cost_clock_stepper_now(struct cost_clock_stepper *s, const char *event)
{
    return (OVS_UNLIKELY(s->testing)
            ? s->now += ++s->n * UINT64_C(1000)
            : cost_clock_now(event));
}

/* Begins an event of 's' and returns its first reading, which may also end the
 * event before, unless that was stale. */
static inline uint64_t
cost_clock_stepper_start(struct cost_clock_stepper *s, const char *event)
{
    s->testing = cost_clock_is_test();
    s->n = 0;
    return cost_clock_stepper_now(s, event);
}

#endif /* cost-clock.h */
