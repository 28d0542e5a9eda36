// SPDX-License-Identifier: Apache-2.0

// Package report has the replies of Open vSwitch's cost commands, version 2 of
// their form: Documentation/topics/cost-json.rst describes it.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/bits"
)

// Version is that of the replies' form.
const Version = 2

// Histograms of times have edges at 2^(i/8) s, i from MinIndex to MaxIndex.
const (
	Scale    = 3
	MinIndex = -30 << Scale
	MaxIndex = 6 << Scale
)

// Names of the reports, each of which has a command NAME/cost-show.
var Names = []string{"upcall", "tx", "bridge", "netlink", "revalidator"}

// Show is a reply to cost-show.
type Show struct {
	Header
	Accounts []Account `json:"accounts"`
	Omitted  uint64    `json:"omitted"`
	Deleted  []Account `json:"deleted"`
	Total    []Account `json:"total"`
}

// Limit is a reply to revalidator/cost-limit.
type Limit struct {
	Header
	Datapaths []struct {
		Name      string `json:"name"`
		FlowLimit uint64 `json:"flow_limit"`
		Moves     uint64 `json:"moves"`
	} `json:"datapaths"`
}

// Threads is a reply to cost/threads.
type Threads struct {
	Header
	// Cgroup is nil if the daemon has no limit of CPU time.
	Cgroup *struct {
		ThrottledNS uint64 `json:"throttled_ns"`
	} `json:"cgroup"`
	Threads []Thread `json:"threads"`
}

// Thread is what a thread has used since it was created.
type Thread struct {
	Name                string `json:"name"`
	TID                 uint64 `json:"tid"`
	CPUNS               uint64 `json:"cpu_ns"`
	RunDelayNS          uint64 `json:"run_delay_ns"`
	VoluntarySwitches   uint64 `json:"voluntary_switches"`
	InvoluntarySwitches uint64 `json:"involuntary_switches"`
	MajorFaults         uint64 `json:"major_faults"`
}

// Header is what all replies have.  Times are in microseconds since the Epoch.
type Header struct {
	Version    int    `json:"version"`
	Report     string `json:"report"`
	Command    string `json:"command"`
	StartUS    int64  `json:"start_us"`
	OVSVersion string `json:"ovs_version"`
	Clock      struct {
		Source string `json:"source"`
	} `json:"clock"`
	Settings struct {
		Enabled        bool   `json:"enabled"`
		SampleInterval uint64 `json:"sample_interval"`
	} `json:"settings"`
}

// Body is events, and what is known of them.
type Body struct {
	Events   uint64                       `json:"events"`
	Slow     uint64                       `json:"slow"`
	Stages   map[string]*Stage            `json:"stages"`
	Counters map[string]map[string]uint64 `json:"counters"`
}

// Part is the events of one class or thread.
type Part struct {
	Name string `json:"name"`
	Body
}

// Account is an account, or a sum of accounts.  A sum has no name.
type Account struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	SinceUS int64  `json:"since_us"`
	// Accounts is how many are added up, in a sum.
	Accounts uint64 `json:"accounts"`
	Body
	Classes []Part `json:"classes"`
	Threads []Part `json:"threads"`
}

// Stage is the distribution of one stage's times, or of numbers.
type Stage struct {
	Unit string `json:"unit"`
	// Sampled is true if this is not of all events.
	Sampled   bool      `json:"sampled"`
	Count     uint64    `json:"count"`
	Sum       uint64    `json:"sum"`
	Histogram Histogram `json:"histogram"`
}

// Histogram is that of times, or of numbers, each as a time of as many ns.
type Histogram struct {
	Scale        int      `json:"scale"`
	ZeroCount    uint64   `json:"zero_count"`
	Offset       int      `json:"offset"`
	BucketCounts []uint64 `json:"bucket_counts"`
	Overflow     uint64   `json:"overflow"`
}

// IsTime returns true if the stage's values are times, in ns.
func (s *Stage) IsTime() bool {
	return s.Unit == "ns"
}

// IsWhole returns true if the stage of that name is the whole event.
func IsWhole(name string) bool {
	return name == "total" || name == "run"
}

// ParseShow returns the reply to REPORT/cost-show -hist that is in 'data'.
func ParseShow(data []byte, report string) (*Show, error) {
	var show Show
	if err := unmarshal(data, &show, &show.Header, report, "cost-show"); err != nil {
		return nil, err
	}
	for _, accounts := range [][]Account{show.Accounts, show.Deleted, show.Total} {
		for i := range accounts {
			if err := accounts[i].check(); err != nil {
				return nil, fmt.Errorf("%s/cost-show: %w", report, err)
			}
		}
	}
	return &show, nil
}

// ParseLimit returns the reply to revalidator/cost-limit that is in 'data'.
func ParseLimit(data []byte) (*Limit, error) {
	var limit Limit
	return &limit, unmarshal(data, &limit, &limit.Header, "revalidator", "cost-limit")
}

