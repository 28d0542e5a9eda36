// SPDX-License-Identifier: Apache-2.0

// The program ovs-cost-exporter serves Open vSwitch's cost reports to
// Prometheus.
package main

import (
	"log/slog"
	"net/http"
	"os"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"

	ovscost "ovs-cost/exporter"
)

const name = "ovs-cost-exporter"

func main() {
	app := kingpin.New(name, "Serves Open vSwitch's cost reports to Prometheus.")
	path := app.Flag("web.telemetry-path",
		"Path of the metrics.").Default("/metrics").String()
	rundir := app.Flag("ovs.rundir",
		"Directory of the daemons' pidfiles and control sockets.").
		Default(ovscost.DefaultRunDir).Envar("OVS_RUNDIR").String()
	targets := app.Flag("ovs.target",
		"Daemon to ask: the name of its pidfile, or of its control socket if it begins with a slash. May be repeated.").
		Default(ovscost.DefaultTarget).Strings()
	interval := app.Flag("ovs.interval",
		"Ask a daemon at most once in this time, however often the exporter is scraped.").
		Default(ovscost.DefaultInterval.String()).Duration()
	timeout := app.Flag("ovs.timeout",
		"How long a daemon may take for all replies of a refresh.").
		Default(ovscost.DefaultTimeout.String()).Duration()
	accounts := app.Flag("collect.accounts",
		"Export this many datapaths or ports of each report one by one: those with the most time.").
		Default("0").Int()
	classes := app.Flag("collect.classes",
		"Export this many classes of each kind of event one by one: those with the most events.").
		Default("0").Int()
	threads := app.Flag("collect.threads",
		"Export this many threads of each of these datapaths or ports one by one.").
		Default("0").Int()
	list := app.Flag("list-metrics",
		"Print name, labels and help of each metric, and exit.").Bool()
	flags := kingpinflag.AddFlags(app, "127.0.0.1:10475")
	logConfig := &promslog.Config{}
	promslogflag.AddFlags(app, logConfig)
	app.Version(version.Print(name))
	app.HelpFlag.Short('h')
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if *list {
		app.FatalIfError(ovscost.ListMetrics(os.Stdout), "")
		return
	}
	logger := promslog.New(logConfig)

	collector, err := ovscost.New(ovscost.Options{
		Targets: *targets, RunDir: *rundir, Interval: *interval,
		Timeout: *timeout, Accounts: *accounts, Classes: *classes,
		Threads: *threads, Logger: logger,
	})
	if err != nil {
		app.Fatalf("%v", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, versioncollector.NewCollector("ovs_cost_exporter"))
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})
	http.Handle(*path, handler)
	if *path != "/" {
		page, err := web.NewLandingPage(web.LandingConfig{
			Name:        name,
			Description: "What Open vSwitch spends time on",
			Version:     version.Info(),
			Links:       []web.LandingLinks{{Address: *path, Text: "Metrics"}},
		})
		if err != nil {
			app.Fatalf("%v", err)
		}
		http.Handle("/", page)
	}
	server := &http.Server{}
	if err := web.ListenAndServe(server, flags, logger); err != nil {
		logger.Error("cannot serve", "err", err)
		os.Exit(1)
	}
}
