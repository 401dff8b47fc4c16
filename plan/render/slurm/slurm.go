// Package slurm writes slurm.conf, gres.conf, topology.conf and cgroup.conf, which are the same on all nodes of a
// cluster: a lab, with nodes that describe themselves ([NodeOf]), or real machines. They are for Slurm 22.05 (Debian
// 12) and newer.
package slurm

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/rackless/rackless/internal/group"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
)

// A Cluster is the input.
type Cluster struct {
	Name       string
	Controller string   // need not be one of Nodes
	Nodes      []Node   // at least one
	Switches   []Switch // without any, there is no topology.conf
	// MPI is srun's default plugin: "pmix", "pmi2", or empty.
	MPI string
	// Made names the program and the input, in one line.
	Made string
}

// A Node runs jobs.
type Node struct {
	Name      string
	Sockets   int   // of the machine
	Cores     int   // per socket
	Threads   int   // per core
	MemoryMiB int64 // for jobs; 0 means that Slurm does not count memory
	Devices   []Device
}

// A Device is a GPU or a NIC that jobs request, as in --gres=gpu:1,nic:1.
type Device struct {
	Kind string // GPU or NIC
	Type string // "h100" or "mlx5_0"; may be empty
	File string // /dev/nvidia0; empty if unknown: Slurm then ignores Cores
	// Cores are next to the device, in the order of Slurm and hwloc: the first core of the first socket is 0. Empty
	// means that all are equal.
	Cores topology.CPUSet
}

// Kinds of devices, by Slurm's names.
const (
	GPU = "gpu"
	NIC = "nic"
)

// A Switch joins nodes, or other switches.
type Switch struct {
	Name     string
	Nodes    []string
	Switches []string
}

// name is safe in a line: Slurm interprets blanks, commas, brackets and equals signs.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

func (c Cluster) check() error {
	if len(c.Nodes) == 0 {
		return errors.New("no node")
	}
	words := []string{c.Name, c.Controller}
	if c.MPI != "" {
		words = append(words, c.MPI)
	}
	seen := make(map[string]bool)
	for _, n := range c.Nodes {
		if seen[n.Name] {
			return fmt.Errorf("node %s: there are two of that name", n.Name)
		}
		seen[n.Name] = true
		if n.Sockets < 1 || n.Cores < 1 || n.Threads < 1 || n.MemoryMiB < 0 {
			return fmt.Errorf("node %s: %d sockets of %d cores with %d threads, %d MiB: want at least 1 of each",
				n.Name, n.Sockets, n.Cores, n.Threads, n.MemoryMiB)
		}
		words = append(words, n.Name)
		for _, d := range n.Devices {
			words = append(words, d.Kind, cmp.Or(d.Type, "any"))
			if strings.ContainsAny(d.File, " ,[]=#\n") {
				return fmt.Errorf("node %s: file %q of %s", n.Name, d.File, d.Kind)
			}
			if cores := n.Sockets * n.Cores; !d.Cores.IsSubsetOf(topology.CPURange(0, cores-1)) {
				return fmt.Errorf("node %s: cores %s of %s, and it has %d", n.Name, d.Cores, d.Kind, cores)
			}
		}
	}
	for _, s := range c.Switches {
		words = append(append(append(words, s.Name), s.Nodes...), s.Switches...)
		for _, n := range s.Nodes {
			if !seen[n] {
				return fmt.Errorf("switch %s: no node %s", s.Name, n)
			}
		}
	}
	for _, w := range words {
		if !name.MatchString(w) {
			return fmt.Errorf("%q is not a name for Slurm: want letters, digits, hyphens, dots and underscores", w)
		}
	}
	return nil
}

// Files are for /etc/slurm. The same cluster gives the same bytes.
func Files(c Cluster) ([]render.Artifact, error) {
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("slurm: %w", err)
	}
	var b strings.Builder
	if err := conf.Execute(&b, c); err != nil {
		return nil, fmt.Errorf("slurm: %w", err)
	}
	all := []render.Artifact{c.file("slurm.conf", b.String()), c.file("cgroup.conf", c.cgroupConf())}
	if gres := c.gresConf(); gres != "" {
		all = append(all, c.file("gres.conf", gres))
	}
	if len(c.Switches) > 0 {
		all = append(all, c.file("topology.conf", c.topologyConf()))
	}
	return all, nil
}

func (c Cluster) file(path, text string) render.Artifact {
	made := strings.Join(strings.Fields(cmp.Or(c.Made, "Made by rackless.")), " ")
	return render.Artifact{Path: path, Mode: 0o644, Data: []byte("# " + made + "\n" + text)}
}

//go:embed slurm.conf.tmpl
var confText string

var conf = template.Must(template.New("slurm.conf").Funcs(template.FuncMap{"join": strings.Join, "hosts": HostList,
	"kinds": Cluster.kinds, "memoryPerCPU": Cluster.memoryPerCPU,
	"alike": func(nodes []Node) *group.By[string, string] { return alike(nodes, Node.line) },
	"names": func(nodes []Node) []string { return lists.Map(nodes, func(n Node) string { return n.Name }) },
}).Parse(confText))

