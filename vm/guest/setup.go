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

// An Identity is everything in which clones must differ.
type Identity struct {
	Name      string
	MachineID string   // 32 hexadecimal digits, see machine-id(5)
	MTU       int      // of every network device, bytes
	Hosts     []string // lines of /etc/hosts
	NICs      []NIC    // eth0, eth1 ...
	Keys      *Keys    // of a full node; else nil
}

// Keys are a lab's ssh-ed25519 keys in base64. Private keys are the body of an OpenSSH key file.
type Keys struct {
	Private, Public         string // of nodes and users for each other
	HostPrivate, HostPublic string // host key of all nodes
}

// A NIC configures a network device, which gets a soft RoCE device unless it has native RDMA.
type NIC struct {
	Device string // "eth0"
	// Path is the NIC's directory below /sys/devices, with * for bus numbers of the guest's firmware, e.g.
	// "pci0000:20/0000:20:00.0/0000:*:00.0". The network device there is renamed to Device. If Path is "", it already
	// has that name.
	Path string
	MAC  string // "" if the NIC keeps its own
	Addr netip.Prefix
}

// NewMachineID returns a random machine-id.
func NewMachineID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// newSeed begins with a boot ID, a random UUID, and a dot.
func newSeed() string {
	var b [48]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0xf|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4, variant 1
	return fmt.Sprintf("%x-%x-%x-%x-%x.%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16], b[16:])
}

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

// hosts writes lines as one word: ADDRESS=NAME,...
func hosts(lines []string) string {
	return cmp.Or(strings.ReplaceAll(strings.Join(lines, ","), " ", "="), "-")
}

// SetHosts changes only the names of peers, so running programs are undisturbed.
func (a *Agent) SetHosts(ctx context.Context, lines []string) error {
	if _, err := a.Output(ctx, "rackless-node", "hosts", hosts(lines)); err != nil {
		return fmt.Errorf("set the names of the peers: %w", err)
	}
	return nil
}

// Configure changes only differences in MTU, addresses and MACs of a running guest. It returns the resulting facts.
func (a *Agent) Configure(ctx context.Context, id Identity) (*facts.Node, error) {
	out, err := a.Output(ctx, append([]string{"rackless-node"}, id.words()...)...)
	if err != nil {
		return nil, fmt.Errorf("configure %s: %w", id.Name, err)
	}
	// An earlier rackless lacks this command.
	_ = a.SetHosts(ctx, id.Hosts)
	return facts.Parse(out)
}

// A Setup is a session on the setup port of a fresh node, whose setup programs have waited since before it was cloned:
// faster than starting them through the agent.
type Setup struct {
	nc net.Conn
	r  *bufio.Reader
}

// NewSetup owns the connection.
func NewSetup(nc net.Conn) *Setup { return &Setup{nc: nc, r: bufio.NewReaderSize(nc, maxSetupLine)} }

// The image may be a stranger's.
const (
	maxSetupLine = 64 << 10
	maxSetup     = 1 << 20
)

// line reads one line.
func (s *Setup) line() (string, error) {
	b, err := s.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = fmt.Errorf("a line of more than %d KiB, which begins with %.80q", maxSetupLine>>10, b)
	}
	return string(b), err
}

// Close ends the session.
func (s *Setup) Close() error { return s.nc.Close() }

// Ready waits until the guest awaits its identity.
func (s *Setup) Ready(ctx context.Context) error {
	defer s.bind(ctx)()
	line, err := s.line()
	if err == nil && line != "ready\n" {
		err = fmt.Errorf("it said %.80q", line)
	}
	return s.wrap(ctx, "wait for the guest", err)
}

// Configure sets clock, random seed and names, then for each NIC its MAC, MTU, address and a soft RoCE device. It
// returns the resulting facts.
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

// Reach pings addrs with payload bytes, unfragmented, and returns the addresses that answered.
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

func (s *Setup) ask(ctx context.Context, words []string) ([]byte, error) {
	defer s.bind(ctx)()
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n\\") { // would be split
			return nil, fmt.Errorf("%q cannot be sent to the guest", w)
		}
	}
	if _, err := s.nc.Write([]byte(strings.Join(words, " ") + "\n")); err != nil {
		return nil, err
	}
	var out []byte
	for read := 0; ; {
		line, err := s.line()
		read += len(line)
		switch {
		case err != nil:
			return nil, err
		case read > maxSetup:
			return nil, fmt.Errorf("an answer of more than %d MiB, which ends with %.80q", maxSetup>>20, line)
		case line == "ready\n": // from a node that was booted
		case line == "done\n":
			return out, nil
		case strings.HasPrefix(line, "failed to "):
			return nil, errors.New(strings.TrimSpace(line))
		default:
			out = append(out, line...)
		}
	}
}

// bind ends the session when ctx is done, until released.
func (s *Setup) bind(ctx context.Context) func() {
	stop := context.AfterFunc(ctx, func() { s.nc.Close() })
	return func() { stop() }
}

// wrap prefers the cause of ctx to the resulting connection error.
func (s *Setup) wrap(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// ReadFacts returns present facts.
func (a *Agent) ReadFacts(ctx context.Context) (*facts.Node, error) {
	out, err := a.Output(ctx, "rackless-facts")
	if err != nil {
		return nil, fmt.Errorf("rackless-facts: %w", err)
	}
	return facts.Parse(out)
}
