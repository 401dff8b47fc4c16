package live

import (
	"fmt"
	"time"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
)

// A flow is a snapshot of a switch, with what it did before.
type flow struct {
	Fabric
	past map[string][]point // by port, the oldest first
}

// A point is what passed a port between two looks, in bits a second.
type point struct {
	at     time.Time
	rx, tx float64
}

// Bounds of time.
const (
	maxGap    = time.Minute // between two looks: a rate over a longer time says nothing about now
	minGap    = 200 * time.Millisecond
	sparkTime = time.Minute // shown as a picture
)

// next adds a snapshot to a flow. Neither is changed: pages may still be written from the one before.
func (f *flow) next(now Fabric) *flow {
	out := &flow{Fabric: now, past: make(map[string][]point)}
	if f == nil || !f.Started.Equal(now.Started) { // another switch counts from zero
		return out
	}
	gap := now.At.Sub(f.At)
	before := make(map[string]Port)
	for _, p := range f.Ports {
		before[p.Name] = p
	}
	for _, p := range now.Ports {
		// A copy: the flow before may be on its way to a reader.
		var kept []point
		for _, x := range f.past[p.Name] {
			if now.At.Sub(x.at) <= sparkTime {
				kept = append(kept, x)
			}
		}
		b, ok := before[p.Name]
		// A port that was removed and added again counts from zero.
		if ok && gap >= minGap && gap <= maxGap && p.RxBytes >= b.RxBytes && p.TxBytes >= b.TxBytes {
			rate := func(now, then uint64) float64 { return 8 * float64(now-then) / gap.Seconds() }
			kept = append(kept, point{now.At, rate(p.RxBytes, b.RxBytes), rate(p.TxBytes, b.TxBytes)})
		}
		out.past[p.Name] = kept
	}
	return out
}

// rate returns the last point of a port; nil where there is none that is of now.
func (f *flow) rate(port string) *point {
	all := f.past[port]
	if len(all) == 0 || !all[len(all)-1].at.Equal(f.At) {
		return nil
	}
	return &all[len(all)-1]
}

// A spark is a small picture of the last minute of a port, in a box of sparkWidth by sparkHeight.
type spark struct{ Rx, Tx, Label string }

// sparkWidth and sparkHeight are those of the viewBox in the template.
const sparkWidth, sparkHeight = 120, 26

// spark draws the past of a port; nil while there is too little of it.
func (f *flow) spark(port string) *spark {
	all := f.past[port]
	if len(all) < 2 {
		return nil
	}
	most := 1.0
	for _, x := range all {
		most = max(most, x.rx, x.tx)
	}
	var rx, tx show.Line
	for _, p := range all {
		x := sparkWidth * (1 - f.At.Sub(p.at).Seconds()/sparkTime.Seconds())
		rx.To(x, sparkHeight-1-(sparkHeight-2)*p.rx/most)
		tx.To(x, sparkHeight-1-(sparkHeight-2)*p.tx/most)
	}
	return &spark{Rx: rx.String(), Tx: tx.String(), Label: fmt.Sprintf("last minute: at most %s", words.Rate(most))}
}
