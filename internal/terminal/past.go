package terminal

import (
	"encoding/json"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/userfile"
)

// past is how long steps took the last time, by name, in a file: what an image, a template or a test takes differs
// from machine to machine by a factor of a hundred, and hardly from one time to the next.
type past struct {
	path string
	took map[string]float64 // in seconds
}

const (
	worthKnowing = 3 * time.Second // of what is shorter, nobody asks when it ends
	mostSteps    = 500             // beyond, all are forgotten: names of hosts and tests come and go
)

// Remember has the display say how much of a step is left, as far as the file at path knows, and keep there how long
// steps take. A file that cannot be read or written costs no more than that.
func (u *Display) Remember(path string) {
	if !u.live {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.past = past{path: path}
	if b, err := userfile.Read(path, userfile.Text); err == nil {
		_ = json.Unmarshal(b, &u.past.took)
	}
}

// learn keeps how long a step took that has ended well.
func (p *past) learn(e steps.Event) {
	if p.path == "" || e.Err != nil || e.Took < worthKnowing {
		return
	}
	if p.took == nil || len(p.took) > mostSteps {
		p.took = map[string]float64{}
	}
	p.took[e.Step] = e.Took.Seconds()
	if b, err := json.Marshal(p.took); err == nil {
		_ = atomicfile.WriteFile(p.path, b, 0o600)
	}
}

// left is how long a step still takes that has taken so long, by what it took the last time.
func (p *past) left(step string, took time.Duration) time.Duration {
	return time.Duration(p.took[step]*float64(time.Second)) - took
}
