package smi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// The largest machines have 16 GPUs and tens of NICs, or hundreds with virtual functions.
const (
	maxText    = 16 << 20 // bytes
	maxDevices = 1024
	maxNotes   = 100
)

// A Matrix is the output of nvidia-smi topo -m. Cells is square and symmetric, in the order of Devices. Exactly the
// diagonal is topology.PathSelf; missing or contradictory cells are topology.PathUnknown.
type Matrix struct {
	Devices []Device
	Cells   [][]Cell
	Line    int    // of the header, or of the first row without one; counts from 1
	Version string // of nvidia-smi, if known: "535.129.03"
	Notes   []Note
	Cut     bool // last rows are missing
}

// A Device is a GPU or a NIC.
type Device struct {
	Name  string // "GPU0", "NIC3"; in the older layout "mlx5_0"
	Index *int   // number of a GPU; nil for NICs
	RDMA  string // from the legend or the older layout, if known
	Line  int    // line of its row

	// As printed; empty without a value, "N/A" if unknown to the tool.
	CPUAffinity  string
	NUMAAffinity string
	GPUNUMAID    string
}

// IsGPU reports whether the device is a GPU.
func (d *Device) IsGPU() bool { return d.Index != nil }

// A Cell is a path.
type Cell struct {
	Class topology.PathClass
	Links int // NVLinks, only for topology.PathNVLink
}

// String returns nvidia-smi's text of a cell.
func (c Cell) String() string { return topology.Path{Class: c.Class, Links: c.Links}.Label() }

// A Note is a remark on a line.
type Note struct {
	Line int
	Why  string
}

func (m *Matrix) note(line int, format string, args ...any) {
	if len(m.Notes) < maxNotes {
		m.Notes = append(m.Notes, Note{line, fmt.Sprintf(format, args...)})
	}
}

// An Error is a text without a consistent matrix.
type Error struct {
	File   string // as given to Parse; empty from ParseMatrix
	Line   int    // counts from 1; 0 for the whole text
	Row    string
	Column string
	Why    string
}

func (e *Error) Error() string {
	place := where.Prefix(e.File, e.Line)
	switch {
	case e.Row != "" && e.Column != "":
		place += fmt.Sprintf("row %q, column %q: ", e.Row, e.Column)
	case e.Row != "":
		place += fmt.Sprintf("row %q: ", e.Row)
	}
	return place + e.Why
}

func rowError(line int, row, column, format string, args ...any) *Error {
	return &Error{Line: line, Row: row, Column: column, Why: fmt.Sprintf(format, args...)}
}

// peerAccess is the error for the matrix of topo -p2p, which often is in the same text.
const peerAccess = "this is the matrix of nvidia-smi topo -p2p, which has no paths; give the output of " +
	"nvidia-smi topo -m"

// version matches other pages of nvidia-smi in the same text.
var version = lazyregexp.New(`NVIDIA-SMI (?:version *: *)?([0-9]{3}\.[0-9.]+)`)

// ParseMatrix reads the first complete matrix in the output of nvidia-smi topo -m (or -mp), or else the first whose
// last rows are cut off. The error is an *Error.
func ParseMatrix(b []byte) (*Matrix, error) {
	if len(b) > maxText {
		return nil, &Error{Why: fmt.Sprintf("text of %d bytes: at most %d are taken", len(b), maxText)}
	}
	text := string(b)
	lines := splitLines(text)
	var found, cut *Matrix
	var first *Error // of the first unreadable matrix
	for at := 0; at < len(lines) && (found == nil || len(found.Notes) < maxNotes); {
		m, used, err := matrixAt(lines[at:], found == nil && cut == nil && first == nil)
		at += max(used, 1)
		switch {
		case err != nil:
			if first == nil || first.Why == peerAccess {
				first = err
			}
		case m == nil:
		case m.Cut:
			if cut == nil {
				cut = m
			}
		case found == nil:
			found = m
		case !sameMatrix(found, m):
			found.note(m.Line, "another matrix, of %d devices, that is not the same: the one at line %d is read",
				len(m.Devices), found.Line)
		}
		if m != nil {
			at += m.readLegend(lines[at:])
		}
	}
	switch {
	case found == nil && cut == nil && first == nil:
		return nil, noMatrix(text)
	case found == nil && cut == nil:
		return nil, first
	case found == nil:
		found = cut
	case cut != nil && cut.Line < found.Line:
		found.note(cut.Line, "a matrix that is not read: its last rows are cut off")
	}
	if first != nil && first.Why != peerAccess && first.Line < found.Line {
		found.note(first.Line, "a matrix that is not read: %s", first.Why)
	}
	if why := unreachable(text); why != "" {
		found.note(found.Line, "a matrix of nvidia-smi topo -p2p, which has no paths: %s", why)
	}
	if v := version().FindStringSubmatch(text); v != nil {
		found.Version = v[1]
	}
	return found, nil
}

