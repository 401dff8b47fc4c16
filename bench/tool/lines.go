package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/words"
)

// A lineTool is a tool that prints each figure on a line of its own.
type lineTool struct {
	tool string
	// programs are separated by blanks, if there are several or the program is not in PATH.
	programs string
	command  string // a template of [runValues]
	stderr   bool
	seconds  int
	sizes    *toolSizes // nil if the command has no .Size
	job      *job

	// lines match the output. Their groups are metrics and counts, each of which must occur once; a trailing digit
	// distinguishes groups with the same name. "bytes" is the size of a figure, "instance" marks figures that are added
	// up, and "again" is the only figure printed twice.
	lines []func() *regexp.Regexp
	// never matches lines that no result has, and must lines of every result.
	never, must []sign
	figures     []lineFigure
	grain       float64 // sizes in bytes are multiples of it, and printed in MiB
}

type sign struct {
	line   func() *regexp.Regexp
	reason string
}

type lineFigure struct {
	metric string
	of     string  // its group in lines; "" means the metric
	scale  float64 // to the unit of the metric; 0 means 1
	count  string  // the count that is its number of iterations
	// extra counts are in the printed rate in excess: GROMACS counts the forces of the start as a step.
	extra float64
	// over names two counts with this quotient, and mean two metrics with this mean.
	over, mean [2]string
	within     float64 // largest share beyond rounding
	// quotient is set if the figure is computed from over. unprinted matches releases that do not print it.
	quotient  bool
	unprinted func() *regexp.Regexp
	ranks     float64
}

type toolSizes struct {
	all    []toolSize // the largest first
	shared int        // CPUs that share one; 0 means all
	// largest is the first size to try; quick and emulated are for such runs. "" means the first of all.
	largest, quick, emulated string
}

type toolSize struct {
	word string // form on the command line
	mib  int64
}

func (s *toolSizes) need(size toolSize, cpus int) int64 {
	n := int64(1)
	if s.shared > 0 {
		n = int64(max(1, cpus)+s.shared-1) / int64(s.shared)
	}
	return n * size.mib << 20
}

// choose returns the usual size, or the smallest with at least the requested bytes, or a smaller one if that does not
// fit into memory.
func (s *toolSizes) choose(o bench.Options) toolSize {
	limit := s.largest
	switch {
	case o.Accelerator != "kvm" && s.emulated != "":
		limit = s.emulated
	case o.Quick && s.quick != "":
		limit = s.quick
	}
	i := max(0, slices.IndexFunc(s.all, func(size toolSize) bool { return size.word == limit }))
	last := len(s.all) - 1
	if o.Bytes > 0 && s.shared == 0 {
		for i = last; i > 0 && s.all[i].mib<<20 < o.Bytes; i-- {
		}
	}
	for i < last && s.need(s.all[i], o.Threads) > o.Memory {
		i++
	}
	return s.all[i]
}

type runValues struct {
	Program, Size string
	CPUs, Seconds int
	// Side and the others are for a job; Columns and Rows are a rectangle as square as possible.
	Side, Steps, Ranks, Columns, Rows int
}

// fill panics if the template is wrong, which tests would find.
func fill(text string, v runValues) string {
	var b strings.Builder
	if err := template.Must(template.New("").Parse(text)).Execute(&b, v); err != nil {
		panic(err)
	}
	return b.String()
}

func (t lineTool) Check(client, _ bench.Endpoint, o bench.Options) error {
	if t.job == nil {
		return nil
	}
	return t.job.check(client, o)
}

// Prepare finds the program, counts CPUs, and finds memory: a larger size would measure swapping, or end the node.
func (t lineTool) Prepare(ctx context.Context, ask bench.AskFunc, ep, _ bench.Endpoint, o *bench.Options) (err error) {
	if t.job != nil {
		return nil
	}
	if t.programs != "" {
		if o.Program, err = findProgram(ctx, ask, ep.Node, t.programs); err != nil {
			return err
		}
	}
	o.Threads = 1
	if strings.Contains(t.command, ".CPUs") {
		if o.Threads, err = o.PlaceOf(ep).CPUCount(ctx, ask, ep.Node); err != nil {
			return err
		}
	}
	if t.sizes == nil {
		return nil
	}
	if o.Memory, err = memoryBudget(ctx, ask, ep.Node, o.PlaceOf(ep)); err != nil {
		return err
	}
	least := t.sizes.need(t.sizes.all[len(t.sizes.all)-1], o.Threads)
	if t.grain > 0 {
		least = max(least, o.Bytes)
	}
	if o.Memory < least {
		return bench.Unfit(ep.Node, "%s needs %d MiB for %s; half of what is available is %d MiB", t.tool, least>>20,
			words.Count(o.Threads, "CPU"), o.Memory>>20)
	}
	return nil
}

