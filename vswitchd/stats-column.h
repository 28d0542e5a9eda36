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

#ifndef VSWITCHD_STATS_COLUMN_H
#define VSWITCHD_STATS_COLUMN_H 1

#include <stddef.h>
#include <stdint.h>

struct ovsrec_interface;

/* Columns with statistics: maps from strings to integers.
 *
 * They are refreshed again and again, most often with what they have, and
 * hardly ever with other keys. */

void stats_column_set(const struct ovsrec_interface *, const char *keys[],
                      const int64_t values[], size_t n);

#endif /* vswitchd/stats-column.h */
