/* SPDX-License-Identifier: Apache-2.0 */

#ifndef COST_FLIGHT_H
#define COST_FLIGHT_H 1

#include <stddef.h>

struct json;
struct smap;

/* What happened around a stall: a flight recorder.
 * ================================================
 *
 * Numbers show how often something takes long, not what the other threads did
 * meanwhile.  While other_config:cost-flight is true, each thread keeps its
 * latest events: those that are split into stages, and those that take longer
 * than other_config:cost-log-threshold-REPORT.  Exact kinds split all events;
 * their events of less than 10 us are left out, because they would soon
 * replace all others.  Each thread has a ring of its own, so recording an
 * event never waits.  The thread creates its ring, which has room for 256
 * events, for its first event, and frees it when it exits.
 *
 * A cost_span_observer records the events.  After one that exceeds the
 * threshold, it stops all rings, except for events in progress, one of which
 * may be the culprit.  A moment later, the sampler, see lib/cost-threads.h,
 * copies all rings and restarts them.  This happens at most once in 10
 * seconds.  The latest three copies are kept until cost-flight is switched
 * off.
 *
 * The command "cost/flight" has the rings or a copy, in JSON:
 * Documentation/topics/cost-json.rst describes it.
 *
 * Each ring has a lock, which its thread only tries to take: an event that
 * ends while another thread copies the ring is left out. */

void cost_flight_init(void);
void cost_flight_apply(const struct smap *other_config);
void cost_flight_run(void);

/* For tests. */
struct json *cost_flight_to_json(int last_s, unsigned int kept, size_t max);

#endif /* cost-flight.h */
