package device

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// A Module is a kernel module to be loaded or unloaded. A built-in module counts as loaded.
type Module struct {
	Name string `json:"name"` // as /proc/modules has it: "vfio_pci"
	Gone bool   `json:"gone,omitempty"`
	// With lists modules that are loaded along with it. They are unloaded if unused.
	With []string `json:"with,omitempty"`
}

// States of a module.
const (
	moduleLoaded  change.State = "loaded"
	moduleBuiltIn change.State = "built in"
	moduleAbsent  change.State = "not loaded"
)

// vfioModules are in loading order. On x86 and Arm, no group can be used without the first
// (Documentation/driver-api/vfio.rst of Linux). If loaded separately, vfio loads vfio_iommu_type1 in the background,
// which could then not be unloaded; the module that is unloaded last also unloads vfio.
func vfioModules() []*Module {
	return []*Module{
		{Name: "vfio_iommu_type1", With: []string{"vfio"}},
		{Name: "vfio_pci", With: []string{"vfio_pci_core", "vfio_virqfd", "irqbypass", "vfio"}},
	}
}

const nvidiaDriver = "nvidia"

// nvidiaModules are in unloading order: each uses those after it.
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
	// Only loadable modules have initstate.
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

// Restore leaves a module in use, and the error names its users. That does no harm: the next reboot removes it.
func (m *Module) Restore(ctx context.Context, s *change.System, before change.State) error {
	if before == moduleAbsent {
		return m.unload(ctx, s)
	}
	return m.load(ctx, s)
}

// Merge keeps VFIO's modules loaded for functions that a rollback leaves with vfio-pci.
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

// unload forces nothing: a module in use stays, and the error names its users.
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
			// Unloading would take the driver from these functions. If the module is to be gone, they belong to the
			// lab.
			bound, err := moduleFunctions(s, name)
			if err != nil {
				return err
			}
			users = append(users, bound...)
		}
		if len(users) > 0 {
			if i > 0 {
				continue // another module uses it too
			}
			if m.Gone {
				return fmt.Errorf("module %s cannot be unloaded: it is used by %s", name, strings.Join(users, ", "))
			}
			return fmt.Errorf("module %s stays loaded: it is used by %s; that does no harm, and the next boot is "+
				"without it", name, strings.Join(users, ", "))
		}
		// Not modprobe -r, which also unloads unused modules that were loaded before m.
		if _, err := s.Program(ctx, "rmmod", name); err != nil {
			return err
		}
	}
	return nil
}

func moduleUsers(s *change.System, name string) ([]string, error) {
	dir := "/sys/module/" + name
	holders, err := s.List(dir + "/holders")
	if err != nil || len(holders) > 0 {
		return holders, err
	}
	count, err := s.ValueOr(dir+"/refcnt", "0") // missing in a kernel without module unloading; rmmod will report it
	if err == nil && count != "0" {
		return []string{count + " users that the kernel does not name"}, nil
	}
	return nil, err
}

// moduleFunctions are not counted as users by the kernel, which would unload the module anyway.
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
