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

// LoginEnvironment is for commands run by the agent, which have none. RACKLESS_CACHE is the image of nested nodes on
// the second disk.
var LoginEnvironment = []string{
	"HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash", "LANG=C.UTF-8",
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "RACKLESS_CACHE=/opt/rackless/cache",
}

// BootFromImage builds the image of hosts if the cache does not have it.
func BootFromImage(ctx context.Context, d userdirs.Dirs, p *steps.Progress) (Boot, error) {
	img, err := image.Host.Ensure(ctx, image.Options{Cache: d.Images(), Progress: p.Say, Watch: p.Watch})
	if err != nil {
		return Boot{}, err
	}
	return Boot{Key: img.Key, Disk: img.DiskPath(), Environment: LoginEnvironment}, nil
}

// Prepare prepares the image, the accelerator, and the second disk of hosts.
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
	// The nodes' image boots in a second; the host's own takes minutes.
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
	o.Tools = func(ctx context.Context, progress func(string)) (string, error) {
		return MakeTools(ctx, filepath.Join(d.Cache, "hosts", "tools"), Tools{
			Program: o.Program, Files: map[string]string{filepath.Join("cache/images", nested.Key): nested.Dir},
		}, progress)
	}
	return o, nil
}
