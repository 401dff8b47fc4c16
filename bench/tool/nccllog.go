package tool

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// A Remark is a fact that a log tells about a run besides its figures.
type Remark struct {
	What     string `json:"what"`
	Evidence string `json:"evidence"`
	Fix      string `json:"fix,omitempty"` // empty if nothing is wrong
	// Possible is set if it is worth a look only if a figure is low.
	Possible bool `json:"possible,omitempty"`
	// FarGPU is the GPU that a NIC is far from, in NCCL's form: 81000 is 81:00.0.
	FarGPU string `json:"far_gpu,omitempty"`
}

// Releases before 2.5 call a channel a ring. Source: src/transport/{p2p,shm,net}.cc of NCCL.
var (
	ncclChannel = lazyregexp.New(`\b(?:Channel|Ring) \d+(?:/\d+)? ?: \d+(?:\[\w+\])? -> \d+(?:\[\w+\])?` +
		`(?: \[(?:send|receive)\])? via (.+?)[ \t\r]*$`)
	ncclNet   = lazyregexp.New(`^NET/([^/]+?)(?:/\d+(?:\(\d+\))?)?((?:/[A-Za-z]\w*)*)$`)
	ncclRanks = lazyregexp.New(`(?m)^#?[ \t]*Rank\s+(\d+) .*\bon\s+(\S+) device `)
	ncclNIC   = lazyregexp.New(`\[\d+\]([\w.-]+:\d+)/(?:RoCE|IB)\b`)
	ncclGDR   = lazyregexp.New(`GPU Direct RDMA (Enabled|` +
		`Disabled) for GPU (\w+) / HCA (\w+) \(distance (\d+) \S+ (\d+)\)`)
	ncclNoGDR = lazyregexp.New(`GPU Direct RDMA Disabled for HCA \d+ (?:: )?'?([\w.-]+)`)
	// coherent matches GPUs whose processor is next to them: the CPU is no detour to the NIC.
	coherent = lazyregexp.New(`GH200|GB[123]0`)
	consumer = lazyregexp.New(`GeForce`)
)

