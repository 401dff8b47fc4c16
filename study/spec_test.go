package study_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/study"
)

func TestWhatIsWrongWithAStudyFileIsNamed(t *testing.T) {
	t.Parallel()
	const rest = "lab: pair.yaml\nmeasure: [{test: iperf3}]\nfactors:\n  placement: [default, pin]\n"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", " \n", "study.yaml: empty study file (want a name, a lab, factors and measure); start with"},
		{"no text", "\xff\xfe", "study.yaml:1:1: not UTF-8 text"},
		{"an unknown key", "name: a\n" + rest + "repeats: 3\n",
			`study.yaml:6:1: unknown key (have "repeats", want name,`},
		{"a list for a name", "name: [a]\n" + rest, "study.yaml:1:"},
		{"a name with a blank", "name: a b\n" + rest, `name "a b": want small letters`},
		{"no lab", "name: a\nmeasure: [{test: iperf3}]\nfactors: {placement: [default, pin]}\n",
			"lab: which lab file is measured is missing"},
		{"no factor", "name: a\nlab: b\nmeasure: [{test: iperf3}]\n", "factors: nothing is varied"},
		{"one level", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {placement: [pin]}\n",
			"factors: all have one level, so that nothing can be compared: give placement another one"},
		{"no list", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {placement: pin}\n",
			`study.yaml:4:22: factors.placement: wrong type (have "pin", want a list)`},
		{"an unknown factor", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {colour: [red, blue]}\n",
			"factor colour: want placement, isolation"},
		{"words of a test without a name", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {test.: [a, b]}\n",
			"factor test.: want test. and a name for what the words choose"},
		{"words of a test that are none",
			"name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {test.nic: [nic0, 1]}\n",
			"factor test.nic: level 1: want words that follow the name of a test"},
		{"an unknown level", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {placement: [default, pinned]}\n",
			"factor placement: level pinned: want one of default, pin,"},
		{"too many warm-ups", "name: a\nlab: b\nmeasure: [{test: iperf3, warm_ups: 101}]\nfactors: {contention: " +
			"[idle, \"cpu:1\"]}\n", "measure: iperf3: want 0 to 100 warm_ups"},
		{"a cool-down below zero", "name: a\nlab: b\nmeasure: [{test: iperf3, cool_down: -1s}]\nfactors: " +
			"{contention: [idle, \"cpu:1\"]}\n", "a cool_down of 0s to 1h0m0s"},
		{"at once, of one factor", "name: a\n" + rest + "  isolation: [none, cpuset]\ncompare: [{from: {placement: " +
			"default}, to: {placement: pin}}]\n", "compare: entry 1: want the levels of two factors or more to differ"},
		{"at once, of a level that is none", "name: a\n" + rest +
			"  isolation: [none, cpuset]\ncompare: [{from: {placement: default, isolation: none}, to: {placement: " +
			"pin, isolation: isolcpus}}]\n", "compare: entry 1, to: no factor isolation has the level isolcpus"},
		{"at once, on one side alone", "name: a\n" + rest +
			"  isolation: [none, cpuset]\ncompare: [{from: {placement: default, isolation: none}, to: {placement: " +
			"pin}}]\n", "isolation is in from, and not in to"},
		{"a load of none", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {contention: [idle, \"cpu:0\"]}\n",
			"factor contention: level cpu:0"},
		{"an unknown impairment", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {link.lost: [0, 1%]}\n",
			"factor link.lost: want link. and one of rate"},
		{"a level twice", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {lab.fabric.mtu: [1500, 9000, 1500]}\n",
			"level 1500 is there twice"},
		{"nothing is measured", "name: a\nlab: b\nfactors: {placement: [default, pin]}\n",
			"measure: nothing is measured"},
		{"controls alone", "name: a\nlab: b\nmeasure: [{test: iperf3, control: true}]\nfactors: {placement: " +
			"[default, pin]}\n", "all tests are controls"},
		{"a test twice", "name: a\nlab: b\nmeasure: [{test: iperf3}, {test: iperf3}]\nfactors: {placement: " +
			"[default, pin]}\n", "measure: iperf3 is there twice"},
		{"a budget of nothing", "name: a\n" + rest + "budget: 20\n",
			"study.yaml:6:9: budget: wrong type (have 20, want a time such as 20s or 1m30s)"},
		{"a margin above one half", "name: a\n" + rest + "margin: 60%\n",
			`study.yaml:6:9: margin: out of range (have "60%", want more than 0% and at most 50%,`},
		{"half of two factors", "name: a\ndesign: half\n" + rest + "  isolation: [none, cpuset]\n",
			"design half: half of the combinations of 2 factors"},
		{"too many cells", "name: a\n" + rest + "  lab.fabric.mtu: [1,2,3,4,5,6,7,8]\n  lab.nodes.vm00.cpus: " +
			"[1,2,3,4,5]\n", "their levels make 80 cells"},
		{"more cells than memory", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors:\n" +
			strings.Repeat("  lab.X: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]\n", 8),
			"their levels make 4294967296 cells"},
		{"one node as a pair", "name: a\npair: [x, x]\n" + rest, "pair [\"x\" \"x\"]: want the names of two nodes"},
		{"a lab beside a simulation", "name: a\nlab: b\nsimulation: c\nmeasure: [{test: simulation}]\nfactors: " +
			"{simulation.seed: [1, 2]}\n", "lab: a study of a simulation has none"},
		{"a pair of a simulation", "name: a\npair: [x, y]\nsimulation: c\nmeasure: [{test: simulation}]\nfactors: " +
			"{simulation.seed: [1, 2]}\n", "pair: a study of a simulation has none"},
		{"seeds as levels", "name: a\nsimulation: c\nmeasure: [{test: simulation}]\nfactors: " +
			"{simulation.seed: [1, 2]}\n", "factor simulation.seed: want simulation. and a key of its file"},
		{"a factor of labs", "name: a\nsimulation: c\nmeasure: [{test: simulation}]\nfactors: " +
			"{lab.fabric.mtu: [1500, 9000]}\n", "factor lab.fabric.mtu: factors of a simulation, and only these,"},
		{"a factor of simulations", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: " +
			"{simulation.nic.mtu: [1024, 4096]}\n", "factor simulation.nic.mtu: factors of a simulation, and only"},
		{"a test of labs", "name: a\nsimulation: c\nmeasure: [{test: iperf3}]\nfactors: " +
			"{simulation.nic.mtu: [1024, 4096]}\n", `measure: "iperf3": the test of a simulation is simulation`},
		{"a size in a simulation", "name: a\nsimulation: c\nmeasure: [{test: simulation, bytes: 5}]\nfactors: " +
			"{simulation.nic.mtu: [1024, 4096]}\n", "measure: simulation: has metrics and control only"},
		{"a control character in a level", "name: a\nlab: b\nmeasure: [{test: iperf3}]\nfactors: {lab.fabric.mtu: " +
			"[\"1\\e[31m\", 2]}\n", "is not a value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := tt.text
			for key := 'a'; strings.Contains(text, "lab.X"); key++ { // distinct keys
				text = strings.Replace(text, "lab.X", "lab."+string(key), 1)
			}
			_, err := study.Parse("study.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestFactorsOfTests(t *testing.T) {
	t.Parallel()
	s, err := study.Parse("s.yaml", []byte("name: a\nlab: b\nmeasure: [{test: ib_write_bw}, {test: iperf3, control: "+
		"true}]\nfactors: {test.nic: [nic0, nic1], link.rate: [1Gbit], test.memory: {main: plain, VRAM: "+
		"cuda0/dmabuf}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range s.Cells() {
		for _, m := range s.Measure {
			names = append(names, s.TestName(m, s.Settings(c)))
		}
	}
	slices.Sort(names)
	want := []string{"ib_write_bw/nic0", "ib_write_bw/nic0/cuda0/dmabuf", "ib_write_bw/nic1",
		"ib_write_bw/nic1/cuda0/dmabuf", "iperf3", "iperf3", "iperf3", "iperf3"}
	if !slices.Equal(names, want) {
		t.Errorf("the tests are %q, want %q", names, want)
	}
}

func TestTheStudiesThatComeWithRacklessAreRight(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../examples/studies/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := study.Parse(f, text)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Name+".yaml" != filepath.Base(f) {
			t.Errorf("%s has study %s", f, s.Name)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../examples/studies/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := study.Parse("f", text)
		if err != nil {
			return
		}
		// Every cell is in a block as often as required.
		if n := len(s.Block(1)); n != study.RunsPerCell*len(s.Cells()) || n == 0 {
			t.Fatalf("a block of %d runs for %d cells", n, len(s.Cells()))
		}
		s.Pairings()
	})
}
