// SPDX-License-Identifier: Apache-2.0

package ovscost

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ovs-cost/exporter/report"
)

const namespace = "ovs_cost_"

// group is a group of counters.
type group struct {
	name   string // In a reply.
	metric string
	label  string // "" if the group has one counter.
	help   string
}

// number is a distribution of numbers.
type number struct {
	metric string
	help   string
}

// kind is a kind of events.
type kind struct {
	report  string
	name    string // In a reply.
	metric  string // One event.
	help    string // Events.
	groups  []group
	numbers map[string]number
	// ignored are groups and numbers that other metrics have, too.
	ignored []string
}

// kinds are all that there are.  What a reply has besides is left out, as the
// form of replies asks for.
var kinds = []kind{
	{
		report: "upcall", name: "upcall", metric: "upcall",
		help: "Upcalls",
		groups: []group{
			{"flows", "upcall_flows_total", "result",
				"Upcalls of class miss, by result for the datapath flow."},
			{"lost", "upcalls_lost_total", "reason",
				"Upcalls that could not be made, or failed. They are not among ovs_cost_upcalls_total."},
			{"queue", "upcall_queue_problems_total", "problem",
				"Upcalls whose time in the kernel's queue is not known (unknown), and records of that time whose upcall was lost (orphan)."},
		},
		numbers: map[string]number{"batch": {"batch_upcalls",
			"Upcalls that a handler completed together."}},
	},
	{
		report: "tx", name: "burst", metric: "tx_burst",
		help: "Bursts of packets that the userspace datapath sent",
		groups: []group{
			{"sent when", "tx_burst_triggers_total", "trigger",
				"Bursts, by the reason why they were sent."},
			{"packets dropped", "tx_packets_dropped_total", "reason",
				"Packets that were not sent, by reason."},
			{"other", "tx_burst_problems_total", "problem",
				"Attempts to send to a vhost port again (retries), bursts that a netdev refused (errors)."},
			{"sent", "tx_packets_total", "",
				"Packets in all bursts, before segmentation."},
		},
		numbers: map[string]number{
			"packets": {"packets", "Packets in a burst."}},
	},
	{
		report: "bridge", name: "iteration", metric: "bridge_iteration",
		help: "Iterations of the main loop",
	},
	{
		report: "bridge", name: "update", metric: "bridge_update",
		help: "Updates of an interface's statistics",
	},
	{
		report: "bridge", name: "command", metric: "bridge_command",
		help: "Commands that came through the control socket",
	},
	{
		report: "bridge", name: "message", metric: "bridge_message",
		help: "OpenFlow messages that the main thread handled",
	},
	{
		report: "netlink", name: "call", metric: "netlink_call",
		help: "Netlink calls",
		groups: []group{
			{"result", "netlink_call_results_total", "result",
				"Netlink calls, by their result."},
			{"lost", "netlink_lost_total", "reason",
				"How often Netlink notifications were lost."},
		},
		numbers: map[string]number{
			"requests": {"requests",
				"Requests that were sent in one call."},
			"bytes": {"received_bytes",
				"Bytes that were received in one call."},
		},
	},
	{
		report: "revalidator", name: "round", metric: "revalidator_round",
		help: "Rounds of the revalidators",
		groups: []group{
			{"flows", "revalidator_round_flows_total", "result",
				"Datapath flows that revalidators looked at, by result."},
			{"deleted", "revalidator_round_deleted_flows_total", "reason",
				"Datapath flows that revalidators deleted, by reason."},
		},
		numbers: map[string]number{
			"flows": {"dumped_flows",
				"Datapath flows that were dumped in a round."},
			"threads": {"threads",
				"Revalidator threads that took part in a round."},
		},
		ignored: []string{"limit"}, // ovs_cost_flow_limit is that.
	},
	{
		report: "revalidator", name: "share", metric: "revalidator_share",
		help: "Shares of single revalidator threads in a round",
		// Those of rounds are the same.
		ignored: []string{"flows", "deleted"},
	},
}

// level is what something is known of: everything, or one object, class or
// thread.
type level struct {
	infix  string
	of     string
	labels []string
}

var (
	levelTotal   = level{"", "", nil}
	levelAccount = level{"account_", ", by datapath, port or other object",
		[]string{"account"}}
	levelClass  = level{"class_", ", by class", []string{"class"}}
	levelThread = level{"thread_", ", by thread", []string{"account", "thread"}}
	levels      = []level{levelTotal, levelAccount, levelClass, levelThread}
)

// family has the metrics of a kind on one level.
type family struct {
	kind         *kind
	events, slow *prometheus.Desc
	// Indexed by 1 if sampled, otherwise 0.
	whole, stages [2]*prometheus.Desc
	groups        map[string]*prometheus.Desc
	numbers       map[string]*[2]*prometheus.Desc
}

