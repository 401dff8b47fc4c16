package emulate

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

// templates keeps a template in use by a host, whose disk is an overlay of it.
func templates(d userdirs.Dirs, note func(format string, args ...any)) vm.Cache {
	return vm.Cache{Dir: filepath.Join(d.Cache, "hosts", "templates"), Note: note, Used: func() ([]string, error) {
		hosts, err := List(d)
		return lists.Map(hosts, func(h *Host) string { return h.Template }), err
	}}
}

// templateKey hashes everything that the guest can see.
func templateKey(m machine) string {
	version := m.qemu.Version
	m = machine{
		profile: m.profile, accel: m.accel, boot: Boot{Key: m.boot.Key, Append: m.boot.Append}, ram: ram{dir: "ram"},
		disk: placeholder(m.disk), tools: placeholder(m.tools),
	}
	return vm.Key(append(m.args(), m.boot.Key, version, settleScript)...)
}

func placeholder(path string) string {
	if path == "" {
		return ""
	}
	return "there"
}

func ensureTemplate(ctx context.Context, o Options, m machine) (*vm.Template, error) {
	key, p := templateKey(m), m.profile
	c := templates(o.Dirs, o.Progress.Note)
	t := vm.Template{Key: key, Profile: p.Name, Image: m.boot.Key, QEMU: m.qemu.Version, Accelerator: m.accel,
		CPUs: p.CPUs(), Memory: int64(p.Memory())}
	b := vm.Boot{
		Machine: func(ctx context.Context, dir string) (vm.Machine, error) {
			o.Progress.Watch(bootsAt(dir))
			m.name, m.dir, m.ram = "template-"+key, dir, ram{dir: dir, share: true}
			if m.boot.Disk == "" {
				return m.vm(), nil
			}
			m.disk = filepath.Join(dir, fileDisk)
			return m.vm(), vm.MakeOverlay(ctx, m.disk, m.boot.Disk, int64(p.Disk))
		},
		Settle: func(ctx context.Context, dir string) (func(), error) {
			release, err := settle(ctx, dir, p, o.Progress)
			o.Progress.Watch(func() string { return "save its memory" })
			return release, err
		},
		Limit: bootLimit,
	}
	for i := range p.NUMANodes {
		b.Files = append(b.Files, fmt.Sprintf("ram%d", i))
	}
	if m.boot.Disk != "" {
		b.Files = append(b.Files, fileDisk)
	}
	// Opening a cached template takes no time, and is no step.
	return c.Ensure(ctx, key, func() (*vm.Template, error) {
		o.Progress.Begin(fmt.Sprintf("boot the template of %s (%d CPUs, %v, %s), once", p.Name, p.CPUs(), p.Memory(),
			m.accel))
		return c.Make(ctx, t, b)
	})
}

// bootsAt reads the last line of the console; the kernel is quiet.
func bootsAt(dir string) func() string {
	return func() string {
		switch line := vm.LastLine(filepath.Join(dir, vm.FileConsole)); {
		case line == "":
			return "firmware"
		case strings.HasPrefix(line, "Loading"): // GRUB, silent when done
			return "kernel and initial file system"
		case strings.HasSuffix(line, "#"):
			return "a shell is there, services start"
		default:
			return line
		}
	}
}

// settleScript waits until everything has started. udev may still load drivers after systemd is done. A failed unit
// ("degraded") is a matter of the image; a guest without systemd is ready when its agent answers.
//
// libvirtd queries QEMU's capabilities, which took 20 CPU-s when emulated, and caches them for clones, which have the
// same CPU. It stays running, because a start takes 5 CPU-s.
const settleScript = `if [ -d /run/systemd/system ]; then systemctl start ` + consoleUnit +
	`; systemctl is-system-running --wait >/dev/null; udevadm settle --timeout=600
virsh --quiet --connect qemu:///system capabilities >/dev/null; fi`

func settle(ctx context.Context, dir string, p *Profile, seen *steps.Progress) (release func(), err error) {
	if err := unplug(ctx, dir, p.unplugged()); err != nil {
		return nil, err
	}
	conn, err := awaitAgent(ctx, dir)
	if err != nil {
		return nil, err
	}
	seen.Watch(func() string { return "the agent answers, the last services start" })
	settle := settleScript + "; sync"
	if p.hasConnectX() { // clones need the drivers loaded
		settle = "modprobe --all mlx5_core mlx5_ib; " + settle
	}
	for _, up := range p.lateSwitches() {
		settle += "; echo 1 >/sys/bus/pci/devices/" + up + "/remove"
	}
	_, err = guest.NewAgent(conn).Run(ctx, guest.Command{Argv: []string{"/bin/sh", "-c", settle}})
	return func() { conn.Close() }, err
}

// unplug takes links down, because QEMU gives unconnected ports one.
func unplug(ctx context.Context, dir string, ports []string) error {
	if len(ports) == 0 {
		return nil
	}
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, vm.SocketQMP))
	if err != nil {
		return err
	}
	defer q.Close()
	for _, id := range ports {
		if err := q.Call(ctx, "set_link", map[string]any{"name": id, "up": false}, nil); err != nil {
			return fmt.Errorf("unplug %s: %w", id, err)
		}
	}
	return nil
}
