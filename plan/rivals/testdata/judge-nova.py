"""Answers what Nova's own numa_fit_instance_to_host decides.

It reads a JSON list of hosts with attempts from standard input. For each attempt it prints the host cells that Nova
chooses, in the order of the guest cells, with the CPUs that it pins; null where there is no fit. Then it takes what
the attempt says that rackless took, so that both go on from the same host.
"""

import json
import sys

import nova.conf
from nova import objects
from nova.virt import hardware

CONF = nova.conf.CONF
objects.register_all()
CONF([], project="nova", default_config_files=[])


def host_topology(host):
    cells = []
    for c in host["cells"]:
        cpus = set(c["cpus"])
        # Equal sets are those of a host with vcpu_pin_set: only there Nova grants isolate where cores have siblings.
        cells.append(objects.NUMACell(
            id=c["id"], socket=None, cpuset=cpus, pcpuset=cpus, memory=c["pages"] * 1024, cpu_usage=0, memory_usage=0,
            pinned_cpus=set(), siblings=[set(s) for s in c["siblings"]],
            mempages=[objects.NUMAPagesTopology(size_kb=1 << 20, total=c["pages"], used=0, reserved=0)],
            network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False)))
    return objects.NUMATopology(cells=cells)


def instance_topology(attempt):
    cells, first = [], 0
    for i, c in enumerate(attempt["cells"]):
        cells.append(objects.InstanceNUMACell(
            id=i, cpuset=set(), pcpuset=set(range(first, first + c["cpus"])), memory=c["pages"] * 1024,
            pagesize=1 << 20, cpu_policy="dedicated", cpu_thread_policy=attempt["policy"], cpu_pinning=None,
            cpuset_reserved=None, cpu_topology=None))
        first += c["cpus"]
    return objects.InstanceNUMATopology(cells=cells, emulator_threads_policy=None)


answers = []
for host in json.load(sys.stdin):
    CONF.set_override("packing_host_numa_cells_allocation_strategy", host["pack"], "compute")
    topology = host_topology(host)
    by_id = {c.id: c for c in topology.cells}
    said = []
    for attempt in host["attempts"]:
        found = hardware.numa_fit_instance_to_host(topology, instance_topology(attempt), None)
        said.append(found and [{"cell": c.id, "cpus": sorted(c.cpu_pinning.values())} for c in found.cells])
        for took in attempt["took"] or []:
            cell = by_id[took["cell"]]
            cell.pinned_cpus = cell.pinned_cpus | set(took["cpus"]) | set(took.get("idle") or [])
            cell.memory_usage += took["pages"] * 1024
            cell.mempages[0].used += took["pages"]
    answers.append(said)
print(json.dumps(answers))
