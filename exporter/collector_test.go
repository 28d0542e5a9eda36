// SPDX-License-Identifier: Apache-2.0

package ovscost

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"ovs-cost/exporter/internal/fake"
	"ovs-cost/exporter/report"
)

type gathered map[string]*dto.MetricFamily

// gather collects, with all of the registry's checks.
func gather(t testing.TB, c prometheus.Collector) gathered {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	named := gathered{}
	for _, family := range all {
		named[family.GetName()] = family
	}
	return named
}

// find returns the metrics of that name that have these labels, written
// NAME=VALUE.
func (f gathered) find(name string, labels ...string) []*dto.Metric {
	var found []*dto.Metric
	for _, metric := range f[name].GetMetric() {
		var have []string
		for _, label := range metric.Label {
			have = append(have, label.GetName()+"="+label.GetValue())
		}
		if !slices.ContainsFunc(labels, func(l string) bool {
			return !slices.Contains(have, l)
		}) {
			found = append(found, metric)
		}
	}
	return found
}

func (f gathered) one(t testing.TB, name string, labels ...string) *dto.Metric {
	t.Helper()
	found := f.find(name, labels...)
	if len(found) != 1 {
		t.Fatalf("%d metrics %s %v", len(found), name, labels)
	}
	return found[0]
}

func value(metric *dto.Metric) float64 {
	return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
}

// start starts a daemon as Open vSwitch would be, and returns its directory.
func start(t testing.TB, dir string, pid int, handler fake.Handler) *fake.Daemon {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "ovs-vswitchd.pid"),
		[]byte(fmt.Sprintln(pid)), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return fake.Start(t, filepath.Join(dir,
		fmt.Sprintf("ovs-vswitchd.%d.ctl", pid)), handler)
}

