// SPDX-License-Identifier: Apache-2.0

// Package ovscost exports what Open vSwitch's cost reports count as metrics
// for Prometheus: native and classic histograms of what upcalls, bursts,
// revalidators and the main loop take, and counters.
//
// A Collector is a prometheus.Collector, so other exporters can have these
// metrics, too.
package ovscost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ovs-cost/exporter/report"
	"ovs-cost/exporter/unixctl"
)

// Defaults of Options.
const (
	DefaultRunDir   = "/var/run/openvswitch"
	DefaultTarget   = "ovs-vswitchd"
	DefaultInterval = 5 * time.Second
	DefaultTimeout  = 4 * time.Second
)

// Most that Options may ask for.
const (
	MaxAccounts = 100
	MaxClasses  = 100
	MaxThreads  = 100
)

// sumAccounts is how many accounts are asked for when none are exported: of
// each kind that has only one account, that says when its sum began.
const sumAccounts = 3

// A Source answers commands.  It is not used by two goroutines at once.
type Source interface {
	Call(method string, params ...string) ([]byte, error)
	Close() error
}

// Options say what to collect.
type Options struct {
	// Targets are daemons, by the name of their pidfile in RunDir, or
	// absolute names of control sockets.  By default, ovs-vswitchd.
	Targets []string
	// RunDir has the daemons' pidfiles and control sockets.
	RunDir string
	// Interval is how long what has been read is good for: a daemon is not
	// asked more often.
	Interval time.Duration
	// Timeout is how long reading all reports of a daemon may take.
	Timeout time.Duration
	// Accounts is how many datapaths or ports of each report are exported,
	// those that most time was spent on; Classes and Threads, how many
	// classes of each kind of event, and threads of each of those accounts.
	Accounts, Classes, Threads int
	// Logger gets a line when a target fails, or works again.
	Logger *slog.Logger
	// Open connects to a target.  By default, to its control socket.
	Open func(ctx context.Context, target string) (Source, error)
}

// Collector is a prometheus.Collector.
type Collector struct {
	options Options
	targets []*target
}

type target struct {
	collector *Collector
	name      string

	mutex     sync.Mutex
	read      time.Time // When the latest refresh ended.
	refreshes uint64
	failures  uint64
	complaint map[string]string // By report, "" for all of them.
	metrics   []prometheus.Metric
}

// descs are the metrics that are not of events.
var descs []*prometheus.Desc

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc(namespace+name, help,
		append([]string{"target"}, labels...), nil)
	descs = append(descs, desc)
	return desc
}

var (
	descUp       = newDesc("up", "Could the daemon be asked?")
	descReportUp = newDesc("report_up",
		"Could the report be read? If not, the log says why.", "report")
	descRefreshes = newDesc("refreshes_total", "How often the daemon was asked.")
	descFailures  = newDesc("refresh_failures_total",
		"How often the daemon could not be asked.")
	descDuration = newDesc("refresh_duration_seconds",
		"How long it took to ask the daemon, the latest time.")
	descTimestamp = newDesc("refresh_timestamp_seconds",
		"When the daemon was asked, the latest time.")
	descInfo = newDesc("info",
		"Always 1; the labels are about the daemon.", "ovs_version", "clock")
	descStart    = newDesc("start_time_seconds", "When the daemon began to count.")
	descEnabled  = newDesc("enabled", "Is accounting on?", "report")
	descInterval = newDesc("sample_interval",
		"On average, one event in this many is sampled. 0 while accounting is off.",
		"report")
	descAccounts = newDesc("accounts",
		"Datapaths, ports or others that the sums are of, including deleted ones.",
		"kind")
	descOmitted = newDesc("omitted",
		"Accounts, classes and threads of a report that are not among the metrics, of what was asked for.",
		"report", "of")
	descFlowLimit = newDesc("flow_limit",
		"Flows that the datapath may have at present.", "datapath")
	descLimitMoves = newDesc("flow_limit_moves_total",
		"How often the flow limit has moved.", "datapath")
	// Two threads may have the same name.
	descCPU = newDesc("threads_cpu_seconds_total",
		"Time that the thread was on a CPU.", "thread", "tid")
	descRunDelay = newDesc("threads_run_delay_seconds_total",
		"Time in which the thread could have run, but had no CPU.", "thread", "tid")
	descSwitches = newDesc("threads_context_switches_total",
		"Context switches, because the thread waited (voluntary), or because its CPU was given to another one (involuntary).",
		"thread", "tid", "type")
	descFaults = newDesc("threads_major_faults_total",
		"Page faults of the thread that had to wait for a disk.", "thread", "tid")
	descThrottled = newDesc("throttled_seconds_total",
		"Time in which the daemon's control group was throttled, if it has a limit of CPU time.")
)