// ncclWords explain a figure. Both texts may name groups of line.
//
// Sources: src/transport/net_{ib,socket}.cc, src/graph/paths.cc and src/misc/param.cc of NCCL, src/init.cc of RCCL,
// src/nccl_ofi_net.c of aws-ofi-nccl.
var ncclWords = []struct {
	word      string // faster to search for than the line
	line      func() *regexp.Regexp
	what, fix string
	between   bool // matters between machines only
}{
	{"network", lazyregexp.New(`\bUsing network Socket\b`), socketWhat, socketFix, true},
	{"NET/OFI", lazyregexp.New(`(?i)\bNET/OFI Selected provider is (tcp|sockets|udp|net)\b\S*`),
		"the plugin for libfabric took the provider $1, which is no RDMA",
		"in AWS: EFA devices in the machine and the container (/dev/infiniband/uverbs*, fi_info -p efa), a libfabric " +
			"with that provider, FI_PROVIDER not set to another", true},
	{"NET/IB", lazyregexp.New(`\bNET/IB : No device found\b`), "NCCL found no RDMA device",
		"ibv_devices in the same container: /dev/infiniband is to be passed in, and the card's driver and library " +
			"(rdma-core) to be there; NCCL_IB_HCA is to name devices that exist", true},
	{"libibverbs", lazyregexp.New(`\bFailed to open libibverbs\.so\S*`), "there is no libibverbs where NCCL runs",
		"install rdma-core or libibverbs1 in the container", true},
	{"_DISABLE", lazyregexp.New(`\bNCCL_(P2P|SHM)_DISABLE(?: set by environment to |=)1\b`), "NCCL_${1}_DISABLE is set",
		unsetFix, false},
	{"_DISABLE", lazyregexp.New(`\bNCCL_IB_DISABLE(?: set by environment to |=)1\b`), "NCCL_IB_DISABLE is set",
		unsetFix, true},
	{"_LEVEL", lazyregexp.New(`\bNCCL_(NET_GDR|P2P)_LEVEL(?: set by environment to |=)(LOC|0)\b`),
		"NCCL_${1}_LEVEL is $2", "unset it: it forbids direct access at any distance", false},
	{"NCCL_IB_HCA", lazyregexp.New(`\bNCCL_IB_HCA(?: set by environment to |=)\S*?([\w.-]+/\d+)\b\S*`),
		"NCCL_IB_HCA has $1, which is no device and port", "a port follows after a colon: mlx5_0:1", true},
	{"P2P is", lazyregexp.New(`\bP2P is disabled between (NVLINK )?connected GPUs (\d+) and (\d+)`),
		"GPUs $2 and $3 may not access each other",
		"nvidia-smi topo -p2p r shows the pairs; with NVLink the fabric manager (nvidia-smi nvlink -s, Xid in " +
			"dmesg); on PCIe ACS off at bridges, IOMMU off or pass-through; instances of MIG and GeForce have no P2P",
		false},
	{"iommu", lazyregexp.New(`\bMissing "(iommu=pt)" from kernel command line`),
		"$1 is missing on the kernel's command line",
		"add iommu=pt to the kernel's command line of the host and boot it again: without it, transfers of GPUs may " +
			"hang", false},
	{"HSA_", lazyregexp.New(`\bMissing "(HSA_FORCE_FINE_GRAIN_PCIE=1)" from environment`),
		"$1 is not set", "export $1", false},
	{"PCI[0.", lazyregexp.New(`\bPCI\[(0\.\d+)\] - \S+`), "NCCL takes a PCI link for $1 GB/s",
		"bridges of a virtual machine tell made-up rates, and NCCL chooses NICs and channels by them: give it the " +
			"real tree as NCCL_TOPO_FILE", false},
	{"auto balancing", lazyregexp.New(`\bNUMA auto balancing enabled\b`), "automatic NUMA balancing is on",
		"sysctl kernel.numa_balancing=0: it moves pages during the run", false},
}

const (
	unsetFix   = "unset it: it switches a transport off that NCCL would choose"
	socketWhat = "NCCL uses TCP between machines"
	socketFix  = "NET/IB is to be used: ibv_devices shows the cards in the same container, NCCL_IB_HCA names devices " +
		"that exist, NCCL_IB_DISABLE is unset, and NCCL_DEBUG=INFO says why NET/IB found none"
	gdrFix = "load nvidia-peermem on the host (nv_peer_mem of older drivers), or use DMA-BUF (Linux 5.12, open " +
		"kernel modules of the driver); a NIC near the GPU (nvidia-smi topo -m); rackless gpudirect says what is " +
		"missing on a machine"
)

// NCCLRemarks reads lines of NCCL, RCCL and the programs around it.
func NCCLRemarks(output []byte) []Remark {
	var all []Remark
	hosts, byRank := ncclPlaces(output)
	if len(hosts) > 1 {
		all = append(all, Remark{What: "ranks by machine", Evidence: strings.Join(byRank, ", ")})
	}
	s := ncclLogged{alone: len(hosts) == 1 || len(hosts) == 0 && ncclOneNode(output)}
	for line := range strings.Lines(string(output)) {
		s.read(strings.TrimRight(line, "\r\n"))
	}
	all = append(all, s.transports(coherent().Match(output), consumer().Match(output))...)
	all = append(all, s.said...)
	if unbound := unboundRanks(output); unbound != "" {
		all = append(all, Remark{What: "mpirun chose the CPUs of the ranks", Possible: true,
			Evidence: "the command has no --bind-to: " + unbound,
			Fix: "--bind-to none, or to the NUMA node of each GPU: by default Open MPI binds a rank to one core (of " +
				"up to two ranks) or to a NUMA node or socket, and NCCL's own threads share that with it"})
	}
	return all
}

