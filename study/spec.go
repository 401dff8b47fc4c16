package study

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/study/stats"
)

// A Spec is a study as described in its file, with defaults filled in by Parse.
type Spec struct {
	Name     string `json:"name"`
	Question string `json:"question,omitempty"` // to be answered
	Lab      string `json:"lab"`                // path relative to the study's file
	// Simulation is the path of a file of a simulation, instead of Lab. Replicates are seeds.
	Simulation string `json:"simulation,omitempty"`
	// Pair is the client and the server of measurements between two nodes; empty means the second and first node.
	Pair []string `json:"pair,omitempty"`
	// Setup lists shell commands for each node before each run, such as settings of DCB tools.
	Setup   []string `json:"setup,omitempty"`
	Factors []Factor `json:"factors" rule:"factors"` // in the file's order
	// Compare lists joint comparisons besides those by single factor.
	Compare []Joint   `json:"compare,omitempty"`
	Measure []Measure `json:"measure"`
	Design  string    `json:"design"` // DesignFull or DesignHalf
	Blocks  int       `json:"blocks"` // 0: as fit into Budget
	// Budget limits the time of the runs; 0 is no limit.
	Budget time.Duration `json:"budget_ns,omitempty" yaml:"budget"`
	Seed   uint64        `json:"seed"` // for order and analysis
	// Margin is the largest relative difference that does not matter; 0.05 is 5 %.
	Margin     float64 `json:"margin" rule:"margin"`
	Confidence float64 `json:"confidence" rule:"confidence"` // for example 0.95
	// Protected lists the CPUs of nodes, which load avoids; "" is the upper half.
	Protected string `json:"protected_cpus,omitempty"`
	// Imported is the format of imported results, or "".
	Imported string `json:"imported,omitempty" yaml:"-"`
}

// A Factor is a setting that a study varies. Levels are compared with the first; a factor with one level is constant.
type Factor struct {
	Name   string   `json:"name"`
	Levels []string `json:"levels"`
	Names  []string `json:"names,omitempty"` // of the levels in reports, in the same order; or empty
}

// A Joint comparison compares To with From, several factors at once, at each combination of the others. Both have the
// same keys.
type Joint struct {
	From map[string]string `json:"from"`
	To   map[string]string `json:"to"`
}

// A Measure is a test that each run makes.
type Measure struct {
	Test       string `json:"test" yaml:"test"` // as in bench
	Bytes      int64  `json:"bytes,omitempty" yaml:"bytes"`
	Iterations int    `json:"iterations,omitempty" yaml:"iterations"`
	Seconds    int    `json:"seconds,omitempty" yaml:"seconds"`
	// WarmUps are measurements before each one, discarded. CoolDown is the pause before each.
	WarmUps  int           `json:"warm_ups,omitempty" yaml:"warm_ups"`
	CoolDown time.Duration `json:"cool_down_ns,omitempty" yaml:"cool_down"`
	// CPU and NUMA place the client, or a test of one node, as in bench.Options. The server's are the client's if "".
	CPU        string `json:"cpu,omitempty" yaml:"cpu"`
	NUMA       string `json:"numa,omitempty" yaml:"numa"`
	ServerCPU  string `json:"server_cpu,omitempty" yaml:"server_cpu"`
	ServerNUMA string `json:"server_numa,omitempty" yaml:"server_numa"`
	// Metrics are compared; others are only stored. If empty, the test's usual one or two are.
	Metrics []string `json:"metrics,omitempty" yaml:"metrics"`
	// Control marks a test that no factor can move. If it moves, the comparison is confounded.
	Control bool `json:"control,omitempty" yaml:"control"`
}

// Designs of a study.
const (
	DesignFull = "full" // every combination of levels
	DesignHalf = "half" // half of the combinations of factors with two levels: main effects only
)

