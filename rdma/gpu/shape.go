package gpu

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// stateFormat must be raised if older states become unusable without a change that Shape sees.
const stateFormat = 1

// Shape returns a digest of the properties that a driver sees. A state can only be restored into a GPU of its shape and
// size.
func Shape(model string, p Personality) string {
	m, _ := ModelOf(model)
	g := &GPU{model: m, cfg: Config{Class: Class3D, Memory: m.Memory, Model: model, Personality: p}}
	g.describe()
	h := sha256.New()
	fmt.Fprintln(h, stateFormat, m, bar0Size, vectors, g.config)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// VRAM returns memory of the first of a guest's GPUs that has it at guest-physical addresses, or nil.
func VRAM(gpus []*GPU, addr, size uint64) []byte {
	for _, g := range gpus {
		if m := g.VRAM(addr, size); m != nil {
			return m
		}
	}
	return nil
}
