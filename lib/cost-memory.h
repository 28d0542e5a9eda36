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

#ifndef COST_MEMORY_H
#define COST_MEMORY_H 1

#include <stddef.h>
#include <stdint.h>

/* Memory for what is recorded.
 * ============================
 *
 * Recorders' memory grows while packets are on their way, a little at a time,
 * and stays for long.  From malloc() it would come from between the buffers of
 * these packets, and keep them from being merged when they are freed: that
 * costs later floods more than accounting does.  So it is cut from slabs of
 * some ten thousand bytes.
 *
 * Each thread has slabs of its own, one or more for each size, so that no two
 * threads that record write to one cache line.  A slab is freed with the last
 * object in it.
 *
 *
 * Thread-safety
 * =============
 *
 * All functions may be called by any thread, and take a lock for a moment, as
 * malloc() may.  Any thread may free what another one has allocated, even if
 * that has exited. */

void *cost_zalloc(size_t size);
void cost_free(void *);
uint64_t cost_memory_used(void);

#endif /* cost-memory.h */