// memoryPerCPU is the smallest of any node in MiB, or 0 if one is unknown. Otherwise a job without a request would get
// all memory of its nodes.
func (c Cluster) memoryPerCPU() int64 {
	least := int64(math.MaxInt64)
	for _, n := range c.Nodes {
		if n.MemoryMiB == 0 {
			return 0
		}
		least = min(least, n.MemoryMiB/int64(n.Sockets*n.Cores*n.Threads))
	}
	return max(1, least)
}

func (n Node) line() string {
	s := fmt.Sprintf("CPUs=%d Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d", n.Sockets*n.Cores*n.Threads,
		n.Sockets, n.Cores, n.Threads)
	if n.MemoryMiB > 0 {
		s += fmt.Sprintf(" RealMemory=%d", n.MemoryMiB)
	}
	var gres []string
	for i, d := range n.Devices {
		word := d.word()
		if slices.IndexFunc(n.Devices, func(o Device) bool { return o.word() == word }) < i {
			continue
		}
		count := lists.Count(n.Devices, func(o Device) bool { return o.word() == word })
		gres = append(gres, fmt.Sprintf("%s:%d", word, count))
	}
	return s + setting("Gres", strings.Join(gres, ","))
}

func (d Device) word() string {
	if d.Type == "" {
		return d.Kind
	}
	return d.Kind + ":" + d.Type
}

func (c Cluster) kinds() (kinds []string) {
	for _, n := range c.Nodes {
		kinds = append(kinds, lists.Map(n.Devices, func(d Device) string { return d.Kind })...)
	}
	return lists.Distinct(kinds)
}

func (c Cluster) gresConf() string {
	var b strings.Builder
	all := alike(c.Nodes, Node.devices)
	for _, text := range all.Keys {
		for line := range strings.Lines(text) {
			fmt.Fprintf(&b, "NodeName=%s %s", HostList(all.Of(text)), line)
		}
	}
	return b.String()
}

func (n Node) devices() string {
	var b strings.Builder
	for _, d := range n.Devices {
		fmt.Fprintf(&b, "Name=%s%s%s%s\n", d.Kind, setting("Type", d.Type),
			cmp.Or(setting("File", d.File), " Count=1"), setting("Cores", d.Cores.String()))
	}
	return b.String()
}

func setting(name, value string) string {
	if value == "" {
		return ""
	}
	return " " + name + "=" + value
}

func (c Cluster) topologyConf() string {
	var b strings.Builder
	for _, s := range c.Switches {
		fmt.Fprintf(&b, "SwitchName=%s%s%s\n", s.Name, setting("Nodes", HostList(s.Nodes)),
			setting("Switches", HostList(s.Switches)))
	}
	return b.String()
}

// cgroupConf confines jobs to their cores, their memory, and the GPUs that they requested.
func (c Cluster) cgroupConf() string {
	gpus := slices.ContainsFunc(c.Nodes, func(n Node) bool {
		return slices.ContainsFunc(n.Devices, func(d Device) bool { return d.Kind == GPU && d.File != "" })
	})
	devices := "no"
	if gpus {
		devices = "yes"
	}
	return "ConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices=" + devices + "\n"
}

// alike leaves out nodes with an empty result of say.
func alike(nodes []Node, say func(Node) string) *group.By[string, string] {
	var all group.By[string, string]
	for _, n := range nodes {
		if text := say(n); text != "" {
			all.Add(text, n.Name)
		}
	}
	return &all
}

// HostList formats names like Slurm: vm[00-03,07],head.
func HostList(names []string) string {
	var out []string
	for i := 0; i < len(names); {
		stem, digits := cut(names[i])
		k := i + 1
		for k < len(names) && digits != "" {
			if s, d := cut(names[k]); s != stem || len(d) != len(digits) {
				break
			}
			k++
		}
		if k == i+1 {
			out = append(out, names[i])
		} else {
			out = append(out, stem+"["+ranges(names[i:k], len(stem))+"]")
		}
		i = k
	}
	return strings.Join(out, ",")
}

func ranges(names []string, stem int) string {
	var out []string
	for i := 0; i < len(names); {
		k := i
		for k+1 < len(names) && number(names[k+1][stem:]) == number(names[k][stem:])+1 {
			k++
		}
		if text := names[i][stem:]; k == i {
			out = append(out, text)
		} else {
			out = append(out, fmt.Sprintf("%s-%s", text, names[k][stem:]))
		}
		i = k + 1
	}
	return strings.Join(out, ",")
}

// cut does not split a name before more than nine digits.
func cut(name string) (stem, digits string) {
	stem = strings.TrimRight(name, "0123456789")
	if len(name)-len(stem) > 9 {
		return name, ""
	}
	return stem, name[len(stem):]
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // at most nine digits, see cut
	return n
}
