package smi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/paste"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// A line is a line of the text that has words.
type line struct {
	number int // from 1
	words  []string
	open   bool // the text ends behind the last word, which may be cut off
}

// ansi matches terminal escapes: nvidia-smi underlines its header even if no terminal is there. Web pages drop the
// escape character; without it only colours ("[4m") are recognised.
var ansi = lazyregexp.New(paste.Escape + `|\[[0-9;]{1,8}m`)

// splitLines splits a text into lines and words. The bars and rules of tables and quotes are no words.
func splitLines(text string) []line {
	var lines []line
	n := 0
	for raw := range strings.SplitSeq(text, "\n") {
		n++
		if strings.ContainsAny(raw, "\x1b[") {
			raw = ansi.ReplaceAllString(raw, "")
		}
		words := strings.FieldsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || r == '|' || r == '`' })
		words = slices.DeleteFunc(words, func(w string) bool { return strings.Trim(w, "-:=+*#~>") == "" })
		if len(words) > 0 {
			lines = append(lines, line{number: n, words: words})
		}
	}
	if len(lines) > 0 {
		lines[len(lines)-1].open = strings.TrimRightFunc(text, unicode.IsSpace) == text
	}
	return lines
}

var (
	gpuName = lazyregexp.New(`^GPU[0-9]{1,4}$`)
	// A NIC is "NIC0", or in the older layout the name of its RDMA device: mlx5_0, mlx5_bond_0, bnxt_re0, rocep13s0f0.
	nicName = lazyregexp.New(`^(?:NIC[0-9]{1,4}|[a-z][a-z0-9_]{0,30}[0-9][a-z0-9_]{0,16})$`)
	// Words of a header run together where web pages drop the space between them: "NIC6NIC7", "NIC11CPU".
	runTogether = lazyregexp.New(`^(?:GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+|CPU|NUMA|Affinity|GPU|ID)+$`)
	headerWord  = lazyregexp.New(`GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+|CPU|NUMA|Affinity|GPU|ID`)
	// So do paths: "SYSSYS". No label begins another one.
	labels    = lazyregexp.New(`^(?:X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)+$`)
	label     = lazyregexp.New(`X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC`)
	valueForm = lazyregexp.New(`^(?:N/A|[0-9][0-9,-]*)$`)
)

func isGPU(s string) bool    { return gpuName.MatchString(s) }
func isDevice(s string) bool { return isGPU(s) || nicName.MatchString(s) }

// gpuIndex returns the number of a GPU's name, nil for a NIC.
func gpuIndex(name string) *int {
	if !isGPU(name) {
		return nil
	}
	return number(name[len("GPU"):])
}

// number returns a value that is one number, nil for anything else.
func number(s string) *int {
	if n, err := strconv.ParseUint(s, 10, 20); err == nil {
		return new(int(n))
	}
	return nil
}

// A header names the columns of a matrix.
type header struct {
	line   int
	names  []string
	titles int // columns behind the paths: CPU affinity, NUMA affinity, GPU NUMA ID
	lost   int // rows that are cut off at the top, together with the header
}

// parseHeader reads names of devices from the first GPU of a line on, then titles, the last of which may be cut off.
func parseHeader(l line) (h header, ok bool) {
	h.line = l.number
	at := slices.IndexFunc(l.words, func(w string) bool { return isGPU(headerWord.FindString(w)) })
	if at < 0 {
		return h, false
	}
	var words []string
	for _, w := range l.words[at:] {
		if runTogether.MatchString(w) {
			words = append(words, headerWord.FindAllString(w, -1)...)
		} else {
			words = append(words, w)
		}
	}
	for i, w := range words {
		switch {
		case w == "CPU", w == "GPU", w == "NUMA" && words[i-1] != "GPU":
			h.titles++
		case w == "NUMA", w == "Affinity", w == "ID":
		case h.titles > 0 && i == len(words)-1 && (strings.HasPrefix("Affinity", w) || strings.HasPrefix("NUMA", w)):
		case h.titles > 0, slices.Contains(h.names, w), len(h.names) == maxDevices, !isDevice(w):
			return h, false
		default:
			h.names = append(h.names, w)
		}
	}
	return h, isGPU(words[0])
}

// row returns the name of the device that a line is the row of, and the words behind it. What stands before the name,
// such as the name of a host, a time or "12:" of grep -n, is passed over.
func (l line) row(isDevice func(string) bool) (name string, words []string) {
	for i, w := range l.words[:len(l.words)-1] {
		if name := w[strings.LastIndexAny(w, ":>])")+1:]; isDevice(name) {
			return name, l.words[i+1:]
		}
	}
	return "", nil
}

