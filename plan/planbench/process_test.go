// Package planbench benchmarks the planner, as processes and in this process. docs/performance.md explains the figures.
package planbench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os/exec"
	"testing"

	"github.com/rackless/rackless/plan"
)

var program = flag.String("rackless", "../../bin/rackless", "the program to measure")

// BenchmarkCases times whole processes that make a plan, or only read the host.
func BenchmarkCases(b *testing.B) {
	for _, c := range []struct{ lab, host string }{
		{"epyc-pair", "epyc-7551p.ttar"},
		{"h20-four", "h20.txt"},
		{"h20-vfs", "h20.txt"},
		{"h20-two", "h20.txt"},
	} {
		host := "examples/hosts/" + c.host
		b.Run(c.lab+"/plan", func(b *testing.B) {
			var out []byte
			for b.Loop() {
				out = rackless(b, "plan", "examples/"+c.lab+".yaml", "--host", host, "-o", "json")
			}
			var pl plan.Plan
			check(b, json.Unmarshal(out, &pl))
			if !pl.Optimal {
				b.Fatal("not proved optimal")
			}
		})
		b.Run(c.lab+"/inspect", func(b *testing.B) {
			for b.Loop() {
				rackless(b, "inspect", host, "-o", "json")
			}
		})
	}
}

func rackless(b *testing.B, args ...string) []byte {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), *program, args...)
	cmd.Dir = "../.."
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("rackless %q: %v: %s", args, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out
}

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
