package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// An Identity is what makes a node itself: everything in which the clones of a template must differ.
type Identity struct {
	Name      string
	MachineID string // 32 hexadecimal digits, see machine-id(5)
	MTU       int    // of every network device, bytes
	NICs      []NIC  // in the order of eth0, eth1 ...
}

// A NIC is a network device as the guest is to configure it.
type NIC struct {
	Device string // "eth0"
	MAC    string
	Addr   netip.Prefix
}

// NewMachineID returns a random machine-id.
func NewMachineID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// words are the arguments of "rackless-node configure".
func (id Identity) words() []string {
	var seed [32]byte
	rand.Read(seed[:])
	w := []string{"configure", id.Name, id.MachineID, strconv.FormatInt(time.Now().Unix(), 10), hex.EncodeToString(seed[:]), strconv.Itoa(id.MTU)}
	for _, n := range id.NICs {
		w = append(w, n.Device, n.MAC, n.Addr.String())
	}
	return w
}

// Configure gives a running guest its identity again and changes what differs: MTU, addresses, MACs. It returns what the guest then is.
func (a *Agent) Configure(ctx context.Context, id Identity) (*Facts, error) {
	r, err := a.Run(ctx, Command{Argv: append([]string{"rackless-node"}, id.words()...)})
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", id.Name, err)
	}
	if r.ExitCode != 0 {
		return nil, fmt.Errorf("configure %s: exit status %d: %s", id.Name, r.ExitCode, bytes.TrimSpace(r.Stderr))
	}
	return ParseFacts(r.Stdout)
}

// A Setup is the conversation with the setup port of a node that has just been started. The guest has the programs that make it a node
// waiting for their input since before it was cloned, so that this costs a fraction of what the agent would take to start them.
type Setup struct {
	nc net.Conn
	r  *bufio.Reader
}

// NewSetup talks over the connection, and closes it at its end.
func NewSetup(nc net.Conn) *Setup { return &Setup{nc: nc, r: bufio.NewReader(nc)} }

// Close ends the conversation.
func (s *Setup) Close() error { return s.nc.Close() }

// Ready returns when the guest has booted so far that it waits for its identity.
func (s *Setup) Ready(ctx context.Context) error {
	defer s.bind(ctx)()
	line, err := s.r.ReadString('\n')
	if err == nil && line != "ready\n" {
		err = fmt.Errorf("it said %q", line)
	}
	return s.wrap(ctx, "wait for the guest", err)
}

// Configure gives the guest its identity and brings its RoCE devices up: clock, random seed, names, then for each NIC its MAC, MTU, address and
// a soft RoCE device. It returns what the guest then is.
func (s *Setup) Configure(ctx context.Context, id Identity) (*Facts, error) {
	out, err := s.ask(ctx, id.words())
	if err != nil {
		return nil, s.wrap(ctx, "configure "+id.Name, err)
	}
	return ParseFacts(out)
}

// Reach pings the addresses with payload bytes each, fragmentation forbidden, and returns those that answered.
func (s *Setup) Reach(ctx context.Context, payload int, addrs []netip.Addr) ([]netip.Addr, error) {
	words := []string{"reach", strconv.Itoa(payload)}
	for _, a := range addrs {
		words = append(words, a.String())
	}
	out, err := s.ask(ctx, words)
	if err != nil {
		return nil, s.wrap(ctx, "ping the peers", err)
	}
	var answered []netip.Addr
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		a, err := netip.ParseAddr(line)
		if err != nil {
			return nil, fmt.Errorf("ping the peers: %w", err)
		}
		answered = append(answered, a)
	}
	return answered, nil
}

// ask sends one request and returns the answer's lines up to "done".
func (s *Setup) ask(ctx context.Context, words []string) ([]byte, error) {
	defer s.bind(ctx)()
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\\") { // the guest takes the line apart at white space
			return nil, fmt.Errorf("%q cannot be sent to the guest", w)
		}
	}
	if _, err := s.nc.Write([]byte(strings.Join(words, " ") + "\n")); err != nil {
		return nil, err
	}
	var out []byte
	for {
		line, err := s.r.ReadString('\n')
		switch {
		case err != nil:
			return nil, err
		case line == "ready\n": // of a node that was booted
		case line == "done\n":
			return out, nil
		case strings.HasPrefix(line, "failed to "):
			return nil, errors.New(strings.TrimSpace(line))
		default:
			out = append(out, line...)
		}
	}
}

// bind makes the end of ctx break the conversation; the returned function undoes it.
func (s *Setup) bind(ctx context.Context) func() {
	stop := context.AfterFunc(ctx, func() { s.nc.Close() })
	return func() { stop() }
}

// wrap prefers the reason why ctx ended to the broken connection that followed from it.
func (s *Setup) wrap(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// ReadFacts asks the guest what it is now.
func (a *Agent) ReadFacts(ctx context.Context) (*Facts, error) {
	r, err := a.Run(ctx, Command{Argv: []string{"rackless-facts"}})
	if err != nil {
		return nil, err
	}
	if r.ExitCode != 0 {
		return nil, fmt.Errorf("rackless-facts: exit status %d: %s", r.ExitCode, bytes.TrimSpace(r.Stderr))
	}
	return ParseFacts(r.Stdout)
}

// Facts are what a guest's kernel says of it. Empty strings and zeros mean that it did not say.
type Facts struct {
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

// ParseFacts reads what rackless-facts prints: a key with slashes, a space, a value.
func ParseFacts(out []byte) (*Facts, error) {
	f := &Facts{Net: map[string]*NetDevice{}, RDMA: map[string]*RDMADevice{}}
	sc := bufio.NewScanner(bytes.NewReader(out))
	for sc.Scan() {
		key, value, _ := strings.Cut(sc.Text(), " ")
		if err := f.set(strings.Split(key, "/"), value); err != nil {
			return nil, fmt.Errorf("rackless-facts: %q: %w", sc.Text(), err)
		}
	}
	return f, sc.Err()
}

func (f *Facts) set(key []string, value string) (err error) {
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
