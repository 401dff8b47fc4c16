package smi

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/topology"
)

// A rowReader reads the rows below a header.
type rowReader struct {
	tokens []token
	at     int // the next token
	header header
	m      *Matrix
}

// A label is a cell and the word that it was read from.
type label struct {
	Cell
	token token
}

// rowEnd returns the token behind the row whose first cell is token i: the next row, or the first
// word behind an empty line. White space between the lines of one row, from cells that are empty,
// does not occur: the cells that may be empty are the last ones.
func rowEnd(tokens []token, i int, isDevice func(string) bool) int {
	end := i
	for end < len(tokens) && !isDevice(tokens[end].text) && (end == 0 || tokens[end].line <= tokens[end-1].line+1) {
		end++
	}
	return end
}

// matrix reads all rows. Where the first row has no path at all, the words were none of a matrix:
// then it returns neither matrix nor error.
func (r *rowReader) matrix() (*Matrix, *Error) {
	names := lists.SetOf(r.header.names, func(n string) string { return n })
	isDevice := func(s string) bool { return names[s] }
	r.m = &Matrix{Line: r.header.line}
	for i, name := range r.header.names[:r.header.lost] {
		r.m.Devices = append(r.m.Devices, Device{Name: name, Index: gpuIndex(name), Line: r.header.line})
		r.m.Cells = append(r.m.Cells, make([]Cell, len(r.header.names)))
		r.m.Cells[i][i].Class = topology.PathSelf
	}
	for row := r.header.lost; row < len(r.header.names); row++ {
		name := r.header.names[row]
		if err := r.findRow(name); err != nil {
			if row == r.header.lost {
				return nil, nil
			}
			return nil, err
		}
		line := r.tokens[r.at].line
		r.at++
		end := rowEnd(r.tokens, r.at, isDevice)
		d := Device{Name: name, Index: gpuIndex(name), Line: line}
		start := r.at
		cells, err := r.row(&d, row, r.tokens[r.at:end])
		if err != nil {
			if row == r.header.lost && r.at == start {
				return nil, nil
			}
			r.at = end
			return nil, err
		}
		r.m.Devices = append(r.m.Devices, d)
		r.m.Cells = append(r.m.Cells, cells)
		for i := range r.header.lost {
			r.m.Cells[i][row] = cells[i] // a path is the same in both directions
		}
		if row+1 < len(r.header.names) {
			r.at = end
		}
	}
	return r.m, r.check()
}

// findRow expects the name of a row at the next token.
func (r *rowReader) findRow(name string) *Error {
	if r.at == len(r.tokens) {
		return rowError(r.tokens[r.at-1].line, name, "",
			"the text ends before this row; give the whole output of nvidia-smi topo -m")
	}
	t := r.tokens[r.at]
	if t.text == name {
		return nil
	}
	if slices.Contains(r.header.names, t.text) {
		return rowError(t.line, name, "", "the row is missing: the row of %q stands in its place", t.text)
	}
	line := r.header.line
	if r.at > 0 {
		line = r.tokens[r.at-1].line + 1
	}
	return rowError(line, name, "",
		"the row is missing: the matrix ends before it; give the whole output of nvidia-smi topo -m")
}

// row reads the cells of one row and what stands behind them. r.at is moved behind what was used.
func (r *rowReader) row(d *Device, row int, words []token) ([]Cell, *Error) {
	names := r.header.names
	labels, used := readLabels(words, len(names))
	start := r.at
	r.at += used
	switch {
	case len(labels) > len(names):
		return nil, rowError(words[used-1].line, d.Name, "", "%d paths for %d columns", len(labels), len(names))
	case len(labels) < len(names):
		return nil, r.missing(d, row, labels, words[used:])
	}
	cells := make([]Cell, len(labels))
	for j, l := range labels {
		cells[j] = l.Cell
		if (l.Class == topology.PathSelf) != (j == row) {
			if j != row {
				return nil, rowError(l.token.line, d.Name, names[j], `"X" stands outside of the diagonal`)
			}
			return nil, rowError(l.token.line, d.Name, names[j],
				`want "X" where row and column are the same device, found %q`, l.String())
		}
	}
	tail := words[used:]
	// Paths and affinity may be run together where the terminal's edge was: "SYS0-31,64-95".
	if used > 0 {
		if _, rest := cutLabels(words[used-1].text); rest != "" && !words[used-1].glued {
			t := words[used-1]
			t.text = rest
			tail = append([]token{t}, tail...)
			used--
		}
	}
	n, err := r.tail(d, tail, labels[len(labels)-1].token.line)
	r.at = start + used + n
	return cells, err
}