// Names of factors besides keys of the lab file.
const (
	FactorPlacement  = "placement"
	FactorIsolation  = "isolation"
	FactorContention = "contention"
	FactorHugepages  = "hugepages"
	prefixLab        = "lab."        // as in lab.fabric.mtu
	prefixLink       = "link."       // of every port, as in link.loss
	prefixSimulation = "simulation." // as in simulation.switch.ecn
	prefixTest       = "test."       // of words after the names of tests, as in test.nic: [nic0, nic1]
	// Ranks of tests over several nodes.
	FactorMPINodes     = "mpi.nodes"     // the first so many
	FactorMPIRanks     = "mpi.ranks"     // number per node
	FactorMPITransport = "mpi.transport" // auto, or one of bench.GroupTransports
	FactorMPIBare      = "mpi.bare"      // true: on this machine, outside of nodes
)

// TestIncast is a test of the whole lab: all nodes but one send to one. A modifier may follow, as in bench:
// incast/dscp26.
const TestIncast = "incast"

// Incast reports whether it is an incast, and returns its modifier.
func (m *Measure) Incast() (word string, ok bool) {
	name, word, _ := strings.Cut(m.Test, "/")
	return word, name == TestIncast
}

// TestSimulation is the test of a simulation: one run of it.
const TestSimulation = "simulation"

// ContentionNetwork is traffic between unmeasured nodes.
const ContentionNetwork = "network"

// Levels of isolation: other work may run anywhere, is kept off the lab's CPUs while the host runs, or the host was
// booted with these CPUs isolated.
const (
	IsolationNone     = "none"
	IsolationCpuset   = "cpuset"
	IsolationIsolcpus = "isolcpus"
)

// levels lists fixed ones; contention has more.
var levels = map[string][]string{
	FactorPlacement:  {"default", "pin", "pin+numa", "pin+numa+smt", "wrong-numa"},
	FactorIsolation:  {IsolationNone, IsolationCpuset, IsolationIsolcpus},
	FactorContention: {"idle", ContentionNetwork},
	FactorHugepages:  {"off", "2MiB", "1GiB"},

	FactorMPINodes: nil, FactorMPIRanks: nil, // numbers
	FactorMPITransport: append([]string{"auto"}, bench.GroupTransports...),
	FactorMPIBare:      {"false", "true"},
}

// Group returns g with the factors of the cell applied.
func Group(g bench.Group, settings map[string]string) bench.Group {
	for factor, to := range map[string]*int{FactorMPINodes: &g.Nodes, FactorMPIRanks: &g.PerNode} {
		if n, err := strconv.Atoi(settings[factor]); err == nil {
			*to = n
		}
	}
	if t := settings[FactorMPITransport]; t != "" {
		g.Transport = strings.TrimPrefix(t, "auto")
	}
	if b := settings[FactorMPIBare]; b != "" {
		g.Bare = b == "true"
	}
	return g
}

// TestName returns the name of a test in a cell: words of factors such as test.nic follow it, in the order of the
// factors. A control has none.
func (s *Spec) TestName(m Measure, settings map[string]string) string {
	name := m.Test
	for _, f := range s.Factors {
		level := settings[f.Name]
		if _, ok := strings.CutPrefix(f.Name, prefixTest); ok && !m.Control && level != plainTest {
			name += "/" + level
		}
	}
	return name
}

// plainTest is the level of a factor of tests that adds no word.
const plainTest = "plain"

var testWords = lazyregexp.New(`^[a-z][a-z0-9]*(/[a-z][a-z0-9]*)*$`)

// links are named as in fabric set.
var links = []string{"rate", "delay", "jitter", "loss", "reorder", "trust", "ecn", "buffer", "pfc"}

var contention = lazyregexp.New(`^(cpu|memory):([1-9][0-9]{0,3})$`)

// Limits of a study. Larger values are mistakes.
const (
	MaxSpecSize = 1 << 20 // bytes
	maxFactors  = 8
	maxLevels   = 16
	maxCells    = 64
	maxBlocks   = 1000
	maxMeasures = 32
	maxJoints   = 16
	maxSetup    = 32
	maxWarmUps  = 100
	maxCoolDown = time.Hour
)

