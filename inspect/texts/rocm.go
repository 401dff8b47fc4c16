package texts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/topology"
)

// Lines of the tables. rocm-smi writes "===== Weight between two GPUs =====" and "GPU[0] : (Topology) Numa Node: 0",
// amd-smi "WEIGHT TABLE:" with rows by address, and rocm-smi --json keys such as "(Topology) Weight between DRM devices
// 0 and 1".
var (
	tableTitle = lazyregexp.New(`^(?:=+ +)?(Weight|Hops|Link Type|[A-Z][A-Za-z -]*?)(?: between two GPUs| TABLE:)`)
	gpuLine    = lazyregexp.New(`^(?i:GPU)[ \[]*(\d+)\]?\s*: \(Topology\) (Numa Node|Numa Affinity): *(-?\d+)`)
	// Other lines about one GPU: "GPU[0]		: PCI Bus: 0000:C1:00.0".
	gpuFact  = lazyregexp.New(`^GPU\[(\d+)\]\s*:\s*([A-Z][^:]*?)\s*:\s*(\S.*)$`)
	rocmLine = lazyregexp.New(`^=+ *(?:ROCm System Management Interface|(?:Weight|Hops|Link Type|Link accessibility|` +
		`Bandwidth) between two GPUs|Numa Nodes|(?:Concise|Product) Info|PCI Bus ID) *=+$|^GPU\[\d+\]\s*: |` +
		`` + conciseText)
	gpuLabel = lazyregexp.New(`^(?:GPU\d+|(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)
	jsonPair = lazyregexp.New(`^\(Topology\) (Weight|Hops|Link type) between DRM devices (\d+) and (\d+)$`)
)

// An amd is the tables of AMD's tools: a value for two GPUs, by the title of the table in lower case.
type amd struct {
	facts  map[string]*topology.GPU // what is told of each beside the tables
	labels []string
	tables map[string]map[[2]string]string
	nodes  map[string]int
}

func (a *amd) set(table, from, to, value string) {
	table = strings.ToLower(table)
	if a.tables[table] == nil {
		a.tables[table] = map[[2]string]string{}
	}
	a.tables[table][[2]string{from, to}] = value
	a.label(from)
	a.label(to)
}

// maxGPUs bounds the GPUs of one text, as each two of them may make a path.
const maxGPUs = 256

// label notes a GPU in the order of its first mention.
func (a *amd) label(name string) {
	if !slices.Contains(a.labels, name) && len(a.labels) < maxGPUs {
		a.labels = append(a.labels, name)
	}
}

// amdTools reads what rocm-smi and amd-smi print: lists, and matrices, where GPUs have numbers with rocm-smi and
// addresses with amd-smi.
func (r *reader) amdTools() {
	a := &amd{tables: map[string]map[[2]string]string{}, nodes: map[string]int{}, facts: map[string]*topology.GPU{}}
	switch first := strings.TrimSpace(r.Text.Text); {
	case strings.HasPrefix(first, "{"):
		r.amdJSON(a)
	case strings.HasPrefix(first, "["):
		r.amdSMIJSON(a)
	default:
		r.amdTables(a)
		r.concise(a)
		r.amdSMI(a)
	}
	r.amdHost(a)
}

// amdTables reads the matrices, and lines about single GPUs.
func (r *reader) amdTables(a *amd) {
	table, columns := "", []string(nil)
	for n, line := range r.lines() {
		words := strings.Fields(line)
		if m := tableTitle.FindStringSubmatch(line); m != nil {
			table, columns = m[1], nil
		} else if m := gpuLine.FindStringSubmatch(line); m != nil {
			a.label("GPU" + m[1])
			if node := count(m[3]); node != nil {
				a.nodes["GPU"+m[1]] = *node
			}
		} else if m := gpuFact.FindStringSubmatch(line); m != nil {
			a.fact("GPU"+m[1], m[2], m[3])
		} else if len(words) == 0 || table == "" || !gpuLabel.MatchString(words[0]) {
			continue
		} else if !slices.ContainsFunc(words, func(w string) bool { return !gpuLabel.MatchString(w) }) {
			// A wide table comes in several blocks of columns.
			if columns = words; len(words) == 1 {
				a.label(words[0])
			}
		} else if len(words)-1 != len(columns) {
			r.note(n, "table %q: %s has %d values for %d GPUs", table, words[0], len(words)-1, len(columns))
		} else {
			for i, value := range words[1:] {
				a.set(table, words[0], columns[i], value)
			}
		}
	}
}

// amdJSON reads rocm-smi --showtopo --json.
func (r *reader) amdJSON(a *amd) {
	var doc map[string]map[string]any
	if !r.json(&doc) {
		return
	}
	for card, values := range doc {
		number, isCard := strings.CutPrefix(card, "card")
		for key, value := range values {
			s, _ := value.(string)
			if m := jsonPair.FindStringSubmatch(key); m != nil {
				a.set(m[1], "GPU"+m[2], "GPU"+m[3], s)
			} else if node := count(s); isCard && node != nil && strings.HasPrefix(key, "(Topology) Numa") {
				a.label("GPU" + number)
				a.nodes["GPU"+number] = *node
			} else if isCard {
				a.fact("GPU"+number, key, s)
			}
		}
	}
	// The objects of JSON have no order. By length first, GPU10 comes after GPU9.
	slices.SortFunc(a.labels, func(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) })
}

// amdHost makes GPUs and their paths of the tables. XGMI links GPUs directly. Over PCIe one hop less than three stays
// within a NUMA node, and which bridges are on the way is not told; three or more cross to another node.
//
// Source: rsmi_topo_get_link_type in rocm_smi_lib.
func (r *reader) amdHost(a *amd) {
	for i, label := range a.labels {
		g := topology.GPU{}
		if known := a.facts[label]; known != nil {
			g = *known
		}
		g.Name, g.Kind, g.Vendor = label, topology.GPUDiscrete, "Advanced Micro Devices, Inc. [AMD/ATI]"
		if at := address(label); at != nil {
			g.Address, g.Name, g.Index = at, "", cmp.Or(g.Index, new(i))
		} else {
			g.Index = count(strings.TrimPrefix(label, "GPU"))
		}
		if node, ok := a.nodes[label]; ok {
			g.NUMANode = &node
		}
		links := lists.Count(a.labels,
			func(other string) bool { return strings.EqualFold(a.get("link type", label, other), "XGMI") })
		if links > 0 {
			g.NVLinks = &links
		}
		r.h.GPUs = append(r.h.GPUs, g)
	}
	for i, from := range a.labels {
		for j := i + 1; j < len(a.labels); j++ {
			r.amdPath(a, i, j, from, a.labels[j])
		}
	}
}

// contradict notes a fact that the text tells in two ways.
func (r *reader) contradict(fact, value, other string) {
	source := fmt.Sprintf("%s (%s)", r.Kind.Name, r.File)
	r.h.Contradictions = append(r.h.Contradictions, topology.Contradiction{Fact: fact, Value: value, Source: source,
		Other: other, By: source})
}

// get returns a cell, from either of its places.
func (a *amd) get(table, from, to string) string {
	return cmp.Or(a.tables[table][[2]string{from, to}], a.tables[table][[2]string{to, from}])
}

// amdPath adds the path between the GPUs i and j, unless the tables disagree about it: then it notes what they say, and
// leaves the path to the other sources.
func (r *reader) amdPath(a *amd, i, j int, from, to string) {
	p := topology.Path{A: r.h.GPUs[i].ID(), B: r.h.GPUs[j].ID()}
	hops := count(a.get("hops", from, to))
	nodeA, knownA := a.nodes[from]
	nodeB, knownB := a.nodes[to]
	// The matrices have each pair twice, which must be the same.
	for _, table := range []string{"link type", "hops", "weight"} {
		one, other := a.tables[table][[2]string{from, to}], a.tables[table][[2]string{to, from}]
		if one != "" && other != "" && one != other {
			r.contradict(fmt.Sprintf("%s %s - %s", table, from, to), one, other+" the other way")
			return
		}
	}
	switch kind := strings.ToUpper(a.get("link type", from, to)); {
	case kind == "XGMI":
		p.Class = topology.PathNVLink
	case kind != "PCIE":
		return
	case hops != nil && *hops >= 3, hops == nil && knownA && knownB && nodeA != nodeB:
		p.Class = topology.PathSYS
		if knownA && knownB && nodeA == nodeB {
			r.contradict(fmt.Sprintf("path %s - %s", from, to), fmt.Sprintf("%d hops over PCIe: between NUMA nodes",
				*hops), fmt.Sprintf("both are on node %d", nodeA))
		}
	case hops != nil && *hops == 2 && knownA && knownB && nodeA != nodeB:
		r.contradict(fmt.Sprintf("path %s - %s", from, to), "2 hops over PCIe: within a NUMA node",
			fmt.Sprintf("they are on nodes %d and %d", nodeA, nodeB))
		return
	default:
		return
	}
	r.h.Reported = append(r.h.Reported, p)
}
