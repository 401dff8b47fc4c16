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

// A line has at least one word.
type line struct {
	number int // counts from 1
	words  []string
	open   bool // the text ends right after the last word
}

// ansi matches terminal escapes: nvidia-smi underlines its header even without a terminal. Web pages drop the escape
// character.
var ansi = lazyregexp.New(paste.Escape + `|\[[0-9;]{1,8}m`)

func splitLines(text string) []line {
	var lines []line
	n := 0
	for raw := range strings.SplitSeq(text, "\n") {
		n++
		if strings.ContainsAny(raw, "\x1b[") {
			raw = ansi().ReplaceAllString(raw, "")
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
	// nicName matches "NIC0" or, in the older layout, an RDMA device.
	nicName = lazyregexp.New(`^(?:NIC[0-9]{1,4}|[a-z][a-z0-9_]{0,30}[0-9][a-z0-9_]{0,16})$`)
	// runTogether matches words of a header without spaces, as from web pages: "NIC11CPU".
	runTogether = lazyregexp.New(`^(?:GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+|CPU|NUMA|Affinity|GPU|ID)+$`)
	headerWord  = lazyregexp.New(`GPU[0-9]+|NIC[0-9]+|mlx[0-9]_(?:bond_)?[0-9]+|CPU|NUMA|Affinity|GPU|ID`)
	// labels matches "SYSSYS". No label is a prefix of another.
	labels    = lazyregexp.New(`^(?:X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)+$`)
	label     = lazyregexp.New(`X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC`)
	valueForm = lazyregexp.New(`^(?:N/A|[0-9][0-9,-]*)$`)
)

func isGPU(s string) bool    { return gpuName().MatchString(s) }
func isDevice(s string) bool { return isGPU(s) || nicName().MatchString(s) }

func gpuIndex(name string) *int {
	if !isGPU(name) {
		return nil
	}
	return number(name[len("GPU"):])
}

func number(s string) *int {
	if n, err := strconv.ParseUint(s, 10, 20); err == nil {
		return new(int(n))
	}
	return nil
}

type header struct {
	line   int
	names  []string
	titles int // columns after the paths
	lost   int // rows cut off at the top
}

func parseHeader(l line) (h header, ok bool) {
	h.line = l.number
	at := slices.IndexFunc(l.words, func(w string) bool { return isGPU(headerWord().FindString(w)) })
	if at < 0 {
		return h, false
	}
	var words []string
	for _, w := range l.words[at:] {
		if runTogether().MatchString(w) {
			words = append(words, headerWord().FindAllString(w, -1)...)
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

// row returns the device name of a row, and the words after it. It skips any prefix, such as "12:" of grep -n.
func (l line) row(isDevice func(string) bool) (name string, words []string) {
	for i, w := range l.words[:len(l.words)-1] {
		if name := w[strings.LastIndexAny(w, ":>])")+1:]; isDevice(name) {
			return name, l.words[i+1:]
		}
	}
	return "", nil
}

func (l line) isRow() bool {
	_, words := l.row(isDevice)
	return len(words) > 0 && labels().MatchString(words[0])
}

// matrixAt reads the matrix that begins at the first line, and returns the number of lines used. m is nil without an
// error if the line is prose. If alone is set, the first rows may be missing with the header.
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

// headerFromRows reconstructs a lost header. Columns before the X of the first row belong to lost rows: nvidia-smi
// counts GPUs from 0, then NICs.
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

// namesBefore returns the names of the n columns before a device, if its name determines them.
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

// rows reads the rows below a header, and returns the number of lines used. The last rows may be missing or truncated.
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
		if first && (name != h.names[next] || !labels().MatchString(words[0])) {
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

// row reads one row. whole is false if the row is truncated, which only mayBeCut allows.
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
		copy(m.Cells[row], cells[:max(0, len(cells)-1)]) // "NV1" may be the start of "NV18"
		m.Cells[row][row].Class = topology.PathSelf
		return false, nil
	case len(rest) == 0 || valueForm().MatchString(rest[0]):
		return false, rowError(d.Line, d.Name, "", "a cell is missing: the row has %d paths, the header %d columns",
			len(cells), n)
	}
	why := fmt.Sprintf("%q is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS", where.Clip(rest[0]))
	if slices.Contains([]string{"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"}, rest[0]) {
		why = peerAccess
	}
	return false, &Error{Line: d.Line, Row: d.Name, Column: h.names[len(cells)], Why: why}
}

func parseCells(words []string) (cells []Cell, rest []string) {
	for i, w := range words {
		if !labels().MatchString(w) {
			return cells, words[i:]
		}
		for _, s := range label().FindAllString(w, -1) {
			class, links, err := topology.ParsePathLabel(s)
			if err != nil {
				return cells, words[i:]
			}
			cells = append(cells, Cell{class, links})
		}
	}
	return cells, nil
}

func isCutLabel(s string) bool {
	return slices.ContainsFunc([]string{"NV", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"},
		func(label string) bool { return strings.HasPrefix(label, s) })
}

// values reads only a list, which must be the CPU affinity, if a value is missing.
func (m *Matrix) values(d *Device, titles int, words []string) *Error {
	var values []string
	for _, w := range words {
		if node, ok := strings.CutSuffix(w, "N/A"); ok && number(node) != nil { // "0N/A" without a space
			values = append(values, node)
			w = "N/A"
		}
		if !valueForm().MatchString(w) {
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

// dropCutValues removes the values of the last row if the text may be cut there, since "0-3" may be the start of
// "0-31". It keeps them if the row above has as many.
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
