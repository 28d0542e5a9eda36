// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"ovs-cost/exporter/report"
)

// structure returns the names of the stages, with their units, and of the
// counters of each sum.
func structure(show *report.Show) []map[string]string {
	var sums []map[string]string
	for _, sum := range show.Total {
		names := map[string]string{"kind": sum.Kind}
		for name, stage := range sum.Stages {
			names["stage "+name] = stage.Unit
			if stage.Sampled {
				names["stage "+name] += ", sampled"
			}
		}
		for group, counters := range sum.Counters {
			for counter := range counters {
				names[group+": "+counter] = ""
			}
		}
		sums = append(sums, names)
	}
	return sums
}

// The replies that other tests use have the structure of a switch's, and maybe
// stages that a switch need not have.
func TestFixtures(t *testing.T) {
	s := startSwitch(t)
	s.send(1)
	for _, name := range report.Names {
		text, err := os.ReadFile("../testdata/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		fixture, err := report.ParseShow(text, name)
		if err != nil {
			t.Fatal(err)
		}
		got, want := structure(fixture), structure(s.show(name))
		for i := range min(len(got), len(want)) {
			for column := range got[i] {
				if _, found := want[i][column]; !found && strings.HasPrefix(column, "stage ") {
					delete(got[i], column)
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%v, not\n%v", name, got, want)
		}
	}
}
