package texts

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/pciids"
	"github.com/rackless/rackless/topology"
)

// vendorAMD is the number of AMD among makers of PCI functions.
const vendorAMD = 0x1002

// fact enters what is told of a GPU under a key, as rocm-smi and amd-smi call it. Keys that say nothing of the machine,
// such as temperatures, are left out.
func (a *amd) fact(label, key, value string) {
	a.label(label)
	if len(a.labels) == maxGPUs && a.facts[label] == nil {
		return
	}
	g := lists.Made(a.facts, label, topology.GPU{})
	switch key = strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(key)); key {
	case "pci bus", "bdf":
		g.Address = cmp.Or(address(strings.ToLower(value)), g.Address)
	case "card series", "market name", "gpu name":
		// Tools that do not know the card print its number here.
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

// conciseText matches the head of the table that rocm-smi prints without options.
const conciseText = `^(?:GPU|Device) {2,}(?:Temp|Node|\[?Model|Name).*\bPerf\b.*\bGPU%`

var (
	conciseHead = lazyregexp.New(conciseText)
	// conciseRow matches a row of it: "0       2     0x74a1,   28851  41.0°C ... NPS1, SPX, 0 ...", of which older
	// releases have no numbers of devices, and others "[0x0c34 : 0x00]", which is that of the board.
	conciseRow = lazyregexp.New(`^(\d{1,3}) +(?:\d+ +(0x[0-9a-f]{4}), +\d+ |\[|-?[\d.]+°?[cC] |N/A )`)
	// conciseName is a row of its own below, with releases that have numbers of boards.
	conciseName = lazyregexp.New(`^[A-Z][A-Za-z0-9 ]*[A-Z0-9][A-Za-z0-9 ]*$`)
	partitions  = lazyregexp.New(` NPS\d, ([A-Z]{3}), \d+ `)
)

// concise reads the table that rocm-smi prints without options.
func (r *reader) concise(a *amd) {
	table, gpu := false, ""
	for _, line := range r.lines() {
		table = table || conciseHead.MatchString(line)
		m := conciseRow.FindStringSubmatch(line)
		if gpu != "" && m == nil && conciseName.MatchString(line) {
			a.fact(gpu, "card series", line)
		}
		if gpu = ""; !table || m == nil {
			continue
		}
		gpu = "GPU" + m[1]
		a.fact("GPU"+m[1], "did", m[2])
		if p := partitions.FindStringSubmatch(line); p != nil {
			a.fact("GPU"+m[1], "compute partition", p[1])
		}
	}
}

// Two rows of the table that amd-smi prints without options are a GPU:
//
//	| 0000:75:00.0    AMD Instinct MI355X | 0 %      43 °C   0          174/1400 W |
//	|   0       0       5        SPX/NPS1 | 0 %        N/A           283/294896 MB |
var (
	amdRow   = lazyregexp.New(`^\| ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) +(\S.*?) +\|`)
	amdState = lazyregexp.New(`^\| +(\d+) .* (\w{3})/(?:NPS\d|N/A) +\|.*/(\d+ MB) +\|$`)
)

// amdSMI reads amd-smi list and static, which indent what they tell of a GPU, and the table of amd-smi alone.
func (r *reader) amdSMI(a *amd) {
	gpu, section := "", ""
	for _, line := range r.lines() {
		if m := amdRow.FindStringSubmatch(line); m != nil {
			gpu = m[1]
			a.fact(gpu, "gpu name", m[2])
			continue
		}
		if m := amdState.FindStringSubmatch(line); m != nil && gpu != "" {
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

// smiFact enters a value of amd-smi, whose keys mean something in their section only.
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

// amdSMIJSON reads amd-smi list, static and topology with --json.
func (r *reader) amdSMIJSON(a *amd) {
	var list []map[string]any
	r.json(&list)
	// GPUs are called by their addresses where the text has them, as in the matrices.
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

// smiLink enters what amd-smi topology --json says of the link between two GPUs.
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

// scalar is a value of JSON as text; amd-smi writes amounts as {"value": 196592, "unit": "MB"}.
func scalar(v any) string {
	if m, ok := v.(map[string]any); ok {
		return strings.TrimSpace(fmt.Sprint(m["value"], " ", m["unit"]))
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
