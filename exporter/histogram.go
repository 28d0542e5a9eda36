// SPDX-License-Identifier: Apache-2.0

package ovscost

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ovs-cost/exporter/report"
)

// Classic buckets have every eighth edge of ours as their bounds, so they are
// exact: for times, powers of two of a second, from 119 ns to 8 s, for numbers,
// as many nanoseconds, from 0 to 976,562.
const (
	minTimeExp   = -23
	maxTimeExp   = 3
	minNumberExp = -30
	maxNumberExp = -10
)

// overflowIndex is the index of a native histogram's last bucket, whose upper
// bound is infinite.
const overflowIndex = 1024<<report.Scale + 1

// histogram is a prometheus.Metric that never changes.
type histogram struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  *dto.Histogram
}

func (h *histogram) Desc() *prometheus.Desc { return h.desc }

func (h *histogram) Write(out *dto.Metric) error {
	out.Label = h.labels
	out.Histogram = h.value
	return nil
}

// newHistogram returns the histogram of 's', which began to count at
// 'created'.  That of times is a native and a classic one, in seconds, that of
// numbers a classic one.
func newHistogram(desc *prometheus.Desc, s *report.Stage, created time.Time,
	labels []string) prometheus.Metric {
	value := &dto.Histogram{
		SampleCount:      proto.Uint64(s.Count),
		CreatedTimestamp: timestamppb.New(created),
	}
	if s.IsTime() {
		value.SampleSum = proto.Float64(float64(s.Sum) / 1e9)
		value.Bucket = classic(&s.Histogram, minTimeExp, maxTimeExp)
		addNative(value, &s.Histogram)
	} else {
		value.SampleSum = proto.Float64(float64(s.Sum))
		value.Bucket = classic(&s.Histogram, minNumberExp, maxNumberExp)
		for _, bucket := range value.Bucket {
			*bucket.UpperBound = math.Floor(*bucket.UpperBound * 1e9)
		}
	}
	return &histogram{desc, prometheus.MakeLabelPairs(desc, labels), value}
}

// classic returns the classic buckets with bounds from 2**'exp' to 2**'last' s.
func classic(h *report.Histogram, exp, last int) []*dto.Bucket {
	var buckets []*dto.Bucket
	count := h.ZeroCount
	next := 0
	for ; exp <= last; exp++ {
		// Bucket i is up to edge offset + i + 1.
		end := exp<<report.Scale - h.Offset
		for ; next < end && next < len(h.BucketCounts); next++ {
			count += h.BucketCounts[next]
		}
		buckets = append(buckets, &dto.Bucket{
			UpperBound:      proto.Float64(math.Ldexp(1, exp)),
			CumulativeCount: proto.Uint64(count)})
	}
	return buckets
}

// addNative adds the native buckets of 'h' to 'value'.
func addNative(value *dto.Histogram, h *report.Histogram) {
	value.Schema = proto.Int32(report.Scale)
	// Below this there is nothing but 0 ns.
	value.ZeroThreshold = proto.Float64(math.Ldexp(1, report.MinIndex>>report.Scale))
	value.ZeroCount = proto.Uint64(h.ZeroCount)

	var last int64
	next := int32(0) // Index after the last span.
	add := func(index int32, count uint64) {
		n := len(value.PositiveSpan)
		// Two empty buckets cost less than another span.
		if n == 0 || index-next > 2 {
			value.PositiveSpan = append(value.PositiveSpan, &dto.BucketSpan{
				Offset: proto.Int32(index - next), Length: proto.Uint32(0)})
			next = index
			n++
		}
		span := value.PositiveSpan[n-1]
		for ; next <= index; next++ {
			c := int64(0)
			if next == index {
				c = int64(count)
			}
			value.PositiveDelta = append(value.PositiveDelta, c-last)
			last = c
			*span.Length++
		}
	}
	for i, n := range h.BucketCounts {
		if n != 0 {
			add(int32(h.Offset+i+1), n)
		}
	}
	if h.Overflow != 0 {
		add(overflowIndex, h.Overflow)
	}
}
