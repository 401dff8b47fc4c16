//go:build linux

package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/show"
)

// drawingWidth is that of a usual terminal.
const drawingWidth = 80

// drawing shows each leaf with its nodes and its links to spines, or "" for one switch.
func (s *FabricSnapshot) drawing() string {
	at := make(map[string][]string)
	from := lists.By(s.Ports, func(p FabricPort) string { return p.Name })
	g := show.NewGrid("leaf", "link", "rate>", "to spine>", "from spine>", "drops>", "marked>", "queue>")
	var leaves []string // of the rows
	for _, p := range s.Ports {
		back, between := from[p.Peer+"-"+p.Switch]
		if !between {
			at[p.Switch] = append(at[p.Switch], p.Name)
			continue
		}
		if !strings.HasPrefix(p.Switch, "leaf") {
			continue // drawn at its leaf
		}
		leaves = append(leaves, p.Switch)
		g.Add("  "+p.Peer, linkState(p), linkRate(p, back), words.Bytes(p.TxBytes), words.Bytes(back.TxBytes),
			strconv.FormatUint(p.RxDrops+p.TxDrops+back.RxDrops+back.TxDrops, 10),
			strconv.FormatUint(p.ECNMarked+back.ECNMarked, 10), words.Bytes(p.QueueBytes+back.QueueBytes))
	}
	if len(leaves) == 0 {
		return ""
	}
	head, rows, _ := strings.Cut(g.String(), "\n")
	var b strings.Builder
	b.WriteString(head + "\n")
	last := ""
	for i, row := range strings.Split(strings.TrimSuffix(rows, "\n"), "\n") {
		if leaf := leaves[i]; leaf != last {
			last = leaf
			nodes := cmp.Or(strings.Join(at[leaf], ", "), "no node")
			b.WriteString(terminal.Cut(leaf+": "+nodes, drawingWidth) + "\n")
		}
		b.WriteString(row + "\n")
	}
	return b.String()
}

func linkState(p FabricPort) string {
	switch {
	case p.Link.Down:
		return "set down"
	case p.Connected:
		return "up"
	}
	return "down"
}

// linkRate returns the rate to a spine, and the rate back if it differs.
func linkRate(there, back FabricPort) string {
	rate := func(p FabricPort) string {
		r := p.Rate
		if l := p.Link.Rate; l > 0 && (r == 0 || l < r) {
			r = l
		}
		return cmp.Or(strings.TrimPrefix(fabric.Link{Rate: r}.Get("rate"), "0"), "no limit")
	}
	if a, b := rate(there), rate(back); a != b {
		return a + "/" + b
	}
	return rate(there)
}

// Paths are the JSON output of rackless link show --paths, see docs/json.md.
type Paths struct {
	Lab string `json:"lab"`
	fabric.Flows
}

// Text returns a row for each flow, those of one spine together.
func (p *Paths) Text() string {
	if len(p.Flows.Flows) == 0 {
		return "no flow between leaves yet\n"
	}
	g := show.NewGrid("spine", "from", "to", "flow", "QP>", "frames>", "bytes>")
	all := slices.Clone(p.Flows.Flows)
	slices.SortStableFunc(all, func(a, b fabric.FlowCounters) int {
		return cmp.Or(cmp.Compare(len(a.Via), len(b.Via)), cmp.Compare(a.Via, b.Via))
	})
	for _, f := range all {
		g.Add(f.Via, f.From, f.To, f.Text(), f.QueuePair(), strconv.FormatUint(f.Frames, 10),
			words.Bytes(f.Bytes))
	}
	text := g.String()
	if p.Unlisted > 0 {
		text += fmt.Sprintf("%d frames of more flows are not listed\n", p.Unlisted)
	}
	return text
}
