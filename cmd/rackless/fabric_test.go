package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/fabric"
)

// counters is a snapshot of two ports, seconds after the switch's start.
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
	first := describePorts("pair", counters(began, 1, 1000, 500), nil)
	if p := first.Ports[0]; p.RxRate != nil || p.RxDrops != 3 || p.TxDrops != 7 || p.Reconnects != 1 ||
		first.Ports[1].Reconnects != 0 {
		t.Errorf("first snapshot: %+v", first.Ports)
	}
	second := describePorts("pair", counters(began, 3, 3000, 500), first)
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
			if p := describePorts("pair", tt.now, second).Ports[0]; p.RxRate != nil || p.TxRate != nil {
				t.Errorf("there are rates: %+v", p)
			}
		})
	}
}

func TestFabricGrid(t *testing.T) {
	began := time.Unix(1000, 0)
	first := describePorts("pair", counters(began, 1, 1000, 500), nil)
	want := "" +
		"PORT  LINK  RX FRAMES  RX BYTES  TX FRAMES  TX BYTES  DROPS     QUEUE\n" +
		"vm00  up           10  0.98 KiB         20     500 B     10  2.00 KiB\n" +
		"vm01  down          0       0 B          0       0 B      0       0 B\n"
	if diff := cmp.Diff(want, fabricGrid(first).String()); diff != "" {
		t.Error(diff)
	}
	second := describePorts("pair", counters(began, 2, 2000, 500), first)
	if got := fabricGrid(second).String(); !strings.Contains(got, "RX RATE") || !strings.Contains(got, "8.00 kb/s") {
		t.Errorf("no rates in\n%s", got)
	}
}

func TestWatchingEndsWithTheContextAndIsNoError(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, format := range []string{formatText, formatJSON} {
		t.Run(format, func(t *testing.T) {
			a, out, _ := testApp(t)
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			err := a.watchFabric(ctx, format, time.Millisecond, func(before *fabricOutput) (*fabricOutput, error) {
				if n++; n == 3 {
					cancel()
				}
				return describePorts("pair", counters(began, n, uint64(1000*n), 0), before), nil
			})
			if err != nil {
				t.Error(err)
			}

			if format == formatJSON && strings.Count(out.String(), "\n") != 2 {
				t.Errorf("got %q", out)
			}
			if format == formatText && strings.Count(out.String(), "vm00 ") != 2 {
				t.Errorf("got %q", out)
			}
		})
	}
	t.Run("an error of the switch ends it too", func(t *testing.T) {
		a, _, _ := testApp(t)
		wrong := errors.New("gone")
		err := a.watchFabric(t.Context(), formatText, time.Millisecond, func(*fabricOutput) (*fabricOutput, error) {
			return nil, wrong
		})
		if !errors.Is(err, wrong) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchingOnATerminalLeavesItAsItWas(t *testing.T) {
	master, slave := openPTY(t)
	text := screenOf(master, slave)
	a, _, _ := testApp(t)
	a.out = slave
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Unix(1000, 0)
	n := 0
	err := a.watchFabric(ctx, formatText, time.Millisecond, func(before *fabricOutput) (*fabricOutput, error) {
		if n++; n == 3 {
			cancel()
		}
		c := counters(began, n, 1000, 1000)
		for range 20 { // more than the terminal's ten lines
			c.Ports = append(c.Ports, fabric.PortCounters{Name: "more"})
		}
		return describePorts("pair", c, before), nil
	})
	if err != nil {
		t.Error(err)
	}
	got := text()
	if !strings.HasPrefix(got, "\x1b[?1049h\x1b[?25l\x1b[H") {
		t.Errorf("begins with %q", got[:min(len(got), 40)])
	}
	body, end, left := strings.Cut(got, "\x1b[?25h\x1b[?1049l")
	if !left {
		t.Fatalf("the alternate screen is not left: %q", got)
	}
	if !strings.Contains(body, "... and 17 more") || !strings.Contains(body, "~\x1b[K") {
		t.Errorf("the table is not cut to the screen: %q", body)
	}
	if strings.Count(end, "more ") != 20 {
		t.Errorf("the last state is not left behind in full: %q", end)
	}
	if bytes.Count([]byte(body), []byte("\x1b[J")) != 2 {
		t.Errorf("two snapshots were drawn, not %d", bytes.Count([]byte(body), []byte("\x1b[J")))
	}
}
