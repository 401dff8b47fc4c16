package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/vm/libvirt"
)

// A Domain is somebody else's, whose user has named it. A change counts from its next start; a journal has the earlier
// description, byte for byte.
type Domain struct {
	libvirt.Domain
	Text string // definition for its next start

	conn    *libvirt.Conn
	journal string
}

// Find returns a domain by its name. Its journal is below dir.
func Find(ctx context.Context, conn *libvirt.Conn, dir, name string) (*Domain, error) {
	d, text, err := conn.Foreign(ctx, name)
	if err != nil {
		return nil, err
	}
	return &Domain{Domain: d, Text: string(text), conn: conn, journal: filepath.Join(dir, d.UUID)}, nil
}

// Machine returns the domain for Check.
func (d *Domain) Machine(ctx context.Context) (*inspect.Machine, error) {
	return inspect.ParseMachine(ctx, d.Text, d.Name+".xml")
}

// Apply redefines the domain with text, made from d.Text. It may be called again: Undo always restores the description
// from before the first time.
func (d *Domain) Apply(ctx context.Context, text string) (err error) {
	j, err := change.Open(d.journal, d.kinds())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	op := &definition{Name: d.Name, UUID: d.UUID, XML: text, conn: d.conn}
	_, err = change.Make(ctx, &change.System{Root: "/"}, j, []change.Step{{Op: op, What: "define domain " + d.Name,
		Guard: func(ctx context.Context, s *change.System) error {
			if now, err := op.Read(ctx, s); err != nil || string(now) != d.Text {
				return cmp.Or(err, fmt.Errorf("domain %s was changed in the meantime: look again", d.Name))
			}
			return nil
		}}}, nil)
	return err
}

// ErrNotAdopted is returned if rackless has not changed the domain.
var ErrNotAdopted = errors.New("rackless has not adopted it")

// Before returns the description from before the first Apply.
func (d *Domain) Before() (string, error) {
	e, err := d.entry()
	if err != nil {
		return "", err
	}
	return string(e.Before), nil
}

func (d *Domain) entry() (*change.Entry, error) {
	entries, err := change.ReadJournal(d.journal, d.kinds())
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("domain %s at %s: %w", d.Name, d.conn.URI, ErrNotAdopted)
	}
	if err != nil {
		return nil, err
	}
	return entries[0], nil
}

// Undo restores the description from Before. If any part was changed since, it fails and changes nothing.
func (d *Domain) Undo(ctx context.Context) (err error) {
	e, err := d.entry()
	if err != nil {
		return err
	}
	before := string(e.Before)
	if d.Text != before && !e.Op.Done(change.State(d.Text)) {
		return fmt.Errorf("domain %s has been changed since it was adopted, and that would be lost: undo by hand "+
			"what --undo --dry-run shows (virsh edit %[1]s)", d.Name)
	}
	was, err := beside(before)
	if err != nil {
		return err
	}
	if is, err := beside(d.Text); err != nil || is != was {
		return cmp.Or(err, fmt.Errorf("domain %s has been changed since it was adopted, beside its CPUs and memory "+
			"nodes, and that would be lost: undo by hand what --undo --dry-run shows (virsh edit %[1]s)", d.Name))
	}
	j, err := change.Open(d.journal, d.kinds())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	_, err = change.Rollback(ctx, &change.System{Root: "/"}, j, nil)
	return err
}

func (d *Domain) kinds() change.Kinds {
	return change.Kinds{kind: func() change.Op { return &definition{conn: d.conn} }}
}

const kind = "libvirt domain"

// A definition is the journaled operation. Its state is the domain's complete XML.
type definition struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	XML  string `json:"xml"`

	conn *libvirt.Conn
}

func (*definition) Kind() string      { return kind }
func (o *definition) Subject() string { return o.UUID }

func (o *definition) Read(ctx context.Context, _ *change.System) (change.State, error) {
	d, text, err := o.conn.Foreign(ctx, o.Name)
	if err == nil && d.UUID != o.UUID {
		err = fmt.Errorf("domain %s is another one now: its UUID is %s, and was %s", o.Name, d.UUID, o.UUID)
	}
	return change.State(text), err
}

// Done compares the meaning, because libvirt rewrites its input.
func (o *definition) Done(s change.State) bool {
	now, err := inspect.ParseMachine(context.Background(), string(s), o.Name)
	wanted, err2 := inspect.ParseMachine(context.Background(), o.XML, o.Name)
	return err == nil && err2 == nil && reflect.DeepEqual(now.Tenant, wanted.Tenant)
}

func (o *definition) Do(ctx context.Context, _ *change.System) error {
	return o.conn.RedefineForeign(ctx, o.Name, []byte(o.XML))
}

func (o *definition) Restore(ctx context.Context, _ *change.System, before change.State) error {
	return o.conn.RedefineForeign(ctx, o.Name, []byte(before))
}

// Outcome describes the result under the user's name for the domain. connect is the URI that the user must specify, or
// ""; differs is set if the new description is different.
func (d *Domain) Outcome(name, connect string, undo, changed, differs bool) string {
	const later = "\nIt runs as before until it is shut down and started again; a reboot in the guest is not enough."
	text := "\n"
	switch {
	case !changed && !differs:
		return "domain " + name + " stays as it is\n"
	case !changed:
		return "" // a dry run
	case undo:
		text += "domain " + name + " has its old description again"
	default:
		text += "domain " + name + " has the new description; to undo that: rackless host adopt " + name +
			" --undo"
		if connect != "" {
			text += " --connect " + connect
		}
	}
	if d.State.Active() {
		text += later
	}
	return text + "\n"
}
