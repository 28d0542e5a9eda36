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

#ifndef TX_COST_COUNTERS_H
#define TX_COST_COUNTERS_H 1

/* Cycles and instructions that it takes to send a burst.
 * ======================================================
 *
 * The processor's performance counters, of each thread that sends bursts.
 * Reading them is a system call, so that this does nothing unless it is
 * configured, and only counts the bursts that are timed.
 *
 * A thread opens its counters when it first needs them, and closes them when
 * it needs them no more or exits.  What the two system calls themselves take
 * between the readings is measured at first, and taken off.
 *
 * Linux only.  Elsewhere, opening the counters fails. */

void tx_cost_counters_init(void);

#endif /* tx-cost-counters.h */
