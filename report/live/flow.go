package live

import (
	"fmt"
	"time"

	"github.com/rackless/rackless/internal/words"
)

// A flow is a snapshot of a switch, with what it did before.
type flow struct {
	Fabric
	past map[string]past // by port, in bits a second
}

// minute is what the tables show: two looks further apart say nothing about now.
var minute = window{least: 200 * time.Millisecond, most: time.Minute, span: time.Minute}

// counts are what a port has counted, in bits.
func (f *Fabric) counts(p *Port) counts { return counts{f.At, 8 * p.RxBytes, 8 * p.TxBytes, p.drops()} }

// next adds a snapshot to a flow. Neither is changed: pages may still be written from the one before.
func (f *flow) next(now Fabric) *flow {
	out := &flow{Fabric: now, past: make(map[string]past)}
	if f == nil || !f.Started.Equal(now.Started) { // another switch counts from zero
		return out
	}
	before := make(map[string]counts)
	for i := range f.Ports {
		before[f.Ports[i].Name] = f.counts(&f.Ports[i])
	}
	for i := range now.Ports {
		p := &now.Ports[i]
		out.past[p.Name] = f.past[p.Name].next(before[p.Name], now.counts(p), minute)
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

// A spark is a small picture of the last minute of a port.
type spark struct{ Rx, Tx, Label string }

// sparkBox lies in the viewBox that the template has, with room for the lines' width.
var sparkBox = box{0, 1, 120, 24}

// spark draws the past of a port; nil while there is too little of it.
func (f *flow) spark(port string) *spark {
	all := f.past[port]
	if len(all) < 2 {
		return nil
	}
	most := all.most()
	rx, tx := all.draw(sparkBox, f.At, minute.span, most)
	return &spark{rx, tx, fmt.Sprintf("last minute: at most %s", words.Rate(most))}
}
