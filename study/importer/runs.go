package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/rackless/rackless/internal/lazyregexp"
)

// runs puts text before the first run into it.
func (f *file) runs(l logFormat) ([]*file, error) {
	if l.start == nil {
		return []*file{f}, nil
	}
	all := f.documents()
	if all == nil {
		all = f.texts(l)
	}
	if len(all) > maxRepeats {
		return nil, f.fail(0, "more than %d runs in one file: import them apart", maxRepeats)
	}
	return all, nil
}

// texts makes up to maxRepeats runs.
func (f *file) texts(l logFormat) []*file {
	var all []*file
	var cuts []int // all runs but the first
	for i, at := range l.start().FindAllIndex(f.data, maxRepeats+1) {
		if i > 0 {
			cuts = append(cuts, at[0])
		}
	}
	from := 0
	for _, cut := range append(cuts, len(f.data)) {
		part := f.part(from, cut)
		// Client and server on one terminal are one run; a command line without results at the end is none.
		if n := len(all); n > 0 && l.sides != nil && (l.sides(all[n-1].data, part.data) || !l.head().Match(part.data) &&
			cut == len(f.data)) {
			all[n-1] = f.part(from-len(all[n-1].data), cut)
		} else {
			all = append(all, part)
		}
		from = cut
	}
	return all
}

// objectLine matches the possible begin of a JSON object. maxObjects limits the attempts, since each may read to the
// end of the file.
var objectLine = lazyregexp.New(`(?m)^[ \t]*\{`)

const maxObjects = 64

// objects separates JSON objects from the text around them. JSON between a tool's own lines is left to its parser.
func (f *file) objects() []*file {
	var all []*file
	from := 0
	add := func(to int, known bool) {
		if known || sniff(f.data[from:to]) != "" {
			part := f.part(from, to)
			part.size = to - from
			all = append(all, part)
		}
		from = to
	}
	for _, at := range objectLine().FindAllIndex(f.data, maxObjects) {
		begin := at[1] - 1
		if begin < from {
			continue
		}
		var object json.RawMessage
		if json.NewDecoder(bytes.NewReader(f.data[begin:])).Decode(&object) != nil {
			continue
		}
		name, end := sniff(object), begin+len(object)
		if l := formatOf(name); l.json == nil || sniff(f.data[from:begin]) == name || sniff(f.data[end:]) == name &&
			!objectLine().Match(f.data[end:]) {
			continue
		}
		add(begin, false)
		add(end, true)
	}
	if len(all) == 0 {
		return []*file{f}
	}
	add(len(f.data), false)
	return all
}

// array does not match a shell prompt that begins with a bracket.
var array = lazyregexp.New(`^\s*\[\s*(?:\{|\]|$)`)

// byTool puts text before the first tool into its part.
func byTool(files []*file) []*file {
	var all, parts []*file
	for _, f := range files {
		if array().Match(f.data) {
			parts = append(parts, f)
		} else {
			parts = append(parts, f.objects()...)
		}
	}
	for _, f := range parts {
		type start struct {
			at     int
			format string
		}
		var starts []start
		if !array().Match(f.data) && !bytes.HasPrefix(bytes.TrimSpace(f.data), []byte("{")) {
			for _, l := range logFormats {
				if l.head == nil || !l.head().Match(f.data) {
					continue
				}
				for _, at := range l.start().FindAllIndex(f.data, maxRepeats+1) {
					starts = append(starts, start{at[0], l.name})
				}
			}
		}
		slices.SortStableFunc(starts, func(a, b start) int { return cmp.Compare(a.at, b.at) })
		from, last := 0, 0
		for i := 1; i < len(starts); i++ {
			// A start without results belongs to another tool's output.
			if starts[i].format == starts[last].format ||
				!formatOf(starts[i].format).head().Match(f.data[starts[i].at:]) {
				continue
			}
			if part := f.part(from, starts[i].at); formatOf(starts[last].format).head().Match(part.data) {
				part.size = len(part.data)
				all, from = append(all, part), starts[i].at
			}
			last = i
		}
		part := f.part(from, len(f.data))
		part.size -= from
		all = append(all, part)
	}
	return all
}

// part keeps the file's line numbers.
func (f *file) part(from, to int) *file {
	p := *f
	p.data = f.data[from:to]
	p.above = f.above + bytes.Count(f.data[:from], []byte("\n"))
	return &p
}

// documents splits JSON into up to maxRepeats runs. It returns nil for other files or a single object, so that the
// parser reports errors.
func (f *file) documents() []*file {
	at := bytes.IndexAny(f.data, "{[")
	if at < 0 || len(bytes.TrimSpace(f.data[:at])) > 0 {
		return nil
	}
	// A bad object in the middle must not lose earlier ones.
	dec := json.NewDecoder(bytes.NewReader(f.data[at:]))
	if f.data[at] == '[' {
		if _, err := dec.Token(); err != nil {
			return nil
		}
	}
	var all []*file
	for dec.More() && len(all) <= maxRepeats {
		var object json.RawMessage
		if err := dec.Decode(&object); err != nil || object[0] != '{' {
			return nil
		}
		end := at + int(dec.InputOffset())
		all = append(all, f.part(end-len(object), end))
	}
	if len(all) == 1 && f.data[at] == '{' {
		return nil
	}
	return all
}
