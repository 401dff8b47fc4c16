package importer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
)

// Formats that can be imported. Auto finds out by the contents.
const (
	Auto           = "auto"
	VCPUBenchmarks = "vcpu-benchmarks"
	Perftest       = "perftest"
	Rackless       = "rackless"
	NCCLTests      = "nccl-tests"
	Iperf3         = "iperf3"
	OSU            = "osu"
	NVBandwidth    = "nvbandwidth"
	Logs           = "logs" // of several tools, each file by its contents
)

// Formats returns all formats, Auto first.
func Formats() []string {
	formats := []string{Auto, VCPUBenchmarks}
	formats = append(formats, lists.Map(logFormats, func(l logFormat) string { return l.name })...)
	return append(formats, Logs)
}

// Limits of an import. Larger ones are mistakes, or meant to harm.
const (
	MaxFileSize = 16 << 20 // bytes of a file
	maxFiles    = 4096
	maxDepth    = 6
	maxLevels   = 64 // as many as a study has cells
	maxRepeats  = 1000
	maxFigures  = 1 << 20
)

// Options say how results are understood.
type Options struct {
	Format  string // one of Formats; "" is Auto
	Name    string // of the study; "" takes that of the first source
	Factor  string // that levels of logs belong to; "" is "variant". The other formats have one of their own.
	Version string // of rackless, for the record
}

// A Study is results of others as a study of rackless.
type Study struct {
	Spec        *study.Spec
	Environment []study.Fact // where the results are from, first of all
	Digest      string       // of all files that were read, hexadecimal SHA-256
	Runs        []Run        // in the order of their blocks
	Notes       []string     // what a reader should know, in sentences; they are in Environment as well
}

// A Run is one repeat at one level.
type Run struct {
	Block   int // the number of the repeat, from 1
	Place   int // in the block, from 1
	Cell    map[string]string
	Started time.Time // zero where that is not known
	Samples []Sample
	// Failures are the tests that gave no figure, with their files and the reasons.
	Failures []string
}

// A Sample is one figure and where it stood.
type Sample struct {
	bench.Sample
	Origin Origin `json:"origin"`
}

