package texts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/pciids"
	"github.com/rackless/rackless/machine/topology"
)

const vendorAMD = 0x1002

// fact records a GPU's value from rocm-smi or amd-smi. It ignores other keys, such as temperatures.
func (a *amd) fact(label, key, value string) {
	a.label(label)
	if len(a.labels) == maxGPUs && a.facts[label] == nil {
		return
	}
	g := a.facts[label]
	if g == nil {
		g = &topology.GPU{}
		a.facts[label] = g
	}
	switch key = strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(key)); key {
	case "pci bus", "bdf":
		g.Address = cmp.Or(address(strings.ToLower(value)), g.Address)
	case "card series", "market name", "gpu name":
		// Tools that do not know the card print its number.
		if !strings.HasPrefix(value, "0x") && value != "N/A" {
			g.Model = value
		}
	case "gpu id", "device id", "did":
		if id, err := strconv.ParseUint(value, 0, 16); err == nil && g.Model == "" {
			g.Model = pciids.Device(vendorAMD, uint16(id))
		}
	case "vbios version":
		g.VBIOS = value
	case "compute partition", "accelerator partition":
		if value != "N/A" {
			g.Partition = value
		}
	case "vram total memory (b)", "vram size":
		g.MemoryBytes = size(value)
	}
}

// conciseText is for rocm-smi without options.
const conciseText = `^(?:GPU|Device) {2,}(?:Temp|Node|\[?Model|Name).*\bPerf\b.*\bGPU%`

var (
	conciseHead = lazyregexp.New(conciseText)
	// conciseRow matches "0 2 0x74a1, 28851 41.0°C ... NPS1, SPX, 0 ...". Older releases have no device numbers, and
	// others have the board's number, "[0x0c34 : 0x00]".
	conciseRow = lazyregexp.New(`^(\d{1,3}) +(?:\d+ +(0x[0-9a-f]{4}), +\d+ |\[|-?[\d.]+°?[cC] |N/A )`)
	// conciseName matches the model on the line below a row.
	conciseName = lazyregexp.New(`^[A-Z][A-Za-z0-9 ]*[A-Z0-9][A-Za-z0-9 ]*$`)
	partitions  = lazyregexp.New(` NPS\d, ([A-Z]{3}), \d+ `)
)

func (r *reader) concise(a *amd) {
	table, gpu := false, ""
	for _, line := range r.lines() {
		table = table || conciseHead().MatchString(line)
		m := conciseRow().FindStringSubmatch(line)
		if gpu != "" && m == nil && conciseName().MatchString(line) {
			a.fact(gpu, "card series", line)
		}
		if gpu = ""; !table || m == nil {
			continue
		}
		gpu = "GPU" + m[1]
		a.fact("GPU"+m[1], "did", m[2])
		if p := partitions().FindStringSubmatch(line); p != nil {
			a.fact("GPU"+m[1], "compute partition", p[1])
		}
	}
}

// In amd-smi without options, a GPU has two rows:
//
//	| 0000:75:00.0    AMD Instinct MI355X | 0 %      43 °C   0          174/1400 W |
//	|   0       0       5        SPX/NPS1 | 0 %        N/A           283/294896 MB |
var (
	amdRow   = lazyregexp.New(`^\| ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) +(\S.*?) +\|`)
	amdState = lazyregexp.New(`^\| +(\d+) .* (\w{3})/(?:NPS\d|N/A) +\|.*/(\d+ MB) +\|$`)
)

// amdSMI reads amd-smi list, static, and the table.
func (r *reader) amdSMI(a *amd) {
	gpu, section := "", ""
	for _, line := range r.lines() {
		if m := amdRow().FindStringSubmatch(line); m != nil {
			gpu = m[1]
			a.fact(gpu, "gpu name", m[2])
			continue
		}
		if m := amdState().FindStringSubmatch(line); m != nil && gpu != "" {
			a.fact(gpu, "compute partition", m[2])
			a.fact(gpu, "vram size", m[3])
			a.facts[gpu].Index = count(m[1])
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok:
		case key == "GPU" && count(value) != nil:
			gpu, section = "GPU"+value, ""
			a.label(gpu)
		case gpu == "" || strings.ContainsAny(key, " |="):
		case value == "":
			section = key
		default:
			r.smiFact(a, gpu, section, key, value)
		}
	}
}

