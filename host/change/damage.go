package change

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
)

// A DamagedError describes the damage to a journal. Steps may be missing from both lists.
type DamagedError struct {
	Path string
	Gaps []string // such as "lines 8 to 40 are missing"
	// Known are the steps that can still be undone.
	Known []*Entry
	// Lost lists steps, by kind and subject, whose earlier state is lost.
	Lost []string

	fresh bool // the damage is not already recorded in the journal
}

func (e *DamagedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is damaged: %s\n", e.Path, strings.Join(e.Gaps, "; "))
	fmt.Fprintf(&b, "steps that can still be undone: %d", len(e.Known))
	for _, known := range e.Known {
		fmt.Fprintf(&b, "\n  %s", known.What)
	}
	b.WriteString("\nrackless cannot undo other changes that the missing lines recorded")
	for _, lost := range e.Lost {
		fmt.Fprintf(&b, "\n  %s", lost)
	}
	fmt.Fprintf(&b, "\nrestore the journal and %s.head from a backup, or undo the known steps: rackless rollback "+
		"--what-is-known; rackless verify names what stays on the host then", e.Path)
	return b.String()
}

var (
	errNoBegin  = errors.New("without begin")
	errNoBefore = errors.New("without the state of before")
)

type head struct {
	Lines int    `json:"lines"`
	Sum   string `json:"sum"`
	Left  int    `json:"left"`
}

func (j *Journal) headPath() string { return j.path + ".head" }

// writeHead does not sync the directory: each step of prepare waits for it, and a head that is a few lines old is as
// good after a power cut.
func (j *Journal) writeHead(s *System) error {
	line, err := sealed(head{j.lines, j.total(), len(j.entries)})
	if err != nil {
		return err
	}
	s.point("journal head")
	f, err := os.OpenFile(j.headPath()+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), j.headPath())
}

func (j *Journal) total() string { return hex.EncodeToString(j.sum.Sum(nil)[:16]) }

func (j *Journal) count(line []byte) {
	j.lines++
	j.size += int64(len(line))
	j.sum.Write(line)
}

func (j *Journal) seal(r *record) ([]byte, error) {
	r.Line, r.Sum, r.Time = j.lines+1, j.total(), j.now().UTC()
	return sealed(r)
}

// sealed encodes a line: the CRC-32 of its JSON in eight hexadecimal digits, a space, and the JSON.
func sealed(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text), err
}

func unseal(line []byte, v any) error {
	digits, text, _ := bytes.Cut(line, []byte(" "))
	text, whole := bytes.CutSuffix(text, []byte("\n"))
	if !whole || string(digits) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) {
		return errors.New("wrong checksum")
	}
	return json.Unmarshal(text, v)
}

type reading struct {
	j             *Journal
	d             *DamagedError
	lost          map[opKey]bool
	bad, numbered bool
}

// replay returns an error if a valid line has a meaning that this version does not know.
func (j *Journal) replay(data, headText []byte) (*DamagedError, error) {
	r := &reading{j: j, d: &DamagedError{Path: j.path}, lost: map[opKey]bool{}}
	var h *head
	if len(headText) > 0 {
		h = &head{}
		if err := unseal(headText, h); err != nil {
			r.note("%s cannot be read (%v)", j.headPath(), err)
			h = nil
		}
	}
	matches := h == nil || h.Lines > 0 || h.Sum == j.total()
	size := 0
	for line := range bytes.Lines(data) {
		size += len(line)
		rec := &record{}
		if err := unseal(line, rec); err != nil || r.numbered && rec.Line <= j.lines {
			if size == len(data) {
				break // cut off while being written; if the head counts this line, end reports it
			}
			r.bad = true
			continue
		}
		if err := r.take(line, rec); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", j.path, j.lines, err)
		}
		if h != nil && h.Lines == j.lines {
			matches = h.Sum == j.total()
		}
	}
	r.end(h, matches, len(data) == 0)
	return r.damage(), nil
}

