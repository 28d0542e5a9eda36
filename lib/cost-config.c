/* SPDX-License-Identifier: Apache-2.0 */

#include <config.h>

#include "cost-config.h"

#include "cost-clock.h"
#include "cost-span.h"
#include "cost.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"
#include "ovs-thread.h"
#include "smap.h"
#include "sset.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(cost);

const char *const cost_cause_names[] = {
    [COST_CAUSE_UNKNOWN] = "unknown",
    [COST_CAUSE_ON_CPU] = "on CPU",
    [COST_CAUSE_STARVED] = "starved",
    [COST_CAUSE_BLOCKED] = "blocked",
};

/* An event that is to be logged. */
struct cost_breach {
    struct ovs_list list_node;          /* Within cost_log(). */
    const struct cost_kind *kind;
    struct cost_entry entry;
    long long int when_ms;
    enum cost_cause cause;
    char thread[COST_NAME_MAX];
    char account[COST_TEXT_MAX];
    struct cost_row who[COST_MAX_LISTS];    /* With 'id' 0 if not known. */
};
static struct ovs_mutex breach_mutex = OVS_MUTEX_INITIALIZER;

/* Settings of all reports, and the latest configuration. */
static struct ovs_mutex config_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list configs OVS_GUARDED_BY(config_mutex)
    = OVS_LIST_INITIALIZER(&configs);
static struct smap settings OVS_GUARDED_BY(config_mutex)
    = SMAP_INITIALIZER(&settings);

/* Returns the sample interval that is configured as 'key', 'default_interval'
 * if none is. */
static uint32_t
get_interval(const char *key, uint32_t default_interval)
    OVS_REQUIRES(config_mutex)
{
    unsigned long long int interval;

    interval = smap_get_ullong(&settings, key, default_interval);
    if (interval < 1 || interval > COST_MAX_SAMPLE_INTERVAL) {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "other_config:%s=%s is not between 1 and %d, "
                     "using %"PRIu32, key, smap_get_def(&settings, key, ""),
                     COST_MAX_SAMPLE_INTERVAL, default_interval);
        interval = default_interval;
    }
    return interval;
}

/* Makes 'reports' the list of reports in "cost-accounting", empty if that is
 * no list.  Returns true if it is "true", which is the default: all are on. */
static bool
get_reports(struct sset *reports)
    OVS_REQUIRES(config_mutex)
{
    const char *value = smap_get_def(&settings, "cost-accounting", "true");
    bool all = !strcasecmp(value, "true");
    bool list = !all && strcasecmp(value, "false");

    sset_from_delimited_string(reports, list ? value : "", ", ");
    return all;
}

/* Keeps the event for cost_log() if it is the slowest one so far, in the
 * thread that records it, which does not wait for another one that does. */
static void
keep_breach(const struct cost_recorder *recorder,
            const struct cost_entry *entry, enum cost_cause cause,
            const struct cost_span *span)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct cost_config *config = recorder->kind->config;
    struct cost_breach *breach;

    if (ovs_mutex_trylock(&breach_mutex)) {
        return;
    }
    breach = config->breach;
    if (!breach || (entry->stages[cost_kind_total(recorder->kind)]
                    > breach->entry.stages[cost_kind_total(breach->kind)])) {
        if (!breach) {
            breach = config->breach = xmalloc(sizeof *breach);
        }
        breach->kind = recorder->kind;
        breach->entry = *entry;
        breach->when_ms = time_wall_msec() - entry->after_ns / 1000000;
        breach->cause = cause;
        ovs_strlcpy(breach->thread, recorder->thread, sizeof breach->thread);
        cost_copy_text(breach->account, sizeof breach->account,
                       cost_account_name(recorder->account));
        memset(breach->who, 0, sizeof breach->who);
        for (size_t i = 0; span && i < breach->kind->n_lists; i++) {
            if (span->who[i].id) {
                cost_row_init(&breach->who[i], &breach->kind->lists[i],
                              &span->who[i]);
            }
        }
    }
    ovs_mutex_unlock(&breach_mutex);
}

/* Logs the slowest event of each report since this was last called, of those
 * that took longer than other_config:cost-log-threshold-REPORT. */