// New returns a Collector.  It connects to nothing before the first scrape.
func New(options Options) (*Collector, error) {
	if len(options.Targets) == 0 {
		options.Targets = []string{DefaultTarget}
	}
	if options.RunDir == "" {
		options.RunDir = DefaultRunDir
	}
	if options.Timeout <= 0 {
		options.Timeout = DefaultTimeout
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if options.Open == nil {
		dir := options.RunDir
		options.Open = func(ctx context.Context, target string) (Source, error) {
			path, err := unixctl.Socket(dir, target)
			if err != nil {
				return nil, err
			}
			return unixctl.Dial(ctx, path)
		}
	}
	for _, limit := range []struct {
		name      string
		value, at int
	}{
		{"accounts", options.Accounts, MaxAccounts},
		{"classes", options.Classes, MaxClasses},
		{"threads", options.Threads, MaxThreads},
	} {
		if limit.value < 0 || limit.value > limit.at {
			return nil, fmt.Errorf("%d %s: the number must be 0 to %d",
				limit.value, limit.name, limit.at)
		}
	}
	if options.Threads > 0 && options.Accounts == 0 {
		return nil, errors.New("threads are known of accounts only, of " +
			"which there are to be none")
	}
	c := &Collector{options: options}
	for i, name := range options.Targets {
		if slices.Contains(options.Targets[:i], name) {
			return nil, fmt.Errorf("target %q is there twice", name)
		}
		c.targets = append(c.targets, &target{collector: c, name: name,
			complaint: map[string]string{}})
	}
	return c, nil
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range descs {
		ch <- desc
	}
	for _, family := range families {
		family.describe(ch)
	}
}

// Collect implements prometheus.Collector.  It takes little longer than
// Options.Timeout, however many targets there are and whatever they do.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	var wait sync.WaitGroup
	for _, t := range c.targets {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for _, metric := range t.get() {
				ch <- metric
			}
		}()
	}
	wait.Wait()
}

// get returns the metrics of 't', at most Options.Interval old.  Those who ask
// at the same time get the same.
func (t *target) get() []prometheus.Metric {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.metrics == nil || time.Since(t.read) >= t.collector.options.Interval {
		t.refresh()
	}
	return t.metrics
}

// refresh asks the daemon.
func (t *target) refresh() {
	start := time.Now()
	t.refreshes++
	metrics, err := t.ask()
	if err != nil {
		t.failures++
	}
	t.complain("", err)
	t.read = time.Now()

	up := 1.0
	if err != nil {
		up = 0
	}
	add := func(desc *prometheus.Desc, value float64) {
		metrics = append(metrics, prometheus.MustNewConstMetric(desc,
			prometheus.GaugeValue, value, t.label()))
	}
	add(descUp, up)
	add(descDuration, t.read.Sub(start).Seconds())
	add(descTimestamp, float64(t.read.UnixMicro())/1e6)
	for desc, n := range map[*prometheus.Desc]uint64{
		descRefreshes: t.refreshes, descFailures: t.failures} {
		metrics = append(metrics, prometheus.MustNewConstMetric(desc,
			prometheus.CounterValue, float64(n), t.label()))
	}
	t.metrics = metrics
}

func (t *target) label() string {
	return clean(t.name)
}

