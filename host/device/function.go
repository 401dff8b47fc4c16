package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/machine/topology"
)

// Source: Documentation/ABI/testing/sysfs-bus-pci of Linux.
const (
	pciDevices = "/sys/bus/pci/devices"
	pciDrivers = "/sys/bus/pci/drivers"
	// driversProbe binds the function written to it to its override driver, or to any matching driver.
	driversProbe = "/sys/bus/pci/drivers_probe"
	vfioPCI      = "vfio-pci"
)

type function struct {
	s *change.System
	k *kernel
	a topology.PCIAddr
}

func (f function) path(name string) string { return pciDevices + "/" + f.a.String() + "/" + name }

func (f function) exists() bool { return f.s.Exists(pciDevices + "/" + f.a.String()) }

func (f function) driver() (string, error) { return f.s.LinkName(f.path("driver")) }

func (f function) group() (string, error) { return f.s.LinkName(f.path("iommu_group")) }

// override returns the only driver allowed, or "" if any may bind.
func (f function) override() (string, error) {
	text, err := f.s.ValueOr(f.path("driver_override"), "")
	if text == "(null)" {
		return "", nil
	}
	return text, err
}

func (f function) optional(name string) (*string, error) {
	text, err := f.s.Value(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &text, nil
}

func (f function) setOptional(name, value string) error {
	if now, err := f.optional(name); err != nil || now == nil || *now == value {
		return err
	}
	return f.k.write(f.s, f.path(name), value)
}

// number returns 0 if there is no such file; for example, functions without SR-IOV lack sriov_numvfs.
func (f function) number(name string) (int, error) {
	n, err := f.s.Number(f.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return int(n), err
}

// An identity holds the IDs that a card reports. The zero value is unknown.
type identity struct {
	Vendor *topology.ID16 `json:"vendor,omitempty"`
	Device *topology.ID16 `json:"device,omitempty"`
}

func (i identity) String() string {
	if i.Vendor == nil || i.Device == nil {
		return "an unknown card"
	}
	return fmt.Sprintf("%04x:%04x", uint16(*i.Vendor), uint16(*i.Device))
}

// check returns an error if the card at the address is not the one in the plan: addresses change if a card is added or
// removed.
func (f function) check(want identity) error {
	if !f.exists() {
		return fmt.Errorf("%s is not there: %w; put the card back, or make a new plan (rackless plan)", f.a,
			fs.ErrNotExist)
	}
	if want.Vendor == nil || want.Device == nil {
		return nil
	}
	var have identity
	for name, id := range map[string]**topology.ID16{"vendor": &have.Vendor, "device": &have.Device} {
		text, err := f.s.Value(f.path(name))
		if err != nil {
			return err
		}
		v, err := topology.ParseID16(text)
		if err != nil {
			return fmt.Errorf("%s: %w", f.path(name), err)
		}
		*id = &v
	}
	if *have.Vendor != *want.Vendor || *have.Device != *want.Device {
		return fmt.Errorf("%s is %s, and was %s when the plan was made: cards have been moved; make a new plan "+
			"(rackless plan)", f.a, have, want)
	}
	return nil
}

// setOverride lifts the restriction if driver is "".
func (f function) setOverride(driver string) error {
	now, err := f.override()
	if err != nil || now == driver {
		return err
	}
	// The kernel's handler never sees an empty write. A newline lifts the override.
	value := cmp.Or(driver, "\n")
	if err := f.k.write(f.s, f.path("driver_override"), value); err != nil {
		return err
	}
	now, err = f.override()
	if err == nil && now != driver {
		err = fmt.Errorf("%s: %q was written and reads back as %q", f.path("driver_override"), driver, now)
	}
	return err
}

// unbind depends on the link to the driver, not on the write, because somebody else may unbind it at the same moment.
func (f function) unbind(ctx context.Context) error {
	driver, err := f.driver()
	if err != nil || driver == "" {
		return err
	}
	if err := f.k.write(f.s, pciDrivers+"/"+driver+"/unbind", f.a.String()); err != nil {
		if now, readErr := f.driver(); readErr != nil || now != "" {
			return err
		}
	}
	free, err := f.k.wait(ctx, func() (bool, error) {
		now, err := f.driver()
		return now == "", err
	})
	if err == nil && !free {
		err = fmt.Errorf("%s stays with %s: something uses it; the end of dmesg may say what", f.a, driver)
	}
	return err
}

// bind fails at writing to "bind" if the driver already has the function, for example from a module just loaded, so it
// checks the link before and after.
func (f function) bind(ctx context.Context, driver string) error {
	bound := func() (bool, error) {
		now, err := f.driver()
		return now == driver, err
	}
	if err := f.load(ctx, driver); err != nil {
		return err
	}
	if ok, err := bound(); ok || err != nil {
		return err
	}
	writeErr := f.k.write(f.s, pciDrivers+"/"+driver+"/bind", f.a.String())
	if ok, err := bound(); ok || err != nil {
		return err
	}
	if writeErr != nil {
		return fmt.Errorf("%s does not go to %s: %w; see the end of dmesg", f.a, driver, writeErr)
	}
	ok, err := f.k.wait(ctx, bound)
	if err == nil && !ok {
		now, _ := f.driver()
		err = fmt.Errorf("%s does not go to %s, and is with %s: see the end of dmesg", f.a, driver, orNone(now))
	}
	return err
}

func orNone(driver string) string { return cmp.Or(driver, "no driver") }

// load uses the function's alias, as at boot, if the driver does not have the name of its module (xhci_hcd is in
// xhci_pci).
func (f function) load(ctx context.Context, driver string) error {
	if f.s.Exists(pciDrivers + "/" + driver) {
		return nil
	}
	_, first := f.s.Program(ctx, "modprobe", "--", driver)
	if f.s.Exists(pciDrivers + "/" + driver) {
		return nil
	}
	alias, err := f.s.Value(f.path("modalias"))
	if err != nil {
		return errors.Join(first, err)
	}
	_, second := f.s.Program(ctx, "modprobe", "-b", "--", alias)
	if f.s.Exists(pciDrivers + "/" + driver) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s needs driver %s, which is not there and was not loaded by modprobe: install "+
		"or load it", f.a, driver), first, second)
}

