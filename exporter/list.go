// SPDX-License-Identifier: Apache-2.0

package ovscost

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// What a description prints: it has no methods for its parts.
var descRegexp = regexp.MustCompile(
	`^Desc\{fqName: ("(?:\\.|[^"\\])*"), help: ("(?:\\.|[^"\\])*"), .*variableLabels: (\{.*\})\}$`)

// ListMetrics writes a line for each metric that any collector of this package
// may have, by name: the name, its labels and its help.
func ListMetrics(w io.Writer) error {
	ch := make(chan *prometheus.Desc)
	go func() {
		(&Collector{}).Describe(ch)
		close(ch)
	}()
	var lines []string
	for desc := range ch {
		match := descRegexp.FindStringSubmatch(desc.String())
		if match == nil {
			return fmt.Errorf("cannot parse %s", desc)
		}
		name, _ := strconv.Unquote(match[1])
		help, _ := strconv.Unquote(match[2])
		lines = append(lines, fmt.Sprintf("%s%s: %s\n", name, match[3], help))
	}
	slices.Sort(lines)
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
