package diagnose

import (
	"fmt"

	"github.com/rackless/rackless/topology"
)

func tenantRules() []rule {
	return []rule{
		{Check{
			ID: "RL060", Title: "tenants are pinned to the same CPUs",
			Severity: Warning, Also: []Severity{Info},
			Summary: "Virtual CPUs of two tenants may run on the same CPUs. A note when one of the tenants does " +
				"not run.",
			Reads: []string{"virsh dumpxml DOMAIN (cputune, vcpupin)"},
			Means: "Each of them waits while the other one works. Pinning makes it worse than not pinning would be: " +
				"the scheduler cannot move either " +
				"of them away. With 64 busy processes beside it, a VM's network fell from 24.2 to 7.9 Gb/s on " +
				"one host.",
			Fix:     "Give each tenant CPUs of its own. `virsh vcpupin DOMAIN VCPU LIST` changes one at run time.",
			Sources: []string{"EPYC lab (iperf3 with and without contention; p99.9 latency +45%)"},
		}, sharedCPUs},
		{Check{
			ID: "RL061", Title: "tenant floats over isolated CPUs",
			Severity: Warning,
			Summary:  "A virtual CPU, or the emulator of a tenant, may run on several isolated CPUs.",
			Reads: []string{"virsh dumpxml DOMAIN (vcpu cpuset, vcpupin, emulatorpin)",
				"/sys/devices/system/cpu/isolated"},
			Means: "The scheduler does not balance load between isolated CPUs. Threads that may run on any of them " +
				"stay where they were started: all " +
				"virtual CPUs share the first CPU of the list, and the others are idle.",
			Fix: "Pin each virtual CPU to one isolated CPU (`<vcpupin vcpu='N' cpuset='C'/>`), and the emulator " +
				"to CPUs that are not isolated.",
			Sources: []string{"seapath/ansible#908", "ayufan/pve-helpers#4"},
		}, floatsIsolated},
		{Check{
			ID: "RL062", Title: "tenant is pinned to CPUs that are not online",
			Severity: Error,
			Summary:  "A virtual CPU or the emulator of a tenant is pinned to CPUs that are offline or do not exist.",
			Reads:    []string{"virsh dumpxml DOMAIN (cputune)", "/sys/devices/system/cpu/online"},
			Means: "The tenant does not start (`Unable to write to cpuset.cpus: Permission denied`, or affinity " +
				"`Invalid argument`), or runs on the rest of its list. Mostly the " +
				"machine lost CPUs since: SMT was switched off, or the definition is from another machine. The same " +
				"message comes when the CPUs are " +
				"outside the control group that the tenant starts in.",
			Fix: "Bring the CPUs online (`echo 1 > /sys/devices/system/cpu/cpuN/online`), or plan the " +
				"tenant again.",
			Sources: []string{"autotest/tp-libvirt#4137", "spheenik/vfio-isolate#6", "spheenik/vfio-isolate#3"},
		}, pinnedOffline},
		{Check{
			ID: "RL063", Title: "only some virtual CPUs are pinned",
			Severity: Warning,
			Summary:  "A tenant has more virtual CPUs than pins.",
			Reads:    []string{"virsh dumpxml DOMAIN (vcpu, vcpupin)"},
			Means: "The others float, over the CPUs of other tenants too. A parallel job is as slow as its slowest " +
				"thread. When CPUs are added to a " +
				"running machine, the missing pins can also fail it: `vcpuN/cpuset.cpus: Numerical result out " +
				"of range`.",
			Fix:     "Pin all that the machine can have, those not present yet as well.",
			Sources: []string{"innogames/igvm#280"},
		}, someUnpinned},
		{Check{
			ID: "RL064", Title: "emulator threads share CPUs with virtual CPUs",
			Severity: Warning, Also: []Severity{Info},
			Summary: "The emulator or an I/O thread of a tenant may run on CPUs that its own or another tenant's " +
				"virtual CPUs are pinned to. A note when the emulator is not pinned at all.",
			Reads: []string{"virsh dumpxml DOMAIN (vcpupin, emulatorpin, iothreadpin)"},
			Means: "QEMU's main loop, its I/O and its monitor stop a virtual CPU whenever they have something to do. " +
				"It is small for a machine with " +
				"passed-through devices and shows in the tail of the latency. With real-time priorities it can stop " +
				"the guest for good: a guest that " +
				"never boots, with one thread at 100%.",
			Fix: "`virsh emulatorpin DOMAIN LIST` with housekeeping CPUs of the same NUMA node. Reserve a whole core " +
				"for it, or the count of CPUs " +
				"becomes odd and alignment to cores fails.",
			Sources: []string{"seapath/ansible#438", "kubevirt/kubevirt#10593",
				"EPYC lab (emulatorpin on the VM's own CPUs)"},
		}, emulatorShares},
		{Check{
			ID: "RL065", Title: "tenants share a core",
			Severity: Warning,
			Summary:  "The threads of one core are pinned to by different tenants.",
			Reads: []string{"virsh dumpxml DOMAIN (vcpupin)",
				"/sys/devices/system/cpu/cpu*/topology/thread_siblings_list"},
			Means: "The tenants have different CPUs and yet the same core: they slow each other down, and the known " +
				"side channels between threads of a " +
				"core (L1TF, MDS) lead from one tenant to the other.",
			Fix: "Give each tenant both threads of its cores: the lists of vcpupin then hold whole lines of " +
				"thread_siblings_list.",
			Sources: []string{"kubevirt/kubevirt#11749", "Documentation/admin-guide/hw-vuln/l1tf.rst"},
		}, sharedCores},
	}
}

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

