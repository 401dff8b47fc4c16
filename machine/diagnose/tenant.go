package diagnose

import (
	"fmt"
	"iter"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func domain(t *topology.Tenant, facts ...string) string { return at("virsh dumpxml "+t.Name, facts...) }

// unpinned is empty for a description whose end is missing.
func unpinned(t *topology.Tenant) topology.CPUSet {
	if t.VCPUs == 0 || t.Cut {
		return topology.CPUSet{}
	}
	own := lists.Map(t.Pins, func(p topology.Pin) int { return p.VCPU })
	return topology.CPURange(0, t.VCPUs-1).Difference(topology.CPUs(own...))
}

func atWork(t *topology.Tenant) int {
	if t.Absent == nil {
		return t.VCPUs
	}
	return t.VCPUs - t.Absent.Len()
}

// allowedCPUs is empty if virtual CPUs may run anywhere.
func allowedCPUs(t *topology.Tenant) topology.CPUSet {
	own := t.Pinned()
	if t.Floating == nil || !own.IsEmpty() && unpinned(t).IsEmpty() {
		return own
	}
	return own.Union(*t.Floating)
}

func pinEvidence(t *topology.Tenant) string {
	if own := t.Pinned(); !own.IsEmpty() || t.Floating == nil {
		return "vcpupin " + own.String()
	}
	return "vcpu cpuset=" + t.Floating.String()
}

// sharedCPUs is a note if one tenant is stopped. Tenants without pins may share a set with a CPU for each virtual CPU.
func sharedCPUs(_ *view, p tenantPair, add func(finding.Finding)) {
	a, b := p.a, p.b
	both := allowedCPUs(a).Intersect(allowedCPUs(b))
	if both.IsEmpty() || a.Pinned().IsEmpty() && b.Pinned().IsEmpty() &&
		allowedCPUs(a).Union(allowedCPUs(b)).Len() >= a.VCPUs+b.VCPUs {
		return
	}
	f := finding.Finding{Severity: finding.Warning, Subject: a.Name + "," + b.Name,
		Evidence:    all(domain(a, pinEvidence(a)), domain(b, pinEvidence(b))),
		Consequence: "both may run on CPUs " + both.String() + ": each waits while the other one works",
		Fix:         "give each VM CPUs of its own"}
	if stopped(a) || stopped(b) {
		f.Severity = finding.Info
		f.Consequence = "when both run, both may run on CPUs " + both.String()
	}
	add(f)
}

type tenantPair struct{ a, b *topology.Tenant }

func tenantPairs(v *view) iter.Seq[tenantPair] {
	return func(yield func(tenantPair) bool) {
		for i := range v.Tenants {
			for j := i + 1; j < len(v.Tenants); j++ {
				if !yield(tenantPair{&v.Tenants[i], &v.Tenants[j]}) {
					return
				}
			}
		}
	}
}

// floatsIsolated finds threads that stay on their first CPU, because the scheduler does not balance between isolated
// CPUs.
func floatsIsolated(v *view, add func(finding.Finding)) {
	isolated := v.isolated()
	if isolated.Len() < 2 {
		return
	}
	many := func(s *topology.CPUSet) bool { return s != nil && s.Intersect(isolated).Len() > 1 }
	for i := range v.Tenants {
		t := &v.Tenants[i]
		var facts []string
		own := map[int]bool{}
		for _, p := range t.Pins {
			own[p.VCPU] = true
			if many(&p.CPUs) {
				facts = append(facts, fmt.Sprintf("vcpupin %d=%s", p.VCPU, p.CPUs))
			}
		}
		if len(own) < t.VCPUs && !t.Cut && many(t.Floating) {
			facts = append(facts, "vcpu cpuset="+t.Floating.String())
		}
		if many(t.EmulatorCPUs) {
			facts = append(facts, "emulatorpin="+t.EmulatorCPUs.String())
		}
		if len(facts) == 0 {
			continue
		}
		add(finding.Finding{Subject: t.Name,
			Evidence: all(domain(t, words.Few(facts, 4, " ")),
				at("/sys/devices/system/cpu/isolated", isolated.String()))})
	}
}

// pinnedOffline includes other threads of QEMU: libvirt refuses a domain for any.
func pinnedOffline(v *view, t *topology.Tenant, add func(finding.Finding)) {
	want := allowedCPUs(t)
	if t.EmulatorCPUs != nil {
		want = want.Union(*t.EmulatorCPUs)
	}
	if t.IOThreadCPUs != nil {
		want = want.Union(*t.IOThreadCPUs)
	}
	lost := want.Difference(v.CPUs.Online)
	if v.CPUs.Online.IsEmpty() || lost.IsEmpty() {
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, "cputune "+want.String()), at("/sys/devices/system/cpu/online",
			v.CPUs.Online.String())),
		Consequence: "CPUs " + lost.String() + " are not online: the VM does not start, or not as it was planned"})
}