func ncclPlaces(output []byte) (hosts, texts []string) {
	var ranks group.By[string, int]
	for _, m := range ncclRanks().FindAllSubmatch(output, MaxNCCLRanks) {
		n, _ := strconv.Atoi(string(m[1])) // a number by the expression
		ranks.Add(string(m[2]), n)
	}
	for _, h := range ranks.Keys {
		texts = append(texts, fmt.Sprintf("%s on %s", rankRanges(ranks.Of(h)), h))
	}
	return ranks.Keys, texts
}

var ncclNodes = lazyregexp.New(`\bnRanks \d+ nNodes (\d+)\b`)

func ncclOneNode(output []byte) bool {
	all := ncclNodes().FindAllSubmatch(output, -1)
	return len(all) > 0 && !slices.ContainsFunc(all, func(m [][]byte) bool { return string(m[1]) != "1" })
}

// rankRanges formats "0-7, 16".
func rankRanges(all []int) string {
	var parts []string
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		part := strconv.Itoa(all[i])
		if j > i {
			part += "-" + strconv.Itoa(all[j])
		}
		parts, i = append(parts, part), j+1
	}
	return strings.Join(parts, ", ")
}

// maxEvidence is in bytes.
const maxEvidence = 100

// MaxNCCLRanks limits the ranks of a log.
const MaxNCCLRanks = 1 << 14

type ncclLogged struct {
	alone bool
	via   group.By[string, string]
	nics  []string
	noGDR []string
	far   []Remark // the first pair of GPU and NIC
	said  []Remark
}

func (s *ncclLogged) read(line string) {
	if strings.Contains(line, " via ") {
		if m := ncclChannel().FindStringSubmatch(line); m != nil {
			s.via.Add(ncclTransport(m[1]), m[1])
			return
		}
	}
	if strings.Contains(line, "NET/IB : Using") {
		for _, m := range ncclNIC().FindAllStringSubmatch(line, -1) {
			s.nics = lists.Add(s.nics, m[1])
		}
	}
	if strings.Contains(line, "GPU Direct RDMA") && !strings.Contains(line, "NET/Socket") {
		if m := ncclGDR().FindStringSubmatch(line); m != nil {
			s.distance(m)
		} else if m := ncclNoGDR().FindStringSubmatch(line); m != nil {
			s.noGDR = lists.Add(s.noGDR, m[1])
		}
		return
	}
	for _, w := range ncclWords {
		if !strings.Contains(line, w.word) || w.between && s.alone {
			continue
		}
		m := w.line().FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		expand := func(text string) string { return string(w.line().ExpandString(nil, text, line, m)) }
		if r := (Remark{What: expand(w.what), Evidence: words.Clip(line[m[0]:m[1]], maxEvidence),
			Fix: expand(w.fix)}); !slices.ContainsFunc(s.said, func(o Remark) bool { return o.What == r.What }) {
			s.said = append(s.said, r)
		}
	}
}

// underSwitch is the largest distance below one PCI Express switch, or two: the numbers of longer paths differ between
// releases.
const underSwitch = 5

func (s *ncclLogged) distance(m []string) {
	gpu, nic := m[2], m[3]
	distance, _ := strconv.Atoi(m[4]) // numbers by the expression
	r := Remark{Evidence: m[0], FarGPU: gpu}
	switch {
	case m[1] == "Disabled":
		r.What = fmt.Sprintf("GPUDirect RDMA is off between GPU %s and HCA %s: they are too far apart", gpu, nic)
		r.Fix = "a NIC below the GPU's switch (nvidia-smi topo -m, NCCL_IB_HCA); NCCL_NET_GDR_LEVEL=PHB or SYS " +
			"allows longer paths"
	case distance > underSwitch:
		r.What = fmt.Sprintf("GPU %s and HCA %s are far apart", gpu, nic)
		r.Fix = fmt.Sprintf("distances of up to %d are below a PCIe switch, longer ones go through a processor, or "+
			"two. Take "+
			"NICs that are near (nvidia-smi topo -m, NCCL_IB_HCA), and leave NCCL_NET_GDR_LEVEL unset", underSwitch)
	default:
		return
	}
	// One pair stands for all.
	if len(s.far) == 0 {
		s.far = append(s.far, r)
	}
}

