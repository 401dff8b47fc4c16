package smi

import (
	"strings"
	"testing"
)

func TestPairsWithoutAccess(t *testing.T) {
	t.Parallel()
	const legend = "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
	const gns = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
	const want = "it says GNS (GPU not supported) of GPU0 and GPU1"
	for name, test := range map[string]struct{ text, want string }{
		"no access":       {"$ nvidia-smi topo -p2p rw\n" + gns + legend, want + ": they have no peer-to-peer"},
		"of unknown mode": {gns + legend, want},
		"for NVLink": {"$ nvidia-smi topo -p2p n\n" + strings.ReplaceAll(gns, "GNS", "NS") + legend,
			"NS (not supported) of"},
		"access":                {"$ nvidia-smi topo -p2p r\n" + strings.ReplaceAll(gns, "GNS", "OK") + legend, ""},
		"one GPU":               {" \tGPU0\n GPU0\tX\n" + legend, ""},
		"rows that are cut off": {" \tGPU0\tGPU1\tGPU2\n GPU0\tX\tOK\tGNS\n", ""},
	} {
		_, err := Parse([]byte(test.text), "a.txt")
		if strings.Contains(test.text, "Status Ok") && (err == nil || !strings.Contains(err.Error(), "topo -p2p")) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (test.want == "") == strings.Contains(err.Error(), "; it says ") ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	h, err := Parse([]byte("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n"+gns), "a.txt")
	if err != nil || len(h.Unread) != 1 || !strings.Contains(h.Unread[0].Why, want) {
		t.Errorf("beside topo -m: %v, %+v", err, h)
	}
}
