package course

import (
	_ "embed"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/rdma/simulate"
)

// A Simulated is a puzzle in a file for rackless simulate. It is solved by changing the file.
type Simulated struct {
	Name  string `yaml:"name"`
	Story string `yaml:"story"`
	Hint  string `yaml:"hint"`
	Cause string `yaml:"cause"`
	Goal  Goal   `yaml:"goal"`
	Edits []Edit `yaml:"edits"` // one solution
	File  string `yaml:"file"`  // without its name

	number int
}

// An Edit replaces all occurrences of a text.
type Edit struct {
	From string `yaml:"from"`
	To   string `yaml:"to"`
}

// A Goal holds if each of its parts that is set does, and all flows ended.
type Goal struct {
	Lossless bool          `yaml:"lossless"` // the switches drop nothing
	Within   time.Duration `yaml:"within"`   // end of the last flow
	Flow     string        `yaml:"flow"`     // "h7>h11"
	Slowdown float64       `yaml:"slowdown"` // of Flow at most
}

//go:embed simulated.yaml
var simulated []byte

// SimulatedPuzzles returns the puzzles that follow Puzzles in number.
var SimulatedPuzzles = sync.OnceValue(func() []Simulated {
	var all struct {
		Puzzles []Simulated `yaml:"puzzles"`
	}
	strictyaml.MustParse("simulated.yaml", simulated, &all)
	for i := range all.Puzzles {
		all.Puzzles[i].number = len(Puzzles()) + 1 + i
	}
	return all.Puzzles
})

// Text returns the file, whose name tells which puzzle it is.
func (p *Simulated) Text() []byte { return fmt.Appendf(nil, "name: puzzle-%d\n%s", p.number, p.File) }

// Solution returns the file with the edits.
func (p *Simulated) Solution() []byte {
	text := string(p.Text())
	for _, e := range p.Edits {
		text = strings.ReplaceAll(text, e.From, e.To)
	}
	return []byte(text)
}

// SimulatedOf returns the puzzle of a file by its name, or nil if it is none.
func SimulatedOf(text []byte) *Simulated {
	for line := range strings.Lines(string(text)) {
		for i, p := range SimulatedPuzzles() {
			if strings.TrimSpace(line) == fmt.Sprintf("name: puzzle-%d", p.number) {
				return &SimulatedPuzzles()[i]
			}
		}
	}
	return nil
}

// Solved simulates a changed file. An error means that the file is wrong, or that it is no longer the same hardware and
// the same traffic.
func (p *Simulated) Solved(file string, text []byte, stop func() bool) (bool, error) {
	before, err := simulate.Parse(file, p.Text(), nil)
	if err != nil {
		return false, err
	}
	now, err := simulate.Parse(file, text, nil)
	if err != nil {
		return false, err
	}
	switch {
	case !reflect.DeepEqual(before.Topology, now.Topology) || before.Switch.Buffer != now.Switch.Buffer:
		return false, errors.New("topology and buffer are the hardware of the puzzle: leave them as they were")
	case before.Seed != now.Seed || len(now.Faults) > 0 || before.NIC.Profile != now.NIC.Profile ||
		before.Until != now.Until:
		return false, errors.New("seed, until, faults and profile have to stay as they were")
	}
	was, is := simulate.Run(before, stop), simulate.Run(now, stop)
	if was.Counts.Stopped || is.Counts.Stopped {
		return false, errors.New("interrupted")
	}
	if !reflect.DeepEqual(loads(was), loads(is)) {
		return false, errors.New("each host has to send and receive as many bytes as before, from the same time on")
	}
	return p.Goal.holds(is), nil
}

type load struct {
	sent, received int64
	start          time.Duration
}

// loads returns the bytes of each host, however they are split into flows.
func loads(r *simulate.Result) map[string]load {
	all := map[string]load{}
	for i := range r.Flows {
		f := &r.Flows[i]
		from := all[f.From]
		from.sent, from.start = from.sent+f.Bytes, max(from.start, f.Start)
		all[f.From] = from
		to := all[f.To]
		to.received += f.Bytes
		all[f.To] = to
	}
	return all
}

func (g *Goal) holds(r *simulate.Result) bool {
	if r.Unfinished > 0 || g.Lossless && r.Counts.Drops > 0 || g.Within > 0 && r.Time > g.Within {
		return false
	}
	for i := range r.Flows {
		if f := &r.Flows[i]; f.From+">"+f.To == g.Flow && f.Slowdown() > g.Slowdown {
			return false
		}
	}
	return true
}