// complain logs 'err', of reading 'report' or "" for all, if it is another one
// than the last time.
func (t *target) complain(report string, err error) {
	log := t.collector.options.Logger.With("target", t.name)
	if report != "" {
		log = log.With("report", report)
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch old := t.complaint[report]; {
	case text == old:
	case text != "":
		log.Error("cannot read", "err", text)
	default:
		log.Info("can be read again")
	}
	t.complaint[report] = text
}

// ask returns the metrics of what the daemon replies.  It connects anew each
// time, so a daemon that has been started again is found.  All reports come in
// one reply; what is not understood of them is left out.
func (t *target) ask() ([]prometheus.Metric, error) {
	options := &t.collector.options
	ctx, cancel := context.WithTimeout(context.Background(), options.Timeout)
	defer cancel()
	source, err := options.Open(ctx, t.name)
	if err != nil {
		return nil, err
	}
	defer source.Close()

	params := []string{"-hist", "-n", strconv.Itoa(max(options.Accounts, sumAccounts))}
	if options.Threads > 0 {
		params = append(params, "-thread")
	}
	reply, err := source.Call(report.Together, params...)
	if err != nil {
		return nil, err
	}
	replies, err := report.ParseTogether(reply)
	if err != nil {
		return nil, err
	}
	a := answer{target: t.label(), options: options}
	for _, name := range report.Names {
		show, problem := report.ParseShow(replies[name+"/cost-show"], name)
		if problem == nil {
			a.show(show)
			if name == "revalidator" {
				problem = a.limit(replies["revalidator/cost-limit"])
			}
		}
		a.gauge(descReportUp, boolValue(problem == nil), name)
		t.complain(name, problem)
	}
	problem := a.threads(replies["cost/threads"])
	a.gauge(descReportUp, boolValue(problem == nil), "threads")
	t.complain("threads", problem)
	return a.metrics, nil
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// clean returns 's' as a label's value has to be.
func clean(s string) string {
	return strings.ToValidUTF8(s, "\ufffd")
}

// answer makes metrics of the replies of one target.
type answer struct {
	target  string
	options *Options
	metrics []prometheus.Metric
	started bool // Is what all replies have in common among them?
}

func (a *answer) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	a.metrics = append(a.metrics, prometheus.MustNewConstMetric(desc,
		prometheus.GaugeValue, value,
		append([]string{a.target}, labels...)...))
}

// limit adds the metrics of a reply to revalidator/cost-limit.
func (a *answer) limit(reply []byte) error {
	limit, err := report.ParseLimit(reply)
	if err != nil {
		return err
	}
	created := time.UnixMicro(limit.StartUS)
	seen := map[string]bool{}
	for _, datapath := range limit.Datapaths {
		name := clean(datapath.Name)
		if seen[name] {
			continue
		}
		seen[name] = true
		a.gauge(descFlowLimit, float64(datapath.FlowLimit), name)
		a.metrics = append(a.metrics,
			prometheus.MustNewConstMetricWithCreatedTimestamp(descLimitMoves,
				prometheus.CounterValue, float64(datapath.Moves), created,
				a.target, name))
	}
	return nil
}

// threads adds the metrics of a reply to cost/threads, of at most MaxThreads
// threads, those with most CPU time.
func (a *answer) threads(reply []byte) error {
	threads, err := report.ParseThreads(reply)
	if err != nil {
		return err
	}
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		a.metrics = append(a.metrics, prometheus.MustNewConstMetric(desc,
			prometheus.CounterValue, value, append([]string{a.target}, labels...)...))
	}
	if threads.Cgroup != nil {
		counter(descThrottled, float64(threads.Cgroup.ThrottledNS)/1e9)
	}
	all := threads.Threads
	slices.SortStableFunc(all, func(x, y report.Thread) int {
		return cmp.Compare(y.CPUNS, x.CPUNS)
	})
	if len(all) > MaxThreads {
		a.gauge(descOmitted, float64(len(all)-MaxThreads), "threads", "threads")
		all = all[:MaxThreads]
	}
	seen := map[uint64]bool{}
	for _, thread := range all {
		if seen[thread.TID] {
			continue
		}
		seen[thread.TID] = true
		labels := []string{clean(thread.Name), strconv.FormatUint(thread.TID, 10)}
		counter(descCPU, float64(thread.CPUNS)/1e9, labels...)
		counter(descRunDelay, float64(thread.RunDelayNS)/1e9, labels...)
		counter(descFaults, float64(thread.MajorFaults), labels...)
		counter(descSwitches, float64(thread.VoluntarySwitches),
			append(labels, "voluntary")...)
		counter(descSwitches, float64(thread.InvoluntarySwitches),
			append(labels, "involuntary")...)
	}
	return nil
}

func (a *answer) show(show *report.Show) {
	if !a.started {
		a.started = true
		a.gauge(descInfo, 1, clean(show.OVSVersion), clean(show.Clock.Source))
		a.gauge(descStart, float64(show.StartUS)/1e6)
	}
	a.gauge(descEnabled, boolValue(show.Settings.Enabled), show.Report)
	a.gauge(descInterval, float64(show.Settings.SampleInterval), show.Report)

	omitted := map[string]uint64{}
	a.sums(show, omitted)
	if a.options.Accounts > 0 {
		a.accounts(show, omitted)
	}
	for of, n := range omitted {
		a.gauge(descOmitted, float64(n), show.Report, of)
	}
}

