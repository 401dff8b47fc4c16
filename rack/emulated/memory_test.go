package emulated

import (
	"strings"
	"testing"

	"github.com/rackless/rackless/lab"
)

func TestMemoryThatIsNotThereIsRefusedWithTheArithmetic(t *testing.T) {
	nodes := func(n int, memory lab.Bytes) []lab.Node {
		out := make([]lab.Node, n)
		for i := range out {
			out[i].Memory = memory
		}
		return out
	}
	for name, tt := range map[string]struct {
		start     []lab.Node
		available lab.Bytes
		want      string // "" means that it fits
	}{
		"nothing to start": {nil, 0, ""},
		"just enough":      {nodes(2, 256*lab.MiB), 592 * lab.MiB, ""},
		"a MiB too little": {nodes(2, 256*lab.MiB), 591 * lab.MiB, "2 nodes of 296MiB on average"},
		"200 nodes on a small machine": {nodes(200, 256*lab.MiB), 23 * lab.GiB,
			"need 57.8 GiB; this machine has 23.0 GiB available, room for 79"},
		"the way out is said with it": {nodes(200, 256*lab.MiB), 23 * lab.GiB, "--overcommit"},
		"nodes of two sizes are averaged": {append(nodes(1, 256*lab.MiB), nodes(1, 768*lab.MiB)...), lab.GiB,
			"2 nodes of 552MiB on average"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fitsIn("x", tt.start, tt.available)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