// Labels of all metrics of a kind's sums.  Upcalls from the kernel have other
// stages than those of the userspace datapath, so they are apart.
func (k *kind) sumLabels() []string {
	if k.report == "upcall" {
		return []string{"target", "datapath_type"}
	}
	return []string{"target"}
}

func (k *kind) sumValues(target string, sum *report.Account) []string {
	values := []string{target}
	if k.report == "upcall" {
		datapath := "netdev"
		if sum.Stages["operate"] != nil {
			datapath = "system"
		}
		values = append(values, datapath)
	}
	return values
}

const sampleHelp = " Of a sample only, of one event in ovs_cost_sample_interval: the count is not that of events, and its rate is not their rate."

func newFamily(k *kind, l level) *family {
	labels := []string{"target"}
	if l.infix == "" || l.infix == "class_" {
		labels = k.sumLabels()
	}
	labels = append(slices.Clone(labels), l.labels...)
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+l.infix+name, help,
			append(slices.Clone(labels), more...), nil)
	}
	both := func(prefix, suffix, help string, more ...string) [2]*prometheus.Desc {
		return [2]*prometheus.Desc{
			desc(prefix+suffix, help, more...),
			desc(prefix+"sampled_"+suffix, help+sampleHelp, more...),
		}
	}
	f := &family{kind: k}
	f.events = desc(k.metric+"s_total", k.help+l.of+".")
	if l.infix == "" {
		f.slow = desc(k.metric+"s_slow_total", k.help+l.of+
			", that took longer than other_config:cost-log-threshold-"+k.report+".")
	}
	f.whole = both(k.metric+"_", "duration_seconds",
		"Time that each took: "+lowerFirst(k.help)+l.of+".")
	if l.infix == "" {
		f.stages = both(k.metric+"_stage_", "duration_seconds",
			"Time of each stage of each: "+lowerFirst(k.help)+".", "stage")
		f.numbers = map[string]*[2]*prometheus.Desc{}
		for name, n := range k.numbers {
			descs := both(k.metric+"_", n.metric, n.help)
			f.numbers[name] = &descs
		}
	}
	if l.infix == "" || l.infix == "account_" {
		f.groups = map[string]*prometheus.Desc{}
		for _, g := range k.groups {
			var more []string
			if g.label != "" {
				more = append(more, g.label)
			}
			f.groups[g.name] = desc(g.metric, strings.TrimSuffix(g.help, ".")+
				l.of+".", more...)
		}
	}
	return f
}

func lowerFirst(s string) string {
	return strings.ToLower(s[:1]) + s[1:]
}

// families are all metrics of events, by name of the kind and infix of the
// level.
var families = func() map[[2]string]*family {
	all := map[[2]string]*family{}
	for i := range kinds {
		for _, l := range levels {
			all[[2]string{kinds[i].name, l.infix}] = newFamily(&kinds[i], l)
		}
	}
	return all
}()

func (f *family) describe(ch chan<- *prometheus.Desc) {
	ch <- f.events
	if f.slow != nil {
		ch <- f.slow
	}
	for _, descs := range [][2]*prometheus.Desc{f.whole, f.stages} {
		for _, desc := range descs {
			if desc != nil {
				ch <- desc
			}
		}
	}
	for _, desc := range f.groups {
		ch <- desc
	}
	for _, descs := range f.numbers {
		ch <- descs[0]
		ch <- descs[1]
	}
}

// collect appends the metrics of 'body', which began to count at 'created'.
func (f *family) collect(metrics []prometheus.Metric, body *report.Body,
	created time.Time, labels []string) []prometheus.Metric {
	with := func(more ...string) []string {
		return append(slices.Clone(labels), more...)
	}
	counter := func(desc *prometheus.Desc, n uint64, labels []string) {
		metrics = append(metrics,
			prometheus.MustNewConstMetricWithCreatedTimestamp(desc,
				prometheus.CounterValue, float64(n), created, labels...))
	}
	counter(f.events, body.Events, labels)
	if f.slow != nil {
		counter(f.slow, body.Slow, labels)
	}
	for name, stage := range body.Stages {
		sampled := 0
		if stage.Sampled {
			sampled = 1
		}
		if !stage.IsTime() {
			if descs := f.numbers[name]; descs != nil {
				metrics = append(metrics, newHistogram(descs[sampled], stage,
					created, labels))
			}
		} else if report.IsWhole(name) && (name == "run" ||
			body.Stages["run"] == nil) {
			metrics = append(metrics, newHistogram(f.whole[sampled], stage,
				created, labels))
		} else if desc := f.stages[sampled]; desc != nil {
			metrics = append(metrics, newHistogram(desc, stage, created,
				with(name)))
		}
	}
	for name, members := range body.Counters {
		if desc := f.groups[name]; desc != nil {
			for member, n := range members {
				if name != "sent" {
					counter(desc, n, with(member))
				} else if member == "packets" {
					counter(desc, n, labels)
				}
			}
		}
	}
	return metrics
}