// Defaults.
const (
	DefaultBlocks     = 8 // or more, for many comparisons
	DefaultMargin     = 0.05
	DefaultConfidence = 0.95
	DefaultSeed       = 1
)

// Parse reads a study file. Errors have name, and are of type [strictyaml.Errors].
func Parse(name string, data []byte) (*Spec, error) {
	f := &strictyaml.Format{
		Name: "study", File: "study file", MaxSize: MaxSpecSize, MaxTokens: 30_000, MaxDepth: 16,
		EmptyWant: "a name, a lab, factors and measure", EmptyFix: `start with "name: my-study"`, LooseText: true,
	}
	r := strictyaml.New(f, name)
	f.Rules = map[string]strictyaml.Rule{"factors": factors(r), "margin": share(r, 0, 0.5),
		"confidence": share(r, 0.5, 0.9999)}
	s := &Spec{Design: DesignFull, Seed: DefaultSeed, Margin: DefaultMargin, Confidence: DefaultConfidence}
	r.Parse(data, s)
	if len(r.Errs) == 0 {
		err := s.check()
		if err == nil {
			return s, nil
		}
		r.Fail(strictyaml.Place{}, strictyaml.Error{What: err.Error()})
	}
	return nil, r.Errs
}

// factors keeps the order of the file, which cells and the report follow.
func factors(r *strictyaml.Reader) strictyaml.Rule {
	return strictyaml.RuleOf(func(path string, n ast.Node) *[]Factor {
		var all []Factor
		r.Entries(path, n, func(name string, _ strictyaml.Place, n ast.Node) {
			f := Factor{Name: name}
			switch n.(type) {
			case *ast.MappingNode, *ast.MappingValueNode: // names of the levels
				r.Entries(strictyaml.Join(path, name), n, func(of string, _ strictyaml.Place, n ast.Node) {
					var level string
					r.Into(strictyaml.Join(strictyaml.Join(path, name), of), n, &level)
					f.Names, f.Levels = append(f.Names, of), append(f.Levels, level)
				})
			default:
				r.Into(strictyaml.Join(path, name), n, &f.Levels) // 1500 is the level "1500"
			}
			all = append(all, f)
		})
		return &all
	})
}

// share parses 5% or 0.05.
func share(r *strictyaml.Reader, low, high float64) strictyaml.Rule {
	return strictyaml.RuleOf(func(path string, n ast.Node) *float64 {
		var text string
		if before := len(r.Errs); strictyaml.IsNull(n) {
			return nil
		} else if r.Into(path, n, &text); len(r.Errs) > before {
			return nil
		}
		number, percent := strings.CutSuffix(text, "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if percent {
			v /= 100
		}
		if err != nil || math.IsNaN(v) || v <= low || v > high {
			r.Fail(strictyaml.PlaceOf(n), strictyaml.Error{Key: path, What: "out of range",
				Have: strictyaml.Quote(text),
				Want: fmt.Sprintf("more than %g%% and at most %g%%, as 5%% or 0.05", 100*low, 100*high)})
		}
		return &v
	})
}

var nameForm = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName checks the name of a study.
func CheckName(name string) error {
	if !nameForm().MatchString(name) {
		return fmt.Errorf("name %q: want small letters, digits and dashes, 63 at most", name)
	}
	return nil
}

