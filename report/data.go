// Package report turns the results of a lab into something a person reads: one self-contained HTML
// page and terminal tables. It knows nothing of how the figures came to be, reads no clock and no
// file: the same Data gives the same bytes.
//
// Three rules hold in every output. A figure from emulation says so beside the figure. A failed
// measurement is listed, with its command, and never drawn as a zero. A median never mixes emulated
// figures with figures of hardware.
package report

import (
	_ "embed" // for the template
	"encoding/csv"
	"io"
	"strconv"
	"text/template"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
)

// Data is everything that a report shows. Every field may be empty: what is missing is said or left
// out, never invented.
type Data struct {
	Lab       string            `json:"lab"`
	Title     string            `json:"title,omitempty"` // empty: "Lab " and the lab's name
	Generated time.Time         `json:"generated"`       // printed in UTC
	Rackless  string            `json:"rackless"`        // version of rackless
	Nodes     []Node            `json:"nodes"`           // their order is the order of rows, columns and pairs
	Findings  []finding.Finding `json:"findings,omitempty"`
	Samples   []bench.Sample    `json:"samples,omitempty"`
	// Judgements hold the bandwidths against what the path carries, and Beside has latencies beside
	// published ones. Results of earlier releases have neither.
	Judgements []bench.Judgement           `json:"expectations,omitempty"`
	Beside     []bench.PublishedComparison `json:"published,omitempty"`
	// Distributions are what is kept of all single latencies.
	Distributions []Distribution `json:"latency_distributions,omitempty"`
	Environment   []Fact         `json:"environment,omitempty"` // printed in this order
	// HostPicture is an SVG document of the machine that the lab ran on, as "rackless inspect -o
	// svg" writes it; empty: not shown.
	HostPicture string `json:"host_picture,omitempty"`
	Emulated    bool   `json:"emulated"` // the lab was emulated; a Sample may say so for itself too
	// EmulatedHost is set for a lab on an emulated host, where KVM is emulated, too.
	EmulatedHost bool `json:"emulated_host,omitempty"`
	// NoSwitch is set for nodes on a host's own NICs: what is drawn between them is not a switch of rackless.
	NoSwitch bool `json:"-"`
}

// A Node is one machine of the lab as the report shows it.
type Node struct {
	Name        string `json:"name"`
	Address     string `json:"address,omitempty"` // with prefix length: "10.77.0.10/24"
	MAC         string `json:"mac,omitempty"`
	RDMADevice  string `json:"rdma_device,omitempty"` // "rxe0"; empty: the node has none
	GIDIndex    int    `json:"gid_index"`             // of the RoCE v2 address; means nothing without RDMADevice
	MTU         int    `json:"mtu,omitempty"`         // of the network device, in bytes
	IBMTU       int    `json:"ib_mtu,omitempty"`      // active MTU of the RDMA port, in bytes
	CPUs        int    `json:"cpus,omitempty"`
	Memory      int64  `json:"memory,omitempty"`      // bytes
	Accelerator string `json:"accelerator,omitempty"` // "kvm" or "tcg"
	Driver      string `json:"driver,omitempty"`      // what made the node: "qemu"
	// What follows is known about a node that runs, and only drawn.
	State string `json:"-"` // in place of the MAC
	Off   bool   `json:"-"` // it does not run as it should
	Wires []Wire `json:"-"` // nil: one, of which nothing is known
}

// A Wire is a link from a NIC of a running node to the switch.
type Wire struct {
	Text           string
	Down, Impaired bool
	Note           string // what is wrong with it; written into the node's box
}

// A Fact is one line about the surroundings of a measurement, such as the host's CPU model or a tool's version.
type Fact struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// title is the heading of the report.
func (d Data) title() string {
	switch {
	case d.Title != "":
		return d.Title
	case d.Lab != "":
		return "Lab " + d.Lab
	}
	return "Lab without a name"
}

// CSV writes one line for each sample, for other programs: failed measurements too, so that none is
// lost. The text is as it was recorded.
func CSV(w io.Writer, d Data) error {
	// 0 stands for what was not recorded: no run takes no time, and no wire carries nothing. An empty cell is no number
	// for a spreadsheet.
	known := func(v float64) string {
		if v == 0 {
			return ""
		}
		return show.Exact(v)
	}
	records := [][]string{{"run", "started", "seconds", "attempt", "client", "server", "test", "metric", "bytes",
		"value", "unit", "limit", "derived", "iterations", "tool", "version", "placement", "accelerator", "emulated",
		"command", "server_command", "error"}}
	// A failed measurement has no value, and not 0: a spreadsheet would take that into its mean.
	for _, s := range d.Samples {
		value := ""
		if s.Error == "" {
			value = show.Exact(s.Value)
		}
		records = append(records, []string{s.Run, s.Started.UTC().Format(time.RFC3339Nano), known(s.Seconds),
			number(s.Attempt), s.Client, s.Server, s.Test, s.Metric, number(s.Bytes), value, s.Unit, known(s.Limit),
			strconv.FormatBool(s.Derived), number(s.Iterations), s.Tool, s.Version, s.Placement, s.Accelerator,
			strconv.FormatBool(s.Emulated), s.Command, s.ServerCommand, s.Error})
	}
	return show.Wrapf(csv.NewWriter(w).WriteAll(records), "write the report of lab %q as CSV", d.Lab)
}

//go:embed report.md.tmpl
var markdownText string

var markdownPage = show.MarkdownTemplate(markdownText, template.FuncMap{"name": judgedName, "figure": judgedFigure,
	"cause": causeTitle, "orDash": orDash, "table": figureTable.plain,
	"facts": func(all []Fact) show.MarkdownTable {
		rows := lists.Map(all, func(e Fact) []string { return []string{e.Key, e.Value} })
		return show.MarkdownTable{Heads: []string{"", ""}, Rows: rows}
	},
})

// Markdown writes the report for a page of a repository: what the page says in words, and its tables.
func Markdown(w io.Writer, d Data) error {
	// The model of the page, so that the two cannot say different things of one result.
	return show.Wrapf(markdownPage.Execute(w, newPage(d)), "write the report of lab %q as Markdown", d.Lab)
}

// plain is the table as texts.
func (t figureTable) plain() show.MarkdownTable {
	all := show.MarkdownTable{Heads: []string{"client to server", "size>"}}
	all.Heads = append(all.Heads, lists.Map(t.Columns, func(c figureColumn) string { return c.Title + ">" })...)
	for _, r := range t.Rows {
		row := []string{r.pair.String(), r.Size}
		for _, c := range r.Cells {
			text := c.Text
			if c.Repeats != "" {
				text += " (" + c.Repeats + ")"
			}
			row = append(row, text)
		}
		all.Rows = append(all.Rows, row)
	}
	return all
}
