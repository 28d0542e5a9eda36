// SPDX-License-Identifier: Apache-2.0

// Package integration tests the exporter with real switches and a real
// Prometheus.  OVS_COST_TREE is the built tree of Open vSwitch, PROMETHEUS the
// program; stage "exporter" sets them.
package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	ovscost "ovs-cost/exporter"
	"ovs-cost/exporter/internal/fake"
	"ovs-cost/exporter/report"
	"ovs-cost/exporter/unixctl"
)

// waitFor waits until 'done' returns true.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(fake.Patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: ", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A vswitch is an ovs-vswitchd with a bridge of dummy ports, p0 and p1.
type vswitch struct {
	t     testing.TB
	tree  string
	dir   string
	cmd   *exec.Cmd
	stdin io.Closer // Ends the switch.
	pid   int       // Of ovs-vswitchd.
	flows int       // Sent so far, each packet one.
}

func startSwitch(t testing.TB) *vswitch {
	t.Helper()
	tree := os.Getenv("OVS_COST_TREE")
	if tree == "" {
		t.Skip("no OVS_COST_TREE, a built tree of Open vSwitch")
	}
	// Names of sockets must be short.
	dir, err := os.MkdirTemp("", "ovs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &vswitch{t: t, tree: tree, dir: dir}
	s.start()
	t.Cleanup(s.stop)
	s.tool("utilities/ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0",
		"datapath_type=dummy", "fail-mode=secure",
		"--", "add-port", "br0", "p0", "--", "set", "interface", "p0", "type=dummy",
		"--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy")
	s.prepare()
	return s
}

// start starts ovsdb-server and ovs-vswitchd, as new processes.
func (s *vswitch) start() {
	s.t.Helper()
	s.cmd = exec.Command("python3", "../../tools/switch.py", s.tree, s.dir,
		"--enable-dummy", "--disable-system")
	s.cmd.Stderr = os.Stderr
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.stdin = stdin
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fscan(stdout, &s.pid); err != nil {
		s.t.Fatal("the switch does not start: ", err)
	}
}

func (s *vswitch) stop() {
	s.stdin.Close()
	s.cmd.Wait()
}

// prepare makes each packet an upcall of its own.
func (s *vswitch) prepare() {
	s.tool("utilities/ovs-ofctl", "add-flow", "unix:"+s.dir+"/br0.mgmt", "actions=2")
	s.call("upcall/disable-megaflows")
}

// restart ends the switch and starts it again.
func (s *vswitch) restart() {
	s.stop()
	s.start()
	s.prepare()
}

func (s *vswitch) tool(program string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.tree, program), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir,
		"PYTHONPATH="+s.tree+"/python", "PYTHONDONTWRITEBYTECODE=yes")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
}

// socket returns its control socket.
func (s *vswitch) socket() string {
	path, err := unixctl.Socket(s.dir, "ovs-vswitchd")
	if err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *vswitch) call(method string, params ...string) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fake.Patience)
	defer cancel()
	conn, err := unixctl.Dial(ctx, s.socket())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	reply, err := conn.Call(method, params...)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply
}

