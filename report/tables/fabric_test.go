//go:build linux

package tables

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/rdma/fabric"
)

func counters(started time.Time, seconds int, rx, tx uint64) fabric.Counters {
	return fabric.Counters{
		At: started.Add(time.Duration(seconds) * time.Second), Started: started, Addresses: 2,
		Ports: []fabric.PortCounters{
			{Name: "vm00", Connected: true, Connects: 2, RxFrames: 10, RxBytes: rx, TxFrames: 20, TxBytes: tx,
				RxFiltered: 1, RxNowhere: 2,
				Drops: fabric.Drops{QueueFull: 3, Disconnected: 4}, QueueBytes: 2048, QueuePeak: 4096},
			{Name: "vm01"},
		},
	}
}

func TestRatesAreOverTheTimeBetweenTwoSnapshots(t *testing.T) {
	began := time.Unix(1000, 0)
	first := DescribeFabric("pair", counters(began, 1, 1000, 500), nil)
	if p := first.Ports[0]; p.RxRate != nil || p.RxDrops != 3 || p.TxDrops != 7 || p.Reconnects != 1 ||
		first.Ports[1].Reconnects != 0 {
		t.Errorf("first snapshot: %+v", first.Ports)
	}
	second := DescribeFabric("pair", counters(began, 3, 3000, 500), first)
	if p := second.Ports[0]; p.RxRate == nil || *p.RxRate != 8000 || *p.TxRate != 0 { // 2000 bytes in 2 s
		t.Errorf("second snapshot: %+v", p)
	}
	tests := []struct {
		name string
		now  fabric.Counters
	}{
		{"another switch began to count anew", counters(began.Add(time.Minute), 1, 9000, 9000)},
		{"the port was removed and added again", counters(began, 5, 10, 10)},
		{"no time has passed", counters(began, 3, 3000, 500)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if p := DescribeFabric("pair", tt.now, second).Ports[0]; p.RxRate != nil || p.TxRate != nil {
				t.Errorf("there are rates: %+v", p)
			}
		})
	}
}

func TestFabricGrid(t *testing.T) {
	began := time.Unix(1000, 0)
	first := DescribeFabric("pair", counters(began, 1, 1000, 500), nil)
	want := "" +
		"PORT  LINK  RX FRAMES  RX BYTES  TX FRAMES  TX BYTES  DROPS     QUEUE\n" +
		"vm00  up           10  0.98 KiB         20     500 B     10  2.00 KiB\n" +
		"vm01  down          0       0 B          0       0 B      0       0 B\n"
	if diff := cmp.Diff(want, fabricGrid(first).String()); diff != "" {
		t.Error(diff)
	}
	second := DescribeFabric("pair", counters(began, 2, 2000, 500), first)
	if got := fabricGrid(second).String(); !strings.Contains(got, "RX RATE") || !strings.Contains(got, "8.00 kb/s") {
		t.Errorf("no rates in\n%s", got)
	}
}

func TestLinkGrids(t *testing.T) {
	c := counters(time.Unix(1000, 0), 1, 1000, 500)
	plain := DescribeFabric("pair", c, nil).Text()
	if strings.Contains(plain, "\n\n") {
		t.Errorf("a second table without impairments:\n%s", plain)
	}
	c.Ports[0].Link = fabric.Link{Rate: 1e9, Delay: 50 * time.Microsecond, Loss: 0.001, ECN: fabric.RED{Min: 30 << 10,
		Max: 90 << 10, Probability: 0.1}}
	c.Ports[0].Drops.Lost = 3
	c.Ports[1].Pauses, c.Ports[1].Paused = 2, 1500*time.Millisecond
	want := plain + "\n" + "" +
		"PORT   RATE  DELAY  LOSS              ECN  BUFFER FULL  LOST  REORDERED  MARKED    HELD\n" +
		"vm00  1Gbit   50us  0.1%  30KiB:90KiB:10%            0     3          0       0  0.00 s\n" +
		"vm01      -      -     -                -            0     0          0       0  1.50 s\n"
	want = strings.Replace(want, "     10  2.00", "     13  2.00", 1) // lost frames count as drops
	if diff := cmp.Diff(want, DescribeFabric("pair", c, nil).Text()); diff != "" {
		t.Errorf("fabric (-want +got):\n%s", diff)
	}
	c.Ports[1].Link.Down = true
	want = "" +
		"PORT   RATE  DELAY  LOSS              ECN  LINK\n" +
		"vm00  1Gbit   50us  0.1%  30KiB:90KiB:10%  -\n" +
		"vm01      -      -     -                -  set down\n"
	if diff := cmp.Diff(want, DescribeLinks("pair", c).Text()); diff != "" {
		t.Errorf("link set (-want +got):\n%s", diff)
	}
	c.Ports[0].Link, c.Ports[1].Link = fabric.Link{}, fabric.Link{}
	if got := DescribeLinks("pair", c).Text(); got != "nothing is set on the links of lab pair\n" {
		t.Errorf("without settings: %q", got)
	}
}
