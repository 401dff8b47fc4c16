//go:build !linux

package tree

import "os"

// Directory is a snapshot of a directory: only Linux can confine names in one that changes meanwhile.
type Directory struct{ *Mem }

// Dir reads a captured machine.
func Dir(path string) (*Directory, error) {
	var b Builder
	if err := b.Load(os.DirFS(path)); err != nil {
		return nil, err
	}
	return &Directory{b.Mem()}, nil
}

// Live returns an empty tree outside Linux.
func Live() *Directory { return &Directory{new(Builder).Mem()} }

// Close does nothing.
func (*Directory) Close() error { return nil }
