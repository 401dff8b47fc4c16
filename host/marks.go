package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/device"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/machine/topology"
)

var markDirs = []string{"/etc/default/grub.d", "/etc/modprobe.d", "/etc/modules-load.d", "/etc/sysctl.d",
	"/etc/systemd/system", "/etc/udev/rules.d"}

// Marks returns changes by rackless prepare that the journal does not list: files, functions kept for vfio-pci, kernel
// arguments. After a journal was lost, nothing else tells that they have to be undone. p may be nil.
func Marks(s *change.System, entries []*change.Entry, p *Prepared) ([]string, error) {
	told := "" // by the journal
	for _, e := range entries {
		op, err := json.Marshal(e.Op)
		if err != nil {
			return nil, err
		}
		told += e.Op.Subject() + string(op) + "\n"
	}
	m := marks{s: s, told: told}
	for _, dir := range markDirs {
		if err := filepath.WalkDir(s.Path(dir), m.file); err != nil {
			return nil, err
		}
	}
	if p != nil {
		for _, a := range functions(p.Plan) {
			m.names += a.String() + "\n"
		}
	}
	err := m.overrides()
	if err != nil {
		return nil, err
	}
	if p != nil && len(entries) == 0 {
		err = m.arguments(p)
	}
	return m.found, err
}

type marks struct {
	s     *change.System
	told  string
	names string // text with the addresses of functions that were handed over
	found []string
}

func (m *marks) file(full string, d fs.DirEntry, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !d.Type().IsRegular() || !strings.Contains(full, "rackless") {
		return err
	}
	path := strings.TrimPrefix(full, strings.TrimSuffix(m.s.Root, "/"))
	text, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	// The list of modules does not say who made it.
	ours := strings.Contains(string(text), "rackless prepare") || d.Name() == "rackless-prepare.service" ||
		strings.HasPrefix(path, "/etc/modules-load.d/rackless-")
	if !ours || strings.Contains(m.told, path) {
		return nil
	}
	m.found = append(m.found, path)
	if strings.HasPrefix(path, "/etc/udev/") {
		m.names += string(text)
	}
	return nil
}

func (m *marks) overrides() error {
	const devices = "/sys/bus/pci/devices"
	all, err := m.s.List(devices)
	if err != nil {
		return err
	}
	for _, name := range all {
		if _, err := topology.ParsePCIAddr(name); err != nil || !strings.Contains(m.names, name) ||
			strings.Contains(m.told, name) {
			continue
		}
		override, err := m.s.ValueOr(devices+"/"+name+"/driver_override", "")
		if err != nil {
			return err
		}
		if override == "vfio-pci" {
			m.found = append(m.found, name+" is kept for vfio-pci")
		}
	}
	return nil
}

// arguments counts only after the whole journal is gone: no journal tells of a boot loader that is set by hand.
func (m *marks) arguments(p *Prepared) error {
	now, err := m.s.ValueOr("/proc/cmdline", "")
	if err != nil || p.Choices.NoReboot || p.Host.Kernel.Cmdline == nil {
		return err
	}
	var ours []string
	for _, arg := range p.Plan.KernelArgs {
		if slices.Contains(strings.Fields(now), arg) && !slices.Contains(strings.Fields(*p.Host.Kernel.Cmdline), arg) {
			ours = append(ours, arg)
		}
	}
	if len(ours) > 0 {
		m.found = append(m.found, "kernel arguments "+strings.Join(ours, " "))
	}
	return nil
}

// Strays is [Marks] for the store's journal and plan. A damaged journal is an error.
func (s Store) Strays(sys *change.System) ([]string, error) {
	entries, err := change.ReadJournal(s.Journal(), Kinds())
	if err != nil {
		return nil, err
	}
	p, journal := s.Known()
	if journal && len(entries) == 0 {
		p = nil // all changes were undone, but the plan still exists
	}
	return Marks(sys, entries, p)
}

// Known returns the preparation, nil if it cannot be read, and whether there is a journal.
func (s Store) Known() (p *Prepared, journal bool) {
	p, err := s.Load()
	if err != nil {
		p = nil
	}
	_, err = os.Lstat(s.Journal())
	return p, err == nil
}

// Unrecorded returns an error with changes that the journal does not record, or nil.
func Unrecorded(j *change.Journal, marks []string) error {
	if j.Gap() == "" && len(marks) == 0 {
		return nil
	}
	text := "this host may not be as it was"
	if j.Gap() != "" {
		text += ": its journal was damaged, and only what it still knew was undone (" + j.Gap() + ")"
	}
	if len(marks) > 0 {
		text += "\nmade by rackless prepare, and not in its journal; undo it by hand:\n  " +
			strings.Join(marks, "\n  ")
	}
	return errors.New(text)
}

// Remarks returns warnings that no step covers: NICs' firmware, and services that change the lab's settings.
func Remarks(ctx context.Context, s *change.System, p *Prepared) ([]string, error) {
	var all []string
	if !p.Choices.Firmware {
		for _, command := range device.Firmware(p.Plan, p.Host) {
			all = append(all, "firmware, by hand or with --firmware: "+command)
		}
	}
	running, err := tune.Contenders(ctx, s)
	for _, c := range running {
		all = append(all, fmt.Sprintf("%s runs and sets %s: %s", c.Service, c.Sets, c.Fix))
	}
	return all, err
}

// Users returns the processes that have an IOMMU group open: "qemu-system-x86 (1234): /dev/vfio/17". The kernel waits
// until a group is closed before it takes a function from vfio-pci. Only root sees processes of others.
func Users(s *change.System) []string {
	proc, err := procfs.NewFS(s.Path("/proc"))
	if err != nil {
		return nil // a test machine
	}
	all, err := proc.AllProcs()
	if err != nil {
		return nil
	}
	sort.Sort(all)
	var users []string
	for _, p := range all {
		files, err := p.FileDescriptorTargets()
		if err != nil {
			continue // gone, or somebody else's
		}
		slices.Sort(files)
		groups := slices.DeleteFunc(slices.Compact(files), func(file string) bool {
			// /dev/vfio/vfio alone is the container, which holds no device.
			return !strings.HasPrefix(file, "/dev/vfio/") || file == "/dev/vfio/vfio"
		})
		if len(groups) > 0 {
			name, _ := p.Comm() // empty if the process has ended
			users = append(users, fmt.Sprintf("%s (%d): %s", name, p.PID, strings.Join(groups, " ")))
		}
	}
	return users
}