// someUnpinned skips tenants without any pin, which float on purpose.
func someUnpinned(v *view, t *topology.Tenant, add func(finding.Finding)) {
	free := unpinned(t)
	if len(t.Pins) == 0 || free.IsEmpty() {
		return
	}
	f := finding.Finding{Severity: finding.Warning, Subject: t.Name,
		Evidence: domain(t, fmt.Sprintf("vcpu=%d", t.VCPUs), fmt.Sprintf("vcpupin=%d", t.VCPUs-free.Len())),
		Consequence: fmt.Sprintf("%s float over CPUs of others, and the VM is as slow as its slowest thread",
			words.Count(free.Len(), "virtual CPU")),
		Fix: "pin all virtual CPUs, also those that are not present yet"}
	if t.Absent != nil && free.IsSubsetOf(*t.Absent) {
		f.Severity = finding.Info
		f.Consequence = "once they are plugged in, " + f.Consequence
	}
	add(f)
}

// fewCPUs finds more virtual CPUs than CPUs, or two pinned to one.
func fewCPUs(v *view, t *topology.Tenant, add func(finding.Finding)) {
	want, on := atWork(t), allowedCPUs(t)
	var absent topology.CPUSet
	if t.Absent != nil {
		absent = *t.Absent
	}
	var twice []string
	owner := map[int]int{}
	for _, p := range t.Pins {
		if p.CPUs.Len() != 1 || t.VCPUs > 0 && p.VCPU >= t.VCPUs || absent.Contains(p.VCPU) {
			continue
		}
		if first, ok := owner[p.CPUs.Min()]; ok && first != p.VCPU {
			twice = append(twice, fmt.Sprintf("vcpu %d and %d=%s", first, p.VCPU, p.CPUs))
		}
		owner[p.CPUs.Min()] = p.VCPU
	}
	f := finding.Finding{Subject: t.Name, Fix: "give each virtual CPU a CPU of its own, or the machine fewer of them"}
	switch free := t.Floating == nil && !unpinned(t).IsEmpty(); {
	case len(twice) > 0:
		f.Evidence = domain(t, words.Few(twice, 4, ", "))
		f.Consequence = "virtual CPUs on one CPU take turns: each runs half of the time"
	case !free && !t.Cut && !on.IsEmpty() && on.Len() < want:
		f.Evidence = domain(t, fmt.Sprintf("vcpu=%d", want), pinEvidence(t))
		f.Consequence = fmt.Sprintf("%d virtual CPUs take turns on %s", want, words.Count(on.Len(), "CPU"))
	case !v.CPUs.Online.IsEmpty() && v.CPUs.Online.Len() < want:
		f.Evidence = all(domain(t, fmt.Sprintf("vcpu=%d", want)), at("/sys/devices/system/cpu/online",
			v.CPUs.Online.String()))
		f.Consequence = fmt.Sprintf("%d virtual CPUs take turns on the %s of the host", want,
			words.Count(v.CPUs.Online.Len(), "CPU"))
	default:
		return
	}
	add(f)
}

