package hostview

import (
	"bytes"
	"cmp"
	_ "embed" // for the template
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
)

// Forms as environment variables, for shells and env files.
const (
	NCCLEnv    = "nccl-env"
	UCXEnv     = "ucx-env"
	OpenMPIEnv = "openmpi-env"
	MVAPICHEnv = "mvapich-env"
)

// EnvForms lists all of them.
var EnvForms = []string{NCCLEnv, UCXEnv, OpenMPIEnv, MVAPICHEnv}

// A library is configured by these environment variables.
type library struct {
	Title   string
	devices string // "NAME=" and text before the first device
	between string // separator of devices
	noPort  bool
	Why     string // reason for the value of devices
	GID     string // variable for the index of a RoCE GID
	Network string // variable for the devices of the bootstrap
	// class is for RoCE, level for InfiniBand
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

// An rdmaLink is a port that is used, left out, or in an unknown state.
type rdmaLink struct {
	nic   *topology.NIC
	name  string             // such as mlx5_0
	port  *topology.RDMAPort // with number 0 if only the device is known
	layer string             // "Ethernet", "InfiniBand" or ""
	rate  *float64           // Gb/s
	Left  string             // why it is left out, or ""
	up    bool
}

//go:embed env.tmpl
var envText string

var envTemplate = sync.OnceValue(func() *template.Template {
	join := func(all []string) string { return strings.Join(all, ", ") }
	ports := func(all []rdmaLink) string { return words.Join(all, ", ") }
	return template.Must(template.New("env").Funcs(template.FuncMap{"join": join, "ports": ports}).Parse(envText))
})

// An envFile has comments for settings that the library chooses well itself.
type envFile struct {
	library
	*topology.Host
	Form, Name, Devices string
	Links, Used         []rdmaLink
	Untold              []rdmaLink // ports in an unknown state
}

// WriteEnv writes the variables that make a library use the host's RDMA devices, with reasons. A variable whose value
// is unknown is left out.
func (d *Document) WriteEnv(w io.Writer, form string) error {
	// A live machine is named after its root directory.
	name := d.Provenance.Name
	if name == "/" {
		name = ""
	}
	e := envFile{library: libraries[form], Host: d.Host, Form: form, Name: cmp.Or(name, "this machine"),
		Links: rdmaLinks(d.Host)}
	e.Used = lists.Filter(e.Links, func(x rdmaLink) bool { return x.Left == "" && x.up })
	e.Untold = lists.Filter(e.Links, func(x rdmaLink) bool { return x.Left == "" && !x.up })
	e.Devices = e.list(e.Used)
	var b bytes.Buffer
	err := envTemplate().Execute(&b, e)
	if err == nil {
		_, err = b.WriteTo(w)
	}
	return err
}

// list returns "" if it needs an unknown port number.
func (e envFile) list(ports []rdmaLink) string {
	var names []string
	for _, x := range ports {
		port := x.String()
		if e.noPort {
			port = x.name
		} else if x.port.Number == 0 {
			return ""
		}
		names = lists.Add(names, port)
	}
	return e.devices + strings.Join(names, e.between)
}

// IfUp returns the variable for ports in an unknown state.
func (e envFile) IfUp() string { return e.list(e.Untold) }

// Variable returns the variable of the devices.
func (e envFile) Variable() string { return strings.TrimRight(e.devices, "=") }

// Chosen returns the ports that are up, or else may be.
func (e envFile) Chosen() []rdmaLink {
	if len(e.Used) > 0 {
		return e.Used
	}
	return e.Untold
}

// RoCE reports whether any port carries RDMA over Ethernet.
func (e envFile) RoCE() bool { return slices.ContainsFunc(e.Chosen(), rdmaLink.roce) }

// NoLayer returns ports with an unknown link layer.
func (e envFile) NoLayer() []string {
	unknown := lists.Filter(e.Chosen(), func(x rdmaLink) bool { return x.layer == "" })
	return lists.Map(unknown, rdmaLink.String)
}

// Complete reports whether a device that is not listed is missing.
func (e envFile) Complete() bool {
	return e.Provenance.Kind == topology.SourceLive || e.Provenance.Kind == topology.SourceTree
}

// NVIDIA reports whether the host has a GPU with NVIDIA's driver.
func (e envFile) NVIDIA() bool {
	return slices.ContainsFunc(e.GPUs, func(g topology.GPU) bool { return g.Driver == "nvidia" })
}

// TrafficClass returns the variable for traffic class or service level, or both if the link layer is unknown.
func (e envFile) TrafficClass() string {
	switch {
	case e.RoCE():
		return e.class
	case len(e.NoLayer()) > 0 && e.class != e.level:
		return e.class + " (RoCE) or " + e.level + " (InfiniBand)"
	}
	return e.level
}

// Route returns the device of the default route, or "".
func (e envFile) Route() string {
	if len(e.Routes) == 0 {
		return ""
	}
	return e.Routes[0].Netdev
}

// RoutesRead reports whether the default routes are known.
func (e envFile) RoutesRead() bool { return e.Routes != nil }

// Bootstrap returns the variable of the bootstrap's devices.
func (e envFile) Bootstrap() string { return strings.TrimRight(e.Network, "=") }

// Netdevs returns the network devices of the used ports.
func (e envFile) Netdevs() string {
	var names []string
	for _, x := range e.Used {
		of := x.nic.Netdevs
		if name := x.nic.NetdevOf(x.port); name != "" {
			of = []string{name}
		}
		for _, name := range of {
			names = lists.Add(names, name)
		}
	}
	return strings.Join(names, ",")
}

// HiddenTree reports whether NCCL cannot see distances between GPUs and NICs.
func (e envFile) HiddenTree() bool {
	isSwitch := func(d topology.PCIDevice) bool { return d.Bridge != nil && d.Bridge.Port == topology.PortSwitch }
	return e.IsVirtual() && len(e.GPUs) > 0 && len(e.NICs) > 0 && !slices.ContainsFunc(e.PCI, isSwitch)
}

// NoTree reports whether the PCI tree, by which NCCL finds near devices, is unknown.
func (e envFile) NoTree() bool {
	return !slices.ContainsFunc(e.PCI, func(d topology.PCIDevice) bool { return d.Bridge != nil })
}

func (x rdmaLink) String() string {
	if x.port.Number == 0 {
		return x.name
	}
	return fmt.Sprintf("%s:%d", x.name, x.port.Number)
}

func (x rdmaLink) roce() bool { return x.layer == topology.LinkEthernet }

// judge uses the network device if the port's own state is unknown.
func (x *rdmaLink) judge() {
	netdev := x.nic.NetdevOf(x.port)
	d := x.nic.Port(netdev)
	switch {
	case topology.IsSoftRDMA(x.name):
		x.Left = "it is computed by the kernel"
	case x.port.State == "ACTIVE":
		x.up = true
	case x.port.State != "":
		x.Left = "it is " + x.port.State
	case d == nil || d.Up() == nil:
	case *d.Up():
		x.up = true
	default:
		x.Left = "its network device " + netdev + " is down"
	}
}

func rdmaLinks(h *topology.Host) []rdmaLink {
	var all []rdmaLink
	fastest := 0.0
	routed := lists.SetOf(h.Routes, func(r topology.Route) string { return r.Netdev })
	add := func(nic *topology.NIC, dev *topology.RDMADevice, p *topology.RDMAPort) {
		x := rdmaLink{nic: nic, name: dev.Name, port: p, layer: h.LinkLayer(nic, dev, p), rate: h.RateGbps(nic, dev, p)}
		if x.judge(); x.Left == "" && x.rate != nil {
			fastest = max(fastest, *x.rate)
		}
		all = append(all, x)
	}
	for i := range h.NICs {
		nic := &h.NICs[i]
		for j := range nic.Devices {
			dev := &nic.Devices[j]
			for k := range dev.Ports {
				add(nic, dev, &dev.Ports[k])
			}
		}
		// The legend of a matrix names devices and no port.
		for _, name := range nic.RDMA {
			has := func(d topology.RDMADevice) bool { return d.Name == name && len(d.Ports) > 0 }
			if !slices.ContainsFunc(nic.Devices, has) {
				add(nic, &topology.RDMADevice{Name: name}, &topology.RDMAPort{})
			}
		}
	}
	for i := range all {
		x := &all[i]
		if x.Left == "" && x.rate != nil && *x.rate*2 <= fastest {
			x.Left = fmt.Sprintf("it has %g Gb/s, and others have %g", *x.rate, fastest)
			if slices.ContainsFunc(x.nic.Netdevs, func(n string) bool { return routed[n] }) {
				x.Left += "; the default route goes over it"
			}
		}
	}
	return all
}

// Nearest lists the nearest ports of each GPU, which NCCL finds itself, and the CPUs next to them.
func (e envFile) Nearest() (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	tree := topology.NewTree(e.Host)
	for i := range e.GPUs {
		g := &e.GPUs[i]
		if g.Kind == topology.GPUDisplay {
			continue
		}
		var best []string
		var class topology.PathClass
		for _, x := range e.Used {
			p := tree.Path(g.ID(), x.nic.ID())
			switch {
			case p.Class == topology.PathUnknown || len(best) > 0 && p.Class > class:
				continue
			case len(best) == 0 || p.Class < class:
				best, class = nil, p.Class
			}
			best = append(best, x.String())
		}
		if len(best) > 0 {
			say("Nearest to GPU %s: %s (%s).", g.ID(), strings.Join(best, ", "), class)
		}
	}
	for _, n := range e.NUMANodes {
		at := lists.Filter(e.Used, func(x rdmaLink) bool { return x.nic.NUMANode != nil && *x.nic.NUMANode == n.ID })
		if len(at) > 0 && n.CPUs.Len() > 0 {
			say("Processes that use %s belong on CPUs %s (NUMA node %d).", words.Join(at, ", "), n.CPUs, n.ID)
		}
	}
	return all
}

// A gidIndex holds the indexes of the RoCE ports. Libraries take one for all.
type gidIndex struct {
	Found   []string // ports with their GIDs
	Missing []string // ports without such a GID
	Unread  []string // ports whose GIDs are unknown
	Index   int
	Same    bool
}

// GIDs finds the GID of each RoCE port.
func (e envFile) GIDs() *gidIndex {
	found := &gidIndex{Index: -1, Same: true}
	for _, x := range lists.Filter(e.Chosen(), rdmaLink.roce) {
		g, ok := lists.Lookup(x.port.GIDs, func(g topology.GID) bool { return g.IsV2() && g.Addr().Is4() })
		if !ok {
			list := &found.Missing
			if len(x.port.GIDs) == 0 {
				list = &found.Unread
			}
			*list = append(*list, x.String())
			continue
		}
		found.Found = append(found.Found, fmt.Sprintf("%s has %d (%s)", x, g.Index, g.Addr()))
		found.Same = found.Same && (found.Index < 0 || found.Index == g.Index)
		found.Index = g.Index
	}
	return found
}