// isRow reports whether a line is a row of some matrix.
func (l line) isRow() bool {
	_, words := l.row(isDevice)
	return len(words) > 0 && labels.MatchString(words[0])
}

// matrixAt reads the matrix whose header, or first row if the header is lost, is the first line. used is how many lines
// it has. Without an error and without a matrix there is none: the words are prose. The first rows may be cut off
// together with the header if alone is set.
func matrixAt(lines []line, alone bool) (m *Matrix, used int, err *Error) {
	if h, ok := parseHeader(lines[0]); ok {
		m, used, err = h.rows(lines[1:])
		return m, used + 1, err
	}
	h, ok := headerFromRows(lines)
	if !ok || h.lost > 0 && !alone {
		return nil, 1, nil
	}
	m, used, err = h.rows(lines)
	if m != nil {
		m.note(m.Line, "no header line: the columns are taken from the rows")
		if h.lost > 0 {
			m.note(m.Line, "the first %d rows are cut off: paths between their devices are not known", h.lost)
		}
	}
	return m, used, err
}

// headerFromRows makes up for a lost header: the rows name the columns. Columns before the X of the first row are those
// of rows that are lost as well: nvidia-smi counts GPUs from 0, and NICs behind them.
func headerFromRows(lines []line) (h header, ok bool) {
	h.line = lines[0].number
	columns := 0
	for _, l := range lines {
		name, words := l.row(isDevice)
		cells, _ := parseCells(words)
		if len(cells) == 0 || slices.Contains(h.names, name) || len(h.names) == maxDevices {
			break
		}
		if h.names == nil {
			columns = len(cells)
			h.lost = slices.Index(cells, Cell{Class: topology.PathSelf})
			if h.names, ok = namesBefore(name, h.lost); !ok {
				return h, false
			}
		}
		h.names = append(h.names, name)
	}
	return h, len(h.names) > h.lost+1 && (h.lost == 0 || len(h.names) == columns)
}

// namesBefore returns the names of the n columns before that of a device; ok is false if its name does not tell them.
func namesBefore(device string, n int) (names []string, ok bool) {
	gpus := n
	if digits, isNIC := strings.CutPrefix(device, "NIC"); isNIC {
		nics, _ := strconv.Atoi(digits)
		gpus -= nics
	} else if index := gpuIndex(device); index == nil || *index != n {
		return nil, false
	}
	for i := range n {
		if i < gpus {
			names = append(names, fmt.Sprintf("GPU%d", i))
		} else {
			names = append(names, fmt.Sprintf("NIC%d", i-gpus))
		}
	}
	return names, gpus > 0 || n == 0 && isGPU(device)
}

// rows reads the rows below a header: one line each, in the order of the columns. The last rows may be cut off, and the
// last one within itself: the rows above have most of its paths. used is how many lines the rows have.
func (h header) rows(lines []line) (m *Matrix, used int, err *Error) {
	m = &Matrix{Line: h.line}
	for i, name := range h.names {
		m.Devices = append(m.Devices, Device{Name: name, Index: gpuIndex(name), Line: h.line})
		m.Cells = append(m.Cells, make([]Cell, len(h.names)))
		m.Cells[i][i].Class = topology.PathSelf
	}
	isColumn := func(s string) bool { return slices.Contains(h.names, s) }
	next, whole := h.lost, true
	for ; whole && next < len(h.names) && used < len(lines); next++ {
		l := lines[used]
		name, words := l.row(isColumn)
		if _, isHeader := parseHeader(l); isHeader || name != h.names[next] && !l.isRow() {
			break
		}
		first := next == h.lost
		if first && (name != h.names[next] || !labels.MatchString(words[0])) {
			return nil, 0, nil // prose
		}
		if name != h.names[next] {
			return nil, used, rowError(l.number, h.names[next], "",
				"the row is missing: the row of %q stands in its place", name)
		}
		used++
		m.Devices[next].Line = l.number
		mayBeCut := !first && (used == len(lines) || !lines[used].isRow())
		if whole, err = h.row(m, next, words, mayBeCut); err != nil {
			return nil, used, err
		}
	}
	if used == 0 {
		return nil, 0, nil
	}
	if !whole {
		next--
	} else if next < len(h.names) {
		dropCutValues(m.Devices[h.lost:next], lines[used-1].open)
	}
	if m.Cut = next < len(h.names); m.Cut {
		m.note(lines[used-1].number, "the matrix is cut off: the row %q is not whole, and paths between it and those "+
			"below are not known", h.names[next])
	}
	return m, used, m.mirror()
}

