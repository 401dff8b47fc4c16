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

// Forms of a host as environment variables, for shells and env files.
const (
	NCCLEnv    = "nccl-env"
	UCXEnv     = "ucx-env"
	OpenMPIEnv = "openmpi-env"
	MVAPICHEnv = "mvapich-env"
)

// EnvForms lists all of them.
var EnvForms = []string{NCCLEnv, UCXEnv, OpenMPIEnv, MVAPICHEnv}

// A library is a communication library that is configured by environment variables, with the names of its variables.
type library struct {
	Title   string // with the source of the names
	devices string // "NAME=" and the text before the first device
	between string // separator of devices
	noPort  bool   // devices are named without a port
	Why     string // the reason for the value of devices
	GID     string // variable for the index of a RoCE GID
	Network string // variable for the network devices of the bootstrap, like devices
	// class is the variable for the traffic class over RoCE, level for the service level over InfiniBand
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

// An rdmaLink is an RDMA port, either used or left out with a reason.
type rdmaLink struct {
	nic  *topology.NIC
	name string // such as mlx5_0
	port *topology.RDMAPort
	Left string // reason to leave it out, or ""
}

//go:embed env.tmpl
var envText string

var envTemplate = sync.OnceValue(func() *template.Template {
	join := func(all []string) string { return strings.Join(all, ", ") }
	return template.Must(template.New("env").Funcs(template.FuncMap{"join": join}).Parse(envText))
})

// An envFile is the data of the template. Settings that the library chooses well by itself are written as comments.
type envFile struct {
	library
	*topology.Host
	Form, Name, Devices string
	Links, Used         []rdmaLink
}

// WriteEnv writes the environment variables that make a library use the host's RDMA devices, each below the reason
// for its value.
func (d *Document) WriteEnv(w io.Writer, form string) error {
	// A live machine is named after its root directory.
	name := d.Provenance.Name
	if name == "/" {
		name = ""
	}
	e := envFile{library: libraries[form], Host: d.Host, Form: form, Name: cmp.Or(name, "this machine"),
		Links: rdmaLinks(d.Host)}
	var names []string
	for _, x := range e.Links {
		if x.Left == "" {
			e.Used = append(e.Used, x)
			port := x.String()
			if e.noPort {
				port = x.name
			}
			names = lists.Add(names, port)
		}
	}
	e.Devices = e.devices + strings.Join(names, e.between)
	var b bytes.Buffer
	err := envTemplate().Execute(&b, e)
	if err == nil {
		_, err = b.WriteTo(w)
	}
	return err
}

// RoCE reports whether any used port carries RDMA over Ethernet.
func (e envFile) RoCE() bool { return slices.ContainsFunc(e.Used, rdmaLink.roce) }

// NVIDIA reports whether the host has a GPU with NVIDIA's driver.
func (e envFile) NVIDIA() bool {
	return slices.ContainsFunc(e.GPUs, func(g topology.GPU) bool { return g.Driver == "nvidia" })
}

// TrafficClass returns the variable for the traffic class or service level.
func (e envFile) TrafficClass() string {
	if e.RoCE() {
		return e.class
	}
	return e.level
}

// Route returns the network device of the default route, or "".
func (e envFile) Route() string {
	return strings.Join(lists.Map(e.Routes[:min(1, len(e.Routes))],
		func(r topology.Route) string { return r.Netdev }), "")
}

// Netdevs returns the network devices of the used ports.
func (e envFile) Netdevs() string {
	return strings.Join(slices.Compact(lists.Flat(e.Used, func(x rdmaLink) []string { return x.nic.Netdevs })), ",")
}

// HiddenTree reports whether NCCL cannot see the distance between GPUs and NICs.
func (e envFile) HiddenTree() bool {
	isSwitch := func(d topology.PCIDevice) bool { return d.Bridge != nil && d.Bridge.Port == topology.PortSwitch }
	return e.IsVirtual() && len(e.GPUs) > 0 && len(e.NICs) > 0 && !slices.ContainsFunc(e.PCI, isSwitch)
}

func (x rdmaLink) String() string { return fmt.Sprintf("%s:%d", x.name, x.port.Number) }

func (x rdmaLink) roce() bool { return x.port.LinkLayer == "Ethernet" }

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
				x.Left = "it is computed by the kernel"
			case p.State != "" && p.State != "ACTIVE":
				x.Left = "it is " + p.State
			case p.RateGbps != nil:
				fastest = max(fastest, *p.RateGbps)
			}
			all = append(all, x)
		}
	}
	for i := range all {
		x := &all[i]
		if r := x.port.RateGbps; x.Left == "" && r != nil && *r*2 <= fastest {
			x.Left = fmt.Sprintf("it has %g Gb/s, and others have %g", *r, fastest)
			if slices.ContainsFunc(x.nic.Netdevs, func(n string) bool { return routed[n] }) {
				x.Left += "; the default route goes over it"
			}
		}
	}
	return all
}

// Nearest lists the nearest ports for each GPU, which NCCL finds by itself, and the CPUs next to the ports, for
// pinning processes.
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

// A gidIndex holds the GID indexes of the RoCE ports. Libraries take one index for all ports.
type gidIndex struct {
	Found, Missing []string // ports, with their GIDs if found
	Index          int
	Same           bool
}

// GIDs finds the GID of each RoCE port.
func (e envFile) GIDs() *gidIndex {
	found := &gidIndex{Index: -1, Same: true}
	for _, x := range lists.Filter(e.Used, rdmaLink.roce) {
		g, ok := lists.Lookup(x.port.GIDs, func(g topology.GID) bool { return g.IsV2() && g.Addr().Is4() })
		if !ok {
			found.Missing = append(found.Missing, x.String())
			continue
		}
		found.Found = append(found.Found, fmt.Sprintf("%s has %d (%s)", x, g.Index, g.Addr()))
		found.Same = found.Same && (found.Index < 0 || found.Index == g.Index)
		found.Index = g.Index
	}
	return found
}
