"""Reads what rackless export nova wrote with Nova's own code, and places its servers on the host of host.json.

It prints the number of CPUs that Nova pins for each server, as JSON; 0 for one that it finds no place for. What Nova
refuses ends it with an exception.
"""

import json
import re
import shlex
import sys

import nova.conf
from nova import objects
from nova.api.validation.extra_specs import validators
from nova.pci import devspec
from nova.pci import request as pci_request
from nova.virt import hardware

CONF = nova.conf.CONF
objects.register_all()


def commands(path):
    """The words of each command of the script."""
    with open(path) as f:
        text = f.read().replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("openstack "):
            yield shlex.split(line)


def options(words, name):
    return [words[i + 1] for i, w in enumerate(words) if w == "--" + name]


CONF([], project="nova", default_config_files=["nova.conf"])
CONF.reload_config_files()
dedicated = hardware.get_cpu_dedicated_set()
shared = hardware.get_cpu_shared_set()
if not dedicated or not shared or dedicated & shared:
    sys.exit("cpu_dedicated_set %s, cpu_shared_set %s" % (dedicated, shared))

specs = [devspec.PciDeviceSpec(json.loads(s)) for s in CONF.pci.device_spec]
aliases = pci_request.get_alias_from_config() if hasattr(pci_request, "get_alias_from_config") else \
    pci_request._get_alias_from_config()

with open("host.json") as f:
    host = json.load(f)
cells = []
for c in host["cells"]:
    cpus = set(c["cpus"])
    cells.append(objects.NUMACell(
        id=c["id"], socket=None, cpuset=cpus & shared, pcpuset=cpus & dedicated, memory=c["memory_mb"],
        cpu_usage=0, memory_usage=0, pinned_cpus=set(), siblings=[s for s in (set(s) & (dedicated | shared) for s in c["siblings"]) if s],
        mempages=[objects.NUMAPagesTopology(size_kb=4, total=c["memory_mb"] * 256 - sum(k * n for k, n in c["pages"]) // 4,
                                            used=0, reserved=0)] +
                 [objects.NUMAPagesTopology(size_kb=k, total=n, used=0, reserved=0) for k, n in c["pages"]],
        network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False)))
topology = objects.NUMATopology(cells=cells)

image, flavors, pinned = None, {}, {}
for words in commands("openstack.sh"):
    kind = words[1:3]
    if kind == ["image", "set"]:
        image = objects.ImageMeta(properties=objects.ImageMetaProps.from_dict(
            dict(p.split("=", 1) for p in options(words, "property"))))
    elif kind == ["flavor", "create"]:
        extra = dict(p.split("=", 1) for p in options(words, "property"))
        for name, value in extra.items():
            validators.validate(name, value)
        flavors[words[3]] = objects.Flavor(
            name=words[3], vcpus=int(options(words, "vcpus")[0]), memory_mb=int(options(words, "ram")[0]),
            root_gb=20, ephemeral_gb=0, swap=0, extra_specs=extra)
    elif kind == ["server", "create"]:
        flavor = flavors[options(words, "flavor")[0]]
        wanted = hardware.numa_get_constraints(flavor, image)
        hardware.get_emulator_thread_policy_constraint(flavor)
        hardware.get_pci_numa_policy_constraint(flavor, image)
        requests = pci_request.get_pci_requests_from_flavor(flavor)
        asked = dict(re.findall(r"([\w-]+):(\d+)", flavor.extra_specs.get("pci_passthrough:alias", "")))
        if sorted(r.alias_name for r in requests.requests) != sorted(asked):
            sys.exit("%s asks for %s, and Nova reads %s" % (words[3], asked, requests))
        found = hardware.numa_fit_instance_to_host(topology, wanted, None)
        if found is None:
            pinned[words[3]] = 0
            continue
        topology = hardware.numa_usage_from_instance_numa(topology, found)
        pins = {}
        for cell in found.cells:
            pins.update(cell.cpu_pinning or {})
        pinned[words[3]] = len(set(pins.values()))

print(json.dumps(pinned))