// take applies a valid line.
func (r *reading) take(line []byte, rec *record) error {
	j := r.j
	number := rec.Line
	if number == 0 { // written by an older version
		number = j.lines + 1
		if r.bad {
			number++
		}
	}
	r.missing(number - 1)
	if len(r.d.Gaps) == 0 && rec.Line != 0 && rec.Sum != j.total() {
		r.note("the lines before line %d are not those that were written", number)
	}
	r.numbered = rec.Line > 0
	j.count(line)
	j.lines = number
	err := j.apply(rec)
	key := opKey{rec.Kind, rec.Subject}
	switch {
	case len(r.d.Gaps) == 0:
		return err
	case errors.Is(err, errNoBegin) || errors.Is(err, errNoBefore):
		r.lost[key] = rec.Event != eventRestored
		return nil
	case rec.Event == eventBegin:
		delete(r.lost, key)
	}
	return err
}

func (r *reading) missing(until int) {
	from := r.j.lines + 1
	switch {
	case until > from:
		r.note("lines %d to %d are missing or damaged", from, until)
	case until == from:
		r.note("line %d is missing or damaged", from)
	case r.bad:
		r.note("what follows line %d is no line of it", r.j.lines)
	}
	r.bad = false
}

func (r *reading) end(h *head, matches, empty bool) {
	switch {
	case h == nil:
		r.missing(r.j.lines)
		if r.numbered && len(r.d.Gaps) == 0 {
			r.note("%s is missing: lines after line %d may be, too", r.j.headPath(), r.j.lines)
		}
	case empty && h.Left == 0: // closed, and removed
	default:
		r.missing(max(h.Lines, r.j.lines))
		if !matches && len(r.d.Gaps) == 0 {
			r.note("its lines are not those that %s tells of", r.j.headPath())
		}
	}
}

func (r *reading) note(format string, args ...any) {
	r.d.Gaps = append(r.d.Gaps, fmt.Sprintf(format, args...))
	r.d.fresh = true
}

func (r *reading) damage() *DamagedError {
	if r.j.gap != "" {
		r.d.Gaps = append([]string{r.j.gap}, r.d.Gaps...)
	}
	if len(r.d.Gaps) == 0 {
		return nil
	}
	r.d.Known = r.j.Entries()
	for key, lost := range r.lost {
		if lost {
			r.d.Lost = append(r.d.Lost, key.kind+" "+key.subject)
		}
	}
	slices.Sort(r.d.Lost)
	return r.d
}

// salvage keeps a damaged journal under another name and replaces it with the known steps. A power cut in between
// leaves the same damage and steps.
func (j *Journal) salvage(damaged []byte, d *DamagedError) ([]byte, error) {
	kept := fmt.Sprintf("%s.damaged-%s", j.path, j.now().UTC().Format("20060102T150405.000"))
	s := &System{}
	if err := s.Replace(kept, damaged, 0o600, os.Getuid(), os.Getgid()); err != nil {
		return nil, err
	}
	fresh := newJournal(j.path, j.kinds)
	records := []record{{Event: eventGap, What: strings.Join(slices.Concat(d.Gaps, d.Lost), "; ") + "; it is kept as " +
		kept}}
	for _, e := range j.entries {
		begin, err := beginOf(&Step{Op: e.Op, What: e.What}, e.Before)
		if err != nil {
			return nil, err
		}
		records = append(records, begin)
		if e.Done {
			done := record{Event: eventDone, Kind: begin.Kind, Subject: begin.Subject, Boot: e.boot}
			if e.made != "" {
				done.After = &e.made
			}
			records = append(records, done)
		}
	}
	var text []byte
	for i := range records {
		line, err := fresh.seal(&records[i])
		if err != nil {
			return nil, err
		}
		fresh.count(line)
		text = append(text, line...)
	}
	j.gap, j.lines, j.size, j.sum = records[0].What, fresh.lines, fresh.size, fresh.sum
	return text, s.Replace(j.path, text, 0o600, os.Getuid(), os.Getgid())
}
