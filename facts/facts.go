// Package facts holds what a node says of itself: the output of rackless-facts, which every node of the built-in image has, as values.
package facts

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Node is what the kernel of a node says of it. Empty strings and zeros mean that it did not say.
type Node struct {
	Hostname  string
	MachineID string
	UUID      string // a fresh random number of its generator, to compare between nodes
	Kernel    string
	Net       map[string]*NetDevice // by name
	RDMA      map[string]*RDMADevice
}

// A NetDevice is one network device: /sys/class/net/NAME.
type NetDevice struct {
	MAC       string
	MTU       int // bytes
	OperState string
	Carrier   string
}

// An RDMADevice is one RDMA device with the state of its port 1: /sys/class/infiniband/NAME.
type RDMADevice struct {
	NodeGUID  string
	Parent    string // the network device of a soft RoCE device
	State     string // e.g. "4: ACTIVE"
	LinkLayer string
	Rate      string
	GIDs      []GID // slots in use, by index
	Counters  map[string]uint64
}

// A GID is one slot of a port's GID table.
type GID struct {
	Index  int
	GID    netip.Addr
	Type   string // "IB/RoCE v1" or "RoCE v2"
	NetDev string
}

// RoCEv2Index returns the slot of the RoCE v2 GID that stands for an IPv4 address. The index differs between NICs and must never be assumed.
func (d *RDMADevice) RoCEv2Index(addr netip.Addr) (int, bool) {
	for _, g := range d.GIDs {
		if g.Type == "RoCE v2" && g.GID.Unmap() == addr.Unmap() {
			return g.Index, true
		}
	}
	return 0, false
}

// Parse reads what rackless-facts prints: a key with slashes, a space, a value.
func Parse(out []byte) (*Node, error) {
	f := &Node{Net: map[string]*NetDevice{}, RDMA: map[string]*RDMADevice{}}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		key, value, _ := strings.Cut(sc.Text(), " ")
		if err := f.set(strings.Split(key, "/"), value); err != nil {
			return nil, fmt.Errorf("rackless-facts: %q: %w", sc.Text(), err)
		}
	}
	return f, sc.Err()
}

func (f *Node) set(key []string, value string) (err error) {
	switch {
	case len(key) == 1:
		switch key[0] {
		case "hostname":
			f.Hostname = value
		case "machine-id":
			f.MachineID = value
		case "uuid":
			f.UUID = value
		case "kernel":
			f.Kernel = value
		}
	case key[0] == "net" && len(key) == 3:
		d := f.Net[key[1]]
		if d == nil {
			d = &NetDevice{}
			f.Net[key[1]] = d
		}
		switch key[2] {
		case "mac":
			d.MAC = value
		case "mtu":
			d.MTU, err = strconv.Atoi(value)
		case "operstate":
			d.OperState = value
		case "carrier":
			d.Carrier = value
		}
	case key[0] == "rdma" && len(key) >= 3:
		d := f.RDMA[key[1]]
		if d == nil {
			d = &RDMADevice{Counters: map[string]uint64{}}
			f.RDMA[key[1]] = d
		}
		return d.set(key[2:], value)
	}
	return err
}

func (d *RDMADevice) set(key []string, value string) (err error) {
	if len(key) == 1 {
		switch key[0] {
		case "node_guid":
			d.NodeGUID = value
		case "parent":
			d.Parent = value
		}
		return nil
	}
	if key[0] != "1" { // soft RoCE devices have one port
		return nil
	}
	switch key[1] {
	case "state":
		d.State = value
	case "link_layer":
		d.LinkLayer = value
	case "rate":
		d.Rate = value
	case "counter":
		if len(key) == 3 {
			d.Counters[key[2]], err = strconv.ParseUint(value, 10, 64)
		}
	case "gid":
		f := strings.SplitN(value, " ", 3)
		if len(key) != 3 || len(f) != 3 {
			return fmt.Errorf("want gid, network device and type")
		}
		g := GID{NetDev: f[1], Type: f[2]}
		if g.Index, err = strconv.Atoi(key[2]); err != nil {
			return err
		}
		if g.GID, err = netip.ParseAddr(f[0]); err != nil {
			return err
		}
		d.GIDs = append(d.GIDs, g)
	}
	return err
}
