//go:build !linux

package tree

import "os"

// Directory is a directory as a tree, as it was when it was opened: it is read whole. Only Linux confines names to a
// directory that changes meanwhile, and only there is a machine to be read.
type Directory struct{ *Mem }

// Dir reads a directory, into which a machine was captured, as a tree.
func Dir(path string) (*Directory, error) {
	var b Builder
	if err := b.Load(os.DirFS(path)); err != nil {
		return nil, err
	}
	return &Directory{b.Mem()}, nil
}

// Live returns an empty tree: what runs this program is no Linux.
func Live() *Directory { return &Directory{new(Builder).Mem()} }

// Close does nothing.
func (*Directory) Close() error { return nil }
