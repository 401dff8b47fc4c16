package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

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
	text, err := s.Value(m.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return noMask, nil
	}
	return change.State(text), err
}

// Done implements [change.Op].
func (m *CPUMask) Done(state change.State) bool {
	have, err := topology.ParseCPUMask(string(state))
	return state == noMask || err == nil && have.Equal(m.CPUs)
}

// Do implements [change.Op].
func (m *CPUMask) Do(_ context.Context, s *change.System) error {
	return s.WriteValue(m.Path, maskText(m.CPUs))
}

// Restore implements [change.Op].
func (m *CPUMask) Restore(ctx context.Context, s *change.System, before change.State) error {
	now, err := m.Read(ctx, s)
	if err != nil || now == before || before == noMask || now == noMask {
		return err
	}
	return s.WriteValue(m.Path, string(before))
}

// maskText writes a set as the kernel reads masks: hexadecimal words of 32 CPUs, the highest first
// (lib/bitmap.c, bitmap_parse).
func maskText(cpus topology.CPUSet) string {
	var words []uint32
	for c := range cpus.All() {
		for len(words) <= c/32 {
			words = append(words, 0)
		}
		words[c/32] |= 1 << (c % 32)
	}
	if len(words) == 0 {
		return "0"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%x", words[len(words)-1])
	for i := len(words) - 2; i >= 0; i-- {
		fmt.Fprintf(&b, ",%08x", words[i])
	}
	return b.String()
}
