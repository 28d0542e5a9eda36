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
#include "vswitch-idl.h"

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

/* If the 'n' 'keys' are those of 'datum', in whatever order, returns where in
 * 'datum' each of them is.  Returns NULL if they are not, or if a key is there
 * twice.  Interfaces of a kind have the same keys, so that looking first where
 * a key was the last time finds most of them. */
static const size_t *
find_keys(const struct ovsdb_datum *datum, const char *const keys[], size_t n)
{
    static size_t *positions;
    static size_t n_positions;
    unsigned long *seen;
    size_t i;

    if (datum->n != n) {
        return NULL;
    }
    if (n_positions < n) {
        positions = xrealloc(positions, n * sizeof *positions);
        while (n_positions < n) {
            positions[n_positions] = n_positions;
            n_positions++;
        }
    }

    seen = bitmap_allocate(n);
    for (i = 0; i < n; i++) {
        size_t pos = positions[i];

        if (pos >= n || strcmp(keys[i], json_string(datum->keys[pos].s))) {
            pos = positions[i] = find_key(datum, keys[i]);
        }
        if (pos >= n || bitmap_is_set(seen, pos)) {
            break;
        }
        bitmap_set1(seen, pos);
    }
    bitmap_free(seen);
    return i >= n ? positions : NULL;
}

/* Sets the statistics of 'iface' to the 'n' 'keys' and 'values', as
 * ovsrec_interface_set_statistics() does, but makes no map of them if nothing
 * has changed, and neither copies nor sorts the keys if only values have.
 * Only the main thread may call it. */
void
stats_column_set(const struct ovsrec_interface *iface, const char *keys[],
                 const int64_t values[], size_t n)
{
    const struct ovsdb_idl_column *column = &ovsrec_interface_col_statistics;
    const struct ovsdb_datum *old = ovsrec_interface_get_statistics(
        iface, OVSDB_TYPE_STRING, OVSDB_TYPE_INTEGER);
    const size_t *positions = find_keys(old, keys, n);
    size_t i;

    if (!positions) {
        ovsrec_interface_set_statistics(iface, keys, values, n);
        return;
    }

    for (i = 0; i < n; i++) {
        if (old->values[positions[i]].integer != values[i]) {
            break;
        }
    }
    if (i < n) {
        struct ovsdb_datum datum;

        ovsdb_datum_clone(&datum, old);
        ovsdb_datum_unshare(&datum, &column->type);
        for (i = 0; i < n; i++) {
            datum.values[positions[i]].integer = values[i];
        }
        ovsdb_idl_txn_write(&iface->header_, column, &datum);
    }
}