// readLabels reads up to want paths from the start of a row. It returns more than want if a word
// that holds several passes that number. used is how many words it took; a word that is a path and
// the start of an affinity is the last one taken.
func readLabels(words []token, want int) (labels []label, used int) {
	for used < len(words) && len(labels) < want {
		t := words[used]
		next := token{}
		if used+1 < len(words) && words[used+1].glued {
			next = words[used+1]
		}
		cells, whole := splitLabels(t.text)
		switch {
		case next.text == "":
		case whole && cells[len(cells)-1].Links > 0 && strings.Trim(next.text, "0123456789") == "":
			// A terminal broke "NV18" into "NV1" and "8".
			if c, ok := splitLabels(t.text + next.text); ok {
				cells = c
				used++
			}
		case !whole:
			// A terminal broke "NODE" into "NO" and "DE".
			if c, ok := splitLabels(t.text + next.text); ok {
				cells, whole = c, true
				used++
			}
		}
		if !whole {
			var rest string
			if cells, rest = cutLabels(t.text); len(cells) == 0 || !isAffinity(rest) || len(labels)+len(cells) < want {
				return labels, used
			}
		}
		labels = append(labels, lists.Map(cells, func(c Cell) label { return label{c, t} })...)
		used++
	}
	// A path behind the last column is one too many.
	if len(labels) == want && used < len(words) {
		if cells, ok := splitLabels(words[used].text); ok && words[used].line <= words[used-1].line+1 {
			labels = append(labels, lists.Map(cells, func(c Cell) label { return label{c, words[used]} })...)
			used++
		}
	}
	return labels, used
}

// splitLabels parses a word that is one path, or several run together: web pages that wrap long
// lines drop the space there ("SYSSYS"). It is unambiguous: no label begins another one, and the
// number of NV# ends where the next label begins.
func splitLabels(s string) ([]Cell, bool) {
	cells, rest := cutLabels(s)
	return cells, rest == "" && len(cells) > 0
}

// cutLabels takes the paths off the start of a word.
func cutLabels(s string) (cells []Cell, rest string) {
	for s != "" {
		n := 0
		for _, l := range []string{"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"} {
			if strings.HasPrefix(s, l) {
				n = len(l)
			}
		}
		if strings.HasPrefix(s, "NV") {
			n = len("NV")
			for n < len(s) && s[n] >= '0' && s[n] <= '9' {
				n++
			}
		}
		if n == 0 {
			return cells, s
		}
		class, links, err := topology.ParsePathLabel(s[:n])
		if err != nil {
			return cells, s
		}
		cells = append(cells, Cell{class, links})
		s = s[n:]
	}
	return cells, ""
}

// peerAccess is the reason for not reading the matrix of nvidia-smi topo -p2p, which looks alike
// and often stands in the same text.
const peerAccess = "this is the matrix of nvidia-smi topo -p2p, which has no paths; give the output of " +
	"nvidia-smi topo -m"

// missing says which cell of a row is not there. words are those behind the cells that could be read.
func (r *rowReader) missing(d *Device, row int, labels []label, words []token) *Error {
	names := r.header.names
	e := &Error{Line: d.Line, Row: d.Name}
	if len(labels) > 0 {
		e.Line = labels[len(labels)-1].token.line
	}
	if len(words) > 0 && words[0].line == e.Line && !isAffinity(words[0].text) {
		e.Column = names[len(labels)]
		switch words[0].text {
		case "OK", "CNS", "GNS", "TNS", "NS", "DR", "U":
			e.Why = peerAccess
			return e
		}
		e.Why = fmt.Sprintf("%q is not a path; want X, NV#, PIX, PXB, PHB, NODE or SYS", where.Clip(words[0].text))
		return e
	}
	e.Column = names[r.missingColumn(row, labels)]
	e.Why = fmt.Sprintf("the cell is missing: the row has %d paths, the header %d columns", len(labels), len(names))
	return e
}