// row reads the cells and values of one row. whole is false if the row is cut off, as the last one may be.
func (h header) row(m *Matrix, row int, words []string, mayBeCut bool) (whole bool, err *Error) {
	d, n := &m.Devices[row], len(h.names)
	cells, rest := parseCells(words)
	for j, c := range cells[:min(len(cells), n)] {
		switch isSelf := c.Class == topology.PathSelf; {
		case isSelf && j != row:
			return false, rowError(d.Line, d.Name, h.names[j], `"X" stands outside of the diagonal`)
		case !isSelf && j == row:
			return false, rowError(d.Line, d.Name, h.names[j],
				`want "X" where row and column are the same device, found %q`, c)
		}
	}
	switch {
	case len(cells) > n:
		return false, rowError(d.Line, d.Name, "", "%d paths for %d columns", len(cells), n)
	case len(cells) == n:
		copy(m.Cells[row], cells)
		return true, m.values(d, h.titles, rest)
	case mayBeCut && (len(rest) == 0 || len(rest) == 1 && isCutLabel(rest[0])):
		copy(m.Cells[row], cells[:max(0, len(cells)-1)]) // without the last one: "NV1" may be the start of "NV18"
		m.Cells[row][row].Class = topology.PathSelf
		return false, nil
	case len(rest) == 0 || valueForm.MatchString(rest[0]):
		return false, rowError(d.Line, d.Name, "", "a cell is missing: the row has %d paths, the header %d columns",
			len(cells), n)
	}
	why := fmt.Sprintf("%q is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS", where.Clip(rest[0]))
	if slices.Contains([]string{"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}, rest[0]) {
		why = peerAccess
	}
	return false, &Error{Line: d.Line, Row: d.Name, Column: h.names[len(cells)], Why: why}
}

// parseCells takes the paths off the start of words.
func parseCells(words []string) (cells []Cell, rest []string) {
	for i, w := range words {
		if !labels.MatchString(w) {
			return cells, words[i:]
		}
		for _, s := range label.FindAllString(w, -1) {
			class, links, err := topology.ParsePathLabel(s)
			if err != nil {
				return cells, words[i:]
			}
			cells = append(cells, Cell{class, links})
		}
	}
	return cells, nil
}

// isCutLabel reports whether a word is the start of a path's label.
func isCutLabel(s string) bool {
	return slices.ContainsFunc([]string{"NV", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"},
		func(label string) bool { return strings.HasPrefix(label, s) })
}

// values reads the columns behind the paths of a row. If a value is missing, nothing tells which: then only a list is
// read, which the CPU affinity is.
func (m *Matrix) values(d *Device, titles int, words []string) *Error {
	var values []string
	for _, w := range words {
		if node, ok := strings.CutSuffix(w, "N/A"); ok && number(node) != nil { // "0N/A", run together
			values = append(values, node)
			w = "N/A"
		}
		if !valueForm.MatchString(w) {
			if d.IsGPU() {
				m.note(d.Line, "%s: %q behind the paths is not understood", d.Name, where.Clip(w))
			}
			break
		}
		values = append(values, w)
	}
	columns := []*string{&d.CPUAffinity, &d.NUMAAffinity, &d.GPUNUMAID}
	if len(values) > len(columns) {
		return rowError(d.Line, d.Name, "",
			"%d values behind the paths; want CPU affinity, NUMA affinity and GPU NUMA ID at most", len(values))
	}
	for i, v := range values {
		switch {
		case len(values) >= titles, i == 0 && strings.ContainsAny(v, ",-"):
			*columns[i] = v
		case v != "N/A":
			m.note(d.Line, "%s: %q is not read: a value is missing in the row, and it may be of any column", d.Name, v)
		}
	}
	return nil
}

// dropCutValues removes the values behind the paths of the last row of a text that is cut off, unless it has as many as
// the row above: "0-3" may be the start of "0-31".
func dropCutValues(rows []Device, open bool) {
	last := &rows[len(rows)-1]
	if len(rows) > 1 && !open {
		above := rows[len(rows)-2]
		open = (last.NUMAAffinity == "") != (above.NUMAAffinity == "") ||
			(last.GPUNUMAID == "") != (above.GPUNUMAID == "")
	}
	if open {
		last.CPUAffinity, last.NUMAAffinity, last.GPUNUMAID = "", "", ""
	}
}
