package emulate

import (
	"context"
	"os"
	"path/filepath"

	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qemu"
)

// LoginEnvironment is the environment of a login of root on a host; commands that the agent runs
// have none of it. RACKLESS_CACHE is where the second disk holds the image of nested nodes.
var LoginEnvironment = []string{
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "RACKLESS_CACHE=/opt/rackless/cache",
}

// BootFromImage returns what hosts boot from. It builds the image if the cache does not have it.
func BootFromImage(ctx context.Context, d userdirs.Dirs, p *steps.Progress) (Boot, error) {
	img, err := image.Host.Ensure(ctx, image.Options{Cache: d.Images(), Progress: p.Say, Watch: p.Watch})
	if err != nil {
		return Boot{}, err
	}
	return Boot{Key: img.Key, Disk: img.DiskPath(), Environment: LoginEnvironment}, nil
}

// Prepare makes ready what every host is made from: the image, the accelerator, the second disk.
func Prepare(ctx context.Context, d userdirs.Dirs, p *steps.Progress) (o Options, err error) {
	o = Options{Dirs: d, Progress: p}
	defer func() { p.End(err) }()
	binary, version, err := vm.FindFor("amd64")
	if err != nil {
		return o, err
	}
	p.Begin("image of nested nodes")
	nested, err := image.NodeOf("amd64").Ensure(ctx, image.Options{Cache: d.Images(), Progress: p.Say, Watch: p.Watch})
	if err != nil {
		return o, err
	}
	p.Begin("image of the host")
	if o.Boot, err = BootFromImage(ctx, d, p); err != nil {
		return o, err
	}
	p.Begin("accelerator")
	// The nodes' image is what is tried: it boots in a second, where the host's own takes minutes.
	usable, reason, err := (&qemu.Driver{Binary: binary, Version: version, Image: nested}).ProbeKVM(ctx, d.Cache)
	if err != nil {
		return o, err
	}
	o.Accel = "kvm"
	if !usable {
		o.Accel, o.AccelReason = "tcg", reason
	}
	if o.Program, err = os.Executable(); err != nil {
		return o, err
	}
	// Made when a host is created or booted: one that runs keeps the disk that it has.
	o.Tools = func(ctx context.Context, progress func(string)) (string, error) {
		return MakeTools(ctx, filepath.Join(d.Cache, "hosts", "tools"), Tools{
			Program: o.Program, Files: map[string]string{filepath.Join("cache/images", nested.Key): nested.Dir},
		}, progress)
	}
	return o, nil
}