// missingColumn finds the column whose cell is missing in a row: by its place below the header
// where the columns are aligned, else by the X and by what the rows above say of this device, else
// it is the first behind the end.
func (r *rowReader) missingColumn(row int, labels []label) int {
	if c, ok := r.columnByPlace(row, labels); ok {
		return c
	}
	x := slices.IndexFunc(labels, func(l label) bool { return l.Class == topology.PathSelf })
	if x == row || x > row {
		return len(labels)
	}
	for j := range min(len(labels), row) {
		if labels[j].Cell != r.m.Cells[j][row] {
			return j
		}
	}
	return min(row, len(labels))
}

// columnByPlace compares where the words of a row and of the header start. The tool writes " X "
// one column to the right of the others. Text that was cut out often lacks the white space at the
// start of the header, so the X says by how much it is moved.
func (r *rowReader) columnByPlace(row int, labels []label) (int, bool) {
	cols := r.header.cols
	shift, calibrated := 0, false
	for i, l := range labels {
		if i > 0 && (l.token.col <= labels[i-1].token.col || l.token.line != labels[0].token.line) {
			return 0, false
		}
		if l.Class == topology.PathSelf && cols != nil {
			shift, calibrated = l.token.col-1-cols[row], true
		}
	}
	if !calibrated {
		return 0, false
	}
	for i, c := range cols {
		if i == len(labels) || labels[i].token.col-shift >= c+4 {
			return i, true
		}
		if labels[i].token.col-shift < c {
			return 0, false // not aligned
		}
	}
	return 0, false
}

// maxContradictions is the share of pairs whose two cells may differ. Where more do, the rows were taken apart wrongly.
const maxContradictions = 0.25

// check looks at the matrix as a whole: a path is the same in both directions. Where it is not, one of the cells is
// wrong, and nothing tells which: the path is not known. It has been seen of a GPU whose NVLinks were down.
func (r *rowReader) check() *Error {
	var wrong []*Error
	for i, row := range r.m.Cells {
		for j, c := range row[:i] {
			other := r.m.Cells[j][i]
			if other == c {
				continue
			}
			a, b := &r.m.Devices[i], &r.m.Devices[j]
			wrong = append(wrong, rowError(a.Line, a.Name, b.Name, "%s, but line %d has %s for the same two devices "+
				"in its row %q; one of them is wrong", c, b.Line, other, b.Name))
			r.m.Cells[i][j], r.m.Cells[j][i] = Cell{}, Cell{}
		}
	}
	if n := len(r.m.Devices); float64(len(wrong)) > maxContradictions*float64(n*(n-1)/2) {
		return wrong[0]
	}
	for _, e := range wrong {
		r.m.note(e.Line, "row %q, column %q: %s", e.Row, e.Column, e.Why)
	}
	return nil
}

// isAffinity reports whether a word may stand in a column behind the paths: a list of CPUs or
// nodes, a number, or "N/A".
func isAffinity(s string) bool {
	return s == "N/A" || s != "" && s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789,-") == ""
}

// isBrokenNA reports whether a word is the start of "N/A" that a terminal broke.
func isBrokenNA(s string) bool { return s == "N" || s == "N/" }

