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

#ifndef COST_HISTORY_H
#define COST_HISTORY_H 1

#include <stdbool.h>
#include <stdint.h>
#include "cost-book.h"

struct cost_history;

/* What books had in the past.
 * ===========================
 *
 * At each tick, the numbers of a thread are copied, if they have changed since
 * the tick before.  The present numbers minus a copy are what has happened
 * since then.  COST_TICKS_* say which copies are kept.  A copy has only
 * numbers that are not 0, in as few bytes as they need.  The slowest events
 * are not in copies: each has the tick that it is before.  A thread that
 * can't be read at a tick keeps its copy of the tick before, so its numbers
 * are of a longer time.
 *
 * The numbers of a thread that exits are added to those of "exited", so that
 * its copies are copies of these from then on: until 'end', the first tick at
 * which a copy of "exited" has them.
 *
 *
 * Thread-safety
 * =============
 *
 * None: the lock of an account guards its list of histories, and that of all
 * accounts those of deleted ones. */

/* Bytes that all copies may take, and what one tick adds to them. */
#define COST_HISTORY_MAX (16 * 1024 * 1024)

bool cost_history_has(uint64_t tick, uint64_t latest);
uint64_t cost_history_size(void);
void cost_history_copy(struct cost_history **, const void *thread,
                       uint64_t oldest, uint64_t tick,
                       const struct cost_book *);
void cost_history_subtract(const struct cost_history *, const void *thread,
                           uint64_t tick, uint64_t tick_us,
                           struct cost_book *);
void cost_history_exit(struct cost_history *, const void *thread,
                       uint64_t end);
void cost_history_move(struct cost_history **dst, struct cost_history **src,
                       uint64_t end);
void cost_history_expire(struct cost_history **, uint64_t end);

#endif /* cost-history.h */
