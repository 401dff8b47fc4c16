package hostview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// Forms of a host that are environment variables, for a shell and for files of variables.
const (
	NCCLEnv    = "nccl-env"
	UCXEnv     = "ucx-env"
	OpenMPIEnv = "openmpi-env"
	MVAPICHEnv = "mvapich-env"
)

// EnvForms are all of them.
var EnvForms = []string{NCCLEnv, UCXEnv, OpenMPIEnv, MVAPICHEnv}

// A library is what reads the variables of a form, with the names that it has for them.
type library struct {
	title   string // with the source of the names
	devices string // "NAME=" and what stands before the first device
	between string // devices
	noPort  bool   // devices are named without their port
	why     string // the reason for devices
	gid     string // the index of a RoCE GID
	network string // the network devices over which ranks find each other, as devices
	// class is the variable of the class of traffic over RoCE, level of that over InfiniBand
	class, level string
}

var libraries = map[string]library{
	NCCLEnv: {"NCCL's variables", "NCCL_IB_HCA==", ",", false,
		"The ports that are up. The first = asks for these names, and not for all that begin so.",
		"NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME==", "NCCL_IB_TC", "NCCL_IB_SL"},
	UCXEnv: {"UCX's variables", "UCX_NET_DEVICES=", ",", false,
		"The ports that are up, so that UCX takes no other, such as Ethernet for management.", "UCX_IB_GID_INDEX", "",
		"UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL"},
	OpenMPIEnv: {"Variables of Open MPI 4 over UCX (names: ompi_info --param all all, ucx_info -c)",
		"UCX_NET_DEVICES=", ",", false, "The ports that are up, so that UCX takes no other.", "UCX_IB_GID_INDEX",
		"OMPI_MCA_oob_tcp_if_include=", "UCX_IB_TRAFFIC_CLASS", "UCX_IB_SL"},
	MVAPICHEnv: {"Variables of MVAPICH2 (names: chapter 11 of its user guide)", "MV2_IBA_HCA=", ":", true,
		"The devices with a port that is up.", "MV2_DEFAULT_GID_INDEX", "",
		"MV2_DEFAULT_SERVICE_LEVEL", "MV2_DEFAULT_SERVICE_LEVEL"},
}

// An rdmaLink is an RDMA port that programs between nodes should use, or that they should not, and why.
type rdmaLink struct {
	nic  *topology.NIC
	name string // mlx5_0
	port *topology.RDMAPort
	left string // why it is left out
}

// WriteEnv writes the variables by which a library uses the RDMA devices of the host, each below the reason for its
// value. What the library chooses well by itself is a comment.
func (d *Document) WriteEnv(w io.Writer, form string) error {
	lib := libraries[form]
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, "# "+format+"\n", args...) }
	say("%s of %s, for a shell (set -a; . FILE) and for --env-file.", lib.title,
		cmp.Or(d.Provenance.Name, "this machine"))
	var names []string
	var used []rdmaLink
	for _, x := range rdmaLinks(d.Host) {
		if x.left != "" {
			say("Not %s: %s.", x.device(), x.left)
			continue
		}
		used = append(used, x)
		names = lists.Add(names, words.Either(lib.noPort, x.name, x.device()))
	}
	if len(used) == 0 {
		say("No RDMA port is up: there is nothing to set.")
		_, err := io.WriteString(w, b.String())
		return err
	}
	nearest(d.Host, used, say)
	say("RDMA locks memory: \"ulimit -l\" has to say unlimited for its user (limits.conf(5): memlock).")
	if form == OpenMPIEnv {
		say("UCX or an error, so that nothing goes over TCP without notice.")
		b.WriteString("OMPI_MCA_pml=ucx\n")
	}
	say("%s", lib.why)
	fmt.Fprintf(&b, "%s%s\n", lib.devices, strings.Join(names, lib.between))
	if form == MVAPICHEnv {
		mvapich(&b, d.Host, used, say)
	}
	gidIndex(&b, form, used, say)
	if lib.network != "" {
		bootstrap(&b, d.Host, lib.network, used, say)
	}
	classes(lib, used, say)
	if form == NCCLEnv {
		guestTree(d.Host, say)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mvapich sets what MVAPICH2 does not find out by itself.
//
// Source: MVAPICH2's user guide; NVIDIA's GPUDirect RDMA user manual, section 3.1.
func mvapich(b *strings.Builder, h *topology.Host, used []rdmaLink, say func(string, ...any)) {
	if slices.ContainsFunc(used, func(x rdmaLink) bool { return x.port.LinkLayer == "Ethernet" }) {
		say("The ports are RoCE.")
		b.WriteString("MV2_USE_RoCE=1\n")
	}
	if slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return g.Driver == "nvidia" }) {
		say("Buffers may be in memory of GPUs; with GPUDirect RDMA where rackless gpudirect says ok (MVAPICH2-GDR).")
		b.WriteString("MV2_USE_CUDA=1\n")
	}
}

func (x rdmaLink) device() string { return fmt.Sprintf("%s:%d", x.name, x.port.Number) }

