package tune

import (
	"context"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/topology"
)

const kindCPUMask = "cpumask"

// A CPUMask is a file of the kernel with a mask of CPUs. The same mask has many forms: the kernel
// writes as many digits as it could have CPUs.
type CPUMask struct {
	Path string          `json:"path"`
	CPUs topology.CPUSet `json:"cpus"`
}

// noMask is the state of a file that the kernel does not have. Nothing is to be done then.
const noMask change.State = "none"

// Kind implements [change.Op].
func (m *CPUMask) Kind() string { return kindCPUMask }

// Subject implements [change.Op].
func (m *CPUMask) Subject() string { return m.Path }

// Read implements [change.Op]: the mask as the kernel writes it.
func (m *CPUMask) Read(_ context.Context, s *change.System) (change.State, error) {
	text, err := s.ValueOr(m.Path, string(noMask))
	return change.State(text), err
}

// Done implements [change.Op].
func (m *CPUMask) Done(state change.State) bool {
	have, err := topology.ParseCPUMask(string(state))
	return state == noMask || err == nil && have.Equal(m.CPUs)
}

// Do implements [change.Op].
func (m *CPUMask) Do(_ context.Context, s *change.System) error {
	return s.WriteValue(m.Path, m.CPUs.Mask())
}

// Restore implements [change.Op].
func (m *CPUMask) Restore(ctx context.Context, s *change.System, before change.State) error {
	if now, err := m.Read(ctx, s); err != nil || now == before || before == noMask || now == noMask {
		return err
	}
	return s.WriteValue(m.Path, string(before))
}

// Shell implements [change.Scripted].
func (m *CPUMask) Shell() []string {
	return []string{change.ValueLine("may", "mask", m.Path, m.CPUs.Mask(), "-", "the kernel refuses it")}
}
