package texts

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

func (r *reader) tenant() *topology.Tenant {
	name := cmp.Or(r.Subject, "a domain without a name")
	for i := range r.h.Tenants {
		if r.h.Tenants[i].Name == name {
			return &r.h.Tenants[i]
		}
	}
	r.h.Tenants = append(r.h.Tenants, topology.Tenant{Name: name})
	return &r.h.Tenants[len(r.h.Tenants)-1]
}

// pin leaves a virtual CPU that may run on all host CPUs. The highest virtual CPU determines their number.
func pin(t *topology.Tenant, vcpu int, set topology.CPUSet, free bool) {
	t.VCPUs = max(t.VCPUs, vcpu+1)
	if !free && vcpu < topology.MaxCPUs {
		t.Pins = append(t.Pins, topology.Pin{VCPU: vcpu, CPUs: set})
	}
}

// vcpuInfo reads "y" or "-" for each host CPU; with --pretty a list.
func (r *reader) vcpuInfo() {
	t, vcpu := r.tenant(), r.firstVCPU()
	for p := range r.pairs() {
		switch p.key {
		case "VCPU":
			vcpu = -1
			if n := count(p.value); n != nil && *n < topology.MaxCPUs {
				vcpu = *n
			}
		case "State":
			// Use the first one's state for the domain.
			if vcpu == 0 {
				t.State = p.value
			}
		case "CPU Affinity":
			if vcpu < 0 {
				r.note(p.line, "which virtual CPU has this affinity is not told")
				continue
			}
			if strings.Trim(p.value, "y-") == "" && p.value != "" {
				var cpus []int
				for i, c := range p.value[:min(len(p.value), topology.MaxCPUs)] {
					if c == 'y' {
						cpus = append(cpus, i)
					}
				}
				pin(t, vcpu, topology.CPUs(cpus...), !strings.Contains(p.value, "-"))
				continue
			}
			// "0-7 (out of 8)" is not pinned.
			list, of, _ := strings.Cut(p.value, " (out of ")
			if set := r.cpus(p.line, list); set != nil {
				pin(t, vcpu, *set, of != "" && strings.TrimSuffix(of, ")") == strconv.Itoa(set.Len()))
			}
		}
	}
}

// firstVCPU returns the virtual CPU of a first block without its number: the one before the next block's, or -1.
func (r *reader) firstVCPU() int {
	for p := range r.pairs() {
		if n := count(p.value); p.key == "VCPU" && n != nil {
			return *n - 1
		}
	}
	return -1
}

// pinLine matches a virtual CPU, or "*" for the emulator.
var pinLine = lazyregexp.New(`^(\d+|\*):? +([0-9,^-]+)$`)

func (r *reader) vcpuPin() {
	t := r.tenant()
	for n, m := range r.matches(pinLine) {
		set := r.cpus(n, m[2])
		if vcpu := count(m[1]); set != nil && vcpu != nil {
			pin(t, *vcpu, *set, false)
		} else if set != nil {
			t.EmulatorCPUs = set
		}
	}
}

func (r *reader) domInfo() {
	value := map[string]string{}
	for p := range r.pairs() {
		value[p.key] = p.value
	}
	r.Subject = cmp.Or(value["Name"], r.Subject)
	t := r.tenant()
	t.State, t.MemoryBytes = value["State"], size(value["Max memory"])
	if n := count(value["CPU(s)"]); n != nil && *n <= topology.MaxCPUs {
		t.VCPUs = *n
	}
}

func (r *reader) numaTune() {
	t := r.tenant()
	for p := range r.pairs() {
		switch p.key {
		case "numa_mode":
			t.MemoryMode = p.value
		case "numa_nodeset":
			if p.value != "" {
				t.MemoryNodes = r.cpus(p.line, p.value)
			}
		}
	}
}