// ncclTransport turns "NET/IB/1(3)/GDRDMA/Shared" into "NET/IB with GDRDMA".
func ncclTransport(via string) string {
	if m := ncclNet().FindStringSubmatch(via); m != nil {
		switch {
		case m[1] == "Socket":
			return "NET/Socket"
		case strings.Contains(m[2], "/GDRDMA"):
			return "NET/" + m[1] + withGDR
		}
		return "NET/" + m[1] + withoutGDR
	}
	if strings.HasPrefix(via, "SHM") || via == "direct shared memory" {
		return "SHM"
	}
	kind, _, _ := strings.Cut(via, "/")
	return kind
}

const withGDR, withoutGDR = " with GDRDMA", " without GDRDMA"

func (s *ncclLogged) transports(coherent, consumer bool) []Remark {
	var all []Remark
	count := func(kind string) string { return words.Count(len(s.via.Of(kind)), "channel") + " via " + kind }
	if len(s.via.Keys) > 0 {
		all = append(all, Remark{What: "transport", Evidence: strings.Join(lists.Map(s.via.Keys, count), ", ")})
	}
	if len(s.nics) > 0 {
		all = append(all, Remark{What: "NICs that NCCL found", Evidence: strings.Join(s.nics, ", ")})
	}
	staged, direct := "", false
	for _, kind := range s.via.Keys {
		switch {
		case kind == "NET/Socket":
			all = append(all, Remark{What: socketWhat, Evidence: count(kind), Fix: socketFix})
			s.said = slices.DeleteFunc(s.said, func(r Remark) bool { return r.What == socketWhat })
		case strings.HasSuffix(kind, withoutGDR):
			staged = count(kind)
		case strings.HasSuffix(kind, withGDR):
			direct = true
		case kind == "SHM":
			all = append(all, Remark{What: "GPUs of one machine exchange data through main memory",
				Evidence: count(kind),
				Fix: "P2P is to be possible between them: nvidia-smi topo -p2p r, ACS and IOMMU (rackless inspect), " +
					"NCCL_P2P_DISABLE and NCCL_P2P_LEVEL unset; in containers, one IPC and PID namespace for all " +
					"ranks"})
		}
	}
	if len(s.noGDR) > 0 && staged == "" && !direct && !s.alone {
		staged = "disabled for " + strings.Join(s.noGDR, ", ")
	} else if staged != "" && len(s.noGDR) > 0 {
		staged += "; disabled for " + strings.Join(s.noGDR, ", ")
	}
	switch {
	case staged == "":
	case consumer:
		all = append(all, Remark{What: "GPUDirect RDMA is not used", Evidence: staged, Fix: "GeForce GPUs have none: " +
			"the data goes through main " +
			"memory, so GPU, NIC and memory are to be on one NUMA node"})
	default:
		all = append(all, Remark{What: "GPUDirect RDMA is not used", Evidence: staged, Fix: gdrFix})
	}
	if !coherent && !s.alone {
		all = append(all, s.far...)
	}
	return all
}

var (
	ncclLaunch = lazyregexp.New(`(?m)^.*(?:\b(?:mpirun|mpiexec|orterun|prterun)\b|\$\{?MPIRUN\b).*_perf\b.*$`)
	// Options of other launchers, which do not bind, or of Open MPI that choose a binding.
	ncclBound = lazyregexp.New(`-bind-to\b|binding_policy|-genv\b|-ppn\b|-env\b|-prepend-rank|I_MPI_|MV2_|-rankfile|` +
		`hydra|` +
		`\bPE=|cpu-list|numactl|taskset`)
)

// unboundRanks returns the beginning of a command line of Open MPI without a choice of binding, or "".
func unboundRanks(output []byte) string {
	line := string(ncclLaunch().Find(output))
	if line == "" || ncclBound().MatchString(line) {
		return ""
	}
	command, _, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " -x ")
	const most = 60
	if len(command) > most {
		command = strings.ToValidUTF8(command[:most], "") + "..."
	}
	return command
}
