package libvirt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"github.com/rogpeppe/go-internal/diff"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
)

// A State is a domain's, in libvirt's words.
type State string

// States of a domain.
const (
	Running     State = "running"
	Idle        State = "idle" // of Xen; running but idle
	Paused      State = "paused"
	InShutdown  State = "in shutdown"
	Shutoff     State = "shut off"
	Crashed     State = "crashed"
	PMSuspended State = "pmsuspended" // the guest sleeps
)

// Active means that the domain has a process.
func (s State) Active() bool { return s != Shutoff && s != Crashed && s != "" }

// A Domain is a domain of rackless or of somebody else.
type Domain struct {
	Name  string
	UUID  string
	State State
	// Node is nil if the domain is not rackless'.
	Node *Mark

	ref api.Domain
}

var states = map[api.DomainState]State{
	api.DomainNostate: "no state", api.DomainRunning: Running, api.DomainBlocked: Idle, api.DomainPaused: Paused,
	api.DomainShutdown: InShutdown, api.DomainShutoff: Shutoff, api.DomainCrashed: Crashed,
	api.DomainPmsuspended: PMSuspended,
}

// List returns all domains by name. Some may be missing if they appear or vanish meanwhile.
func (c *Conn) List(ctx context.Context) ([]Domain, error) {
	all, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) ([]api.Domain, error) {
		list, _, err := l.ConnectListAllDomains(1, 0)
		return list, err
	})
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	var list []Domain
	for _, ref := range all {
		d, err := c.look(ctx, ref)
		if errors.Is(err, ErrNoDomain) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list domains: %w", err)
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Domain) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// ErrNoDomain says that a domain does not exist.
var ErrNoDomain = errors.New("no such domain")

func (c *Conn) look(ctx context.Context, ref api.Domain) (Domain, error) {
	text, err := c.xml(ctx, ref, api.DomainXMLInactive)
	if err != nil {
		return Domain{}, err
	}
	d, err := parseDomain(text)
	if err != nil {
		return Domain{}, fmt.Errorf("domain %s: %w", ref.Name, err)
	}
	state, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) (api.DomainState, error) {
		state, _, err := l.DomainGetState(ref, 0)
		return api.DomainState(state), err
	})
	if err != nil {
		return Domain{}, gone(ref.Name, err)
	}
	// An unknown state of a newer libvirt is "", which is not active.
	d.State, d.ref = states[state], ref
	return d, nil
}

// xml returns the running definition or, with DomainXMLInactive, the persistent one, which a transient domain lacks.
func (c *Conn) xml(ctx context.Context, ref api.Domain, flags api.DomainXMLFlags) ([]byte, error) {
	text, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) (string, error) { return l.DomainGetXMLDesc(ref, flags) })
	return []byte(text), gone(ref.Name, err)
}

func gone(name string, err error) error {
	if refused(err, api.ErrNoDomain) {
		return fmt.Errorf("%w: %s", ErrNoDomain, name)
	}
	if err != nil {
		return fmt.Errorf("domain %s: %w", name, err)
	}
	return nil
}

// Get returns ErrNoDomain if there is no such domain.
func (c *Conn) Get(ctx context.Context, name string) (Domain, error) {
	if err := checkName(name); err != nil {
		return Domain{}, err
	}
	ref, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) (api.Domain, error) { return l.DomainLookupByName(name) })
	if err != nil {
		return Domain{}, gone(name, err)
	}
	return c.look(ctx, ref)
}

