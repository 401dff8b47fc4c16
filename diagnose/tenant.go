package diagnose

import (
	"fmt"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// domain is the evidence on a tenant.
func domain(t *topology.Tenant, facts ...string) string { return at("virsh dumpxml "+t.Name, facts...) }

// pinned returns all CPUs that virtual CPUs of t are pinned to.
func pinned(t *topology.Tenant) topology.CPUSet {
	var s topology.CPUSet
	for _, p := range t.Pins {
		s = s.Union(p.CPUs)
	}
	return s
}

// sharedCPUs compares each pair of tenants once. One that is shut off takes no time now, so the
// pair is a note.
func sharedCPUs(v *view, add func(finding.Finding)) {
	for i := range v.Tenants {
		for j := range v.Tenants[i+1:] {
			a, b := &v.Tenants[i], &v.Tenants[i+1+j]
			both := pinned(a).Intersect(pinned(b))
			if both.IsEmpty() {
				continue
			}
			f := finding.Finding{Severity: finding.Warning, Subject: a.Name + "," + b.Name,
				Evidence:    all(domain(a, "vcpupin "+pinned(a).String()), domain(b, "vcpupin "+pinned(b).String())),
				Consequence: "both may run on CPUs " + both.String() + ": each waits while the other one works",
				Fix:         "give each tenant CPUs of its own"}
			if stopped(a) || stopped(b) {
				f.Severity = finding.Info
				f.Consequence = "when both run, both may run on CPUs " + both.String()
			}
			add(f)
		}
	}
}

// floatsIsolated looks for masks with several isolated CPUs. The scheduler does not balance between
// those: a thread stays where it began.
func floatsIsolated(v *view, add func(finding.Finding)) {
	isolated := v.isolated()
	if isolated.Len() < 2 {
		return
	}
	many := func(s *topology.CPUSet) bool { return s != nil && s.Intersect(isolated).Len() > 1 }
	for t := range each(v.Tenants) {
		var facts []string
		own := map[int]bool{}
		for _, p := range t.Pins {
			own[p.VCPU] = true
			if many(&p.CPUs) {
				facts = append(facts, fmt.Sprintf("vcpupin %d=%s", p.VCPU, p.CPUs))
			}
		}
		if len(own) < t.VCPUs && many(t.Floating) {
			facts = append(facts, "vcpu cpuset="+t.Floating.String())
		}
		if many(t.EmulatorCPUs) {
			facts = append(facts, "emulatorpin="+t.EmulatorCPUs.String())
		}
		if len(facts) == 0 {
			continue
		}
		add(finding.Finding{Subject: t.Name,
			Evidence: all(domain(t, words.Few(facts, 4, " ")), at("/sys/devices/system/cpu/isolated",
				isolated.String())),
			Consequence: "nothing balances load between isolated CPUs: its threads may all share the first one",
			Fix:         "pin each virtual CPU to one CPU, and the emulator to CPUs that are not isolated"})
	}
}

// pinnedOffline counts the emulator as well: libvirt refuses a domain for either.
func pinnedOffline(v *view, t *topology.Tenant, add func(finding.Finding)) {
	if v.CPUs.Online.IsEmpty() {
		return
	}
	want := pinned(t)
	if t.EmulatorCPUs != nil {
		want = want.Union(*t.EmulatorCPUs)
	}
	lost := want.Difference(v.CPUs.Online)
	if lost.IsEmpty() {
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: all(domain(t, "cputune "+want.String()), at("/sys/devices/system/cpu/online",
			v.CPUs.Online.String())),
		Consequence: "CPUs " + lost.String() + " are not online: the tenant does not start, or not as it was planned",
		Fix:         "bring them online, or plan the tenant again"})
}

