package emulate

import "time"

// An Item is a host as rackless emulate ls shows it, see docs/json.md.
type Item struct {
	Name    string `json:"name"`
	Profile string `json:"profile"`
	State   string `json:"state"` // "running", "off", "starting" or "left"
	Keep    bool   `json:"keep"`
	Owner   int    `json:"owner_pid,omitempty"` // of one that is not kept: the process that it goes with
	PID     int    `json:"pid,omitempty"`       // of QEMU, while it runs
	Size
	Accel      string     `json:"accelerator"`                  // "kvm" or "tcg"
	Reason     string     `json:"accelerator_reason,omitempty"` // why it is not kvm
	Cloned     bool       `json:"cloned"`                       // resumed from a template
	ColdReason string     `json:"cold_reason,omitempty"`        // why it was booted
	Made       time.Time  `json:"made"`
	Booted     *time.Time `json:"booted,omitempty"`
	DiskBytes  int64      `json:"disk_bytes"` // what its disk takes here, beside the image
	Dir        string     `json:"dir"`
}

// A Machine is a profile as rackless emulate profiles shows it.
type Machine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Size
}

// A Size is how much a machine has.
type Size struct {
	CPUs      int   `json:"cpus"`
	NUMANodes int   `json:"numa_nodes"`
	Memory    int64 `json:"memory_bytes"`
	GPUs      int   `json:"gpus"` // stand-ins
	NICs      int   `json:"nics"`
}

func (p *Profile) size() Size {
	return Size{p.CPUs(), len(p.NUMANodes), int64(p.Memory()), len(p.GPUs), len(p.NICs)}
}

// Describe is the machine of a profile.
func (p *Profile) Describe() Machine {
	return Machine{p.Name, p.Description, p.size()}
}

// Describe is the host as it is now. The process counts, and not what the state says of it: a host
// may have been switched off from inside.
func (h *Host) Describe() Item {
	p := h.Profile
	i := Item{
		Name: h.Name, Profile: p.Name, State: "off", Keep: h.Keep, Size: p.size(), Accel: h.Accel,
		Reason: h.AccelReason, Cloned: h.Cloned, ColdReason: h.ColdReason, Made: h.Made, DiskBytes: h.DiskUse(),
		Dir: h.Dir,
	}
	// Who made a host that is kept has ended long ago, and its number may be another's.
	if !h.Keep {
		i.Owner = h.Owner.PID
	}
	if !h.Booted.IsZero() {
		i.Booted = &h.Booted
	}
	switch {
	case !h.Owner.Alive() && (!h.Keep || !h.Ready):
		i.State = "left"
	case !h.Ready:
		i.State = "starting"
	case h.Running():
		i.State, i.PID = "running", h.Process.PID
	}
	return i
}