// ParseThreads returns the reply to cost/threads that is in 'data'.
func ParseThreads(data []byte) (*Threads, error) {
	var threads Threads
	return &threads, unmarshal(data, &threads, &threads.Header, "cost", "threads")
}

// Together is the command that has the replies of all reports.
const Together = "cost/show"

// ParseTogether returns the replies in a reply to it, by their commands.
func ParseTogether(data []byte) (map[string][]byte, error) {
	var all struct {
		Replies []json.RawMessage `json:"replies"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", Together, err)
	}
	replies := map[string][]byte{}
	for _, reply := range all.Replies {
		var of struct {
			Report  string `json:"report"`
			Command string `json:"command"`
		}
		if json.Unmarshal(reply, &of) == nil {
			replies[of.Report+"/"+of.Command] = reply
		}
	}
	return replies, nil
}

func unmarshal(data []byte, reply any, header *Header, report, command string) error {
	name := report + "/" + command
	var version struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &version); err != nil || version.Version == nil {
		return fmt.Errorf("%s: not the reply of a cost report", name)
	}
	if *version.Version != Version {
		return fmt.Errorf("%s: the reply has version %d of its form, of which "+
			"this program knows %d only: a newer one is needed", name,
			*version.Version, Version)
	}
	if err := json.Unmarshal(data, reply); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if header.Report != report || header.Command != command {
		return fmt.Errorf("%s: a reply to %s/%s", name, header.Report,
			header.Command)
	}
	return nil
}

func (a *Account) check() error {
	if err := a.Body.check(); err != nil {
		return fmt.Errorf("%s %q: %w", a.Kind, a.Name, err)
	}
	for _, parts := range [][]Part{a.Classes, a.Threads} {
		for i := range parts {
			if err := parts[i].check(); err != nil {
				return fmt.Errorf("%s %q, %q: %w", a.Kind, a.Name,
					parts[i].Name, err)
			}
		}
	}
	return nil
}

func (b *Body) check() error {
	for name, stage := range b.Stages {
		if stage == nil {
			return fmt.Errorf("stage %q: null", name)
		}
		if err := stage.check(); err != nil {
			return fmt.Errorf("stage %q: %w", name, err)
		}
	}
	return nil
}

func (s *Stage) check() error {
	h := &s.Histogram
	counts := h.BucketCounts
	if h.Scale != Scale {
		return fmt.Errorf("scale %d of a histogram, not %d", h.Scale, Scale)
	}
	if h.Offset < MinIndex || h.Offset > MaxIndex ||
		len(counts) > MaxIndex-h.Offset {
		return fmt.Errorf("buckets from %d, %d of them", h.Offset, len(counts))
	}
	sum, over := h.ZeroCount, uint64(0)
	for _, n := range append([]uint64{h.Overflow}, counts...) {
		var carry uint64
		sum, carry = bits.Add64(sum, n, 0)
		over += carry
	}
	if over != 0 || sum != s.Count {
		return errors.New("the buckets do not add up to the count")
	}
	return nil
}

// Merge adds 'other', of the same kind, to 'b', without any loss.  It does not
// change 'other', nor what 'b' shares with another Body.
func (b *Body) Merge(other *Body) {
	b.Events += other.Events
	b.Slow += other.Slow
	stages := map[string]*Stage{}
	maps.Copy(stages, b.Stages)
	for name, stage := range other.Stages {
		if mine := stages[name]; mine != nil {
			stages[name] = mine.plus(stage)
		} else {
			stages[name] = stage
		}
	}
	b.Stages = stages
	counters := make(map[string]map[string]uint64, len(b.Counters))
	for _, groups := range []map[string]map[string]uint64{b.Counters, other.Counters} {
		for group, members := range groups {
			if counters[group] == nil {
				counters[group] = map[string]uint64{}
			}
			for name, n := range members {
				counters[group][name] += n
			}
		}
	}
	b.Counters = counters
}

func (s *Stage) plus(other *Stage) *Stage {
	sum := *s
	sum.Sampled = s.Sampled || other.Sampled
	sum.Count += other.Count
	sum.Sum += other.Sum
	h, o := &sum.Histogram, &other.Histogram
	h.ZeroCount += o.ZeroCount
	h.Overflow += o.Overflow
	h.Offset, h.BucketCounts = plusBuckets(h, o)
	return &sum
}

func plusBuckets(a, b *Histogram) (int, []uint64) {
	if len(a.BucketCounts) == 0 {
		return b.Offset, b.BucketCounts
	} else if len(b.BucketCounts) == 0 {
		return a.Offset, a.BucketCounts
	}
	first := min(a.Offset, b.Offset)
	end := max(a.Offset+len(a.BucketCounts), b.Offset+len(b.BucketCounts))
	counts := make([]uint64, end-first)
	for _, h := range []*Histogram{a, b} {
		for i, n := range h.BucketCounts {
			counts[h.Offset+i-first] += n
		}
	}
	return first, counts
}