// someUnpinned leaves tenants without any pin alone: they float on purpose.
func someUnpinned(v *view, t *topology.Tenant, add func(finding.Finding)) {
	own := lists.SetOf(t.Pins, func(p topology.Pin) int { return p.VCPU })
	if len(own) == 0 || len(own) >= t.VCPUs {
		return
	}
	add(finding.Finding{Subject: t.Name,
		Evidence: domain(t, fmt.Sprintf("vcpu=%d", t.VCPUs), fmt.Sprintf("vcpupin=%d", len(own))),
		Consequence: fmt.Sprintf("%s float over CPUs of others, and the tenant is as slow as its slowest thread",
			words.Count(t.VCPUs-len(own), "virtual CPU")),
		Fix: "pin all virtual CPUs, also those that are not present yet"})
}

// emulatorShares counts I/O threads with the emulator. Other tenants that are shut off have no
// virtual CPU to stop.
func emulatorShares(v *view, t *topology.Tenant, add func(finding.Finding)) {
	own := pinned(t)
	if own.IsEmpty() {
		return
	}
	f := finding.Finding{Severity: finding.Warning, Subject: t.Name, Fix: "virsh emulatorpin " + t.Name +
		" with housekeeping CPUs of the same NUMA node"}
	if t.EmulatorCPUs == nil {
		// Without emulatorpin libvirt lets the emulator run on the cpuset of vcpu, else everywhere.
		// A text of pins alone, which does not tell what the guest sees, does not tell that there is none.
		if t.Floating != nil && !t.Floating.Overlaps(own) ||
			v.Provenance.Kind == topology.SourceTexts && t.GuestNodes == nil {
			return
		}
		f.Severity = finding.Info
		f.Evidence = domain(t, "vcpupin "+own.String(), "emulatorpin=none")
		f.Consequence = "its emulator may run on the CPUs of its virtual CPUs, or of another tenant's"
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
	for o := range each(v.Tenants) {
		hit := threads.Intersect(pinned(o))
		if o == t {
			hit = hit.Difference(v.forPages(t))
		}
		if !hit.IsEmpty() && (o == t || !stopped(o)) {
			both = both.Union(hit)
			facts = append(facts, domain(o, "vcpupin "+pinned(o).String()))
		}
	}
	if both.IsEmpty() {
		return
	}
	f.Evidence = words.Few(facts, 4, "; ")
	f.Consequence = "the emulator stops virtual CPUs on CPUs " + both.String() + ": outliers in latency"
	add(f)
}

// forPages returns isolated CPUs of a tenant that its emulator needs, each the only one that it has on a NUMA node of
// the tenant's hugepages: QEMU from 7.2 on clears them from threads there, and does not start without such a CPU. As
// the CPU is isolated, no other thread comes there by itself.
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
		cpus = cpus.Difference(*t.IOThreadCPUs) // those are at work all the time
	}
	return cpus
}

// sharedCores looks at cores, where sharedCPUs looks at threads. Besides speed it is a matter of
// safety: caches of a core are a channel between its threads.
func sharedCores(v *view, add func(finding.Finding)) {
	for i := range v.Tenants {
		for j := range v.Tenants[i+1:] {
			a, b := &v.Tenants[i], &v.Tenants[i+1+j]
			onA, onB := pinned(a), pinned(b)
			// CPUs of both are RL060.
			onlyA, onlyB := onA.Difference(onB), onB.Difference(onA)
			var split topology.CPUSet
			for k := range v.Cores {
				if c := v.Cores[k].CPUs; c.Overlaps(onlyA) && c.Overlaps(onlyB) {
					split = split.Union(c)
				}
			}
			if split.IsEmpty() {
				continue
			}
			add(finding.Finding{Subject: a.Name + "," + b.Name,
				Evidence: all(domain(a, "vcpupin "+onA.String()), domain(b, "vcpupin "+onB.String()),
					at(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", split.Min()),
						"a core of both")),
				Consequence: "they share cores (CPUs " + split.String() +
					"): each slows the other down and can spy on it",
				Fix: "give each tenant both threads of its cores"})
		}
	}
}
