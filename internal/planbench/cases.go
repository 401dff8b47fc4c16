package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/fleet"
)

// cases times whole processes: a plan, and beside it, in the same round, reading the host alone.
func (b *bench) cases(ctx context.Context) error {
	fmt.Println("# whole processes; inspect reads the same host without planning")
	for _, c := range []struct{ lab, host string }{
		{"examples/epyc-pair.yaml", "examples/hosts/epyc-7551p.ttar"},
		{"examples/h20-four.yaml", "examples/hosts/h20.txt"},
		{"examples/h20-vfs.yaml", "examples/hosts/h20.txt"},
		{"examples/h20-two.yaml", "examples/hosts/h20.txt"},
	} {
		var ours, floor []time.Duration
		for range b.rounds {
			out, took, err := b.rackless(ctx, "plan", c.lab, "--snapshot", c.host, "-o", "json")
			if err != nil {
				return err
			}
			var pl plan.Plan
			if err := json.Unmarshal(out, &pl); err != nil {
				return err
			}
			if !pl.Optimal {
				return fmt.Errorf("%s on %s: not proved optimal", c.lab, c.host)
			}
			ours = append(ours, took)
			if _, took, err = b.rackless(ctx, "inspect", c.host, "-o", "json"); err != nil {
				return err
			}
			floor = append(floor, took)
		}
		fmt.Printf("plan %-28s %-32s inspect %s\n", c.lab, spread(ours), spread(floor))
	}
	return nil
}

// rackless runs the program and returns what it printed and how long it took.
func (b *bench) rackless(ctx context.Context, args ...string) ([]byte, time.Duration, error) {
	cmd := exec.CommandContext(ctx, b.bin, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return nil, took, fmt.Errorf("rackless %q: %w: %s", args, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.Bytes(), took, nil
}

// fleet plans a stream of requests over many large hosts, by our rules and by Nova's.
func (b *bench) fleet(ctx context.Context) error {
	host, err := largeHost()
	if err != nil {
		return err
	}
	text, err := json.Marshal(host)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.tmp, "hosts")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for i := range b.hosts {
		// inspect -o json prints the schema first; the host itself has none.
		doc := append([]byte(`{"schema":"rackless/host/v1",`), text[1:]...)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("h%04d.json", i)), doc, 0o644); err != nil {
			return err
		}
	}
	var lines bytes.Buffer
	var gpus int
	for i := range b.requests {
		line, s := request(i)
		fmt.Fprintln(&lines, line)
		gpus += s.gpus
	}
	requests := filepath.Join(b.tmp, "requests.jsonl")
	if err := os.WriteFile(requests, lines.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Printf("# fleet: %d hosts of 1,024 CPUs, 16 NUMA nodes, 16 GPUs, 16 NICs with 16 VFs; %d requests for "+
		"%d GPUs\n", b.hosts, b.requests, gpus)
	for _, policy := range []string{fleet.BestFit, fleet.Nova} {
		out, took, err := b.rackless(ctx, "plan", requests, "--fleet", dir, "--policy", policy, "-o", "json")
		if err != nil {
			return err
		}
		out = bytes.TrimSpace(out)
		last := out[bytes.LastIndexByte(out, '\n')+1:]
		fmt.Printf("%-8s whole process %.1f s; %s\n", policy, took.Seconds(), last)
	}
	return nil
}