void
cost_log(void)
{
    static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(60, 60);
    struct ovs_list breaches = OVS_LIST_INITIALIZER(&breaches);
    struct cost_config *config;
    struct cost_breach *breach;

    ovs_mutex_lock(&config_mutex);
    ovs_mutex_lock(&breach_mutex);
    LIST_FOR_EACH (config, list_node, &configs) {
        if (config->breach) {
            ovs_list_push_back(&breaches, &config->breach->list_node);
            config->breach = NULL;
        }
    }
    ovs_mutex_unlock(&breach_mutex);
    ovs_mutex_unlock(&config_mutex);

    LIST_FOR_EACH_POP (breach, list_node, &breaches) {
        const struct cost_entry *entry = &breach->entry;
        const struct cost_kind *kind = breach->kind;
        struct ds s = DS_EMPTY_INITIALIZER;
        const char *class = NULL;

        cost_put_name(&s, breach->account, false);
        ds_put_format(&s, ": %s of %"PRIu64" us", kind->event,
                      entry->stages[cost_kind_total(kind)] / 1000);
        ds_put_cstr(&s, ", class ");
        for (size_t i = 0; i < kind->n_lists; i++) {
            if (breach->who[i].id && kind->lists[i].classes) {
                class = breach->who[i].name;    /* It is more specific. */
            }
        }
        if (class) {
            ds_put_cstr(&s, class);
        } else {
            kind->format_class(entry->class, &s);
        }
        for (size_t i = 0; i < kind->n_lists; i++) {
            const struct cost_row *who = &breach->who[i];

            if (who->id && !kind->lists[i].classes) {
                ds_put_format(&s, ", %s ", kind->lists[i].name);
                cost_put_name(&s, who->name, true);
                ds_put_cstr(&s, who->group[0] ? " " : "");
                cost_put_name(&s, who->group, true);
            }
        }
        ds_put_format(&s, ", thread %s, %s, at", breach->thread,
                      (breach->cause == COST_CAUSE_UNKNOWN ? "cause unknown"
                       : cost_cause_names[breach->cause]));
        ds_put_strftime_msec(&s, " %H:%M:%S.###Z", breach->when_ms, true);
        for (size_t i = 0; i < cost_kind_total(kind); i++) {
            if (entry->known & (1u << i)) {
                bool number = cost_stage_is_number(kind, i);

                ds_put_format(&s, ", %s %"PRIu64"%s", kind->stages[i].name,
                              entry->stages[i] / (number ? 1 : 1000),
                              number ? "" : " us");
            }
        }
        VLOG_WARN_RL(&rl, "%s", ds_cstr(&s));
        ds_destroy(&s);
        free(breach);
    }
}

static void
cost_config_apply(struct cost_config *config)
    OVS_REQUIRES(config_mutex)
{
    char *key = xasprintf("cost-sample-interval-%s", config->name);
    uint32_t interval = get_interval("cost-sample-interval",
                                     config->default_interval);
    struct sset reports;
    bool enabled;

    enabled = get_reports(&reports) || sset_contains(&reports, config->name);
    sset_destroy(&reports);

    interval = enabled ? get_interval(key, interval) : 0;
    free(key);

    key = xasprintf("cost-log-threshold-%s", config->name);
    cost_store(&config->log_ns,
               MIN(smap_get_ullong(&settings, key, 0),
                   COST_CLOCK_MAX_NS / 1000) * 1000);
    free(key);
    cost_set_breach_cb(keep_breach);

    if (config->refresh && enabled != cost_enabled(config)) {
        config->refresh();
    }
    if (config->apply) {
        config->apply(&settings);
    }
    if (interval != cost_sample_interval(config)) {
        if (enabled) {
            VLOG_INFO("cost accounting of %s on, 1 in %"PRIu32" events "
                      "sampled", config->name, interval);
        } else {
            VLOG_INFO("cost accounting of %s off", config->name);
        }
    }
    atomic_store_explicit(&config->sample_interval, interval,
                          memory_order_release);
}

/* Applies the settings whose names start with "cost-" from 'other_config', the
 * column in the Open_vSwitch table (see ovs-vswitchd.conf.db(5)).  Most take
 * effect with the next event of each thread; a threshold of the log, with the
 * sampler's next tick at the latest. */
void
cost_configure(const struct smap *other_config)
{
    struct cost_config *config;
    struct smap_node *node;
    struct sset reports;
    const char *name;
    struct smap new;

    smap_init(&new);
    SMAP_FOR_EACH (node, other_config) {
        if (!strncmp(node->key, "cost-", 5)) {
            smap_add(&new, node->key, node->value);
        }
    }

    ovs_mutex_lock(&config_mutex);
    if (!smap_equal(&settings, &new)) {
        smap_destroy(&settings);
        smap_clone(&settings, &new);
        get_reports(&reports);
        LIST_FOR_EACH (config, list_node, &configs) {
            cost_config_apply(config);
            sset_find_and_delete(&reports, config->name);
        }
        SSET_FOR_EACH (name, &reports) {
            VLOG_WARN("other_config:cost-accounting: no report \"%s\"", name);
        }
        sset_destroy(&reports);
    }
    ovs_mutex_unlock(&config_mutex);
    smap_destroy(&new);
}

/* Makes the settings apply to 'config', which is static, if they do not
 * yet. */
void
cost_config_register(struct cost_config *config)
{
    ovs_mutex_lock(&config_mutex);
    if (!config->list_node.next) {
        ovs_list_push_back(&configs, &config->list_node);
        cost_config_apply(config);
    }
    ovs_mutex_unlock(&config_mutex);
}