func (f function) vfioFile() (string, error) {
	group, err := f.group()
	if err != nil || group == "" {
		return "", err
	}
	return "/dev/vfio/" + group, nil
}

// giveToVFIO sets the override first, so that a driver loaded meanwhile cannot bind. If it fails, the function goes
// back to its earlier driver.
func (f function) giveToVFIO(ctx context.Context) error {
	was, err1 := f.driver()
	overrideWas, err2 := f.override()
	if err := errors.Join(err1, err2); err != nil || was == vfioPCI {
		return err
	}
	if err := f.toVFIO(ctx); err != nil {
		return errors.Join(err, f.backTo(ctx, was, overrideWas))
	}
	return nil
}

func (f function) toVFIO(ctx context.Context) error {
	if err := f.setOverride(vfioPCI); err != nil {
		return err
	}
	if err := f.unbind(ctx); err != nil {
		return err
	}
	if err := f.bind(ctx, vfioPCI); err != nil {
		return err
	}
	file, err := f.vfioFile()
	if err != nil {
		return err
	}
	if file == "" {
		return fmt.Errorf("%s is with vfio-pci and in no IOMMU group: %s", f.a, fixIOMMU)
	}
	ok, err := f.k.wait(ctx, func() (bool, error) { return f.s.Exists(file), nil })
	if err == nil && !ok {
		err = fmt.Errorf("%s is with vfio-pci, and %s does not appear: see the end of dmesg", f.a, file)
	}
	return err
}

// backTo has "" for none. During binding the override names the driver, so that no other driver binds.
func (f function) backTo(ctx context.Context, driver, override string) error {
	now, err := f.driver()
	if err != nil {
		return err
	}
	if now != driver {
		if now == vfioPCI {
			if err := f.released(); err != nil {
				return err
			}
		}
		// If there was no driver before, the override stays until the function is unbound.
		if driver != "" {
			if err := f.setOverride(driver); err != nil {
				return err
			}
		}
		if err := f.unbind(ctx); err != nil {
			return err
		}
		if driver != "" {
			if err := f.bind(ctx, driver); err != nil {
				return err
			}
		}
	}
	return f.setOverride(override)
}

// released returns an error if a process has the function's group open. The kernel would wait for the process to end,
// and the unbinding program would hang.
func (f function) released() error {
	files, err := f.deviceFiles()
	if err != nil {
		return err
	}
	users, err := openers(f.s, files)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("%s is in use: %s; end that first, a guest by shutting it down", f.a,
			strings.Join(users, ", "))
	}
	return nil
}

func (f function) idle(ctx context.Context) error {
	if err := f.released(); err != nil {
		return err
	}
	carries, err := f.carries(ctx)
	if err == nil && carries != "" {
		err = fmt.Errorf("%s is in use: %s; take that from it first", f.a, carries)
	}
	return err
}

