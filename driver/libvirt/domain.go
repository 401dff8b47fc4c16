package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// A State is what a domain is doing, in libvirt's words.
type State string

// The states of a domain.
const (
	Running     State = "running"
	Idle        State = "idle" // of Xen; running, and waits for work
	Paused      State = "paused"
	InShutdown  State = "in shutdown"
	Shutoff     State = "shut off"
	Crashed     State = "crashed"
	PMSuspended State = "pmsuspended" // the guest sleeps
)

// Active reports whether the domain has a process.
func (s State) Active() bool { return s != Shutoff && s != Crashed && s != "" }

// A Domain is one domain as libvirt has it.
type Domain struct {
	Name  string
	UUID  string
	State State
	// Node says which lab node it is; nil for a domain that is not rackless'.
	Node *Mark
}

// List returns all domains, running or not, by name. What comes and goes meanwhile may be missing.
func (c *Conn) List(ctx context.Context) ([]Domain, error) {
	out, err := c.run(ctx, queryLimit, "list", "--all", "--uuid")
	if err != nil {
		return nil, fmt.Errorf("list domains: %w", err)
	}
	var list []Domain
	for uuid := range strings.FieldsSeq(string(out)) {
		d, err := c.look(ctx, uuid)
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

// ErrNoDomain is a domain that libvirt does not have.
var ErrNoDomain = errors.New("no such domain")

// look reads one domain by UUID or name.
func (c *Conn) look(ctx context.Context, id string) (Domain, error) {
	text, err := c.xml(ctx, id)
	if err != nil {
		return Domain{}, err
	}
	d, err := parseDomain(text)
	if err != nil {
		return Domain{}, fmt.Errorf("domain %s: %w", id, err)
	}
	state, err := c.run(ctx, queryLimit, "domstate", "--domain", d.UUID)
	if err != nil {
		return Domain{}, gone(id, err)
	}
	d.State = State(strings.TrimSpace(string(state)))
	return d, nil
}

// xml returns what a domain was defined as, in libvirt's form; of one that was never defined what it runs as.
func (c *Conn) xml(ctx context.Context, id string) ([]byte, error) {
	text, err := c.run(ctx, queryLimit, "dumpxml", "--domain", id, "--inactive")
	return text, gone(id, err)
}

// gone makes ErrNoDomain of what virsh says of a domain that is not there.
func gone(id string, err error) error {
	if v, refused := errors.AsType[*virshError](err); refused && (strings.Contains(v.text, "failed to get domain") ||
		strings.Contains(v.text, "Domain not found")) {
		return fmt.Errorf("%w: %s", ErrNoDomain, id)
	}
	if err != nil {
		return fmt.Errorf("domain %s: %w", id, err)
	}
	return nil
}

// Get returns a domain by its name, or ErrNoDomain.
func (c *Conn) Get(ctx context.Context, name string) (Domain, error) {
	if err := checkName(name); err != nil {
		return Domain{}, err
	}
	d, err := c.look(ctx, name)
	if err == nil && d.Name != name { // virsh takes numbers and UUIDs for names, too
		return Domain{}, fmt.Errorf("%w: %s", ErrNoDomain, name)
	}
	return d, err
}

// XML returns the XML of a domain of rackless, in libvirt's form: what it runs as, or what it is
// defined as where it does not.
func (c *Conn) XML(ctx context.Context, name string) ([]byte, error) {
	d, err := c.own(ctx, name)
	if err != nil {
		return nil, err
	}
	text, err := c.run(ctx, queryLimit, "dumpxml", "--domain", d.UUID)
	return text, gone(name, err)
}

// checkName refuses what is no name that render.DomainName makes.
func checkName(name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`'"/\`, r)
	}) || name[0] == '-' {
		return fmt.Errorf("domain name %q: want LAB.NODE", name)
	}
	return nil
}

// ErrForeign is a domain that rackless did not define, and that it therefore leaves alone.
var ErrForeign = errors.New("not a domain of rackless")

// own returns a domain of rackless by its name.
func (c *Conn) own(ctx context.Context, name string) (Domain, error) {
	d, err := c.Get(ctx, name)
	if err == nil && d.Node == nil {
		err = fmt.Errorf("domain %s at %s is %w and stays as it is: rename it, or name the lab otherwise", name, c.URI,
			ErrForeign)
	}
	return d, err
}

// Define gives libvirt a domain of rackless, new or changed, as render.Domains makes it, after
// validation by libvirt's schema. It does not start it; one that runs stays as it is until it is
// started again. A domain of the same name that is not rackless' is ErrForeign.
func (c *Conn) Define(ctx context.Context, name string, xml []byte) error {
	marked, err := mark(name, xml)
	if err != nil {
		return fmt.Errorf("define domain %s: %w", name, err)
	}
	if _, err := c.own(ctx, name); err != nil && !errors.Is(err, ErrNoDomain) {
		return err
	}
	return c.define(ctx, name, marked)
}

// define passes the document in a file, as virsh wants it.
func (c *Conn) define(ctx context.Context, name string, xml []byte) error {
	f, err := os.CreateTemp("", "rackless-*.xml")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(xml)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, err := c.run(ctx, probeLimit, "define", "--validate", "--file", f.Name()); err != nil {
		return fmt.Errorf("define domain %s: %w", name, err)
	}
	return nil
}

// Start starts a defined domain of rackless. One that runs already is an error.
func (c *Conn) Start(ctx context.Context, name string) error {
	d, err := c.own(ctx, name)
	if err != nil {
		return err
	}
	if _, err := c.run(ctx, startLimit, "start", "--domain", d.UUID); err != nil {
		return fmt.Errorf("start domain %s: %w", name, err)
	}
	return nil
}

// shutdownPoll is how often Shutdown looks whether a domain has ended.
const shutdownPoll = 200 * time.Millisecond

// Shutdown asks the guest of a domain of rackless to end, by its agent and where it has none by the
// power button, and ends it by force after grace. One that does not run is no error.
func (c *Conn) Shutdown(ctx context.Context, name string, grace time.Duration) error {
	d, err := c.own(ctx, name)
	if err != nil || !d.State.Active() {
		return err
	}
	deadline := time.Now().Add(grace)
	if _, err := c.run(ctx, queryLimit, "shutdown", "--domain", d.UUID, "--mode", "agent,acpi"); err != nil {
		if _, refused := errors.AsType[*virshError](err); !refused {
			return fmt.Errorf("shut domain %s down: %w", name, err)
		}
		deadline = time.Now() // it will not end by itself
	}
	for {
		d, err := c.look(ctx, d.UUID)
		if err != nil && !errors.Is(err, ErrNoDomain) {
			return err
		}
		if !d.State.Active() {
			return nil
		}
		if !time.Now().Before(deadline) {
			return c.Destroy(ctx, name)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("shut domain %s down: %w", name, context.Cause(ctx))
		case <-time.After(shutdownPoll):
		}
	}
}

// Destroy ends a domain of rackless at once. One that does not run is no error.
func (c *Conn) Destroy(ctx context.Context, name string) error {
	d, err := c.own(ctx, name)
	if err != nil || !d.State.Active() {
		return err
	}
	_, err = c.run(ctx, startLimit, "destroy", "--domain", d.UUID)
	if v, refused := errors.AsType[*virshError](err); refused && strings.Contains(v.text, "domain is not running") {
		// it ended meanwhile
		return nil
	}
	if err != nil {
		return fmt.Errorf("destroy domain %s: %w", name, err)
	}
	return nil
}

// Restart ends a domain of rackless at once and starts it anew. A reset would not do: domains of
// nodes end where they would boot again (on_reboot).
func (c *Conn) Restart(ctx context.Context, name string) error {
	if err := c.Destroy(ctx, name); err != nil {
		return err
	}
	return c.Start(ctx, name)
}

// Undefine makes libvirt forget a domain of rackless that does not run, with the variables of its
// firmware. Its disks stay. One that is not there is no error.
func (c *Conn) Undefine(ctx context.Context, name string) error {
	d, err := c.own(ctx, name)
	if errors.Is(err, ErrNoDomain) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.State.Active() { // libvirt would forget it only when it ends
		return fmt.Errorf("undefine domain %s: it is %s: destroy it first", name, d.State)
	}
	if _, err := c.run(ctx, queryLimit, "undefine", "--domain", d.UUID, "--nvram", "--managed-save",
		"--snapshots-metadata"); err != nil {
		return fmt.Errorf("undefine domain %s: %w", name, err)
	}
	return nil
}