func (lineTool) Server(bench.Endpoint, bench.Options) []string { return nil }

func (t lineTool) Client(_, _ bench.Endpoint, o bench.Options) []string {
	if t.job != nil {
		p := t.job.program(o)
		return slices.Concat(p.Names[:1:1], p.Args)
	}
	name, _, _ := strings.Cut(t.programs, " ")
	v := runValues{Program: cmp.Or(o.Program, name), CPUs: max(1, o.Threads), Seconds: max(t.seconds, o.RunSeconds())}
	if t.sizes != nil {
		v.Size = t.sizes.choose(o).word
	}
	return strings.Fields(fill(t.command, v))
}

func (t lineTool) Program(o bench.Options) bench.Program { return t.job.program(o) }

func (t lineTool) Duration(o bench.Options) time.Duration {
	return time.Duration(max(t.seconds, o.RunSeconds())) * time.Second
}

// Parse refuses a result of a run with other threads, ranks or steps.
func (t lineTool) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	output := out.Stdout
	if t.stderr {
		output = slices.Concat(output, out.Stderr)
	}
	p, err := t.read(output)
	if err != nil {
		return nil, err
	}
	type count struct {
		name string
		want int
	}
	asked := []count{{"threads", o.Threads}}
	if t.job != nil {
		w := t.job.of(o)
		asked = []count{{"ranks", max(1, o.Ranks)}, {"steps", w.steps}, {"side", w.side},
			{"parts", t.job.cube * w.side * w.side * w.side}}
	}
	for _, c := range asked {
		if got, ok := p.counts[c.name]; ok && c.want > 0 && got.number != float64(c.want) {
			return nil, bench.BadOutput(t.tool, output, fmt.Sprintf("%s: %g, want %d", c.name, got.number, c.want))
		}
	}
	figures, err := t.made(p, output)
	if err != nil || t.grain == 0 {
		return figures, err
	}
	if last, want := figures[len(figures)-1].Bytes, t.sizes.choose(o).mib<<20; last != want {
		return nil, bench.BadOutput(t.tool, output, fmt.Sprintf("the table ends with %d bytes, and not with %d", last,
			want))
	}
	if o.Bytes == 0 {
		return figures, nil
	}
	i := slices.IndexFunc(figures, func(f bench.Figure) bool { return f.Bytes == o.Bytes })
	if i < 0 {
		return nil, bench.BadResult(t.tool,
			"there is no figure for %d bytes: those of the table are powers of two and one "+
				"and a half times those, from 512 bytes on", o.Bytes)
	}
	return figures[i : i+1], nil
}

type printedNumber struct {
	number, rounding float64 // rounding is half a unit of the last decimal
	text             string
	at               int
}

type readout struct {
	counts    map[string]printedNumber
	instances map[string]bool
	rows      []bench.Figure
}

func (t lineTool) read(output []byte) (*readout, error) {
	for _, s := range t.never {
		if at := s.line().FindIndex(output); at != nil {
			return nil, badLine(t.tool, output, at[0], errors.New(s.reason))
		}
	}
	p := &readout{counts: map[string]printedNumber{}, instances: map[string]bool{}}
	var named []string
	for _, line := range t.lines {
		re := line()
		named = append(named, re.SubexpNames()...)
		for _, at := range re.FindAllSubmatchIndex(output, -1) {
			if err := t.take(p, re.SubexpNames(), output, at); err != nil {
				return nil, badLine(t.tool, output, at[0], err)
			}
		}
	}
	for _, s := range t.must {
		if !s.line().Match(output) {
			return nil, bench.BadOutput(t.tool, output, s.reason)
		}
	}
	if len(p.instances) > 0 {
		p.counts["threads"] = printedNumber{number: float64(len(p.instances))}
	}
	for _, name := range named {
		_, found := p.counts[name]
		if name != "" && !found && !isMetric(name) && name != "instance" && name != "bytes" && name != "again" {
			return nil, t.missing(output, name)
		}
	}
	return p, nil
}

