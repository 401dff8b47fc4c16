package smi

import (
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/internal/lazyregexp"
)

var (
	legendEntry = lazyregexp.New(`\b(NIC[0-9]{1,4}):`)
	// An RDMA device's name as the kernel and udev make them: mlx5_0, mlx5_bond_0, rocep13s0f0,
	// ibp7, rdmap79s0. nvidia-smi has been seen to print other parts of its output where the name
	// should be ("NIC0: A", "NIC3: ity GPU NUMA ID").
	rdmaName = lazyregexp.New(`^[a-z][A-Za-z0-9_.-]{0,40}[0-9][A-Za-z0-9_.-]{0,40}$`)
)

// readLegend names the RDMA devices of the NICs from lines, the lines behind the matrix, of which
// the first has the number from.
func (m *Matrix) readLegend(lines []string, from int) {
	nics := map[string]*Device{}
	for i := range m.Devices {
		d := &m.Devices[i]
		switch {
		case d.IsGPU():
		case strings.HasPrefix(d.Name, "NIC"):
			nics[d.Name] = d
		default:
			d.RDMA = d.Name // the older layout
		}
	}
	if len(nics) == 0 {
		return
	}
	listed := map[string]bool{}
	for n, line := range lines {
		entries := legendEntry.FindAllStringSubmatchIndex(line, -1)
		for i, e := range entries {
			end := len(line)
			if i+1 < len(entries) {
				end = entries[i+1][0]
			}
			name, value := line[e[2]:e[3]], strings.TrimSpace(line[e[1]:end])
			d := nics[name]
			if d == nil {
				continue
			}
			listed[name] = true
			switch {
			case !rdmaName.MatchString(value):
				m.note(from+n, "legend of %s: %q is not the name of an RDMA device", name, where.Clip(value))
			case d.RDMA != "" && d.RDMA != value:
				m.note(from+n, "legend of %s: %q, but it was %q before", name, where.Clip(value), d.RDMA)
			default:
				d.RDMA = value
			}
		}
	}
	switch {
	case len(listed) == 0:
		m.note(m.Line, "no NIC legend: the RDMA devices of %d NICs are not known", len(nics))
	case len(listed) < len(nics):
		m.note(m.Line, "NIC legend: %d of %d NICs are not in it", len(nics)-len(listed), len(nics))
	}
}
