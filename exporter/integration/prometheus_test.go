// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ovscost "ovs-cost/exporter"
	"ovs-cost/exporter/internal/fake"
	"ovs-cost/exporter/report"
)

const netdev = `{datapath_type="netdev"}`

// sameBuckets checks that a histogram in Prometheus is 's', exactly.
func sameBuckets(t *testing.T, what string, got sample, s *report.Stage) {
	t.Helper()
	have, count, sum := buckets(t, got.Histogram)
	want := map[int]float64{}
	if n := s.Histogram.ZeroCount; n != 0 {
		want[-1000] = float64(n)
	}
	for i, n := range s.Histogram.BucketCounts {
		if n != 0 {
			want[s.Histogram.Offset+i+1] = float64(n)
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(want) || count != float64(s.Count) {
		t.Errorf("%s: %v, not %v", what, have, want)
	}
	if seconds := float64(s.Sum) / 1e9; math.Abs(sum-seconds) > 1e-9*seconds {
		t.Errorf("%s: sum %v, not %v", what, sum, seconds)
	}
}

// Quantiles and fractions of what Prometheus has scraped are those that
// ovs-appctl shows.
func TestQuantiles(t *testing.T) {
	s := startSwitch(t)
	s.tool("utilities/ovs-vsctl", "set", "Open_vSwitch", ".",
		"other_config:cost-sample-interval=1")
	m := startPrometheus(t, serve(t, ovscost.Options{RunDir: s.dir}))
	s.send(400)
	m.waitScrape(1)

	// No upcall happens any more, so this is what has been scraped.
	sum := s.upcalls()
	var shown struct {
		Total []struct {
			Stages map[string]map[string]any `json:"stages"`
		} `json:"total"`
	}
	if err := json.Unmarshal(s.call("upcall/cost-show"), &shown); err != nil {
		t.Fatal(err)
	}
	if sum.Events != 400 || len(sum.Stages) != 5 {
		t.Fatalf("%d upcalls with %d stages", sum.Events, len(sum.Stages))
	}
	for name, stage := range sum.Stages {
		series := "ovs_cost_upcall_duration_seconds" + netdev
		if stage.Sampled {
			series = `ovs_cost_upcall_stage_sampled_duration_seconds{datapath_type="netdev",stage="` + name + `"}`
		}
		if stage.Count == 0 {
			t.Errorf("%s: nothing counted", name)
			continue
		}
		sameBuckets(t, name, m.query(series)[0], stage)
		for label, q := range map[string]float64{"p50": 0.5, "p90": 0.9,
			"p99": 0.99, "p99.9": 0.999} {
			want := shown.Total[0].Stages[name][label].(float64) / 1e9
			got := m.one(fmt.Sprintf("histogram_quantile(%v, %s)", q, series))
			if off := math.Abs(math.Log2(got/want)) * 8; !(off <= 1.001) {
				t.Errorf("%s %s: %v, not %v: %v buckets off", name, label, got, want, off)
			}
		}
		var below uint64 = stage.Histogram.ZeroCount
		for i, n := range stage.Histogram.BucketCounts {
			below += n
			edge := math.Exp2(float64(stage.Histogram.Offset+i+1) / 8)
			// A hair more than the edge, which may be rounded.
			got := m.one(fmt.Sprintf("histogram_fraction(0, %v, %s)", edge*(1+1e-12), series))
			want := float64(below) / float64(stage.Count)
			if math.Abs(got-want) > 1e-6 {
				t.Errorf("%s: %v up to %v, not %v", name, got, edge, want)
			}
		}
	}
	if n := m.one("ovs_cost_upcalls_total" + netdev); n != 400 {
		t.Errorf("%v upcalls", n)
	}
}

// What has increased, over a clear and a restart, is what was sent.
func TestIncrease(t *testing.T) {
	s := startSwitch(t)
	m := startPrometheus(t, serve(t, ovscost.Options{RunDir: s.dir}))
	m.waitScrape(1)
	s.send(50)
	m.waitScrape(1)
	s.call("upcall/cost-clear")
	s.send(20)
	m.waitScrape(1)
	s.restart()
	m.waitScrape(1) // When nothing has happened yet.
	s.send(30)
	m.waitScrape(1)
	const sent = 100

	const counter = "ovs_cost_upcalls_total" + netdev
	const histogram = "ovs_cost_upcall_duration_seconds" + netdev
	if n := m.one("resets(" + counter + "[10m])"); n != 2 {
		t.Errorf("%v resets of the counter", n)
	}
	values := m.query(counter + "[10m]")[0].Values
	// Prometheus extrapolates at either end by at most 1.1 intervals.
	most := sent * (1 + 2.2/float64(len(values)-1))
	for _, query := range []string{
		"increase(" + counter + "[10m])",
		"histogram_count(increase(" + histogram + "[10m]))",
	} {
		if n := m.one(query); !(n >= sent*(1-1e-9) && n <= most) {
			t.Errorf("%s: %v, not %v to %v", query, n, sent, most)
		}
	}
}

// The sum over three switches is that of their recordings, merged.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	var targets, files []string
	var switches []*vswitch
	for i := range 3 {
		s := startSwitch(t)
		s.tool("utilities/ovs-vsctl", "set", "Open_vSwitch", ".",
			"other_config:cost-sample-interval=2")
		s.send(50 * (i + 1))
		switches = append(switches, s)
		targets = append(targets, s.socket())
	}
	m := startPrometheus(t, serve(t, ovscost.Options{Targets: targets}))
	m.waitScrape(3)
	for i, s := range switches {
		files = append(files, filepath.Join(dir, fmt.Sprint(i)))
		s.tool("utilities/ovs-cost", "record", "-r", "upcall", "-i", "0.1",
			"-d", "0.1", "-t", targets[i], "-o", files[i])
	}
	merged := filepath.Join(dir, "merged")
	switches[0].tool("utilities/ovs-cost",
		append([]string{"merge", "--all", "-o", merged}, files...)...)
	var show *report.Show
	text, err := os.ReadFile(merged)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewReader(bytes.NewReader(text)); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		var record struct {
			Reply json.RawMessage `json:"reply"`
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		if record.Reply != nil {
			if show, err = report.ParseShow(record.Reply, "upcall"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, sum := range show.Total {
		if sum.Stages["operate"] != nil {
			continue
		}
		if sum.Events != 300 {
			t.Errorf("%d upcalls", sum.Events)
		}
		for name, stage := range sum.Stages {
			query := "sum(ovs_cost_upcall_duration_seconds" + netdev + ")"
			if stage.Sampled {
				query = `sum(ovs_cost_upcall_stage_sampled_duration_seconds{datapath_type="netdev",stage="` + name + `"})`
			}
			sameBuckets(t, name, m.query(query)[0], stage)
		}
		return
	}
	t.Error("no sum in the merged recording")
}

// Every query of the dashboard and of the rules is one, and results in
// something where there is something.
func TestQueries(t *testing.T) {
	s := startSwitch(t)
	m := startPrometheus(t, serve(t, ovscost.Options{RunDir: s.dir}))
	m.waitScrape(1)
	s.send(200)
	m.waitScrape(1)
	s.send(10)
	m.waitScrape(1)
	// Of what is known of one in 64 bursts there may be nothing yet.
	maybe := map[string]bool{"How long sending takes": true}
	// There is no kernel datapath.
	maybe["Wait in the kernel"] = true

	text, err := os.ReadFile("../../monitoring/grafana/ovs-cost.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			query := strings.NewReplacer("$instance", ".*", "$__rate_interval",
				"1m").Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s: a variable in %s", panel.Title, query)
			}
			result := m.query(query)
			if len(result) == 0 && !maybe[panel.Title] {
				t.Errorf("%s: nothing from %s", panel.Title, query)
			}
			n++
		}
	}
	if n < 30 {
		t.Errorf("only %d queries in the dashboard", n)
	}

	reply, err := http.Get(m.url + "/api/v1/rules")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name   string `json:"name"`
					Health string `json:"health"`
					Error  string `json:"lastError"`
					State  string `json:"state"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"data"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&rules); err != nil {
		t.Fatal(err)
	}
	n = 0
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" || rule.State == "firing" {
				t.Errorf("%s: %s %s %s", rule.Name, rule.Health, rule.State, rule.Error)
			}
			n++
		}
	}
	want := 16
	if m.storesRates() {
		want = 20
	}
	if n != want {
		t.Errorf("%d rules, not %d", n, want)
	}
	for _, record := range []string{
		"instance:ovs_cost_upcall_duration_seconds:p99_rate5m" + netdev,
		"instance:ovs_cost_bridge_iterations_over_1s:increase5m",
	} {
		if n := m.one(record); !(n >= 0) {
			t.Errorf("%s: %v", record, n)
		}
	}
	if !m.storesRates() {
		return
	}
	// A histogram of all hosts of a rack.
	const rack = "rack:ovs_cost_upcall_duration_seconds:rate5m" + netdev
	if got := m.query(rack); len(got) != 1 || got[0].Metric["rack"] != "r1" {
		t.Errorf("%v", got)
	}
	if n := m.one("histogram_quantile(0.99, " + rack + ")"); !(n > 0) {
		t.Errorf("p99 of a rack: %v", n)
	}
}

// Gets the page at 'url', which must have the lines 'want'.
func get(t *testing.T, url string, want ...string) []byte {
	t.Helper()
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(reply.Body)
	reply.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range want {
		if !strings.Contains(string(page), "\n"+line+"\n") {
			t.Errorf("no line %s in %s", line, page)
		}
	}
	return page
}

// The program, from its options to the page.
func TestProgram(t *testing.T) {
	s := startSwitch(t)
	s.send(5)
	program := filepath.Join(t.TempDir(), "ovs-cost-exporter")
	if out, err := exec.Command("go", "build", "-o", program,
		"../cmd/ovs-cost-exporter").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(program, "--web.listen-address=127.0.0.1:0",
		"--collect.accounts=5", "--collect.classes=5", "--collect.threads=5")
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir)
	address := fake.Run(t, cmd).Address
	page := get(t, "http://"+address+"/metrics",
		`ovs_cost_up{target="ovs-vswitchd"} 1`,
		`ovs_cost_upcalls_total{datapath_type="netdev",target="ovs-vswitchd"} 5`,
		`ovs_cost_account_upcalls_total{account="dummy@ovs-dummy",target="ovs-vswitchd"} 5`,
		`ovs_cost_class_upcalls_total{class="miss",datapath_type="netdev",target="ovs-vswitchd"} 5`,
		`ovs_cost_thread_upcalls_total{account="dummy@ovs-dummy",target="ovs-vswitchd",thread="main"} 5`,
		`ovs_cost_account_tx_bursts_total{account="p1",target="ovs-vswitchd"} 5`)
	if prometheus := os.Getenv("PROMETHEUS"); prometheus != "" {
		check := exec.Command(filepath.Join(filepath.Dir(prometheus), "promtool"),
			"check", "metrics")
		check.Stdin = bytes.NewReader(page)
		if out, err := check.CombinedOutput(); err != nil || len(out) != 0 {
			t.Errorf("promtool check metrics: %v: %s", err, out)
		}
	}
	out, err := exec.Command(program, "--collect.threads=1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "threads are known of accounts only") {
		t.Errorf("%v: %s", err, out)
	}
}