// smiFact needs the section, in which keys are unique.
func (r *reader) smiFact(a *amd, gpu, section, key, value string) {
	switch strings.ToUpper(section + "/" + key) {
	case "NUMA/NODE":
		if node := count(value); node != nil {
			a.nodes[gpu] = *node
		}
	case "VRAM/SIZE":
		a.fact(gpu, "vram size", value)
	case "VBIOS/VERSION", "IFWI/VERSION":
		a.fact(gpu, "vbios version", value)
	case "NUMA/AFFINITY":
	default:
		a.fact(gpu, key, value)
	}
}

func (r *reader) amdSMIJSON(a *amd) {
	var list []map[string]any
	r.json(&list)
	// GPUs get their addresses as labels, as in the matrices.
	labels := map[string]string{}
	for _, g := range list {
		n := fmt.Sprint(g["gpu"])
		bdf, _ := g["bdf"].(string)
		if bus, ok := g["bus"].(map[string]any); ok && bdf == "" {
			bdf, _ = bus["bdf"].(string)
		}
		labels[n] = cmp.Or(strings.ToLower(bdf), "GPU"+n)
		a.label(labels[n])
	}
	for _, g := range list {
		gpu := labels[fmt.Sprint(g["gpu"])]
		for section, value := range g {
			switch v := value.(type) {
			case map[string]any:
				for key, value := range v {
					r.smiFact(a, gpu, section, key, scalar(value))
				}
			case []any:
				for _, l := range v {
					if link, ok := l.(map[string]any); ok {
						r.smiLink(a, gpu, labels[fmt.Sprint(link["gpu"])], link)
					}
				}
			default:
				r.smiFact(a, gpu, "", section, fmt.Sprint(value))
			}
		}
	}
}

// smiLink reads amd-smi topology --json.
func (r *reader) smiLink(a *amd, from, to string, link map[string]any) {
	if to == "" || from == to {
		return
	}
	for table, key := range map[string]string{"link type": "link_type", "hops": "num_hops", "weight": "weight"} {
		if value := scalar(link[key]); value != "" {
			a.set(table, from, to, value)
		}
	}
}

