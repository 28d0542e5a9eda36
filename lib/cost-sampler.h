/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_SAMPLER_H
#define COST_SAMPLER_H 1

#include <stdint.h>

/* A thread for work that no recording thread may wait for: it reads the
 * scheduler's counters twice a second, copies numbers for the windows of the
 * last minutes, logs slow events, and keeps the flight recorder's events
 * around one. */

#define COST_SAMPLE_NS UINT64_C(500000000)

void cost_sampler_init(void);

#endif /* cost-sampler.h */
