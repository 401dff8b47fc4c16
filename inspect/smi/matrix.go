package smi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/topology"
)

// Limits on what is read. The largest machines have 16 GPUs and some tens of NICs; virtual functions make hundreds.
const (
	maxText    = 16 << 20 // bytes
	maxDevices = 1024
	maxNotes   = 100
)

// A Matrix is what nvidia-smi topo -m states. Cells is square and symmetric, in the order of
// Devices; the diagonal is topology.PathSelf, and no other cell is. Those of which the text says
// two things are topology.PathUnknown.
type Matrix struct {
	Devices []Device
	Cells   [][]Cell
	Line    int    // line of the header, or of the first row where there is no header; from 1
	Version string // of nvidia-smi, where the text says it: "535.129.03"
	Notes   []Note // what was odd about the text and did not keep it from being read
}

// A Device is a row and column of the matrix: a GPU or a NIC.
type Device struct {
	Name  string // "GPU0", "NIC3"; a NIC's RDMA device in the older layout: "mlx5_0"
	Index *int   // the number of a GPU as nvidia-smi counts; nil for NICs
	RDMA  string // a NIC's RDMA device, from the legend or the older layout; empty where it is not known
	Line  int    // where its row starts

	// The columns behind the paths, as they stand there. Empty where there is no such column or no
	// value, "N/A" where the tool does not know.
	CPUAffinity  string
	NUMAAffinity string
	GPUNUMAID    string
}

// IsGPU reports whether the device is a GPU; otherwise it is a NIC.
func (d *Device) IsGPU() bool { return d.Index != nil }

// A Cell is a path between two devices.
type Cell struct {
	Class topology.PathClass
	Links int // NVLinks, of topology.PathNVLink only
}

// String returns the cell as nvidia-smi prints it.
func (c Cell) String() string { return topology.Path{Class: c.Class, Links: c.Links}.Label() }

// A Note is a remark on a line of the text.
type Note struct {
	Line int
	Why  string
}

func (m *Matrix) note(line int, format string, args ...any) {
	if len(m.Notes) < maxNotes {
		m.Notes = append(m.Notes, Note{line, fmt.Sprintf(format, args...)})
	}
}

// ParseMatrix finds the matrix in the output of nvidia-smi topo -m (or -mp), or in a text that
// holds it, and reads it. The error is an *Error.
func ParseMatrix(b []byte) (*Matrix, error) {
	if len(b) > maxText {
		return nil, &Error{Why: fmt.Sprintf("text of %d bytes: at most %d are taken", len(b), maxText)}
	}
	text := string(b)
	lines, tokens := lex(text)

	var found *Matrix
	var first *Error // of the first matrix that could not be read
	for i := 0; i < len(tokens); {
		if found != nil && len(found.Notes) >= maxNotes {
			break
		}
		m, next, err := matrixAt(tokens, i, found == nil && first == nil)
		switch {
		case err != nil && found == nil && (first == nil || first.Why == peerAccess):
			first = err
		case m == nil:
		case found == nil:
			found = m
			// The legend of this matrix ends where the next one starts.
			// It may start on the line of the last row: where lines were joined there is only one.
			from := tokens[next-1].line
			found.readLegend(lines[from-1:max(from, nextHeader(tokens, next, len(lines)))], from)
		case !sameMatrix(found, m):
			found.note(m.Line, "another matrix, of %d devices, that is not the same: the one at line %d is read",
				len(m.Devices), found.Line)
		}
		i = max(next, i+1)
	}
	if found == nil {
		if first == nil {
			first = noMatrix(text)
		}
		return nil, first
	}
	if first != nil && first.Why != peerAccess {
		found.note(first.Line, "a matrix that is not read: %s", first.Why)
	}
	if v := version.FindStringSubmatch(text); v != nil {
		found.Version = v[1]
	}
	return found, nil
}

// nextHeader returns how many lines stand before the next header behind token i, or all where there is none.
func nextHeader(tokens []token, i, all int) int {
	for ; i < len(tokens); i++ {
		if !isGPU(tokens[i].text) {
			continue
		}
		if h, _, ok := headerAt(tokens, i); ok {
			return h.line - 1
		}
	}
	return all
}

// version matches what the other pages of nvidia-smi, which often stand in the same text, say of the tool.
var version = lazyregexp.New(`NVIDIA-SMI (?:version *: *)?([0-9]{3}\.[0-9.]+)`)

// noMatrix says why nothing was found, as far as the text tells.
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

// sameMatrix reports whether two matrices say the same of the same devices, whatever lines they stand on.
func sameMatrix(a, b *Matrix) bool {
	return slices.EqualFunc(a.Devices, b.Devices, func(x, y Device) bool {
		return x.Name == y.Name && x.CPUAffinity == y.CPUAffinity && x.NUMAAffinity == y.NUMAAffinity &&
			x.GPUNUMAID == y.GPUNUMAID
	}) && slices.EqualFunc(a.Cells, b.Cells, slices.Equal[[]Cell])
}

// matrixAt reads the matrix whose header, or first row where the header is lost, starts at token i.
// It returns the token behind what it has read. Without an error and without a matrix there is none
// at i: the words are prose. The first rows may be cut off together with the header where none stand above.
func matrixAt(tokens []token, i int, alone bool) (m *Matrix, next int, err *Error) {
	if !strictName.MatchString(tokens[i].text) {
		return nil, i + 1, nil
	}
	if h, next, ok := headerAt(tokens, i); ok {
		r := rowReader{tokens: tokens, at: next, header: h}
		m, err := r.matrix()
		return m, r.at, err
	}
	if h, ok := headerFromRows(tokens, i); ok && (h.lost == 0 || alone) {
		r := rowReader{tokens: tokens, at: i, header: h}
		m, err := r.matrix()
		if m != nil {
			m.note(m.Line, "no header line: the columns are taken from the rows")
			if h.lost > 0 {
				m.note(m.Line, "the first %d rows are cut off: paths between their devices are not known", h.lost)
			}
		}
		return m, r.at, err
	}
	return nil, i + 1, nil
}

// An Error is a text without a matrix, or a matrix that cannot be right.
type Error struct {
	File   string // as it was given to Parse; empty from ParseMatrix
	Line   int    // from 1; 0 where the whole text is meant
	Row    string // device that the row is of, if any
	Column string // device that the column is of, if any
	Why    string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(where.Prefix(e.File, e.Line))
	switch {
	case e.Row != "" && e.Column != "":
		fmt.Fprintf(&b, "row %q, column %q: ", e.Row, e.Column)
	case e.Row != "":
		fmt.Fprintf(&b, "row %q: ", e.Row)
	}
	b.WriteString(e.Why)
	return b.String()
}

// rowError returns an error at a row, and at a column unless that is empty.
func rowError(line int, row, column, format string, args ...any) *Error {
	return &Error{Line: line, Row: row, Column: column, Why: fmt.Sprintf(format, args...)}
}

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
	for d := range lists.Refs(m.Devices) {
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
