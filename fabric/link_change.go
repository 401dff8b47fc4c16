package fabric

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// A PortLink is the link from the switch to a node.
type PortLink struct {
	Name string `json:"name"`
	Link Link   `json:"link"`
}

// A LinkEdit is one setting that a call asks for.
type LinkEdit struct{ Key, Text string }

// DownKey is the key of a LinkEdit that sets a port down ("yes") or up again ("no"). It is none of
// LinkKeys, since it is no setting of frames that pass.
const DownKey = "down"

// ChangeLinks returns the new links of the named ports, or of all if none is named. It returns
// either all of them or an error.
func ChangeLinks(have []PortCounters, named []string, reset bool, edits []LinkEdit) ([]PortLink, error) {
	names := lists.Map(have, func(p PortCounters) string { return p.Name })
	for _, n := range named {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("--port %s: the switch has no such port; it has %s", n, strings.Join(names, ", "))
		}
	}
	var out []PortLink
	for _, p := range have {
		if len(named) > 0 && !slices.Contains(named, p.Name) {
			continue
		}
		l := p.Link
		if reset {
			l = Link{}
		}
		for _, e := range edits {
			if e.Key == DownKey {
				l.Down = e.Text == "yes"
			} else if err := l.Set(e.Key, e.Text); err != nil {
				return nil, fmt.Errorf("--%s: %w", e.Key, err)
			}
		}
		if err := l.Validate(); err != nil {
			return nil, fmt.Errorf("port %s: %w", p.Name, err)
		}
		out = append(out, PortLink{p.Name, l})
	}
	return out, nil
}

// A LinkFlag is a flag for one setting. A wrong value is refused when the command line is read.
type LinkFlag struct {
	Key   string
	Edits *[]LinkEdit
}

// String returns no default: a setting that is not named stays as it is.
func (f LinkFlag) String() string { return "" }

// Type returns the placeholder that the help shows for the value.
func (f LinkFlag) Type() string { return linkKeys[slices.Index(LinkKeys(), f.Key)].kind }

// Set keeps the edit, and refuses a wrong value. Edits are kept in the order of the command line, since a later one may
// take an earlier one away.
func (f LinkFlag) Set(text string) error {
	*f.Edits = append(*f.Edits, LinkEdit{Key: f.Key, Text: text})
	return new(Link).Set(f.Key, text)
}

// Help returns the text of the flag.
func (f LinkFlag) Help() string { return linkKeys[slices.Index(LinkKeys(), f.Key)].help }
