package rack

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
)

// A Difference is what up would change in a running lab. As JSON it is what lab diff prints, see docs/json.md.
type Difference struct {
	Lab     string       `json:"lab"`
	Running bool         `json:"running"`
	Changes []lab.Change `json:"changes"`          // between the running lab and the file
	Repairs []string     `json:"repairs"`          // what up would start again, although the file has not changed there
	Effect  lab.Effect   `json:"effect,omitempty"` // the dearest of the changes: "live", "recreate" or "rebuild"
}

// Compare compares a lab with the running one of its name. If that is not running there are no changes: up would make
// all of it.
func Compare(ctx context.Context, d Dirs, l *lab.Lab) (Difference, error) {
	out := Difference{Lab: l.Name, Changes: []lab.Change{}, Repairs: []string{}}
	r, err := Open(d, l.Name)
	if errors.Is(err, ErrNotRunning) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.Running = true
	out.Changes = append(out.Changes, lab.Diff(r.State.Lab, l)...)
	out.Effect = lab.Dearest(out.Changes)
	// A dead switch or node is no difference to the file, but up would start it again, and who asks what
	// up does wants to know.
	if r.SwitchState() == SwitchDead {
		out.Repairs = append(out.Repairs, "switch: not running")
	}
	for _, st := range r.Status(ctx) {
		switch {
		case st.Err != nil:
			return out, fmt.Errorf("node %s: %w", st.Lab.Name, st.Err)
		case st.State == vm.Dead || st.State == Starting || st.State == NoAdapter:
			out.Repairs = append(out.Repairs, fmt.Sprintf("%s: %s", st.Lab.Name, st.State))
		}
	}
	return out, nil
}

// Text prints one line a change of a lab with so many nodes.
func (d Difference) Text(nodes int) string {
	if !d.Running {
		return fmt.Sprintf("lab %s is not running: up would start %s\n", d.Lab, words.Count(nodes, "node"))
	}
	var b strings.Builder
	for _, c := range d.Changes {
		fmt.Fprintln(&b, c)
	}
	for _, r := range d.Repairs {
		fmt.Fprintf(&b, "%s (up starts it again)\n", r)
	}
	if b.Len() == 0 {
		return fmt.Sprintf("lab %s is as the file says: up would change nothing\n", d.Lab)
	}
	return b.String()
}
