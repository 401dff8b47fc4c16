package guest

import (
	"bufio"
	"cmp"
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

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/facts"
)

// An Identity is what makes a node itself: everything in which the clones of a template must differ.
type Identity struct {
	Name      string
	MachineID string   // 32 hexadecimal digits, see machine-id(5)
	MTU       int      // of every network device, bytes
	Hosts     []string // lines of /etc/hosts for all nodes
	NICs      []NIC    // in the order of eth0, eth1 ...
	Keys      *Keys    // of a full node, which has ssh; nil for others
}

// Keys are those of a lab for ssh, all of the kind ssh-ed25519 and in base64. Private ones are the
// body of a key file of OpenSSH.
type Keys struct {
	Private, Public         string // by which nodes and their users open each other
	HostPrivate, HostPublic string // that all nodes show as servers
}

// A NIC is a network device as the guest is to configure it. It gets a soft RoCE device unless it has RDMA of its own.
type NIC struct {
	Device string // "eth0"
	// Path is where the NIC is found: its directory below the guest's /sys/devices, with * where
	// the guest's firmware numbers a bus, e.g. "pci0000:20/0000:20:00.0/0000:*:00.0". The network
	// device that is there is given the name Device. Empty: it has it already.
	Path string
	MAC  string // set unless it is that already; empty: the NIC keeps its own
	Addr netip.Prefix
}

// NewMachineID returns a random machine-id.
func NewMachineID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// newSeed returns random bytes for the guest's generator, of which the first are a boot ID: a random UUID, and a dot.
func newSeed() string {
	var b [48]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0xf|0x40, b[8]&0x3f|0x80 // version 4, variant 1: RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x.%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16], b[16:])
}

// words are the arguments of "rackless-node configure".
func (id Identity) words() []string {
	w := []string{"configure", id.Name, id.MachineID, strconv.FormatInt(time.Now().Unix(), 10), newSeed(),
		strconv.Itoa(id.MTU)}
	for _, n := range id.NICs {
		device := n.Device
		if n.Path != "" {
			device += "@" + n.Path
		}
		w = append(w, device, cmp.Or(n.MAC, "-"), n.Addr.String())
	}
	return w
}

// hosts are lines of /etc/hosts as one word: ADDRESS=NAME,...
func hosts(lines []string) string {
	return cmp.Or(strings.ReplaceAll(strings.Join(lines, ","), " ", "="), "-")
}

// SetHosts gives a guest that has been configured other names of its peers. Nothing else of it changes, so that what
// runs on it is not disturbed.
func (a *Agent) SetHosts(ctx context.Context, lines []string) error {
	if _, err := a.Output(ctx, "rackless-node", "hosts", hosts(lines)); err != nil {
		return fmt.Errorf("set the names of the peers: %w", err)
	}
	return nil
}

// Configure gives a running guest its identity again and changes what differs: MTU, addresses,
// MACs. It returns what the guest then is.
func (a *Agent) Configure(ctx context.Context, id Identity) (*facts.Node, error) {
	out, err := a.Output(ctx, append([]string{"rackless-node"}, id.words()...)...)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", id.Name, err)
	}
	// A node that an earlier rackless started has no such command, and its peers have no names there, as before.
	_ = a.SetHosts(ctx, id.Hosts)
	return facts.Parse(out)
}

// A Setup is the conversation with the setup port of a node that has just been started. The guest
// has the programs that make it a node waiting for their input since before it was cloned, so that
// this costs a fraction of what the agent would take to start them.
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

// Configure gives the guest its identity and brings its RoCE devices up: clock, random seed, names,
// then for each NIC its MAC, MTU, address and a soft RoCE device. It returns what the guest then
// is.
func (s *Setup) Configure(ctx context.Context, id Identity) (*facts.Node, error) {
	out, err := s.ask(ctx, id.words())
	if k := id.Keys; err == nil && k != nil {
		_, err = s.ask(ctx, []string{"keys", k.Private, k.Public, k.HostPrivate, k.HostPublic})
	}
	if err == nil {
		_, err = s.ask(ctx, []string{"hosts", hosts(id.Hosts)})
	}
	if err != nil {
		return nil, s.wrap(ctx, "configure "+id.Name, err)
	}
	return facts.Parse(out)
}

// Reach pings the addresses with payload bytes each, fragmentation forbidden, and returns those that answered.
func (s *Setup) Reach(ctx context.Context, payload int, addrs []netip.Addr) ([]netip.Addr, error) {
	words := []string{"reach", strconv.Itoa(payload)}
	words = append(words, lists.Map(addrs, netip.Addr.String)...)
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
func (a *Agent) ReadFacts(ctx context.Context) (*facts.Node, error) {
	out, err := a.Output(ctx, "rackless-facts")
	if err != nil {
		return nil, fmt.Errorf("rackless-facts: %w", err)
	}
	return facts.Parse(out)
}
