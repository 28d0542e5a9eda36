/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "dump-observer.h"

ATOMIC(dump_observer_cb *) dump_observer;

/* Makes 'cb', or nobody if it is NULL, the observer of all dumps. */
void
dump_observer_set(dump_observer_cb *cb)
{
    atomic_store_relaxed(&dump_observer, cb);
}
