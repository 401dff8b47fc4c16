package device

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// A Module is a module of the kernel that is to be loaded, or to be gone. One that is built in counts as loaded.
type Module struct {
	Name string `json:"name"` // as /proc/modules has it: "vfio_pci"
	Gone bool   `json:"gone,omitempty"`
	// With are the modules that come with it and have no other use: they go with it, too, where nothing uses them.
	With []string `json:"with,omitempty"`
}

// The states of a module.
const (
	moduleLoaded  change.State = "loaded"
	moduleBuiltIn change.State = "built in"
	moduleAbsent  change.State = "not loaded"
)

// vfioModules are loaded in this order. Without the first no group can be used on x86 and Arm
// (Documentation/driver-api/vfio.rst of Linux); both need vfio, which has to come and go with the
// first: as a module of its own it loads vfio_iommu_type1 by itself, in the background, which then
// holds it and is nobody's to unload. The one that goes last takes it along.
func vfioModules() []*Module {
	return []*Module{
		{Name: "vfio_iommu_type1", With: []string{"vfio"}},
		{Name: "vfio_pci", With: []string{"vfio_pci_core", "vfio_virqfd", "irqbypass", "vfio"}},
	}
}

// nvidiaDriver is the name of NVIDIA's driver on the PCI bus.
const nvidiaDriver = "nvidia"

// nvidiaModules are NVIDIA's stack in the order in which it can be unloaded: each holds those after it.
func nvidiaModules() []string {
	return []string{"nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia"}
}

// Kind implements change.Op.
func (m *Module) Kind() string { return kindModule }

// Subject implements change.Op.
func (m *Module) Subject() string { return m.Name }

// Read implements change.Op.
func (m *Module) Read(_ context.Context, s *change.System) (change.State, error) {
	return moduleState(s, m.Name)
}

func moduleState(s *change.System, name string) (change.State, error) {
	dir := "/sys/module/" + name
	// Only what was loaded has a state of loading; built-in modules have a directory for their parameters, if any.
	if s.Exists(dir + "/initstate") {
		return moduleLoaded, nil
	}
	if s.Exists(dir) {
		return moduleBuiltIn, nil
	}
	release, err := s.Value("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	r := reader{s: s}
	builtIn := r.value("/lib/modules/"+release+"/modules.builtin") + "\n" +
		r.value("/usr/lib/modules/"+release+"/modules.builtin")
	if slices.ContainsFunc(strings.Fields(builtIn), func(path string) bool { return moduleName(path) == name }) {
		return moduleBuiltIn, r.err
	}
	return moduleAbsent, r.err
}

// moduleName returns the name of a module by the path of its file: "kernel/drivers/vfio/pci/vfio-pci.ko" is vfio_pci.
func moduleName(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	base, _, _ = strings.Cut(base, ".ko")
	return strings.ReplaceAll(base, "-", "_")
}

// Done implements change.Op.
func (m *Module) Done(state change.State) bool { return (state == moduleAbsent) == m.Gone }

// Do implements change.Op.
func (m *Module) Do(ctx context.Context, s *change.System) error {
	if m.Gone {
		return m.unload(ctx, s)
	}
	return m.load(ctx, s)
}

// Restore implements change.Op. A module that somebody uses stays, which is an error that names the
// user: the machine is as good with it, and at the latest a reboot takes it away.
func (m *Module) Restore(ctx context.Context, s *change.System, before change.State) error {
	if before == moduleAbsent {
		return m.unload(ctx, s)
	}
	return m.load(ctx, s)
}

// Merge implements change.Merger. A module is loaded or not, and one of the two is as it was. Those of VFIO stay for
// functions that a rollback leaves with vfio-pci.
func (m *Module) Merge(_ context.Context, s *change.System, u change.Undo) (change.State, []change.Changed, error) {
	if !u.Left || u.Before != moduleAbsent || u.Now != moduleLoaded {
		return u.Before, nil, nil
	}
	bound, err := moduleFunctions(s, moduleName(vfioPCI))
	if err != nil || len(bound) == 0 {
		return u.Before, nil, err
	}
	return u.Now, []change.Changed{{What: "module " + m.Name, Found: "in use by " + strings.Join(bound, ", "),
		Set: string(moduleLoaded)}}, nil
}

// Shell implements change.Manual.
func (m *Module) Shell() []string {
	if m.Gone {
		return []string{fmt.Sprintf("[ ! -e /sys/module/%s/initstate ] || rmmod %[1]s", m.Name)}
	}
	return []string{"modprobe " + m.Name}
}

func (m *Module) load(ctx context.Context, s *change.System) error {
	if state, err := moduleState(s, m.Name); err != nil || state != moduleAbsent {
		return err
	}
	if _, err := s.Program(ctx, "modprobe", "--", m.Name); err != nil {
		return fmt.Errorf("module %s cannot be loaded: %w; the package of the kernel may be without it, or the "+
			"kernel was replaced and wants a reboot", m.Name, err)
	}
	return nil
}

// unload takes the module away, and those that came with it. Nothing is forced: a module in use stays, and the error
// names its users. The order is that of the dependencies, so that each one has lost its users before its turn comes.
func (m *Module) unload(ctx context.Context, s *change.System) error {
	for i, name := range append([]string{m.Name}, m.With...) {
		state, err := moduleState(s, name)
		if err != nil {
			return err
		}
		if state != moduleLoaded {
			continue
		}
		users, err := moduleUsers(s, name)
		if err != nil {
			return err
		}
		if !m.Gone {
			// Its functions would lose their driver with it. Where it is to be gone, they are ours,
			// and that is the purpose.
			bound, err := moduleFunctions(s, name)
			if err != nil {
				return err
			}
			users = append(users, bound...)
		}
		if len(users) > 0 {
			if i > 0 {
				continue // it has another use than m after all
			}
			if m.Gone {
				return fmt.Errorf("module %s cannot be unloaded: it is used by %s", name, strings.Join(users, ", "))
			}
			return fmt.Errorf("module %s stays loaded: it is used by %s; that does no harm, and the next boot is "+
				"without it", name, strings.Join(users, ", "))
		}
		// Not modprobe -r, which would also take away what was loaded before m and is not used now.
		if _, err := s.Program(ctx, "rmmod", name); err != nil {
			return err
		}
	}
	return nil
}

// moduleUsers returns who uses a module: other modules, and whoever else the kernel counts.
func moduleUsers(s *change.System, name string) ([]string, error) {
	dir := "/sys/module/" + name
	holders, err := s.List(dir + "/holders")
	if err != nil || len(holders) > 0 {
		return holders, err
	}
	count, err := s.ValueOr(dir+"/refcnt", "0") // a kernel that cannot unload modules has none; rmmod will say so
	if err == nil && count != "0" {
		return []string{count + " users that the kernel does not name"}, nil
	}
	return nil, err
}

// moduleFunctions returns the PCI functions that are bound to a module's drivers. The kernel does not count them as
// users, and would unload the module under them.
func moduleFunctions(s *change.System, name string) ([]string, error) {
	r := reader{s: s}
	dir := "/sys/module/" + name + "/drivers"
	var functions []string
	for _, driver := range r.list(dir) {
		for _, entry := range r.list(dir + "/" + driver) {
			if a, err := topology.ParsePCIAddr(entry); err == nil {
				functions = append(functions, a.String())
			}
		}
	}
	return functions, r.err
}
