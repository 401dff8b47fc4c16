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

// templates is the cache of the templates of hosts. The disk of a host lies on that of its template:
// what a host of this user stands on stays.
func templates(d userdirs.Dirs, note func(format string, args ...any)) vm.Cache {
	return vm.Cache{Dir: filepath.Join(d.Cache, "hosts", "templates"), Note: note, Used: func() ([]string, error) {
		hosts, err := List(d)
		return lists.Map(hosts, func(h *Host) string { return h.Template }), err
	}}
}

// templateKey names the template that serves a machine: a hash of everything that its guest can see.
func templateKey(m machine) string {
	version := m.qemu.Version
	m = machine{
		profile: m.profile, accel: m.accel, boot: Boot{Key: m.boot.Key, Append: m.boot.Append}, ram: ram{dir: "ram"},
		disk: placeholder(m.disk), tools: placeholder(m.tools),
	}
	return vm.Key(append(m.args(), m.boot.Key, version, settleScript)...)
}

// placeholder replaces the path of a file in a key, because the guest cannot see the path.
func placeholder(path string) string {
	if path == "" {
		return ""
	}
	return "there"
}

// ensureTemplate opens the template for m, making it if the cache has none or a damaged one.
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
	// The step is named only if it is made: a cached template takes no time worth a line.
	return c.Ensure(ctx, key, func() (*vm.Template, error) {
		o.Progress.Begin(fmt.Sprintf("boot the template of %s (%d CPUs, %v, %s), once", p.Name, p.CPUs(), p.Memory(),
			m.accel))
		return c.Make(ctx, t, b)
	})
}

// bootsAt returns what tells how far the machine in a directory has booted. Its kernel is quiet, so that the last line
// of the console is one of few.
func bootsAt(dir string) func() string {
	return func() string {
		switch line := vm.LastLine(filepath.Join(dir, vm.FileConsole)); {
		case line == "":
			return "firmware"
		case strings.HasPrefix(line, "Loading"): // GRUB, which says nothing when it is done
			return "kernel and initial file system"
		case strings.HasSuffix(line, "#"):
			return "a shell is there, services start"
		default:
			return line
		}
	}
}

// settleScript waits until all has started. udev may have the drivers of devices still to load when systemd has started
// everything. degraded is a unit that failed, which is the image's affair; a guest without systemd has started when its
// agent answers.
//
// libvirtd asks QEMU what it can do, which took it 20 CPU-s of an emulated machine, and keeps what it learns. It asks
// again where the CPU is another one: clones have the template's. It runs on, since to start takes it 5.
const settleScript = `if [ -d /run/systemd/system ]; then systemctl start ` + consoleUnit +
	`; systemctl is-system-running --wait >/dev/null; udevadm settle --timeout=600
virsh --quiet --connect qemu:///system capabilities >/dev/null; fi`

// settle waits until nothing is left to start in the guest of a template, and what it wrote is on its disk.
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
	if p.hasConnectX() { // clones find theirs with the drivers at hand
		settle = "modprobe --all mlx5_core mlx5_ib; " + settle
	}
	for _, up := range p.switchesWithConnectX() {
		settle += "; echo 1 >/sys/bus/pci/devices/" + up + "/remove"
	}
	_, err = guest.NewAgent(conn).Run(ctx, guest.Command{Argv: []string{"/bin/sh", "-c", settle}})
	return func() { conn.Close() }, err
}

// unplug takes the link from the ports that have no wire: a port that is connected to nothing has one in QEMU.
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