func (f function) virtual() ([]topology.PCIAddr, error) {
	n, err := f.number("sriov_numvfs")
	if err != nil {
		return nil, err
	}
	out := make([]topology.PCIAddr, 0, n)
	for i := range n {
		a, err := f.vf(i)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (f function) vf(index int) (topology.PCIAddr, error) {
	name, err := f.s.LinkName(f.path("virtfn" + strconv.Itoa(index)))
	if err != nil {
		return topology.PCIAddr{}, err
	}
	if name == "" {
		return topology.PCIAddr{}, fmt.Errorf("%s has no virtual function %d: %w", f.a, index, fs.ErrNotExist)
	}
	return topology.ParsePCIAddr(name)
}

// netdevs also looks one directory further down, for virtio and subfunctions.
func (f function) netdevs() ([]string, error) {
	r := reader{s: f.s}
	all := r.list(f.path("net"))
	for _, name := range r.list(f.path("")) {
		if strings.HasPrefix(name, "virtio") || strings.Contains(name, ".sf.") {
			all = append(all, r.list(f.path(name+"/net"))...)
		}
	}
	return all, r.err
}

// port returns the network device of a physical function, or "". It skips representors of virtual functions
// (phys_port_name "pf0vf3") and of subfunctions.
func (f function) port() (string, error) {
	names, err := f.netdevs()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		// Devices without a port name return EOPNOTSUPP.
		physical, err := f.s.Value("/sys/class/net/" + name + "/phys_port_name")
		if err == nil && (strings.Contains(physical, "vf") || strings.Contains(physical, "sf")) {
			continue
		}
		return name, nil
	}
	return "", nil
}

const fixIOMMU = "switch VT-d or AMD-Vi on in the machine's firmware, and the IOMMU in the kernel (rackless plan " +
	"shows the arguments)"

func alone(topology.PCIAddr) bool { return false }

// viable returns an error if the host uses another function of the IOMMU group for which ours is false. VFIO takes a
// group whole or not at all ("group N is not viable"). A bridge counts unless its driver leaves memory alone: since
// Linux 5.19 the kernel checks driver_managed_dma, and before it checked less.
func (f function) viable(ours func(topology.PCIAddr) bool) error {
	group, err := f.group()
	if err != nil {
		return err
	}
	if group == "" {
		return fmt.Errorf("%s is in no IOMMU group: %s", f.a, fixIOMMU)
	}
	members, err := f.s.List(f.path("iommu_group/devices"))
	if err != nil {
		return err
	}
	for _, name := range members {
		a, err := topology.ParsePCIAddr(name)
		if err != nil {
			return fmt.Errorf("IOMMU group %s of %s also has %q, which is not on PCI: it cannot be given to a guest",
				group, f.a, name)
		}
		if a == f.a || ours(a) {
			continue
		}
		member := function{f.s, f.k, a}
		driver, err1 := member.driver()
		class, err2 := member.class()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		switch {
		case slices.Contains([]string{"", vfioPCI, "pci-stub"}, driver),
			class.Sub() == topology.SubPCIBridge && driver == "pcieport":
			continue
		case class.Base() == topology.ClassBridge:
			return fmt.Errorf("IOMMU group %s of %s also has bridge %s, which driver %s uses: the kernel does not "+
				"give such a group away; move the card to another slot", group, f.a, a, driver)
		}
		return fmt.Errorf("IOMMU group %s of %s also has %s, which the host uses with driver %s: a group goes to a "+
			"guest whole or not at all; give both away, or move one to another slot", group, f.a, a, driver)
	}
	return nil
}

func lastFunction(path string) (topology.PCIAddr, bool) {
	for path != "/" && path != "." {
		name := filepath.Base(path)
		if a, err := topology.ParsePCIAddr(name); err == nil && strings.Count(name, ":") == 2 {
			return a, true
		}
		path = filepath.Dir(path)
	}
	return topology.PCIAddr{}, false
}

type kernel struct {
	net      Network
	write    func(s *change.System, path, value string) error
	patience time.Duration
}

// patience covers the slowest known drivers: mlx5_core and nvidia take seconds to bind if the firmware is busy.
const patience = 30 * time.Second

func realKernel() *kernel {
	return &kernel{net: netlinkNetwork{}, write: (*change.System).WriteValue, patience: patience}
}

// orReal returns the real kernel if k is nil, as in an op made by a literal.
func (k *kernel) orReal() *kernel {
	if k == nil {
		return realKernel()
	}
	return k
}

// wait returns the last result of test.
func (k *kernel) wait(ctx context.Context, test func() (bool, error)) (bool, error) {
	const pause = 10 * time.Millisecond
	limited, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	err := wait.Until(limited, pause, test)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return test()
	}
	return err == nil, err
}

// Kinds returns the ops of this package.
func Kinds() change.Kinds { return kindsWith(realKernel()) }

func kindsWith(k *kernel) change.Kinds {
	return change.Kinds{
		kindModule:    func() change.Op { return &Module{} },
		kindDriver:    func() change.Op { return &Driver{k: k} },
		kindDriverctl: func() change.Op { return &Driverctl{} },
		kindSRIOV:     func() change.Op { return &SRIOV{k: k} },
		kindLink:      func() change.Op { return &Link{k: k} },
		kindFirmware:  func() change.Op { return &FirmwareSetting{} },
	}
}

const (
	kindModule    = "module"
	kindDriver    = "pci-driver"
	kindDriverctl = "driverctl"
	kindSRIOV     = "sriov"
	kindLink      = "pf-link"
	kindFirmware  = "nic-firmware"
)
