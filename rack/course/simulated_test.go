package course

import (
	"bytes"
	"strings"
	"testing"
)

func never() bool { return false }

func TestEverySimulatedPuzzleIsUnsolvedAndCanBeSolved(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, p := range Puzzles() {
		names[p.Name] = true
	}
	for i, p := range SimulatedPuzzles() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			if p.number != len(Puzzles())+1+i {
				t.Errorf("it has number %d", p.number)
			}
			for what, text := range map[string]string{"story": p.Story, "hint": p.Hint, "cause": p.Cause} {
				if end := text[len(text)-1]; end != '.' && end != '?' || len(text) > 130 && what != "cause" {
					t.Errorf("%s %q: want a sentence that fits a line", what, text)
				}
			}
			if got := SimulatedOf(p.Text()); got == nil || got.Name != p.Name {
				t.Errorf("its file is taken for %+v", got)
			}
			for text, want := range map[string]bool{string(p.Text()): false, string(p.Solution()): true} {
				if got, err := p.Solved("a.yaml", []byte(text), never); got != want || err != nil {
					t.Errorf("solved: %t, %v; want %t of\n%s", got, err, want, text)
				}
			}
		})
		if names[p.Name] {
			t.Errorf("there are two called %s", p.Name)
		}
		names[p.Name] = true
	}
}

// Neither the file nor the story may contain a part of the solution.
func TestSimulatedPuzzlesDoNotTellTheirSolution(t *testing.T) {
	t.Parallel()
	for _, p := range SimulatedPuzzles() {
		for _, e := range p.Edits {
			if !strings.Contains(p.File, e.From) {
				t.Errorf("%s: there is no %q to change", p.Name, e.From)
			}
			for _, text := range []string{string(p.Text()), p.Story, p.Hint} {
				if strings.Contains(text, e.To) || strings.Contains(text, "#") {
					t.Errorf("%s tells %q:\n%s", p.Name, e.To, text)
				}
			}
		}
	}
}

func TestASimulatedPuzzleIsNotSolvedByOtherHardwareOrLessTraffic(t *testing.T) {
	t.Parallel()
	p := &SimulatedPuzzles()[2]
	tests := []struct{ name, from, to, want string }{
		{"a faster network", "rate: 100Gbit", "rate: 400Gbit", "the hardware of the puzzle"},
		{"fewer bytes", "h7, bytes: 32MiB", "h7, bytes: 1MiB", "as many bytes as before"},
		{"one after the other", "h7, bytes: 32MiB", "h7, bytes: 32MiB, start: 3ms", "as many bytes as before"},
		{"another seed", "switch:", "seed: 2\nswitch:", "seed, until, faults"},
		{"a file that is wrong", "pfc: 3", "pfc: x", "switch.pfc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := bytes.ReplaceAll(p.Text(), []byte(tt.from), []byte(tt.to))
			if _, err := p.Solved("a.yaml", text, never); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := p.Solved("a.yaml", p.Text(), func() bool { return true }); err == nil {
		t.Error("an interrupted simulation has an answer")
	}
	if got := SimulatedOf([]byte("name: pair\nnodes: {}\n")); got != nil {
		t.Errorf("a lab is taken for %s", got.Name)
	}
}
