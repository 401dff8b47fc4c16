package build_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

// corpus has machines that callers must not modify. The map belongs to the caller.
func corpus(t testing.TB) map[string]*topology.Host {
	t.Helper()
	hosts, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	return maps.Clone(hosts)
}

// corpusStep reads each machine, and with -short one of five, as unpacking takes seconds.
func corpusStep() int {
	if testing.Short() {
		return 5
	}
	return 1
}

var readCorpus = sync.OnceValues(func() (map[string]*topology.Host, error) {
	hosts := map[string]*topology.Host{}
	seen := 0
	for _, root := range []string{"../../machine/inspect/testdata", "../../machine/dump/hwlocxml/testdata",
		"../../machine/dump/nccl/testdata",
		"../../machine/dump/smi/testdata",
		"../../machine/dump/lspci/testdata", "../../examples/hosts"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || filepath.Ext(path) == ".tsv" {
				return err
			}
			if seen++; seen%corpusStep() != 0 {
				return nil
			}
			if h, err := inspect.ReadFile(context.Background(), path); err == nil {
				hosts[filepath.ToSlash(path)] = h
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return hosts, nil
})

func corpusLabs() []*lab.Lab {
	small := labOf(2, cpus(1), memory(256*lab.MiB))
	small.Reserve.Cores = new(1)
	auto := labOf(2, autoCPUs(), autoMemory())
	auto.Workload = lab.WorkloadCPUBandwidth
	devices := labOf(1, autoCPUs(), memory(lab.GiB), gpus(some(1)), nics(some(1)))
	devices.Workload = lab.WorkloadGPUCollective
	return []*lab.Lab{small, auto, devices, labOf(1, cpus(1), memory(lab.GiB), vfs(some(2)))}
}

// Every machine gives a well-formed Problem, or errors with reasons. It is not modified.
func TestEveryMachineGivesAProblem(t *testing.T) {
	t.Parallel()
	hosts := corpus(t)
	if len(hosts) < 100/corpusStep() {
		t.Fatalf("%d machines found", len(hosts))
	}
	planned := 0
	for name, h := range hosts {
		before, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range corpusLabs() {
			p, err := build.Problem(h, l, build.Options{})
			again, errAgain := build.Problem(h, l, build.Options{})
			if fmt.Sprint(err) != fmt.Sprint(errAgain) || jsonText(t, p) != jsonText(t, again) {
				t.Errorf("%s: lab %d gives one thing now and another then", name, i)
			}
			if err != nil {
				checkErrors(t, err)
				continue
			}
			planned++
			t.Run(fmt.Sprintf("%s-%d", strings.TrimPrefix(name, "../../"), i), func(t *testing.T) {
				checkWellFormed(t, p)
			})
		}
		if after, err := json.Marshal(h); err != nil || string(after) != string(before) {
			t.Errorf("%s: Problem has changed the host", name)
		}
	}
	t.Logf("%d machines, %d problems", len(hosts), planned)
	if planned < len(hosts) {
		t.Errorf("%d problems of %d machines: Problem refuses too much", planned, len(hosts))
	}
}

func jsonText(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func checkErrors(t tester, err error) {
	t.Helper()
	var all build.RequestErrors
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("%T %v", err, err)
	}
	for _, e := range all {
		if e.What == "" || strings.ContainsFunc(e.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("error %q", e)
		}
	}
}

// The names of the labs say the machines.
func TestExamplesFitTheirMachines(t *testing.T) {
	t.Parallel()
	for prefix, host := range map[string]func(testing.TB) *topology.Host{"epyc-": epyc, "h20-": h20} {
		files, err := filepath.Glob("../../examples/" + prefix + "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				l, err := lab.Parse(file, text)
				if err != nil {
					t.Fatal(err)
				}
				p := problem(t, host(t), l, build.Options{HostName: strings.TrimSuffix(prefix, "-")})
				checkWellFormed(t, p)
				if !slices.ContainsFunc(p.Requests, func(r plan.Request) bool {
					return len(r.GPUs)+len(r.NICs)+len(r.VFs) > 0
				}) {
					t.Error("no lab node asks for a device")
				}
			})
		}
	}
}

// Made by users of another tool, on machines that they fit.
func TestDomainsOfLibvirtAsTenants(t *testing.T) {
	t.Parallel()
	node := func(list string) *topology.CPUSet { return new(set(t, list)) }
	// insights-xml_rhosp.xml: OpenStack, 4 pinned virtual CPUs, the emulator on the same CPUs, memory on both nodes.
	rhosp := topology.Tenant{Name: "instance-000008d6", UUID: "601da52c-450f-4d8e-b502-50151536fa69", State: "running",
		VCPUs:        4,
		EmulatorCPUs: node("1-2,13-14"), MemoryBytes: new(uint64(8290304 << 10)), MemoryNodes: node("0-1"),
		MemoryMode: "strict"}
	for i, c := range []int{1, 2, 13, 14} {
		rhosp.Pins = append(rhosp.Pins, topology.Pin{VCPU: i, CPUs: topology.CPUs(c)})
	}
	h := nodesOnly(t, "0-5,12-17", "6-11,18-23")
	for i := range h.NUMANodes {
		h.NUMANodes[i].MemoryBytes = new(64 * gib)
	}
	h.Tenants = []topology.Tenant{rhosp}
	p := problem(t, h, labOf(1, cpus(1)), build.Options{})
	checkWellFormed(t, p)
	var held []string
	for _, line := range coreLines(p) {
		if strings.Contains(line, " of ") {
			held = append(held, line)
		}
	}
	want := []string{"1: 1,13 node 0 package -1 of instance-000008d6", "2: 2,14 node 0 package -1 of instance-000008d6"}
	if !slices.Equal(held, want) {
		t.Errorf("cores held %q, want %q", held, want)
	}
	if got := pagesText(p); got != "56 56" { // 64 GiB less 4 for the host and half of 7.9 GiB
		t.Errorf("pages %s", got)
	}
}