// checkName accepts names of lab.VMName.
func checkName(name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`'"/\`, r)
	}) || name[0] == '-' {
		return fmt.Errorf("domain name %q: want LAB.NODE", name)
	}
	return nil
}

// ErrForeign means that rackless leaves alone a domain that it did not define.
var ErrForeign = errors.New("not a domain of rackless")

func (c *Conn) own(ctx context.Context, name string) (Domain, error) {
	d, err := c.Get(ctx, name)
	if err == nil && d.Node == nil {
		err = fmt.Errorf("domain %s at %s is %w and stays as it is: rename it, or name the lab otherwise", name, c.URI,
			ErrForeign)
	}
	return d, err
}

// define validates by libvirt's schema. A running domain keeps its old definition until its next start.
func (c *Conn) define(ctx context.Context, name string, xml []byte) error {
	c.validate.Lock()
	defer c.validate.Unlock()
	return c.defineWith(ctx, name, xml, api.DomainDefineValidate)
}

func (c *Conn) defineWith(ctx context.Context, name string, xml []byte, flags api.DomainDefineFlags) error {
	trace.Changes("define domain %s", name)
	_, err := ask(ctx, c, probeLimit, func(l *api.Libvirt) (api.Domain, error) {
		return l.DomainDefineXMLFlags(string(xml), flags)
	})
	if err != nil {
		return fmt.Errorf("define domain %s: %w", name, err)
	}
	return nil
}

// Foreign returns somebody else's domain, with its definition for the next start, including secrets. It refuses domains
// of rackless and transient ones.
func (c *Conn) Foreign(ctx context.Context, name string) (d Domain, xml []byte, err error) {
	if d, err = c.Get(ctx, name); err != nil {
		return d, nil, err
	}
	if d.Node != nil {
		return d, nil, fmt.Errorf("domain %s at %s is node %s of lab %s: rackless up changes it, from the lab's file",
			name, c.URI, d.Node.Node, d.Node.Lab)
	}
	kept, err := ask(ctx, c, queryLimit, func(l *api.Libvirt) (int32, error) { return l.DomainIsPersistent(d.ref) })
	if err == nil && kept == 0 {
		err = errors.New("it is transient: it has no next start, and to define it would make it stay")
	}
	if err != nil {
		return d, nil, fmt.Errorf("domain %s at %s: %w", name, c.URI, err)
	}
	xml, err = c.xml(ctx, d.ref, api.DomainXMLInactive|api.DomainXMLSecure)
	return d, xml, err
}

// RedefineForeign changes somebody else's domain for its next start. The user must have named it.
func (c *Conn) RedefineForeign(ctx context.Context, name string, xml []byte) error {
	if _, _, err := c.Foreign(ctx, name); err != nil {
		return err
	}
	// Unvalidated, because the rest comes from libvirt itself.
	return c.defineWith(ctx, name, xml, 0)
}

// Start starts a domain of rackless. It fails if the domain already runs.
func (c *Conn) Start(ctx context.Context, name string) error {
	d, err := c.own(ctx, name)
	if err != nil {
		return err
	}
	trace.Changes("start domain %s", name)
	if err := c.tell(ctx, startLimit, func(l *api.Libvirt) error { return l.DomainCreate(d.ref) }); err != nil {
		return fmt.Errorf("start domain %s: %w", name, err)
	}
	return nil
}

const shutdownPoll = 200 * time.Millisecond

// Shutdown asks the guest of a rackless domain, by its agent or else by the power button, and ends the domain by force
// after grace. It does nothing if the domain does not run.
func (c *Conn) Shutdown(ctx context.Context, name string, grace time.Duration) error {
	d, err := c.own(ctx, name)
	if err != nil || !d.State.Active() {
		return err
	}
	trace.Changes("shut domain %s down", name)
	deadline := time.Now().Add(grace)
	if err := c.tell(ctx, agentLimit, func(l *api.Libvirt) error {
		return l.DomainShutdownFlags(d.ref, api.DomainShutdownGuestAgent|api.DomainShutdownAcpiPowerBtn)
	}); err != nil {
		if !refused(err) {
			return fmt.Errorf("shut domain %s down: %w", name, err)
		}
		// Without an agent and ACPI.
		deadline = time.Now()
	}
	for {
		d, err := c.look(ctx, d.ref)
		if err != nil && !errors.Is(err, ErrNoDomain) {
			return err
		}
		if !d.State.Active() {
			return nil
		}
		if !time.Now().Before(deadline) {
			return c.Destroy(ctx, name)
		}
		if err := wait.For(ctx, shutdownPoll); err != nil {
			return fmt.Errorf("shut domain %s down: %w", name, err)
		}
	}
}

// Destroy ends a domain of rackless at once, if it runs.
func (c *Conn) Destroy(ctx context.Context, name string) error {
	d, err := c.own(ctx, name)
	if err != nil || !d.State.Active() {
		return err
	}
	trace.Changes("destroy domain %s", name)
	err = c.tell(ctx, startLimit, func(l *api.Libvirt) error { return l.DomainDestroy(d.ref) })
	if err != nil && !refused(err, api.ErrOperationInvalid) { // it has ended meanwhile
		return fmt.Errorf("destroy domain %s: %w", name, err)
	}
	return nil
}

// Restart ends a domain of rackless at once and starts it again. After a reset it would end instead (on_reboot).
func (c *Conn) Restart(ctx context.Context, name string) error {
	if err := c.Destroy(ctx, name); err != nil {
		return err
	}
	return c.Start(ctx, name)
}

// Undefine removes a stopped domain of rackless, if it exists, with its firmware variables but not its disks.
func (c *Conn) Undefine(ctx context.Context, name string) error {
	d, err := c.own(ctx, name)
	if errors.Is(err, ErrNoDomain) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.State.Active() { // libvirt would remove it only at its end
		return fmt.Errorf("undefine domain %s: it is %s: destroy it first", name, d.State)
	}
	if err := c.tell(ctx, queryLimit, func(l *api.Libvirt) error {
		return l.DomainUndefineFlags(d.ref, api.DomainUndefineNvram|api.DomainUndefineManagedSave|
			api.DomainUndefineSnapshotsMetadata)
	}); err != nil {
		return fmt.Errorf("undefine domain %s: %w", name, err)
	}
	return nil
}

const maxDiff = 20

func diffLines(before, after []byte) []string {
	var out []string
	unified := diff.Diff("before", trimLines(before), "after", trimLines(after))
	for i, line := range strings.Split(string(unified), "\n") {
		if i > 2 && line != "" && strings.Contains("-+", line[:1]) { // after the documents' names
			out = append(out, line[:1]+" "+line[1:])
		}
	}
	if more := len(out) - maxDiff; more > 0 {
		out = append(out[:maxDiff], fmt.Sprintf("and %d lines more", more))
	}
	return out
}

func trimLines(text []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(text) {
		b.Write(append(bytes.TrimSpace(line), '\n'))
	}
	return b.Bytes()
}