// emulatorShares skips other tenants that are stopped.
func emulatorShares(v *view, t *topology.Tenant, add func(finding.Finding)) {
	own := t.Pinned()
	// Without pins it is RL060.
	if own.IsEmpty() && (t.EmulatorCPUs == nil || t.Floating != nil && t.EmulatorCPUs.Equal(*t.Floating)) {
		return
	}
	f := finding.Finding{Severity: finding.Warning, Subject: t.Name, Fix: "virsh emulatorpin " + t.Name +
		" with housekeeping CPUs of the same NUMA node"}
	if t.EmulatorCPUs == nil {
		// Without emulatorpin libvirt lets the emulator run on the cpuset of vcpu, else everywhere. A text of pins
		// alone does not prove that emulatorpin is missing.
		if t.Cut || t.Floating != nil && !t.Floating.Overlaps(own) ||
			v.Provenance.Kind == topology.SourceTexts && t.GuestNodes == nil {
			return
		}
		f.Severity = finding.Info
		f.Evidence = domain(t, "vcpupin "+own.String(), "emulatorpin=none")
		f.Consequence = "its emulator may run on the CPUs of its virtual CPUs, or of another VM's"
		add(f)
		return
	}
	both := topology.CPUSet{}
	threads := *t.EmulatorCPUs
	facts := []string{domain(t, "emulatorpin="+t.EmulatorCPUs.String())}
	if t.IOThreadCPUs != nil {
		threads = threads.Union(*t.IOThreadCPUs)
		facts[0] += " iothreadpin=" + t.IOThreadCPUs.String()
	}
	for i := range v.Tenants {
		o := &v.Tenants[i]
		hit := threads.Intersect(o.Pinned())
		if o == t {
			hit = hit.Difference(v.forPages(t))
		}
		if !hit.IsEmpty() && (o == t || !stopped(o)) {
			both = both.Union(hit)
			facts = append(facts, domain(o, "vcpupin "+o.Pinned().String()))
		}
	}
	if both.IsEmpty() {
		if t.FreeIOThreads > 0 && !t.Cut && !own.IsEmpty() && (t.Floating == nil || t.Floating.Overlaps(own)) {
			f.Severity = finding.Info
			f.Evidence = domain(t, "vcpupin "+own.String(), "iothreadpin=none")
			f.Consequence = words.Count(t.FreeIOThreads, "I/O thread") + " may run on the CPUs of its virtual CPUs"
			f.Fix = "virsh iothreadpin " + t.Name + " with the CPUs of the emulator, for each I/O thread"
			add(f)
		}
		return
	}
	f.Evidence = words.Few(facts, 4, "; ")
	f.Consequence = "the emulator stops virtual CPUs on CPUs " + both.String() + ": outliers in latency"
	add(f)
}

// forPages returns the isolated CPUs that t's emulator needs: each is its only CPU on a NUMA node of t's hugepages.
// QEMU 7.2 and later clears hugepages in threads on that node, and does not start without such a CPU.
func (v *view) forPages(t *topology.Tenant) (cpus topology.CPUSet) {
	if t.Hugepages == nil || t.MemoryNodes == nil {
		return cpus
	}
	for _, n := range v.NUMANodes {
		here := t.EmulatorCPUs.Intersect(n.CPUs)
		if t.MemoryNodes.Contains(n.ID) && here.Len() == 1 && here.IsSubsetOf(v.isolated()) {
			cpus = cpus.Union(here)
		}
	}
	if t.IOThreadCPUs != nil {
		cpus = cpus.Difference(*t.IOThreadCPUs) // I/O threads are always busy
	}
	return cpus
}

// sharedCores is also about security: a core's caches are a side channel between its threads.
func sharedCores(v *view, p tenantPair, add func(finding.Finding)) {
	onA, onB := p.a.Pinned(), p.b.Pinned()
	// CPUs of both are RL060.
	onlyA, onlyB := onA.Difference(onB), onB.Difference(onA)
	var split topology.CPUSet
	for i := range v.Cores {
		c := &v.Cores[i]
		if c.CPUs.Overlaps(onlyA) && c.CPUs.Overlaps(onlyB) {
			split = split.Union(c.CPUs)
		}
	}
	if split.IsEmpty() {
		return
	}
	add(finding.Finding{Subject: p.a.Name + "," + p.b.Name,
		Evidence: all(domain(p.a, "vcpupin "+onA.String()), domain(p.b, "vcpupin "+onB.String()),
			at(siblings(split.Min()), "a core of both")),
		Consequence: "they share cores (CPUs " + split.String() + "): each slows the other down and can spy on it"})
}