// tail reads the columns behind the paths from words, the first of which follow on line, and
// returns how many words it took.
func (r *rowReader) tail(d *Device, words []token, line int) (int, *Error) {
	kinds := []titleKind{cpuAffinity, numaAffinity, gpuNUMAID}
	if r.header.titles != nil {
		kinds = kinds[:0]
		kinds = append(kinds, lists.Map(r.header.titles, func(t title) titleKind { return t.kind })...)
	}
	values, n := tailValues(words, line, d.IsGPU())
	// Too many values: a terminal broke a list between digits.
	for i := 1; i < len(values) && len(values) > len(kinds); i++ {
		if values[i].glued {
			values[i-1].text += values[i].text
			values = slices.Delete(values, i, i+1)
		}
	}
	// One value too few, and the next word is two: "0N/A", where a web page dropped the space.
	if len(values)+2 == len(kinds) && n < len(words) {
		if list, ok := strings.CutSuffix(words[n].text, "N/A"); ok && isAffinity(list) && words[n].line == line {
			values = append(values, token{text: list}, token{text: "N/A"})
			n++
		}
	}
	switch {
	case len(values) > 3:
		return 0, rowError(d.Line, d.Name, "",
			"%d values behind the paths; want CPU affinity, NUMA affinity and GPU NUMA ID at most", len(values))
	case len(values) > len(kinds):
		// The header's end is cut off; the order of the columns never changes.
		kinds = []titleKind{cpuAffinity, numaAffinity, gpuNUMAID}
	case len(values) < len(kinds) && r.header.titles != nil:
		r.assignByPlace(d, values)
		if d.IsGPU() && n < len(words) && words[n].line == line {
			r.m.note(line, "%s: %q behind the paths is not understood", d.Name, where.Clip(words[n].text))
		}
		return n, nil
	}
	for i, v := range values {
		d.set(kinds[i], v.text)
	}
	return n, nil
}

// tailValues collects values, and joins those that a terminal broke in two. used is how many words
// they are. Only the row of a GPU goes on behind the end of its line: a NIC has no such values, and
// what is below its row is other text.
func tailValues(words []token, line int, isGPU bool) (values []token, used int) {
	for used < len(words) {
		t := words[used]
		last := len(values) - 1
		if t.line != line {
			if !isGPU || !onlyValues(words[used:], values) {
				break
			}
			line = t.line
		}
		switch {
		case last >= 0 && t.glued && !isAffinity(t.text) && isAffinity(values[last].text+t.text):
			values[last].text += t.text
		case last >= 0 && t.text != "N/A" && isAffinity(t.text) &&
			strings.ContainsAny(values[last].text[len(values[last].text)-1:], ",-"):
			values[last].text += t.text // a list broken at a comma
		case isAffinity(t.text), isBrokenNA(t.text):
			values = append(values, t)
		default:
			return values, used
		}
		used++
	}
	return values, used
}

// onlyValues reports whether the line that words start with holds nothing else than values, or the
// rest of one. It does not go on where values are complete.
func onlyValues(words, values []token) bool {
	complete := len(values)
	for _, v := range values {
		if v.glued {
			complete-- // may be the rest of the one before
		}
	}
	if complete >= 3 && !words[0].glued {
		return false
	}
	for i, t := range words {
		if t.line != words[0].line {
			break
		}
		rest := i == 0 && t.glued && len(values) > 0 && isAffinity(values[len(values)-1].text+t.text)
		if !isAffinity(t.text) && !isBrokenNA(t.text) && !rest {
			return false
		}
	}
	return true
}

// assignByPlace gives values to the titles that they stand below: some are not there. Values that
// stand below none are left out, and noted unless they say nothing.
func (r *rowReader) assignByPlace(d *Device, values []token) {
	ts := r.header.titles
	for i, v := range values {
		found := -1
		for k, t := range ts {
			if r.header.cols != nil && v.line == d.Line && t.col == v.col {
				found = k
			}
		}
		switch {
		case found >= 0:
			d.set(ts[found].kind, v.text)
		case i == 0 && len(ts) > 0 && ts[0].kind == cpuAffinity && strings.ContainsAny(v.text, ",-"):
			d.set(cpuAffinity, v.text) // NUMA affinity is a list as well, but never where there is no CPU affinity
		case v.text == "N/A":
		default:
			r.m.note(d.Line, "%s: %q stands below no title; it is not read", d.Name, where.Clip(v.text))
		}
	}
}

func (d *Device) set(kind titleKind, v string) {
	switch kind {
	case cpuAffinity:
		d.CPUAffinity = v
	case numaAffinity:
		d.NUMAAffinity = v
	case gpuNUMAID:
		d.GPUNUMAID = v
	}
}

// number returns a value that is one number, nil for anything else.
func number(s string) *int {
	if s == "" || len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return nil
	}
	n, _ := strconv.Atoi(s)
	return &n
}