func isMetric(name string) bool {
	return bench.MetricOf(strings.TrimRight(name, "0123456789")).Unit != ""
}

func (t lineTool) missing(output []byte, name string) error {
	return bench.BadOutput(t.tool, output, "the output is not whole: "+name+" is missing")
}

func badLine(tool string, output []byte, at int, err error) error {
	number := 1 + strings.Count(string(output[:at]), "\n")
	line, _, _ := strings.Cut(string(output[at:]), "\n")
	return &bench.BadResultError{Tool: tool, Line: number, Text: bench.Shorten(line), Reason: err.Error()}
}

// take adds up the figures of instances, and refuses all other repetitions.
func (t lineTool) take(p *readout, names []string, output []byte, at []int) error {
	group := func(i int) string {
		if at[2*i] < 0 {
			return ""
		}
		return string(output[at[2*i]:at[2*i+1]])
	}
	instance := slices.Index(names, "instance")
	if instance > 0 {
		if p.instances[group(instance)] {
			return errors.New("the instance comes a second time")
		}
		p.instances[group(instance)] = true
	}
	if t.grain > 0 {
		return t.row(p, group(1), group(2))
	}
	for i, name := range names {
		text := group(i)
		if name == "" || text == "" || i == instance {
			continue
		}
		name = strings.TrimRight(name, "0123456789")
		x := printedNumber{text: text, at: at[0]}
		var err error
		x.number, x.rounding, err = parseNumber(text)
		before, twice := p.counts[name]
		switch {
		case err != nil:
		case twice && instance < 0:
			return errors.New(name + " comes a second time")
		case instance > 0:
			err = bench.CheckValue(name, x.number)
		case isMetric(name): // checked with its figure, which some runs lack
		case x.number >= 1<<53:
			err = errors.New("larger than any count")
		default:
			err = bench.CheckNumber(x.number)
		}
		if err != nil {
			return fmt.Errorf("%s: value %q: %w", name, bench.Shorten(text), err)
		}
		x.number += before.number
		p.counts[name] = x
	}
	return nil
}

// row takes a size in MiB. It refuses sizes that do not grow, as from two runs in one output.
func (t lineTool) row(p *readout, size, value string) error {
	mib, rounding, err := parseNumber(size)
	if err != nil {
		return fmt.Errorf("size %q: %w", bench.Shorten(size), err)
	}
	bytes := math.Round(mib*(1<<20)/t.grain) * t.grain
	if bytes < t.grain || bytes >= 1<<53 || math.Abs(bytes-mib*(1<<20)) > rounding*(1<<20)+1 {
		return fmt.Errorf("size %q is no multiple of %g bytes", bench.Shorten(size), t.grain)
	}
	if n := len(p.rows); n > 0 && int64(bytes) <= p.rows[n-1].Bytes {
		return errors.New("the size does not grow")
	}
	v, err := ParseValue(t.figures[0].metric, value)
	p.rows = append(p.rows, newFigure(t.figures[0].metric, int64(bytes), 0, v))
	return err
}

