package render

// cpusetJob limits the host to its housekeeping CPUs by cgroups: the way without a reboot.
//
// libvirt puts guests below machine.slice, with QEMU's own threads on housekeeping CPUs, so
// machine.slice itself has to keep both. A partition of the guests' CPUs alone would leave those
// threads no CPU; hence the partition, where it is asked for, takes their CPUs as well.
func (v *view) cpusetJob() job {
	keep := v.housekeeping()
	hostOnly := keep.Difference(v.emulators)
	machine := v.given.Union(v.emulators).String()
	if hostOnly.IsEmpty() || v.emulators.IsEmpty() || len(v.host.Tenants) > 0 {
		machine = ""
	}
	return job{
		name: "cpuset", description: "The host off the CPUs of lab %s",
		what: "Keeps everything but guests off the CPUs of the lab nodes by cgroups, without a reboot: system.slice, " +
			"user.slice and init.scope may use housekeeping CPUs only, and the " +
			"kernel's work queues run there. Guests are in machine.slice, which may use all. This is the alternative " +
			"to isolcpus; what it cannot do is to stop the timer tick " +
			"(nohz_full) and to move RCU callbacks (rcu_nocbs), which only the kernel's command line can. stop " +
			"brings the old limits back.",
		why:    "Before anything starts a guest.",
		before: hypervisors,
		vars: []shellVar{
			{"housekeeping", keep.String(), "What the host keeps, as list and as mask."},
			{"housekeeping_mask", cpuMask(keep), ""},
			{"lab_cpus", v.given.String(), "What the lab nodes have, idle siblings too."},
			{"partition", "no", "no, root or isolated. root also makes machine.slice a partition of cgroup v2: the " +
				"kernel lets nobody else use its CPUs, and balances load inside of it only. " +
				"isolated balances no load at all: right for pinned virtual CPUs, but QEMU's own threads then pile " +
				"up on one CPU."},
			{"machine", machine, "For a partition: the CPUs of the lab nodes and of QEMU's own threads. Empty where " +
				"the host would be left with none, or has other virtual machines."},
			{"host_only", hostOnly.String(), "What the host keeps beside a partition."},
		},
	}
}
