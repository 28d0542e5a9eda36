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

// Classic buckets of times have powers of two of a second as their bounds,
// every eighth edge of ours, from 119 ns to 8 s.
const (
	minClassicExp = -23
	maxClassicExp = 3
)

// overflowIndex is the index of a native histogram's last bucket, whose upper
// bound is infinite.
const overflowIndex = 1024<<report.Scale + 1

// numberBounds are those of the classic buckets of numbers: every eighth edge
// of ours, so they are exact.
var numberBounds = []uint64{0, 1, 3, 7, 14, 29, 59, 119, 238, 476, 953, 1907,
	3814, 7629, 15258, 30517, 61035, 122070, 244140, 488281, 976562}

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
		value.Bucket = classicTimes(&s.Histogram)
		addNative(value, &s.Histogram)
	} else {
		value.SampleSum = proto.Float64(float64(s.Sum))
		value.Bucket = classicNumbers(&s.Histogram)
	}
	return &histogram{desc, prometheus.MakeLabelPairs(desc, labels), value}
}

func classicBucket(bound float64, count uint64) *dto.Bucket {
	return &dto.Bucket{UpperBound: proto.Float64(bound),
		CumulativeCount: proto.Uint64(count)}
}

func classicTimes(h *report.Histogram) []*dto.Bucket {
	buckets := make([]*dto.Bucket, 0, maxClassicExp-minClassicExp+1)
	count := h.ZeroCount
	next := 0
	for exp := minClassicExp; exp <= maxClassicExp; exp++ {
		// Bucket i is up to edge offset + i + 1.
		end := exp<<report.Scale - h.Offset
		for ; next < end && next < len(h.BucketCounts); next++ {
			count += h.BucketCounts[next]
		}
		buckets = append(buckets, classicBucket(math.Ldexp(1, exp), count))
	}
	return buckets
}

func classicNumbers(h *report.Histogram) []*dto.Bucket {
	buckets := make([]*dto.Bucket, 0, len(numberBounds))
	var count uint64
	next := 0
	for _, bound := range numberBounds {
		for next < len(h.Bounds) && h.Bounds[next] <= bound {
			count += h.Counts[next]
			next++
		}
		buckets = append(buckets, classicBucket(float64(bound), count))
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
