package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/internal/words"
)

// linksOutput is what fabric set prints as JSON, see docs/json.md.
type linksOutput struct {
	Lab   string     `json:"lab"`
	Ports []portLink `json:"ports"` // all of the lab, in the order in which they were added
}

// A portLink is the link from the switch to a node.
type portLink struct {
	Name string      `json:"name"`
	Link fabric.Link `json:"link"`
}

// linkFlags are the settings of a link as flags, by the names that fabric knows.
var linkFlags = map[string]struct{ kind, help string }{
	"rate":    {"RATE", "bits a second on the wire, such as 1Gbit"},
	"burst":   {"SIZE", "what may leave at once after a pause, with --rate"},
	"delay":   {"TIME", "added to each frame, such as 50us"},
	"jitter":  {"TIME", "varies the delay by up to this, both ways; keeps the order"},
	"loss":    {"PERCENT", "of the frames are lost, such as 0.1%"},
	"reorder": {"PERCENT", "of the frames skip the delay, and overtake"},
	"ecn": {"MIN:MAX:PERCENT", "queue from which packets are marked, from which all are, and how many just " +
		"below that"},
	"buffer": {"SIZE", "what may wait for the link, such as 256KiB"},
	"pfc":    {"HIGH:LOW", "queue above which senders are held, and down to which, such as 64KiB:32KiB"},
	"seed":   {"N", "of the random sequences"},
}

// A linkEdit is one setting that a call asks for.
type linkEdit struct{ key, text string }

// A linkFlag is a flag for one setting. A wrong value is refused when the command line is read.
type linkFlag struct {
	key   string
	edits *[]linkEdit
}

func (f linkFlag) String() string { return "" }
func (f linkFlag) Type() string   { return linkFlags[f.key].kind }

func (f linkFlag) Set(text string) error {
	*f.edits = append(*f.edits, linkEdit{f.key, text})
	return new(fabric.Link).Set(f.key, text)
}

func newFabricSetCmd(a *app) *cobra.Command {
	var format string
	var ports []string
	var reset bool
	var edits []linkEdit
	cmd := &cobra.Command{
		Use:   "set [NAME|LAB.yaml]",
		Short: "Make the links to the nodes slow, lossy or congested, while they are in use",
		Long: `Impairs the links from the switch to the nodes: what a node receives, not what it sends. Without --port all links are changed. Settings that
are not named stay as they are; 0 takes one away, and --clear all that there were before. Prints the links as they then are.

Impairments act in this order: buffer and ECN marks, rate, loss, reordering, delay with jitter. They last until they are changed or the
lab is down; a node that is restarted has them again. docs/fabric.md says how each works and how accurate it is.

Sizes have a unit (B, KiB, MiB), rates too (kbit, Mbit, Gbit), times as well (us, ms, s), and percentages the sign.`,
		Example: `  rackless fabric set pair --rate 1Gbit --delay 50us
  rackless fabric set pair --port vm01 --loss 0.1% --seed 1
  rackless fabric set pair --rate 100Mbit --ecn 30KiB:90KiB:10% --pfc 128KiB:64KiB
  rackless fabric set pair --clear`,
		Args:              maxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(edits) == 0 && !reset {
				return usagef(cmd, "want what to set, or --clear; rackless fabric shows what is set")
			}
			r, err := a.openOne(args)
			if err != nil {
				return err
			}
			c, err := r.Switch()
			if err != nil {
				return err
			}
			before, err := c.Counters(cmd.Context())
			if err != nil {
				return err
			}
			changes, err := changeLinks(before.Ports, ports, reset, edits)
			if err != nil {
				return usagef(cmd, "lab %s: %v", r.Lab.Name, err)
			}
			for _, p := range changes {
				if err := c.SetLink(cmd.Context(), p.Name, p.Link); err != nil {
					return err
				}
			}
			after, err := c.Counters(cmd.Context())
			if err != nil {
				return err
			}
			out := describeLinks(r.Lab.Name, after)
			return a.list(format, out, func() error {
				_, err := fmt.Fprint(a.out, linkGrid(out))
				return err
			})
		},
	}
	for _, key := range fabric.LinkKeys() {
		cmd.Flags().Var(linkFlag{key, &edits}, key, linkFlags[key].help)
	}
	cmd.Flags().StringSliceVar(&ports, "port", nil, "of this node only; can be repeated (NODE.1 is its second NIC)")
	cmd.Flags().BoolVar(&reset, "clear", false, "take all impairments away, before what else is asked")
	outputFlag(cmd, &format)
	return cmd
}