// check also fills in the number of blocks.
func (s *Spec) check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	switch {
	case s.Lab == "" && s.Simulation == "":
		return errors.New("lab: which lab file is measured is missing, or which simulation")
	case s.Simulation != "":
		if err := s.checkSimulation(); err != nil {
			return err
		}
	}
	switch {
	case len(s.Pair) != 0 && (len(s.Pair) != 2 || s.Pair[0] == s.Pair[1]):
		return fmt.Errorf("pair %q: want the names of two nodes, client and server", s.Pair)
	case len(s.Setup) > maxSetup:
		return fmt.Errorf("setup: %d commands, and a study has at most %d", len(s.Setup), maxSetup)
	case s.Design != DesignFull && s.Design != DesignHalf:
		return fmt.Errorf("design %q: want %s or %s", s.Design, DesignFull, DesignHalf)
	case s.Blocks < 0 || s.Blocks > maxBlocks:
		return fmt.Errorf("blocks %d: want 1 to %d", s.Blocks, maxBlocks)
	case s.Budget < 0:
		return fmt.Errorf("budget %v: want a time such as 20m or 1h30m", s.Budget)
	}
	for _, check := range []func() error{s.checkFactors, s.checkJoints, s.checkMeasures} {
		if err := check(); err != nil {
			return err
		}
	}
	if s.Blocks == 0 && s.Budget == 0 {
		// With the minimum, every block would have to agree.
		s.Blocks = max(DefaultBlocks, stats.MinBlocks(1-s.Confidence, s.Comparisons())+1)
	}
	return nil
}

// checkSimulation refuses keys that have no effect on a simulation.
func (s *Spec) checkSimulation() error {
	for key, given := range map[string]bool{"lab": s.Lab != "", "pair": len(s.Pair) > 0, "setup": len(s.Setup) > 0,
		"protected_cpus": s.Protected != ""} {
		if given {
			return fmt.Errorf("%s: a study of a simulation has none", key)
		}
	}
	for _, m := range s.Measure {
		bare := Measure{Test: TestSimulation, Metrics: m.Metrics, Control: m.Control}
		if m.Test != TestSimulation {
			return fmt.Errorf("measure: %q: the test of a simulation is %s", m.Test, TestSimulation)
		}
		if m.Key() != bare.Key() || m.Iterations+m.Seconds+m.WarmUps != 0 || m.CoolDown != 0 ||
			m.CPU+m.NUMA+m.ServerCPU+m.ServerNUMA != "" {
			return fmt.Errorf("measure: %s: has metrics and control only", m.Test)
		}
	}
	return nil
}

func (s *Spec) checkFactors() error {
	if len(s.Factors) == 0 {
		return errors.New("factors: nothing is varied, and so nothing can be compared; name one, such as " +
			"\"contention: [idle, cpu:2]\"")
	}
	if len(s.Factors) > maxFactors {
		return fmt.Errorf("factors: %d, and a study has at most %d", len(s.Factors), maxFactors)
	}
	for i := range s.Factors {
		if err := s.Factors[i].check(); err != nil {
			return err
		}
		if _, ok := SimulationKey(s.Factors[i].Name); ok != (s.Simulation != "") {
			return fmt.Errorf("factor %s: factors of a simulation, and only these, begin with %s", s.Factors[i].Name,
				prefixSimulation)
		}
	}
	if !slices.ContainsFunc(s.Factors, func(f Factor) bool { return len(f.Levels) > 1 }) {
		return fmt.Errorf("factors: all have one level, so that nothing can be compared: give %s another one",
			s.Factors[0].Name)
	}
	if s.Design == DesignHalf {
		// In half of the combinations of two factors, each determines the other.
		if len(s.Factors) < 3 {
			return fmt.Errorf("design half: half of the combinations of %d factors leaves effects that cannot be "+
				"told apart; it takes three or more, or design full", len(s.Factors))
		}
		for _, f := range s.Factors {
			if len(f.Levels) != 2 {
				return fmt.Errorf("design half: factor %s has %d levels, want 2", f.Name, len(f.Levels))
			}
		}
	}
	// The cells of a few long factors would not fit into memory.
	n := 1
	for _, f := range s.Factors {
		n *= len(f.Levels)
	}
	if s.Design == DesignHalf {
		n /= 2
	}
	if n > maxCells {
		return fmt.Errorf("factors: their levels make %d cells, and a study has at most %d: leave levels out, or "+
			"take design half", n, maxCells)
	}
	return nil
}

