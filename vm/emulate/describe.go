package emulate

import (
	"time"
)

// An Item is a host in the output of rackless emulate ls; see docs/json.md.
type Item struct {
	Name    string `json:"name"`
	Profile string `json:"profile"`
	State   string `json:"state"` // "running", "off", "starting" or "left"
	Keep    bool   `json:"keep"`
	Owner   int    `json:"owner_pid,omitempty"` // if it is not kept
	PID     int    `json:"pid,omitempty"`       // of QEMU
	Size
	Accel      string     `json:"accelerator"`                  // "kvm" or "tcg"
	Reason     string     `json:"accelerator_reason,omitempty"` // why it is not kvm
	Cloned     bool       `json:"cloned"`                       // resumed from a template
	ColdReason string     `json:"cold_reason,omitempty"`        // why it was booted
	Made       time.Time  `json:"made"`
	Booted     *time.Time `json:"booted,omitempty"`
	DiskBytes  int64      `json:"disk_bytes"` // allocated by its disk here, without the image
	Dir        string     `json:"dir"`
}

// A Machine is a profile in the output of rackless emulate profiles.
type Machine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Size
}

// A Size is the size of a machine.
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

// Describe returns the profile's machine.
func (p *Profile) Describe() Machine {
	return Machine{p.Name, p.Description, p.size()}
}

// Describe returns the current state. The process decides whether the host runs, because it may have been switched off
// from inside.
func (h *Host) Describe() Item {
	p := h.Profile
	i := Item{
		Name: h.Name, Profile: p.Name, State: "off", Keep: h.Keep, Size: p.size(), Accel: h.Accel,
		Reason: h.AccelReason, Cloned: h.Cloned, ColdReason: h.ColdReason, Made: h.Made, DiskBytes: h.DiskUse(),
		Dir: h.Dir,
	}
	// The maker has ended, and its process number may be reused.
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