// rdmaLinks returns the RDMA ports of a host in the order of its NICs.
func rdmaLinks(h *topology.Host) []rdmaLink {
	var all []rdmaLink
	fastest := 0.0
	routed := lists.SetOf(h.Routes, func(r topology.Route) string { return r.Netdev })
	for nic, dev := range h.RDMADevices() {
		for i := range dev.Ports {
			p := &dev.Ports[i]
			x := rdmaLink{nic: nic, name: dev.Name, port: p}
			switch {
			case topology.IsSoftRDMA(dev.Name):
				x.left = "it is computed by the kernel"
			case p.State != "" && p.State != "ACTIVE":
				x.left = "it is " + p.State
			case p.RateGbps != nil:
				fastest = max(fastest, *p.RateGbps)
			}
			all = append(all, x)
		}
	}
	for i := range all {
		x := &all[i]
		if r := x.port.RateGbps; x.left == "" && r != nil && *r*2 <= fastest {
			x.left = fmt.Sprintf("it has %g Gb/s, and others have %g", *r, fastest)
			if slices.ContainsFunc(x.nic.Netdevs, func(n string) bool { return routed[n] }) {
				x.left += "; the default route goes over it"
			}
		}
	}
	return all
}

// nearest says which ports are nearest to each GPU, which NCCL decides by itself and people pin processes by.
func nearest(h *topology.Host, used []rdmaLink, say func(string, ...any)) {
	tree := topology.NewTree(h)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		if g.Kind == topology.GPUDisplay {
			continue
		}
		var best []string
		var class topology.PathClass
		for _, x := range used {
			p := tree.Path(g.ID(), x.nic.ID())
			switch {
			case p.Class == topology.PathUnknown || len(best) > 0 && p.Class > class:
				continue
			case len(best) == 0 || p.Class < class:
				best, class = nil, p.Class
			}
			best = append(best, x.device())
		}
		if len(best) > 0 {
			say("Nearest to GPU %s: %s (%s).", g.ID(), strings.Join(best, ", "), class)
		}
	}
	for _, n := range h.NUMANodes {
		at := lists.Filter(used, func(x rdmaLink) bool { return x.nic.NUMANode != nil && *x.nic.NUMANode == n.ID })
		if len(at) > 0 && n.CPUs.Len() > 0 {
			say("Processes that use %s belong on CPUs %s (NUMA node %d).",
				strings.Join(lists.Map(at, rdmaLink.device), ", "), n.CPUs, n.ID)
		}
	}
}

// classes says why no class of traffic is set: switches decide which of them lose no packet.
func classes(lib library, used []rdmaLink, say func(string, ...any)) {
	roce := slices.ContainsFunc(used, func(x rdmaLink) bool { return x.port.LinkLayer == "Ethernet" })
	say("%s is not set: the switches say which class they carry without loss, and no file of this machine does.",
		words.Either(roce, lib.class, lib.level))
}

// gidIndex sets the GID of RoCE where one index is right on all ports, which all libraries take one of.
func gidIndex(b *strings.Builder, form string, used []rdmaLink, say func(string, ...any)) {
	name := libraries[form].gid
	var found, missing []string
	index, same, roce := -1, true, false
	for _, x := range used {
		if x.port.LinkLayer != "Ethernet" {
			continue
		}
		roce = true
		i := slices.IndexFunc(x.port.GIDs, func(g topology.GID) bool { return g.IsV2() && g.Addr().Is4() })
		if i < 0 {
			missing = append(missing, x.device())
			continue
		}
		g := x.port.GIDs[i]
		found = append(found, fmt.Sprintf("%s has %d (%s)", x.device(), g.Index, g.Addr()))
		same = same && (index < 0 || index == g.Index)
		index = g.Index
	}
	switch {
	case !roce:
		say("%s is for RoCE, and these ports are InfiniBand.", name)
	case len(missing) > 0:
		say("%s is not set: no RoCE v2 GID of an IPv4 address is known of %s. Give each port an address.", name,
			strings.Join(missing, ", "))
	case same:
		say("The RoCE v2 GID of the port's IPv4 address: %s.", strings.Join(found, ", "))
		fmt.Fprintf(b, "%s=%d\n", name, index)
	default:
		say("%s is not set, as one index is not right on all ports: %s.", name, strings.Join(found, ", "))
		if form == NCCLEnv {
			say("NCCL 2.21 and newer find the GID of each port by these.")
			b.WriteString("NCCL_IB_ROCE_VERSION_NUM=2\nNCCL_IB_ADDR_FAMILY=AF_INET\n")
		}
	}
}

// bootstrap sets the network over which ranks find each other.
func bootstrap(b *strings.Builder, h *topology.Host, variable string, used []rdmaLink, say func(string, ...any)) {
	for _, r := range h.Routes {
		say("Ranks find each other over the network of the default route; data goes over the ports above.")
		fmt.Fprintf(b, "%s%s\n", variable, r.Netdev)
		return
	}
	devs := lists.Flat(used, func(x rdmaLink) []string { return x.nic.Netdevs })
	if len(devs) > 0 {
		say("There is no default route: ranks find each other over the network devices of the ports above.")
		fmt.Fprintf(b, "%s%s\n", variable, strings.Join(slices.Compact(devs), ","))
	}
}

// guestTree says when NCCL cannot see how near GPUs and NICs are.
func guestTree(h *topology.Host, say func(string, ...any)) {
	isSwitch := func(d topology.PCIDevice) bool { return d.Bridge != nil && d.Bridge.Port == topology.PortSwitch }
	if h.IsVirtual() && len(h.GPUs) > 0 && len(h.NICs) > 0 && !slices.ContainsFunc(h.PCI, isSwitch) {
		say("NCCL_TOPO_FILE is worth having here: this is a virtual machine whose PCI tree has no switch, so that " +
			"NCCL does not know which GPU and NIC are near. Make the file from the host's tree (NCCL_TOPO_DUMP_FILE " +
			"there).")
		return
	}
	say("NCCL_TOPO_FILE is not needed: the PCI tree shows how near GPUs and NICs are.")
}