// sums adds the metrics of all accounts together.
func (a *answer) sums(show *report.Show, omitted map[string]uint64) {
	accounts := map[string]uint64{}
	seen := map[string]bool{}
	for i := range show.Total {
		sum := &show.Total[i]
		f := families[[2]string{sum.Kind, ""}]
		if f == nil || f.kind.report != show.Report {
			continue
		}
		labels := f.kind.sumValues(a.target, sum)
		key := fmt.Sprint(sum.Kind, labels)
		if seen[key] {
			continue
		}
		seen[key] = true
		accounts[sum.Kind] += sum.Accounts
		created := time.UnixMicro(sumSince(show, sum))
		a.metrics = f.collect(a.metrics, &sum.Body, created, labels)
		if a.options.Classes > 0 {
			a.parts(families[[2]string{sum.Kind, "class_"}], sum.Classes,
				a.options.Classes, created, labels, "classes", omitted)
		}
	}
	for kind, n := range accounts {
		a.gauge(descAccounts, float64(n), kind)
	}
}

// sumSince returns when 'sum' began to count, as far as that can be told:
// since the only account was cleared, otherwise since the daemon was started.
func sumSince(show *report.Show, sum *report.Account) int64 {
	since, n := show.StartUS, 0
	for i := range show.Accounts {
		account := &show.Accounts[i]
		if account.Kind == sum.Kind {
			since = account.SinceUS
			n++
		}
	}
	if sum.Accounts != 1 || n != 1 {
		return show.StartUS
	}
	return since
}

// accounts adds the metrics of single accounts, and their threads.
func (a *answer) accounts(show *report.Show, omitted map[string]uint64) {
	accounts := merged(show.Accounts)
	if n := len(accounts); n > a.options.Accounts {
		accounts = accounts[:a.options.Accounts]
		omitted["accounts"] = uint64(n - len(accounts))
	}
	omitted["accounts"] += show.Omitted
	for _, account := range accounts {
		f := families[[2]string{account.Kind, "account_"}]
		if f == nil || f.kind.report != show.Report {
			continue
		}
		labels := []string{a.target, account.Name}
		created := time.UnixMicro(account.SinceUS)
		a.metrics = f.collect(a.metrics, &account.Body, created, labels)
		if a.options.Threads > 0 {
			a.parts(families[[2]string{account.Kind, "thread_"}],
				account.Threads, a.options.Threads, created, labels,
				"threads", omitted)
		}
	}
}

// parts adds the metrics of at most 'limit' of 'parts', those that there were
// most events of.
func (a *answer) parts(f *family, parts []report.Part, limit int,
	created time.Time, labels []string, of string, omitted map[string]uint64) {
	named := map[string]*report.Part{}
	for i := range parts {
		part := parts[i]
		part.Name = clean(part.Name)
		if old := named[part.Name]; old != nil {
			old.Merge(&part.Body)
		} else {
			named[part.Name] = &part
		}
	}
	sorted := slices.SortedFunc(maps.Values(named), func(x, y *report.Part) int {
		return cmp.Or(cmp.Compare(y.Events, x.Events), cmp.Compare(x.Name, y.Name))
	})
	omitted[of] += uint64(max(len(sorted)-limit, 0))
	for _, part := range sorted[:min(len(sorted), limit)] {
		a.metrics = f.collect(a.metrics, &part.Body, created,
			append(slices.Clone(labels), part.Name))
	}
}

// merged returns 'accounts' with those added up that have the same name and
// kind: ports of the same name in two datapaths, and names that are not valid
// UTF-8.
func merged(accounts []report.Account) []*report.Account {
	var all []*report.Account
	byName := map[[2]string]*report.Account{}
	for i := range accounts {
		account := accounts[i]
		account.Name = clean(account.Name)
		key := [2]string{account.Kind, account.Name}
		old := byName[key]
		if old == nil {
			byName[key] = &account
			all = append(all, &account)
			continue
		}
		old.Merge(&account.Body)
		old.Threads = append(slices.Clone(old.Threads), account.Threads...)
		old.SinceUS = min(old.SinceUS, account.SinceUS)
	}
	return all
}
