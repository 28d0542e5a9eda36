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
