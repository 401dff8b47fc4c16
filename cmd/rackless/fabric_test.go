package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/tables"
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

func TestWatchingEndsWithTheContextAndIsNoError(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, format := range []string{formatText, formatJSON} {
		t.Run(format, func(t *testing.T) {
			a, out, _ := testApp(t)
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			read := func(before *tables.FabricSnapshot) (*tables.FabricSnapshot, error) {
				if n++; n == 3 {
					cancel()
				}
				return tables.DescribeFabric("pair", counters(began, n, uint64(1000*n), 0), before), nil
			}
			err := a.watchFabric(ctx, format, time.Millisecond, read)
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
		err := a.watchFabric(t.Context(), formatText, time.Millisecond,
			func(*tables.FabricSnapshot) (*tables.FabricSnapshot, error) {
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
	err := a.watchFabric(ctx, formatText, time.Millisecond, func(before *tables.FabricSnapshot) (*tables.FabricSnapshot,
		error) {
		if n++; n == 3 {
			cancel()
		}
		c := counters(began, n, 1000, 1000)
		for range 20 {
			c.Ports = append(c.Ports, fabric.PortCounters{Name: "more"})
		}
		return tables.DescribeFabric("pair", c, before), nil
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
