package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStepsAreTheNodesOwnOrThoseOfDefaults(t *testing.T) {
	l := mustParse(t, `
name: x
defaults:
  setup:
    - swapoff -a
    - run: |
        echo 1 >/proc/sys/vm/overcommit_memory
        true
      check: grep -q 1 /proc/sys/vm/overcommit_memory
nodes:
  plain:
  own: {setup: [{run: "true"}]}
  none: {setup: []}
`)
	shared := []Step{{Run: "swapoff -a"}, {Run: "echo 1 >/proc/sys/vm/overcommit_memory\ntrue\n",
		Check: "grep -q 1 /proc/sys/vm/overcommit_memory"}}
	for i, want := range [][]Step{shared, {{Run: "true"}}, nil} {
		if diff := cmp.Diff(want, l.Nodes[i].Setup); diff != "" {
			t.Errorf("%s: %s", l.Nodes[i].Name, diff)
		}
	}
	if got := l.Nodes[0].Title(1); got != "step 2 (echo 1 >/proc/sys/vm/overcommit_memory)" {
		t.Errorf("the title is %s", got)
	}
}

func TestFaultsOfSetupAndSlurmHaveAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"nodes: {vm: {setup: modprobe x}}":                 "nodes.vm.setup: wrong type",
		"nodes: {vm: {setup: [{check: x}]}}":               "setup[0]: step without run",
		"nodes: {vm: {setup: [a, ' ']}}":                   "setup[1]: bad commands",
		"nodes: {vm: {setup: [1]}}":                        "setup[0]: wrong type",
		"nodes: {vm: {setup: [{runs: x}]}}":                "did you mean run?",
		"nodes: {vm: {setup: [" + many("x,", 33) + "]}}":   "too many steps (have 33",
		"nodes: {vm: {setup: [" + many("x", 8193) + "]}}":  "(have 8193 bytes",
		"slurm: {controller: vm}\nnodes: {vm: {}}":         "write image: debian-12+slurm",
		"home: shared\nnodes: {vm: {}}":                    "no node has a /home (have shared); write image: debian-12",
		"arch: x86_64\nnodes: {vm: {}}":                    "(have \"x86_64\", want amd64 or arm64)",
		"home: nfs\nnodes: {vm: {image: debian-12}}":       "home: unknown value (have \"nfs\", want own or shared)",
		"slurm: {controler: vm}\nnodes: {vm: {}}":          "did you mean controller?",
		"slurm: {controller: vm1}\nnodes: {vm01: " + slurm: "did you mean vm01?",
	} {
		_, err := Parse("x.yaml", []byte("name: x\n"+text))
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\n", " "), want) {
			t.Errorf("%.60s: want %q, got %v", text, want, err)
		}
	}
}

const slurm = "{image: debian-12+slurm+mpi}}"

func many(s string, n int) string { return strings.Repeat(s, n) }

func TestTheFirstNodeWithSlurmIsItsController(t *testing.T) {
	l := mustParse(t, "name: x\nnodes: {plain: {image: debian-12}, b: {image: debian-13+mpi+slurm}, "+
		"c: {image: debian+slurm}}")
	if l.Slurm == nil || l.Slurm.Controller != "b" || fmt.Sprint(l.SlurmNodes()) != "[b c]" {
		t.Errorf("got %v, %v", l.Slurm, l.SlurmNodes())
	}
	if got := l.Nodes[2].Image; got != "debian-12+slurm" {
		t.Errorf("debian stands for %s", got)
	}
	if n := l.Nodes[1]; !n.Has("mpi") || n.Has("mp") || l.Nodes[0].Has("slurm") {
		t.Error("sets of images are not told apart")
	}
}