// checkJoints requires the same factors on both sides, at measured levels. A missing one would be a mixture of levels.
func (s *Spec) checkJoints() error {
	if len(s.Compare) > 0 && s.Design != DesignFull {
		return fmt.Errorf("compare: design %s has not all combinations of levels", s.Design)
	}
	if len(s.Compare) > maxJoints {
		return fmt.Errorf("compare: %d, and a study has at most %d", len(s.Compare), maxJoints)
	}
	for i, j := range s.Compare {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("compare: entry %d%s", i+1, fmt.Sprintf(format, args...))
		}
		for _, side := range []struct {
			name   string
			levels map[string]string
		}{{"from", j.From}, {"to", j.To}} {
			// A level without runs would silently drop the comparison.
			for name, level := range side.levels {
				if !slices.ContainsFunc(s.Factors, func(f Factor) bool {
					return f.Name == name && slices.Contains(f.Levels, level)
				}) {
					return fail(", %s: no factor %s has the level %s", side.name, name, level)
				}
			}
		}
		differ := 0
		for name, from := range j.From {
			to, ok := j.To[name]
			if !ok {
				return fail(": %s is in from, and not in to", name)
			}
			if to != from {
				differ++
			}
		}
		if len(j.To) != len(j.From) {
			return fail(": from and to do not name the same factors")
		}
		if differ < 2 {
			return fail(": want the levels of two factors or more to differ; those of one are compared in any case")
		}
	}
	return nil
}

// check leaves lab keys to the parser of the lab file.
func (f *Factor) check() error {
	if len(f.Levels) < 1 || len(f.Levels) > maxLevels {
		return fmt.Errorf("factor %s: %d levels, want 1 to %d", f.Name, len(f.Levels), maxLevels)
	}
	for i, l := range f.Levels {
		// A line break would garble tables and charts.
		if l == "" || len(l) > 100 || strings.ContainsFunc(l, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("factor %s: level %q is not a value", f.Name, l)
		}
		if slices.Contains(f.Levels[:i], l) && !f.AA() {
			return fmt.Errorf("factor %s: level %s is there twice; a study of one level against itself has it "+
				"alone, twice", f.Name, l)
		}
	}
	for _, name := range f.Names {
		control := func(r rune) bool { return r < ' ' || r == 0x7f }
		if name == "" || len(name) > 40 || strings.ContainsFunc(name, control) {
			return fmt.Errorf("factor %s: %q is not a name of a level: want 1 to 40 letters", f.Name, name)
		}
	}
	link, isLink := LinkKey(f.Name)
	key, isLab := LabKey(f.Name)
	known, ok := levels[f.Name]
	if key, is := SimulationKey(f.Name); is {
		if key == "" || key == "seed" {
			return fmt.Errorf("factor %s: want simulation. and a key of its file, as simulation.switch.ecn; seeds are "+
				"replicates", f.Name)
		}
		return nil
	}
	if kind, is := strings.CutPrefix(f.Name, prefixTest); is {
		i := slices.IndexFunc(f.Levels, func(l string) bool { return !testWords().MatchString(l) })
		switch {
		case kind == "":
			return fmt.Errorf("factor %s: want test. and a name for what the words choose, as test.nic", f.Name)
		case i >= 0:
			return fmt.Errorf("factor %s: level %s: want words that follow the name of a test after a slash, such as "+
				"nic1 or cuda0/dmabuf, or %s for none", f.Name, f.Levels[i], plainTest)
		}
		return nil
	}
	switch {
	case isLink && !slices.Contains(links, link):
		return fmt.Errorf("factor %s: want link. and one of %s", f.Name, strings.Join(links, ", "))
	case isLab && key == "":
		return fmt.Errorf("factor %s: want lab. and a key of the lab file, as lab.fabric.mtu", f.Name)
	case isLink || isLab:
		return nil
	case !ok:
		return fmt.Errorf("factor %s: want %s, %s, %s, %s, a key of the lab file such as lab.fabric.mtu, an "+
			"impairment such as link.loss, words of tests such as test.nic, or what ranks run on, such as %s", f.Name,
			FactorPlacement, FactorIsolation, FactorContention, FactorHugepages, FactorMPINodes)
	}
	for _, l := range f.Levels {
		if known == nil {
			if n, err := strconv.Atoi(l); err != nil || n < 1 {
				return fmt.Errorf("factor %s: level %s: want a number from 1 on", f.Name, l)
			}
			continue
		}
		if slices.Contains(known, l) || f.Name == FactorContention && contention().MatchString(l) {
			continue
		}
		more := ""
		if f.Name == FactorContention {
			more = ", cpu:N, memory:N"
		}
		return fmt.Errorf("factor %s: level %s: want one of %s%s", f.Name, l, strings.Join(known, ", "), more)
	}
	return nil
}

