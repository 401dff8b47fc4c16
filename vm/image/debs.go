package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// apt, unprivileged, knows the mirrors and checks signatures. Nothing is installed.

// An apt is a configuration file; the zero value means this machine's.
type apt struct{ config string }

func (a apt) run(ctx context.Context, dir string, argv ...string) ([]byte, error) {
	c := command{name: argv[0], args: argv[1:], dir: dir}
	if a.config != "" {
		c.env = []string{"APT_CONFIG=" + a.config}
	}
	return run(ctx, c)
}

// resolve returns the packages with all dependencies as sorted "name=version", as for an empty system.
func (a apt) resolve(ctx context.Context, packages []string) ([]string, error) {
	out, err := a.run(ctx, "", append([]string{"apt-get", "--simulate", "--no-install-recommends", "-o",
		"Dir::State::status=/dev/null", "install"}, packages...)...)
	if err != nil {
		return nil, fmt.Errorf("resolve packages: %w; if apt does not know them, run: apt-get update", err)
	}
	var debs []string
	for line := range strings.Lines(string(out)) {
		// Inst busybox-static (1:1.35.0-4 Debian:12.12/oldstable [amd64])
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "Inst" && strings.HasPrefix(f[2], "(") {
			debs = append(debs, f[1]+"="+f[2][1:])
		}
	}
	if len(debs) == 0 {
		return nil, errors.New("resolve packages: apt-get --simulate named none")
	}
	slices.Sort(debs)
	return debs, nil
}

func (a apt) kernelPackage(ctx context.Context, meta string) (string, error) {
	out, err := a.run(ctx, "", "apt-cache", "depends", "--important", meta)
	if err != nil {
		return "", fmt.Errorf("find the kernel package: %w; if apt does not know it, run: apt-get update", err)
	}
	// Depends: linux-image-6.1.0-42-amd64
	for line := range strings.Lines(string(out)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: ")
		if !ok || !strings.HasPrefix(name, "linux-image-") {
			continue
		}
		out, err := a.run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
		if err != nil {
			return "", fmt.Errorf("find the kernel package: %w", err)
		}
		for line := range strings.Lines(string(out)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Version: "); ok {
				return name + "=" + v, nil
			}
		}
	}
	return "", fmt.Errorf("find the kernel package: %s depends on no linux-image", meta)
}

func (a apt) resolveSize(ctx context.Context, packages []string) (debs []string, bytes int64, err error) {
	if debs, err = a.resolve(ctx, packages); err != nil {
		return nil, 0, err
	}
	bytes, err = a.size(ctx, debs)
	return debs, bytes, err
}

func (a apt) size(ctx context.Context, debs []string) (bytes int64, err error) {
	out, err := a.run(ctx, "", append([]string{"apt-get", "--quiet=2", "--print-uris", "download"}, debs...)...)
	if err != nil {
		return 0, fmt.Errorf("size of packages: %w", err)
	}
	for line := range strings.Lines(string(out)) { // 'URI' FILE SIZE DIGEST
		if f := strings.Fields(line); len(f) >= 3 {
			n, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("size of packages: apt-get printed %.80q", line)
			}
			bytes += n
		}
	}
	return bytes, nil
}

func count(pattern string, all int) func() string {
	return func() string {
		have, _ := filepath.Glob(pattern) // the pattern is constant
		return fmt.Sprintf("%d of %d packages", len(have), all)
	}
}

func (a apt) download(ctx context.Context, dir string, debs []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if _, err := a.run(ctx, dir, append([]string{"apt-get", "--quiet", "-o", "APT::Sandbox::User=", "download"},
		debs...)...); err != nil {
		return fmt.Errorf("download packages: %w", err)
	}
	return nil
}

// fetch unpacks packages into root, with /usr merged.
func (a apt) fetch(ctx context.Context, o Options, work, root string, debs []string) error {
	archives := filepath.Join(work, "debs")
	o.watch(count(filepath.Join(archives, "*.deb"), len(debs)))
	if err := a.download(ctx, archives, debs); err != nil {
		return err
	}
	o.progress("unpack %d Debian packages", len(debs))
	if err := unpack(ctx, o, archives, root); err != nil {
		return err
	}
	return mergeUsr(root)
}

// unpack does not keep owners, so it needs no privileges.
func unpack(ctx context.Context, o Options, dir, root string) error {
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	var done atomic.Int32
	o.watch(func() string { return fmt.Sprintf("%d of %d packages", done.Load(), len(debs)) })
	for _, deb := range debs {
		if _, err := run(ctx, command{name: "dpkg-deb", args: []string{"--extract", deb, root}}); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
		done.Add(1)
	}
	return nil
}