func noMatrix(text string) *Error {
	for _, hint := range []struct{ in, why string }{
		{"Status Ok", peerAccess},
		{"NVIDIA-SMI has failed", "nvidia-smi could not reach the driver when this was written; nothing to read"},
		{"No devices were found", "nvidia-smi found no GPU when this was written; nothing to read"},
	} {
		if strings.Contains(text, hint.in) {
			return &Error{Why: hint.why}
		}
	}
	return &Error{Why: `no matrix of nvidia-smi topo -m found; ` +
		`want a header line with "GPU0" and below it a line for each GPU and NIC`}
}

func sameMatrix(a, b *Matrix) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y Device) bool {
		return x.Name == y.Name && x.CPUAffinity == y.CPUAffinity && x.NUMAAffinity == y.NUMAAffinity &&
			x.GPUNUMAID == y.GPUNUMAID
	}) && slices.EqualFunc(a.Cells, b.Cells, slices.Equal[[]Cell])
}

var (
	legendEntry = lazyregexp.New(`^(NIC[0-9]{1,4}):(.*)$`)
	// rdmaName matches an RDMA device's name from the kernel or udev. nvidia-smi sometimes prints other parts of its
	// output in its place ("NIC0: A", "NIC3: ity GPU NUMA ID").
	rdmaName = lazyregexp.New(`^[a-z][A-Za-z0-9_.-]{0,40}[0-9][A-Za-z0-9_.-]{0,40}$`)
)

// readLegend sets the RDMA devices from the lines after the matrix, and returns how many lines it read.
func (m *Matrix) readLegend(lines []line) int {
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
	listed := map[string]bool{}
	used := 0
	for ; used < len(lines); used++ {
		l := lines[used]
		if _, ok := parseHeader(l); ok || l.isRow() {
			break
		}
		for i, w := range l.words {
			entry := legendEntry().FindStringSubmatch(w)
			if entry == nil || nics[entry[1]] == nil {
				continue
			}
			d, value := nics[entry[1]], entry[2]
			for _, next := range l.words[i+1:] {
				if legendEntry().MatchString(next) {
					break
				}
				value = strings.TrimSpace(value + " " + next)
			}
			listed[d.Name] = true
			switch {
			case !rdmaName().MatchString(value):
				m.note(l.number, "legend of %s: %q is not the name of an RDMA device", d.Name, where.Clip(value))
			case d.RDMA != "" && d.RDMA != value:
				m.note(l.number, "legend of %s: %q, but it was %q before", d.Name, where.Clip(value), d.RDMA)
			default:
				d.RDMA = value
			}
		}
	}
	switch {
	case len(nics) == 0:
	case len(listed) == 0:
		m.note(m.Line, "no NIC legend: the RDMA devices of %d NICs are not known", len(nics))
	case len(listed) < len(nics):
		m.note(m.Line, "NIC legend: %d of %d NICs are not in it", len(nics)-len(listed), len(nics))
	}
	return used
}

// maxContradictions is the largest share of pairs with different cells. Beyond that, the rows were read wrongly.
const maxContradictions = 0.25

// mirror copies a path that one row lacks from the other device's row. If the rows differ, for example because the
// NVLinks of one GPU are down, the path becomes unknown.
func (m *Matrix) mirror() *Error {
	var wrong []*Error
	for i, row := range m.Cells {
		for j := range row[:i] {
			a, b := &m.Cells[i][j], &m.Cells[j][i]
			switch {
			case *a == *b:
			case a.Class == topology.PathUnknown:
				*a = *b
			case b.Class == topology.PathUnknown:
				*b = *a
			default:
				wrong = append(wrong, rowError(m.Devices[i].Line, m.Devices[i].Name, m.Devices[j].Name,
					"%s, but line %d has %s for the same two devices in its row %q; one of them is wrong",
					*a, m.Devices[j].Line, *b, m.Devices[j].Name))
				*a, *b = Cell{}, Cell{}
			}
		}
	}
	if n := len(m.Devices); float64(len(wrong)) > maxContradictions*float64(n*(n-1)/2) {
		return wrong[0]
	}
	for _, e := range wrong {
		m.note(e.Line, "row %q, column %q: %s", e.Row, e.Column, e.Why)
	}
	return nil
}
