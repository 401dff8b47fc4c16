package libvirtxml

// A CPU is the processor that the guest sees.
type CPU struct {
	Why         string       `xml:",comment"`
	Mode        string       `xml:"mode,attr"` // "host-passthrough", "maximum"
	Check       string       `xml:"check,attr,omitempty"`
	Migratable  string       `xml:"migratable,attr,omitempty"` // "on" or "off"
	Topology    *Topology    `xml:"topology"`
	Cache       *Cache       `xml:"cache"`
	MaxPhysAddr *MaxPhysAddr `xml:"maxphysaddr"`
	Features    []CPUFeature `xml:"feature"`
	NUMA        *NUMA        `xml:"numa"`
}

// A Topology is how virtual CPUs make up the processor. The product of its parts is the number of virtual CPUs.
type Topology struct {
	Why     string `xml:",comment"`
	Sockets int    `xml:"sockets,attr"`
	Cores   int    `xml:"cores,attr"`
	Threads int    `xml:"threads,attr"`
}

// A Cache says what the guest sees of caches.
type Cache struct {
	Why  string `xml:",comment"`
	Mode string `xml:"mode,attr"` // "passthrough"
}

// MaxPhysAddr says how many bits a physical address of the guest has.
type MaxPhysAddr struct {
	Why  string `xml:",comment"`
	Mode string `xml:"mode,attr"` // "passthrough": as many as the host's
}

// A CPUFeature is one feature flag.
type CPUFeature struct {
	Why    string `xml:",comment"`
	Policy string `xml:"policy,attr"` // "require", "disable"
	Name   string `xml:"name,attr"`
}

// NUMA is the NUMA nodes that the guest sees. libvirt calls them cells.
type NUMA struct {
	Why   string `xml:",comment"`
	Cells []Cell `xml:"cell"`
}

// A Cell is one of them. Without CPUs it is a node of memory alone.
type Cell struct {
	Why       string     `xml:",comment"`
	ID        int        `xml:"id,attr"`
	CPUs      string     `xml:"cpus,attr,omitempty"`
	Memory    uint64     `xml:"memory,attr"`
	Unit      string     `xml:"unit,attr,omitempty"`
	Distances *Distances `xml:"distances"`
}

// CellOf returns a Cell of so many bytes.
func CellOf(id int, cpus string, bytes uint64) Cell {
	memory, unit := scaled(bytes)
	return Cell{ID: id, CPUs: cpus, Memory: memory, Unit: unit}
}

// Bytes returns the memory of the cell in bytes.
func (c Cell) Bytes() (uint64, error) { return inBytes(c.Memory, c.Unit) }

// Distances are from one cell to all.
type Distances struct {
	Siblings []Sibling `xml:"sibling"`
}

// A Sibling is the distance to one cell; 10 is local.
type Sibling struct {
	ID    int `xml:"id,attr"`
	Value int `xml:"value,attr"`
}
