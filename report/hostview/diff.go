package hostview

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/topology/compare"
)

// A Diff is how two hosts differ.
type Diff struct {
	A           string               `json:"a"` // what was read
	B           string               `json:"b"`
	Differences []compare.Difference `json:"differences"`
}

// titles are headings of parts whose names are not enough.
var titles = map[string]string{"cpus": "CPUs", "numa_nodes": "NUMA nodes", "order": "Order of devices", "gpus": "GPUs",
	"nics": "NICs and RDMA", "pci": "PCI functions"}

// WriteTable writes the differences by part, with the values of both hosts and the things that differ alike.
func (d Diff) WriteTable(w io.Writer, o TableOptions) error {
	t := &terminal{Terminal: show.NewTerminal(w, o.Width, 80, o.Color)}
	t.Wrap("", "  ", fmt.Sprintf("A is %s, B is %s", d.A, d.B))
	if len(d.Differences) == 0 {
		fmt.Fprintln(t, "No differences in what both tell")
	}
	part := ""
	for _, x := range d.Differences {
		if x.Part != part {
			part = x.Part
			t.Title(partTitle(part))
		}
		t.Wrap("  ", "    ", x.Text())
		if of := thingsOf(x); of != "" {
			t.Wrap("    ", "    ", of, text.Faint)
		}
	}
	return t.Flush()
}

// partTitle is the heading of a part. One that a later version adds has a heading all the same.
func partTitle(part string) string {
	return cmp.Or(titles[part], strings.ToUpper(part[:1])+strings.ReplaceAll(part[1:], "_", " "))
}

// thingsOf names the things of a difference. Four names show which these are; the JSON has more of them.
func thingsOf(d compare.Difference) string {
	if d.Count <= 1 && len(d.Things) == 0 {
		return ""
	}
	of := strings.Join(d.Things[:min(len(d.Things), 4)], ", ")
	if more := d.Count - min(len(d.Things), 4); more > 0 {
		of += " and " + words.Count(more, "other")
	}
	return of
}
