//go:build linux

package tables

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/rdma/fabric"
)

func TestDrawingOfLeavesAndSpines(t *testing.T) {
	c := fabric.Counters{Ports: []fabric.PortCounters{
		{Name: "leaf0-spine0", Switch: "leaf0", Peer: "spine0", Connected: true, Rate: 200e6, TxBytes: 3 << 20,
			ECNMarked: 4, QueueBytes: 1 << 10},
		{Name: "spine0-leaf0", Switch: "spine0", Peer: "leaf0", Connected: true, Rate: 200e6, TxBytes: 1 << 20,
			Drops: fabric.Drops{BufferFull: 7}, Link: fabric.Link{Rate: 1e6}},
		{Name: "leaf1-spine0", Switch: "leaf1", Peer: "spine0", Link: fabric.Link{Down: true}},
		{Name: "spine0-leaf1", Switch: "spine0", Peer: "leaf1"},
	}}
	for _, name := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb") {
		c.Ports = append(c.Ports, fabric.PortCounters{Name: name, Switch: "leaf1", Connected: true})
	}
	text := DescribeFabric("pair", c, nil).Text()
	want := "" +
		"LEAF      LINK               RATE  TO SPINE  FROM SPINE  DROPS  MARKED     QUEUE\n" +
		"leaf0: no node\n" +
		"  spine0  up        200Mbit/1Mbit  3.00 MiB    1.00 MiB      7       4  1.00 KiB\n" +
		"leaf1: a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, ~\n" +
		"  spine0  set down       no limit       0 B         0 B      0       0       0 B\n" +
		"\nPORT"
	if got, _, _ := strings.Cut(text, "PORT"); got+"PORT" != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got+"PORT"))
	}
	if strings.Contains(text, "\nleaf0-spine0  up") {
		t.Errorf("links between switches are drawn twice:\n%s", text)
	}
	for line := range strings.Lines(want) {
		if len(line) > drawingWidth+1 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}

func TestPathsText(t *testing.T) {
	addr := netip.MustParseAddr
	p := &Paths{Lab: "pair", Flows: fabric.Flows{At: time.Unix(1000, 0), Unlisted: 9, Flows: []fabric.FlowCounters{
		{From: "vm00", To: "vm01", Via: "spine10", Src: addr("10.0.0.1"), Proto: 17, SrcPort: 50000, DstPort: 4791,
			QP: new(uint32(0x123)), Frames: 5, Bytes: 1 << 20},
		{From: "vm00", To: "vm01", Via: "spine2", Proto: 6, SrcPort: 40000, DstPort: 5201, Frames: 4, Bytes: 100},
		{From: "vm01", To: "vm00", Via: "spine2", DstPort: 0x806, Frames: 1, Bytes: 60},
		{From: "vm01", To: "vm00", Via: "spine2", Proto: 17, SrcPort: 1, DstPort: 53, Frames: 1, Bytes: 60},
		{From: "vm01", To: "vm00", Via: "spine2", Proto: 1, Frames: 1, Bytes: 98},
	}}}
	want := "" +
		"SPINE    FROM  TO    FLOW                    QP  FRAMES     BYTES\n" +
		"spine2   vm00  vm01  TCP 40000 > 5201         -       4     100 B\n" +
		"spine2   vm01  vm00  type 0x0806              -       1      60 B\n" +
		"spine2   vm01  vm00  UDP 1 > 53               -       1      60 B\n" +
		"spine2   vm01  vm00  IP protocol 1            -       1      98 B\n" +
		"spine10  vm00  vm01  RoCE, port 50000  0x000123       5  1.00 MiB\n" +
		"9 frames of more flows are not listed\n"
	if diff := cmp.Diff(want, p.Text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (&Paths{}).Text(); got != "no flow between leaves yet\n" {
		t.Errorf("got %q", got)
	}
}
