// SPDX-License-Identifier: Apache-2.0

// The program fleet pretends to be many hosts, each with an exporter: it
// serves what recordings of "ovs-cost record" have, at /node/N/metrics.
//
//	fleet NODES STEP RECORDING...
//
// Nodes take the recordings in turn.  Each begins with the first replies of its
// recording and has the next ones every STEP, such as 15s, up to the last.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	ovscost "ovs-cost/exporter"
	"ovs-cost/exporter/report"
)

// recording has the replies to each command, in order.
type recording map[string][]json.RawMessage

func load(path string) (recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	replies := recording{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var line struct {
			Reply json.RawMessage `json:"reply"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if line.Reply == nil {
			continue
		}
		var header struct {
			Report  string `json:"report"`
			Command string `json:"command"`
		}
		if err := json.Unmarshal(line.Reply, &header); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		name := header.Report + "/" + header.Command
		replies[name] = append(replies[name], line.Reply)
	}
	return replies, lines.Err()
}

// replay is a Source of the replies of a recording.
type replay struct {
	recording recording
	start     time.Time
	step      time.Duration
}

// Call returns the reply to cost/show.
func (r *replay) Call(string, ...string) ([]byte, error) {
	at := int(time.Since(r.start) / r.step)
	var now []json.RawMessage
	for _, replies := range r.recording {
		now = append(now, replies[min(at, len(replies)-1)])
	}
	return json.Marshal(map[string]any{"version": report.Version, "replies": now})
}

func (r *replay) Close() error { return nil }

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: fleet NODES STEP RECORDING...")
	}
	nodes, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	step, err := time.ParseDuration(os.Args[2])
	if err != nil || step <= 0 {
		log.Fatalf("%s is no step: %v", os.Args[2], err)
	}
	var recordings []recording
	for _, path := range os.Args[3:] {
		replies, err := load(path)
		if err != nil {
			log.Fatal(err)
		}
		recordings = append(recordings, replies)
	}
	// What is measured is not an exporter: nodes with the same recording share
	// one.
	start := time.Now()
	var handlers []http.Handler
	for _, recording := range recordings {
		source := &replay{recording, start, step}
		collector, err := ovscost.New(ovscost.Options{
			Interval: time.Second,
			Open: func(context.Context, string) (ovscost.Source, error) {
				return source, nil
			}})
		if err != nil {
			log.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(collector)
		handlers = append(handlers, promhttp.HandlerFor(registry,
			promhttp.HandlerOpts{}))
	}
	for node := range nodes {
		http.Handle(fmt.Sprintf("/node/%d/metrics", node),
			handlers[node%len(handlers)])
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("Listening on address=%s", listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}
