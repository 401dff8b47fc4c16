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
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
)

// Auto detects the format from the contents.
const (
	Auto           = "auto"
	VCPUBenchmarks = "vcpu-benchmarks"
	Perftest       = "perftest"
	Rackless       = "rackless"
	NCCLTests      = "nccl-tests"
	Iperf3         = "iperf3"
	OSU            = "osu"
	NVBandwidth    = "nvbandwidth"
	Logs           = "logs" // of several tools
)

// Formats returns all formats, Auto first.
func Formats() []string {
	formats := []string{Auto, VCPUBenchmarks}
	formats = append(formats, lists.Map(logFormats, func(l logFormat) string { return l.name })...)
	return append(formats, Logs)
}

// Limits of an import; more is a mistake or an attack.
const (
	MaxFileSize = 16 << 20 // bytes per file
	maxFiles    = 4096
	maxDepth    = 6
	maxLevels   = 64 // cells of a study
	maxRepeats  = 1000
	maxFigures  = 1 << 20
)

// Options control how results are interpreted.
type Options struct {
	Format  string // "" is Auto
	Name    string // "": that of the first source
	Factor  string // of logs; "" is "variant". Other formats define their own.
	Version string // of rackless
	// Excerpt takes the whole rows of a table that is cut off, with a remark. Without it, such a log is a run that
	// failed.
	Excerpt bool
}

// A Study is a set of imported results in the form of a study.
type Study struct {
	Spec        *study.Spec
	Environment []study.Fact // the sources first
	Digest      string       // SHA-256 of all files
	Runs        []Run        // in order of their blocks
	Notes       []string     // sentences; also in Environment
}

// A Run is one repeat at one level.
type Run struct {
	Block   int // repeat, from 1
	Place   int // in the block, from 1
	Cell    map[string]string
	Started time.Time // zero if not known
	Samples []Sample
	// Failures are tests without a figure, with files and reasons.
	Failures []string
}

// A Sample is one figure and its origin.
type Sample struct {
	bench.Sample
	Origin Origin `json:"origin"`
}

// An Origin is the location of a figure.
type Origin struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`          // of the file
	Level  string `json:"level,omitempty"` // as in the results
	Where
}

// Where describes the machines of a log.
type Where struct {
	Device string `json:"device,omitempty"` // RDMA device of the client
	// Rails are further RDMA devices of the client, used at the same time.
	Rails []string `json:"-"`
	MTU   int      `json:"mtu,omitempty"`   // of an RDMA packet, in bytes
	Hosts int      `json:"hosts,omitempty"` // number of machines
	Ranks []Rank   `json:"ranks,omitempty"` // of a single machine, if listed
	// Placed is each rank's machine, from 0, if the log lists several.
	Placed []int `json:"-"`
	// Link is "IB" or "Ethernet".
	Link string `json:"-"`
	// Remarks are further facts of the log.
	Remarks []tool.Remark `json:"-"`
}

// A Rank is a GPU listed in a log of nccl-tests.
type Rank struct {
	Device int    `json:"device"` // CUDA device number
	Bus    string `json:"bus"`    // "0x3b" in older releases
	Model  string `json:"model,omitempty"`
}

// Figures counts the figures of a study.
func (s *Study) Figures() int { return lists.Sum(s.Runs, func(r Run) int { return len(r.Samples) }) }

// An Error reports a file that cannot be read.
type Error struct {
	File string
	Line int // 0: the whole file
	What string
	// Unknown is set if the file has no known format.
	Unknown bool
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.What)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// Import returns one study for each host, because hosts may lack settings that others have.
func Import(sources []Source, o Options) ([]*Study, error) {
	if len(sources) == 0 {
		return nil, errors.New("nothing to import")
	}
	files, err := readAll(sources)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		f.excerpt = o.Excerpt
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

type importing struct {
	Options
	sources  []Source
	files    []*file
	outcomes []*outcome
	facts    map[string][]study.Fact // by group
	notes    map[string][]string     // by group
}

// An outcome is one measurement at a level.
type outcome struct {
	group    string // host; "" for one only
	level    string
	test     string   // for logs
	setup    []string // for logs; see setups
	repeat   int
	started  time.Time
	samples  []Sample
	failures []string
}

// fact and note record by host. Notes are also shown to the user.
func (im *importing) fact(group, name, value string) {
	im.facts[group] = append(im.facts[group], study.Fact{Name: name, Value: value})
}

func (im *importing) note(group, format string, args ...any) {
	im.notes[group] = append(im.notes[group], fmt.Sprintf(format, args...))
}

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

// text checks the name of a factor or a level.
func text(what, s string) error {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if s == "" || len(s) > 100 || !utf8.ValidString(s) || strings.ContainsFunc(s, control) {
		return fmt.Errorf("%s %q: want 1 to 100 bytes of text without control characters", what, s)
	}
	return nil
}

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
	// Figures are kept in memory and written in one transaction.
	if figures > maxFigures {
		return nil, fmt.Errorf("%d figures, and an import has at most %d: import the files apart, under several names",
			figures, maxFigures)
	}
	var all []*Study
	taken := map[string]string{}
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

// study joins the outcomes of a level and repeat to one run, because logs usually have one test each.
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
		Design: study.DesignFull, Blocks: blocks,
		Seed: study.DefaultSeed, Margin: study.DefaultMargin, Confidence: study.DefaultConfidence,
	}
	s.Spec.Measure = im.measures(s)
	s.Environment = im.environment(group, s)
	return s, nil
}

// levelsOf returns known placements in their usual order, then others by appearance.
func levelsOf(outcomes []*outcome) []string {
	var levels []string
	for _, o := range outcomes {
		levels = lists.Add(levels, o.level)
	}
	order := slices.Concat(placements, levels)
	slices.SortFunc(levels, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return levels
}

// forgetTimes clears the start times unless every run has one: a partial order is of no use.
func forgetTimes(runs []Run) {
	if slices.ContainsFunc(runs, func(r Run) bool { return r.Started.IsZero() }) {
		for i := range runs {
			runs[i].Started = time.Time{}
		}
	}
}

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

// digest is the SHA-256 of the output of sha256sum for all files.
func (im *importing) digest() string {
	h := sha256.New()
	for _, f := range im.files {
		fmt.Fprintf(h, "%s  %s\n", f.sum, f.name)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// measures compares by the metrics that the authors of each format use.
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
		// Small messages measure launch latency, the largest the links.
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

// Text summarizes an import.
func (s *Study) Text() string {
	var b strings.Builder
	f := s.Spec.Factors[0]
	fmt.Fprintf(&b, "study %s: %s, %s of %s (%s), %s, %s\n", s.Spec.Name, s.Spec.Imported,
		words.Count(len(f.Levels), "level"), f.Name, words.Printable(strings.Join(f.Levels, ", ")),
		words.Count(s.Spec.Blocks, "repeat"), words.Count(s.Figures(), "figure"))
	// Thousands of failures would hide the summary.
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