func (t lineTool) made(p *readout, output []byte) ([]bench.Figure, error) {
	if t.grain > 0 {
		switch {
		case len(p.rows) == 0:
			return nil, bench.BadOutput(t.tool, output, "there is no row with a size and a value")
		case output[len(output)-1] != '\n':
			return nil, bench.BadOutput(t.tool, output, "the output ends within a row")
		}
		return p.rows, nil
	}
	var all []bench.Figure
	for _, f := range t.figures {
		if p.counts["ranks"].number < f.ranks {
			continue
		}
		x, ok := p.counts[cmp.Or(f.of, f.metric)]
		if !ok && !f.quotient && (f.unprinted == nil || !f.unprinted().Match(output)) {
			return nil, t.missing(output, cmp.Or(f.of, f.metric))
		}
		if err := bench.CheckValue(f.metric, x.number); ok && err != nil {
			return nil, badLine(t.tool, output, x.at, fmt.Errorf("value %q: %w", x.text, err))
		}
	}
	for _, f := range t.figures {
		if p.counts["ranks"].number < f.ranks {
			continue
		}
		value, err := p.value(f)
		if err == nil {
			err = bench.CheckValue(f.metric, value) // conversion may have made it infinite
		}
		if err != nil {
			return nil, badLine(t.tool, output, p.counts[cmp.Or(f.of, f.metric)].at, err)
		}
		figure := newFigure(f.metric, 0, int64(p.counts[f.count].number), value)
		_, printed := p.counts[cmp.Or(f.of, f.metric)]
		figure.Derived = !printed && !f.quotient
		all = append(all, figure)
	}
	return all, nil
}

// value must agree with the counts, or else the output was torn or mixes runs.
func (p *readout) value(f lineFigure) (float64, error) {
	x, printed := p.counts[cmp.Or(f.of, f.metric)]
	scale := cmp.Or(f.scale, 1)
	if n := p.counts[f.count].number; f.extra > 0 {
		scale *= n / (n + f.extra)
	}
	value := x.number * scale
	agrees := func(want, within float64) error {
		if math.Abs(want-value) <= 2*x.rounding*scale+within*value {
			return nil
		}
		return fmt.Errorf("%s %s does not agree with %.6g, which follows from what else is printed", f.metric, x.text,
			want/scale)
	}
	if f.over[0] != "" {
		a, b := p.counts[f.over[0]].number, p.counts[f.over[1]]
		if a <= 0 || b.number <= 0 {
			return 0, fmt.Errorf("%s: %g, %s: %g: nothing was measured", f.over[0], a, f.over[1], b.number)
		}
		if !printed {
			return a / b.number, nil
		}
		if err := agrees(a/b.number, f.within); err != nil {
			return 0, err
		}
	}
	if f.mean[0] != "" {
		if err := agrees((p.counts[f.mean[0]].number+p.counts[f.mean[1]].number)/2*scale, 0); err != nil {
			return 0, err
		}
	}
	if again, twice := p.counts["again"]; twice {
		if err := agrees(again.number*scale, 0.01); err != nil {
			return 0, err
		}
	}
	return value, nil
}

// findProgram returns the path if the program is not in PATH.
func findProgram(ctx context.Context, ask bench.AskFunc, node, names string) (string, error) {
	out, err := ask(ctx, node, bench.FindCommand(names)...)
	if err != nil {
		return "", err
	}
	found := strings.TrimSpace(string(out.Stdout))
	if slices.Contains(strings.Fields(names), found) || found == "" {
		return found, nil
	}
	return path.Base(found), nil
}

// memoryBudget is half of the available memory in bytes. The rest of the node needs the other half.
func memoryBudget(ctx context.Context, ask bench.AskFunc, node string, p bench.Place) (int64, error) {
	file, counts := "/proc/meminfo", []string{"MemAvailable"}
	if _, err := strconv.Atoi(p.Memory); err == nil {
		// A NUMA node has no MemAvailable. Its free memory and page cache are close to it.
		file = "/sys/devices/system/node/node" + p.Memory + "/meminfo"
		counts = []string{"MemFree", "Active(file)", "Inactive(file)"}
	}
	out, err := ask(ctx, node, "cat", file)
	if err != nil {
		return 0, err
	}
	available := int64(0)
	for _, m := range memoryLine().FindAllStringSubmatch(string(out.Stdout), -1) {
		kib, err := strconv.ParseInt(m[2], 10, 52)
		if at := slices.Index(counts, m[1]); at >= 0 && err == nil {
			available += kib << 10
			counts = slices.Delete(counts, at, at+1)
		}
	}
	if len(counts) > 0 {
		return 0, &bench.UnfitError{Node: node, Reason: file + " does not tell how much memory is available"}
	}
	return available / 2, nil
}

var memoryLine = lazyregexp.New(`(?m)^(?:Node [0-9]+ )?(\S+):\s+([0-9]+) kB$`)