// An Origin is where a figure stood.
type Origin struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`          // of the file
	Level  string `json:"level,omitempty"` // the level's name in the results
	Where
}

// Where is what a log says of the machines.
type Where struct {
	Device string `json:"device,omitempty"` // RDMA device of the client
	MTU    int    `json:"mtu,omitempty"`    // payload of an RDMA packet, in bytes
	Hosts  int    `json:"hosts,omitempty"`  // how many machines there were
	Ranks  []Rank `json:"ranks,omitempty"`  // GPUs of one machine, where the log lists them
}

// A Rank is a GPU that a log of nccl-tests lists.
type Rank struct {
	Device int    `json:"device"`          // its number for CUDA
	Bus    string `json:"bus"`             // "0000:3b:00", or of older releases "0x3b"
	Model  string `json:"model,omitempty"` //
}

// Figures counts the figures of a study.
func (s *Study) Figures() int { return lists.Sum(s.Runs, func(r Run) int { return len(r.Samples) }) }

// An Error is what cannot be read.
type Error struct {
	File string
	Line int // 0 where the whole file is meant
	What string
	// Unknown is set where the file is in no format of results.
	Unknown bool
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.What)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// Import reads results. There is one study for each host that the results tell apart: machines are
// no setting that somebody varied, and what one has another may lack.
func Import(sources []Source, o Options) ([]*Study, error) {
	if len(sources) == 0 {
		return nil, errors.New("nothing to import")
	}
	files, err := readAll(sources)
	if err != nil {
		return nil, err
	}
	im := &importing{Options: o, files: files, sources: sources, facts: map[string][]study.Fact{},
		notes: map[string][]string{}}
	auto := im.Format == "" || im.Format == Auto
	if auto {
		if im.Format, err = detect(files); err != nil {
			return nil, err
		}
	}
	if im.Format == Logs || auto && isLog(im.Format) {
		if im.files = byTool(files); len(im.files) > len(files) {
			im.Format = Logs
		}
	}
	switch {
	case im.Format == VCPUBenchmarks:
		err = im.vcpuBenchmarks()
	case im.Format == Logs, isLog(im.Format):
		err = im.logs()
	default:
		err = fmt.Errorf("format %q: want one of %s", im.Format, strings.Join(Formats(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return im.studies()
}

// importing is an import under way.
type importing struct {
	Options
	sources  []Source
	files    []*file
	outcomes []*outcome
	facts    map[string][]study.Fact // by group
	notes    map[string][]string     // by group
}

// An outcome is what one file or line says: what was measured at a level, once.
type outcome struct {
	group    string // host; "" where there is one
	level    string
	test     string   // of logs
	setup    []string // of logs: see setups
	repeat   int
	started  time.Time
	samples  []Sample
	failures []string
}

// fact and note are kept by host, since each host becomes a study of its own. A fact is a value, a note a sentence
// that also goes to the user.
func (im *importing) fact(group, name, value string) {
	im.facts[group] = append(im.facts[group], study.Fact{Name: name, Value: value})
}

func (im *importing) note(group, format string, args ...any) {
	im.notes[group] = append(im.notes[group], fmt.Sprintf(format, args...))
}

// factor names what varies.
func (im *importing) factor() (string, error) {
	if im.Format == VCPUBenchmarks {
		if im.Factor != "" && im.Factor != study.FactorPlacement {
			return "", fmt.Errorf("factor %q: results of %s vary the %s; leave --factor out", im.Factor, im.Format,
				study.FactorPlacement)
		}
		return study.FactorPlacement, nil
	}
	f := cmp.Or(im.Factor, "variant")
	return f, text("factor", f)
}

// text refuses what cannot be a name of a factor or a level.
func text(what, s string) error {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if s == "" || len(s) > 100 || !utf8.ValidString(s) || strings.ContainsFunc(s, control) {
		return fmt.Errorf("%s %q: want 1 to 100 bytes of text without control characters", what, s)
	}
	return nil
}

// studies puts the outcomes in order, one study for each group.
func (im *importing) studies() ([]*Study, error) {
	factor, err := im.factor()
	if err != nil {
		return nil, err
	}
	name := cmp.Or(im.Name, slug(im.sources[0].Base))
	if err := study.CheckName(name); err != nil {
		return nil, fmt.Errorf("%w; name the study with --name", err)
	}
	byGroup := map[string][]*outcome{}
	figures := 0
	for _, o := range im.outcomes {
		byGroup[o.group] = append(byGroup[o.group], o)
		figures += len(o.samples)
	}
	if figures == 0 {
		return nil, im.nothing()
	}
	// All figures are held in memory, and are written in one transaction.
	if figures > maxFigures {
		return nil, fmt.Errorf("%d figures, and an import has at most %d: import the files apart, under several names",
			figures, maxFigures)
	}
	var all []*Study
	taken := map[string]string{}
	// A study has one host, since what a setting does on one says nothing of another. Several hosts in one tree become
	// several studies, named after them.
	for _, group := range slices.SortedFunc(maps.Keys(byGroup), natural) {
		n := name
		if len(byGroup) > 1 {
			n += "-" + slug(group)
			if err := study.CheckName(n); err != nil {
				return nil, fmt.Errorf("host %q: %w", group, err)
			}
			if other, ok := taken[n]; ok {
				return nil, fmt.Errorf("hosts %q and %q would both be study %s: rename a directory", other, group, n)
			}
			taken[n] = group
		}
		s, err := im.study(n, factor, group, byGroup[group])
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// nothing is the error of results without a figure.
func (im *importing) nothing() error {
	files := "the one file"
	if n := len(im.files); n != 1 {
		files = fmt.Sprintf("%d files", n)
	}
	text := fmt.Sprintf("no figure in %s of format %s, so nothing is imported", files, im.Format)
	for _, o := range im.outcomes {
		if len(o.failures) > 0 {
			return errors.New(text + "; the first: " + o.failures[0])
		}
	}
	return errors.New(text)
}

// study puts the outcomes of one host in order. Outcomes of the same level and repeat are one run: logs usually hold
// one test a file, and each file would otherwise be a run of its own.
func (im *importing) study(name, factor, group string, outcomes []*outcome) (*Study, error) {
	levels := levelsOf(outcomes)
	if len(levels) > maxLevels {
		return nil, fmt.Errorf("%d levels of %s, and a study has at most %d: import fewer at a time", len(levels),
			factor, maxLevels)
	}
	for _, l := range levels {
		if err := text("level", l); err != nil {
			return nil, err
		}
	}
	s := &Study{Notes: im.notes[group], Digest: im.digest()}
	blocks := 0
	type cell struct {
		repeat int
		level  string
	}
	runs := map[cell]*Run{}
	var order []cell
	for _, o := range outcomes {
		k := cell{o.repeat, o.level}
		r := runs[k]
		if r == nil {
			if o.repeat > maxRepeats {
				return nil, fmt.Errorf("%s=%s has more than %d repeats: import them apart", factor, o.level, maxRepeats)
			}
			r = &Run{Block: o.repeat, Cell: map[string]string{factor: o.level}}
			runs[k], order = r, append(order, k)
		}
		r.Samples, r.Failures = append(r.Samples, o.samples...), append(r.Failures, o.failures...)
		if !o.started.IsZero() && (r.Started.IsZero() || o.started.Before(r.Started)) {
			r.Started = o.started
		}
		blocks = max(blocks, o.repeat)
	}
	slices.SortStableFunc(order, func(a, b cell) int {
		return cmp.Or(cmp.Compare(a.repeat, b.repeat), cmp.Compare(slices.Index(levels, a.level),
			slices.Index(levels, b.level)))
	})
	place := map[int]int{}
	for _, k := range order {
		place[k.repeat]++
		runs[k].Place = place[k.repeat]
		s.Runs = append(s.Runs, *runs[k])
	}
	forgetTimes(s.Runs)
	s.Spec = &study.Spec{
		Name: name, Imported: im.Format, Factors: []study.Factor{{Name: factor, Levels: levels}},
		// Nobody chose margin and confidence when this was measured: those of a study that says nothing of them hold.
		Design: study.DesignFull, Blocks: blocks,
		Seed: study.DefaultSeed, Margin: study.DefaultMargin, Confidence: study.DefaultConfidence,
	}
	s.Spec.Measure = im.measures(s)
	s.Environment = im.environment(group, s)
	return s, nil
}

// levelsOf returns the levels in the order of placement's, default first, and others as they were met.
func levelsOf(outcomes []*outcome) []string {
	var levels []string
	for _, o := range outcomes {
		levels = lists.Add(levels, o.level)
	}
	order := slices.Concat(placements, levels) // a placement is found where it stands first
	slices.SortFunc(levels, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return levels
}

// forgetTimes drops the times of start where not every run has one: an order of which half is known is no order.
func forgetTimes(runs []Run) {
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Started.IsZero() }) {
		for i := range runs {
			runs[i].Started = time.Time{}
		}
	}
}

// environment says where the results are from.
func (im *importing) environment(group string, s *Study) []study.Fact {
	facts := []study.Fact{
		{Name: "imported", Value: fmt.Sprintf("results of %s, measured elsewhere", im.Format)},
		{Name: "imported by", Value: "rackless " + im.Version},
	}
	if group != "" {
		facts = append(facts, study.Fact{Name: "host", Value: group})
	}
	for i, src := range im.sources {
		n := lists.Count(im.files, func(f *file) bool { return f.source == i })
		facts = append(facts, study.Fact{Name: "source", Value: fmt.Sprintf("%s (files: %d)", src.Name, n)})
	}
	facts = append(facts, study.Fact{Name: "SHA-256 of all files", Value: s.Digest})
	facts = append(facts, im.facts[group]...)
	for _, n := range s.Notes {
		facts = append(facts, study.Fact{Name: "note", Value: n})
	}
	return facts
}

// digest is the fingerprint of all files, with their names: sha256sum of the lines that sha256sum prints for them.
func (im *importing) digest() string {
	h := sha256.New()
	for _, f := range im.files {
		fmt.Fprintf(h, "%s  %s\n", f.sum, f.name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// measures says what is compared: of each format what its authors judge by.
func (im *importing) measures(s *Study) []study.Measure {
	var tests []string
	largest := map[string]int64{}
	for _, r := range s.Runs {
		for _, x := range r.Samples {
			tests = lists.Add(tests, x.Test)
			largest[x.Test] = max(largest[x.Test], x.Bytes)
		}
	}
	var all []study.Measure
	for _, name := range tests {
		m := study.Measure{Test: name}
		judged, ok := vcpuJudged[name]
		switch {
		// Small messages measure how long a launch takes. The largest one measures the links.
		case strings.HasPrefix(name, "nccl"), strings.HasPrefix(name, "rccl"):
			m.Bytes, m.Metrics = largest[name], []string{bench.MetricBusBandwidth}
		case im.Format == VCPUBenchmarks && !ok:
			continue
		case im.Format == VCPUBenchmarks:
			m.Metrics, m.Control = judged.metrics, judged.control
			if judged.largest {
				m.Bytes = largest[name]
			}
		}
		all = append(all, m)
	}
	return all
}

// Text says what became of the results: what was imported, what failed, and notes.
func (s *Study) Text() string {
	var b strings.Builder
	f := s.Spec.Factors[0]
	fmt.Fprintf(&b, "study %s: %s, %s of %s (%s), %s, %s\n", s.Spec.Name, s.Spec.Imported,
		words.Count(len(f.Levels), "level"), f.Name, words.Printable(strings.Join(f.Levels, ", ")),
		words.Count(s.Spec.Blocks, "repeat"), words.Count(s.Figures(), "figure"))
	// A directory of a thousand failed logs would scroll away what was imported: three of each run tell the kind.
	failures := 0
	for _, r := range s.Runs {
		failures += len(r.Failures)
		for _, why := range r.Failures[:min(len(r.Failures), 3)] {
			fmt.Fprintf(&b, "  failed: %s=%s, repeat %d: %s\n", f.Name, words.Printable(r.Cell[f.Name]), r.Block,
				words.Printable(why))
		}
	}
	if failures > 0 {
		fmt.Fprintf(&b, "  %s in all: they are no figures, and the report tells of them\n",
			words.Count(failures, "failure"))
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "  note: %s\n", words.Printable(n))
	}
	return b.String()
}