func (s *vswitch) show(name string) *report.Show {
	s.t.Helper()
	show, err := report.ParseShow(s.call(name+"/cost-show", "-hist"), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return show
}

// upcalls returns the sum of upcalls in the userspace datapath.
func (s *vswitch) upcalls() *report.Account {
	s.t.Helper()
	for _, sum := range s.show("upcall").Total {
		if sum.Stages["operate"] == nil {
			return &sum
		}
	}
	s.t.Fatal("no sum of upcalls")
	return nil
}

// send sends 'n' packets of new flows, and waits until their upcalls have been
// counted.
func (s *vswitch) send(n int) {
	s.t.Helper()
	before := s.upcalls().Events
	for range n {
		s.flows++
		s.call("netdev-dummy/receive", "p0", fmt.Sprintf("in_port(1),"+
			"eth(src=50:54:00:00:00:09,dst=50:54:00:00:00:0a),eth_type(0x0800),"+
			"ipv4(src=10.0.0.1,dst=10.1.%d.%d,proto=17,tos=0,ttl=64,frag=no),"+
			"udp(src=1,dst=2)", s.flows>>8, s.flows&255))
	}
	waitFor(s.t, "upcalls", func() bool {
		return s.upcalls().Events == before+uint64(n)
	})
}

// serve serves the metrics of an exporter and returns host and port.
func serve(t testing.TB, options ovscost.Options) string {
	t.Helper()
	collector, err := ovscost.New(options)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// A monitor is a Prometheus.
type monitor struct {
	t     testing.TB
	url   string
	major string
}

// storesRates returns true if rules may result in rates of histograms.
func (m *monitor) storesRates() bool {
	return m.major != "2"
}

// startPrometheus starts a Prometheus that scrapes 'targets' each second, and
// has the rules of monitoring/.
func startPrometheus(t testing.TB, targets ...string) *monitor {
	t.Helper()
	program := os.Getenv("PROMETHEUS")
	if program == "" {
		t.Skip("no PROMETHEUS, the program")
	}
	out, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`version (\d+)\.`).FindStringSubmatch(string(out))
	if match == nil {
		t.Fatalf("%s", out)
	}
	m := &monitor{t: t, major: match[1]}
	args := []string{"--web.listen-address=127.0.0.1:0"}
	native, files := "", []string{"recording.yml", "alerts.yml"}
	if m.major == "2" {
		args = append(args, "--enable-feature=native-histograms")
	} else {
		native = "  scrape_native_histograms: true\n"
	}
	if m.storesRates() {
		files = append(files, "racks.yml")
	}
	rules, err := filepath.Abs("../../monitoring/rules")
	if err != nil {
		t.Fatal(err)
	}
	for i := range files {
		files[i] = filepath.Join(rules, files[i])
	}
	var quoted [2][]byte
	for i, list := range [][]string{files, targets} {
		if quoted[i], err = json.Marshal(list); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n"+
		"  evaluation_interval: 1s\n%s"+
		"rule_files: %s\nscrape_configs:\n"+
		"- job_name: ovs-cost\n  static_configs:\n  - targets: %s\n"+
		"    labels: {rack: r1}\n", native, quoted[0], quoted[1])
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"))...)
	m.url = "http://" + fake.Run(t, cmd).Address
	waitFor(t, "Prometheus", func() bool {
		reply, err := http.Get(m.url + "/-/ready")
		if err != nil {
			return false
		}
		reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	return m
}

type sample struct {
	Metric    map[string]string    `json:"metric"`
	Value     [2]json.RawMessage   `json:"value"`
	Values    [][2]json.RawMessage `json:"values"`
	Histogram [2]json.RawMessage   `json:"histogram"`
}

type nativeHistogram struct {
	Count   string  `json:"count"`
	Sum     string  `json:"sum"`
	Buckets [][]any `json:"buckets"`
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// scalar returns the value of a pair of time and value.
func scalar(t testing.TB, pair [2]json.RawMessage) float64 {
	t.Helper()
	var text string
	if err := json.Unmarshal(pair[1], &text); err != nil {
		t.Fatalf("%s: %v", pair[1], err)
	}
	return number(t, text)
}

// buckets returns the buckets, by index, of a pair of time and histogram, with
// its count and sum.  Index -1000 is the bucket of 0.
func buckets(t testing.TB, pair [2]json.RawMessage) (map[int]float64, float64, float64) {
	t.Helper()
	var h nativeHistogram
	if err := json.Unmarshal(pair[1], &h); err != nil {
		t.Fatalf("%s: %v", pair[1], err)
	}
	all := map[int]float64{}
	for _, bucket := range h.Buckets {
		left, right := number(t, bucket[1].(string)), number(t, bucket[2].(string))
		index := -1000
		if left >= 0 && right > math.Ldexp(1, -30) {
			index = int(math.Round(math.Log2(right) * 8))
		}
		all[index] = number(t, bucket[3].(string))
	}
	return all, number(t, h.Count), number(t, h.Sum)
}

// query returns the result of a query.
func (m *monitor) query(query string) []sample {
	m.t.Helper()
	reply, err := http.Get(m.url + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		m.t.Fatal(err)
	}
	defer reply.Body.Close()
	var body struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&body); err != nil {
		m.t.Fatal(err)
	}
	if body.Status != "success" {
		m.t.Fatalf("%s: %s", query, body.Error)
	}
	return body.Data.Result
}

// one returns the only number that a query results in, or NaN if there is
// none.
func (m *monitor) one(query string) float64 {
	m.t.Helper()
	result := m.query(query)
	if len(result) == 0 {
		return math.NaN()
	}
	if len(result) > 1 {
		m.t.Fatalf("%s: %d results", query, len(result))
	}
	return scalar(m.t, result[0].Value)
}

// waitScrape waits until each target has been asked, successfully, after now.
func (m *monitor) waitScrape(targets int) {
	m.t.Helper()
	now := float64(time.Now().UnixMicro()) / 1e6
	waitFor(m.t, "scrape", func() bool {
		n := m.one(fmt.Sprintf("sum((ovs_cost_refresh_timestamp_seconds - "+
			"ovs_cost_refresh_duration_seconds > bool %f) * ovs_cost_up)", now))
		return n == float64(targets)
	})
}