// AA reports whether a factor has one level twice, which must show no effect.
func (f *Factor) AA() bool { return len(f.Levels) == 2 && f.Levels[0] == f.Levels[1] }

// Load splits a level of contention: "cpu:2" is 2 workers of kind cpu, "idle" is 0.
func Load(level string) (kind string, workers int) {
	m := contention().FindStringSubmatch(level)
	if m == nil {
		return level, 0
	}
	n, _ := strconv.Atoi(m[2]) // at most four digits
	return m[1], n
}

// LabKey returns the key of the lab file, or false.
func LabKey(factor string) (string, bool) { return strings.CutPrefix(factor, prefixLab) }

// SimulationKey returns the key of the file of a simulation, or false.
func SimulationKey(factor string) (string, bool) { return strings.CutPrefix(factor, prefixSimulation) }

// LinkKey returns the impairment, or false.
func LinkKey(factor string) (string, bool) { return strings.CutPrefix(factor, prefixLink) }

// checkMeasures rejects duplicate tests: the database could not tell their figures apart.
func (s *Spec) checkMeasures() error {
	all := s.Measure
	if len(all) == 0 {
		return errors.New("measure: nothing is measured; name a test, such as \"- test: ib_write_lat\"")
	}
	if len(all) > maxMeasures {
		return fmt.Errorf("measure: %d tests, and a study has at most %d", len(all), maxMeasures)
	}
	seen := map[string]bool{}
	compared := false
	for i, m := range all {
		if m.Test == "" {
			return fmt.Errorf("measure: entry %d has no test", i+1)
		}
		if m.Bytes < 0 || m.Iterations < 0 || m.Seconds < 0 {
			return fmt.Errorf("measure: %s: bytes, iterations and seconds are not below zero", m.Test)
		}
		// A pause of an hour may be intended; a day is a typing error.
		if m.WarmUps < 0 || m.WarmUps > maxWarmUps || m.CoolDown < 0 || m.CoolDown > maxCoolDown {
			return fmt.Errorf("measure: %s: want 0 to %d warm_ups, and a cool_down of 0s to %v", m.Test, maxWarmUps,
				maxCoolDown)
		}
		if seen[m.Key()] {
			return fmt.Errorf("measure: %s is there twice", m.Key())
		}
		seen[m.Key()] = true
		compared = compared || !m.Control
	}
	if !compared {
		return errors.New("measure: all tests are controls, and nothing is compared")
	}
	return nil
}

// Key identifies a measurement in a study by test and size.
func (m *Measure) Key() string {
	if m.Bytes > 0 {
		return m.Test + "/" + strconv.FormatInt(m.Bytes, 10)
	}
	return m.Test
}

// Comparisons are judged together, as far as known before measuring: a test with unknown metrics counts as one.
func (s *Spec) Comparisons() int {
	n := 0
	for _, m := range s.Measure {
		switch {
		case m.Control:
		case len(m.Metrics) > 0:
			n += len(m.Metrics)
		default:
			n += max(1, len(primary(m.Test)))
		}
	}
	return n * len(s.Pairings())
}
