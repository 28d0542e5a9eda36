/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-sampler.h"

#include "cost-flight.h"
#include "cost-threads.h"
#include "cost.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "util.h"

static void *
sampler_main(void *aux OVS_UNUSED)
{
    ovsrcu_quiesce_start();
    for (unsigned int i = 0;; i++) {
        cost_threads_run();
        ovsrcu_quiesce_end();
        cost_accounts_copy();
        ovsrcu_quiesce_start();
        cost_flight_run();
        if (i % 2) {
            cost_log();
        }
        xnanosleep_no_quiesce(COST_SAMPLE_NS);
    }
    return NULL;
}

/* Starts the sampler, and what needs it.  The main thread calls this, before
 * any other one records. */
void
cost_sampler_init(void)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;

    if (ovsthread_once_start(&once)) {
        cost_flight_init();
        cost_threads_init();
        ovs_thread_create("cost_threads", sampler_main, NULL);
        ovsthread_once_done(&once);
    }
}