func collector(t testing.TB, options Options) *Collector {
	t.Helper()
	c, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// scrape collects from a daemon that 'handler' answers for.
func scrape(t testing.TB, handler fake.Handler, options Options) gathered {
	t.Helper()
	options.RunDir = t.TempDir()
	start(t, options.RunDir, 1, handler)
	return gather(t, collector(t, options))
}

func parse(t testing.TB, name string) *report.Show {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	show, err := report.ParseShow(text, name)
	if err != nil {
		t.Fatal(err)
	}
	return show
}

// reply is a Source of one reply.
type reply []byte

func (r reply) Call(string, ...string) ([]byte, error) {
	return fmt.Appendf(nil, `{"replies":[%s]}`, r), nil
}

func (reply) Close() error { return nil }

// Whatever a daemon replies, there are metrics, and each of them once.
func FuzzCollect(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	whole := `{"unit": "ns", "histogram": {"scale": 3}}`
	f.Add([]byte(`{"version": 2, "report": "tx", "command": "cost-show",
		"total": [{"kind": "burst"}, {"kind": "burst",
		"counters": {"sent": {"a": 1, "packets": 2}},
		"stages": {"run": ` + whole + `, "total": ` + whole + `}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		gather(t, collector(t, Options{Accounts: 9, Classes: 9, Threads: 9,
			Open: func(context.Context, string) (Source, error) {
				return reply(text), nil
			}}))
	})
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{Accounts: -1}, "-1 accounts: the number must be 0 to 100"},
		{Options{Accounts: 101}, "101 accounts: the number must be 0 to 100"},
		{Options{Classes: 101}, "101 classes: the number must be 0 to 100"},
		{Options{Accounts: 1, Threads: 101}, "101 threads: the number must be 0 to 100"},
		{Options{Threads: 1}, "threads are known of accounts only, of which there are to be none"},
		{Options{Targets: []string{"a", "b", "a"}}, `target "a" is there twice`},
	} {
		if _, err := New(c.options); err == nil || err.Error() != c.want {
			t.Errorf("%v, not %q", err, c.want)
		}
	}
}

// Every event, stage, number and counter of a real reply is a metric, and has
// the same value.
func TestComplete(t *testing.T) {
	metrics := scrape(t, fake.Replies(t, "testdata"), Options{})
	if up := value(metrics.one(t, "ovs_cost_up")); up != 1 {
		t.Fatal("up is ", up)
	}
	for _, name := range report.Names {
		show := parse(t, name)
		for i := range show.Total {
			sum := &show.Total[i]
			f := families[[2]string{sum.Kind, ""}]
			if f == nil {
				t.Errorf("kind %s is not known", sum.Kind)
				continue
			}
			var labels []string
			if name == "upcall" {
				labels = []string{"datapath_type=" + f.kind.sumValues("", sum)[1]}
			}
			prefix := namespace + f.kind.metric
			events := metrics.one(t, prefix+"s_total", labels...)
			if value(events) != float64(sum.Events) {
				t.Errorf("%s: %v", sum.Kind, events)
			}
			for stage, s := range sum.Stages {
				if slices.Contains(f.kind.ignored, stage) {
					continue
				}
				metric, of := prefix+"_stage_", []string{"stage=" + stage}
				if report.IsWhole(stage) {
					metric, of = prefix+"_", nil
				} else if !s.IsTime() {
					metric, of = prefix+"_", nil
				}
				if s.Sampled {
					metric += "sampled_"
				}
				if s.IsTime() {
					metric += "duration_seconds"
				} else {
					metric += f.kind.numbers[stage].metric
				}
				h := metrics.one(t, metric, append(of, labels...)...).GetHistogram()
				checkHistogram(t, sum.Kind+" "+stage, h, s)
			}
			for groupName, members := range sum.Counters {
				if slices.Contains(f.kind.ignored, groupName) {
					continue
				}
				at := slices.IndexFunc(f.kind.groups, func(g group) bool { return g.name == groupName })
				if at < 0 {
					t.Errorf("%s: group %q is not known", sum.Kind, groupName)
					continue
				}
				g := f.kind.groups[at]
				for member, n := range members {
					metric, of := g.metric, []string{g.label + "=" + member}
					if g.label == "" {
						of = nil
					}
					m := metrics.one(t, namespace+metric, append(of, labels...)...)
					if value(m) != float64(n) {
						t.Errorf("%s %s %s: %v", sum.Kind, groupName, member, m)
					}
				}
			}
		}
	}
	if limit := value(metrics.one(t, "ovs_cost_flow_limit")); limit != 10000 {
		t.Errorf("flow limit %v", limit)
	}
}

// checkHistogram checks that both forms of 'h' are 's'.
func checkHistogram(t *testing.T, what string, h *dto.Histogram, s *report.Stage) {
	t.Helper()
	if h.GetSampleCount() != s.Count {
		t.Errorf("%s: count %d", what, h.GetSampleCount())
	}
	scale := 1.0
	if s.IsTime() {
		scale = 1e9
	}
	if sum := h.GetSampleSum() * scale; math.Abs(sum-float64(s.Sum)) > 1e-9*sum {
		t.Errorf("%s: sum %v, not %d", what, sum, s.Sum)
	}
	last := uint64(0)
	for _, bucket := range h.Bucket {
		want := s.Histogram.ZeroCount
		for i, n := range s.Histogram.BucketCounts {
			edge := math.Exp2(float64(s.Histogram.Offset+i+1)/8) * (1 + 1e-15)
			if !s.IsTime() {
				edge = math.Floor(1e9 * edge)
			}
			if edge <= bucket.GetUpperBound()*(1+1e-12) {
				want += n
			}
		}
		last = bucket.GetCumulativeCount()
		if last != want {
			t.Errorf("%s: %d up to %v, not %d", what, last, bucket.GetUpperBound(), want)
		}
	}
	if len(h.Bucket) == 0 || last > s.Count {
		t.Errorf("%s: classic buckets %v", what, h.Bucket)
	}
	if !s.IsTime() {
		return
	}
	if h.GetSchema() != 3 || h.GetZeroThreshold() != math.Ldexp(1, -30) ||
		h.GetZeroCount() != s.Histogram.ZeroCount {
		t.Errorf("%s: %v", what, h)
	}
	got := native(h)
	want := map[int]uint64{}
	for i, n := range s.Histogram.BucketCounts {
		if n != 0 {
			want[s.Histogram.Offset+i+1] = n
		}
	}
	if s.Histogram.Overflow != 0 {
		want[8193] = s.Histogram.Overflow
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: native buckets %v, not %v", what, got, want)
	}
}

// native returns the native buckets that are not empty, by index.
func native(h *dto.Histogram) map[int]uint64 {
	buckets := map[int]uint64{}
	index, n, next := 0, int64(0), 0
	for _, span := range h.PositiveSpan {
		index += int(span.GetOffset())
		for range span.GetLength() {
			n += h.PositiveDelta[next]
			next++
			if n != 0 {
				buckets[index] = uint64(n)
			}
			index++
		}
	}
	return buckets
}

func TestHistogramEdges(t *testing.T) {
	desc := prometheus.NewDesc("x", "x", nil, nil)
	for name, h := range map[string]report.Histogram{
		"empty":    {},
		"zero":     {ZeroCount: 3},
		"overflow": {Overflow: 2},
		"lowest":   {Offset: report.MinIndex, BucketCounts: []uint64{7}},
		"highest":  {Offset: report.MaxIndex - 1, BucketCounts: []uint64{7}, Overflow: 1},
		"gaps": {Offset: -100, BucketCounts: []uint64{1, 0, 2, 0, 0, 3, 0, 0, 0, 4,
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 << 40}},
		"around 1 s": {Offset: -1, BucketCounts: []uint64{5, 6, 7}},
	} {
		s := &report.Stage{Unit: "ns", Histogram: h, Sum: 12345}
		s.Count = h.ZeroCount + h.Overflow
		for _, n := range h.BucketCounts {
			s.Count += n
		}
		var out dto.Metric
		metric := newHistogram(desc, s, time.UnixMicro(1234567), nil)
		if err := metric.Write(&out); err != nil {
			t.Fatal(err)
		}
		checkHistogram(t, name, out.GetHistogram(), s)
		if created := out.GetHistogram().GetCreatedTimestamp().AsTime(); created.UnixMicro() != 1234567 {
			t.Errorf("%s: created at %v", name, created)
		}
	}
}

// Names are good ones, and each is listed, with its help.
func TestNames(t *testing.T) {
	var list strings.Builder
	if err := ListMetrics(&list); err != nil {
		t.Fatal(err)
	}
	metrics := scrape(t, fake.Replies(t, "testdata"), Options{Accounts: 3, Classes: 10, Threads: 10})
	var all []*dto.MetricFamily
	for _, family := range metrics {
		all = append(all, family)
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil || len(problems) != 0 {
		t.Error(problems, err)
	}
	for name, family := range metrics {
		sampled := strings.Contains(name, "_sampled_")
		if sampled != strings.Contains(family.GetHelp(), "the count is not that of events") {
			t.Errorf("%s: %s", name, family.GetHelp())
		}
		line := regexp.MustCompile("(?m)^" + name + `\{.*\}: ` +
			regexp.QuoteMeta(family.GetHelp()) + "$")
		if !line.MatchString(list.String()) {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// Totals, and accounts, say since when they count.
func TestCreated(t *testing.T) {
	metrics := scrape(t, fake.Replies(t, "testdata"), Options{Accounts: 3})
	upcall, tx := parse(t, "upcall"), parse(t, "tx")
	for _, c := range []struct {
		metric *dto.Metric
		want   int64
	}{
		// One datapath, so its sum began when it did; several ports.
		{metrics.one(t, "ovs_cost_upcalls_total", "datapath_type=netdev"), upcall.Accounts[0].SinceUS},
		{metrics.one(t, "ovs_cost_upcalls_total", "datapath_type=system"), upcall.StartUS},
		{metrics.one(t, "ovs_cost_tx_bursts_total"), tx.StartUS},
		{metrics.one(t, "ovs_cost_account_tx_bursts_total", "account="+tx.Accounts[1].Name), tx.Accounts[1].SinceUS},
	} {
		if got := c.metric.GetCounter().GetCreatedTimestamp().AsTime().UnixMicro(); got != c.want {
			t.Errorf("%v: created at %d, not %d", c.metric, got, c.want)
		}
	}
	h := metrics.one(t, "ovs_cost_upcall_duration_seconds", "datapath_type=netdev").GetHistogram()
	if got := h.GetCreatedTimestamp().AsTime().UnixMicro(); got != upcall.Accounts[0].SinceUS {
		t.Errorf("histogram created at %d", got)
	}
}

// However many scrape, the daemon is asked once in the interval.
func TestCache(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, 1, fake.Replies(t, "testdata"))
	c := collector(t, Options{RunDir: dir, Interval: time.Hour})
	var wait sync.WaitGroup
	for range 20 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range 5 {
				ch := make(chan prometheus.Metric, 1)
				go func() {
					c.Collect(ch)
					close(ch)
				}()
				n := 0
				for range ch {
					n++
				}
				if n < 100 {
					t.Errorf("%d metrics", n)
				}
			}
		}()
	}
	wait.Wait()
	want := [][]string{{"set-options", "--format", "json"},
		{"cost/show", "-hist", "-n", "3"}}
	if got := d.Commands(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
	if n := value(gather(t, c).one(t, "ovs_cost_refreshes_total")); n != 1 {
		t.Errorf("%v refreshes", n)
	}

	// Without an interval, each time.
	c = collector(t, Options{RunDir: dir})
	gather(t, c)
	if n := value(gather(t, c).one(t, "ovs_cost_refreshes_total")); n != 2 {
		t.Errorf("%v refreshes", n)
	}
}

// A daemon that is absent, comes, hangs in the middle of a reply, goes, and
// comes again as another process; beside it, one that always works.
func TestFailures(t *testing.T) {
	dir := t.TempDir()
	good := fake.Start(t, filepath.Join(dir, "good"), fake.Replies(t, "testdata"))
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	c := collector(t, Options{RunDir: dir, Timeout: 5 * time.Second, Logger: log,
		Targets: []string{"ovs-vswitchd", good.Path}})
	failures := 0.0
	check := func(up float64, complaint string) {
		t.Helper()
		metrics := gather(t, c)
		if got := value(metrics.one(t, "ovs_cost_up", "target=ovs-vswitchd")); got != up {
			t.Errorf("up is %v: %s", got, text.String())
		}
		if n := len(metrics.find("ovs_cost_upcalls_total", "target=ovs-vswitchd")); n != int(2*up) {
			t.Errorf("%d metrics of a target with up %v", n, up)
		}
		failures += 1 - up
		if n := value(metrics.one(t, "ovs_cost_refresh_failures_total", "target=ovs-vswitchd")); n != failures {
			t.Errorf("%v failures, not %v", n, failures)
		}
		if got := value(metrics.one(t, "ovs_cost_up", "target="+good.Path)); got != 1 {
			t.Error("the other target is not up")
		}
		if complaint == "" != (text.Len() == 0) || !strings.Contains(text.String(), complaint) {
			t.Errorf("log %q, not %q", text.String(), complaint)
		}
		text.Reset()
	}
	check(0, "no such file or directory")
	check(0, "") // It says so once.
	d := start(t, dir, 1, fake.Replies(t, "testdata"))
	check(1, "can be read again")
	check(1, "")
	d.Stop()
	check(0, "connect")
	d = start(t, dir, 2, fake.Replies(t, "testdata"))
	d.Cut, d.Hang = 1000, true
	check(0, "cost/show: no complete reply within ")
	d.Stop()
	d = start(t, dir, 3, fake.Replies(t, "testdata"))
	d.Cut = 1000
	check(0, "cost/show: the daemon closed the connection")
	d.Stop()
	start(t, dir, 4, fake.Replies(t, "testdata"))
	check(1, "can be read again")
}

// What the daemon does not have, or has in a form that is not known, does not
// take other reports away.
func TestReportFails(t *testing.T) {
	replies := fake.Replies(t, "testdata")
	var text bytes.Buffer
	metrics := scrape(t, func(method string, params []string) (string, string) {
		reply, errText := replies(method, params)
		switch method {
		case "tx/cost-show":
			return strings.Replace(reply, `"version":2`, `"version":3`, 1), ""
		case "netlink/cost-show":
			return "", "\"netlink/cost-show\" is not a valid command\n"
		case "bridge/cost-show":
			return "[1, 2]", ""
		case "revalidator/cost-limit", "cost/threads":
			return "{}", ""
		}
		return reply, errText
	}, Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if up := value(metrics.one(t, "ovs_cost_up")); up != 1 {
		t.Errorf("up is %v", up)
	}
	for name, want := range map[string]float64{"upcall": 1, "tx": 0,
		"netlink": 0, "bridge": 0, "revalidator": 0, "threads": 0} {
		if got := value(metrics.one(t, "ovs_cost_report_up", "report="+name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for name, n := range map[string]int{"ovs_cost_upcalls_total": 2,
		"ovs_cost_tx_bursts_total": 0, "ovs_cost_netlink_calls_total": 0,
		"ovs_cost_bridge_iterations_total": 0, "ovs_cost_flow_limit": 0,
		"ovs_cost_revalidator_rounds_total": 1} {
		if got := len(metrics.find(name)); got != n {
			t.Errorf("%d %s", got, name)
		}
	}
	for _, want := range []string{"a newer one is needed",
		"netlink/cost-show: not the reply of a cost report",
		"bridge/cost-show: not the reply of a cost report",
		"revalidator/cost-limit: not the reply of a cost report",
		"cost/threads: not the reply of a cost report"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %s", want, text.String())
		}
	}
}

// change replaces the reply to NAME/cost-show by what 'edit' makes of it.
func change(t testing.TB, name string, edit func(show map[string]any)) fake.Handler {
	t.Helper()
	replies := fake.Replies(t, "testdata")
	text, _ := replies(name+"/cost-show", nil)
	var show map[string]any
	if err := json.Unmarshal([]byte(text), &show); err != nil {
		t.Fatal(err)
	}
	edit(show)
	changed, err := json.Marshal(show)
	if err != nil {
		t.Fatal(err)
	}
	return func(method string, params []string) (string, string) {
		if method == name+"/cost-show" {
			return string(changed), ""
		}
		return replies(method, params)
	}
}

// copies returns copies of the first of 'accounts', with these names.
func copies(t testing.TB, accounts any, names []string) []any {
	t.Helper()
	var all []any
	for _, name := range names {
		account := map[string]any{}
		for key, v := range accounts.([]any)[0].(map[string]any) {
			account[key] = v
		}
		account["name"] = name
		all = append(all, account)
	}
	return all
}

// Names of ports come back from the page as they were, but for what is no
// UTF-8; ports of the same name are one.
func TestHostileNames(t *testing.T) {
	names := []string{`"quoted" \ back`, "new\nline", "a{b=\"c\"} 1 # HELP",
		"päckchen \u202e\U0001f4a9", strings.Repeat("x", 255), "", "twice", "twice", "\x00\x1b[2J"}
	dir := t.TempDir()
	var events float64
	start(t, dir, 1, change(t, "tx", func(show map[string]any) {
		accounts := copies(t, show["accounts"], names)
		events = accounts[0].(map[string]any)["events"].(float64)
		show["accounts"] = accounts
		// What JSON can't say comes as this.
		accounts[8].(map[string]any)["name"] = "\x00\x1b[2J\xff"
	}))
	c := collector(t, Options{RunDir: dir, Accounts: 20, Classes: 20, Threads: 20})
	metrics := gather(t, c)

	var page bytes.Buffer
	for _, family := range metrics {
		if _, err := expfmt.MetricFamilyToText(&page, family); err != nil {
			t.Fatal(err)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(&page)
	if err != nil {
		t.Fatal(err)
	}
	again := gathered(parsed)
	for _, name := range names {
		want := events
		switch name {
		case "twice":
			want *= 2
		case "\x00\x1b[2J":
			name += "\ufffd"
		}
		m := again.one(t, "ovs_cost_account_tx_bursts_total", "account="+name)
		if value(m) != want {
			t.Errorf("%q: %v, not %v", name, value(m), want)
		}
		threads := again.find("ovs_cost_thread_tx_bursts_total", "account="+name)
		if len(threads) == 0 {
			t.Errorf("%q has no threads", name)
		}
	}
}

// series returns how many series there are, in a Prometheus with native
// histograms and in one without.
func (f gathered) series() (native, classic int) {
	for _, family := range f {
		for _, metric := range family.Metric {
			n := 1
			if h := metric.Histogram; h != nil {
				n = len(h.Bucket) + 3
				if h.Schema != nil {
					native -= n - 1
				}
			}
			native += n
			classic += n
		}
	}
	return native, classic
}

// However many ports, classes and threads there are, and whatever the daemon
// says, series are bounded.
func TestBounds(t *testing.T) {
	var names []string
	for i := range 10000 {
		names = append(names, fmt.Sprintf("port%d", i))
	}
	dir := t.TempDir()
	start(t, dir, 1, change(t, "tx", func(show map[string]any) {
		show["omitted"] = 23
		account := show["accounts"].([]any)[0].(map[string]any)
		part := account["threads"].([]any)[0].(map[string]any)
		// A port has up to 64 classes; of many ports, the first has threads.
		var parts []any
		for _, name := range names[:64] {
			copied := map[string]any{"events": 1, "stages": part["stages"],
				"counters": part["counters"], "name": name}
			parts = append(parts, copied)
		}
		accounts := []any{}
		for _, name := range names {
			accounts = append(accounts, map[string]any{"name": name, "kind": "burst",
				"since_us": account["since_us"], "events": 5,
				"stages": map[string]any{}, "counters": map[string]any{},
				"classes": []any{}})
		}
		accounts[0].(map[string]any)["threads"] = parts
		show["accounts"] = accounts
		show["total"].([]any)[0].(map[string]any)["classes"] = parts
	}))
	metrics := gather(t, collector(t, Options{RunDir: dir}))
	if n := len(metrics.find("ovs_cost_account_tx_bursts_total")) +
		len(metrics.find("ovs_cost_class_tx_bursts_total")); n != 0 {
		t.Errorf("%d metrics of accounts and classes that nobody asked for", n)
	}
	metrics = gather(t, collector(t, Options{RunDir: dir, Accounts: 7,
		Classes: 5, Threads: 4}))
	for name, want := range map[string]int{"account": 7, "class": 5, "thread": 4} {
		if n := len(metrics.find("ovs_cost_" + name + "_tx_bursts_total")); n != want {
			t.Errorf("%d of %s", n, name)
		}
	}
	for of, want := range map[string]float64{"accounts": 10000 - 7 + 23,
		"classes": 64 - 5, "threads": 64 - 4} {
		got := value(metrics.one(t, "ovs_cost_omitted", "report=tx", "of="+of))
		if got != want {
			t.Errorf("%v %s omitted, not %v", got, of, want)
		}
	}
}

// The figures of README.md.
func TestSeriesOfHost(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	// Lines are broken anywhere.
	text := strings.Join(strings.Fields(string(readme)), " ")
	metrics := scrape(t, fake.Replies(t, "testdata"), Options{Accounts: 3, Classes: 3})
	native, classic := 0, 0
	account, accountClassic := map[string]int{}, map[string]int{} // By kind.
	for name, family := range metrics {
		n, c := gathered{name: family}.series()
		switch {
		case strings.HasPrefix(name, "ovs_cost_account_"):
			for k := range kinds {
				if !metricOf(name, "ovs_cost_account_", &kinds[k]) {
					continue
				}
				of := len(metrics.find("ovs_cost_account_" + kinds[k].metric + "s_total"))
				account[kinds[k].name] += n / of
				accountClassic[kinds[k].name] += c / of
			}
		case strings.HasPrefix(name, "ovs_cost_class_"), name == "ovs_cost_omitted":
		default:
			native += n
			classic += c
		}
	}
	most, mostClassic := 0, 0
	for k := range account {
		most, mostClassic = max(most, account[k]), max(mostClassic, accountClassic[k])
	}
	for _, want := range []string{
		fmt.Sprintf("%d series with native histograms, %s without",
			native, commas(classic)),
		fmt.Sprintf("Each account adds at most %d or %d,", most, mostClassic),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

// metricOf returns true if the metric 'name', with 'prefix', is one of 'k'.
func metricOf(name, prefix string, k *kind) bool {
	name = strings.TrimPrefix(name, prefix)
	return name == k.metric+"s_total" || name == k.metric+"_duration_seconds" ||
		name == k.metric+"_sampled_duration_seconds" ||
		slices.ContainsFunc(k.groups, func(g group) bool { return g.metric == name })
}

func commas(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// What threads have used, each with a series of its own, even if two have the
// same name.
func TestThreads(t *testing.T) {
	metrics := scrape(t, fake.Replies(t, "testdata"), Options{})
	for name, want := range map[string]float64{
		"ovs_cost_threads_cpu_seconds_total":       0.25,
		"ovs_cost_threads_run_delay_seconds_total": 1.5,
		"ovs_cost_threads_major_faults_total":      3,
	} {
		if got := value(metrics.one(t, name, "thread=pmd-c01/id:9")); got != want {
			t.Errorf("%s: %v, not %v", name, got, want)
		}
	}
	for of, want := range map[string]float64{"voluntary": 4, "involuntary": 500} {
		if got := value(metrics.one(t, "ovs_cost_threads_context_switches_total",
			"thread=pmd-c01/id:9", "type="+of)); got != want {
			t.Errorf("%s switches: %v, not %v", of, got, want)
		}
	}
	if n := len(metrics.find("ovs_cost_threads_cpu_seconds_total", "thread=twin")); n != 2 {
		t.Errorf("%d twins", n)
	}
	if got := value(metrics.one(t, "ovs_cost_throttled_seconds_total")); got != 0.07 {
		t.Errorf("throttled %v s", got)
	}

	// There may be thousands.
	var many []report.Thread
	for i := range 1000 {
		many = append(many, report.Thread{Name: "t", TID: uint64(i / 2 * 2), CPUNS: uint64(i)})
	}
	threads, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	replies := fake.Replies(t, "testdata")
	metrics = scrape(t, func(method string, params []string) (string, string) {
		if method == "cost/threads" {
			return `{"version":2,"report":"cost","command":"threads","threads":` +
				string(threads) + "}", ""
		}
		return replies(method, params)
	}, Options{})
	if n := len(metrics.find("ovs_cost_threads_cpu_seconds_total")); n != 50 {
		t.Errorf("%d threads", n)
	}
	if got := value(metrics.one(t, "ovs_cost_omitted", "report=threads")); got != 900 {
		t.Errorf("%v omitted", got)
	}
	if n := len(metrics.find("ovs_cost_throttled_seconds_total")); n != 0 {
		t.Error("throttled without a limit")
	}
}

// Members that a later daemon adds do no harm.
func TestUnknownMembers(t *testing.T) {
	metrics := scrape(t, change(t, "upcall", func(show map[string]any) {
		sum := show["total"].([]any)[0].(map[string]any)
		stages := sum["stages"].(map[string]any)
		stages["later"] = stages["parse"]
		stages["tokens"] = map[string]any{"unit": "tokens", "sampled": false,
			"count": 1, "sum": 1,
			"histogram": map[string]any{"scale": 3, "offset": -240,
				"bucket_counts": []int{1}}}
		sum["counters"].(map[string]any)["moods"] = map[string]any{"good": 1}
		sum["news"] = "none"
		show["total"] = append(show["total"].([]any), map[string]any{
			"kind": "daydream", "accounts": 1, "events": 3,
			"stages": stages, "counters": map[string]any{}})
	}), Options{})
	// A new stage is one more label.
	metrics.one(t, "ovs_cost_upcall_stage_sampled_duration_seconds",
		"stage=later", "datapath_type=netdev")
	for name := range metrics {
		for _, word := range []string{"tokens", "moods", "daydream"} {
			if strings.Contains(name, word) {
				t.Error(name)
			}
		}
	}
}