func sharedCPUs(v *view) []Finding {
	var out []Finding
	for i := range v.Tenants {
		for j := range v.Tenants[i+1:] {
			a, b := &v.Tenants[i], &v.Tenants[i+1+j]
			both := pinned(a).Intersect(pinned(b))
			if both.IsEmpty() {
				continue
			}
			f := Finding{Severity: Warning, Subject: a.Name + "," + b.Name,
				Evidence:    all(domain(a, "vcpupin "+pinned(a).String()), domain(b, "vcpupin "+pinned(b).String())),
				Consequence: "both may run on CPUs " + both.String() + ": each waits while the other one works",
				Fix:         "give each tenant CPUs of its own"}
			if stopped(a) || stopped(b) {
				f.Severity = Info
				f.Consequence = "when both run, both may run on CPUs " + both.String()
			}
			out = append(out, f)
		}
	}
	return out
}

func floatsIsolated(v *view) []Finding {
	isolated := v.isolated()
	if isolated.Len() < 2 {
		return nil
	}
	many := func(s *topology.CPUSet) bool { return s != nil && s.Intersect(isolated).Len() > 1 }
	var out []Finding
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
		if len(own) < t.VCPUs && many(t.Floating) {
			facts = append(facts, "vcpu cpuset="+t.Floating.String())
		}
		if many(t.EmulatorCPUs) {
			facts = append(facts, "emulatorpin="+t.EmulatorCPUs.String())
		}
		if len(facts) == 0 {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: t.Name,
			Evidence:    all(domain(t, few(facts, 4, " ")), at("/sys/devices/system/cpu/isolated", isolated.String())),
			Consequence: "nothing balances load between isolated CPUs: its threads may all share the first one",
			Fix:         "pin each virtual CPU to one CPU, and the emulator to CPUs that are not isolated"})
	}
	return out
}

func pinnedOffline(v *view) []Finding {
	if v.CPUs.Online.IsEmpty() {
		return nil
	}
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		want := pinned(t)
		if t.EmulatorCPUs != nil {
			want = want.Union(*t.EmulatorCPUs)
		}
		lost := want.Difference(v.CPUs.Online)
		if lost.IsEmpty() {
			continue
		}
		out = append(out, Finding{Severity: Error, Subject: t.Name,
			Evidence: all(domain(t, "cputune "+want.String()), at("/sys/devices/system/cpu/online",
				v.CPUs.Online.String())),
			Consequence: "CPUs " + lost.String() + " are not online: the tenant does not start, or not as it " +
				"was planned",
			Fix: "bring them online, or plan the tenant again"})
	}
	return out
}

func someUnpinned(v *view) []Finding {
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		own := map[int]bool{}
		for _, p := range t.Pins {
			own[p.VCPU] = true
		}
		if len(own) == 0 || len(own) >= t.VCPUs {
			continue
		}
		out = append(out, Finding{Severity: Warning, Subject: t.Name,
			Evidence: domain(t, fmt.Sprintf("vcpu=%d", t.VCPUs), fmt.Sprintf("vcpupin=%d", len(own))),
			Consequence: fmt.Sprintf("%s float over CPUs of others, and the tenant is as slow as its slowest thread",
				plural(t.VCPUs-len(own), "virtual CPU")),
			Fix: "pin all virtual CPUs, also those that are not present yet"})
	}
	return out
}

func emulatorShares(v *view) []Finding {
	var out []Finding
	for i := range v.Tenants {
		t := &v.Tenants[i]
		own := pinned(t)
		if own.IsEmpty() {
			continue
		}
		f := Finding{Severity: Warning, Subject: t.Name, Fix: "virsh emulatorpin " + t.Name +
			" with housekeeping CPUs of the same NUMA node"}
		if t.EmulatorCPUs == nil {
			// Without emulatorpin libvirt lets the emulator run on the cpuset of vcpu, else everywhere.
			if t.Floating != nil && !t.Floating.Overlaps(own) {
				continue
			}
			f.Severity = Info
			f.Evidence = domain(t, "vcpupin "+own.String(), "emulatorpin=none")
			f.Consequence = "its emulator may run on the CPUs of its virtual CPUs, or of another tenant's"
			out = append(out, f)
			continue
		}
		both := topology.CPUSet{}
		threads := *t.EmulatorCPUs
		facts := []string{domain(t, "emulatorpin="+t.EmulatorCPUs.String())}
		if t.IOThreadCPUs != nil {
			threads = threads.Union(*t.IOThreadCPUs)
			facts[0] += " iothreadpin=" + t.IOThreadCPUs.String()
		}
		for j := range v.Tenants {
			o := &v.Tenants[j]
			if hit := threads.Intersect(pinned(o)); !hit.IsEmpty() && (o == t || !stopped(o)) {
				both = both.Union(hit)
				facts = append(facts, domain(o, "vcpupin "+pinned(o).String()))
			}
		}
		if both.IsEmpty() {
			continue
		}
		f.Evidence = few(facts, 4, "; ")
		f.Consequence = "the emulator stops virtual CPUs on CPUs " + both.String() + ": outliers in latency"
		out = append(out, f)
	}
	return out
}

func sharedCores(v *view) []Finding {
	var out []Finding
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
			out = append(out, Finding{Severity: Warning, Subject: a.Name + "," + b.Name,
				Evidence: all(domain(a, "vcpupin "+onA.String()), domain(b, "vcpupin "+onB.String()),
					at(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", split.Min()),
						"a core of both")),
				Consequence: "they share cores (CPUs " + split.String() +
					"): each slows the other down and can spy on it",
				Fix: "give each tenant both threads of its cores"})
		}
	}
	return out
}
