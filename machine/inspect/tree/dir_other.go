//go:build !linux

package tree

import "os"

// Directory is a snapshot of a directory as a tree: it is read whole when opened. Only Linux can confine names in a
// directory that changes meanwhile, and only Linux machines can be read live.
type Directory struct{ *Mem }

// Dir reads a directory with a captured machine as a tree.
func Dir(path string) (*Directory, error) {
	var b Builder
	if err := b.Load(os.DirFS(path)); err != nil {
		return nil, err
	}
	return &Directory{b.Mem()}, nil
}

// Live returns an empty tree, because this program does not run on Linux.
func Live() *Directory { return &Directory{new(Builder).Mem()} }

// Close does nothing.
func (*Directory) Close() error { return nil }
