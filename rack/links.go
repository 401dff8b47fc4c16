package rack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/internal/atomicfile"
)

// linksFile, in the directory of a lab, holds the links that were asked for, by port.
const linksFile = "links.json"

// SetLinks changes links of the switch, and records all links as they are then: as those that are wanted. It returns
// what the switch says afterwards. All changes were checked before: a wrong one leaves every link as it was.
func (r *Rack) SetLinks(ctx context.Context, c *fabric.Client, changes []fabric.PortLink) (fabric.Counters, error) {
	for _, p := range changes {
		if err := c.SetLink(ctx, p.Name, p.Link); err != nil {
			return fabric.Counters{}, err
		}
	}
	after, err := c.Counters(ctx)
	if err != nil {
		return after, err
	}
	if slices.ContainsFunc(after.Ports, func(p fabric.PortCounters) bool { return p.Link.Impaired() }) {
		return after, r.RecordLinks(after)
	}
	// Where nothing was asked for, studies and other programs may do with the links what they like.
	if err := os.Remove(filepath.Join(r.Dir, linksFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return after, err
	}
	return after, nil
}

// RecordLinks records the links that the switch has as those that are wanted.
func (r *Rack) RecordLinks(have fabric.Counters) error {
	want := make(map[string]fabric.Link)
	for _, p := range have.Ports {
		want[p.Name] = p.Link
	}
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(r.Dir, linksFile), text, 0o600)
}

// LinksSet reports whether links that are wanted are recorded.
func (r *Rack) LinksSet() bool {
	_, err := os.Stat(filepath.Join(r.Dir, linksFile))
	return err == nil
}

// SwitchLinks implements check.LinkReader. Whether a port is shut is a matter of other checks.
func (r *Rack) SwitchLinks(ctx context.Context) ([]check.SwitchLink, error) {
	path := filepath.Join(r.Dir, linksFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	want := make(map[string]fabric.Link)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c, err := r.Switch()
	if err != nil {
		return nil, err
	}
	have, err := c.Counters(ctx)
	if err != nil {
		return nil, err
	}
	var out []check.SwitchLink
	for _, p := range have.Ports {
		w, known := want[p.Name]
		if !known { // of a node that came later
			continue
		}
		l := check.SwitchLink{Port: p.Name, Have: "as set", Want: "as set"}
		var is, asked, flags []string
		for _, key := range fabric.LinkKeys() {
			if a, b := p.Link.Get(key), w.Get(key); a != b {
				is, asked, flags = append(is, key+" "+a), append(asked, key+" "+b), append(flags, "--"+key+" "+b)
			}
		}
		if len(is) > 0 {
			l.Have, l.Want = strings.Join(is, ", "), strings.Join(asked, ", ")
			l.Fix = fmt.Sprintf("rackless fabric set %s --port %s %s", r.Lab.Name, p.Name, strings.Join(flags, " "))
		}
		out = append(out, l)
	}
	return out, nil
}
