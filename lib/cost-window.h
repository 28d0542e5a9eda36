/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_WINDOW_H
#define COST_WINDOW_H 1

#include <stdbool.h>
#include <stdint.h>
#include "cost-book.h"

/* What was counted in the last minutes.
 * =====================================
 *
 * At each tick, every COST_TICK_MS, the sampler copies the numbers of the 256
 * most active accounts of each kind, see cost_recorder_activity(), and of 256
 * of their recorders at most.  The present numbers minus a copy are a window.
 * All of the latest ticks are kept, and one in COST_TICKS_STEP of the older
 * ones.
 *
 * A copy belongs to an owner, which is identified by an address: an account, a
 * recorder, or 'exited' of an account, the heir of recorders that are gone.
 * The heir of accounts is one of each kind, "deleted".  When an owner is gone,
 * its copies are added to those of its heir.
 *
 *
 * Thread-safety
 * =============
 *
 * Any thread may call any function, except that one thread makes all ticks and
 * copies. */

#define COST_TICK_MS 10000

/* Kept are the latest COST_TICKS_EACH ticks and, of the COST_TICKS_MAX latest,
 * one in COST_TICKS_STEP. */
#define COST_TICKS_EACH 8
#define COST_TICKS_STEP 6
#define COST_TICKS_MAX 102

/* Bytes that all copies may take before a tick adds its own.  The oldest ones
 * are freed. */
#define COST_WINDOW_MAX (20 * 1024 * 1024)

/* A moment at which numbers were copied. */
struct cost_tick {
    uint64_t number;                    /* 0 for none. */
    long long int ms;                   /* time_msec(). */
    long long int us;                   /* Time of day. */
};

void cost_tick_begin(const struct cost_tick *);
void cost_tick_find(long long int last_ms, struct cost_tick *);

void cost_window_copy(const void *owner, const struct cost_book *);
bool cost_window_repeat(const void *owner);
bool cost_window_subtract(const void *owner, bool later, struct cost_tick *,
                          struct cost_book *);
void cost_window_pass(const void *owner, const void *heir,
                      uint64_t since_tick, const struct cost_book *);
void cost_window_forget(const void *owner);

#endif /* cost-window.h */