// changeLinks returns the new links of the named ports, or of all if none is named. It returns
// either all of them or an error.
func changeLinks(have []fabric.PortCounters, named []string, reset bool, edits []linkEdit) ([]portLink, error) {
	names := make([]string, len(have))
	for i, p := range have {
		names[i] = p.Name
	}
	for _, n := range named {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("--port %s: the switch has no such port; it has %s", n, strings.Join(names, ", "))
		}
	}
	var out []portLink
	for _, p := range have {
		if len(named) > 0 && !slices.Contains(named, p.Name) {
			continue
		}
		l := p.Link
		if reset {
			l = fabric.Link{}
		}
		for _, e := range edits {
			if err := l.Set(e.key, e.text); err != nil {
				return nil, fmt.Errorf("--%s: %w", e.key, err)
			}
		}
		if err := l.Validate(); err != nil {
			return nil, fmt.Errorf("port %s: %w", p.Name, err)
		}
		out = append(out, portLink{p.Name, l})
	}
	return out, nil
}

func describeLinks(name string, c fabric.Counters) *linksOutput {
	out := &linksOutput{Lab: name, Ports: []portLink{}}
	for _, p := range c.Ports {
		out.Ports = append(out.Ports, portLink{p.Name, p.Link})
	}
	return out
}

// linkGrid has a row for each port. Values are as the flags take them.
func linkGrid(out *linksOutput) *grid {
	g := newGrid(linkHead()...)
	for _, p := range out.Ports {
		g.add(append([]string{p.Name}, linkCells(p.Link)...)...)
	}
	return g
}

func linkHead() []string {
	head := []string{"port"}
	for _, key := range fabric.LinkKeys() {
		head = append(head, key+">")
	}
	return head
}

// linkCells are the settings as texts, empty where there is none.
func linkCells(l fabric.Link) []string {
	var cells []string
	for _, key := range fabric.LinkKeys() {
		text := l.Get(key)
		if text == "0" {
			text = ""
		}
		cells = append(cells, text)
	}
	return cells
}

// impairedGrid shows the impaired links and what they did, or is nil if there are none. The ports
// whose senders were held are in it too.
func impairedGrid(ports []fabricPort) *grid {
	g := newGrid(append(linkHead(), "buffer full>", "lost>", "reordered>", "marked>", "held>")...)
	for _, p := range ports {
		if !p.Link.Impaired() && p.Pauses == 0 {
			continue
		}
		n := func(v uint64) string { return strconv.FormatUint(v, 10) }
		cells := append([]string{p.Name}, linkCells(p.Link)...)
		g.add(append(cells, n(p.BufferFull), n(p.Lost), n(p.Reordered), n(p.ECNMarked),
			words.Seconds(time.Duration(p.Paused*float64(time.Second))))...)
	}
	if len(g.rows) == 0 {
		return nil
	}
	return g.withoutEmpty()
}

// withoutEmpty drops the columns in which no row has anything.
func (g *grid) withoutEmpty() *grid {
	out := &grid{rows: make([][]string, len(g.rows))}
	for i, name := range g.head {
		if !slices.ContainsFunc(g.rows, func(row []string) bool { return row[i] != "-" }) {
			continue
		}
		out.head, out.right = append(out.head, name), append(out.right, g.right[i])
		for j, row := range g.rows {
			out.rows[j] = append(out.rows[j], row[i])
		}
	}
	return out
}
