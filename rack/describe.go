package rack

import (
	"context"
	"time"

	"github.com/rackless/rackless/lab"
)

// A Description is a lab as it is now. As JSON it is what rackless ls prints, see docs/json.md.
type Description struct {
	Name     string            `json:"name"`
	Ready    bool              `json:"ready"`  // up has finished
	Switch   string            `json:"switch"` // "running", "dead", or "none" on a host's own NICs
	Driver   string            `json:"driver"`
	Accel    string            `json:"accelerator"`                  // "kvm", "tcg" or "esxi"
	Reason   string            `json:"accelerator_reason,omitempty"` // why it is not kvm
	Emulated bool              `json:"emulated"`
	Kernel   string            `json:"kernel"`
	Image    string            `json:"image"`
	Dir      string            `json:"dir"`
	Home     string            `json:"home,omitempty"` // the directory that is /home of all full nodes
	Created  time.Time         `json:"created"`
	Nodes    []NodeDescription `json:"nodes"` // in the order of the lab file
}

// A NodeDescription is a node as it is now.
type NodeDescription struct {
	Name string `json:"name"`
	// "running", "paused", "dead", "no-adapter", "starting" or "unknown"
	State      string           `json:"state"`
	Error      string           `json:"error,omitempty"` // why it is unknown
	PID        int              `json:"pid,omitempty"`
	CPUs       int              `json:"cpus"`
	Memory     int64            `json:"memory_bytes"`
	Cloned     bool             `json:"cloned"`
	ColdReason string           `json:"cold_reason,omitempty"` // why it was booted
	Started    *time.Time       `json:"started,omitempty"`
	NICs       []NICDescription `json:"nics"`
}

// A NICDescription is a NIC of a node, with the RDMA device on it.
type NICDescription struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Address string `json:"address"` // with the length of its subnet
	RDMA    string `json:"rdma_device,omitempty"`
	GID     *int   `json:"roce_v2_gid_index,omitempty"` // of the address; absent if the device has none
}

// Describe asks the machine of each node how it is, and says what is known of the lab.
func (r *Rack) Describe(ctx context.Context) Description {
	s := r.State
	l := Description{
		Name: r.Lab.Name, Ready: s.Ready, Switch: string(r.SwitchState()), Driver: s.Driver, Accel: s.Accel,
		Reason: s.Emulate, Emulated: !IsHardware(s.Accel), Kernel: s.Kernel, Image: s.Image, Dir: r.Dir,
		Created: s.Created,
	}
	if r.Lab.Home == lab.HomeShared {
		l.Home = r.HomeDir()
	}
	for _, st := range r.Status(ctx) {
		l.Nodes = append(l.Nodes, describeNode(st))
	}
	return l
}

// describeNode says what is known of a node.
func describeNode(st NodeStatus) NodeDescription {
	n := NodeDescription{Name: st.Lab.Name, State: string(st.State), CPUs: st.Lab.CPUs, Memory: int64(st.Lab.Memory)}
	if st.Err != nil {
		n.State, n.Error = "unknown", st.Err.Error()
	}
	for _, nic := range st.Lab.NICs {
		n.NICs = append(n.NICs, NICDescription{Name: nic.Name, MAC: nic.MAC, Address: nic.Addr.String()})
	}
	if st.Node == nil {
		return n
	}
	n.PID, n.Cloned, n.ColdReason, n.Started = st.Node.Process.PID, st.Node.Cloned, st.Node.ColdReason, &st.Node.Started
	if st.Node.Facts == nil {
		return n
	}
	for i, nic := range st.Lab.NICs {
		for on, dev := range st.Node.Facts.RDMADevices() {
			if !on.Has(nic.Name) {
				continue
			}
			n.NICs[i].RDMA = dev.Name
			if gid, ok := dev.Port(1).RoCEv2Index(nic.Addr.Addr()); ok {
				n.NICs[i].GID = &gid
			}
		}
	}
	return n
}
