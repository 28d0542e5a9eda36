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

#include <config.h>

#include "stats-column.h"

#include <string.h>

#include "bitmap.h"
#include "openvswitch/json.h"
#include "ovsdb-data.h"
#include "util.h"

/* For how many keys to remember where they were. */
#define MAX_POSITIONS 256

/* Looks for 'key' among the keys of 'datum', which are sorted strings.
 * Returns its position, or datum->n if it is not there. */
static size_t
find_key(const struct ovsdb_datum *datum, const char *key)
{
    size_t low = 0;
    size_t high = datum->n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        int cmp = strcmp(key, json_string(datum->keys[mid].s));

        if (!cmp) {
            return mid;
        } else if (cmp < 0) {
            high = mid;
        } else {
            low = mid + 1;
        }
    }
    return datum->n;
}

/* Returns true if 'datum', a map from strings to integers, maps each of the
 * 'n' 'keys' to its value in 'values' and has no other keys.  Returns false if
 * not, or if a key is there twice.
 *
 * This is for callers that would otherwise build another datum only for the
 * IDL to find out that it is the same.  It is fastest if 'keys' are the same,
 * in the same order, as in the latest call, whatever its 'datum' was.  Only
 * the main thread may call it. */
bool
stats_column_equals(const struct ovsdb_datum *datum,
                    const char *const keys[], const int64_t values[],
                    size_t n)
{
    static size_t positions[MAX_POSITIONS];
    unsigned long *seen;
    bool equal = true;

    if (datum->n != n) {
        return false;
    }

    seen = bitmap_allocate(n);
    for (size_t i = 0; i < n && equal; i++) {
        size_t pos = i < MAX_POSITIONS ? positions[i] : n;

        if (pos >= n || strcmp(keys[i], json_string(datum->keys[pos].s))) {
            pos = find_key(datum, keys[i]);
            if (i < MAX_POSITIONS) {
                positions[i] = pos;
            }
        }
        equal = (pos < n && datum->values[pos].integer == values[i]
                 && !bitmap_is_set(seen, pos));
        if (equal) {
            bitmap_set1(seen, pos);
        }
    }
    bitmap_free(seen);
    return equal;
}
