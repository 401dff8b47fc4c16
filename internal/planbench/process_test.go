// Package planbench measures the planner: whole processes for the cases of the guides, the machines of the test data
// and a large one in this process, and a fleet of large ones against first-fit by Nova's rules. "make bench" runs it;
// docs/performance.md says what the figures mean.
package planbench

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/fleet"
)

var (
	program  = flag.String("rackless", "../../bin/rackless", "the program to measure")
	hosts    = flag.Int("hosts", 1000, "hosts of the fleet")
	requests = flag.Int("requests", 10_000, "requests to the fleet")
)

// BenchmarkCases times whole processes: a plan, and beside it reading the host alone.
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
				out = rackless(b, "plan", "examples/"+c.lab+".yaml", "--snapshot", host, "-o", "json")
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

// BenchmarkFleet plans a stream of requests over many large hosts, by our rules and by Nova's.
func BenchmarkFleet(b *testing.B) {
	host, err := largeHost()
	check(b, err)
	text, err := json.Marshal(host)
	check(b, err)
	tmp := b.TempDir()
	dir := filepath.Join(tmp, "hosts")
	check(b, os.Mkdir(dir, 0o755))
	// inspect -o json prints the schema first; the host itself has none.
	doc := append([]byte(`{"schema":"rackless/host/v1",`), text[1:]...)
	for i := range *hosts {
		check(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("h%04d.json", i)), doc, 0o644))
	}
	var lines bytes.Buffer
	var gpus int
	for i := range *requests {
		line, s := request(i)
		fmt.Fprintln(&lines, line)
		gpus += s.gpus
	}
	stream := filepath.Join(tmp, "requests.jsonl")
	check(b, os.WriteFile(stream, lines.Bytes(), 0o644))
	for _, policy := range []string{fleet.BestFit, fleet.Nova} {
		b.Run(policy, func(b *testing.B) {
			var out []byte
			for b.Loop() {
				out = bytes.TrimSpace(rackless(b, "plan", stream, "--fleet", dir, "--policy", policy, "-o", "json"))
			}
			b.Logf("%d hosts, %d requests for %d GPUs: %s", *hosts, *requests, gpus,
				out[bytes.LastIndexByte(out, '\n')+1:])
		})
	}
}

// rackless runs the program and returns what it printed.
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
