package rig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/variant"
	"github.com/rackless/rackless/study"
)

// A study file accepts exactly the levels with plan variants.
func TestLevelsOfPlacementAreThoseOfVariants(t *testing.T) {
	t.Parallel()
	levels := variant.Levels()
	quoted := make([]string, len(levels))
	for i, l := range levels {
		quoted[i] = fmt.Sprintf("%q", l)
	}
	text := "name: a\nlab: lab.yaml\nfactors: {placement: [" + strings.Join(quoted, ", ") +
		"]}\nmeasure: [{test: ping}]\n"
	spec, err := study.Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := spec.Factors[0].Levels; !slices.Equal(got, levels) {
		t.Errorf("levels are %v, not %v", got, levels)
	}
	text = strings.Replace(text, `"default"`, `"somewhere"`, 1)
	if _, err := study.Parse("a.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(),
		strings.Join(levels, ", ")) {
		t.Errorf("a level that is none: %v", err)
	}
}

// Load avoids protected CPUs only at level cpuset, and reaches them at none on every site.
func TestCPUsOfLoad(t *testing.T) {
	t.Parallel()
	set := func(text string) topology.CPUSet {
		cpus, err := topology.ParseCPUSet(text)
		if err != nil {
			t.Fatal(err)
		}
		return cpus
	}
	const onHost = true
	for _, c := range []struct {
		name           string
		onHost         bool
		all, protected string
		isolation      string
		want           string
		outside        bool
	}{
		{"emulated, the factor is not varied", false, "0-3", "2-3", "", "0-3", false},
		{"emulated, none", false, "0-3", "2-3", study.IsolationNone, "0-3", false},
		{"emulated, cpuset", false, "0-3", "2-3", study.IsolationCpuset, "0-1", false},
		{"emulated, some CPUs are another's", false, "1,3-5", "4-5", study.IsolationCpuset, "1,3", false},
		{"on a host with slices confined, none", onHost, "0-1", "2-7", study.IsolationNone, "0-7", true},
		{"on a host with slices confined, cpuset", onHost, "0-1", "2-7", study.IsolationCpuset, "0-1", false},
		{"on a host with slices confined, not varied", onHost, "0-1", "2-7", "", "0-1", false},
		{"on a host whose slices run everywhere, none", onHost, "0-7", "2-7", study.IsolationNone, "0-7", false},
		{"on a host whose slices run everywhere, cpuset", onHost, "0-7", "2-7", study.IsolationCpuset, "0-1", false},
		{"on a host booted with the lab's CPUs isolated", onHost, "0-1", "2-7", study.IsolationIsolcpus, "0-1", false},
	} {
		r := &Rig{all: set(c.all), protected: set(c.protected)}
		r.site = &emulatedSite{r}
		if c.onHost {
			host := &topology.Host{}
			host.CPUs.Online = set("0-7")
			r.site = &hostSite{Rig: r, host: host}
		}
		if got, outside := r.site.loadCPUs(c.isolation); !got.Equal(set(c.want)) || outside != c.outside {
			t.Errorf("%s: load on CPUs %s, outside of slices: %v; want %s, %v", c.name, got, outside, c.want, c.outside)
		}
	}
}
