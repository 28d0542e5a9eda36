/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_SAMPLER_H
#define COST_SAMPLER_H 1

#include <stdint.h>

/* A thread for what no thread that records may wait for: it reads what the
 * scheduler counts, twice a second; copies numbers, so that others can read
 * what happened in the last minutes; logs slow events; and keeps what the
 * flight recorder has around one. */

#define COST_SAMPLE_NS UINT64_C(500000000)

void cost_sampler_init(void);

#endif /* cost-sampler.h */
