//go:build linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack/vram"
	"github.com/rackless/rackless/report/tables"
)

// gpuDirectInLab's tried is false if args name no running lab: a file of that name is read as a machine.
func (a *app) gpuDirectInLab(ctx context.Context, format string, args []string) (tried bool, err error) {
	if len(args) != 1 || args[0] == "-" {
		return false, nil
	}
	if _, err := os.Stat(args[0]); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	r, err := a.openLab(args[0])
	if err != nil {
		return false, nil // a missing file's error says more
	}
	defer r.Close()
	p, end := a.progress()
	defer end()
	p.Begin("move bytes between GPUs and NICs")
	all := len(r.Lab.Nodes)
	p.Count(0, all)
	out, err := vram.Check(ctx, r, func(nodes int) { p.Count(nodes, all) })
	p.End(err)
	end()
	if err != nil {
		return true, err
	}
	if err := a.print(format, out, tables.VRAM(out, a.width())); err != nil {
		return true, err
	}
	n := lists.Count(out.Pairs, func(p vram.Pair) bool { return p.Status == finding.Failed })
	if n > 0 {
		return true, faultf("pairs of GPUs and NICs that failed: %d", n)
	}
	return true, nil
}
