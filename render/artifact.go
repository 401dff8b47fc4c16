package render

import (
	"io/fs"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/topology"
)

// An Artifact is a file to write: nothing here writes it.
type Artifact struct {
	Path string // below the directory of the plan, with forward slashes: "domains/vm00.xml"
	Mode fs.FileMode
	Data []byte
}

// Input is what artefacts are made of.
type Input struct {
	Plan *plan.Plan
	Lab  *lab.Lab
	Host *topology.Host
	// Made says what made the files and from what: "rackless v1 plan of lab epyc-pair
	// (examples/epyc-pair.yaml) for epyc-7551p.ttar".
	Made string

	// Changes are what the scripts change on the host, by the name of the script: lines as
	// [github.com/rackless/rackless/host.Artifacts] makes them of the ops that prepare a host. Without
	// them there are no scripts, and no units that start them.
	Changes map[string][]string

	// What follows is for Domains alone: the other artefacts are about nodes of a cloud image on a real host.

	// Boot is what nodes boot; nil means a disk with a cloud image, by UEFI.
	Boot *Boot
	// Seeds are paths on the machine of libvirt, by node: disks that cloud-init reads (NoCloud) in nodes without Boot.
	Seeds map[string]string
	// ConsoleDir is a directory on the machine of libvirt for what the consoles of nodes print; ""
	// keeps nothing. See [ConsolePath].
	ConsoleDir string
	// Emulated makes domains that need no KVM: QEMU translates what they execute (TCG). Pinning,
	// NUMA nodes and hugepages are as planned.
	Emulated bool
}

// A Boot is a kernel that QEMU starts by itself, with a root file system in memory: the node has no
// disk, no firmware to wait for, and no network but the lab's.
type Boot struct {
	Kernel    string // path on the machine of libvirt
	Initramfs string // path on the machine of libvirt
	Args      string // the kernel's command line
}