// scalar also reads amd-smi's amounts: {"value": 196592, "unit": "MB"}.
func scalar(v any) string {
	if m, ok := v.(map[string]any); ok {
		return strings.TrimSpace(fmt.Sprint(m["value"], " ", m["unit"]))
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// rocm-smi writes "Weight between two GPUs" and "GPU[0] : (Topology) Numa Node: 0", amd-smi "WEIGHT TABLE:" with rows
// by address, and rocm-smi --json keys such as "(Topology) Weight between DRM devices 0 and 1".
var (
	tableTitle = lazyregexp.New(`^(?:=+ +)?(Weight|Hops|Link Type|[A-Z][A-Za-z -]*?)(?: between two GPUs| TABLE:)`)
	gpuLine    = lazyregexp.New(`^(?i:GPU)[ \[]*(\d+)\]?\s*: \(Topology\) (Numa Node|Numa Affinity): *(-?\d+)`)
	// gpuFact matches "GPU[0] : PCI Bus: 0000:C1:00.0".
	gpuFact  = lazyregexp.New(`^GPU\[(\d+)\]\s*:\s*([A-Z][^:]*?)\s*:\s*(\S.*)$`)
	rocmLine = lazyregexp.New(`^=+ *(?:ROCm System Management Interface|(?:Weight|Hops|Link Type|Link accessibility|` +
		`Bandwidth) between two GPUs|Numa Nodes|(?:Concise|Product) Info|PCI Bus ID) *=+$|^GPU\[\d+\]\s*: |` +
		`` + conciseText)
	gpuLabel = lazyregexp.New(`^(?:GPU\d+|(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)
	jsonPair = lazyregexp.New(`^\(Topology\) (Weight|Hops|Link type) between DRM devices (\d+) and (\d+)$`)
)

type amd struct {
	facts  map[string]*topology.GPU
	labels []string
	cells  map[[3]string]string // by title in lower case, and two GPUs
	nodes  map[string]int
}

func (a *amd) set(table, from, to, value string) {
	a.cells[[3]string{strings.ToLower(table), from, to}] = value
	a.label(from)
	a.label(to)
}

// maxGPUs is needed because each pair may make a path.
const maxGPUs = 256

func (a *amd) label(name string) {
	if !slices.Contains(a.labels, name) && len(a.labels) < maxGPUs {
		a.labels = append(a.labels, name)
	}
}

// amdTools reads matrices of rocm-smi, by number, and of amd-smi, by address.
func (r *reader) amdTools() {
	a := &amd{cells: map[[3]string]string{}, nodes: map[string]int{}, facts: map[string]*topology.GPU{}}
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

func (r *reader) amdTables(a *amd) {
	table, columns := "", []string(nil)
	for n, line := range r.lines() {
		words := strings.Fields(line)
		if m := tableTitle().FindStringSubmatch(line); m != nil {
			table, columns = m[1], nil
		} else if m := gpuLine().FindStringSubmatch(line); m != nil {
			a.label("GPU" + m[1])
			if node := count(m[3]); node != nil {
				a.nodes["GPU"+m[1]] = *node
			}
		} else if m := gpuFact().FindStringSubmatch(line); m != nil {
			a.fact("GPU"+m[1], m[2], m[3])
		} else if len(words) == 0 || table == "" || !gpuLabel().MatchString(words[0]) {
			continue
		} else if !slices.ContainsFunc(words, func(w string) bool { return !gpuLabel().MatchString(w) }) {
			// A wide table is split into blocks.
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

func (r *reader) amdJSON(a *amd) {
	var doc map[string]map[string]any
	if !r.json(&doc) {
		return
	}
	for card, values := range doc {
		number, isCard := strings.CutPrefix(card, "card")
		for key, value := range values {
			s, _ := value.(string)
			if m := jsonPair().FindStringSubmatch(key); m != nil {
				a.set(m[1], "GPU"+m[2], "GPU"+m[3], s)
			} else if node := count(s); isCard && node != nil && strings.HasPrefix(key, "(Topology) Numa") {
				a.label("GPU" + number)
				a.nodes["GPU"+number] = *node
			} else if isCard {
				a.fact("GPU"+number, key, s)
			}
		}
	}
	// JSON objects are unordered; length puts GPU10 after GPU9.
	slices.SortFunc(a.labels, func(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) })
}

// amdHost adds the GPUs and their paths. Over PCIe two hops stay within a NUMA node; three or more cross to another.
//
// Source: rsmi_topo_get_link_type in rocm_smi_lib.
func (r *reader) amdHost(a *amd) {
	for i, label := range a.labels {
		var g topology.GPU
		if facts := a.facts[label]; facts != nil {
			g = *facts
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

func (r *reader) contradict(fact, value, other string) {
	source := fmt.Sprintf("%s (%s)", r.Kind.Name, r.File)
	r.h.Contradictions = append(r.h.Contradictions, topology.Contradiction{Fact: fact, Value: value, Source: source,
		Other: other, By: source})
}

func (a *amd) get(table, from, to string) string {
	return cmp.Or(a.cells[[3]string{table, from, to}], a.cells[[3]string{table, to, from}])
}

// amdPath leaves contradictory paths to other sources.
func (r *reader) amdPath(a *amd, i, j int, from, to string) {
	p := topology.Path{A: r.h.GPUs[i].ID(), B: r.h.GPUs[j].ID()}
	hops := count(a.get("hops", from, to))
	nodeA, knownA := a.nodes[from]
	nodeB, knownB := a.nodes[to]
	// The matrices have each pair twice.
	for _, table := range []string{"link type", "hops", "weight"} {
		one, other := a.cells[[3]string{table, from, to}], a.cells[[3]string{table, to, from}]
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
