// SPDX-License-Identifier: Apache-2.0

package report

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParse(t *testing.T) {
	for _, name := range Names {
		show, err := ParseShow(read(t, name), name)
		if err != nil {
			t.Fatal(err)
		}
		if len(show.Accounts) == 0 || len(show.Total) == 0 ||
			show.StartUS == 0 || show.OVSVersion == "" ||
			show.Settings.SampleInterval == 0 || show.Clock.Source == "" {
			t.Errorf("%s: %+v", name, show.Header)
		}
	}
	limit, err := ParseLimit(read(t, "cost-limit"))
	if err != nil || len(limit.Datapaths) != 1 || limit.Datapaths[0].FlowLimit == 0 {
		t.Errorf("%+v, %v", limit, err)
	}
}

func TestBadReplies(t *testing.T) {
	good := string(read(t, "upcall"))
	for _, c := range []struct{ old, new, want string }{
		{`"version":2`, `"version":3`, "version 3 of its form, of which this program knows 2 only"},
		{`"version":2`, `"edition":2`, "not the reply of a cost report"},
		{good, `[]`, "not the reply of a cost report"},
		{good, good[:len(good)/2], "not the reply of a cost report"},
		{`"report":"upcall"`, `"report":"tx"`, "a reply to tx/cost-show"},
		{`"sampled":true`, `"sampled":3`, "cannot unmarshal number"},
		{`"count":33`, `"count":-1`, "cannot unmarshal number -1"},
		{`"count":33`, `"count":34`, "the buckets do not add up to the count"},
		{`"scale":3`, `"scale":4`, "scale 4 of a histogram, not 3"},
		{`"zero_count":0`, `"zero_count":18446744073709551615`, "do not add up"},
		{`"offset":-`, `"offset":-999`, "buckets from -999"},
		{`"offset":-`, `"offset":`, "buckets from "},
		{`"execute":{`, `"none":null,"execute":{`, `stage "none": null`},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("no %s in the reply", c.old)
		}
		_, err := ParseShow([]byte(strings.Replace(good, c.old, c.new, 1)), "upcall")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %v", c.new, err)
		}
	}
	if _, err := ParseLimit(read(t, "upcall")); err == nil {
		t.Error("a reply to another command was taken")
	}
}

func times(offset int, counts ...uint64) *Stage {
	s := &Stage{Unit: "ns", Histogram: Histogram{Scale: Scale, Offset: offset,
		BucketCounts: counts}}
	for i, n := range counts {
		s.Count += n
		s.Sum += n * uint64(i+1)
	}
	return s
}

func TestMerge(t *testing.T) {
	a := &Body{Events: 10, Stages: map[string]*Stage{
		"total": times(-100, 1, 2), "idle": times(0), "packets": times(-3, 1, 2),
	}, Counters: map[string]map[string]uint64{"lost": {"lock": 1}}}
	b := &Body{Events: 5, Stages: map[string]*Stage{
		"total": times(-102, 4, 0, 0, 8, 16), "idle": times(7, 3),
		"packets": times(-3, 10, 20, 30, 40), "new": times(1, 1),
	}, Counters: map[string]map[string]uint64{"lost": {"lock": 2, "error": 3},
		"flows": {"kept": 4}}}
	b.Stages["total"].Histogram.ZeroCount = 2
	b.Stages["total"].Histogram.Overflow = 3
	b.Stages["total"].Count += 5
	before := *a.Stages["total"]

	sum := *a
	sum.Merge(b)
	if sum.Events != 15 || !reflect.DeepEqual(sum.Counters,
		map[string]map[string]uint64{"lost": {"lock": 3, "error": 3}, "flows": {"kept": 4}}) {
		t.Errorf("%+v", sum)
	}
	want := Histogram{Scale: Scale, Offset: -102, ZeroCount: 2, Overflow: 3,
		BucketCounts: []uint64{4, 0, 1, 10, 16}}
	if got := sum.Stages["total"]; !reflect.DeepEqual(got.Histogram, want) || got.Count != 36 {
		t.Errorf("%+v", got)
	}
	if got := sum.Stages["idle"].Histogram; got.Offset != 7 || len(got.BucketCounts) != 1 {
		t.Errorf("%+v", got)
	}
	want = Histogram{Scale: Scale, Offset: -3, BucketCounts: []uint64{11, 22, 30, 40}}
	if got := sum.Stages["packets"]; !reflect.DeepEqual(got.Histogram, want) || got.Count != 103 {
		t.Errorf("%+v", got)
	}
	if sum.Stages["new"] != b.Stages["new"] {
		t.Error("a stage of one of them is missing")
	}
	// Neither has changed.
	if !reflect.DeepEqual(before, *a.Stages["total"]) || a.Events != 10 ||
		a.Counters["lost"]["lock"] != 1 || b.Counters["lost"]["lock"] != 2 {
		t.Error("merging has changed what was merged")
	}
	if err := sum.check(); err != nil {
		t.Error(err)
	}
}

// What is added up must be what the daemon adds up: here there is one
// account of each kind, so it is the sum.
func TestMergeReal(t *testing.T) {
	for _, name := range []string{"upcall", "bridge", "revalidator"} {
		show, err := ParseShow(read(t, name), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, account := range show.Accounts {
			var sum Body
			for i := range account.Classes {
				sum.Merge(&account.Classes[i].Body)
			}
			if sum.Events != account.Events {
				t.Errorf("%s: %d events of classes, %d of all", account.Kind,
					sum.Events, account.Events)
			}
			for stage, want := range account.Stages {
				got := sum.Stages[stage]
				if got.Count != want.Count || got.Sum != want.Sum ||
					!reflect.DeepEqual(got.Histogram, want.Histogram) {
					t.Errorf("%s %s: %+v, not %+v", account.Kind, stage, got, want)
				}
			}
		}
	}
}

func FuzzShow(f *testing.F) {
	for _, name := range Names {
		f.Add(read(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range Names {
			show, err := ParseShow(data, name)
			if err != nil {
				continue
			}
			var sum Body
			for i := range show.Accounts {
				sum.Merge(&show.Accounts[i].Body)
			}
		}
	})
}
